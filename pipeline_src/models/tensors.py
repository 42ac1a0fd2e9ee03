"""The tensors of a model folder, under one set of names whatever wrote them and however they are cut."""

from __future__ import annotations

import re
import warnings
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from pipeline_src.common.errors import PipelineError
from pipeline_src.common.files import read_json, system_errors
from pipeline_src.models.names import Names


def read_tensors(folder: Path, names: Names) -> dict[str, Tensor]:
    """Every tensor of a model folder by our name of it; mapped, not read, where the format allows it.

    ``names`` are those of the folder's architecture.

    Raises:
        PipelineError: no weights are there, a file of them is missing or damaged, or their decoder is a matrix of its
            own.
    """
    stored, huggingface_class = _read_files(folder), _class_of(folder / "config.json")
    tensors = {
        names.of_folder(name, huggingface_class): tensor
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


def write_tensors(path: Path, tensors: dict[str, Tensor], metadata: dict[str, str] | None = None) -> None:
    """As safetensors' ``save_file``; what the operating system says, such as of a full disk, is an OSError."""
    with system_errors(path):
        save_file(tensors, path, metadata)


def model_files(folder: Path) -> list[Path]:
    """What decides a model folder's numbers: its config, and whatever of its weights :func:`read_tensors` may read."""
    wanted = ("config.json", *FORMATS, *(f"{name}.index.json" for name in FORMATS))
    ends = tuple(Path(name).suffix for name in FORMATS)
    return sorted(path for path in folder.glob("*") if path.name in wanted or path.name.endswith(ends))


def check_fits(name: str, tensor: Tensor | None, shape: torch.Size, where: object) -> Tensor:
    """A stored tensor that is to become a parameter of this shape.

    Raises:
        PipelineError: it is missing, of another shape, or not of floating-point numbers.
    """
    has = "missing" if tensor is None else f"shape {tuple(tensor.shape)}"
    if tensor is not None and tensor.shape == shape:
        if tensor.is_floating_point():
            return tensor
        has = f"numbers of type {str(tensor.dtype).removeprefix('torch.')}"
    raise PipelineError(
        "weights do not fit the config", f"{name}: {has}, {tuple(shape)} expected", where=where,
        remedy="use the config.json that was saved beside them, and a model that has this part",
    )  # fmt: skip


def refuse_unbounded(name: str, tensor: Tensor, where: object) -> None:
    """Stop at a weight that is NaN or infinite: everything computed with it would be NaN.

    Raises:
        PipelineError: the tensor has one.
    """
    if not bool(torch.isfinite(tensor).all()):
        raise PipelineError("weights that are NaN or infinite", name, where=where, remedy="fetch or train it again")


def _class_of(config: Path) -> str | None:
    """Hugging Face's class of a folder, where its ``config.json`` says one."""
    said = read_json(config) if config.exists() else None
    classes = said.get("architectures") if isinstance(said, dict) else None
    return classes[0] if isinstance(classes, list) and classes and isinstance(classes[0], str) else None


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
        except (SafetensorError, OSError, RuntimeError, TypeError) as error:
            raise PipelineError(
                "no weights to read", str(error).partition("\n")[0], where=path,
                remedy="run the stage that makes it again, or `dvc pull` or fetch it again",
            ) from None  # fmt: skip
    return tensors


def _read_pickle(path: Path) -> dict[str, Tensor]:
    # torch before 1.6 wrote a format that cannot be mapped
    mapped = zipfile.is_zipfile(path)
    try:
        with warnings.catch_warnings(action="ignore"):  # what another pickle than torch's is said to be
            stored = torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)  # nothing in it is run
    except OSError:
        raise
    except Exception:  # whatever the bytes lead torch's reader to
        raise TypeError("not a file of torch.save that holds tensors alone, or a damaged one") from None
    if not (isinstance(stored, dict) and all(map(_is_named_tensor, stored.items()))):
        raise TypeError("not a state dict of plain tensors")
    return stored


def _is_named_tensor(item: tuple[object, object]) -> bool:
    """Whether an entry of a state dict is a name and numbers in a row, not a sparse, quantised or empty hull."""
    name, tensor = item
    return (
        isinstance(name, str)
        and isinstance(tensor, Tensor)
        and tensor.layout is torch.strided
        and tensor.device.type == "cpu"
        and not (tensor.is_quantized or tensor.is_nested)
    )


FORMATS: dict[str, Callable[[Path], dict[str, Tensor]]] = {
    "model.safetensors": load_file,
    "pytorch_model.bin": _read_pickle,
}
