"""Data augmentation: which words are replaced, by what, and that only seed and example determine it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from pipeline_src.base.errors import PipelineError
from pipeline_src.finetune import augmentation
from pipeline_src.finetune.augmentation import (
    NUM_CANDIDATES,
    STOP_WORDS,
    VECTORS,
    Substitutes,
    augment,
    find_candidates,
    find_words,
    load_substitutes,
)
from pipeline_src.model.bert import BertConfig, BertForMaskedLM
from pipeline_src.model.hub import save_model
from pipeline_src.tasks.features import Features, encode, pair_features
from pipeline_src.tokenizer import byte_bpe, unigram, wordpiece
from pipeline_src.tokenizer.special_tokens import read_templates

LETTERS = [word for a in "bdfgklmnprst" for b in "aeiou" if (word := f"{a}{b}") not in STOP_WORDS]
PIECES = [*wordpiece.SPECIAL_TOKENS, "the", "of", ".", "7", "##s", "##q", "##7", "x", *LETTERS]
TEXTS = [
    ("ba the de.", "fi of goqs"),
    ("ku ku7 the of", "x7"),
    ("la mi ru", ""),
    ("baqs the", "deqs fi go ku la mi ru"),
]


@pytest.fixture(scope="module")
def words() -> Substitutes:
    tokenizer = wordpiece.build_tokenizer(PIECES, lowercase=True)
    return Substitutes(random_model(len(PIECES)), unit_vectors(len(PIECES)), tokenizer)


def random_model(entries: int, positions: int = 40, **config) -> BertForMaskedLM:
    model = BertForMaskedLM(BertConfig(entries, 16, 2, 2, 32, positions, **config)).eval().requires_grad_(False)
    for parameter in model.parameters():
        parameter.normal_(std=0.5, generator=torch.Generator().manual_seed(parameter.numel()))
    return model


def unit_vectors(entries: int) -> torch.Tensor:
    return torch.nn.functional.normalize(torch.randn(entries, 8, generator=torch.Generator().manual_seed(1)))


def features_of(words: Substitutes, texts=TEXTS, first: int = 0) -> Features:
    encoded = [encode(words.tokenizer, column) for column in zip(*texts, strict=True)]
    labels = np.arange(first, first + len(texts))
    made = pair_features("toy", zip(*encoded, strict=True), labels, read_templates(words.tokenizer), 32)
    return replace(made, example=labels)


def rows(features: Features) -> list[tuple[int, tuple[int, ...], tuple[int, ...]]]:
    """Example, ids and segments of each."""
    bounds = zip(features.cu_seqlens[:-1], features.cu_seqlens[1:], features.example, strict=True)
    return [(int(e), tuple(features.ids[a:b].tolist()), tuple(features.segments[a:b].tolist())) for a, b, e in bounds]


def test_find_words_skips_stop_words_digits_and_punctuation(words):
    features = features_of(words)
    result = find_words(features, words.tokenizer)
    spelt = [
        "".join(words.tokenizer.id_to_token(int(i)).removeprefix("##") for i in features.ids[first : first + pieces])
        for first, pieces in zip(result.first, result.subwords, strict=True)
    ]
    assert spelt == "ba de fi goqs ku la mi ru baqs deqs fi go ku la mi ru".split()
    assert result.text.tolist() == [0, 0, 1, 1, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1]
    assert {"the", "of", "herself"} <= STOP_WORDS


@pytest.mark.parametrize("positions", [40, 13])  # with 13 positions, the text does not fit twice
def test_find_candidates_single_token_word_equals_mlm_predictions(words, positions, monkeypatch):
    words = replace(words, mlm=random_model(len(PIECES), positions))
    features = features_of(words, [(text, other) for text, other in TEXTS if len(other) < 12])
    result, tokenizer = find_words(features, words.tokenizer), words.tokenizer
    candidates, counts = find_candidates(features, result, words)
    allowed = torch.tensor([entry.isalpha() for entry in PIECES])
    for number in np.flatnonzero(result.subwords == 1):
        start, length, first = (int(getattr(result, name)[number]) for name in ("start", "length", "first"))
        text = features.ids[start : start + length].tolist()
        masked = [*text[: first - start], tokenizer.token_to_id("[MASK]"), *text[first - start + 1 :]]
        ids = [2, *masked, 3, *text, 3] if 2 * length + 3 <= positions else [2, *masked, 3]
        segments = [0] * (length + 2) + [1] * (len(ids) - length - 2)
        scores, _ = words.mlm(
            torch.tensor(ids), torch.tensor(segments), torch.tensor([0, len(ids)]), torch.tensor([1 + first - start])
        )
        expected = scores[0].masked_fill(~allowed, -torch.inf).sort(descending=True).indices[:NUM_CANDIDATES]
        assert counts[number] == NUM_CANDIDATES and candidates[number].tolist() == expected.tolist()
    monkeypatch.setattr(augmentation, "BATCH_TOKENS", 24)
    monkeypatch.setattr(augmentation, "BATCH_WORDS", 1)
    assert np.array_equal(find_candidates(features, result, words)[0], candidates)


def test_find_candidates_word_of_several_subwords_equals_nearest_vectors(words):
    vectors = words.vectors.clone()
    vectors[[PIECES.index("la"), PIECES.index("mi")]] = 0  # which the text did not hold
    words = replace(words, vectors=vectors)
    features = features_of(words)
    result = find_words(features, words.tokenizer)
    candidates, counts = find_candidates(features, result, words)
    for number in np.flatnonzero(result.subwords > 1):
        own = features.ids[result.first[number] : result.first[number] + result.subwords[number]]
        mean = sum(vectors[int(piece)] for piece in own) / len(own)
        near = sorted(
            (entry for entry in range(len(PIECES)) if PIECES[entry].isalpha() and vectors[entry].any()),
            key=lambda entry: -float(vectors[entry] @ mean),
        )
        assert counts[number] == NUM_CANDIDATES and candidates[number].tolist() == near[:NUM_CANDIDATES]
    words.vectors[:] = 0
    assert not find_candidates(features, result, words)[1][result.subwords > 1].any()


def test_augment_changes_one_text_and_only_replaceable_words(words):
    features = features_of(words)
    made = augment(features, 30, 5, words)
    before, after = rows(features), rows(made)
    assert after[: len(before)] == before and len(set(after)) == len(after)
    assert 60 < len(after) <= 4 * (1 + 60)
    assert np.array_equal(made.labels, made.example)
    marks, inner = {2, 3}, {PIECES.index(piece) for piece in ("##s", "##q")}
    kept = {PIECES.index(piece) for piece in ("the", "of", ".", "7", "##7", "x")}
    for example, ids, segments in after[len(before) :]:
        own = before[example][1]
        own_texts, texts = (" ".join(map(str, row[1:-1])).split(" 3 ") for row in (own, ids))
        assert sum(one != other for one, other in zip(own_texts, texts, strict=True)) == 1
        assert [i for i in ids if i in kept | marks] == [i for i in own if i in kept | marks]
        assert ids.index(3) + 1 == segments.index(1) and len(ids) <= len(own)
        assert sum(ids.count(i) for i in inner) <= sum(own.count(i) for i in inner)


def test_augment_replaces_about_40_percent_of_words(words):
    many = features_of(words, [("ba de fi go ku la mi ru pa su", "the")] * 200)
    made = augment(many, 1, 3, words)
    changed = np.mean([[one != other for one, other in zip(ids[1:11], rows(many)[0][1][1:11], strict=True)]
                       for _, ids, _ in rows(made)[200:]])  # fmt: skip
    assert 0.3 < changed < 0.45  # lower than 0.4, since some words are replaced by themselves


def test_augment_depends_on_example_and_seed_only(words, monkeypatch):
    whole = set(rows(augment(features_of(words), 6, 5, words)))
    assert whole == set(rows(augment(features_of(words), 6, 5, words)))
    monkeypatch.setattr(augmentation, "BATCH_TOKENS", 30)
    parts = [augment(features_of(words, [text], number), 6, 5, words) for number, text in enumerate(TEXTS)]
    assert whole == {row for part in reversed(parts) for row in rows(part)}
    assert whole != set(rows(augment(features_of(words), 6, 6, words)))


@pytest.mark.parametrize("kind", [byte_bpe, unigram])
def test_augment_byte_bpe_and_unigram_keep_special_tokens_and_punctuation(kind):
    if kind is byte_bpe:
        pieces = [*byte_bpe.FIRST, *(f"Ġ{word}" for word in LETTERS), *"bdfgklmnprstaeiouqh.", "Ġ", byte_bpe.MASK]
        tokenizer = byte_bpe.build_tokenizer(pieces, [], lowercase=False)
    else:
        pieces = [*unigram.SPECIAL_TOKENS, *(f"▁{word}" for word in ["the", *LETTERS]), "s", "q", ".", "▁"]
        tokenizer = unigram.build_tokenizer([(piece, -float(len(piece) < 2) - 1) for piece in pieces], lowercase=True)
    words = Substitutes(random_model(len(pieces)), unit_vectors(len(pieces)), tokenizer)
    features = features_of(words, [("the ba.", "de fi"), ("goq ku", "la mi.")])
    made = augment(features, 10, 1, words)
    marks = set(read_templates(tokenizer).special_ids)
    new = rows(made)[2:]
    assert len(new) > 10
    for example, ids, _ in new:
        own = rows(features)[example][1]
        assert [i for i in ids if i in marks] == [i for i in own if i in marks]
        assert ids.count(pieces.index(".")) == own.count(pieces.index("."))


def test_load_substitutes_incomplete_study_is_rejected(words, tmp_path):
    device, student = torch.device("cpu"), BertConfig(len(PIECES), 8, 1, 2, 16, 32)

    def load() -> Substitutes:
        return load_substitutes(tmp_path, student, words.tokenizer, device)

    with pytest.raises(PipelineError, match="(?s)folder has no config.json.*pretrained/phase2"):
        load()
    vocabulary, pretrained, vectors = tmp_path / "v", tmp_path / "pretrained/phase2", tmp_path / "word_vectors"
    for folder in (vocabulary, pretrained, vectors):
        folder.mkdir(parents=True)
    wordpiece.save_tokenizer(vocabulary, PIECES, lowercase=True)
    save_model(pretrained, words.mlm, words.mlm.bert.config, "BertForMaskedLM", vocabulary)
    with pytest.raises(PipelineError, match="(?s)word vectors not found.*dvc repro train_word_vectors"):
        load()
    save_file({VECTORS: words.vectors[1:].clone()}, vectors / "model.safetensors")
    with pytest.raises(PipelineError, match=f"have another vocabulary size: {len(PIECES) - 1} entries"):
        load()
    save_file({VECTORS: 3 * words.vectors}, vectors / "model.safetensors")
    torch.testing.assert_close(load().vectors, words.vectors)
