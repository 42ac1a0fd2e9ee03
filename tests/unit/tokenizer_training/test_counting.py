"""Counting words: by chunks as in the whole text, in slices, on disk when there are many."""

from collections import Counter
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

from pipeline_src.corpus.documents import Document, slice_shards, write_manifest, write_shard
from pipeline_src.corpus.validation_split import in_validation_split
from pipeline_src.tokenizer_training.counting import TOO_LONG, WordCounts, count_shards, count_words


@settings(max_examples=200, deadline=None)
@given(st.lists(st.text() | st.text("Aá [].\u0301\u00a0\n北"), max_size=4), st.booleans())
def test_counting_by_chunks_is_counting_whole_text(paragraphs, lowercase):
    normalizer, splitter = BertNormalizer(lowercase=lowercase), BertPreTokenizer()
    whole = Counter(
        word for text in paragraphs for word, _ in splitter.pre_tokenize_str(normalizer.normalize_str(text))
    )
    assert count_words(paragraphs, lowercase) == whole


def test_long_words_are_counted_but_not_kept():
    dropped: Counter[str] = Counter()
    words = count_words(["a " + "b" * 8 + " " + "c" * 9 + ", " + "c" * 9], True, longest=8, dropped=dropped)
    assert words == {"a": 1, "b" * 8: 1, ",": 1}
    assert dropped == {TOO_LONG: 2}


@settings(deadline=None)
@given(st.lists(st.dictionaries(st.text("abé\U0001f600", min_size=1, max_size=3), st.integers(1, 9)), max_size=6))
def test_sums_do_not_depend_on_the_limit_of_memory(tmp_path_factory, additions):
    folder = tmp_path_factory.mktemp("runs")
    expected: Counter[str] = Counter()
    for counts in additions:
        expected.update(counts)
    for most in (0, 2, 1000):
        (folder / str(most)).mkdir()
        words = WordCounts(folder / str(most), most)
        for counts in additions:
            words.add(counts)
        for _ in range(2):
            assert list(words.items()) == sorted(expected.items())
        assert bool(words) == bool(expected)


def test_many_words_go_to_disk(tmp_path):
    words = WordCounts(tmp_path, most=1)
    words.add({"a": 1})
    assert not list(tmp_path.iterdir())
    words.add({"b": 1})
    assert (tmp_path / "0.tsv").read_text() == "a\t1\nb\t1\n"


@pytest.fixture
def corpus(tmp_path):
    folder = tmp_path / "text"
    folder.mkdir()
    documents = [Document(f"d:{n}", f"T{n}", f"Number {n}, naïve café.\nSecond: x{n % 7} " * 5) for n in range(60)]
    shards = [write_shard(folder / f"{n}.jsonl", part) for n, part in enumerate([documents[:40], [], documents[40:]])]
    write_manifest(folder, shards, {})
    return folder, documents


@pytest.mark.parametrize(("size", "workers", "most"), [(1 << 20, 1, 1000), (700, 2, 5), (97, 1, 0)])
def test_sums_do_not_depend_on_slices_workers_or_memory(corpus, tmp_path, monkeypatch, size, workers, most):
    folder, documents = corpus
    monkeypatch.setenv("PIPELINE_WORKERS", str(workers))
    words = WordCounts(tmp_path, most)
    dropped = count_shards(slice_shards(folder, size), words, partial(count_words, lowercase=True, longest=5), 3, 0.3)
    training = [document.text for document in documents if not in_validation_split(document.id, 3, 0.3)]
    assert 0 < len(training) < 60
    lost: Counter[str] = Counter()
    expected = count_words((line for text in training for line in text.split("\n")), True, 5, lost)
    assert dict(words.items()) == expected
    assert dropped == lost == {TOO_LONG: 10 * len(training)}  # "number" and "second"
