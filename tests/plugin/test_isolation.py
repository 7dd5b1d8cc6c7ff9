"""Tests in processes of their own: everything comes back as if they had run here, and a death is told."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tests.golden.tensor_files import load_tensors
from tests.plugin.conftest import Project, held, is_gone, wait_for
from tests.plugin.test_interrupted import PYTEST, send

pytestmark = pytest.mark.e2e


IN_BODY = """
import os, pathlib, signal, sys, time, warnings
def note(text):
    with open({log!r}, "a") as file:
        file.write(f"{{text}} {{os.getpid()}}\\n")
"""


def isolated(project: Project, body: str, marker: str = 'isolation="process"', before: str = "") -> Path:
    """Write one isolated test whose body ends with ``body``; return the log that ``note`` writes to."""
    log = project.path / "log.txt"
    project.test_file(
        IN_BODY.format(log=str(log))
        + before
        + f"\n@pytest.mark.npu_dump({marker})\ndef test_small(npu_dump, record_property):\n    note('body')\n"
        + project.body
        + "\n"
        + "\n".join(f"    {line}" for line in body.splitlines())
    )
    return log


def pids(log: Path, word: str) -> list[int]:
    return [int(line.split()[1]) for line in log.read_text().splitlines() if line.split()[0] == word]


def several(project: Project, bodies: dict[str, tuple[str, str]], before: str) -> Path:
    """Write an isolated test of each name, marks and last lines; return the log that ``note`` writes to."""
    log = project.path / "log.txt"
    text = IN_BODY.format(log=str(log)) + before
    for name, (marks, body) in bodies.items():
        lines = "".join(f"    {line}\n" for line in body.splitlines())
        text += (
            f"\n{marks or ISOLATED}\ndef test_{name}(npu_dump):\n    note('{name}')\n{project.body}\n{lines}"
        )
    project.test_file(text)
    return log


@pytest.mark.usefixtures("anew")
def test_output_warnings_properties_and_duration_come_back(project: Project) -> None:
    isolated(
        project,
        "print('said in the body')\nos.write(2, b'written past Python')\nwarnings.warn('mind this')\n"
        "record_property('answer', np.float32(42))\ntime.sleep(0.2)\nassert project_option == 'given'",
        before="@pytest.fixture(autouse=True)\ndef option(request):\n"
        "    global project_option\n    project_option = request.config.getoption('--mine')\n",
    )
    option = "def pytest_addoption(parser):\n    parser.addoption('--mine')\n"
    project.path.joinpath("conftest.py").write_text(option)
    given = ("--npudump-update-golden", "--mine=given", "--junitxml=j.xml")
    assert project.run(*given, shows="*UserWarning: mind this").ret == 0
    (case,) = ET.parse(project.path / "j.xml").iter("testcase")  # noqa: S314 - written by pytest
    properties = {found.get("name"): found.get("value") for found in case.iter("property")}
    assert properties["answer"] == "42.0"
    assert float(str(case.get("time"))) > 0.2
    wrong = "*AssertionError: assert 'other' == 'given'"
    shows = [wrong, "*", "*Captured stdout call*", "said in the body"]
    failed = project.run("--npudump-update-golden", "--mine=other", shows=shows)
    failed.stdout.fnmatch_lines(["*Captured stderr call*", "written past Python"])
    failed.stdout.fnmatch_lines(["the test's body did not pass: its dump was not compared"])


ISOLATED = "@pytest.mark.npu_dump(isolation='process')"
OUTCOMES = {
    "limited": ("@pytest.mark.npu_dump(isolation=60)", ""),
    "skips": ("", "pytest.skip('no reason')"),
    "xfails": ("", "pytest.xfail('known')"),
    "fails": ("", "assert 0"),
    "marked": (f"@pytest.mark.skip(reason='not today')\n{ISOLATED}", ""),
    "set_up": (f"@pytest.mark.usefixtures('broken')\n{ISOLATED}", ""),
    "wide": (f"@pytest.mark.usefixtures('wide')\n{ISOLATED}", ""),
}
FIXTURES = """
@pytest.fixture
def broken():
    raise OSError("no card")

@pytest.fixture(scope="module")
def wide():
    yield
    print("ended")

def test_around(wide):
    pass
"""


def test_outcomes_are_those_of_the_tests_which_run_in_processes_of_their_own(project: Project) -> None:
    log = several(project, OUTCOMES, FIXTURES)
    outcomes = {"passed": 3, "skipped": 2, "xfailed": 1, "failed": 1, "errors": 1}
    project.run("--npudump-update-golden", "-onpudump_repeats=1", **outcomes, shows="E*OSError: no card")
    ran = {word: pids(log, word) for word in ("limited", "skips", "xfails", "fails", "wide")}
    assert len({process for [process] in ran.values()} | {os.getpid()}) == 6
    assert pids(log, "marked") == pids(log, "set_up") == []


KINDS = {
    "chosen": ("golden_tensors='auto'", ""),
    "compared": ("reference='reference.onnx'", ""),
    "repeated": ("repeats=3", ""),
    "checked": (
        "scene='check_op'",
        "npu_dump.check_op('Relu', np.ones(2, 'f4'), reference=lambda x: x + CHANGE)",
    ),
}


def test_every_kind_of_test_may_have_a_process_of_its_own(project: Project) -> None:
    (project.path / "reference.onnx").write_bytes((project.path / "small.onnx").read_bytes())
    bodies = {name: (f"@pytest.mark.npu_dump({marker})", body) for name, (marker, body) in KINDS.items()}
    bodies["here"] = ("@pytest.mark.npu_dump(isolation='none')", "")
    change = "import os\nCHANGE = float(os.environ.get('CHANGE', '0'))\n"
    log = several(project, bodies, change)
    project.record("-onpudump_isolation=process", "-k", "chosen")
    project.record(
        "-onpudump_isolation=process",
        "--npudump-update-golden=calibrate",
        "-onpudump_calibration_runs=3",
        "-k",
        "not chosen",
    )
    assert set(pids(log, "here")) == {os.getpid()}
    assert not {os.getpid()} & {process for name in KINDS for process in pids(log, name)}
    goldens = {path.stem: path.read_text("utf-8") for path in project.path.rglob("golden/**/*.yaml")}
    assert sorted(goldens) == ["test_chosen", "test_compared", "test_here", "test_repeated"]
    assert [name for name, text in goldens.items() if "calibration:" not in text] == ["test_chosen"]
    project.patch.setenv("CHANGE", "1")
    project.model(change=0.5)
    shows = [
        "second run: reproduced; 5 layers dumped as tensors",
        "*head/softmax:output.0: * out of tolerance of the golden tensor; *",
        "*block/conv.2:output.0: * out of tolerance of the reference tensor; *",
        "npudump: Relu: output 0[[]0[]] is 1, expected 2*",
        "dump:  *example1*",
    ]
    result = project.run("-onpudump_isolation=process", "-v", failed=5)
    for line in shows:
        result.stdout.fnmatch_lines([line])
    project.record("-onpudump_isolation=process", "-k", "chosen")
    kept = load_tensors(project.path / "golden/test_small/test_chosen.safetensors")
    assert {key.partition(":")[0] for key in kept} == {"block/conv.2", "head/softmax"}


DEATHS = {
    "signal": ("", "print('last words')\nos.kill(os.getpid(), signal.SIGSEGV)"),
    "exit": ("", "os._exit(7)"),
    "success": ("", "os._exit(0)"),
    "crash": ("", "os.abort()"),
    "known": (f"@pytest.mark.xfail(reason='known', strict=True)\n{ISOLATED}", "os.abort()"),
    "other": (f"@pytest.mark.xfail(raises=ValueError, strict=True)\n{ISOLATED}", "os._exit(1)"),
}


def test_death_in_the_body_fails_the_test_and_says_so(project: Project) -> None:
    several(project, DEATHS, "")
    shows = [
        "npudump: the test's process was ended by SIGSEGV, during the test's body; nothing was compared",
        "*Captured stdout call*",
        "last words",
        "npudump: the test's process ended with exit code 7, during the test's body; *",
        "npudump: the test's process ended with exit code 0, during the test's body; *",
        "*Captured stderr call*",
        "Fatal Python error: Aborted",
        '  File "*", line * in test_crash',
        "npudump: 0 of 6 tests passed, 6 processes died (emulator); see npudump --explain",
    ]
    project.run("--npudump-output=.", failed=5, xfailed=1, shows=shows)
    reports = [json.loads(path.read_text()) for path in project.path.rglob("dumps/*/report.json")]
    assert {report["status"] for report in reports} == {"process died"}


def test_death_behind_the_body_keeps_what_the_body_showed(project: Project) -> None:
    broken = "@pytest.fixture(autouse=True)\ndef ends():\n    yield\n    os.kill(os.getpid(), 9)\n"
    isolated(project, "", before=broken)
    words = "the test's process was ended by SIGKILL, during the test's teardown"
    project.run("--npudump-update-golden", failed=1, shows=f"npudump: {words}; nothing *")
    assert not list(project.path.joinpath("golden").rglob("*.yaml"))
    isolated(project, "", "")  # how a process of its own records has tests of its own
    project.record()
    isolated(project, "import atexit\natexit.register(os.abort)")
    at_exit = "npudump: the test's process was ended by SIGABRT, after the test had ended"
    project.run(passed=1, errors=1, shows=at_exit)
    project.model(change=0.5)
    isolated(project, "", 'isolation="process", escalate=False', before=broken)
    shows = ["npudump: block/conv.2: weights changed *block/conv.2:output.0 *", f"also:       {words}"]
    project.run(failed=1, shows=shows)
    isolated(project, "pytest.exit('enough', returncode=7)")
    project.test_file("def test_other():\n    pass\n", "test_z_other.py")
    result = project.run(shows="*Exit: enough*")
    assert result.ret == 7
    result.assert_outcomes()


PROGRAM = """
    with npu_dump.capture("program"):
        sleeper = [sys.executable, "-c", "import time; time.sleep(600)", "npudump-test-{name}"]
        npu_dump.run(sleeper, acl_json="a.json")
"""


WAITS = """
import subprocess
wait = subprocess.Popen.wait

def waits(process, timeout=None):
    if "npudump-test-" in str(process.args):
        open("waits", "w").close()
    return wait(process, timeout)

subprocess.Popen.wait = waits
"""


def running(name: str) -> bool:
    """Whether a program of this test, with ``name`` in its command line, is alive."""
    for process in Path("/proc").iterdir():
        with contextlib.suppress(OSError):  # it has ended, or is none
            if f"npudump-test-{name}\0".encode() in process.joinpath("cmdline").read_bytes():
                return True
    return False


def test_time_limit_ends_programs_of_the_test_and_puts_their_configuration_back(project: Project) -> None:
    """Also one that was started past npu_dump.run(), with its group."""
    name = project.path.parent.name
    isolated(project, PROGRAM.format(name=name).replace("\n    ", "\n"), "isolation=3")
    project.path.joinpath("a.json").write_text("{}")
    words = "did not end within 3 seconds and was ended, during the test's body; *"
    project.run("--npudump-output=.", failed=1, shows=f"npudump: the test's process {words}")
    assert project.report()["status"] == "process died"
    assert not running(name)
    assert [path.name for path in project.path.glob("a.json*")] == ["a.json"]
    assert project.path.joinpath("a.json").read_text() == "{}"
    sleeper = "child = __import__('subprocess').Popen(['sleep', '600'])\n"
    log = isolated(project, f"{sleeper}open('grandchild', 'w').write(str(child.pid))")
    project.run("--npudump-update-golden", passed=1)
    assert log.exists()
    wait_for(lambda: is_gone(int(project.path.joinpath("grandchild").read_text())))


@pytest.mark.parametrize(
    ("number", "isolation"),
    [
        (signal.SIGTERM, "process"),
        (signal.SIGHUP, "none"),
        (signal.SIGKILL, "process"),
        (signal.SIGKILL, "none"),
    ],
)
def test_pytest_that_is_killed_takes_its_programs_along(
    project: Project, number: signal.Signals, isolation: str
) -> None:
    name = f"{number.name}-{isolation}-{project.path.parent.name}"
    body = PROGRAM.format(name=name).replace("\n    ", "\n")
    isolated(project, body, f'isolation="{isolation}"')
    project.path.joinpath("a.json").write_text("{}")
    project.path.joinpath("conftest.py").write_text(WAITS)
    command = [*project.pytester._getpytestargs()[:-1], *PYTEST]
    child = subprocess.Popen(command, cwd=project.path, stdout=subprocess.DEVNULL)
    # The program may run for a while before pytest, on a busy machine, has told whoever guards its group.
    wait_for(lambda: running(name) and [*project.path.rglob("waits")])
    send(project, number)
    child.wait(60)
    wait_for(lambda: not running(name))
    if number is not signal.SIGKILL or isolation == "process":
        wait_for(lambda: project.path.joinpath("a.json").read_text() == "{}")
        assert [path.name for path in project.path.glob("a.json*")] == ["a.json"]


def test_a_test_that_the_process_finds_otherwise_is_named(project: Project) -> None:
    """One whose parameters differ from process to process, and one that is marked in this process alone."""
    parameters = "@pytest.mark.parametrize('number', [os.getpid()])\n"
    project.test_file(f"import os\n{ISOLATED}\n{parameters}def test_small(npu_dump, number):\n{project.body}")
    words = "npudump: the test's process collected 1 tests of its file, and not this one*"
    project.run("--npudump-update-golden", failed=1, shows=words)
    project.path.joinpath("conftest.py").write_text(
        "import pytest\n\ndef pytest_collection_modifyitems(items):\n    if len(items) > 1:\n"
        f"        items[0].add_marker({ISOLATED[1:]})\n"
    )
    project.test_file(f"def test_small(npu_dump):\n{project.body}\n")
    project.test_file("def test_other():\n    pass\n", "test_other.py")
    words = "npudump: the test's process found no marker npu_dump on the test: *"
    project.run("test_small.py", "test_other.py", failed=1, passed=1, shows=words)


def test_xdist_and_failures_of_last_time_work_with_isolated_tests(project: Project) -> None:
    several(project, {"good": ("", ""), "bad": ("", "assert 0")}, "")
    project.pytester.makeini("[pytest]\naddopts = --strict-markers --strict-config\n")
    project.run("--npudump-update-golden", "-n2", passed=1, failed=1)
    project.run("--npudump-update-golden", "--lf", failed=1, shows="*::test_bad*")


def test_output_and_warnings_that_are_errors_are_as_they_are_without_a_process(project: Project) -> None:
    """They leave the process alone, and fail the test as ever; the output is shown where none is captured."""
    body = "print('seen at once')\nif 'WARN' in os.environ: warnings.warn('mind this')"
    isolated(project, body)
    ini = project.path / "tox.ini"
    ini.write_text(ini.read_text() + "\nfilterwarnings = error\n")
    run = partial(project.pytester.runpytest_subprocess, "--npudump-runtime=emulator")
    held(run("--npudump-update-golden", "-s"), "*seen at once", passed=1)
    project.patch.setenv("WARN", "1")
    held(run(), "*UserWarning: mind this*", failed=1)


NOTE = "note(f'ran {os.getppid()} {__import__(\"random\").random()} {np.random.random()}')"


def start(project: Project, *bodies: str) -> tuple[subprocess.Popen[str], Path]:
    """Start pytest, as it is for everybody, with an isolated test of each body; return the log of these."""
    ini = "[pytest]\nfilterwarnings = error\naddopts = -p no:cacheprovider -p no:asyncio\n"
    project.pytester.makeini(f"{ini}    -p no:pytest-retry -p no:flaky -onpudump_repeats=1\n")
    log = several(project, {f"in_{number}": ("", body) for number, body in enumerate(bodies)}, "")
    command = (sys.executable, "-m", "pytest", "--npudump-runtime=emulator", "--npudump-update-golden")
    environment = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
    outputs = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    return subprocess.Popen(command, cwd=project.path, env=environment, text=True, **outputs), log


def noted(log: Path, word: str) -> list[list[str]]:
    lines = log.read_text().splitlines() if log.exists() else []
    return [line.split()[1:] for line in lines if line.split()[0] == word]


def test_children_are_forked_from_one_process_that_ends_with_pytest_and_comes_anew_where_it_was_killed(
    project: Project,
) -> None:
    pytest_, log = start(project, NOTE, NOTE, f"{NOTE}\nos.kill(os.getppid(), 9)", NOTE, NOTE)
    output, _ = pytest_.communicate()
    assert "1 failed, 4 passed" in output, output
    assert "the process that forks children has ended" in " ".join(output.split())
    ran = noted(log, "ran")
    parents = [int(parent) for parent, *_ in ran]
    assert parents[0] == parents[1] == parents[2] != pytest_.pid
    assert parents[3] == parents[4] not in {parents[0], pytest_.pid}
    assert [len({*told}) for told in [*zip(*ran, strict=True)][1:]] == [5, 5, 5]
    assert is_gone(parents[4])


def test_nothing_is_left_when_pytest_is_killed(project: Project) -> None:
    pytest_, log = start(project, NOTE, "note(f'sleeps {os.getppid()}')\ntime.sleep(600)")
    wait_for(lambda: noted(log, "sleeps"))
    ((parent, child),) = noted(log, "sleeps")
    assert int(parent) != pytest_.pid
    pytest_.send_signal(signal.SIGKILL)
    pytest_.communicate()
    wait_for(lambda: is_gone(int(child)) and is_gone(int(parent)))
