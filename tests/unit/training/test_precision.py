"""Which GPUs train."""

import pytest
import torch

from pipeline_src.common.errors import PipelineError
from pipeline_src.training.precision import check_precision


@pytest.mark.parametrize(("capability", "trains"), [((7, 5), False), ((8, 0), True), ((12, 0), True)])
def test_gpus_from_before_ampere_are_refused(monkeypatch, capability, trains):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Tesla T4")
    if trains:
        check_precision(torch.device("cuda", 0))
    else:
        with pytest.raises(PipelineError, match="no bfloat16: Tesla T4"):
            check_precision(torch.device("cuda", 0))
    check_precision(torch.device("cpu"))
