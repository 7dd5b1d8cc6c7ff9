"""The line at the end of the suite that counts the published configuration cases."""

from __future__ import annotations

from pathlib import Path

import pytest

CASES = """
import pytest

@pytest.fixture
def broken_at_the_end():
    yield
    assert False

@pytest.mark.conformance("ge")
@pytest.mark.parametrize("case", range(3))
def test_ge(case):
    assert case != 1

@pytest.mark.conformance("adump 9.1.0")
@pytest.mark.parametrize("case", range(3))
def test_adump(case, request):
    if case == 1:
        pytest.skip("not here")
    if case == 2:
        request.getfixturevalue("broken_at_the_end")

def test_other():
    pass
"""


@pytest.fixture
def summary(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makeconftest((Path(__file__).parents[1] / "conftest.py").read_text())
    pytester.makepyfile(CASES)
    return pytester


@pytest.mark.parametrize("options", [["-q"], pytest.param(["-n", "2"], marks=pytest.mark.e2e)])
def test_counts_what_passed_by_table(summary: pytest.Pytester, options: list[str]) -> None:
    result = summary.runpytest_inprocess(*options)
    expected = "config conformance: adump 9.1.0 1 of 3 (1 not run), ge 2 of 3"
    assert [line for line in result.outlines if "conformance:" in line] == [expected]


def test_is_silent_where_no_case_ran(summary: pytest.Pytester) -> None:
    assert "conformance" not in summary.runpytest_inprocess("-k", "other").stdout.str()
