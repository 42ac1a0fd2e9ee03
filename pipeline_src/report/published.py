"""Published scores and training costs of BERT models, from ``paper.yaml``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from string import ascii_lowercase
from typing import Any

from pipeline_src.base.yaml_files import parse_yaml

PAPER = Path(__file__).with_name("paper.yaml")
TEST_SERVER = "test server"
SPLITS = dict.fromkeys(("dev", "val", "valid", "dev_matched", "dev_mismatched"), "dev")
SPLITS |= {"test": "test", "diagnostic": "diagnostic"}
SIZES = {"layers": "num_hidden_layers", "hidden": "hidden_size", "heads": "num_attention_heads"}


@dataclass(frozen=True)
class Published:
    """A published score, its source, and the letter that marks the source in tables."""

    value: float
    source: str
    letter: str

    def __str__(self) -> str:
        return f"{self.value:.1f} ({self.letter})"


# (evaluation set, metric, split) -> score
PublishedScores = dict[tuple[str, str, str], Published]


def read_paper() -> dict[str, Any]:
    return parse_yaml(PAPER.read_text(encoding="utf-8"))


def split_of(file: str) -> str:
    # "dev_matched.tsv" -> "dev". A file name without a split is returned unchanged.
    words = re.findall(r"[a-z_]+", file.lower().rsplit(".", 1)[0])
    return next((SPLITS[word] for word in words if word in SPLITS), file)


def model_of(config: dict[str, Any]) -> str | None:
    for model in read_paper()["models"]:
        # A key that the config lacks is not compared, since some architectures have no heads.
        if all(config.get(key, model[size]) == model[size] for size, key in SIZES.items()):
            return model["name"]
    return None


def published_scores(model: str | None) -> PublishedScores:
    # If several sources report the same score, the first in paper.yaml is used.
    letters: dict[str, str] = {}
    scores: PublishedScores = {}
    for report in read_paper()["reports"]:
        if report["model"] != model:
            continue
        source = report["source"]
        # The first source gets the letter a, the second b, and so on.
        letter = letters.setdefault(source, ascii_lowercase[len(letters)])
        for name, value in report["scores"].items():
            eval_set, metric = name.split(" ")
            scores.setdefault((eval_set, metric, report["split"]), Published(value, source, letter))
    return scores
