"""What the model learnt, as the report shows it: curves by layer with their controls, and plain verdicts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pipeline_src.report.drawing import BLUE, GREY, INK, ORANGE, new_axes, svg
from pipeline_src.report.results import Results, is_synthetic
from pipeline_src.report.traced import JsonRef, Traced, computed

FILES = ("probes", "senses", "heads", "pairs", "completion", "sentences", "checkpoints", "contents")
BELOW = {"loc": "outside lower center", "ncols": 2}
SIDES = {"model": (BLUE, "-", "this model"), "random": (ORANGE, "--", "random weights")}
TITLES = {"pos": "parts of speech", "ner": "named entities", "capitals": "whether a word was capitalised"}
SENSES = {  # measures of one word in two senses: title, and what its nearest neighbour may share with it
    "two contexts": ("One word in two senses", "sense"),
    "two sources": ("One word in two sources", "source"),
}
BETTER, NO_BETTER = "better than random weights", "no better than random weights: trained too little"
ONLY_TYPES = "better than random weights, but not than a table of words: it knows the word, not its context"


@dataclass(frozen=True)
class Verdict:
    """One measure in a row: figures of the model and of random weights, the interval of the gain, and what it says.

    ``words`` is what a table of word types reaches, where that applies.
    """

    what: str
    synthetic: bool
    format: str
    model: Traced
    random: Traced
    words: Traced | None
    gain: JsonRef
    says: str


@dataclass(frozen=True)
class Code:
    """How short the online code of one set of labels is, in the layer where it is shortest.

    Attributes:
        what: the labels.
        synthetic: whether they are of a synthetic task.
        words: how many labels are sent.
        code: kilobits with the model's probes.
        compression: how many times shorter that is than the uniform code, with its interval.
        frequencies: likewise, of probes that see no vector.
        random: the best layer of random weights, likewise.
        control: the control task in the model's layer; None where there is none.
        gain: the interval of what a word's label takes less than by random weights, in bits.
    """

    what: str
    synthetic: bool
    words: JsonRef
    code: JsonRef
    compression: JsonRef
    between: JsonRef
    frequencies: JsonRef
    random: Traced
    control: JsonRef | None
    gain: JsonRef


@dataclass(frozen=True)
class Interpretation:
    """Everything of ``results/interpretation/`` that the report shows.

    Attributes:
        parts: the files by name.
        panels: pictures.
        verdicts: a row for each measure that has an interval.
        codes: a row for each set of labels that is read off the layers.
        skipped: measure -> reason.
    """

    parts: dict[str, JsonRef]
    panels: list[str]
    verdicts: list[Verdict]
    codes: list[Code]
    skipped: dict[str, str]


def read_interpretation(results: Results) -> dict[str, Any]:
    """The files of ``results/interpretation/`` by name; empty where the study was not looked into."""
    found = {name: results.documents.get(f"results/interpretation/{name}.json") for name in FILES}
    return {} if None in found.values() else found


def interpretation(results: Results) -> Interpretation | None:
    """What the section shows; None where the study was not looked into."""
    if not read_interpretation(results):
        return None
    parts = {name: results.ref(f"interpretation/{name}.json") for name in FILES}
    return Interpretation(
        parts=parts,
        panels=[*_probe_panels(results, parts["probes"]), *_other_panels(parts)],
        verdicts=[*_probe_verdicts(results, parts["probes"]), *_other_verdicts(parts)],
        codes=[_code(results, *labels) for labels in _tasks(parts["probes"])],
        skipped=parts["contents"].value["skipped"],
    )


def _tasks(probes: JsonRef) -> list[tuple[str, JsonRef]]:
    return [(name, found) for name, found in probes.items() if "gain" in found]


def _synthetic(results: Results, name: str) -> bool:
    return is_synthetic(results.scores, name)


def _probe_verdicts(results: Results, probes: JsonRef) -> list[Verdict]:
    rows = []
    for name, found in _tasks(probes):
        key = found["score"].value
        ours, theirs = (computed("largest", *found[side][key]) for side in SIDES)
        words = found["model"]["type_majority" if key == "accuracy" else "type_majority_balanced"]
        beats = found["gain"].value[0] > 0
        beyond = found["gain_over_types"].value[0] > 0
        says = NO_BETTER if not beats else BETTER if beyond else ONLY_TYPES
        what = f"{TITLES.get(name, name)}, best layer"
        rows.append(Verdict(what, _synthetic(results, name), "percent", ours, theirs, words, found["gain"], says))
    return rows


def _code(results: Results, name: str, found: JsonRef) -> Code:
    online = found["online"]
    layer = online["best_layer"].value
    ours = online["model"]
    return Code(
        what=TITLES.get(name, name),
        synthetic=_synthetic(results, name),
        words=found["model"]["trained_on"],
        frequencies=ours["frequencies_compression"][0],
        code=ours["code"][layer],
        compression=ours["compression"][layer],
        between=ours["between"][layer],
        random=computed("largest", *online["random"]["compression"]),
        control=ours["control_compression"][layer] if "control_compression" in ours else None,
        gain=online["gain"],
    )


def _other_verdicts(parts: dict[str, JsonRef]) -> list[Verdict]:
    rows = []
    for key, (title, _) in SENSES.items():
        if key in parts["senses"]:
            found = parts["senses"][key]
            last = len(found["accuracy"]) - 1
            rows.append(_verdict(f"{title.lower()}, last layer", found["accuracy"][last], found["random"][last], found))
    for _, found in parts["pairs"].items():
        rows.append(_verdict(found["title"].value, found["balanced"], found["random"], found))
    return rows


def _verdict(what: str, ours: JsonRef, theirs: JsonRef, found: JsonRef) -> Verdict:
    says = BETTER if found["gain"].value[0] > 0 else NO_BETTER
    return Verdict(what, False, "percent", ours, theirs, None, found["gain"], says)


def _probe_panels(results: Results, probes: JsonRef) -> list[str]:
    panels = []
    for name, ref in _tasks(probes):
        found, key = ref.value, ref.value["score"]
        axes = new_axes()
        for side, (colour, line, label) in SIDES.items():
            _curve(axes, found[side][key], colour, line, label, found[side]["between"])
        words = found["model"]["type_majority" if key == "accuracy" else "type_majority_balanced"]
        axes.axhline(100 * words, color=GREY, linewidth=1.2, label="a table of words")
        if key == "accuracy" and "control" in found["model"]:
            _curve(axes, found["model"]["control"], INK, ":", "control task", found["model"]["control_between"])
        mark = " (synthetic)" if _synthetic(results, name) else ""
        kind = "accuracy (percent)" if key == "accuracy" else "balanced accuracy (percent)"
        axes.set(title=f"{TITLES.get(name, name).capitalize()}{mark}", xlabel="layer", ylabel=kind)
        panels.append(_ended(axes, f"probe-{name}", f"What a probe reads off each layer: {TITLES.get(name, name)}"))
    return panels


def _other_panels(parts: dict[str, JsonRef]) -> list[str]:
    panels = []
    for name, (title, shared) in SENSES.items():
        if name not in parts["senses"]:
            continue
        found = parts["senses"][name].value
        axes = new_axes()
        for key, between, side in (("accuracy", "between", "model"), ("random", "random_between", "random")):
            _curve(axes, found[key], *SIDES[side], found[between])
        axes.axhline(50, color=GREY, linewidth=1.2, label="chance")
        axes.set(title=title, xlabel="layer", ylabel="nearest neighbour right (percent)")
        described = f"Share of words whose nearest neighbour is of the same {shared}"
        panels.append(_ended(axes, name.replace(" ", "-"), described))
    if "self-similarity" in parts["probes"]:
        found = parts["probes"]["self-similarity"].value
        axes = new_axes()
        for side, (colour, line, label) in SIDES.items():
            _curve(axes, found[side]["adjusted"], colour, line, label, found[side]["between"], factor=1)
        axes.set(title="A word from sentence to sentence", xlabel="layer", ylabel="cosine, less any two words'")
        panels.append(_ended(axes, "self-similarity", "How alike a word's vectors are from sentence to sentence"))
    if "structure" in parts["heads"]:
        found = parts["heads"]["structure"].value
        axes = new_axes()
        for side, style in SIDES.items():
            _curve(axes, found[side], *style, found[f"{side}_between"])
        axes.axhline(100 * found["neighbours"], color=GREY, linewidth=1.2, label="neighbours")
        axes.set(title="Edges of dependency trees", xlabel="layer", ylabel="found by a linear map (percent)")
        panels.append(
            _ended(axes, "structure", "Share of the edges of dependency trees that a linear map finds, by layer")
        )
    if "loss by masks" in parts["completion"]:
        found = parts["completion"]["loss by masks"].value
        axes = new_axes()
        for key, colour, label in (("kept", BLUE, "text behind kept"), ("cut", ORANGE, "text ends there")):
            axes.plot(found["masks"], found[key], "o-", color=colour, linewidth=1.4, markersize=3.5, label=label)
        axes.axhline(found["unigram"], color=GREY, linewidth=1.2, label="unigrams")
        axes.set(title="More masks to the right", xlabel="masks in a row", ylabel="loss of the first (nats)")
        axes.set_xticks(found["masks"])
        axes.figure.legend(**BELOW)
        panels.append(svg(axes, "masks", "Loss of a token as more of the tokens behind it are hidden"))
    rows = parts["checkpoints"]["checkpoints"].value if "checkpoints" in parts["checkpoints"] else []
    if rows and "two contexts" in rows[0]:
        axes = new_axes()
        for number, layer in enumerate(zip(*(row["two contexts"] for row in rows), strict=True)):
            shade = 0.3 + 0.7 * number / max(len(rows[0]["two contexts"]) - 1, 1)
            ends = {0: "embeddings", len(rows[0]["two contexts"]) - 1: "last layer"}.get(number, "")
            steps = [row["step"] for row in rows]
            axes.plot(
                steps, [100 * value for value in layer], "o-", color=BLUE, alpha=shade, markersize=3.5, label=ends
            )
        axes.set(title="Two senses as training went on", xlabel="step", ylabel="nearest neighbour right (percent)")
        axes.figure.legend(**BELOW)
        panels.append(svg(axes, "senses-by-step", "Senses told apart by each layer, by training step"))
    return panels


def _curve(
    axes: Any,
    values: Sequence[float],
    colour: str,
    line: str,
    label: str,
    between: Sequence[Sequence[float]],
    factor: int = 100,
) -> None:
    """Values by layer, in the band from one end of their intervals to the other."""
    points = [factor * value for value in values]
    layers, ends = range(len(points)), [[factor * each[end] for each in between] for end in (0, 1)]
    axes.fill_between(layers, *ends, color=colour, alpha=0.15, linewidth=0)
    axes.plot(layers, points, line, color=colour, linewidth=1.5, marker="o", markersize=3.5, label=label)


def _ended(axes: Any, name: str, description: str) -> str:
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.figure.legend(**BELOW)
    return svg(axes, name, description)
