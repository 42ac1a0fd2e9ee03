"""``interpretation.html``: sentences, words, layers and completions one by one; one file with its script and data."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jinja2
import numpy as np

from pipeline_src.report.interpretation import SENSES, TITLES
from pipeline_src.report.page import TEMPLATES

CURVES = {  # side, key of the values if not the score, key of the intervals
    "this model": ("model", None, "between"),
    "random weights": ("random", None, "between"),
    "control task": ("model", "control", "control_between"),
}
ONLINE = {  # side, what its keys begin with
    "this model": ("model", ""),
    "random weights": ("random", ""),
    "control task": ("model", "control_"),
    "frequencies of labels": ("model", "frequencies_"),
}
CODE = {"values": "compression", "between": "between"}  # of a curve, from which figure
PERCENT = {"factor": 100, "digits": 1, "unit": "%"}
TIMES = {"factor": 1, "digits": 2, "unit": "×"}  # how many times shorter


def render_interpretation(parts: Mapping[str, Any]) -> str:
    """The page.

    Args:
        parts: the files of ``results/interpretation/`` by their names without ``.json``; all but ``contents`` may lack.
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
    templates = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES), autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True
    )
    return templates.get_template("interpretation_page.html.j2").render(
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
            "names": list(words),  # in this order, which objects do not keep
            "measures": measures,
            "completions": completions,
        },
    )


def most_attended(shown: Mapping[str, Any], model: Mapping[str, Any]) -> dict[str, Any]:
    """A sentence's words, and for each head the word that each of them attends to most."""
    words = shown["words"]
    flat = np.frombuffer(base64.b64decode(shown["weights"]), np.uint8)
    best = flat.reshape(-1, len(words), len(words)).argmax(-1)
    names = [
        f"{layer + 1}-{head + 1}" for layer in range(len(best) // model["heads"]) for head in range(model["heads"])
    ]
    rows = [{"name": name, "most": [words[at] for at in row]} for name, row in zip(names, best.tolist(), strict=True)]
    return {"words": words, "heads": rows}


def _every_layer(values: Sequence[Any], layers: int) -> list[Any]:
    """Values by layer, where one may stand for all."""
    return list(values) if len(values) == layers else list(values) * layers


def _measures(parts: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Each measure by layer: title, curves by name, and what to say of it."""
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
            "(from 2.5 to 97.5 % as documents are drawn anew).",
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
            "note": "How many times shorter than the uniform code the online code is of the labels of "
            f"{found['model']['trained_on']:,} words, each portion sent by a probe that learnt from the portions "
            f"before; best layer over random weights: {low:+.3f} to {high:+.3f} bits a word saved.",
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
