"""Notes of tests that pass: all in two files, some in the terminal, new ones first."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_npudump.plugin.terminal import Note, collect_notes, digests, note_lines, write_notes
from pytest_npudump.report.files import ReportFiles

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


def written(path: Path) -> list[dict[str, Any]]:
    notes: list[dict[str, Any]] = json.loads((path / "dumps" / "notes.json").read_text())["notes"]
    return notes


def test_terminal_shows_some_notes_how_many_more_there_are_and_where(noted: pytest.Pytester) -> None:
    found = lines(run(noted))
    assert len(found) == 6
    assert all(line.startswith("note: test_it.py::test_tiny[") for line in found[:5])
    assert found[5] == "3 more notes: all 8 are in dumps/notes.txt"
    assert len(written(noted.path)) == 8
    text = (noted.path / "dumps" / "notes.txt").read_text()
    for number in range(7):
        assert f"\n    test_it.py::test_tiny[{number}]\n" in text
    assert text.count("note: ") == 8


def test_note_of_many_tests_is_told_once_with_their_number(noted: pytest.Pytester) -> None:
    first, second = lines(run(noted, "-k", "test_same"))
    assert first.startswith("note: 4 tests (test_it.py::test_same[0], test_it.py::test_same[1] and 2 more): ")
    assert second == "all notes with all of their tests are in dumps/notes.txt"
    (note,) = written(noted.path)
    assert note["tests"] == [f"test_it.py::test_same[{case}]" for case in range(4)]


def test_notes_that_the_last_run_did_not_have_come_first(noted: pytest.Pytester) -> None:
    run(noted)
    run(noted, "-k", "test_same")  # what is left out is not forgotten
    assert not any("new" in line for line in lines(run(noted)))
    (noted.path / "changed").write_text("8")
    run(noted, "--npudump-update-golden", "-k", "8", "-p", "no:cacheprovider")
    found = lines(run(noted))
    assert found[0].startswith("new note: test_it.py::test_tiny[8]: ")
    assert all(line.startswith("note: ") for line in found[1:5])
    assert found[5] == "4 more notes: all 9 are in dumps/notes.txt"
    assert [note["new"] for note in written(noted.path)] == [True] + [False] * 8
    file = noted.path / ".pytest_cache" / "v" / "npudump" / "notes"
    file.write_text('{"test_it.py::test_same[0]": 3}')
    found = lines(run(noted, "-v"))
    assert len([line for line in found if "note: " in line]) == 9
    assert "test_it.py::test_tiny[0]" in json.loads(file.read_text())
    run(noted, "-k", "tiny and 7").assert_outcomes(passed=1, deselected=12)
    assert not list((noted.path / "dumps").glob("notes.*"))


def test_without_pytest_s_cache_nothing_is_new_and_nothing_lost(noted: pytest.Pytester) -> None:
    for _ in range(2):
        found = lines(run(noted, "-p", "no:cacheprovider"))
        assert [line.split(":")[0] for line in found] == ["note"] * 5 + ["3 more notes"]
    assert {note["new"] for note in written(noted.path)} == {None}


@pytest.mark.e2e
def test_notes_of_xdist_s_workers_are_gathered_once(noted: pytest.Pytester) -> None:
    pytest.importorskip("xdist")
    run(noted)
    found = lines(noted.runpytest_subprocess("-n", "2"))
    assert len([line for line in found if line.startswith("note: ")]) == 5
    assert found[-1] == "3 more notes: all 8 are in dumps/notes.txt"
    assert len(written(noted.path)) == 8


def result(test: str, *notes: str, status: str = "passed") -> dict[str, Any]:
    return {"test": test, "status": status, "notes": list(notes)}


def test_note_that_is_new_for_one_of_its_tests_is_new_and_names_that_test_first() -> None:
    before = digests([result("a", "n", "other"), result("b", "n")], {})
    notes = collect_notes([result("a", "other", "n"), result("b", "n"), result("c", "n")], before)
    assert notes == (
        Note("n", ("c", "a", "b"), new=True, passed=True),
        Note("other", ("a",), new=False, passed=True),
    )


def test_note_that_is_gone_is_new_when_it_comes_back() -> None:
    before = digests([result("a", "n")], {})
    assert digests([result("a")], before) == {}
    assert digests([{"test": "a", "status": "not compared"}], before) == before


def test_notes_of_failures_are_in_the_files_and_not_in_the_terminal_a_second_time(tmp_path: Path) -> None:
    notes = collect_notes([result("a", "of a failure", status="failed"), result("b", "of a pass")], None)
    files = write_notes(tmp_path / "dumps", "rank1-", notes)
    assert note_lines(notes, files, verbose=True) == ["note: b: of a pass"]
    assert files.text == tmp_path / "dumps" / "rank1-notes.txt"
    assert "note: of a failure\n    a\n" in files.text.read_text()


def test_files_that_cannot_be_written_are_told(tmp_path: Path) -> None:
    (tmp_path / "dumps").write_text("no folder")
    notes = collect_notes([result("a", "n")], None)
    files = write_notes(tmp_path / "dumps", "", notes)
    told = note_lines(notes, files, verbose=False)
    assert told[0] == "note: a: n"
    assert told[1].startswith("the notes could not be written: ")


def test_long_notes_and_names_are_cut_but_for_the_file(tmp_path: Path) -> None:
    notes = collect_notes([result("t" * 1000, "n\n\x1b" * 500)], None)
    files = ReportFiles(tmp_path / "notes.txt", tmp_path / "notes.json")
    line, where = note_lines(notes, files, verbose=False)
    assert len(line) < 2000
    assert line.isprintable()
    assert where.startswith("all notes with all of their tests are in ")
    (whole,) = note_lines(notes, files, verbose=True)
    assert len(whole) > 2500
