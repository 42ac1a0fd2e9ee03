"""Filters of documents next to datatrove's: equal verdicts, and speed.

10,000 documents: a few paragraphs each of articles and novels, half of them damaged in the ways that the rules look for
(cut short, lines and phrases repeated, symbols, bullets, no punctuation, broken lines, phrases of web pages), some
lightly, so that values lie on both sides of the thresholds; two have more words than the rules allow. Each document is
judged by each group alone, so that every group judges all of them.

datatrove's filters run twice: with our words and sentences in place of its own, where verdicts must be equal, reason by
reason; and as they are, with spaCy's words, where punctuation counts as words, on the first 2,000 documents.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial

from benchmarks.material import articles_text, books_text
from benchmarks.measure import cpu_seconds, race, report
from pipeline_src.study.filters import FiltersParams
from pipeline_src.text.filters import refusal
from pipeline_src.text.sentences import split_sentences

DOCUMENTS = 10_000
# Speed is measured, and spaCy's words are tried, on the first documents only.
FEWER = 2_000
# Numbers of the documents that get more than 100,000 words.
LONG = {4_001, 8_000}
# Size of the text of novels.
BYTES = 12_000_000
# Group and reason.
Verdict = tuple[str, str] | None

# datatrove's names of the reasons -> this project's.
REASONS = {
    "gopher_quality": {
        "gopher_short_doc": "min_words",
        "gopher_long_doc": "max_words",
        "gopher_below_avg_threshold": "min_mean_word_length",
        "gopher_above_avg_threshold": "max_mean_word_length",
        "gopher_too_many_hashes": "max_hashes_per_word",
        "gopher_too_many_ellipsis": "max_ellipses_per_word",
        "gopher_too_many_bullets": "max_bullet_lines",
        "gopher_too_many_end_ellipsis": "max_ellipsis_lines",
        "gopher_below_alpha_threshold": "min_alphabetic_words",
        "gopher_enough_stop_words": "min_stop_words",
    },
    "gopher_repetition": {
        "dup_para_frac": "max_duplicate_paragraphs",
        "dup_para_char_frac": "max_duplicate_paragraph_chars",
        "dup_line_frac": "max_duplicate_lines",
        "dup_line_char_frac": "max_duplicate_line_chars",
        **{f"top_{n}_gram": f"max_top_{n}_gram" for n in (2, 3, 4)},
        **{f"duplicated_{n}_n_grams": f"max_duplicate_{n}_grams" for n in range(5, 11)},
    },
    "c4": {
        "lorem_ipsum": "max_lorem_ipsum",
        "curly_bracket": "max_curly_brackets",
        "too_few_sentences": "min_sentences",
    },
    "fineweb": {
        "line_punct_ratio": "min_punctuated_lines",
        "short_line_ratio": "max_short_lines",
        "char_dup_ratio": "max_duplicate_line_chars",
        "list_ratio": "max_newlines_per_word",
    },
}
PHRASES = (
    "Lorem ipsum dolor sit amet.",
    "function f() { return 1; }",
    "This page needs JavaScript to be shown.",
    "We use cookies; read our privacy policy.",
    "[12] He came. [edit] She went.",
    "Read more…",
    "Continue reading ...",
)


def documents(count: int) -> list[str]:
    # Every second document is damaged.
    numbers = random.Random(1)
    paragraphs = [line for text in (*articles_text(), *books_text(BYTES)) for line in text.split("\n")]
    texts = []
    for number in range(count):
        start = numbers.randrange(len(paragraphs))
        lines = paragraphs[start : start + numbers.randrange(1, 13)] if number not in LONG else paragraphs[:4_000]
        for _ in range(numbers.randrange(1, 4) if number % 2 else 0):
            lines = DAMAGES[numbers.randrange(len(DAMAGES))](lines, numbers)
        texts.append("\n".join(lines))
    return texts


def _repeat_lines(lines: list[str], numbers: random.Random) -> list[str]:
    return [line for line in lines for _ in range(numbers.randrange(1, 3))]


def _repeat_paragraphs(lines: list[str], numbers: random.Random) -> list[str]:
    return "\n\n".join(lines + lines[: numbers.randrange(len(lines) + 1)]).split("\n")


def _repeat_phrase(lines: list[str], numbers: random.Random) -> list[str]:
    words = " ".join(lines).split()
    start, length = numbers.randrange(len(words) or 1), numbers.randrange(1, 12)
    return [*lines, " ".join(words[start : start + length] * numbers.randrange(1, 12))]


def _symbols(lines: list[str], numbers: random.Random) -> list[str]:
    symbol, share = numbers.choice(["#", "...", "…", "§ $ 12", "=", "、"]), numbers.random() / 2
    return [
        " ".join(f"{word} {symbol}" if numbers.random() < share else word for word in line.split()) for line in lines
    ]


def _bullets(lines: list[str], numbers: random.Random) -> list[str]:
    mark, share = numbers.choice(["• ", "- ", "  -", "* "]), numbers.choice([0.5, 0.9, 1.0])
    return [mark + line if numbers.random() < share else line for line in lines]


def _line_ends(lines: list[str], numbers: random.Random) -> list[str]:
    end, share = numbers.choice(["...", "…", "", "。", "? "]), numbers.random()
    return [line.rstrip(".!?”\"'") + end if numbers.random() < share else line for line in lines]


def _break_lines(lines: list[str], numbers: random.Random) -> list[str]:
    words, length = " ".join(lines).split(), numbers.randrange(1, 15)
    return [" ".join(words[start : start + length]) for start in range(0, len(words), length)] or lines


def _shorten(lines: list[str], numbers: random.Random) -> list[str]:
    return [" ".join(" ".join(lines).split()[: numbers.randrange(30, 90)])]


def _word_lengths(lines: list[str], numbers: random.Random) -> list[str]:
    if numbers.random() < 0.5:
        return [" ".join(word[:2] for word in line.split()) for line in lines]
    return [line.replace(" ", "", numbers.randrange(1, 2 + line.count(" "))) for line in lines]


def _phrase(lines: list[str], numbers: random.Random) -> list[str]:
    index = numbers.randrange(len(lines) + 1)
    return [*lines[:index], numbers.choice(PHRASES), *lines[index:]]


DAMAGES = (
    _repeat_lines,
    _repeat_paragraphs,
    _repeat_phrase,
    _symbols,
    _bullets,
    _line_ends,
    _break_lines,
    _shorten,
    _word_lengths,
    _phrase,
)


def ours(texts: list[str], group: str) -> list[Verdict]:
    filters = FiltersParams.model_validate({group: {}})
    results = [refusal(text, filters, "en") for text in texts]
    return [tuple(broken.rule.split(".")) if broken else None for broken in results]  # type: ignore[misc]


def datatrove(texts: list[str], group: str, same_words: bool) -> list[Verdict]:
    """Judge each text with datatrove's filter of the group, and translate its reasons to this project's."""
    from datatrove.data import Document  # type: ignore[import-not-found]
    from datatrove.pipeline import filters  # type: ignore[import-not-found]
    from datatrove.pipeline.filters import (  # type: ignore[import-not-found]
        c4_filters,
        fineweb_quality_filter,
        gopher_quality_filter,
        gopher_repetition_filter,
    )
    from datatrove.utils.text import split_into_sentences, split_into_words  # type: ignore[import-not-found]

    for module in (gopher_quality_filter, gopher_repetition_filter, fineweb_quality_filter):
        module.split_into_words = (lambda text, language: text.split()) if same_words else split_into_words
    c4_filters.split_into_sentences = (
        (lambda line, language: split_sentences(line, "en")) if same_words else split_into_sentences
    )
    peer = {
        "gopher_quality": filters.GopherQualityFilter,
        "gopher_repetition": filters.GopherRepetitionFilter,
        "c4": filters.C4QualityFilter,
        "fineweb": filters.FineWebQualityFilter,
    }[group]()
    verdicts: list[Verdict] = []
    for number, text in enumerate(texts):
        answer = peer.filter(Document(text=text, id=str(number)))
        verdicts.append(None if answer is True else (group, REASONS[group][answer[1]]))
    return verdicts


def differences(one: Mapping[str, list[Verdict]], other: Mapping[str, list[Verdict]]) -> dict[str, int]:
    # Only documents that both filters judged are compared.
    return {group: sum(a != b for a, b in zip(one[group], other[group], strict=False)) for group in one}


def main() -> None:
    texts = documents(DOCUMENTS)
    fast: dict[str, Callable[[list[str], str], list[Verdict]]] = {
        "ours": ours,
        "datatrove, same words": partial(datatrove, same_words=True),
    }
    verdicts = {name: {group: judge(texts, group) for group in REASONS} for name, judge in fast.items()}
    broken = Counter(".".join(verdict) for group in verdicts["ours"].values() for verdict in group if verdict)
    unbroken = [f"{g}.{key}" for g, keys in REASONS.items() for key in keys.values() if f"{g}.{key}" not in broken]
    print(f"{len(texts)} documents; dropped by {dict(broken)}; rules that none breaks: {unbroken}")
    differing = differences(verdicts["ours"], verdicts["datatrove, same words"])
    spacy: dict[str, list[Verdict]] = {}
    rates: dict[str, dict[str, float]] = {}
    for group in REASONS:
        seconds = race({name: partial(judge, texts[:FEWER], group) for name, judge in fast.items()})
        start = cpu_seconds()
        spacy[group] = datatrove(texts[:FEWER], group, same_words=False)
        seconds["datatrove as it is"] = cpu_seconds() - start
        rates[group] = {name: FEWER / taken for name, taken in seconds.items()}
    by_spacy = differences(verdicts["ours"], spacy)
    for group, of_group in rates.items():
        report(
            f"corpus_filters {group}",
            "documents per CPU-second",
            of_group.pop("ours"),
            of_group,
            {"datatrove, same words": 1.0},
            documents=len(texts),
            differing=differing[group],
            differing_by_spacy=by_spacy[group],
            of=FEWER,
            met_more=not differing[group],
        )


if __name__ == "__main__":
    main()
