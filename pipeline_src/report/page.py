"""The self-contained page report.html. Equal results give equal bytes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from markupsafe import Markup, escape

from pipeline_src.base.yaml_files import parse_yaml
from pipeline_src.report import figures
from pipeline_src.report.columns import FROM_CORPUS, ScoreRow, cells_of_page
from pipeline_src.report.experiments import dotted
from pipeline_src.report.interpretation import interpretation
from pipeline_src.report.published import read_paper
from pipeline_src.report.rendering import render
from pipeline_src.report.results import (
    SEEDS,
    SUMMARY,
    Results,
    all_phases,
    extra_scores,
    position_losses,
    source_losses,
)
from pipeline_src.study.settled import read_settled

PARAMS = Path("params.yaml")
SAMPLE = Path("workflow/presets/sample.yaml")
SECTIONS = {
    "scores": "Scores",
    "pretraining": "Pretraining",
    "interpretation": "What the model learnt",
    "corpus": "Corpus",
    "computation": "Computation",
    "errors": "Errors",
    "parameters": "Parameters",
}
# Kind of task -> name of the measure in `ExampleResult.right` (tasks/task.py).
RIGHT = {
    "classification": "accuracy",
    "multilabel": "subset accuracy",
    "choice": "accuracy",
    "tagging": "token accuracy",
    "span": "F1",
    "retrieval": "nDCG@10",
}
# Name of this measure for a regression.
CLOSENESS = "1 − |error| / range"
# Maximum number of training steps of a phase for which filled masks are shown, including the first and the last step.
NUM_STEPS_SHOWN = 5


def render_page(results: Results, summary: Mapping[str, float]) -> str:
    rows = results.rows
    corpus = results.corpus
    rules = results.scores["rules"]
    # Pairs of (items of real tasks, items of synthetic tasks). The page folds the synthetic ones.
    overlaps: tuple[list[Any], list[Any]] = ([], [])
    for file, overlap in corpus.get("overlap", {}).items():
        task = file.split("/")[0]
        overlaps[task in rules].append((file, overlap))
    errors: tuple[list[Any], list[Any]] = ([], [])
    for row, of_row in errors_of(results):
        errors[row.synthetic].append((row, of_row))
    dropped = []
    for task, details in results.tasks.items():
        for file, counts in details["counts"].items():
            if counts:
                dropped.append((task, file, counts))
    filled = {phase: filled_masks(result) for phase, result in results.pretrain.items()}
    last_phase = list(filled)[-1]
    study = parameters(PARAMS)
    sample = parameters(SAMPLE)
    return render(
        "report.html.j2",
        piece=piece,
        title=results.title,
        sections=list(SECTIONS.items()),
        results=results,
        phases=results.pretrain,
        first=results.pretrain["phase1"],
        last=results.last,
        steps=sum(result["steps"] for result in results.pretrain.values()),
        words=sum(part["words"] for part in corpus["parts"].values()),
        titles=results.titles,
        synthetic_titles=list(dict.fromkeys(row.title for row in rows if row.synthetic)),
        num_seeds=max((len(row.values) for row in rows), default=0),
        has_extra=any(row.extra for row in rows),
        has_from_corpus=any(row.kind == FROM_CORPUS for row in rows),
        filled=filled,
        last_filled=[answers[-1] for answers in filled[last_phase]],
        comparisons=comparisons(rows),
        boxes=boxes(summary, results),
        real=[row for row in results.table if not row.synthetic],
        synthetic=[row for row in results.table if row.synthetic],
        cells_of_page=cells_of_page,
        score_bars=figures.score_bars(rows, synthetic=False),
        synthetic_bars=figures.score_bars(rows, synthetic=True),
        label_panels=figures.label_panels(results),
        panels=figures.pretraining_panels(results),
        story_panel=figures.pretraining_panel(results, "mlm_loss", "story"),
        length_bars=figures.length_bars(results),
        source_losses=source_losses,
        position_losses=position_losses(results),
        paper=read_paper(),
        learnt=interpretation(results),
        corpus=corpus,
        overlaps=overlaps,
        arithmetic=arithmetic(results),
        errors=errors,
        right=right_of,
        dropped=dropped,
        seeds=SEEDS,
        parameters=study,
        changes=changes(study, sample) if sample else None,
        dropout=any(result["config"].get("hidden_dropout_prob", 0.1) for result in results.pretrain.values()),
    )


def piece(token: Mapping[str, Any]) -> Markup:
    # Returns HTML in which a predicted token is marked and followed by the original word.
    text = escape(token["text"])
    fate = token["fate"]
    if fate in (None, "next"):
        return text
    original = "" if fate == "keep" else Markup("<i> {}</i>").format(token["was"])
    return Markup('<ins class="{}">{}{}</ins>').format(fate, text, original)


def filled_masks(phase: Mapping[str, Any]) -> list[list[dict[str, Any]]]:
    # Returns, for each text with a mask, predictions at up to NUM_STEPS_SHOWN steps, evenly spaced over training.
    texts: dict[str, list[dict[str, Any]]] = {}
    for answer in phase.get("fill_mask", ()):
        texts.setdefault(answer["text"], []).append(answer)
    shown = []
    for answers in texts.values():
        if len(answers) > NUM_STEPS_SHOWN:
            # Example: of nine answers, those at the indices 0, 2, 4, 6 and 8 are shown.
            distance = (len(answers) - 1) / (NUM_STEPS_SHOWN - 1)
            answers = [answers[round(number * distance)] for number in range(NUM_STEPS_SHOWN)]
        shown.append(answers)
    return shown


def comparisons(rows: Sequence[ScoreRow]) -> dict[str, dict[str, list[str]]]:
    # Returns baseline -> titles of tasks by outcome. Only main scores count. Synthetic tasks count only if there are no
    # other tasks.
    main = [row for row in rows if row.main]
    not_synthetic = [row for row in main if not row.synthetic]
    comparison: dict[str, dict[str, list[str]]] = {}
    for row in not_synthetic or main:
        for baseline, test in (("random weights", row.vs_random), ("the bag of words", row.vs_words)):
            if not test:
                continue
            titles = comparison.setdefault(baseline, {"better": [], "worse": [], "not_significant": []})
            if not test["significant"]:
                titles["not_significant"].append(row.title)
            elif test["difference"] > 0:
                titles["better"].append(row.title)
            else:
                titles["worse"].append(row.title)
    return comparison


class Box(NamedTuple):
    label: str
    value: float
    format: str
    synthetic: bool
    interval: tuple[float, float] | None = None


def summary_label(name: str, extra: Mapping[str, ScoreRow]) -> tuple[str, str, bool] | None:
    """Return (label, format, whether it is synthetic) for a value of summary.json; None if ``name`` is unknown.

    Args:
        name: key in summary.json.
        extra: rows of extra tasks by name, from ``extra_scores``.
    """
    if name in extra:
        return extra[name].title, "one", False
    plain = name.removeprefix("synthetic_")
    return (*SUMMARY[plain], plain != name) if plain in SUMMARY else None


def boxes(summary: Mapping[str, float], results: Results) -> list[Box]:
    extra = extra_scores(results.rows)
    values = []
    for name, value in summary.items():
        known = summary_label(name, extra)
        # An error is shown in the box of its value, not in its own box.
        if known is None or (name.endswith("_error") and name not in extra):
            continue
        label, format, synthetic = known
        if name in ("glue", "synthetic_glue") and results.average and results.average.chosen:
            label += f" ({results.average.chosen})"
        error = summary.get(f"{name}_error")
        interval = None if error is None else (value - error, value + error)
        values.append(Box(label, value, format, synthetic, interval))
    return values


def arithmetic(results: Results) -> list[dict[str, Any]]:
    # Returns rows of the table of training costs: this study's phases, then the published models. Results of older
    # versions have no costs.
    costs = {phase: result["cost"] for phase, result in results.pretrain.items() if "cost" in result}
    if not costs:
        return []
    if len(costs) == len(results.pretrain):
        total = {}
        for key in ("steps", "tokens", "flops", "normalised_computation"):
            total[key] = sum(cost[key] for cost in costs.values())
        costs[all_phases(results)] = total
    rows = []
    for phase, cost in costs.items():
        rows.append({"name": phase, "parameters": results.last["parameters"], "source": "this study", **cost})

    paper = read_paper()
    plan = paper["phases"]
    tokens = 0
    for steps, length in zip(plan["steps"], plan["lengths"], strict=True):
        tokens += steps * length * plan["batch"]
    for model in paper["cost"]:
        published = model | {"tokens": None, "flops": None, "name": f"{model['name']}, as published"}
        by_phase = published | {
            "name": f"{model['name']}, by phase",
            "normalised_computation": model["parameters"] * tokens,
        }
        rows += (published, by_phase)
    return rows


def errors_of(results: Results) -> list[tuple[ScoreRow, dict[str, Any]]]:
    # Returns (first row, error analysis) of each evaluation set.
    first: dict[str, ScoreRow] = {}
    for row in results.rows:
        first.setdefault(row.eval_set, row)
    errors = []
    for eval_set, row in first.items():
        details = results.tasks.get(row.task)
        if details is not None and eval_set in details["errors"]:
            errors.append((row, details["errors"][eval_set]))
    return errors


def right_of(kind: str, errors: Mapping[str, Any]) -> str:
    # A classification task without a confusion matrix has no labels, so it is a regression.
    return CLOSENESS if kind == "classification" and errors["confusion"] is None else RIGHT[kind]


def changes(study: Mapping[str, str], sample: Mapping[str, str]) -> list[tuple[str, str, str]]:
    # Returns (key, value in this study, value in the preset) for each parameter that differs.
    rows = []
    for key in dict.fromkeys([*study, *sample]):
        here = study.get(key, "not there")
        there = sample.get(key, "not there")
        if here != there:
            rows.append((key, here, there))
    return rows


def parameters(path: Path) -> dict[str, str]:
    try:
        values = dotted(parse_yaml(read_settled(path)))
    except FileNotFoundError:
        return {}
    return {key: value if isinstance(value, str) else json.dumps(value) for key, value in values.items()}
