"""Overflows of a run, by what CANN and MindSpore leave, against those that a golden lists."""

from __future__ import annotations

import shutil
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_npudump.dump.dtypes import BY_NAME
from pytest_npudump.dump.files.container import dump_data_class
from pytest_npudump.dump.reader import read_dump
from pytest_npudump.emulator.dumps.writer import Slot, TaskFile, write
from pytest_npudump.errors import GoldenError
from pytest_npudump.onnxmodels.tensor_types import from_array
from pytest_npudump.record.text import parse
from pytest_npudump.regression.scenes.overflow import (
    Overflow,
    detected_by_mindspore,
    find_overflows,
    is_known,
    known_overflows,
)

DATA = Path(__file__).parents[2] / "data" / "dump" / "overflow"


def _operator(folder: Path, task: int, stream: int, name: str = "net/Exp") -> None:
    values = np.array([[1, np.inf]], np.float16)
    slot = Slot(from_array(BY_NAME["float16"], values), 512)
    write(str(folder), TaskFile("Exp", name, task, stream, (slot,), (slot,)), 1795239189932086)


def _sample(folder: Path, name: str) -> Path:
    path = folder / "Opdebug.Node_OpDebug.77.5.1795239189932090"
    shutil.copy(DATA / name, path)
    return path


def test_the_operator_is_that_of_the_ids_in_the_record(tmp_path: Path) -> None:
    path = _sample(tmp_path, "sdma")
    (missing,), _ = find_overflows([path], [])
    _operator(tmp_path, missing.task, missing.stream)
    _operator(tmp_path, missing.task + 1, missing.stream, "net/other")
    (found, other), problems = find_overflows([path], read_dump(tmp_path, stats=False).records)
    assert problems == ()
    assert (other.layer, other.kinds[0][:30]) == ("net/other", "dumped, and no overflow record")
    assert (missing.layer, found.layer, found.op_type, found.task) == ("", "net/Exp", "Exp", 3)
    assert found.kinds == ("SDMA overflow (status 0x8)",)
    assert [(tensor.io, tensor.slot) for tensor in found.tensors] == [("input", 0), ("output", 0)]
    assert found.tensors[1].description is not None
    assert found.tensors[1].description.first_inf == (0, 1)


def test_an_operator_is_not_guessed_among_several_with_the_same_ids(tmp_path: Path) -> None:
    path = _sample(tmp_path, "sdma")
    (missing,), _ = find_overflows([path], [])
    for step in "01":
        _operator(tmp_path / step, missing.task, missing.stream)
    (found,), _ = find_overflows([path], read_dump(tmp_path, stats=False).records)
    assert found.layer == ""


@pytest.mark.each(
    ("name", "units"), [("old", 3), ("aic", 1), ("aic_v1", 1), ("aiv", 1), ("aicpu", 1), ("sdma", 1)]
)
def test_every_unit_that_overflowed_is_a_finding_and_an_operator_whose_record_is_lost(
    tmp_path: Path, name: str, units: int
) -> None:
    path = _sample(tmp_path, name)
    (first, *others), problems = find_overflows([path], [])
    assert (len(others), problems) == (units - 1, ())
    assert all(one.kinds and not one.layer for one in (first, *others))
    _operator(tmp_path, first.task, first.stream)
    dumped = read_dump(tmp_path, stats=False).records
    with_record, _ = find_overflows([path], dumped)
    assert any(one.layer == "net/Exp" and one.record == path for one in with_record)
    (found,), problems = find_overflows([], dumped)
    assert problems == ()
    assert (found.layer, found.name, found.op_type) == ("net/Exp", "net/Exp", "Exp")
    assert found.kinds == ("dumped, and no overflow record tells what happened: the record is lost",)
    assert found.record == dumped[0].path
    assert len(found.tensors) == 2


def test_a_record_in_one_capture_does_not_stand_for_the_lost_one_of_another(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    path = _sample(tmp_path / "a", "sdma")
    (missing,), _ = find_overflows([path], [])
    dumped = []
    for capture in "ab":
        _operator(tmp_path / capture, missing.task, missing.stream)
        dumped += [
            replace(record, key=replace(record.key, capture=capture))
            for record in read_dump(tmp_path / capture, stats=False).records
        ]
    found, _ = find_overflows([path], dumped)
    assert [(one.name, one.kinds[0][:6]) for one in found] == [
        ("net/Exp#capture=a", "SDMA o"),
        ("net/Exp#capture=b", "dumped"),
    ]


def test_steps_are_executions_and_captures_ranks_devices_and_models_are_not(tmp_path: Path) -> None:
    _operator(tmp_path, 1, 2)
    record = read_dump(tmp_path, stats=False).records[0]
    places: list[dict[str, Any]] = [
        {},
        {"step": 1},
        {"load": 1, "turn": 2},
        {"capture": "a"},
        {"rank": 0},
        {"device": 1},
        {"model": "m"},
    ]
    dumped = [replace(record, key=replace(record.key, **place)) for place in places]
    found, _ = find_overflows([], dumped)
    assert [(one.name, one.executions) for one in found] == [
        ("net/Exp", 3),
        ("net/Exp#capture=a", 1),
        ("net/Exp#rank=0", 1),
        ("net/Exp#device=1", 1),
        ("net/Exp#model=m", 1),
    ]


@pytest.mark.each(
    ("listed", "layer", "name", "known"),
    [
        ({"a/b": ["x", "y"]}, "a/b", "a/b", True),
        ({"a/b": ["y"]}, "a/b", "a/b", False),
        ({"a/b": ["x"]}, "a/b", "a/b#capture=a", False),
        ({"a/b#capture=a": ["x"]}, "a/b", "a/b#capture=a", True),
        ({"a/b#capture=a": ["x"]}, "a/b", "a/b#capture=b", False),
        ({"a/b#capture=a": ["x"]}, "a/b", "a/b", False),
        ({"a/b": ["x"], "a/b#capture=a": ["y"]}, "a/b", "a/b#capture=a", False),
        ({"a b": ["x"]}, "a b", "a%20b", True),
        ({"a%20b": ["x"]}, "a b", "a%20b", True),
        ({"a%20b": ["x"]}, "a%20b", "a%2520b", False),
        ({"a#capture=a": ["x"]}, "a#capture=a", "a%23capture=a", False),
        ({"": ["x"]}, "", "", False),
    ],
)
def test_a_golden_approves_an_overflow_only_where_it_lists_it(
    listed: dict[str, list[str]], layer: str, name: str, *, known: bool
) -> None:
    one = Overflow(layer, "Exp", ("x",), 1, 2, Path("record"), name=name)
    assert is_known(one, listed) == known


@pytest.mark.each("size", [0, 8, 40, 2047])
def test_a_damaged_record_is_a_problem(tmp_path: Path, size: int) -> None:
    path = _sample(tmp_path, "old")
    path.write_bytes(path.read_bytes()[:size])
    found, (problem,) = find_overflows([path], [])
    assert found == ()
    assert problem.startswith(f"unreadable overflow record: {path}")


def test_a_record_without_data_is_a_problem(tmp_path: Path) -> None:
    path = tmp_path / "Opdebug.Node_OpDebug.77.5.1795239189932090"
    header = dump_data_class()(version="2.0", output=[{"size": 8, "original_shape": {"dim": [8]}}])
    path.write_bytes(struct.pack("<Q", header.ByteSize()) + header.SerializeToString())
    found, (problem,) = find_overflows([path], [])
    assert found == ()
    assert problem == f"unreadable overflow record: {path}: no data: the tensor's address was null"


@pytest.mark.each("listed", ["all", "[a]", "{a: b}", "{a: [1]}", "3"])
def test_a_golden_that_does_not_map_operators_to_lists_is_refused(listed: str) -> None:
    text = f"npudump-golden: 1\ntest: t\nproducer: {{}}\noverflow: {listed}\n"
    columns = "columns: tensor dtype shape max min avg l2norm nan -inf +inf\ntensors: |\n"
    with pytest.raises(GoldenError, match="mapping"):
        known_overflows(parse(text + columns, Path("g.yaml")))


TREES = Path(__file__).parents[2] / "data" / "trees"


def test_each_operator_that_was_dumped_is_a_finding_with_its_tensors() -> None:
    dump = read_dump(TREES / "mindspore-op_fails_in_step_1", stats=False)
    found = detected_by_mindspore(dump.records)
    operators = {record.key.layer for record in dump.records if record.op_type != "Parameter"}
    assert {one.layer for one in found} == operators
    assert found[0].layer == "Default_Exp-op0"
    first = found[0]
    assert (first.op_type, first.kinds, first.executions) == ("Exp", ("detected by MindSpore",), 2)
    for tensor in first.tensors:
        assert tensor.description is not None
        assert tensor.description.max == np.load(tensor.path).max()


def test_turns_count_as_executions() -> None:
    dump = read_dump(TREES / "mindspore-control_flow_multigraph", stats=False)
    counted = {one.layer: one.executions for one in detected_by_mindspore(dump.records)}
    assert counted["Default_Greater-op0"] == 8


def test_dumps_of_cann_are_not_mindspore_s() -> None:
    dump = read_dump(TREES / "acl-tensor", stats=False)
    assert dump.records
    assert detected_by_mindspore(dump.records) == ()
