"""Strategies of hypothesis for damaged and hostile files."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

HOSTILE = [
    *("", " ", "..", "../x", "/etc/x", "a/b", "-rf", "$(touch x)", "\0", "\ud800", "\x1b[31m", "²", "nan", "-1"),
    *("1e999", "9" * 400, "~", "{", "<xss>", "|", "a\nb", "\r\n", "\ufeff"),
]
SCALARS = st.one_of(
    st.sampled_from([*HOSTILE, None, True, 10**40]), st.integers(-3, 99), st.floats(-2, 2), st.just(float("inf"))
)
KEYS = st.sampled_from([*HOSTILE, "text", "label", "id"])
JSON_VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3), max_leaves=6
)
PIECES = st.one_of(
    st.binary(max_size=4),
    st.sampled_from(HOSTILE).map(lambda text: text.encode("utf-8", "surrogatepass")),
    st.just(b"[" * 3000),
)


@st.composite
def damaged(draw: st.DrawFn, data: bytes) -> bytes:
    """The bytes with up to three parts replaced or cut out."""
    for _ in range(draw(st.integers(0, 3))):
        start = draw(st.integers(0, len(data)))
        end = start + draw(st.sampled_from([0, 1, 4, 100]))
        data = data[:start] + draw(PIECES) + data[end:]
    return data


@st.composite
def mutated(draw: st.DrawFn, tree: Any) -> Any:
    """The JSON value with one value inside it removed or replaced."""
    if not isinstance(tree, dict | list) or not tree or draw(st.integers(0, 4)) == 0:
        return draw(JSON_VALUES)
    copy = tree.copy()
    key = draw(st.sampled_from(sorted(copy) if isinstance(copy, dict) else range(len(copy))))
    if draw(st.integers(0, 9)) == 0:
        del copy[key]
    else:
        copy[key] = draw(mutated(copy[key]))
    return copy
