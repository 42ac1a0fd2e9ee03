"""Byte-level BPE and unigram vocabularies, compared with transformers and sentencepiece."""

import os
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest
from pydantic import ValidationError

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.files import hash_file
from pipeline_src.examples.masking import make_collator
from pipeline_src.study.data import VocabularyParams
from pipeline_src.study.pretrain import Masking
from pipeline_src.text.documents import Document
from pipeline_src.tokenizer import train_tokenizer as train
from pipeline_src.tokenizer.encode import Encoder
from pipeline_src.tokenizer.load import kind_of, load_tokenizer, reading_masks
from pipeline_src.tokenizer.special_tokens import read_templates
from pipeline_src.tokenizer.train_tokenizer import TOO_LONG, WordCounts, count_chunks
from pipeline_src.tokenizer.unigram import build_tokenizer, learn_model, normalizer, pieces_of
from tests.studies import corpus_of, write_clean_text

KINDS = ["byte_bpe", "unigram"]
TRICKY = [
    "The cat sat on the mat.", "  two  spaces\tand a tab ", "Naïve café, ﬁne №5!", "北京 is far", "", " ", "x", "don't",
    "the", " the", "a" * 300, "unseen 🦊 emoji", "</s> <s> [SEP] [CLS] <unk>",
]  # fmt: skip
CODE = """
import os
from pipeline_src.text import documents
documents.slice_shards.__defaults__ = (700,)
from pipeline_src.study.data import VocabularyParams
from pipeline_src.tokenizer import train_tokenizer as train
from tests.studies import corpus_of
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
def trained(root, tmp_path_factory):
    """A folder with the text and a vocabulary of each kind."""
    folder = tmp_path_factory.mktemp("kinds")
    lines = sentences(root)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for source in ("wikipedia", "books"):
            write_clean_text(source, [Document(f"{source}:{n}", "", "\n".join(lines[n::40])) for n in range(40)])
        for kind in KINDS:
            run(kind)
            os.rename("data/vocabulary", kind)
    return folder


def run(kind: str, **params) -> None:
    vocabulary = VocabularyParams(**{"kind": kind, "vocab_size": 400} | params)
    train.run(seed=1, corpus=corpus_of(validation=0.1), vocabulary=vocabulary)


def test_train_tokenizer_other_process_gives_same_bytes(trained, root, tmp_path):
    os.symlink(trained / "data/text", (tmp_path / "data").mkdir() or tmp_path / "data/text")
    environment = os.environ | {"PYTHONHASHSEED": "7", "PIPELINE_WORKERS": "3", "PYTHONPATH": str(root)}
    subprocess.run([sys.executable, "-c", CODE], check=True, env=environment, cwd=tmp_path)
    for kind in KINDS:
        made = {path.name: hash_file(path) for path in (tmp_path / kind).iterdir()}
        assert made == {path.name: hash_file(path) for path in (trained / kind).iterdir()}
        assert set(made) == {"tokenizer.json", "tokenizer_config.json", "manifest.json"}


@pytest.mark.parametrize("kind", KINDS)
def test_encoder_ids_equal_transformers(trained, root, kind):
    transformers = pytest.importorskip("transformers", reason="an extra of the tests")
    theirs = transformers.AutoTokenizer.from_pretrained(trained / kind)
    tokenizer = load_tokenizer(trained / kind)
    encoder = Encoder(tokenizer)
    for text in [*sentences(root), *TRICKY]:
        ids = encoder.encode(text)
        assert ids == theirs(text, add_special_tokens=False, split_special_tokens=True)["input_ids"], text
    ids, segments = read_templates(tokenizer).pair.apply(*map(encoder.encode, TRICKY[:2]))
    pair = theirs(*TRICKY[:2])
    assert pair["input_ids"] == ids
    assert pair.get("token_type_ids", segments) == segments
    prompt = f"The {theirs.mask_token} sat on the {theirs.mask_token}."
    assert reading_masks(tokenizer).encode(prompt).ids == theirs(prompt)["input_ids"]
    assert theirs(prompt)["input_ids"].count(theirs.mask_token_id) == 2
    known = kind_of(tokenizer)
    assert (known.pad, known.unk, known.mask) == (theirs.pad_token, theirs.unk_token, theirs.mask_token)


def test_special_tokens_ids_equal_roberta_and_albert(trained):
    entries = {kind: load_tokenizer(trained / kind).get_vocab() for kind in KINDS}
    roberta, albert = entries["byte_bpe"], entries["unigram"]
    assert [roberta[token] for token in ("<s>", "<pad>", "</s>", "<unk>", "<mask>")] == [0, 1, 2, 3, len(roberta) - 1]
    assert [albert[token] for token in ("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]")] == [0, 1, 2, 3, 4]
    assert len(roberta) == len(albert) == 400


@pytest.mark.parametrize("kind", KINDS)
def test_encoder_words_are_encoded_independently(trained, kind):
    tokenizer = load_tokenizer(trained / kind)
    encode = Encoder(tokenizer).encode
    assert encode("the cat. the mat") == [*encode("the"), *encode("cat."), *encode("the mat")]
    special = {*read_templates(tokenizer).special_ids, 0}
    assert not any(special & set(encode(text)) for text in TRICKY)


def test_encoder_ids_of_byte_bpe_decode_to_the_text(trained):
    tokenizer = load_tokenizer(trained / "byte_bpe")
    unknown = tokenizer.token_to_id("<unk>")
    for text in TRICKY:
        assert unknown not in Encoder(tokenizer).encode(text)
    for text in TRICKY[3:6]:
        assert tokenizer.decode(Encoder(tokenizer).encode(text)).removeprefix(" ") == text.strip(" ")


def test_unigram_ids_equal_sentencepiece(root):
    lines, params = sentences(root), VocabularyParams(kind="unigram", vocab_size=500)
    peer = learn_model(count_chunks(lines, normalizer(True), max_length=100), params)
    tokenizer = build_tokenizer(pieces_of(peer), lowercase=True)
    for line in [*lines, *TRICKY]:
        assert Encoder(tokenizer).encode(line) == peer.encode(tokenizer.normalizer.normalize_str(line).strip()), line


@pytest.mark.parametrize("kind", KINDS)
def test_mlm_collator_masks_no_special_tokens(trained, kind):
    tokenizer = load_tokenizer(trained / kind)
    masking = Masking(mask_ratio=1.0, random_ratio=0.0, keep_ratio=0.0, unit="whole_word")
    collator = make_collator("mlm", tokenizer, 0.5, masking, seed=1)
    templates = read_templates(tokenizer)
    ids, _ = templates.single.apply(Encoder(tokenizer).encode("the tokens of a batch laid end to end"))
    masked_ids, positions = collator.apply(np.array(ids), np.array([len(ids)]), np.array([0]))
    assert set(masked_ids[positions]) == {tokenizer.token_to_id(kind_of(tokenizer).mask)}
    assert not {0, len(ids) - 1} & set(positions.tolist())
    # A special token belongs to no word.
    special = [*templates.special_ids, collator.mask_id, 0]
    assert not kind_of(tokenizer).is_continuation(tokenizer)[special].any()


@pytest.mark.parametrize("kind", KINDS)
def test_kind_spelt_removes_the_prefix(trained, kind):
    tokenizer = load_tokenizer(trained / kind)
    pieces = map(tokenizer.id_to_token, Encoder(tokenizer).encode("The tokens"))
    assert "".join(map(kind_of(tokenizer).spelt, pieces)) == "thetokens"


def test_train_tokenizer_vocabulary_too_small_is_rejected(trained, monkeypatch):
    monkeypatch.chdir(trained)
    with pytest.raises(ValidationError, match="must be at least 262 for kind: byte_bpe"):
        VocabularyParams(kind="byte_bpe", vocab_size=200)
    with pytest.raises(ValidationError, match="is only for kind: wordpiece"):
        VocabularyParams(kind="unigram", vocab_size=200, unused=3)
    write_clean_text("books", [Document("books:x", "", " ".join(map(chr, range(0x4E00, 0x4E00 + 300))))])
    with pytest.raises(PipelineError, match="the vocabulary is too small"):
        run("unigram", vocab_size=100, min_frequency=1)
    with pytest.raises(PipelineError, match="no word is frequent enough"):
        run("unigram", vocab_size=1000, min_frequency=1_000_000)


def test_measure_byte_bpe_long_words_are_not_counted(tmp_path):
    params = VocabularyParams(kind="byte_bpe", vocab_size=300)
    (tmp_path / "runs").mkdir()
    words, dropped, texts = WordCounts(tmp_path / "runs"), Counter(), ["a few words " + "x" * 200] * 3
    words.add(train.word_counter(params)(texts, dropped=dropped))
    train.LEARNERS["byte_bpe"](tmp_path, words, texts, params)
    assert dropped[TOO_LONG] == 3 and train.measure(tmp_path, words, dropped[TOO_LONG])["coverage"] == 1
