"""``tokenizer_config.json`` of a model's folder: which inputs the model takes, and of how many tokens."""

from __future__ import annotations

from pathlib import Path

from pipeline_src.base.files import read_json, write_json

BERT_INPUTS = ("input_ids", "token_type_ids", "attention_mask")


def state_inputs(folder: Path, longest_input: int, token_types: int = 2) -> None:
    """Write a model's longest input and the names of its inputs.

    By these, transformers' tokenizer cuts and pads.

    Args:
        folder: a model's folder with its tokenizer's files.
        token_types: number of token type embeddings.
    """
    path = folder / "tokenizer_config.json"
    config = read_json(path, dict) if path.exists() else {}
    # A vocabulary whose pairs are one segment, such as RoBERTa's, has names without token_type_ids already.
    names = config.get("model_input_names", BERT_INPUTS)
    if token_types < 2:
        # ModernBERT's and DistilBERT's classes refuse token_type_ids, and RoBERTa's has no row for the second text.
        names = [name for name in names if name != "token_type_ids"]
    write_json(path, config | {"model_max_length": longest_input, "model_input_names": list(names)})
