"""What long work shows on a real terminal, and in a log."""

from __future__ import annotations

import os
import subprocess

import pytest

from pytest_npudump.plugin import terminal
from tests.plugin.conftest import Project

IMPATIENT = """
from pytest_npudump.plugin import terminal
terminal.PATIENCE = terminal.SILENCE = 0.0
"""


def on_a_terminal(project: Project, *options: str, columns: str = "120") -> str:
    """Run pytest in a project, where its output is a terminal; what was drawn there."""
    here, there = os.openpty()
    words = ["-p", "no:cacheprovider", "--npudump-runtime=emulator", "--npudump-output=.", *options]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": columns, "PYTEST_ADDOPTS": ""}
    child = subprocess.Popen(
        [*project.pytester._getpytestargs(), *words],
        cwd=project.path,
        stdin=there,
        stdout=there,
        stderr=there,
        env=environment,
    )
    os.close(there)
    drawn = b""
    try:
        while piece := os.read(here, 1 << 16):
            drawn += piece
    except OSError:  # how Linux tells that the other side is closed
        pass
    os.close(here)
    child.wait()
    return drawn.decode()


@pytest.fixture
def failing(project: Project) -> Project:
    """A project whose test fails, and dumps tensors in a second run."""
    project.recorded(change=0.5)
    return project


@pytest.mark.e2e
@pytest.mark.skipif(os.name != "posix", reason="no pseudo terminals here")
@pytest.mark.parametrize("options", [(), ("-s",), ("-onpudump_isolation=process",)])
def test_a_terminal_shows_each_step_of_a_failing_test_in_one_line(
    failing: Project, options: tuple[str, ...]
) -> None:
    failing.path.joinpath("conftest.py").write_text(IMPATIENT)
    drawn = on_a_terminal(failing, *options)
    assert "\rnpudump: run 2 of test_small.py::test_small" in drawn
    if not options:
        assert "\rnpudump: reading the dump, " in drawn
        assert "\rnpudump: comparing the tensors of the second run, " in drawn
    assert "1 failed" in drawn


@pytest.mark.e2e
@pytest.mark.skipif(os.name != "posix", reason="no pseudo terminals here")
def test_what_ended_a_test_fits_a_terminal_but_for_paths_and_commands(project: Project) -> None:
    project.marked("layers=['block*']")
    project.model()
    drawn = on_a_terminal(project, "--color=no", columns="80")
    own = [line for line in drawn.partition("collected 1 item")[2].splitlines() if "pytest " not in line]
    assert any(line.startswith("npudump: no golden file") for line in own)
    assert [line for line in own if len(line) > 80 and " /" not in line] == []


def test_a_log_has_whole_lines_of_long_work_from_who_prints(failing: Project) -> None:
    """Quick work says nothing."""
    failing.run("--npudump-output=.", hides=["npudump: run *", "npudump: reading *"])
    failing.patch.setattr(terminal, "PATIENCE", 0.0)
    failing.patch.setattr(terminal, "SILENCE", 0.0)
    shown = failing.run("--npudump-output=.").stdout
    shown.fnmatch_lines(["npudump: run 2 of test_small.py::test_small"], consecutive=True)
    for options in (("-qq",), ("-p", "no:terminal"), ("-n1",)):
        failing.run("--npudump-output=.", *options, hides="npudump: run *")
