"""Find architectures and objectives by name, without importing torch.

BERT and the objectives of its paper belong to the core. Every other one is a member of the family: a folder of
``family/`` whose ``__init__.py`` assigns ``ARCHITECTURES`` or ``OBJECTIVES``, name -> facts. Its modules ``encoder``
and ``objective`` are imported only where they are used.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from pipeline_src.base.errors import PipelineError


@dataclass(frozen=True)
class ArchitectureSpec:
    """Facts of an architecture.

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
    """Facts of an objective.

    Attributes:
        terms: loss term -> default weight.
        validation_columns: validation metrics in the curve; the first, a loss, selects the best checkpoint.
        causal: whether a token attends only to itself and the tokens before it.
        collator: which tokens are predicted: masked ones, every next one, or none (``examples.masking``).
        needs_teacher: whether it learns from a pretrained model.
        refused_pairs: reason why it does not support sentence pairs; empty if it does.
        only_architectures: the architectures that support it; empty if all do.
        can_continue: whether it can start from a pretrained model (``pretrain.init_from``).
        fixed_capacity: whether its losses ignore filler sequences, predictions and labels
            (``pretrain/capacity.py``).
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


@dataclass(frozen=True)
class Member:
    module: str
    spec: Any


MLM = ObjectiveSpec(
    terms={"mlm": 1.0, "nsp": 1.0},
    validation_columns=("mlm_loss", "mlm_accuracy", "nsp_accuracy"),
    can_continue=True,
    fixed_capacity=True,
)
CLM = replace(MLM, causal=True, collator="clm", refused_pairs="its first mark sees nothing", can_continue=False)
CORE: dict[str, dict[str, Member]] = {
    "models": {"bert": Member("pipeline_src.model.bert", ArchitectureSpec())},
    "objectives": {
        "mlm": Member("pipeline_src.pretrain.mlm", MLM),
        "clm": Member("pipeline_src.pretrain.clm", CLM),
    },
}
FAMILY = "pipeline_src.family"
# The table in a member's __init__.py, the module of each entry, and the name that this module defines.
TABLES = {"models": "ARCHITECTURES", "objectives": "OBJECTIVES"}
MODULES = {"models": "encoder", "objectives": "objective"}
EXPORTS = {"models": "ARCHITECTURE", "objectives": "OBJECTIVE"}


def members(kind: str) -> dict[str, Member]:
    """Return name -> member, sorted, of ``models`` or ``objectives``; only the core's if there is no family."""
    known = dict(CORE[kind])
    try:
        family = importlib.import_module(FAMILY)
    except ModuleNotFoundError:
        return known
    for folder in pkgutil.iter_modules(family.__path__):
        if folder.ispkg:
            package = f"{FAMILY}.{folder.name}"
            table = getattr(importlib.import_module(package), TABLES[kind], {})
            for name, spec in table.items():
                known[name] = Member(f"{package}.{MODULES[kind]}", spec)
    return dict(sorted(known.items()))


def member_names(kind: str) -> list[str]:
    return list(members(kind))


def member_module(kind: str, name: str) -> str:
    return _member(kind, name).module


def architecture_spec(name: str) -> ArchitectureSpec:
    spec: ArchitectureSpec = _member("models", name).spec
    return spec


def objective_spec(name: str) -> ObjectiveSpec:
    spec: ObjectiveSpec = _member("objectives", name).spec
    return spec


def load_member(kind: str, name: str) -> Any:
    module, export = importlib.import_module(member_module(kind, name)), EXPORTS[kind]
    if not hasattr(module, export):
        hint = f"assign it at the end of the file, as the others in {FAMILY.replace('.', '/')} do"
        raise PipelineError(f"a member without {export}", name, where=module.__file__, hint=hint)
    return getattr(module, export)


def _member(kind: str, name: str) -> Member:
    known = members(kind)
    if name not in known:
        raise PipelineError(
            f"no such {EXPORTS[kind].lower()}",
            name,
            where=FAMILY.replace(".", "/"),
            hint=f"give one of {', '.join(known)}",
        )
    return known[name]
