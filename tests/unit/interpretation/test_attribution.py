"""Integrated gradients add up to what they explain."""

import pytest

from pipeline_src.interpretation.attribution import integrated_gradients
from tests.unit.interpretation.conftest import make_model


def test_they_add_up_to_the_gain_and_what_never_changes_adds_nothing():
    model = make_model()
    for parameter in model.encoder.parameters():
        parameter.data *= 0.5  # weights of the size that training leaves
    adds, gain = integrated_gradients(model, [5, 6, model.mask, 8], 2, 7)
    assert float(adds.sum()) == pytest.approx(gain, abs=1e-4) and abs(gain) > 1e-3
    assert adds[0] == adds[-1] == adds[3] == 0.0  # the marks and the mask
    assert adds[[1, 2, 4]].abs().min() > 0
