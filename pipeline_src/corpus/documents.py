"""Documents on disk: one JSON object per line, in shards, with a manifest that is written last.

``data/text/<source>/clean-text/`` holds ``<shard>.jsonl`` files and ``manifest.json``. Every stage after ``clean``
reads documents through :func:`read_documents`, in the order of the shards' names.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pipeline_src.common.errors import PipelineError
from pipeline_src.common.files import hash_file, parse_json_line, read_json, write_json
from pipeline_src.common.paths import clean_text
from pipeline_src.config.data import ALL_PARTS

ENGLISH = "en"  # the language of a source that states none
FEW = 10  # validation documents of a source, below which its figures say little
SLICE = 32 << 20  # bytes of a shard that one process reads at a time
COUNTS = {"documents": int, "words": int, "bytes": int, "dropped": {str: int}}  # keys of a manifest of a cleaned corpus
DOCUMENT = dict.fromkeys(("id", "title", "text"), str)
MANIFEST = {"shards": [{"name": str, "bytes": int}]}
HINT = "run the stage that makes this folder again"


@dataclass(frozen=True)
class Document:
    """One article or book.

    Attributes:
        id: unique over all corpora and stable from run to run (``enwiki:12``, ``books:hamlet``).
        text: prose; one paragraph per line, no blank lines.
        revision: revision of the article, if the source has revisions.
    """

    id: str
    title: str
    text: str
    revision: int | None = None

    @cached_property
    def words(self) -> int:
        """Number of words of the text, separated by white space."""
        return len(self.text.split())


def write_shard(path: Path, documents: Iterable[Document]) -> dict[str, Any]:
    """Write one shard and return its row of the manifest: name, documents, words, bytes, sha256.

    The caller makes the folder atomic (``files.atomic_directory``).
    """
    counts: Counter[str] = Counter()
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        for document in documents:
            record = {"id": document.id, "title": document.title, "text": document.text}
            if document.revision is not None:
                record["revision"] = document.revision  # type: ignore[assignment]
            file.write(json.dumps(record, ensure_ascii=False) + "\n")
            counts.update(documents=1, words=document.words)
    return {
        "name": path.name,
        "documents": counts["documents"],
        "words": counts["words"],
        "bytes": path.stat().st_size,
        "sha256": hash_file(path),
    }


def subsample_to_words(
    folder: Path, shards: list[dict[str, Any]], most: int | None
) -> tuple[list[dict[str, Any]], int]:
    """Leave out documents, so that the others have at most ``most`` words; the caller makes the folder atomic.

    Documents are taken in an order keyed by their ids as long as they fit, so that a few are as varied as all.

    Args:
        shards: rows of its manifest; a shard from which documents are left out is written again.
        most: None for all.

    Returns:
        The rows of the manifest, and the number of documents left out.
    """
    if most is None or sum(shard["words"] for shard in shards) <= most:
        return shards, 0
    slices = {shard["name"]: ShardSlice(folder / shard["name"], 0, shard["bytes"]) for shard in shards}
    sizes = [(blake2b(each.id.encode()).digest(), each.words) for part in slices.values() for each in read_slice(part)]
    kept: set[bytes] = set()
    for digest, words in sorted(sizes):
        if words <= most:
            most -= words
            kept.add(digest)
    rows = []
    for name, part in slices.items():
        partial = folder / f".{name}"
        documents = (each for each in read_slice(part) if blake2b(each.id.encode()).digest() in kept)
        rows.append(write_shard(partial, documents) | {"name": name})
        os.replace(partial, folder / name)
    return rows, len(sizes) - len(kept)


def write_manifest(folder: Path, shards: list[dict[str, Any]], dropped: dict[str, int], **more: Any) -> dict[str, Any]:
    """Write ``manifest.json``: totals, shards in the order of their names, and every drop by reason."""
    shards = sorted(shards, key=lambda shard: shard["name"])
    totals = {key: sum(shard[key] for shard in shards) for key in ("documents", "words", "bytes")}
    manifest = {**totals, "dropped": dict(sorted(dropped.items())), "shards": shards, **more}
    write_json(folder / "manifest.json", manifest)
    return manifest


def part_names(raw: Path, parts: Sequence[str]) -> Sequence[str]:
    """Return the names of a source's parts; ``all`` stands for every folder that the download has filled."""
    if tuple(parts) != ALL_PARTS or (raw / ALL_PARTS[0]).exists():
        return parts
    return sorted(path.parent.name for path in raw.glob("*/source.json"))


def read_origins(raw: Path, parts: Sequence[str] = ()) -> list[dict[str, str]]:
    """Return name, title, licence, citation and, if known, language of a source's files, as its download wrote them."""
    origins = []
    for path in [raw / part / "source.json" for part in parts or ("",)]:
        if not path.exists():
            continue
        about = read_json(path)
        if not isinstance(about, dict):
            raise PipelineError("not a record of a source", path, hint=f"take it away, or {HINT}")
        known = {"name": "name", "title": "description", "licence": "licence", "citation": "citation"}
        language = {"language": str(about["language"])} if about.get("language") else {}
        origins.append({key: str(about.get(said, "unknown")) for key, said in known.items()} | language)
    return origins


def read_manifest(folder: str | Path, more: Mapping[str, Any] = MappingProxyType({})) -> dict[str, Any]:
    """Return the manifest of a corpus folder; ``more`` is the shape of further keys that are read."""
    return read_json(Path(folder) / "manifest.json", {**MANIFEST, **more})


def corpus_folders(root: str | Path, sources: Iterable[str]) -> dict[str, Path]:
    """Return the folder of each source below ``root``, by the source's name, in the order of all stages: by name.

    Folders of sources that are no longer in params.yaml are not read.
    """
    return {name: clean_text(name, Path(root)) for name in sorted(sources)}


def language_of(folder: Path) -> str:
    """Return the language of a corpus folder, '' if its manifest states none."""
    return read_manifest(folder).get("language") or ""


@dataclass(frozen=True)
class ShardSlice:
    """The documents of a shard whose lines begin in bytes [start, stop): the work of one process."""

    path: Path
    start: int
    stop: int

    @property
    def bytes(self) -> int:
        return self.stop - self.start


def slice_shards(folder: str | Path, size: int = SLICE) -> list[ShardSlice]:
    """Cut the shards of one corpus folder into slices of ``size`` bytes, in the order of the documents."""
    slices = []
    for shard in read_manifest(folder)["shards"]:
        path = Path(folder) / shard["name"]
        if not path.exists():
            raise PipelineError("shard not found", path, hint=HINT)
        found, stated = path.stat().st_size, shard["bytes"]
        if found != stated:
            raise PipelineError("shard is damaged", f"{found} bytes where {stated} belong", where=path, hint=HINT)
        slices += [ShardSlice(path, start, min(start + size, found)) for start in range(0, found, size)]
    return slices


def read_slice(part: ShardSlice) -> Iterator[Document]:
    """Yield the documents of one slice in order."""
    with open(part.path, "rb") as file:
        position = part.start
        if position:  # a line that began earlier belongs to the previous slice
            file.seek(position - 1)
            position += len(file.readline()) - 1
        while position < part.stop and (line := file.readline()):
            record = parse_json_line(line, DOCUMENT, "not a document", f"{part.path}, byte {position}", HINT)
            yield Document(record["id"], record["title"], record["text"], record.get("revision"))
            position += len(line)


def read_documents(folder: str | Path) -> Iterator[Document]:
    """Yield the documents of one corpus folder in order."""
    for part in slice_shards(folder):
        yield from read_slice(part)


def few_validation_documents(parts: Mapping[str, Mapping[str, Mapping[str, int]]]) -> dict[str, int]:
    """Return the number of validation documents of each source with fewer than ten.

    Args:
        parts: split -> source -> counts of its documents; sources without documents are left out.
    """
    found = {source: parts["validation"][source]["documents"] for source in parts["train"]}
    return {source: few for source, few in found.items() if few < FEW and parts["train"][source]["documents"]}


def in_validation_split(document_id: str, seed: int, share: float) -> bool:
    """Return whether a document is for validation, so that no training stage may see it.

    That depends only on its id and the seed, and holds for about ``share`` (0 to 1) of all ids.
    """
    digest = blake2b(document_id.encode(), digest_size=8, key=f"heldout {seed}".encode()).digest()
    return int.from_bytes(digest, "little") < share * 2**64
