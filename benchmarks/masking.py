"""Masking a batch as it is loaded, beside transformers' DataCollatorForLanguageModeling: tokens per CPU-second.

Both get the same 256 sequences of 128 tokens (the paper's batch, first phase) and return what the model sees and what
it must predict. The collator is given its input the way a ``datasets`` row arrives: lists of ids.
"""

from __future__ import annotations

import logging
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch

from benchmarks.measure import race, report
from pipeline_src.params.pretrain import Masking
from pipeline_src.pretraining.loading.masking import MaskedLM
from pipeline_src.tokenizer.wordpiece import SPECIAL_TOKENS, save_tokenizer

BATCH, LENGTH, BATCHES, ENTRIES = 256, 128, 20, 30_522


def main() -> None:
    """Time both, and report."""
    torch.set_num_threads(1)
    logging.getLogger("transformers").setLevel(logging.ERROR)
    from transformers import AutoTokenizer, DataCollatorForLanguageModeling

    pieces = [*SPECIAL_TOKENS, *(f"word{number}" for number in range(ENTRIES - len(SPECIAL_TOKENS)))]
    with TemporaryDirectory() as folder:
        save_tokenizer(Path(folder), pieces, lowercase=True)
        tokenizer = AutoTokenizer.from_pretrained(folder)
    cls, sep, mask = (pieces.index(token) for token in ("[CLS]", "[SEP]", "[MASK]"))
    ids = np.random.default_rng(0).integers(len(SPECIAL_TOKENS), ENTRIES, (BATCH, LENGTH))
    ids[:, 0], ids[:, LENGTH // 2], ids[:, -1] = cls, sep, sep

    special = np.arange(ENTRIES) < len(SPECIAL_TOKENS)
    masked_lm = MaskedLM(0.15, Masking(), mask, special, np.zeros(ENTRIES, bool), seed=1)
    lengths, flat = np.full(BATCH, LENGTH), ids.ravel()
    collator = DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.15, return_tensors="pt")
    rows = [{"input_ids": row} for row in ids.tolist()]

    def ours() -> None:
        for number in range(BATCHES):
            masked_lm.apply(flat, lengths, np.arange(number * BATCH, (number + 1) * BATCH))

    def whole_word() -> None:
        words = MaskedLM(0.15, Masking(spans="whole_word"), mask, special, np.arange(ENTRIES) % 5 == 0, seed=1)
        for number in range(BATCHES):
            words.apply(flat, lengths, np.arange(number * BATCH, (number + 1) * BATCH))

    sides = {"ours": ours, "whole words": whole_word, "collator": lambda: [collator(rows) for _ in range(2)]}
    seconds = race(sides, rounds=7)
    tokens = BATCH * LENGTH / 1e6
    report(
        "masking",
        "million tokens per CPU-second",
        BATCHES * tokens / seconds["ours"],
        {"DataCollatorForLanguageModeling": 2 * tokens / seconds["collator"]},
        {"DataCollatorForLanguageModeling": 40},
        whole_word=round(BATCHES * tokens / seconds["whole words"], 1),
    )


if __name__ == "__main__":
    main()
