"""Helpers of the comparisons with transformers: batches, random weights, and loading in transformers."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from pipeline_src.model.bert import BertConfig, initialise
from pipeline_src.model.hub import save_model, save_tensors
from pipeline_src.pretrain.data import PretrainingBatch, TensorBatch
from pipeline_src.pretrain.objective import PretrainingObjective
from pipeline_src.tokenizer.wordpiece import SPECIAL_TOKENS, save_tokenizer

# Three sequences: which positions of their rectangle hold tokens, and where each begins in the flat batch.
LENGTHS = (20, 7, 13)
KEEP = torch.arange(max(LENGTHS)) < torch.tensor(LENGTHS)[:, None]
STARTS = np.array([0, *np.cumsum(LENGTHS)])


def assert_close(result: Tensor, expected: Tensor, name: str = "") -> None:
    torch.testing.assert_close(result, expected, rtol=1e-5, atol=1e-5, msg=lambda text: f"{name}: {text}")


def randomize(model: nn.Module, seed: int = 3, std: float = 0.05) -> nn.Module:
    """Set all parameters to random values, biases and LayerNorms too, so that swapped ones are noticed."""
    generator = torch.Generator().manual_seed(seed)
    initialise(model, generator)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += std * torch.randn(parameter.shape, generator=generator)
    return model.eval()


def save(
    folder: Path, model: nn.Module, config: BertConfig, huggingface_class: str, entries: Sequence[str] = "abcdefghij"
) -> Path:
    (folder / "v").mkdir(parents=True)
    save_tokenizer(folder / "v", [*SPECIAL_TOKENS, *entries], lowercase=True)
    save_model(folder, model, config, huggingface_class, folder / "v")
    return folder


def load_in_transformers(folder: Path, huggingface_class: str, **more: Any) -> Any:
    """Load a saved model in transformers, and check that no parameter is missing."""
    kind = getattr(pytest.importorskip("transformers"), huggingface_class)
    model, info = kind.from_pretrained(folder, output_loading_info=True, **more)
    assert not info["missing_keys"] and not info["mismatched_keys"], info
    return model.eval()


def random_ids(entries: int) -> Tensor:
    """Return the ids of three sequences, padded with 0 to a rectangle."""
    return torch.randint(5, entries, KEEP.shape, generator=torch.Generator().manual_seed(1)) * KEEP


def flat_batch(ids: Tensor, predicted: Tensor, labels: Tensor, *draws: Tensor) -> TensorBatch:
    """Return the same batch in the flat layout of this project's objectives."""
    flat, pairs = ids[KEEP].numpy(), np.zeros(len(LENGTHS), np.int64)
    numbers = (predicted.numpy(), labels.numpy(), pairs, np.arange(len(LENGTHS)), *(draw.numpy() for draw in draws))
    return TensorBatch.of(PretrainingBatch(flat, flat * 0, STARTS, *numbers))


def loaded_again(folder: Path, module: nn.Module, config: BertConfig, huggingface_class: str, **more: Any) -> Any:
    """Save a module, and load it as transformers' class."""
    folder.mkdir(parents=True, exist_ok=True)
    save_tensors(folder, module.state_dict(), config, huggingface_class)
    return load_in_transformers(folder, huggingface_class, attn_implementation="eager", **more)


def mean_losses(objective: PretrainingObjective, batch: TensorBatch) -> tuple[dict[str, Tensor], dict[str, float]]:
    """Compute the gradients of the weighted sum of mean losses, and return losses and counts."""
    terms, counts = objective(batch), objective.loss_counts(batch.workload)
    means = {name: term.loss / counts[name] for name, term in terms.items()}
    sum(objective.weights[name] * mean for name, mean in means.items()).backward()
    return means, counts


def assert_gradients_close(parameters: Mapping[str, nn.Parameter], expected: Mapping[str, Tensor]) -> None:
    """Assert that gradients differ by at most 1e-5, or 1e-5 of the largest gradient if that is above 1."""
    for name, parameter in parameters.items():
        tolerance = 1e-5 * max(1, float(expected[name].abs().max()))
        torch.testing.assert_close(parameter.grad, expected[name], rtol=1e-5, atol=tolerance, msg=name)
