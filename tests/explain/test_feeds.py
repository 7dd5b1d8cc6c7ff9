"""The reference is fed what the device was, or nothing at all."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from pytest_npudump.dump.records import Payload, TensorKey
from pytest_npudump.errors import RequestError
from pytest_npudump.explain.comparison import Feeds, LoadedModel, RunInputs, executions_of
from tests.explain.conftest import make_record

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_npudump.dump.records import TensorRecord

    Record = Callable[..., TensorRecord]

ROOT = Path("/dumps/run1/dump/20260101010101/0")


def records(*places: tuple[str, str]) -> list[TensorRecord]:
    """Records of ``(qualifiers, directories below the device)``."""
    return [
        make_record(f"conv{qualifiers}:output.0", np.ones(2), path=ROOT / directories / "Conv.conv.1.2.3")
        for qualifiers, directories in places
    ]


def number(value: int) -> tuple[np.ndarray[Any, Any], ...]:
    return (np.array([value]),)


def loaded(name: str, *runs: int, part: str = "", names: tuple[str, ...] = ()) -> LoadedModel:
    return LoadedModel(part, Path(name), names, [number(run) for run in runs])


def fed(found: list[TensorRecord], inputs: RunInputs, names: tuple[str, ...] = ("x",)) -> list[int]:
    executions = executions_of(found)
    feeds = Feeds(inputs, names, executions, found)
    return [int(feeds.of(execution)["x"][0]) for execution in executions]


def test_each_execution_gets_the_arrays_of_its_run() -> None:
    """By its step from the first run on, its model's id where one was loaded twice, its name, its part."""
    captures = [loaded("net.om", 5, part="one"), loaded("net.om", 6, part="two")]
    cases: tuple[tuple[list[tuple[str, str]], list[LoadedModel], list[int]], ...] = (
        ([("", "net/1/0"), ("#step=1", "net/1/1")], [loaded("net.om", 7, 8, 9)], [7, 8]),
        ([("", "net/1/2"), ("#step=2", "net/1/4")], [loaded("net.om", 0, 1, 2, 3, 4)], [2, 4]),
        ([("#load=1", "net/9/0"), ("", "net/2/0")], [loaded("net.om", 5), loaded("net.om", 6)], [6, 5]),
        ([("", "net/2/0")], [loaded("net.om"), loaded("net.om", 6)], [6]),  # one never ran
        ([("#model=b", "b/2/0")], [loaded("a.om", 5), loaded("b.om", 6)], [6]),
        ([("", "ge_default_1/2/0")], [loaded("renamed.om", 6)], [6]),  # the only one
        ([("#capture=one", "net/1/0"), ("#capture=two", "net/1/0")], captures, [5, 6]),
    )
    for places, models, expected in cases:
        assert fed(records(*places), RunInputs(models)) == expected, places


def test_inputs_go_by_name_where_the_session_tells_the_references_names() -> None:
    found = records(("", "net/1/0"))
    model = LoadedModel("", Path("net.om"), ("y", "x"), [(np.array([1]), np.array([2]))])
    assert fed(found, RunInputs([model]), ("x", "y")) == [2]
    other = LoadedModel("", Path("net.om"), ("in0", "in1"), [(np.array([1]), np.array([2]))])
    assert fed(found, RunInputs([other]), ("x", "y")) == [1]
    # What the test gives counts before what was run.
    inputs = RunInputs([loaded("net.om", 7, 8)])
    inputs.give({"x": [3]}, "")
    inputs.give({"x": [4]}, "")
    assert fed(records(("", "net/1/0"), ("#step=1", "net/1/1")), inputs) == [3, 4]
    key = "#capture=a,rank=2,device=1,model=m,load=3,step=4"
    assert str(TensorKey.parse(f"c{key}:output.0").execution) == f"{key}:.0"


def test_inputs_are_taken_from_the_dump_where_it_has_those_of_this_execution(tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(np.array([12], np.int64).tobytes())

    def data(step: str, number: int) -> TensorRecord:
        payload, path = Payload(tmp_path / "data", 0, 8), ROOT / f"net/1/{number}/Data.x.1.2.3"
        known = {"op_type": "Data", "dtype": "int64", "shape": (1,), "payload": payload, "path": path}
        return make_record(f"x{step}:output.0", None, **known)

    found = records(("", "net/1/0"))
    assert fed([*found, data("", 0)], RunInputs()) == [12]
    with pytest.raises(RequestError, match="the inputs of the model are not known"):
        fed([*found, data("#step=1", 1)], RunInputs())


@pytest.mark.each(
    ("places", "inputs", "message"),
    [
        ([("", "net/1/0")], RunInputs(), "inputs of the model are not known; load the model"),
        ([("", "net/1/3")], RunInputs([loaded("net.om", 1)]), "execution 3 of net.om .* ran 1 time;"),
        (
            [("", "net/1/0")],
            RunInputs([loaded("net.om", 1), loaded("net.om", 2)]),
            "2 loaded models ran, the dump tells 1 of the name 'net'",
        ),
        (
            [("", "other/1/0")],
            RunInputs([loaded("a.om", 1), loaded("b.om", 2)]),
            "2 loaded models ran, the dump tells 1 of the name 'other'",
        ),
        (
            [("#capture=c", "net/1/0")],
            RunInputs([loaded("net.om", 1)]),
            "inputs of the model are not known; load the model",
        ),
        (
            [("", "net/1/0")],
            RunInputs([LoadedModel("", Path("net.om"), (), [(np.ones(1), np.ones(1))])]),
            "run on 2 arrays, the reference takes 1: x",
        ),
        (
            [("", "net/1/0"), ("#step=1", "net/1/1")],
            RunInputs([], {"": [{"x": np.ones(1)}]}),
            r"reference_inputs\(\) was called 1 time, the dump has 2 executions",
        ),
        (
            [("", "net/1/0")],
            RunInputs([], {"": [{"y": np.ones(1)}]}),
            "'y' is no input of the reference, which has 'x'",
        ),
    ],
)
def test_inputs_that_are_not_certain_are_an_error_that_names_the_way_out(
    places: list[tuple[str, str]], inputs: RunInputs, message: str
) -> None:
    with pytest.raises(RequestError, match=message) as raised:
        fed(records(*places), inputs)
    assert "reference_inputs(" in str(raised.value)


def test_inputs_that_are_no_arrays_are_refused() -> None:
    cases: tuple[tuple[dict[Any, Any], str], ...] = (
        ({}, "expected a mapping of the reference's input names"),
        ({1: [1]}, "expected a mapping of the reference's input names"),
        ({"x": "text"}, "'x' is of the type <U4, expected numbers"),
        ({"x": [object()]}, "'x' is of the type object, expected numbers"),
    )
    for value, message in cases:
        with pytest.raises(RequestError, match=message):
            RunInputs().give(value, "")


class Session:
    """Writes to what it is given; refuses negative numbers, and fails on the device for 0."""

    executions = 0

    def run(self, *arrays: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
        if arrays[0].min() < 0:
            raise RequestError("refused")
        self.executions += 1
        if not arrays[0].any():
            raise OSError("failed")
        arrays[0][:] = 99
        return [arrays[0]]


def test_run_that_was_refused_is_no_execution_and_one_that_failed_is() -> None:
    inputs = RunInputs()
    session = inputs.watch(Session(), Path("net.om"), "")  # type: ignore[arg-type]
    for value, error in ((5, None), (-1, RequestError), (0, OSError), (6, None)):
        with pytest.raises(error) if error else nullcontext():
            session.run(np.array([value]))
    found = records(("", "net/1/0"), ("#step=1", "net/1/1"), ("#step=2", "net/1/2"))
    assert fed(found, inputs) == [5, 0, 6]


def test_arrays_are_copied_because_buffers_are_used_again() -> None:
    inputs = RunInputs()
    session = inputs.watch(Session(), Path("net.om"), "")  # type: ignore[arg-type]
    buffer = np.array([5])
    assert session.run(buffer)[0][0] == 99
    buffer[:] = 6
    session.run(buffer)
    given = np.array([7])
    inputs.give({"x": given}, "other")
    given[:] = 8
    found = records(("", "net/1/0"), ("#step=1", "net/1/1"))
    assert fed(found, inputs) == [5, 6]
    assert inputs.given["other"][0]["x"][0] == 7
