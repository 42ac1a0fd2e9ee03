"""YAML is read as DVC reads it."""

from __future__ import annotations

import pytest
from dvc.utils.serialize import parse_yaml as dvc_parse_yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline_src.base.yaml_files import parse_yaml

SCALARS = st.one_of(
    st.from_regex(r"[-+]?[0-9][0-9_:.eoxb]{0,6}", fullmatch=True),
    st.sampled_from(
        "yes no on off y ~ null true TRUE .inf .nan 0o10 0x1f 0b11 1e3 1e-05 1. .5 2026-09-01 = <<".split()
    ),
    st.from_regex(r"[a-zA-Z0-9 _./-]{1,8}", fullmatch=True),
)


@given(SCALARS)
@settings(max_examples=80)
def test_parse_yaml_any_scalar_equals_dvc(text: str) -> None:
    try:
        value = parse_yaml(f"key: [{text}]")
    except ValueError as error:
        assert str(error).isprintable()
        with pytest.raises(Exception):  # noqa: B017
            dvc_parse_yaml(f"key: [{text}]", "a")
    else:
        assert repr(value) == repr(dvc_parse_yaml(f"key: [{text}]", "a"))


@pytest.mark.parametrize(
    ("text", "value"), [("010", 10), ("yes", "yes"), ("1e-05", 1e-5), ("1:30", "1:30"), ("'010'", "010")]
)
def test_parse_yaml_follows_version_1_2(text: str, value: object) -> None:
    assert parse_yaml(f"key: {text}") == {"key": value}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\na: 2\n", "duplicate key"),
        ("[" * 5000, "."),
        ("a: !!python/object/apply:os.system [id]\n", "could not determine a constructor"),
        ("a: 2026-13-01\n", "month"),
        ("a: \x00\n", "."),
        ("a: [1\n", "line 2"),
        ("a: " + "1" * 5000, "."),
    ],
)
def test_parse_yaml_invalid_text_raises_one_line_error(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        parse_yaml(text)
    assert str(caught.value).isprintable() and len(str(caught.value)) < 500
