"""DistilBERT's objective (Sanh et al. 2019): imitate a teacher's predictions and last hidden states."""

from __future__ import annotations

import re

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.registry import objective_spec
from pipeline_src.model.attention import PackedBatch, QueryRows
from pipeline_src.model.bert import BertConfig, BertForMaskedLM
from pipeline_src.model.flops import Workload
from pipeline_src.model.losses import LazyLogits, distillation_loss
from pipeline_src.pretrain.data import TensorBatch
from pipeline_src.pretrain.objective import Metric, PretrainingObjective, SavedModel
from pipeline_src.pretrain.validation import ValidationBatch, masked_lm_metrics
from pipeline_src.study.pretrain import DistilBertParams
from pipeline_src.study.schema import Section
from pipeline_src.training.trainer import LossTerm

# If layers are copied from the teacher, these config values of student and teacher must be equal.
COPIED = ("hidden_size", "num_attention_heads", "intermediate_size", "hidden_act")


class DistilBertObjective(PretrainingObjective[TensorBatch]):
    """Train a student on the teacher's predictions, on masked tokens, and on the teacher's last hidden states.

    The loss terms are ``kl``, the KL divergence from the teacher's token probabilities, ``mlm``, and ``cosine``, the
    cosine distance between the last hidden states. The setting ``loss_on`` affects only ``kl``, like
    ``restrict_ce_to_mask`` in the original code. Teacher and student read the same masked text. The teacher has no
    dropout and no gradients.
    """

    spec = objective_spec("distilbert")
    build_teacher = BertForMaskedLM
    learns = "what a larger model makes of masked words"
    objective_params: DistilBertParams
    teacher: BertForMaskedLM

    def __init__(self, config: BertConfig, pairs: str, objective_params: Section | None = None) -> None:
        super().__init__(config, pairs, objective_params or DistilBertParams())
        self.model = BertForMaskedLM(config)
        params = self.objective_params
        weights = {"kl": params.alpha_ce, "mlm": params.alpha_mlm, "cosine": params.alpha_cos}
        self.weights = {name: weight for name, weight in weights.items() if weight}
        if self.weights.keys() == {"cosine"}:
            # No loss uses the MLM head, so it is frozen, except its matrix, which is tied to the embeddings.
            table = self.model.bert.embeddings.word_embeddings.weight
            for parameter in self.model.cls.parameters():
                parameter.requires_grad_(parameter is table)

    def set_teacher(self, teacher: nn.Module) -> None:
        # Check that teacher and student have equal sizes where hidden states are compared or layers are copied.
        super().set_teacher(teacher)
        config = self.teacher.bert.config
        copies = self.objective_params.init == "teacher"
        equal: tuple[str, ...] = ()
        if copies:
            equal = COPIED
        elif self.objective_params.alpha_cos:
            equal = ("hidden_size",)
        for name in equal:
            if getattr(config, name) != getattr(self.config, name):
                raise PipelineError(
                    "teacher and student differ in size",
                    f"{name} {getattr(config, name)}, not {getattr(self.config, name)}",
                    where="pretrain.teacher",
                    hint="set the sizes under model to the teacher's, or set objectives.distilbert.init to random"
                    + (" and alpha_cos to 0" if name == "hidden_size" else ""),
                )
        if copies and encoder_names(self.model) - encoder_names(self.teacher):
            raise PipelineError(
                "the teacher's blocks lack layers of the student's",
                config.names.title,
                where="pretrain.teacher",
                hint=f"use a {self.config.names.title} as teacher, or set objectives.distilbert.init to random",
            )
        if copies and self.config.num_hidden_layers > config.num_hidden_layers:
            raise PipelineError(
                "the student has more layers than its teacher",
                self.config.num_hidden_layers,
                where="model.num_hidden_layers",
                hint=f"set it to at most {config.num_hidden_layers}",
            )

    def init_weights(self, generator: torch.Generator) -> None:
        super().init_weights(generator)
        if self.objective_params.init == "teacher":
            copy_layers(self.model, self.teacher)

    def loss_counts(self, work: Workload) -> dict[str, int]:
        compared = work.tokens if self.objective_params.loss_on == "all" else work.predictions
        return {"kl": compared, "mlm": work.predictions, "cosine": work.tokens}

    def forward(self, batch: TensorBatch) -> dict[str, LossTerm]:
        query_rows = None
        predicted = batch.predicted
        if not self.reads_all_tokens:
            query_rows = QueryRows.of(batch.output_positions, batch.output_offsets, batch.max_outputs)
            predicted = batch.predicted_outputs
        # Each model gets its own layout, since a model may cache tensors in it that depend on its head size.
        teacher_layout = PackedBatch.of(batch.cu_seqlens, len(batch.ids), batch.max_seqlen)
        layout = PackedBatch.of(batch.cu_seqlens, len(batch.ids), batch.max_seqlen)
        with torch.no_grad():
            target = self.teacher.bert.decode(batch.ids, batch.segments, teacher_layout, query_rows)
        hidden = self.model.bert.decode(batch.ids, batch.segments, layout, query_rows)

        head = self.model.cls["predictions"]
        terms = {}
        if "mlm" in self.weights:
            terms["mlm"] = LossTerm(*head.loss(hidden.index_select(0, predicted), batch.labels))
        if "kl" in self.weights:
            compared, teacher_compared = hidden, target
            if self.objective_params.loss_on == "predicted":
                compared = hidden.index_select(0, predicted)
                teacher_compared = target.index_select(0, predicted)
            logits = head.lazy_logits(compared)
            with torch.no_grad():
                inner, weight, bias = self.teacher.cls["predictions"].lazy_logits(teacher_compared)
            # The teacher's matrix may have more rows than the vocabulary has tokens.
            size = self.config.vocab_size
            teacher_logits = LazyLogits(inner, weight[:size], bias[:size])
            terms["kl"] = LossTerm(distillation_loss(logits, teacher_logits, self.objective_params.temperature))
        if "cosine" in self.weights:
            similarity = F.cosine_similarity(hidden.float(), target.float())
            terms["cosine"] = LossTerm((1 - similarity).sum())
        return terms

    @property
    def reads_all_tokens(self) -> bool:
        return self.objective_params.loss_on == "all" or "cosine" in self.weights

    def training_flops(self, work: Workload) -> int:
        # The teacher runs only the forward pass, which has a third of the FLOPs of training.
        if self.reads_all_tokens:
            work = work._replace(num_outputs=work.tokens, attended_pairs=work.sum_len_squared)
        if self.objective_params.loss_on == "all":
            work = work._replace(predictions=work.tokens)
        return self.config.training_flops(work) + self.teacher.bert.config.training_flops(work) // 3

    def validation_metrics(self, batch: ValidationBatch) -> dict[str, Metric]:
        return super().validation_metrics(batch) | masked_lm_metrics(self.model, batch)

    def saved_models(self) -> dict[str, SavedModel]:
        return {"": SavedModel(self.model, self.config, self.config.names.classes["masked_lm"])}


def encoder_names(model: BertForMaskedLM) -> set[str]:
    # Returns the names of the encoder's parameters, with * in place of layer numbers.
    return {re.sub(r"\d+", "*", name) for name, _ in model.bert.encoder.named_parameters()}


def spread_layers(student: int, teacher: int) -> list[int]:
    """Return, for each student layer, the teacher layer from which it is initialised.

    For 6 of 12 layers, these are 0, 2, 4, 7, 9, 11, as in DistilBERT.
    """
    return [round(number * (teacher - 1) / max(1, student - 1)) for number in range(student)]


def copy_layers(student: BertForMaskedLM, teacher: BertForMaskedLM) -> None:
    # Copies the teacher's embeddings, head and evenly spaced layers, where both models have these parts. Position
    # embeddings are not copied if the first position differs, for example from a RoBERTa to a BERT.
    config = student.bert.config
    teacher_config = teacher.bert.config
    layers = spread_layers(config.num_hidden_layers, teacher_config.num_hidden_layers)
    same_offset = config.first_position == teacher_config.first_position
    sources = dict(teacher.named_parameters())

    def teacher_layer(match: re.Match[str]) -> str:
        return f".layer.{layers[int(match[1])]}"

    with torch.no_grad():
        for name, parameter in student.named_parameters():
            if "position_embeddings" in name and not same_offset:
                continue
            # With 6 of 12 layers, "bert.encoder.layer.1.output" is copied from "bert.encoder.layer.2.output".
            source = re.sub(r"\.layer\.(\d+)", teacher_layer, name)
            if source in sources:
                parameter.copy_(_first_rows(sources[source], parameter, source))


def _first_rows(source: Tensor, target: Tensor, name: str) -> Tensor:
    # If the teacher's tensor has more rows, returns its first rows, or the middle ones of relative positions.
    surplus = len(source) - len(target)
    if surplus < 0 or source.shape[1:] != target.shape[1:]:
        raise PipelineError(
            "teacher and student differ in size",
            f"{name} {tuple(source.shape)}, not {tuple(target.shape)}",
            where="pretrain.teacher",
            hint="set the sizes under model (also embedding_size) to the teacher's, or set "
            "objectives.distilbert.init to random",
        )
    first = surplus // 2 if name.endswith("rel_embeddings.weight") else 0
    return source[first : first + len(target)]


OBJECTIVE = DistilBertObjective
