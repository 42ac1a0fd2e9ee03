"""The inputs of pretraining made from real text by the project's own stages, once, in ``data/benchmarks/study``.

Text is the sample's articles and novels (plays, where no novels are at hand), as ``material`` has them; the vocabulary
has up to 30,522 entries, learnt from all of it. Delete the folder to have it made again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from benchmarks._pretrain_sides import ENTRIES
from benchmarks.material import CACHE, articles_text, books_text
from pipeline_src.base.files import atomic_directory
from pipeline_src.base.paths import clean_text
from pipeline_src.examples import build_examples, tokenize_corpus
from pipeline_src.pretrain.data import PretrainingExamples, open_examples
from pipeline_src.study.data import (
    AnySource,
    BooksParams,
    CorpusParams,
    ExamplesParams,
    Lengths,
    VocabularyParams,
    WikipediaParams,
)
from pipeline_src.study.pretrain import Masking
from pipeline_src.text.documents import Document, write_manifest, write_shard
from pipeline_src.tokenizer import train_tokenizer
from pipeline_src.tokenizer.load import load_tokenizer

# The paper's lengths (appendix A.2).
LENGTHS = Lengths(phase1=128, phase2=512)
PHASES = {128: "phase1", 512: "phase2"}
SEED, MASK_PROB = 1, 0.15
BOOKS_BYTES = 30_000_000
# The validation share is larger than usual, since the sample has few articles.
VALIDATION = 0.05
# Number of paragraphs of a book that make a document here.
PARAGRAPHS = 60


def study_folder() -> Path:
    """Return a folder with ``data/{text,vocabulary,tokens,examples}``, as the stages write them."""
    finished = (CACHE / "study").absolute()
    if finished.exists():
        return finished
    sources: dict[str, AnySource] = {
        "wikipedia": WikipediaParams(entry="enwiki-sample"),
        "books": BooksParams(entry="novels-sample"),
    }
    corpus = CorpusParams(sources=sources, validation=VALIDATION)
    with atomic_directory(finished) as folder:
        _write_text(folder / clean_text("books"), "books", _book_parts())
        _write_text(folder / clean_text("wikipedia"), "wikipedia/all", articles_text())
        with contextlib.chdir(folder):
            train_tokenizer.run(seed=SEED, corpus=corpus, vocabulary=VocabularyParams(vocab_size=ENTRIES))
            tokenize_corpus.run(seed=SEED, corpus=corpus)
            build_examples.run(seed=SEED, examples=ExamplesParams(max_seq_length=LENGTHS))
    return finished


def training_examples(length: int) -> PretrainingExamples:
    with contextlib.chdir(study_folder()):
        tokenizer = load_tokenizer(Path("data/vocabulary"))
        return open_examples(PHASES[length], "train", tokenizer, MASK_PROB, Masking(), SEED, "mlm")


def _book_parts() -> Iterator[str]:
    for book in books_text(BOOKS_BYTES):
        paragraphs = iter(book.split("\n"))
        while part := list(islice(paragraphs, PARAGRAPHS)):
            yield "\n".join(part)


def _write_text(folder: Path, name: str, texts: Iterable[str]) -> None:
    folder.mkdir(parents=True)
    documents = (Document(f"{name}:{number}", str(number), text) for number, text in enumerate(texts))
    write_manifest(folder, [write_shard(folder / "all.jsonl", documents)], {})
