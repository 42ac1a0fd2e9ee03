"""Templates: shown as readers see them if known; unknown ones drop their sentence and are counted."""

from __future__ import annotations

from collections import Counter

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline_src.text.wikipedia.siteinfo import make_siteinfo
from pipeline_src.text.wikipedia.templates import TABLES, languages, read_names, template_table
from pipeline_src.text.wikipedia.wikitext import clean
from tests.unit.text.cases import PLAIN, SENTENCES, read_cases

LAST = SENTENCES["LAST"]


@pytest.mark.parametrize(("language", "template", "words"), read_cases("wikipedia/templates.yaml"))
def test_clean_template_in_a_sentence_becomes_its_words(language: str, template: str, words: str) -> None:
    around = "They say {} is here, amid a sentence of prose."
    text = clean(around.format(template), make_siteinfo("wiki", language, {}))
    assert text == (words and around.format(words))


@pytest.mark.parametrize(
    ("text", "kept", "unknown"),
    read_cases("wikipedia/unknown_templates.yaml", "clean unknown templates are counted by sentences"),
)
def test_clean_unknown_templates_are_counted_by_sentences(text: str, kept: str, unknown: dict[str, int]) -> None:
    counted: Counter[str] = Counter()
    assert clean(text, unknown=counted) == kept
    assert counted == unknown


MEANINGS = yaml.load((TABLES / "templates.yaml").read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)


def test_template_table_every_meaning_is_complete() -> None:
    for meaning in MEANINGS:
        assert {"means"} < set(meaning) <= {"means", "shows", "by", "call", "names", "words"}
        assert ("call" in meaning) != ("shows" in meaning), meaning["means"]
        assert meaning.get("names") or meaning.get("words"), meaning["means"]


@pytest.mark.parametrize("language", languages())
def test_template_table_every_name_is_found_and_unique(language: str) -> None:
    table = template_table(language)
    names = [name for entry in read_names() if entry.language == language for name in entry.names]
    assert [name for name in names if table.find(name if name == "*" else name.strip("*")) is None] == []
    assert [name for name, times in Counter(names).items() if times > 1] == []
    assert [name for name in names if name not in (name.lower(), name.upper())] == []


WORDS = st.text(st.characters(categories=["L", "N", "P", "Zs", "S"]), max_size=8)


@settings(max_examples=400, deadline=None, derandomize=True)
@given(
    st.sampled_from([(entry.language, name.strip("*")) for entry in read_names() for name in entry.names]),
    st.lists(st.one_of(WORDS, st.integers(-5, 3000).map(str), st.just("p=1")), max_size=5),
)
def test_clean_known_template_any_arguments_leave_no_markers(known: tuple[str, str], arguments: list[str]) -> None:
    language, name = known
    page = f"{PLAIN}\n\nThey say {{{{{'|'.join([name, *arguments])}}}}} is here, amid it.\n\n{LAST}"
    text = clean(page, make_siteinfo("wiki", language, {}))
    assert not any("\ue000" <= character <= "\ue00f" or character >= "\U000f0000" for character in text)
    assert text.startswith(PLAIN) or set("{}[]<>") & set("".join(arguments))
