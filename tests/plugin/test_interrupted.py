"""Whatever ends a run or leaves it no room, what was found by then is told, and lies in its files."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from pytest_npudump.regression import second_run
from tests.plugin.conftest import Project, held, is_gone, wait_for

pytestmark = pytest.mark.e2e
FOUND = "npudump: block/conv.2: weights changed *block/conv.2:output.0 *"
DUMPS = "--npudump-output=."
AGAIN = """
def again():
    '''Whether this is the second run.'''
    folder, = Path("dumps").glob("*")
    return (folder / "run2").exists()

def reported():
    folder, = Path("dumps").glob("*")
    return (folder / "report.json").exists()
"""


# Whoever runs these tests in the background, or with nohup, has signals ignored.
HEED = (
    "import os, signal, sys; open('session', 'w').write(str(os.getpid())); "
    "signal.signal(signal.SIGINT, signal.default_int_handler); "
    "[signal.signal(number, signal.SIG_DFL) for number in (1, 15)]; "
    "import pytest; sys.exit(pytest.main(sys.argv[1:]))"
)
PYTEST = ("-c", HEED, "--npudump-runtime=emulator", DUMPS)


def interrupted(project: Project, body: str, marker: str = "", before: str = "") -> None:
    """Make a test of which the second run executes ``body``, and whose first run fails."""
    lines = "".join(f"\n        {line}" for line in body.splitlines())
    project.test_file(
        f"import os, signal, sys, time\nfrom pathlib import Path\n{AGAIN}\n{before}\n"
        f"@pytest.mark.npu_dump({marker})\ndef test_small(npu_dump):\n{project.body}\n"
        f"    if again():{lines}\n\ndef test_other():\n    pass\n"
    )
    project.record(DUMPS, "-onpudump_repeats=1")
    project.model(change=0.01)


def run(project: Project, *options: str) -> pytest.RunResult:
    """Run the project in a process of its own, as pytest's own tests do where a session is interrupted."""
    forked = project.pytester._getpytestargs()[:-1]
    return project.pytester.run(*forked, *PYTEST, *options)


def told(project: Project, *, killed: bool = False) -> str:
    """What the report files say of the second run; they have to hold what the first one found.

    The text is written once all is known, which a session that was killed has not come to.
    """
    report = project.report()
    texts = [path.read_text() for path in (project.path / "dumps").rglob("report.txt")]
    assert len(texts) == (not killed)
    assert all(text.startswith("npudump: block/conv.2: weights changed ") for text in texts)
    assert json.loads(json.dumps(report))["comparison"]["summary"]["failed"] == 2
    return str(report["escalation"]["problem"])  # type: ignore[index]


ENDINGS = [
    ("pytest.exit('the card is gone')", "ended by pytest.exit: the card is gone", "*Exit: the card is gone*"),
    ("os.kill(os.getpid(), signal.SIGINT)\ntime.sleep(60)", "ended by Ctrl-C", "*KeyboardInterrupt*"),
    ("os.kill(os.getpid(), signal.SIGTERM)\ntime.sleep(60)", "ended by SIGTERM", "*KeyboardInterrupt*"),
]


@pytest.mark.parametrize(("line", "words", "end"), ENDINGS, ids=["exit", "SIGINT", "SIGTERM"])
def test_end_of_the_session_in_the_second_run_s_body(
    project: Project, line: str, words: str, end: str
) -> None:
    interrupted(project, f"assert reported()\n{line}")
    result = run(project, "--junitxml=j.xml")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([FOUND, f"second run: {words}", "npudump: 0 of 1 tests passed, *", end])
    assert told(project) == words
    (case,) = ET.parse(project.path / "j.xml").iter("testcase")  # noqa: S314 - written by pytest
    assert len(case.findall("failure")) == 1


def test_end_of_the_session_between_the_runs(project: Project) -> None:
    """A termination tells what the first one found."""
    terminated = "os.kill(os.getpid(), signal.SIGTERM)\n        time.sleep(60)"
    for end, shows in (
        ("raise KeyboardInterrupt", [FOUND, "*KeyboardInterrupt*"]),
        (terminated, [FOUND, "second run: ended by SIGTERM", "*KeyboardInterrupt*"]),
    ):
        project.model()
        interrupted(project, "pass", before=STOPPED.format(last="True", end=end))
        (project.path / "stop").touch()
        held(run(project), shows, failed=1)
        assert not list(project.path.glob("dumps/*/run2"))
        if end == terminated:
            assert told(project) == "ended by SIGTERM"
        (project.path / "stop").unlink()
        shutil.rmtree(project.path / "dumps")


STOPPED = """
@pytest.fixture(autouse=True)
def stopped():
    yield
    if Path('stop').exists() and {last}:
        {end}
"""


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
    for isolation, places in {
        "auto": (("body", 0), ("teardown", 0), ("later", 0), ("body", 7), ("later", 7)),
        "process": (("body", 0), ("later", 0)),
    }.items():
        for where, code in places:
            (project.path / where).write_text(str(code))
            result = project.run(DUMPS, f"-onpudump_isolation={isolation}", "-onpudump_escalate=off")
            (project.path / where).unlink()
            failed = where != "body"
            result.assert_outcomes(failed=int(failed))
            zero = pytest.ExitCode.TESTS_FAILED if failed else pytest.ExitCode.INTERRUPTED
            assert result.ret == (code or zero), (isolation, where, code)
            result.stdout.fnmatch_lines(["npudump: 0 of 1 tests passed, *" if failed else NOT_COMPARED])
            assert ("was not compared" in (project.path / "summary.md").read_text()) is not failed


def test_exception_that_is_no_error_leaves_the_first_run_s_failure(project: Project) -> None:
    """So does a second run that cannot be examined."""
    interrupted(project, "class Odd(BaseException): pass\nraise Odd")
    project.run(DUMPS, failed=1, passed=1, shows=[FOUND, "second run: body of the second run: *"])

    def examine(*_: object) -> None:
        pytest.fail("Timeout (>1.0s) from pytest-timeout.")

    project.patch.setattr(second_run, "explain", examine)
    project.model()
    shutil.rmtree(project.path / "dumps")
    interrupted(project, "pass")
    shows = [FOUND, "second run: it could not be examined: Failed: Timeout (>1.0s) *"]
    project.run(DUMPS, failed=1, passed=1, shows=shows)


def start(project: Project, *options: str) -> subprocess.Popen[str]:
    """Run the project in a process of its own, and return once the test has made the file ``second``."""
    process = subprocess.Popen(
        [*project.pytester._getpytestargs()[:-1], *PYTEST, *options],
        cwd=project.path,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        text=True,
    )
    wait_for(lambda: (project.path / "second").exists() or process.poll() is not None)
    assert process.poll() is None, process.communicate()[0]
    return process


def send(project: Project, number: signal.Signals) -> None:
    """Send a signal to the session, which its client outlives."""
    os.kill(int((project.path / "session").read_text()), number)


SLEEPS = "Path('pid').write_text(str(os.getpid()))\nPath('second').touch()\ntime.sleep(100)"


@pytest.mark.parametrize(
    ("number", "isolation"),
    [(signal.SIGTERM, "process"), (signal.SIGKILL, "none"), (signal.SIGKILL, "process")],
)
def test_signal_to_pytest_in_the_second_run(project: Project, number: signal.Signals, isolation: str) -> None:
    interrupted(project, SLEEPS, marker=f"isolation={isolation!r}")
    process = start(project)
    send(project, number)
    out = process.communicate(timeout=60)[0]
    if number is signal.SIGKILL:
        assert told(project, killed=True) == "it has not ended yet"
    else:
        assert process.returncode == pytest.ExitCode.INTERRUPTED
        assert told(project) == "ended by SIGTERM"
        assert "npudump: block/conv.2: weights changed " in out
        assert "second run: ended by SIGTERM" in out
    wait_for(lambda: is_gone(int((project.path / "pid").read_text())))


@pytest.mark.parametrize(
    ("arguments", "isolation"),
    [("", "none"), ("golden_tensors=['block/*'], ", "process")],
    ids=["one run", "two processes"],
)
def test_kill_between_the_recording_and_the_end_of_the_teardown_leaves_the_old_golden(
    project: Project, arguments: str, isolation: str
) -> None:
    fixture = STOPPED.format(last="again()" if arguments else "True", end=SLEEPS.replace("\n", "; "))
    interrupted(project, "pass", f"{arguments}isolation={isolation!r}", fixture)
    old = {path.name: path.read_bytes() for path in project.golden.parent.iterdir()}
    (project.path / "stop").touch()
    process = start(project, "--npudump-update-golden")
    send(project, signal.SIGKILL)
    process.communicate(timeout=60)
    wait_for(lambda: is_gone(int((project.path / "pid").read_text())))
    left = {path.name: path.read_bytes() for path in project.golden.parent.iterdir()}
    assert {name: left[name] for name in old} == old
    assert all(name.startswith(".npudump-") for name in left.keys() - old.keys())
    (project.path / "stop").unlink()
    shutil.rmtree(project.path / "dumps")
    assert "1 recorded" in project.run(DUMPS, "--npudump-update-golden").stdout.str()
    assert {path.name for path in project.golden.parent.iterdir()} == old.keys()
    project.run(DUMPS, passed=2)


FILES = """
import resource, sys
def allow(size):
    '''Let files of this process grow to so many bytes; writing more fails, as on a full disk.'''
    sys.dont_write_bytecode = True  # what is cut off would be read by the next process
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
"""


@pytest.fixture
def tiny(project: Project) -> Iterator[Path]:
    """A file system of 12 KiB, which holds the configuration of a dump and not the dump."""
    folder = project.path / "tiny"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=12k", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("a small file system can be mounted by root only")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_model_whose_dump_could_not_be_written_did_run(project: Project) -> None:
    """A dump that cannot be prepared fails the test's setup."""
    body = project.body.replace("        model.run(image)", "        allow(20)\n        model.run(image)")
    guarded = body.replace("\n", "\n    ")
    no_limit = "allow(resource.RLIM_INFINITY)\n"
    mark = "\n@pytest.mark.npu_dump\ndef test_small(npu_dump):\n"
    project.test_file(f"{FILES}{mark}    try:{guarded}\n    finally:\n        {no_limit}")
    shows = [
        "*the dump cannot be written: *File too large*",
        "the test's body did not pass: its dump was not compared",
        "loaded under the dump: small.onnx, no execution succeeded",
        "npudump: 0 of 1 tests passed, 1 not compared (emulator); see npudump --explain",
    ]
    project.run(failed=1, shows=shows)
    fixture = "\n@pytest.fixture(scope='module', autouse=True)\ndef limited():\n    yield\n"
    first = "\ndef test_first(limited):\n    allow(10)\n"
    project.test_file(f"{FILES}{fixture}    {no_limit}{first}{mark}{project.body}")
    words = "npudump: *run1: the dump cannot be prepared: File too large; free space *"
    project.run(passed=1, errors=1, shows=words)


@pytest.mark.parametrize("isolation", ["none", "process"])
def test_full_disk_is_named(project: Project, tiny: Path, isolation: str) -> None:
    project.marked(f"isolation={isolation!r}")
    (tiny / "filler").write_bytes(bytes(8192 if isolation == "process" else 4096))
    result = project.run(
        "--npudump-output=tiny",
        failed=1,
        shows="*the file system of *tiny/dumps/* is full (* bytes are free)*",
    )
    result.stdout.fnmatch_lines(["npudump: 0 of 1 tests passed, * (emulator); see npudump --explain"])
