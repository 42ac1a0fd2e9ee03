"""Results of a study, read from results/, and their summary (results/summary.json)."""

from __future__ import annotations

import csv
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any

from jinja2 import TemplateError

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.files import read_json
from pipeline_src.base.names import checked_path, shown
from pipeline_src.base.paths import DEFAULT_MODEL, PRETRAINED, RESULTS
from pipeline_src.report.columns import FROM_CORPUS, ScoreRow, error_of_average, glue_average, score_rows, table_rows
from pipeline_src.report.published import model_of, published_scores


@contextmanager
def reading_results(output: str) -> Iterator[None]:
    """Turn errors while making ``output`` (such as "report") into a PipelineError about the results."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, TemplateError) as error:
        frames = traceback.extract_tb(error.__traceback__)
        last = next((frame for frame in reversed(frames) if "pipeline_src" in frame.filename), frames[-1])
        raise PipelineError(
            f"cannot make the {output} from the results",
            f"{type(error).__name__}: {shown(str(error))}",
            where=f"{RESULTS}, read by {Path(last.filename).name}, line {last.lineno}, {last.name}",
            hint="make the results again (`dvc repro --force evaluate interpret`); if the error stays, report a bug",
        ) from error


# Name of the architecture of the published models.
BERT = "bert"
IN_SUMMARY = {("squad1", "f1"), ("squad2", "f1"), ("swag", "accuracy")}
# Key in summary.json -> label and format.
SUMMARY = {
    "mlm_loss": ("validation MLM loss (nats)", "three"),
    "mlm_gap": ("at [MASK], unigram loss minus the model’s (nats)", "three"),
    "nsp_accuracy": ("validation NSP accuracy", "percent"),
    "rtd_auc": ("validation AUC of replaced tokens", "three"),
    "from_corpus": ("average of the tasks made from this corpus", "one"),
    "from_corpus_error": ("half the 95 % interval of that average", "one"),
    "glue": ("GLUE average", "one"),
    "glue_error": ("half the 95 % interval of that average", "one"),
    "squad1": ("SQuAD, all answerable: F1", "one"),
    "squad2": ("SQuAD with unanswerable: F1", "one"),
    "swag": ("SWAG accuracy", "one"),
}
SEEDS = (
    "A score is the mean over seeds, ± their sample standard deviation. The best seed is that of the task’s highest "
    "main score; in another metric or set, another seed may be better."
)
# Maximum number of values in the summary, not counting extra tasks, so that they fit the width of a terminal.
MAX_FIGURES = 8
Curve = dict[str, list[float | None]]


@dataclass(frozen=True)
class Results:
    """Inputs of a report: the files of ``results/``.

    Attributes:
        scores, corpus: ``scores.json``, ``corpus.json``.
        pretrain: phase -> ``pretrain/<phase>.json``.
        tasks: task -> ``tasks/<task>.json``, in the order of the scores. Tasks without a file are left out.
        interpretation: name -> ``interpretation/<name>.json``.
        curves: phase -> columns of ``pretrain/<phase>.tsv``; an empty cell is None.
        architecture: architecture of the models, as in ``model.architecture``.
        encoder: folder of the encoder that was fine-tuned, as in ``finetune.model``.
    """

    scores: dict[str, Any]
    corpus: dict[str, Any]
    pretrain: dict[str, dict[str, Any]]
    tasks: dict[str, dict[str, Any]]
    interpretation: dict[str, dict[str, Any]]
    curves: dict[str, Curve]
    architecture: str = BERT
    encoder: Path = DEFAULT_MODEL

    @cached_property
    def model(self) -> str | None:
        # Name of the published model with the same sizes; None if there is none.

        # Published models are BERTs, so another architecture of the same sizes is none of them.
        if self.architecture != BERT:
            return None
        # An encoder from elsewhere may have other sizes than the pretrained model.
        if not self.encoder.is_relative_to(PRETRAINED):
            return None
        return model_of(self.last["config"])

    @property
    def last(self) -> dict[str, Any]:
        return list(self.pretrain.values())[-1]

    @cached_property
    def rows(self) -> list[ScoreRow]:
        return score_rows(self.scores, published_scores(self.model))

    @cached_property
    def average(self) -> ScoreRow | None:
        return glue_average(self.rows, published_scores(self.model))

    @property
    def table(self) -> list[ScoreRow]:
        rows = table_rows(self.scores, published_scores(self.model))
        return [*rows, self.average] if self.average else rows

    @property
    def title(self) -> str:
        # Only the results of the stage interpret have the title of the architecture, such as "ModernBERT".
        probed = self.interpretation.get("contents", {}).get("model", {})
        return f"{self.model or probed.get('title', 'BERT')}, from raw text to scores"

    @property
    def titles(self) -> dict[str, str]:
        return {row.task: row.title for row in reversed(self.rows)}

    @property
    def sources(self) -> dict[str, str]:
        # Letter -> source, for the published scores in the table.
        sources = {}
        for row in self.table:
            for score in (row.published, row.test_server):
                if score is not None:
                    sources[score.letter] = score.source
        return dict(sorted(sources.items()))

    @property
    def filled_masks(self) -> list[dict[str, Any]]:
        return self.interpretation.get("completion", {}).get("filled masks", [])


def position_losses(results: Results) -> dict[str, dict[str, float]]:
    # Returns range of positions -> phase -> MLM loss at these positions after the phase.
    by_range: dict[str, dict[str, float]] = {}
    for phase, result in results.pretrain.items():
        for positions, loss in result.get("by_position", {}).items():
            by_range.setdefault(positions, {})[phase] = loss

    def first_position(positions: str) -> int:
        return int(positions.split("-")[0])

    # Sort by the first position as a number: "512-1023" comes before "1024-2047".
    return {positions: by_range[positions] for positions in sorted(by_range, key=first_position)}


def all_phases(results: Results) -> str:
    return "both phases" if len(results.pretrain) == 2 else "all phases"


def read_results(folder: Path = RESULTS, architecture: str = BERT, encoder: Path = DEFAULT_MODEL) -> Results:
    scores = read_json(folder / "scores.json")
    corpus = read_json(folder / "corpus.json", {"examples": dict})
    # Names in these files become parts of paths, so they are checked.
    phases = sorted(checked_path(phase, folder / "corpus.json") for phase in corpus["examples"])
    task_files = {}
    for row in scores["rows"]:
        task = checked_path(row["task"], folder / "scores.json")
        task_files[task] = folder / f"tasks/{task}.json"
    measures = sorted((folder / "interpretation").glob("*.json"))
    return Results(
        scores=scores,
        corpus=corpus,
        pretrain={phase: read_json(folder / f"pretrain/{phase}.json") for phase in phases},
        tasks={task: read_json(path) for task, path in task_files.items() if path.exists()},
        interpretation={path.stem: read_json(path) for path in measures},
        curves={phase: read_curve(folder / f"pretrain/{phase}.tsv") for phase in phases},
        architecture=architecture,
        encoder=encoder,
    )


def read_curve(path: Path) -> Curve:
    if not path.exists():
        raise PipelineError("training curve not found", path, hint="run the study, or `dvc pull` its results")
    return curve_of(path.read_text(encoding="utf-8"), path)


def curve_of(text: str, path: str | Path) -> Curve:
    # Returns column -> values. An empty cell is None.
    header, *rows = csv.reader(text.splitlines(), delimiter="\t")
    curve: Curve = {}
    try:
        for number, name in enumerate(header):
            curve[name] = [float(row[number]) if row[number] else None for row in rows]
        return curve
    except (ValueError, IndexError) as error:
        raise PipelineError("a cell is empty or not a number", error, where=path, hint="run its stage again") from None


@dataclass(frozen=True)
class SourceLosses:
    """Validation losses on one text source, from before the first step of a phase to its end."""

    name: str
    steps: list[int]
    losses: list[float]

    @property
    def change(self) -> float:
        return self.losses[-1] - self.losses[0]

    @property
    def nine_tenths(self) -> int | None:
        # The first measured step at which nine tenths of the loss decrease were reached; None if the loss increased.
        fall = -self.change
        if fall <= 0:
            return None
        by_step = zip(self.steps, self.losses, strict=True)
        return next(step for step, loss in by_step if self.losses[0] - loss >= 0.9 * fall)


def source_losses(phase: dict[str, Any], key: str) -> list[SourceLosses]:
    # Returns the losses of each source that was measured at least twice. `key`: "source_losses" or "by_source".
    sources = []
    for name, rows in phase.get(key, {}).items():
        if len(rows) > 1:
            steps = [row["step"] for row in rows]
            losses = [row["mlm_loss"] for row in rows]
            sources.append(SourceLosses(name, steps, losses))
    return sources


def extra_scores(rows: Sequence[ScoreRow]) -> dict[str, ScoreRow]:
    """Return key in the summary -> main row, for each evaluation set of extra tasks (``ScoreRow.extra``).

    The key is the name of the evaluation set, or ``own_<set>`` if the summary already uses this name.
    """
    scores: dict[str, ScoreRow] = {}
    for row in rows:
        if row.main and row.extra:
            name = row.eval_set
            while name in scores or name.removeprefix("synthetic_") in SUMMARY:
                name = f"own_{name}"
            scores[name] = row
    return scores


def summarise(results: Results) -> dict[str, float]:
    """Return the content of summary.json, by which experiments are compared (``dvc exp show``).

    At most ``MAX_FIGURES`` values come first, then the scores of extra tasks (``extra_scores``). Losses are those on
    the validation set after the last phase, and task scores are in percent. ``from_corpus`` is the average over the
    tasks made from this corpus. A key that ends in ``_error`` is half of a 95 % interval. Values are rounded as in the
    report's tables.
    """
    validation = results.last["validation"]
    rows = results.rows
    summary: dict[str, float] = {}
    for name in ("mlm_loss", "mlm_gap", "nsp_accuracy", "rtd_auc"):
        key = "gap" if name == "mlm_gap" else name
        if key in validation:
            summary[name] = round(validation[key], 3)
    from_corpus = [row for row in rows if row.main and row.kind == FROM_CORPUS]
    if from_corpus:
        mean = fmean(row.mean for row in from_corpus)
        summary |= _with_error("from_corpus", mean, from_corpus)
    average = results.average
    if average:
        name = "synthetic_glue" if average.synthetic else "glue"
        summary |= _with_error(name, average.mean, average.averaged)
    for row in rows:
        if (row.eval_set, row.metric_key) in IN_SUMMARY and not row.extra:
            name = f"synthetic_{row.eval_set}" if row.synthetic else row.eval_set
            summary[name] = round(row.mean, 1)
    short = dict(list(summary.items())[:MAX_FIGURES])
    extra = {name: round(row.mean, 1) for name, row in extra_scores(rows).items()}
    return short | extra


def _with_error(name: str, average: float, rows: Sequence[ScoreRow]) -> dict[str, float]:
    figures = {name: round(average, 1)}
    error = error_of_average(rows)
    if error is not None:
        figures[f"{name}_error"] = round(error, 1)
    return figures
