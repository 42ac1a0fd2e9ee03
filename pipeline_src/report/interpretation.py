"""The report's section "What the model learnt", and the page interpretation.html."""

from __future__ import annotations

import base64
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from pipeline_src.report.figures import BELOW, BLUE, GREY, INK, ORANGE, new_axes, svg
from pipeline_src.report.rendering import fold_repeats, render
from pipeline_src.report.results import Results

FILES = ("probes", "senses", "heads", "pairs", "completion", "sentences", "contents")
SIDES = {"model": "this model", "random": "random weights"}
# Curve of a plot -> colour and line style.
STYLES = {
    "this model": (BLUE, "-"),
    "random weights": (ORANGE, "--"),
    "control task": (INK, ":"),
    "a table of words": (GREY, "-"),
    "chance": (GREY, "-"),
}
TITLES = {"pos": "parts of speech", "ner": "named entities", "capitals": "whether a word was capitalised"}
TWO_SENSES = "One word in two senses"
PERCENT = {"factor": 100, "digits": 1, "unit": "%"}
BETTER = "better than random weights"
NO_BETTER = "no better than random weights"
WORSE = "worse than random weights"
ONLY_TYPES = "better than random weights, but not than a table of words: it knows the word, not its context"
# A plot with one value per layer: its title, curves, note, and the format of its values.
Measure = dict[str, Any]


class Verdict(NamedTuple):
    """The result of one measure: its scores, the interval of the gain over random weights, and the conclusion."""

    title: str
    synthetic: bool
    model: float
    random: float
    words: float | None
    gain: Sequence[float]
    verdict: str


class Probe(NamedTuple):
    title: str
    synthetic: bool
    figures: dict[str, Any]

    @property
    def heading(self) -> str:
        mark = " (synthetic)" if self.synthetic else ""
        return self.title[0].upper() + self.title[1:] + mark

    @property
    def words(self) -> float:
        # Score of the baseline "table of words", which gives each word its most frequent label.
        key = "type_majority_balanced" if self.figures["score"] == "balanced" else "type_majority"
        return self.figures["model"][key]


def is_complete(parts: Mapping[str, Any]) -> bool:
    return parts.keys() >= set(FILES)


def interpretation(results: Results) -> dict[str, Any] | None:
    parts = results.interpretation
    if not is_complete(parts):
        return None
    probes = _probes(parts, results.scores["rules"], results.titles)
    return {
        "parts": parts,
        "panels": [_layer_panel(measure) for measure in _measures(parts, probes)],
        "verdicts": [_probe_verdict(probe) for probe in probes] + _other_verdicts(parts),
    }


def _measures(parts: Mapping[str, Any], probes: Sequence[Probe]) -> list[Measure]:
    measures = [_probe_measure(probe) for probe in probes]
    senses = parts.get("senses", {}).get("two contexts")
    cosines = parts.get("probes", {}).get("self-similarity")
    if senses:
        measures.append(_sense_measure(senses))
    if cosines:
        measures.append(_similarity_measure(cosines))
    return measures


def _probes(parts: Mapping[str, Any], synthetic: Collection[str], titles: Mapping[str, str]) -> list[Probe]:
    title_of_labels = {**titles, **TITLES}
    probes = []
    for labels, figures in parts.get("probes", {}).items():
        # The file also has the self-similarity, which is not a probe.
        if "gain" in figures:
            probes.append(Probe(title_of_labels.get(labels, labels), labels in synthetic, figures))
    return probes


def _probe_verdict(probe: Probe) -> Verdict:
    figures = probe.figures
    key = figures["score"]
    only_types = figures["gain"][0] > 0 >= figures["gain_over_types"][0]
    return Verdict(
        title=f"{probe.title}, best layer",
        synthetic=probe.synthetic,
        model=max(figures["model"][key]),
        random=max(figures["random"][key]),
        words=probe.words,
        gain=figures["gain"],
        verdict=ONLY_TYPES if only_types else _verdict(figures["gain"]),
    )


def _other_verdicts(parts: Mapping[str, Any]) -> list[Verdict]:
    # (title, score of the model, score of random weights, interval of the gain)
    measures = []
    senses = parts["senses"].get("two contexts")
    if senses:
        title = f"{TWO_SENSES.lower()}, last layer"
        measures.append((title, senses["accuracy"][-1], senses["random"][-1], senses["gain"]))
    for pairs in parts["pairs"].values():
        measures.append((pairs["title"], pairs["balanced"], pairs["random"], pairs["gain"]))
    verdicts = []
    for title, model, random, gain in measures:
        verdicts.append(Verdict(title, False, model, random, None, gain, _verdict(gain)))
    return verdicts


def _verdict(gain: Sequence[float]) -> str:
    low, high = gain
    if low > 0:
        return BETTER
    return WORSE if high < 0 else NO_BETTER


def _curve(name: str, values: Sequence[float], between: Sequence[Sequence[float]], layers: int = 1) -> dict[str, Any]:
    # A curve with a single value is repeated for all layers.
    repeats = layers if len(values) == 1 else 1
    return {"name": name, "values": [*values] * repeats, "between": [*between] * repeats}


def _probe_measure(probe: Probe) -> Measure:
    figures = probe.figures
    model = figures["model"]
    key = figures["score"]
    curves = [_curve(label, figures[side][key], figures[side]["between"]) for side, label in SIDES.items()]
    # The control task has no balanced accuracy.
    if key == "accuracy" and "control" in model:
        curves.append(_curve("control task", model["control"], model["control_between"]))
    curves.append(_curve("a table of words", [probe.words], [model["types_between"]], len(model[key])))
    low, high = (100 * end for end in figures["gain"])
    # The words of a single document are resampled one by one.
    units = "words" if model["documents"] == 1 else "documents"
    return {
        **PERCENT,
        "title": probe.heading,
        "curves": curves,
        "axis": "accuracy (percent)" if key == "accuracy" else "balanced accuracy (percent)",
        "note": (
            f"{model['tested_on']:,} words of {model['documents']:,} documents; best layer over random weights: "
            f"{low:+.1f} to {high:+.1f} points (95 % interval, with {units} resampled)."
        ),
    }


def _sense_measure(senses: Mapping[str, Any]) -> Measure:
    low, high = (100 * end for end in senses["gain"])
    curves = [
        _curve("this model", senses["accuracy"], senses["between"]),
        _curve("random weights", senses["random"], senses["random_between"]),
        _curve("chance", [0.5], [[0.5, 0.5]], len(senses["accuracy"])),
    ]
    return {
        **PERCENT,
        "title": TWO_SENSES,
        "curves": curves,
        "axis": "neighbour of the same sense (%)",
        "note": (
            f"Share of {senses['sentences']} occurrences whose nearest neighbour of another document is of the "
            f"same sense, in percent; last layer over random weights: {low:+.1f} to {high:+.1f} points."
        ),
    }


def _similarity_measure(cosines: Mapping[str, Any]) -> Measure:
    curves = [_curve(label, cosines[side]["adjusted"], cosines[side]["between"]) for side, label in SIDES.items()]
    return {
        "factor": 1,
        "digits": 2,
        "unit": "",
        "title": "A word from sentence to sentence",
        "curves": curves,
        "axis": "adjusted cosine",
        "note": "Cosine of a word’s vectors in different sentences minus that of any two words.",
    }


def _layer_panel(measure: Measure) -> str:
    axes: Any = new_axes()
    factor = measure["factor"]
    for curve in measure["curves"]:
        label = curve["name"]
        colour, line = STYLES[label]
        values = [factor * value for value in curve["values"]]
        layers = range(len(values))
        # Draw the intervals as a band.
        low = [factor * interval[0] for interval in curve["between"]]
        high = [factor * interval[1] for interval in curve["between"]]
        axes.fill_between(layers, low, high, color=colour, alpha=0.15, linewidth=0)
        axes.plot(values, line, color=colour, linewidth=1.5, marker="o", markersize=3.5, label=label)
    axes.set(title=measure["title"], xlabel="layer", ylabel=measure["axis"])
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.figure.legend(**BELOW)
    return svg(axes, measure["title"], f"{measure['title']} by layer: {measure['axis']}")


def render_interpretation(
    parts: Mapping[str, Any], synthetic: Collection[str] = (), titles: Mapping[str, str] | None = None
) -> str:
    """Render interpretation.html.

    Args:
        parts: name of a file in ``results/interpretation/`` -> its content. Only ``contents`` is required.
        synthetic: names of tasks with synthetic labels.
        titles: name of a task -> its title.
    """
    model = parts["contents"]["model"]
    sentences = parts.get("sentences", {}).get("attention", [])
    words = parts.get("senses", {}).get("two contexts", {}).get("words", {})
    completions = []
    for completion in parts.get("completion", {}).get("completions", []):
        ways = {}
        for name, way in completion["ways"].items():
            ways[name] = {**way, "texts": [fold_repeats(text) for text in way["texts"]]}
        completions.append({"prompt": completion["prompt"], "ways": ways})
    measures = _measures(parts, _probes(parts, synthetic, titles or {}))
    contents = {"sentence": sentences, "word": words, "layers": measures, "completion": completions}
    # Data for the page's script.
    data = {
        "model": model,
        "words": words,
        "measures": measures,
        "completions": completions,
        "sentences": sentences,
        "roles": parts.get("heads", {}).get("roles", {}).get("roles"),
        # The order of the words, which a JSON object does not guarantee.
        "names": list(words),
    }
    return render(
        "interpretation_page.html.j2",
        title=f"What the model learnt: {model['title']}",
        sections=[(name, name.capitalize()) for name, content in contents.items() if content],
        model=model,
        words=words,
        measures=measures,
        completions=completions,
        sentences=[most_attended(sentence, model) for sentence in sentences],
        layers=range(model["layers"] + 1),
        skipped=parts["contents"]["skipped"],
        data=data,
    )


def most_attended(sentence: Mapping[str, Any], model: Mapping[str, Any]) -> dict[str, Any]:
    """Return a sentence's words and, for each head, the word to which each word attends most."""
    words = sentence["words"]
    size = len(words)
    # One byte for each pair of words, uint8 [layers x heads, words, words].
    probabilities = base64.b64decode(sentence["weights"])
    weights = np.frombuffer(probabilities, np.uint8).reshape(-1, size, size)
    most_attended_words = weights.argmax(-1).tolist()
    heads = []
    for number, targets in enumerate(most_attended_words):
        layer, head = divmod(number, model["heads"])
        heads.append(
            {
                "name": f"{layer + 1}-{head + 1}",
                "most": [words[target] for target in targets],
            }
        )
    return {"words": words, "heads": heads}
