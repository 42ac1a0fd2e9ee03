"""Dependency trees of CoNLL-U files: the head of each word and their relation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pipeline_src.interpretation.word_vectors import Sentence
from pipeline_src.tasks.files.conll import read_sentences
from pipeline_src.tasks.files.spec import Columns, TaskSpec

HEAD, RELATION = 7, 8  # columns of CoNLL-U, counted from 1


@dataclass(frozen=True)
class Tree:
    """A sentence with, for each word, the number of its head (-1 at the root), the relation and the part of speech."""

    sentence: Sentence
    heads: tuple[int, ...]
    relations: tuple[str, ...]
    tags: tuple[str, ...]

    def distances(self) -> np.ndarray:
        """How many edges lie between each two words, int64 [W, W]."""
        size = len(self.heads)
        apart = np.full((size, size), size, np.int64)
        np.fill_diagonal(apart, 0)
        for word, head in enumerate(self.heads):
            if head >= 0:
                apart[word, head] = apart[head, word] = 1
        for middle in range(size):  # Floyd and Warshall's
            np.minimum(apart, apart[:, [middle]] + apart[[middle]], out=apart)
        return apart


def read_trees(spec: TaskSpec, path: Path) -> list[Tree]:
    """The sentences of a CoNLL-U file; none where it has no trees.

    Subtypes of relations, as in ``nmod:poss``, are left off. A sentence that is no tree is left out.
    """
    tagged = read_sentences(spec, path)
    if spec.format != "conllu":
        return []
    columns = [_column(spec, path, number) for number in (HEAD, RELATION)]
    trees = []
    for example, heads, names in zip(tagged, *columns, strict=True):
        if (
            all(head.isdecimal() and int(head) <= len(heads) for head in heads)
            and sum(head == "0" for head in heads) == 1
        ):
            relations = tuple(name.split(":")[0] for name in names)
            numbers = tuple(int(head) - 1 for head in heads)
            trees.append(Tree(Sentence(example.words, str(example.document)), numbers, relations, example.tags))
    return trees


def _column(spec: TaskSpec, path: Path, number: int) -> Sequence[Sequence[str]]:
    """One column of every sentence: the reader's words, where that column is theirs."""
    other = spec.model_copy(update={"columns": Columns(texts=(number,), label=spec.columns.label)})  # type: ignore[union-attr]
    return [example.words for example in read_sentences(other, path)]
