"""The closed vocabulary and the sentences of the synthetic tasks, with labels that follow from rules.

The words are frequent both in encyclopaedias and in old plays; each list is a class of interchangeable words. Each
function generates one example for a label given by its caller, so that labels can be balanced.

In a pair of sentences, no sentence alone tells the label, though some words are a little more frequent with one label.
A very small model that starts from random weights notices that two sentences agree only if this is conspicuous: few
words are compared, sentences are short, two or three words agree at once, and favoured words are learnt first.

In the task on parts of speech, the neighbours of ``play`` and ``work`` tell whether they are verbs or nouns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from numpy.random import Generator

COLOURS = ("black", "white", "red", "green")
ANIMALS = ("horse", "dog", "bird", "lion")
LOCATIONS = ("house", "garden", "city", "church")
TIMES = ("morning", "evening", "night", "summer")
PEOPLE = ("king", "father", "brother", "son", "queen", "mother", "sister", "daughter")
NAMES = ("john", "henry", "mary", "william", "james", "robert", "thomas", "anne")
GOOD = ("good", "great", "happy", "beautiful")
BAD = ("bad", "poor", "sad", "dead")
WORKS = ("story", "play", "song", "work")
VERBS = ("came", "went", "ran", "walked")
COUNTRY = (("field", "tree"), ("sea", "ship"))  # two words that go together, and the two words of the opposite
LIGHT = (("day", "white"), ("night", "black"))
THINGS = ("horse", "dog", "bird", "lion", "field", "tree", "sea", "ship", "army", "sword", "book", "letter")


Sentences = tuple[str, ...]
Rule = Callable[[Generator, str], Sentences]
FAVOURED = 0.7  # probability of the favoured value if two values agree


def pick(rng: Generator, values: Sequence[str]) -> str:
    """Return one of ``values``, each equally likely."""
    return values[int(rng.integers(len(values)))]


SLOTS = {
    "animal": ANIMALS,
    "colour": COLOURS,
    "name": NAMES,
    "person": PEOPLE,
    "place": LOCATIONS,
    "time": TIMES,
    "verb": VERBS,
    "work": WORKS,
}


def fill_slots(rng: Generator, frames: Sequence[str], **given: str) -> str:
    """Return one of ``frames`` with its slots filled by ``given``, or else by a random word of the slot's class."""
    frame = pick(rng, frames)
    random = {slot: pick(rng, words) for slot, words in SLOTS.items() if slot not in given and f"{{{slot}}}" in frame}
    return frame.format(**random, **given)


def two(rng: Generator, values: Sequence[str], same: bool) -> tuple[str, str]:
    """Return a value of ``values`` twice (the first value is favoured), or if not ``same`` two different values."""
    if same:
        value = values[0] if rng.random() < FAVOURED else pick(rng, values[1:])
        return value, value
    first = pick(rng, values)
    return first, pick(rng, [value for value in values if value != first])


def cola(rng: Generator, label: str) -> Sentences:
    """Label 1: the words are in order; 0: two neighbours are swapped."""
    frames = (
        "the {colour} {animal} of the {person} {verb} to the {place} .",
        "the {person} {verb} to the {place} with the {colour} {animal} .",
    )
    words = fill_slots(rng, frames).split()
    if label == "0":
        index = int(rng.integers(len(words) - 2))  # the full stop stays
        words[index], words[index + 1] = words[index + 1], words[index]
    return (" ".join(words),)


def sst2(rng: Generator, label: str) -> Sentences:
    """Label 1: the sentence has a word of praise; 0: a word of blame."""
    frames = (
        "a {mood} {work} about the {person} and the {animal} .",
        "the {work} of {name} about the {person} is {mood} .",
        "the {person} in this {work} about a {animal} is {mood} .",
        "{name} has made a {mood} {work} in the {place} with the {person} .",
    )
    return (fill_slots(rng, frames, mood=pick(rng, GOOD if label == "1" else BAD)),)


def agreement(
    positive: str, first_frames: Sequence[str], second_frames: Sequence[str], **classes: Sequence[str]
) -> Rule:
    """Return a rule: for label ``positive``, two segments have the same word of each of ``classes``, else of none."""

    def rule(rng: Generator, label: str) -> Sentences:
        pairs = {slot: two(rng, values, label == positive) for slot, values in classes.items()}
        first, second = ({slot: pair[index] for slot, pair in pairs.items()} for index in (0, 1))
        return fill_slots(rng, first_frames, **first), fill_slots(rng, second_frames, **second)

    return rule


mrpc = agreement(
    "1",
    ("{name} saw a {colour} {animal} .", "a {colour} {animal} came to {name} ."),
    ("the {animal} of {name} was {colour} .", "{name} had a {colour} {animal} ."),
    animal=ANIMALS[:2],
    colour=COLOURS[:2],
)
qqp = agreement(
    "1",
    ("was {name} at {place} by {time} ?", "who saw {name} at {place} by {time} ?"),
    ("by {time} who was at {place} with {name} ?", "by {time} was {name} at {place} ?"),
    place=("court", "sea"),
    time=("day", "night"),
)
rte = agreement(
    "entailment",
    ("{name} saw a {animal} in {place} .", "a {animal} in {place} came to {name} ."),
    ("in {place} {name} had a {animal} .", "a {animal} of {name} was in {place} ."),
    animal=ANIMALS[2:],
    place=("london", "rome"),
)


def stsb(rng: Generator, label: str) -> Sentences:
    """Label 0: city and time are the same; 1: one of the two differs; 2: both differ.

    No word is more frequent with one label, since a correlation, unlike an accuracy, would show that.
    """
    differ = {"0": (False, False), "1": (True, False), "2": (True, True)}[label]
    if rng.integers(2):
        differ = differ[::-1]
    city, time = int(rng.integers(2)), int(rng.integers(2))
    cities, times = ("london", "rome"), ("day", "night")
    first_frames = ("{name} saw {city} by {time} .", "{name} left {city} by {time} .")
    second_frames = ("by {time} {name} saw {city} .", "{name} loved {city} by {time} .")
    first = fill_slots(rng, first_frames, city=cities[city], time=times[time])
    return first, fill_slots(rng, second_frames, city=cities[city ^ differ[0]], time=times[time ^ differ[1]])


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
# Two kinds of properties with two opposites each. A value is several words, so that a small model has several chances
# to notice that premise and hypothesis agree.
MNLI_VALUES = (("dark black cold", "light white warm"), ("old great rich", "young little poor"))


def inference(frames: tuple[Sequence[str], Sequence[str]]) -> Rule:
    """Return the rule for a premise and a hypothesis with ``frames`` (of the premise, of the hypothesis).

    Both tell a thing's colour or age. If they tell the same, it is an entailment; if the opposite, a contradiction; if
    one tells the colour and the other the age, it is neutral.
    """

    def rule(rng: Generator, label: str) -> Sentences:
        if label == "neutral":
            kind = int(rng.integers(2))
            first, second = pick(rng, MNLI_VALUES[kind]), pick(rng, MNLI_VALUES[1 - kind])
        else:
            favoured = 0 if label == "entailment" else 1
            kind = favoured if rng.random() < FAVOURED else 1 - favoured
            first, second = two(rng, MNLI_VALUES[kind], label == "entailment")
        thing = pick(rng, THINGS)
        premise = fill_slots(rng, frames[0], value=first, thing=thing)
        return premise, fill_slots(rng, frames[1], value=second, thing=thing)

    return rule


def qnli(rng: Generator, label: str) -> Sentences:
    """Label ``entailment``: the sentence tells what the question asks for, a place or a time."""
    questions = {"place": "where at what place was {who} ?", "time": "when by what hour was {who} ?"}
    sentences = {"place": "{who} {verb} at {place} with {name} .", "time": "{who} {verb} by {time} with {name} ."}
    question, sentence = two(rng, tuple(questions), label == "entailment")
    slots = {"place": pick(rng, ("court", "sea")), "time": pick(rng, ("day", "night"))}
    slots["who"] = fill_slots(rng, ("{name}", "the {person}"))
    return fill_slots(rng, (questions[question],), **slots), fill_slots(rng, (sentences[sentence],), **slots)


def wnli(rng: Generator, label: str) -> Sentences:
    """Label 1: the second sentence replaces the pronouns by the right person of two."""
    people = ["king", "queen"]
    referent = int(two(rng, "01", label == "1")[0])
    he, his, him = (("he", "his", "him"), ("she", "her", "her"))[referent]
    named = people[referent if label == "1" else 1 - referent]
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


# kind of answer -> (possible answers, the sentence with the fact, the question, possible subjects)
FACTS: dict[str, tuple[Sequence[str], str, str, Sequence[str]]] = {
    "place": (LOCATIONS, "the {subject} lives in the {answer} .", "where does the {subject} live ?", PEOPLE),
    "time": (TIMES, "{subject} came in the {answer} .", "when was it that {subject} came ?", NAMES),
    "colour": (COLOURS, "the {subject} is {answer} .", "what colour is the {subject} ?", ANIMALS),
}
# sentences of every length from 4 to 9 words, so that no position in the context is a good guess
ASIDES = (
    "{name} {verb} there .",
    "then {name} {verb} there .",
    "the {person} had a {work} .",
    "then the {person} had a {work} .",
    "{name} {verb} with the {person} and {name} .",
    "then {name} {verb} with the {person} and {name} .",
)
MISSING = (0.5, 0.25, 0.25)  # probability that a paragraph does not tell a fact of this kind


def paragraph(rng: Generator, id_prefix: str, unanswerable: bool, answers: int) -> dict[str, Any]:
    """Return a paragraph of SQuAD: an aside, facts of two kinds mixed with up to three more asides, and two questions.

    With ``unanswerable`` the second question asks for the kind of fact that is missing (SQuAD 2.0). ``answers`` is the
    number of accepted answers to a question.
    """
    missing = str(rng.choice(list(FACTS), p=MISSING))
    present = [kind for kind in FACTS if kind != missing]
    subject = {kind: pick(rng, FACTS[kind][3]) for kind in FACTS}
    answer = {kind: pick(rng, FACTS[kind][0]) for kind in FACTS}
    sentences = [FACTS[kind][1].format(subject=subject[kind], answer=answer[kind]) for kind in present]
    sentences += [fill_slots(rng, ASIDES) for _ in range(rng.integers(4))]
    context = " ".join([fill_slots(rng, ASIDES), *(sentences[i] for i in rng.permutation(len(sentences)))])
    queried = [present[i] for i in rng.permutation(2)]
    if unanswerable:
        queried[1] = missing
    questions = []
    for number, kind in enumerate(queried):
        question: dict[str, Any] = {
            "question": FACTS[kind][2].format(subject=subject[kind]),
            "id": f"{id_prefix}-{number}",
            "answers": [] if kind == missing else _spans(context, answer[kind], answers),
        }
        if unanswerable:
            question["is_impossible"] = kind == missing
            if kind == missing:
                question["plausible_answers"] = _spans(context, answer[present[0]], 1)
        questions.append(question)
    return {"context": context, "qas": questions}


def _spans(context: str, answer: str, count: int) -> list[dict[str, Any]]:
    """Return ``count`` accepted answers with their start: the answer, and the last one with the word before it."""
    end = context.index(f" {answer} ") + 1 + len(answer)
    longer = " ".join(context[:end].split(" ")[-2:])
    texts = [answer] * (count - 1) + [longer] if count > 1 else [answer]
    return [{"answer_start": end - len(text), "text": text} for text in texts]


def story(rng: Generator, label: int) -> dict[str, str]:
    """Return a row of SWAG with four endings, on field or sea by day or night; only ending ``label`` fits the sentence.

    Both the place and the time are told by two words in the sentence and in each ending.
    """
    order = rng.permutation(4).tolist()
    sentence = fill_slots(rng, ("{name} saw {things} .", "{name} {verb} to {things} ."), things=_things(order[label]))
    beginning = pick(rng, ("then he", "then she"))
    row = {"startphrase": f"{sentence} {beginning}", "sent1": sentence, "sent2": beginning}
    for number, scene in enumerate(order):
        row[f"ending{number}"] = fill_slots(rng, ("saw {things} .", "{verb} to {things} ."), things=_things(scene))
    return row


def _things(scene: int) -> str:
    (first, second), (time, colour) = COUNTRY[scene % 2], LIGHT[scene // 2]
    return f"{colour} {first} and {second} by {time}"


TaggedWords = tuple[tuple[str, str], ...]  # words, each with its tag

TOWNS = ("london", "rome")

# word/tag, but for the final punctuation; a word without a tag is an empty node, which the text does not have
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
CONTRACTED = {("can", "not"): "cannot"}  # words that are written as one word


def parts_of_speech(rng: Generator) -> TaggedWords:
    """Return a sentence with the part of speech of each word; "" for an empty node."""
    *tokens, mark = pick(rng, WORD_FRAMES).split()
    tagged = []
    for frame, _, tag in (token.rpartition("/") for token in tokens):
        slots = {"town": TOWNS, "deed": DEEDS, "mood": GOOD}
        words = {slot: pick(rng, words) for slot, words in slots.items() if f"{{{slot}}}" in frame}
        tagged.append((fill_slots(rng, (frame,), **words), tag))
    return (*tagged, (mark, "PUNCT"))


def text_of(sentence: TaggedWords) -> str:
    """Return the words of a sentence without its empty nodes."""
    return " ".join(word for word, tag in sentence if tag)


def tagged_documents(rng: Generator, sentences: int, used: set[str]) -> Iterator[list[TaggedWords]]:
    """Yield documents of one or two tagged sentences, in all ``sentences`` that are not in ``used``; add them to it."""
    while sentences:
        document: list[TaggedWords] = []
        for _ in range(min(sentences, int(rng.integers(1, 3)))):
            while text_of(sentence := parts_of_speech(rng)) in used:
                pass
            used.add(text_of(sentence))
            document.append(sentence)
        sentences -= len(document)
        yield document


def conllu(split: str, number: int, document: list[TaggedWords]) -> Iterator[str]:
    """Yield the CoNLL-U lines of document ``number``, with ranges for contractions and with empty nodes."""
    name = f"synthetic-{split}-{number}"
    yield f"# newdoc id = {name}"
    for index, sentence in enumerate(document, start=1):
        yield f"# sent_id = {name}-{index}"
        yield f"# text = {text_of(sentence)}"
        count = 0
        for (word, tag), (after, _) in zip(sentence, (*sentence[1:], ("", "")), strict=True):
            count += bool(tag)
            if (word, after) in CONTRACTED:
                yield "\t".join((f"{count}-{count + 1}", CONTRACTED[word, after], *"________"))
            yield "\t".join((str(count) if tag else f"{count}.1", word, word, tag or "VERB", *"______"))
        yield ""
