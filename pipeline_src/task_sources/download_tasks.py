"""Stage ``download_tasks``: every task of the study in its official file layout: of the corpus, made up or fetched."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from pipeline_src.common.catalogue import TASK_SOURCES
from pipeline_src.common.errors import PipelineError
from pipeline_src.common.files import atomic_directory
from pipeline_src.common.paths import TASKS, TEXT
from pipeline_src.common.progress import log
from pipeline_src.params.corpus import CorpusParams
from pipeline_src.params.interpretation import InterpretationParams
from pipeline_src.params.wikipedia import WikipediaParams
from pipeline_src.sources.catalogue import Source, load_source, resolve
from pipeline_src.sources.fetch import Obtained, describe, obtain, place
from pipeline_src.task_sources import from_corpus, mrpc
from pipeline_src.task_sources.sentences import read_texts
from pipeline_src.task_sources.synthetic import RULES, write_task

ARRANGE = {"mrpc": mrpc.arrange}  # tasks whose published files are not yet in GLUE's layout


def run(
    *,
    seed: int,
    task_source: str,
    tasks: Sequence[str],
    corpus: CorpusParams,
    wikipedia: WikipediaParams,
    interpretation: InterpretationParams,
) -> None:
    """Write ``data/tasks/<task>/`` for every task, each with a ``source.json``.

    Args:
        seed: decides every sentence of the synthetic tasks, and which of the corpus are taken.
        task_source: ``synthetic`` or ``official``; a task of one's own, whose source names files on this machine alone,
            comes from there in both, and one that is made from the corpus (``from_corpus``) from ``data/text``.
        tasks: names of tasks.
        corpus, wikipedia: say which documents are held out, and which parts there are.
        interpretation: names the sets of minimal pairs that are fetched beside the tasks.

    Raises:
        PipelineError: no such ``task_source``, or a task cannot be had; ``data/tasks`` is then as it was.
    """
    if task_source not in WRITERS:
        raise PipelineError(
            "no such task_source", task_source, where="params.yaml", remedy=f"use {' or '.join(WRITERS)}"
        )
    made = [task for task in tasks if task in from_corpus.RULES]
    write = WRITERS[task_source]([task for task in tasks if task not in made], seed)
    pairs = _official(interpretation.pair_sets, seed)
    texts = read_texts(TEXT, wikipedia.parts, seed, corpus.validation) if made else {}
    with atomic_directory(TASKS) as folder:
        for task in made:
            from_corpus.write_task(task, folder / task, texts, seed)
            describe(f"{task}-from-this-corpus", from_corpus.ABOUT, folder / task)
        write(folder)
        pairs(folder)
    log.info("%d tasks (%s; %d from the corpus) in %s", len(tasks), task_source, len(made), TASKS)


Write = Callable[[Path], None]  # fills the folder of all tasks


def _synthetic(tasks: Sequence[str], seed: int) -> Write:
    about = {
        "description": "Synthetic sentences in the task's official file layout; scores on them say nothing about BERT",
        "licence": "that of this project",
        "citation": "pipeline_src.task_sources.synthetic",
    }
    own = _obtain({task: _own(task) for task in tasks if task not in RULES})

    def write(folder: Path) -> None:
        for task in tasks:
            if task in own:
                _place(task, own[task], folder)
                continue
            (folder / task).mkdir()
            write_task(task, folder / task, seed)
            describe(f"synthetic-{task}", about, folder / task)

    return write


def _official(tasks: Sequence[str], seed: int) -> Write:
    obtained = _obtain({task: resolve(task, load_source(TASK_SOURCES, task)) for task in tasks})

    def write(folder: Path) -> None:
        for task, found in obtained.items():
            _place(task, found, folder)

    return write


Found = tuple[Source, list[Obtained]]


def _own(task: str) -> Source:
    """The source of a task that has no synthetic form: files on this machine, or there is none to be had."""
    source = resolve(task, load_source(TASK_SOURCES, task))
    if any(file.scheme != "file" for file in source.files):
        remedy = "set `task_source: official` in params.yaml, or give its source file: addresses alone"
        raise PipelineError("no synthetic form of this task", task, where=f"pipeline_src/{TASK_SOURCES}", remedy=remedy)
    return source


def _obtain(sources: dict[str, Source]) -> dict[str, Found]:
    """Everything is fetched and verified before anything is written."""
    return {task: (source, obtain(task, source)) for task, source in sources.items()}


def _place(task: str, found: Found, folder: Path) -> None:
    place(task, *found, folder / task, ARRANGE.get(task))


WRITERS: dict[str, Callable[[Sequence[str], int], Write]] = {"synthetic": _synthetic, "official": _official}
