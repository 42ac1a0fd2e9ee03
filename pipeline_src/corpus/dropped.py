"""Documents that a stage dropped: a few for each reason, to be read, in ``dropped.jsonl`` of its output folder."""

from __future__ import annotations

import json
from bisect import insort
from collections.abc import Iterable
from hashlib import blake2b
from pathlib import Path
from typing import Any

from pipeline_src.common.errors import PipelineError
from pipeline_src.common.files import read_json_lines
from pipeline_src.corpus.documents import HINT, Document

FILE = "dropped.jsonl"
KEPT = 20  # documents of each reason
CHARACTERS = 2_000  # from the start of each text
ROW = dict.fromkeys(("reason", "id", "title", "text"), str)
Row = dict[str, Any]


class DroppedSample:
    """The first ``KEPT`` documents of each reason, in an order keyed by their ids.

    The order depends neither on that of the documents nor on the number of workers.
    """

    def __init__(self) -> None:
        self._rows: dict[str, list[tuple[bytes, str, Row]]] = {}

    def add(self, reason: str, document: Document, value: object = None, limit: float | None = None) -> None:
        """Add a document.

        Args:
            document: the text may be any that explains the reason, such as the source of a page.
            value: what broke the rule, if the reason alone does not say it; something that JSON can hold.
            limit: the threshold that it broke.
        """
        key = blake2b(document.id.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        first = self._rows.setdefault(reason, [])
        if len(first) == KEPT and (key, document.id) >= first[-1][:2]:
            return
        row = {"reason": reason, "id": document.id, "title": document.title, "value": value, "limit": limit}
        row = {name: entry for name, entry in row.items() if entry is not None}
        insort(first, (key, document.id, row | {"text": document.text[:CHARACTERS]}), key=lambda each: each[:2])
        del first[KEPT:]

    def merge(self, rows: Iterable[Row]) -> None:
        """Add the :meth:`rows` of another sample."""
        for row in rows:
            document = Document(row["id"], row["title"], row["text"])
            self.add(row["reason"], document, row.get("value"), row.get("limit"))

    def rows(self) -> list[Row]:
        """Return the documents kept, by reason and in the keyed order."""
        return [row for reason in sorted(self._rows) for _, _, row in self._rows[reason]]

    def write(self, folder: Path) -> None:
        """Write ``dropped.jsonl``, empty if nothing was dropped."""
        with open(folder / FILE, "w", encoding="utf-8", errors="backslashreplace", newline="\n") as file:
            file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in self.rows())


def read_dropped(folder: Path) -> list[Row]:
    """Read the file that :meth:`DroppedSample.write` wrote."""
    path = folder / FILE
    if not path.exists():
        raise PipelineError("no record of dropped documents", path, hint=HINT)
    return list(read_json_lines(path, ROW, "not a dropped document", HINT))
