"""Write a model's maximum length and input names into its ``tokenizer_config.json``."""

from __future__ import annotations

from pathlib import Path

from pipeline_src.base.files import read_json, write_json

BERT_INPUTS = ("input_ids", "token_type_ids", "attention_mask")


def state_inputs(folder: Path, longest_input: int, token_types: int = 2) -> None:
    """Write a model's maximum length and input names into ``tokenizer_config.json``.

    transformers' tokenizer truncates to this length, and returns these inputs.

    Args:
        folder: model folder that contains the tokenizer files.
        longest_input: maximum number of tokens, with special tokens.
        token_types: number of token type embeddings. With less than 2, ``token_type_ids`` is no input.
    """
    path = folder / "tokenizer_config.json"
    config = read_json(path, dict) if path.exists() else {}
    # Tokenizers that do not distinguish the two texts of a pair, such as RoBERTa's, already omit token_type_ids.
    names = config.get("model_input_names", BERT_INPUTS)
    if token_types < 2:
        # transformers' ModernBERT and DistilBERT reject token_type_ids, and RoBERTa has no embedding for type 1.
        names = [name for name in names if name != "token_type_ids"]
    write_json(path, config | {"model_max_length": longest_input, "model_input_names": list(names)})
