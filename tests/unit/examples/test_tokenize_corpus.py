"""Documents to token stores: splits, counts, decontamination, copies and segmenters."""

from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer
from tokenizers.pre_tokenizers import ByteLevel

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.files import hash_file, read_json, write_json
from pipeline_src.examples.build_examples import run as build_examples
from pipeline_src.examples.token_store import TokenStore
from pipeline_src.examples.tokenize_corpus import run
from pipeline_src.pretrain.data import open_examples
from pipeline_src.study.data import ExamplesParams, Lengths, VocabularyParams
from pipeline_src.study.pretrain import Masking
from pipeline_src.tasks.evaluation_texts import write_texts
from pipeline_src.text.documents import (
    Document,
    in_validation_split,
    read_documents,
    slice_shards,
    write_manifest,
    write_shard,
)
from pipeline_src.tokenizer import train_tokenizer as train
from pipeline_src.tokenizer.encode import Encoder
from pipeline_src.tokenizer.load import kind_of, load_tokenizer
from pipeline_src.tokenizer.wordpiece import SPECIAL_TOKENS, save_tokenizer
from tests.studies import corpus_of, install_segmenter, read_dropped, write_clean_text

CORPUS = corpus_of(validation=0.3)


def write_corpus(source: str, prefix: str, count: int) -> None:
    text = "Number {n} is first. It has words.\nA second paragraph, {prefix} {n}."
    write_clean_text(
        source, [Document(f"{prefix}:{n}", f"T{n}", text.format(n=n, prefix=prefix)) for n in range(count)]
    )


def tokenize(corpus=CORPUS, beam_args=()) -> dict:
    """Run the stage; return its manifest."""
    run(seed=1, corpus=corpus, beam_args=beam_args)
    return read_json("data/tokens/manifest.json")


@pytest.fixture
def study(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_corpus("wikipedia", "wiki", 30)
    write_corpus("left-over", "old", 30)
    write_corpus("books", "books", 10)
    train.run(seed=1, corpus=CORPUS, vocabulary=VocabularyParams(vocab_size=150, limit_alphabet=60))
    return tmp_path


def test_tokenize_corpus_documents_are_written_to_their_split(study):
    tokenize()
    ids = [f"books:{n}" for n in range(10)] + [f"wiki:{n}" for n in range(30)]
    tokenizer = load_tokenizer("data/vocabulary")
    for split in ("train", "validation"):
        store = TokenStore("data/tokens", split)
        expected = [name for name in ids if in_validation_split(name, 1, 0.3) is (split == "validation")]
        assert len(store) == len(expected)
        assert (np.diff(store.documents) == 3).all()
        for number, name in enumerate(expected):
            start, end = store.sentences[store.documents[number] :][:2]
            first = f"Number {name.split(':')[1]} is first."
            assert store.ids[start:end].tolist() == tokenizer.encode(first, add_special_tokens=False).ids
        # Without a segmenter, no word boundaries are stored.
        assert store.continues is None
        assert not (study / f"data/tokens/{split}.continues").exists()


def test_tokenize_corpus_counts_each_source(study):
    manifest = tokenize()
    for split, totals in manifest["splits"].items():
        parts = manifest["parts"][split]
        assert set(parts) == {"books", "wikipedia"}  # the left-over source is not read
        for count in ("documents", "sentences", "tokens"):
            assert sum(part[count] for part in parts.values()) == totals[count] > 0
    assert sum(manifest["parts"][split]["wikipedia"]["documents"] for split in manifest["parts"]) == 30


def test_tokenize_corpus_manifest_names_every_source_once(study):
    assert tokenize()["sources"] == []  # nothing is known of them
    wiki, books = {"name": "w", "title": "A wiki", "licence": "CC BY-SA"}, {"name": "b", "title": "Books"}
    for source, sources in (("books", [books]), ("wikipedia", [wiki, books]), ("left-over", [{}])):
        path = study / "data/text" / source / "clean-text/manifest.json"
        write_json(path, {**read_json(path), "sources": sources})
    assert tokenize()["sources"] == [books, wiki]


@pytest.mark.parametrize(("wiki", "books", "sentences"), [("de", None, [1, 2]), ("en", "und", [2, 2])])
def test_tokenize_corpus_sentences_are_split_by_language(study, wiki, books, sentences):
    for source, language in (("wikipedia", wiki), ("books", books)):
        documents = [Document(f"{source}:{n}", "", f"{source} is 22. Februar is words") for n in range(40)]
        write_clean_text(source, documents, **({"language": language} if language else {}))
    counts = tokenize()["parts"]["train"]
    assert [counts[source]["sentences"] / counts[source]["documents"] for source in ("wikipedia", "books")] == sentences


def output_hashes() -> dict[str, str]:
    return {path.name: hash_file(path) for path in sorted(Path("data/tokens").iterdir())}


def test_tokenize_corpus_same_bytes_for_any_workers_slices_and_shards(study, monkeypatch):
    tokenize()
    expected = output_hashes()
    assert len(expected) == 8
    for workers, size in ((1, 100), (2, 350)):
        monkeypatch.setenv("PIPELINE_WORKERS", str(workers))
        monkeypatch.setattr(slice_shards, "__defaults__", (size,))
        tokenize()
        assert output_hashes() == expected
    folder = study / "data/text/wikipedia/clean-text"
    documents = list(read_documents(folder))
    (folder / "x.jsonl").unlink()
    parts = [documents[:1], [], documents[1:20], documents[20:]]
    write_manifest(folder, [write_shard(folder / f"{n}.jsonl", part) for n, part in enumerate(parts)], {})
    tokenize()
    assert output_hashes() == expected


def test_tokenize_corpus_empty_documents_are_dropped_and_counted(study, monkeypatch):
    empty = ["", "\n \n", "\u200b\n\ufeff"]
    texts = [*empty, "One sentence only.", "Another one.\n\u200d", "Two of them. Here it is."] * 5
    write_clean_text("books", [Document(f"books:{n}", "", text) for n, text in enumerate(texts)])
    monkeypatch.setattr(slice_shards, "__defaults__", (150,))
    manifest = tokenize()
    assert manifest["dropped"] == {"document_without_tokens": 15}
    books = [parts["books"] for parts in manifest["parts"].values()]
    for count, total in (("documents", 15), ("single_sentence_documents", 10), ("sentences", 20)):
        assert sum(split[count] for split in books) == total
    assert all(split["tokens"] for split in books)


def test_tokenize_corpus_source_without_documents_counts_zero(study):
    write_clean_text("books", [])
    assert not any(tokenize()["parts"]["train"]["books"].values())
    assert len(TokenStore("data/tokens", "train")) > 10


def test_tokenize_corpus_vocabulary_beyond_16_bits_uses_uint32(study):
    """The entries of the text are the last ones of 70,000; batches are loaded with ids of 32 bits."""
    folder = study / "data/vocabulary"
    learnt = (folder / "vocab.txt").read_text(encoding="utf-8").split("\n")[:-1]
    assert tokenize()["splits"]["train"]["id_type"] == "uint16"
    narrow = TokenStore("data/tokens", "train").ids.astype(np.int64)

    spare = [f"[unused{number}]" for number in range(70_000 - len(learnt))]
    save_tokenizer(folder, [*SPECIAL_TOKENS, *spare, *learnt[len(SPECIAL_TOKENS) :]], lowercase=True)
    assert tokenize()["splits"]["train"]["id_type"] == "uint32"
    wide = TokenStore("data/tokens", "train")
    assert wide.ids.dtype == np.uint32
    assert np.array_equal(wide.ids, narrow + len(spare) * (narrow >= len(SPECIAL_TOKENS)))

    build_examples(seed=1, examples=ExamplesParams(max_seq_length=Lengths(phase1=16, phase2=32)))
    examples = open_examples("phase1", "train", load_tokenizer(folder), 0.15, Masking(), 1, "clm")
    a, _, length, _, _ = examples.sample_index[0]
    assert examples.batch(np.asarray([0])).ids[1 : 1 + length].tolist() == wide.ids[a : a + length].tolist()


def test_tokenize_corpus_few_validation_documents_warn_and_none_is_rejected(study, caplog):
    tokenize()
    few = sum(in_validation_split(f"books:{n}", 1, 0.3) for n in range(10))
    assert f"books: only {few} documents for validation" in caplog.text
    (study / "data/tokens").rename(study / "before")
    for validation, message in ((0.03, "of books for validation"), (1e-9, "in split 'validation'")):
        with pytest.raises(PipelineError, match=f"no document {message}"):
            tokenize(corpus_of(validation=validation))
        assert not (study / "data/tokens").exists()


NUMBERS = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen".split()
REMOVE = corpus_of(validation=0.3, decontaminate="remove")


def test_tokenize_corpus_decontaminate_removes_documents_with_evaluation_texts(study, monkeypatch):
    counted = [[f"{word}{'x' * n}" for word in NUMBERS] for n in range(40)]
    texts = [f"It has words. {' '.join(words)} is first. The first has words." for words in counted]
    write_clean_text("books", [Document(f"books:{n}", f"B{n}", text) for n, text in enumerate(texts)])
    train.run(seed=1, corpus=CORPUS, vocabulary=VocabularyParams(vocab_size=150, limit_alphabet=60))
    thirteen = [("squad1", f"Said once: {', '.join(words[1:14]).upper()}!") for words in counted[:20]]
    twelve = [("rte", f"said {' '.join(words[2:14])} too") for words in counted[20:]]
    (study / "data/evaluation_texts").mkdir()
    write_texts(study / "data/evaluation_texts", [*twelve, *thirteen])
    assert tokenize()["dropped"] == {}

    manifest = tokenize(REMOVE)
    expected = {n for n in range(20) if not in_validation_split(f"books:{n}", 1, 0.3)}
    assert 5 < len(expected) < 20
    assert manifest["dropped"] == {"text_of_an_evaluation_set": len(expected)}
    assert sum(manifest["parts"][split]["books"]["documents"] for split in manifest["parts"]) == 40 - len(expected)
    dropped = {int(item["id"].split(":")[1]): item for item in read_dropped(study / "data/tokens")}
    assert dropped.keys() == expected
    for number, item in dropped.items():
        assert item["value"] == f"squad1: {thirteen[number][1]}"
        assert item["text"] == texts[number]

    before = output_hashes()
    monkeypatch.setenv("PIPELINE_WORKERS", "2")
    monkeypatch.setattr(slice_shards, "__defaults__", (900,))
    tokenize(REMOVE)
    assert output_hashes() == before


PASSAGE = ["He came home.", "Nobody knew why he was late.", "Dogs ran out.", "She said it was the old mill."]
PASSAGE += ["The wheel turned.", "Its stone was worn.", "They had no bread.", "We left the town before the night."]


@pytest.mark.parametrize("kind", ["wordpiece", "byte_bpe", "given", "unigram"])
def test_tokenize_corpus_decontaminate_reads_short_sentences_as_training_does(study, kind):
    """``given``: as RoBERTa's, in which a word at the start of a text has other ids than after a space."""
    passage = " ".join(PASSAGE)
    documents = [f"Number {n} is first.\n{joiner.join(PASSAGE)}" for n in range(10) for joiner in (" ", "\n")]
    write_clean_text("books", [Document(f"books:{n}", "B", text) for n, text in enumerate(documents)])
    trained = "byte_bpe" if kind == "given" else kind
    vocabulary = VocabularyParams(kind=trained, vocab_size=400, limit_alphabet=60, min_frequency=1)
    train.run(seed=1, corpus=CORPUS, vocabulary=vocabulary)
    if kind == "given":
        path = study / "data/vocabulary/tokenizer.json"
        tokenizer = Tokenizer.from_file(str(path))
        tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
        tokenizer.save(str(path))
        assert Encoder(load_tokenizer("data/vocabulary")).lacks_prefix_space
    (study / "data/evaluation_texts").mkdir()
    write_texts(study / "data/evaluation_texts", [("squad1", passage), ("rte", "Another text.")])
    manifest = tokenize(REMOVE)
    expected = sum(not in_validation_split(f"books:{n}", 1, 0.3) for n in range(len(documents)))
    assert manifest["dropped"] == {"text_of_an_evaluation_set": expected}


def test_tokenize_corpus_given_vocabulary_has_a_space_between_sentences(study):
    train.run(seed=1, corpus=CORPUS, vocabulary=VocabularyParams(kind="byte_bpe", vocab_size=400, min_frequency=1))
    path = study / "data/vocabulary/tokenizer.json"
    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
    tokenizer.save(str(path))
    tokenize()
    store = TokenStore("data/tokens", "train")
    ids = store.ids[: store.sentences[store.documents[1]]]
    decoded = tokenizer.decode(ids.tolist())
    assert ". it has words. a second paragraph" in decoded and decoded == decoded.strip()


def test_tokenize_corpus_decontaminate_without_texts_removes_nothing(study):
    tokenize()
    before = output_hashes()
    with pytest.raises(PipelineError, match=r"evaluation sets are missing[\s\S]*download_tasks"):
        tokenize(REMOVE)
    (study / "data/evaluation_texts").mkdir()
    write_texts(study / "data/evaluation_texts", [])
    tokenize(REMOVE)
    assert output_hashes() == before


@pytest.mark.parametrize("slice_size", [1 << 20, 200])
def test_tokenize_corpus_copy_from_earlier_source_is_dropped(study, caplog, monkeypatch, slice_size):
    """Copies have the same tokens; those within a source stay."""
    text = "NUMBER  {n} is first. It has words.\nA second paragraph, books {n}."
    copies = [Document(f"wiki:{n}", "", text.format(n=n)) for n in range(4)]
    repeated = [Document(f"wiki:{n}", "", "Words of its own, twice.") for n in range(40, 60)]
    write_clean_text("wikipedia", [*repeated, *copies, *repeated])
    monkeypatch.setattr(slice_shards, "__defaults__", (slice_size,))
    manifest = tokenize()
    assert manifest["dropped"] == {"copy_of_another_source": 4}
    counts = [manifest["parts"][split] for split in ("train", "validation")]
    assert sum(parts["wikipedia"]["documents"] for parts in counts) == 40
    assert sum(parts["books"]["documents"] for parts in counts) == 10
    assert "dropped 4 documents that are copies of documents of another source" in caplog.text
    # Its offsets are checked when a store is opened.
    TokenStore("data/tokens", "train")


def test_tokenize_corpus_near_copies_of_all_sources_are_dropped(study, monkeypatch):
    """The first by source and position stays, and the records of its copies name it, for any workers and slices."""
    words = [[f"w{(n * 31 + k * k) % 997}" for k in range(60)] for n in range(20)]
    changed = [", ".join([*text[:-1], "other"]).upper() for text in words[:15]]
    write_clean_text("books", [Document(f"books:{n}", "", " ".join(words[n])) for n in range(10)])
    wiki = [Document(f"wiki:{n}", "", text) for n, text in enumerate(changed)]
    again = [Document(f"again:{n}", "", " ".join(words[n])) for n in range(10, 20)]
    write_clean_text("wikipedia", [*wiki, *again])
    corpus = corpus_of(validation=0.3, near_duplicates=0.8)
    manifest = tokenize(corpus)
    expected = output_hashes()
    for workers, beam_args in (("2", ()), ("1", ("--runner=FnApiRunner",))):
        monkeypatch.setenv("PIPELINE_WORKERS", workers)
        monkeypatch.setattr(slice_shards, "__defaults__", (2000,))
        tokenize(corpus, beam_args)
        assert output_hashes() == expected
    assert manifest["dropped"] == {"near_duplicate": 15}
    assert sum(part["documents"] for parts in manifest["parts"].values() for part in parts.values()) == 20
    originals = {record["id"]: record["value"] for record in read_dropped(study / "data/tokens")}
    assert originals == {f"wiki:{n}": f"books:{n}" for n in range(10)} | {
        f"again:{n}": f"wiki:{n}" for n in range(10, 15)
    }


def test_tokenize_corpus_segmenter_words_are_masked_whole(study, monkeypatch):
    monkeypatch.syspath_prepend(install_segmenter(study / "packages"))
    letters = "abcdefghij"
    texts = ["".join(letters[(n + k * k) % 10] for k in range(60)) for n in range(30)]
    write_clean_text("unspaced", [Document(f"unspaced:{n}", "T", text) for n, text in enumerate(texts)])
    corpus = corpus_of("unspaced", "wikipedia", validation=0.3)
    source = corpus.source("unspaced").model_copy(update={"segmenter": "in_twos:in_twos"})
    corpus = corpus.model_copy(update={"sources": {**corpus.sources, "unspaced": source}})
    train.run(seed=1, corpus=corpus, vocabulary=VocabularyParams(kind="byte_bpe", vocab_size=300))
    assert tokenize(corpus)["segmenters"] == ["in_twos:in_twos in_twos 1.0"]

    tokenizer = load_tokenizer("data/vocabulary")
    store = TokenStore("data/tokens", "train")
    first_text = next(text for n, text in enumerate(texts) if not in_validation_split(f"unspaced:{n}", 1, 0.3))
    encoded = tokenizer.encode(first_text, add_special_tokens=False)
    assert store.ids[: len(encoded.ids)].tolist() == encoded.ids
    words = np.array([(end - 1) // 2 for _, end in encoded.offsets])
    assert store.continues[: len(words)].tolist() == [False, *(words[1:] == words[:-1]).tolist()]
    # Of the source without a segmenter, the ids tell.
    kind = kind_of(tokenizer).is_continuation(tokenizer)
    assert store.continues[-100:].tolist() == kind[store.ids[-100:]].tolist()

    build_examples(seed=1, examples=ExamplesParams(max_seq_length=Lengths(phase1=32, phase2=32), pair_objective="none"))
    masking = Masking(unit="whole_word", mask_ratio=1, random_ratio=0, keep_ratio=0)
    examples = open_examples("phase1", "train", tokenizer, 0.3, masking, 1, "mlm")
    for number in range(len(examples)):
        batch = examples.batch(np.asarray([number]))
        start, _, length, _, _ = examples.sample_index[number]
        # The number of each token's word, without [CLS] and [SEP].
        word = np.cumsum(~store.continues[start : start + length])
        hidden = np.isin(np.arange(1, length + 1), batch.predicted)
        assert set(word[hidden]).isdisjoint(word[~hidden])
