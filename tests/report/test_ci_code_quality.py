"""GitLab's report: what its documentation asks of an entry, and what becomes of several sessions."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from pytest_npudump.report.ci import code_quality

if TYPE_CHECKING:
    from pytest_npudump.report.ci import Judged


def test_an_entry_has_what_gitlab_asks_for(hostile: Judged) -> None:
    (entry,) = json.loads(code_quality([hostile]))
    assert {"description", "check_name", "fingerprint", "severity", "location"} <= entry.keys()
    assert entry["severity"] in {"info", "minor", "major", "critical", "blocker"}
    assert entry["location"] == {"path": "test_it.py", "lines": {"begin": 7}}
    assert entry["description"].isprintable()


def test_good_session_leaves_an_empty_report(good: Judged) -> None:
    assert json.loads(code_quality([good])) == []


def test_the_same_fault_has_the_same_fingerprint_whatever_its_numbers(hostile: Judged) -> None:
    again = replace(hostile, result={**hostile.result, "headline": "npudump: max is 3 instead of 1"})
    (one,), (two,) = json.loads(code_quality([hostile])), json.loads(code_quality([again]))
    assert one["fingerprint"] == two["fingerprint"]
    assert one["description"] != two["description"]


def test_sessions_of_other_files_are_kept_and_those_of_the_same_replaced(
    hostile: Judged, good: Judged
) -> None:
    other = replace(hostile, file="test_other.py")
    both = code_quality([hostile], code_quality([other]))
    assert [entry["location"]["path"] for entry in json.loads(both)] == ["test_it.py", "test_other.py"]
    assert [entry["location"]["path"] for entry in json.loads(code_quality([good], both))] == [
        "test_other.py"
    ]


@pytest.mark.parametrize(
    "before", [b"", b"{", b"null", b"{}", b"[1]", b'[{"check_name": "other"}]', b"\xff", b"[" * 9999]
)
def test_what_is_no_report_of_ours_is_replaced(before: bytes, hostile: Judged) -> None:
    assert len(json.loads(code_quality([hostile], before))) == 1
