"""Real sentences of the study's own corpus, by document, with the held-out documents apart."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pipeline_src.corpus.documents import corpus_folders, corpus_name, read_documents
from pipeline_src.corpus.sentences import split_sentences
from pipeline_src.corpus.validation_split import in_validation_split

SPLITS = ("train", "dev")
MOST = {"train": 800, "dev": 200}  # documents of each corpus: of a large one its first, so that little is read
WORDS = range(5, 21)  # of a sentence that is used
_WORD = re.compile(r"\w+(?:['’]\w+)*|[^\w\s]")


@dataclass(frozen=True)
class Text:
    """One document: its id, the corpus it is of, and its paragraphs as sentences."""

    id: str
    corpus: str
    paragraphs: tuple[tuple[str, ...], ...]

    @property
    def sentences(self) -> Iterator[str]:
        """Those of a usual length, in order."""
        return (one for paragraph in self.paragraphs for one in paragraph if usable(one))

    def runs(self, length: int) -> Iterator[tuple[str, ...]]:
        """``length`` sentences of usual length that follow each other in a paragraph, none twice."""
        for paragraph in self.paragraphs:
            for start in range(0, len(paragraph) - length + 1, length):
                run = paragraph[start : start + length]
                if all(map(usable, run)):
                    yield run


def usable(sentence: str) -> bool:
    """Whether a sentence is of a usual length."""
    return len(sentence.split()) in WORDS


def words_of(sentence: str) -> list[str]:
    """Words and marks, each for itself."""
    return _WORD.findall(sentence)


def read_texts(root: Path, parts: Sequence[str], seed: int, validation: float) -> dict[str, list[Text]]:
    """The first documents of each corpus: ``train`` of those that pretraining reads, ``dev`` of those it never does.

    Args:
        root: ``data/text``.
        parts: of Wikipedia.
        seed, validation: decide which documents are held out.
    """
    texts: dict[str, list[Text]] = {split: [] for split in SPLITS}
    for folder in corpus_folders(root, parts):
        left, corpus = dict(MOST), corpus_name(folder, root)
        for document in read_documents(folder):
            split = SPLITS[in_validation_split(document.id, seed, validation)]
            if left[split]:
                left[split] -= 1
                paragraphs = (tuple(" ".join(s.split()) for s in split_sentences(p)) for p in document.text.split("\n"))
                texts[split].append(Text(document.id, corpus, tuple(paragraphs)))
            elif not any(left.values()):
                break
    return texts
