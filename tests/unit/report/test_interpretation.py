"""The report's section on what the model learnt, and interpretation.html."""

import json
import re
import shutil

import pytest

from pipeline_src.base.files import read_json, write_json
from pipeline_src.report import interpretation, report
from pipeline_src.report.figures import svg
from tests.unit.report.conftest import STUDY, Page, sketch, update_json


@pytest.fixture
def measured(results, monkeypatch):
    """A study with all measures, without real plots."""
    monkeypatch.setattr(interpretation, "svg", sketch)
    shutil.copytree(STUDY / "interpretation", results / "interpretation")
    return results


def pages(results) -> tuple[str, str]:
    """Write the report; return report.html and interpretation.html."""
    report.run()
    return tuple((results / name).read_text(encoding="utf-8") for name in ("report.html", "interpretation.html"))


def measures_of(page: str) -> dict[str, dict]:
    """Return the measures by layer in the data of interpretation.html, by title."""
    data = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)[1])
    return {measure["title"]: measure for measure in data["measures"]}


def test_interpretation_section_has_a_plot_for_each_measure(measured, pictures, monkeypatch):
    monkeypatch.setattr(interpretation, "svg", svg)
    page, _ = pages(measured)
    assert page.count('<svg role="img"') == 7 + 5 and "<script" not in page
    assert not Page(page).open and "RTE (synthetic)</text>" in page
    ids = re.findall(r'\bid="([^"]*)"', page)
    assert len(ids) == len(set(ids))


def test_interpretation_section_verdicts_follow_from_intervals(measured):
    page, _ = pages(measured)
    row = r'<tr><th scope="row">([^<]*?)(?: <span[^>]*>synthetic</span>)?</th>.*?<td class="wide">(.*?)</td>'
    verdicts = dict(re.findall(row, page))
    assert verdicts["parts of speech, best layer"] == interpretation.BETTER
    assert verdicts["one word in two senses, last layer"] == interpretation.BETTER
    assert verdicts["RTE, best layer"] == interpretation.ONLY_TYPES
    assert verdicts["whether a word was capitalised, best layer"] == interpretation.NO_BETTER
    assert verdicts["subject and verb"] == interpretation.NO_BETTER and interpretation.WORSE not in page
    assert re.search(r'RTE, best layer <span class="tag">synthetic', page) and "relations: no trees" in page
    path = measured / "interpretation/pairs.json"
    update_json(path, agreement=read_json(path)["agreement"] | {"gain": [-0.2, -0.1]})
    assert f'<td class="wide">{interpretation.WORSE}</td>' in pages(measured)[0]


def test_interpretation_section_without_measures_shows_a_note(results):
    report.run()
    assert "has not looked into this model" in (results / "report.html").read_text(encoding="utf-8")
    assert not (results / "interpretation.html").exists()


def test_interpretation_page_is_complete_and_fetches_nothing(measured):
    report_page, page = pages(measured)
    filled_masks = [{"text": "a [MASK]", "answer": "dog", "rank": 2, "likeliest": [["cat", 0.5]]}]
    assert read_json(measured / "filled_masks.json") == filled_masks
    opening = report_page.partition("<section")[0]
    assert ">a [MASK]<" in opening and ">cat<" in opening
    assert set(re.findall(r'href="([^"]*)"', page)) == {"#sentence", "#word", "#layers", "#completion"}
    assert "src=" not in page and page.count("<details") == 4 and len(page.encode()) < 60_000
    ids = re.findall(r'\bid="([^"]*)"', page.partition("<script>")[0])
    assert len(ids) == len(set(ids))
    assert "1 layer of 128, 2 heads each." in page
    for text in ("<td>[SEP]</td>", "random weights", "Today, I went to", "relations: no trees"):
        assert text in page
    assert '95.0 %<br><span class="soft">93.0 to 98.0</span>' in page


def test_interpretation_page_data_cannot_end_its_script(measured):
    _, page = pages(measured)
    script = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)[1]
    data = json.loads(script)
    assert data["words"]["running"]["texts"][0] == "He is running a </script> firm ." and "<" not in script
    assert data["names"] == ["running"] == list(data["words"])


def test_interpretation_page_plots_have_curves_of_controls(measured):
    measures = measures_of(pages(measured)[1])
    curves = {title: [curve["name"] for curve in measure["curves"]] for title, measure in measures.items()}
    assert measures["Parts of speech"]["curves"][0] == {
        "name": "this model",
        "values": [0.8, 0.95],
        "between": [[0.78, 0.83], [0.93, 0.98]],
    }
    assert curves["Parts of speech"] == ["this model", "random weights", "control task", "a table of words"]
    assert "control task" not in curves["Whether a word was capitalised"]  # an accuracy, next to balanced ones
    assert curves["One word in two senses"] == ["this model", "random weights", "chance"]
    lengths = {len(curve["values"]) for measure in measures.values() for curve in measure["curves"]}
    assert lengths == {2} and "A word from sentence to sentence" in measures


def test_interpretation_note_of_a_probe_names_the_resampled_units(measured):
    path = measured / "interpretation/probes.json"
    probes = read_json(path)
    notes = [measure["note"] for measure in measures_of(pages(measured)[1]).values() if measure.get("note")]
    assert any("words of 7 documents" in note and "with documents resampled" in note for note in notes)
    for figures in probes.values():
        if "documents" in figures["model"]:
            figures["model"]["documents"] = 1
    write_json(path, probes)
    notes = [measure["note"] for measure in measures_of(pages(measured)[1]).values() if measure.get("note")]
    assert any("with words resampled" in note for note in notes)
    assert not any("with documents resampled" in note for note in notes)
