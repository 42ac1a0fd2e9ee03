"""Objectives are built for the study's vocabulary."""

import pytest
import torch
from tokenizers.pre_tokenizers import ByteLevel

from pipeline_src.pretrain.build import build_objective
from pipeline_src.pretrain.phases import Phase
from pipeline_src.study.model import ModelParams
from pipeline_src.study.pretrain import PretrainParams, Steps
from pipeline_src.tokenizer import byte_bpe
from pipeline_src.tokenizer.wordpiece import SPECIAL_TOKENS, build_tokenizer

TOKENIZERS = {
    "wordpiece": build_tokenizer([*SPECIAL_TOKENS, "a"], lowercase=True),
    "byte_bpe": byte_bpe.build_tokenizer([*byte_bpe.FIRST, *sorted(ByteLevel.alphabet()), byte_bpe.MASK], [], False),
}


@pytest.mark.parametrize(("vocabulary", "pad_id"), [("wordpiece", 0), ("byte_bpe", 1)])
def test_build_objective_roberta_positions_start_after_padding_id_of_vocabulary(vocabulary, pad_id):
    """transformers' RoBERTa counts only tokens whose id is not ``pad_token_id`` as positions."""
    model = ModelParams(architecture="roberta", num_hidden_layers=1, hidden_size=8, max_position_embeddings=32)
    params = PretrainParams(steps=Steps(phase1=1, phase2=1), train_batch_size=1, learning_rate=1e-3, warmup_steps=0)
    phase = Phase("phase1", 1, 0.15, model, params)
    config = build_objective(phase, TOKENIZERS[vocabulary], "none", torch.device("cpu")).config
    assert (config.pad_token_id, config.first_position, config.longest_input) == (pad_id, pad_id + 1, 32)
