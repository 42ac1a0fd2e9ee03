"""params.yaml, block ``finetune``: training on the tasks."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from pipeline_src.params.base import NO_TEACHER, Block
from pipeline_src.params.names import ListedOnce, Name, Number

Frozen = Literal[
    "embeddings",
    "second_to_last",
    "last",
    "weighted_last_four",
    "concat_last_four",
    "weighted_all",
    "weighted_with_embeddings",
]


def _several(value: Any) -> Any:
    """One number stands for a list of one, because people type ``-S finetune.default.epochs=1``."""
    return value if isinstance(value, list | tuple) else (value,)


Numbers = Annotated[
    tuple[Annotated[int, Field(ge=1, le=1_000_000)], ...], BeforeValidator(_several), Field(min_length=1)
]
Rates = Annotated[tuple[Annotated[float, Field(gt=0, le=1)], ...], BeforeValidator(_several), Field(min_length=1)]


class Recipe(Block):
    """What may differ from task to task (paper, appendix A.3 and section 4); lists are tried in every combination.

    Attributes:
        learning_rates, epochs, batches: the grid, each one number or a list; the best point by the development set is
            kept. The defaults are section 4.1's.
        max_length: tokens of a sequence at most.
        dropout: while the task is learnt, of attention weights too; null leaves the encoder's own. For one that was
            pretrained with little or none: few labelled examples are soon learnt by heart.
        frozen: which layers of a frozen encoder feed the task's own LSTM (section 5.3, table 7); null trains all.
        layer_epochs: with a teacher, epochs in which its layers are imitated, before its answers are in ``epochs``; 20
            in TinyBERT (Jiao et al. 2020, section 4.2). 0 leaves them out.
        layer_learning_rate: of these, constant; 5e-5 there.
        augmented: with a teacher, copies of each text with other words; 30 in TinyBERT, 20 for SST-2 and QNLI, 10 for
            MNLI and QQP (huawei-noah/Pretrained-Language-Model, data_augmentation.py).
    """

    learning_rates: Rates = (5e-5, 4e-5, 3e-5, 2e-5)
    epochs: Numbers = (3,)
    batches: Numbers = (32,)
    max_length: int = Field(default=128, ge=16, le=4096)
    dropout: float | None = Field(default=None, ge=0, lt=1)
    frozen: Frozen | None = None
    layer_epochs: int = Field(default=20, ge=0, le=1_000_000)
    layer_learning_rate: float = Field(default=5e-5, gt=0, le=1)
    augmented: int = Field(default=0, ge=0, le=1000)


class FinetuneParams(Block):
    """Fine-tuning.

    Attributes:
        model: folder of the encoder to start from, this study's or any BERT in Hugging Face's layout.
        teacher: folder ``models`` of a study of the same vocabulary, whose fine-tuned models the tasks are learnt from
            (TinyBERT's task-specific distillation); ``pipeline_src/catalogue/no-teacher`` where there is none.
        restarts: one run per task and number, each with its own data order and its own head (paper, section 4.1).
        default: the recipe of every task, but for what ``tasks`` says of it.
        tasks: by task, what its recipe says otherwise than ``default``, ``{}`` for nothing (finetuning/recipes.py).
        random_baseline: also train each task from random weights, the score every other is read against.
        bilstm: read the encoder through a randomly initialised bidirectional LSTM (paper, section 5.1, the
            left-to-right model's).
        warmup_share: share of the steps spent in warm-up (0.1 in google-research/bert).
        weight_decay: as in pretraining.
    """

    model: str = "models/pretrained/long"
    teacher: str = NO_TEACHER
    restarts: Annotated[tuple[Number, ...], ListedOnce] = Field(default=(1,), min_length=1)
    default: Recipe = Recipe()
    tasks: dict[Name, Recipe] = {}
    random_baseline: bool = False
    bilstm: bool = False
    warmup_share: float = Field(default=0.1, ge=0, lt=1)
    weight_decay: float = Field(default=0.01, ge=0, le=1)

    @model_validator(mode="after")
    def _a_student_is_trained(self) -> FinetuneParams:
        if self.teacher != NO_TEACHER and any(recipe.frozen for recipe in (self.default, *self.tasks.values())):
            raise ValueError(
                f"teacher ({self.teacher}): a frozen encoder learns nothing from it; set frozen: null, or teacher to "
                f"{NO_TEACHER}"
            )
        return self
