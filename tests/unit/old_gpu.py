"""A GPU from before Ampere, as far as a training asks before it begins."""

import pytest
import torch


def show_an_old_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have torch tell of one T4, whatever this machine has."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Tesla T4")
