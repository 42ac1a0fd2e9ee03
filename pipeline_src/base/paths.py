from __future__ import annotations

from pathlib import Path

CODE = Path("code")  # fingerprints of the stages' code

# downloads
DOWNLOADS = Path("data/downloads")  # fetched files, kept for the next fetch
RAW = Path("data/raw")
TASKS = Path("data/tasks")
EVALUATION_TEXTS = Path("data/evaluation_texts")  # of fetched tasks; empty unless corpus.decontaminate is remove
START_MODEL = Path("data/start_model")  # what pretraining goes on from, in this project's layout

# the corpus
TEXT = Path("data/text")
VOCABULARY = Path("data/vocabulary")
TOKENS = Path("data/tokens")
EXAMPLES = Path("data/examples")

# training
PRETRAINED = Path("models/pretrained")
DEFAULT_MODEL = PRETRAINED / "phase2"  # what the tools read by default
WORD_VECTORS = Path("models/word_vectors")
FINETUNED = Path("models/finetuned")
CHECKPOINTS = Path("checkpoints")
FEATURES = Path("data/features")  # a cache: may be deleted at any time
BASELINES = Path("data/baselines")  # a cache of fine-tunings from random weights

# results
RESULTS = Path("results")
CORPUS = RESULTS / "corpus.json"
PRETRAIN_RESULTS = RESULTS / "pretrain"
PREDICTIONS = RESULTS / "predictions"
SCORES = RESULTS / "scores.json"
TASK_RESULTS = RESULTS / "tasks"
INTERPRETATION = RESULTS / "interpretation"
SUBMISSIONS = RESULTS / "submissions"

# no stage depends on these: times, hosts, machines
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
