"""Drop documents from written shards, and keep a sample of the dropped ones in ``dropped.jsonl``."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Set
from hashlib import blake2b
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pipeline_src.base.files import write_json_lines
from pipeline_src.text.documents import Document, ShardSlice, read_slice, write_shard

# Number of dropped documents in the sample, for each reason.
SAMPLE_SIZE = 20
MAX_CHARACTERS = 2_000
Record = dict[str, Any]


class DroppedSample:
    """A sample of up to ``SAMPLE_SIZE`` dropped documents for each reason.

    The sample has the first documents in a pseudo-random order that depends only on their ids. It is therefore the same
    for any number of workers, and for any order in which documents are added.
    """

    def __init__(self) -> None:
        self._by_reason: defaultdict[str, dict[tuple[bytes, str], Record]] = defaultdict(dict)

    def add(self, reason: str, document: Document, value: object = None, limit: float | None = None) -> None:
        """Add a dropped document.

        Args:
            document: the document. Its text may also be the source of the page, if this explains the reason better.
            value: the value that broke the rule (JSON-serializable), or None if the reason says enough.
            limit: threshold of the rule, or None if it has none.
        """
        record: Record = {"reason": reason, "id": document.id, "title": document.title}
        if value is not None:
            record["value"] = value
        if limit is not None:
            record["limit"] = limit
        record["text"] = document.text[:MAX_CHARACTERS]
        self.merge([record])

    def merge(self, records: Iterable[Record]) -> None:
        for record in records:
            sample = self._by_reason[record["reason"]]
            order = blake2b(record["id"].encode("utf-8", "surrogatepass"), digest_size=8).digest()
            sample[order, record["id"]] = record
            if len(sample) > SAMPLE_SIZE:
                del sample[max(sample)]

    def records(self) -> list[Record]:
        samples = [sample for _, sample in sorted(self._by_reason.items())]
        return [sample[key] for sample in samples for key in sorted(sample)]

    def write(self, folder: Path) -> None:
        write_json_lines(folder / "dropped.jsonl", self.records())


def drop_documents(
    folder: Path,
    shards: list[dict[str, Any]],
    max_words: int | None,
    sample: DroppedSample,
    repeated: Mapping[str, Set[int]] = MappingProxyType({}),
) -> tuple[list[dict[str, Any]], Counter[str]]:
    """Drop repeated documents, then random documents until at most ``max_words`` words remain.

    The documents are visited in a pseudo-random order that depends only on their ids. Each is kept if it fits into the
    remaining words. Memory grows by some bytes per document, not with the length of its text.

    Args:
        shards: the shards' entries for the manifest.
        max_words: maximum number of words of all documents; None for no limit.
        sample: repeated documents are added to this sample.
        repeated: name of a shard -> positions of its repeated documents.

    Returns:
        New entries of the shards for the manifest, and the number of dropped documents by reason.
    """

    def read(shard: dict[str, Any]) -> Iterator[Document]:
        positions = repeated.get(shard["name"], ())
        for position, document in enumerate(read_slice(ShardSlice(folder / shard["name"], 0, shard["bytes"]))):
            if position in positions:
                sample.add("repeated", document)
            else:
                yield document

    dropped = Counter(repeated=sum(map(len, repeated.values())))
    # Keys of the documents to keep. None keeps every document.
    selected: set[bytes] | None = None
    if max_words is not None and sum(shard["words"] for shard in shards) > max_words:
        keys = [(_key(document), document.words) for shard in shards for document in read(shard)]
        selected = set()
        for key, num_words in sorted(keys):
            if num_words <= max_words:
                max_words -= num_words
                selected.add(key)
        dropped["beyond_max_words"] = len(keys) - len(selected)
    rewritten = []
    for shard in shards:
        if selected is not None or shard["name"] in repeated:
            documents = (document for document in read(shard) if selected is None or _key(document) in selected)
            shard = write_shard(folder / shard["name"], documents)
        rewritten.append(shard)
    return rewritten, dropped


def _key(document: Document) -> bytes:
    return blake2b(document.id.encode()).digest()
