"""The names of the folders and files that stages hand to each other, relative to the project's root."""

from __future__ import annotations

from pathlib import Path

CODE = Path("code")  # fingerprints of the stages' code

# what is fetched
DOWNLOADS = Path("data/downloads")  # files as they come, kept for the next fetch
RAW_WIKIPEDIA = Path("data/raw/wikipedia")
RAW_BOOKS = Path("data/raw/books")
TASKS = Path("data/tasks")

# the corpus
TEXT = Path("data/text")
TEXT_BOOKS = TEXT / "books"
VOCABULARY = Path("data/vocabulary")
TOKENS = Path("data/tokens")
EXAMPLES = Path("data/examples")

# training
PRETRAINED = Path("models/pretrained")
WORD_VECTORS = Path("models/word_vectors")
FINETUNED = Path("models/finetuned")
CHECKPOINTS = Path("checkpoints")
FEATURES = Path("data/features")  # a cache: may be deleted at any time
BASELINES = Path("data/baselines")  # the same, of fine-tunings from random weights

# results
RESULTS = Path("results")
CORPUS = RESULTS / "corpus.json"
PRETRAIN_RESULTS = RESULTS / "pretrain"
PREDICTIONS = RESULTS / "predictions"
SCORES = RESULTS / "scores.json"
TASK_RESULTS = RESULTS / "tasks"
INTERPRETATION = RESULTS / "interpretation"
SUBMISSIONS = RESULTS / "submissions"

# what no stage depends on: times, hosts, machines
LOGS = Path("logs")
PRETRAIN_LOGS = LOGS / "pretrain"

# Outputs whose path holds a name of params.yaml end in a folder of a name that nothing else bears. DVC clears a stage's
# outputs before it runs, and `dvc repro --single-item` before anything has looked at the name: one that is spelt as a
# path, such as ../../docs, would clear that folder. As it is, it leads to a folder that does not exist.
KEPT_MODEL = "kept-model"


def raw_wikipedia(part: str) -> Path:
    """The dump of a part of Wikipedia, as it was fetched."""
    return RAW_WIKIPEDIA / part / "dump-files"


def text_wikipedia(part: str, text: Path = TEXT) -> Path:
    """The prose of a part of Wikipedia."""
    return text / "wikipedia" / part / "clean-text"


def finetuned_model(task: str, restart: int | str) -> Path:
    """The model that a restart of a task kept."""
    return FINETUNED / task / str(restart) / KEPT_MODEL


def task_predictions(task: str, restart: int | str) -> Path:
    """What a restart of a task predicts, and its runs."""
    return PREDICTIONS / task / str(restart) / "predicted"
