"""Render the report page, and the page of the run that made the results, from their templates."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import yaml
from markupsafe import Markup, escape

from pipeline_src.common.parallel import usable_cores
from pipeline_src.common.paths import CORPUS, SCORES
from pipeline_src.report import cost, figures
from pipeline_src.report.going_on import going_on
from pipeline_src.report.headline import headline, read_paper
from pipeline_src.report.interpretation import interpretation
from pipeline_src.report.results import PHASES, SUMMARY, Results, against, further_rows, is_synthetic
from pipeline_src.report.table import further_titles
from pipeline_src.report.traced import JsonRef, computed, environment, load_yaml, show

PACKAGES = ("torch", "tokenizers", "numpy", "apache-beam", "snakemake", "dvc", "matplotlib")
PARAMS, LOCK = Path("params.yaml"), Path("dvc.lock")
SHOWN_OUTPUTS = ("data/", "models/pretrained/", SCORES.as_posix(), CORPUS.as_posix())


SECTIONS = {
    "scores": "Scores",
    "pretraining": "Pretraining",
    "interpretation": "What the model learnt",
    "corpus": "Corpus",
    "computation": "Computation",
    "errors": "Errors",
    "parameters": "Parameters",
}
RUN_SECTIONS = {"cost": "Cost", "provenance": "Where this comes from"}
STEPS_SHOWN = 5  # steps of a phase for which filled masks are shown, including the first and the last


@dataclass(frozen=True)
class Box:
    """One of the values at the top of the page, with half its interval if it has one."""

    label: str | JsonRef
    value: JsonRef
    format: str
    synthetic: bool
    error: JsonRef | None = None


def first(refs: JsonRef, count: int) -> list[JsonRef]:
    """Return the first items of a list."""
    return [refs[place] for place in range(min(count, len(refs)))]


def shade(count: int, row: Sequence[int]) -> str:
    """Return a count's share of its row in a confusion matrix, for the cell's colour."""
    return f"{count / (sum(row) or 1):.2f}"


def piece(ref: JsonRef) -> Markup:
    """Render a token of a masked example; predicted tokens are marked and followed by the original word."""
    text = show(ref["text"])
    fate = ref["fate"].value
    if fate in (None, "next"):
        return text
    was = Markup("") if fate == "keep" else Markup("<i> {}</i>").format(show(ref["was"]))
    return Markup('<ins class="{}">{}{}</ins>').format(fate, text, was)


def title_of(results: Results) -> str:
    """Return the report's title, with the published model of this size if there is one."""
    model = headline(results).model
    return f"{model.value['name'] if model else 'BERT'}, from raw text to scores"


def render_run(results: Results, price: float) -> str:
    """Render what differs between two runs with equal results: time, cost, versions, machine.

    Args:
        results: results of the study.
        price: price of an hour of one process.
    """
    logs, rate = cost.measured(results), JsonRef(price, "--price")
    template_environment = environment()
    template_environment.filters |= {"phase_of": cost.phase_of}
    return template_environment.get_template("run.html.j2").render(
        title=f"{title_of(results)}: this run",
        sections=list(RUN_SECTIONS.items()),
        measured=logs,
        throughput=figures.throughput_panel(cost.throughput(logs)),
        rate=rate,
        price=cost.price(rate, logs),
        stages=cost.stage_costs(),
        on_gpu=cost.on_gpu,
        provenance=provenance(),
        hashes=data_hashes(),
    )


def render_page(results: Results, summary: dict[str, float]) -> str:
    """Render the self-contained page: equal results give equal bytes.

    Args:
        results: results of the study.
        summary: content of ``results/summary.json``.
    """
    scores, corpus = results.ref("scores.json"), results.ref("corpus.json")
    overlaps = corpus["overlap"].items() if "overlap" in corpus else []
    titles = {row.value["task"]: row["title"] for row in reversed(list(scores["rows"]))}
    template_environment = environment()
    template_environment.filters |= {
        "piece": piece,
        "task_title": lambda task: show(titles[task]) if task in titles else escape(task),
    }
    template_environment.globals |= {"shade": shade, "first": first}
    table = headline(results)
    tasks = results.tasks
    return template_environment.get_template("report.html.j2").render(
        title=title_of(results),
        sections=list(SECTIONS.items()),
        results=results,
        own=further_titles(results.scores),
        made=list(dict.fromkeys(row.value["title"] for row in scores["rows"] if row.value["task"] in scores["rules"])),
        from_corpus=scores["from_corpus"] if "from_corpus" in scores else [],
        steps=computed("sum", *(results.ref(f"pretrain/{phase}.json")["steps"] for phase in PHASES)),
        story_panel=figures.story_panel(results),
        own_masks=results.filled_masks,
        last_filled=_last_filled(results.ref(f"pretrain/{PHASES[-1]}.json")),
        verdicts=_verdicts(scores),
        boxes=_boxes(JsonRef(summary, "results/summary.json"), further_rows(scores)),
        words=computed("sum", *(part["words"] for part in corpus["parts"])),
        short=results.ref("pretrain/phase1.json"),
        long=results.ref("pretrain/phase2.json"),
        learnt=interpretation(results),
        phases=[results.ref(f"pretrain/{phase}.json") for phase in PHASES],
        going_on=[(phase, losses) for phase in PHASES if (losses := going_on(results.ref(f"pretrain/{phase}.json")))],
        by_source=[
            (phase, losses)
            for phase in PHASES
            if (losses := going_on(results.ref(f"pretrain/{phase}.json"), "by_source"))
        ],
        filled=[(phase, texts) for phase in PHASES if (texts := _filled_masks(results.ref(f"pretrain/{phase}.json")))],
        paper=read_paper(),
        headline=table,
        restarts=max((len(row["values"]) for row in results.scores["rows"]), default=0),
        rules=scores["rules"],
        score_bars=figures.score_bars(results, synthetic=False),
        label_panels=figures.label_panels(results),
        synthetic_bars=figures.score_bars(results, synthetic=True),
        how_many=lambda refs: computed("how many", *refs),
        synthetic_titles=[line.title for line in table.synthetic if isinstance(line.title, JsonRef)],
        panels=figures.pretraining_panels(results),
        corpus=corpus,
        overlaps=[
            [found for name, found in overlaps if (name.split("/")[0] in results.scores["rules"]) == synthetic]
            for synthetic in (False, True)
        ],
        length_bars=figures.length_bars(results),
        arithmetic=cost.arithmetic(results),
        error_rows=_error_rows(scores, tasks),
        dropped_rows=[
            (task, file, counts)
            for task, details in tasks.items()
            for file, counts in details["counts"].items()
            if counts.value
        ],
        parameters=parameters(),
        dropout=any(results.pretrain[phase]["config"].get("hidden_dropout_prob", 0.1) for phase in PHASES),
    )


def _filled_masks(phase: JsonRef) -> list[list[JsonRef]]:
    """For each text with masks, the model's predictions at some steps, evenly spaced over training."""
    texts: dict[str, list[JsonRef]] = {}
    for answer in phase["fill_mask"] if "fill_mask" in phase else ():
        texts.setdefault(answer.value["text"], []).append(answer)
    return [
        [answers[round(i * (len(answers) - 1) / (STEPS_SHOWN - 1))] for i in range(STEPS_SHOWN)]
        if len(answers) > STEPS_SHOWN
        else answers
        for answers in texts.values()
    ]


def _last_filled(phase: JsonRef) -> list[JsonRef]:
    """The model's predictions for each text at the end of training."""
    return [answers[-1] for answers in _filled_masks(phase)]


BASELINES = {"random_weights": "random weights", "bag_of_words": "counting words"}


def _verdicts(scores: JsonRef) -> list[tuple[str, dict[str, list[JsonRef]]]]:
    """For each baseline, the titles of the tasks in which the model is better, worse, or not significantly different.

    The main scores count, of synthetic tasks only if there are no others.
    """
    main = [row for row in scores["rows"] if row.value["main"]]
    real = [row for row in main if not is_synthetic(scores.value, row.value["task"])]
    verdicts = []
    for key, name in BASELINES.items():
        titles: dict[str, list[JsonRef]] = {"better": [], "worse": [], "not_significant": []}
        for row in real or main:
            if found := against(row.value, key):
                kind = ("better" if found["difference"] > 0 else "worse") if found["significant"] else "not_significant"
                titles[kind].append(row["title"])
        if any(titles.values()):
            verdicts.append((name, titles))
    return verdicts


def summary_label(name: str, own: Mapping[str, JsonRef]) -> tuple[JsonRef | str, str, bool] | None:
    """Return label and format of a figure of the summary, and whether it is synthetic; None for an unknown one.

    Args:
        name: name of the figure.
        own: rows of further tasks, see :func:`pipeline_src.report.results.further_rows`.
    """
    if name in own:
        return own[name]["title"], "one", False
    plain = name.removeprefix("synthetic_")
    return (*SUMMARY[plain], plain != name) if plain in SUMMARY else None


def _boxes(summary: JsonRef, own: Mapping[str, JsonRef]) -> list[Box]:
    boxes = []
    for name, value in summary.items():
        if (found := summary_label(name, own)) and (name in own or not name.endswith("_error")):
            label, format, synthetic = found
            error = summary[f"{name}_error"] if f"{name}_error" in summary and name not in own else None
            boxes.append(Box(label, value, format, synthetic, error))
    return boxes


ErrorRows = list[tuple[JsonRef, bool, JsonRef]]


def _error_rows(scores: JsonRef, tasks: dict[str, JsonRef]) -> tuple[ErrorRows, ErrorRows]:
    """For each evaluation set, real data first: a row of scores, whether it is synthetic, and its errors."""
    rows = {row.value["eval_set"]: row for row in reversed(list(scores["rows"]))}
    found = [
        (row, bool(tasks[task]["synthetic"].value), tasks[task]["errors"][name])
        for name, row in reversed(rows.items())
        if (task := row.value["task"]) in tasks and name in tasks[task]["errors"]
    ]
    return [each for each in found if not each[1]], [each for each in found if each[1]]


def provenance() -> dict[str, str]:
    """Return commit, command to reproduce, versions and machine."""
    commit, changed = _commit()
    versions = []
    for package in PACKAGES:
        try:
            versions.append(f"{package} {version(package)}")
        except PackageNotFoundError:  # a package of another stage
            continue
    return {
        "Commit": (f"{commit} with uncommitted changes" if changed else commit) or "not in a git repository",
        "To reproduce": f"git checkout {commit} && make study" if commit else "make study",
        "Versions": ", ".join([f"Python {platform.python_version()}", *versions]),
        "Made on": f"{platform.system()} {platform.machine()}, {_processor()}, {usable_cores()} cores, "
        f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 1e9:.0f} GB of memory",
    }


def parameters() -> list[tuple[str, str]]:
    """Return the top-level blocks of params.yaml as text; empty without the file."""
    if not PARAMS.exists():
        return []
    return [(name, _flow(value)) for name, value in load_yaml(PARAMS).items()]


def data_hashes() -> list[JsonRef] | None:
    """Return the hashes in dvc.lock of data, pretrained models, scores and corpus counts.

    None if the lock does not belong to these results, as the hashes of scores and counts show.
    """
    if not LOCK.exists():
        return None
    lock = JsonRef(load_yaml(LOCK), LOCK.as_posix())
    outputs = [output for stage in lock["stages"] if "outs" in stage for output in stage["outs"]]
    hashes = {output.value["path"]: output.value.get("md5") for output in outputs}
    if any(hashes.get(path.as_posix()) != _md5(path) for path in (SCORES, CORPUS)):
        return None
    return [output for output in outputs if output.value["path"].startswith(SHOWN_OUTPUTS) and "md5" in output]


def _md5(path: Path) -> str:
    return hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()


def _flow(value: Any) -> str:
    text = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=10_000, allow_unicode=True)
    return text.removesuffix("...\n").strip()


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or "unknown processor"
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else "unknown processor"


def _commit() -> tuple[str, bool]:
    """The commit, and whether tracked files differ from it."""
    try:
        head = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
        changed = subprocess.run(
            ["git", "status", "--porcelain", "-uno"], capture_output=True, text=True
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "", False
    return head, bool(changed)
