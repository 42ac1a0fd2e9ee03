"""A Beam file system of its own scheme, whose files are in the folder ``$BEAM_FILES``. Importing registers it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from apache_beam.io.filesystem import CompressedFile, CompressionTypes, FileMetadata, FileSystem

SCHEME = "stored"
OPTIONS = (f"--temp_location={SCHEME}://bucket/tmp/",)


def files() -> list[Path]:
    """What it stores."""
    return [path for path in Path(os.environ["BEAM_FILES"]).rglob("*") if path.is_file()]


class StoredFileSystem(FileSystem):
    """Without folders, as object stores are."""

    @classmethod
    def scheme(cls) -> str:
        return SCHEME

    def _file(self, path: str) -> Path:
        return Path(os.environ["BEAM_FILES"], path.removeprefix(f"{SCHEME}://"))

    def _opened(self, path: str, mode: str, compression_type: str) -> Any:
        file: IO[bytes] = open(self._file(path), mode)
        compression_type = FileSystem._get_compression_type(path, compression_type)
        return file if compression_type == CompressionTypes.UNCOMPRESSED else CompressedFile(file, compression_type)

    def create(self, path: str, mime_type: str = "", compression_type: str = CompressionTypes.AUTO) -> Any:
        self._file(path).parent.mkdir(parents=True, exist_ok=True)
        return self._opened(path, "wb", compression_type)

    def open(self, path: str, mime_type: str = "", compression_type: str = CompressionTypes.AUTO) -> Any:
        return self._opened(path, "rb", compression_type)

    def has_dirs(self) -> bool:
        return False

    def _list(self, dir_or_prefix: str) -> Iterator[FileMetadata]:
        for file in files():
            path = f"{SCHEME}://{file.relative_to(os.environ['BEAM_FILES'])}"
            if path.startswith(dir_or_prefix):
                yield self.metadata(path)

    def metadata(self, path: str) -> FileMetadata:
        return FileMetadata(path, self.size(path))

    def size(self, path: str) -> int:
        return self._file(path).stat().st_size

    def exists(self, path: str) -> bool:
        return self._file(path).exists()

    def delete(self, paths: list[str]) -> None:
        for result in self.match(paths):
            for file in result.metadata_list:
                self._file(file.path).unlink()

    def _unused(self, *_: object) -> Any:
        raise NotImplementedError

    join = split = mkdirs = copy = rename = last_updated = checksum = _unused
