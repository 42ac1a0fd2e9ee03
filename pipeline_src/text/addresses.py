"""Files by path, or at an address of one of Apache Beam's file systems, such as ``gs://bucket/folder/file``.

Beam takes a second to import, so a process imports it only when it opens an address or builds a pipeline.
"""

from __future__ import annotations

import logging
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

Location = Path | str  # a path, or an address
# Beam says when it is imported that Google Cloud's libraries are missing; nothing here needs them
logging.getLogger().addFilter(lambda record: not record.getMessage().startswith("apitools not found"))


@cache  # another thread must be able to import the two while files are opened
def import_beam() -> Any:
    """Import Beam without two installed libraries that it would import for uses not made here: 1 CPU-second of 2."""
    unused = [name for name in ("pandas", "pymongo") if name not in sys.modules]
    modules: dict[str, Any] = sys.modules
    modules.update(dict.fromkeys(unused))  # Beam then takes them as not installed
    logging.getLogger("apache_beam.io.mongodbio").setLevel(logging.ERROR)  # it warns that pymongo is missing
    try:
        import apache_beam
    finally:
        for name in unused:
            del modules[name]
    return apache_beam


def open_file(location: Location, mode: str = "rb") -> Any:
    """Open a file of this machine, or at an address, for reading (``rb``) or writing (``wb``) bytes."""
    if isinstance(location, Path):
        if mode == "wb":
            location.parent.mkdir(parents=True, exist_ok=True)
        return open(location, mode)
    systems = file_systems()
    from apache_beam.io.filesystem import CompressionTypes

    function = systems.open if mode == "rb" else systems.create
    return function(location, compression_type=CompressionTypes.UNCOMPRESSED)  # AUTO would unpack a dump


@contextmanager
def input_folder(folder: Location) -> Iterator[Path]:
    """Yield a folder that was sent to a worker; of an address, a temporary copy."""
    if isinstance(folder, Path):
        yield folder
        return
    with TemporaryDirectory() as temporary:
        for match in file_systems().match([f"{folder}/*"]):
            for file in match.metadata_list:
                copy_file(file.path, Path(temporary, file.path.rpartition("/")[2]))
        yield Path(temporary)


@contextmanager
def output_folder(folder: Location) -> Iterator[Path]:
    """Yield the folder into which a worker writes; for an address, a temporary one, whose files are then sent there."""
    if isinstance(folder, Path):
        yield folder
        return
    with TemporaryDirectory() as temporary:
        yield Path(temporary)
        for file in Path(temporary).iterdir():
            copy_file(file, f"{folder}/{file.name}")


def file_systems() -> Any:
    """Return Beam's class ``FileSystems``."""
    import_beam()
    from apache_beam.io.filesystems import FileSystems

    return FileSystems


def copy_file(source: Location, target: Location) -> None:
    """Copy a file from or to an address."""
    with open_file(source) as reader, open_file(target, "wb") as writer:
        shutil.copyfileobj(reader, writer, 1 << 20)
