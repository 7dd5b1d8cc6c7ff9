"""Graphs of om files, put together by protobuf's own encoder after the schema of ``ge_ir.proto``."""

from __future__ import annotations

import struct
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from pytest_npudump.errors import FormatError
from pytest_npudump.graph.edges import Port
from pytest_npudump.graph.model_files import read_om

if TYPE_CHECKING:
    from pathlib import Path


@cache
def model_class() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="ge_ir.proto", package="ge.proto", syntax="proto3")
    kinds = {"string": 9, "int64": 3, "bool": 8, "OpDef": 11, "GraphDef": 11}
    for name, fields in {
        "OpDef": [
            ("name", 1, "string", 1),
            ("type", 2, "string", 1),
            ("input", 5, "string", 3),
            ("id", 21, "int64", 1),
        ],
        "GraphDef": [("name", 1, "string", 1), ("input", 4, "string", 3), ("op", 6, "OpDef", 3)],
        "ModelDef": [("name", 1, "string", 1), ("version", 2, "int64", 1), ("graph", 7, "GraphDef", 3)],
    }.items():
        message = file.message_type.add(name=name)
        for field, number, kind, label in fields:
            added = message.field.add(name=field, number=number, type=kinds[kind], label=label)
            if kinds[kind] == 11:
                added.type_name = f".ge.proto.{kind}"
    pool: Any = descriptor_pool.DescriptorPool()
    pool.Add(file)
    descriptor, factory = pool.FindMessageTypeByName("ge.proto.ModelDef"), message_factory
    if hasattr(factory, "GetMessageClass"):
        return factory.GetMessageClass(descriptor)
    return factory.MessageFactory(pool).GetPrototype(descriptor)  # of protobuf 3


def om(*operators: tuple[str, str, list[str]], weights: bytes = b"w" * 500) -> bytes:
    model = model_class()(name="root", version=3)
    graph = model.graph.add(name="root", input=["x:0"])
    for number, (name, op_type, inputs) in enumerate(operators):
        graph.op.add(name=name, type=op_type, input=inputs, id=-number)
    definition = model.SerializeToString()
    table = struct.pack("<7Q", 2, 2, 0, len(weights), 0, len(weights), len(definition))
    return b"IMOD".ljust(256, b"\0") + table + weights + definition


OPERATORS = [
    ("x", "Data", [""]),
    ("weights", "Const", []),
    ("conv" * 50, "Conv2D", ["x:0", "weights:0", "x:-1"]),
    ("split", "Split", ["conv" * 50 + ":0"]),
    ("add", "Add", ["split:1", "split:0"]),
]


def test_the_graph_is_found_behind_the_table_of_partitions(tmp_path: Path) -> None:
    path = tmp_path / "model.om"
    path.write_bytes(om(*OPERATORS))
    assert read_om(path).feeds == {
        "x": (None,),
        "weights": (),
        "conv" * 50: (Port("x"), None),
        "split": (Port("conv" * 50),),
        "add": (Port("split", 1), Port("split", 0)),
    }


def test_what_is_no_om_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.om"
    for content in (b"", b"IMOD", b"\x08\x07" * 200, b"IMOD".ljust(300, b"\0"), b"IMOD".ljust(900, b"\xff")):
        path.write_bytes(content)
        with pytest.raises(FormatError):
            read_om(path)
    with pytest.raises(FormatError, match="No such file"):
        read_om(tmp_path / "other.om")


def test_a_cut_or_changed_file_is_read_or_refused(tmp_path: Path) -> None:
    path, content = tmp_path / "model.om", om(*OPERATORS, weights=b"")
    for at in range(256, len(content), 7):
        for changed in (content[:at], content[:at] + bytes([content[at] ^ 0xFF]) + content[at + 1 :]):
            path.write_bytes(changed)
            with suppress(FormatError):
                read_om(path)
