"""Tool ``export``, models: a folder that sentence-transformers and transformers load, or one such folder a revision."""

from __future__ import annotations

import shutil
from pathlib import Path

from pipeline_src.common.errors import PipelineError
from pipeline_src.common.files import atomic_directory, read_json, write_json
from pipeline_src.models.adapter import ENCODER
from pipeline_src.models.bert import make_encoder
from pipeline_src.models.hub import CARD
from pipeline_src.models.model_card import imported_card, sentence_card
from pipeline_src.tools.embed import NO_ENCODER
from pipeline_src.tools.onnx_export import check_packages, write_onnx
from pipeline_src.tools.open_model import open_model
from pipeline_src.tools.texts import read_lines

MAIN = "main"  # branch of the model itself in a repository of a hub
STATE = "training_state/state.json"
MODES = {"cls": "cls_token", "mean": "mean_tokens", "max": "max_tokens"}  # ours -> sentence-transformers'


def export_model(
    output: Path, kind: str, model: Path, pooling: str, normalise: bool, onnx: str | None, texts: Path | None
) -> None:
    """Write a model for other libraries.

    Args:
        output: the folder to write.
        kind: ``sentence-transformers`` writes the model's folder; ``hub`` a folder for each :func:`revisions`.
        model: folder of the model.
        pooling, normalise: see the tool ``embed``.
        onnx: ``float32`` or ``int8`` adds files of ONNX to the model itself.
        texts: file of texts, on which the loss of ``int8`` is measured.
    """
    if onnx:
        check_packages()
    lines = list(read_lines(texts)) if texts else []
    with atomic_directory(output) as folder:
        if kind == "hub":
            found = revisions(model)
            for name, path in found.items():
                write_sentence_transformers(path, folder / name, pooling, normalise)
        else:
            write_sentence_transformers(model, folder, pooling, normalise)
        if onnx:
            place = (folder / MAIN if kind == "hub" else folder) / "onnx"
            place.mkdir()
            print("\n".join(write_onnx(model, place, onnx == "int8", lines)))
    if kind == "hub":
        print(f"{len(found)} revisions in {output}; to upload them, after `hf auth login`:")
        for name in found:
            if name != MAIN:
                print(f"hf repo branch create USER/NAME {name}")
            print(f"hf upload USER/NAME {output / name} . --revision {name}")


def revisions(model: Path) -> dict[str, Path]:
    """Return the folders of a model and of those kept on the way to it, by revision: ``main``, ``step-N`` ..."""
    kept = [path.parent.parent for path in model.glob(f"steps/*/{STATE}")]
    if (first := model.parent / "phase1") != model:
        kept += [path.parent.parent for path in (first / STATE, *first.glob(f"steps/*/{STATE}")) if path.exists()]
    steps = {read_json(path / STATE, {"step": int})["step"]: path for path in kept}
    return {MAIN: model, **{f"step-{step}": steps[step] for step in sorted(steps)}}


def write_sentence_transformers(model: Path, folder: Path, pooling: str, normalise: bool) -> None:
    """Copy a model into ``folder``, with what sentence-transformers reads, and a card that says how to load it."""
    opened = open_model(model, make_encoder, ENCODER, NO_ENCODER)
    config = opened.config
    if "encoder" not in config.names.classes:
        raise PipelineError(
            "transformers has no such architecture", config.names.model_type, where=model,
            hint="`python -m pipeline_src embed` gives its vectors",
        )  # fmt: skip
    folder.mkdir(exist_ok=True)
    for file in model.iterdir():
        if file.is_file():
            shutil.copyfile(file, folder / file.name)
    steps = ["Transformer", "Pooling", *(["Normalize"] if normalise else [])]
    paths = ["", *(f"{number}_{step}" for number, step in enumerate(steps[1:], 1))]
    modules = [
        {"idx": number, "name": str(number), "path": path, "type": f"sentence_transformers.models.{step}"}
        for number, (step, path) in enumerate(zip(steps, paths, strict=True))
    ]
    write_json(folder / "modules.json", modules)
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": config.longest_input, "do_lower_case": False})
    for path in paths[1:]:
        (folder / path).mkdir()
    modes = {f"pooling_mode_{theirs}": ours == pooling for ours, theirs in MODES.items()}
    write_json(folder / paths[1] / "config.json", {"word_embedding_dimension": config.hidden_size, **modes})
    card = folder / CARD
    if not card.exists():
        count = sum(parameter.numel() for parameter in opened.model.parameters())
        card.write_text(imported_card(config, count, config.names.classes["encoder"]), encoding="utf-8")
    card.write_text(sentence_card(card.read_text(encoding="utf-8"), pooling, normalise), encoding="utf-8")
