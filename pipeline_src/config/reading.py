"""Read a YAML file into a checked section, or raise one error that names key, value and what is allowed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from pipeline_src.common.errors import PipelineError
from pipeline_src.common.names import shown
from pipeline_src.common.yaml_files import find_reference, parse_yaml
from pipeline_src.config.schema import Section
from pipeline_src.config.settled import read_settled

SectionType = TypeVar("SectionType", bound=Section)
MERGE_MARKER = re.compile(r"^(?:<{7}|\|{7}|={7}|>{7})(?= |$)", re.MULTILINE)


def read_yaml(path: str | Path) -> dict[str, Any]:
    """Return the mapping in a file of parameters."""
    try:
        text = read_settled(path)
        if marker := MERGE_MARKER.search(text):
            line = text.count("\n", 0, marker.start()) + 1
            hint = f"keep one side: by `git checkout --ours {path}`, by `--theirs`, or in an editor"
            raise PipelineError("unresolved merge conflict", marker[0], where=f"{path}, line {line}", hint=hint)
        raw: Any = parse_yaml(text)
        if reference := find_reference(text):
            # `dvc exp run -S` would change the value in one of its two places.
            sign, line = reference
            hint = "write the value out in each place"
            raise PipelineError("a YAML anchor, alias or merge key", sign, where=f"{path}, line {line}", hint=hint)
    except FileNotFoundError:
        hint = "run from the project's root, or `python -m pipeline_src preset sample`"
        raise PipelineError("no study here", path, hint=hint) from None
    except ValueError as error:
        raise PipelineError("not a YAML file that can be read", path, where=error, hint="fix it there") from None
    if not isinstance(raw, dict):
        if Path(path).name == "params.yaml":
            raise PipelineError("not a study", path, hint="`python -m pipeline_src preset sample` writes one")
        raise PipelineError("not a mapping of keys", path, hint=f"`git checkout {path}` brings it back")
    return raw


def check_block(block: type[SectionType], raw: dict[str, Any], path: str | Path, complete: bool = False) -> SectionType:
    """Turn the plain values of a file into a section.

    Args:
        complete: whether keys with a default must be written too; see ``missing_keys``.
    """
    missing = dict(missing_keys(block, raw))
    errors: list[ErrorDetails] = []
    try:
        section = block.model_validate(raw)
    except ValidationError as error:
        errors = [details for details in error.errors(include_url=False) if _dotted(details) not in missing]
    unknown: list[tuple[str, str, str]] = []  # message, value, hint
    invalid: list[tuple[str, str, str]] = []
    for details in errors:
        key = _dotted(details)
        if details["type"] == "extra_forbidden":
            allowed = ", ".join(_siblings(block, details["loc"]))
            unknown.append(("unknown key", key, f"remove it or fix its spelling; allowed here: {allowed}"))
            continue
        value = details["ctx"]["tag"] if details["type"] == "union_tag_invalid" else details["input"]
        given = "" if isinstance(value, dict) else f" = {shown(value)}"
        key = key or f"the {block.__name__.lower()}"
        invalid.append(("value not allowed", f"{key}{given}", details["msg"].removeprefix("Value error, ")))
    mistakes = unknown  # first, since a misspelt key is missing too
    if missing := {key: default for key, default in missing.items() if complete or default is None}:
        written = [f"`{key}`" if default is None else f"`{key}: {default}`" for key, default in missing.items()]
        mistakes.append(("a key is missing", ", ".join(missing), f"add {', '.join(written)}"))
    mistakes += invalid
    if not mistakes:
        return section
    (message, first, hint), *further = mistakes
    also = "".join(f"\n  also: {message}: {value}; {hint}" for message, value, hint in further)
    raise PipelineError(message, first, where=path, hint=f"{hint}{also}")


def missing_keys(block: type[Section], values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str | None]]:
    """Yield (dotted key, its default in YAML or None) for keys that ``values`` lacks, also in the sections inside it.

    params.yaml must have every key. DVC compares only the values that are written, and this package is no stage's code:
    a change of a default that is not written would make nothing stale. Keys may be left out of sections made in Python,
    of partial sections, and of the entries of a mapping such as ``finetune.per_task``.
    """
    if block.partial:
        return
    for attribute, field in block.model_fields.items():
        name = str(field.validation_alias or attribute)
        key, value = f"{prefix}{name}", values.get(name)
        if name not in values:
            if not field.exclude_if:  # dumped only if it is set
                yield key, None if field.is_required() else _spelled(field.get_default())
        elif isinstance(value, Mapping):
            if inner := _inner_block(field.annotation):
                yield from missing_keys(inner, value, f"{key}.")
            kinds = _kinds(field.annotation)
            for entry, written in value.items() if kinds else ():
                if isinstance(written, Mapping) and "kind" not in written:
                    yield f"{key}.{entry}.kind", None
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
    """Return ``kind`` -> section, for the values that a mapping's annotation allows; empty for other annotations."""
    kinds, pending = {}, list(get_args(annotation)[1:]) if get_origin(annotation) is dict else []
    while pending:
        member = pending.pop()
        if not isinstance(member, type) or not issubclass(member, Section):
            pending += get_args(member)
        elif "kind" in member.model_fields:
            kinds[member.model_fields["kind"].default] = member
    return kinds


def _spelled(value: Any) -> str:
    return json.dumps(
        value.model_dump(mode="json", exclude_unset=value.partial) if isinstance(value, Section) else value
    )


def _dotted(details: ErrorDetails) -> str:
    location = details["loc"]
    if location[:2] == ("corpus", "sources"):  # then the source's name, and its kind, which is no key
        location = (*location[:3], *location[4:])
    if details["type"].startswith("union_tag"):
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
