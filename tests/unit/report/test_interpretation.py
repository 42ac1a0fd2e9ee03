"""What the model learnt, in the report and on its own page."""

import base64
import json
import re

import pytest

from pipeline_src.common.files import read_json, write_json
from pipeline_src.report import interpretation, report
from pipeline_src.report.figures import svg
from tests.unit.report.conftest import Page, sketch

FILLED = [{"text": "a [MASK]", "answer": "dog", "rank": 2, "likeliest": [["cat", 0.5]]}]


def around(values: list[float]) -> list[list[float]]:
    """Intervals of some width."""
    return [[round(value - 0.02, 4), round(value + 0.03, 4)] for value in values]


def probed(ours: list[float], theirs: list[float], words: float, gain: list[float], over: list[float]) -> dict:
    """As ``layers.probe_tags`` gives it, as far as the report reads it."""

    def figures(values: list[float]) -> dict:
        more = {"type_majority": words, "type_majority_balanced": words, "tested_on": 5000, "documents": 7}
        more["trained_on"] = 20_000
        bands = {"between": around(values), "control_between": around([0.5, 0.4]), "types_between": [words] * 2}
        return {"accuracy": values, "balanced": values, "control": [0.5, 0.4], **more, **bands}

    def coded(ours: list[float]) -> dict:
        found = {
            "uniform": 81.7,
            "code": [81.7 / value for value in ours],
            "compression": ours,
            "between": around(ours),
        }
        found |= {"frequencies_compression": [1.3], "frequencies_between": around([1.3])}
        return found | {"control_compression": [1.2, 1.1], "control_between": around([1.2, 1.1])}

    return {
        "score": "accuracy",
        "online": {"model": coded([2.0, 6.25]), "random": coded([1.5, 1.6]), "best_layer": 1, "gain": [1.5, 1.75]},
        "model": figures(ours),
        "random": figures(theirs),
        "best_layer": 1,
        "gain": gain,
        "gain_over_types": over,
    }


def write_interpretation(folder) -> None:
    """Results of looking into a model of one layer and two heads."""
    weights = base64.b64encode(bytes([0, 255, 0, 10, 20, 225, 255, 0, 0] * 2)).decode()
    word = {
        "senses": ["managing", "on foot"], "texts": ["He is running a </script> firm .", "He is running home ."],
        "neighbours": [[[1], [0]]] * 2, "accuracy": [0.4, 0.9], "random": [0.5, 0.5],
    }  # fmt: skip
    pair = {"title": "subject and verb", "pairs": 192, "balanced": 0.51, "singular": 0.9, "plural": 0.12}
    pair |= {"random": 0.52, "commoner": 0.5, "gain": [-0.05, 0.03], "between": [0.44, 0.58]}
    relation = {"relation": "obj", "words": 612, "layer": 3, "head": 1, "found": 0.742, "found_by_offset": 0.402}
    relation |= {"offset": -2, "found_by_random": 0.06}
    ways = {
        "at once": {"texts": ["the , ,"], "repeated": 0.625},
        "surest first": {"texts": ["a", "b"], "repeated": 0.0},
    }
    hidden = {"at": 1, "probability": 0.25, "gain": 1.5, "adds": [0.0, 0.0, 1.5]}
    files = {
        "probes": {
            "pos": probed([0.8, 0.95], [0.7, 0.7], 0.85, [0.2, 0.3], [0.05, 0.1]),
            "rte": probed([0.8, 0.84], [0.7, 0.7], 0.85, [0.1, 0.2], [-0.01, 0.02]),
            "capitals": probed([0.5, 0.5], [0.5, 0.5], 0.6, [-0.01, 0.01], [-0.1, 0.0]) | {"score": "balanced"},
            "self-similarity": {
                "model": {"adjusted": [0.8, 0.5], "between": around([0.8, 0.5])},
                "random": {"adjusted": [0.3, 0.3], "between": around([0.3, 0.3])},
            },
        },
        "senses": {
            "two contexts": {
                "words": {"running": word}, "accuracy": [0.4, 0.9], "random": [0.5, 0.5], "gain": [0.2, 0.6],
                "sentences": 64, "between": around([0.4, 0.9]), "random_between": around([0.5, 0.5]),
            },
            "two sources": {
                "words": {"art": word}, "accuracy": [0.5, 0.5], "random": [0.5, 0.5], "gain": [-0.1, 0.1],
                "sentences": 60, "between": around([0.5, 0.5]), "random_between": around([0.5, 0.5]),
            },
        },
        "heads": {
            "roles": {"roles": [["next", None]], "sentences": 300},
            "relations": [relation],
        },
        "pairs": {"agreement": pair},
        "completion": {
            "filled masks": FILLED,
            "completions": [{"prompt": "Today, I went to", "ways": ways}],
            "loss by masks": {"masks": [1, 2], "kept": [4.0, 4.5], "cut": [5.0, 5.1], "unigram": 6.0},
        },
        "sentences": {
            "attention": [{"words": ["[CLS]", "firm", "[SEP]"], "marks": [1, 1], "weights": weights, "hidden": hidden}]
        },
        "checkpoints": {"checkpoints": [{"step": step, "two contexts": [0.4, 0.5]} for step in (100, 200)]},
        "contents": {
            "model": {"title": "BERT", "layers": 1, "width": 128, "heads": 2}, "skipped": {"relations": "no trees"},
        },
    }  # fmt: skip
    for name, value in files.items():
        write_json(folder / "interpretation" / f"{name}.json", value)


@pytest.fixture
def looked_into(results, monkeypatch):
    monkeypatch.setattr(interpretation, "svg", sketch)
    write_interpretation(results)
    return results


def test_section_has_a_panel_for_each_measure(looked_into, pictures, monkeypatch):
    monkeypatch.setattr(interpretation, "svg", svg)
    report.run()
    page = (looked_into / "report.html").read_text(encoding="utf-8")
    assert page.count('<svg role="img"') == 7 + 8 and "<script" not in page
    assert not Page(page).open
    ids = re.findall(r'\bid="([^"]*)"', page)
    assert len(ids) == len(set(ids))


def test_section_says_when_a_model_is_no_better_than_its_controls(looked_into):
    report.run()
    page = (looked_into / "report.html").read_text(encoding="utf-8")
    rows = dict(
        re.findall(
            r'<tr><th scope="row">([^<]*?)(?: <span[^>]*>synthetic</span>)?</th>.*?<td class="wide">(.*?)</td>', page
        )
    )
    assert rows["parts of speech, best layer"] == rows["one word in two senses, last layer"] == interpretation.BETTER
    pairs = read_json(looked_into / "interpretation" / "pairs.json")
    write_json(
        looked_into / "interpretation" / "pairs.json", {"agreement": pairs["agreement"] | {"gain": [-0.2, -0.1]}}
    )
    report.run()
    page_of_worse = (looked_into / "report.html").read_text(encoding="utf-8")
    assert f'<td class="wide">{interpretation.WORSE}</td>' in page_of_worse and interpretation.WORSE not in page
    assert rows["rte, best layer"] == interpretation.ONLY_TYPES
    assert rows["whether a word was capitalised, best layer"] == rows["subject and verb"] == interpretation.NO_BETTER
    assert re.search(r'rte, best layer <span class="tag">synthetic', page) and "relations: no trees" in page


def test_section_shows_online_codes(looked_into):
    report.run()
    page = (looked_into / "report.html").read_text(encoding="utf-8")
    (table,) = re.findall(r'aria-label="Online codes">(.*?)</table>', page, re.DOTALL)
    row = next(row for row in table.split("</tr>") if "parts of speech" in row)
    cells = [re.sub("<.*?>", "", cell) for cell in re.findall(r'<td class="number">(.*?)</td>', row)]
    assert cells == ["20,000", "13.1", "6.25", "6.23 to 6.28", "1.60", "1.30", "1.10", "1.500 to 1.750"]


def test_interpretation_page_data_cannot_end_its_script(looked_into):
    report.run()
    assert read_json(looked_into / "filled_masks.json") == FILLED
    opening = (looked_into / "report.html").read_text(encoding="utf-8").partition("<section")[0]
    assert ">a [MASK]<" in opening and ">cat<" in opening
    page = (looked_into / "interpretation.html").read_text(encoding="utf-8")
    told = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    data = json.loads(told[1])
    assert data["words"]["running"]["texts"][0] == "He is running a </script> firm ." and "<" not in told[1]
    assert set(re.findall(r'href="([^"]*)"', page)) == {"#sentence", "#word", "#layers", "#completion"}
    assert "src=" not in page and page.count("<details") == 4 and len(page.encode()) < 60_000
    ids = re.findall(r'\bid="([^"]*)"', page.partition("<script>")[0])
    assert len(ids) == len(set(ids))
    assert "1 layer of 128, 2 heads each." in page
    for row in ("<td>[SEP]</td>", "random weights", "Today, I went to", "relations: no trees"):
        assert row in page
    assert data["names"] == ["running", "art (by source)"] and data["words"].keys() == set(data["names"])
    tags = next(each for each in data["measures"] if each["title"] == "Parts of speech")
    assert {"values": [0.8, 0.95], "between": around([0.8, 0.95])}.items() <= tags["curves"][0].items()
    assert '95.0 %<br><span class="soft">93.0 to 98.0</span>' in page
    curves = {each["title"]: [curve["name"] for curve in each["curves"]] for each in data["measures"]}
    assert curves["Parts of speech"] == ["this model", "random weights", "control task", "a table of words"]
    assert curves["Parts of speech: online code"] == [
        "this model", "random weights", "control task", "frequencies of labels"
    ]  # fmt: skip
    assert '6.25 ×<br><span class="soft">6.23 to 6.28</span>' in page and "+1.500 to +1.750 bits a word" in page
    assert "control task" not in curves["Whether a word was capitalised"]  # an accuracy, beside balanced ones


def test_section_without_results_says_so(results):
    report.run()
    assert "has not looked into this model" in (results / "report.html").read_text(encoding="utf-8")
    assert not (results / "interpretation.html").exists()
