"""Tool ``export``, pretraining examples: those of one phase as files for other trainers, TFRecord or Parquet.

Fields, padding and file names are those of google-research/bert's ``create_pretraining_data.py``, so that its
``run_pretraining.py`` reads them. The study itself never needs these files.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import IO, Any

import google_crc32c
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from pipeline_src.common.errors import PipelineError
from pipeline_src.common.files import atomic_directory, read_json
from pipeline_src.common.parallel import map_in_order
from pipeline_src.common.paths import EXAMPLES, VOCABULARY
from pipeline_src.common.progress import Progress
from pipeline_src.config.study import load_study
from pipeline_src.pretraining.data import PretrainingExamples, open_examples
from pipeline_src.tokenizer.load import load_tokenizer

_MASK_DELTA = 0xA282EAD8  # of the checksums in TFRecord
AT_ONCE = 1 << 10  # examples in memory
EXPORTED = ("mlm",)  # objectives whose examples these fields can hold
Fields = dict[str, np.ndarray]


def write_record(file: IO[bytes], data: bytes) -> None:
    """Append one record: its length, the length's checksum, the data, the data's checksum."""
    length = struct.pack("<Q", len(data))
    file.write(length + _checksum(length) + data + _checksum(data))


def _checksum(data: bytes) -> bytes:
    crc = google_crc32c.value(data)
    return struct.pack("<I", (((crc >> 15) | (crc << 17)) + _MASK_DELTA) & 0xFFFFFFFF)


def serialise_example(features: Mapping[str, Sequence[int] | Sequence[float]]) -> bytes:
    """Return a serialised ``tf.train.Example``: float lists for features of floats, else int64 lists.

    The same features give the same bytes.
    """
    message = _Example()
    for name, values in features.items():
        feature = message.features.feature[name]
        kind = feature.float_list if isinstance(values[0], float) else feature.int64_list
        kind.value.extend(values)
    return bytes(message.SerializeToString(deterministic=True))


def _example_class() -> Any:
    """Return the message class, made from its schema."""
    field = descriptor_pb2.FieldDescriptorProto
    schema = descriptor_pb2.FileDescriptorProto(name="example.proto", package="tensorflow", syntax="proto3")

    def message(name: str, **fields: tuple[int, int, int, str]) -> descriptor_pb2.DescriptorProto:
        added = schema.message_type.add(name=name)
        for field_name, (number, label, kind, of) in fields.items():
            added.field.add(name=field_name, number=number, label=label, type=kind, type_name=of or None)
        return added

    one, many = field.LABEL_OPTIONAL, field.LABEL_REPEATED
    nested = field.TYPE_MESSAGE
    message("BytesList", value=(1, many, field.TYPE_BYTES, ""))
    message("FloatList", value=(1, many, field.TYPE_FLOAT, ""))
    message("Int64List", value=(1, many, field.TYPE_INT64, ""))
    feature = message(
        "Feature",
        bytes_list=(1, one, nested, ".tensorflow.BytesList"),
        float_list=(2, one, nested, ".tensorflow.FloatList"),
        int64_list=(3, one, nested, ".tensorflow.Int64List"),
    )
    feature.oneof_decl.add(name="kind")
    for kind in feature.field:
        kind.oneof_index = 0
    features = message("Features", feature=(1, many, nested, ".tensorflow.Features.FeatureEntry"))
    entry = features.nested_type.add(name="FeatureEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, label=one, type=field.TYPE_STRING)
    entry.field.add(name="value", number=2, label=one, type=nested, type_name=".tensorflow.Feature")
    message("Example", features=(1, one, nested, ".tensorflow.Features"))
    pool = descriptor_pool.DescriptorPool()
    pool.Add(schema)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("tensorflow.Example"))


_Example = _example_class()


def export_examples(output: Path, kind: str, phase: str, split: str, per_file: int) -> None:
    """Write every example of a phase and split, masked as the study in params.yaml masks them.

    Args:
        output: the folder to write.
        kind: a key of :data:`WRITERS`.
        phase, split: which examples.
        per_file: examples in a file.
    """
    study = load_study()
    if study.pretrain.objective not in EXPORTED:
        raise PipelineError(
            "the fields of these files are for masked words", f"pretrain.objective: {study.pretrain.objective}",
            where="params.yaml", hint=f"export a study whose objective is {' or '.join(EXPORTED)}",
        )  # fmt: skip
    if study.pretrain.masking.dynamic:
        raise PipelineError(
            "dynamic masks cannot be written to files", "pretrain.masking.dynamic: true", where="params.yaml",
            hint="set it to false; examples.dupe_factor gives several masks of each text",
        )  # fmt: skip
    opened = (phase, split, study.mask_prob, study.pretrain.masking, study.seed, study.pretrain.objective)
    length = read_json(EXAMPLES / "manifest.json", {phase: {"length": int}})[phase]["length"]
    predictions = study.pretrain.masking.max_predictions or math.ceil(study.mask_prob * length)
    total = len(_open(*opened))
    starts = range(0, total, per_file)
    with atomic_directory(output) as folder, Progress("exporting", total, "example") as progress:
        write = partial(_write_file, opened, folder, kind, total, length, predictions, per_file)
        for written in map_in_order(write, starts, 1 if len(starts) == 1 else None):
            progress.advance(written)
    print(f"{total} examples of {length} tokens, up to {predictions} predicted, in {output}")


@lru_cache(maxsize=1)
def _open(phase: str, split: str, mask_prob: float, masking: Any, seed: int, objective: str) -> PretrainingExamples:
    return open_examples(phase, split, load_tokenizer(VOCABULARY), mask_prob, masking, seed, objective)


def _write_file(
    opened: tuple[Any, ...],
    folder: Path,
    kind: str,
    total: int,
    length: int,
    predictions: int,
    per_file: int,
    start: int,
) -> int:
    """Write the examples from ``start`` on into one file; return their number."""
    examples = _open(*opened)
    stop = min(start + per_file, total)
    name = f"examples-{start // per_file:05d}-of-{math.ceil(total / per_file):05d}.{kind}"
    chunks = (np.arange(first, min(first + AT_ONCE, stop)) for first in range(start, stop, AT_ONCE))
    WRITERS[kind](folder / name, (padded(examples, chunk, length, predictions) for chunk in chunks))
    return stop - start


def padded(examples: PretrainingExamples, numbers: np.ndarray, length: int, predictions: int) -> Fields:
    """Return the fields of google-research/bert for some examples, each an array [examples, width].

    ``input_ids``, ``input_mask``, ``segment_ids`` are ``length`` wide; ``masked_lm_positions``, ``masked_lm_ids``,
    ``masked_lm_weights`` (float32) are ``predictions`` wide; ``next_sentence_labels`` is 1 wide and missing without
    pairs. All but the weights are int64.
    """
    batch = examples.batch(numbers)
    count = len(numbers)
    row = np.repeat(np.arange(count), np.diff(batch.cu_seqlens))
    place = np.arange(len(batch.ids)) - batch.cu_seqlens[row]
    wide = {name: np.zeros((count, length), np.int64) for name in ("input_ids", "input_mask", "segment_ids")}
    for name, values in zip(wide, (batch.ids, np.ones_like(row), batch.segments), strict=True):
        wide[name][row, place] = values
    row_of = row[batch.predicted]
    slot = np.arange(len(row_of)) - np.searchsorted(row_of, row_of)
    names = ("masked_lm_positions", "masked_lm_ids", "masked_lm_weights")
    narrow = {name: np.zeros((count, predictions), np.float32 if name == names[2] else np.int64) for name in names}
    for name, values in zip(names, (place[batch.predicted], batch.labels, np.ones_like(slot)), strict=True):
        narrow[name][row_of, slot] = values
    label = {"next_sentence_labels": batch.pair_label[:, None]} if examples.has_pairs else {}
    return wide | narrow | label


def _write_tfrecord(path: Path, chunks: Iterator[Fields]) -> None:
    with open(path, "wb") as file:
        for fields in chunks:
            lists = {name: values.tolist() for name, values in fields.items()}
            for row in zip(*lists.values(), strict=True):
                write_record(file, serialise_example(dict(zip(lists, row, strict=True))))


def _write_parquet(path: Path, chunks: Iterator[Fields]) -> None:
    writer = None
    for fields in chunks:
        columns = {
            name: pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), values.shape[1])
            for name, values in fields.items()
        }
        table = pa.table(columns)
        writer = writer or pq.ParquetWriter(path, table.schema, compression="zstd")
        writer.write_table(table)
    if writer is not None:
        writer.close()


WRITERS: dict[str, Callable[[Path, Iterator[Fields]], None]] = {"tfrecord": _write_tfrecord, "parquet": _write_parquet}
