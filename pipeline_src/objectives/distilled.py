"""DistilBERT (Sanh et al. 2019): a smaller model learns a larger one's scores, masked words and last hidden states."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pipeline_src.common.errors import PipelineError
from pipeline_src.models.bert import BertConfig, initialise
from pipeline_src.models.distillation import distilled_scores, spread_layers
from pipeline_src.models.flops import Workload
from pipeline_src.models.heads import BertForMaskedLM
from pipeline_src.models.packed_layout import PackedLayout, RowsInUse
from pipeline_src.params.base import Block
from pipeline_src.params.objectives import DistilledParams
from pipeline_src.pretraining.tensor_batch import TensorBatch
from pipeline_src.pretraining.validation import ValidationSet, measure_terms, measure_validation
from pipeline_src.training.loop import Term
from pipeline_src.training.objective import PretrainingObjective, SavedModel

CORRUPTION = "masked"
NEEDS_TEACHER = True
COPIED = ("hidden_size", "num_attention_heads", "intermediate_size", "hidden_act")  # what copied layers must agree in


class Distilled(PretrainingObjective[TensorBatch]):
    """``kl``: of the teacher's scores over the vocabulary; ``mlm``: masked words; ``cosine``: of the last states.

    The first and the last are of all tokens, or of the predicted ones. Teacher and student see the same masked text;
    the teacher has no dropout and no gradients.

    Attributes:
        model: the student.
        teacher: the larger one.
    """

    terms: ClassVar[Mapping[str, float]] = {"kl": 5.0, "mlm": 2.0, "cosine": 1.0}
    validation_columns: ClassVar[Sequence[str]] = ("mlm_loss", "mlm_accuracy", "kl_loss", "cosine_loss")
    causal: ClassVar[bool] = False
    own: DistilledParams
    teacher: BertForMaskedLM

    def __init__(self, config: BertConfig, pairs: str, own: Block | None = None) -> None:
        super().__init__(config, pairs, own or DistilledParams())
        self.model = BertForMaskedLM(config)
        weights = {"kl": self.own.scores, "mlm": self.own.masked, "cosine": self.own.cosine}
        self.weights = {name: weight for name, weight in weights.items() if weight}
        if self.weights.keys() == {"cosine"}:  # nothing reads the head, whose matrix is the embeddings'
            table = self.model.bert.embeddings.word_embeddings.weight
            for parameter in self.model.cls.parameters():
                parameter.requires_grad_(parameter is table)

    @classmethod
    def make_teacher(cls, config: BertConfig) -> nn.Module:
        """Encoder and head of masked words."""
        return BertForMaskedLM(config)

    def learn_from(self, teacher: nn.Module) -> None:
        """Take a teacher.

        Raises:
            PipelineError: its width is another, and what is to be learnt or copied needs the same.
        """
        super().learn_from(teacher)
        theirs, copies = self.teacher.bert.config, self.own.start == "teacher"
        same = COPIED if copies else ("hidden_size",) if self.own.cosine else ()
        for name in same:
            if getattr(theirs, name) != getattr(self.config, name):
                raise PipelineError(
                    "a teacher of another shape",
                    f"{name} {getattr(theirs, name)}, not {getattr(self.config, name)}",
                    where="pretrain.teacher",
                    remedy="make the block model as the teacher is, or set objectives.distilled.start to random"
                    + (" and cosine to 0" if name == "hidden_size" else ""),
                )
        if copies and encoder_names(self.model) - encoder_names(self.teacher):
            raise PipelineError(
                "a teacher whose layers are of other parts", theirs.names.title, where="pretrain.teacher",
                remedy=f"give one of {self.config.names.title}, or set objectives.distilled.start to random",
            )  # fmt: skip
        if copies and self.config.num_hidden_layers > theirs.num_hidden_layers:
            raise PipelineError(
                "a student of more layers than its teacher", self.config.num_hidden_layers, where="model.layers",
                remedy=f"set it to at most {theirs.num_hidden_layers}",
            )  # fmt: skip

    @property
    def learns(self) -> str:
        """For the model's card."""
        return "what a larger model makes of masked words"

    def tie(self) -> None:
        """The decoder's matrix is the embedding's."""
        self.model.tie()

    def draw_weights(self, generator: torch.Generator) -> None:
        """Drawn on the CPU; with ``start: teacher`` all that the teacher has then comes from it."""
        drawn = BertForMaskedLM(self.config)
        initialise(drawn, generator)
        if self.own.start == "teacher":
            copy_layers(drawn, self.teacher)
        self.model.load_state_dict(drawn.state_dict())

    def count(self, batch: TensorBatch) -> dict[str, int]:
        """Tokens of each term, and what the batch counts."""
        here = batch.counts["tokens" if self.own.tokens == "all" else "predictions"]
        counts = {"kl": here, "mlm": batch.counts["predictions"], "cosine": here}
        return {**{name: counts[name] for name in self.weights}, **batch.counts}

    def forward(self, batch: TensorBatch) -> dict[str, Term]:
        """The sums of the losses; no scores are kept."""
        # one each: a layout may keep what depends on the width of heads
        of_teacher, layout = (PackedLayout.of(batch.cu_seqlens, len(batch.ids), batch.max_seqlen) for _ in range(2))
        rows, predicted = None, batch.predicted
        if self.own.tokens == "predicted":
            rows, predicted = RowsInUse.of(batch.rows, batch.row_starts, batch.max_rows), batch.predicted_rows
        with torch.no_grad():
            taught = self.teacher.bert.decode(batch.ids, batch.segments, of_teacher, rows)
        hidden = self.model.bert.decode(batch.ids, batch.segments, layout, rows)
        words = self.model.cls["predictions"]
        terms = {}
        if "mlm" in self.weights:
            terms["mlm"] = Term(*words.loss(hidden.index_select(0, predicted), batch.labels))
        if rows is not None:
            hidden, taught = (states.index_select(0, predicted) for states in (hidden, taught))
        if "kl" in self.weights:
            with torch.no_grad():
                wanted = self.teacher.cls["predictions"].scored(taught)
            entries = self.config.vocab_size  # the teacher's table may have more, which stand for no token
            wanted = wanted._replace(weight=wanted.weight[:entries], bias=wanted.bias[:entries])
            terms["kl"] = Term(distilled_scores(words.scored(hidden), wanted, self.own.temperature))
        if "cosine" in self.weights:
            terms["cosine"] = Term((1 - F.cosine_similarity(hidden.float(), taught.float())).sum())
        return terms

    def training_flops(self, work: Workload) -> int:
        """The student's training and the teacher's forward pass, a third of its own training, with their scores."""
        if self.own.tokens == "all":
            work = work._replace(rows=work.tokens, row_pairs=work.squares, predictions=work.tokens)
        return self.config.training_flops(work) + self.teacher.bert.config.training_flops(work) // 3

    def measure(self, validation: ValidationSet) -> dict[str, float]:
        """The student's figures as a masked model's, with ``kl_loss`` and ``cosine_loss``."""
        examples, distributed = validation.examples, validation.distributed
        figures = measure_validation(self.model, examples, validation.train_counts, distributed)
        return measure_terms(self, examples, distributed) | figures

    def saved_models(self) -> dict[str, SavedModel]:
        """The student."""
        return {"": SavedModel(self.model, self.config, self.config.names.classes["masked_words"])}

    def word_scores(
        self, ids: Tensor, segments: Tensor, cu_seqlens: Tensor, predicted: Tensor, max_seqlen: int
    ) -> Tensor:
        """The student's."""
        return self.model(ids, segments, cu_seqlens, predicted, max_seqlen)[0]


def encoder_names(model: BertForMaskedLM) -> set[str]:
    """Names of an encoder's parameters, whichever layer they are of."""
    return {re.sub(r"\d+", "*", name) for name, _ in model.bert.encoder.named_parameters()}


def copy_layers(student: BertForMaskedLM, teacher: BertForMaskedLM) -> None:
    """Fill a student with its teacher's embeddings, head and evenly spread layers, as far as it has them.

    Positions that begin elsewhere than the teacher's stay as they were drawn.
    """
    ours, theirs = student.bert.config, teacher.bert.config
    layers = spread_layers(ours.num_hidden_layers, theirs.num_hidden_layers)
    alike = ours.max_position_embeddings - ours.longest_input == theirs.max_position_embeddings - theirs.longest_input
    known = dict(teacher.named_parameters())
    with torch.no_grad():
        for name, parameter in student.named_parameters():
            taken = re.sub(r"(\.layer\.)(\d+)", lambda found: f"{found[1]}{layers[int(found[2])]}", name)
            if taken in known and (alike or "position_embeddings" not in name):
                parameter.copy_(_rows_of(known[taken], parameter, taken))


def _rows_of(theirs: Tensor, ours: Tensor, name: str) -> Tensor:
    """The rows of a teacher's tensor that a student's begins with; of relative positions those in the middle.

    Raises:
        PipelineError: it is narrower or wider, or has fewer rows.
    """
    more = len(theirs) - len(ours)
    if more < 0 or theirs.shape[1:] != ours.shape[1:]:
        raise PipelineError(
            "a teacher of another shape", f"{name} {tuple(theirs.shape)}, not {tuple(ours.shape)}",
            where="pretrain.teacher",
            remedy="make the block model as the teacher is (model.embedding too), or set objectives.distilled.start "
            "to random",
        )  # fmt: skip
    first = more // 2 if name.endswith("rel_embeddings.weight") else 0
    return theirs[first : first + len(ours)]


OBJECTIVE = Distilled
