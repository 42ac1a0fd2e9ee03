"""The page: templates filled with what the other modules found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import jinja2
from markupsafe import Markup, escape

from pipeline_src.report import cost, figures, provenance
from pipeline_src.report.headline import headline
from pipeline_src.report.published import read_paper
from pipeline_src.report.results import PHASES, RESULTS, Results
from pipeline_src.report.table import own_titles
from pipeline_src.report.traced import Node, Shown, computed, show

TEMPLATES = Path(__file__).with_name("templates")
SECTIONS = {
    "scores": "Scores",
    "pretraining": "Pretraining",
    "corpus": "Corpus",
    "cost": "Cost",
    "errors": "Errors",
    "provenance": "Where this comes from",
}
STEPS_SHOWN = 5  # of the masks filled in one phase, the first and the last among them
BOXES = {  # of the summary: what stands under the figure, and its form
    "mlm_loss": ("validation MLM loss (nats)", "three"),
    "mlm_gap": ("nats better than unigram counts at [MASK]", "three"),
    "nsp_accuracy": ("validation NSP accuracy", "percent"),
    "glue": ("GLUE average", "one"),
    "squad1": ("SQuAD, all answerable: F1", "one"),
    "squad2": ("SQuAD with unanswerable: F1", "one"),
    "swag": ("SWAG accuracy", "one"),
    "ner": ("NER entity F1", "one"),
}


@dataclass(frozen=True)
class Box:
    """One of the figures at the top."""

    label: str
    figure: Node
    form: str
    synthetic: bool


def environment() -> jinja2.Environment:
    """Where the templates are, with the filters that make figures of places in JSON."""
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES), autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True
    )
    made.filters |= {
        "show": show,
        "shown": lambda title: show(title) if isinstance(title, Shown) else title,
        "name": name_of,
        "piece": piece,
        "phase_of": cost.phase_of,
    }
    made.globals |= {"shade": shade, "first": first}
    return made


def name_of(node: Node) -> Markup:
    """The name that a block of JSON stands under: a file, say, whose digits are no figures."""
    return Markup('<span data-key="{}">{}</span>').format(
        node.figure.sources[0], node.pointer.rsplit("/", 1)[1].replace("~1", "/").replace("~0", "~")
    )


def first(nodes: Node, count: int) -> list[Node]:
    """The first places of a list."""
    return [nodes[place] for place in range(min(count, len(nodes)))]


def shade(count: int, row: Sequence[int]) -> str:
    """How much of a row of a confusion matrix a count is, for its colour."""
    return f"{count / (sum(row) or 1):.2f}"


def piece(node: Node) -> Markup:
    """A piece of a masked example; what is to predict is marked, with the word that belongs there."""
    text = show(node["text"])
    fate = node["fate"].value
    if fate in (None, "next"):
        return text
    was = Markup("") if fate == "keep" else Markup("<i> {}</i>").format(show(node["was"]))
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
    scores, corpus = results.node("scores.json"), results.node("corpus.json")
    logs = cost.measured(results)
    rate = Node(price, "--price")
    titles = {row.value["task"]: row["title"] for row in reversed(list(scores["rows"]))}
    template_environment = environment()
    template_environment.filters |= {
        "task_title": lambda task: show(titles[task]) if task in titles else escape(task),
    }
    found = headline(results)
    tasks, throughput = results.tasks, figures.throughput_panel(cost.throughput(logs))
    return template_environment.get_template("report.html.j2").render(
        title=title_of(results),
        sections=list(SECTIONS.items()),
        results=results,
        own=own_titles(results.scores),
        made=list(dict.fromkeys(row.value["title"] for row in scores["rows"] if row.value["task"] in scores["rules"])),
        boxes=_boxes(Node(summary, "results/summary.json")),
        words=computed("sum", *(part["words"] for part in corpus["parts"])),
        short=results.node("pretrain/short.json"),
        long=results.node("pretrain/long.json"),
        phases=[results.node(f"pretrain/{phase}.json") for phase in PHASES],
        filled=[(phase, texts) for phase in PHASES if (texts := _filled_masks(results.node(f"pretrain/{phase}.json")))],
        paper=read_paper(),
        headline=found,
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
            for task, found in tasks.items()
            for file, counts in found["counts"].named()
            if counts.value
        ],
        provenance=provenance.provenance(),
        parameters=provenance.parameters(),
        hashes=provenance.data_hashes((RESULTS / "scores.json").read_bytes()),
    )


def _filled_masks(phase: Node) -> list[list[Node]]:
    """For each text that the model was asked about its answers as training went on, evenly over what is there."""
    texts: dict[str, list[Node]] = {}
    for answer in phase["fill_mask"] if "fill_mask" in phase else ():
        texts.setdefault(answer.value["text"], []).append(answer)
    return [
        [answers[round(i * (len(answers) - 1) / (STEPS_SHOWN - 1))] for i in range(STEPS_SHOWN)]
        if len(answers) > STEPS_SHOWN
        else answers
        for answers in texts.values()
    ]


def _boxes(summary: Node) -> list[Box]:
    boxes = []
    for name, figure in summary.named():
        plain = name.removeprefix("synthetic_")
        label, form = BOXES[plain]
        boxes.append(Box(label, figure, form, plain != name))
    return boxes


def _error_rows(scores: Node, tasks: dict[str, Node]) -> list[tuple[Node, bool, Node]]:
    """A row of scores, whether its data are synthetic, and what is known of its errors, once for each score row."""
    rows = {row.value["row"]: row for row in reversed(list(scores["rows"]))}
    return [
        (row, tasks[task]["synthetic"].value, tasks[task]["errors"][name])
        for name, row in reversed(rows.items())
        if (task := row.value["task"]) in tasks and name in tasks[task]["errors"]
    ]
