"""ELECTRA's objective (Clark et al. 2020): detect tokens that a small generator has replaced.

The discriminator is the study's model. The generator is saved in the subfolder ``generator``. In the paper's ablations
(section 3.4), the study's model predicts the original tokens instead, or is trained only on the masked positions.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.registry import architecture_spec, objective_spec
from pipeline_src.model.attention import PackedBatch, QueryRows
from pipeline_src.model.bert import BertConfig, BertForMaskedLM, architecture_name, make_encoder
from pipeline_src.model.flops import Workload
from pipeline_src.model.losses import IGNORE_INDEX, LazyLogits, aligned, chunks
from pipeline_src.pretrain.data import TensorBatch
from pipeline_src.pretrain.objective import Metric, PretrainingObjective, SavedModel
from pipeline_src.pretrain.validation import ValidationBatch, masked_lm_metrics
from pipeline_src.study.pretrain import ElectraParams
from pipeline_src.study.schema import Section
from pipeline_src.training.trainer import LossTerm

# The area under the ROC curve is computed from a histogram of logits with this many bins, from -MAX_LOGIT to MAX_LOGIT.
BINS = 4096
MAX_LOGIT = 16.0


class FilledText(NamedTuple):
    """Batch with the generator's samples at the masked positions.

    The study's model predicts at N of the T positions: at all, or only at the masked ones.

    Attributes:
        ids, segments: input ids and token type ids, int64 [T].
        query_rows: positions for which the last block is computed. None: all.
        query_index: indices of the N positions among the query rows, int64 [N]. None: all positions.
        inputs, labels: input and original tokens at the N positions, int64 [N]. Filler has the label ``IGNORE_INDEX``.
    """

    ids: Tensor
    segments: Tensor
    layout: PackedBatch
    query_rows: QueryRows | None
    query_index: Tensor | None
    inputs: Tensor
    labels: Tensor

    def select(self, values: Tensor) -> Tensor:
        # Selects the values at the N positions from values of the query rows, [R, ...] -> [N, ...].
        return values if self.query_index is None else values.index_select(0, self.query_index)


class DiscriminatorHead(nn.Module):
    """Head that returns one logit per token, positive if the token was replaced (ELECTRA, section 3.1)."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.dense_prediction = nn.Linear(config.hidden_size, 1)
        self.approximate = config.gelu

    def forward(self, hidden: Tensor, layout: PackedBatch) -> Tensor:
        # Maps hidden states [R, H] to logits [R]. `layout` is the layout of the R rows.
        inner = F.gelu(self.dense(hidden), approximate=self.approximate)
        return self.dense_prediction(inner).squeeze(-1)


class FirstTokenHead(DiscriminatorHead):
    # Adds the hidden state of [CLS] to that of every token (LMMaskPredictionHead in microsoft/DeBERTa).

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)

    def forward(self, hidden: Tensor, layout: PackedBatch) -> Tensor:
        first = torch.arange(len(hidden), device=hidden.device) - layout.position
        return super().forward(self.LayerNorm(hidden + hidden.index_select(0, first)), layout)


class AddedTable(nn.Module):
    """Embeddings of a discriminator: the generator's embeddings, without gradient, plus trained differences.

    This is gradient-disentangled embedding sharing (DeBERTa-v3, He et al. 2023, section 3.2). The sum is saved.
    """

    def __init__(self, base: nn.Embedding) -> None:
        super().__init__()
        # The tuple hides the generator's embedding from torch, so that it does not become a submodule.
        self.base = (base,)
        self.weight = nn.Parameter(torch.empty_like(base.weight))

    def custom_init(self) -> None:
        nn.init.zeros_(self.weight)

    def forward(self, index: Tensor) -> Tensor:
        return F.embedding(index, self.base[0].weight.detach()) + F.embedding(index, self.weight)

    def _save_to_state_dict(self, destination: dict[str, Tensor], prefix: str, keep_vars: bool) -> None:
        destination[f"{prefix}weight"] = (self.base[0].weight + self.weight).detach()


class Discriminator(nn.Module):
    """Encoder without a pooler, with a head for replaced token detection (RTD).

    Attributes:
        term: name of the loss term.
        use: key of ``StateDictAdapter.classes`` for the class with which transformers loads the model.
        learns: what the model card says that the model learned.
    """

    term: ClassVar[str] = "rtd"
    use: ClassVar[str] = "replaced"
    learns: ClassVar[str] = "telling the words of a text from those that a generator put there"

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.config = config
        self.bert = make_encoder(config, has_pooler=False)
        head = FirstTokenHead if config.rtd_adds_cls else DiscriminatorHead
        self.discriminator_predictions = head(config)

    def logits(self, text: FilledText) -> Tensor:
        hidden = self.bert.encode(text.ids, text.segments, text.layout, text.query_rows)
        layout = text.layout if text.query_rows is None else text.query_rows.layout
        return text.select(self.discriminator_predictions(hidden, layout))

    def loss(self, text: FilledText) -> tuple[Tensor, Tensor]:
        # Returns the summed binary cross-entropy (nats) and the number of correct predictions.
        logits = self.logits(text)
        replaced = text.inputs != text.labels
        counted = text.labels != IGNORE_INDEX
        loss = F.binary_cross_entropy_with_logits(
            logits.float(), replaced.float(), weight=counted.float(), reduction="sum"
        )
        correct = ((logits > 0) == replaced) & counted
        return loss, correct.sum()

    def training_flops(self, work: Workload, positions: int) -> int:
        hidden = self.config.hidden_size
        return self.config.training_flops(work._replace(predictions=0)) + 6 * (hidden**2 + hidden) * positions

    def metrics(self, text: FilledText) -> dict[str, Metric]:
        # rtd_recall is the accuracy on replaced tokens, rtd_specificity on original tokens.
        logits = self.logits(text).float()
        replaced = text.inputs != text.labels
        loss = float(F.binary_cross_entropy_with_logits(logits, replaced.float(), reduction="sum"))
        # Histograms of the logits of original and of replaced tokens, from -MAX_LOGIT to MAX_LOGIT.
        bins_per_logit = BINS / (2 * MAX_LOGIT)
        bins = ((logits + MAX_LOGIT) * bins_per_logit).long().clamp(0, BINS - 1)
        counts = torch.bincount(bins + BINS * replaced.long(), minlength=2 * BINS).view(2, BINS)
        originals, replacements = counts.double().cpu().numpy()
        true_negatives = originals[: BINS // 2].sum()
        true_positives = replacements[BINS // 2 :].sum()
        return {
            "rtd_loss": Metric(loss, len(logits)),
            "rtd_accuracy": Metric(true_negatives + true_positives, len(logits)),
            "rtd_specificity": Metric(true_negatives, originals.sum(), fraction),
            "rtd_recall": Metric(true_positives, replacements.sum(), fraction),
            "rtd_auc": Metric(originals, replacements, area_under_curve),
        }


def fraction(part: float, total: float) -> float:
    return float(part / max(1.0, total))


def area_under_curve(negatives: np.ndarray, positives: np.ndarray) -> float:
    """Return the area under the ROC curve, given histograms of the logits of negatives and of positives.

    Both have the shape [bins], with ascending logits. A positive and a negative in the same bin count half.
    """
    below = np.cumsum(negatives) - negatives / 2
    pairs = negatives.sum() * positives.sum()
    return float(positives @ below / pairs) if pairs else 0.5


class ReplaceMLM(BertForMaskedLM):
    """Predict the original tokens at the positions with a generator's samples (ELECTRA, section 3.4)."""

    term: ClassVar[str] = "words"
    use: ClassVar[str] = "masked_lm"
    learns: ClassVar[str] = "what words of a text were before a generator put others there"

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config)
        self.config = config

    def loss(self, text: FilledText) -> tuple[Tensor, Tensor]:
        return self.cls["predictions"].loss(self.decoded(text), text.labels)

    def decoded(self, text: FilledText) -> Tensor:
        return text.select(self.bert.decode(text.ids, text.segments, text.layout, text.query_rows))

    def training_flops(self, work: Workload, positions: int) -> int:
        return self.config.training_flops(work._replace(predictions=positions))

    def metrics(self, text: FilledText) -> dict[str, Metric]:
        loss, correct = self.loss(text)
        return {
            "words_loss": Metric(float(loss), len(text.labels), fraction),
            "words_accuracy": Metric(float(correct), len(text.labels), fraction),
        }


class AllTokensMLM(ReplaceMLM):
    """Predict the original token at every position, with a mechanism to copy the input (ELECTRA, section 3.4).

    The copy probability D is the sigmoid of a linear layer over the hidden state. The predicted distribution is 1 - D
    times the softmax over the vocabulary, plus D for the input token.
    """

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config)
        self.copy_gate = nn.Linear(config.hidden_size, 1)

    def loss(self, text: FilledText) -> tuple[Tensor, Tensor]:
        hidden = self.decoded(text)
        gates = self.copy_gate(hidden).squeeze(-1)
        return copying_cross_entropy(self.cls["predictions"].lazy_logits(hidden), gates, text.inputs, text.labels)

    def training_flops(self, work: Workload, positions: int) -> int:
        return super().training_flops(work, positions) + 6 * self.config.hidden_size * positions


def copying_cross_entropy(
    lazy_logits: LazyLogits, gates: Tensor, inputs: Tensor, labels: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the summed cross-entropy of predictions with a copy mechanism, and the number of correct ones.

    The cross-entropy of a position is -log(D [input = label] + (1 - D) softmax(label)), float32. Logits are computed in
    chunks, and again in the backward pass, so that memory never holds all of them.

    Args:
        gates: logits of the copy probability D, [N].
        inputs, labels: input and original tokens, int64 [N]. Positions with the label ``IGNORE_INDEX`` do not count.
    """
    loss = lazy_logits.inner.new_zeros((), dtype=torch.float32)
    correct = labels.new_zeros(())
    weight, bias = aligned(lazy_logits.weight, lazy_logits.bias)
    for chunk in chunks(len(labels), len(weight)):
        chunk_loss, chunk_correct = checkpoint(
            _copying_loss,
            lazy_logits.inner[chunk],
            weight,
            bias,
            gates[chunk],
            inputs[chunk],
            labels[chunk],
            use_reentrant=False,
        )
        loss = loss + chunk_loss
        correct = correct + chunk_correct
    return loss, correct


def _copying_loss(
    inner: Tensor, weight: Tensor, bias: Tensor, gates: Tensor, inputs: Tensor, labels: Tensor
) -> tuple[Tensor, Tensor]:
    log_softmax = F.linear(inner, weight, bias).float().log_softmax(1)
    # The logarithms of D and 1 - D.
    copied = F.logsigmoid(gates.float())
    predicted = F.logsigmoid(-gates.float())
    counted = labels != IGNORE_INDEX
    labels = labels.clamp(min=0)

    def predict(tokens: Tensor) -> Tensor:
        return predicted + log_softmax.gather(1, tokens[:, None]).squeeze(1)

    # If the label equals the input, the probabilities of copying and of predicting it add up.
    at_label = torch.where(inputs == labels, torch.logaddexp(copied, predict(labels)), predict(labels))
    with torch.no_grad():
        best_predicted = predicted + log_softmax.amax(1)
        at_input = torch.logaddexp(copied, predict(inputs))
        best = torch.maximum(best_predicted, at_input)
        correct = ((at_label >= best) & counted).sum()
    return -at_label.where(counted, 0.0).sum(), correct


# DeBERTa-v3's code applies disentangled sharing to these embeddings.
TABLES = ("word_embeddings", "position_embeddings")
# (disc_target, disc_loss_on) -> class of the study's model. ("rtd", "predicted") is "ELECTRA 15%" in the paper.
MODELS: dict[tuple[str, str], type[Discriminator | ReplaceMLM]] = {
    ("rtd", "all"): Discriminator,
    ("rtd", "predicted"): Discriminator,
    ("mlm", "predicted"): ReplaceMLM,
    ("mlm", "all"): AllTokensMLM,
}


class ElectraObjective(PretrainingObjective[TensorBatch]):
    """Minimise the generator's MLM loss plus ``disc_weight`` times the discriminator's loss.

    The discriminator reads the generator's samples, through which no gradient passes. A sampled token that equals the
    original counts as original.

    Attributes:
        model: the discriminator, or the model that replaces it in an ablation.
        generator: masked language model that replaces tokens, usually narrower than ``model``.
    """

    spec = objective_spec("electra")
    predictor = "generator"
    objective_params: ElectraParams

    def __init__(self, config: BertConfig, pairs: str, objective_params: Section | None = None) -> None:
        super().__init__(config, pairs, objective_params or ElectraParams())
        params = self.objective_params
        self.generator_config = generator_config(config, params)
        self.model = MODELS[params.disc_target, params.disc_loss_on](config)
        self.generator = BertForMaskedLM(self.generator_config)
        if params.embeddings != "separate" and self.generator_config.embedding_width != config.embedding_width:
            raise PipelineError(
                "generator and discriminator of different width cannot share embeddings",
                f"{self.generator_config.hidden_size}, not {config.hidden_size}",
                where="objectives.electra.generator_width",
                hint="set it to 1, set embeddings: separate, or use an architecture with model.embedding_size, such as "
                "electra",
            )
        if params.embeddings == "shared":
            self.generator.bert.embeddings = self.model.bert.embeddings
            self.generator.tie()
        if params.embeddings == "disentangled":
            for name in TABLES:
                # Some encoders have no position embeddings.
                table = getattr(self.generator.bert.embeddings, name, None)
                if table is not None:
                    setattr(self.model.bert.embeddings, name, AddedTable(table))
        if params.embeddings != "shared" and params.disc_target == "rtd" and config.has_mask_decoder:
            # In DeBERTa, only the mask decoder uses position embeddings, and a discriminator has no mask decoder.
            self.model.bert.embeddings.position_embeddings.requires_grad_(False)
        self.weights = {"mlm": 1.0, self.model.term: params.disc_weight}
        self.learns = self.model.learns

    def load_models(self, folder: Path) -> None:
        # Disentangled embeddings are saved as a sum with the generator's embeddings. Subtract the generator's again.
        super().load_models(folder)
        with torch.no_grad():
            for table in self.model.bert.embeddings.children():
                if isinstance(table, AddedTable):
                    table.weight.sub_(table.base[0].weight)

    def loss_counts(self, work: Workload) -> dict[str, int]:
        positions = work.tokens if self.objective_params.disc_loss_on == "all" else work.predictions
        return {"mlm": work.predictions, self.model.term: positions}

    def forward(self, batch: TensorBatch) -> dict[str, LossTerm]:
        generator_term, text = self.fill(batch)
        return {"mlm": generator_term, self.model.term: LossTerm(*self.model.loss(text))}

    def fill(self, batch: TensorBatch) -> tuple[LossTerm, FilledText]:
        # Replaces the masked tokens by samples from the generator, with the random numbers `batch.sampling_noise`.
        assert batch.sampling_noise is not None
        # Each model gets its own layout, since a model may cache tensors in it that depend on its head size.
        generator_layout = PackedBatch.of(batch.cu_seqlens, len(batch.ids), batch.max_seqlen)
        layout = PackedBatch.of(batch.cu_seqlens, len(batch.ids), batch.max_seqlen)
        query_rows = QueryRows.of(batch.output_positions, batch.output_offsets, batch.max_outputs)
        hidden = self.generator.bert.decode(batch.ids, batch.segments, generator_layout, query_rows)
        hidden = hidden.index_select(0, batch.predicted_outputs)
        loss, correct, sampled = self.generator.cls["predictions"].sample(hidden, batch.labels, batch.sampling_noise)
        filled = batch.ids.index_copy(0, batch.predicted, sampled)
        # The study's model predicts at every token, or only at the masked ones.
        if self.objective_params.disc_loss_on == "all":
            real = torch.repeat_interleave(
                batch.pair_label != IGNORE_INDEX, batch.cu_seqlens.diff(), output_size=len(filled)
            )
            original = batch.ids.index_copy(0, batch.predicted, batch.labels).where(real, IGNORE_INDEX)
            text = FilledText(filled, batch.segments, layout, None, None, filled, original)
        else:
            text = FilledText(
                filled, batch.segments, layout, query_rows, batch.predicted_outputs, sampled, batch.labels
            )
        return LossTerm(loss, correct), text

    def training_flops(self, work: Workload) -> int:
        # The generator's last block is computed only at the predicted positions. With `disc_loss_on: predicted`, the
        # discriminator's last block is too.
        generator_flops = self.generator_config.training_flops(work)
        positions = work.predictions
        if self.objective_params.disc_loss_on == "all":
            positions = work.tokens
            work = work._replace(num_outputs=work.tokens, attended_pairs=work.sum_len_squared)
        return generator_flops + self.model.training_flops(work, positions)

    def validation_metrics(self, batch: ValidationBatch) -> dict[str, Metric]:
        # `replaced` is the share of the predicted tokens that the generator gets wrong. If it is near 0, a model that
        # always answers "original" is nearly always correct, and learns little (ELECTRA, section 3.2).
        metrics = masked_lm_metrics(self.generator, batch)
        _, text = self.fill(batch.tensors)
        metrics |= self.model.metrics(text)
        replaced = float((text.inputs != text.labels).sum())
        metrics["replaced"] = Metric(replaced, batch.tensors.workload.predictions, fraction)
        return metrics

    def saved_models(self) -> dict[str, SavedModel]:
        classes = self.config.names.classes
        return {
            "": SavedModel(self.model, self.config, classes.get(self.model.use, classes["encoder"])),
            "generator": SavedModel(self.generator, self.generator_config, classes["masked_lm"]),
        }


def generator_config(config: BertConfig, params: ElectraParams) -> BertConfig:
    # Scales the discriminator's sizes. The number of heads is lowered until it divides the hidden size.
    hidden = max(1, round(params.generator_width * config.hidden_size))
    most_heads = max(1, round(params.generator_width * config.num_attention_heads))
    heads = next(number for number in range(most_heads, 0, -1) if hidden % number == 0)
    architecture = architecture_name(config.names.model_type)
    part = architecture_spec(architecture).even
    width = hidden // heads if part == "head" else hidden
    if part is not None and width % 2:
        raise PipelineError(
            f"{architecture} needs an even {part} width, and the generator's is odd",
            f"{width}, with {heads} heads and hidden size {hidden}",
            where="objectives.electra.generator_width",
            hint="set it to 1, 0.5 or 0.25, or to another share that gives an even width",
        )
    return replace(
        config,
        hidden_size=hidden,
        num_hidden_layers=max(1, round(params.generator_depth * config.num_hidden_layers)),
        num_attention_heads=heads,
        intermediate_size=max(1, round(params.generator_width * config.intermediate_size)),
    )


OBJECTIVE = ElectraObjective
