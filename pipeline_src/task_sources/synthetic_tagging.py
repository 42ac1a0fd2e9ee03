"""Synthetic CoNLL-2003 and Universal Dependencies: sentences whose words carry tags that follow from a rule.

In both some words need their neighbours: a name stands for a person or is part of an organisation's, and ``play`` and
``work`` are what one does or what one sees.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from numpy.random import Generator

from pipeline_src.task_sources.synthetic_sentences import fill_slots, pick
from pipeline_src.task_sources.synthetic_words import GOOD, NAMES

TaggedWords = tuple[tuple[str, str], ...]  # words, each with its tag

TOWNS = ("london", "rome")
# type: how its entities look
ENTITIES: dict[str, tuple[str, ...]] = {
    "PER": ("{name}", "{name} {surname}"),
    "LOC": ("{town}", "{town} garden"),
    "ORG": ("house of {name}", "army of {town}"),
    "MISC": ("english", "french"),
}
ENTITY_FRAMES = (
    "PER saw the {colour} {animal} in LOC .",
    "the {person} of LOC {verb} to the {place} with PER .",
    "the ORG came to LOC by {time} with the {colour} {animal} .",
    "then PER left the ORG by {time} .",
    "a MISC {work} about the {person} and PER was {mood} .",
    "the MISC {animal} of PER ran to the house of the {person} .",
    "there was a {colour} {animal} in the {place} of the {person} .",
)

# word/tag, but for the mark at the end; a word without a tag is understood and not written (an empty node)
WORD_FRAMES = (
    "the/DET {colour}/ADJ {animal}/NOUN of/ADP the/DET {person}/NOUN {verb}/VERB to/ADP the/DET {place}/NOUN .",
    "{name}/PROPN can/AUX not/PART {deed}/VERB with/ADP the/DET {colour}/ADJ {animal}/NOUN by/ADP {time}/NOUN .",
    "the/DET {deed}/NOUN of/ADP {name}/PROPN was/AUX {mood}/ADJ to/ADP the/DET {colour}/ADJ {animal}/NOUN .",
    "she/PRON had/VERB to/PART {deed}/VERB with/ADP her/PRON {person}/NOUN in/ADP the/DET {mood}/ADJ {place}/NOUN .",
    "then/ADV {name}/PROPN and/CCONJ the/DET {person}/NOUN {verb}/VERB there/ADV by/ADP {time}/NOUN .",
    "{name}/PROPN {verb}/VERB to/ADP {town}/PROPN and/CCONJ she/PRON {verb}/ to/ADP {town}/PROPN by/ADP {time}/NOUN .",
    "where/ADV was/AUX the/DET {mood}/ADJ {deed}/NOUN of/ADP the/DET {person}/NOUN in/ADP the/DET {place}/NOUN ?",
)
DEEDS = ("play", "work")
CONTRACTED = {("can", "not"): "cannot"}  # two words that are written as one


def entities(rng: Generator) -> TaggedWords:
    """A sentence with IOB2 tags of named entities."""
    found: list[tuple[str, str]] = []
    for token in pick(rng, ENTITY_FRAMES).split():
        if token in ENTITIES:
            first, *others = _fill(rng, pick(rng, ENTITIES[token])).split()
            found += [(first, f"B-{token}"), *((word, f"I-{token}") for word in others)]
        else:
            found.append((_fill(rng, token), "O"))
    return tuple(found)


def parts_of_speech(rng: Generator) -> TaggedWords:
    """A sentence with the part of speech of each word, "" at an empty node."""
    *words, mark = pick(rng, WORD_FRAMES).split()
    tagged = (token.rpartition("/") for token in words)
    return (*((_fill(rng, word), tag) for word, _, tag in tagged), (mark, "PUNCT"))


def _fill(rng: Generator, frame: str) -> str:
    slots = {"town": TOWNS, "surname": NAMES, "deed": DEEDS, "mood": GOOD}
    return fill_slots(
        rng, (frame,), **{slot: pick(rng, words) for slot, words in slots.items() if f"{{{slot}}}" in frame}
    )


def text_of(sentence: TaggedWords) -> str:
    """The words that are written."""
    return " ".join(word for word, tag in sentence if tag)


def documents(
    rng: Generator, rule: Callable[[Generator], TaggedWords], sentences: int, taken: set[str]
) -> Iterator[list[TaggedWords]]:
    """Documents of one or two sentences, ``sentences`` in all, none of whose texts was ``taken`` before."""
    while sentences:
        document: list[TaggedWords] = []
        for _ in range(min(sentences, int(rng.integers(1, 3)))):
            while text_of(sentence := rule(rng)) in taken:
                pass
            taken.add(text_of(sentence))
            document.append(sentence)
        sentences -= len(document)
        yield document


def conll(split: str, number: int, document: list[TaggedWords]) -> Iterator[str]:
    """Lines of a document in CoNLL-2003's format; part of speech and chunk are left open."""
    yield from ("-DOCSTART- -X- -X- O", "")
    for sentence in document:
        yield from (f"{word} -X- -X- {tag}" for word, tag in sentence)
        yield ""


def conllu(split: str, number: int, document: list[TaggedWords]) -> Iterator[str]:
    """Lines of a document in CoNLL-U, with ranges for words written as one and with empty nodes."""
    name = f"synthetic-{split}-{number}"
    yield f"# newdoc id = {name}"
    for place, sentence in enumerate(document, start=1):
        yield f"# sent_id = {name}-{place}"
        yield f"# text = {text_of(sentence)}"
        count = 0
        for (word, tag), (after, _) in zip(sentence, (*sentence[1:], ("", "")), strict=True):
            count += bool(tag)
            if (word, after) in CONTRACTED:
                yield _line(f"{count}-{count + 1}", CONTRACTED[word, after], "_", "_")
            yield _line(str(count) if tag else f"{count}.1", word, word, tag or "VERB")
        yield ""


def _line(number: str, form: str, lemma: str, tag: str) -> str:
    return "\t".join((number, form, lemma, tag, *"______"))
