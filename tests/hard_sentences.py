"""Hard cases for splitters of sentences, in two kinds of English and in eight languages."""

from __future__ import annotations

from pathlib import Path

import yaml

_TABLES = yaml.safe_load(Path(__file__).with_name("sentences").joinpath("hard.yaml").read_text(encoding="utf-8"))
ENCYCLOPEDIA: list[list[str]] = _TABLES["encyclopedia"]
NOVEL: list[list[str]] = _TABLES["novel"]
CASES = ENCYCLOPEDIA + NOVEL
SENTENCE_ENDS: dict[str, list[list[str]]] = _TABLES["sentence_ends"]
