from __future__ import annotations

import re

import pytest
from hypothesis import given, strategies as st

from pytest_npudump.config.acl_keys import step_reasons

# The grammar as CANN documents it, with the order of a range checked apart.
GRAMMAR = re.compile(r"(?:\d+(?:-\d+)?(?:\|\d+(?:-\d+)?)*)?", re.ASCII)


def is_taken(step: str) -> bool:
    ranges = (part.split("-") for part in step.split("|")) if step else ()
    return bool(GRAMMAR.fullmatch(step)) and all(int(bounds[0]) <= int(bounds[-1]) for bounds in ranges)


@given(st.text("0129-| ٣", max_size=12))
def test_takes_the_documented_grammar(step: str) -> None:
    assert (not list(step_reasons(step))) is is_taken(step)


@pytest.mark.each(
    ("step", "taken"),
    [
        ("|".join(["1"] * 100), True),
        ("|".join(["1"] * 101), False),
        (f"{2**63}-{2**63 - 1}", True),
        (f"{2**63 - 1}-{2**63 - 2}", False),
        ("9" * 5000 + "-1", False),
        ("0" * 5000 + "1-1", True),
    ],
)
def test_numbers_saturate_and_intervals_are_counted(step: str, *, taken: bool) -> None:
    assert (not list(step_reasons(step))) is taken
