"""What the cards of a pretrained, a fine-tuned and an imported model say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pipeline_src.models.bert import BertConfig
from pipeline_src.models.card import Card, Source

BERT = "Devlin et al. 2018, [BERT: Pre-training of Deep Bidirectional Transformers](https://arxiv.org/abs/1810.04805)"
OBJECTIVES = {  # pretrain.objective and examples.pairs of params.yaml -> what was learnt
    ("masked", "next_sentence"): "masked words and next sentences",
    ("masked", "sentence_order"): "masked words and the order of sentences",
    ("masked", "none"): "masked words, without next sentences",
    ("left_to_right", "next_sentence"): "the next word from those before it, and next sentences",
    ("left_to_right", "sentence_order"): "the next word from those before it, and the order of sentences",
    ("left_to_right", "none"): "the next word from those before it",
}
PRETRAINED_CLASSES = {"masked": "BertForPreTraining", "left_to_right": "BertLMHeadModel"}  # Hugging Face's class
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
    objective: str,
    pairs: str,
    sources: Sequence[Source] | None,
    training: Mapping[str, Any],
    figures: Mapping[str, Mapping[str, float]],
    cost: Mapping[str, float],
) -> Card:
    """The card of a pretrained encoder.

    Args:
        config: its sizes.
        parameters: how many.
        objective, pairs: as in params.yaml (``pretrain.objective``, ``examples.pairs``).
        sources: as :func:`read_sources` gives them.
        training: parameters by name: seed, steps, batch, learning rate, mask_prob, ...
        figures: losses and accuracies by text ("training text", "validation text").
        cost: amounts by name ("tokens", "FLOP").
    """
    learnt = OBJECTIVES[objective, pairs]
    return Card(
        title=f"BERT, {_size(config)}",
        about=f"A BERT encoder ({BERT}) with {parameters:,} parameters, trained from scratch on {learnt}.",
        architecture=PRETRAINED_CLASSES[objective],
        use=ENCODER_USE,
        limits=ENCODER_LIMITS.format(positions=config.max_position_embeddings),
        tags=("bert", "pretraining"),
        sources=tuple(sources) if sources else None,
        training=training,
        figures=figures,
        cost=cost,
    )


def finetuned_card(
    config: BertConfig,
    task: str,
    architecture: str,
    source: Source | None,
    recipe: Mapping[str, Any],
    scores: Sequence[tuple[str, str, str, float]],
) -> Card:
    """The card of a fine-tuned model.

    Args:
        config: its sizes.
        task: its title ("CoLA").
        architecture: Hugging Face's class of it.
        source: the task's data, from its ``source.json``; None where it has none.
        recipe: parameters by name: seed, restart, learning rate, epochs, batch, length.
        scores: of the model itself: what is judged ("MNLI-mm"), file, metric, value.
    """
    figures: dict[str, dict[str, float]] = {}
    for row, file, metric, value in scores:
        figures.setdefault(f"{row}, {file}", {})[metric] = value
    return Card(
        title=f"BERT, {_size(config)}, fine-tuned on {task}",
        about=f"A BERT encoder ({BERT}) with the output layer of one task, {task}, both trained on its training set.",
        architecture=architecture,
        use=f"To answer what {task} asks, on text like its own. The scores below are on data that chose between runs.",
        limits="It knows no other task, and what its encoder and the task's data leave out or get wrong, it does too.",
        tags=("bert", "fine-tuned"),
        sources=(source,) if source else None,
        training=recipe,
        figures=figures,
        results=tuple(scores),
    )


def imported_card(config: BertConfig, parameters: int, architecture: str) -> Card:
    """The card of a model made elsewhere, of which nothing is known but its sizes."""
    return Card(
        title=f"BERT, {_size(config)}, imported",
        about=f"A BERT encoder ({BERT}) with {parameters:,} parameters, made elsewhere and brought into this layout.",
        architecture=architecture,
        use=ENCODER_USE,
        limits=ENCODER_LIMITS.format(positions=config.max_position_embeddings),
    )


def _size(config: BertConfig) -> str:
    return f"{config.num_hidden_layers} layers, {config.hidden_size} wide"
