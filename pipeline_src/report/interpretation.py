"""The report's section on what the model learnt, and the page interpretation.html."""

from __future__ import annotations

import base64
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from pipeline_src.report.figures import BELOW, BLUE, GREY, INK, ORANGE, new_axes, svg
from pipeline_src.report.rendering import fold_repeats, render
from pipeline_src.report.results import Results

FILES = ("probes", "senses", "heads", "pairs", "completion", "sentences", "checkpoints", "contents")
SIDES = {"model": "this model", "random": "random weights"}
STYLES = {  # colour and line of a curve in a panel
    "this model": (BLUE, "-"),
    "random weights": (ORANGE, "--"),
    "control task": (INK, ":"),
    "a table of words": (GREY, "-"),
    "chance": (GREY, "-"),
}
TITLES = {"pos": "parts of speech", "ner": "named entities", "capitals": "whether a word was capitalised"}
SENSES = {  # measure of word senses -> title, and what an occurrence should share with its nearest neighbour
    "two contexts": ("One word in two senses", "sense"),
    "two sources": ("One word in two sources", "source"),
}
CODES = {  # curve of online codes -> side, and prefix of the curve's keys
    "this model": ("model", ""),
    "random weights": ("random", ""),
    "control task": ("model", "control_"),
    "frequencies of labels": ("model", "frequencies_"),
}
PERCENT = {"factor": 100, "digits": 1, "unit": "%"}
BETTER, NO_BETTER = "better than random weights", "no better than random weights"
WORSE = "worse than random weights"
ONLY_TYPES = "better than random weights, but not than a table of words: it knows the word, not its context"
Measure = dict[str, Any]  # a plot by layer: title, curves, note, and the format of its values


class Verdict(NamedTuple):
    """The result of one measure: scores, the interval of the model's gain over random weights, and the conclusion."""

    title: str
    synthetic: bool
    model: float
    random: float
    words: float | None
    gain: Sequence[float]
    verdict: str


class Probe(NamedTuple):
    """The figures of one probe, as in ``probes.json``."""

    title: str
    synthetic: bool
    figures: dict[str, Any]

    @property
    def heading(self) -> str:
        return self.title[0].upper() + self.title[1:] + " (synthetic)" * self.synthetic

    @property
    def words(self) -> float:
        """Score of a baseline, the "table of words", that gives each word its most frequent label."""
        return self.figures["model"]["type_majority" + "_balanced" * (self.figures["score"] == "balanced")]


def is_complete(parts: Mapping[str, Any]) -> bool:
    """Return whether ``parts`` (name of a file -> its content) has all files of ``results/interpretation/``."""
    return parts.keys() >= set(FILES)


def interpretation(results: Results) -> dict[str, Any] | None:
    """Return the values for the section's template; None if files of the stage are missing."""
    parts = results.interpretation
    if not is_complete(parts):
        return None
    probes = _probes(parts, results.scores["rules"], results.titles)
    measures = [*map(_probe_measure, probes), *_sense_measures(parts), *_similarity_measures(parts)]
    return {
        "parts": parts,
        "panels": [*map(_layer_panel, measures), *_loss_panel(parts), *_checkpoint_panel(parts)],
        "verdicts": [*map(_probe_verdict, probes), *_other_verdicts(parts)],
        "probes": probes,
    }


def _probes(parts: Mapping[str, Any], synthetic: Collection[str], titles: Mapping[str, str]) -> list[Probe]:
    names = {**titles, **TITLES}
    return [
        Probe(names.get(name, name), name in synthetic, figures)
        for name, figures in parts.get("probes", {}).items()
        if "gain" in figures
    ]


def _probe_verdict(probe: Probe) -> Verdict:
    figures, key = probe.figures, probe.figures["score"]
    only_types = figures["gain"][0] > 0 >= figures["gain_over_types"][0]
    model, random = (max(figures[side][key]) for side in SIDES)
    verdict = ONLY_TYPES if only_types else _verdict(figures["gain"])
    return Verdict(f"{probe.title}, best layer", probe.synthetic, model, random, probe.words, figures["gain"], verdict)


def _other_verdicts(parts: Mapping[str, Any]) -> list[Verdict]:
    measures = [
        (f"{title.lower()}, last layer", senses["accuracy"][-1], senses["random"][-1], senses["gain"])
        for key, (title, _) in SENSES.items()
        if (senses := parts["senses"].get(key))
    ]
    measures += [(pair["title"], pair["balanced"], pair["random"], pair["gain"]) for pair in parts["pairs"].values()]
    return [Verdict(title, False, model, random, None, gain, _verdict(gain)) for title, model, random, gain in measures]


def _verdict(gain: Sequence[float]) -> str:
    low, high = gain
    return BETTER if low > 0 else WORSE if high < 0 else NO_BETTER


def _curve(name: str, values: Sequence[float], between: Sequence[Sequence[float]], layers: int = 1) -> dict[str, Any]:
    """Return a curve with its intervals ``between``; a single value is repeated for all ``layers``."""
    repeats = layers if len(values) == 1 else 1
    return {"name": name, "values": [*values] * repeats, "between": [*between] * repeats}


def _probe_measure(probe: Probe) -> Measure:
    figures, model, key = probe.figures, probe.figures["model"], probe.figures["score"]
    curves = [_curve(label, figures[side][key], figures[side]["between"]) for side, label in SIDES.items()]
    if key == "accuracy" and "control" in model:  # the control task has no balanced accuracy
        curves.append(_curve("control task", model["control"], model["control_between"]))
    curves.append(_curve("a table of words", [probe.words], [model["types_between"]], len(model[key])))
    low, high = (100 * end for end in figures["gain"])
    return {
        "title": probe.heading,
        "curves": curves,
        **PERCENT,
        "axis": f"{'' if key == 'accuracy' else 'balanced '}accuracy (percent)",
        "note": f"{model['tested_on']:,} words of {model['documents']:,} documents; best layer over random weights: "
        f"{low:+.1f} to {high:+.1f} points (95 % interval, with documents resampled).",
    }


def _code_measure(probe: Probe) -> Measure:
    online, model = probe.figures["online"], probe.figures["model"]
    layers = len(model[probe.figures["score"]])
    low, high = online["gain"]
    return {
        "title": f"{probe.heading}: online code",
        "curves": [
            _curve(label, online[side][f"{prefix}compression"], online[side][f"{prefix}between"], layers)
            for label, (side, prefix) in CODES.items()
            if f"{prefix}compression" in online[side]
        ],
        **{"factor": 1, "digits": 2, "unit": "×", "axis": "compression"},
        "note": "Length of the uniform code divided by that of the online code of the labels of "
        f"{model['trained_on']:,} words, each portion encoded by a probe trained on the portions before; "
        f"best layer over random weights: {low:+.3f} to {high:+.3f} bits a word saved.",
    }


def _sense_measures(parts: Mapping[str, Any]) -> list[Measure]:
    measures = []
    for key, (title, shared) in SENSES.items():
        if not (senses := parts.get("senses", {}).get(key)):
            continue
        low, high = (100 * end for end in senses["gain"])
        measures.append({
            "title": title,
            "curves": [
                _curve("this model", senses["accuracy"], senses["between"]),
                _curve("random weights", senses["random"], senses["random_between"]),
                _curve("chance", [0.5], [[0.5, 0.5]], len(senses["accuracy"])),
            ],
            **PERCENT,
            "axis": f"neighbour of the same {shared} (%)",
            "note": f"Share of {senses['sentences']} occurrences whose nearest neighbour of another document is of the "
            f"same {shared}, in percent; last layer over random weights: {low:+.1f} to {high:+.1f} points.",
        })  # fmt: skip
    return measures


def _similarity_measures(parts: Mapping[str, Any]) -> list[Measure]:
    if not (cosines := parts.get("probes", {}).get("self-similarity")):
        return []
    return [
        {
            "title": "A word from sentence to sentence",
            "curves": [
                _curve(label, cosines[side]["adjusted"], cosines[side]["between"]) for side, label in SIDES.items()
            ],
            **{"factor": 1, "digits": 2, "unit": "", "axis": "adjusted cosine"},
            "note": "Cosine of a word’s vectors in different sentences minus that of any two words.",
        }
    ]


def _layer_panel(measure: Measure) -> str:
    axes: Any = new_axes()
    factor = measure["factor"]
    for curve in measure["curves"]:
        colour, line = STYLES[curve["name"]]
        low, high = ([factor * interval[end] for interval in curve["between"]] for end in (0, 1))
        axes.fill_between(range(len(low)), low, high, color=colour, alpha=0.15, linewidth=0)
        values = [factor * value for value in curve["values"]]
        axes.plot(values, line, color=colour, linewidth=1.5, marker="o", markersize=3.5, label=curve["name"])
    axes.set(title=measure["title"], xlabel="layer", ylabel=measure["axis"])
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.figure.legend(**BELOW)
    return svg(axes, measure["title"], f"{measure['title']} by layer: {measure['axis']}")


def _loss_panel(parts: Mapping[str, Any]) -> list[str]:
    if not (losses := parts["completion"].get("loss by masks")):
        return []
    axes = new_axes()
    for key, colour, label in (("kept", BLUE, "later text kept"), ("cut", ORANGE, "text ends there")):
        axes.plot(losses["masks"], losses[key], "o-", color=colour, linewidth=1.4, markersize=3.5, label=label)
    axes.axhline(losses["unigram"], color=GREY, linewidth=1.2, label="unigrams")
    axes.set(title="More masks in a row", xlabel="masks", ylabel="loss of the first mask (nats)")
    axes.set_xticks(losses["masks"])
    axes.figure.legend(**BELOW)
    return [svg(axes, "masks", "Loss of a masked token as more of the tokens after it are masked")]


def _checkpoint_panel(parts: Mapping[str, Any]) -> list[str]:
    checkpoints = parts["checkpoints"].get("checkpoints", [])
    if not checkpoints or "two contexts" not in checkpoints[0]:
        return []
    axes, steps = new_axes(), [checkpoint["step"] for checkpoint in checkpoints]
    by_layer = list(zip(*(checkpoint["two contexts"] for checkpoint in checkpoints), strict=True))
    last = len(by_layer) - 1
    for number, values in enumerate(by_layer):
        label = {0: "embeddings", last: "last layer"}.get(number, "")
        shade = 0.3 + 0.7 * number / max(last, 1)
        axes.plot(steps, [100 * value for value in values], "o-", color=BLUE, alpha=shade, markersize=3.5, label=label)
    axes.set(title="Two senses during training", xlabel="step", ylabel="neighbour of the same sense (%)")
    axes.figure.legend(**BELOW)
    return [svg(axes, "senses-by-step", "Share of neighbours of the same sense, by layer and step")]


def render_interpretation(
    parts: Mapping[str, Any], synthetic: Collection[str] = (), titles: Mapping[str, str] = MappingProxyType({})
) -> str:
    """Render interpretation.html.

    Args:
        parts: name of a file -> its content, of which only ``contents`` is needed.
        synthetic: names of the tasks whose labels are synthetic.
        titles: name of a task -> its title.
    """
    model, senses = parts["contents"]["model"], parts.get("senses", {})
    sentences = parts.get("sentences", {}).get("attention", [])
    words = dict(senses.get("two contexts", {}).get("words", {}))
    words |= {f"{word} (by source)": uses for word, uses in senses.get("two sources", {}).get("words", {}).items()}
    completions = [
        {"prompt": text["prompt"], "ways": {name: _folded(way) for name, way in text["ways"].items()}}
        for text in parts.get("completion", {}).get("completions", [])
    ]
    probes = _probes(parts, synthetic, titles)
    measures = [measure for probe in probes for measure in (_probe_measure(probe), _code_measure(probe))]
    measures += [*_sense_measures(parts), *_similarity_measures(parts)]
    contents = {"sentence": sentences, "word": words, "layers": measures, "completion": completions}
    values = {"model": model, "words": words, "measures": measures, "completions": completions}
    roles = parts.get("heads", {}).get("roles", {}).get("roles")
    # JSON objects do not keep the order of words
    data = values | {"sentences": sentences, "roles": roles, "names": list(words)}
    return render(
        "interpretation_page.html.j2",
        **values,
        title=f"What the model learnt: {model['title']}",
        sections=[(name, name.capitalize()) for name, content in contents.items() if content],
        sentences=[most_attended(sentence, model) for sentence in sentences],
        layers=range(model["layers"] + 1),
        skipped=parts["contents"]["skipped"],
        data=data,
    )


def _folded(way: Mapping[str, Any]) -> dict[str, Any]:
    return {**way, "texts": [fold_repeats(text) for text in way["texts"]]}


def most_attended(sentence: Mapping[str, Any], model: Mapping[str, Any]) -> dict[str, Any]:
    """Return a sentence's words, and for each head the word to which each of these words attends most."""
    words = sentence["words"]
    weights = np.frombuffer(base64.b64decode(sentence["weights"]), np.uint8).reshape(-1, len(words), len(words))
    heads = []
    for number, targets in enumerate(weights.argmax(-1).tolist()):
        layer, head = divmod(number, model["heads"])
        heads.append({"name": f"{layer + 1}-{head + 1}", "most": [words[target] for target in targets]})
    return {"words": words, "heads": heads}
