"""Modules without their initial weights, for those that are read from a file at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

DRAWS = (nn.init.normal_, nn.init.uniform_, nn.init.kaiming_uniform_)  # what torch's modules draw their weights by


class _LeaveAsTheyAre(TorchFunctionMode):
    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        named = dict(kwargs or {})
        if function in DRAWS:
            return args[0] if args else named["tensor"]
        return function(*args, **named)


@contextmanager
def undrawn() -> Iterator[None]:
    """Modules made here have names and shapes, but no memory, and draw nothing.

    Where there is no memory torch would draw nothing either, but it imports its compiler to find that out, which takes
    a second.
    """
    with torch.device("meta"), _LeaveAsTheyAre():
        yield
