from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from pipeline_src.study.pretrain import Optimizer
from pipeline_src.study.schema import NO_TEACHER, ListedOnce, Name, Number, Section

Frozen = Literal[
    "embeddings",
    "second_to_last",
    "last",
    "weighted_last_four",
    "concat_last_four",
    "weighted_all",
    "weighted_with_embeddings",
]


def _as_list(value: Any) -> Any:
    # people type `-S finetune.defaults.epochs=1`
    return value if isinstance(value, list | tuple) else (value,)


Numbers = Annotated[
    tuple[Annotated[int, Field(ge=1, le=1_000_000)], ...], BeforeValidator(_as_list), Field(min_length=1)
]
Rates = Annotated[tuple[Annotated[float, Field(gt=0, le=1)], ...], BeforeValidator(_as_list), Field(min_length=1)]


class TaskHyperparameters(Section):
    """Hyperparameters of a task (paper, appendix A.3 and section 4).

    Attributes:
        learning_rates, epochs, batch_sizes: each a number or a list. Every combination is trained, and the best by the
            development set is kept. The defaults are section 4.1's.
        random_learning_rates, random_epochs: the same for random weights, which often need more epochs; null: those of
            the pretrained weights. A baseline is fair only at the best point of its own grid.
        max_length: maximum number of tokens in a sequence.
        random_baseline: whether to train from random weights too, as a baseline of the score.
        dropout: rate in fine-tuning, for hidden states, attention probabilities and the head; null: the encoder's
            rates.
        select: the epoch whose weights are kept: the ``last``, or the ``best`` by the main metric on the first
            evaluation set, which is then no longer unseen.
        pooling: what the output layer of a task with one answer per text reads. ``cls``: the first token, through the
            pooler (paper, figure 4). ``first_last``: the sum of embeddings and last layer, averaged over all tokens but
            the first and the last, without pooler (Su et al. 2021, Whitening Sentence Representations). It changes
            nothing if an LSTM reads the tokens, or for word vectors, which are always averaged.
        reinit_layers: number of top blocks that start from random weights, together with the pooler: pretraining has
            specialised them (Zhang et al. 2020, Revisiting few-sample BERT fine-tuning, section 5).
        class_weights: ``balanced`` weighs an example's loss by n / (k n_c), as scikit-learn's ``compute_class_weight``
            has it: n training examples of k classes, n_c of them of the example's class. The loss is that of torch's
            CrossEntropyLoss. null: all count alike. It is for classification and tagging; other kinds, regressions and
            students of a teacher are trained without it.
        label_counts: the task is also learnt from random parts of the training file with these numbers of examples,
            each at the best point of the grid, for the figure on what a label is worth. Numbers above the file's are
            left out. With a teacher all are left out.
        feature_layers: layers of a frozen encoder that feed the task's LSTM (section 5.3, table 7); null fine-tunes.
        layer_epochs: with a teacher, epochs of learning its layers, before ``epochs`` of learning its logits; 20 in
            TinyBERT (Jiao et al. 2020, section 4.2). 0 skips the layers.
        layer_learning_rate: constant learning rate while layers are learnt; 5e-5 in TinyBERT.
        num_augmentations: with a teacher, augmented copies of each text; 30 in TinyBERT, 20 for SST-2 and QNLI,
            10 for MNLI and QQP (huawei-noah/Pretrained-Language-Model, data_augmentation.py).
    """

    learning_rates: Rates = (5e-5, 4e-5, 3e-5, 2e-5)
    epochs: Numbers = (3,)
    batch_sizes: Numbers = (32,)
    random_learning_rates: Rates | None = None
    random_epochs: Numbers | None = None
    max_length: int = Field(default=128, ge=16, le=4096)
    random_baseline: bool = False
    dropout: float | None = Field(default=None, ge=0, lt=1)
    select: Literal["last", "best"] = "last"
    pooling: Literal["cls", "first_last"] = "cls"
    reinit_layers: int = Field(default=0, ge=0, le=200)
    class_weights: Literal["balanced"] | None = None
    label_counts: Annotated[tuple[Annotated[int, Field(ge=1, le=1_000_000_000)], ...], ListedOnce] = ()
    feature_layers: Frozen | None = None
    layer_epochs: int = Field(default=20, ge=0, le=1_000_000)
    layer_learning_rate: float = Field(default=5e-5, gt=0, le=1)
    num_augmentations: int = Field(default=0, ge=0, le=1000)

    def starting_from(self, weights: str) -> TaskHyperparameters:
        grid: dict[str, Any] = {"random_learning_rates": None, "random_epochs": None}
        if weights == "random":
            grid["learning_rates"] = self.random_learning_rates or self.learning_rates
            grid["epochs"] = self.random_epochs or self.epochs
        return self.model_copy(update=grid)


class FinetuneParams(Section):
    """Fine-tuning.

    Attributes:
        model: folder of the initial encoder: this study's, any BERT in Hugging Face's layout, or
            ``hub:OWNER/NAME@REVISION`` of Hugging Face's hub.
        teacher: folder ``models`` of another study with the same vocabulary, whose fine-tuned models are distilled
            (TinyBERT's task-specific distillation); ``catalogue/no-teacher`` for no teacher.
        seeds: each task is trained once per seed, with the seed's data order and initial head (paper, section 4.1).
        defaults: hyperparameters of every task.
        per_task: task -> its differences from ``defaults``, ``{}`` for none.
        bilstm: whether a new bidirectional LSTM reads the encoder's output (paper, section 5.1, left-to-right model).
        pair_head: how tasks read two texts: ``cross_encoder`` as one sequence (paper, figure 4), or ``bi_encoder`` (not
            in the paper) separately. Then u and v are the texts' means of embeddings plus last layer, over all tokens
            but the first and the last, and an output layer reads [u, v, |u - v|], or a regression predicts the cosine
            of u and v (Sentence-BERT, Reimers and Gurevych 2019, section 3).
        optimizer: as ``pretrain.optimizer``; ``bert_adam`` is the paper's, ``muon`` has a single learning rate.
        warmup_ratio: fraction of the steps spent in warm-up (0.1 in google-research/bert, whose rate decays from step 0
            on: with 0.1, transformers' decay from the end of warm-up, used here, is 11 % higher after it).
        weight_decay: as in pretraining.
    """

    model: str = "models/pretrained/phase2"
    teacher: str = NO_TEACHER
    seeds: Annotated[tuple[Number, ...], ListedOnce] = Field(default=(1,), min_length=1)
    defaults: TaskHyperparameters = TaskHyperparameters()
    per_task: dict[Name, TaskHyperparameters] = {}
    bilstm: bool = False
    pair_head: Literal["cross_encoder", "bi_encoder"] = "cross_encoder"
    optimizer: Optimizer = "adamw"
    warmup_ratio: float = Field(default=0.1, ge=0, lt=1)
    weight_decay: float = Field(default=0.01, ge=0, le=1)

    def recipe(self, task: str) -> TaskHyperparameters:
        changes = self.per_task.get(task, TaskHyperparameters())
        return self.defaults.model_copy(update={name: getattr(changes, name) for name in changes.model_fields_set})

    @property
    def recipes(self) -> tuple[TaskHyperparameters, ...]:
        return (self.defaults, *map(self.recipe, self.per_task))
