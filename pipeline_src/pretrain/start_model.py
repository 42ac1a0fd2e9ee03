"""Stage ``start_model``: download and import the model from which pretraining continues.

The output ``data/start_model`` is a model folder with a ``manifest.json`` that lists the model's parts. If a study
starts from random weights, the folder holds only the manifest.
"""

from __future__ import annotations

from pathlib import Path

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.files import atomic_directory, write_json
from pipeline_src.base.paths import START_MODEL
from pipeline_src.base.progress import log
from pipeline_src.model.bert import BertConfig, check_architecture
from pipeline_src.pretrain.import_model import PARTS, fetch_and_import
from pipeline_src.study.data import ExamplesParams
from pipeline_src.study.model import ModelParams
from pipeline_src.study.pretrain import PretrainParams


def run(*, pretrain: PretrainParams, model: ModelParams, examples: ExamplesParams) -> None:
    """Write ``data/start_model``, the model that ``pretrain.init_from`` names."""
    with atomic_directory(START_MODEL) as output:
        parts = []
        if pretrain.continued:
            parts = import_start_model(pretrain, model, examples, output)
        write_json(output / "manifest.json", {"parts": parts})


def import_start_model(
    pretrain: PretrainParams, model: ModelParams, examples: ExamplesParams, output: Path
) -> list[str]:
    imported = fetch_and_import(Path(pretrain.init_from), output)
    config = imported.config
    check_fits_study(config, model, examples, pretrain.init_from)
    log.info(
        "%s: %d layers, %d wide, %d entries (%s); %s",
        pretrain.init_from,
        config.num_hidden_layers,
        config.hidden_size,
        imported.entries,
        imported.tokenizer,
        ", ".join(["encoder", *imported.parts]),
    )
    missing = [part for part in PARTS if part not in imported.parts]
    if missing:
        log.info("the start model lacks these parts, which start from random weights: %s", ", ".join(missing))
    return imported.parts


def check_fits_study(config: BertConfig, model: ModelParams, examples: ExamplesParams, where: str) -> None:
    check_architecture(config, model.architecture, Path(where), "pretrain.init_from")
    limit = config.longest_input
    length = examples.max_seq_length.longest
    if config.is_decoder:
        hint = "set pretrain.init_from to a masked language model"
        raise PipelineError("the start model is a causal model", "is_decoder", where=where, hint=hint)
    if limit < length:
        raise PipelineError(
            "the start model's maximum length is too short",
            f"{limit} tokens, and the study uses {length}",
            where=where,
            hint=f"set all of examples.max_seq_length to at most {limit}",
        )
