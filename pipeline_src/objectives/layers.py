"""TinyBERT's general distillation (Jiao et al. 2020, section 3.1): a student imitates its teacher's layers.

What it imitates is in ``models/layer_imitation.py``. No word is masked, and none predicted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn

from pipeline_src.common.errors import PipelineError
from pipeline_src.models.architecture import make_encoder
from pipeline_src.models.bert import Bert, BertConfig, initialise
from pipeline_src.models.flops import Workload
from pipeline_src.models.layer_imitation import TERMS, difference_counts, imitated_every, layer_differences
from pipeline_src.models.packed_layout import PackedLayout
from pipeline_src.params.base import Block
from pipeline_src.pretraining.tensor_batch import TensorBatch
from pipeline_src.pretraining.validation import ValidationSet, measure_terms
from pipeline_src.training.loop import Term
from pipeline_src.training.objective import PretrainingObjective, SavedModel

CORRUPTION = "unmasked"
NEEDS_TEACHER = True


class Student(nn.Module):
    """The encoder without a pooler, and the projection of its states to the teacher's width.

    One projection serves the embeddings and all layers, and is there at equal widths too; transformers skips it.
    """

    def __init__(self, config: BertConfig, width: int) -> None:
        super().__init__()
        self.bert = make_encoder(config)
        self.bert.pooler = nn.Identity()
        self.fit_dense = nn.Linear(config.hidden_size, width)


class Layers(PretrainingObjective[TensorBatch]):
    """``scores``: squared differences of attention's scores; ``states``: of hidden states and embeddings.

    Each is a mean over heads and pairs of tokens, or over tokens and the teacher's width, summed over layers. Pairs are
    of real tokens, where the original averages over padding too.

    Attributes:
        model: the student; it is made when it has its teacher.
        teacher: an encoder with a multiple of the student's layers, and as many heads.
    """

    terms: ClassVar[Mapping[str, float]] = TERMS
    validation_columns: ClassVar[Sequence[str]] = ("scores_loss", "states_loss")
    causal: ClassVar[bool] = False
    model: Student
    teacher: Bert

    def __init__(self, config: BertConfig, pairs: str, own: Block | None = None) -> None:
        super().__init__(config, pairs, own)
        self.weights = dict(self.terms)

    @classmethod
    def make_teacher(cls, config: BertConfig) -> nn.Module:
        """The encoder without a pooler."""
        encoder = make_encoder(config)
        encoder.pooler = nn.Identity()
        return encoder

    def learn_from(self, teacher: nn.Module) -> None:
        """Take a teacher, and make a student for it.

        Raises:
            PipelineError: its layers or heads do not match the student's.
        """
        super().learn_from(teacher)
        imitated_every(self.config, self.teacher.config)
        self.model = Student(self.config, self.teacher.config.hidden_size)

    @property
    def learns(self) -> str:
        """For the model's card."""
        return "the layers of a larger model"

    def tie(self) -> None:
        """Nothing is tied."""

    def draw_weights(self, generator: torch.Generator) -> None:
        """On the CPU, so that every machine starts from the same weights."""
        drawn = Student(self.config, self.teacher.config.hidden_size)
        initialise(drawn, generator)
        self.model.load_state_dict(drawn.state_dict())

    def count(self, batch: TensorBatch) -> dict[str, int]:
        """Heads times pairs of tokens; tokens times width; and what the batch counts, every row read."""
        own = difference_counts(self.config, self.teacher.config, batch.counts["tokens"], batch.counts["squares"])
        return {**own, **batch.counts, "rows": batch.counts["tokens"], "row_pairs": batch.counts["squares"]}

    def forward(self, batch: TensorBatch) -> dict[str, Term]:
        """The sums of squared differences, over all layers."""
        layout = PackedLayout.of(batch.cu_seqlens, len(batch.ids), batch.max_seqlen)
        own = layer_differences(self.model.bert, self.model.fit_dense, self.teacher, batch.ids, batch.segments, layout)
        return {name: Term(total) for name, total in own.items()}

    def training_flops(self, work: Workload) -> int:
        """The student's training with its projection, and the teacher's forward pass, a third of its own training.

        Both read every row. What makes the scores a second time, for they are not kept, is not credited.
        """
        work = work._replace(rows=work.tokens, row_pairs=work.squares)
        own, theirs = self.config, self.teacher.config
        projection = 6 * own.hidden_size * theirs.hidden_size * (own.num_hidden_layers + 1) * work.tokens
        return own.training_flops(work) + projection + theirs.training_flops(work) // 3

    def measure(self, validation: ValidationSet) -> dict[str, float]:
        """Both losses."""
        return measure_terms(self, validation.examples, validation.distributed)

    def saved_models(self) -> dict[str, SavedModel]:
        """The student."""
        return {"": SavedModel(self.model, self.config, self.config.names.classes["encoder"])}

    def word_scores(
        self, ids: Tensor, segments: Tensor, cu_seqlens: Tensor, predicted: Tensor, max_seqlen: int
    ) -> Tensor:
        """Nothing asks for them, since no word is masked.

        Raises:
            PipelineError: always.
        """
        raise PipelineError("this objective predicts no words", "layers", remedy="fine-tune the model instead")


OBJECTIVE = Layers
