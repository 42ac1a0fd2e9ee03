"""A disk that is really full: one clear error, nothing half-written, earlier artifacts intact."""

import os
import subprocess
import sys

import pytest


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 1 MiB."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", place], capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"mounting a small tmpfs needs more rights: {mounted.stderr.strip()}")
    yield place
    subprocess.run(["umount", place], check=True)


def test_books_on_a_full_disk(small_disk, root):
    (small_disk / "params.yaml").write_text((root / "workflow/presets/test.yaml").read_text(encoding="utf-8"))
    raw = small_disk / "data/raw/books"
    raw.mkdir(parents=True)
    paragraph = "The old house stood by the river, and nobody had lived there for many years. " * 6
    (raw / "one.txt").write_text((paragraph + "\n\n") * 600, encoding="utf-8")

    def books() -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-m", "pipeline_src", "clean_books"],
            cwd=small_disk,
            env={**os.environ, "PYTHONPATH": str(root)},
            capture_output=True,
            text=True,
        )

    (small_disk / "filler").write_bytes(bytes(600_000))
    earlier = small_disk / "data/text/books"
    earlier.mkdir(parents=True)
    (earlier / "manifest.json").write_text("earlier")
    full = books()
    assert full.returncode == 2 and "no space left on the disk" in full.stderr and "Traceback" not in full.stderr
    assert [path.name for path in (small_disk / "data/text").iterdir()] == ["books"]
    assert (earlier / "manifest.json").read_text() == "earlier"

    (small_disk / "filler").unlink()  # the remedy the message names
    assert books().returncode == 0
    assert "sha256" in (earlier / "manifest.json").read_text()
