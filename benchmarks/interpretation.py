"""Every measure of stage ``interpret`` on a real encoder and on random weights, against its bar.

``python -m benchmarks.interpretation`` looks into MiniLM (``material``) with the dev file of UD English EWT from
``$BENCH_DATA/ud_ewt`` and the sample's Wikipedia articles. It prints each figure with the bar that it must reach, and
the cost of the probes and of scikit-learn's.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.material import MORE, articles_text, minilm_folder
from benchmarks.measure import cpu_seconds, race
from pipeline_src.interpret.data import (
    MAX_SENTENCES,
    MAX_WORDS,
    MIN_WORDS,
    LabelledSentences,
    read_tagged,
)
from pipeline_src.interpret.heads import Tree, read_trees, relations
from pipeline_src.interpret.model import ProbedModel, Sentence
from pipeline_src.interpret.probes import LabelledWords, capitals, labelled_words, probe, train_probes
from pipeline_src.interpret.senses import in_two_contexts, self_similarity, two_contexts
from pipeline_src.study.task_spec import load_spec
from pipeline_src.text.documents import in_validation_split
from pipeline_src.text.sentences import split_sentences

TREEBANK = MORE / "ud_ewt/en_ewt-ud-dev.conllu"
SEED, TEST_SHARE = 1, 0.2
# The probe of capital letters uses this many words of articles.
WORDS = 25_000
# Shares by which the best head must beat the best fixed offset.
RELATIONS = {"obj": 0.25, "det": 0.15, "case": 0.22, "cop": 0.20}
# Accuracy below scikit-learn's that still counts as equal, and the share of its CPU time on one thread.
AS_GOOD, AS_CHEAP = 0.007, 0.2


@dataclass(frozen=True)
class Figure:
    name: str
    value: float
    least: float = -np.inf
    most: float = np.inf

    @property
    def met(self) -> bool:
        return self.least <= self.value <= self.most


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, help="folder of another model; bars are MiniLM's")
    arguments = parser.parse_args()
    if not TREEBANK.exists():
        print(f"error: {TREEBANK} is not there; set BENCH_DATA to the folder that holds ud_ewt", file=sys.stderr)
        return 2
    torch.set_num_threads(1)
    start = cpu_seconds()
    model = ProbedModel.open(arguments.model or minilm_folder())
    control = model.with_random_weights(SEED)
    trees = read_trees(load_spec("pos"), TREEBANK)
    results: list[Figure] = []
    tagged = read_tagged(load_spec("pos"), TREEBANK, sys.maxsize)
    for figure in _figures(model, control, tagged, trees):
        results.append(figure)
        bar = " to ".join(f"{end:.3g}" for end in (figure.least, figure.most) if np.isfinite(end))
        kind = (
            ""
            if np.isfinite(figure.least) and np.isfinite(figure.most)
            else "≥ "
            if np.isfinite(figure.least)
            else "≤ "
        )
        print(f"{figure.name:<52} {figure.value:7.3f}  {kind + bar:<14} {'' if figure.met else 'MISSED'}", flush=True)
    record = {
        "benchmark": "interpretation",
        "figures": {figure.name: round(figure.value, 4) for figure in results},
        "met": all(figure.met for figure in results),
        "cpu_seconds": round(cpu_seconds() - start, 1),
        "python": platform.python_version(),
    }
    print(json.dumps(record))
    return 0 if record["met"] else 1


def _figures(
    model: ProbedModel, control: ProbedModel, tagged: LabelledSentences, trees: Sequence[Tree]
) -> Iterator[Figure]:
    yield from _tags(model, control, tagged)
    yield from _capitals(model, control)
    falls = [self_similarity(item, tagged.sentences, SEED)["fall"] for item in (model, control)]
    yield Figure("self-similarity: fall from layer 0", falls[0], least=0.30)
    yield Figure("self-similarity: fall of random weights", falls[1], most=0.03)
    running = in_two_contexts(model, control, two_contexts(), SEED)["words"]["running"]["accuracy"]
    yield Figure("`running` in two senses: layer 0", running[0], most=0.6)
    yield Figure("`running` in two senses: last layer", running[-1], least=0.9)
    rows = {row["relation"]: row for row in relations(model, control, trees, SEED)}
    for name, least in RELATIONS.items():
        gain = rows[name]["found"] - rows[name]["found_by_offset"]
        yield Figure(
            f"head {rows[name]['layer']}-{rows[name]['head']}, {name}: over the best offset", gain, least=least
        )


def _tags(model: ProbedModel, control: ProbedModel, tagged: LabelledSentences) -> Iterator[Figure]:
    spec = load_spec("pos")
    test = [in_validation_split(f"pos:{sentence.document}", SEED, TEST_SHARE) for sentence in tagged.sentences]
    sides: list[dict[str, Any]] = []
    for item in (model, control):
        parts = _halves(item, *tagged, test)
        sides.append(probe(*parts, len(spec.labels), SEED).figures)
        if item is model:
            yield from _against_scikit_learn(*parts, sides[0]["accuracy"], len(spec.labels))
    ours, peer_values = (side["accuracy"] for side in sides)
    best = int(np.argmax(ours))
    yield Figure("parts of speech: best layer", ours[best], least=0.92)
    yield Figure("parts of speech: which layer that is", best, 2, 3)
    yield Figure("parts of speech: best over layer 0", ours[best] - ours[0], least=0.05)
    yield Figure("parts of speech: best over the last", ours[best] - ours[-1], least=0.06)
    yield Figure("parts of speech: best over random weights", ours[best] - max(peer_values), least=0.20)
    yield Figure("parts of speech: a table of words", sides[0]["type_majority"], 0.78, 0.83)
    selectivity = sides[0]["selectivity"]
    yield Figure("selectivity: least rise from layer to layer", min(np.diff(selectivity)), least=0.0)
    yield Figure("selectivity: last layer", selectivity[-1], least=0.32)


def _against_scikit_learn(
    train: LabelledWords, test: LabelledWords, ours: Sequence[float], classes: int
) -> Iterator[Figure]:
    """Accuracy and CPU time of the probes of all layers and of a regression of each layer, on one thread each.

    The peer is given the vectors as they are: scaled as the probes scale them, it takes more iterations.
    """
    from sklearn.linear_model import LogisticRegression
    from threadpoolctl import threadpool_limits

    peers = [LogisticRegression(C=0.01, max_iter=1000) for _ in ours]

    def fit_peers() -> None:
        # As ours: threads that wait for each other use up CPU time too.
        with threadpool_limits(1):
            for peer, vectors in zip(peers, train.vectors.numpy(), strict=True):
                peer.fit(vectors, train.labels)

    targets = torch.from_numpy(train.labels)[:, None]
    seconds = race({"ours": lambda: train_probes(train.vectors, targets, classes, SEED), "peer": fit_peers}, rounds=3)
    peer_values = [peer.score(vectors, test.labels) for peer, vectors in zip(peers, test.vectors.numpy(), strict=True)]
    print(f"scikit-learn's accuracy by layer: {' '.join(f'{100 * item:.1f}' for item in peer_values)}")
    print(f"CPU seconds: {seconds['ours']:.2f}, scikit-learn's {seconds['peer']:.2f}")
    yield Figure(
        "probes: accuracy less scikit-learn's, worst layer", min(np.subtract(ours, peer_values)), least=-AS_GOOD
    )
    yield Figure("probes: CPU time over scikit-learn's", seconds["ours"] / seconds["peer"], most=AS_CHEAP)


def _capitals(model: ProbedModel, control: ProbedModel) -> Iterator[Figure]:
    sentences = list(_article_sentences())
    labels = capitals(sentences)
    test = [in_validation_split(sentence.document, SEED, TEST_SHARE) for sentence in sentences]
    ours, peer_values = (probe(*_halves(item, sentences, labels, test), 2, SEED).figures for item in (model, control))
    yield Figure("capitals: best layer, balanced", max(ours["balanced"]), least=0.86)
    yield Figure("capitals: best layer, unseen words", max(ours["unseen_balanced"]), least=0.86)
    yield Figure("capitals: random weights, unseen words", peer_values["unseen_balanced"][-1], 0.47, 0.53)
    yield Figure("capitals: a table of words, balanced", ours["type_majority_balanced"])


def _halves(
    model: ProbedModel, sentences: Sequence[Sentence], labels: Sequence[Sequence[int]], test: Sequence[bool]
) -> tuple[LabelledWords, LabelledWords]:
    sides = []
    for expected in (False, True):
        chosen = [number for number, which in enumerate(test) if which == expected]
        sides.append(labelled_words(model, [sentences[n] for n in chosen], [labels[n] for n in chosen]))
    return sides[0], sides[1]


def _article_sentences() -> Iterator[Sentence]:
    left = WORDS
    for number, text in enumerate(articles_text()):
        texts = [one for paragraph in text.split("\n") for one in split_sentences(paragraph, "en")]
        sentences = [Sentence.of_text(one, f"article {number}") for one in texts]
        some = [sentence for sentence in sentences if MIN_WORDS <= len(sentence.words) <= MAX_WORDS]
        for sentence in some[:MAX_SENTENCES]:
            yield sentence
            left -= len(sentence.words)
        if left <= 0:
            return


if __name__ == "__main__":
    sys.exit(main())
