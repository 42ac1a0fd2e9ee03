"""torch.compile, part by part: each block of the encoder, the embeddings, and the loss over the vocabulary."""

from __future__ import annotations

import torch
from torch import nn

from pipeline_src.models.bert import Block, Embeddings
from pipeline_src.models.heads import MaskedLMHead

# Graphs of one code; what comes after them would run as it is written. ModernBERT's blocks are of four kinds, each with
# a graph for training and one for validation text, so that torch's own 8 are too few.
MOST_GRAPHS = 32


def compile_parts(module: nn.Module) -> None:
    """Have the parts of the models in ``module`` compiled when they first run; names and values stay as they are.

    Blocks have one code and differ in their weights alone, so that they are compiled once, however many there are: a
    graph each for embeddings, block and loss, in place of one as long as the model is deep. Between the parts, several
    processes begin to exchange the gradients that are ready while the backward pass goes on. What is left outside, the
    pooler and the label of pairs, sees one token of each sequence.
    """
    from torch._dynamo import config  # which takes a second to import, for those that compile alone

    config.recompile_limit = max(MOST_GRAPHS, config.recompile_limit)
    for part in module.modules():
        if isinstance(part, Block | Embeddings):
            part.compile(dynamic=True)
        elif isinstance(part, MaskedLMHead):
            part.loss = torch.compile(part.loss, dynamic=True)  # type: ignore[method-assign]
