"""Stage ``corpus_statistics``: count the corpus after every stage, and measure its overlap with evaluation texts.

The result, ``results/corpus.json``, also contains a few passages of the cleaned text. The tool ``corpus-stats`` prints
the same counts as soon as the training examples exist, before any training.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from pipeline_src.base.counter_rng import derive_seed
from pipeline_src.base.files import read_json, write_json
from pipeline_src.base.names import checked_path
from pipeline_src.base.paths import CORPUS, EXAMPLES, TASKS, TEXT, TOKENS, VOCABULARY
from pipeline_src.base.progress import log
from pipeline_src.examples.contamination import RUN_WORDS, Words, end_to_end, measure_overlap
from pipeline_src.examples.encode_document import document_ids
from pipeline_src.examples.token_store import EXAMPLES_PER_BLOCK, SPLITS, TokenStore, read_sample_index
from pipeline_src.study.data import CorpusParams
from pipeline_src.study.task_spec import load_spec
from pipeline_src.tasks.questions import read_questions
from pipeline_src.tasks.tables import read_columns
from pipeline_src.text.documents import (
    COUNTS,
    Document,
    ShardSlice,
    corpus_folders,
    few_validation_documents,
    language_of,
    read_manifest,
    read_slice,
    slice_shards,
)
from pipeline_src.text.words import count_words, first_words
from pipeline_src.tokenizer.encode import Encoder
from pipeline_src.tokenizer.load import load_tokenizer
from pipeline_src.tokenizer.special_tokens import Templates, read_templates

NUM_PASSAGES = 5
# For each language, report only the unknown templates that cost the most sentences.
MAX_UNKNOWN_TEMPLATES = 10
MIN_PASSAGE_WORDS = 40
MAX_PASSAGE_WORDS = 90
# Number of bins in the histogram of example lengths.
NUM_BINS = 16
# Tasks whose passages come from Wikipedia.
OVERLAP_TASKS = ("squad1", "squad2", "qnli")
VALIDATION = "validation documents"
# Warn if more than this fraction of the validation documents shares text with the training documents. The validation
# loss is then partly the loss of text that the model was trained on.
MAX_SHARED = 0.1


def run(*, seed: int, tasks: tuple[str, ...], corpus: CorpusParams) -> None:
    """Read the outputs of the corpus stages and the task files; write ``results/corpus.json``."""
    passages = sample_passages(corpus_folders(TEXT, corpus.sources), seed)
    write_json(CORPUS, corpus_statistics(corpus.sources, tasks) | {"passages": passages})


def sample_passages(folders: Mapping[str, Path], seed: int) -> list[dict[str, Any]]:
    """Sample NUM_PASSAGES passages of cleaned text, taking the sources in turn.

    A passage has the keys ``part`` (the source), ``id``, ``title``, ``text`` and ``words``.
    """
    filled = {}
    for name, folder in folders.items():
        shards = [part for part in slice_shards(folder) if part.bytes]
        if shards:
            filled[name] = shards
    passages: dict[str, dict[str, Any]] = {}
    sources = islice(cycle(filled), NUM_PASSAGES)
    for turn, name in enumerate(sources):
        key = derive_seed(seed, "passage", turn)
        document = _document_at(filled[name], key)
        about = {"part": name, "id": document.id, "title": document.title}
        passages.setdefault(document.id, about | _passage(document))
    return list(passages.values())


def _document_at(slices: list[ShardSlice], draw: int) -> Document:
    # Return the first document that begins at or after a random byte of the shards. After the last document begins the
    # first one again.
    offset = draw % sum(part.bytes for part in slices)
    for part in slices:
        if offset < part.bytes:
            break
        offset -= part.bytes
    after = ShardSlice(part.path, part.start + offset, part.stop)
    return next(read_slice(after), None) or next(document for part in slices for document in read_slice(part))


def _passage(document: Document) -> dict[str, Any]:
    lines = document.text.split("\n")
    if document.words > 2 * MAX_PASSAGE_WORDS:
        lines = lines[len(lines) // 2 :]
    text = ""
    for line in lines:
        text = f"{text} {line}".lstrip()
        if count_words(text) >= MIN_PASSAGE_WORDS:
            break
    shown = first_words(text, MAX_PASSAGE_WORDS)
    ellipsis = "" if shown == text else " …"
    return {"text": shown + ellipsis, "words": count_words(shown)}


def corpus_statistics(sources: Iterable[str], tasks: Sequence[str]) -> dict[str, Any]:
    """Collect the counts of all corpus stages, the overlap, and the most frequent unknown templates."""
    folders = corpus_folders(TEXT, sources)
    counted = {split: {name: {"documents": int} for name in folders} for split in SPLITS}
    tokens = read_json(TOKENS / "manifest.json", {"dropped": dict, "parts": counted})
    tokenizer = load_tokenizer(VOCABULARY)
    examples = EXAMPLES / "manifest.json"
    phases = [checked_path(name, examples) for name in read_json(examples, dict) if name.startswith("phase")]
    # Passages of tasks have no language of their own.
    language = language_of(next(iter(folders.values())))
    overlap = _overlap(tokenizer, [task for task in OVERLAP_TASKS if task in tasks], language)
    warning = overlap_warning(overlap[VALIDATION])
    unknown: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for folder in folders.values():
        manifest = read_manifest(folder)
        if "unknown_templates" in manifest:
            unknown[manifest["language"]].update(dict(manifest["unknown_templates"]))
    return {
        "unknown_templates": {
            language: [list(item) for item in counts.most_common(MAX_UNKNOWN_TEMPLATES)]
            for language, counts in unknown.items()
        },
        "parts": {name: _part(folder, name, tokens) for name, folder in folders.items()},
        "vocabulary": read_json(VOCABULARY / "manifest.json", dict),
        "few_validation_documents": few_validation_documents(tokens["parts"]),
        "dropped": tokens["dropped"],
        "examples": {phase: _examples(phase, read_templates(tokenizer)) for phase in sorted(phases)},
        "overlap": overlap,
        **({"overlap_warning": warning} if warning else {}),
    }


def _part(folder: Path, name: str, tokens: dict[str, Any]) -> dict[str, Any]:
    manifest = read_manifest(folder, COUNTS)
    part = {key: manifest[key] for key in ("documents", "words", "bytes", "dropped")}
    part["dropped_inside"] = manifest.get("dropped_lines") or manifest.get("dropped_blocks") or {}
    return part | {split: tokens["parts"][split][name] for split in SPLITS}


def _examples(phase: str, templates: Templates) -> dict[str, Any]:
    manifest = read_json(EXAMPLES / "manifest.json", {"pairs": str, phase: {"length": int}})
    length = manifest[phase]["length"]
    template = templates.single if manifest["pairs"] == "none" else templates.pair
    examples = {"length": length, "pairs": manifest["pairs"]}
    if "sources" in manifest[phase]:
        examples["sources"] = manifest[phase]["sources"]
    for split in SPLITS:
        index = read_sample_index(EXAMPLES / phase / f"{split}.npy")
        examples[split] = describe(index, length, template.size)
    return examples


def describe(sample_index: np.ndarray, length: int, num_special: int) -> dict[str, Any]:
    """Compute the statistics of a sample index.

    Args:
        sample_index: dtype ``SAMPLE_INDEX``, [examples].
        length: maximum length of an example in tokens.
        num_special: number of special tokens in each example.

    Returns:
        ``examples`` and ``tokens`` are totals, special tokens included. ``fill`` is the mean length divided by
        ``length``. ``random_next`` is the fraction of pairs with label 1. ``lengths`` is a histogram of the lengths:
        ``up_to`` has the upper ends of 16 equal bins, and ``examples`` the number of examples in each bin.
    """
    edges = np.linspace(0, length, NUM_BINS + 1)
    tokens = random = 0
    histogram = np.zeros(NUM_BINS, np.int64)
    for start in range(0, len(sample_index), EXAMPLES_PER_BLOCK):
        block = sample_index[start : start + EXAMPLES_PER_BLOCK]
        lengths = block["a_length"].astype(np.int64) + block["b_length"] + num_special
        tokens += int(lengths.sum())
        random += int(block["is_random"].sum())
        histogram += np.histogram(lengths, edges)[0]
    return {
        "examples": len(sample_index),
        "tokens": tokens,
        "fill": round(tokens / (len(sample_index) * length), 4),
        "random_next": round(random / len(sample_index), 4),
        "lengths": {"up_to": edges[1:].tolist(), "examples": histogram.tolist()},
    }


def _overlap(tokenizer: Tokenizer, tasks: Sequence[str], language: str) -> dict[str, dict[str, Any]]:
    encoder = Encoder(tokenizer)
    validation = TokenStore(TOKENS, "validation")
    starts = validation.sentences[validation.documents[:-1]]
    texts = {VALIDATION: (validation.ids, starts)}
    for task in tasks:
        for name, passages in task_passages(task).items():
            texts[name] = end_to_end([document_ids(encoder, passage, language) for passage in passages])
    return measure_overlap(TokenStore(TOKENS, "train"), Words.of(tokenizer), texts)


def overlap_warning(overlap: Mapping[str, Any]) -> str:
    if not overlap["texts"] or overlap["share"] <= MAX_SHARED:
        return ""
    warning = (
        f"{overlap['found']:,} of {overlap['texts']:,} {VALIDATION} share a run of {RUN_WORDS} words with training "
        "text, so the validation loss is partly the loss of text that the model was trained on"
    )
    log.warning("%s; set corpus.near_duplicates to drop near-copies", warning)
    return warning


def task_passages(task: str) -> dict[str, list[str]]:
    # Return the distinct passages of each task file: SQuAD's contexts, QNLI's sentences.
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
