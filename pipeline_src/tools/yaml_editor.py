"""Changing values of a YAML file that people write: its comments, quotes and layout stay."""

from __future__ import annotations

import io

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap

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
        self._yaml.preserve_quotes = True
        self._yaml.width = WIDTH
        self._yaml.indent(mapping=2, sequence=4, offset=2)
        self._yaml.representer.add_representer(
            type(None), lambda representer, _: representer.represent_scalar("tag:yaml.org,2002:null", "null")
        )
        self.values: CommentedMap = self._yaml.load(text)

    def dumps(self) -> str:
        """The text with the values of now."""
        text = io.StringIO()
        self._yaml.dump(self.values, text)
        return text.getvalue()


def set_comment(block: CommentedMap, key: str, comment: str) -> None:
    """Put a comment behind a key's value, in place of what stands there; what follows on lines of its own stays."""
    tokens = block.ca.items.get(key)
    if tokens is None or tokens[2] is None:
        block.yaml_add_eol_comment(comment, key)
        return
    _, _, below = tokens[2].value.partition("\n")
    tokens[2].value = f"# {comment}\n{below}"


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
