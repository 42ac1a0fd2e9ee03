"""Changing values of a YAML file that people write: its comments and layout stay.

The form is the one in which `dvc exp run -S` writes params.yaml back (dvc.utils.hydra.apply_overrides), so that a file
of ours differs after it in the lines of the changed key alone: lists are not indented and have an item on each line,
null is nothing at all, and strings are quoted only if they have to be. In a file of that form, comments on a list are
above its key (one behind the key is no YAML after DVC has put in an empty list), and neither a comment nor an empty
line follows its last item (that would go).
"""

from __future__ import annotations

import io

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap
from ruamel.yaml.error import CommentMark

WIDTH = 1 << 16  # no line is ever folded


class YamlEditor:
    """A YAML text whose values may be changed.

    Args:
        text: a mapping.

    Attributes:
        values: what it says; changed in place.
    """

    def __init__(self, text: str) -> None:
        self._yaml = YAML()
        self._yaml.default_flow_style = False  # of what is put in
        self._yaml.width = WIDTH
        self.values: CommentedMap = self._yaml.load(text)

    def dumps(self) -> str:
        """The text with the values of now."""
        return self._dumped(self._yaml.load(self._dumped(self.values)))  # twice: quotes around what was put in go

    def _dumped(self, values: CommentedMap) -> str:
        text = io.StringIO()
        self._yaml.dump(values, text)
        return text.getvalue()


def set_comment(block: CommentedMap, key: str, comment: str) -> None:
    """Put a comment behind a key's value, in place of what stands there; what follows on lines of its own stays."""
    tokens = block.ca.items.get(key)
    if tokens is None or tokens[2] is None:
        block.yaml_add_eol_comment(comment, key, column=0)
        return
    _, _, below = tokens[2].value.partition("\n")
    tokens[2].value = f"# {comment}\n{below}"
    tokens[2].start_mark = CommentMark(0)  # one space behind the value, however long the one before was


def drop_comment(block: CommentedMap, key: str) -> None:
    """Leave out the comment behind a key's value, if there is one; what follows on lines of its own stays."""
    tokens = block.ca.items.get(key)
    if tokens is not None and tokens[2] is not None:
        _, _, below = tokens[2].value.partition("\n")
        tokens[2].value = f"\n{below}"


def set_title(values: CommentedMap, title: str) -> None:
    """Put a comment on the first line of a file that begins with one."""
    first = values.ca.comment[1][0]
    first.value = f"# {title}\n"
