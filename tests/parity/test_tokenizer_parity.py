"""Vocabulary and tokenizer equal those of `tokenizers`' trainer and transformers' BertTokenizer."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer
from tokenizers.trainers import WordPieceTrainer

from pipeline_src.base.files import read_json
from pipeline_src.tokenizer.encode import Encoder
from pipeline_src.tokenizer.train_tokenizer import count_words
from pipeline_src.tokenizer.wordpiece import SPECIAL_TOKENS, reserved_tokens, save_tokenizer
from pipeline_src.tokenizer.wordpiece_trainer import learn_vocabulary, spell

transformers = pytest.importorskip("transformers", reason="an extra of the tests")
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def text() -> list[str]:
    """Return the prose and code of this project, about 100,000 words, most of them rare."""
    paths = [
        ROOT / "README.md",
        *sorted((ROOT / "pipeline_src").rglob("*.py")),
        *sorted((ROOT / "tests").rglob("*.py")),
    ]
    lines = [line for path in paths for line in path.read_text(encoding="utf-8").split("\n")]
    return [line for line in lines if max(line, default="") < "\u0600"]  # fewer characters than an alphabet holds


@pytest.mark.parametrize("lowercase", [True, False])
def test_learn_vocabulary_equals_trainer_of_tokenizers(text, lowercase):
    """The trainer orders the ## forms at random, so both get the same order."""
    words = count_words(text, lowercase, max_length=10**9)
    peer = Tokenizer(WordPiece(unk_token="[UNK]"))
    peer.normalizer, peer.pre_tokenizer = BertNormalizer(lowercase=lowercase), BertPreTokenizer()
    forms = [AddedToken(form, special=True) for form in spell(words.items(), 1000, 1).forms]
    trainer = WordPieceTrainer(
        vocab_size=3000, limit_alphabet=1000, special_tokens=[*SPECIAL_TOKENS, *forms], show_progress=False
    )
    peer.train_from_iterator(text, trainer)
    reference = sorted(peer.get_vocab(), key=peer.get_vocab().__getitem__)
    ours = learn_vocabulary(words, 3000, 1000, 1)
    assert ours == reference and len(ours) == 3000


@pytest.fixture(
    scope="module", params=[(True, 0, 100), (True, 994, 100), (False, 7, 100), (True, 7, 12), (False, 0, 200)]
)
def saved(request, text, tmp_path_factory):
    lowercase, unused, longest = request.param
    folder = tmp_path_factory.mktemp("vocabulary")
    words = count_words(text, lowercase, longest)
    pieces = learn_vocabulary(words, 2500, 1000, 1, unused)
    assert pieces[: 5 + unused] == reserved_tokens(unused)
    save_tokenizer(folder, pieces, lowercase, longest)
    peer = transformers.AutoTokenizer.from_pretrained(str(folder))
    strict = transformers.AutoTokenizer.from_pretrained(str(folder), split_special_tokens=True)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.encode_special_tokens = True
    return Encoder(tokenizer), peer, strict


@settings(max_examples=150, deadline=None)
@given(
    text=st.text() | st.text("aeé Å\u0301[SEP]unused0123 北\u00a0\u200d") | st.just("[unused5] [UNUSED0] x" + "y" * 150)
)
def test_encoder_ids_equal_transformers(saved, text):
    encoder, peer, strict = saved
    ids = encoder.encode(text)
    assert strict.encode(text, add_special_tokens=False) == ids
    if not any(token in text for token in SPECIAL_TOKENS):
        assert peer.encode(text, add_special_tokens=False) == ids
        assert peer.encode(text) == [peer.cls_token_id, *ids, peer.sep_token_id]


def test_save_tokenizer_vocab_txt_alone_is_read_by_transformers(text, tmp_path):
    pieces = learn_vocabulary(count_words(text, True), 2500, 1000, 1, 120)
    save_tokenizer(tmp_path, pieces, lowercase=True)
    encoder = Encoder(Tokenizer.from_file(str(tmp_path / "tokenizer.json")))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).unlink()
    peer = transformers.BertTokenizer(str(tmp_path / "vocab.txt"), do_lower_case=True)
    assert (peer.pad_token_id, peer.unk_token_id, peer.mask_token_id) == (0, 100, 103)
    for line in text[:2000]:
        if "[" not in line:
            assert peer.encode(line, add_special_tokens=False) == encoder.encode(line)


def test_save_tokenizer_other_max_word_length_names_fast_class(tmp_path):
    save_tokenizer(tmp_path, [*SPECIAL_TOKENS, "a"], lowercase=True, max_word_length=200)
    assert read_json(tmp_path / "tokenizer_config.json")["tokenizer_class"] == "PreTrainedTokenizerFast"
