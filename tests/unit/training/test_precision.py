"""In which precision a device trains."""

import pytest
import torch

from pipeline_src.common.errors import PipelineError
from pipeline_src.training.distributed import Distributed
from pipeline_src.training.precision import choose_precision

CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)


@pytest.fixture
def capability(monkeypatch):
    def lend(*of_gpu: int) -> None:
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: of_gpu)
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Tesla T4")

    return lend


@pytest.mark.parametrize("of_gpu", [(8, 0), (12, 0)])
def test_a_gpu_trains_in_bfloat16_and_a_cpu_does_where_it_is_told_to(capability, of_gpu):
    capability(*of_gpu)
    assert choose_precision("auto", GPU) == choose_precision("bfloat16", GPU) == torch.bfloat16
    assert choose_precision("auto", CPU) == choose_precision("float32", CPU) == torch.float32
    assert choose_precision("bfloat16", CPU) == torch.bfloat16


def test_gpus_from_before_ampere_train_in_float32_alone(capability):
    capability(7, 5)
    for wanted in ("auto", "bfloat16"):
        with pytest.raises(PipelineError, match=r"(?s)no bfloat16: Tesla T4.*set precision: float32"):
            choose_precision(wanted, GPU)
    assert choose_precision("float32", GPU) == torch.float32


@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16], ids=str)
def test_products_are_computed_in_it(precision):
    with Distributed(0, 1, CPU, precision).autocast():
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == precision
