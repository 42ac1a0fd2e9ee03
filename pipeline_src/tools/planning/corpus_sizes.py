"""Sizes from the raw dump to the plan of examples: as recorded, else estimated from what stands in front."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

from pipeline_src.common.catalogue import SOURCES
from pipeline_src.common.errors import PipelineError
from pipeline_src.common.files import read_json
from pipeline_src.common.paths import TOKENS, raw_wikipedia, text_wikipedia
from pipeline_src.params.study import Study
from pipeline_src.sources.catalogue import load_source, resolve
from pipeline_src.tools.planning.output_sizes import size_on_disk

# Assumed, where the catalogue knows no size: the English dump of 2026, 25 GB of .bz2 in about 70 parts; the Simple
# English one, 350 MB; a book collection like BookCorpus, 800 M words (paper, section 3.1).
DUMPS = {"enwiki": (25e9, 70), "simplewiki": (350e6, 1)}
OWN_DUMP = 350e6
BOOKCORPUS = 4.4e9
# Text per byte of .bz2: 20.2 GB of text (Hugging Face's wikimedia/wikipedia, 20231101.en) from a dump of 21 GB; the
# 2,500 M words of the paper, 15 GB, from about as much. The sample's long articles give 1.5.
TEXT_OF_DUMP = 0.95
TEXT_OF_BOOKS = 0.97  # 77.6 MB from 78.4 MB of novels; 0.84 of Shakespeare's plays with their stage directions
# Bytes of text per token: 80.1 MB, 19.9 M tokens with 8,192 entries; 4.5 with 30,522 (16 GB, 3.3 G words, 1.1 each).
TOKEN, SMALL_TOKEN, SMALL_VOCABULARY = 4.5, 4.0, 16_384
STORED_TOKEN = 2.3  # bytes: two, and the starts of sentences; as measured
STORED_EXAMPLE = 21  # bytes; as measured
EXAMPLE_FILL = 0.7  # share of an example's length that is new text, over all drawn; 0.6 to 0.75 measured


class CorpusSizes:
    """Bytes and tokens of the corpus stages.

    Args:
        study: the parameters in force.
        size: bytes of an output by its path, None where they are not known.
        whole_dump: count every part of the dump, whatever is listed.

    Attributes:
        parts: how many of the dump are counted.
        notes: what was assumed.
    """

    def __init__(self, study: Study, size: Callable[[str], int | None], whole_dump: bool = False) -> None:
        self.study, self.size = study, size
        self._source = cache(load_source)  # reading the catalogue takes a tenth of a second
        self.notes: list[str] = []
        name = study.wikipedia.dump
        listed = len(study.wikipedia.parts)
        usual = DUMPS.get(name, (0, 0))[1]
        self.parts = max(listed, usual) if whole_dump else listed
        if listed < usual and not whole_dump:
            self.notes.append(
                f"wikipedia.parts lists {listed} of about {usual} parts of {name}: --whole-dump counts all of them"
            )
        self.beside = self.parts - listed  # counted though not listed

    def dump(self, part: str) -> float:
        """Bytes of one part."""
        found = self.size(raw_wikipedia(part).as_posix()) or self._catalogue(SOURCES, self.study.wikipedia.dump, part)
        if found:
            return found
        name = self.study.wikipedia.dump
        total, parts = DUMPS.get(name, (OWN_DUMP, 1))
        self._note(f"a part of {name}: {total / parts / 1e6:,.0f} MB, assumed")
        return total / parts

    def books(self) -> float:
        """Bytes of the books."""
        name = self.study.books.source
        found = self.size("data/raw/books") or self._catalogue(SOURCES, name, None)
        if not found:
            self._note(f"{name}: nothing is there; {BOOKCORPUS / 1e9:.1f} GB, as BookCorpus has, assumed")
        return found or BOOKCORPUS

    def wikipedia_text(self, part: str) -> float:
        """Bytes of one part's prose."""
        return self.size(text_wikipedia(part).as_posix()) or TEXT_OF_DUMP * self.dump(part)

    def books_text(self) -> float:
        """Bytes of the books' prose."""
        return self.size("data/text/books") or TEXT_OF_BOOKS * self.books()

    def text(self) -> float:
        """Bytes of all prose."""
        of_parts = [self.wikipedia_text(part) for part in self.study.wikipedia.parts]
        return sum(of_parts) * self.parts / len(of_parts) + self.books_text()

    def tokens(self) -> float:
        """Tokens of all prose, those of validation documents too."""
        manifest = TOKENS / "manifest.json"
        if self.size("data/tokens") and manifest.exists() and not self.beside:
            splits = read_json(manifest, {"splits": {str: {"tokens": int}}})["splits"]
            return sum(split["tokens"] for split in splits.values())
        small = self.study.vocabulary.entries < SMALL_VOCABULARY
        return self.text() / (SMALL_TOKEN if small else TOKEN)

    def token_bytes(self) -> float:
        """Bytes of the token shards."""
        return (not self.beside and self.size("data/tokens")) or STORED_TOKEN * self.tokens()

    def example_bytes(self) -> float:
        """Bytes of the plans of examples, both lengths."""
        lengths = self.study.examples.lengths
        drawn = self.tokens() * self.study.examples.duplicates / EXAMPLE_FILL
        estimate = STORED_EXAMPLE * drawn * (1 / lengths.short + 1 / lengths.long)
        return (not self.beside and self.size("data/examples")) or estimate

    def download(self, folder: str, name: str, part: str | None = None) -> float:
        """Bytes that come over the wire for an entry of a folder of the catalogue: whole wheels, where it has them."""
        try:
            source = self._source(folder, name)
        except PipelineError:
            return 0
        wheels = {wheel.checksum: wheel.bytes or 0 for file in source.files if (wheel := source.wheel_of(file))}
        return sum(wheels.values()) if wheels else self._catalogue(folder, name, part)

    def _catalogue(self, folder: str, name: str, part: str | None) -> float:
        """Bytes of an entry's files: as the catalogue says, of local ones as they lie there; 0 if one is not known."""
        source = resolve(name, self._source(folder, name), date=self.study.wikipedia.date, part=part)
        total = 0
        for file in source.files:
            if file.scheme == "file":
                found = Path().glob(file.url.removeprefix("file:"))
                total += sum(size_on_disk(path) or 0 for path in found if path.is_file())
            elif file.bytes is None:
                if file.checksum is None and file.checksum_file is None:
                    continue  # one small file without a published sum
                return 0
            else:
                total += file.bytes
        return total

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)
