"""The filter `language`, with a fake identifier and with py3langid."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from threadpoolctl import threadpool_limits

from pipeline_src import code
from pipeline_src.base.errors import PipelineError
from pipeline_src.base.paths import clean_text
from pipeline_src.study.data import CorpusParams, TextParams, known_languages
from pipeline_src.study.filters import FiltersParams
from pipeline_src.study.finetune import FinetuneParams
from pipeline_src.study.pretrain import PretrainParams
from pipeline_src.study.reading import check_block
from pipeline_src.text.books import clean_books
from pipeline_src.text.documents import read_documents, read_manifest
from pipeline_src.text.filters import refusal
from pipeline_src.text.language import Identify, check_language, load_identifier, probability_of
from tests.studies import read_dropped

ON = FiltersParams.model_validate({"language": {}})
TEXTS = {
    "en": "The village lies in a valley between two hills, and most of its people work in the mill by the river.",
    "de": "Das Dorf liegt in einem Tal zwischen zwei Hügeln, und die meisten Leute arbeiten in der Mühle am Fluss.",
    "da": "Landsbyen ligger i en dal mellem to bakker, og de fleste af dens folk arbejder i møllen ved åen.",
    "it": "Il paese si trova in una valle tra due colline, e molti dei suoi abitanti lavorano nel mulino sul fiume.",
}


def identify_by_first_word(text: str) -> Mapping[str, float]:
    """An identifier that takes the first word for the language, with a probability of 0.7."""
    shares = dict.fromkeys(("en", "de", "no"), 0.15)
    return shares | {text[:2]: 0.7} if text[:2] in shares else shares


def load_fake() -> Identify:
    return identify_by_first_word


def fake_probability(language: str, text: str) -> float:
    return probability_of(language, text, load_fake)


def load_missing() -> Identify:
    raise PipelineError("not installed", hint="pip install it")


@pytest.mark.parametrize("language", ["en", "en-gb"])
def test_refusal_other_language_is_refused(language: str) -> None:
    assert refusal("en text", ON, language, probability=fake_probability) is None
    refused = refusal("de text", ON, language, probability=fake_probability)
    assert refused == ("language.min_probability", 0.15, 0.65)


def test_refusal_probability_at_the_limit_is_kept() -> None:
    for limit, kept in ((0.7, True), (0.71, False)):
        filters = FiltersParams.model_validate({"language": {"min_probability": limit}})
        assert (refusal("en text", filters, "en", probability=fake_probability) is None) == kept


def test_refusal_text_refused_by_earlier_rule_skips_language_identification() -> None:
    filters = FiltersParams.model_validate({"language": {}, "gopher_quality": {}})
    refused = refusal("de text", filters, "en", probability=lambda *text: pytest.fail(f"identified {text}"))
    assert refused is not None and refused.rule == "gopher_quality.min_words"


def test_probability_of_bokmal_equals_norwegian() -> None:
    assert fake_probability("nb", "no text") == 0.7
    check_language(ON, "nb", "books", load_fake)


def test_probability_of_rounds_to_four_digits() -> None:
    assert probability_of("en", "", lambda: lambda text: {"en": 0.6499999}) == 0.65


def test_check_language_filter_without_library_is_rejected() -> None:
    check_language(FiltersParams(), "und", "books", load_missing)
    # Undetermined yet.
    check_language(ON, None, "books", load_fake)
    with pytest.raises(PipelineError, match="pip install it"):
        check_language(ON, None, "books", load_missing)


@pytest.mark.parametrize("language", ["und", "sh", "", "zh-min-nan"])
def test_check_language_unsupported_language_is_rejected(language: str) -> None:
    with pytest.raises(PipelineError) as raised:
        check_language(ON, language, "books", load_fake)
    assert raised.value.value == language
    assert "corpus.sources.books" in str(raised.value)


STEPS = PretrainParams(steps={"phase1": 1, "phase2": 0})


@pytest.mark.parametrize("value", [None, 0, 1.5, "high"])
def test_filters_params_min_probability_outside_0_to_1_is_rejected(value: object) -> None:
    with pytest.raises(PipelineError, match="filters.language.min_probability"):
        check_block(TextParams, {"from": "x", "filters": {"language": {"min_probability": value}}}, "params.yaml")


def test_code_stage_missing_py3langid_is_rejected_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "py3langid.langid", None)
    load_identifier.cache_clear()
    source = {"kind": "text", "from": "own-text", "filters": {"language": {}}}
    with pytest.raises(PipelineError, match="py3langid"):
        code.run(CorpusParams(sources={"one": source}), STEPS, FinetuneParams())
    assert not list(tmp_path.iterdir())


def test_clean_books_language_filter_drops_other_languages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PIPELINE_WORKERS", "1")
    files = tmp_path / "data/raw/texts/fetched-files"
    files.mkdir(parents=True)
    lines = (json.dumps({"id": language, "text": text}) for language, text in TEXTS.items())
    (files / "rows.jsonl").write_text("\n".join(lines), encoding="utf-8")
    clean_books.run("texts", TextParams(entry="x", near_duplicates=None, filters=ON))
    folder = clean_text("texts")
    assert [document.text for document in read_documents(folder)] == [TEXTS["en"]]
    assert read_manifest(folder)["dropped"] == {"language.min_probability": 3}
    dropped = read_dropped(folder)
    assert {record["text"] for record in dropped} == {TEXTS["de"], TEXTS["da"], TEXTS["it"]}
    assert all(record["value"] < record["limit"] == 0.65 for record in dropped)


def test_check_language_every_project_language_is_accepted() -> None:
    for language, text in TEXTS.items():
        assert probability_of(language, text) > 0.9
    for language in {*known_languages(), "ltg"} - {"und", "sh"}:
        check_language(ON, language, "texts")
    with pytest.raises(PipelineError, match="does not know this language: sh"):
        check_language(ON, "sh", "texts")


def test_load_identifier_any_thread_count_gives_same_probabilities() -> None:
    text = " ".join(chr(97 + a) + chr(97 + b) + chr(97 + c) for a in range(26) for b in range(26) for c in range(26))
    probabilities = []
    for threads in (1, 2):
        with threadpool_limits(threads):
            probabilities.append(load_identifier()(text))
    assert probabilities[0] == probabilities[1]
