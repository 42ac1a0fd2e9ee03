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


# Combinations of a frozen encoder's layers that need more than one layer -> how many.
MIN_LAYERS = {"second_to_last": 2, "weighted_last_four": 4, "concat_last_four": 4}
# The special tokens of a sequence with one text.
SPECIAL_TOKENS = 2


def _as_list(value: Any) -> Any:
    # A single number is allowed too, as in `-S finetune.defaults.epochs=1`.
    return value if isinstance(value, list | tuple) else (value,)


Numbers = Annotated[
    tuple[Annotated[int, Field(ge=1, le=1_000_000)], ...], BeforeValidator(_as_list), Field(min_length=1)
]
Rates = Annotated[tuple[Annotated[float, Field(gt=0, le=1)], ...], BeforeValidator(_as_list), Field(min_length=1)]


class TaskHyperparameters(Section):
    """Hyperparameters of a task (paper, appendix A.3 and section 4).

    Attributes:
        learning_rates, epochs, batch_sizes: a number or a list each. Every combination (grid point) is trained, and the
            best on the development set is kept. The defaults are those of section 4.1.
        random_learning_rates, random_epochs: the grid for random initial weights, which often need more epochs. Null:
            the same values as for the pretrained weights.
        head_learning_rate: peak learning rate of all weights but the matrices of the blocks: head, pooler, embeddings,
            norms and biases. With it, ``learning_rates`` are those of the matrices alone. Null: one rate for all.
        max_length: maximum number of tokens in a sequence.
        window_stride: for labels and numbers of one text, number of tokens from the start of a window to the
            start of the next. A text of more than ``max_length`` tokens is read in such windows, whose outputs are
            averaged. Null: it is cut to ``max_length``. No effect for other tasks, and with a teacher.
        random_baseline: whether to train from random weights too, as a baseline of the score.
        dropout: dropout rate for hidden states, attention probabilities and the head. Null: the encoder's rates.
        select: epoch whose weights are kept: the ``last``, or the ``best`` by the main metric on the first evaluation
            set. With ``best``, scores on that set are optimistic, since it selected the model.
        patience: with ``select: best``, number of epochs without a higher score after which training ends. The learning
            rate still falls as for all epochs. Null: all epochs are trained.
        pooling: input of the output layer, for tasks with one answer per text.
            ``cls``: the first token, through the pooler (paper, figure 4).
            ``first_last``: the sum of embeddings and last layer, averaged over all tokens except the first and the
            last, without pooler (Su et al. 2021, Whitening Sentence Representations).
            No effect if an LSTM reads the tokens, nor for word vectors, which are always averaged.
        reinit_layers: number of top blocks that are re-initialized at random, together with the pooler, since
            pretraining has specialised them (Zhang et al. 2020, Revisiting few-sample BERT fine-tuning, section 5).
        class_weights: ``balanced`` weights a loss by n / (k n_c), as scikit-learn's ``compute_class_weight`` does.
            Here n is the number of training examples, k of classes, and n_c of examples of this example's class. The
            weights are applied as in torch's CrossEntropyLoss. Null: all examples count alike. Only for classification
            and tagging; no effect for regressions, other kinds of tasks, and students of a teacher.
        label_counts: numbers of training examples. For each number, the model is also trained on a random subset of
            this size, with the best hyperparameters of the grid. Each is a row of the score tables and a point in the
            plot of score against number of labels. Numbers larger than the training file are skipped. With a teacher,
            all are skipped.
        feature_layers: layers of a frozen encoder that are the input of the task's LSTM (section 5.3, table 7). Null:
            the encoder is fine-tuned.
        layer_epochs: with a teacher, number of epochs that imitate its layers, followed by ``epochs`` that imitate its
            logits; 20 in TinyBERT (Jiao et al. 2020, section 4.2). 0 skips the layers.
        layer_learning_rate: constant learning rate while the layers are imitated; 5e-5 in TinyBERT.
        num_augmentations: with a teacher, number of augmented copies of each text. 30 in TinyBERT, except 20 for SST-2
            and QNLI, 10 for MNLI and QQP (huawei-noah/Pretrained-Language-Model, data_augmentation.py).
    """

    learning_rates: Rates = (5e-5, 4e-5, 3e-5, 2e-5)
    epochs: Numbers = (3,)
    batch_sizes: Numbers = (32,)
    random_learning_rates: Rates | None = None
    random_epochs: Numbers | None = None
    head_learning_rate: float | None = Field(default=None, gt=0, le=1)
    max_length: int = Field(default=128, ge=16, le=8192)
    window_stride: int | None = Field(default=None, ge=1)
    random_baseline: bool = False
    dropout: float | None = Field(default=None, ge=0, lt=1)
    select: Literal["last", "best"] = "last"
    patience: int | None = Field(default=None, ge=1, le=1_000_000)
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
        model: initial encoder: the folder of this study's model, of any BERT in Hugging Face's layout, or
            ``hub:OWNER/NAME@REVISION`` on Hugging Face's hub.
        teacher: folder ``models`` of another study with the same vocabulary, whose fine-tuned models are the teachers
            (TinyBERT's task-specific distillation). ``catalogue/no-teacher``: no teacher.
        seeds: each task is trained once per seed. The seed decides the data order and the initial head (paper, section
            4.1).
        defaults: hyperparameters of all tasks.
        per_task: task -> hyperparameters that differ from ``defaults``; ``{}`` if none does.
        bilstm: whether a new bidirectional LSTM reads the encoder's output (paper, section 5.1, left-to-right model).
        pair_head: how a task on two texts is encoded.
            ``cross_encoder``: both texts in one sequence (paper, figure 4).
            ``bi_encoder``: each text on its own, as in Sentence-BERT (Reimers and Gurevych 2019, section 3; not in the
            paper). A text's vector is the mean of embeddings plus last layer over all tokens except the first and the
            last. The output layer reads [u, v, |u - v|] for the two vectors; a regression predicts their cosine.
        optimizer: see ``pretrain.optimizer``. ``bert_adam`` is the paper's.
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
