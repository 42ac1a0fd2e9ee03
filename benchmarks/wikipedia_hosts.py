"""610 MB of XML cleaned by four Dask workers on two hosts, next to one process: CPU time of all that take part.

The hosts are namespaces with a network between them, which only root can make; elsewhere they are this machine. Both
sides run at the same time, so that other work on the machine meets both.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil

from benchmarks._wikipedia_sides import TEXT
from benchmarks.material import CACHE
from benchmarks.measure import report
from benchmarks.wikipedia import TWICE, make_dump, megabytes, run_apart, shards
from pipeline_src.text.documents import read_manifest
from tests.two_machines import ADDRESSES, Machines

LINEAR = 0.75  # of the single process's CPU time, at least: 1 if the hosts together take no more
WORKERS = (0, 0, 1, 1)  # the host of each
HOSTS = "hosts"
# What Dask does by the clock (profile, ticks, monitors) takes 2 % of a core for each process: little
# where a worker has a core of its own, but not on a machine where twenty programs share one.
RARELY = {
    "DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED": "false",
    "DASK_DISTRIBUTED__WORKER__MEMORY__MONITOR_INTERVAL": "2s",
    "DASK_DISTRIBUTED__ADMIN__TICK__INTERVAL": "1s",
    "DASK_DISTRIBUTED__ADMIN__SYSTEM_MONITOR__INTERVAL": "10s",
    "DASK_DISTRIBUTED__SCHEDULER__WORK_STEALING_INTERVAL": "1s",
}
ROOT = Path(__file__).resolve().parents[1]


def main() -> None:
    """Run both sides and report."""
    dump = make_dump(TWICE)
    with ThreadPoolExecutor(2) as pool:
        single, hosts = pool.submit(run_apart, "beam", dump), pool.submit(run_on_hosts, dump)
        one, seconds = single.result()["cpu_s"], hosts.result()
    if read_manifest(CACHE / "wikipedia" / HOSTS / TEXT)["shards"] != shards("beam"):
        sys.exit("error: the hosts and the single process wrote different shards")
    print("  " + ", ".join(f"{name} {value:.1f}" for name, value in seconds.items()) + " CPU-s")
    total = sum(seconds.values())
    report(
        "wikipedia_hosts",
        "MB of XML per CPU-second",
        megabytes(TWICE) / total,
        {"one process": megabytes(TWICE) / one},
        {"one process": LINEAR},
        cpu_s=round(total, 2),
        cpu_s_single=round(one, 2),
        cpu_s_by_process={name: round(value, 2) for name, value in seconds.items()},
    )


def run_on_hosts(dump: Path) -> dict[str, float]:
    """Return the CPU seconds of scheduler, workers and the process of the stage."""
    folder = (CACHE / "wikipedia" / HOSTS).absolute()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as home:
        machines = Machines(Path(home))
        joined = os.geteuid() == 0 and bool(shutil.which("ip")) and machines.join(ADDRESSES["IPv4"])
        addresses = ADDRESSES["IPv4"] if joined else ("127.0.0.1", "127.0.0.1")
        file = Path(home, "scheduler.json")
        variables = {"PIPELINE_WORKERS": "1", "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **RARELY}

        def start(host: int, *command: str, **more: str) -> subprocess.Popen[str]:
            words = [sys.executable, "-m", *command]
            if joined:
                return machines.start(host, words, Path(home), ROOT, **variables, **more)
            return subprocess.Popen(words, cwd=home, env=os.environ | variables | more, text=True)

        common = ["--scheduler-file", str(file), "--no-dashboard"]
        processes = {"scheduler": start(0, "dask", "scheduler", *common, "--host", addresses[0])}
        try:
            while not file.exists():
                time.sleep(0.1)
            common += ["--no-nanny", "--nthreads=1", "--preload=pipeline_src.text.beam", f"--local-directory={home}"]
            for number, host in enumerate(WORKERS):
                name = f"worker {number}"
                processes[name] = start(host, "dask", "worker", *common, "--host", addresses[host])
            runner = "--runner=apache_beam.runners.dask.dask_runner.DaskRunner"
            beam_args = json.dumps([runner, f"--dask_scheduler_file={file}"])
            side = ["benchmarks._wikipedia_sides", "beam", str(dump.absolute()), str(folder)]
            processes["stage"] = start(0, *side, BEAM_ARGS=beam_args)
            _, status, usage = os.wait4(processes["stage"].pid, 0)
            if status:
                sys.exit("error: the stage failed on the hosts")
            del processes["stage"]
            times = {name: psutil.Process(process.pid).cpu_times() for name, process in processes.items()}
        finally:
            for process in processes.values():
                process.kill()
            machines.part()
    seconds = {name: sum(of_process[:4]) for name, of_process in times.items()}  # with ended children
    return {"stage": usage.ru_utime + usage.ru_stime, **seconds}


if __name__ == "__main__":
    main()
