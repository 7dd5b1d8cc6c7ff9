"""Noise in a joined golden: bounds that were measured of other values, or by another factor, are not kept."""

from __future__ import annotations

from pytest_npudump.compare.tolerances.calibrated import calibrated_of
from pytest_npudump.golden.merge.approval_merge import merge
from pytest_npudump.record.noise import calibration_of, repeats_of
from pytest_npudump.record.text import Golden, parse
from tests.golden.merge.test_approval_merge import BASE, PATH, golden

FIVE = "calibration:\n  members: 5\n  factor: 5\n  varied:\n  - repeats\n"
WIDE = "calibration:\n  members: 20\n  factor: 20\n  varied:\n  - inputs\n"
CELLS = dict.fromkeys(BASE, "1e-3,1e-3,-,-")


def joined(base: str, ours: str, theirs: str) -> Golden:
    found = merge(PATH, base, ours, theirs)
    assert found.conflicts == ()
    return parse(found.text, PATH)


def noise_of(found: Golden) -> dict[str, str]:
    cells = found.table.noise or ("-",) * len(found.table)
    return {key.partition(":")[0]: cell for key, cell in zip(found.table.keys, cells, strict=True)}


def test_noise_of_one_factor_is_not_a_bound_by_the_other_sides_factor() -> None:
    base = golden(BASE, head=FIVE, cells=CELLS)
    ours = golden(BASE, head=WIDE, cells=CELLS | {"conv": "2e-3,-,-,-", "relu": "1e-3,1e-3,-,-"})
    theirs = golden(BASE | {"out": 9}, head=FIVE, cells=CELLS | {"out": "4e-2,4e-2,-,-"})
    for found in (joined(base, ours, theirs), joined(base, theirs, ours)):
        calibration = calibration_of(found.extra, PATH)
        assert calibration is not None
        assert calibration.factor == 20
        assert noise_of(found) == {**CELLS, "conv": "2e-3,-,-,-", "out": "-"}


def test_the_spread_of_a_recording_does_not_widen_where_the_other_side_has_calibrated() -> None:
    repeats = "repeats:\n  runs: 2\n"
    base = golden(BASE, head=repeats, cells=dict.fromkeys(BASE, "-"))
    ours = golden(BASE, head=repeats + FIVE, cells=CELLS | {"fc": "-"})
    theirs = golden(BASE | {"fc": 7}, head=repeats, cells={"fc": "~3e-1,-,-,-"})
    measured = calibrated_of(joined(base, ours, theirs))
    assert measured is not None
    assert measured.widens
    assert "fc:output.0" not in measured.noise


def test_where_both_have_calibrated_anew_ours_leads_and_a_line_of_theirs_has_no_noise() -> None:
    base = golden(BASE, cells=dict.fromkeys(BASE, "-"))
    ours = golden(BASE | {"conv": 9}, head=FIVE, cells=CELLS)
    theirs = golden(BASE | {"out": 8}, head=WIDE, cells=CELLS)
    found = merge(PATH, base, ours, theirs)
    assert found.conflicts == ("out:output.0",)
    assert "factor: 5\n" in found.text
    assert "  out:output.0 float32 2 8 8 8 - 0 0 0 -\n>>>>>>> theirs" in found.text


def test_rows_of_the_same_calibration_keep_their_noise() -> None:
    base = golden(BASE, head=FIVE, cells=CELLS)
    ours = golden(BASE | {"conv": 9}, head=FIVE, cells=CELLS | {"conv": "2e-3,-,-,-"})
    theirs = golden(BASE | {"out": 8}, head=FIVE, cells=CELLS | {"out": "-"})
    assert noise_of(joined(base, ours, theirs)) == {**CELLS, "conv": "2e-3,-,-,-", "out": "-"}


def test_what_either_side_does_not_know_of_repetition_the_result_does_not_know() -> None:
    base = golden(BASE, head="repeats:\n  runs: 3\n", cells=dict.fromkeys(BASE, "-"))
    ours = golden(BASE | {"conv": 9}, head="repeats:\n  runs: 3\n  compared: 3\n", cells={})
    theirs = golden(BASE | {"out": 8}, head="repeats:\n  runs: 2\n", cells={})
    found = repeats_of(joined(base, ours, theirs).extra, PATH)
    assert found is not None
    assert (found.runs, found.compared) == (2, 3)
    unknown = golden(BASE | {"out": 8}, head="repeats:\n  runs: 1\n", cells={})
    found = repeats_of(joined(base, ours, unknown).extra, PATH)
    assert found is not None
    assert (found.runs, found.compared) == (3, 2)  # of conv, relu and fc, as ours does not know one


def test_layers_that_are_not_deterministic_on_either_side_stay_named() -> None:
    base = golden(BASE, head="repeats:\n  runs: 2\n", cells={})
    head = "repeats:\n  runs: 2\n  not_deterministic:\n  - {}\n"
    ours = golden(BASE | {"conv": 9}, head=head.format("conv"), cells={"conv": "~1e-3,-,-,-"})
    theirs = golden(BASE | {"out": 8}, head=head.format("out"), cells={"out": "~1e-3,-,-,-"})
    found = repeats_of(joined(base, ours, theirs).extra, PATH)
    assert found is not None
    assert found.not_deterministic == ("conv", "out")
