#!/usr/bin/env python
"""torchrun for Slurm jobs that can be stopped and requeued: ``python workflow/torchrun.py TORCHRUN_ARGUMENTS``.

Plain torchrun has two problems. It starts its workers in separate sessions, so they do not get SIGURG, Slurm's warning
before the time limit. And after a signal it exits with status 1, as after an error.

This program forwards SIGURG and waits until the workers have saved a checkpoint. Then it exits with the status of a
stopped stage, which ``requeue.sh`` expects. If saving takes too long, the next start continues from the previous
checkpoint.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence

from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.run import main as torchrun

FORWARDED_SIGNALS = "SIGTERM,SIGINT,SIGHUP,SIGQUIT,SIGURG"
# Exit status of `python -m pipeline_src` after a signal, when its state is saved.
STOPPED = 75
# Time that the workers have to save a checkpoint. Slurm's signal comes 120 seconds before the time limit.
SHUTDOWN_SECONDS = 110


def main(arguments: Sequence[str]) -> int:
    """Run torchrun, and return 0, or ``STOPPED`` if a signal stopped it.

    Errors of the workers are raised.
    """
    # Use a new store for each restart. torchrun's shared store would still have the addresses of dead processes.
    os.environ.setdefault("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1")
    try:
        torchrun(["--signals-to-handle", FORWARDED_SIGNALS, "--shutdown-timeout", str(SHUTDOWN_SECONDS), *arguments])
    except SignalException as stop:
        # When the first torchrun has ended, `srun --kill-on-bad-exit` sends SIGTERM to all others. Ignore it, so that
        # this one can still print its message.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        print(f"torchrun: stopped by {stop.sigval.name}, with its workers", file=sys.stderr)
        return STOPPED
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
