"""Last step of ``make lock``: record what pip and Snakemake cannot read from the locks themselves.

Usage: ``python locks/record.py pylock.toml``, a lock of the study and its tests with the files of every package. Writes

* ``locks/wheels.txt``: package, version and the tags of its wheels, so that a test can check offline that every
  supported Python and platform installs without a compiler;
* the checksum of the locks into ``workflow/envs/pipeline.yaml``: ``snakemake --sdm conda`` makes a new environment
  when that file changes, and does not look at the files that it installs.
"""

from __future__ import annotations

import hashlib
import re
import sys
import tomllib
from pathlib import Path

# tags of CPython 3.11 to 3.14 on the supported platforms; all others are left out of the table
KEPT = re.compile(
    r"(cp31[1-4]-cp31[1-4]|cp3\d+-abi3|(py2\.)?py3-none)-(manylinux.*_(x86_64|aarch64)|macosx.*_(arm64|universal2))$"
)
LOCKS = Path(__file__).resolve().parent
CONDA = LOCKS.parent / "workflow/envs/pipeline.yaml"


def wheel_table(pylock: str) -> str:
    """One line a package: name, version, and the tags of its wheels ("-" if it is published as source only)."""
    lines = []
    for package in tomllib.loads(pylock)["packages"]:
        names = [wheel.get("name") or wheel["url"].rpartition("/")[2] for wheel in package.get("wheels", [])]
        tags = sorted("-".join(name.removesuffix(".whl").split("-")[-3:]) for name in names)
        pure = [tag for tag in tags if tag.endswith("-none-any")]
        lines.append(
            " ".join([package["name"], package["version"], *(pure or list(filter(KEPT.match, tags)) or ["-"])])
        )
    return "\n".join(lines) + "\n"


def locks_checksum(root: Path = LOCKS.parent) -> str:
    """Checksum of what the study's environment is installed from."""
    return hashlib.sha256(
        b"".join((root / name).read_bytes() for name in ("torch.lock", "locks/study.lock"))
    ).hexdigest()


def main() -> None:
    """Write both."""
    (LOCKS / "wheels.txt").write_text(wheel_table(Path(sys.argv[1]).read_text(encoding="utf-8")), encoding="utf-8")
    text = re.sub(r"(?m)^# locks: .*$", f"# locks: {locks_checksum()}", CONDA.read_text(encoding="utf-8"))
    CONDA.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
