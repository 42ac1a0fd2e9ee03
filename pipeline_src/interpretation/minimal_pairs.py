"""Minimal pairs: is the right one of two sentences that differ in one word the likelier (Goldberg 2019)?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pipeline_src.common.yaml_files import parse_yaml
from pipeline_src.interpretation.probes import interval, intervals, rounded
from pipeline_src.interpretation.scoring import at_masks, preferred
from pipeline_src.interpretation.senses import words_of
from pipeline_src.interpretation.studied_model import StudiedModel
from pipeline_src.interpretation.trees import Tree
from pipeline_src.interpretation.word_vectors import Sentence, cut_words

TEMPLATES = Path(__file__).with_name("minimal_pairs.yaml")
SUBJECT = "nsubj"


@dataclass(frozen=True)
class Pair:
    """Words with a place at which one of two forms stands; ``cluster`` names what several pairs have in common."""

    words: tuple[str, ...]
    place: int
    good: str
    bad: str
    plural: bool
    cluster: str


def template_pairs() -> dict[str, tuple[str, list[Pair]]]:
    """By name of the set: its title and its pairs."""
    told = parse_yaml(TEMPLATES.read_text(encoding="utf-8"))
    found = {}
    for name, each in told["sets"].items():
        nouns = told["nouns"][: told["people"]] if each.get("people") else told["nouns"]
        pairs = []
        for template in each["templates"]:
            for forms in each["choices"]:
                for number, noun in enumerate(nouns):
                    other = nouns[(number + 1) % len(nouns)]
                    for plural in (0, 1):
                        text = template.replace("{noun}", noun[plural]).replace("{other}", other[1 - plural])
                        words = words_of(text.replace("{choice}", "CHOICE"))
                        place = words.index("CHOICE")
                        words = (*words[:place], forms[plural], *words[place + 1 :])
                        pairs.append(Pair(words, place, forms[plural], forms[1 - plural], bool(plural), noun[0]))
        found[name] = (each["title"], pairs)
    return found


def treebank_pairs(trees: Sequence[Tree]) -> list[Pair]:
    """Verbs of which singular and plural differ, in sentences that somebody wrote, whose one subject is a noun."""
    told = parse_yaml(TEMPLATES.read_text(encoding="utf-8"))
    other = {forms[plural]: (forms[1 - plural], bool(plural)) for forms in told["verbs"] for plural in (0, 1)}
    pairs = []
    for tree in trees:
        for place, word in enumerate(tree.sentence.words):
            if word.lower() not in other or tree.tags[place] not in ("AUX", "VERB"):
                continue
            clause = tree.heads[place] if tree.tags[place] == "AUX" and tree.heads[place] >= 0 else place
            subjects = [
                child
                for child, (head, name) in enumerate(zip(tree.heads, tree.relations, strict=True))
                if head == clause and name == SUBJECT
            ]
            if len(subjects) == 1 and tree.tags[subjects[0]] == "NOUN":
                bad, plural = other[word.lower()]
                good = word.lower()
                pairs.append(Pair(tree.sentence.words, place, good, bad, plural, tree.sentence.document))
    return pairs


def judge(model: StudiedModel, control: StudiedModel, pairs: Sequence[Pair], seed: int) -> dict[str, Any] | None:
    """How often the right form is the likelier, beside random weights; None where no pair is left.

    A pair is left out where one of its forms is not one token, or the place is cut off; how many is counted.
    ``between`` is the interval of ``balanced``, ``commoner`` what always choosing the form that is right more often
    gives; over templates that is a half.
    """
    cut = [
        cut_words(model, [Sentence((*pair.words[: pair.place], form, *pair.words[pair.place + 1 :]), pair.cluster)
                          for pair, form in zip(pairs, forms, strict=True)])
        for forms in ([pair.good for pair in pairs], [pair.bad for pair in pairs])
    ]  # fmt: skip
    texts, tokens, kept = [], [], []
    unknown = model.kind.id_of(model.tokenizer, model.kind.unk)
    for number, pair in enumerate(pairs):
        at = [[token for token, word in enumerate(each.words[number]) if word == pair.place] for each in cut]
        if at[0] != at[1] or len(at[0]) != 1:
            continue
        forms = [each.ids[number][at[0][0]] for each in cut]
        if unknown not in forms:
            texts.append((cut[0].ids[number], at[0][0]))
            tokens.append(forms)
            kept.append(pair)
    if not kept:
        return None
    plural = np.array([pair.plural for pair in kept])
    rights = [
        np.array([preferred(scores, *two) for scores, two in zip(at_masks(each, texts), tokens, strict=True)])
        for each in (model, control)
    ]
    both = 0 < plural.sum() < len(plural)
    weights = (
        np.where(plural, 0.5 / max(plural.mean(), 1e-9), 0.5 / max(1 - plural.mean(), 1e-9))
        if both
        else np.ones(len(plural))
    )
    clusters = [pair.cluster for pair in kept]
    return {
        "pairs": len(kept),
        "left_out": len(pairs) - len(kept),
        "accuracy": rounded(rights[0].mean()),
        "balanced": rounded((rights[0] * weights).mean()),
        "singular": rounded(rights[0][~plural].mean()) if not plural.all() else None,
        "plural": rounded(rights[0][plural].mean()) if plural.any() else None,
        "random": rounded((rights[1] * weights).mean()),
        "commoner": rounded(max(plural.mean(), 1 - plural.mean())),
        "between": intervals((rights[0] * weights)[None], clusters, seed)[0],
        "gain": interval(rights[0] * weights, rights[1] * weights, clusters, seed),
    }
