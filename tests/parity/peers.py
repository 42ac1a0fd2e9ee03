"""What the comparisons with transformers share: random weights, and a model of ours as transformers loads it."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from pipeline_src.model.bert import BertConfig, initialise
from pipeline_src.model.hub import save_model
from pipeline_src.tokenizer.wordpiece import SPECIAL_TOKENS, save_tokenizer


def assert_close(result: Tensor, expected: Tensor, name: str = "") -> None:
    torch.testing.assert_close(result, expected, rtol=1e-5, atol=1e-5, msg=lambda text: f"{name}: {text}")


def randomize(model: nn.Module, seed: int = 3, std: float = 0.05) -> nn.Module:
    """Draw all weights, biases and LayerNorms too, or a swapped one would not show."""
    generator = torch.Generator().manual_seed(seed)
    initialise(model, generator)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += std * torch.randn(parameter.shape, generator=generator)
    return model.eval()


def save(folder: Path, model: nn.Module, config: BertConfig, huggingface_class: str) -> Path:
    (folder / "v").mkdir()
    save_tokenizer(folder / "v", [*SPECIAL_TOKENS, *"abcdefghij"], lowercase=True)
    save_model(folder, model, config, huggingface_class, folder / "v")
    return folder


def load_in_transformers(folder: Path, huggingface_class: str, **more: Any) -> Any:
    """Load a saved model; every parameter of transformers' class must be in it."""
    kind = getattr(pytest.importorskip("transformers"), huggingface_class)
    model, info = kind.from_pretrained(folder, output_loading_info=True, **more)
    assert not info["missing_keys"] and not info["mismatched_keys"], info
    return model.eval()
