"""Synthetic SQuAD and SWAG: questions about short facts, and endings of a story."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numpy.random import Generator

from pipeline_src.task_sources.synthetic_sentences import fill_slots, pick
from pipeline_src.task_sources.synthetic_words import (
    ANIMALS,
    COLOURS,
    COUNTRY,
    LIGHT,
    NAMES,
    PEOPLE,
    PLACES,
    TIMES,
)

# kind of answer: its words, the fact, the question; the subject is one word of the last class
FACTS: dict[str, tuple[Sequence[str], str, str, Sequence[str]]] = {
    "place": (PLACES, "the {subject} lives in the {answer} .", "where does the {subject} live ?", PEOPLE),
    "time": (TIMES, "{subject} came in the {answer} .", "when was it that {subject} came ?", NAMES),
    "colour": (COLOURS, "the {subject} is {answer} .", "what colour is the {subject} ?", ANIMALS),
}
# of every length from 4 to 9, so that no place in the context is a good guess
ASIDES = (
    "{name} {verb} there .",
    "then {name} {verb} there .",
    "the {person} had a {work} .",
    "then the {person} had a {work} .",
    "{name} {verb} with the {person} and {name} .",
    "then {name} {verb} with the {person} and {name} .",
)
MISSING = (0.5, 0.25, 0.25)  # how often each kind is the one that a paragraph does not tell


def paragraph(rng: Generator, id_prefix: str, unanswerable: bool, answers: int) -> dict[str, Any]:
    """A paragraph of SQuAD, an aside, then facts of two kinds among up to three more, and two questions.

    Args:
        rng: draws everything.
        id_prefix: of the questions' ids.
        unanswerable: ask the second question about the kind of fact that is missing (SQuAD 2.0).
        answers: accepted answers per question.
    """
    missing = str(rng.choice(list(FACTS), p=MISSING))
    told = [kind for kind in FACTS if kind != missing]
    subject = {kind: pick(rng, FACTS[kind][3]) for kind in FACTS}
    answer = {kind: pick(rng, FACTS[kind][0]) for kind in FACTS}
    sentences = [FACTS[kind][1].format(subject=subject[kind], answer=answer[kind]) for kind in told]
    sentences += [fill_slots(rng, ASIDES) for _ in range(rng.integers(4))]
    context = " ".join([fill_slots(rng, ASIDES), *(sentences[i] for i in rng.permutation(len(sentences)))])
    asked = [told[i] for i in rng.permutation(2)]
    if unanswerable:
        asked[1] = missing
    questions = []
    for number, kind in enumerate(asked):
        question: dict[str, Any] = {
            "question": FACTS[kind][2].format(subject=subject[kind]),
            "id": f"{id_prefix}-{number}",
            "answers": [] if kind == missing else _spans(context, answer[kind], answers),
        }
        if unanswerable:
            question["is_impossible"] = kind == missing
            if kind == missing:
                question["plausible_answers"] = _spans(context, answer[told[0]], 1)
        questions.append(question)
    return {"context": context, "qas": questions}


def _spans(context: str, answer: str, count: int) -> list[dict[str, Any]]:
    """Accepted answers with their first character's place: the word, repeated, and last with its neighbour."""
    end = context.index(f" {answer} ") + 1 + len(answer)
    longer = " ".join(context[:end].split(" ")[-2:])
    texts = [answer] * (count - 1) + [longer] if count > 1 else [answer]
    return [{"answer_start": end - len(text), "text": text} for text in texts]


def story(rng: Generator, label: int) -> dict[str, str]:
    """A row of SWAG: four endings, on field or sea by day or night; only ending ``label`` keeps to both.

    Either choice is told by two words in the first sentence and in the endings.
    """
    order = rng.permutation(4).tolist()
    sentence = fill_slots(rng, ("{name} saw {things} .", "{name} {verb} to {things} ."), things=_things(order[label]))
    beginning = pick(rng, ("then he", "then she"))
    row = {"startphrase": f"{sentence} {beginning}", "sent1": sentence, "sent2": beginning}
    for place, scene in enumerate(order):
        row[f"ending{place}"] = fill_slots(rng, ("saw {things} .", "{verb} to {things} ."), things=_things(scene))
    return row


def _things(scene: int) -> str:
    """The four words of a scene."""
    (thing, other), (time, colour) = COUNTRY[scene % 2], LIGHT[scene // 2]
    return f"{colour} {thing} and {other} by {time}"
