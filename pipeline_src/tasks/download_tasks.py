"""Stage ``download_tasks``: make the study's tasks from the corpus or by synthetic rules, or fetch official files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, compress
from pathlib import Path
from typing import Any

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.files import atomic_directory
from pipeline_src.base.paths import EVALUATION_TEXTS, TASKS, TEXT
from pipeline_src.base.progress import log
from pipeline_src.base.yaml_files import TASK_SOURCES, TASK_SPECS
from pipeline_src.sources.catalogue import Source, load_source, resolve
from pipeline_src.sources.fetch import describe, fill_folder, obtain, with_local_paths
from pipeline_src.study.data import CorpusParams
from pipeline_src.study.interpretation import InterpretationParams
from pipeline_src.study.task_spec import TaskSpec, load_spec
from pipeline_src.tasks.evaluation_texts import write_texts
from pipeline_src.tasks.examples import read_examples
from pipeline_src.tasks.made import from_corpus
from pipeline_src.tasks.made.from_corpus import read_texts, task_origin
from pipeline_src.tasks.made.synthetic import write_task

# Kind of task -> function that returns the texts of an example.
TEXTS_OF: dict[str, Callable[[Any], Iterable[str]]] = {
    "classification": lambda example: example.texts,
    "multilabel": lambda example: example.texts,
    "choice": lambda example: (f"{example.context} {ending}" for ending in example.endings),
    "span": lambda example: (example.context, example.question),
    "tagging": lambda example: (" ".join(example.words),),
    "retrieval": lambda query: (query.query, *(query.corpus[index] for index in chain.from_iterable(query.pairs))),
}
ABOUT_SYNTHETIC = {
    "description": "Synthetic sentences in the task's official file layout; scores on them say nothing about BERT",
    "licence": "that of this project",
    "citation": "pipeline_src.tasks.made.synthetic",
}


def run(
    *,
    seed: int,
    task_source: str,
    tasks: Sequence[str],
    corpus: CorpusParams,
    interpretation: InterpretationParams,
) -> None:
    """Write ``data/tasks/<task>/`` with a ``source.json`` for every task, and ``data/evaluation_texts``.

    Args:
        task_source: ``synthetic`` or ``official``. It applies to tasks that have a synthetic form. In both cases, the
            tasks of ``made/from_corpus.py`` are made from ``data/text``, and tasks with neither form are fetched.
        interpretation: names the sets of minimal pairs to fetch.
    """
    # All sources are fetched before anything is written.
    obtained = {}
    for name, source in fetched_sources(task_source, tasks, interpretation.pair_sets).items():
        obtained[name] = (source, obtain(name, source))
    origins = {task: task_origin(task, task_source) for task in tasks}
    texts = read_texts(TEXT, corpus.sources, seed, corpus.validation) if "from the corpus" in origins.values() else {}
    with atomic_directory(TASKS) as folder:
        for name, (source, files) in obtained.items():
            fill_folder(name, source, files, folder / name)
        for task in tasks:
            if origins[task] == "from the corpus":
                from_corpus.write_task(task, folder / task, texts, seed)
                describe(f"{task}-from-this-corpus", from_corpus.ABOUT, folder / task)
            elif origins[task] == "synthetic":
                (folder / task).mkdir()
                write_task(task, folder / task, seed)
                describe(f"synthetic-{task}", ABOUT_SYNTHETIC, folder / task)
            try:
                warning = check_task(task, folder / task)
            except PipelineError as error:
                _, files = obtained.get(task, (None, []))
                raise with_local_paths(error, folder / task, files) from None
            if warning is not None:
                log.warning("%s", warning)
    fetched = [task for task in tasks if origins[task] == "fetched"]
    removed_for = fetched if corpus.decontaminate == "remove" else []
    removed: list[tuple[str, str]] = []
    for task in removed_for:
        removed += [(task, text) for text in evaluation_texts(task, TASKS / task)]
    with atomic_directory(EVALUATION_TEXTS) as folder:
        count = write_texts(folder, removed)
    if corpus.decontaminate == "remove":
        names = ", ".join(removed_for) or "none, because no task is fetched"
        log.info("%d texts of evaluation sets to keep out of the training documents: %s", count, names)
    counts = ", ".join(f"{count} {kind}" for kind, count in sorted(Counter(origins.values()).items()))
    log.info("%d tasks in %s: %s", len(tasks), TASKS, counts)


def fetched_sources(task_source: str, tasks: Sequence[str], pair_sets: Sequence[str]) -> dict[str, Source]:
    """Return name -> catalogue entry for everything to fetch: official tasks and sets of minimal pairs."""
    names = [*(task for task in tasks if task_origin(task, task_source) == "fetched"), *pair_sets]
    return {name: resolve(name, load_source(TASK_SOURCES, name)) for name in names}


def evaluation_files(spec: TaskSpec, folder: Path) -> Iterator[tuple[str, str, bool]]:
    # Yields (file, evaluation set, whether it is a test file). A test file is left out if it is not in the folder.
    for name, eval_set in spec.scores.items():
        yield eval_set.file, name, False
        if eval_set.test is not None and (folder / eval_set.test.file).exists():
            yield eval_set.test.file, name, True


def evaluation_texts(task: str, folder: Path) -> list[str]:
    spec = load_spec(task)
    # A dictionary removes duplicates and keeps the order.
    texts: dict[str, None] = {}
    for file, eval_set, is_test in evaluation_files(spec, folder):
        for example in read_examples(spec, folder / file, eval_set, is_test):
            texts.update(dict.fromkeys(TEXTS_OF[spec.kind](example)))
    return list(texts)


def check_task(task: str, folder: Path) -> PipelineError | None:
    """Read every file of a task as fine-tuning does, to find errors before any training.

    Returns:
        A warning about labels that no training example has; None if every label has one.
    """
    spec = load_spec(task)
    training = _read_file(spec, folder, spec.train, None, False)
    for file, eval_set, is_test in evaluation_files(spec, folder):
        _read_file(spec, folder, file, eval_set, is_test)
    return _check_labels_occur(spec, training, folder / spec.train)


def _read_file(spec: TaskSpec, folder: Path, file: str, eval_set: str | None, test: bool) -> list[Any]:
    if not (folder / file).exists():
        hint = f"add it to {TASK_SOURCES}/{spec.name}.yaml, or fix its name in {TASK_SPECS}/{spec.name}.yaml"
        raise PipelineError("a file of the task is missing", file, where=f"task {spec.name}", hint=hint)
    return read_examples(spec, folder / file, eval_set, test)


def _check_labels_occur(spec: TaskSpec, training: Sequence[Any], path: Path) -> PipelineError | None:
    # The labels of a retrieval task only say which of its rows are pairs of a query and its passage.
    if not spec.labels or spec.kind == "retrieval":
        return None
    occurring: set[str] = set()
    unlabelled = 0
    for example in training:
        labels = _labels_of(spec, example)
        occurring.update(labels)
        unlabelled += not labels
    if spec.kind == "multilabel":
        log.info("%s: %d of %d texts have no label, as they may", path, unlabelled, len(training))
    missing = [name for name in spec.labels if name not in occurring]
    if not missing:
        return None
    hint = f"add examples of it, or remove it from {TASK_SPECS}/{spec.name}.yaml; no model will learn to predict it"
    return PipelineError("a label has no training example", ", ".join(missing), where=path, hint=hint)


def _labels_of(spec: TaskSpec, example: Any) -> Sequence[str]:
    # Returns the labels of an example.
    if spec.kind == "tagging":
        return example.tags
    if spec.kind == "multilabel":
        return [*compress(spec.labels, example.label)]
    return [spec.labels[example.label]]
