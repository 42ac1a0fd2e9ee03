"""Learning a byte-level BPE vocabulary with `tokenizers`: the same merges whatever the process and its threads."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from tokenizers import Tokenizer
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.trainers import BpeTrainer

from pipeline_src.params.vocabulary import VocabularyParams
from pipeline_src.tokenizer.byte_bpe import FIRST, MASK, normalizer, pre_tokenizer, save_tokenizer
from pipeline_src.tokenizer_training.counting import WordCounts


def learn(folder: Path, words: WordCounts, texts: Iterable[str], params: VocabularyParams) -> int:
    """Write the tokenizer's files into ``folder``; returns its entries, fewer than asked for if ``texts`` have no more.

    RoBERTa's order: four special tokens, the 256 bytes, the pieces as they were learnt, and <mask>.
    """
    learning = Tokenizer(BPE())
    learning.normalizer, learning.pre_tokenizer = normalizer(params.lowercase), pre_tokenizer()
    trainer = BpeTrainer(
        vocab_size=params.entries - 1,
        min_frequency=params.min_count,
        special_tokens=list(FIRST),
        initial_alphabet=sorted(ByteLevel.alphabet()),
        show_progress=False,
    )
    learning.train_from_iterator(texts, trainer)
    learnt = learning.get_vocab()
    vocabulary = [*sorted(learnt, key=learnt.__getitem__), MASK]
    merges = [tuple(merge) for merge in json.loads(learning.to_str())["model"]["merges"]]
    save_tokenizer(folder, vocabulary, merges, params.lowercase)
    return len(vocabulary)
