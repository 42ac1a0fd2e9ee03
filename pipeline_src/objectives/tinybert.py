"""TinyBERT's general distillation (Jiao et al. 2020, section 3.1): a student imitates its teacher's layers.

The losses are in ``models/tinybert.py``. No token is masked or predicted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn

from pipeline_src.common.errors import PipelineError
from pipeline_src.common.registry import ObjectiveSpec
from pipeline_src.config.schema import Section
from pipeline_src.models.attention import PackedBatch
from pipeline_src.models.bert import Bert, BertConfig, initialise, make_encoder
from pipeline_src.models.flops import Workload
from pipeline_src.models.tinybert import TERMS, difference_counts, imitated_every, layer_differences
from pipeline_src.pretraining.data import TensorBatch
from pipeline_src.pretraining.validation import ValidationSet, measure_terms
from pipeline_src.training.loop import LossTerm
from pipeline_src.training.objective import PretrainingObjective, SavedModel

SPEC = ObjectiveSpec(
    corruption="unmasked",
    needs_teacher=True,
)


class Student(nn.Module):
    """The encoder without a pooler, and a projection of its hidden states to the teacher's width.

    The embeddings and all layers share the projection. It is kept at equal widths too; transformers skips it.
    """

    def __init__(self, config: BertConfig, width: int) -> None:
        super().__init__()
        self.bert = make_encoder(config)
        self.bert.pooler = nn.Identity()
        self.fit_dense = nn.Linear(config.hidden_size, width)


class TinyBertObjective(PretrainingObjective[TensorBatch]):
    """``scores``: squared differences of the attention logits; ``states``: of the hidden states and embeddings.

    Each is a mean over heads and pairs of tokens, or over tokens and the teacher's width, summed over layers. Pairs are
    of real tokens, whereas the original averages over padding too.

    Attributes:
        model: the student; built by :meth:`set_teacher`.
        teacher: an encoder with a multiple of the student's layers, and as many heads.
    """

    terms: ClassVar[Mapping[str, float]] = TERMS
    validation_columns: ClassVar[Sequence[str]] = ("scores_loss", "states_loss")
    causal: ClassVar[bool] = False
    model: Student
    teacher: Bert

    def __init__(self, config: BertConfig, pairs: str, objective_params: Section | None = None) -> None:
        super().__init__(config, pairs, objective_params)
        self.weights = dict(self.terms)

    @classmethod
    def build_teacher(cls, config: BertConfig) -> nn.Module:
        encoder = make_encoder(config)
        encoder.pooler = nn.Identity()
        return encoder

    def set_teacher(self, teacher: nn.Module) -> None:
        """Set the teacher, and build a student for it.

        Raises:
            PipelineError: its layers or heads do not match the student's.
        """
        super().set_teacher(teacher)
        imitated_every(self.config, self.teacher.config)
        self.model = Student(self.config, self.teacher.config.hidden_size)

    @property
    def learns(self) -> str:
        return "the layers of a larger model"

    def tie(self) -> None:
        pass

    def init_weights(self, generator: torch.Generator) -> None:
        """Initialise on the CPU, so that every machine starts from the same weights."""
        initial = Student(self.config, self.teacher.config.hidden_size)
        initialise(initial, generator)
        self.model.load_state_dict(initial.state_dict())

    def count(self, batch: TensorBatch) -> dict[str, int]:
        """Return heads times pairs of tokens, tokens times width, and the batch's counts with every row read."""
        counts = difference_counts(self.config, self.teacher.config, batch.counts["tokens"], batch.counts["squares"])
        return {**counts, **batch.counts, "rows": batch.counts["tokens"], "row_pairs": batch.counts["squares"]}

    def forward(self, batch: TensorBatch) -> dict[str, LossTerm]:
        """Return the squared differences summed over all layers."""
        layout = PackedBatch.of(batch.cu_seqlens, len(batch.ids), batch.max_seqlen)
        student = self.model.bert, self.model.fit_dense
        totals = layer_differences(*student, self.teacher, batch.ids, batch.segments, layout)
        return {name: LossTerm(total) for name, total in totals.items()}

    def training_flops(self, work: Workload) -> int:
        """Return the FLOPs of the student with its projection, and of the teacher's forward pass, a third of training.

        Both read every row. Recomputing the attention logits, which are not kept, is not counted.
        """
        work = work._replace(rows=work.tokens, row_pairs=work.squares)
        student, teacher = self.config, self.teacher.config
        projection = 6 * student.hidden_size * teacher.hidden_size * (student.num_hidden_layers + 1) * work.tokens
        return student.training_flops(work) + projection + teacher.training_flops(work) // 3

    def measure(self, validation: ValidationSet) -> dict[str, float]:
        return measure_terms(self, validation.examples, validation.distributed)

    def saved_models(self) -> dict[str, SavedModel]:
        return {"": SavedModel(self.model, self.config, self.config.names.classes["encoder"])}

    def token_logits(
        self, ids: Tensor, segments: Tensor, cu_seqlens: Tensor, predicted: Tensor, max_seqlen: int
    ) -> Tensor:
        """Raise PipelineError: no token is predicted."""
        raise PipelineError("this objective predicts no words", "tinybert", hint="fine-tune the model instead")


OBJECTIVE = TinyBertObjective
