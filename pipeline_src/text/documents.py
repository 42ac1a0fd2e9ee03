"""Read and write documents: shards with one JSON object per line, and a manifest that is written last.

``data/text/<source>/clean-text/`` holds ``<shard>.jsonl`` files and ``manifest.json``. Every stage after ``clean``
reads documents in the order of the shards' names.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b, sha256
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.files import atomic_file, parse_json_line, read_json, write_json
from pipeline_src.base.names import checked_path
from pipeline_src.base.paths import clean_text
from pipeline_src.study.data import ALL_PARTS
from pipeline_src.text.words import count_words

# Default language of a source.
ENGLISH = "en"
# With fewer validation documents, a validation loss is unreliable.
MIN_VALIDATION_DOCUMENTS = 10
# Size of the part of a shard that one worker reads at a time.
SLICE_BYTES = 32 << 20
# Schema of the counts in the manifest of a cleaned source.
COUNTS = {"documents": int, "words": int, "bytes": int, "dropped": {str: int}}
DOCUMENT = dict.fromkeys(("id", "title", "text"), str)
MANIFEST = {"shards": [{"name": str, "bytes": int}]}
HINT = "run the stage that makes this folder again"
# The ASCII control characters except white space. The control characters U+0080 to U+009F are kept, since they are
# mostly cp1252 punctuation that was decoded as Latin-1.
_CONTROLS = bytes([*range(9), *range(14, 28), 127])


@dataclass(frozen=True)
class Document:
    """One article or book.

    Attributes:
        id: unique among all sources, and the same in every run (``enwiki:12``, ``books:hamlet``).
        text: prose with one paragraph per line, without blank lines.
    """

    id: str
    title: str
    text: str
    revision: int | None = None

    @cached_property
    def words(self) -> int:
        return count_words(self.text)


def without_controls(text: str) -> str:
    # Remove control characters such as NUL.
    return text.encode("utf-8", "surrogatepass").translate(None, _CONTROLS).decode("utf-8", "surrogatepass")


def write_shard(path: Path, documents: Iterable[Document]) -> dict[str, Any]:
    """Write a shard, replacing an existing file, and return its entry for the manifest."""
    num_documents = num_words = num_bytes = 0
    digest = sha256()
    # Two Beam workers may write the same shard at the same time: a runner restarts the work of a worker that it takes
    # for dead.
    with atomic_file(path, "wb", shared=True) as file:
        for document in documents:
            record: dict[str, Any] = {"id": document.id, "title": document.title, "text": document.text}
            if document.revision is not None:
                record["revision"] = document.revision
            line = (json.dumps(record, ensure_ascii=False) + "\n").encode()
            file.write(line)
            digest.update(line)
            num_documents += 1
            num_words += document.words
            num_bytes += len(line)
    return {
        "name": path.name,
        "documents": num_documents,
        "words": num_words,
        "bytes": num_bytes,
        "sha256": digest.hexdigest(),
    }


def write_manifest(folder: Path, shards: list[dict[str, Any]], dropped: dict[str, int], **more: Any) -> dict[str, Any]:
    shards = sorted(shards, key=lambda shard: shard["name"])
    manifest = {
        "documents": sum(shard["documents"] for shard in shards),
        "words": sum(shard["words"] for shard in shards),
        "bytes": sum(shard["bytes"] for shard in shards),
        "dropped": dict(sorted(dropped.items())),
        "shards": shards,
        **more,
    }
    write_json(folder / "manifest.json", manifest)
    return manifest


def part_names(raw: Path, parts: Sequence[str]) -> Sequence[str]:
    # The part name "all" selects every downloaded folder.
    if tuple(parts) != ALL_PARTS or (raw / ALL_PARTS[0]).exists():
        return parts
    return sorted(path.parent.name for path in raw.glob("*/source.json"))


def read_origins(raw: Path, parts: Sequence[str] = ()) -> list[dict[str, str]]:
    """Read the name, title, licence, citation and language of each downloaded part.

    Args:
        raw: folder of the source's downloaded files.
        parts: subfolders of ``raw``; empty if the source has no parts.
    """
    origins = []
    for path in [raw / part / "source.json" for part in parts or ("",)]:
        if not path.exists():
            continue
        about = read_json(path)
        if not isinstance(about, dict):
            raise PipelineError(
                "source.json is not a JSON object", path, hint="delete this file, or run the stage `download` again"
            )
        known = {"name": "name", "title": "description", "licence": "licence", "citation": "citation"}
        language = {"language": str(about["language"])} if about.get("language") else {}
        origins.append({key: str(about.get(field, "unknown")) for key, field in known.items()} | language)
    return origins


def read_manifest(folder: str | Path, more: Mapping[str, Any] = MappingProxyType({})) -> dict[str, Any]:
    """Read the manifest of a cleaned source and check its schema.

    Args:
        more: schema of further keys that the manifest must have.
    """
    path = Path(folder) / "manifest.json"
    manifest: dict[str, Any] = read_json(path, {**MANIFEST, **more})
    for shard in manifest["shards"]:
        checked_path(shard["name"], path)
    return manifest


def corpus_folders(root: str | Path, sources: Iterable[str]) -> dict[str, Path]:
    return {name: clean_text(name, Path(root)) for name in sorted(sources)}


def language_of(folder: Path) -> str:
    return read_manifest(folder).get("language") or ""


@dataclass(frozen=True)
class ShardSlice:
    """The documents whose lines begin in bytes [start, stop) of a shard."""

    path: Path
    start: int
    stop: int

    @property
    def bytes(self) -> int:
        return self.stop - self.start


def slice_shards(folder: str | Path, size: int = SLICE_BYTES) -> list[ShardSlice]:
    """Split the shards of a folder into slices of at most ``size`` bytes, in order."""
    slices = []
    for shard in read_manifest(folder)["shards"]:
        path = Path(folder) / shard["name"]
        end = shard["bytes"]
        if not path.exists():
            raise PipelineError("shard not found", path, hint=HINT)
        size_on_disk = path.stat().st_size
        if size_on_disk != end:
            value = f"{size_on_disk} bytes instead of {end}"
            raise PipelineError("shard is damaged", value, where=path, hint=HINT)
        for start in range(0, end, size):
            slices.append(ShardSlice(path, start, min(start + size, end)))
    return slices


def read_slice(part: ShardSlice) -> Iterator[Document]:
    with open(part.path, "rb") as file:
        position = part.start
        # Skip a line that begins before the slice. The previous slice reads it.
        if position:
            file.seek(position - 1)
            position += len(file.readline()) - 1
        while position < part.stop and (line := file.readline()):
            record = parse_json_line(line, DOCUMENT, "not a document", f"{part.path}, byte {position}", HINT)
            yield Document(record["id"], record["title"], record["text"], record.get("revision"))
            position += len(line)


def read_documents(folder: str | Path) -> Iterator[Document]:
    for part in slice_shards(folder):
        yield from read_slice(part)


def few_validation_documents(parts: Mapping[str, Mapping[str, Mapping[str, int]]]) -> dict[str, int]:
    """Return the sources with too few validation documents, and how many they have.

    Sources without any training documents are ignored.

    Args:
        parts: split -> source -> counts of the source's documents in the split.
    """
    counts = {source: parts["validation"][source]["documents"] for source in parts["train"]}
    return {
        source: count
        for source, count in counts.items()
        if count < MIN_VALIDATION_DOCUMENTS and parts["train"][source]["documents"]
    }


def in_validation_split(document_id: str, seed: int, share: float) -> bool:
    """Return whether a document belongs to the validation split.

    This depends only on the id and the seed. It is true for about the fraction ``share`` of all ids.
    """
    digest = blake2b(document_id.encode(), digest_size=8, key=f"heldout {seed}".encode()).digest()
    return int.from_bytes(digest, "little") < share * 2**64
