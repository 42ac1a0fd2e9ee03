"""The tensors of a model folder, under one set of names whatever wrote them and however they are cut."""

from __future__ import annotations

import pickle
import re
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from pipeline_src.common.errors import PipelineError
from pipeline_src.common.files import read_json
from pipeline_src.models.names import Names


def read_tensors(folder: Path, names: Names) -> dict[str, Tensor]:
    """Every tensor of a model folder by our name of it; mapped, not read, where the format allows it.

    ``names`` are those of the folder's architecture.

    Raises:
        PipelineError: no weights are there, a file of them is missing or damaged, or their decoder is a matrix of its
            own.
    """
    stored = _read_files(folder)
    config = folder / "config.json"
    classes = (read_json(config) if config.exists() else {}).get("architectures") or [None]
    tensors = {
        names.of_folder(name, classes[0]): tensor
        for name, tensor in stored.items()
        if not re.search(names.buffers, name)
    }
    copy, kept = names.tied
    decoder, words = tensors.pop(copy, None), tensors.get(kept)
    if decoder is not None and words is not None and not torch.equal(decoder, words):
        raise PipelineError(
            "the decoder is not the embedding matrix", copy, where=folder,
            remedy="give a model with tied embeddings; BERT's decoder is its embedding matrix (google-research/bert)",
        )  # fmt: skip
    return tensors


def _read_files(folder: Path) -> dict[str, Tensor]:
    for name, read in FORMATS.items():
        if (folder / name).exists():
            return _read([folder / name], read)
        index = folder / f"{name}.index.json"
        if index.exists():
            return _read([folder / shard for shard in _shards(index)], read)
    raise PipelineError(
        "no weights to read", " or ".join(FORMATS), where=folder,
        remedy="run the stage that makes it again, or `dvc pull` it; a checkpoint of TensorFlow: see the tool `import`",
    )  # fmt: skip


def _shards(index: Path) -> list[str]:
    try:
        names = sorted(set(read_json(index)["weight_map"].values()))
        if all(Path(name).name == name for name in names):
            return names
    except (TypeError, KeyError, AttributeError):
        pass
    raise PipelineError("not an index of weights", index, remedy="fetch the model again")


def _read(paths: Iterable[Path], read: Callable[[Path], dict[str, Tensor]]) -> dict[str, Tensor]:
    tensors = {}
    for path in paths:
        try:
            tensors.update(read(path))
        except (SafetensorError, pickle.UnpicklingError, EOFError, OSError, RuntimeError, TypeError) as error:
            raise PipelineError(
                "no weights to read", str(error).partition("\n")[0], where=path,
                remedy="run the stage that makes it again, or `dvc pull` or fetch it again",
            ) from None  # fmt: skip
    return tensors


def _read_pickle(path: Path) -> dict[str, Tensor]:
    # weights_only: nothing in the file is run; torch before 1.6 wrote a format that cannot be mapped
    stored = torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    if not (isinstance(stored, dict) and all(isinstance(tensor, Tensor) for tensor in stored.values())):
        raise TypeError("not a state dict")
    return stored


FORMATS: dict[str, Callable[[Path], dict[str, Tensor]]] = {
    "model.safetensors": load_file,
    "pytorch_model.bin": _read_pickle,
}
