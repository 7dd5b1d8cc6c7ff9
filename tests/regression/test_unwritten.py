from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_npudump.compare.tolerances.tolerance import Tolerances
from pytest_npudump.dump.records import Dump, Stats, TensorKey, TensorRecord
from pytest_npudump.dump.table import StatsTable
from pytest_npudump.errors import GoldenError
from pytest_npudump.record.record import Record, entries_of, left_out_of
from pytest_npudump.regression import second_run
from pytest_npudump.regression.result import Result, Run
from pytest_npudump.regression.run_plan import Plan
from pytest_npudump.regression.run_record import (
    by_layer,
    golden_to_start_from,
    new_entries,
    unwritten_of,
    without,
)

ROOT = Path("dump")
LEFTOVER, FILLED, OTHER = 0.25, -3e16, 7.5


def run(**values: float) -> Dump:
    """A dump with one number a tensor; ``bn_1_step1`` is output 1 of ``Default/bn`` in step 1."""
    records = []
    for name, value in values.items():
        layer, slot, *step = name.split("_")
        key = TensorKey(f"Default/{layer}", "output", int(slot), step=int(step[0][4:]) if step else 0)
        stats = Stats(1, value, value, value, abs(value), 0, 0, 0)
        records.append(TensorRecord(key, "BatchNorm", "float32", (1,), ROOT / name, stats=stats))
    return Dump(ROOT, tuple(records))


def golden(entries: object, *keys: str) -> Record:
    rows = StatsTable.from_records(
        TensorRecord(TensorKey.parse(key), "", "float32", (1,), ROOT, stats=Stats(1, 1.0, 1.0, 1.0, 1.0))
        for key in keys
    )
    return Record("test", {}, rows, Path("a.yaml"), {"unwritten": entries} if entries is not None else {})


def test_outputs_that_kernels_of_a_cpu_do_not_write_are_known_by_their_operators() -> None:
    dump = run(bn_0=1, bn_1=LEFTOVER, bn_0_step1=3, bn_1_step1=OTHER)
    cpu = {"runtime": "mindspore", "device_target": "CPU"}
    keys = [f"Default/bn{step}:output.{slot}" for step in ("", "#step=1") for slot in range(1, 5)]
    assert [*map(str, unwritten_of(dump.records, cpu))] == keys
    lstm = [replace(record, op_type="LSTM") for record in dump.records[:2]]
    assert [key.slot for key in unwritten_of(lstm, cpu)] == [3, 4]
    dense = [replace(record, op_type="MatMul") for record in dump.records]
    assert unwritten_of(dense, cpu) == []
    assert unwritten_of(dump.records, cpu | {"device_target": "Ascend"}) == []
    assert unwritten_of(dump.records, cpu | {"runtime": "modules"}) == []


def test_entries_leave_tensors_out_of_a_dump_under_either_spelling_unless_the_golden_has_them() -> None:
    entries = {"Default/bn:output.1": "left out", "Default/bn:output.2": "judged"}
    dump = run(bn_0=1, bn_1=2, bn_2=3)
    names = tuple(replace(record, key=record.key.sanitised) for record in dump.records)
    for read in (dump, replace(dump, records=names)):
        rest = without(read, entries)
        assert [record.key.slot for record in rest.records] == [0, 2]
        kept = without(read, entries, ["Default/bn:output.1"])
        assert kept is read


def test_what_a_person_marked_as_judged_stays_so_and_the_rest_is_found_out_anew() -> None:
    previous = golden({"Default/bn": {"output.1": "judged", "output.2": "left out"}})
    left_out = [TensorKey("Default_bn", "output", 1), TensorKey("Default_bn", "output", 3)]
    entries = new_entries(previous, left_out)
    assert entries == {"Default/bn:output.1": "judged", "Default_bn:output.3": "left out"}
    assert entries_of(golden(by_layer(entries))) == entries
    assert new_entries(None, left_out[:1]) == {"Default_bn:output.1": "left out"}


def test_entries_that_are_none_are_an_error_that_names_the_file_and_the_way_out() -> None:
    odd: tuple[object, ...] = ({"a": "left out"}, {"a": {"b": "left out"}}, {"a": {"output.1": "passed"}})
    for entries in (["a"], "a", 1, *odd):
        with pytest.raises(GoldenError, match=r"a\.yaml: 'unwritten' is to hold .* accept anew"):
            entries_of(golden(entries))
    assert entries_of(None) == entries_of(golden(None)) == {}

    def start(*, update: bool) -> Record | None:
        damaged = golden({"a": "left out"})
        settings = SimpleNamespace(update_golden=update)
        test: Any = SimpleNamespace(goldens=SimpleNamespace(read_if_any=lambda: damaged), settings=settings)
        return golden_to_start_from(test)

    assert start(update=True) is None  # they stand in the way of a comparison alone
    with pytest.raises(GoldenError, match="'unwritten' is to hold"):
        start(update=False)


def test_only_the_mindspore_that_was_looked_at_is_compared_without_what_is_left_out() -> None:
    measured = {"runtime": "mindspore", "mindspore": "2.10.0", "device_target": "CPU", "scene": "model"}
    listed = golden({"bn": {"output.1": "left out", "output.2": "judged"}})
    others = [
        {"runtime": "emulator"},
        {"mindspore": "2.11.0"},
        {"device_target": "Ascend"},
        {"mindspore": None},
        {"device_target": None},
    ]
    for recorded in ({}, *others):
        for run_of in ({}, *others):
            before, now = ({k: v for k, v in (measured | one).items() if v} for one in (recorded, run_of))
            found = left_out_of(replace(listed, producer=before), now | {"dump_mode": "output"})
            same = recorded == run_of and run_of in ({}, {"mindspore": "2.11.0"})
            assert found == ({"bn:output.1": "left out"} if same else {}), (before, now)
    assert left_out_of(None, measured) == {}


@pytest.mark.parametrize("cpu", [True, False])
def test_a_recording_of_two_runs_leaves_out_of_both_what_nothing_wrote(
    monkeypatch: pytest.MonkeyPatch, *, cpu: bool
) -> None:
    dump, other = run(bn_0=1, fc_0=2), run(bn_0=1, bn_1=FILLED, fc_0=2)
    facts = {"runtime": "mindspore", "device_target": "CPU" if cpu else "Ascend"}
    case: Any = SimpleNamespace(
        goldens=SimpleNamespace(read_if_any=lambda: None, facts=lambda told: told),
        runtime=SimpleNamespace(
            name="mindspore",
            producer=lambda: facts,
            activity=SimpleNamespace(evidence=SimpleNamespace(undumped=[])),
        ),
        request=SimpleNamespace(layers=(), dump_data=None),
        settings=SimpleNamespace(update_golden="all"),
        tolerances=Tolerances(),
        steps_of=lambda _: None,
    )
    seen: list[Any] = []
    for name, stand_in in {
        "read_again": lambda *_: other,
        "was_text": lambda *_: False,
        "delete_others": lambda *_: None,
        "fed": lambda *_: "",
        "_measured": lambda _case, _first, again: seen.append(again) or SimpleNamespace(cells=()),
        "_recorded": lambda *given, **_: given,
    }.items():
        monkeypatch.setattr(second_run, name, stand_in)
    attempt, plan = SimpleNamespace(directory=ROOT), Plan(())
    second_run.record_both(case, Result("pending", None, run=Run(dump)), plan, attempt)  # type: ignore[arg-type]
    layers = [str(record.key) for record in seen[0].records]
    assert ("Default/bn:output.1" in layers) is not cpu
    assert "Default/fc:output.0" in layers
