import pytest
import torch

from pipeline_src.model.bert import BertConfig, BertForPretraining
from pipeline_src.tokenizer.wordpiece import SPECIAL_TOKENS

ENTRIES = [*SPECIAL_TOKENS, *"abcdefghij", "##a", "##b", "."]


@pytest.fixture
def config() -> BertConfig:
    return BertConfig(len(ENTRIES), 16, 2, 2, 32, 24, hidden_act="gelu_tanh", attention_probs_dropout_prob=0.2)


@pytest.fixture
def model(config) -> BertForPretraining:
    """Return a small model with random parameters, biases too."""
    made = BertForPretraining(config).eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.normal_(generator=generator)
    return made
