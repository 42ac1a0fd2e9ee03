"""Run a part of a test as another user of this machine, who shares a group with the others."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

GROUP = 64_000
FIRST, SECOND = 64_001, 64_002
needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can be other users")


def share(folder: Path) -> None:
    """Let the group write to a folder and to all that is made in it, as for people who share a checkout."""
    os.chown(folder, 0, GROUP)
    folder.chmod(0o2775)


def as_user(number: int, function: Callable[[], object]) -> None:
    """Call ``function`` in a child process of the user ``number`` with umask 002; its failure is the test's.

    The child stays in the working folder, which may be below folders that are closed to the user.
    """
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.setgroups([])
            os.setresgid(GROUP, GROUP, GROUP)
            os.setresuid(number, number, number)
            os.umask(0o002)
            function()
            status = 0
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, "see the traceback of the child in stderr"
