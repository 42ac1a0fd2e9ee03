"""How much there is to train on and to predict in every task set."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pipeline_src.common.paths import TASKS
from pipeline_src.params.study import Study

BYTES_PER_TOKEN = 6  # of a table with its other columns, where nothing else is known of a task
ROW_TOKENS = 40
WINDOWED = 150  # tokens from which an example is a passage or a document


@dataclass(frozen=True)
class TaskSize:
    """One task set.

    Attributes:
        rows: examples to train on; documents for CoNLL-2003.
        tokens: of one of them on average, all its sequences together.
        labelled: examples of the evaluation sets, which every run predicts.
        unlabelled: examples of test files, which the best run alone predicts.
        sequences: of one example; the number of choices in SWAG.
    """

    rows: int
    tokens: float
    labelled: int
    unlabelled: int = 0
    sequences: int = 1

    def mean(self, max_length: int) -> float:
        """Tokens of one example, at most ``max_length`` of each sequence; passages are read in windows, not cut."""
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
    "ner": TaskSize(946, 276, 447),
    "pos": TaskSize(12_544, 21, 2_001),
}

# Of the sets that task_sources/synthetic.py writes, counted with the sample's vocabulary.
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
    "ner": TaskSize(542, 20.5, 404),
    "pos": TaskSize(548, 18.7, 199),
}

# Of those that task_sources/from_corpus.py writes, as large in every study that has the text.
FROM_CORPUS = {
    "swapped": TaskSize(5_000, 18, 2_000),
    "following": TaskSize(600, 140, 500, sequences=4),
    "capitals": TaskSize(400, 55, 330),
    "cloze": TaskSize(800, 65, 500),
    "same_document": TaskSize(1_500, 58, 500),
}

SIZES = {"official": OFFICIAL | FROM_CORPUS, "synthetic": SYNTHETIC | FROM_CORPUS}


def task_size(study: Study, task: str, folder: Path = TASKS) -> TaskSize | None:
    """Size of a task set of this study; of one not listed above, by the bytes that lie in its folder, else None."""
    known = SIZES[study.task_source].get(task)
    if known is not None or not (folder / task).is_dir():
        return known
    rows = sum(file.stat().st_size for file in (folder / task).iterdir()) / BYTES_PER_TOKEN / ROW_TOKENS
    return TaskSize(round(0.8 * rows), ROW_TOKENS, round(0.2 * rows))
