"""How far healthy runs stray: what a golden keeps of it, and bounds of some members held against others."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra.numpy import arrays

from pytest_npudump.compare.stats.allowances import Deviations
from pytest_npudump.compare.tolerances.tolerance import Tolerances
from pytest_npudump.dump.records import Stats, TensorKey, TensorRecord
from pytest_npudump.dump.table import StatsTable
from pytest_npudump.onnxmodels.variation import Variation, Varying
from pytest_npudump.record.noise import Calibration
from pytest_npudump.record.record import Record
from pytest_npudump.regression import result as status
from pytest_npudump.regression.calibration import (
    FACTORS,
    Member,
    _begun_otherwise,
    culprits,
    fed_otherwise,
    hold_out,
    measure,
    once,
    repeated,
    unrecorded,
)
from pytest_npudump.regression.result import Result
from pytest_npudump.regression.run_plan import vary
from pytest_npudump.regression.run_record import Measured, same_values
from pytest_npudump.settings import Settings
from tests.conftest import table_of_layers
from tests.regression.conftest import HEALTHY, REGRESSED, Flow, SampleRuntime

KEYS = ("a:output.0", "b:output.0")


def member(*largest: float, floor: float = 0.0, uncountable: bool = False) -> Deviations:
    rows = np.zeros((2, 4))
    rows.flat[: len(largest)] = largest
    marks, floors = np.array([uncountable, False]), np.full((2, 4), floor)
    compared, exact = np.ones(2, np.bool_), np.zeros(2, np.bool_)
    return Deviations(KEYS, rows, floors, rows.any(axis=1), marks, compared, exact)


def test_the_factor_is_as_large_as_the_member_that_strays_furthest_needs() -> None:
    assert hold_out([member(1e-6)] * 3)[0] == FACTORS[0] == 5
    assert hold_out([member(1e-6), member(2e-6), member(1.3e-5)])[0] == 7
    assert hold_out([member(1e-6), member(2e-6), member(3.9e-5)])[0] == 20
    # What the presets allow needs no other member; without a scale or with another count of NaN is no bound.
    assert hold_out([member(), member(), member(1e-5, floor=2e-5)])[0] == 5
    assert hold_out([member(), member(), member(3e-5, floor=2e-5)])[0] is None
    assert hold_out([member(math.inf)] * 3)[0] is None
    assert hold_out([member(uncountable=True)] * 3)[0] is None


def test_beyond_the_limit_there_is_no_factor_and_the_layer_is_named() -> None:
    held = hold_out([member(1e-6, 0, 0, 0, 1e-7), member(2e-6), member(5e-5, 0, 0, 0, 1e-5)])
    assert held[0] is None
    assert [tuple(one.split(" ")[:2]) for one in held[1]] == [(KEYS[1], "max"), (KEYS[0], "max")]
    assert held[1][0] == "b:output.0 max differs by 1e-05 of its scale, the others 1e-07 at most"


@given(arrays(np.float64, (5, 8), elements=st.floats(0, 1)), st.floats(0, 1))
def test_a_factor_that_is_found_holds_for_each_member_by_the_bounds_of_the_others(
    strayed: np.ndarray, floor: float
) -> None:
    members = [member(*row, floor=floor) for row in strayed.tolist()]
    held = hold_out(members)

    def fits(factor: float) -> bool:
        return all(
            (
                strayed[at] <= np.maximum(floor, factor * np.delete(strayed, at, 0).max(axis=0) * (1 + 1e-12))
            ).all()
            for at in range(len(strayed))
        )

    if held[0] is None:
        assert held[1]
        assert not fits(FACTORS[-1] * (1 - 1e-9))
    else:
        assert fits(held[0])


TENSORS = ("a:output.0", "b:input.0", "b:output.0", "c:output.0")
HEAD = {"members": 3, "factor": 5, "varied": ["repeats"]}


def run(strayed: dict[str, float], *, column: int = 0, lacks: tuple[str, ...] = ()) -> Deviations:
    """A run in which tensors stray by so much; what differs by more than 1e-3 is outside."""
    largest = np.zeros((len(TENSORS), 5))
    largest[:, column] = [strayed.get(key, 0.0) for key in TENSORS]
    differs = np.array([key in strayed for key in TENSORS])
    compared = np.array([key not in lacks for key in TENSORS])
    none = np.zeros(len(TENSORS), np.bool_)
    return Deviations(TENSORS, largest, np.full((len(TENSORS), 5), 1e-3), differs, none, compared, none)


def table(*values: float) -> StatsTable:
    return table_of_layers({f"t{at}": value for at, value in enumerate(values)})


def test_the_largest_deviation_of_all_runs_is_kept_and_what_made_it_is_named() -> None:
    found = repeated([run({}), run({})])
    assert (found.cells, dict(found.head), found.notes) == ((), {"repeats": {"runs": 3}}, ())
    found = repeated([run({"b:output.0": 1e-5}), run({"b:output.0": 2e-5, "c:output.0": 1e-6})])
    assert found.cells == ("-", "-", "~2e-5,-,-,-", "~1e-6,-,-,-")
    assert found.head == {"repeats": {"runs": 3, "not_deterministic": ["b"]}}
    assert "2 of 4 tensors differ between 3 equal runs (first seen at: b)" in found.notes[0]
    assert repeated([run({"c:output.0": 2e-5}, column=4)]).cells == ("-", "-", "-", "~-,-,-,-,2e-5")
    calibration = Calibration(2, 7.0, ("repeats", "inputs"))  # members that were varied are not unsteady
    found = repeated([run({})], members=[run({}), run({"a:output.0": 3e-6})], calibration=calibration)
    assert found.cells == ("3e-6,-,-,-", "-", "-", "-")
    assert found.head["repeats"] == {"runs": 2}
    assert found.head["calibration"] == {"members": 2, "factor": 7, "varied": ["repeats", "inputs"]}
    assert repeated([run({}, lacks=TENSORS[2:])]).head == {"repeats": {"runs": 2, "compared": 2}}


@pytest.mark.each(
    ("strayed", "expected"),
    [
        ({}, ()),
        ({"a:output.0": 1e-5}, ("a",)),  # the first, however little
        ({"a:output.0": 1e-5, "c:output.0": 0.5}, ("a",)),  # c has no inputs that are known to agree
        ({"a:output.0": 1e-5, "b:output.0": 0.5}, ("a", "b")),  # b has
        ({"a:output.0": 1e-5, "b:input.0": 1e-5, "b:output.0": 0.5}, ("a",)),
        ({"b:input.0": 1e-5, "b:output.0": 0.5}, ()),  # what the test feeds differs already
    ],
)
def test_a_layer_is_not_deterministic_where_all_before_it_agrees(
    strayed: dict[str, float], expected: tuple[str, ...]
) -> None:
    assert culprits([run(strayed)]) == expected


def test_the_first_of_some_layers_is_named_only_where_its_inputs_are_dumped_and_agree() -> None:
    assert culprits([run({"a:output.0": 1e-5})], filtered=True) == ()
    assert culprits([run({"b:output.0": 1e-5})], filtered=True) == ("b",)
    found = repeated([run({"a:output.0": 1e-5})], filtered=True)
    assert found.head == {"repeats": {"runs": 2}}
    assert "(first seen at a, whose inputs are not dumped)" in found.notes[0]


def test_what_later_runs_fail_for_is_told_with_the_options_that_measure_it() -> None:
    strayed = run({"c:output.0": 0.5})
    note, advice = repeated([strayed]).notes
    assert "1 of them by more than their tolerance" in note
    assert note.endswith("; later runs will fail")
    assert advice.endswith("with --npudump-update-golden --npudump-update-golden=calibrate")
    *_, advice = repeated([strayed], measurable=False).notes
    assert advice.endswith(", give the test a seed, or set tolerance rules")
    (note,) = repeated([replace(strayed, exact=np.ones(len(TENSORS), np.bool_))]).notes
    assert "1 of them of types that are otherwise compared exactly" in note
    assert "will fail" not in note
    (note,) = repeated([strayed], calibration=Calibration(1, 5.0, ("repeats",))).notes
    assert "the measured tolerances allow for it" in note
    assert "will fail" not in note
    assert (once("").notes, dict(once("").head)) == ((), {"repeats": {"runs": 1}})
    assert once("it died").notes == ("unknown whether the test is deterministic: it died",)


def test_a_calibration_stays_with_the_values_that_it_was_made_of() -> None:
    noisy = replace(table(1.0, 2.0), noise=("1e-5,-,-,-", "-"))
    before = Record("t", {}, noisy, Path("g.yaml"), {"calibration": HEAD})
    fresh = Measured((), {"repeats": {"runs": 2}})
    kept = fresh.with_calibration_of(before, table(1.0, 2.0))
    assert (kept.cells, kept.head["calibration"], kept.notes) == (noisy.noise, HEAD, ())
    dropped = fresh.with_calibration_of(before, table(1.0, 2.5))
    assert (dropped.cells, dict(dropped.head)) == ((), {"repeats": {"runs": 2}})
    assert "was removed" in dropped.notes[0]
    assert fresh.with_calibration_of(None, table(1.0)) is fresh


def test_tables_are_of_the_same_values_where_nan_stands_for_nan() -> None:
    assert same_values(table(float("nan"), 1.0), table(float("nan"), 1.0))
    assert not same_values(table(1.0), table(1.0, 2.0))
    assert not same_values(table(1.0), table(1.5))


def fed(text: str) -> list[TensorRecord]:
    """Executions in their order: the input, its value ("?" where unknown), and the thread."""
    found: list[TensorRecord] = []
    for name, value, *thread in map(str.split, text.split(", ")):
        step = sum(one.key.layer == name for one in found)
        stats = None if value == "?" else Stats(2, *[float(value)] * 3, None, 0, 0, 0)
        key, stream = TensorKey(name, "output", 0, step=step), int(thread[0]) if thread else 0
        found.append(
            TensorRecord(key, "", "float32", (2,), Path(), stats=stats, stream=stream, digest=f"md5:{value}")
        )
    return found


@pytest.mark.each(
    ("first", "later", "differing", "begun"),
    [
        ("x 1, y 2", "x 1, y 2", "", ""),
        ("x 1, y 2", "x 1, y 3", "y", "y"),
        ("x 1, y 2", "x 1.0000001, y 2", "", ""),
        ("x 1, y 2", "x 2, y 1", "x y", "x y"),
        ("x 1, x 2", "x 1, x 3", "x", ""),
        ("x 1, x 2", "x 2, x 1", "x", "x"),
        ("x 1 0, x 2 1", "x 2 0, x 1 1", "", ""),
        ("x 1 0, x 2 1", "x 2 0, x 3 1", "x", ""),
        ("x 1 0, x 2 1", "x 3 0, x 1 1", "x", "x"),
        ("x 1, x 2", "x 1", "x", ""),
        ("x ?", "x ?", "", ""),
        ("x ?", "x 1", "x", "x"),
        ("y 1", "x 1, y 1", "x", "x"),
    ],
)
def test_inputs_that_differ_between_runs_are_named(
    first: str, later: str, differing: str, begun: str
) -> None:
    """Of a varied run those of its first execution, by all of the first run's where threads ran it."""
    sides = fed(first), fed(later)
    assert fed_otherwise(*sides, Tolerances()) == {*differing.split()}
    assert _begun_otherwise(*sides, Tolerances()) == {*begun.split()}


@dataclass
class Varied(SampleRuntime):
    """A runtime that can vary all, and keeps what it was told."""

    varies: frozenset[str] = frozenset({"inputs", "threads", "optimisation"})
    seen_as_inputs: str = "aclmdlExecute"
    varying: Varying = field(default_factory=Varying)

    def vary(self, variation: Variation) -> None:
        self.varying.begin(variation)


def test_only_runs_of_a_calibration_are_varied_and_waited_for(tmp_path: Path, defaults: Settings) -> None:
    for settings, member, *expected in (
        # how the run is varied, whether its inputs are looked at, and whether a device is waited for
        ({"calibrate": 9}, 2, False, True, True),
        ({"update_golden": "all", "repeats": 3}, 2, True, True, False),
        ({"update_golden": "all", "repeats": 3}, None, True, False, False),
        ({"update_golden": "all", "repeats": 1}, 0, True, False, False),
        ({"repeats": 3}, 0, True, False, False),
    ):
        case = Flow(tmp_path, defaults._replace(**settings), Varied()).case()
        vary(case, member)
        found = case.runtime.varying.variation  # type: ignore[attr-defined]
        assert [found.plain, found.looks, found.waits] == expected, settings


def test_what_was_not_measured_is_not_recorded_and_fails() -> None:
    for was, now, problem in (
        (status.PENDING, status.PENDING, "nothing was recorded: why"),
        (status.PASSED, status.ERROR, "why"),
    ):
        found = unrecorded(Result(was, None), "why")
        assert (found.status, found.problems, found.good) == (now, (problem,), False)


def test_a_member_strays_from_what_the_numerics_of_the_first_run_allow(flow: Flow) -> None:
    flow.record()
    floors = []
    for soc in ("Ascend310P3", "Ascend910B3"):
        flow.runtime.facts = {"runtime": "acl", "soc": soc}
        case = flow.case()
        first = flow.first(case, HEALTHY)
        session = flow.session(flow.case(), REGRESSED)
        session.start()
        found = measure(case, first, session.attempt, 1)
        assert isinstance(found, Member)
        floors.append(found.strayed.floor.max())
    assert floors[0] < floors[1]
