"""The report's section on what the model learnt, and interpretation.html."""

import base64
import json
import re

import pytest

from pipeline_src.base.files import read_json, write_json
from pipeline_src.report import interpretation, report
from pipeline_src.report.figures import svg
from tests.unit.report.conftest import Page, sketch, update_json

FILLED_MASKS = [{"text": "a [MASK]", "answer": "dog", "rank": 2, "likeliest": [["cat", 0.5]]}]


def around(values: list[float]) -> list[list[float]]:
    return [[round(value - 0.02, 4), round(value + 0.03, 4)] for value in values]


def probed(score: str, model: list[float], random: list[float], words: float, **gains: list[float]) -> dict:
    """Return a probe of ``probes.json``, as far as the report reads it."""
    counts = {"type_majority": words, "type_majority_balanced": words, "tested_on": 5000, "documents": 7}
    counts |= {"trained_on": 20_000, "types_between": [words] * 2}
    counts |= {"control": [0.5, 0.4], "control_between": around([0.5, 0.4])}
    return {
        "score": score,
        "model": {"accuracy": model, "balanced": model, "between": around(model), **counts},
        "random": {"accuracy": random, "balanced": random, "between": around(random), **counts},
        **gains,
    }


def write_interpretation(folder) -> None:
    """Write the measures of a model of one layer and two heads."""
    weights = base64.b64encode(bytes([0, 255, 0, 10, 20, 225, 255, 0, 0] * 2)).decode()
    word = {
        "senses": ["managing", "on foot"],
        "texts": ["He is running a </script> firm .", "He is running home ."],
        "neighbours": [[[1], [0]]] * 2,
        "accuracy": [0.4, 0.9],
        "random": [0.5, 0.5],
    }
    pair = {"title": "subject and verb", "pairs": 192, "balanced": 0.51, "singular": 0.9, "plural": 0.12}
    pair |= {"random": 0.52, "commoner": 0.5, "gain": [-0.05, 0.03], "between": [0.44, 0.58]}
    relation = {"relation": "obj", "words": 612, "layer": 3, "head": 1, "found": 0.742, "found_by_offset": 0.402}
    relation |= {"offset": -2, "found_by_random": 0.06}
    ways = {
        "at once": {"texts": ["the , ,"], "repeated": 0.625},
        "surest first": {"texts": ["a", "b"], "repeated": 0.0},
    }
    files = {
        "probes": {
            "pos": probed("accuracy", [0.8, 0.95], [0.7, 0.7], 0.85, gain=[0.2, 0.3], gain_over_types=[0.05, 0.1]),
            "rte": probed("accuracy", [0.8, 0.84], [0.7, 0.7], 0.85, gain=[0.1, 0.2], gain_over_types=[-0.01, 0.02]),
            "capitals": probed("balanced", [0.5] * 2, [0.5] * 2, 0.6, gain=[-0.01, 0.01], gain_over_types=[-0.1, 0.0]),
            "self-similarity": {
                "model": {"adjusted": [0.8, 0.5], "between": around([0.8, 0.5])},
                "random": {"adjusted": [0.3, 0.3], "between": around([0.3, 0.3])},
            },
        },
        "senses": {
            "two contexts": {
                "words": {"running": word},
                "accuracy": [0.4, 0.9],
                "between": around([0.4, 0.9]),
                "gain": [0.2, 0.6],
                "random": [0.5, 0.5],
                "random_between": around([0.5, 0.5]),
                "sentences": 64,
            },
        },
        "heads": {
            "roles": {"roles": [["next", None]], "sentences": 300},
            "relations": [relation],
        },
        "pairs": {"agreement": pair},
        "completion": {
            "filled masks": FILLED_MASKS,
            "completions": [{"prompt": "Today, I went to", "ways": ways}],
        },
        "sentences": {"attention": [{"words": ["[CLS]", "firm", "[SEP]"], "marks": [1, 1], "weights": weights}]},
        "contents": {
            "model": {"title": "BERT", "layers": 1, "width": 128, "heads": 2},
            "skipped": {"relations": "no trees"},
        },
    }
    for name, value in files.items():
        write_json(folder / "interpretation" / f"{name}.json", value)


@pytest.fixture
def measured(results, monkeypatch):
    """A study with all measures, without real plots."""
    monkeypatch.setattr(interpretation, "svg", sketch)
    write_interpretation(results)
    return results


def pages(results) -> tuple[str, str]:
    """Write the report; return report.html and interpretation.html."""
    report.run()
    return tuple((results / name).read_text(encoding="utf-8") for name in ("report.html", "interpretation.html"))


def measures_of(page: str) -> dict[str, dict]:
    """Return the measures by layer in the data of interpretation.html, by title."""
    data = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)[1])
    return {measure["title"]: measure for measure in data["measures"]}


def test_section_has_a_panel_for_each_measure(measured, pictures, monkeypatch):
    monkeypatch.setattr(interpretation, "svg", svg)
    page, _ = pages(measured)
    assert page.count('<svg role="img"') == 7 + 5 and "<script" not in page
    assert not Page(page).open and "RTE (synthetic)</text>" in page
    ids = re.findall(r'\bid="([^"]*)"', page)
    assert len(ids) == len(set(ids))


def test_section_verdicts_follow_from_the_intervals(measured):
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


def test_section_without_measures_says_so(results):
    report.run()
    assert "has not looked into this model" in (results / "report.html").read_text(encoding="utf-8")
    assert not (results / "interpretation.html").exists()


def test_interpretation_page_is_complete_and_fetches_nothing(measured):
    report_page, page = pages(measured)
    assert read_json(measured / "filled_masks.json") == FILLED_MASKS
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


def test_interpretation_page_curves_are_next_to_their_controls(measured):
    measures = measures_of(pages(measured)[1])
    curves = {title: [curve["name"] for curve in measure["curves"]] for title, measure in measures.items()}
    assert measures["Parts of speech"]["curves"][0] == {
        "name": "this model",
        "values": [0.8, 0.95],
        "between": around([0.8, 0.95]),
    }
    assert curves["Parts of speech"] == ["this model", "random weights", "control task", "a table of words"]
    assert "control task" not in curves["Whether a word was capitalised"]  # an accuracy, next to balanced ones
    assert curves["One word in two senses"] == ["this model", "random weights", "chance"]
    lengths = {len(curve["values"]) for measure in measures.values() for curve in measure["curves"]}
    assert lengths == {2} and "A word from sentence to sentence" in measures
