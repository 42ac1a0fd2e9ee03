"""The filter rules of published corpora, each with a text that it refuses."""

from __future__ import annotations

import re

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from pipeline_src.common.errors import PipelineError
from pipeline_src.config.data import BooksParams
from pipeline_src.config.filters import FiltersParams
from pipeline_src.config.reading import check_block
from pipeline_src.corpus.filters import SENTENCE_ENDS, refusal

GROUPS = ("gopher_quality", "gopher_repetition", "c4", "fineweb")
ALL = FiltersParams.model_validate({group: {} for group in GROUPS})
KEYS = {
    f"{group}.{key}"
    for group in GROUPS
    for key in type(getattr(ALL, group)).model_fields
    if key.startswith(("min_", "max_"))
}
WORDS = """
    It was a bright cold day in April and the clocks of every tower that we have seen were striking one hour or another
    with some delay because no keeper had wound them to an equal time since winter ended when snow lay deep upon roofs
    """.split()
SENTENCES = (
    "The old house stood at the end of a long road that nobody used.",
    "In winter its windows have been dark for weeks, and with them the garden.",
    "A gardener came to look after roses every second month.",
    "He spoke to no one, and left before noon with his tools.",
    "Children where that somebody was living under its roof.",
    "Nobody believed them until a lamp began to burn upstairs.",
)
PROSE = "\n".join(SENTENCES)
# rule -> a text of which its group's other rules have nothing to say
REFUSED_TEXTS = {
    "gopher_quality.min_words": "Too few of the words to be kept.",
    "gopher_quality.max_words": "that have been " * 33_334,
    "gopher_quality.min_mean_word_length": "to be " * 60,
    "gopher_quality.max_mean_word_length": "the internationalisation of unsatisfactorily " * 40,
    "gopher_quality.max_hashes_per_word": PROSE.replace("e ", "e # "),
    "gopher_quality.max_ellipses_per_word": PROSE.replace(" t", "… t"),
    "gopher_quality.max_bullet_lines": "\n".join(f"- {line}" for line in SENTENCES),
    "gopher_quality.max_ellipsis_lines": "\n".join(f"{line[:-1]}..." for line in SENTENCES),
    "gopher_quality.min_alphabetic_words": " ".join(f"{word} 12.50" for word in WORDS),
    "gopher_quality.min_stop_words": "dies ist ein langer deutscher Satz ohne jedes englische Wort " * 10,
    "gopher_repetition.max_duplicate_paragraphs": f"ab\n\nab\n\nab\n\n{PROSE}",
    "gopher_repetition.max_duplicate_paragraph_chars": f"{'uvw xyz ' * 40}\n\n{'uvw xyz ' * 40}\n\n1\n\n2\n\n{PROSE}",
    "gopher_repetition.max_duplicate_lines": f"a\na\na\na\na\na\na\n{PROSE}",
    "gopher_repetition.max_duplicate_line_chars": f"{PROSE}\n{SENTENCES[0]}\n{SENTENCES[1]}",
    "gopher_repetition.max_top_2_gram": " ".join(f"{word} of course" for word in WORDS),
    "gopher_repetition.max_top_3_gram": " ".join(f"{word} in the end" for word in WORDS[::2]),
    "gopher_repetition.max_top_4_gram": " ".join(f"{word} at the very end" for word in WORDS[::3]),
    **{
        f"gopher_repetition.max_duplicate_{n}_grams": " and ".join(
            [" ".join(WORDS), *(" ".join(WORDS[start : start + n]) for start in (7, 17, 27))]
        )
        for n in (5, 6, 7, 8, 9, 10)
    },
    "c4.max_lorem_ipsum": f"{PROSE}\nLorem ipsum dolor sit amet.",
    "c4.max_curly_brackets": f"{PROSE}\nfunction f() {{ return 1; }}.",
    "c4.min_sentences": "\n".join(SENTENCES[:4]),
    "fineweb.min_punctuated_lines": PROSE.replace(".\n", "\n").rstrip("."),
    "fineweb.max_short_lines": "\n".join(f"{word} ended here." for word in WORDS),
    "fineweb.max_duplicate_line_chars": f"{PROSE}\n{SENTENCES[0]}",
    "fineweb.max_newlines_per_word": "\n".join(["Unübersehbarkeiten veröffentlicht.", *WORDS]).replace("\n", ".\n"),
}


def only(rule: str) -> FiltersParams:
    """All rules of a group off but one."""
    group, _, key = rule.partition(".")
    off = {name: None for name in type(getattr(ALL, group)).model_fields if name.startswith(("min_", "max_"))}
    del off[key]
    return FiltersParams.model_validate({group: off})


def test_refusal_examples_cover_every_rule() -> None:
    assert REFUSED_TEXTS.keys() == KEYS


@pytest.mark.parametrize("rule", sorted(REFUSED_TEXTS))
def test_refusal_text_that_breaks_the_rule_is_refused(rule: str) -> None:
    refused = refusal(REFUSED_TEXTS[rule], only(rule), "en")
    assert refused is not None
    assert refused.rule == rule
    assert refused.limit == getattr(getattr(ALL, rule.partition(".")[0]), rule.partition(".")[2])
    assert refused.value < refused.limit if ".min_" in rule else refused.value > refused.limit
    assert refusal(PROSE, only(rule), "en") is None


def test_refusal_prose_passes_all_rules() -> None:
    assert refusal(PROSE, ALL, "en") is None


def test_refusal_changed_threshold_decides() -> None:
    text = " ".join(WORDS[:30]) + "."
    loose, strict = ({"gopher_quality": {"min_words": limit}} for limit in (30, 31))
    assert refusal(text, FiltersParams.model_validate(loose), "en") is None
    assert refusal(text, FiltersParams.model_validate(strict), "en") == ("gopher_quality.min_words", 30, 31)


def test_refusal_german_stop_words_keep_german_text() -> None:
    text = REFUSED_TEXTS["gopher_quality.min_stop_words"]
    german = {"gopher_quality": {"stop_words": ["ein", "ist", "der", "und"]}}
    assert refusal(text, FiltersParams.model_validate(german), "de") is None


def test_c4_ignored_lines_are_not_counted() -> None:
    c4 = FiltersParams.model_validate({"c4": {}})
    noise = ["Enable JavaScript { to go on.", "See our privacy policy {.", "lorem ipsum", "{ no stop", "Two words."]
    assert refusal("\n".join([*SENTENCES[:5], *noise[:1], *noise[2:]]), c4, "en") is None
    assert refusal("\n".join([*SENTENCES[:4], noise[0], noise[2], noise[4]]), c4, "en") == ("c4.min_sentences", 4, 5)
    assert refusal("\n".join([*SENTENCES[:5], noise[1]]), c4, "en") == ("c4.max_curly_brackets", 1, 0)


TEXT = st.one_of(
    st.text(max_size=300),
    st.lists(st.sampled_from([*SENTENCES, *WORDS, "#", "…", "...", "\n", "\n\n", "{", "- x", "\x85"])).map(" ".join),
    st.lists(st.sampled_from([*SENTENCES, "a", "a", "", "•", "1 2 3"])).map("\n".join),
)


@given(TEXT)
def test_refusal_any_text_names_a_rule_beyond_its_limit(text: str) -> None:
    alone = [refusal(text, FiltersParams.model_validate({group: {}}), "en") for group in GROUPS]
    assert refusal(text, ALL, "en") == next(filter(None, alone), None)
    for refused in alone:
        if refused is not None:
            assert refused.rule in KEYS
            assert refused.value < refused.limit if ".min_" in refused.rule else refused.value > refused.limit
            group, _, key = refused.rule.partition(".")
            after = refusal(text, FiltersParams.model_validate({group: {key: None}}), "en")
            assert after is None or after.rule != refused.rule
    assert refusal(text, FiltersParams(), "en") is None


@pytest.mark.parametrize(
    ("filters", "where"),
    [
        ({"gopher": {}}, "unknown key: filters.gopher"),
        ({"c4": {"min_sentence": 5}}, "filters.c4.min_sentence"),
        ({"c4": None}, "write {} for the published thresholds"),
        ({"fineweb": {"max_short_lines": 2}}, "filters.fineweb.max_short_lines = 2"),
        ({"gopher_quality": {"min_words": -1}}, "filters.gopher_quality.min_words = -1"),
        ([], "filters"),
    ],
)
def test_filters_params_invalid_value_is_rejected(filters: object, where: str) -> None:
    with pytest.raises(PipelineError, match=re.escape(where)):
        check_block(BooksParams, {"from": "x", "filters": filters}, "params.yaml")


def test_filters_params_missing_filters_key_is_rejected() -> None:
    written = BooksParams(entry="x").model_dump(mode="json", exclude={"filters", "entry"}) | {"from": "x"}
    with pytest.raises(PipelineError, match="`filters: {}`"):
        check_block(BooksParams, written, "params.yaml", complete=True)
    checked = check_block(BooksParams, {**written, "filters": {"c4": {}}}, "params.yaml", complete=True)
    assert checked.filters.c4 == ALL.c4
    assert checked.filters.fineweb is None


def test_sentence_ends_are_of_unicodes_property_but_for_three_khmer_signs():
    assert {end for end in SENTENCE_ENDS if not regex.match(r"\p{Sentence_Terminal}", end)} == set("\u17d6\u17d9\u17da")
    assert len(SENTENCE_ENDS) == 159
