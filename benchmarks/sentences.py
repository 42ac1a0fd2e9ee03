"""Sentence splitting next to the splitters that people use, in speed and in boundaries found.

Speed is measured on cleaned articles and novels. Boundaries are judged on hard cases of our own
(``tests.hard_sentences``; our function was fixed with them in view) and, where ``$BENCH_DATA`` holds it, on the
development set of Universal Dependencies' English Web Treebank, whose paragraphs are joined with blanks: text of
e-mails, reviews and answers, so unlike ours that it serves as a check that nothing was bent. Other languages are judged
next to sentencex on cases of our own (``tests/sentences``), by precision and recall of the ends, and on the test sets
of treebanks in ``$BENCH_DATA/ud`` (files as Universal Dependencies names them: ``tr_boun-ud-test.conllu``), ten
sentences a paragraph, by the F1 of the ends; the tables of ``sentences.yaml`` were made with the development sets.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks.material import MORE, articles_text, books_text
from benchmarks.measure import race, report
from pipeline_src.text.sentences import split_sentences
from tests.hard_sentences import ENCYCLOPEDIA, NOVEL

EWT = MORE / "ud_ewt" / "en_ewt-ud-dev.conllu"
# Characters of each kind of text; the second number is for peers below 1 MB/s.
TEXT, SLOW_TEXT = 2_000_000, 100_000
LANGUAGES = Path(__file__).parents[1] / "tests/sentences"
SLOW = ("syntok", "pysbd")
WITHOUT_SPACES = ("ja", "zh")
Splitter = Callable[[str], list[str]]


def splitters() -> dict[str, Splitter]:
    # Each takes a paragraph and returns its sentences.
    import blingfire  # type: ignore[import-not-found]
    import nupunkt  # type: ignore[import-not-found]
    import pysbd  # type: ignore[import-not-found]
    import sentencex
    from syntok import segmenter  # type: ignore[import-not-found]

    segment = pysbd.Segmenter(language="en", clean=False).segment
    return {
        "ours": lambda text: split_sentences(text, "en"),
        "nupunkt": nupunkt.sent_tokenize,
        "blingfire": lambda text: blingfire.text_to_sentences(text).split("\n"),
        "syntok": lambda text: [
            "".join(token.spacing + token.value for token in sentence)
            for paragraph in segmenter.analyze(text)
            for sentence in paragraph
        ],
        "pysbd": segment,
        "sentencex as it is": lambda text: sentencex.segment("en", text),
    }


def treebank() -> list[list[str]]:
    # Empty if it is not there.
    if not EWT.exists():
        return []
    parts = re.split(r"^# new(?:par|doc).*\n", EWT.read_text(encoding="utf-8"), flags=re.M)
    return [sentences for part in parts if (sentences := re.findall(r"^# text = (.*)", part, re.M))]


def other_treebanks() -> dict[str, list[list[str]]]:
    banks: dict[str, list[list[str]]] = {}
    for path in sorted((MORE / "ud").glob("*-ud-test.conllu")):
        language = path.name.partition("_")[0]
        sentences = re.findall(r"^# text = (.*)", path.read_text(encoding="utf-8"), re.M)
        paragraphs = [sentences[start : start + 10] for start in range(0, len(sentences), 10)]
        # Old treebanks state no text.
        if paragraphs:
            banks.setdefault(language, []).extend(paragraphs)
    return banks


def ends(sentences: list[str]) -> set[int]:
    # Counted in characters that are not blank; the end of the text is left out.
    positions, position = set(), 0
    for sentence in sentences:
        position += len("".join(sentence.split()))
        positions.add(position)
    return positions - {position}


def f1(split: Splitter, paragraphs: list[list[str]], glue: str = " ") -> float:
    right = wrong = 0
    for sentences in paragraphs:
        gold, ours = ends(sentences), ends(split(glue.join(sentences)))
        right += len(gold & ours)
        wrong += len(gold ^ ours)
    return round(100 * 2 * right / (2 * right + wrong), 1)


def other_languages() -> dict[str, dict[str, list[float]]]:
    from sentencex import segment

    table = {}
    for path in sorted(LANGUAGES.glob("*.txt")):
        blocks = [block.split("\n") for block in path.read_text(encoding="utf-8").strip().split("\n\n")]
        sides = {
            "ours": partial(split_sentences, language=path.stem),
            "ours by English rules": partial(split_sentences, language="en"),
            "sentencex as it is": partial(segment, path.stem),
        }
        table[path.stem] = {name: precision_recall(split, blocks) for name, split in sides.items()}
    return table


def f1_by_language() -> dict[str, dict[str, float]]:
    from sentencex import segment

    table = {}
    for language, paragraphs in other_treebanks().items():
        glue = "" if language in WITHOUT_SPACES else " "
        table[language] = {
            "ours": f1(partial(split_sentences, language=language), paragraphs, glue),
            "sentencex as it is": f1(partial(segment, language), paragraphs, glue),
        }
    return table


def precision_recall(split: Splitter, paragraphs: list[list[str]]) -> list[float]:
    pairs = [(ends(sentences), ends(split(" ".join(sentences)))) for sentences in paragraphs]
    right, there, positions = (sum(map(len, sets)) for sets in zip(*((a & b, a, b) for a, b in pairs), strict=True))
    return [round(100 * right / positions, 1), round(100 * right / there, 1)]


def solved(split: Splitter, cases: list[list[str]]) -> int:
    # Split at the right places and at no other.
    return sum(ends(split(" ".join(case))) == ends(case) for case in cases)


def paragraphs_of(texts: list[str], size: int) -> list[str]:
    chosen: list[str] = []
    for text in texts:
        for paragraph in text.split("\n"):
            if size <= 0:
                return chosen
            chosen.append(paragraph)
            size -= len(paragraph)
    return chosen


def split_all(split: Splitter, paragraphs: list[str]) -> None:
    for paragraph in paragraphs:
        split(paragraph)


def main() -> None:
    logging.disable()
    sides = splitters()
    texts = articles_text(), books_text(TEXT)
    sizes = {name: SLOW_TEXT if name in SLOW else TEXT for name in sides}
    work = {name: [p for text in texts for p in paragraphs_of(text, sizes[name])] for name in sides}
    seconds = race({name: partial(split_all, sides[name], work[name]) for name in sides}, rounds=3)
    rates = {name: sum(len(p.encode()) for p in work[name]) / 1e6 / seconds[name] for name in sides}
    bank = treebank()
    judged = {
        name: {
            "encyclopedia": solved(split, ENCYCLOPEDIA),
            "novel": solved(split, NOVEL),
            **({"treebank_f1": f1(split, bank)} if bank else {}),
        }
        for name, split in sides.items()
    }
    print(f"solved of {len(ENCYCLOPEDIA)} cases from encyclopedias and {len(NOVEL)} from novels; F1 on the treebank:")
    for name, figures in judged.items():
        print(f"  {name:<20} {figures['encyclopedia']:>4} {figures['novel']:>4} {figures.get('treebank_f1', '-'):>6}")
    languages = other_languages()
    print("precision and recall of the ends in other languages:")
    for language, row in languages.items():
        print(f"  {language}  " + "  ".join(f"{name}: {values[0]}, {values[1]}" for name, values in row.items()))
    treebanks = f1_by_language()
    print("F1 of the ends on treebanks of other languages:")
    for language, values in treebanks.items():
        print(f"  {language}  " + "  ".join(f"{name}: {value}" for name, value in values.items()))
    best = max(figures["encyclopedia"] + figures["novel"] for name, figures in judged.items() if name != "ours")
    report(
        "sentences",
        "MB per CPU-second",
        rates.pop("ours"),
        rates,
        {"nupunkt": 1.0},
        cases=len(ENCYCLOPEDIA) + len(NOVEL),
        judged=judged,
        languages=languages,
        treebanks=treebanks,
        met_more=judged["ours"]["encyclopedia"] + judged["ours"]["novel"] >= best,
    )


if __name__ == "__main__":
    main()
