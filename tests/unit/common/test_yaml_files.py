"""YAML with one meaning: what DVC would record otherwise than a stage would run with is refused."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from pipeline_src.common.yaml_files import parse_yaml

SCALARS = st.one_of(
    st.from_regex(r"[-+]?[0-9][0-9_:.eoxb]{0,6}", fullmatch=True),
    st.sampled_from(
        "yes no on off y ~ null true TRUE .inf .nan 0o10 0x1f 0b11 1e3 1e-05 1. .5 2026-09-01 = <<".split()
    ),
    st.from_regex(r"[a-zA-Z0-9 _./-]{1,8}", fullmatch=True),
)


@pytest.mark.parametrize("text", ["010", "0o10", "1:30", "yes", "[010]", "{a: {b: [1, off]}}", "{yes: 1}"])
def test_what_the_two_read_differently_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"in YAML 1\.1 and .* in YAML 1\.2"):
        parse_yaml(f"key: {text}")


@pytest.mark.parametrize(
    "text", ["1", "-1", "1e-05", "0.1", "1.0e-5", "true", "null", "'010'", "2026-09-01", "a b", "0"]
)
def test_what_both_read_alike_is_taken(text: str) -> None:
    assert parse_yaml(f"key: {text}") == {"key": yaml.safe_load(text)}


@given(SCALARS)
@settings(max_examples=80)
def test_a_value_has_the_meaning_that_dvc_records(text: str) -> None:
    try:
        mine = parse_yaml(f"key: [{text}]")
    except ValueError as error:
        assert str(error).isprintable()
        return
    (theirs,), (read,) = YAML(typ="safe", pure=True).load(f"key: [{text}]")["key"] or [None], mine["key"] or [None]
    assert read == theirs or repr(read) == repr(theirs) or float(read) == theirs


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\na: 2\n", "duplicate key"),
        ("a: &a [x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\n" + "".join(
            f"{chr(99 + n)}: &{chr(99 + n)} [{','.join([f'*{chr(98 + n)}'] * 9)}]\n" for n in range(9)), "values"),
        ("[" * 5000, "nested too deeply|expected"),
        ("a: !!python/object/apply:os.system [id]\n", "could not determine a constructor"),
        ("a: 2026-13-01\n", "month"),
        ("a: \x00\n", "."),
        ("a: [1\n", "line 2"),
        ("&a [*a]", "."),
        ("a: " + "1" * 5000, "."),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore")
def test_what_cannot_be_read_is_said_in_one_line(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        parse_yaml(text)
    assert str(caught.value).isprintable() and len(str(caught.value)) < 500
