"""The names of the folders and files that stages hand to each other, relative to the project's root."""

from __future__ import annotations

from pathlib import Path

# what is fetched
DOWNLOADS = Path("data/downloads")  # files as they come, kept for the next fetch
RAW_WIKIPEDIA = Path("data/raw/wikipedia")
RAW_BOOKS = Path("data/raw/books")
TASKS = Path("data/tasks")

# the corpus
TEXT = Path("data/text")
TEXT_WIKIPEDIA = TEXT / "wikipedia"
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
