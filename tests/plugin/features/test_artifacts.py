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
    project.recorded(change=0.1)
    project.pytester.makeini("[pytest]\naddopts = --strict-markers\n")
    return project


def files(folder: Path) -> dict[str, int]:
    found = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.stat().st_size for path in found}


def test_failed_session_leaves_all_that_was_dumped_and_said(regressed: Any) -> None:
    regressed.run(
        *("--npudump-artifacts=art", "--npudump-dump-dir=dumps", "--npudump-summary=summary.md"),
        "--junitxml=junit.xml",
        shows="npudump: artifacts are in *art/session-1: * KiB",
    )
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


def test_limit_is_of_all_sessions_of_a_job(regressed: Any) -> None:
    regressed.run("--npudump-artifacts=art")
    first = files(regressed.path / "art")
    tensors = [name for name in first if name.startswith("session-1/tests/") and not name.endswith(TEXT)]
    largest = max(first[name] for name in tensors)
    used = sum(first.values())

    def left_out(folder: str, room: int, *options: str) -> list[dict[str, Any]]:
        limit = f"--npudump-artifacts-limit={room}"
        regressed.run(
            f"--npudump-artifacts={folder}", limit, *options, shows="*over the limit, and left out: *"
        )
        assert sum(files(regressed.path / folder).values()) <= room
        index = max((regressed.path / folder).glob("session-*/artifacts.json"))
        found = json.loads(index.read_bytes())
        assert found["left_out_in_all"]["files"]
        return list(found["left_out"])

    room = used - first["session-1/artifacts.json"] + INDEX - largest // 2
    assert [one["bytes"] for one in left_out("some", room)] == [largest]
    for room in (0, 1 << 10, 40 << 10):
        left_out(f"art{room}", INDEX + room)
    assert "report.html" in {one["file"] for one in left_out("art", used + INDEX + 4096)}
    assert (regressed.path / "art" / "session-2" / "summary.md").exists()
    words = "npudump: artifacts are not gathered: *art has *; remove what is there, or *"
    regressed.run("--npudump-artifacts=art", f"--npudump-artifacts-limit={used}", shows=words)
    assert not (regressed.path / "art" / "session-3").exists()
    regressed.model()
    regressed.run("--npudump-artifacts=good", passed=1)
    assert not (regressed.path / "good" / "session-1" / "tests").exists()
    regressed.path.joinpath("file").write_text("a file")
    words = "npudump: artifacts cannot be gathered in *file: *"
    assert regressed.run("--npudump-artifacts=file", shows=words).ret == 0


def test_index_of_many_files_names_the_largest_and_counts_all(regressed: Any, monkeypatch: Any) -> None:
    log = regressed.path / "log"
    log.mkdir()
    for number in range(400):
        path = log / f"plog-{number}-{'x' * 60}.log"
        path.write_bytes(b"x" * (30_000 + number))
        os.utime(path, (1 << 33, 1 << 33))
    log.joinpath("old.log").write_text("from before the session")
    os.utime(log / "old.log", (1, 1))
    monkeypatch.setenv("ASCEND_PROCESS_LOG_PATH", str(log))
    regressed.run("--npudump-artifacts=art", f"--npudump-artifacts-limit={INDEX + 20_000}")
    content = (regressed.path / "art" / "session-1" / "artifacts.json").read_bytes()
    index = json.loads(content)
    assert len(content) <= INDEX
    assert index["left_out_in_all"]["files"] > 400 > len(index["left_out"]) > 50
    assert index["left_out"][1]["bytes"] in {30_398, 30_399}
    assert "old.log" not in str(index)
