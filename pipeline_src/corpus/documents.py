"""A document on disk: one JSON object a line, in shards, with a manifest that is written last.

``data/text/<corpus>/`` holds ``<shard>.jsonl`` files and ``manifest.json``. Every stage after the cleaning ones
reads documents through :func:`read_documents`, in the order of the shards' names.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pipeline_src.errors import PipelineError
from pipeline_src.files import hash_file, read_json, write_json


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


def read_manifest(folder: str | Path) -> dict[str, Any]:
    """The manifest of one corpus folder."""
    return read_json(Path(folder) / "manifest.json")


def corpus_folders(root: str | Path, parts: Sequence[str]) -> list[Path]:
    """The corpus folders below ``root``, in one order for all stages: books, then the listed parts of Wikipedia.

    Only what params.yaml lists is read: a part that was taken off the list may still lie there.
    """
    root = Path(root)
    return [root / "books", *(root / "wikipedia" / part for part in sorted(parts))]


def read_documents(folder: str | Path) -> Iterator[Document]:
    """Yield the documents of one corpus folder in order.

    Raises:
        PipelineError: a shard named by the manifest is missing or a line of it is not a document.
    """
    folder = Path(folder)
    for shard in read_manifest(folder)["shards"]:
        path = folder / shard["name"]
        remedy = "run the stage that makes this folder again"
        try:
            with open(path, encoding="utf-8") as file:
                for number, line in enumerate(file, start=1):
                    try:
                        record = json.loads(line)
                        yield Document(record["id"], record["title"], record["text"], record.get("revision"))
                    except (json.JSONDecodeError, KeyError, TypeError) as error:
                        raise PipelineError("not a document", error, where=f"{path}:{number}", remedy=remedy) from None
        except FileNotFoundError:
            raise PipelineError("shard not found", path, remedy=remedy) from None
