"""The jobs of a study: their amount of work and the size of their outputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from pipeline_src.common.files import read_json
from pipeline_src.common.paths import finetuned_model
from pipeline_src.common.yaml_files import MODELS, TASK_SOURCES
from pipeline_src.config.study import Study
from pipeline_src.finetuning.hyperparameter_grid import FEWEST_STEPS, grid_points
from pipeline_src.tasks.spec import load_spec
from pipeline_src.tools.planning.cost import FORWARD, ModelCost, predicted_share, workload
from pipeline_src.tools.planning.sizes import FROM_CORPUS, SYNTHETIC, CorpusSizes, task_size

# Tokens per position of a batch, by length. Measured: books 0.93 at 128 and 0.83 at 512; the sample's plays and long
# articles 0.98 at 64 and 0.92 at 128; Wikipedia 0.86 at 128 and 0.56 at 512, since an example stays within its document
# (google-research/bert) and most articles are shorter.
FILL_RATIOS = {64: 0.95, 128: 0.86, 256: 0.72, 512: 0.56}
MODEL_AND_MOMENTS, MODEL = 12, 4  # saved bytes per parameter
CHECKPOINTS = 3  # kept while training: the newest two and the best
SYNTHETIC_TASK = 480_000  # bytes of a task set, as in the sample
SCATTER = 1.2  # the mean of squared lengths over the square of the mean
ONE_VECTOR = ("classification", "choice")  # kinds of tasks that read one token of each sequence
DUMP_PER_BOOKS = 0.4  # bytes of a dump that are cleaned in the time of a byte of books: 2.7 MB and 6.8 MB a second
PREDICTION = 170  # bytes of one predicted example
# `interpret`: words of a tagging task, passes over the text, subwords per word, tokens of pairs, prompts and masks
INTERPRETED, PASSES, TOKENS_A_WORD, SHORT_SETS, INTERPRETED_LENGTH = 26_000, 3, 1.3, 100_000, 25
PARADIGMS, PAIR = 67, 550  # of BLiMP: files of 1,000 pairs, and tokens read to judge one pair, each masked in turn
INTERPRETATION = 300_000  # bytes written
CORPUS_STATISTICS, EVALUATION, REPORT = 20_000, 30_000, 120_000  # bytes written; of evaluation, for one task


@dataclass(frozen=True)
class Job:
    """One job's amount of work.

    Attributes:
        stage: name of the stage's command, such as ``pretrain``.
        item: value of the stage's matrix, or ``all``.
        units: amount that the job's time grows with, counted in ``unit``.
        written: bytes.
        extra: bytes on disk besides the output: what was unpacked, checkpoints.
        tokens: tokens without padding that are processed.
        flops: FLOPs of training and predicting.
        slot_flops: FLOPs if every sequence were full, as papers count them.
        width: hidden size of the model that is trained.
    """

    stage: str
    item: str
    units: float
    unit: str = "B"
    written: float = 0.0
    extra: float = 0.0
    tokens: float = 0.0
    flops: float = 0.0
    slot_flops: float = 0.0
    width: int = 0


class Jobs:
    """The jobs of one study, stage by stage.

    Args:
        study: its parameters.
        size: returns the bytes of an output by its path, None if unknown.
        whole_dump: count every part of the dump, not only those listed.
    """

    def __init__(self, study: Study, size: Callable[[str], int | None], whole_dump: bool = False) -> None:
        self.study, self.size = study, size
        self.corpus = CorpusSizes(study, size, whole_dump)
        self.unknown_tasks = [task for task in study.tasks if task_size(study, task) is None]

    @cached_property
    def model(self) -> ModelCost:
        return ModelCost.of(self.study)

    def download(self) -> Iterator[Job]:
        for name in self.study.corpus.sources:
            written = self.corpus.raw(name)
            wire = self.corpus.fetched(name) or written
            yield Job("download", name, wire, written=written, extra=_kept(wire, written))

    def start_model(self) -> Iterator[Job]:
        """One job, which downloads nothing unless an entry of the catalogue is named."""
        entry = Path(self.study.pretrain.init_from)
        wire = self.corpus.download(MODELS, entry.stem) if entry.suffix == ".yaml" else 0
        written = self.size("data/start_model") or wire
        yield Job("start_model", "all", wire, written=written, extra=wire)

    def download_tasks(self) -> Iterator[Job]:
        """One job; tasks that are neither synthetic nor of the corpus, and published minimal pairs, are downloaded."""
        made = {*FROM_CORPUS, *(SYNTHETIC if self.study.task_source == "synthetic" else ())}
        fetched = [task for task in self.study.tasks if task not in made] + self.study.interpretation.pair_sets
        wire = sum(self.corpus.download(TASK_SOURCES, name) for name in fetched)
        written = self.size("data/tasks") or wire or SYNTHETIC_TASK * len(self.study.tasks)
        yield Job("download_tasks", "all", wire, written=written, extra=wire)

    def clean(self) -> Iterator[Job]:
        """One job per source; the rates of the kinds differ, so that the time of books counts by that of dumps."""
        for name, source in self.study.corpus.sources.items():
            units = self.corpus.raw(name) * (1 if source.kind == "wikipedia" else DUMP_PER_BOOKS)
            yield Job("clean", name, units, written=self.corpus.clean(name))

    def train_tokenizer(self) -> Iterator[Job]:
        written = self.size("data/vocabulary") or 30 * self.study.vocabulary.vocab_size
        yield Job("train_tokenizer", "all", self.corpus.text(), written=written)

    def tokenize(self) -> Iterator[Job]:
        tokens, written = self.corpus.tokens(), self.corpus.token_bytes()
        yield Job("tokenize", "all", self.corpus.text(), written=written, tokens=tokens)

    def build_examples(self) -> Iterator[Job]:
        """One job for both lengths; every pass reads every token."""
        tokens = self.corpus.tokens() * self.study.examples.dupe_factor
        yield Job("build_examples", "all", tokens, "tokens", written=self.corpus.example_bytes(), tokens=tokens)

    def train_word_vectors(self) -> Iterator[Job]:
        """One job, which reads every token once per epoch and writes float32."""
        params, entries = self.study.word_vectors, self.study.vocabulary.vocab_size
        tokens = self.corpus.tokens() * params.epochs
        yield Job("train_word_vectors", "all", tokens, "tokens", written=4 * entries * params.width)

    def corpus_statistics(self) -> Iterator[Job]:
        """One job, which searches all text for passages of the tasks."""
        yield Job("corpus_statistics", "all", self.corpus.text(), written=CORPUS_STATISTICS)

    def pretrain(self, phase: str) -> Iterator[Job]:
        """One job per phase, by formula from steps, batch size and length, or as counted when it ran."""
        params, model = self.study.pretrain, self.model
        length, steps = getattr(self.study.examples.max_seq_length, phase), getattr(params.steps, phase)
        slots, fill, share = steps * params.train_batch_size * length, fill_ratio(length), predicted_share(self.study)
        tokens = slots * fill
        flops = _pretraining_flops(model, tokens, min(length, length * (fill + 0.08)), share)
        done = Path(f"results/pretrain/{phase}.json")
        if self.size(f"models/pretrained/{phase}") and self.size(str(done)) and done.exists():
            cost = read_json(done, {"cost": {"tokens": float, "flops": float}})["cost"]
            tokens, flops = cost.get("tokens", tokens), cost.get("flops", flops)
        kept = sum((step <= params.steps.phase1) == (phase == "phase1") for step in params.keep_checkpoint_steps)
        written = MODEL_AND_MOMENTS * model.parameters + kept * MODEL * model.parameters
        yield Job(
            *("pretrain", phase, flops, "FLOP"),
            written=self.size(f"models/pretrained/{phase}") or written,
            extra=CHECKPOINTS * MODEL_AND_MOMENTS * model.parameters,
            tokens=tokens,
            flops=flops,
            slot_flops=_pretraining_flops(model, slots, length, share),
            width=model.hidden_size,
        )

    def finetune(self) -> Iterator[Job]:
        for task in self.study.tasks:
            for restart in self.study.finetune.seeds:
                yield self.finetuning(task, str(restart))

    def finetuning(self, task: str, restart: str) -> Job:
        """Count a task's grid points x kinds of initial weights x epochs, with a prediction after each training.

        An LSTM on top (``finetune.bilstm``, ``frozen``) is not counted.
        """
        params, model, size = self.study.finetune, self.model, task_size(self.study, task)
        recipe = params.recipe(task)
        weights = 2 if recipe.random_baseline else 1
        known = self.size(finetuned_model(task, restart).as_posix())
        job = Job(
            *("finetune", f"{task}-{restart}", 0, "FLOP"),
            written=known or MODEL * model.encoder_parameters,
            extra=MODEL_AND_MOMENTS * model.parameters,
            width=model.hidden_size,
        )
        if size is None:
            return job
        points = list(grid_points(recipe)) * weights
        mean = size.mean(recipe.max_length)
        parts = [count for count in recipe.label_counts if count < size.rows] * weights
        epochs, batch = recipe.epochs[0], recipe.batch_sizes[0]
        learnt = sum(max(count * epochs, FEWEST_STEPS * batch) for count in parts)
        trained = mean * (size.rows * sum(point.epochs for point in points) + learnt)
        predicted = mean * (size.labelled * (len(points) + len(parts)) + size.unlabelled)
        # a frozen encoder only predicts
        counted = (trained if recipe.feature_layers is None else FORWARD * trained) + FORWARD * predicted
        length = min(recipe.max_length, SCATTER * mean / size.sequences)
        reads_first = not params.bilstm and recipe.feature_layers is None and load_spec(task).kind in ONE_VECTOR
        flops = model.flops(workload(counted, length, rows=counted / length if reads_first else None))
        written = job.written + PREDICTION * (size.labelled * (weights + len(parts)) + size.unlabelled)
        full = recipe.max_length * size.sequences / mean
        return replace(job, units=flops, written=written, tokens=trained, flops=flops, slot_flops=flops * full)

    def interpret(self) -> Iterator[Job]:
        """One job: words and sentences several times through the encoder and its random control."""
        params = self.study.interpretation
        tagged = INTERPRETED * sum(task in self.study.tasks for task in params.tags)
        tokens = 2 * TOKENS_A_WORD * (PASSES * params.words + tagged + SHORT_SETS)
        tokens += 2 * PARADIGMS * min(params.pairs_per_set or 1000, 1000) * PAIR * len(params.pair_sets)
        flops = FORWARD * self.model.flops(workload(tokens, INTERPRETED_LENGTH))
        job = Job("interpret", "all", flops, "FLOP", written=INTERPRETATION, tokens=tokens, flops=flops)
        yield replace(job, width=self.model.hidden_size)

    def evaluate(self) -> Iterator[Job]:
        """One job, which scores every prediction on labelled files."""
        params = self.study.finetune
        runs = {
            task: len(params.seeds) * (2 if params.recipe(task).random_baseline else 1) for task in self.study.tasks
        }
        sizes = {task: task_size(self.study, task) for task in self.study.tasks}
        predicted = sum(runs[task] * size.labelled for task, size in sizes.items() if size is not None)
        yield Job("evaluate", "all", predicted, "examples", written=EVALUATION * len(sizes))

    def report(self) -> Iterator[Job]:
        yield Job("report", "all", REPORT, written=REPORT)


def fill_ratio(length: int) -> float:
    """Return the share of a sequence's positions that hold tokens, interpolated in :data:`FILL_RATIOS`."""
    import numpy as np  # every stage imports this module to record its rate, and few need numpy

    return float(np.interp(length, list(FILL_RATIOS), list(FILL_RATIOS.values())))


def _pretraining_flops(model: ModelCost, tokens: float, length: float, share: float) -> float:
    """FLOPs if ``share`` is predicted; the last block computes these rows and the first of each sequence."""
    rows = min(tokens, share * tokens + tokens / length)
    return model.pretraining_flops(workload(tokens, length, share * tokens, rows))


def _kept(wire: float, written: float) -> float:
    """Bytes in data/downloads besides a download's output, which links to it unless it was unpacked."""
    return wire if wire > written else 0


STAGES: dict[str, Callable[[Jobs], Iterator[Job]]] = {  # by name in dvc.yaml
    "download": Jobs.download,
    "start_model": Jobs.start_model,
    "download_tasks": Jobs.download_tasks,
    "clean": Jobs.clean,
    "train_tokenizer": Jobs.train_tokenizer,
    "tokenize": Jobs.tokenize,
    "build_examples": Jobs.build_examples,
    "train_word_vectors": Jobs.train_word_vectors,
    "corpus_statistics": Jobs.corpus_statistics,
    "pretrain_phase1": lambda jobs: jobs.pretrain("phase1"),
    "pretrain_phase2": lambda jobs: jobs.pretrain("phase2"),
    "finetune": Jobs.finetune,
    "interpret": Jobs.interpret,
    "evaluate": Jobs.evaluate,
    "report": Jobs.report,
}
