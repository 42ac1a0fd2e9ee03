"""The report's section on interpretation: curves by layer with their controls, and verdicts."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipeline_src.report.figures import BLUE, GREY, INK, ORANGE, new_axes, svg
from pipeline_src.report.results import Results, is_synthetic
from pipeline_src.report.traced import JsonRef, Traced, computed, environment

FILES = ("probes", "senses", "heads", "pairs", "completion", "sentences", "checkpoints", "contents")
BELOW = {"loc": "outside lower center", "ncols": 2}
SIDES = {"model": (BLUE, "-", "this model"), "random": (ORANGE, "--", "random weights")}
TITLES = {"pos": "parts of speech", "ner": "named entities", "capitals": "whether a word was capitalised"}
SENSES = {  # measure of word senses -> title, and the property shared with the nearest neighbour
    "two contexts": ("One word in two senses", "sense"),
    "two sources": ("One word in two sources", "source"),
}
BETTER, NO_BETTER = "better than random weights", "no better than random weights"
WORSE = "worse than random weights"
ONLY_TYPES = "better than random weights, but not than a table of words: it knows the word, not its context"


@dataclass(frozen=True)
class Verdict:
    """One measure: figures of the model and of random weights, the interval of the gain, and the verdict.

    ``words`` is the figure of the most frequent label of each word type, if that applies.
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
    """Online code length of one set of labels, in the layer where it is shortest.

    Attributes:
        what: the labels.
        synthetic: whether they belong to a synthetic task.
        words: number of labels.
        code: kilobits with the model's probes.
        compression: uniform code length / code length, with its interval.
        frequencies: the same of probes that ignore the vectors.
        random: the same of random weights, in their best layer.
        control: the same of the control task in the model's layer; None if there is none.
        gain: interval of the bits per label saved over random weights.
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
    """Content of ``results/interpretation/`` in the report; ``skipped`` has a reason for each missing measure."""

    parts: dict[str, JsonRef]
    panels: list[str]
    verdicts: list[Verdict]
    codes: list[Code]
    skipped: dict[str, str]


def read_interpretation(results: Results) -> dict[str, Any]:
    """Return the files of ``results/interpretation/`` by name, or nothing if one is missing."""
    found = {name: results.documents.get(f"results/interpretation/{name}.json") for name in FILES}
    return {} if None in found.values() else found


def interpretation(results: Results) -> Interpretation | None:
    """Return the section's content; None without the stage's files."""
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


def _probe_verdicts(results: Results, probes: JsonRef) -> list[Verdict]:
    rows = []
    for name, found in _tasks(probes):
        key = found["score"].value
        ours, theirs = (computed("largest", *found[side][key]) for side in SIDES)
        words = found["model"]["type_majority" if key == "accuracy" else "type_majority_balanced"]
        beats = found["gain"].value[0] > 0
        beyond = found["gain_over_types"].value[0] > 0
        says = ONLY_TYPES if beats and not beyond else _says(found)
        what = f"{TITLES.get(name, name)}, best layer"
        rows.append(
            Verdict(what, is_synthetic(results.scores, name), "percent", ours, theirs, words, found["gain"], says)
        )
    return rows


def _code(results: Results, name: str, found: JsonRef) -> Code:
    online = found["online"]
    layer = online["best_layer"].value
    ours = online["model"]
    return Code(
        what=TITLES.get(name, name),
        synthetic=is_synthetic(results.scores, name),
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
    return Verdict(what, False, "percent", ours, theirs, None, found["gain"], _says(found))


def _says(found: JsonRef) -> str:
    low, high = found["gain"].value
    return BETTER if low > 0 else WORSE if high < 0 else NO_BETTER


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
        mark = " (synthetic)" if is_synthetic(results.scores, name) else ""
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
        axes.set(title=title, xlabel="layer", ylabel=f"neighbour of the same {shared} (%)")
        described = f"Share of words whose nearest neighbour is of the same {shared}"
        panels.append(_ended(axes, name.replace(" ", "-"), described))
    if "self-similarity" in parts["probes"]:
        found = parts["probes"]["self-similarity"].value
        axes = new_axes()
        for side, (colour, line, label) in SIDES.items():
            _curve(axes, found[side]["adjusted"], colour, line, label, found[side]["between"], factor=1)
        axes.set(title="A word from sentence to sentence", xlabel="layer", ylabel="adjusted cosine")
        panels.append(_ended(axes, "self-similarity", "Similarity of a word's vectors from sentence to sentence"))
    if "loss by masks" in parts["completion"]:
        found = parts["completion"]["loss by masks"].value
        axes = new_axes()
        for key, colour, label in (("kept", BLUE, "later text kept"), ("cut", ORANGE, "text ends there")):
            axes.plot(found["masks"], found[key], "o-", color=colour, linewidth=1.4, markersize=3.5, label=label)
        axes.axhline(found["unigram"], color=GREY, linewidth=1.2, label="unigrams")
        axes.set(title="More masks in a row", xlabel="masks", ylabel="loss of the first mask (nats)")
        axes.set_xticks(found["masks"])
        axes.figure.legend(**BELOW)
        panels.append(svg(axes, "masks", "Loss of a masked token as more of the tokens after it are masked"))
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
        axes.set(title="Two senses during training", xlabel="step", ylabel="neighbour of the same sense (%)")
        axes.figure.legend(**BELOW)
        panels.append(svg(axes, "senses-by-step", "Share of neighbours of the same sense, by layer and step"))
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
    """Values by layer, with the band of their intervals."""
    points = [factor * value for value in values]
    layers, ends = range(len(points)), [[factor * each[end] for each in between] for end in (0, 1)]
    axes.fill_between(layers, *ends, color=colour, alpha=0.15, linewidth=0)
    axes.plot(layers, points, line, color=colour, linewidth=1.5, marker="o", markersize=3.5, label=label)


def _ended(axes: Any, name: str, description: str) -> str:
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.figure.legend(**BELOW)
    return svg(axes, name, description)


CURVES = {  # side, key of the values if not the score, key of the intervals
    "this model": ("model", None, "between"),
    "random weights": ("random", None, "between"),
    "control task": ("model", "control", "control_between"),
}
ONLINE = {  # side, prefix of its keys
    "this model": ("model", ""),
    "random weights": ("random", ""),
    "control task": ("model", "control_"),
    "frequencies of labels": ("model", "frequencies_"),
}
CODE = {"values": "compression", "between": "between"}  # key of a curve -> key of its figure
PERCENT = {"factor": 100, "digits": 1, "unit": "%", "axis": "percent"}
TIMES = {"factor": 1, "digits": 2, "unit": "×", "axis": "compression"}  # format of compression


def render_interpretation(parts: Mapping[str, Any]) -> str:
    """Render the page.

    Args:
        parts: the files of ``results/interpretation/`` by name without ``.json``; all but ``contents`` are optional.
    """
    model = parts["contents"]["model"]
    sentences = parts.get("sentences", {}).get("attention", [])
    senses = parts.get("senses", {})
    words = senses.get("two contexts", {}).get("words", {})
    words |= {f"{word} (by source)": each for word, each in senses.get("two sources", {}).get("words", {}).items()}
    completions = parts.get("completion", {}).get("completions", [])
    measures = list(_measures(parts))
    roles = parts.get("heads", {}).get("roles", {}).get("roles")
    shown = {"Sentence": sentences, "Word": words, "Layers": measures, "Completion": completions}
    return (
        environment()
        .get_template("interpretation_page.html.j2")
        .render(
            title=f"What the model learnt: {model['title']}",
            model=model,
            sections=[name for name, part in shown.items() if part],
            sentences=[most_attended(each, model) for each in sentences],
            words=words,
            layers=range(model["layers"] + 1),
            measures=measures,
            completions=completions,
            skipped=parts["contents"]["skipped"],
            data={
                "model": model,
                "sentences": sentences,
                "roles": roles,
                "words": words,
                "names": list(words),  # JSON objects do not keep the order
                "measures": measures,
                "completions": completions,
            },
        )
    )


def most_attended(shown: Mapping[str, Any], model: Mapping[str, Any]) -> dict[str, Any]:
    """Return a sentence's words, and for each head the word that each of them attends to most."""
    words = shown["words"]
    flat = np.frombuffer(base64.b64decode(shown["weights"]), np.uint8)
    best = flat.reshape(-1, len(words), len(words)).argmax(-1)
    names = [
        f"{layer + 1}-{head + 1}" for layer in range(len(best) // model["heads"]) for head in range(model["heads"])
    ]
    rows = [{"name": name, "most": [words[at] for at in row]} for name, row in zip(names, best.tolist(), strict=True)]
    return {"words": words, "heads": rows}


def _every_layer(values: Sequence[Any], layers: int) -> list[Any]:
    return list(values) if len(values) == layers else list(values) * layers


def _measures(parts: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Each measure by layer: title, curves by name, and note."""
    for name, found in parts.get("probes", {}).items():
        if "gain" not in found:
            continue
        key = found["score"]
        curves = [
            {"name": label, "values": found[side][other or key], "between": found[side][between]}
            for label, (side, other, between) in CURVES.items()
            if (other or key) in found[side] and not (other and key != "accuracy")
        ]
        words = found["model"]["type_majority" if key == "accuracy" else "type_majority_balanced"]
        every = len(curves[0]["values"])
        types = {"values": [words] * every, "between": [found["model"]["types_between"]] * every}
        curves.append({"name": "a table of words", **types})
        low, high = (100 * value for value in found["gain"])
        tested, documents = found["model"]["tested_on"], found["model"]["documents"]
        title = TITLES.get(name, name)
        yield {
            "title": title[0].upper() + title[1:],
            "curves": curves,
            **PERCENT,
            "note": f"{'Balanced accuracy' if key != 'accuracy' else 'Accuracy'} in percent, {tested:,} words of "
            f"{documents:,} documents; best layer over random weights: {low:+.1f} to {high:+.1f} points "
            "(95 % interval, with documents resampled).",
        }
        online, layers = found["online"], len(found["model"][key])
        low, high = online["gain"]
        yield {
            "title": f"{title[0].upper() + title[1:]}: online code",
            "curves": [
                {"name": label, **{to: _every_layer(online[side][kind + key], layers) for to, key in CODE.items()}}
                for label, (side, kind) in ONLINE.items()
                if f"{kind}compression" in online[side]
            ],
            **TIMES,
            "note": "Length of the uniform code divided by that of the online code of the labels of "
            f"{found['model']['trained_on']:,} words, each portion encoded by a probe trained on the portions before; "
            f"best layer over random weights: {low:+.3f} to {high:+.3f} bits a word saved.",
        }
    for key, (title, shared) in SENSES.items():
        if key not in parts.get("senses", {}):
            continue
        found = parts["senses"][key]
        low, high = (100 * value for value in found["gain"])
        yield {
            "title": title,
            "curves": [
                {"name": "this model", "values": found["accuracy"], "between": found["between"]},
                {"name": "random weights", "values": found["random"], "between": found["random_between"]},
            ],
            **PERCENT,
            "note": f"Share of {found['sentences']} occurrences whose nearest neighbour of another document is of the "
            f"same {shared}, in percent; last layer over random weights: {low:+.1f} to {high:+.1f} points.",
        }
