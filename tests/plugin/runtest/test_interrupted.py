"""Whatever ends the second run, what the first one found is told, and lies in its files."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest

from pytest_npudump.regression import session

if TYPE_CHECKING:
    from conftest import Project

pytestmark = pytest.mark.e2e

FOUND = "npudump: block/conv.2 (Conv output.0) differs: *"
DUMPS = "--npudump-dump-dir=dumps"
AGAIN = """
def again():
    '''Whether this is the second run.'''
    folder, = Path("dumps").glob("*")
    return (folder / "run2").exists()

def reported():
    folder, = Path("dumps").glob("*")
    return (folder / "report.txt").exists() and (folder / "report.json").exists()
"""


# Whoever runs these tests in the background, or with nohup, has signals ignored.
HEED = (
    "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "[signal.signal(number, signal.SIG_DFL) for number in (1, 15)]; "
    "import pytest; sys.exit(pytest.main(sys.argv[1:]))"
)
PYTEST = (sys.executable, "-c", HEED, "--npudump-runtime=emulator", DUMPS)


def interrupted(project: Project, body: str, marker: str = "", before: str = "") -> None:
    """Make a test of which the second run executes ``body``, and whose first run fails."""
    lines = "".join(f"\n        {line}" for line in body.splitlines())
    project.test_file(
        f"import os, signal, sys, time\nfrom pathlib import Path\n{AGAIN}\n{before}\n"
        f"@pytest.mark.npu_dump({marker})\ndef test_small(npu_dump):\n{project.body}\n"
        f"    if again():{lines}\n\ndef test_other():\n    pass\n"
    )
    project.record(DUMPS, "--npudump-repeats=1")
    project.model(change=0.01)


def run(project: Project, *options: str) -> pytest.RunResult:
    """Run the project in a process of its own, as pytest's own tests do where a session is interrupted."""
    return project.pytester.run(*PYTEST, *options)


def told(project: Project) -> str:
    """What the report files say of the second run; both have to hold what the first one found."""
    report = project.report()
    (text,) = (project.path / "dumps").rglob("report.txt")
    assert text.read_text().startswith("npudump: block/conv.2 (Conv output.0) differs: ")
    assert json.loads(json.dumps(report))["comparison"]["summary"]["failed"] == 2
    return str(report["escalation"]["problem"])  # type: ignore[index]


ENDINGS = [
    ("raise KeyboardInterrupt", "ended by Ctrl-C", "*KeyboardInterrupt*"),
    ("pytest.exit('the card is gone')", "ended by pytest.exit: the card is gone", "*Exit: the card is gone*"),
    ("os.kill(os.getpid(), signal.SIGINT)\ntime.sleep(60)", "ended by Ctrl-C", "*KeyboardInterrupt*"),
    ("os.kill(os.getpid(), signal.SIGTERM)\ntime.sleep(60)", "ended by SIGTERM", "*KeyboardInterrupt*"),
]


@pytest.mark.parametrize(("line", "words", "end"), ENDINGS, ids=["raised", "exit", "SIGINT", "SIGTERM"])
def test_end_of_the_session_in_the_second_run_s_body(
    project: Project, line: str, words: str, end: str
) -> None:
    interrupted(project, f"assert reported()\n{line}")
    result = run(project, "--junitxml=j.xml")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([FOUND, f"second run: {words}", "npudump: 0 of 1 tests good, *", end])
    assert told(project) == words
    (case,) = ET.parse(project.path / "j.xml").iter("testcase")  # noqa: S314 - written by pytest
    assert len(case.findall("failure")) == 1


@pytest.mark.parametrize("when", ["setup", "teardown"])
def test_end_of_the_session_in_a_fixture_of_the_second_run(project: Project, when: str) -> None:
    stop = "    if list(Path('dumps').glob('*/run2')):\n        raise KeyboardInterrupt\n"
    before = stop if when == "setup" else ""
    after = stop if when == "teardown" else ""
    fixture = f"@pytest.fixture(autouse=True)\ndef stopped():\n{before}    yield\n{after}"
    interrupted(project, "pass", before=fixture)
    result = run(project)
    result.assert_outcomes(failed=1)
    reproduced = "the failure reproduced (5 layers dumped as tensors)"
    result.stdout.fnmatch_lines(
        [FOUND, f"second run: {'ended by Ctrl-C' if when == 'setup' else reproduced}", "*KeyboardInterrupt*"]
    )


@pytest.mark.parametrize("escalate", ["on", "off"])
def test_end_of_the_session_between_the_runs(project: Project, escalate: str) -> None:
    fixture = (
        "@pytest.fixture(autouse=True)\ndef stopped():\n    yield\n"
        "    if Path('stop').exists():\n        raise KeyboardInterrupt\n"
    )
    interrupted(project, "pass", before=fixture)
    (project.path / "stop").touch()
    result = run(project, f"--npudump-escalate={escalate}")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([FOUND, "*KeyboardInterrupt*"])
    assert not list(project.path.glob("dumps/*/run2"))


def test_termination_in_the_first_run_s_teardown_tells_what_it_found(project: Project) -> None:
    fixture = (
        "@pytest.fixture(autouse=True)\ndef stopped():\n    yield\n"
        "    if Path('stop').exists():\n"
        "        os.kill(os.getpid(), signal.SIGTERM)\n        time.sleep(60)\n"
    )
    interrupted(project, "pass", before=fixture)
    (project.path / "stop").touch()
    result = run(project)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([FOUND, "second run: ended by SIGTERM", "*KeyboardInterrupt*"])
    assert told(project) == "ended by SIGTERM"


def test_interrupted_first_run_is_told_as_ever(project: Project) -> None:
    project.marked(body=f"{project.body}\n    raise KeyboardInterrupt\n")
    result = run(project)
    result.assert_outcomes()
    result.stdout.fnmatch_lines(["*KeyboardInterrupt*"])


NOT_COMPARED = "npudump: the session ended in test_small.py::test_small, which was not compared: *"


ENDS = """
from pathlib import Path

def ends(where):
    if Path(where).exists():
        pytest.exit("x", returncode=int(Path(where).read_text()))

@pytest.fixture
def ended():
    yield
    ends("teardown")
"""


def test_exit_with_0_in_or_behind_a_marked_test_that_fails_does_not_end_with_0(project: Project) -> None:
    project.test_file(
        f"{ENDS}\n@pytest.mark.npu_dump\ndef test_small(npu_dump, ended):\n{project.body}\n    ends('body')\n"
        "def test_z():\n    ends('later')\n"
    )
    project.record(DUMPS)
    project.model(change=0.01)
    for isolation in ("auto", "process"):
        for where, code in (("body", 0), ("teardown", 0), ("later", 0), ("body", 7), ("later", 7)):
            (project.path / where).write_text(str(code))
            result = project.run(DUMPS, f"--npudump-isolation={isolation}", "--npudump-summary=s.md")
            (project.path / where).unlink()
            failed = where != "body"
            result.assert_outcomes(failed=int(failed))
            zero = pytest.ExitCode.TESTS_FAILED if failed else pytest.ExitCode.INTERRUPTED
            assert result.ret == (code or zero), (isolation, where, code)
            result.stdout.fnmatch_lines(["npudump: 0 of 1 tests good, *" if failed else NOT_COMPARED])
            assert ("was not compared" in (project.path / "s.md").read_text()) is not failed


def test_exit_with_0_in_a_marked_test_that_is_good_is_left_as_it_is(project: Project) -> None:
    project.marked()
    project.run("--npudump-update-golden", DUMPS)
    project.test_file("import pytest\n\ndef test_z():\n    pytest.exit('x', returncode=0)\n", "test_z.py")
    result = run(project)
    assert result.ret == 0
    result.stdout.fnmatch_lines(["npudump: 1 of 1 tests good, *"])


@pytest.mark.parametrize("line", ["raise SystemExit(3)", "class Odd(BaseException): pass\nraise Odd"])
def test_exception_that_is_no_error_leaves_the_first_run_s_failure(project: Project, line: str) -> None:
    interrupted(project, line)
    result = project.run(DUMPS)
    result.assert_outcomes(failed=1, passed=1)
    result.stdout.fnmatch_lines([FOUND, "second run: body of the second run: *"])


def test_second_run_that_cannot_be_examined_leaves_the_first_run_s_failure(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    def examine(*_: object) -> None:
        pytest.fail("Timeout (>1.0s) from pytest-timeout.")

    monkeypatch.setattr(session, "examine_second_run", examine)
    interrupted(project, "pass")
    result = project.run(DUMPS)
    result.assert_outcomes(failed=1, passed=1)
    result.stdout.fnmatch_lines([FOUND, "second run: it could not be examined: Failed: Timeout (>1.0s) *"])


def start(project: Project, *options: str) -> subprocess.Popen[str]:
    """Run the project in a process of its own, and return once the test has made the file ``second``."""
    process = subprocess.Popen(
        [*PYTEST, *options],
        cwd=project.path,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        text=True,
    )
    until = time.monotonic() + 100
    while not (project.path / "second").exists():
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < until
        time.sleep(0.05)
    return process


@pytest.mark.parametrize("isolation", ["none", "process"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_signal_to_pytest_in_the_second_run(project: Project, number: signal.Signals, isolation: str) -> None:
    interrupted(
        project,
        "Path('pid').write_text(str(os.getpid()))\nPath('second').touch()\ntime.sleep(100)",
        marker=f"isolation={isolation!r}",
    )
    process = start(project)
    process.send_signal(number)
    out = process.communicate(timeout=60)[0]
    if number is signal.SIGKILL:
        assert told(project) == "it had not ended when this was written"
    else:
        assert process.returncode == pytest.ExitCode.INTERRUPTED
        words = "ended by Ctrl-C" if number is signal.SIGINT else "ended by SIGTERM"
        assert told(project) == words
        assert "npudump: block/conv.2 (Conv output.0) differs: " in out
        assert f"second run: {words}" in out
    pid = Path(project.path / "pid").read_text()
    until = time.monotonic() + 30
    while _lives(pid):
        assert time.monotonic() < until, "the second run's process lives on"
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("arguments", "isolation"),
    [("", "none"), ("golden_tensors=['block/*'], ", "none"), ("golden_tensors=['block/*'], ", "process")],
    ids=["one run", "two runs", "two processes"],
)
def test_kill_between_the_recording_and_the_end_of_the_teardown_leaves_the_old_golden(
    project: Project, arguments: str, isolation: str
) -> None:
    last = "True" if not arguments else "again()"
    fixture = (
        "@pytest.fixture(autouse=True)\ndef stopped():\n    yield\n"
        f"    if Path('stop').exists() and {last}:\n"
        "        Path('pid').write_text(str(os.getpid()))\n"
        "        Path('second').touch()\n        time.sleep(100)\n"
    )
    interrupted(project, "pass", f"{arguments}isolation={isolation!r}", fixture)
    old = {path.name: path.read_bytes() for path in project.golden.parent.iterdir()}
    (project.path / "stop").touch()
    process = start(project, "--npudump-update-golden")
    process.kill()
    process.communicate(timeout=60)
    until = time.monotonic() + 30
    while _lives(Path(project.path / "pid").read_text()):
        assert time.monotonic() < until, "the process of the test lives on"
        time.sleep(0.05)
    left = {path.name: path.read_bytes() for path in project.golden.parent.iterdir()}
    assert {name: left[name] for name in old} == old
    assert all(name.startswith(".npudump-") for name in left.keys() - old.keys())
    (project.path / "stop").unlink()
    shutil.rmtree(project.path / "dumps")
    assert "1 recorded" in project.run(DUMPS, "--npudump-update-golden").stdout.str()
    assert {path.name for path in project.golden.parent.iterdir()} == old.keys()
    project.run(DUMPS).assert_outcomes(passed=2)


def _lives(pid: str) -> bool:
    return Path(f"/proc/{pid}/cmdline").exists() and bool(Path(f"/proc/{pid}/cmdline").read_bytes())
