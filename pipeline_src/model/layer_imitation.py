"""TinyBERT's distillation of attention logits and hidden states (Jiao et al. 2020, section 3)."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pipeline_src.base.errors import PipelineError
from pipeline_src.model.attention import PackedBatch
from pipeline_src.model.bert import Bert, BertConfig
from pipeline_src.model.flops import Workload

# Loss term -> its weight in the paper.
TERMS: Mapping[str, float] = {"scores": 1.0, "states": 1.0}


def imitated_every(student: BertConfig, teacher: BertConfig) -> int:
    if teacher.num_hidden_layers % student.num_hidden_layers:
        raise PipelineError(
            "the teacher's number of layers is not a multiple of the student's",
            f"{student.num_hidden_layers}, and the teacher has {teacher.num_hidden_layers}",
            where="model.num_hidden_layers",
            hint="set it to a divisor of the teacher's number of layers",
        )
    if student.num_attention_heads != teacher.num_attention_heads:
        raise PipelineError(
            "student and teacher have different numbers of attention heads",
            f"{student.num_attention_heads}, and the teacher has {teacher.num_attention_heads}",
            where="model.num_attention_heads",
            hint=f"set it to {teacher.num_attention_heads}, and model.hidden_size to a multiple of it",
        )
    return teacher.num_hidden_layers // student.num_hidden_layers


def difference_counts(student: BertConfig, teacher: BertConfig, work: Workload) -> dict[str, int]:
    return {"scores": student.num_attention_heads * work.sum_len_squared, "states": teacher.hidden_size * work.tokens}


def layer_differences(
    student: Bert, fit: nn.Module, teacher: Bert, ids: Tensor, token_type_ids: Tensor, layout: PackedBatch
) -> dict[str, Tensor]:
    """Return the squared differences between student and teacher, summed over all layers.

    Unlike the original code, padding is excluded. The teacher gets no gradient.

    Args:
        fit: layer that projects the student's hidden states to the teacher's width.

    Returns:
        Term in ``TERMS`` -> summed squared differences, a scalar.
    """
    stride = imitated_every(student.config, teacher.config)
    with torch.no_grad():
        targets = teacher.hidden_states(ids, token_type_ids, layout)
    states = student.hidden_states(ids, token_type_ids, layout)

    # True for pairs of two tokens, False if at least one of the two is padding.
    keep = torch.arange(layout.max_seqlen, device=ids.device) < layout.cu_seqlens.diff()[:, None]
    is_pair = keep[:, None, :, None] & keep[:, None, None, :]
    teacher_blocks = teacher.encoder.blocks()
    scores = []
    for number, block in enumerate(student.encoder.blocks()):
        # If 2 layers imitate 6, then layer 0 imitates the teacher's layer 2, and layer 1 imitates its layer 5.
        last = number * stride + stride - 1
        with torch.no_grad():
            target = teacher_blocks[last].attention_logits(targets[last], layout)
        logits = block.attention_logits(states[number], layout)
        difference = (logits - target).float().masked_fill(~is_pair, 0)
        scores.append(difference.square().sum())

    fits = []
    for number, state in enumerate(states):
        target = targets[number * stride].float()
        fits.append(F.mse_loss(fit(state).float(), target, reduction="sum"))
    return {"scores": torch.stack(scores).sum(), "states": torch.stack(fits).sum()}
