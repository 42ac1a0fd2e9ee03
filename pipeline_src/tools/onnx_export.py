"""An encoder as ONNX: padded batches in, hidden states out, compared with the model by onnxruntime.

This takes the packages onnx, onnxscript and onnxruntime, which nothing else in this project needs.
"""

from __future__ import annotations

import importlib
import logging
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from pipeline_src.common.errors import PipelineError
from pipeline_src.models.adapter import ENCODER
from pipeline_src.models.attention import PackedBatch
from pipeline_src.models.bert import Bert, BertConfig, make_encoder
from pipeline_src.tools.embed import NO_ENCODER, POOLINGS
from pipeline_src.tools.open_model import Opened, open_model

FLOAT32, INT8 = "model.onnx", "model_int8.onnx"
TOLERANCE = 1e-4  # largest difference of a hidden state
LARGEST = 2**31 - 2**20  # bytes of weights that fit a file of ONNX; more go into a file next to it
NO_ONNX = "leave out --onnx"
Batch = Sequence[Sequence[int]]  # ids of texts
PACKAGES = ("onnx", "onnxscript", "onnxruntime")


class PaddedBatch(PackedBatch):
    """Sequences with their padding: every position counts as a token, and ``keep`` hides some from attention."""

    def pad(self, flat: Tensor, fill: float = 0.0) -> Tensor:
        """[B * L, ...] -> [B, L, ...]."""
        return flat.view(self.sequences, self.max_seqlen, *flat.shape[1:])

    def unpad(self, rectangle: Tensor) -> Tensor:
        """[B, L, ...] -> [B * L, ...]."""
        return rectangle.reshape(-1, *rectangle.shape[2:])


class PaddedEncoder(nn.Module):
    """An encoder with transformers' inputs, int64 [B, L] each, and output, hidden states [B, L, H]."""

    def __init__(self, encoder: Bert) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None) -> Tensor:
        sequences, length = input_ids.shape
        starts, index = torch.arange(sequences + 1) * length, torch.arange(sequences * length)
        position, keep = torch.arange(length).repeat(sequences), attention_mask.bool()
        batch = PaddedBatch(starts, starts.int(), position, index, keep, sequences, length)
        segments = torch.zeros_like(input_ids) if token_type_ids is None else token_type_ids
        return self.encoder.encode(input_ids.flatten(), segments.flatten(), batch).view(sequences, length, -1)


def check_packages(packages: Sequence[str] = PACKAGES) -> None:
    """Check that packages are installed."""
    for package in packages:
        try:
            importlib.import_module(package)
        except ImportError:
            raise PipelineError(
                "writing ONNX takes a package that is not installed", package,
                hint=f"pip --python .venv/bin/python install {' '.join(PACKAGES)}, then run the same command again",
            ) from None  # fmt: skip


def write_onnx(model: Path, folder: Path, int8: bool = False, texts: Sequence[str] = ()) -> list[str]:
    """Write ``model.onnx``, compare it with the model, and say in a line or two what was written.

    Args:
        model: folder of the model.
        folder: an existing folder to write to.
        int8: write ``model_int8.onnx`` too, with weights of 8 bits (dynamic quantization).
        texts: those whose vectors show what 8 bits lose; random tokens if there are none.
    """
    opened = open_model(model, lambda config: make_encoder(replace(config, attention="padded")), ENCODER, NO_ENCODER)
    opened = replace(opened, model=opened.model.cpu(), device=torch.device("cpu"))
    batches = random_batches(opened.config)
    try:
        _export(opened, folder / FLOAT32)
        hidden = _runner(folder / FLOAT32, opened.config)
        pairs = [(hidden(batch), own_hidden(opened, batch)) for batch in batches]
    except Exception as error:  # exporter and runtime raise errors of many kinds
        raise PipelineError(
            "torch's exporter cannot translate this model", str(error).partition("\n")[0], where=model, hint=NO_ONNX
        ) from None
    worst = max(float(np.abs(found - expected).max()) for found, expected in pairs)
    if not worst <= TOLERANCE:
        what = "the ONNX file computes something else than the model"
        raise PipelineError(what, f"hidden states differ by {worst:.2g}", where=model, hint=NO_ONNX)
    said = [f"{FLOAT32}: hidden states as the model's to {worst:.1g}"]
    if int8:
        said.append(_quantize(opened, folder, texts, batches))
    return said


def _export(opened: Opened[Bert], path: Path) -> None:
    names = input_names(opened.config)
    inputs = tuple(torch.ones((2, 8), dtype=torch.int64) for _ in names)  # one tensor would be taken for one input
    longest = torch.export.Dim("length", min=2, max=opened.config.longest_input)
    sizes = tuple({0: torch.export.Dim("sequences"), 1: longest} for _ in names)
    size = sum(parameter.nbytes for parameter in opened.model.parameters())
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # it tells of other packages that it could translate
    with warnings.catch_warnings(action="ignore"):
        program = torch.export.export(PaddedEncoder(opened.model).eval(), inputs, dynamic_shapes=sizes, strict=True)
        torch.onnx.export(
            program, f=path, input_names=names, output_names=["last_hidden_state"],
            external_data=size > LARGEST, verbose=False,
        )  # fmt: skip


def input_names(config: BertConfig) -> list[str]:
    """Return the inputs that transformers gives a model of ``config``."""
    return ["input_ids", "attention_mask", *(["token_type_ids"] if config.type_vocab_size > 1 else [])]


def random_batches(config: BertConfig) -> list[Batch]:
    """Return batches of odd sizes, of sequences of odd lengths up to the longest, of random ids."""
    generator = np.random.default_rng(0)
    longest = config.longest_input
    lengths = ([3], [7, 1, 4], [min(33, longest), 2], [longest], [5, 3, 2, 8, 1, 1, 6, 4, 7, 5, 2])
    return [[generator.integers(config.vocab_size, size=length).tolist() for length in batch] for batch in lengths]


def _runner(path: Path, config: BertConfig) -> Callable[[Batch], np.ndarray]:
    """Return a function that gives the hidden states of the tokens of a batch, [T, H], by an ONNX file."""
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])

    def hidden(batch: Batch) -> np.ndarray:
        lengths = np.array([len(ids) for ids in batch])
        keep = np.arange(lengths.max()) < lengths[:, None]
        ids = np.zeros(keep.shape, np.int64)
        ids[keep] = np.concatenate(batch)
        inputs = zip(input_names(config), (ids, keep.astype(np.int64), np.zeros_like(ids)), strict=False)
        return np.asarray(session.run(None, dict(inputs))[0])[keep]

    return hidden


@torch.inference_mode()
def own_hidden(opened: Opened[Bert], batch: Batch) -> np.ndarray:
    """Return the model's own hidden states of the tokens of a batch, [T, H]."""
    ids = torch.from_numpy(np.concatenate(batch))
    starts = torch.from_numpy(np.cumsum([0, *map(len, batch)]))
    return opened.model(ids, torch.zeros_like(ids), starts)[0].numpy()


def _quantize(opened: Opened[Bert], folder: Path, texts: Sequence[str], batches: Sequence[Batch]) -> str:
    """Write the file of 8 bits; return its size, and how near its vectors are to those of 32 bits."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    logging.disable(logging.WARNING)  # it asks for a step that only static quantization needs
    # 7 of the 8 bits: without VNNI, the sums of products of 8 bits overflow
    quantize_dynamic(
        folder / FLOAT32, folder / INT8, weight_type=QuantType.QInt8, per_channel=True, reduce_range=True
    )  # fmt: skip
    logging.disable(logging.NOTSET)
    if texts:
        encoded = opened.tokenizer.encode_batch(list(texts))
        batches = [[encoding.ids[: opened.config.longest_input]] for encoding in encoded]
    runners = [_runner(folder / name, opened.config) for name in (FLOAT32, INT8)]
    cosines: list[float] = []
    for batch in batches:
        starts = torch.from_numpy(np.cumsum([0, *map(len, batch)]))
        both = (POOLINGS["mean"](torch.from_numpy(hidden(batch)), starts) for hidden in runners)
        cosines += torch.cosine_similarity(*both).tolist()
    before, after = ((folder / name).stat().st_size / 1e6 for name in (FLOAT32, INT8))
    measured = f"{len(cosines):,} {'texts' if texts else 'sequences of random tokens'}"
    return (
        f"{INT8}: {after:,.1f} MB, not {before:,.1f}; cosine of its vectors with those of {FLOAT32}, over {measured}: "
        f"mean {np.mean(cosines):.4f}, lowest {min(cosines):.4f}"
    )
