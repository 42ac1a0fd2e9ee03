#!/usr/bin/env python
"""torchrun, for a job that goes on when it was told to stop: ``python workflow/torchrun.py`` and torchrun's arguments.

torchrun starts its workers in sessions of their own, so that SIGURG, by which Slurm says that a job's time is nearly
over, does not reach them, and when it was told to stop it ends with status 1, as after an error. This hands SIGURG on,
waits until the workers have saved, and ends with the status of a stage that was stopped, see ``requeue.sh``. What was
not saved in time is lost as with a killed job: the next start goes on from the checkpoint before.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence

from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.run import main as torchrun

HANDED_ON = "SIGTERM,SIGINT,SIGHUP,SIGQUIT,SIGURG"
STOPPED = 75  # as `python -m pipeline_src` ends when it was told to stop and has saved
PATIENCE = 110  # seconds for the workers to save; Slurm's signal comes 120 seconds before the end


def main(arguments: Sequence[str]) -> int:
    """Run torchrun to its end; its exit status, where it was not an error."""
    # a new store for each restart: the one that torchrun keeps holds the addresses of processes that have ended
    os.environ.setdefault("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1")
    try:
        torchrun(["--signals-to-handle", HANDED_ON, "--shutdown-timeout", str(PATIENCE), *arguments])
    except SignalException as stop:
        # `srun --kill-on-bad-exit` ends the others when the first one has ended; they still have to say why.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        print(f"torchrun: told to stop by {stop.sigval.name}, and so were its workers", file=sys.stderr)
        return STOPPED
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
