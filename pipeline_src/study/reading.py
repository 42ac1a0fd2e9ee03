"""Read and validate a YAML file. All mistakes in it are reported in one error."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, get_args, get_origin

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.names import shown
from pipeline_src.base.yaml_files import find_reference, parse_yaml
from pipeline_src.study.schema import Section
from pipeline_src.study.settled import read_settled

SectionType = TypeVar("SectionType", bound=Section)
# Rewrites pydantic's messages about Python values as messages about YAML values.
WORDS = {
    r"^Value error, ": "",
    r"^Input tag .* expected tags: ": "use one of ",
    r"^(Input|Value|String|List|Tuple|Dictionary)\b": "it",
    r", unable to parse .*": "",
    r" after validation": "",
    r"a valid (dictionary( or instance of \w+| or object to extract fields from)?|mapping)": "a mapping of keys",
    r"a valid (tuple|list)": "a list",
    r"a valid string": "text",
    r"^Field required": "add it",
}
UNKNOWN, MISSING, INVALID = KINDS = ("unknown key", "a key is missing", "value not allowed")
MERGE_MARKER = re.compile(r"^(?:<{7}|\|{7}|={7}|>{7})(?= |$)", re.MULTILINE)


class _Mistake(NamedTuple):
    what: str
    value: str
    hint: str


def read_yaml(path: str | Path) -> dict[str, Any]:
    try:
        text = read_settled(path)
        marker = MERGE_MARKER.search(text)
        if marker:
            line = text.count("\n", 0, marker.start()) + 1
            hint = f"resolve it in an editor, or keep one side: `git checkout --ours {path}` or `--theirs`"
            raise PipelineError("unresolved merge conflict", marker[0], where=f"{path}, line {line}", hint=hint)
        raw: Any = parse_yaml(text)
        reference = find_reference(text)
        if reference:
            # `dvc exp run -S` would change an aliased value in only one of its places.
            sign, line = reference
            hint = "write the value out in each place"
            what = "YAML anchors, aliases and merge keys are not supported"
            raise PipelineError(what, sign, where=f"{path}, line {line}", hint=hint)
    except FileNotFoundError:
        hint = "start the command in the project's root, or create it: `python -m pipeline_src preset sample`"
        raise PipelineError("no such study file", path, hint=hint) from None
    except ValueError as error:
        raise PipelineError("invalid YAML file", path, where=error, hint="correct the file at this position") from None
    if not isinstance(raw, dict):
        if Path(path).name == "params.yaml":
            hint = "write `key: value` lines; `python -m pipeline_src preset sample` overwrites it by the sample study"
            raise PipelineError("the study file has no keys", path, hint=hint)
        hint = f"write `key: value` lines; `git diff {path}` shows your changes since the last commit"
        raise PipelineError("the file has no keys", path, hint=hint)
    return raw


def check_block(block: type[SectionType], raw: dict[str, Any], path: str | Path, complete: bool = False) -> SectionType:
    """Validate the plain values of a file, and return them as a section.

    Args:
        raw: the values, as YAML was parsed.
        path: name of the file, for error messages.
        complete: whether the file must contain all keys, even those with a default; see ``missing_keys``.

    Raises:
        PipelineError: a key is unknown or missing, or a value is not allowed. All mistakes are in the one error.
    """
    missing = dict(missing_keys(block, raw))
    errors: list[ErrorDetails] = []
    try:
        section = block.model_validate(raw)
    except ValidationError as error:
        errors = [details for details in error.errors(include_url=False) if _dotted(details) not in missing]
    mistakes = [_mistake(block, key, alternatives) for key, alternatives in _by_key(errors, raw).items()]
    if not complete:
        missing = {key: default for key, default in missing.items() if default is None}
    if missing:
        mistakes.append(_missing(missing))
    if not mistakes:
        return section
    # A misspelt key is both unknown and missing. The unknown key comes first, since it explains the missing one.
    mistakes.sort(key=lambda mistake: KINDS.index(mistake.what))
    first, *further = mistakes
    hint = first.hint
    for mistake in further:
        hint += f"\n  also: {mistake.what}: {mistake.value}; {mistake.hint}"
    raise PipelineError(first.what, first.value, where=path, hint=hint)


def _missing(keys: Mapping[str, str | None]) -> _Mistake:
    written = [f"`{key}`" if default is None else f"`{key}: {default}`" for key, default in keys.items()]
    return _Mistake(MISSING, ", ".join(keys), f"add {', '.join(written)}")


def _mistake(block: type[Section], key: str, alternatives: list[ErrorDetails]) -> _Mistake:
    details = alternatives[0]
    if details["type"] == "extra_forbidden":
        allowed = ", ".join(_siblings(block, details["loc"]))
        return _Mistake(UNKNOWN, key, f"remove it or fix its spelling; allowed here: {allowed}")
    hint = " or ".join(map(_reason, alternatives)).replace(" or it should be ", " or ")
    if details["type"] == "missing":
        return _Mistake(MISSING, key, hint)
    value = details["input"]
    if details["type"] == "union_tag_invalid":
        value = details["ctx"]["tag"]
    name = key or f"the {block.__name__.removesuffix('Spec').lower()}"
    # Do not print the values of a whole section.
    given = "" if isinstance(value, dict) else f" = {shown(value)}"
    return _Mistake(INVALID, f"{name}{given}", hint)


def missing_keys(block: type[Section], values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str | None]]:
    """Find the keys that are missing in ``values`` and in the sections inside it.

    params.yaml must contain every key, even if its value is the default. The reason is that DVC compares only values
    that are written in the file. If a release changed the default of a key that is not written, no stage would become
    stale. Exceptions are partial sections (``Section.partial``), optional keys, and the entries of a mapping such as
    ``finetune.per_task``.

    Yields:
        (dotted key, default in YAML). The default is None if the key has none.
    """
    if block.partial:
        return
    for attribute, field in block.model_fields.items():
        name = str(field.validation_alias or attribute)
        key = f"{prefix}{name}"
        value = values.get(name)
        if name not in values:
            # A key with `exclude_if` is optional.
            if not field.exclude_if:
                yield key, None if field.is_required() else _spelled(field.get_default())
        elif isinstance(value, Mapping):
            inner = _section_in(field.annotation)
            if get_origin(field.annotation) is dict:
                yield from _missing_in_entries(_kinds(field.annotation), value, key)
            elif inner:
                yield from missing_keys(inner, value, f"{key}.")


def _missing_in_entries(
    kinds: Mapping[str, type[Section]], entries: Mapping[str, Any], key: str
) -> Iterator[tuple[str, str | None]]:
    # For a mapping such as corpus.sources, whose entries have a key `kind` that decides which keys are allowed.
    for name, entry in entries.items():
        if not kinds or not isinstance(entry, Mapping):
            continue
        if "kind" not in entry:
            yield f"{key}.{name}.kind", None
        elif entry["kind"] in list(kinds):
            yield from missing_keys(kinds[entry["kind"]], entry, f"{key}.{name}.")


def _kinds(annotation: Any) -> dict[str, type[Section]]:
    # For the annotation of a mapping such as corpus.sources, returns the value of the key `kind` -> section.
    # Any other annotation gives {}.
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


def _by_key(errors: Iterable[ErrorDetails], raw: Mapping[str, Any]) -> dict[str, list[ErrorDetails]]:
    # Groups errors by dotted key. If a value may have several types, pydantic reports one error for each type.
    by_key: defaultdict[str, list[ErrorDetails]] = defaultdict(list)
    for details in errors:
        value: Any = raw
        location: list[int | str] = []
        for step in details["loc"]:
            # After the keys, pydantic adds the type that it tried ("constrained-int"). Stop there.
            if not isinstance(value, Mapping | list | tuple) or step == "[key]":
                break
            location.append(step)
            try:
                value = value[step]  # type: ignore[index]
            except LookupError:
                # The key is missing, or this step is the kind of a source and no key.
                value = raw
        trimmed = details.copy()
        trimmed["loc"] = tuple(location)
        by_key[_dotted(trimmed)].append(details)
    return by_key


def _reason(details: ErrorDetails) -> str:
    message = details["msg"]
    for pattern, words in WORDS.items():
        message = re.sub(pattern, words, message)
    return message


def _dotted(details: ErrorDetails) -> str:
    location = details["loc"]
    # In "corpus.sources.books.books.min_words", the second "books" is the source's kind and not a key.
    if location[:2] == ("corpus", "sources"):
        location = (*location[:3], *location[4:])
    if details["type"].startswith("union_tag"):
        location = (*location, "kind")
    return ".".join(map(str, location))


def _siblings(outer: type[Section], location: tuple[int | str, ...]) -> list[str]:
    block = outer
    steps = iter(location[:-1])
    for step in steps:
        field = block.model_fields.get(str(step))
        # A step that is no key is an index of a list or the name of an entry.
        if field is None:
            continue
        kinds = _kinds(field.annotation)
        if kinds:
            # Skip the entry's name; the next step is its kind.
            next(steps, None)
            block = kinds[str(next(steps))]
        else:
            block = _section_in(field.annotation) or block
    return [str(field.validation_alias or name) for name, field in block.model_fields.items()]


def _section_in(annotation: Any) -> type[Section] | None:
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return annotation
    return next(filter(None, map(_section_in, get_args(annotation))), None)
