"""Dropout: its rate, its scale, its independence, and that it is a function of the generator's state."""

import numpy as np
import pytest
import torch

from pipeline_src.models.dropout import Dropout, dropout

MANY = 1 << 20


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_rate_and_scale(rate):
    torch.manual_seed(0)
    found = dropout(torch.ones(MANY), rate)
    kept = found > 0
    assert (~kept).float().mean().item() == pytest.approx(rate, abs=5 * (rate * (1 - rate) / MANY) ** 0.5)
    assert found[kept].unique().item() == pytest.approx(1 / (1 - rate), rel=1e-3)
    assert found.mean().item() == pytest.approx(1, abs=5 * (rate / (1 - rate) / MANY) ** 0.5)  # right on average


def test_each_number_is_drawn_for_itself():
    """Four numbers share one draw of 64 bits: whether one goes says nothing of its neighbours, near or far."""
    torch.manual_seed(1)
    gone = (dropout(torch.ones(MANY), 0.1) == 0).numpy()
    for lag in (1, 2, 3, 4, 5, 8, 16, 128):
        correlation = np.corrcoef(gone[:-lag], gone[lag:])[0, 1]
        assert abs(correlation) < 5 / MANY**0.5, lag
    shares = gone.reshape(-1, 4).mean(axis=0)  # of each place in a draw
    assert np.abs(shares - 0.1).max() < 5 * (0.09 / (MANY / 4)) ** 0.5


def test_the_gradient_goes_where_the_numbers_went():
    inner = torch.randn(7, 5, 3, requires_grad=True)
    found = dropout(inner, 0.3)
    found.sum().backward()
    assert torch.allclose(found, inner * inner.grad) and (inner.grad == 0).any()


def test_it_is_a_function_of_the_generator():
    def draw(seed: int, shape: tuple[int, ...] = (3, 5)) -> torch.Tensor:
        torch.manual_seed(seed)
        return dropout(torch.ones(shape), 0.5)

    assert torch.equal(draw(1, (100,)), draw(1, (100,))) and not torch.equal(draw(1, (100,)), draw(2, (100,)))
    strided = torch.ones(5, 3).T
    torch.manual_seed(1)
    assert torch.equal(dropout(strided, 0.5), draw(1))  # whatever the memory's order


def test_it_does_nothing_in_evaluation_or_at_rate_zero():
    inner = torch.randn(1000)
    assert Dropout(0.5).eval()(inner) is inner and Dropout(0.0).train()(inner) is inner
    assert (Dropout(0.5).train()(inner) == 0).any()
    assert dropout(torch.ones(0), 0.5).shape == (0,)
