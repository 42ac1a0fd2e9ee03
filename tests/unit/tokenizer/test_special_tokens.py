"""Templates of special tokens, read from the tokenizer."""

import numpy as np
import pytest
from tokenizers import Tokenizer
from tokenizers.models import BPE, WordLevel
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.processors import ByteLevel as ByteLevelProcessor
from tokenizers.processors import RobertaProcessing

from pipeline_src.base.errors import PipelineError
from pipeline_src.tokenizer.load import kind_of
from pipeline_src.tokenizer.special_tokens import Template, read_templates
from pipeline_src.tokenizer.wordpiece import SPECIAL_TOKENS, build_tokenizer

BERT = build_tokenizer([*SPECIAL_TOKENS, "a", "b", "##c"], lowercase=True)


def roberta() -> Tokenizer:
    entries = ["<s>", "<pad>", "</s>", "<unk>", *sorted(ByteLevel.alphabet()), "<mask>"]
    tokenizer = Tokenizer(BPE({piece: number for number, piece in enumerate(entries)}, [], unk_token="<unk>"))
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
    tokenizer.post_processor = RobertaProcessing(("</s>", 2), ("<s>", 0))
    return tokenizer


@pytest.mark.parametrize(
    ("tokenizer", "single", "pair"),
    [
        (BERT, Template(((2,), (3,)), (0, 0, 0)), Template(((2,), (3,), (3,)), (0, 0, 0, 1, 1))),
        (roberta(), Template(((0,), (2,)), (0, 0, 0)), Template(((0,), (2, 2), (2,)), (0, 0, 0, 0, 0))),
    ],
    ids=["bert", "roberta"],
)
def test_read_templates_of_one_and_two_texts_are_correct(tokenizer, single, pair):
    templates = read_templates(tokenizer)
    assert (templates.single, templates.pair) == (single, pair)
    assert templates.pair.size == sum(map(len, pair.special_ids))
    assert templates.special_ids == (single.special_ids[0][0], single.special_ids[1][0])


TEXTS = [("a b", "b"), ("b", "a a a"), ("a", "b b"), ("", "a"), ("b a", "")]


@pytest.mark.parametrize("tokenizer", [BERT, roberta()], ids=["bert", "roberta"])
@pytest.mark.parametrize("texts", [1, 2])
def test_template_apply_equals_tokenizers(tokenizer, texts):
    templates = read_templates(tokenizer)
    template = templates.single if texts == 1 else templates.pair
    sequences = [[tokenizer.encode(text, add_special_tokens=False).ids for text in pair[:texts]] for pair in TEXTS]
    expected = [tokenizer.encode(*pair[:texts]) for pair in TEXTS]
    for sequence, encoding in zip(sequences, expected, strict=True):
        assert template.apply(*sequence) == (encoding.ids, encoding.type_ids)
    flat = np.concatenate([ids for sequence in sequences for ids in sequence]).astype(np.int64)
    lengths = np.array([[len(ids) for ids in sequence] for sequence in sequences])
    ids, segments = template.apply_batch(flat, lengths)
    assert ids.tolist() == sum((encoding.ids for encoding in expected), [])
    assert segments.tolist() == sum((encoding.type_ids for encoding in expected), [])


def test_read_templates_tokenizer_without_special_tokens_is_rejected():
    tokenizer = roberta()
    tokenizer.post_processor = ByteLevelProcessor()
    with pytest.raises(PipelineError, match="adds no special tokens around a text"):
        read_templates(tokenizer)
    with pytest.raises(PipelineError, match="unsupported kind of vocabulary: WordLevel"):
        kind_of(Tokenizer(WordLevel({"a": 0}, unk_token="a")))


def test_is_continuation_wordpiece_prefix_is_true():
    kind = kind_of(BERT)
    assert kind.is_continuation(BERT).nonzero()[0].tolist() == [BERT.token_to_id("##c")]
    assert [kind.spelt(piece) for piece in ("a", "##c")] == ["a", "c"]
