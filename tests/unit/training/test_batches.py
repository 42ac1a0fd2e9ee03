"""Batches from another thread come in order, and the thread ends."""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import Tensor

from pipeline_src.training.batches import prefetch, split_balanced, split_greedy, to_device, transfer


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "prefetch"]


def test_prefetch_keeps_order_and_thread_ends():
    assert list(prefetch(range(50), depth=3)) == list(range(50))
    assert list(prefetch([])) == []
    assert not threads()


def test_prefetch_yields_none_items():
    assert list(prefetch([None, 1, None])) == [None, 1, None]


def test_prefetch_prepares_items_in_advance():
    made = []
    items = prefetch((made.append(number) or number for number in range(10)), depth=4)
    assert next(items) == 0
    deadline = time.monotonic() + 10
    while len(made) < 5 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(made) in (5, 6)  # four wait, one is held by the thread, one is out
    items.close()
    assert not threads()


def test_prefetch_raises_error_after_earlier_items():
    def broken():
        yield 1
        raise ValueError("the disk is gone")

    items = prefetch(broken())
    assert next(items) == 1
    with pytest.raises(ValueError, match="the disk is gone"):
        next(items)
    assert not threads()


GPU, CPU = torch.device("cuda", 0), torch.device("cpu")


@dataclass(frozen=True)
class Part:
    ids: Tensor
    labels: Tensor
    examples: np.ndarray


class Streams:
    """Fake of torch's CUDA streams that records what happened, in order."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.said: list[tuple] = []
        self.current = "computing"
        self.devices: list[torch.device] = []
        patch.setattr(torch.cuda, "set_device", self.devices.append)
        patch.setattr(torch.cuda, "Stream", lambda device: self.make("copying"))
        patch.setattr(torch.cuda, "current_stream", lambda device: self.make("computing"))
        patch.setattr(torch.cuda, "stream", self.enter)
        patch.setattr(Tensor, "pin_memory", lambda tensor: self.say("pin", tensor))
        patch.setattr(Tensor, "to", lambda tensor, device, non_blocking: self.say("copy", tensor, non_blocking))
        patch.setattr(Tensor, "record_stream", lambda tensor, stream: self.say("keep", tensor, stream.name))

    def make(self, name: str):
        streams = self

        class Stream:
            def __init__(self) -> None:
                self.name = name

            def record_event(self) -> str:
                streams.said.append(("record", name))
                return f"event on {name}"

            def wait_event(self, event: str) -> None:
                streams.said.append(("wait", name, event))

        return Stream()

    @contextlib.contextmanager
    def enter(self, stream) -> Iterator[None]:
        before, self.current = self.current, stream.name
        yield
        self.current = before

    def say(self, what: str, tensor: Tensor, *more) -> Tensor:
        self.said.append((what, int(tensor.sum()), self.current, *more))
        return tensor


def part(number: int) -> Part:
    return Part(torch.tensor([number]), torch.tensor([number + 1]), np.array([number]))


def test_transfer_to_gpu_copies_on_separate_stream(monkeypatch):
    """The computing stream waits for the copies, and keeps their memory until it is done."""
    streams = Streams(monkeypatch)
    arriving = transfer([[part(1), part(3)]], GPU)
    (first, second) = next(arriving)
    assert [first.examples, second.examples] == [[1], [3]]
    copies = [("copy", number, "copying", True) for number in (1, 2, 3, 4)]
    assert [messages for messages in streams.said if messages[0] == "copy"] == copies
    assert [messages[1] for messages in streams.said if messages[0] == "pin"] == [1, 2, 3, 4]
    after = streams.said[streams.said.index(("record", "copying")) :]
    selected = [("keep", number, "computing", "computing") for number in (1, 2, 3, 4)]
    assert after == [("record", "copying"), ("wait", "computing", "event on copying"), *selected]
    assert streams.said.index(copies[-1]) < streams.said.index(after[0])


def test_to_device_does_not_copy_gpu_tensors(monkeypatch):
    class OnGpu(Tensor):
        device = GPU

    streams = Streams(monkeypatch)
    there = Part(torch.tensor([1]).as_subclass(OnGpu), torch.tensor([2]), np.array([0]))
    assert to_device(there, GPU).ids is there.ids
    assert [messages[:2] for messages in streams.said] == [("pin", 2), ("copy", 2)]


def test_transfer_on_cpu_yields_same_batches():
    batches = [[part(1)], [part(2), part(3)]]
    assert all(first is second for first, second in zip(transfer(batches, CPU), batches, strict=True))


@pytest.mark.parametrize("tokens", [1, 20, 1000])
@pytest.mark.parametrize("cut", [split_greedy, split_balanced])
def test_split_keeps_order_and_token_budget(cut, tokens):
    lengths = np.asarray([5, 12, 1, 3, 8, 25])
    pieces = cut(lengths, tokens)
    assert np.concatenate([lengths[piece] for piece in pieces]).tolist() == lengths.tolist()
    assert all(lengths[piece].sum() <= tokens or len(lengths[piece]) == 1 for piece in pieces)


def test_split_balanced_minimises_largest_microbatch():
    rng = np.random.default_rng(0)
    for _ in range(30):
        lengths, tokens = rng.integers(1, 20, 9), int(rng.integers(20, 60))
        pieces, fewest = split_balanced(lengths, tokens), len(split_greedy(lengths, tokens))
        smallest = min(
            max(part.sum() for part in np.split(lengths, edges))
            for edges in itertools.combinations(range(1, len(lengths)), fewest - 1)
        )
        assert len(pieces) <= fewest and max(lengths[piece].sum() for piece in pieces) == smallest


def test_split_balanced_fitting_batch_is_not_split():
    assert split_balanced(np.full(8, 16), 128) == split_balanced(np.full(8, 16), None) == [slice(0, 8)]
