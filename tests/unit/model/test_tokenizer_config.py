"""Input names and maximum length in tokenizer_config.json."""

import pytest

from pipeline_src.base.files import read_json, write_json
from pipeline_src.model.tokenizer_config import BERT_INPUTS, state_inputs

WITHOUT_TYPES = ["input_ids", "attention_mask"]


@pytest.mark.parametrize(
    ("names", "token_types", "expected"),
    [
        (None, 2, list(BERT_INPUTS)),
        (None, 1, WITHOUT_TYPES),
        (None, 0, WITHOUT_TYPES),
        (WITHOUT_TYPES, 2, WITHOUT_TYPES),
        (list(BERT_INPUTS), 0, WITHOUT_TYPES),
    ],
)
def test_state_inputs_lists_token_type_ids_only_if_model_and_tokenizer_have_them(
    tmp_path, names, token_types, expected
):
    before = {"do_lower_case": True, "model_max_length": 512} | ({"model_input_names": names} if names else {})
    write_json(tmp_path / "tokenizer_config.json", before)
    state_inputs(tmp_path, 1024, token_types)
    written = read_json(tmp_path / "tokenizer_config.json")
    assert written == {"do_lower_case": True, "model_max_length": 1024, "model_input_names": expected}
