"""Batches made ahead and brought to the device beside its work."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields, replace
from typing import Any, TypeVar

import torch
from torch import Tensor

from pipeline_src.training.prefetch import prefetch

B = TypeVar("B")


def transfer(batches: Iterable[Sequence[B]], device: torch.device) -> Iterator[Sequence[B]]:
    """Yield ``batches``, whose micro-batches are dataclasses of tensors, with their tensors on ``device``.

    A thread makes them before they are asked for. On a GPU it copies them too, out of page-locked memory and on a
    stream of its own: on the stream that computes, a copy would wait for every kernel queued before it, and the
    kernels after it for the copy (NVIDIA, CUDA C++ Programming Guide, "Asynchronous Concurrent Execution").
    """
    if device.type == "cpu":
        yield from prefetch(batches)
        return
    if device.type == "mps":
        for batch in prefetch(batches):
            yield [to_device(part, device) for part in batch]
        return
    copying = torch.cuda.Stream(device)

    def send() -> Iterator[tuple[list[B], torch.cuda.Event]]:
        torch.cuda.set_device(device)  # a new thread begins with the first GPU, and would take memory there
        for batch in batches:
            with torch.cuda.stream(copying):
                sent = [to_device(part, device) for part in batch]
            yield sent, copying.record_event()

    for batch, copied in prefetch(send()):
        computing = torch.cuda.current_stream(device)
        computing.wait_event(copied)
        for part in batch:
            for tensor in tensors_of(part).values():
                tensor.record_stream(computing)  # its memory is given away again only when this stream is done with it
        yield batch


def to_device(batch: B, device: torch.device) -> B:
    """The micro-batch with its tensors on ``device``; the host does not wait for a GPU to have them."""
    if device.type == "cpu":
        return batch
    if device.type == "mps":  # shares the host's memory: nothing is pinned
        return replace(batch, **{name: tensor.to(device) for name, tensor in tensors_of(batch).items()})  # type: ignore[type-var]
    on_host = {name: tensor for name, tensor in tensors_of(batch).items() if tensor.device.type == "cpu"}
    moved = {name: tensor.pin_memory().to(device, non_blocking=True) for name, tensor in on_host.items()}
    return replace(batch, **moved)  # type: ignore[type-var]


def tensors_of(batch: Any) -> dict[str, Tensor]:
    """The tensors among the fields of a dataclass, by name."""
    values = {field.name: getattr(batch, field.name) for field in fields(batch)}
    return {name: value for name, value in values.items() if isinstance(value, Tensor)}
