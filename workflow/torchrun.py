#!/usr/bin/env python
"""torchrun for a job that can be stopped and requeued: ``python workflow/torchrun.py`` and torchrun's arguments.

torchrun starts its workers in separate sessions, which SIGURG, Slurm's warning before the time limit, does not reach;
and a stopped torchrun exits with status 1, as after an error. This program forwards SIGURG, waits until the workers
have saved, and exits with the status of a stopped stage, see ``requeue.sh``. Steps that were not saved in time are
lost, as in a killed job: the next start continues from the last checkpoint.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence

from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.run import main as torchrun

FORWARDED_SIGNALS = "SIGTERM,SIGINT,SIGHUP,SIGQUIT,SIGURG"
# The exit status of `python -m pipeline_src` when it has saved after a signal.
STOPPED = 75
# The workers have this time to save: Slurm's signal comes 120 seconds before the end.
SHUTDOWN_SECONDS = 110


def main(arguments: Sequence[str]) -> int:
    """Run torchrun; return 0, or ``STOPPED`` if a signal stopped it. Errors of the workers are raised."""
    # a new store for each restart: torchrun's shared store has the addresses of processes that have ended
    os.environ.setdefault("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1")
    try:
        torchrun(["--signals-to-handle", FORWARDED_SIGNALS, "--shutdown-timeout", str(SHUTDOWN_SECONDS), *arguments])
    except SignalException as stop:
        # `srun --kill-on-bad-exit` ends the others when the first one has ended; they still have to say why.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        print(f"torchrun: stopped by {stop.sigval.name}, with its workers", file=sys.stderr)
        return STOPPED
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
