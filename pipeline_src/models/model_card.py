"""Model cards (Mitchell et al. 2018): the README.md of a model folder, in the style of Hugging Face's hub.

A card is a tracked output, so it holds no time, host or path.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from pipeline_src.common.names import as_text
from pipeline_src.models.adapter import StateDictAdapter
from pipeline_src.models.bert import BertConfig

UNKNOWN = "other"  # Hugging Face's identifier of an unlisted licence


@dataclass(frozen=True)
class Source:
    """Training data, as described in the catalogue; ``language`` is an ISO 639 code, or '' if unknown."""

    name: str
    title: str
    licence: str
    citation: str
    language: str = ""


@dataclass(frozen=True)
class Card:
    """Content of a model card.

    Attributes:
        title: the model's title.
        about: description in a sentence or two.
        huggingface_class: the transformers class that loads it.
        pipeline: Hugging Face's pipeline tag, if the class has one.
        use, limits: intended use and limitations.
        tags: tags for Hugging Face's search.
        sources: training data; None if unknown.
        mix: share of the training tokens by part of the corpus.
        training: training parameters by name, in display order.
        figures: losses and scores by the text on which they were measured.
        cost: amounts by name ("tokens", "FLOP").
        licence: licence of the weights, one of Hugging Face's identifiers.
        results: scores for ``model-index``: dataset, file, metric, value.
    """

    title: str
    about: str
    huggingface_class: str
    pipeline: str | None
    use: str
    limits: str
    tags: tuple[str, ...] = ()
    sources: tuple[Source, ...] | None = None
    mix: Mapping[str, float] | None = None
    training: Mapping[str, Any] | None = None
    figures: Mapping[str, Mapping[str, float]] | None = None
    cost: Mapping[str, float] | None = None
    licence: str = UNKNOWN
    results: tuple[tuple[str, str, str, float], ...] = ()


def read_sources(manifest: Mapping[str, Any]) -> tuple[Source, ...] | None:
    """Return the sources listed in ``data/tokens/manifest.json``, or None if it lists none."""
    fields = Source.__dataclass_fields__
    listed = [Source(**{key: row[key] for key in fields if key in row}) for row in manifest.get("sources", [])]
    return tuple(listed) or None


def read_mix(manifest: Mapping[str, Any], sources: Mapping[str, Any] | None = None) -> dict[str, float]:
    """Return the share of each source in the training text.

    Args:
        manifest: ``data/tokens/manifest.json``, which counts the training tokens of each.
        sources: if the study sets shares, what ``data/examples/manifest.json`` says of them.
    """
    if sources:
        return {name: mixed["share"] for name, mixed in sources.items()}
    tokens = {name: counts["tokens"] for name, counts in manifest.get("parts", {}).get("train", {}).items()}
    return {name: count / max(1, sum(tokens.values())) for name, count in tokens.items()}


def write_card(card: Card) -> str:
    """Return the text of README.md: YAML front matter, then the sections that have content."""
    sections = [
        (f"# {card.title}", card.about),
        ("## Use", card.use),
        ("## Limits", card.limits),
        ("## Data", _data(card.sources, card.mix or {})),
        ("## Training", _table(("parameter", "value"), _flat(card.training or {}))),
        ("## Measured", _measured(card.figures or {})),
        ("## Cost", _table(("what", "amount"), [(name, _amount(value)) for name, value in (card.cost or {}).items()])),
        ("## Load it", _loading(card.huggingface_class)),
        ("## Licence", _licence(card.licence)),
    ]
    body = "\n\n".join(f"{head}\n\n{text}" for head, text in sections if text)
    front = yaml.safe_dump(_front_matter(card), sort_keys=False, allow_unicode=True, width=1000)
    return f"---\n{front}---\n\n{body}\n"


def sentence_card(text: str, pooling: str, normalise: bool) -> str:
    """Return the text of a model's README.md with the tags that sentence-transformers looks for, and how to load it."""
    _, front, body = text.split("---\n", 2) if text.startswith("---\n") else ("", "{}", f"\n{text}")
    named = yaml.safe_load(front) | {"library_name": "sentence-transformers", "pipeline_tag": "sentence-similarity"}
    named["tags"] = list(dict.fromkeys([*named.get("tags", []), "sentence-transformers"]))
    made = {"mean": "the mean", "max": "the maximum", "cls": "the first"}[pooling] + " of its tokens' vectors"
    section = (
        f"## Vectors of texts\n\nA text's vector is {made}{', divided by its length' * normalise}.\n\n"
        "```python\nfrom sentence_transformers import SentenceTransformer\n\n"
        'vectors = SentenceTransformer("FOLDER").encode(["a text", "another"])\n```\n'
    )
    front = yaml.safe_dump(named, sort_keys=False, allow_unicode=True, width=1000)
    return f"---\n{front}---\n{body.rstrip()}\n\n{section}"


def _front_matter(card: Card) -> dict[str, Any]:
    languages = sorted({source.language for source in card.sources or ()})
    front = {
        "license": card.licence,
        "license_name": "not-stated" if card.licence == UNKNOWN else None,
        "language": [] if "" in languages else languages,  # those of a part would be taken for those of all
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


def _data(sources: Sequence[Source] | None, mix: Mapping[str, float]) -> str:
    if sources is None:
        return "Unknown."
    rows = [(one.title, one.language or "not stated", one.licence, one.citation) for one in sources]
    shares = ", ".join(f"{as_text(name)} {100 * share:.1f} %" for name, share in mix.items())
    table = _table(("data", "language", "licence", "citation"), rows)
    return f"{table}\n\nShares of the training tokens: {shares}." if mix else table


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
    """Flatten nested parameters to rows with dotted names."""
    rows: list[tuple[str, Any]] = []
    for name, value in values.items():
        rows += _flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else [(f"{prefix}{name}", value)]
    return rows


def _amount(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) and value < 10**12 else f"{value:.4g}"


ENCODER_USE = (
    "To be fine-tuned on tasks that read a whole sentence or a pair of them: classification, choice, question "
    "answering. Not for writing text."
)
ENCODER_LIMITS = (
    "It has learnt what its text says, errors and prejudices included, and was not examined for them. It takes "
    "{positions} tokens at most."
)


def pretrained_card(
    config: BertConfig,
    parameters: int,
    learns: str,
    huggingface_class: str,
    sources: Sequence[Source] | None,
    training: Mapping[str, Any],
    figures: Mapping[str, Mapping[str, float]],
    cost: Mapping[str, float],
    mix: Mapping[str, float] | None = None,
    goes_on: bool = False,
) -> Card:
    """Return the card of a pretrained encoder.

    Args:
        config: the encoder's config.
        parameters: number of parameters.
        learns: the objective ("masked words and next sentences").
        huggingface_class: the transformers class that loads it.
        sources: result of :func:`read_sources`.
        training: training parameters by name: seed, steps, batch, learning rate, mask_prob, ...
        figures: losses and accuracies by text ("training text", "validation text").
        cost: amounts by name ("tokens", "FLOP").
        mix: result of :func:`read_mix`.
        goes_on: it went on from another model.
    """
    how = "a pretrained model trained further on" if goes_on else "trained from scratch on"
    return Card(
        title=_title(config),
        about=f"{_encoder(config.names)} with {parameters:,} parameters, {how} {learns}.",
        huggingface_class=huggingface_class,
        pipeline=config.names.pipeline(huggingface_class),
        use=ENCODER_USE,
        limits=f"{ENCODER_LIMITS.format(positions=config.longest_input)} {config.export_caveat}".strip(),
        tags=(config.names.model_type, "pretraining"),
        sources=tuple(sources) if sources else None,
        mix=mix,
        training=training,
        figures=figures,
        cost=cost,
    )


def finetuned_card(
    config: BertConfig,
    task: str,
    huggingface_class: str,
    source: Source | None,
    recipe: Mapping[str, Any],
    scores: Sequence[tuple[str, str, str, float]],
) -> Card:
    """Return the card of a fine-tuned model.

    Args:
        config: the encoder's config.
        task: the task's title ("CoLA").
        huggingface_class: the transformers class that loads it.
        source: the task's data, from its ``source.json``; None if it has none.
        recipe: hyperparameters by name: seed, restart, learning rate, epochs, batch, length.
        scores: the model's scores: evaluation set ("MNLI-mm"), file, metric, value.
    """
    figures: dict[str, dict[str, float]] = {}
    for row, file, metric, value in scores:
        figures.setdefault(f"{row}, {file}", {})[metric] = value
    return Card(
        title=f"{_title(config)}, fine-tuned on {task}",
        about=f"{_encoder(config.names)} with the output layer of one task, {task}, both trained on its training set.",
        huggingface_class=huggingface_class,
        pipeline=config.names.pipeline(huggingface_class),
        use=f"To answer what {task} asks, on text like its own. The scores below are on data that chose between runs.",
        limits="It knows no other task, and what its encoder and the task's data leave out or get wrong, it does too.",
        tags=(config.names.model_type, "fine-tuned"),
        sources=(source,) if source else None,
        training=recipe,
        figures=figures,
        results=tuple(scores),
    )


def imported_card(config: BertConfig, parameters: int, huggingface_class: str) -> Card:
    """Return the card of an imported model, about which only its sizes are known."""
    return Card(
        title=f"{_title(config)}, imported",
        about=f"{_encoder(config.names)} with {parameters:,} parameters, made elsewhere and brought into this layout.",
        huggingface_class=huggingface_class,
        pipeline=config.names.pipeline(huggingface_class),
        use=ENCODER_USE,
        limits=f"{ENCODER_LIMITS.format(positions=config.longest_input)} {config.export_caveat}".strip(),
        tags=(config.names.model_type,),
    )


def _title(config: BertConfig) -> str:
    return f"{config.names.title}, {config.num_hidden_layers} layers, {config.hidden_size} wide"


def _encoder(names: StateDictAdapter) -> str:
    return f"A {names.title} encoder ({names.paper})"
