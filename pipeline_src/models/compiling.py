"""torch.compile, part by part: each block of the encoder, the embeddings, and the loss over the vocabulary."""

from __future__ import annotations

import torch
from torch import nn

from pipeline_src.models.bert import Block, Embeddings
from pipeline_src.models.heads import MaskedLMHead


def compile_parts(module: nn.Module) -> None:
    """Have the parts of the models in ``module`` compiled when they first run; names and values stay as they are.

    Blocks have one code and differ in their weights alone, so that they are compiled once, however many there are: a
    graph each for embeddings, block and loss, in place of one as long as the model is deep. Between the parts, several
    processes begin to exchange the gradients that are ready while the backward pass goes on. What is left outside, the
    pooler and the label of pairs, sees one token of each sequence.
    """
    for part in module.modules():
        if isinstance(part, Block | Embeddings):
            part.compile(dynamic=True)
        elif isinstance(part, MaskedLMHead):
            part.loss = torch.compile(part.loss, dynamic=True)  # type: ignore[method-assign]
