"""What the cards of a pretrained, a fine-tuned and an imported model say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pipeline_src.models.bert import BertConfig
from pipeline_src.models.card import Card, Source
from pipeline_src.models.names import Names

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
) -> Card:
    """The card of a pretrained encoder.

    Args:
        config: its sizes and names.
        parameters: how many.
        learns: what it learnt ("masked words and next sentences").
        huggingface_class: with which transformers loads it.
        sources: as :func:`read_sources` gives them.
        training: parameters by name: seed, steps, batch, learning rate, mask_prob, ...
        figures: losses and accuracies by text ("training text", "validation text").
        cost: amounts by name ("tokens", "FLOP").
    """
    return Card(
        title=_title(config),
        about=f"{_encoder(config.names)} with {parameters:,} parameters, trained from scratch on {learns}.",
        huggingface_class=huggingface_class,
        pipeline=config.names.pipeline(huggingface_class),
        use=ENCODER_USE,
        limits=f"{ENCODER_LIMITS.format(positions=config.longest_input)} {config.lost_elsewhere}".strip(),
        tags=(config.names.model_type, "pretraining"),
        sources=tuple(sources) if sources else None,
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
    """The card of a fine-tuned model.

    Args:
        config: its sizes and names.
        task: its title ("CoLA").
        huggingface_class: with which transformers loads it.
        source: the task's data, from its ``source.json``; None where it has none.
        recipe: parameters by name: seed, restart, learning rate, epochs, batch, length.
        scores: of the model itself: what is judged ("MNLI-mm"), file, metric, value.
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
    """The card of a model made elsewhere, of which nothing is known but its sizes."""
    return Card(
        title=f"{_title(config)}, imported",
        about=f"{_encoder(config.names)} with {parameters:,} parameters, made elsewhere and brought into this layout.",
        huggingface_class=huggingface_class,
        pipeline=config.names.pipeline(huggingface_class),
        use=ENCODER_USE,
        limits=f"{ENCODER_LIMITS.format(positions=config.longest_input)} {config.lost_elsewhere}".strip(),
        tags=(config.names.model_type,),
    )


def _title(config: BertConfig) -> str:
    return f"{config.names.title}, {config.num_hidden_layers} layers, {config.hidden_size} wide"


def _encoder(names: Names) -> str:
    return f"A {names.title} encoder ({names.paper})"
