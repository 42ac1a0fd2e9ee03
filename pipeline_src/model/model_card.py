"""Write model cards (Mitchell et al. 2018), the README.md of a model folder, in the style of Hugging Face's hub.

DVC tracks cards by their content, so they contain no date, host name or path.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline_src.base.names import as_text
from pipeline_src.model.bert import BertConfig

TEMPLATE = Path(__file__).with_name("model_card.md.j2")
# (evaluation set, file, metric, value), for example ("MNLI-mm", "dev_mismatched.tsv", "accuracy", 0.71).
Score = tuple[str, str, str, float]
# How a transformers user can rebuild the head of a task whose ``pooling`` is ``first_last``.
FIRST_LAST = (
    "This loads the encoder. The task's output layer is in model.safetensors too, as `{layer}.weight` and "
    "`{layer}.bias`. It reads the sum of embeddings and last layer (`hidden_states[0] + hidden_states[-1]`, with "
    "`output_hidden_states=True`), averaged over all tokens of a text but the first and the last."
)
POOLED = {"mean": "the mean", "max": "the maximum", "cls": "the first"}


@dataclass(frozen=True)
class Source:
    name: str
    title: str
    licence: str
    citation: str
    language: str = ""


def read_sources(manifest: Mapping[str, Any]) -> tuple[Source, ...] | None:
    sources = []
    for entry in manifest.get("sources", []):
        known = {key: entry[key] for key in Source.__dataclass_fields__ if key in entry}
        sources.append(Source(**known))
    return tuple(sources) or None


def read_mix(manifest: Mapping[str, Any], sources: Mapping[str, Any] | None = None) -> dict[str, float]:
    """Return source -> its share of the training text, between 0 and 1.

    Args:
        manifest: content of ``data/tokens/manifest.json``.
        sources: entry ``sources`` of ``data/examples/manifest.json``, if the study sets the shares. None or empty: the
            shares are the proportions of tokens in ``manifest``.
    """
    if sources:
        return {name: mixed["share"] for name, mixed in sources.items()}
    tokens = {name: counts["tokens"] for name, counts in manifest.get("parts", {}).get("train", {}).items()}
    return {name: count / max(1, sum(tokens.values())) for name, count in tokens.items()}


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
    continued: bool = False,
) -> str:
    """Return the text of a pretrained encoder's card.

    Args:
        parameters: number of weights.
        learns: what the objective teaches ("masked words and next sentences").
        sources, mix: results of ``read_sources`` and ``read_mix``.
        training: training settings, which may be nested.
        figures: evaluated text ("validation text") -> name of a loss or accuracy -> value.
        cost: unit ("tokens", "FLOP") -> amount spent on training.
        continued: whether training started from another model's weights.
    """
    how = "a pretrained model trained further on" if continued else "trained from scratch on"
    return _card(
        config,
        huggingface_class,
        title="",
        tags=("pretraining",),
        sources=sources or (),
        training=training,
        figures=figures,
        about=f"with {parameters:,} parameters, {how} {learns}",
        mix=[f"{as_text(name)} {100 * share:.1f} %" for name, share in (mix or {}).items()],
        cost=[
            (name, f"{value:,}" if isinstance(value, int) and value < 10**12 else f"{value:.4g}")
            for name, value in cost.items()
        ],
    )


def finetuned_card(
    config: BertConfig,
    task: str,
    huggingface_class: str,
    source: Source | None,
    hyperparameters: Mapping[str, Any],
    scores: Sequence[Score],
    head: str = "",
) -> str:
    """Return the text of a fine-tuned model's card.

    Args:
        task: title of the task ("CoLA").
        source: source of the task's data, read from ``source.json``. None: there is no such file.
        scores: scores on the evaluation sets by which the model was selected.
        head: explanation of the output layer, for models whose output layer ``huggingface_class`` does not load.
    """
    task = as_text(task)
    figures: dict[str, dict[str, float]] = {}
    for eval_set, file, metric, value in scores:
        figures.setdefault(f"{eval_set}, {file}", {})[metric] = value
    return _card(
        config,
        huggingface_class,
        title=f", fine-tuned on {task}",
        tags=("fine-tuned",),
        sources=[source] if source else (),
        training=hyperparameters,
        figures=figures,
        scores=scores,
        task=task,
        head=head,
        about=f"with the output layer of one task, {task}, both trained on its training set",
    )


def imported_card(config: BertConfig, parameters: int, huggingface_class: str) -> str:
    about = f"with {parameters:,} parameters, made elsewhere and brought into this layout"
    return _card(config, huggingface_class, ", imported", about=about)


def sentence_card(text: str, pooling: str, normalise: bool) -> str:
    from huggingface_hub import ModelCard

    card = ModelCard(text)
    card.data["library_name"] = "sentence-transformers"
    card.data["pipeline_tag"] = "sentence-similarity"
    card.data["tags"] = [*dict.fromkeys([*card.data.get("tags", []), "sentence-transformers"])]
    return (
        f"{str(card).rstrip()}\n\n## Vectors of texts\n\n"
        f"A text's vector is {POOLED[pooling]} of its tokens' vectors{', divided by its length' * normalise}.\n\n"
        "```python\nfrom sentence_transformers import SentenceTransformer\n\n"
        'vectors = SentenceTransformer("FOLDER").encode(["a text", "another"])\n```\n'
    )


def _card(
    config: BertConfig,
    huggingface_class: str,
    title: str,
    tags: Iterable[str] = (),
    sources: Sequence[Source] = (),
    training: Mapping[str, Any] | None = None,
    figures: Mapping[str, Mapping[str, float]] | None = None,
    scores: Sequence[Score] = (),
    **more: Any,
) -> str:
    # The import takes most of a second, so only code that writes a card imports it.
    from huggingface_hub import EvalResult, ModelCard, ModelCardData

    title = f"{config.names.title}, {config.num_hidden_layers} layers, {config.hidden_size} wide{title}"
    pipeline = config.names.pipeline(huggingface_class)
    languages = sorted({source.language for source in sources})
    results = [
        EvalResult(pipeline or "", eval_set.lower(), eval_set, metric, float(f"{value:.4g}"), dataset_split=file)
        for eval_set, file, metric, value in scores
    ]
    data = ModelCardData(
        license="other",
        license_name="not-stated",
        # Without the language of every source, the card states none: a partial list would look complete.
        language=languages if languages and all(languages) else None,
        library_name="transformers",
        pipeline_tag=pipeline,
        tags=[config.names.model_type, *tags],
        datasets=[source.name for source in sources] or None,
        model_name=title if results else None,
        eval_results=results or None,
    )
    metrics = []
    for text, values in (figures or {}).items():
        metrics += [(text, name, f"{value:.4g}") for name, value in values.items()]
    card = ModelCard.from_template(
        data,
        str(TEMPLATE),
        config=config,
        title=title,
        huggingface_class=huggingface_class,
        sources=_cells(
            (entry.title, entry.language or "not stated", entry.licence, entry.citation) for entry in sources
        ),
        training=_cells(_flat(training or {})),
        metrics=_cells(metrics),
        **more,
    )
    return f"{card}\n"


def _cells(rows: Iterable[Iterable[object]]) -> list[list[str]]:
    table = []
    for row in rows:
        table.append([as_text(str(cell)) for cell in row])
    return table


def _flat(values: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    rows: list[tuple[str, Any]] = []
    for name, value in values.items():
        if isinstance(value, Mapping):
            rows += _flat(value, f"{prefix}{name}.")
        else:
            rows.append((f"{prefix}{name}", value))
    return rows
