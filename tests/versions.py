"""Files that a study or its owner changes: tests must pass after `make study`, on any machine and with any settings."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def versions(name: str, root: Path = ROOT) -> list[str]:
    """Return the text of a file as committed, then as it is in the working tree.

    What the documentation says has to agree with one of them: `make study` changes the second alone, and a maintainer
    who records a study changes both it and the documentation before the commit. Without git, as in a source archive,
    or with a file that was never committed, only the second is returned.
    """
    shown = subprocess.run(["git", "show", f"HEAD:./{name}"], cwd=root, capture_output=True, check=False)
    texts = [shown.stdout.decode()] if shown.returncode == 0 else []
    if (root / name).exists():  # a stage that was interrupted leaves no output
        texts.append((root / name).read_text(encoding="utf-8"))
    return texts
