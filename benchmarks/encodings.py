"""Books in five encodings, read without being told which, beside charset-normalizer: how many come out to the letter.

Each of the novels at hand (UTF-8, see ``material``) is written in each encoding, with ``?`` for what it has not. A book
whose encoding cannot be told with confidence is dropped and counted by the stage ``clean_books``; what is read
otherwise is printed, with what stood there.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from charset_normalizer import from_bytes

from benchmarks.material import books_text, novels
from pipeline_src.books.encodings import decode
from pipeline_src.common.errors import PipelineError

ENCODINGS = ("utf-8", "utf-16", "latin-1", "cp1252", "mac_roman")
AROUND = 12  # characters on each side of one that is shown


def books() -> dict[str, str]:
    """Texts by name: the novels at hand, else the sample's plays."""
    return novels() or {f"play {number}": text for number, text in enumerate(books_text())}


def read(name: str, data: bytes) -> str | None:
    """What this project makes of a book; None where it drops it."""
    try:
        return decode(data, Path(name), None)[0]
    except PipelineError:
        return None


def read_by_peer(data: bytes) -> str | None:
    """What charset-normalizer takes for the best reading."""
    best = from_bytes(data).best()
    return None if best is None else str(best).removeprefix("\ufeff")


def outcome(text: str, found: str | None) -> str:
    """``right``, ``dropped`` or ``other``."""
    return "dropped" if found is None else "right" if found == text else "other"


def differences(text: str, found: str) -> str:
    """The first three places at which a reading differs, and how many there are."""
    places = [place for place, (own, other) in enumerate(zip(text, found, strict=False)) if own != other]
    shown = [f"{text[max(0, at - AROUND) : at + AROUND]!r} with {found[at]!r}" for at in places[:3]]
    return f"{len(places)} characters: {'; '.join(shown)}"


def main() -> None:
    """Write and read every book, print what differs, a line an encoding, then the result as JSON."""
    counts: dict[str, dict[str, Counter[str]]] = {}
    for encoding in ENCODINGS:
        ours, peer = Counter[str](), Counter[str]()
        for name, whole in books().items():
            data = whole.encode(encoding, "replace")
            text = data.decode(encoding)
            found = read(name, data)
            ours[outcome(text, found)] += 1
            peer[outcome(text, read_by_peer(data))] += 1
            if found is not None and found != text:
                print(f"  {encoding}, {name}: {differences(text, found)}")
        counts[encoding] = {"ours": ours, "charset_normalizer": peer}
        print(f"{encoding}: {dict(ours)}; charset-normalizer {dict(peer)}", flush=True)
    print(json.dumps({"benchmark": "encodings", "books": counts}))


if __name__ == "__main__":
    main()
