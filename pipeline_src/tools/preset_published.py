"""The published members of BERT's family as presets: ``bert-base`` with what ``published.yaml`` says of each."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from pipeline_src.tools.yaml_editor import YamlEditor, drop_comment, set_comment, set_title

SOURCED = ("model", "pretrain")  # blocks of the basis that name the section of BERT's paper that they are from
MEMBERS = Path(__file__).with_name("published.yaml")


class Published(NamedTuple):
    """One member.

    Attributes:
        values: key of params.yaml, with dots -> value, where it is not that of the basis.
        departs: key -> what the original has instead.
    """

    values: Mapping[str, Any]
    departs: Mapping[str, str]

    @property
    def about(self) -> str:
        """One line for people."""
        architecture = self.values["model.architecture"]
        return f"{architecture} as published, on this project's data; its lines say where it departs"


@cache
def published() -> Mapping[str, Published]:
    """Every member by its preset's name."""
    raw = yaml.safe_load(MEMBERS.read_text(encoding="utf-8"))
    return {name: Published(member["set"], member.get("departs", {})) for name, member in raw.items()}


def render_published(name: str, basis: str) -> str:
    """The member's preset: the text of the basis with the values that differ, and comments where it departs.

    What the basis says of a value goes with the value.
    """
    member, editor = published()[name], YamlEditor(basis)
    set_title(editor.values, f"{name}: {member.about}")
    for name in SOURCED:
        drop_comment(editor.values, name)
    for key, value in member.values.items():
        block, last = _place(editor, key)
        for depth in range(2, key.count(".") + 2):  # the line may be that of a block around it
            drop_comment(*_place(editor, ".".join(key.split(".")[:depth])))
        if isinstance(value, dict):
            block[last].update(value)
        else:
            block[last] = value
    for key, original in member.departs.items():
        block, last = _place(editor, key)
        set_comment(block, last, f"departs: {original}")
    return editor.dumps()


def _place(editor: YamlEditor, key: str) -> tuple[Any, str]:
    """The block of a key with dots, and its last part."""
    *blocks, last = key.split(".")
    block: Any = editor.values
    for name in blocks:
        block = block[name]
    return block, last
