"""A document on disk: one JSON object a line, in shards, with a manifest that is written last.

``data/text/<corpus>/`` holds ``<shard>.jsonl`` files and ``manifest.json``. Every stage after the cleaning ones
reads documents through :func:`read_documents`, in the order of the shards' names.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pipeline_src.common.errors import PipelineError
from pipeline_src.common.files import hash_file, read_json, write_json
from pipeline_src.common.paths import text_wikipedia
from pipeline_src.common.shapes import misfit

SLICE = 32 << 20  # bytes of a shard that one process reads at a time
COUNTS = {"documents": int, "words": int, "bytes": int, "dropped": {str: int}}  # of a manifest, beside its shards
DOCUMENT = dict.fromkeys(("id", "title", "text"), str)
MANIFEST = {"shards": [{"name": str, "bytes": int}]}
REMEDY = "run the stage that makes this folder again"


@dataclass(frozen=True)
class Document:
    """One article or book.

    Attributes:
        id: unique over all corpora and stable from run to run (``enwiki:12``, ``books:hamlet``).
        title: for people.
        text: prose; one paragraph a line, no blank lines.
        revision: the revision that was read, where the source has revisions.
    """

    id: str
    title: str
    text: str
    revision: int | None = None

    @cached_property
    def words(self) -> int:
        """How many words its text has, between white space."""
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


def write_manifest(folder: Path, shards: list[dict[str, Any]], dropped: dict[str, int], **more: Any) -> dict[str, Any]:
    """Write ``manifest.json``: totals, shards in the order of their names, and every drop by reason."""
    shards = sorted(shards, key=lambda shard: shard["name"])
    totals = {key: sum(shard[key] for shard in shards) for key in ("documents", "words", "bytes")}
    manifest = {**totals, "dropped": dict(sorted(dropped.items())), "shards": shards, **more}
    write_json(folder / "manifest.json", manifest)
    return manifest


def read_source(raw: Path) -> list[dict[str, str]]:
    """Name, title, licence and citation of raw data, as its download wrote them; empty where nothing is known of it."""
    path = raw / "source.json"
    if not path.exists():
        return []
    about = read_json(path)
    if not isinstance(about, dict):
        raise PipelineError("not a record of a source", path, remedy=f"take it away, or {REMEDY}")
    known = {"name": "name", "title": "description", "licence": "licence", "citation": "citation"}
    return [{key: str(about.get(said, "unknown")) for key, said in known.items()}]


def read_manifest(folder: str | Path, more: Mapping[str, Any] = MappingProxyType({})) -> dict[str, Any]:
    """The manifest of one corpus folder; ``more`` is the shape of what is read of it beside the shards."""
    return read_json(Path(folder) / "manifest.json", {**MANIFEST, **more})


def corpus_folders(root: str | Path, parts: Sequence[str]) -> list[Path]:
    """The corpus folders below ``root``, in one order for all stages: books, then the listed parts of Wikipedia.

    Only what params.yaml lists is read: a part that was taken off the list may still lie there.
    """
    root = Path(root)
    return [root / "books", *(text_wikipedia(part, root) for part in sorted(parts))]


def corpus_name(folder: Path, root: Path) -> str:
    """What a corpus folder below ``root`` is called: ``books``, or ``wikipedia/`` and the part."""
    return "/".join(folder.relative_to(root).parts[:2])


def corpus_label(folder: Path, root: Path) -> str:
    """What tables and the report call it: ``books``, or ``wikipedia-`` and the part."""
    return corpus_name(folder, root).replace("/", "-")


@dataclass(frozen=True)
class ShardSlice:
    """The documents of a shard whose lines begin in bytes [start, stop): work for one process at a time."""

    path: Path
    start: int
    stop: int

    @property
    def bytes(self) -> int:
        """Its size."""
        return self.stop - self.start


def slice_shards(folder: str | Path, size: int = SLICE) -> list[ShardSlice]:
    """Cut the shards of one corpus folder into slices of ``size`` bytes, in the order of the documents.

    Raises:
        PipelineError: a shard named by the manifest is missing or has another size.
    """
    slices = []
    for shard in read_manifest(folder)["shards"]:
        path = Path(folder) / shard["name"]
        found = path.stat().st_size if path.exists() else None
        if found != shard["bytes"]:
            what = "shard not found" if found is None else "shard is damaged"
            value = path if found is None else f"{found} bytes where {shard['bytes']} belong"
            raise PipelineError(what, value, where=None if found is None else path, remedy=REMEDY)
        slices += [ShardSlice(path, start, min(start + size, found)) for start in range(0, found, size)]
    return slices


def read_slice(part: ShardSlice) -> Iterator[Document]:
    """Yield the documents of one slice in order.

    Raises:
        PipelineError: a line is not a document.
    """
    with open(part.path, "rb") as file:
        position = part.start
        if position:  # the line under way there belongs to the slice before
            file.seek(position - 1)
            position += len(file.readline()) - 1
        while position < part.stop and (line := file.readline()):
            try:
                record = json.loads(line)
                wrong = misfit(record, DOCUMENT)
            except (ValueError, RecursionError) as error:
                wrong = str(error)
            if wrong:
                raise PipelineError("not a document", wrong, where=f"{part.path}, byte {position}", remedy=REMEDY)
            yield Document(record["id"], record["title"], record["text"], record.get("revision"))
            position += len(line)


def read_documents(folder: str | Path) -> Iterator[Document]:
    """Yield the documents of one corpus folder in order.

    Raises:
        PipelineError: a shard named by the manifest is missing or has another size, or a line of it is not a document.
    """
    for part in slice_shards(folder):
        yield from read_slice(part)
