"""Stage ``tokens``: every document as sentences of token ids, held-out documents apart."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from pipeline_src.corpus.documents import corpus_folders, read_documents, read_manifest
from pipeline_src.corpus.heldout import is_heldout
from pipeline_src.corpus.sentences import split_sentences
from pipeline_src.errors import PipelineError
from pipeline_src.examples.store import SPLITS, TokenWriter
from pipeline_src.files import atomic_directory, read_json, write_json
from pipeline_src.params.corpus import CorpusParams
from pipeline_src.params.wikipedia import WikipediaParams
from pipeline_src.progress import log, track
from pipeline_src.vocabulary.encode import Encoder
from pipeline_src.vocabulary.wordpiece import load_tokenizer

TEXT, VOCABULARY, OUTPUT = Path("data/text"), Path("data/vocabulary"), Path("data/tokens")
STATISTICS = Path("results/corpus.json")


def run(*, seed: int, corpus: CorpusParams, wikipedia: WikipediaParams) -> None:
    """Read ``data/text`` and ``data/vocabulary``, write ``data/tokens`` and ``results/corpus.json``.

    Raises:
        PipelineError: a split ends up without a document.
    """
    encoder = Encoder(load_tokenizer(VOCABULARY))
    folders = corpus_folders(TEXT, wikipedia.parts)
    splits: dict[str, list[dict[str, Any]]] = {split: [] for split in SPLITS}
    dropped: Counter[str] = Counter()
    with atomic_directory(OUTPUT) as folder:
        for text in folders:
            part = "-".join(text.relative_to(TEXT).parts)
            writers = {split: TokenWriter(folder, split, part) for split in SPLITS}
            for document in track(read_documents(text), f"encoding {part}", "document"):
                split = "heldout" if is_heldout(document.id, seed, corpus.heldout) else "train"
                sentences = [
                    ids
                    for paragraph in document.text.split("\n")
                    for sentence in split_sentences(paragraph)
                    if (ids := encoder.encode(sentence))
                ]
                if sentences:
                    writers[split].add(sentences)
                else:
                    dropped["document_without_tokens"] += 1
            for split, writer in writers.items():
                splits[split].append(writer.close())
        for split, parts in splits.items():
            if not sum(part["documents"] for part in parts):
                raise PipelineError(
                    f"no document in split {split!r}",
                    f"corpus.heldout = {corpus.heldout:g}",
                    where=TEXT,
                    remedy="give more documents, or another corpus.heldout or seed",
                )
        write_json(folder / "manifest.json", {"splits": splits, "dropped": dict(dropped)})
    write_json(STATISTICS, _statistics(folders, splits, dropped))
    for split, parts in splits.items():
        log.info(
            "%s: %d documents, %d tokens",
            split,
            sum(part["documents"] for part in parts),
            sum(part["tokens"] for part in parts),
        )


def _statistics(folders: list[Path], splits: dict[str, list[dict[str, Any]]], dropped: Counter[str]) -> dict[str, Any]:
    """What the report says of the corpus: per part its documents, words, drops by reason, sentences and tokens."""
    parts = {}
    for text in folders:
        manifest = read_manifest(text)
        name = "-".join(text.relative_to(TEXT).parts)
        parts[name] = {key: manifest[key] for key in ("documents", "words", "bytes", "dropped")}
        parts[name]["dropped_inside"] = manifest.get("dropped_lines") or manifest.get("dropped_blocks") or {}
        for split, rows in splits.items():
            parts[name][split] = next(
                {key: row[key] for key in ("documents", "sentences", "tokens")} for row in rows if row["name"] == name
            )
    return {"parts": parts, "vocabulary": read_json(VOCABULARY / "manifest.json"), "dropped": dict(dropped)}
