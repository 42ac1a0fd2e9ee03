"""Masks: rate, 80/10/10, units, and independence of the batch."""

import numpy as np
import pytest

from pipeline_src.base.counter_rng import derive_seed, uniform
from pipeline_src.base.registry import architecture_spec, member_names
from pipeline_src.examples.masking import UNITS, CLMCollator, MLMCollator, make_collator, shuffle
from pipeline_src.examples.pairs import PairRules, document_pairs
from pipeline_src.pretrain.data import PretrainingExamples
from pipeline_src.study.pretrain import Masking
from pipeline_src.tokenizer.wordpiece import SPECIAL_TOKENS, build_tokenizer
from tests.studies import bert_templates

CLS, SEP, MASK, ENTRIES = 2, 3, 4, 5000
SPECIAL = np.isin(np.arange(ENTRIES), (CLS, SEP, 0))
INNER = np.arange(ENTRIES) % 3 == 0  # every third id continues a word


def masked_lm(mask_prob: float, seed: int = 1, **masking) -> MLMCollator:
    return MLMCollator(mask_prob, Masking(**masking), MASK, SPECIAL, INNER, seed)


def batch(count: int, length: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    lengths = rng.integers(length // 2, length + 1, count)
    pieces = []
    for size in lengths:
        ids = rng.integers(10, ENTRIES, size)
        ids[0], ids[size // 2], ids[-1] = CLS, SEP, SEP
        pieces.append(ids)
    return np.concatenate(pieces), lengths, np.arange(count) + 77


@pytest.mark.parametrize("mask_prob", [0.15, 0.4])
def test_apply_rate_is_mask_prob_and_replaces_eighty_ten_ten(mask_prob):
    ids, lengths, examples = batch(2000, 128)
    seen, chosen = masked_lm(mask_prob).apply(ids, lengths, examples)
    assert len(chosen) / len(ids) == pytest.approx(mask_prob, abs=0.005)
    assert not SPECIAL[ids[chosen]].any()
    masked = seen[chosen] == MASK
    unchanged = seen[chosen] == ids[chosen]
    assert masked.mean() == pytest.approx(0.8, abs=0.01)
    assert unchanged.mean() == pytest.approx(0.1, abs=0.01)
    unpredicted = np.setdiff1d(np.arange(len(ids)), chosen)
    assert (seen[unpredicted] == ids[unpredicted]).all()
    # Random tokens are of the full vocabulary.
    replaced = seen[chosen][~masked & ~unchanged]
    assert replaced.min() < 50
    assert replaced.max() > ENTRIES - 50


def test_apply_mask_and_random_ratios_are_respected():
    ids, lengths, examples = batch(200, 128)
    seen, chosen = masked_lm(0.9, mask_ratio=0.5, random_ratio=0.0, keep_ratio=0.5).apply(ids, lengths, examples)
    assert ((seen[chosen] == MASK) | (seen[chosen] == ids[chosen])).all()
    assert not SPECIAL[ids[chosen]].any()


@pytest.mark.parametrize("cap", [None, 2])
def test_apply_every_example_predicts_at_least_one_token(cap):
    ids, lengths, examples = batch(200, 20)
    _, chosen = masked_lm(0.15, max_predictions=cap).apply(ids, lengths, examples)
    sequence = np.repeat(np.arange(200), lengths)
    expected = np.maximum(1, np.rint(0.15 * lengths))
    assert (np.bincount(sequence[chosen], minlength=200) == np.minimum(expected, cap or 20)).all()


def test_apply_masks_depend_on_seed_and_example_not_on_batch():
    ids, lengths, examples = batch(20, 64)
    seen, first = masked_lm(0.15).apply(ids, lengths, examples)
    starts = np.cumsum(lengths) - lengths
    for number in (0, 7, 19):
        one = slice(number, number + 1)
        part = slice(starts[number], starts[number] + lengths[number])
        single, _ = masked_lm(0.15).apply(ids[part], lengths[one], examples[one])
        assert np.array_equal(single, seen[part])
    for collator, numbers in ((masked_lm(0.15), examples + 1), (masked_lm(0.15, seed=2), examples)):
        assert not np.array_equal(first, collator.apply(ids, lengths, numbers)[1])


def words_of(ids: np.ndarray) -> list[list[int]]:
    """Positions of each word: a subword continues the word before it, also across [SEP] (google-research/bert)."""
    words: list[list[int]] = []
    for position, number in enumerate(ids):
        if SPECIAL[number]:
            continue
        if INNER[number] and words:
            words[-1].append(position)
        else:
            words.append([position])
    return words


def albert_ngrams(ids: np.ndarray, limit: int, example: int, stream: int) -> set[int]:
    """Positions masked by the loop of google-research/albert (create_pretraining_data.py), with our random numbers."""
    words, taken = words_of(ids), set()
    order = [int(item[0]) for item in shuffle(np.array([0, len(words)]), np.array([example]), stream)]
    for turn, word in enumerate(order):
        if len(taken) >= limit:
            break
        runs = [sum(words[word : word + n], []) for n in range(1, min(3, len(words) - word) + 1)]
        rates = np.array([1, 1 / 2, 1 / 3][: len(runs)])
        draw = uniform(derive_seed(stream, "n"), np.array([example]), turn)[0]
        n = int(np.searchsorted(np.cumsum(rates), draw * rates.sum(), side="right"))
        while n > 0 and len(taken) + len(runs[n]) > limit:
            n -= 1
        if len(taken) + len(runs[n]) <= limit and not taken.intersection(runs[n]):
            taken |= set(runs[n])
    return taken


def test_ngram_mask_equals_albert_loop():
    ids, lengths, examples = batch(150, 60)
    model = masked_lm(0.15, unit="ngram")
    _, chosen = model.apply(ids, lengths, examples)
    starts, limits = np.cumsum(lengths) - lengths, model.num_predictions(lengths)
    for start, length, limit, example in zip(starts, lengths, limits, examples, strict=True):
        masked = set((chosen[(chosen >= start) & (chosen < start + length)] - start).tolist())
        assert masked == albert_ngrams(ids[start : start + length], int(limit), int(example), derive_seed(1, "choose"))
    assert abs(len(chosen) / len(ids) - 0.15) < 0.005


@pytest.mark.parametrize("specials", [False, True])
def test_apply_mask_special_tokens_predicts_them(specials):
    tokenizer = build_tokenizer([*SPECIAL_TOKENS, *"abcdefgh"], lowercase=True)
    collator = make_collator("mlm", tokenizer, 0.5, Masking(mask_special_tokens=specials), 1)
    ids = np.array([CLS, 6, 7, SEP] * 100)
    _, chosen = collator.apply(ids, np.full(100, 4), np.arange(100))
    assert len(chosen) == 200
    assert np.isin(ids[chosen], (CLS, SEP)).mean() == pytest.approx(specials / 2, abs=0.1)


@pytest.mark.parametrize("special_replacements", [True, False])
def test_apply_random_tokens_may_be_special(special_replacements):
    """As in the recipes' code; fairseq's leaves out the special symbols of its dictionary, of which <mask> is none."""
    tokenizer = build_tokenizer([*SPECIAL_TOKENS, *"abcdefgh"], lowercase=True)
    masking = Masking(mask_ratio=0.0, random_ratio=1.0, keep_ratio=0.0)
    collator = make_collator("mlm", tokenizer, 0.5, masking, 1, special_replacements)
    ids = np.array([CLS, 6, 7, SEP] * 4000)
    seen, chosen = collator.apply(ids, np.full(4000, 4), np.arange(4000))
    counts = np.bincount(seen[chosen], minlength=13)
    # [PAD], [UNK], [CLS], [SEP]
    may_occur = np.arange(13) >= (0 if special_replacements else 4)
    assert not counts[~may_occur].any()
    assert counts[may_occur].max() < 1.2 * counts[may_occur].min()


def test_special_replacements_are_off_only_in_roberta():
    refusing = [name for name in member_names("models") if not architecture_spec(name).special_replacements]
    assert refusing == ["roberta"]


def test_whole_word_mask_word_beyond_limit_is_not_masked():
    ids = np.asarray([CLS, 10, 12, 15, 18, 21, SEP, 24, 27, SEP])
    _, chosen = masked_lm(0.15, unit="whole_word").apply(ids, np.asarray([10]), np.asarray([1]))
    assert len(chosen) == 0  # one word of seven subwords; the limit is two tokens


def test_apply_sequence_without_maskable_tokens_is_unchanged():
    ids = np.asarray([CLS, SEP, CLS, 10, 11, SEP, CLS, SEP])
    for unit in UNITS:
        _, chosen = masked_lm(0.15, unit=unit).apply(ids, np.asarray([2, 4, 2]), np.arange(3))
        assert len(chosen) == 1 and chosen[0] in (3, 4)


@pytest.mark.parametrize(("pairs", "marks"), [("none", 2), ("nsp", 3)])
def test_clm_collator_predicts_every_next_token(tmp_path, store, pairs, marks):
    np.save(tmp_path / "index.npy", document_pairs(store, 0, len(store), PairRules(32, 0.1, 0.5, pairs, marks), [1]))
    examples = PretrainingExamples(tmp_path / "index.npy", store, CLMCollator(SEP), bert_templates(CLS, SEP), pairs)
    batch = examples.batch(np.asarray([4, 0, 7]))
    last = np.asarray(batch.cu_seqlens[1:]) - 1
    assert (batch.ids[last] == SEP).all()
    assert np.array_equal(batch.predicted, np.setdiff1d(np.arange(len(batch.ids)), last))
    assert np.array_equal(batch.labels, batch.ids[batch.predicted + 1])
    assert examples.collator.num_predictions(np.diff(batch.cu_seqlens)).sum() == len(batch.predicted)
    # The input has no masks, in any epoch.
    assert np.array_equal(batch.ids, examples.batch(np.asarray([4, 0, 7]), 3).ids)
    words = examples.collator.predicts_unseen(batch.ids[batch.predicted], batch.labels)
    assert np.array_equal(words, batch.labels != SEP)


def test_make_collator_every_objective_has_a_collator():
    tokenizer = build_tokenizer([*SPECIAL_TOKENS, "a", "##b"], lowercase=True)
    collators = {name: make_collator(name, tokenizer, 0.15, Masking(), 1) for name in member_names("objectives")}
    assert collators["clm"] == CLMCollator(tokenizer.token_to_id("[SEP]"))
    mlm = collators["mlm"]
    assert tokenizer.id_to_token(mlm.mask_id) == "[MASK]"
    assert [tokenizer.id_to_token(number) for number in mlm.special.nonzero()[0]] == ["[PAD]", "[CLS]", "[SEP]"]
    assert [tokenizer.id_to_token(number) for number in mlm.continuation.nonzero()[0]] == ["##b"]
