from __future__ import annotations

from pathlib import Path

# Fingerprints of the stages' code.
CODE = Path("code")

# Cache of downloaded files.
DOWNLOADS = Path("data/downloads")
RAW = Path("data/raw")
TASKS = Path("data/tasks")
# Texts of the evaluation sets, for decontamination; empty unless corpus.decontaminate is "remove".
EVALUATION_TEXTS = Path("data/evaluation_texts")
# The pretrained model of `pretrain.init_from`, converted to this project's layout.
START_MODEL = Path("data/start_model")

TEXT = Path("data/text")
VOCABULARY = Path("data/vocabulary")
TOKENS = Path("data/tokens")
EXAMPLES = Path("data/examples")

PRETRAINED = Path("models/pretrained")
# Default of the tools' option --model.
DEFAULT_MODEL = PRETRAINED / "phase2"
WORD_VECTORS = Path("models/word_vectors")
FINETUNED = Path("models/finetuned")
CHECKPOINTS = Path("checkpoints")
# Caches that may be deleted at any time: tokenized tasks (FEATURES) and the scores of models that were fine-tuned from
# random weights (BASELINES).
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

# Logs hold times and host names, so no stage depends on them.
LOGS = Path("logs")
PRETRAIN_LOGS = LOGS / "pretrain"

# An output whose path contains a name from params.yaml ends in a folder with a fixed, unusual name. DVC deletes a
# stage's outputs before it runs the stage, and `dvc repro --single-item` does so before any name is checked. Without
# the last folder, the name ../../docs would delete docs/. With it, the path leads to a folder that does not exist.
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
    # None: the model was fine-tuned on all training examples.
    return weights if labels is None else f"{weights}-{labels}-labels"
