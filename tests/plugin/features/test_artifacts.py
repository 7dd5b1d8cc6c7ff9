"""The output folder: all that sessions leave for a person, and what a limit leaves out of it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from pytest_npudump.results.folder import ResultsFolder
from tests.plugin.conftest import Project

TEXT = (".txt", ".json", ".csv", ".md", ".html")
PARTS = {"results", "dumps", "report", "summary.md", "session.json"}


@pytest.fixture
def regressed(project: Project) -> Project:
    project.recorded(change=0.1)
    project.pytester.makeini("[pytest]\naddopts = --strict-markers\nnpudump_output = out\n")
    return project


def files(folder: Path) -> dict[str, int]:
    found = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.stat().st_size for path in found}


def test_sessions_share_a_folder_and_the_last_one_has_page_and_summary(regressed: Project) -> None:
    out = regressed.path / "out"
    regressed.run()
    first = files(out / "dumps")
    regressed.run()
    both = files(out / "dumps")
    assert first.items() <= {name: both[name] for name in first}.items()
    assert len(both) == 2 * len(first)
    regressed.model()
    regressed.run("--npudump-report", passed=1)
    assert (out / "summary.md").read_text("utf-8").startswith("### ✅")
    assert files(out / "dumps") == both
    assert [entry.status for entry in ResultsFolder(out / "results").read().entries] == ["passed"]


def test_a_limit_leaves_the_largest_dumps_of_the_session_out_and_names_them(regressed: Project) -> None:
    out = regressed.path / "out"
    regressed.run()
    first = files(out)
    tensors = [name for name in first if name.startswith("dumps/") and not name.endswith(TEXT)]
    sizes = sorted((first[name] for name in tensors), reverse=True)

    def run(room: int, shows: str) -> dict[str, Any]:
        regressed.run(f"-onpudump_output_limit={room}", shows=f"npudump: *{shows}*")
        found: dict[str, Any] = json.loads((out / "session.json").read_bytes())
        assert found["limit"] == room
        return found

    dumped = sum(size for name, size in first.items() if name.startswith("dumps/"))
    room = sum(first.values()) + dumped - sizes[0] - sizes[1]
    told = run(room, "out: over npudump_output_limit (*), left out: ")
    left_out = [one["bytes"] for one in told["left_out"]]
    assert left_out == sizes[: len(left_out)]
    assert 1 <= len(left_out) < len(sizes)
    assert sum(files(out).values()) <= room + 2 * first["session.json"]
    before = files(out)
    told = run(0, "out: *, and npudump_output_limit is 0 B; remove dumps of earlier sessions, or give more")
    after = files(out)
    assert told["left_out_in_all"]["files"] == len(told["left_out"]) == len(tensors)
    assert {name for name in before if name.startswith("dumps/")} <= after.keys()
    fresh = {name for name in after.keys() - before.keys() if name.startswith("dumps/")}
    assert all(name.endswith(TEXT) for name in fresh)


def test_log_of_a_failed_session_is_copied_and_trouble_fails_nothing(regressed: Project) -> None:
    log = regressed.path / "cann" / "run"
    log.mkdir(parents=True)
    for name, time in {"new.log": 1 << 33, "old.log": 1}.items():
        log.joinpath(name).write_text("said")
        os.utime(log / name, (time, time))
    regressed.patch.setenv("ASCEND_PROCESS_LOG_PATH", str(log.parent))
    regressed.run()
    assert files(regressed.path / "out" / "log") == {"run/new.log": 4}
    regressed.model()
    regressed.run("--npudump-output=good", passed=1)
    assert not (regressed.path / "good" / "log").exists()
    regressed.path.joinpath("file").write_text("a file")
    words = "npudump: results are not saved: *"
    assert regressed.run("--npudump-output=file", passed=0, errors=1, shows=words).ret == 1


def test_a_page_has_no_place_without_a_cache(regressed: Project) -> None:
    regressed.pytester.makeini("[pytest]\n")
    regressed.refused(
        "*--npudump-report needs pytest's cache or --npudump-output",
        "-p",
        "no:cacheprovider",
        "--npudump-report",
    )
    words = "npudump: report: *.pytest_cache/d/npudump/report/index.html"
    regressed.run("--npudump-report", failed=1, shows=words)
