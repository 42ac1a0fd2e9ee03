"""The page report.html, which needs no other files; equal results give equal bytes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from markupsafe import Markup, escape

from pipeline_src.common.yaml_files import parse_yaml
from pipeline_src.config.settled import read_settled
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

PARAMS, SAMPLE = Path("params.yaml"), Path("workflow/presets/sample.yaml")
SECTIONS = {
    "scores": "Scores",
    "pretraining": "Pretraining",
    "interpretation": "What the model learnt",
    "corpus": "Corpus",
    "computation": "Computation",
    "errors": "Errors",
    "parameters": "Parameters",
}
# kind of task -> what "right" means for one of its examples (tasks/task.py, ExampleResult)
RIGHT = {
    "classification": "accuracy",
    "choice": "accuracy",
    "tagging": "token accuracy",
    "span": "F1",
    "retrieval": "nDCG@10",
}
CLOSENESS = "1 − |error| / range"  # of a regression
NUM_STEPS_SHOWN = 5  # steps of a phase for which filled masks are shown, including the first and the last


def render_page(results: Results, summary: Mapping[str, float]) -> str:
    """Render report.html; ``summary`` is the content of ``results/summary.json``."""
    rows, corpus = results.rows, results.corpus
    overlaps = corpus.get("overlap", {}).items()
    filled = {phase: filled_masks(result) for phase, result in results.pretrain.items()}
    study, sample = parameters(PARAMS), parameters(SAMPLE)
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
        last_filled=[answers[-1] for answers in list(filled.values())[-1]],
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
        overlaps=[
            [(name, overlap) for name, overlap in overlaps if (name.split("/")[0] in results.scores["rules"]) == made]
            for made in (False, True)
        ],
        arithmetic=arithmetic(results),
        errors=[[case for case in errors_of(results) if case[0].synthetic == made] for made in (False, True)],
        right=right_of,
        dropped=[
            (task, file, counts)
            for task, details in results.tasks.items()
            for file, counts in details["counts"].items()
            if counts
        ],
        seeds=SEEDS,
        parameters=study,
        changes=changes(study, sample) if sample else None,
        dropout=any(result["config"].get("hidden_dropout_prob", 0.1) for result in results.pretrain.values()),
    )


def piece(token: Mapping[str, Any]) -> Markup:
    """Render a token of a masked example; predicted tokens are marked and followed by the original word."""
    text, fate = escape(token["text"]), token["fate"]
    if fate in (None, "next"):
        return text
    original = "" if fate == "keep" else Markup("<i> {}</i>").format(token["was"])
    return Markup('<ins class="{}">{}{}</ins>').format(fate, text, original)


def filled_masks(phase: Mapping[str, Any]) -> list[list[dict[str, Any]]]:
    """Return, for each text with a mask, the model's predictions at some steps that are evenly spaced over training."""
    texts: dict[str, list[dict[str, Any]]] = {}
    for answer in phase.get("fill_mask", ()):
        texts.setdefault(answer["text"], []).append(answer)
    last = NUM_STEPS_SHOWN - 1
    return [
        answers
        if len(answers) <= NUM_STEPS_SHOWN
        else [answers[round(i * (len(answers) - 1) / last)] for i in range(NUM_STEPS_SHOWN)]
        for answers in texts.values()
    ]


def comparisons(rows: Sequence[ScoreRow]) -> dict[str, dict[str, list[str]]]:
    """Return baseline -> titles of the tasks in which the model is better, worse, or not significantly different.

    Only main scores count; scores of synthetic tasks count only if there are no other tasks.
    """
    main = [row for row in rows if row.main]
    main = [row for row in main if not row.synthetic] or main
    comparison: dict[str, dict[str, list[str]]] = {}
    for row in main:
        for baseline, test in (("random weights", row.vs_random), ("the bag of words", row.vs_words)):
            if test:
                titles = comparison.setdefault(baseline, {"better": [], "worse": [], "not_significant": []})
                better = "better" if test["difference"] > 0 else "worse"
                titles[better if test["significant"] else "not_significant"].append(row.title)
    return comparison


class Box(NamedTuple):
    """A value at the top of the page, with its 95 % interval if it has one."""

    label: str
    value: float
    format: str
    synthetic: bool
    interval: tuple[float, float] | None = None


def summary_label(name: str, extra: Mapping[str, ScoreRow]) -> tuple[str, str, bool] | None:
    """Return (label, format, whether it is synthetic) of a figure of the summary; None if ``name`` is unknown.

    Args:
        extra: see ``extra_scores``.
    """
    if name in extra:
        return extra[name].title, "one", False
    plain = name.removeprefix("synthetic_")
    return (*SUMMARY[plain], plain != name) if plain in SUMMARY else None


def boxes(summary: Mapping[str, float], results: Results) -> list[Box]:
    """Return the values at the top of the page."""
    extra = extra_scores(results.rows)
    values = []
    for name, value in summary.items():
        known = summary_label(name, extra)
        # An error is part of its figure's box.
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
    """Return rows with the computation of training, then rows of the paper's models; empty for old results."""
    counted = {phase: result["cost"] for phase, result in results.pretrain.items() if "cost" in result}
    if not counted:
        return []
    if len(counted) == len(results.pretrain):
        names = ("steps", "tokens", "flops", "normalised_computation")
        counted[all_phases(results)] = {name: sum(cost[name] for cost in counted.values()) for name in names}
    parameters = results.last["parameters"]
    rows = [{"name": phase, "parameters": parameters, "source": "this study"} | cost for phase, cost in counted.items()]
    paper = read_paper()
    plan = paper["phases"]
    tokens = plan["batch"] * sum(steps * length for steps, length in zip(plan["steps"], plan["lengths"], strict=True))
    for model in paper["cost"]:
        unknown = {"tokens": None, "flops": None}
        by_phase = {"name": f"{model['name']}, by phase", "normalised_computation": model["parameters"] * tokens}
        rows += [model | unknown | {"name": f"{model['name']}, as published"}, model | unknown | by_phase]
    return rows


def errors_of(results: Results) -> list[tuple[ScoreRow, dict[str, Any]]]:
    """Return (its first row, its errors) for each evaluation set."""
    first = {row.eval_set: row for row in reversed(results.rows)}
    return [
        (row, results.tasks[row.task]["errors"][name])
        for name, row in reversed(first.items())
        if name in results.tasks.get(row.task, {"errors": {}})["errors"]
    ]


def right_of(kind: str, errors: Mapping[str, Any]) -> str:
    """Return the name of the figure by which ``errors`` shows scores by length; it may differ from the set's metric."""
    # A classification without labels, and so without a confusion matrix, is a regression.
    return CLOSENESS if kind == "classification" and errors["confusion"] is None else RIGHT[kind]


def changes(study: Mapping[str, str], sample: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """Return (key, its value here, its value in the preset) of each parameter that differs."""
    keys = dict.fromkeys([*study, *sample])
    rows = [(key, study.get(key, "not there"), sample.get(key, "not there")) for key in keys]
    return [(key, here, there) for key, here, there in rows if here != there]


def parameters(path: Path) -> dict[str, str]:
    """Return dotted key -> value as text of a file of parameters; empty if there is no such file."""
    try:
        values = dotted(parse_yaml(read_settled(path)))
    except FileNotFoundError:
        return {}
    return {key: value if isinstance(value, str) else json.dumps(value) for key, value in values.items()}
