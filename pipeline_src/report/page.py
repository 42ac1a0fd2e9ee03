"""The page: templates filled with what the other modules compute."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import jinja2
from markupsafe import Markup, escape

from pipeline_src.report import cost, figures, provenance
from pipeline_src.report.headline import headline
from pipeline_src.report.interpretation import interpretation
from pipeline_src.report.published import read_paper
from pipeline_src.report.results import PHASES, Results, against, from_corpus, told_better
from pipeline_src.report.table import own_titles
from pipeline_src.report.traced import JsonRef, Traced, computed, show

TEMPLATES = Path(__file__).with_name("templates")
SECTIONS = {
    "scores": "Scores",
    "pretraining": "Pretraining",
    "interpretation": "What the model learnt",
    "corpus": "Corpus",
    "cost": "Cost",
    "errors": "Errors",
    "provenance": "Where this comes from",
}
STEPS_SHOWN = 5  # of the masks filled in one phase, the first and the last among them
BOXES = {  # of the summary: the text under the value, and its format
    "mlm_loss": ("validation MLM loss (nats)", "three"),
    "mlm_gap": ("nats better than unigram counts at [MASK]", "three"),
    "nsp_accuracy": ("validation NSP accuracy", "percent"),
    "rtd_auc": ("validation AUC of replaced tokens", "three"),
    "from_corpus": ("average of the tasks made from this corpus", "one"),
    "from_corpus_error": ("half its interval", "one"),
    "glue": ("GLUE average", "one"),
    "glue_error": ("half its interval", "one"),
    "squad1": ("SQuAD, all answerable: F1", "one"),
    "squad2": ("SQuAD with unanswerable: F1", "one"),
    "swag": ("SWAG accuracy", "one"),
    "ner": ("NER entity F1", "one"),
}


@dataclass(frozen=True)
class Box:
    """One of the values at the top, with half its interval where it has one."""

    label: str
    value: JsonRef
    format: str
    synthetic: bool
    error: JsonRef | None = None


def environment() -> jinja2.Environment:
    """The templates, with filters that show values and name their sources."""
    templates = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES), autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True
    )
    templates.filters |= {
        "show": show,
        "show_title": lambda title: show(title) if isinstance(title, Traced) else title,
        "name": name_of,
        "piece": piece,
        "phase_of": cost.phase_of,
    }
    templates.globals |= {"shade": shade, "first": first}
    return templates


def name_of(ref: JsonRef) -> Markup:
    """The name that a block of JSON stands under: a file, say, whose digits are not a result."""
    return Markup('<span data-key="{}">{}</span>').format(
        ref.traced.sources[0], ref.pointer.rsplit("/", 1)[1].replace("~1", "/").replace("~0", "~")
    )


def first(refs: JsonRef, count: int) -> list[JsonRef]:
    """The first places of a list."""
    return [refs[place] for place in range(min(count, len(refs)))]


def shade(count: int, row: Sequence[int]) -> str:
    """How much of a row of a confusion matrix a count is, for its colour."""
    return f"{count / (sum(row) or 1):.2f}"


def piece(ref: JsonRef) -> Markup:
    """A piece of a masked example; what is to predict is marked, with the word that belongs there."""
    text = show(ref["text"])
    fate = ref["fate"].value
    if fate in (None, "next"):
        return text
    was = Markup("") if fate == "keep" else Markup("<i> {}</i>").format(show(ref["was"]))
    return Markup('<ins class="{}">{}{}</ins>').format(fate, text, was)


def title_of(results: Results) -> str:
    """The report's title: the published model of this size, where there is one."""
    model = headline(results).model
    return f"{model.value['name'] if model else 'BERT'}, from raw text to scores"


def render_page(results: Results, summary: dict[str, float], price: float) -> str:
    """The self-contained page.

    Args:
        results: of the study.
        summary: as ``results/summary.json`` holds it.
        price: of an hour of one process.
    """
    scores, corpus = results.ref("scores.json"), results.ref("corpus.json")
    logs = cost.measured(results)
    rate = JsonRef(price, "--price")
    titles = {row.value["task"]: row["title"] for row in reversed(list(scores["rows"]))}
    template_environment = environment()
    template_environment.filters |= {
        "task_title": lambda task: show(titles[task]) if task in titles else escape(task),
    }
    table = headline(results)
    tasks, throughput = results.tasks, figures.throughput_panel(cost.throughput(logs))
    return template_environment.get_template("report.html.j2").render(
        title=title_of(results),
        sections=list(SECTIONS.items()),
        results=results,
        own=own_titles(results.scores),
        made=list(dict.fromkeys(row.value["title"] for row in scores["rows"] if row.value["task"] in scores["rules"])),
        from_corpus=scores["from_corpus"] if "from_corpus" in scores else [],
        steps=computed("sum", *(results.ref(f"pretrain/{phase}.json")["steps"] for phase in PHASES)),
        took=computed("sum", *(log["seconds"] for log in logs)) if len(logs) == len(PHASES) else None,
        story_panel=figures.story_panel(results),
        last_filled=_last_filled(results.ref(f"pretrain/{PHASES[-1]}.json")),
        told=_told(scores),
        boxes=_boxes(JsonRef(summary, "results/summary.json")),
        words=computed("sum", *(part["words"] for part in corpus["parts"])),
        short=results.ref("pretrain/short.json"),
        long=results.ref("pretrain/long.json"),
        learnt=interpretation(results),
        phases=[results.ref(f"pretrain/{phase}.json") for phase in PHASES],
        filled=[(phase, texts) for phase in PHASES if (texts := _filled_masks(results.ref(f"pretrain/{phase}.json")))],
        paper=read_paper(),
        headline=table,
        restarts=max((len(row["values"]) for row in results.scores["rows"]), default=0),
        rules=scores["rules"],
        score_bars=figures.score_bars(results),
        panels=[*figures.pretraining_panels(results), *([throughput] if throughput else [])],
        throughput=throughput,
        corpus=corpus,
        length_bars=figures.length_bars(results),
        arithmetic=cost.arithmetic(results),
        measured=logs,
        rate=rate,
        price=cost.price(rate, logs),
        stages=cost.stage_costs(),
        error_rows=_error_rows(scores, tasks),
        dropped_rows=[
            (task, file, counts)
            for task, details in tasks.items()
            for file, counts in details["counts"].items()
            if counts.value
        ],
        provenance=provenance.provenance(),
        parameters=provenance.parameters(),
        hashes=provenance.data_hashes(),
    )


def _filled_masks(phase: JsonRef) -> list[list[JsonRef]]:
    """For each text that the model was asked about its answers as training went on, evenly over what is there."""
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
    """What the model answers to each text at the end of its training."""
    return [answers[-1] for answers in _filled_masks(phase)]


BASELINES = {"random_weights": "random weights", "bag_of_words": "counting words"}


def _told(scores: JsonRef) -> list[tuple[str, list[JsonRef], list[JsonRef]]]:
    """For each baseline the titles of the tasks in which we are better by more than noise, and of those where not.

    Of the tasks made from the corpus, or of all where there are none; by their main score.
    """
    rows = from_corpus(scores) or [row for row in scores["rows"] if row.value["main"]]
    found = []
    for key, name in BASELINES.items():
        parted: dict[bool, list[JsonRef]] = {True: [], False: []}
        for row in rows:
            if against(row.value, key):
                parted[told_better(row.value, key)].append(row["title"])
        found.append((name, parted[True], parted[False]))
    return found


def _boxes(summary: JsonRef) -> list[Box]:
    boxes = []
    for name, value in summary.items():
        plain = name.removeprefix("synthetic_")
        if plain.endswith("_error"):  # stands beside its value
            continue
        error = summary[f"{name}_error"] if f"{name}_error" in summary else None
        label, format = BOXES[plain]
        boxes.append(Box(label, value, format, plain != name, error))
    return boxes


def _error_rows(scores: JsonRef, tasks: dict[str, JsonRef]) -> list[tuple[JsonRef, bool, JsonRef]]:
    """For each evaluation set a row of scores, whether its data are synthetic, and what is known of its errors."""
    rows = {row.value["eval_set"]: row for row in reversed(list(scores["rows"]))}
    return [
        (row, tasks[task]["synthetic"].value, tasks[task]["errors"][name])
        for name, row in reversed(rows.items())
        if (task := row.value["task"]) in tasks and name in tasks[task]["errors"]
    ]
