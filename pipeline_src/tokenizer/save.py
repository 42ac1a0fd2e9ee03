"""The files in which `transformers` looks for a tokenizer of any kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from tokenizers import Tokenizer

from pipeline_src.common.files import atomic_file, write_json


def save_built(folder: Path, tokenizer: Tokenizer, special: Mapping[str, str], inputs: Sequence[str]) -> None:
    """Write ``tokenizer.json`` and ``tokenizer_config.json``.

    The class named there is the one that takes ``tokenizer.json`` as it is: those of single families build parts of
    their own in place of ours. It reads a written mask as the control token, as people expect of a prompt.

    Args:
        folder: exists.
        tokenizer: what is saved.
        special: ``cls_token`` and the like -> how it is spelt.
        inputs: what transformers' tokenizer gives a model.
    """
    with atomic_file(folder / "tokenizer.json") as file:
        file.write(tokenizer.to_str(pretty=True))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": 512,
        "model_input_names": list(inputs),
        "clean_up_tokenization_spaces": False,
        **special,
    }
    write_json(folder / "tokenizer_config.json", config)
