"""The header message of a dump file: ``toolkit.dumpdata.DumpData``, built at run time.

CANN's two copies of the schema (``dump_data.proto`` of the device-side writer, ``dump_task.proto`` of
adump) are wire compatible; this is their union. There is no generated code: generated modules are tied
to one range of protobuf versions, and they would register the names in the default pool, where they
would clash with the modules that CANN's own Python tools bring.

Enum fields (``data_type``, ``format``, ``buffer_type``, ``type``) are declared int32, which has the same
wire form, so that numbers newer than any table come through as they are.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

if TYPE_CHECKING:
    from google.protobuf.message import Message

PACKAGE = "toolkit.dumpdata"

_SCHEMA = {
    "Shape": "dim=1 *uint64",
    "OriginalOp": "name=1 string; output_index=2 uint32; data_type=3 int32; format=4 int32",
    "DimRange": "dim_start=1 uint64; dim_end=2 uint64",
    "OpOutput": (
        "data_type=1 int32; format=2 int32; shape=3 Shape; original_op=4 OriginalOp; data=5 bytes; "
        "size=6 uint64; original_shape=7 Shape; sub_format=8 int32; address=9 uint64; "
        "dim_range=10 *DimRange; offset=11 uint64; arg_index=12 uint32"
    ),
    "OpInput": (
        "data_type=1 int32; format=2 int32; shape=3 Shape; data=4 bytes; size=5 uint64; "
        "original_shape=6 Shape; sub_format=7 int32; address=8 uint64; offset=9 uint64; "
        "arg_index=10 uint32; input_type=11 uint32"
    ),
    "OpBuffer": "buffer_type=1 int32; data=2 bytes; size=3 uint64",
    "Workspace": "type=1 int32; data=2 bytes; size=3 uint64; arg_index=4 uint32",
    "OpAttr": "name=1 string; value=2 string",
    "DumpData": (
        "version=1 string; dump_time=2 uint64; output=3 *OpOutput; input=4 *OpInput; buffer=5 *OpBuffer; "
        "op_name=6 string; attr=7 *OpAttr; space=8 *Workspace; dfx_message=9 string"
    ),
}


@cache
def dump_data_class() -> type[Message]:
    """The message class of ``DumpData``, with CANN's field names.

    Works with protobuf 3.20 and every later major version. Its descriptors live in a private pool.
    """
    return _message_class(_file(text="string"))


@cache
def lenient_dump_data_class() -> type[Message]:
    """The same message with ``bytes`` for every ``string``.

    protobuf refuses a whole header for one string that is not UTF-8, which CANN writes where it cuts a
    long name by bytes. Readers use this class and decode the strings themselves.
    """
    return _message_class(_file(text="bytes"))


def _message_class(file: descriptor_pb2.FileDescriptorProto) -> type[Message]:
    pool: Any = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    descriptor = pool.FindMessageTypeByName(f"{PACKAGE}.DumpData")
    factory: Any = message_factory
    if hasattr(factory, "GetMessageClass"):
        found: type[Message] = factory.GetMessageClass(descriptor)
    else:
        found = factory.MessageFactory(pool).GetPrototype(descriptor)
    return found


def _file(text: str) -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto()
    file.name, file.package, file.syntax = "dump_data.proto", PACKAGE, "proto3"
    for name, fields in _SCHEMA.items():
        message = file.message_type.add()
        message.name = name
        for item in fields.split("; "):
            _add_field(message.field.add(), item, text)
    return file


def _add_field(field: descriptor_pb2.FieldDescriptorProto, item: str, text: str) -> None:
    """Fill ``field`` from ``name=number type``; ``*`` before the type stands for repeated."""
    assignment, kind = item.split(" ")
    name, number = assignment.split("=")
    field.name, field.number = name, int(number)
    repeated = kind.startswith("*")
    field.label = field.LABEL_REPEATED if repeated else field.LABEL_OPTIONAL
    kind = kind.lstrip("*")
    if kind in _SCHEMA:
        field.type = field.TYPE_MESSAGE
        field.type_name = f".{PACKAGE}.{kind}"
    else:
        scalar = text if kind == "string" else kind
        field.type = descriptor_pb2.FieldDescriptorProto.Type.Value(f"TYPE_{scalar.upper()}")
