"""params.yaml, block ``finetune``: training on the tasks."""

from __future__ import annotations

from pydantic import Field

from pipeline_src.params.base import Block


class Recipe(Block):
    """What may differ from task to task (paper, appendix A.3 and section 4)."""

    learning_rates: tuple[float, ...] = Field(default=(5e-5, 4e-5, 3e-5, 2e-5), min_length=1)
    epochs: int = Field(default=3, ge=1)
    batch: int = Field(default=32, ge=1)
    max_length: int = Field(default=128, ge=16, le=4096)


class FinetuneParams(Block):
    """Fine-tuning.

    Attributes:
        restarts: one run per task and number, each with its own data order and its own head (paper, section 4.1).
        default: the recipe of every task that ``tasks`` does not name; the best of ``learning_rates`` on the
            development set is kept.
        tasks: recipes of single tasks.
        random_baseline: also train each task from random weights, the score every other is read against.
        bilstm: read the encoder through a randomly initialised bidirectional LSTM (paper, section 5.1, the
            left-to-right model's).
        warmup_share: share of the steps spent in warm-up (0.1 in google-research/bert).
        weight_decay: as in pretraining.
        threads: CPU threads of one run; part of the result.
    """

    restarts: tuple[int, ...] = Field(default=(1,), min_length=1)
    default: Recipe = Recipe()
    tasks: dict[str, Recipe] = {}
    random_baseline: bool = False
    bilstm: bool = False
    warmup_share: float = Field(default=0.1, ge=0, lt=1)
    weight_decay: float = Field(default=0.01, ge=0, le=1)
    threads: int = Field(default=1, ge=1)

    def recipe(self, task: str) -> Recipe:
        """The recipe in force for one task."""
        return self.tasks.get(task, self.default)
