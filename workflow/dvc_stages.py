"""What dvc.yaml declares, read by DVC itself: stages in running order, who makes which file, names with wildcards.

Nothing of dvc.yaml's language (``${...}``, vars, foreach, matrix) is parsed here: DVC resolves it, and for a
group of stages it is asked once more with ``{task}`` in the place of ``${item.task}``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePosixPath
from typing import Any

import networkx

from engine_api import ParamsDependency, PipelineStage, Repo, WorkflowError, declared_stages, params_of, resolve

OUTPUT_KINDS = ("outs", "metrics", "plots")


@dataclass(frozen=True)
class Group:
    """A stage as dvc.yaml spells it: one member, or one for each item of its matrix or foreach list.

    Attributes:
        name: its key in dvc.yaml.
        outputs: outputs with ``{wildcards}`` for the items -> whether it is a folder.
        keys: names of the wildcards, in the order in which they appear in the outputs.
        members: the wildcards' values -> the member.
    """

    name: str
    outputs: dict[str, bool]
    keys: list[str]
    members: dict[tuple[str, ...], PipelineStage]


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

    def inputs(self, stage: PipelineStage) -> list[str]:
        """Files and folders that a stage depends on; of a folder that stages fill, what they put there."""
        paths = [self.path(dep) for dep in stage.deps if not isinstance(dep, ParamsDependency)]
        return list(dict.fromkeys(file for path in paths for file in self.outputs_behind(path) or [path]))

    def outputs_behind(self, dependency: str) -> list[str]:
        """Outputs of stages that a dependency names: itself, the folder it lies in, or all that lie in it.

        Empty where no stage makes it: code, or data of the user's own.
        """
        if dependency in self.makers:
            return [dependency]
        above = [str(folder) for folder in PurePosixPath(dependency).parents if str(folder) in self.makers]
        return above[:1] or [path for path in self.makers if path.startswith(dependency + "/")]

    # -- as rules name them ---------------------------------------------------------------------------------

    @cached_property
    def groups(self) -> dict[str, Group]:
        """Every stage as dvc.yaml spells it.

        Raises:
            WorkflowError: a stage has no outputs, or two members of a group would write the same files.
        """
        declared = declared_stages(self.repo)
        templates = {name: _template(definition) for name, definition in declared["stages"].items()}
        resolved = resolve(self.repo, {"vars": declared.get("vars", []), "stages": templates})
        return {name: self._group(name, _outputs(entry)) for name, entry in resolved.items()}

    def _group(self, name: str, outputs: dict[str, bool]) -> Group:
        if not outputs:
            raise WorkflowError(f"dvc.yaml, {name}: a stage needs an output that Snakemake can ask for.")
        keys = list(dict.fromkeys(key for path in outputs for key in re.findall(r"{(\w+)}", path)))
        members = {}
        for stage in self.stages.values():
            if stage.name.split("@")[0] == name:
                values = _values(list(outputs), keys, {self.path(out) for out in stage.outs})
                if values is None or values in members:
                    raise WorkflowError(f"dvc.yaml, {stage.name}: the outputs' names must hold each item of the group.")
                members[values] = stage
        return Group(name, outputs, keys, members)

    # -- compared with dvc.lock -----------------------------------------------------------------------------

    def changed(self, stage: PipelineStage) -> bool:
        """Whether DVC calls the stage changed; unlike DVC's own function it takes no lock and needs no cache."""
        if stage.changed_stage() or any(self.differs(out) for out in stage.outs):
            return True
        if stage.frozen:
            return False
        return bool(stage.is_callback or stage.always_changed or any(self.differs(dep) for dep in stage.deps))

    def is_recorded(self, stage: PipelineStage) -> bool:
        """Whether dvc.lock records a run of the stage with its command, parameters, code and input of now."""
        outputs = all(out.hash_info for out in stage.outs)
        return outputs and not stage.changed_stage() and not any(self.differs(dep) for dep in stage.deps)

    def differs(self, item: Any) -> bool:
        """Whether an output or a dependency in the workspace is other than dvc.lock says, or missing."""
        if isinstance(item, ParamsDependency) and item.params:
            recorded = item.hash_info.value or {}
            return any(key not in recorded for key in item.params) or self.params(item) != {
                key: recorded[key] for key in item.params
            }
        try:
            return bool(item.workspace_status())
        except FileNotFoundError:  # a folder of links into a cache that is gone
            return True

    def params(self, dependency: ParamsDependency) -> dict[str, Any]:
        """The values of now of a dependency on parameters, those left out that its file does not have."""
        values = self._params.get(dependency.fs_path, {})
        return {key: values[key] for key in dependency.params or values if key in values}

    @cached_property
    def _params(self) -> dict[str, dict[str, Any]]:
        """Each file of parameters is parsed once: DVC parses it for every stage, a quarter of a start."""
        named = [dep for stage in self.stages.values() for dep in stage.deps if isinstance(dep, ParamsDependency)]
        return params_of(dep for dep in named if dep.params)


def _template(definition: dict[str, Any]) -> dict[str, Any]:
    """A stage that writes the outputs of ``definition``, with ``{task}`` in the place of ``${item.task}``."""
    body = definition.get("do", definition)
    kept = {key: body[key] for key in (*OUTPUT_KINDS, "vars", "wdir") if key in body}
    is_group = "do" in definition or "matrix" in definition
    return {"cmd": "true", **(_with_wildcards(kept) if is_group else kept)}


def _with_wildcards(node: Any) -> Any:
    if isinstance(node, str):
        return re.sub(r"\$\{\s*(?:item\.)?(\w+)\s*\}", _wildcard, node)
    if isinstance(node, dict):
        return {_with_wildcards(key): _with_wildcards(value) for key, value in node.items()}
    return [_with_wildcards(each) for each in node] if isinstance(node, list) else node


def _wildcard(reference: re.Match[str]) -> str:
    is_item = "item." in reference[0] or reference[1] in ("item", "key")
    return f"{{{reference[1]}}}" if is_item else reference[0]


def _outputs(entry: dict[str, Any]) -> dict[str, bool]:
    """Outputs of a resolved stage -> whether it is a folder: it has no suffix, or ends in a slash.

    Outputs that persist between runs are left out, since Snakemake would delete them before each run.
    """
    outputs = {}
    for declared in (out for kind in OUTPUT_KINDS for out in entry.get(kind) or []):
        path, options = (declared, {}) if isinstance(declared, str) else next(iter(declared.items()))
        if not (options or {}).get("persist"):
            whole = os.path.normpath(os.path.join(entry.get("wdir") or "", path))
            outputs[whole] = path.endswith("/") or not PurePosixPath(whole).suffix
    return outputs


def _values(patterns: list[str], keys: list[str], outputs: set[str]) -> tuple[str, ...] | None:
    """The wildcards' values that turn ``patterns`` into (some of) ``outputs``; None where there are none."""
    expression, seen = "", set()
    for place, part in enumerate(re.split(r"{(\w+)}", patterns[0])):
        if place % 2 == 0:
            expression += re.escape(part)
        else:
            expression += f"(?P={part})" if part in seen else f"(?P<{part}>.+?)"
            seen.add(part)
    for path in sorted(outputs):
        match = re.fullmatch(expression, path)
        if match and seen == set(keys) and {pattern.format(**match.groupdict()) for pattern in patterns} <= outputs:
            return tuple(match[key] for key in keys)
    return None
