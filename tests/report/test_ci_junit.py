"""The properties of a test in JUnit files."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pytest_npudump.report.ci import WHOLE, is_ours, junit_properties

if TYPE_CHECKING:
    from pytest_npudump.report.ci import Judged


def test_properties_are_plain_and_bounded(hostile: Judged) -> None:
    result = {**hostile.result, "golden": "g" * 5000, "notes": ["n" * 5000] * 99, "bounds": "same"}
    result |= {
        "artifact": "tests/a",
        "first": "f" * 5000,
        "sources": {"in_all": 1, "first": [{"key": "k" * 5000, "explains": 1}]},
    }
    properties = dict(junit_properties(result))
    whole = properties.pop(WHOLE)
    assert json.loads(whole)["notes_in_all"] == 99
    assert len(whole) < 10_000
    assert set(properties) == {
        f"npudump.{name}"
        for name in ("status", "source", "first_change", "tensors", "bounds", "golden", "report", "artifact")
    }
    assert all(len(value) <= 300 for value in properties.values())
    assert properties["npudump.tensors"] == "3 of 3 compared, 1 outside"


def test_what_is_not_known_has_no_property(good: Judged) -> None:
    assert [name for name, _ in junit_properties(good.result)] == [WHOLE, "npudump.status", "npudump.tensors"]


def test_properties_of_others_are_not_ours() -> None:
    assert is_ours("npudump")
    assert is_ours("npudump.status")
    assert not is_ours("npudumper")
