"""Byte-level BPE and unigram vocabularies: learnt to the same bytes, used as transformers uses them."""

import os
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest
from pydantic import ValidationError

from pipeline_src.common.errors import PipelineError
from pipeline_src.common.files import hash_file
from pipeline_src.config.data import VocabularyParams
from pipeline_src.config.pretrain import Masking
from pipeline_src.corpus.documents import Document, write_manifest, write_shard
from pipeline_src.pretraining.masking import MLMCollator
from pipeline_src.tokenizer import train_tokenizer as train
from pipeline_src.tokenizer.encode import Encoder
from pipeline_src.tokenizer.load import kind_of, load_tokenizer
from pipeline_src.tokenizer.special_tokens import read_templates
from pipeline_src.tokenizer.train_tokenizer import TOO_LONG, WordCounts, count_chunks
from pipeline_src.tokenizer.unigram import build_tokenizer, learn_model, normalizer, pieces_of
from pipeline_src.tools.fill_mask import reading_masks
from tests.sources import corpus_of

KINDS = ["byte_bpe", "unigram"]
TRICKY = [
    "The cat sat on the mat.", "  two  spaces\tand a tab ", "Naïve café, ﬁne №5!", "北京 is far", "", " ", "x", "don't",
    "the", " the", "a" * 300, "unseen 🦊 emoji", "</s> <s> [SEP] [CLS] <unk>",
]  # fmt: skip
CODE = """
import os
from pipeline_src.corpus import documents
documents.slice_shards.__defaults__ = (700,)
from pipeline_src.config.data import VocabularyParams
from pipeline_src.tokenizer import train_tokenizer as train
from tests.sources import corpus_of
for kind in ("byte_bpe", "unigram"):
    vocabulary = VocabularyParams(kind=kind, vocab_size=400)
    train.run(seed=1, corpus=corpus_of(validation=0.1), vocabulary=vocabulary)
    os.rename("data/vocabulary", kind)
"""


def sentences(root) -> list[str]:
    """This project's own pages, a few thousand words."""
    lines = (root / "docs/architecture.md").read_text().splitlines() + (root / "README.md").read_text().splitlines()
    return [" ".join(line.split()) for line in lines if line.strip()]


@pytest.fixture(scope="module")
def learnt(root, tmp_path_factory):
    """A folder that holds the text, and one vocabulary of each kind beside."""
    folder, before = tmp_path_factory.mktemp("kinds"), os.getcwd()
    lines = sentences(root)
    for place in ("wikipedia/clean-text", "books/clean-text"):
        path = folder / "data/text" / place
        path.mkdir(parents=True)
        documents = [Document(f"{place}:{n}", "", "\n".join(lines[n::40])) for n in range(40)]
        write_manifest(path, [write_shard(path / "x.jsonl", documents)], {})
    os.chdir(folder)
    try:
        for kind in KINDS:
            run(kind)
            os.rename("data/vocabulary", kind)
    finally:
        os.chdir(before)
    return folder


def run(kind: str, **params) -> None:
    vocabulary = VocabularyParams(**{"kind": kind, "vocab_size": 400} | params)
    train.run(seed=1, corpus=corpus_of(validation=0.1), vocabulary=vocabulary)


def test_same_bytes_in_another_process_with_other_workers_and_slices(learnt, root, tmp_path):
    os.symlink(learnt / "data/text", (tmp_path / "data").mkdir() or tmp_path / "data/text")
    environment = os.environ | {"PYTHONHASHSEED": "7", "PIPELINE_WORKERS": "3", "PYTHONPATH": str(root)}
    subprocess.run([sys.executable, "-c", CODE], check=True, env=environment, cwd=tmp_path)
    for kind in KINDS:
        made = {path.name: hash_file(path) for path in (tmp_path / kind).iterdir()}
        assert made == {path.name: hash_file(path) for path in (learnt / kind).iterdir()}
        assert set(made) == {"tokenizer.json", "tokenizer_config.json", "manifest.json"}


@pytest.mark.parametrize("kind", KINDS)
def test_transformers_gives_the_same_ids(learnt, root, kind):
    transformers = pytest.importorskip("transformers", reason="an extra of the tests")
    theirs = transformers.AutoTokenizer.from_pretrained(learnt / kind)
    tokenizer = load_tokenizer(learnt / kind)
    encoder = Encoder(tokenizer)
    for text in [*sentences(root), *TRICKY]:
        ids = encoder.encode(text)
        assert ids == theirs(text, add_special_tokens=False, split_special_tokens=True)["input_ids"], text
    a, b = TRICKY[:2]
    ids, segments = read_templates(tokenizer).pair.apply(encoder.encode(a), encoder.encode(b))
    pair = theirs(a, b)
    assert pair["input_ids"] == ids and pair.get("token_type_ids", segments) == segments
    prompt = f"The {theirs.mask_token} sat on the {theirs.mask_token}."
    assert reading_masks(tokenizer).encode(prompt).ids == theirs(prompt)["input_ids"]
    assert theirs(prompt)["input_ids"].count(theirs.mask_token_id) == 2
    expected = {role: theirs.convert_tokens_to_ids(getattr(theirs, f"{role}_token")) for role in ("pad", "unk", "mask")}
    found = kind_of(tokenizer)
    assert {role: tokenizer.token_to_id(getattr(found, role)) for role in expected} == expected


def test_the_special_tokens_stand_where_the_originals_have_them(learnt):
    entries = {kind: load_tokenizer(learnt / kind).get_vocab() for kind in KINDS}
    roberta, albert = entries["byte_bpe"], entries["unigram"]
    assert [roberta[token] for token in ("<s>", "<pad>", "</s>", "<unk>", "<mask>")] == [0, 1, 2, 3, len(roberta) - 1]
    assert [albert[token] for token in ("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]")] == [0, 1, 2, 3, 4]
    assert len(roberta) == len(albert) == 400


def test_a_word_has_the_same_ids_wherever_it_stands_and_any_text_comes_back(learnt):
    for kind in KINDS:
        encoder = Encoder(load_tokenizer(learnt / kind))
        assert encoder.encode("the cat. the mat") == [
            *encoder.encode("the"), *encoder.encode("cat."), *encoder.encode("the mat")
        ]  # fmt: skip
        special = {*read_templates(load_tokenizer(learnt / kind)).special_ids, 0}
        assert not any(special & set(encoder.encode(text)) for text in TRICKY)  # none that is written becomes one
    bytes_ = load_tokenizer(learnt / "byte_bpe")
    for text in TRICKY[3:6]:
        assert bytes_.decode(Encoder(bytes_).encode(text)).removeprefix(" ") == text.strip(" ").removeprefix(" ")
    unknown = bytes_.token_to_id("<unk>")
    assert all(unknown not in Encoder(bytes_).encode(text) for text in TRICKY)


def test_unigram_cuts_words_as_sentencepiece_does(root):
    """Given our normalised text, on every line of the pages and on what normalisers treat in their own ways."""
    lines, params = sentences(root), VocabularyParams(kind="unigram", vocab_size=500)
    peer = learn_model(count_chunks(lines, normalizer(True), longest=100), params)
    tokenizer = build_tokenizer(pieces_of(peer), lowercase=True)
    for line in [*lines, *TRICKY]:
        assert Encoder(tokenizer).encode(line) == peer.encode(tokenizer.normalizer.normalize_str(line).strip()), line


@pytest.mark.parametrize("kind", KINDS)
def test_masks_go_by_role_and_never_to_special_tokens(learnt, kind):
    tokenizer = load_tokenizer(learnt / kind)
    masked = MLMCollator.of(
        tokenizer, 0.5, Masking(mask_ratio=1.0, random_ratio=0.0, keep_ratio=0.0, unit="whole_word"), seed=1
    )
    ids, _ = read_templates(tokenizer).single.apply(Encoder(tokenizer).encode("the tokens of a batch laid end to end"))
    ids = np.array(ids)
    seen, chosen = masked.apply(ids, np.array([len(ids)]), np.array([0]))
    assert masked.mask_id == tokenizer.token_to_id(kind_of(tokenizer).mask)
    assert len(chosen) and set(seen[chosen]) == {masked.mask_id} and not {0, len(ids) - 1} & set(chosen)
    special = [*read_templates(tokenizer).special_ids, masked.mask_id, 0]
    assert not kind_of(tokenizer).is_continuation(tokenizer)[special].any()  # a mark belongs to no word
    spelt = "".join(kind_of(tokenizer).spelt(tokenizer.id_to_token(i)) for i in Encoder(tokenizer).encode("The tokens"))
    assert spelt == "thetokens"


def test_what_does_not_fit_is_one_clear_error(learnt, monkeypatch):
    monkeypatch.chdir(learnt)
    with pytest.raises(ValidationError, match="vocab_size \\(200\\) must be at least 262 for kind: byte_bpe"):
        VocabularyParams(kind="byte_bpe", vocab_size=200)
    with pytest.raises(ValidationError, match="unused \\(3\\) is only for kind: wordpiece"):
        VocabularyParams(kind="unigram", vocab_size=200, unused=3)
    texts = [Document("wikipedia:x", "", " ".join(map(chr, range(0x4E00, 0x4E00 + 300))))]
    write_manifest(
        learnt / "data/text/books/clean-text", [write_shard(learnt / "data/text/books/clean-text/x.jsonl", texts)], {}
    )
    with pytest.raises(PipelineError, match="the vocabulary is too small"):
        run("unigram", vocab_size=100, min_frequency=1)


def test_long_words_of_bytes_are_not_unknown(tmp_path):
    params = VocabularyParams(kind="byte_bpe", vocab_size=300)
    (tmp_path / "runs").mkdir()
    words, dropped, texts = WordCounts(tmp_path / "runs"), Counter(), ["a few words " + "x" * 200] * 3
    words.add(train.LEARNERS["byte_bpe"].count(params)(texts, dropped=dropped))
    train.LEARNERS["byte_bpe"].learn(tmp_path, words, texts, params)
    assert dropped[TOO_LONG] == 3 and train.measure(tmp_path, words, dropped[TOO_LONG])["coverage"] == 1
