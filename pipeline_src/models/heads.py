"""What sits on top of the encoder: the two pretraining heads and one head per kind of task."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from pipeline_src.models.bert import LAYER_NORM_EPS, Bert, BertConfig
from pipeline_src.models.bilstm import BiLSTM
from pipeline_src.models.dropout import Dropout
from pipeline_src.models.frozen import LSTM_WIDTH, FrozenLayers
from pipeline_src.models.layout import Layout
from pipeline_src.models.linear_cross_entropy import linear_cross_entropy

OUTPUT_LAYERS = {  # Hugging Face's names
    "sequence": "classifier",
    "choice": "classifier",
    "span": "qa_outputs",
    "token": "classifier",
}
POOLED = ("sequence", "choice")  # heads that read one vector per sequence


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
        self.tie(embedding)
        self.approximate = config.gelu

    def tie(self, embedding: nn.Embedding) -> None:
        """Make the decoder's matrix the embedding's."""
        self.decoder.weight = embedding.weight

    def forward(self, hidden: Tensor) -> Tensor:
        """Hidden states at the places to predict [P, H] -> scores [P, entries]."""
        return self.decoder(self._transformed(hidden))

    def loss(self, hidden: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Sum of the cross-entropies and number of right guesses, from hidden states [P, H] and labels int64 [P]."""
        return linear_cross_entropy(self._transformed(hidden), self.decoder.weight, self.decoder.bias, labels)

    def _transformed(self, hidden: Tensor) -> Tensor:
        inner = F.gelu(self.transform["dense"](hidden), approximate=self.approximate)
        return self.transform["LayerNorm"](inner)


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

    def tie(self) -> None:
        """Tie decoder and embedding again, after a move from one kind of memory to another has parted them."""
        self.cls["predictions"].tie(self.bert.embeddings.word_embeddings)

    def forward(
        self,
        ids: Tensor,
        segments: Tensor,
        starts: Tensor,
        predicted: Tensor,
        longest: int | None = None,
        labels: Tensor | None = None,
    ) -> tuple[Tensor | tuple[Tensor, Tensor], Tensor]:
        """Scores of the tokens at ``predicted`` [P, entries] and of "next" and "random" [B, 2]; see :class:`Bert`.

        With ``labels``, the tokens that stand there, the first is their loss and number of right guesses instead, as
        :func:`linear_cross_entropy` gives them, and no scores are kept.
        """
        hidden, pooled = self.bert(ids, segments, starts, longest)
        hidden = hidden.index_select(0, predicted)
        words = self.cls["predictions"]
        found = words(hidden) if labels is None else words.loss(hidden, labels)
        return found, self.cls["seq_relationship"](pooled)


class BertForTask(nn.Module):
    """The encoder with the output layer of one task (paper, figure 4).

    ``sequence`` and ``choice`` read the pooled vector (``choice`` one score per sequence), ``span`` and ``token`` read
    every token. With ``bilstm``, both read the encoder through a new LSTM, which lets the tokens of a left-to-right
    model see what follows them (paper, section 5.1).

    With ``frozen``, a name in ``frozen.MIXTURES``, the encoder is not trained: it runs without gradient and without
    dropout, and a new LSTM reads its layers (paper, section 5.3). Its pooler is not used then; the output layer reads
    the LSTM at the token that the pooler would read.
    """

    def __init__(
        self, config: BertConfig, head: str, outputs: int, bilstm: bool = False, frozen: str | None = None
    ) -> None:
        super().__init__()
        self.bert = Bert(config)
        self.head = head
        self.frozen = None if frozen is None else FrozenLayers(frozen, config.num_hidden_layers, config.hidden_size)
        self.bilstm = BiLSTM(config.hidden_size, config.hidden_size) if bilstm and frozen is None else None
        self.bert.requires_grad_(frozen is None)
        self.dropout = Dropout(config.hidden_dropout_prob)
        width = config.hidden_size if frozen is None else LSTM_WIDTH
        self.add_module(OUTPUT_LAYERS[head], nn.Linear(width, outputs))

    def train(self, mode: bool = True) -> BertForTask:
        """Switch dropout; a frozen encoder has none."""
        super().train(mode)
        if self.frozen is not None:
            self.bert.eval()
        return self

    def forward(self, ids: Tensor, segments: Tensor, starts: Tensor, longest: int | None = None) -> Tensor:
        """[B, outputs], or [T, outputs] for spans and tokens."""
        layout = Layout.of(starts, len(ids), longest)
        read = self._read(ids, segments, layout)
        layer = self.get_submodule(OUTPUT_LAYERS[self.head])
        # No dropout before span scores (google-research/bert, run_squad.py).
        return layer(read) if self.head == "span" else layer(self.dropout(read))

    def _read(self, ids: Tensor, segments: Tensor, layout: Layout) -> Tensor:
        """What the output layer reads, [B, width] or [T, width]."""
        if self.frozen is not None:
            hidden = self.frozen(self.bert, ids, segments, layout)
            return hidden.index_select(0, self.bert.pooled(layout)) if self.head in POOLED else hidden
        hidden = self.bert.encode(ids, segments, layout)
        if self.bilstm is not None:
            hidden = self.bilstm(hidden, layout)
        return self.bert.pool(hidden, layout) if self.head in POOLED else hidden
