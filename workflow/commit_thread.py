"""What Snakemake has finished is recorded while other jobs still run: killed in that time, a run has lost nothing.

At its next start Snakemake would find it by the stamps. But `dvc repro` may come first, and it knows dvc.lock alone.
"""

from __future__ import annotations

import threading
import time

from dvc_stages import Pipeline
from dvc_state import State, finished_stages
from engine_api import LockError, Repo, lock_repo, logger
from lock_file import keep_copy

SECONDS = 5.0  # between two looks
SHARE = 10  # and this many times as long as the last recording took: dvc.yaml and dvc.lock are read anew


class CommitThread(threading.Thread):
    """Looks for new stamps until :meth:`end`; what cannot be recorded now is left to the run's end."""

    def __init__(self) -> None:
        super().__init__(name="commit", daemon=True)
        self._seen: set[str] = set()
        self._recorded: set[str] = set()
        self._ended = threading.Event()

    def run(self) -> None:
        """The thread."""
        pause = SECONDS
        while not self._ended.wait(pause):
            if new := finished_stages() - self._seen:
                began = time.monotonic()
                self._record(new)
                pause = max(SECONDS, SHARE * (time.monotonic() - began))

    def end(self) -> set[str]:
        """Let it finish what it is at; names of the stages that it recorded."""
        self._ended.set()
        if self.is_alive():
            self.join()
        return self._recorded

    def _record(self, new: set[str]) -> None:
        try:
            with Repo(".") as repo, lock_repo(repo):
                self._recorded |= State(Pipeline(repo)).record(self._recorded)
                keep_copy(repo)
        except (LockError, FileNotFoundError):
            return  # a DVC command is at work for a moment, or a job begins again: at the next look
        except Exception as error:  # a file half edited, a full disk: the run goes on, and its end tells
            logger.warning(f"dvc: not recorded before the end of the run: {error}")
        self._seen |= new
