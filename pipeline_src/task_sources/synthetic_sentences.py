"""Synthetic GLUE tasks: one sentence or a pair of them, with a label that follows from a rule.

Each function draws one example from a generator, for a label that its caller gives, so that labels can be balanced.
In a pair no segment alone tells the label, though some words are a little more frequent with one label. A very small
model from random weights finds an agreement of two segments only if it stands out: the compared words are few, the
sentences short, two or three words agree at once, and the favoured words are where learning starts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from numpy.random import Generator

from pipeline_src.task_sources.synthetic_words import (
    ANIMALS,
    BAD,
    COLOURS,
    GOOD,
    NAMES,
    PEOPLE,
    PLACES,
    THINGS,
    TIMES,
    VERBS,
    WORKS,
)

Sentences = tuple[str, ...]
Rule = Callable[[Generator, str], Sentences]
FAVOURED = 0.7  # share of the favoured value where two of them agree


def pick(rng: Generator, values: Sequence[str]) -> str:
    """One of ``values``, each equally likely."""
    return values[int(rng.integers(len(values)))]


SLOTS = {
    "animal": ANIMALS,
    "colour": COLOURS,
    "name": NAMES,
    "person": PEOPLE,
    "place": PLACES,
    "time": TIMES,
    "verb": VERBS,
    "work": WORKS,
}


def fill_slots(rng: Generator, frames: Sequence[str], **given: str) -> str:
    """One of ``frames`` with its slots filled: from ``given``, the others with a word of the class they name."""
    frame = pick(rng, frames)
    drawn = {slot: pick(rng, words) for slot, words in SLOTS.items() if slot not in given and f"{{{slot}}}" in frame}
    return frame.format(**drawn, **given)


def two(rng: Generator, values: Sequence[str], same: bool) -> tuple[str, str]:
    """A pair of equal values, more often the first of ``values``, or of different ones, each equally likely."""
    if same:
        value = values[0] if rng.random() < FAVOURED else pick(rng, values[1:])
        return value, value
    first = pick(rng, values)
    return first, pick(rng, [value for value in values if value != first])


def cola(rng: Generator, label: str) -> Sentences:
    """1: words in their right order; 0: two neighbours have changed places."""
    frames = (
        "the {colour} {animal} of the {person} {verb} to the {place} .",
        "the {person} {verb} to the {place} with the {colour} {animal} .",
    )
    words = fill_slots(rng, frames).split()
    if label == "0":
        place = int(rng.integers(len(words) - 2))  # the full stop stays
        words[place], words[place + 1] = words[place + 1], words[place]
    return (" ".join(words),)


def sst2(rng: Generator, label: str) -> Sentences:
    """1: holds a word of praise; 0: a word of blame."""
    frames = (
        "a {mood} {work} about the {person} and the {animal} .",
        "the {work} of {name} about the {person} is {mood} .",
        "the {person} in this {work} about a {animal} is {mood} .",
        "{name} has made a {mood} {work} in the {place} with the {person} .",
    )
    return (fill_slots(rng, frames, mood=pick(rng, GOOD if label == "1" else BAD)),)


def agreeing(rng: Generator, agree: bool, **classes: Sequence[str]) -> tuple[dict[str, str], dict[str, str]]:
    """Slots of two segments that name the same words of the given classes, or different words of every one."""
    pairs = {slot: two(rng, values, agree) for slot, values in classes.items()}
    return {slot: pair[0] for slot, pair in pairs.items()}, {slot: pair[1] for slot, pair in pairs.items()}


def mrpc(rng: Generator, label: str) -> Sentences:
    """1: both sentences name the same animal and colour; 0: neither is the same."""
    first, second = agreeing(rng, label == "1", animal=ANIMALS[:2], colour=COLOURS[:2])
    frames = ("{name} saw a {colour} {animal} .", "a {colour} {animal} came to {name} .")
    other = ("the {animal} of {name} was {colour} .", "{name} had a {colour} {animal} .")
    return fill_slots(rng, frames, **first), fill_slots(rng, other, **second)


def qqp(rng: Generator, label: str) -> Sentences:
    """1: both questions are about the same place and time; 0: neither is the same."""
    first, second = agreeing(rng, label == "1", place=("court", "sea"), time=("day", "night"))
    frames = ("was {name} at {place} by {time} ?", "who saw {name} at {place} by {time} ?")
    other = ("by {time} who was at {place} with {name} ?", "by {time} was {name} at {place} ?")
    return fill_slots(rng, frames, **first), fill_slots(rng, other, **second)


def stsb(rng: Generator, label: str) -> Sentences:
    """How many of city and time the sentences share; ``label`` is how many they do not, 0 to 2.

    No word is more frequent with one label, since a correlation, unlike an accuracy, shows the slightest leaning.
    """
    differ = {"0": (False, False), "1": (True, False), "2": (True, True)}[label]
    if rng.integers(2):
        differ = differ[::-1]
    city, time = int(rng.integers(2)), int(rng.integers(2))
    cities, times = ("london", "rome"), ("day", "night")
    frames = ("{name} saw {city} by {time} .", "{name} left {city} by {time} .")
    other = ("by {time} {name} saw {city} .", "{name} loved {city} by {time} .")
    first = fill_slots(rng, frames, city=cities[city], time=times[time])
    return first, fill_slots(rng, other, city=cities[city ^ differ[0]], time=times[time ^ differ[1]])


MNLI_FRAMES = (
    ("{name} saw a {value} {thing} .", "a {value} {thing} came to {name} ."),
    ("the {value} {thing} came .", "it was a {value} {thing} ."),
)
MNLI_OTHER_FRAMES = (
    ("{name} has this {value} {thing} .", "this {value} {thing} was with {name} ."),
    ("that {value} {thing} is here .", "this is the {value} {thing} ."),
)
AX_FRAMES = (
    ("in the {place} is a {value} {thing} .", "the {place} had one {value} {thing} ."),
    ("one {value} {thing} was there .", "there is a {value} {thing} ."),
)
# Two kinds of things to say and two opposites of each. Several words each, so that a small model has several chances
# to notice that premise and hypothesis agree.
MNLI_VALUES = (("dark black cold", "light white warm"), ("old great rich", "young little poor"))


def inference(frames: tuple[Sequence[str], Sequence[str]]) -> Rule:
    """A rule for premise and hypothesis, worded by frames for each.

    Both say what colour or what age a thing has: the same is an entailment, the opposite a contradiction; an age
    after a colour, or a colour after an age, is neutral.
    """

    def rule(rng: Generator, label: str) -> Sentences:
        if label == "neutral":
            kind = int(rng.integers(2))
            first, second = pick(rng, MNLI_VALUES[kind]), pick(rng, MNLI_VALUES[1 - kind])
        else:
            usual = 0 if label == "entailment" else 1
            kind = usual if rng.random() < FAVOURED else 1 - usual
            first, second = two(rng, MNLI_VALUES[kind], label == "entailment")
        premises, hypotheses = frames
        thing = pick(rng, THINGS)
        return fill_slots(rng, premises, value=first, thing=thing), fill_slots(
            rng, hypotheses, value=second, thing=thing
        )

    return rule


def qnli(rng: Generator, label: str) -> Sentences:
    """entailment: the sentence tells what the question asks for, a place or a time."""
    questions = {"place": "where at what place was {who} ?", "time": "when by what hour was {who} ?"}
    sentences = {"place": "{who} {verb} at {place} with {name} .", "time": "{who} {verb} by {time} with {name} ."}
    asked, told = two(rng, tuple(questions), label == "entailment")
    slots = {"place": pick(rng, ("court", "sea")), "time": pick(rng, ("day", "night"))}
    slots["who"] = fill_slots(rng, ("{name}", "the {person}"))
    return fill_slots(rng, (questions[asked],), **slots), fill_slots(rng, (sentences[told],), **slots)


def rte(rng: Generator, label: str) -> Sentences:
    """entailment: the hypothesis names the animal and the place of the premise; otherwise it names neither."""
    first, second = agreeing(rng, label == "entailment", animal=ANIMALS[2:], place=("london", "rome"))
    frames = ("{name} saw a {animal} in {place} .", "a {animal} in {place} came to {name} .")
    other = ("in {place} {name} had a {animal} .", "a {animal} of {name} was in {place} .")
    return fill_slots(rng, frames, **first), fill_slots(rng, other, **second)


def wnli(rng: Generator, label: str) -> Sentences:
    """1: the second sentence puts the right one of two people in the place of the pronouns."""
    people = ["king", "queen"]
    right = int(two(rng, "01", label == "1")[0])
    he, his, him = (("he", "his", "him"), ("she", "her", "her"))[right]
    named = people[right if label == "1" else 1 - right]
    if rng.integers(2):
        people.reverse()
    thing = pick(rng, THINGS)
    frames = (
        "{first} and {second} {verb} , {he} with {his} {value} {thing} by {him} .",
        "{first} saw {second} , {he} had {his} {value} {thing} with {him} .",
    )
    pronouns = {"he": he, "his": his, "him": him, "value": pick(rng, (*GOOD, *BAD))}
    first = fill_slots(rng, frames, first=people[0], second=people[1], thing=thing, **pronouns)
    return first, fill_slots(rng, ("{named} had the {thing} of {named} with {named} .",), named=named, thing=thing)
