"""The filter `language`: whom it drops, and what it says before any work; a test of py3langid itself."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from threadpoolctl import threadpool_limits

from pipeline_src.common.errors import PipelineError
from pipeline_src.common.paths import clean_text
from pipeline_src.config.data import TextParams, known_languages
from pipeline_src.config.filters import FiltersParams
from pipeline_src.config.reading import check_block
from pipeline_src.corpus.books import clean_books
from pipeline_src.corpus.documents import read_documents, read_manifest
from pipeline_src.corpus.dropped import read_dropped
from pipeline_src.corpus.filters import refusal
from pipeline_src.corpus.language import Identify, check_language, load_identifier, probability_of

ROOT = Path(__file__).parents[3]
ON = FiltersParams.model_validate({"language": {}})
TEXTS = {
    "en": "The village lies in a valley between two hills, and most of its people work in the mill by the river.",
    "de": "Das Dorf liegt in einem Tal zwischen zwei Hügeln, und die meisten Leute arbeiten in der Mühle am Fluss.",
    "da": "Landsbyen ligger i en dal mellem to bakker, og de fleste af dens folk arbejder i møllen ved åen.",
    "it": "Il paese si trova in una valle tra due colline, e molti dei suoi abitanti lavorano nel mulino sul fiume.",
}


def by_first_word(text: str) -> Mapping[str, float]:
    """An identifier that takes the first word for the language, with a probability of 0.7."""
    shares = dict.fromkeys(("en", "de", "no"), 0.15)
    return shares | {text[:2]: 0.7} if text[:2] in shares else shares


def load() -> Identify:
    return by_first_word


def not_installed() -> Identify:
    raise PipelineError("not installed", hint="pip install it")


def probability(language: str, text: str) -> float:
    return probability_of(language, text, load)


@pytest.mark.parametrize("language", ["en", "en-gb"])
def test_a_document_in_another_language_is_refused(language: str) -> None:
    assert refusal("en text", ON, language, probability=probability) is None
    found = refusal("de text", ON, language, probability=probability)
    assert found == ("language.min_probability", 0.15, 0.65)


def test_a_threshold_of_its_own_decides() -> None:
    for limit, kept in ((0.7, True), (0.71, False)):
        filters = FiltersParams.model_validate({"language": {"min_probability": limit}})
        assert (refusal("en text", filters, "en", probability=probability) is None) == kept


def test_the_language_is_identified_only_if_no_other_rule_refuses() -> None:
    filters = FiltersParams.model_validate({"language": {}, "gopher_quality": {}})
    found = refusal("de text", filters, "en", probability=lambda *text: pytest.fail(f"identified {text}"))
    assert found is not None and found.rule == "gopher_quality.min_words"


def test_bokmal_is_the_librarys_norwegian() -> None:
    assert probability("nb", "no text") == 0.7
    check_language(ON, "nb", "books", load)


def test_last_digits_that_processors_differ_in_are_left_out() -> None:
    assert probability_of("en", "", lambda: lambda text: {"en": 0.6499999}) == 0.65


def test_without_the_group_no_library_is_loaded() -> None:
    check_language(FiltersParams(), "und", "books", not_installed)


def test_a_missing_library_is_an_error_before_the_language_is_known() -> None:
    with pytest.raises(PipelineError, match="pip install it"):
        check_language(ON, None, "books", not_installed)


def test_a_language_that_is_not_known_yet_is_no_error() -> None:
    check_language(ON, None, "books", load)


@pytest.mark.parametrize("language", ["und", "sh", "", "zh-min-nan"])
def test_a_language_that_the_library_does_not_know_is_an_error(language: str) -> None:
    with pytest.raises(PipelineError) as raised:
        check_language(ON, language, "books", load)
    assert raised.value.value == language
    assert "corpus.sources.books" in str(raised.value)


@pytest.mark.parametrize("value", [None, 0, 1.5, "high"])
def test_a_probability_is_a_number_between_0_and_1(value: object) -> None:
    with pytest.raises(PipelineError, match="filters.language.min_probability"):
        check_block(TextParams, {"from": "x", "filters": {"language": {"min_probability": value}}}, "params.yaml")


def test_the_first_stage_ends_without_the_library_and_leaves_nothing(tmp_path: Path) -> None:
    """In a process of its own, in which py3langid cannot be imported."""
    code = """
import sys
sys.modules["py3langid"] = None
from pipeline_src.code import run
from pipeline_src.config.data import CorpusParams
from pipeline_src.config.finetune import FinetuneParams
source = {"kind": "text", "from": "own-text", "filters": {"language": {}}}
try:
    run(CorpusParams(sources={"one": source}), (), FinetuneParams())
except Exception as error:
    print(repr(error))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True
    )
    assert done.stdout.startswith("PipelineError") and "pip install py3langid" in done.stdout, done.stderr
    assert not list(tmp_path.iterdir())


@pytest.fixture(scope="module")
def library() -> Identify:
    return load_identifier()


def test_py3langid_drops_the_same_documents_for_any_number_of_workers(
    library: Identify, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    files = tmp_path / "data/raw/texts/fetched-files"
    files.mkdir(parents=True)
    rows = (json.dumps({"id": language, "text": text}) for language, text in TEXTS.items())
    (files / "rows.jsonl").write_text("\n".join(rows), encoding="utf-8")
    folder = clean_text("texts")
    written = []
    for workers in ("1", "2"):
        monkeypatch.setenv("PIPELINE_WORKERS", workers)
        clean_books.run("texts", TextParams(entry="x", near_duplicates=None, filters=ON))
        written.append({path.name: path.read_bytes() for path in folder.iterdir()})
    assert written[0] == written[1]
    assert [document.text for document in read_documents(folder)] == [TEXTS["en"]]
    assert read_manifest(folder)["dropped"] == {"language.min_probability": 3}
    dropped = read_dropped(folder)
    assert {row["text"] for row in dropped} == {TEXTS["de"], TEXTS["da"], TEXTS["it"]}
    assert all(row["value"] < row["limit"] == 0.65 for row in dropped)


def test_py3langid_knows_languages_by_our_codes(library: Identify) -> None:
    for language, text in TEXTS.items():
        assert probability_of(language, text) > 0.9
    for language in (*known_languages(), "nb", "ltg"):
        check_language(ON, language, "texts")
    with pytest.raises(PipelineError, match="does not know this language: sh"):
        check_language(ON, "sh", "texts")


@given(st.text())
def test_py3langid_judges_any_text(library: Identify, text: str) -> None:
    assert 0 <= probability_of("en", text) <= 1


def test_py3langid_says_the_same_for_any_number_of_threads(library: Identify) -> None:
    text = " ".join(chr(97 + a) + chr(97 + b) + chr(97 + c) for a in range(26) for b in range(26) for c in range(26))
    said = []
    for threads in (1, 2):
        with threadpool_limits(threads):
            said.append(library(text))
    assert said[0] == said[1]
