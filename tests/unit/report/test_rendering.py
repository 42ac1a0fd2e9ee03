"""Formats of numbers and texts."""

import re

import pytest

from pipeline_src.report.rendering import FORMATS, MAX_TEXT_LENGTH, TEMPLATES, clip, show, with_code


@pytest.mark.parametrize(
    ("value", "format", "text"),
    [
        (None, "one", "–"),
        (1234.56, "one", "1,234.6"),
        (-0.25, "signed_three", "-0.250"),
        (6.4e9, "scientific", "6.400e9"),
        (0.5, "scientific", "5.000e-1"),
        (0.15, "percent_exact", "15\xa0%"),
        ([0.061, 0.072], "interval_percent", "6.1 to 7.2\xa0%"),
        (0.0004, "p", "p < 0.001"),
        ({"difference": 3.05, "interval": [1.0, 5.1]}, "difference", "+3.0 (1.0 to 5.1)"),
        ({"difference": -3.0, "interval": None}, "difference", "-3.0"),
        ("went to be, , , , , , and", "folded", "went to be, [, ×5] and"),
        ("in the the end, 1000000", "folded", "in the the end, 1[0 ×6]"),
    ],
)
def test_show_formats_value(value, format, text):
    assert show(value, format) == text


def test_clip_long_text_ends_at_word_boundary():
    text = clip("word " * 200)
    assert text.endswith("word …") and len(text) <= MAX_TEXT_LENGTH + 2


def test_with_code_escapes_the_text():
    assert with_code("no `a<b>` & c") == "no <code>a&lt;b&gt;</code> &amp; c"


def test_templates_use_only_known_formats():
    for path in TEMPLATES.glob("*.j2"):
        assert set(re.findall(r'show\("(\w+)"\)', path.read_text(encoding="utf-8"))) <= FORMATS.keys(), path.name
