"""Cached encoding: `tokenizers`' ids on any text."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

from pipeline_src.examples.token_store import id_type
from pipeline_src.tokenizer import encode
from pipeline_src.tokenizer.encode import Encoder
from pipeline_src.tokenizer.wordpiece import SPECIAL_TOKENS, build_tokenizer, reserved_tokens

# characters with rules in normalisers and splitters, and letters of the vocabulary
TRICKY = (
    "abeéÅİßſΣςﬁ \t\r\n\x00\x1c\x7f\x85\u00a0\u00ad\u0300\u0301\u0323\u0345\u05d0\u0627\u200b\u200d\u200e\u2028\u202e"
    "\u3000\ufe0f\ufeff\ufffd北京〇가각ᄀ\U0001f468\U0001f3fb\U00020000'-.,[]#€$^`~_"
)
texts = st.one_of(
    st.text(),
    st.text(TRICKY),
    st.lists(
        st.sampled_from(["river", "towns", "[SEP]", "[MASK]", "[unused1]", "##s", "é", "\u0301", " ", "x" * 101])
    ).map("".join),
)


@pytest.fixture(scope="module", params=[True, False], ids=["uncased", "cased"])
def tokenizer(request, pieces):
    lower = [piece if piece in SPECIAL_TOKENS else piece.lower() for piece in pieces]
    return build_tokenizer(list(dict.fromkeys([*lower, *pieces])) + ["[unused1]"], lowercase=request.param)


@pytest.fixture(scope="module")
def encoder(tokenizer):
    return Encoder(tokenizer)


@settings(max_examples=1000, deadline=None)
@given(texts)
@example("e \u0301e")  # a mark after a space stays there
@example("\u0301\u0323 \u0323\u0301")  # marks are reordered, but not past a space
@example("ΟΔΟΣ ΟΔΟΣ, Σ")  # a final sigma is lower-cased as any other
@example("\u1100 \u1161")  # parts of a syllable that compose when side by side
@example("👨\u200d👩\u200d👧 \u200d")
def test_encoder_any_text_equals_tokenizers(tokenizer, encoder, text):
    assert encoder.encode(text) == tokenizer.encode(text, add_special_tokens=False).ids


def test_encoder_every_code_point_equals_tokenizers(tokenizer, encoder):
    """Nothing crosses a space, whichever the character: planes 0, 1 and 14 whole, the edges of the others."""
    blocks = [(0, 0xD800), (0xE000, 0x20000), (0xE0000, 0xE0200)]
    blocks += [(plane << 16, (plane << 16) + 64) for plane in range(2, 17)]
    for first, last in blocks:
        for start in range(first, last, 256):
            text = " ".join(f"{c} a{c} {c}e" for c in map(chr, range(start, min(start + 256, last))))
            assert encoder.encode(text) == tokenizer.encode(text, add_special_tokens=False).ids, hex(start)


def test_encoder_special_tokens_in_text_are_plain_text(pieces):
    tokenizer = build_tokenizer(reserved_tokens(120) + pieces[5:], lowercase=True)
    text = "[CLS] the [SEP] river [MASK] [PAD] [unused0] [unused1][unused119] [UNUSED7]"
    ids = Encoder(tokenizer).encode(text)
    assert ids == tokenizer.encode(text, add_special_tokens=False).ids
    assert not set(range(124)) - {tokenizer.token_to_id("[UNK]")} & set(ids)


def test_encoder_cache_is_bounded(tokenizer, monkeypatch):
    monkeypatch.setattr(encode, "CACHED_CHUNKS", 3)
    encoder = Encoder(tokenizer)
    text = f"river town walls old new {'x' * 100} {'y' * 101} river"
    for _ in range(2):
        assert encoder.encode(text) == tokenizer.encode(text, add_special_tokens=False).ids
        assert len(encoder._chunks) <= 3
        assert max(map(len, encoder._chunks)) <= 100


@pytest.mark.parametrize("max_word_length", [4, 100])
def test_encoder_word_beyond_max_word_length_is_unknown(pieces, max_word_length):
    tokenizer = build_tokenizer([*pieces, "rivers"], lowercase=True, max_word_length=max_word_length)
    text = "rivers old " + "o" * (max_word_length + 1)
    ids = Encoder(tokenizer).encode(text)
    assert ids == tokenizer.encode(text, add_special_tokens=False).ids
    unknown = tokenizer.token_to_id("[UNK]")
    assert (ids[0] == unknown) == (max_word_length == 4) and ids[-1] == unknown


@pytest.mark.parametrize(("size", "expected"), [(1 << 16, np.uint16), ((1 << 16) + 1, np.uint32)])
def test_encode_bytes_id_type_follows_vocab_size(size, expected):
    tokenizer = Tokenizer(WordPiece({str(number): number for number in range(size)}, unk_token="0"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = BertNormalizer(), BertPreTokenizer()
    stored = id_type(size).newbyteorder("=")
    assert stored == expected
    ids = np.frombuffer(Encoder(tokenizer, stored).encode_bytes(f"{size - 1} 7"), stored)
    assert ids.tolist() == [size - 1, 7]
