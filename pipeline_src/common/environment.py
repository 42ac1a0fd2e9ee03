"""Numbers that a person may set in the environment: how something runs, never what comes out."""

from __future__ import annotations

import math
import os

from pipeline_src.common.errors import PipelineError


def number_of(unit: str, name: str, usual: float, least: float = 0, most: float = math.inf) -> float:
    """The number in ``$name``, or the usual one where it is not set.

    Raises:
        PipelineError: it is no number, or below ``least`` or above ``most``.
    """
    wanted = os.environ.get(name, str(usual))
    try:
        number = float(wanted)
    except ValueError:
        number = math.nan
    if not least <= number <= most or math.isinf(number):  # nor NaN
        up_to = "or more" if math.isinf(most) else f"up to {most:,g}"
        raise PipelineError(
            f"not a number of {unit}", wanted, where=f"${name}", remedy=f"set it to {least:g} {up_to}, or unset it"
        )
    return number
