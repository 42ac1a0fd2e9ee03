"""Writer of a fine-tuned model's folder: weights, tokenizer, config with the task's settings, and model card."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline_src.base.files import read_json, write_json
from pipeline_src.finetune.heads import BertForTask
from pipeline_src.finetune.predict import SETTINGS
from pipeline_src.finetune.task_data import TaskData
from pipeline_src.finetune.task_trainer import TaskTrainer
from pipeline_src.model.hub import MAX_LENGTH, save_model
from pipeline_src.model.model_card import FIRST_LAST, Source, finetuned_card
from pipeline_src.study.task_spec import TaskSpec


def save_task_model(
    folder: Path,
    model: BertForTask,
    trainer: TaskTrainer,
    data: TaskData,
    training: Mapping[str, Any],
    scores: Mapping[str, float],
) -> None:
    # `training`: the seeds and hyperparameters that the model card lists.
    spec = data.spec
    settings = trainer.settings
    classes = trainer.config.names.classes
    eval_set = spec.eval_set(None)
    # transformers has no class for a bi-encoder, first-last pooling or text embeddings, and that of the task would
    # ignore the weights of an LSTM.
    has_lstm = settings.bilstm or settings.feature_layers is not None
    without_class = has_lstm or settings.apart or model.first_last or model.head == "embedding"
    huggingface_class = classes["encoder" if without_class else model.head]
    training = {**training, "max_length": settings.max_length, "frozen": settings.feature_layers}
    if settings.window_stride is not None:
        training["window_stride"] = settings.window_stride
    if trainer.hyperparameters.head_learning_rate is not None:
        training["head_learning_rate"] = trainer.hyperparameters.head_learning_rate
    results = [(eval_set.title, eval_set.file, metric, scores[metric]) for metric in eval_set.metrics]
    source = read_source(data.folder)
    head = FIRST_LAST.format(layer=model.output_layer) if model.first_last else ""
    card = finetuned_card(trainer.config, spec.name, huggingface_class, source, training, results, head)
    tensors = settings.saved(model.state_dict(), trainer.config)
    save_model(folder, tensors, trainer.config, huggingface_class, data.encoder, card)
    # If the task has unanswerable questions or sets of labels, `scores` has the best threshold.
    saved = settings.model_copy(update={"threshold": scores.get("threshold")})
    config = read_json(folder / "config.json", dict) | label_names(spec)
    config[SETTINGS] = saved.model_dump(mode="json")
    if model.head == "embedding":
        config[MAX_LENGTH] = settings.max_length
    write_json(folder / "config.json", config)


def label_names(spec: TaskSpec) -> dict[str, Any]:
    # Returns keys of Hugging Face's config.json; empty if the model's outputs are not labels.
    labels = spec.labels if spec.range is None else (spec.name,)
    if not labels or spec.kind == "retrieval":
        return {}
    names: dict[str, Any] = {
        "id2label": {str(index): label for index, label in enumerate(labels)},
        "label2id": {label: index for index, label in enumerate(labels)},
    }
    if spec.range is not None:
        names["problem_type"] = "regression"
    if spec.kind == "multilabel":
        names["problem_type"] = "multi_label_classification"
    return names


def read_source(folder: Path) -> Source | None:
    # Returns the source that was recorded when the data was downloaded; None if the data was put there by hand.
    if not (folder / "source.json").exists():
        return None
    fields = ("name", "description", "licence", "citation")
    source = read_json(folder / "source.json", dict.fromkeys(fields, str))
    return Source(*(source[field] for field in fields))
