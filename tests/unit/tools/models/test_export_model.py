"""A model's folder for other libraries: its files and card; tests/parity loads it with them."""

import json

import pytest
import yaml

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.files import write_json
from pipeline_src.interpret.model import ProbedModel
from pipeline_src.tools import export
from tests.unit.interpret.conftest import make_model, save

LAYOUT = {"modules.json", "sentence_bert_config.json", "1_Pooling", "README.md"}


def read(path):
    return json.loads(path.read_text(encoding="utf-8"))


def test_export_sentence_transformers_writes_its_layout_and_card(folder, call, tmp_path):
    (folder / "training_state").mkdir()
    write_json(folder / "tokenizer_config.json", read(folder / "tokenizer_config.json") | {"model_max_length": 512})
    for given, parts in (((), 2), (("--pooling", "cls", "--normalise"), 3)):
        made = tmp_path / f"made{parts}"
        call(export, made, "--format", "sentence-transformers", "--model", folder, *given)
        modules = read(made / "modules.json")
        assert [module["type"].rpartition(".")[2] for module in modules] == ["Transformer", "Pooling", "Normalize"][
            :parts
        ]
        pooling = read(made / "1_Pooling/config.json")
        assert pooling["word_embedding_dimension"] == 16 and pooling["pooling_mode_cls_token"] == (parts == 3)
        assert pooling["pooling_mode_mean_tokens"] == (parts == 2) and not pooling["pooling_mode_max_tokens"]
        assert read(made / "sentence_bert_config.json")["max_seq_length"] == 12
        assert read(made / "tokenizer_config.json")["model_max_length"] == 12
        names = {path.name for path in folder.iterdir() if path.is_file()}
        assert {path.name for path in made.iterdir()} - {"2_Normalize"} == names | LAYOUT
        _, front, body = (made / "README.md").read_text(encoding="utf-8").split("---\n", 2)
        assert yaml.safe_load(front)["library_name"] == "sentence-transformers"
        assert ("the first of its tokens' vectors, divided by its length" in body) == (parts == 3)
    ProbedModel.open(made)  # the folder is still one of this project


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("--model", "nowhere"), "no model here: nowhere"),
        (
            ("--phase", "phase2"),
            "option does not apply to this format: --phase\n  where:  --format sentence-transformers",
        ),
    ],
)
def test_export_model_bad_option_is_rejected_and_writes_nothing(folder, call, tmp_path, given, message):
    with pytest.raises(PipelineError, match=message):
        call(export, tmp_path / "made", "--format", "sentence-transformers", "--model", folder, *given)
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("architecture", ["bilstm", "word_vectors"])
def test_export_model_that_transformers_lacks_is_rejected(folder, call, tmp_path, architecture):
    model = save(tmp_path / "saved", make_model(architecture))
    with pytest.raises(PipelineError, match="architecture is not in transformers"):
        call(export, tmp_path / "made", "--format", "sentence-transformers", "--model", model)
