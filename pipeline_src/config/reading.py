"""From a YAML file to a checked section, or to one error that names key, value and what is allowed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from pipeline_src.common.errors import PipelineError
from pipeline_src.common.names import shown
from pipeline_src.common.yaml_files import parse_yaml
from pipeline_src.config.schema import Section

B = TypeVar("B", bound=Section)
MERGE_MARKER = re.compile(r"^(?:<{7}|\|{7}|={7}|>{7})(?= |$)", re.MULTILINE)


def read_yaml(path: str | Path) -> dict[str, Any]:
    """Return the mapping in a file of parameters."""
    try:
        text = Path(path).read_text(encoding="utf-8")
        if marker := MERGE_MARKER.search(text):
            line = text.count("\n", 0, marker.start()) + 1
            hint = f"keep one side: by `git checkout --ours {path}`, by `--theirs`, or in an editor"
            raise PipelineError("unresolved merge conflict", marker[0], where=f"{path}, line {line}", hint=hint)
        raw: Any = parse_yaml(text)
    except FileNotFoundError:
        raise PipelineError(
            "no study here", path, hint="run from the project's root, or `python -m pipeline_src preset sample`"
        ) from None
    except ValueError as error:
        raise PipelineError(
            "not a YAML file that can be read", path, where=error, hint="fix what is named above"
        ) from None
    if not isinstance(raw, dict):
        if Path(path).name == "params.yaml":
            raise PipelineError("not a study", path, hint="`python -m pipeline_src preset sample` writes one")
        raise PipelineError("not a mapping of keys", path, hint=f"`git checkout {path}` brings it back")
    return raw


def check_block(block: type[B], raw: dict[str, Any], path: str | Path, complete: bool = False) -> B:
    """Turn plain values into a section.

    Args:
        block: class of the section.
        raw: the values.
        path: path of their file.
        complete: every key must be written, those with a default too; see ``missing_keys``.
    """
    missing = list(missing_keys(block, raw))
    mistakes: list[ErrorDetails] = []
    try:
        checked = block.model_validate(raw)
    except ValidationError as error:
        keys = {each.key for each in missing}
        mistakes = [each for each in error.errors(include_url=False) if _dotted(each) not in keys]
    unknown = [each for each in mistakes if each["type"] == "extra_forbidden"]
    missing = [each for each in missing if complete or each.usual is None]
    found: list[tuple[str, str, str]] = []  # what, value, hint
    for each in unknown:  # first, since a key misspelt is missing too
        allowed = ", ".join(_siblings(block, each["loc"]))
        found.append(("unknown key", _dotted(each), f"remove it or fix its spelling; allowed here: {allowed}"))
    if missing:
        found.append(
            ("a key is missing", ", ".join(each.key for each in missing), f"add {', '.join(map(str, missing))}")
        )
    for each in mistakes:
        if each not in unknown:
            given = "" if isinstance(each["input"], dict) else f" = {shown(each['input'])}"
            key = _dotted(each) or f"the {block.__name__.lower()}"
            if each["type"] == "union_tag_invalid":
                given = f" = {shown(each['ctx']['tag'])}"
            found.append(("value not allowed", f"{key}{given}", each["msg"].removeprefix("Value error, ")))
    if not found:
        return checked
    what, value, hint = found[0]
    others = "".join(f"\n  also: {what}: {value}; {hint}" for what, value, hint in found[1:])
    raise PipelineError(what, value, where=path, hint=f"{hint}{others}")


@dataclass(frozen=True)
class MissingKey:
    """A key that a file leaves out: dotted, with its default in YAML, or None."""

    key: str
    usual: str | None

    def __str__(self) -> str:
        return f"`{self.key}`" if self.usual is None else f"`{self.key}: {self.usual}`"


def missing_keys(block: type[Section], values: Mapping[str, Any], prefix: str = "") -> Iterator[MissingKey]:
    """Yield the keys of a section, and of the sections in it, that ``values`` leaves out.

    params.yaml must have every key: this package is no stage's code, and DVC compares the values that are written, so
    that a change of a silent default would make nothing stale. Sections made in Python may leave keys out, and so may
    the entries of a mapping, such as ``finetune.per_task``, and partial sections.
    """
    if block.partial:
        return
    for attribute, field in block.model_fields.items():
        name = str(field.validation_alias or attribute)
        key, value = f"{prefix}{name}", values.get(name)
        if name not in values:
            yield MissingKey(key, None if field.is_required() else _spelled(field.get_default()))
        elif isinstance(value, Mapping):
            if inner := _inner_block(field.annotation):
                yield from missing_keys(inner, value, f"{key}.")
            kinds = _kinds(field.annotation)
            for entry, written in value.items() if kinds else ():
                if isinstance(written, Mapping) and "kind" not in written:
                    yield MissingKey(f"{key}.{entry}.kind", None)
                elif isinstance(written, Mapping) and written["kind"] in list(kinds):
                    yield from missing_keys(kinds[written["kind"]], written, f"{key}.{entry}.")


def _inner_block(annotation: Any) -> type[Section] | None:
    if get_origin(annotation) is dict:
        return None
    for kind in (annotation, *get_args(annotation)):
        if isinstance(kind, type) and issubclass(kind, Section):
            return kind
    return None


def _kinds(annotation: Any) -> dict[str, type[Section]]:
    """Return the sections that a mapping's values may be, by their ``kind``; empty for other types."""
    found, waiting = {}, list(get_args(annotation)[1:]) if get_origin(annotation) is dict else []
    while waiting:
        each = waiting.pop()
        if not isinstance(each, type) or not issubclass(each, Section):
            waiting += get_args(each)
        elif "kind" in each.model_fields:
            found[each.model_fields["kind"].default] = each
    return found


def _spelled(value: Any) -> str:
    return json.dumps(
        value.model_dump(mode="json", exclude_unset=value.partial) if isinstance(value, Section) else value
    )


def _dotted(mistake: ErrorDetails) -> str:
    location = mistake["loc"]
    if location[:2] == ("corpus", "sources"):  # then the source's name, and its kind, which is no key
        location = (*location[:3], *location[4:])
    if mistake["type"].startswith("union_tag"):
        location = (*location, "kind")
    return ".".join(map(str, location))


def _siblings(outer: type[Section], location: tuple[int | str, ...]) -> list[str]:
    block: type[Section] | None = outer
    steps = iter(location[:-1])
    for step in steps:
        field = block.model_fields.get(str(step)) if block else None
        if field and (kinds := _kinds(field.annotation)):
            next(steps, None)  # the entry's name, before its kind
            block = kinds.get(str(next(steps, None)))
        else:
            block = _inner_block(field.annotation) if field else None
    names = [str(field.validation_alias or name) for name, field in block.model_fields.items()] if block else []
    return names or ["the keys of a preset"]
