"""Tool ``generate``: continue a text with a masked language model."""

from __future__ import annotations

import argparse
from pathlib import Path

from pipeline_src.common.errors import PipelineError
from pipeline_src.interpretation.generation import WAYS, complete
from pipeline_src.tools.inspect import open_masked_lm
from pipeline_src.tools.open_model import DEFAULT


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the tool's own arguments."""
    parser.add_argument("text", help='"Today, I went to"')
    parser.add_argument("--masks", type=int, default=8, help="tokens to write (default 8)")
    names = [way.replace(" ", "-") for way in WAYS]
    parser.add_argument("--how", choices=names, help="one way (default: all)")
    parser.add_argument("--model", type=Path, default=DEFAULT, help=f"folder of the model (default {DEFAULT})")


def main(arguments: argparse.Namespace) -> None:
    """Print the text after the last step of each way."""
    model = open_masked_lm(arguments.model)
    if not 1 <= arguments.masks <= model.max_tokens - 2:
        raise PipelineError(
            "so many masks do not fit", arguments.masks, where="--masks", hint=f"give 1 to {model.max_tokens - 2}"
        )
    for how in [arguments.how.replace("-", " ")] if arguments.how else WAYS:
        steps = complete(model, model.ids(arguments.text), arguments.masks, how)
        print(f"{how}: {arguments.text} {model.tokenizer.decode(steps[-1])}")
