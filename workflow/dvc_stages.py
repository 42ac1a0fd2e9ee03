"""What dvc.yaml declares, read by DVC itself: stages in running order, who makes which file, names with wildcards.

Nothing of dvc.yaml's language (``${...}``, vars, foreach, matrix) is parsed here: DVC resolves it, and for a
group of stages it is asked once more with ``{task}`` in the place of ``${item.task}``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePosixPath
from typing import Any

import networkx
from dvc.parsing import EntryDefinition, ForeachDefinition
from dvc.parsing.context import Node
from dvc.repo import Repo
from dvc.stage import PipelineStage
from snakemake.exceptions import WorkflowError

OUTPUT_KINDS = ("outs", "metrics", "plots")


@dataclass(frozen=True)
class Group:
    """A stage as dvc.yaml spells it: one member, or one for each item of its matrix or foreach list.

    Attributes:
        name: its key in dvc.yaml.
        patterns: outputs with ``{wildcards}`` for the items -> whether it is a folder.
        keys: names of the wildcards, in the order in which they appear in the outputs.
        members: the wildcards' values -> the member.
    """

    name: str
    patterns: dict[str, bool]
    keys: list[str]
    members: dict[tuple[str, ...], PipelineStage]

    def stamp(self, values: Iterable[str]) -> str:
        """Name of a member's stamp; with wildcards for values, the pattern of all of them."""
        items = ",".join(values)
        return f"{self.name}@{items}" if items else self.name


class Pipeline:
    """The stages of the dvc.yaml in the working directory.

    Attributes:
        repo: the DVC repository.
        stages: every member of every stage by DVC's name (``finetune@cola-1``), dependencies first.
        makers: path of every output, relative to the root -> the stage that makes it.

    Raises:
        WorkflowError: the working directory is not the root of the DVC repository.
    """

    def __init__(self, repo: Repo) -> None:
        if os.path.realpath(repo.root_dir) != os.path.realpath(os.getcwd()):
            raise WorkflowError(f"Run from the root of the DVC repository, {os.path.relpath(repo.root_dir)}.")
        self.repo = repo
        self.graph = repo.index.graph
        declared = os.path.join(repo.root_dir, "dvc.yaml")
        self.stages: dict[str, PipelineStage] = {
            stage.name: stage
            for stage in networkx.dfs_postorder_nodes(self.graph)
            if stage.cmd and os.path.realpath(stage.path) == os.path.realpath(declared)
        }
        self.makers = {self.path(out): stage for stage in self.stages.values() for out in stage.outs}

    def path(self, item: Any) -> str:
        """Path of one of DVC's dependencies or outputs, relative to the root."""
        return os.path.relpath(item.fs_path, self.repo.root_dir)

    def upstream(self, stage: PipelineStage) -> Iterable[PipelineStage]:
        """Stages whose outputs ``stage`` depends on directly."""
        return self.graph.successors(stage)

    def above(self, stage: PipelineStage) -> list[PipelineStage]:
        """Stages whose outputs ``stage`` depends on directly, of this dvc.yaml."""
        return [other for other in self.upstream(stage) if other.name in self.stages]

    def outputs_behind(self, dependency: str) -> list[str]:
        """Outputs of stages that a dependency names: itself, the folder it lies in, or all that lie in it.

        Empty where no stage makes it: code, or data of the user's own.
        """
        if dependency in self.makers:
            return [dependency]
        above = [str(folder) for folder in PurePosixPath(dependency).parents if str(folder) in self.makers]
        return above[:1] or [path for path in self.makers if path.startswith(dependency + "/")]

    def members(self, name: str) -> list[PipelineStage]:
        """The stage itself, or every member of a matrix or foreach group."""
        return [stage for full, stage in self.stages.items() if full.split("@")[0] == name]

    def output_patterns(self, name: str) -> dict[str, bool]:
        """Outputs of a stage with ``{wildcards}`` for a group's items -> whether it is a folder.

        A path without suffix, or with a closing slash, is a folder. Outputs that persist between runs are left
        out, since Snakemake would delete them before each run.
        """
        definition = self._resolver.definitions[name]
        if isinstance(definition, EntryDefinition):
            entry = definition.resolve_stage()[name]
        else:
            template = {key: definition.template.get(key, []) for key in OUTPUT_KINDS}
            template |= {key: definition.template[key] for key in ("vars", "wdir") if key in definition.template}
            items: dict[str, Any] = {"key": "{key}", "item": _placeholders(definition)}
            with definition.context.set_temporarily(items, reserve=True):
                single = EntryDefinition(self._resolver, definition.context, name, template)
                entry = single.resolve_stage(skip_checks=True)[name]
        patterns = {}
        for declared in (out for kind in OUTPUT_KINDS for out in entry.get(kind) or []):
            path, options = (declared, {}) if isinstance(declared, str) else next(iter(declared.items()))
            if not (options or {}).get("persist"):
                whole = os.path.normpath(os.path.join(entry.get("wdir") or "", path))
                patterns[whole] = path.endswith("/") or not PurePosixPath(whole).suffix
        return patterns

    @cached_property
    def groups(self) -> dict[str, Group]:
        """Every stage as dvc.yaml spells it.

        Raises:
            WorkflowError: two members of a group would write the same files.
        """
        groups = {}
        for name in self._resolver.definitions:
            patterns = self.output_patterns(name)
            keys = list(dict.fromkeys(key for pattern in patterns for key in re.findall(r"{(\w+)}", pattern)))
            members: dict[tuple[str, ...], PipelineStage] = {}
            for stage in self.members(name):
                values = _match(list(patterns), keys, {self.path(out) for out in stage.outs})
                if values is None or values in members:
                    raise WorkflowError(f"dvc.yaml, {stage.name}: the outputs' names must hold each item of the group.")
                members[values] = stage
            groups[name] = Group(name, patterns, keys, members)
        return groups

    @cached_property
    def stamps(self) -> dict[str, str]:
        """DVC's name of every stage -> name of its stamp."""
        return {
            stage.name: group.stamp(values) for group in self.groups.values() for values, stage in group.members.items()
        }

    @cached_property
    def _resolver(self) -> Any:
        from dvc.dvcfile import load_file

        return load_file(self.repo, os.path.join(self.repo.root_dir, "dvc.yaml")).resolver


def _placeholders(definition: Any) -> Any:
    """``{name}`` for every value that a group's items can put into a path."""
    if not isinstance(definition, ForeachDefinition):
        return {key: f"{{{key}}}" for key in definition.resolved_iterable}
    first = next(iter(definition.normalized_iterable.values()), "")
    first = first.value if isinstance(first, Node) else first
    return {key: f"{{{key}}}" for key in first} if isinstance(first, Mapping) else "{item}"


def _match(patterns: list[str], keys: list[str], outputs: set[str]) -> tuple[str, ...] | None:
    """The wildcards' values that turn ``patterns`` into (some of) ``outputs``; None where there are none."""
    known: dict[str, str] = {}
    for pattern in patterns:
        parts = re.split(r"{(\w+)}", pattern.format_map(_Keep(known)))
        seen: set[str] = set()
        expression = ""
        for place, part in enumerate(parts):
            if place % 2 == 0:
                expression += re.escape(part)
            else:
                expression += f"(?P={part})" if part in seen else f"(?P<{part}>.+?)"
                seen.add(part)
        matches = [match for out in sorted(outputs) if (match := re.fullmatch(expression, out))]
        if not matches:
            return None
        known |= matches[0].groupdict()
    return tuple(known[key] for key in keys)


class _Keep(dict[str, str]):
    """Leaves a wildcard that is not known yet as it stands."""

    def __missing__(self, key: str) -> str:
        return f"{{{key}}}"
