"""Encoding real sentences from a cold start, against `tokenizers`' batch encoder; all text gets the same ids."""

from __future__ import annotations

import gzip
import lzma
import sys
from collections.abc import Iterator

from tokenizers import Tokenizer

from benchmarks.material import MORE, articles_text, books_text
from benchmarks.measure import race, report
from pipeline_src.text.sentences import split_sentences
from pipeline_src.tokenizer.encode import Encoder
from pipeline_src.tokenizer.train_tokenizer import count_words
from pipeline_src.tokenizer.wordpiece import build_tokenizer
from pipeline_src.tokenizer.wordpiece_trainer import learn_vocabulary

# Size in bytes of the sentences whose encoding is timed.
TIMED = 30 << 20
BATCH = 20_000
ROUNDS = 3


def other_lines() -> Iterator[tuple[str, list[str]]]:
    # Raw lines with markup, other scripts and tables.
    italian = MORE / "wiki_xml" / "itwiki-small-dump.xml.gz"
    if italian.exists():
        yield "Italian dump", gzip.open(italian, "rt", encoding="utf-8").read().split("\n")
    for name in ("valid", "test"):
        path = MORE / "wikitext2" / f"{name}.txt.xz"
        if path.exists():
            yield f"WikiText-2 {name}", lzma.open(path, "rt", encoding="utf-8").read().split("\n")


def count_differences(tokenizer: Tokenizer, lines: list[str]) -> int:
    encoder = Encoder(tokenizer)
    different = 0
    for start in range(0, len(lines), BATCH):
        batch = lines[start : start + BATCH]
        expected = tokenizer.encode_batch(batch, add_special_tokens=False)
        different += sum(encoder.encode(line) != found.ids for line, found in zip(batch, expected, strict=True))
    return different


def main() -> None:
    texts = articles_text() + books_text()
    paragraphs = [paragraph for text in texts for paragraph in text.split("\n")]
    pieces = learn_vocabulary(count_words(paragraphs, lowercase=True), 30_522, 1000, 2)
    tokenizer = build_tokenizer(pieces, lowercase=True)
    sentences: list[str] = []
    size = 0
    for paragraph in paragraphs:
        if size >= TIMED:
            break
        found = split_sentences(paragraph, "en")
        sentences += found
        size += sum(len(sentence.encode()) for sentence in found)

    def ours() -> None:
        encoder = Encoder(tokenizer)
        for sentence in sentences:
            encoder.encode_bytes(sentence)

    def peer() -> None:
        for start in range(0, len(sentences), BATCH):
            tokenizer.encode_batch(sentences[start : start + BATCH], add_special_tokens=False)

    seconds = race({"ours": ours, "peer": peer}, ROUNDS)
    rates = {name: size / 1e6 / time for name, time in seconds.items()}

    cased = build_tokenizer(
        learn_vocabulary(count_words(articles_text(), lowercase=False), 30_522, 1000, 2), lowercase=False
    )
    compared: dict[str, int] = {}
    different = 0
    for name, lines in [("articles and books", paragraphs), *other_lines()]:
        compared[name] = len(lines)
        different += count_differences(tokenizer, lines)
        different += count_differences(cased, lines)
        print(f"compared {name}: {len(lines)} lines, uncased and cased", file=sys.stderr)
    name = "tokenizers encode_batch"
    report(
        "encode",
        "MB of sentences per CPU-second, cold start",
        rates["ours"],
        {name: rates["peer"]},
        {name: 4.0},
        met_more=different == 0,
        megabytes=round(size / 1e6, 1),
        sentences=len(sentences),
        lines_compared=compared,
        lines_with_other_ids=different,
    )


if __name__ == "__main__":
    main()
