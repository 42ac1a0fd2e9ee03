"""Tokenizers of saved models, loaded in transformers, truncate to the model's maximum length."""

from pathlib import Path

import pytest
import torch
from tokenizers.pre_tokenizers import ByteLevel

from pipeline_src.base.files import read_json
from pipeline_src.base.registry import member_names
from pipeline_src.interpret.model import ProbedModel
from pipeline_src.model.bert import BertForPretraining, initialise, load_architecture
from pipeline_src.model.hub import save_model
from pipeline_src.study.model import ModelParams
from pipeline_src.tokenizer import byte_bpe, unigram, wordpiece
from pipeline_src.tokenizer.load import kind_of, load_tokenizer
from tests.parity.peers import assert_close

transformers = pytest.importorskip("transformers", reason="an extra of the tests")
WITHOUT_CLASS = {"bilstm", "word_vectors"}
ARCHITECTURES = [name for name in member_names("models") if name not in WITHOUT_CLASS]
LETTERS = "abcdefgh"


def save_wordpiece(folder: Path) -> int:
    pieces = [*wordpiece.SPECIAL_TOKENS, *LETTERS]
    wordpiece.save_tokenizer(folder, pieces, lowercase=True)
    return len(pieces)


def save_long_wordpiece(folder: Path) -> int:
    """Save a WordPiece tokenizer with another maximum word length, which needs another transformers class."""
    pieces = [*wordpiece.SPECIAL_TOKENS, *LETTERS]
    wordpiece.save_tokenizer(folder, pieces, lowercase=True, max_word_length=200)
    return len(pieces)


def save_byte_bpe(folder: Path) -> int:
    pieces = [*byte_bpe.FIRST, *sorted(ByteLevel.alphabet()), byte_bpe.MASK]
    byte_bpe.save_tokenizer(folder, pieces, [], lowercase=True)
    return len(pieces)


def save_unigram(folder: Path) -> int:
    pieces = [*((token, 0.0) for token in unigram.SPECIAL_TOKENS), *((f"▁{letter}", -1.0) for letter in LETTERS)]
    unigram.save_tokenizer(folder, pieces, lowercase=True)
    return len(pieces)


VOCABULARIES = {
    "wordpiece": save_wordpiece,
    "long wordpiece": save_long_wordpiece,
    "byte_bpe": save_byte_bpe,
    "unigram": save_unigram,
}


def save(folder: Path, architecture: str, vocabulary: str, longest: int) -> Path:
    """Save a model with random weights and the maximum length ``longest``."""
    (folder / "vocabulary").mkdir()
    (folder / "model").mkdir()
    entries = VOCABULARIES[vocabulary](folder / "vocabulary")
    params = ModelParams(
        architecture=architecture,
        num_hidden_layers=1,
        hidden_size=16,
        num_attention_heads=2,
        max_position_embeddings=longest,
    )
    tokenizer = load_tokenizer(folder / "vocabulary")
    pad_id = tokenizer.token_to_id(kind_of(tokenizer).pad)
    config = load_architecture(architecture).config.from_params(params, entries).with_pad_id(pad_id)
    model = BertForPretraining(config)
    initialise(model, torch.Generator().manual_seed(0))
    save_model(folder / "model", model, config, config.names.classes["pretraining"], folder / "vocabulary")
    return folder / "model"


@pytest.mark.parametrize("longest", [24, 700])
@pytest.mark.parametrize("vocabulary", VOCABULARIES)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_saved_tokenizer_truncates_to_maximum_length_in_transformers(tmp_path, architecture, vocabulary, longest):
    folder = save(tmp_path, architecture, vocabulary, longest)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModel.from_pretrained(folder).eval()
    one = tokenizer("a b c d " * 300, truncation=True, return_tensors="pt")
    pair = tokenizer("a b " * 300, "c d " * 300, truncation=True, return_tensors="pt")
    with torch.no_grad():
        states, of_pair = model(**one).last_hidden_state, model(**pair).last_hidden_state
    assert states.shape == of_pair.shape == (1, longest, 16)
    ours = ProbedModel.open(folder)
    text = one["input_ids"][0, 1:-1].tolist()
    assert_close(ours.hidden_states([text])[0][-1], states[0])


@pytest.mark.parametrize("architecture", sorted(WITHOUT_CLASS))
def test_saved_tokenizer_of_model_unknown_to_transformers_has_maximum_length(tmp_path, architecture):
    folder = save(tmp_path, architecture, "wordpiece", 700)
    assert read_json(folder / "tokenizer_config.json")["model_max_length"] == 700


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_sentence_transformers_truncates_to_maximum_length_of_saved_folder(tmp_path, architecture):
    peer = pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")
    made = peer.SentenceTransformer(str(save(tmp_path, architecture, "wordpiece", 700)), device="cpu")
    assert made.get_max_seq_length() == 700
    assert made.encode("a b c d " * 300).shape == (16,)
