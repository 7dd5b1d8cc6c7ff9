"""Operators that MindSpore dumps because they overflowed; a real tree stands for that of an Ascend device."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from pytest_npudump.dump.reader import read_dump
from pytest_npudump.regression.scenes.overflow import detected_by_mindspore

DATA = Path(__file__).parents[2] / "data" / "trees"


def test_each_operator_that_was_dumped_is_a_finding_with_its_tensors() -> None:
    dump = read_dump(DATA / "mindspore-op_fails_in_step_1", stats=False)
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
    dump = read_dump(DATA / "mindspore-control_flow_multigraph", stats=False)
    counted = {one.layer: one.executions for one in detected_by_mindspore(dump.records)}
    assert counted["Default_Greater-op0"] == 8


def test_dumps_of_cann_are_not_mindspore_s() -> None:
    dump = read_dump(DATA / "acl-tensor", stats=False)
    assert dump.records
    assert detected_by_mindspore(dump.records) == ()
