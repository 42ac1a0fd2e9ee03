// The clock of a process, which a test may set at any moment, for LD_PRELOAD.
// Elapsed time and the times of files are those of the machine, so file times lie hours before or after now, as with a
// file server whose clock differs.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
static const int *offset;
__attribute__((constructor)) static void start(void) {
    int file = open(getenv("CLOCK_OFFSET"), O_RDONLY);
    void *shared = file < 0 ? MAP_FAILED : mmap(0, sizeof *offset, PROT_READ, MAP_SHARED, file, 0);
    if (shared != MAP_FAILED) offset = shared;
}
int clock_gettime(clockid_t clock, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(clock, now);
    if (clock == CLOCK_REALTIME && offset) now->tv_sec += *offset;
    return result;
}
int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec exact;
    int result = clock_gettime(CLOCK_REALTIME, &exact);
    now->tv_sec = exact.tv_sec, now->tv_usec = exact.tv_nsec / 1000;
    return result;
}
