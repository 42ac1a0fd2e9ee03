"""Find architectures and objectives by name: each is a file in ``models/`` or ``objectives/``, called a member.

A file is a member if it assigns a literal ``ArchitectureSpec`` or ``ObjectiveSpec`` to ``SPEC``, which is
read without importing the file, and so without torch.
"""

from __future__ import annotations

import ast
import importlib
import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeVar

from pipeline_src.common.errors import PipelineError


@dataclass(frozen=True)
class ArchitectureSpec:
    """Facts of an architecture in ``models/``.

    Attributes:
        even: what must have an even width: the hidden states, or each attention head; None: nothing.
        refused_objectives: each objective that this encoder does not support -> the reason.
        refused_pairs: reason why this encoder does not support sentence pairs; empty if it does.
        factorized_embeddings: whether embeddings may be narrower than the encoder.
        blocks: ``own``: every layer has its own block; ``shared``: all layers share one; ``none``: there are none.
        rotary: whether it has rotary positions, so that a phase may change their theta.
        pads_sequences: whether attention or recurrence computes on padded sequences, on a GPU too.
        special_replacements: whether a random token in place of a predicted one may be a special token.
    """

    even: Literal["hidden", "head"] | None = None
    refused_objectives: Mapping[str, str] = field(default_factory=dict)
    refused_pairs: str = ""
    factorized_embeddings: bool = False
    blocks: Literal["own", "shared", "none"] = "own"
    rotary: bool = False
    pads_sequences: bool = False
    special_replacements: bool = True


@dataclass(frozen=True)
class ObjectiveSpec:
    """Facts of an objective in ``objectives/``.

    Attributes:
        terms: loss term -> default weight.
        validation_columns: validation metrics in the curve; the first, a loss, selects the best checkpoint.
        causal: whether a token attends only to itself and the tokens before it.
        collator: key of ``pretraining.masking.COLLATORS``.
        needs_teacher: whether it learns from a pretrained model.
        refused_pairs: reason why it does not support sentence pairs; empty if it does.
        only_architectures: the architectures that support it; empty if all do.
        can_continue: whether it can start from a pretrained model (``pretrain.init_from``).
        fixed_capacity: whether its losses ignore filler sequences, predictions and labels
            (``pretraining/capacity.py``).
    """

    terms: Mapping[str, float] = field(default_factory=dict)
    validation_columns: tuple[str, ...] = ()
    causal: bool = False
    collator: Literal["mlm", "clm", "none"] = "mlm"
    needs_teacher: bool = False
    refused_pairs: str = ""
    only_architectures: tuple[str, ...] = ()
    can_continue: bool = False
    fixed_capacity: bool = False


Spec = TypeVar("Spec")
EXPORTS = {"models": "ARCHITECTURE", "objectives": "OBJECTIVE"}  # name that a member defines in addition to SPEC


def member_names(folder: str) -> list[str]:
    """Return the sorted names of the members in ``folder`` (``models`` or ``objectives``), without importing them."""
    return sorted(name for name, path in _files(folder).items() if _spec_call(path, path.stat().st_mtime_ns))


def architecture_spec(name: str) -> ArchitectureSpec:
    """Return the facts of an architecture, without importing it."""
    return _read_spec("models", name, ArchitectureSpec)


def objective_spec(name: str) -> ObjectiveSpec:
    """Return the facts of an objective, without importing it."""
    return _read_spec("objectives", name, ObjectiveSpec)


def load_member(folder: str, name: str) -> Any:
    """Import the member ``name`` of ``folder``, and return its ``ARCHITECTURE`` or ``OBJECTIVE``."""
    if name not in member_names(folder):
        raise _no_member(folder, name)
    member, export = importlib.import_module(f"pipeline_src.{folder}.{name}"), EXPORTS[folder]
    if not hasattr(member, export):
        raise PipelineError(
            f"a member without {export}",
            name,
            where=member.__file__,
            hint=f"assign it at the end of the file, as the others in pipeline_src/{folder} do",
        )
    return getattr(member, export)


def _read_spec(folder: str, name: str, kind: type[Spec]) -> Spec:
    path = _files(folder).get(name)
    call = None if path is None else _spec_call(path, path.stat().st_mtime_ns)
    if path is None or call is None:
        raise _no_member(folder, name)
    try:
        return kind(**{word.arg or "": ast.literal_eval(word.value) for word in call.keywords})
    except (TypeError, ValueError) as error:
        hint = f"give literal keyword arguments of {kind.__name__}"
        raise PipelineError("cannot read SPEC", error, where=path, hint=hint) from error


def _files(folder: str) -> dict[str, Path]:
    package = importlib.import_module(f"pipeline_src.{folder}")
    return {
        module.name: Path(module.module_finder.path) / f"{module.name}.py"  # type: ignore[union-attr]
        for module in pkgutil.iter_modules(package.__path__)
    }


@cache
def _spec_call(path: Path, _modified: int) -> ast.Call | None:
    for line in ast.parse(path.read_bytes()).body:
        if isinstance(line, ast.Assign | ast.AnnAssign) and isinstance(line.value, ast.Call):
            targets = line.targets if isinstance(line, ast.Assign) else [line.target]
            if any(isinstance(target, ast.Name) and target.id == "SPEC" for target in targets):
                return line.value
    return None


def _no_member(folder: str, name: str) -> PipelineError:
    hint = f"give one of {', '.join(member_names(folder))}"
    return PipelineError(f"no such {EXPORTS[folder].lower()}", name, where=f"pipeline_src/{folder}", hint=hint)
