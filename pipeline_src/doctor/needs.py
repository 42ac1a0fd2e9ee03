"""What a study needs of a machine, to within a factor of two or so: bytes of disk and of memory."""

from __future__ import annotations

from typing import Any

DUMPS = {"enwiki": 25e9 / 70, "enwiki-sample": 2e6}  # bytes of one part; all others as the Simple English dump, whole
OTHER_DUMP = 350e6
SHELVES = {"shakespeare-sample": 2e6}
OTHER_SHELF = 4.4e9  # such as BookCorpus, 800 M words (paper, section 3.1)
TASKS = {"official": 1.5e9, "synthetic": 20e6}  # archives and what is unpacked from them
OF_RAW = 2.5  # raw data, its text, its tokens and the plan of examples, over the raw data
KEPT_TWICE = 2  # in the workspace and in DVC's cache
SAVED, WITH_MOMENTS = 4, 12  # bytes a parameter: weights; and the optimiser's two moments
CHECKPOINTS = 3  # while training: the newest two and the best
INSTALLED = 2e9  # the environment
TRAINING = 16  # bytes a parameter in memory: weights, gradients, two moments
BESIDE = 1.5e9  # bytes: libraries, activations of a batch cut to fit
LARGE = 30e6  # parameters: more take a CPU weeks


def parameters(study: Any) -> float:
    """Weights of the encoder (paper, section 3)."""
    model = study.model
    inner = model.feed_forward or 4 * model.hidden
    block = 4 * model.hidden**2 + 2 * model.hidden * inner
    return model.layers * block + (study.vocabulary.entries + model.positions) * model.hidden


def disk(study: Any) -> float:
    """Bytes that the study writes, the environment included."""
    raw = len(study.wikipedia.parts) * DUMPS.get(study.wikipedia.dump, OTHER_DUMP)
    raw += SHELVES.get(study.books.source, OTHER_SHELF)
    weights = parameters(study)
    pretrained = weights * (2 * WITH_MOMENTS + len(study.pretrain.keep_steps) * SAVED)
    finetuned = weights * SAVED * len(study.tasks) * len(study.finetune.restarts)
    kept = OF_RAW * raw + TASKS[study.task_source] + pretrained + finetuned
    return INSTALLED + KEPT_TWICE * kept + CHECKPOINTS * WITH_MOMENTS * weights


def memory(study: Any) -> float:
    """Bytes that its largest stage takes on a CPU."""
    return BESIDE + TRAINING * parameters(study)
