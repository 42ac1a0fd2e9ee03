"""ELECTRA (Clark et al. 2020): a small generator fills masked words in, and the encoder tells which are not the text's.

The discriminator is the model of the study; the generator lies beside it, in the folder ``generator``. In the paper's
ablations the model says instead what the words were, or is asked about the predicted ones alone (section 3.4).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from pipeline_src.common.errors import PipelineError
from pipeline_src.models.bert import BertConfig, initialise
from pipeline_src.models.discriminator import AddedTable, Discriminator, FilledText
from pipeline_src.models.flops import Workload
from pipeline_src.models.heads import BertForMaskedLM
from pipeline_src.models.packed_layout import PackedLayout, RowsInUse
from pipeline_src.models.word_restorer import CopyingRestorer, WordRestorer
from pipeline_src.params.base import Block
from pipeline_src.params.objectives import ReplacedParams
from pipeline_src.pretraining.tensor_batch import TensorBatch
from pipeline_src.pretraining.validation import ValidationSet, measure_validation, shared_batches
from pipeline_src.training.loop import Term
from pipeline_src.training.objective import PretrainingObjective, SavedModel
from pipeline_src.training.transfer import to_device

CORRUPTION = "masked"
TABLES = ("word_embeddings", "position_embeddings")  # that are disentangled, as in DeBERTa-v3's code
MODELS: dict[tuple[str, str], type[Discriminator | WordRestorer]] = {  # by what is learnt, and on which tokens
    ("replaced", "all"): Discriminator,
    ("replaced", "predicted"): Discriminator,  # "ELECTRA 15%"
    ("words", "predicted"): WordRestorer,  # "Replace MLM"
    ("words", "all"): CopyingRestorer,  # "All-Tokens MLM"
}


class Replaced(PretrainingObjective[TensorBatch]):
    """The generator's loss on masked words, and ``weight`` times that of the model that reads what it filled in.

    The gradient ends at the sampled words. A word that the generator guesses right counts as the text's own.

    Attributes:
        model: the discriminator, or what stands for it in an ablation.
        generator: narrower, over the same table of embeddings where they are shared.
    """

    terms: ClassVar[Mapping[str, float]] = {"mlm": 1.0, "rtd": 50.0, "words": 50.0}
    validation_columns: ClassVar[Sequence[str]] = (
        *("mlm_loss", "mlm_accuracy", "rtd_loss", "rtd_recall", "rtd_specificity", "rtd_auc"),
        *("words_loss", "words_accuracy", "replaced"),
    )
    causal: ClassVar[bool] = False
    own: ReplacedParams

    def __init__(self, config: BertConfig, pairs: str, own: Block | None = None) -> None:
        super().__init__(config, pairs, own or ReplacedParams())
        self.generator_config = generator_config(config, self.own)
        self.model = MODELS[self.own.learns, self.own.loss_on](config)
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
        if self.own.embeddings != "shared" and self.own.learns == "replaced" and getattr(config, "mask_decoder", False):
            # positions come in at DeBERTa's mask decoder alone, and a discriminator has none: nothing reads this table
            self.model.bert.embeddings.position_embeddings.requires_grad_(False)
        self.weights = {"mlm": 1.0, self.model.term: self.own.weight}

    @property
    def learns(self) -> str:
        """For the model's card."""
        return self.model.learns

    def tie(self) -> None:
        """The decoder's matrix is the embedding's."""
        self.model.tie()
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
        """Predicted tokens and those that the model is asked about, and what the batch counts."""
        asked = batch.counts["tokens" if self.own.loss_on == "all" else "predictions"]
        return {"mlm": batch.counts["predictions"], self.model.term: asked, **batch.counts}

    def forward(self, batch: TensorBatch) -> dict[str, Term]:
        """The sums of both losses."""
        words, text = self.fill(batch)
        return {"mlm": words, self.model.term: Term(*self.model.loss(text))}

    def fill(self, batch: TensorBatch) -> tuple[Term, FilledText]:
        """The generator's loss, and the text with its words, drawn by ``batch.draws`` at every predicted place."""
        assert batch.draws is not None
        # one each: a layout may keep what depends on the width of heads
        of_generator, layout = (PackedLayout.of(batch.cu_seqlens, len(batch.ids), batch.max_seqlen) for _ in range(2))
        rows = RowsInUse.of(batch.rows, batch.row_starts, batch.max_rows)
        hidden = self.generator.bert.decode(batch.ids, batch.segments, of_generator, rows)
        hidden = hidden.index_select(0, batch.predicted_rows)
        loss, right, drawn = self.generator.cls["predictions"].sample(hidden, batch.labels, batch.draws)
        seen = batch.ids.index_copy(0, batch.predicted, drawn)
        if self.own.loss_on == "all":
            own = batch.ids.index_copy(0, batch.predicted, batch.labels)
            text = FilledText(seen, batch.segments, layout, None, None, seen, own)
        else:
            text = FilledText(seen, batch.segments, layout, rows, batch.predicted_rows, drawn, batch.labels)
        return Term(loss, right), text

    def training_flops(self, work: Workload) -> int:
        """The generator's as a masked model's; the model that reads its words reads all rows.

        Where it is asked about the predicted tokens alone, it reads these rows alone.
        """
        asked, read = work.predictions, work
        if self.own.loss_on == "all":
            asked, read = work.tokens, work._replace(rows=work.tokens, row_pairs=work.squares)
        return self.generator_config.training_flops(work) + self.model.training_flops(read, asked)

    @torch.no_grad()  # not inference_mode: weights gathered in it could not be trained afterwards
    def measure(self, validation: ValidationSet) -> dict[str, float]:
        """The generator's figures as a masked model's, and the model's own beside.

        ``replaced`` is the share of the predicted tokens that the generator did not guess. Where that nears 0 the
        generator is too good to learn from (ELECTRA, section 3.2), and a discriminator that always says "the text's
        own" is right at all but that share.
        """
        examples, distributed = validation.examples, validation.distributed
        figures = measure_validation(self.generator, examples, validation.train_counts, distributed)
        self.eval()
        sums, device = np.zeros(0), distributed.device
        for batch, counts in shared_batches(examples, distributed):
            with distributed.autocast():
                _, text = self.fill(to_device(TensorBatch.of(batch), device))
                found = np.array([float((text.seen != text.own).sum()), len(batch.labels), *self.model.sums(text)])
            sums = counts * found + (sums if len(sums) else 0)
        replaced, predictions, *own = distributed.all_reduce(sums.tolist())
        return figures | self.model.figures(own) | {"replaced": replaced / max(1.0, predictions)}

    def saved_models(self) -> dict[str, SavedModel]:
        """The model that reads, and the generator beside it."""
        classes = self.config.names.classes
        return {
            "": SavedModel(self.model, self.config, classes.get(self.model.use, classes["encoder"])),
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
