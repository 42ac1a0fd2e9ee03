"""What sits on top of the encoder: the two pretraining heads and one head per kind of task."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from pipeline_src.models.bert import LAYER_NORM_EPS, Bert, BertConfig

OUTPUT_LAYERS = {"sequence": "classifier", "choice": "classifier", "span": "qa_outputs"}  # Hugging Face's names


class MaskedWords(nn.Module):
    """Predicts the tokens at given places; its decoder is the embedding matrix (google-research/bert)."""

    def __init__(self, config: BertConfig, embedding: nn.Embedding) -> None:
        super().__init__()
        self.transform = nn.ModuleDict(
            {
                "dense": nn.Linear(config.hidden_size, config.hidden_size),
                "LayerNorm": nn.LayerNorm(config.hidden_size, eps=LAYER_NORM_EPS),
            }
        )
        self.decoder = nn.Linear(config.hidden_size, config.vocab_size)
        self.decoder.weight = embedding.weight
        self.approximate = config.gelu

    def forward(self, hidden: Tensor) -> Tensor:
        """Hidden states at the places to predict [P, H] -> scores [P, entries]."""
        inner = F.gelu(self.transform["dense"](hidden), approximate=self.approximate)
        return self.decoder(self.transform["LayerNorm"](inner))


class BertForPretraining(nn.Module):
    """The encoder with both pretraining heads (paper, section 3.1)."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.bert = Bert(config)
        self.cls = nn.ModuleDict(
            {
                "predictions": MaskedWords(config, self.bert.embeddings.word_embeddings),
                "seq_relationship": nn.Linear(config.hidden_size, 2),
            }
        )

    def forward(self, ids: Tensor, segments: Tensor, starts: Tensor, predicted: Tensor) -> tuple[Tensor, Tensor]:
        """Scores of the tokens at ``predicted`` [P, entries] and of "next" and "random" [B, 2]."""
        hidden, pooled = self.bert(ids, segments, starts)
        return self.cls["predictions"](hidden[predicted]), self.cls["seq_relationship"](pooled)


class BertForTask(nn.Module):
    """The encoder with the output layer of one task (paper, figure 4).

    ``sequence`` and ``choice`` read the pooled [CLS] (``choice`` one score per sequence), ``span`` reads every token.
    """

    def __init__(self, config: BertConfig, head: str, outputs: int) -> None:
        super().__init__()
        self.bert = Bert(config)
        self.head = head
        self.dropout = nn.Dropout(config.hidden_dropout_prob)
        self.add_module(OUTPUT_LAYERS[head], nn.Linear(config.hidden_size, outputs))

    def forward(self, ids: Tensor, segments: Tensor, starts: Tensor) -> Tensor:
        """[B, outputs], or [T, outputs] for spans."""
        hidden, pooled = self.bert(ids, segments, starts)
        layer = self.get_submodule(OUTPUT_LAYERS[self.head])
        # No dropout before span scores (google-research/bert, run_squad.py).
        return layer(hidden) if self.head == "span" else layer(self.dropout(pooled))
