"""Every number on the page is looked up where it says it comes from, and made again by the formula it names."""

import re
from typing import Any
from urllib.parse import unquote

import pytest
import yaml

from pipeline_src.common.files import read_json, write_json
from pipeline_src.report import report
from pipeline_src.report.headline import DOCUMENT
from pipeline_src.report.traced import FORMATS, FORMULAS, JsonRef, TracedValue, computed, plain, show
from tests.unit.report.conftest import Page

NUMBER = re.compile(r"(?<![\w-])\d")  # F1 and SST-2 are names
RATE = 2.5


def documents(folder, root) -> dict:
    """All that a number may come from: results/, the committed figures, logs, and what was asked for."""
    base = folder.parent
    found = {path.relative_to(base).as_posix(): read_json(path) for path in base.rglob("*.json")}
    with open(root / DOCUMENT, encoding="utf-8") as file:
        found[DOCUMENT] = yaml.safe_load(file)
    return found | {"--price": RATE}


def look_up(found: dict, source: str) -> Any:
    """What ``document#pointer`` points at; a KeyError or an IndexError where there is nothing."""
    name, pointer = source.split("#")
    value = found[unquote(name)]
    for part in unquote(pointer).split("/")[1:]:
        part = part.replace("~1", "/").replace("~0", "~")
        value = value[int(part)] if isinstance(value, list) else value[part]
    return value


def audit(text: str, found: dict) -> int:
    """Check every text of a page; returns how many figures were looked up.

    Allowed without a source are the numbers along the axes of figures, and what provenance tells of this machine.
    """
    checked = 0
    for words, around in Page(text).texts:
        holders = [attributes for _, attributes in around if "data-source" in attributes]
        if holders:
            (holder,) = holders
            values = [look_up(found, source) for source in holder["data-source"].split(" ")]
            value = FORMULAS[holder.get("data-formula", "itself")](*values)
            assert FORMATS[holder["data-format"]](value) == words, holder
            checked += 1
            continue
        if any(tag == "style" or "data-provenance" in attributes for tag, attributes in around):
            continue
        if any("data-key" in attributes for _, attributes in around):
            (key,) = [attributes["data-key"] for _, attributes in around if "data-key" in attributes]
            look_up(found, key)
            continue
        ids = [attributes.get("id") or "" for tag, attributes in around if tag == "g"]
        if any(re.search(r"-[xy]tick_", one) or "matplotlib.axis" in one for one in ids):
            continue
        assert not NUMBER.search(words), f"a number without a source: {words!r} in {[tag for tag, _ in around]}"
    return checked


def add_costs(results) -> None:
    for phase, flops in (("phase1", 1_208_000), ("phase2", 2_000_000)):
        path = results / "pretrain" / f"{phase}.json"
        cost = {"steps": 10, "sequences": 320, "tokens": 4000, "predictions": 600, "flops": flops}
        write_json(path, read_json(path) | {"cost": cost | {"tokens_per_batch": 640, "normalised_computation": 6.4e9}})
        took = {"seconds": 3753.0, "training_seconds": 59.0, "tokens_per_second": 12_345.6, "mfu": 0.4123}
        took |= {"compile_seconds": 195.0 if phase == "phase1" else 0.0}
        machine = {"peak_memory": 812e6, "processes": 2, "peak_flops": 1.978e15, "peak_source": "datasheet, 2024"}
        logs = results.parent / "logs"
        settings = {
            "attention": "auto",
            "compile": True,
            "threads": 2,
            "microbatch_tokens": 16384,
            "activation_checkpointing": False,
        }
        measured = {"flops": flops, **took, **machine, "machine": settings}
        write_json(logs / "pretrain" / f"{phase}.cost.json", measured)
        run = {"seconds": 12.5, "cpu_seconds": 11.0, "max_rss_mb": 812.4, "started": "2026-01-01T00:00:00+00:00"}
        write_json(logs / "pretrain" / f"{phase}.run.json", run)


def add_filled_masks(results) -> None:
    path = results / "pretrain" / "phase1.json"
    asked = {"text": "On 3 May [MASK] fell.", "answer": "snow", "candidates": [[["rain", 0.25], ["he", 0.125]]]}
    filled = [{"step": step, **asked} for step in range(100, 1000, 100)]
    write_json(path, read_json(path) | {"fill_mask": filled})


def test_every_number_of_the_page_is_found(results, root, pictures):
    add_costs(results)
    add_filled_masks(results)
    report.run(price=RATE)
    page, run = ((results / f"{name}.html").read_text(encoding="utf-8") for name in ("report", "run"))
    assert audit(page, documents(results, root)) > 220 and audit(run, documents(results, root)) > 30
    text = page + run
    for shown in ("1.408e19", "4.352e19", "4.686e18", "1.280e10", "3.208e6", "10.43", "445.9", "rain", "25.0 %"):
        assert shown in text, shown
    assert len(re.findall(r"#/compile_seconds", text)) == 1 and "steps in which torch compiled took" in text
    for phase in ("phase1", "phase2"):  # the settings of machine.yaml, the boolean ones too
        settings = re.findall(rf'{phase}.cost.json#/machine/(\w+)"[^>]*>([^<]+)<', text)
        assert dict(settings)["microbatch_tokens"] == "16384" and len(settings) == 5, phase
    steps = re.findall(r'#/fill_mask/\d+/step"[^>]*>(\d+)<', text)
    assert steps == ["100", "300", "500", "700", "900"]  # the first, the last and some between


@pytest.mark.parametrize(
    "wrong",
    [
        "<p>Scores rose by 3 points.</p>",
        '<span data-source="results/scores.json#/rows/0/mean" data-format="one">80.1</span>',
        '<span data-source="results/scores.json#/rows/0/mean" data-formula="sum" data-format="two">80.0</span>',
    ],
)
def test_a_number_that_is_made_up_is_caught(results, root, wrong):
    with pytest.raises(AssertionError):
        audit(wrong, documents(results, root))
    with pytest.raises((KeyError, IndexError)):
        audit(
            '<span data-source="results/scores.json#/rows/99/mean" data-format="one">1</span>', documents(results, root)
        )


def test_pointers_survive_any_name():
    ref = JsonRef({"a/b ~c#": [{"é": 1.25}]}, "results/x y.json")["a/b ~c#"][0]["é"]
    assert look_up({"results/x y.json": {"a/b ~c#": [{"é": 1.25}]}}, ref.traced.sources[0]) == 1.25
    assert 'data-format="two">1.25<' in show(ref, "two")


def test_what_is_missing_is_a_dash_and_makes_no_figure():
    nothing, one = JsonRef(None, "a"), JsonRef(1.0, "b")
    assert plain(nothing) == "–" == show(nothing) and plain(nothing, "spread") == ""
    assert computed("difference", one, nothing) == TracedValue(None, ("b#", "a#"), "difference")
    with pytest.raises(AssertionError):
        computed("sum", computed("sum", one, one), one)


def test_formulas():
    rows = [80.0, 84.0], [70.0, 90.0]
    assert FORMULAS["mean over restarts"](*rows) == 81.0 and FORMULAS["best of restarts"](*rows) == 87.0
    assert FORMULAS["deviation over restarts"](*rows) == pytest.approx(72**0.5)
    assert FORMULAS["deviation over restarts"]([80.0], [70.0]) is None
    assert FORMULAS["price"](2.0, 3600, 2, 1800, 4) == 8.0
    assert FORMULAS["normalised computation by phase"](2, 256, [9, 1], [128, 512]) == 2 * 256 * (9 * 128 + 512)
    assert FORMATS["scientific"](6.4e9) == "6.400e9" and FORMATS["scientific"](0.5) == "5.000e-1"
    assert FORMATS["folded"]("went to be, , , , , , and") == "went to be, [, ×5] and"
    assert FORMATS["folded"]("in the the end, 1000000") == "in the the end, 1[0 ×6]"
    assert FORMATS["clipped"]("word " * 200).endswith("word …") and len(FORMATS["clipped"]("word " * 200)) <= 422
