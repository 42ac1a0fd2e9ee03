"""The stages of dvc.yaml: the module, parameters and command-line keys of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Option:
    """What a person may add to a stage's command, and dvc.yaml never does.

    Attributes:
        help: one line for people.
        type: what makes a value of its text.
        many: whether it takes several values.
    """

    help: str
    type: Callable[[str], object] = str
    many: bool = False


@dataclass(frozen=True)
class Stage:
    """A stage of dvc.yaml.

    Attributes:
        module: where its ``run`` is; what this module imports is the stage's code (``common.fingerprint``).
        help: one line for people.
        blocks: top-level keys of params.yaml that are handed to ``run`` by name.
        items: command-line keys, what the stage's matrix runs over; handed to ``run`` by name.
        options: more keys, handed to ``run`` by name where they are given.
        training: whether it trains, and is handed machine.yaml as ``machine``.
    """

    module: str
    help: str
    blocks: tuple[str, ...] = ()
    items: tuple[str, ...] = ()
    options: Mapping[str, Option] = field(default_factory=dict)
    training: bool = False


EVERY_BLOCK = (  # of params.yaml
    *("seed", "mask_prob", "wikipedia", "books", "corpus", "vocabulary", "examples", "word_vectors", "model"),
    *("pretrain", "objectives", "task_source", "tasks", "finetune", "interpretation"),
)
STAGES = {
    "code": Stage("pipeline_src.code", "check params.yaml; fingerprints of the stages' code"),
    "download_wikipedia": Stage(
        "pipeline_src.sources.download_wikipedia", "fetch one part of the dump", ("wikipedia",), ("part",)
    ),
    "download_books": Stage("pipeline_src.sources.download_books", "fetch the books", ("books",)),
    "download_tasks": Stage(
        "pipeline_src.task_sources.download_tasks",
        "fetch or generate the task sets",
        ("seed", "task_source", "tasks", "corpus", "wikipedia", "interpretation"),
    ),
    "clean_wikipedia": Stage(
        "pipeline_src.wikipedia.clean_wikipedia", "dump part -> clean prose (Beam)", ("wikipedia",), ("part",)
    ),
    "clean_books": Stage("pipeline_src.books.clean_books", "books -> clean prose", ("books",)),
    "train_tokenizer": Stage(
        "pipeline_src.tokenizer_training.train_tokenizer",
        "prose -> vocabulary",
        ("seed", "corpus", "vocabulary", "wikipedia"),
    ),
    "tokenize": Stage("pipeline_src.examples.tokenize_corpus", "prose -> token ids", ("seed", "corpus", "wikipedia")),
    "build_examples": Stage(
        "pipeline_src.examples.build_examples", "token ids -> sentence pairs for both lengths", ("seed", "examples")
    ),
    "corpus_statistics": Stage(
        "pipeline_src.statistics.corpus_statistics",
        "the corpus counted, stage by stage; its overlap with the tasks",
        ("seed", "tasks", "wikipedia"),
    ),
    "train_word_vectors": Stage(
        "pipeline_src.word_vectors.train_word_vectors", "token ids -> vectors without context", ("seed", "word_vectors")
    ),
    "pretrain": Stage(
        "pipeline_src.pretraining.pretrain",
        "masked words + next sentences, one phase",
        ("seed", "mask_prob", "model", "pretrain", "objectives"),
        ("phase",),
        training=True,
    ),
    "finetune": Stage(
        "pipeline_src.finetuning.finetune",
        "train and predict one task",
        ("seed", "model", "finetune"),
        ("task", "restart"),
        training=True,
    ),
    "interpret": Stage(
        "pipeline_src.interpretation.interpret",
        "what the model learnt, beside random weights",
        ("seed", "wikipedia", "corpus", "model", "tasks", "finetune", "interpretation"),
    ),
    "evaluate": Stage(
        "pipeline_src.evaluation.evaluate", "predictions -> scores", ("task_source", "tasks", "finetune")
    ),
    "report": Stage(
        "pipeline_src.report.report",
        "results -> report.html, report.md, summary.json",
        EVERY_BLOCK,  # the page shows them
        options={
            "experiments": Option("compare these instead: DVC experiments, git revisions, `workspace`", many=True),
            "price": Option("of an hour of one process, in any currency (default 1)", float),
        },
    ),
}
