"""Model cards: the README.md of a model folder, in the style of Hugging Face's hub (Mitchell et al. 2018).

A card is a function of plain values alone: no time, host or path stands in it, since it is a tracked output.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from pipeline_src.common.names import as_text

UNKNOWN = "other"  # Hugging Face's word for a licence that is none of its list


@dataclass(frozen=True)
class Source:
    """Data a model was trained on, as the catalogue describes it; ``language`` as in ISO 639, '' where unknown."""

    name: str
    title: str
    licence: str
    citation: str
    language: str = ""


@dataclass(frozen=True)
class Card:
    """What a card says.

    Attributes:
        title: of the model.
        about: what it is, in a sentence or two.
        huggingface_class: with which transformers loads it.
        pipeline: Hugging Face's kind of task, where it has one for that class.
        use, limits: what it is meant for, and what it is not.
        tags: for Hugging Face's search.
        sources: its data; None where that is unknown.
        training: parameters by name, in the order to be shown.
        figures: losses and scores by the text they were measured on.
        cost: amounts by name ("tokens", "FLOP").
        licence: of the weights, an identifier of Hugging Face's list.
        results: scores for Hugging Face's leaderboards (``model-index``): dataset, file, metric, value.
    """

    title: str
    about: str
    huggingface_class: str
    pipeline: str | None
    use: str
    limits: str
    tags: tuple[str, ...] = ()
    sources: tuple[Source, ...] | None = None
    training: Mapping[str, Any] | None = None
    figures: Mapping[str, Mapping[str, float]] | None = None
    cost: Mapping[str, float] | None = None
    licence: str = UNKNOWN
    results: tuple[tuple[str, str, str, float], ...] = ()


def read_sources(manifest: Mapping[str, Any]) -> tuple[Source, ...] | None:
    """The data named by ``data/tokens/manifest.json``; None where it names none."""
    fields = Source.__dataclass_fields__
    listed = [Source(**{key: row[key] for key in fields if key in row}) for row in manifest.get("sources", [])]
    return tuple(listed) or None


def write_card(card: Card) -> str:
    """The text of README.md: front matter as YAML, then a section for each thing that is known."""
    sections = [
        (f"# {card.title}", card.about),
        ("## Use", card.use),
        ("## Limits", card.limits),
        ("## Data", _data(card.sources)),
        ("## Training", _table(("parameter", "value"), _flat(card.training or {}))),
        ("## Measured", _measured(card.figures or {})),
        ("## Cost", _table(("what", "amount"), [(name, _amount(value)) for name, value in (card.cost or {}).items()])),
        ("## Load it", _loading(card.huggingface_class)),
        ("## Licence", _licence(card.licence)),
    ]
    body = "\n\n".join(f"{head}\n\n{text}" for head, text in sections if text)
    front = yaml.safe_dump(_front_matter(card), sort_keys=False, allow_unicode=True, width=1000)
    return f"---\n{front}---\n\n{body}\n"


def _front_matter(card: Card) -> dict[str, Any]:
    languages = sorted({source.language for source in card.sources or () if source.language})
    front = {
        "license": card.licence,
        "license_name": "not-stated" if card.licence == UNKNOWN else None,
        "language": languages,
        "library_name": "transformers",
        "pipeline_tag": card.pipeline,
        "tags": list(card.tags),
        "datasets": [source.name for source in card.sources or ()],
        "model-index": _model_index(card),
    }
    return {key: value for key, value in front.items() if value}


def _model_index(card: Card) -> list[dict[str, Any]]:
    results = [
        {
            "task": {"type": card.pipeline},
            "dataset": {"name": dataset, "type": dataset.lower(), "split": file},
            "metrics": [{"type": metric, "value": float(f"{value:.4g}")}],
        }
        for dataset, file, metric, value in card.results
    ]
    return [{"name": card.title, "results": results}] if results else []


def _data(sources: Sequence[Source] | None) -> str:
    if sources is None:
        return "Unknown."
    return _table(("data", "licence", "citation"), [(one.title, one.licence, one.citation) for one in sources])


def _measured(figures: Mapping[str, Mapping[str, float]]) -> str:
    rows = [(text, name, f"{value:.4g}") for text, named in figures.items() for name, value in named.items()]
    return _table(("on", "what", "value"), rows)


def _licence(licence: str) -> str:
    if licence == UNKNOWN:
        return "None is stated for the weights. Those of the data stand above, where they are known."
    return as_text(licence)


def _loading(huggingface_class: str) -> str:
    return (
        "```python\n"
        f"from transformers import AutoTokenizer, {huggingface_class}\n\n"
        'tokenizer = AutoTokenizer.from_pretrained("FOLDER")\n'
        f'model = {huggingface_class}.from_pretrained("FOLDER")\n'
        "```"
    )


def _table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    if not rows:
        return ""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(as_text(str(cell)) for cell in line)} |" for line in lines)


def _flat(values: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """Nested parameters as rows: ``masking.mask``."""
    rows: list[tuple[str, Any]] = []
    for name, value in values.items():
        rows += _flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else [(f"{prefix}{name}", value)]
    return rows


def _amount(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) and value < 10**12 else f"{value:.4g}"
