"""Plots, and contrast of the page's colours, in light and dark (WCAG 2.2: 4.5 for text, 3 for graphics)."""

import re

import pytest

from pipeline_src.report.columns import score_rows
from pipeline_src.report.figures import (
    BLUE,
    GREY,
    ORANGE,
    TERMS,
    label_panels,
    new_axes,
    pretraining_panel,
    score_bars,
    svg,
    validation_curve,
)
from pipeline_src.report.rendering import TEMPLATES
from pipeline_src.report.results import read_results
from tests.unit.report.conftest import score_row, update_json


def luminance(colour: str) -> float:
    parts = [int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(*colours: str) -> float:
    low, high = sorted(map(luminance, colours))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_colours_are_legible_in_both_themes(theme):
    css = (TEMPLATES / "style.css").read_text(encoding="utf-8")
    colours = dict(re.findall(r"--(\w+): (#\w{6})", re.findall(r":root \{(.*?)\}", css)[theme]))
    for ink in ("ink", "soft", "link"):
        assert contrast(colours[ink], colours["paper"]) >= 4.5 and contrast(colours[ink], colours["wash"]) >= 4.5, ink
    assert contrast(colours["mark"], colours["markwash"]) >= 4.5
    for colour in (BLUE, ORANGE, GREY):
        assert contrast(colour, colours["paper"]) >= 3, colour
    assert contrast("#000000", "#ffffff") == 21


def test_svg_dollar_sign_is_printed_literally():
    axes = new_axes()
    axes.set(title="Cost in $ and US$ \\frac")
    assert "US$" in svg(axes, "dollar", "a dollar")


DECODER = {"is_decoder": True}
SENTENCE_ORDER = {"phase1": {"pairs": "sop"}}


@pytest.mark.parametrize(
    ("columns", "changes", "title"),
    [
        (["mlm_loss", "nsp_loss"], {}, "masked words + next sentence"),
        (["mlm_loss"], {}, "masked words"),
        (["mlm_loss", "rtd_loss"], {}, "masked words + replaced tokens"),
        (["mlm_loss"], {"pretrain/phase2.json": {"config": DECODER}}, "next words"),
        (["mlm_loss", "nsp_loss"], {"corpus.json": {"examples": SENTENCE_ORDER}}, "masked words + sentence order"),
    ],
)
def test_pretraining_panel_title_names_the_losses_that_were_trained(results, columns, changes, title):
    names = ["loss", *TERMS]
    trained = ["7" if name in ("loss", *columns) else "" for name in names]
    for phase in ("phase1", "phase2"):
        rows = [["step", *names], ["1", *trained]]
        (results / f"pretrain/{phase}.tsv").write_text("".join("\t".join(row) + "\n" for row in rows))
    for file, values in changes.items():
        update_json(results / file, **values)
    assert f"Loss: {title} by training step" in pretraining_panel(read_results(), "loss")


def test_validation_curve_ends_with_exact_loss_of_phase(results):
    assert validation_curve(read_results(), "phase2", "mlm_loss") == {20: 6.1}
    lines = ["step\tmlm_loss\tnsp_accuracy\tvalidation_mlm_loss", "11\t7\t0.5\t", "12\t7\t0.5\t6.9", "20\t7\t0.5\t6.2"]
    (results / "pretrain" / "phase2.tsv").write_text("\n".join(lines) + "\n")
    read = read_results()
    assert validation_curve(read, "phase2", "mlm_loss") == {12: 6.9, 20: 6.1}  # 6.1 is the exact one
    assert validation_curve(read, "phase2", "nsp_accuracy") == {20: 0.61}


def test_label_panels_show_only_measured_systems(pictures):
    scores = {40: (55.0, 52.0), 400: (66.0, 61.0), 1200: (80.0, 71.0)}
    systems = [
        {name: {"score": score, "interval": [score - 3, score + 3]} for name, score in zip(names, pair, strict=True)}
        for names, pair in zip([("pretrained", "bag_of_words")] * 3, scores.values(), strict=True)
    ]
    curve = [{"examples": count, "systems": by_name} for count, by_name in zip(scores, systems, strict=True)]
    update_json(pictures / "tasks/rte.json", label_curve=curve)
    (panel,) = label_panels(read_results())
    texts = re.findall(r"<text[^>]*>([^<]*)</text>", panel)
    assert {"RTE", "40", "400", "1,200", "pretrained", "bag of words", "labelled examples to train on"} <= set(texts)
    assert "random weights" not in texts and "95 % interval" in texts


@pytest.mark.parametrize("interval", [None, [45.0, 55.0]])
def test_score_bars_legend_has_whiskers_only_with_intervals(interval):
    (row,) = score_rows({"rules": {}, "rows": [score_row("rte", "accuracy", 50.0, interval=interval)]})
    figure = score_bars([row], synthetic=False)
    assert ("95 % interval" in re.findall(r"<text[^>]*>([^<]*)</text>", figure)) == (interval is not None)
