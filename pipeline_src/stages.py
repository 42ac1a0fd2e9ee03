"""The stages of dvc.yaml, each with its module, its sections of params.yaml and its command-line keys."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field


# A command-line option of a stage that users may give. dvc.yaml never does.
@dataclass(frozen=True)
class Option:
    help: str
    type: Callable[[str], object] = str
    # Whether the option takes several values.
    many: bool = False


@dataclass(frozen=True)
class Stage:
    """A stage of dvc.yaml.

    Attributes:
        module: module with the function ``run``. The module and all its imports are the stage's code
            (``engine.fingerprint``).
        help: help text of the command.
        blocks: sections (top-level keys) of params.yaml that are passed to ``run`` as keyword arguments.
        items: keys of the stage's ``matrix`` or ``foreach`` in dvc.yaml, which select one job. They are passed to
            ``run`` as keyword arguments. If a section has the same name, the argument is called <stage>_<key>.
        options: command-line options that only users give.
        training: whether the stage trains a model. Then ``run`` also gets ``machine``, the settings of machine.yaml.
        on_beam: whether the stage runs on Beam. Then ``run`` also gets ``beam_args`` of machine.yaml.
    """

    module: str
    help: str
    blocks: tuple[str, ...] = ()
    items: tuple[str, ...] = ()
    options: Mapping[str, Option] = field(default_factory=dict)
    training: bool = False
    on_beam: bool = False


# The sections of params.yaml.
EVERY_BLOCK = (
    "seed",
    "mask_prob",
    "corpus",
    "vocabulary",
    "examples",
    "word_vectors",
    "model",
    "pretrain",
    "objectives",
    "task_source",
    "tasks",
    "finetune",
    "interpretation",
)
STAGES = {
    "code": Stage(
        "pipeline_src.code",
        "check params.yaml; fingerprints of the stages' code",
        ("corpus", "pretrain", "finetune"),
    ),
    "download": Stage("pipeline_src.sources.download", "fetch the files of one source", ("corpus",), ("source",)),
    "download_tasks": Stage(
        "pipeline_src.tasks.download_tasks",
        "fetch or generate the task sets",
        ("seed", "task_source", "tasks", "corpus", "interpretation"),
    ),
    "clean": Stage(
        "pipeline_src.text.clean", "files of one source -> clean prose", ("corpus",), ("source",), on_beam=True
    ),
    "train_tokenizer": Stage(
        "pipeline_src.tokenizer.train_tokenizer", "prose -> vocabulary", ("seed", "corpus", "vocabulary")
    ),
    "tokenize": Stage("pipeline_src.examples.tokenize_corpus", "prose -> token ids", ("seed", "corpus"), on_beam=True),
    "build_examples": Stage(
        "pipeline_src.examples.build_examples", "token ids -> sentence pairs for both lengths", ("seed", "examples")
    ),
    "corpus_statistics": Stage(
        "pipeline_src.examples.corpus_statistics",
        "counts of the corpus by stage; its overlap with the tasks",
        ("seed", "tasks", "corpus"),
    ),
    "train_word_vectors": Stage(
        "pipeline_src.family.word_vectors.train_word_vectors",
        "token ids -> static word vectors",
        ("seed", "word_vectors"),
    ),
    "start_model": Stage(
        "pipeline_src.pretrain.start_model",
        "fetch and import the model that pretraining goes on from",
        ("pretrain", "model", "examples"),
    ),
    "pretrain": Stage(
        "pipeline_src.pretrain.pretrain",
        "one phase of pretraining",
        ("seed", "mask_prob", "model", "pretrain", "objectives"),
        ("phase",),
        training=True,
    ),
    "finetune": Stage(
        "pipeline_src.finetune.finetune",
        "train and predict one task",
        ("seed", "model", "finetune"),
        ("task", "seed"),
        training=True,
    ),
    "interpret": Stage(
        "pipeline_src.interpret.interpret",
        "what the model learnt, compared with random weights",
        ("seed", "corpus", "model", "tasks", "finetune", "interpretation"),
    ),
    "evaluate": Stage("pipeline_src.evaluate.evaluate", "predictions -> scores", ("task_source", "tasks", "finetune")),
    "report": Stage(
        "pipeline_src.report.report",
        "results -> report.html, report.md, summary.json; run.html",
        # The report lists all settings.
        EVERY_BLOCK,
        options={
            "experiments": Option("compare these instead: DVC experiments, git revisions, `workspace`", many=True),
            "price": Option("of an hour of one process, in any currency (without it, none is shown)", float),
        },
    ),
}
