"""The report's section on interpretation: curves by layer with their controls, and verdicts."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipeline_src.report.figures import BELOW, BLUE, GREY, INK, ORANGE, new_axes, svg
from pipeline_src.report.rendering import environment
from pipeline_src.report.results import Results

FILES = ("probes", "senses", "heads", "pairs", "completion", "sentences", "checkpoints", "contents")
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

    title: str
    synthetic: bool
    model: float
    random: float
    words: float | None
    gain: list[float]
    verdict: str


@dataclass(frozen=True)
class Interpretation:
    """Content of ``results/interpretation/`` in the report; ``probes`` by title, with whether they are synthetic."""

    parts: dict[str, Any]
    panels: list[str]
    verdicts: list[Verdict]
    probes: list[tuple[str, bool, dict[str, Any]]]


def is_complete(parts: Mapping[str, Any]) -> bool:
    """Return whether all files of ``results/interpretation/`` are among ``parts``, by name."""
    return parts.keys() >= set(FILES)


def interpretation(results: Results) -> Interpretation | None:
    """Return the section's content; None without the stage's files."""
    parts = results.interpretation
    if not is_complete(parts):
        return None
    probes = [
        (TITLES.get(name, name), name in results.scores["rules"], probe)
        for name, probe in parts["probes"].items()
        if "gain" in probe
    ]
    return Interpretation(
        parts=parts,
        panels=[*(_probe_panel(*probe) for probe in probes), *_other_panels(parts)],
        verdicts=[*(_probe_verdict(*probe) for probe in probes), *_other_verdicts(parts)],
        probes=probes,
    )


def _probe_verdict(title: str, synthetic: bool, probe: dict[str, Any]) -> Verdict:
    key = probe["score"]
    beats, beyond = probe["gain"][0] > 0, probe["gain_over_types"][0] > 0
    return Verdict(
        title=f"{title}, best layer",
        synthetic=synthetic,
        model=max(probe["model"][key]),
        random=max(probe["random"][key]),
        words=_words(probe),
        gain=probe["gain"],
        verdict=ONLY_TYPES if beats and not beyond else _verdict(probe["gain"]),
    )


def _words(probe: dict[str, Any]) -> float:
    """Score of a table of words, which gives each its most frequent label."""
    return probe["model"]["type_majority" if probe["score"] == "accuracy" else "type_majority_balanced"]


def _other_verdicts(parts: dict[str, Any]) -> list[Verdict]:
    measures = [
        (f"{title.lower()}, last layer", senses["accuracy"][-1], senses["random"][-1], senses["gain"])
        for key, (title, _) in SENSES.items()
        if (senses := parts["senses"].get(key))
    ]
    pairs = [(pair["title"], pair["balanced"], pair["random"], pair["gain"]) for pair in parts["pairs"].values()]
    return [
        Verdict(title, False, model, random, None, gain, _verdict(gain))
        for title, model, random, gain in [*measures, *pairs]
    ]


def _verdict(gain: Sequence[float]) -> str:
    low, high = gain
    return BETTER if low > 0 else WORSE if high < 0 else NO_BETTER


def _probe_panel(title: str, synthetic: bool, probe: dict[str, Any]) -> str:
    axes, key = new_axes(), probe["score"]
    for side, style in SIDES.items():
        _curve(axes, probe[side][key], *style, probe[side]["between"])
    axes.axhline(100 * _words(probe), color=GREY, linewidth=1.2, label="a table of words")
    if key == "accuracy" and "control" in probe["model"]:
        _curve(axes, probe["model"]["control"], INK, ":", "control task", probe["model"]["control_between"])
    mark = " (synthetic)" if synthetic else ""
    kind = "accuracy (percent)" if key == "accuracy" else "balanced accuracy (percent)"
    axes.set(title=f"{title.capitalize()}{mark}", xlabel="layer", ylabel=kind)
    return _with_layers(axes, f"probe-{title}", f"What a probe reads off each layer: {title}")


def _other_panels(parts: dict[str, Any]) -> list[str]:
    panels = []
    for name, (title, shared) in SENSES.items():
        if name not in parts["senses"]:
            continue
        senses = parts["senses"][name]
        axes = new_axes()
        for key, between, side in (("accuracy", "between", "model"), ("random", "random_between", "random")):
            _curve(axes, senses[key], *SIDES[side], senses[between])
        axes.axhline(50, color=GREY, linewidth=1.2, label="chance")
        axes.set(title=title, xlabel="layer", ylabel=f"neighbour of the same {shared} (%)")
        described = f"Share of words whose nearest neighbour is of the same {shared}"
        panels.append(_with_layers(axes, name.replace(" ", "-"), described))
    if "self-similarity" in parts["probes"]:
        cosines = parts["probes"]["self-similarity"]
        axes = new_axes()
        for side, style in SIDES.items():
            _curve(axes, cosines[side]["adjusted"], *style, cosines[side]["between"], factor=1)
        axes.set(title="A word from sentence to sentence", xlabel="layer", ylabel="adjusted cosine")
        panels.append(_with_layers(axes, "self-similarity", "Similarity of a word's vectors from sentence to sentence"))
    if "loss by masks" in parts["completion"]:
        found = parts["completion"]["loss by masks"]
        axes = new_axes()
        for key, colour, label in (("kept", BLUE, "later text kept"), ("cut", ORANGE, "text ends there")):
            axes.plot(found["masks"], found[key], "o-", color=colour, linewidth=1.4, markersize=3.5, label=label)
        axes.axhline(found["unigram"], color=GREY, linewidth=1.2, label="unigrams")
        axes.set(title="More masks in a row", xlabel="masks", ylabel="loss of the first mask (nats)")
        axes.set_xticks(found["masks"])
        axes.figure.legend(**BELOW)
        panels.append(svg(axes, "masks", "Loss of a masked token as more of the tokens after it are masked"))
    rows = parts["checkpoints"].get("checkpoints", [])
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
    layers, ends = range(len(points)), [[factor * interval[end] for interval in between] for end in (0, 1)]
    axes.fill_between(layers, *ends, color=colour, alpha=0.15, linewidth=0)
    axes.plot(layers, points, line, color=colour, linewidth=1.5, marker="o", markersize=3.5, label=label)


def _with_layers(axes: Any, name: str, description: str) -> str:
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
    """Render the page of the files of ``results/interpretation/``, by name; all but ``contents`` are optional."""
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
        words = _words(found)
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
