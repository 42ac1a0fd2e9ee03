"""TensorFlow's record files without TensorFlow: ``tf.train.Example`` messages, framed by length and checksum.

The messages are those of ``tensorflow/core/example``; the framing is described in "TFRecord and tf.train.Example" of
TensorFlow's guide.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import IO, Any

import google_crc32c
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_MASK_DELTA = 0xA282EAD8


def write_record(file: IO[bytes], data: bytes) -> None:
    """Append one record: its length, the length's checksum, the data, the data's checksum."""
    length = struct.pack("<Q", len(data))
    file.write(length + _checksum(length) + data + _checksum(data))


def _checksum(data: bytes) -> bytes:
    crc = google_crc32c.value(data)
    return struct.pack("<I", (((crc >> 15) | (crc << 17)) + _MASK_DELTA) & 0xFFFFFFFF)


def serialise_example(features: Mapping[str, Sequence[int] | Sequence[float]]) -> bytes:
    """A serialised ``tf.train.Example``; a feature of floats becomes a float list, any other an int64 list.

    The same features give the same bytes.
    """
    message = _Example()
    for name, values in features.items():
        feature = message.features.feature[name]
        kind = feature.float_list if isinstance(values[0], float) else feature.int64_list
        kind.value.extend(values)
    return bytes(message.SerializeToString(deterministic=True))


def _example_class() -> Any:
    """The message class, from its schema alone."""
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
