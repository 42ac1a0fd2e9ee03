"""What TinyBERT's students learn of a teacher's layers (Jiao et al. 2020, section 3.1), from text and of a task.

Each of a student's layers imitates one of the teacher's: the scores of its attention before the softmax, and the states
that come out of it, through one projection to the teacher's width.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pipeline_src.common.errors import PipelineError
from pipeline_src.models.bert import Bert, BertConfig
from pipeline_src.models.distillation import real_pairs
from pipeline_src.models.packed_layout import PackedLayout

TERMS: Mapping[str, float] = {"scores": 1.0, "states": 1.0}  # weights of both, as in the paper


def imitated_every(student: BertConfig, teacher: BertConfig) -> int:
    """Of how many of the teacher's layers the student imitates one.

    Raises:
        PipelineError: layers or heads of the two do not match.
    """
    if teacher.num_hidden_layers % student.num_hidden_layers:
        raise PipelineError(
            "layers that do not match the teacher's",
            f"{student.num_hidden_layers}, and the teacher has {teacher.num_hidden_layers}",
            where="model.layers",
            remedy="set it to a number that divides the teacher's",
        )
    if student.num_attention_heads != teacher.num_attention_heads:
        raise PipelineError(
            "heads that do not match the teacher's",
            f"{student.num_attention_heads}, and the teacher has {teacher.num_attention_heads}",
            where="model.heads",
            remedy=f"set it to {teacher.num_attention_heads}, and model.hidden to a multiple of that",
        )
    return teacher.num_hidden_layers // student.num_hidden_layers


def difference_counts(student: BertConfig, teacher: BertConfig, tokens: int, squares: int) -> dict[str, int]:
    """How many differences each term sums over a layer: heads times pairs of tokens, and tokens times the width.

    Args:
        student, teacher: of the two.
        tokens: of all sequences.
        squares: of the sequences' lengths, summed.
    """
    return {"scores": student.num_attention_heads * squares, "states": teacher.hidden_size * tokens}


def layer_differences(
    student: Bert, fit: nn.Module, teacher: Bert, ids: Tensor, segments: Tensor, layout: PackedLayout
) -> dict[str, Tensor]:
    """Sums of squared differences over all layers, by the names in ``TERMS``; the teacher gets no gradient.

    Pairs are of real tokens, where the original averages over padding too.

    Args:
        student, teacher: encoders that :func:`imitated_every` lets pass.
        fit: takes the student's states to the teacher's width.
        ids, segments, layout: as in :meth:`Bert.states`.
    """
    every = imitated_every(student.config, teacher.config)
    with torch.no_grad():
        taught = teacher.states(ids, segments, layout)
    states = student.states(ids, segments, layout)
    real, scores = real_pairs(layout), []
    theirs = teacher.encoder.blocks()
    for number, block in enumerate(student.encoder.blocks()):
        last = number * every + every - 1
        with torch.no_grad():
            wanted = theirs[last].scores(taught[last], layout)
        found = block.scores(states[number], layout)
        scores.append((found - wanted).float().masked_fill(~real, 0).square().sum())
    fits = [
        F.mse_loss(fit(own).float(), taught[number * every].float(), reduction="sum")
        for number, own in enumerate(states)
    ]
    return {"scores": torch.stack(scores).sum(), "states": torch.stack(fits).sum()}
