"""What the loader is tried with: the study's own examples, or some made up."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from pipeline_src.common.files import write_json
from pipeline_src.common.paths import EXAMPLES, VOCABULARY
from pipeline_src.params.study import Study
from pipeline_src.pretraining.loading.batches import PretrainingExamples, open_examples
from pipeline_src.pretraining.loading.corruption import CORRUPTIONS
from pipeline_src.tokenizer.frame import read_frames
from pipeline_src.tokenizer.load import load_tokenizer
from pipeline_src.tokenizer.sample_index import SAMPLE_INDEX
from pipeline_src.tokenizer.token_store import TokenStore, TokenWriter
from pipeline_src.tokenizer.wordpiece import SPECIAL_TOKENS, save_tokenizer

PAIRS, TOKENS = 4096, 1 << 20  # made up


def loader_examples(study: Study, folder: Path) -> tuple[PretrainingExamples, str]:
    """The examples of the first phase where the stage ``build_examples`` has run; else pairs made up in ``folder``.

    Returns:
        The examples, and what they are, for people.
    """
    if (EXAMPLES / "short" / "train.npy").exists():
        tokenizer, params = load_tokenizer(VOCABULARY), study.pretrain
        examples = open_examples(
            "short", "train", tokenizer, study.mask_prob, params.masking, study.seed, params.objective
        )
        return examples, f"{EXAMPLES}/short"
    return _made_up(study, folder), "made-up pairs (build_examples has not run)"


def _made_up(study: Study, folder: Path) -> PretrainingExamples:
    """Pairs of equal parts, three quarters as long as a sequence may be, over random tokens."""
    rng = np.random.default_rng(0)
    pieces = [*SPECIAL_TOKENS, *(f"w{number}" for number in range(study.vocabulary.entries - len(SPECIAL_TOKENS)))]
    save_tokenizer(folder, pieces, lowercase=True)
    tokenizer = load_tokenizer(folder)
    writer = TokenWriter(folder, "train", len(pieces))
    writer.add(
        rng.integers(len(SPECIAL_TOKENS), len(pieces), TOKENS), np.full(TOKENS // 16, 16), np.array([TOKENS // 16])
    )
    write_json(folder / "manifest.json", {"splits": {"train": writer.close()}})
    rows = np.zeros(PAIRS, SAMPLE_INDEX)
    rows["a_length"] = rows["b_length"] = max(1, 3 * study.examples.lengths.short // 8)
    rows["a"], rows["b"] = rng.integers(0, TOKENS - study.examples.lengths.short, (2, PAIRS))
    np.save(folder / "train.npy", rows)
    corruption = CORRUPTIONS["masked"](tokenizer, study.mask_prob, study.pretrain.masking, study.seed)
    return PretrainingExamples(
        folder / "train.npy", TokenStore(folder, "train"), corruption, read_frames(tokenizer), "next_sentence"
    )
