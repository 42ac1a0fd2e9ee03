"""ELECTRA (Clark et al. 2020): a small generator fills masked words in, and the encoder tells which are not the text's.

The discriminator is the model of the study; the generator lies beside it, in the folder ``generator``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pipeline_src.common.errors import PipelineError
from pipeline_src.models.bert import BertConfig, initialise
from pipeline_src.models.discriminator import AddedTable, Discriminator, area_under_curve
from pipeline_src.models.flops import Workload
from pipeline_src.models.heads import BertForMaskedLM
from pipeline_src.models.packed_layout import PackedLayout, RowsInUse
from pipeline_src.params.base import Block
from pipeline_src.params.objectives import ReplacedParams
from pipeline_src.pretraining.tensor_batch import TensorBatch
from pipeline_src.pretraining.validation import ValidationSet, measure_validation, shared_batches
from pipeline_src.training.loop import Term
from pipeline_src.training.objective import PretrainingObjective, SavedModel
from pipeline_src.training.transfer import to_device

CORRUPTION = "masked"
BINS, FARTHEST = 4096, 16.0  # of the scores over which the area under the curve is summed
TABLES = ("word_embeddings", "position_embeddings")  # that are disentangled, as in DeBERTa-v3's code


class Judged(NamedTuple):
    """A micro-batch seen by both.

    Attributes:
        words: the generator's loss.
        scores: the discriminator's, [T], or of the predicted tokens alone.
        replaced: whether each is another than the text's own, bool of the same shape.
    """

    words: Term
    scores: Tensor
    replaced: Tensor


class Replaced(PretrainingObjective[TensorBatch]):
    """The generator's loss on masked words, and ``weight`` times the discriminator's on every token.

    The gradient ends at the sampled words. A word that the generator guesses right counts as the text's own.

    Attributes:
        model: the discriminator.
        generator: narrower, over the same table of embeddings where they are shared.
    """

    terms: ClassVar[Mapping[str, float]] = {"mlm": 1.0, "rtd": 50.0}
    validation_columns: ClassVar[Sequence[str]] = (
        *("mlm_loss", "mlm_accuracy", "rtd_loss", "rtd_recall", "rtd_specificity", "rtd_auc", "replaced"),
    )
    causal: ClassVar[bool] = False
    own: ReplacedParams

    def __init__(self, config: BertConfig, pairs: str, own: Block | None = None) -> None:
        super().__init__(config, pairs, own or ReplacedParams())
        self.generator_config = generator_config(config, self.own)
        self.model = Discriminator(config)
        self.generator = BertForMaskedLM(self.generator_config)
        if self.own.embeddings != "separate":
            if self.generator_config.embedding_width != config.embedding_width:
                raise PipelineError(
                    "a generator of another width cannot share these embeddings",
                    f"{self.generator_config.hidden_size}, not {config.hidden_size}",
                    where="objectives.replaced.generator",
                    remedy="set it to 1, set embeddings: separate, or take an architecture whose embeddings have a "
                    "width of their own, such as electra",
                )
        if self.own.embeddings == "shared":
            self.generator.bert.embeddings = self.model.bert.embeddings
            self.generator.tie()
        if self.own.embeddings == "disentangled":
            for name in TABLES:
                table = getattr(self.generator.bert.embeddings, name, None)
                if table is not None:  # not every encoder has one of positions
                    setattr(self.model.bert.embeddings, name, AddedTable(table))
        self.weights = {"mlm": 1.0, "rtd": self.own.weight}

    @property
    def learns(self) -> str:
        """For the model's card."""
        return "telling the words of a text from those that a generator put there"

    def tie(self) -> None:
        """The decoder's matrix is the embedding's."""
        self.generator.tie()

    def draw_weights(self, generator: torch.Generator) -> None:
        """On the CPU, so that every machine starts from the same weights."""
        drawn = Replaced(self.config, self.pairs, self.own)
        initialise(drawn, generator)
        for table in drawn.added():
            nn.init.zeros_(table.weight)
        with torch.no_grad():
            for own, start in zip(self.parameters(), drawn.parameters(), strict=True):
                own.copy_(start)

    def added(self) -> list[AddedTable]:
        """What the discriminator adds to the generator's tables, where embeddings are disentangled."""
        return [part for part in self.model.bert.embeddings.children() if isinstance(part, AddedTable)]

    def after_loading(self) -> None:
        """A folder holds sums of both tables; what is added is their difference."""
        with torch.no_grad():
            for table in self.added():
                table.weight.sub_(table.base[0].weight)

    def clipped_together(self) -> list[list[nn.Parameter]]:
        """Both networks where they share a table; each by itself where ``weight`` would else decide over the other."""
        if self.own.embeddings == "shared":
            return super().clipped_together()
        return [list(self.model.parameters()), list(self.generator.parameters())]

    def count(self, batch: TensorBatch) -> dict[str, int]:
        """Predicted and judged tokens, and what the batch counts."""
        judged = batch.counts["tokens" if self.own.loss_on == "all" else "predictions"]
        return {"mlm": batch.counts["predictions"], "rtd": judged, **batch.counts}

    def forward(self, batch: TensorBatch) -> dict[str, Term]:
        """The sums of both losses."""
        words, scores, replaced = self.judge(batch)
        loss = F.binary_cross_entropy_with_logits(scores.float(), replaced.float(), reduction="sum")
        return {"mlm": words, "rtd": Term(loss, ((scores > 0) == replaced).sum())}

    def judge(self, batch: TensorBatch) -> Judged:
        """Fill the masked words in by ``batch.draws``, and score what comes of it."""
        assert batch.draws is not None
        # one each: a layout may keep what depends on the width of heads
        of_generator, layout = (PackedLayout.of(batch.cu_seqlens, len(batch.ids), batch.max_seqlen) for _ in range(2))
        rows = RowsInUse.of(batch.rows, batch.row_starts, batch.max_rows)
        hidden = self.generator.bert.decode(batch.ids, batch.segments, of_generator, rows)
        hidden = hidden.index_select(0, batch.predicted_rows)
        loss, right, drawn = self.generator.cls["predictions"].sample(hidden, batch.labels, batch.draws)
        seen, other = batch.ids.index_copy(0, batch.predicted, drawn), drawn != batch.labels
        if self.own.loss_on == "all":
            read = self.model.bert.encode(seen, batch.segments, layout)
            other = torch.zeros_like(seen, dtype=torch.bool).index_copy(0, batch.predicted, other)
        else:
            read = self.model.bert.encode(seen, batch.segments, layout, rows).index_select(0, batch.predicted_rows)
        return Judged(Term(loss, right), self.model.discriminator_predictions(read), other)

    def training_flops(self, work: Workload) -> int:
        """The generator's as a masked model's; the discriminator reads all rows, and 6 (H^2 + H) a token for its head.

        Where the predicted tokens alone are judged, it reads these rows alone.
        """
        judged, read = work.predictions, work._replace(predictions=0)
        if self.own.loss_on == "all":
            judged, read = work.tokens, read._replace(rows=work.tokens, row_pairs=work.squares)
        head = 6 * (self.config.hidden_size**2 + self.config.hidden_size) * judged
        return self.generator_config.training_flops(work) + self.config.training_flops(read) + head

    @torch.no_grad()  # not inference_mode: weights gathered in it could not be trained afterwards
    def measure(self, validation: ValidationSet) -> dict[str, float]:
        """The generator's figures as a masked model's, and the discriminator's beside.

        ``rtd_loss`` and ``rtd_accuracy`` over all tokens; ``rtd_recall`` among the replaced, ``rtd_specificity`` among
        the others, ``rtd_auc`` the area under the curve of one over the other; ``replaced``, the share of the predicted
        tokens that the generator did not guess. Where that nears 0 the generator is too good to learn from (ELECTRA,
        section 3.2), and a discriminator that always says "the text's own" is right at all but that share.
        """
        examples, distributed = validation.examples, validation.distributed
        figures = measure_validation(self.generator, examples, validation.train_counts, distributed)
        self.eval()
        sums, device = np.zeros((2, BINS)), distributed.device
        loss, predictions = 0.0, 0
        for batch, counts in shared_batches(examples, distributed):
            with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
                _, scores, replaced = self.judge(to_device(TensorBatch.of(batch), device))
            if counts:
                scores = scores.float()
                loss += float(F.binary_cross_entropy_with_logits(scores, replaced.float(), reduction="sum"))
                places = ((scores + FARTHEST) * (BINS / (2 * FARTHEST))).long().clamp(0, BINS - 1)
                sums += torch.bincount(places + BINS * replaced.long(), minlength=2 * BINS).view(2, BINS).cpu().numpy()
                predictions += len(batch.labels)
        loss, total, *bins = distributed.all_reduce([loss, float(predictions), *sums.ravel().tolist()])
        kept, other = np.array(bins).reshape(2, BINS)
        judged = kept.sum() + other.sum()
        right = kept[: BINS // 2].sum(), other[BINS // 2 :].sum()
        return figures | {
            "rtd_loss": loss / judged,
            "rtd_accuracy": sum(right) / judged,
            "rtd_specificity": right[0] / kept.sum(),
            "rtd_recall": right[1] / max(1.0, other.sum()),
            "rtd_auc": area_under_curve(kept, other),
            "replaced": other.sum() / max(1.0, total),
        }

    def saved_models(self) -> dict[str, SavedModel]:
        """The discriminator, and the generator beside it."""
        classes = self.config.names.classes
        judge = classes.get("replaced", classes["encoder"])
        return {
            "": SavedModel(self.model, self.config, judge),
            "generator": SavedModel(self.generator, self.generator_config, classes["masked_words"]),
        }

    def word_scores(
        self, ids: Tensor, segments: Tensor, cu_seqlens: Tensor, predicted: Tensor, max_seqlen: int
    ) -> Tensor:
        """The generator's."""
        return self.generator(ids, segments, cu_seqlens, predicted, max_seqlen)[0]


def generator_config(config: BertConfig, own: ReplacedParams) -> BertConfig:
    """The generator's sizes: a share of the discriminator's, with at most that share of its heads."""
    hidden = max(1, round(own.generator * config.hidden_size))
    heads = max(1, round(own.generator * config.num_attention_heads))
    return replace(
        config,
        hidden_size=hidden,
        num_hidden_layers=max(1, round(own.generator_layers * config.num_hidden_layers)),
        num_attention_heads=next(number for number in range(heads, 0, -1) if hidden % number == 0),
        intermediate_size=max(1, round(own.generator * config.intermediate_size)),
    )


OBJECTIVE = Replaced
