"""Contrast of the page's colours, in light and dark (WCAG 2.2: 4.5 for text, 3 for graphics)."""

import re

import pytest

from pipeline_src.report.figures import BLUE, GREY, ORANGE
from pipeline_src.report.traced import TEMPLATES


def luminance(colour: str) -> float:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_everything_is_legible_in_both_themes(theme):
    css = (TEMPLATES / "style.css").read_text(encoding="utf-8")
    colours = dict(re.findall(r"--(\w+): (#\w{6})", re.findall(r":root \{(.*?)\}", css)[theme]))
    for ink in ("ink", "soft", "link"):
        assert contrast(colours[ink], colours["paper"]) >= 4.5 and contrast(colours[ink], colours["wash"]) >= 4.5, ink
    assert contrast(colours["mark"], colours["markwash"]) >= 4.5
    for drawn in (BLUE, ORANGE, GREY):
        assert contrast(drawn, colours["paper"]) >= 3, drawn
    assert contrast("#000000", "#ffffff") == 21
