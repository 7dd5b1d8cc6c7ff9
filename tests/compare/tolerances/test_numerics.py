"""Which bounds fit what produced a golden and a run."""

from __future__ import annotations

import pytest

from pytest_npudump.compare.tolerances.numerics import Numerics, numerics_of


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
    ],
)
def test_only_what_both_sides_tell_and_differs_loosens(
    differences: dict[str, tuple[str, str]], switches: dict[str, str], bounds: str
) -> None:
    assert numerics_of(differences, switches).bounds == bounds


def test_the_marker_goes_before_the_option_and_both_before_the_facts() -> None:
    facts = {"cann": ("9.0.0", "9.1.0")}
    assert numerics_of(facts, {}, option="same") == Numerics("same", facts, (), "option --npudump-numerics")
    assert numerics_of(facts, {}, marker="hf32", option="same").fixed == "marker"
    assert numerics_of(facts, {}, marker="auto", option="auto").bounds == "other"


def test_the_reason_names_what_differs_and_what_is_not_told() -> None:
    found = numerics_of({"cann": ("9.0.0", "9.1.0"), "driver": ("-", "25.0")}, {})
    assert found.describe() == "for other numerics: cann 9.0.0 -> 9.1.0; not told by both: driver"
    assert numerics_of({}, {}).describe() == "for the same numerics: the producers are alike"
    assert numerics_of({}, {}, marker="other").describe() == "for other numerics, as the marker says"


def test_a_preset_that_was_named_decides_and_not_the_numerics() -> None:
    named = "of the preset other, whatever the numerics"
    assert numerics_of({}, {}, preset="other").describe() == named
    assert numerics_of({}, {}, marker="same", preset="other").describe() == named
    facts = {"cann": ("9.0.0", "9.1.0")}
    assert numerics_of(facts, {}, preset="other").describe() == f"{named} (cann 9.0.0 -> 9.1.0)"
    assert numerics_of(facts, {}, preset="default").describe() == "for other numerics: cann 9.0.0 -> 9.1.0"
