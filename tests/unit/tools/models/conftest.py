import pytest
import torch

from pipeline_src.model.bert import BertConfig, BertForPretraining
from pipeline_src.model.hub import save_model
from pipeline_src.tokenizer.wordpiece import SPECIAL_TOKENS, save_tokenizer

ENTRIES = [*SPECIAL_TOKENS, "the", "cat", "sat", "on", "mat", "##s", ".", "é", "x"]


@pytest.fixture
def model():
    """A small model with random weights, biases included; two entries more than its vocabulary."""
    made = BertForPretraining(BertConfig(len(ENTRIES) + 2, 16, 2, 2, 32, 12)).eval()
    generator = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.normal_(generator=generator)
        made.cls["predictions"].decoder.bias[-2:] = 99.0  # spare entries, which no token bears
    return made


@pytest.fixture
def folder(tmp_path, model):
    """The model's folder."""
    (tmp_path / "v").mkdir()
    (tmp_path / "model").mkdir()
    save_tokenizer(tmp_path / "v", ENTRIES, lowercase=True)
    save_model(tmp_path / "model", model, model.bert.config, "BertForPreTraining", tmp_path / "v")
    return tmp_path / "model"
