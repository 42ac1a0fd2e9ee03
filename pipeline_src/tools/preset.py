"""Tool ``preset``: replace params.yaml by a complete study.

``workflow/presets/sample.yaml`` is complete. Every other file there holds its differences from it, with comments. The
other BERTs are ``bert-base`` with other sizes, and published.yaml has the other architectures.

The output has the form in which `dvc exp run -S` writes params.yaml (dvc.utils.hydra.apply_overrides), so that DVC
changes only the lines of the changed key: lists are not indented and have an item per line, null is empty, and strings
are quoted only if necessary. A comment on a list is above its key, so it has to be true for every preset.
"""

from __future__ import annotations

import argparse
import io
from collections.abc import Iterator, Mapping
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap
from ruamel.yaml.error import CommentMark

from pipeline_src.common.errors import PipelineError
from pipeline_src.common.files import atomic_file
from pipeline_src.config.study import check_study

PRESETS, PARAMS = Path("workflow/presets"), Path("params.yaml")
BASE, FAMILY_BASE = "sample", "bert-base"
REPLACED = "finetune.per_task"  # a file's map of tasks replaces the base's
PUBLISHED = Path(__file__).with_name("published.yaml")
NAMED = {  # layers, hidden size (paper, section 3; Turc et al. 2019)
    "bert-tiny": (2, 128),
    "bert-mini": (4, 256),
    "bert-small": (4, 512),
    "bert-medium": (8, 512),
    "bert-base": (12, 768),
    "bert-large": (24, 1024),
}
SMALL_LAYERS, SMALL_WIDTHS = (2, 4, 6, 8, 10, 12), (128, 256, 512, 768)  # every combination was released
SMALL_RECIPE: dict[str, Any] = {  # google-research/bert, README
    "finetune.defaults.learning_rates": [0.0003, 0.0001, 0.00005, 0.00003],
    "finetune.defaults.epochs": 4,
    "finetune.defaults.batch_sizes": [8, 16, 32, 64, 128],
}


class Overlay(NamedTuple):
    """Differences from another study.

    Attributes:
        title: one line for people.
        values: dotted key of params.yaml -> value; a map updates the base's map, and null takes a map away.
        comments: dotted key -> comment after its value.
    """

    title: str
    values: Mapping[str, Any]
    comments: Mapping[str, str] = {}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the tool's own arguments."""
    parser.add_argument("name", nargs="?", help="a study of workflow/presets/, without .yaml, or of the family of BERT")
    parser.add_argument("--list", action="store_true", help="list the studies, and change nothing")


def main(arguments: argparse.Namespace) -> None:
    """List the presets, or put one in place."""
    if arguments.list:
        for name, title in preset_titles().items():
            print(f"{name:<20} {title}")
        return
    use_preset(arguments.name)
    print(f"params.yaml is now the study {arguments.name!r}; `git diff params.yaml` shows what changed")


def use_preset(name: str | None, folder: Path = PRESETS, params: Path = PARAMS) -> None:
    """Check a preset, then write it over ``params``."""
    text = preset_text(name, folder)
    check_study(yaml.safe_load(text), folder / f"{name}.yaml")
    with atomic_file(params) as file:
        file.write(text)


def preset_titles(folder: Path = PRESETS) -> dict[str, str]:
    """Return every preset's name and title: files, then the rest of the family."""
    titles = {path.stem: _title(path) for path in sorted(folder.glob("*.yaml"))}
    if FAMILY_BASE in titles:
        titles |= {name: one.title for name, one in {**family(), **published()}.items() if name not in titles}
    return titles


def preset_text(name: str | None, folder: Path = PRESETS) -> str:
    """Return a preset as params.yaml would hold it."""
    titles = preset_titles(folder)
    if name not in titles:
        what = "no such preset" if name else "no preset is named"
        hint = f"`python -m pipeline_src preset --list` shows all; among them {', '.join(list(titles)[:8])}"
        raise PipelineError(what, name, where=folder, hint=hint if titles else "none is there")
    base = (folder / f"{BASE}.yaml").read_text(encoding="utf-8")
    if name == BASE:
        return base
    if (folder / f"{name}.yaml").exists():
        return merged(base, name, _read(folder / f"{name}.yaml"))
    base = merged(base, FAMILY_BASE, _read(folder / f"{FAMILY_BASE}.yaml"))
    return merged(base, name, family().get(name) or published()[name])


def family() -> dict[str, Overlay]:
    """Return every BERT of the family but ``bert-base``, by name: ``bert-mini``, ``bert-l6-h512``, ``…-cased``."""
    sizes = dict(NAMED)
    for layers in SMALL_LAYERS:
        for hidden in SMALL_WIDTHS:
            if (layers, hidden) not in NAMED.values():
                sizes[f"bert-l{layers}-h{hidden}"] = (layers, hidden)
    members = {}
    for name, (layers, hidden) in sorted(sizes.items(), key=lambda item: item[1]):
        small = name != FAMILY_BASE and hidden in SMALL_WIDTHS
        values = {"model.num_hidden_layers": layers, "model.hidden_size": hidden} | (SMALL_RECIPE if small else {})
        comments = {"model.num_hidden_layers": "Turc et al. 2019" if small else "section 3"}
        if small:
            comments["finetune.defaults.epochs"] = "google-research/bert, README"
        about = f"as {FAMILY_BASE}: full data, a cluster, official task sets"
        members[name] = Overlay(f"{layers} layers, {hidden} wide, uncased; {about}", values, comments)
        values = values | {"vocabulary.vocab_size": 28_996, "vocabulary.lowercase": False}
        comments = comments | {"vocabulary.vocab_size": "the released cased vocabulary; 30,000 in the paper"}
        members[f"{name}-cased"] = Overlay(f"{layers} layers, {hidden} wide, cased; {about}", values, comments)
    del members[FAMILY_BASE]
    return members


@cache
def published() -> Mapping[str, Overlay]:
    """Return every published member of the family by its preset's name."""
    members = {}
    for name, member in yaml.safe_load(PUBLISHED.read_text(encoding="utf-8")).items():
        architecture = member["set"]["model.architecture"]
        title = f"{architecture} as published, on this project's data; its lines say where it departs"
        departs = {key: f"departs: {original}" for key, original in member.get("departs", {}).items()}
        members[name] = Overlay(title, member["set"], departs)
    return members


def merged(base: str, name: str, overlay: Overlay) -> str:
    """Return the text of ``base`` with another title and other values; a changed value loses the base's comment."""
    values = round_trip().load(base)
    values.ca.comment[1][0].value = f"# {name}: {overlay.title}\n"
    for key, value in overlay.values.items():
        parts = key.split(".")
        for depth in range(2, len(parts)):  # the line may be that of a map around it
            _drop_comment(*_place(values, ".".join(parts[:depth])))
        block, last = _place(values, key)
        if value is None and isinstance(block.get(last), CommentedMap):  # a source that the study does not have
            del block[last]
            continue
        if isinstance(value, CommentedMap):
            block[last] = value
            continue
        if isinstance(value, dict):
            for each in value:
                _drop_comment(block[last], each)
            block[last].update(_decimal(value))
        else:
            block[last] = _decimal(value)
        _drop_comment(block, last)
    for key, comment in overlay.comments.items():
        _set_comment(*_place(values, key), comment)
    return dumped(values)


def _read(path: Path) -> Overlay:
    """Read a file of what differs from the base."""
    values = round_trip().load(path.read_text(encoding="utf-8"))
    found = dict(_leaves(values))
    comments = {key: text for key in _keys(values) if (text := _comment(*_place(values, key)))}
    return Overlay(_title(path), found, comments)


def _leaves(block: CommentedMap, above: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in block.items():
        if isinstance(value, CommentedMap) and value and above + key != REPLACED:  # an empty map is a value
            yield from _leaves(value, f"{above}{key}.")
        else:
            yield above + key, list(value) if isinstance(value, list) else value  # without what follows the list


def _keys(block: CommentedMap, above: str = "") -> Iterator[str]:
    for key, value in block.items():
        yield above + key
        if isinstance(value, CommentedMap) and above + key != REPLACED:
            yield from _keys(value, f"{above}{key}.")


def _title(path: Path) -> str:
    first_line = path.read_text(encoding="utf-8").partition("\n")[0]
    return first_line.lstrip("# ").removeprefix(f"{path.stem}: ")


def _place(values: CommentedMap, key: str) -> tuple[CommentedMap, str]:
    """Return the map that holds a dotted key, and the key's last part."""
    *above, last = key.split(".")
    for name in above:
        values = values.setdefault(name, CommentedMap())
    return values, last


def _comment(block: CommentedMap, key: str) -> str:
    tokens = block.ca.items.get(key)
    return tokens[2].value.partition("\n")[0].lstrip("# ") if tokens and tokens[2] else ""


def _set_comment(block: CommentedMap, key: str, comment: str) -> None:
    """Put a comment after a key's value; lines of comments below it stay."""
    tokens = block.ca.items.get(key)
    if tokens is None or tokens[2] is None:
        block.yaml_add_eol_comment(comment, key, column=0)
        return
    tokens[2].value = f"# {comment}\n{tokens[2].value.partition(chr(10))[2]}"
    tokens[2].start_mark = CommentMark(0)  # one space after the value, however long the one before was


def _drop_comment(block: CommentedMap, key: str) -> None:
    tokens = block.ca.items.get(key)
    if tokens is not None and tokens[2] is not None:
        tokens[2].value = "\n" + tokens[2].value.partition("\n")[2]


def _decimal(value: Any) -> Any:
    """Write floats without an exponent: PyYAML reads 1e-05 as text."""
    if isinstance(value, dict):
        return {key: _decimal(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_decimal(each) for each in value]
    return round_trip().load(f"{Decimal(repr(value)):f}") if type(value) is float else value


def round_trip() -> YAML:
    """Return a YAML reader and writer that keeps comments and layout."""
    editor = YAML()
    editor.default_flow_style = False  # of what is put in
    editor.width = 1 << 16  # no line is folded
    return editor


def dumped(values: CommentedMap) -> str:
    """Return the text of values loaded by :func:`round_trip` and changed."""
    first, second = io.StringIO(), io.StringIO()
    round_trip().dump(values, first)
    round_trip().dump(round_trip().load(first.getvalue()), second)  # without quotes that are not needed
    return second.getvalue()
