"""Notes of tests that pass: some in the terminal, all with ``-v``."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_npudump.plugin.terminal import note_lines

HEADER = (
    "Input/Output,Index,Data Size,Data Type,Format,Shape,Max Value,Min Value,Avg Value,Count,Nan Count,"
    "Negative Inf Count,Positive Inf Count\n"
)
ROW = "Output,0,16,DT_FLOAT,ND,4,{largest},-1,0.25,4,0,0,{infinite}\n"
PROJECT = f'''
from pathlib import Path
import pytest

HEADER, ROW = {HEADER!r}, {ROW!r}

def write(npu_dump, layer, largest):
    """Leave the statistics CANN would write of two layers; of one with an infinity a note says how little."""
    folder = Path(npu_dump.config["dump"]["dump_path"]) / "20260101010101" / "0"
    folder.mkdir(parents=True)
    for number, (name, value) in enumerate(((layer, largest), ("healthy", 1))):
        text = HEADER + ROW.format(largest=value, infinite=int(value == "inf"))
        (folder / f"MatMul.{{name}}.{{number}}.2.{{1795228705885133 + number}}.csv").write_text(text)

@pytest.mark.npu_dump
@pytest.mark.parametrize("number", range(9))
def test_tiny(npu_dump, number):
    changed = Path("changed").read_text().split() if Path("changed").exists() else ()
    write(npu_dump, f"layer{{number}}", "inf" if number < 7 or str(number) in changed else 0.5)

@pytest.mark.npu_dump
@pytest.mark.parametrize("case", range(4))
def test_same(npu_dump, case):
    write(npu_dump, "shared", "inf")
'''


@pytest.fixture
def noted(pytester: pytest.Pytester) -> pytest.Pytester:
    """A project of which 11 tests pass with a note, 8 different ones, and whose goldens are recorded."""
    pytester.makeini("[pytest]\nnpudump_runtime = emulator\nnpudump_output = .\n")
    pytester.makepyfile(test_it=PROJECT)
    run(pytester, "--npudump-update-golden", "-p", "no:cacheprovider").assert_outcomes(passed=13)
    return pytester


def run(pytester: pytest.Pytester, *options: str) -> pytest.RunResult:
    return pytester.runpytest_inprocess(*options)


def lines(result: pytest.RunResult) -> list[str]:
    """What a session says behind its tests, but for the line at its end."""
    told = [line.removeprefix("npudump: ") for line in result.outlines if line.startswith("npudump: ")]
    return [line for line in told if not line.startswith("runtime ")][:-1]


def test_terminal_shows_some_notes_and_how_many_more_there_are(noted: pytest.Pytester) -> None:
    found = lines(run(noted))
    assert len(found) == 6
    assert all(line.startswith("note: test_it.py::test_tiny[") for line in found[:5])
    assert found[5] == "3 more notes (-v lists all)"
    whole = "\n".join(line for line in lines(run(noted, "-v")) if "note: " in line)
    assert all(f"test_it.py::test_tiny[{number}]: " in whole for number in range(7))
    assert all(f"test_it.py::test_same[{case}]" in whole for case in range(4))
    assert whole.count("note: ") == 8


def test_note_of_many_tests_is_told_once_with_their_number(noted: pytest.Pytester) -> None:
    (told,) = lines(run(noted, "-k", "test_same"))
    assert told.startswith("note: 4 tests (test_it.py::test_same[0], test_it.py::test_same[1] and 2 more): ")


@pytest.mark.e2e
def test_notes_of_xdist_s_workers_are_gathered_once(noted: pytest.Pytester) -> None:
    pytest.importorskip("xdist")
    found = lines(noted.runpytest_subprocess("-n", "2"))
    assert len([line for line in found if line.startswith("note: ")]) == 5
    assert found[-1] == "3 more notes (-v lists all)"


def result(test: str, *notes: str, status: str = "passed") -> dict[str, Any]:
    return {"test": test, "status": status, "notes": list(notes)}


def test_notes_of_failures_are_not_in_the_terminal_a_second_time() -> None:
    results = [result("a", "of a failure", status="failed"), result("b", "of a pass")]
    assert note_lines(results, verbose=True) == ["note: b: of a pass"]


def test_long_notes_and_names_are_cut() -> None:
    results = [result("t" * 1000, "n\n\x1b" * 500)]
    (line,) = note_lines(results, verbose=False)
    assert len(line) < 2000
    assert line.isprintable()
    (whole,) = note_lines(results, verbose=True)
    assert len(whole) > 2500
