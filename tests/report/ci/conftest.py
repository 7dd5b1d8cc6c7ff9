"""Tests of a session whose layers have names that were made to be taken for something else."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_npudump.report.ci.judged import Judged

HOSTILE = (
    "a|b",
    "`x` **bold** `",
    "\\|cell|",
    "</code></summary><script>alert(1)</script>",
    "[link](http://example.com) ![i](http://example.com/a.png)",
    "www.example.com https://example.com @someone #12",
    "a\n::error file=other.py,line=1::forged\n| new | row |",
    "%0A::set-output name=x::y",
    "##[error]forged",
    "<!-- comment -->",
    "\u202egnp.exe\x1b[31m",
    "]]>&amp;<b>",
    "$(reboot)",
    "\ud800 lone",
)


def judged(name: str, **more: Any) -> Judged:
    result = {
        "test": f"test_it.py::test_it[{name}]",
        "status": "failed",
        "runtime": "emulator",
        "expected": 3,
        "compared": 3,
        "fail": 1,
        "first": f"{name}:output.0",
        "first_change": f"{name}:output.0",
        "sources": {"in_all": 1, "first": [{"key": f"{name}:output.0", "explains": 1}]},
        "headline": f"npudump: {name} (Conv output.0) differs: max is 2 instead of 1",
        "details": f"dumps/{name}/report.txt",
        "way_out": f"to approve: pytest {name}",
        "notes": [f"a note on {name}"],
    }
    return Judged(result | more, failed=True, file="test_it.py", line=7)


@pytest.fixture(params=HOSTILE, ids=range(len(HOSTILE)))
def hostile(request: pytest.FixtureRequest) -> Judged:
    return judged(request.param)


@pytest.fixture
def good() -> Judged:
    result = {"test": "test_it.py::good", "status": "passed", "expected": 3, "compared": 3, "runtime": "acl"}
    return Judged(result, failed=False, file="test_it.py", line=3)
