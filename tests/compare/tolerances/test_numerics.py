"""Which bounds fit what produced a golden and a run, and where measured ones decide."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytest_npudump.compare.stats.tables import compare_tables
from pytest_npudump.compare.tolerances.presets import Numerics, numerics_of
from pytest_npudump.compare.tolerances.tolerance import Rule, Tolerances
from pytest_npudump.record.noise import Calibrated, calibrated_of
from pytest_npudump.record.record import Record
from tests.conftest import table_of


@pytest.mark.each(
    ("differences", "switches", "bounds"),
    [
        ({}, {}, "same"),
        ({"cann": ("9.0.0", "9.1.0")}, {}, "other"),
        ({"scene": ("model", "op")}, {}, "same"),
        ({"machine": ("-", "x86_64")}, {}, "same"),
        ({"cann": ("9.0.0", "-")}, {}, "same"),
        ({"cann": ("9.0.0", "9.1.0"), "machine": ("-", "x86_64")}, {}, "other"),
        ({"hf32": ("off", "conv")}, {"hf32": "conv"}, "hf32"),
        ({"hf32": ("conv", "off")}, {"hf32": "off"}, "hf32"),
        ({"soc": ("Ascend910B3", "Ascend910B4")}, {"hf32": "conv"}, "hf32"),
        ({"soc": ("Ascend910B3", "Ascend910B4")}, {"hf32": "off"}, "other"),
        ({"soc": ("Ascend910B3", "Ascend910B4"), "hf32": ("conv", "-")}, {}, "hf32"),
        ({"soc": ("Ascend910B3", "Ascend910B4"), "hf32": ("off", "-")}, {}, "other"),
        ({"hf32": ("conv", "-")}, {}, "same"),
        ({}, {"hf32": "conv"}, "same"),
        ({"compiled": ("-", "torch")}, {}, "same"),
    ],
)
def test_only_what_both_sides_tell_and_differs_loosens(
    differences: dict[str, tuple[str, str]], switches: dict[str, str], bounds: str
) -> None:
    assert numerics_of(differences, switches).bounds == bounds


def test_a_preset_goes_before_the_option_and_both_before_the_facts() -> None:
    facts = {"cann": ("9.0.0", "9.1.0")}
    assert numerics_of(facts, {}, option="same") == Numerics("same", facts, (), "option npudump_preset")
    assert numerics_of(facts, {}, preset="hf32", option="same") == Numerics("hf32", facts, (), "", "hf32")
    assert numerics_of(facts, {}, preset="default", option="auto").bounds == "other"


def test_the_reason_names_what_differs_and_what_is_not_told() -> None:
    found = numerics_of({"cann": ("9.0.0", "9.1.0"), "driver": ("-", "25.0")}, {})
    assert found.describe() == "other: cann 9.0.0 -> 9.1.0; unknown on one side: driver"
    assert numerics_of({}, {}).describe() == "same: same environment"
    for sides, words in (
        (("-", "torch"), "eagerly, this run compiled"),
        (("torch", "-"), "compiled, this run eager"),
    ):
        compiled = numerics_of({"compiled": sides}, {})
        assert not compiled.same
        assert compiled.describe() == (
            f'same: same environment; golden recorded {words}; set preset="other" if only rounding differs'
        )


def test_a_preset_that_was_named_decides_and_not_the_numerics() -> None:
    named = "other, as set"
    assert numerics_of({}, {}, preset="other").describe() == named
    assert numerics_of({}, {}, preset="other").bounds == "other"
    assert numerics_of({}, {}, preset="torch").bounds == "same"
    facts = {"cann": ("9.0.0", "9.1.0")}
    assert numerics_of(facts, {}, preset="other").describe() == f"{named} (cann 9.0.0 -> 9.1.0)"
    assert numerics_of(facts, {}, preset="default").describe() == "other: cann 9.0.0 -> 9.1.0"


KEY = "conv:output.0"
BASE: dict[str, Any] = {
    "count": 4,
    "max": 2.0,
    "min": -1.0,
    "avg": 0.5,
    "l2norm": 4.0,
    "nan": 0,
    "neg_inf": 0,
    "pos_inf": 0,
    "digits": None,
}


def judged(cell: str, tolerances: Tolerances, **changes: float) -> Any:
    golden = table_of((KEY, "float32", (4,), BASE))
    actual = table_of((KEY, "float32", (4,), BASE | changes))
    measured = Calibrated.of((KEY,), (cell,), source="calibrated: 9 members, factor 5", repeats=True)
    return compare_tables(golden, actual, tolerances.with_measured(measured))


@pytest.mark.each(
    ("changes", "passes"),
    [
        ({"max": 2.0 + 0.0099}, True),  # 5 x 1e-3 of the magnitude, 2
        ({"max": 2.0 + 0.0101}, False),
        ({"avg": 0.5 + 0.0199}, True),  # 5 x 2e-3 of the root mean square, 2
        ({"avg": 0.5 + 0.0201}, False),
        ({"min": -1.0 + 0.0001}, False),  # nothing measured: the preset's
        ({"l2norm": 4.0 * (1 + 4.9e-4)}, True),  # 5 x 1e-4 of itself
        ({"l2norm": 4.0 * (1 + 5.1e-4)}, False),
        ({"nan": 1}, False),
    ],
)
def test_a_bound_is_the_factor_times_the_noise_in_the_scale_of_the_statistic(
    changes: dict[str, float], *, passes: bool
) -> None:
    assert judged("1e-3,-,2e-3,1e-4", Tolerances("exact"), **changes).ok is passes


def test_a_bound_is_never_tighter_than_the_preset_s_and_a_rule_of_a_person_stands() -> None:
    assert judged("1e-9,1e-9,1e-9,1e-9", Tolerances("same"), max=2.0 * (1 + 1.9e-5)).ok
    strict = Tolerances("same").extended([Rule(1e-6, 0.0, layer="conv", source="marker")])
    assert not judged("1e-3,-,2e-3,-", strict, max=2.001).ok
    (verdict,) = judged("1e-3,-,-,-", Tolerances(), max=2.5).failing
    assert "rtol=0.005" in verdict.reasons[0].rule
    assert "calibrated: 9 members, factor 5" in verdict.reasons[0].rule


@pytest.mark.each(
    ("cell", "change", "changed", "wavering"),
    [
        ("~1e-6,-,-,-", 2.0 * (1 + 4e-6), 0, 1),  # by as much as runs alike did
        ("~1e-6,-,-,-", 2.0 * (1 + 9e-6), 1, 0),  # by more, and within the preset
        ("1e-6,-,-,-", 2.0 * (1 + 4e-6), 1, 0),  # it repeats: what differs has changed
    ],
)
def test_what_does_not_repeat_is_no_change_within_its_spread(
    cell: str, change: float, changed: int, wavering: int
) -> None:
    found = judged(cell, Tolerances("same"), max=change)
    assert (found.ok, found.changed, found.wavering, found.identical) == (True, changed, wavering, 0)
    assert (found.first_change is None) == cell.startswith("~")


def test_a_scale_of_zero_gets_no_bound() -> None:
    measured = Calibrated.of((KEY,), ("inf,-,-,-",))
    assert measured.rtol(KEY, "max") == 0.0


CALIBRATED = {"calibration": {"members": 9, "factor": 20, "varied": ["repeats"]}}


@pytest.mark.each(
    ("extra", "known", "factor"),
    [
        ({}, None, None),
        ({"repeats": {"runs": 1}}, False, 5),
        ({"repeats": {"runs": 2}}, True, 5),
        ({"repeats": {"runs": 2, "compared": 1}}, False, 5),
        (CALIBRATED, False, 20),
        (CALIBRATED | {"repeats": {"runs": 2}}, True, 20),
    ],
)
def test_only_a_golden_that_says_so_is_known_to_repeat(
    extra: dict[str, Any], *, known: bool | None, factor: float | None
) -> None:
    golden = Record("t", {}, table_of((KEY, "float32", (4,), BASE)), Path("g.yaml"), extra)
    found = calibrated_of(golden)
    assert (found and (found.repeats, found.factor, found.widens)) == (
        None if factor is None else (known, factor, "calibration" in extra)
    )
