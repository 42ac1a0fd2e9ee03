"""Stage ``vocabulary``: learn the WordPiece vocabulary from the training documents."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from pipeline_src.corpus.documents import corpus_folders, read_documents
from pipeline_src.corpus.heldout import is_heldout
from pipeline_src.errors import PipelineError
from pipeline_src.files import atomic_directory, write_json
from pipeline_src.params.corpus import CorpusParams
from pipeline_src.params.vocabulary import VocabularyParams
from pipeline_src.params.wikipedia import WikipediaParams
from pipeline_src.progress import log, track
from pipeline_src.vocabulary.encode import Encoder
from pipeline_src.vocabulary.learn import count_words, learn_vocabulary
from pipeline_src.vocabulary.wordpiece import UNK, load_tokenizer, save_tokenizer

TEXT, OUTPUT = Path("data/text"), Path("data/vocabulary")


def run(*, seed: int, corpus: CorpusParams, vocabulary: VocabularyParams, wikipedia: WikipediaParams) -> None:
    """Read ``data/text``, write ``data/vocabulary``.

    Raises:
        PipelineError: no training document holds a word.
    """
    words = count_words(_paragraphs(wikipedia.parts, seed, corpus.heldout), vocabulary.lowercase)
    if not words:
        raise PipelineError("no text to learn a vocabulary from", TEXT, remedy="see the drops in its manifest.json")
    pieces = learn_vocabulary(words, vocabulary.size, vocabulary.alphabet, vocabulary.min_count)
    if len(pieces) < vocabulary.size:
        log.warning("the text holds %d pieces only, fewer than vocabulary.size %d", len(pieces), vocabulary.size)
    with atomic_directory(OUTPUT) as folder:
        save_tokenizer(folder, pieces, vocabulary.lowercase)
        tokenizer = load_tokenizer(folder)
        encoder, unknown = Encoder(tokenizer), tokenizer.token_to_id(UNK)
        total = sum(words.values())
        written = known = 0
        for word, count in words.items():
            ids = encoder.encode(word)
            written += count * len(ids)
            known += count * (unknown not in ids)
        manifest = {
            "entries": len(pieces),
            "words": total,
            "distinct_words": len(words),
            "coverage": round(known / total, 6),
            "pieces_per_word": round(written / total, 4),
        }
        write_json(folder / "manifest.json", manifest)
    log.info(
        "%d entries; %.3f %% of words covered, %.2f pieces a word",
        len(pieces),
        100 * manifest["coverage"],
        manifest["pieces_per_word"],
    )


def _paragraphs(parts: Sequence[str], seed: int, share: float) -> Iterator[str]:
    for folder in corpus_folders(TEXT, parts):
        for document in track(read_documents(folder), f"counting words of {folder.relative_to(TEXT)}", "document"):
            if not is_heldout(document.id, seed, share):
                yield from document.text.split("\n")
