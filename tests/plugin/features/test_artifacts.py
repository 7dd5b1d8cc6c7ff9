"""The tree that a session leaves for a person: all of it, or what fits and what did not."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import pytest

from pytest_npudump.results.folder import ResultsFolder

if TYPE_CHECKING:
    from pathlib import Path


TEXT = (".txt", ".json", ".csv")
INDEX = 1 << 14
"""Bytes of a limit that are the index's."""


@pytest.fixture
def regressed(project: Any) -> Any:
    project.marked()
    project.record()
    project.model(change=0.1)
    project.pytester.makeini("[pytest]\naddopts = --strict-markers\n")
    return project


def files(folder: Path) -> dict[str, int]:
    found = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.stat().st_size for path in found}


def test_failed_session_leaves_all_that_was_dumped_and_said(regressed: Any) -> None:
    result = regressed.run(
        *("--npudump-artifacts=art", "--npudump-dump-dir=dumps", "--npudump-summary=summary.md"),
        "--junitxml=junit.xml",
    )
    result.stdout.fnmatch_lines(["npudump: artifacts are in *art/session-1: * KiB"])
    session = regressed.path / "art" / "session-1"
    gathered = files(session / "tests")
    assert gathered == {name: size for name, size in files(regressed.path / "dumps").items() if "/" in name}
    assert any(name.endswith("report.txt") for name in gathered)
    assert any(name.endswith("acl.json") for name in gathered)
    (directory,) = (session / "tests").iterdir()
    assert f"`report: tests/{directory.name}/report.txt`" in (session / "summary.md").read_text("utf-8")
    summary = (regressed.path / "summary.md").read_text("utf-8")
    assert f"`report: art/session-1/tests/{directory.name}/report.txt`" in summary
    properties = ET.parse(regressed.path / "junit.xml").iter("property")  # noqa: S314 - as written here
    told = {one.get("name"): one.get("value") for one in properties}
    assert told["npudump.artifact"] == f"tests/{directory.name}"
    (entry,) = ResultsFolder(session / "results").read().entries
    assert entry.status == "failed"
    assert ResultsFolder(session / "results").record(entry)
    page = (session / "report.html").read_text("utf-8")
    assert entry.test in page
    assert "Elements, from the second run" in page
    index = json.loads((session / "artifacts.json").read_bytes())
    assert index["left_out"] == []
    assert index["left_out_in_all"] == {"files": 0, "bytes": 0}
    assert index["packages"]["pytest"] == pytest.__version__
    assert [producer["soc"] for producer in index["producers"]] == ["Emulator"]
    assert index["options"] == {
        "artifacts": "art",
        "dump_dir": "dumps",
        "runtime": "emulator",
        "summary": "summary.md",
    }


def test_largest_files_are_left_out_first_and_named(regressed: Any) -> None:
    regressed.run("--npudump-artifacts=all")
    whole = files(regressed.path / "all")
    tensors = [name for name in whole if name.startswith("session-1/tests/") and not name.endswith(TEXT)]
    largest = max(whole[name] for name in tensors)
    room = sum(whole.values()) - whole["session-1/artifacts.json"] + INDEX - largest // 2
    result = regressed.run("--npudump-artifacts=art", f"--npudump-artifacts-limit={room}")
    result.stdout.fnmatch_lines(["*over the limit, and left out: *"])
    index = json.loads((regressed.path / "art" / "session-1" / "artifacts.json").read_bytes())
    assert [left_out["bytes"] for left_out in index["left_out"]] == [largest]


def test_limit_is_of_all_sessions_of_a_job(regressed: Any) -> None:
    regressed.run("--npudump-artifacts=art")
    first = sum(files(regressed.path / "art").values())
    limit = first + INDEX + 4096
    regressed.run("--npudump-artifacts=art", f"--npudump-artifacts-limit={limit}")
    second = regressed.path / "art" / "session-2"
    assert (second / "summary.md").exists()
    index = json.loads((second / "artifacts.json").read_bytes())
    assert {"report.html"} <= {left_out["file"] for left_out in index["left_out"]}
    assert sum(files(regressed.path / "art").values()) <= limit
    result = regressed.run("--npudump-artifacts=art", f"--npudump-artifacts-limit={first}")
    result.stdout.fnmatch_lines(
        ["npudump: artifacts are not gathered: *art has *; remove what is there, or *"]
    )
    assert not (regressed.path / "art" / "session-3").exists()


@pytest.mark.parametrize("room", [0, 1 << 10, 20 << 10, 40 << 10])
def test_no_limit_is_exceeded(regressed: Any, room: int) -> None:
    limit = INDEX + room
    regressed.run("--npudump-artifacts=art", f"--npudump-artifacts-limit={limit}")
    session = regressed.path / "art" / "session-1"
    assert sum(files(session).values()) <= limit
    assert json.loads((session / "artifacts.json").read_bytes())["left_out_in_all"]["files"]


def test_index_of_many_files_names_the_largest_and_counts_all(regressed: Any, monkeypatch: Any) -> None:
    log = regressed.path / "log"
    log.mkdir()
    for number in range(400):
        path = log / f"plog-{number}-{'x' * 60}.log"
        path.write_bytes(b"x" * (30_000 + number))
        os.utime(path, (1 << 33, 1 << 33))
    monkeypatch.setenv("ASCEND_PROCESS_LOG_PATH", str(log))
    regressed.run("--npudump-artifacts=art", f"--npudump-artifacts-limit={INDEX + 20_000}")
    content = (regressed.path / "art" / "session-1" / "artifacts.json").read_bytes()
    index = json.loads(content)
    assert len(content) <= INDEX
    assert index["left_out_in_all"]["files"] > 400 > len(index["left_out"]) > 50
    assert index["left_out"][1]["bytes"] in {30_398, 30_399}


def test_what_cann_logged_before_the_session_is_not_gathered(
    regressed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = regressed.path / "log"
    log.mkdir()
    log.joinpath("old.log").write_text("old")
    os.utime(log / "old.log", (1, 1))
    log.joinpath("plog.log").write_text("new")
    os.utime(log / "plog.log", (1 << 33, 1 << 33))
    monkeypatch.setenv("ASCEND_PROCESS_LOG_PATH", str(log))
    regressed.run("--npudump-artifacts=art")
    assert list(files(regressed.path / "art" / "session-1" / "log")) == ["plog.log"]


def test_passing_session_leaves_no_dumps(regressed: Any) -> None:
    regressed.model()
    regressed.run("--npudump-artifacts=art").assert_outcomes(passed=1)
    assert not (regressed.path / "art" / "session-1" / "tests").exists()


def test_folder_that_cannot_be_made_is_told_and_fails_nothing(regressed: Any) -> None:
    regressed.model()
    regressed.path.joinpath("art").write_text("a file")
    result = regressed.run("--npudump-artifacts=art")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["npudump: artifacts cannot be gathered in *art: *"])
