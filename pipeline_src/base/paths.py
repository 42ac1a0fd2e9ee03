from __future__ import annotations

from pathlib import Path

# Fingerprints of the stages' code.
CODE = Path("code")

# Fetched files, kept for the next fetch.
DOWNLOADS = Path("data/downloads")
RAW = Path("data/raw")
TASKS = Path("data/tasks")
# Texts of fetched tasks; empty unless corpus.decontaminate is "remove".
EVALUATION_TEXTS = Path("data/evaluation_texts")
# The model from which pretraining continues, in this project's layout.
START_MODEL = Path("data/start_model")

TEXT = Path("data/text")
VOCABULARY = Path("data/vocabulary")
TOKENS = Path("data/tokens")
EXAMPLES = Path("data/examples")

PRETRAINED = Path("models/pretrained")
# What the tools read by default.
DEFAULT_MODEL = PRETRAINED / "phase2"
WORD_VECTORS = Path("models/word_vectors")
FINETUNED = Path("models/finetuned")
CHECKPOINTS = Path("checkpoints")
# Caches, which may be deleted at any time: encoded tasks, and fine-tunings from random weights.
FEATURES = Path("data/features")
BASELINES = Path("data/baselines")

RESULTS = Path("results")
CORPUS = RESULTS / "corpus.json"
PRETRAIN_RESULTS = RESULTS / "pretrain"
PREDICTIONS = RESULTS / "predictions"
SCORES = RESULTS / "scores.json"
TASK_RESULTS = RESULTS / "tasks"
INTERPRETATION = RESULTS / "interpretation"
SUBMISSIONS = RESULTS / "submissions"

# No stage depends on these: they hold times, hosts and machines.
LOGS = Path("logs")
PRETRAIN_LOGS = LOGS / "pretrain"

# An output whose path contains a name from params.yaml ends in a folder with a fixed, unusual name. DVC deletes outputs
# before their stage runs, and `dvc repro --single-item` before the names are checked: without the last folder, a name
# such as ../../docs would delete that folder; with it, the path leads to a folder that does not exist.
KEPT_MODEL = "kept-model"


def raw_files(source: str) -> Path:
    return RAW / source / "fetched-files"


def clean_text(source: str, text: Path = TEXT) -> Path:
    return text / source / "clean-text"


def finetuned_model(task: str, seed: int | str) -> Path:
    return FINETUNED / task / str(seed) / KEPT_MODEL


def task_predictions(task: str, seed: int | str) -> Path:
    return PREDICTIONS / task / str(seed) / "predicted"


def predictions_folder(weights: str, labels: int | None = None) -> str:
    # Without a number of labels, the model was trained on all examples.
    return weights if labels is None else f"{weights}-{labels}-labels"
