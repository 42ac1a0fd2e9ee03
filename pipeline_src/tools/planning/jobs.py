"""Every job of a study, as an amount of work."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from pipeline_src.common.catalogue import SOURCES, TASK_SOURCES, entry_names
from pipeline_src.common.files import read_json
from pipeline_src.common.paths import finetuned_model
from pipeline_src.finetuning.recipes import grid_points, recipe_of
from pipeline_src.params.study import Study
from pipeline_src.tasks.files.spec import load_spec
from pipeline_src.tools.planning.corpus_sizes import CorpusSizes
from pipeline_src.tools.planning.counted import predicted_share
from pipeline_src.tools.planning.job_estimate import JobEstimate
from pipeline_src.tools.planning.model_sizes import FORWARD, ModelSizes
from pipeline_src.tools.planning.task_sizes import task_size

# Real tokens over places of a batch, by length. Of books 0.93 at 128 and 0.83 at 512; of the sample's plays and long
# articles 0.98 at 64 and 0.92 at 128; of Wikipedia 0.86 at 128 and 0.56 at 512, since an example stays within its
# document (google-research/bert) and most articles are shorter.
FILL_RATIOS = {64: 0.95, 128: 0.86, 256: 0.72, 512: 0.56}
MODEL_AND_MOMENTS, MODEL = 12, 4  # bytes per parameter of what is saved
CHECKPOINTS = 3  # kept while training: the newest two and the best
SCATTER = 1.2  # the mean of squared lengths over the square of the mean
ONE_VECTOR = ("classification", "choice")  # kinds of tasks that read one token of each sequence
PREDICTION = 170  # bytes of one predicted example
# Of `interpret`: words of a tagging task; passes over the text, pieces of a word, tokens of pairs, prompts and masks
INTERPRETED, PASSES, TOKENS_A_WORD, SHORT_SETS, INTERPRETED_LENGTH = 26_000, 3, 1.3, 100_000, 25
PAIR_SET = (
    640_000  # tokens of a fetched set of pairs: of BLiMP 53,557 sequences of 12, one for each token that is hidden
)
INTERPRETATION = 300_000  # bytes written
CORPUS_STATISTICS, EVALUATION, REPORT = 20_000, 30_000, 120_000  # bytes written; of evaluation, for one task


def _rows_read(share: float, tokens: float, length: float) -> float:
    """Tokens of which pretraining reads what the last block makes: the predicted ones and the first of a sequence."""
    return min(tokens, share * tokens + tokens / length)


class Jobs:
    """The jobs of one study.

    Args:
        study: the parameters in force.
        size: bytes of an output by its path, None where they are not known.
        whole_dump: as for :class:`CorpusSizes`.

    Attributes:
        corpus: the sizes these jobs rest on.
    """

    def __init__(self, study: Study, size: Callable[[str], int | None], whole_dump: bool = False) -> None:
        self.study, self.size = study, size
        self.corpus = CorpusSizes(study, size, whole_dump)
        self.model = ModelSizes.of(study)
        self.unknown_tasks = [task for task in study.tasks if task_size(study, task) is None]

    def parts(self) -> list[str]:
        """Parts of the dump, those beside the listed ones standing for the first."""
        listed = list(self.study.wikipedia.parts)
        return listed + listed[:1] * self.corpus.beside

    def download_wikipedia(self) -> Iterator[JobEstimate]:
        """One job per part."""
        for part in self.parts():
            written = self.corpus.dump(part)
            wire = self.corpus.download(SOURCES, self.study.wikipedia.dump, part) or written
            yield JobEstimate(
                "download_wikipedia", part, wire, "B", read=wire, written=written, extra=_kept(wire, written)
            )

    def download_books(self) -> Iterator[JobEstimate]:
        """One job; nothing comes over the wire for books of one's own."""
        written = self.corpus.books()
        wire = self.corpus.download(SOURCES, self.study.books.source)
        yield JobEstimate("download_books", "all", wire, "B", read=wire, written=written, extra=_kept(wire, written))

    def download_tasks(self) -> Iterator[JobEstimate]:
        """One job for all tasks; synthetic ones and those of the corpus are made, not fetched."""
        fetched = entry_names(TASK_SOURCES) if self.study.task_source == "official" else []
        fetched = [task for task in self.study.tasks if task in fetched] + self.study.interpretation.pair_sets
        wire = sum(self.corpus.download(TASK_SOURCES, name) for name in fetched)
        written = self.size("data/tasks") or wire or 480_000 * len(self.study.tasks)  # as the sample's
        yield JobEstimate("download_tasks", "all", wire, "B", read=wire, written=written, extra=wire)

    def clean_wikipedia(self) -> Iterator[JobEstimate]:
        """One job per part."""
        for part in self.parts():
            dump = self.corpus.dump(part)
            yield JobEstimate("clean_wikipedia", part, dump, "B", read=dump, written=self.corpus.wikipedia_text(part))

    def clean_books(self) -> Iterator[JobEstimate]:
        """One job."""
        raw = self.corpus.books()
        yield JobEstimate("clean_books", "all", raw, "B", read=raw, written=self.corpus.books_text())

    def train_tokenizer(self) -> Iterator[JobEstimate]:
        """One job."""
        text = self.corpus.text()
        written = self.size("data/vocabulary") or 30 * self.study.vocabulary.entries
        yield JobEstimate("train_tokenizer", "all", text, "B", read=text, written=written)

    def tokenize(self) -> Iterator[JobEstimate]:
        """One job."""
        text, tokens = self.corpus.text(), self.corpus.tokens()
        yield JobEstimate("tokenize", "all", text, "B", read=text, written=self.corpus.token_bytes(), tokens=tokens)

    def build_examples(self) -> Iterator[JobEstimate]:
        """One job, both lengths; every pass draws every token."""
        drawn = self.corpus.tokens() * self.study.examples.duplicates
        read, written = self.corpus.token_bytes(), self.corpus.example_bytes()
        yield JobEstimate("build_examples", "all", drawn, "tokens", read=read, written=written, tokens=drawn)

    def pretrain(self, phase: str) -> Iterator[JobEstimate]:
        """One phase: by formula, from steps, batch, length and how full sequences are; as counted where it ran."""
        params, model = self.study.pretrain, self.model
        length, steps = getattr(self.study.examples.lengths, phase), getattr(params.steps, phase)
        slots = steps * params.batch * length
        share = predicted_share(self.study)
        tokens = slots * fill_ratio(length)
        real_length = min(length, length * (fill_ratio(length) + 0.08))
        rows = _rows_read(share, tokens, real_length)
        flops = model.pretraining_flops(tokens, real_length, share * tokens, rows)
        over_bert = model.over_bert(flops, tokens, real_length, share * tokens, rows)
        done = Path(f"results/pretrain/{phase}.json")
        if self.size(f"models/pretrained/{phase}") and self.size(str(done)) and done.exists():
            cost = read_json(done, {"cost": {"tokens": float, "flops": float}})["cost"]
            tokens, flops = cost.get("tokens", tokens), cost.get("flops", flops)
        earlier = MODEL_AND_MOMENTS * model.parameters if phase == "long" else 0
        kept = sum((step <= params.steps.short) == (phase == "short") for step in params.keep_steps)
        written = MODEL_AND_MOMENTS * model.parameters + kept * MODEL * model.parameters
        yield JobEstimate(
            "pretrain", phase, flops, "FLOP",
            read=self.corpus.token_bytes() + self.corpus.example_bytes() + earlier,
            written=self.size(f"models/pretrained/{phase}") or written,
            extra=CHECKPOINTS * MODEL_AND_MOMENTS * model.parameters,
            tokens=tokens, flops=flops,
            slot_flops=model.pretraining_flops(slots, length, share * slots, _rows_read(share, slots, length)),
            steps=steps, length=real_length, predictions=share * tokens, rows=rows, over_bert=over_bert,
            **model.of_a_job(),
        )  # fmt: skip

    def finetune(self) -> Iterator[JobEstimate]:
        """One job per task and restart."""
        for task in self.study.tasks:
            for restart in self.study.finetune.restarts:
                yield self.finetuning(task, str(restart))

    def finetuning(self, task: str, restart: str) -> JobEstimate:
        """Grid points x kinds of weights x epochs of training, a prediction after each, the test files once.

        An LSTM on top (``finetune.bilstm``, ``frozen``) is not counted.
        """
        params, model, size = self.study.finetune, self.model, task_size(self.study, task)
        recipe, weights = recipe_of(params, task), 2 if params.random_baseline else 1
        encoder = self.size("models/pretrained/long") or MODEL_AND_MOMENTS * model.parameters
        known = self.size(finetuned_model(task, restart).as_posix())
        job = JobEstimate(
            "finetune", f"{task}-{restart}", 0, "FLOP",
            read=encoder + (self.size("data/tasks") or 0) / len(self.study.tasks),
            written=known or MODEL * model.encoder_parameters,
            extra=MODEL_AND_MOMENTS * model.parameters,
            **model.of_a_job(),
        )  # fmt: skip
        if size is None:
            return job
        points = list(grid_points(recipe)) * weights
        mean = size.mean(recipe.max_length)
        trained = size.rows * mean * sum(point.epochs for point in points)
        predicted = mean * (size.labelled * len(points) + size.unlabelled)
        # a frozen encoder only predicts
        counted = (trained if recipe.frozen is None else FORWARD * trained) + FORWARD * predicted
        length = min(recipe.max_length, SCATTER * mean / size.sequences)
        reads_first = not params.bilstm and recipe.frozen is None and load_spec(task).kind in ONE_VECTOR
        rows = counted / length if reads_first else None
        flops = model.flops(counted, length, rows=rows)
        return replace(
            job,
            units=flops,
            written=job.written + PREDICTION * (size.labelled * weights + size.unlabelled),
            tokens=trained,
            length=length,
            rows=trained / length if reads_first else 0.0,
            flops=flops,
            slot_flops=flops * recipe.max_length * size.sequences / mean,
            steps=sum(point.epochs * math.ceil(size.rows / point.batch) for point in points),
            over_bert=model.over_bert(flops, counted, length, rows=rows),
        )

    def train_word_vectors(self) -> Iterator[JobEstimate]:
        """One job, which reads every token once an epoch; its table is held and written in float32."""
        params, entries = self.study.word_vectors, self.study.vocabulary.entries
        tokens = self.corpus.tokens() * params.epochs
        written = 4 * entries * params.width
        yield JobEstimate(
            "train_word_vectors", "all", tokens, "tokens", read=self.corpus.token_bytes(), written=written
        )

    def corpus_statistics(self) -> Iterator[JobEstimate]:
        """One job: all text is searched for passages of the tasks."""
        text = self.corpus.text()
        read = text + self.corpus.token_bytes() + self.corpus.example_bytes()
        yield JobEstimate("corpus_statistics", "all", text, "B", read=read, written=CORPUS_STATISTICS)

    def interpret(self) -> Iterator[JobEstimate]:
        """One job: words and sentences through the encoder and its control, several times over."""
        params = self.study.interpretation
        tagged = INTERPRETED * sum(task in self.study.tasks for task in params.tags)
        tokens = 2 * TOKENS_A_WORD * (PASSES * params.words + tagged + SHORT_SETS)
        tokens += 2 * PAIR_SET * len(params.pair_sets)
        flops = FORWARD * self.model.flops(tokens, INTERPRETED_LENGTH)
        read = self.size("models/pretrained/long") or MODEL_AND_MOMENTS * self.model.parameters
        yield JobEstimate(
            "interpret", "all", flops, "FLOP", read=read, written=INTERPRETATION, tokens=tokens, flops=flops,
            length=INTERPRETED_LENGTH, **self.model.of_a_job(),
        )  # fmt: skip

    def evaluate(self) -> Iterator[JobEstimate]:
        """One job, which scores every prediction on labelled files."""
        params = self.study.finetune
        runs = len(params.restarts) * (2 if params.random_baseline else 1)
        sizes = [task_size(self.study, task) for task in self.study.tasks]
        predicted = runs * sum(size.labelled for size in sizes if size is not None)
        read = PREDICTION * predicted + (self.size("data/tasks") or 0)
        yield JobEstimate("evaluate", "all", predicted, "examples", read=read, written=EVALUATION * len(sizes))

    def report(self) -> Iterator[JobEstimate]:
        """One job."""
        yield JobEstimate("report", "all", REPORT, "B", read=30_000, written=REPORT)


def fill_ratio(length: int) -> float:
    """Share of a sequence's places that hold tokens; between the lengths of :data:`FILL_RATIOS` on a line."""
    known = sorted(FILL_RATIOS)
    length = min(max(length, known[0]), known[-1])
    below = max(n for n in known if n <= length)
    above = min(n for n in known if n >= length)
    share = 0 if above == below else (length - below) / (above - below)
    return FILL_RATIOS[below] + share * (FILL_RATIOS[above] - FILL_RATIOS[below])


def _kept(wire: float, written: float) -> float:
    """Bytes beside a download's output: data/downloads holds what came, and the output links into it."""
    return wire if wire > written else 0


@dataclass(frozen=True)
class StageEstimate:
    """What is known of a stage of dvc.yaml.

    Attributes:
        jobs: gives its jobs.
        trains: whether it runs on a GPU where there is one.
    """

    jobs: Callable[[Jobs], Iterator[JobEstimate]]
    trains: bool = False


STAGES = {  # by name in dvc.yaml, which says what reads what
    "download_wikipedia": StageEstimate(Jobs.download_wikipedia),
    "download_books": StageEstimate(Jobs.download_books),
    "download_tasks": StageEstimate(Jobs.download_tasks),
    "clean_wikipedia": StageEstimate(Jobs.clean_wikipedia),
    "clean_books": StageEstimate(Jobs.clean_books),
    "train_tokenizer": StageEstimate(Jobs.train_tokenizer),
    "tokenize": StageEstimate(Jobs.tokenize),
    "build_examples": StageEstimate(Jobs.build_examples),
    "train_word_vectors": StageEstimate(Jobs.train_word_vectors),
    "corpus_statistics": StageEstimate(Jobs.corpus_statistics),
    "pretrain_short": StageEstimate(lambda jobs: jobs.pretrain("short"), trains=True),
    "pretrain_long": StageEstimate(lambda jobs: jobs.pretrain("long"), trains=True),
    "finetune": StageEstimate(Jobs.finetune, trains=True),
    "interpret": StageEstimate(Jobs.interpret),
    "evaluate": StageEstimate(Jobs.evaluate),
    "report": StageEstimate(Jobs.report),
}
