"""The next word and the one before, each from its own side: ELMo's objective (Peters et al. 2018, section 3.1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn

from pipeline_src.models.architecture import make_encoder
from pipeline_src.models.bert import BertConfig, initialise
from pipeline_src.models.flops import Workload
from pipeline_src.models.linear_cross_entropy import linear_cross_entropy
from pipeline_src.models.packed_layout import PackedLayout
from pipeline_src.params.base import Block
from pipeline_src.pretraining.tensor_batch import TensorBatch
from pipeline_src.pretraining.validation import ValidationSet, measure_validation
from pipeline_src.training.loop import Term
from pipeline_src.training.objective import PretrainingObjective, SavedModel

CORRUPTION = "left_to_right"
REFUSES_PAIRS = "nothing reads both of a pair's segments"
ONLY_ARCHITECTURES = ("bilstm",)  # whose directions never meet; another one would see what it is to predict


class LanguageModels(nn.Module):
    """Two language models over one table, whose matrix is the decoder's too."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.bert = make_encoder(config)
        decoder = nn.Linear(config.embedding_width, config.vocab_size)
        self.cls = nn.ModuleDict({"predictions": nn.ModuleDict({"decoder": decoder})})
        self.tie()

    def tie(self) -> None:
        """The decoder's matrix is the embedding's."""
        self.cls["predictions"]["decoder"].weight = self.bert.embeddings.word_embeddings.weight

    def halves(self, ids: Tensor, segments: Tensor, cu_seqlens: Tensor, max_seqlen: int | None) -> Sequence[Tensor]:
        """What has read the text from its start, and what has from its end, [T, H / 2] each."""
        layout = PackedLayout.of(cu_seqlens, len(ids), max_seqlen)
        return self.bert.encode(ids, segments, layout).chunk(2, dim=-1)

    def forward(
        self, ids: Tensor, segments: Tensor, cu_seqlens: Tensor, predicted: Tensor, max_seqlen: int | None = None
    ) -> tuple[Tensor, Tensor]:
        """Scores of the next token at ``predicted`` [P, entries]; and of pairs, of which nothing is known, [B, 2]."""
        onward = self.halves(ids, segments, cu_seqlens, max_seqlen)[0]
        scores = self.cls["predictions"]["decoder"](onward.index_select(0, predicted))
        return scores, scores.new_zeros(len(cu_seqlens) - 1, 2)


class BothDirections(PretrainingObjective[TensorBatch]):
    """Half of each direction's mean loss; the curve's ``mlm`` is that of the next word.

    Attributes:
        model: both language models.
    """

    terms: ClassVar[Mapping[str, float]] = {"mlm": 0.5, "backward": 0.5}
    validation_columns: ClassVar[Sequence[str]] = ("mlm_loss", "mlm_accuracy")
    causal: ClassVar[bool] = False

    def __init__(self, config: BertConfig, pairs: str, own: Block | None = None) -> None:
        super().__init__(config, pairs, own)
        self.model = LanguageModels(config)
        self.model.bert.pooler.requires_grad_(False)  # nothing reads it
        self.weights = dict(self.terms)

    @property
    def learns(self) -> str:
        """For the model's card."""
        return "the next word from those before it, and each from those after it"

    def tie(self) -> None:
        """The decoder's matrix is the embedding's."""
        self.model.tie()

    def draw_weights(self, generator: torch.Generator) -> None:
        """On the CPU, so that every machine starts from the same weights."""
        drawn = LanguageModels(self.config)
        initialise(drawn, generator)
        self.model.load_state_dict(drawn.state_dict())

    def count(self, batch: TensorBatch) -> dict[str, int]:
        """Predicted tokens, as many from either side, and what the batch counts."""
        predictions = batch.counts["predictions"]
        return {"mlm": predictions, "backward": predictions, **batch.counts}

    def forward(self, batch: TensorBatch) -> dict[str, Term]:
        """The sums of the losses of both directions: a token is predicted at its neighbour."""
        halves = self.model.halves(batch.ids, batch.segments, batch.cu_seqlens, batch.max_seqlen)
        decoder, before = self.model.cls["predictions"]["decoder"], batch.predicted
        places = {"mlm": (before, batch.labels), "backward": (before + 1, batch.ids.index_select(0, before))}
        return {
            term: Term(*linear_cross_entropy(half.index_select(0, at), decoder.weight, decoder.bias, labels))
            for half, (term, (at, labels)) in zip(halves, places.items(), strict=True)
        }

    def training_flops(self, work: Workload) -> int:
        """Of the encoder, and of two scores of every entry for each place."""
        head = 2 * 6 * self.config.embedding_width * self.config.vocab_size * work.predictions
        return self.config.encoder_flops(work) + head

    def measure(self, validation: ValidationSet) -> dict[str, float]:
        """Of the next word, as :func:`measure_validation` has it of a model that reads left to right."""
        return measure_validation(self.model, validation.examples, validation.train_counts, validation.distributed)

    def saved_models(self) -> dict[str, SavedModel]:
        """Both language models."""
        return {"": SavedModel(self.model, self.config, self.config.names.classes["pretraining"])}

    def word_scores(
        self, ids: Tensor, segments: Tensor, cu_seqlens: Tensor, predicted: Tensor, max_seqlen: int
    ) -> Tensor:
        """Of the next token."""
        return self.model(ids, segments, cu_seqlens, predicted, max_seqlen)[0]


OBJECTIVE = BothDirections
