"""Stage ``corpus_statistics``: what the corpus is, stage by stage, and what it holds of the tasks' and validation text.

``results/corpus.json`` also holds a few passages of the cleaned text (passages.py). The tool ``statistics`` prints the
counts as soon as there are examples, before any training is paid for.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from pipeline_src.common.files import read_json, write_json
from pipeline_src.common.paths import CORPUS, EXAMPLES, TASKS, TEXT, TOKENS, VOCABULARY
from pipeline_src.corpus.documents import COUNTS, corpus_folders, corpus_label, read_manifest
from pipeline_src.params.wikipedia import WikipediaParams
from pipeline_src.statistics.overlap import Words, end_to_end, measure_overlap
from pipeline_src.statistics.passages import sample_passages
from pipeline_src.tasks.files.reading import read_columns
from pipeline_src.tasks.files.spec import load_spec
from pipeline_src.tasks.files.squad import read_questions
from pipeline_src.tokenizer.encode import Encoder
from pipeline_src.tokenizer.frame import Frames, read_frames
from pipeline_src.tokenizer.load import load_tokenizer
from pipeline_src.tokenizer.sample_index import read_sample_index
from pipeline_src.tokenizer.token_store import SPLITS, TokenStore

PHASES = ("short", "long")
BINS = 16  # of the histogram of lengths
ROWS = 1 << 20  # of a sample index, read at once
OVERLAP_TASKS = ("squad1", "squad2", "qnli")  # made from Wikipedia


def run(*, seed: int, tasks: tuple[str, ...], wikipedia: WikipediaParams) -> None:
    """Read what the corpus stages made and the tasks made from Wikipedia; write ``results/corpus.json``.

    Raises:
        PipelineError: a manifest, a shard, a sample index or a task file is missing or malformed.
    """
    folders = corpus_folders(TEXT, wikipedia.parts)
    write_json(CORPUS, corpus_statistics(wikipedia.parts, tasks) | {"passages": sample_passages(folders, TEXT, seed)})


def corpus_statistics(parts: Sequence[str], tasks: Sequence[str]) -> dict[str, Any]:
    """Read the manifests of all corpus stages, the sample indices and the tasks made from Wikipedia.

    Args:
        parts: of Wikipedia, as params.yaml lists them.
        tasks: of the study; looked at are those of them made from Wikipedia.

    Raises:
        PipelineError: a manifest, a sample index or a task file is missing or malformed.
    """
    folders = _folders(parts)
    counted = {split: {name: dict for name in folders} for split in SPLITS}
    tokens = read_json(TOKENS / "manifest.json", {"dropped": dict, "parts": counted})
    tokenizer = load_tokenizer(VOCABULARY)
    return {
        "parts": {name: _part(folder, name, tokens) for name, folder in folders.items()},
        "vocabulary": read_json(VOCABULARY / "manifest.json", dict),
        "dropped": tokens["dropped"],
        "examples": {phase: _examples(phase, read_frames(tokenizer)) for phase in PHASES},
        "overlap": _overlap(tokenizer, [task for task in OVERLAP_TASKS if task in tasks]),
    }


def _folders(parts: Sequence[str]) -> dict[str, Path]:
    return {corpus_label(folder, TEXT): folder for folder in corpus_folders(TEXT, parts)}


def _part(folder: Path, name: str, tokens: dict[str, Any]) -> dict[str, Any]:
    """One corpus part: documents, words, bytes, drops by reason; sentences and tokens of each split.

    Of Wikipedia also the templates that no table knows, with the sentences left out for each (wikipedia/templates.py).
    """
    manifest = read_manifest(folder, COUNTS)
    part = {key: manifest[key] for key in ("documents", "words", "bytes", "dropped")}
    part["dropped_inside"] = manifest.get("dropped_lines") or manifest.get("dropped_blocks") or {}
    if "unknown_templates" in manifest:
        part["unknown_templates"] = manifest["unknown_templates"]
    return part | {split: tokens["parts"][split][name] for split in SPLITS}


def _examples(phase: str, frames: Frames) -> dict[str, Any]:
    manifest = read_json(EXAMPLES / "manifest.json", {"pairs": str, phase: {"length": int}})
    length = manifest[phase]["length"]
    marks = (frames.single if manifest["pairs"] == "none" else frames.pair).size
    return {"length": length, "pairs": manifest["pairs"]} | {
        split: describe(read_sample_index(EXAMPLES / phase / f"{split}.npy"), length, marks) for split in SPLITS
    }


def describe(sample_index: np.ndarray, length: int, marks: int) -> dict[str, Any]:
    """What the report says of a sample index.

    Args:
        sample_index: of dtype ``SAMPLE_INDEX``, [examples]; read in blocks.
        length: of the longest example the phase allows.
        marks: how many marks an example has.

    Returns:
        ``examples``; ``tokens``; ``fill``, how full the examples are; ``random_next``, the share of pairs whose
        label is 1; and ``lengths``, how many ``examples`` there are in each of 16 equal classes of length, and where
        these end.
    """
    edges = np.linspace(0, length, BINS + 1)
    tokens = random = 0
    histogram = np.zeros(BINS, np.int64)
    for start in range(0, len(sample_index), ROWS):
        rows = sample_index[start : start + ROWS]
        lengths = rows["a_length"].astype(np.int64) + rows["b_length"] + marks
        tokens += int(lengths.sum())
        random += int(rows["is_random"].sum())
        histogram += np.histogram(lengths, edges)[0]
    return {
        "examples": len(sample_index),
        "tokens": tokens,
        "fill": round(tokens / (len(sample_index) * length), 4),
        "random_next": round(random / len(sample_index), 4),
        "lengths": {"up_to": edges[1:].tolist(), "examples": histogram.tolist()},
    }


def _overlap(tokenizer: Tokenizer, tasks: Sequence[str]) -> dict[str, dict[str, Any]]:
    encoder = Encoder(tokenizer)
    validation = TokenStore(TOKENS, "validation")
    texts = {"validation documents": (validation.ids[:], validation.sentences[validation.documents[:-1]])}
    for task in tasks:
        for name, passages in task_passages(task).items():
            texts[name] = end_to_end([encoder.encode(passage) for passage in passages])
    return measure_overlap(TokenStore(TOKENS, "train"), Words.of(tokenizer), texts)


def task_passages(task: str) -> dict[str, list[str]]:
    """The distinct passages of each file of a task made from Wikipedia: SQuAD's contexts, QNLI's sentences."""
    spec = load_spec(task)
    by_file = {}
    for file in dict.fromkeys([spec.train, *(row.file for row in spec.scores.values())]):
        path = TASKS / task / file
        if spec.columns is not None:
            rows = read_columns(spec.name, path, spec.layout())
            passages = [fields["sentence"] for _, fields in rows]
        else:
            passages = [question.context for question in read_questions(spec, path)]
        by_file[f"{task}/{file}"] = list(dict.fromkeys(passages))
    return by_file
