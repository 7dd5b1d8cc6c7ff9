"""What stays of a golden's noise where one run takes its place, or that of some of its rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from pytest_npudump.record.noise import repeats_of
from pytest_npudump.record.record import Record
from pytest_npudump.record.text import parse, render
from pytest_npudump.results.acceptance import after_rows
from tests.conftest import table_of_layers

PATH = Path("golden.yaml")
CALIBRATION = {"members": 20, "factor": 5, "varied": ["repeats", "inputs"]}


def golden(values: Sequence[float], cells: Sequence[str] = (), **extra: Any) -> Record:
    table = table_of_layers({f"layer{at}": value for at, value in enumerate(values)})
    return Record("test_a.py::test_a", {"runtime": "acl"}, replace(table, noise=tuple(cells)), PATH, extra)


def test_a_golden_that_told_nothing_of_noise_does_not_begin_to_but_the_first_is_of_one_run() -> None:
    found, notes = after_rows(golden([2.0]), golden([1.0], other="kept"))
    assert (dict(found.extra), notes) == ({}, ())
    found, notes = after_rows(golden([2.0]), None)
    assert (dict(found.extra), notes) == ({"repeats": {"runs": 1}}, ())


def test_values_that_stay_keep_all_that_was_measured_of_them() -> None:
    before = golden([1.0, 2.0], ["~1e-5,-,-,-", "-"], repeats={"runs": 2}, calibration=CALIBRATION)
    found, notes = after_rows(golden([1.0, 2.0], reason="new driver"), before)
    assert found.table.noise == before.table.noise
    assert dict(found.extra) == {"reason": "new driver", "repeats": {"runs": 2}, "calibration": CALIBRATION}
    assert notes == ()


@pytest.mark.parametrize("stale", [{}, {"repeats": {"runs": 2}}])
def test_other_values_keep_their_noise_unless_another_machine_gave_them(stale: dict[str, Any]) -> None:
    before = golden([1.0], ["~1e-5,-,-,-"], repeats={"runs": 2})
    after = golden([2.0], **stale)
    found, notes = after_rows(after, before)
    assert (found.table.noise, dict(found.extra)) == (before.table.noise, {"repeats": {"runs": 1}})
    anew = "measured anew by --npudump-update-golden"
    kept = "1 of them keep the noise measured before"
    assert notes == (f"changed tensors (1 of 1) are of a single run; {kept}; {anew}",)
    measured = replace(before, extra={**before.extra, "calibration": CALIBRATION})
    found, notes = after_rows(after, measured)
    assert (found.table.noise, found.extra["calibration"]) == (before.table.noise, CALIBRATION)
    assert [note.rpartition("; ")[2] for note in notes] == [f"{anew} --npudump-update-golden=calibrate"]
    with_tensors = replace(measured, extra={**measured.extra, "golden_tensors": {"recording": "x"}})
    _, notes = after_rows(after, with_tensors)
    assert [note.rpartition("; ")[2] for note in notes] == [f"{anew}, then --npudump-update-golden=calibrate"]
    bare = golden([1.0], repeats={"runs": 2})
    found, notes = after_rows(after, bare)
    assert dict(found.extra) == {"repeats": {"runs": 1}}
    assert [note.partition(";")[0] for note in notes] == ["changed tensors (1 of 1) are of a single run"]
    other = replace(after, producer={**after.producer, "driver": "25.3"})
    found, notes = after_rows(other, before)
    assert dict(found.extra) == {"repeats": {"runs": 1}}
    assert found.table.noise == ()
    assert "driver changed; the golden's noise data was removed" in notes[0]


def test_a_tensor_that_is_new_or_of_another_shape_has_no_noise() -> None:
    before = golden([1.0, 2.0], ["~1e-5,-,-,-", "1e-6,-,-,-"], repeats={"runs": 3})
    table = replace(golden([1.5, 2.0, 3.0]).table, shapes=("9", *before.table.shapes[1:], "2"))
    found, notes = after_rows(replace(golden([1.0]), table=table), before)
    assert found.table.noise == ("-", "1e-6,-,-,-", "-")
    assert dict(found.extra) == {"repeats": {"runs": 3, "compared": 1}}
    assert "noise unknown for 2 of 3 tensors" in notes[0]


@given(st.lists(st.booleans(), min_size=1, max_size=6), st.data())
def test_rows_of_run_have_no_noise_and_all_others_keep_theirs(took: list[bool], data: st.DataObject) -> None:
    count = len(took)
    cells = data.draw(
        st.lists(st.sampled_from(["-", "~1e-5,-,-,-", "1e-6,-,-,-,2e-6"]), max_size=0)
        | st.lists(st.sampled_from(["-", "~1e-5,-,-,-", "1e-6,-,-,-,2e-6"]), min_size=count, max_size=count)
    )
    cells = cells if any(cell != "-" for cell in cells) else []
    compared = data.draw(st.none() | st.integers(1, count))
    told = {"runs": 2} | ({} if compared is None else {"compared": compared})
    before = golden([1.0] * count, cells, repeats=told, calibration=CALIBRATION)
    after = golden([9.0 if new else 1.0 for new in took], cells, **before.extra)
    taken = [key for key, new in zip(after.table.keys, took, strict=True) if new]
    found, notes = after_rows(after, before, taken)
    assert bool(notes) is bool(taken)
    expected = ["-" if new else cell for new, cell in zip(took, cells or ["-"] * count, strict=True)]
    assert list(found.table.noise) == (expected if set(expected) != {"-"} else [])
    again = parse(render(found), PATH)
    repeats = repeats_of(again.extra, PATH)
    assert repeats is not None
    surely = (count if compared is None else compared) - len(taken)
    if surely <= 0:
        assert repeats.runs == 1
    else:
        assert (repeats.runs, repeats.compared or count) == (2, surely)


def test_layers_stay_named_as_not_deterministic_unless_they_are_taken() -> None:
    told = {"runs": 3, "not_deterministic": ["layer0", "layer1"]}
    before = golden([1.0, 2.0], ["~1e-5,-,-,-", "~1e-5,-,-,-"], repeats=told)
    after = golden([9.0, 2.0], before.table.noise, **before.extra)
    found, _ = after_rows(after, before, before.table.keys[:1])
    assert found.extra["repeats"] == {"runs": 3, "not_deterministic": ["layer1"], "compared": 1}
    found, _ = after_rows(golden([9.0, 2.0]), before)
    assert found.extra["repeats"] == {**told, "compared": 1}
