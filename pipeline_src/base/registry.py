"""Find architectures and objectives by name, without importing torch.

BERT and the objectives of its paper are part of the core. Every other architecture or objective is a member of the
family: a folder in ``family/``. Its ``__init__.py`` assigns ``ARCHITECTURES`` or ``OBJECTIVES``, which map a name to an
``ArchitectureSpec`` or ``ObjectiveSpec``. Its modules ``encoder`` and ``objective`` are imported only when needed.
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
    """What an architecture supports.

    Attributes:
        even: width that must be even: ``hidden`` (hidden_size) or ``head`` (width of an attention head). None: no
            restriction.
        refused_objectives: objective that this architecture does not support -> the reason.
        refused_pairs: reason why sentence pairs are not supported; empty if they are.
        factorized_embeddings: whether embedding_size may be smaller than hidden_size (ALBERT, ELECTRA).
        blocks: ``own``: each layer has its own weights. ``shared``: all layers share one block. ``none``: the model has
            no Transformer blocks.
        rotary: whether positions are rotary embeddings (RoPE), so that a phase may change theta.
        pads_sequences: whether the model computes on padded sequences even on a GPU with ``flash_varlen``.
        special_replacements: whether the random token that replaces a masked one may be a special token.
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
    """What a pretraining objective needs and supports.

    Attributes:
        terms: loss term -> default weight.
        validation_columns: validation metrics in the loss curve. The first one is a loss and selects the best
            checkpoint.
        causal: whether attention is causal: a token attends only to itself and earlier tokens.
        collator: tokens that are predicted: ``mlm`` masked tokens, ``clm`` every next token, ``none`` no token
            (``examples.masking``).
        needs_teacher: whether training needs a pretrained teacher model.
        refused_pairs: reason why sentence pairs are not supported; empty if they are.
        only_architectures: the architectures that support this objective; empty if all do.
        can_continue: whether training can start from a pretrained model (``pretrain.init_from``).
        fixed_capacity: whether the losses ignore padding (filler) sequences, predictions and labels
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
CLM = replace(MLM, causal=True, collator="clm", refused_pairs="[CLS] sees no other token", can_continue=False)
CORE: dict[str, dict[str, Member]] = {
    "models": {"bert": Member("pipeline_src.model.bert", ArchitectureSpec())},
    "objectives": {
        "mlm": Member("pipeline_src.pretrain.mlm", MLM),
        "clm": Member("pipeline_src.pretrain.clm", CLM),
    },
}
FAMILY = "pipeline_src.family"
# By kind: the table in a member's __init__.py, the module that it describes, and the class that this module exports.
TABLES = {"models": "ARCHITECTURES", "objectives": "OBJECTIVES"}
MODULES = {"models": "encoder", "objectives": "objective"}
EXPORTS = {"models": "ARCHITECTURE", "objectives": "OBJECTIVE"}


def members(kind: str) -> dict[str, Member]:
    """Return name -> member, sorted by name.

    If the folder ``family/`` was removed, only the core's members are returned.

    Args:
        kind: ``models`` or ``objectives``.
    """
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
        hint = f"assign {export} at the end of the file, as other folders of {FAMILY.replace('.', '/')} do"
        raise PipelineError(f"the module does not define {export}", name, where=module.__file__, hint=hint)
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
