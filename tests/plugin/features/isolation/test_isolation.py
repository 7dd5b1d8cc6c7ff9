"""Tests in processes of their own: everything comes back as if they had run here, and a death is told."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import Project

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


def recorded(project: Project) -> None:
    """Record the test's golden in this process: how one of its own records it has tests of its own."""
    isolated(project, "", "")
    project.record()


def pids(log: Path, word: str) -> list[int]:
    return [int(line.split()[1]) for line in log.read_text().splitlines() if line.split()[0] == word]


def test_golden_is_recorded_and_compared_by_processes_that_are_not_pytest_s_own(project: Project) -> None:
    log = isolated(project, "")
    project.record("--npudump-repeats=1")
    assert "block/conv.1" in project.golden.read_text()
    project.run().stdout.fnmatch_lines(["*1 of 1 tests good, 5 of 5 tensors compared (emulator)*"])
    first, second = pids(log, "body")
    assert len({first, second, os.getpid()}) == 3


def test_output_warnings_properties_and_duration_come_back(project: Project) -> None:
    isolated(
        project,
        "print('said in the body')\nos.write(2, b'written past Python')\nwarnings.warn('mind this')\n"
        "record_property('answer', np.float32(42))\ntime.sleep(0.2)\nassert project_option == 'given'",
        before="@pytest.fixture(autouse=True)\ndef option(request):\n"
        "    global project_option\n    project_option = request.config.getoption('--mine')\n",
    )
    project.path.joinpath("conftest.py").write_text(
        "def pytest_addoption(parser):\n    parser.addoption('--mine')\n"
    )
    result = project.run("--npudump-update-golden", "--mine=given", "--junitxml=j.xml")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["*UserWarning: mind this"])
    (case,) = ET.parse(project.path / "j.xml").iter("testcase")  # noqa: S314 - written by pytest
    properties = {found.get("name"): found.get("value") for found in case.iter("property")}
    assert properties["answer"] == "42.0"
    assert float(str(case.get("time"))) > 0.2
    failed = project.run("--npudump-update-golden", "--mine=other")
    failed.stdout.fnmatch_lines(
        ["*AssertionError: assert 'other' == 'given'", "*", "*Captured stdout call*", "said in the body"]
    )
    failed.stdout.fnmatch_lines(["*Captured stderr call*", "written past Python"])
    failed.stdout.fnmatch_lines(["the test's body did not pass: its dump was not compared"])


@pytest.mark.parametrize(
    ("line", "outcome"),
    [
        ("pytest.skip('no reason')", "skipped"),
        ("pytest.xfail('known')", "xfailed"),
        ("assert 0", "failed"),
    ],
)
def test_outcome_of_the_body_is_the_test_s(project: Project, line: str, outcome: str) -> None:
    isolated(project, line)
    project.run("--npudump-update-golden", "-rs").assert_outcomes(**{outcome: 1})


def test_skip_mark_starts_no_process(project: Project) -> None:
    log = isolated(project, "", before="pytestmark = pytest.mark.skip(reason='not today')\n")
    project.run().assert_outcomes(skipped=1)
    assert not log.exists()


def test_failing_fixture_is_an_error_at_setup(project: Project) -> None:
    isolated(
        project, "", before="@pytest.fixture(autouse=True)\ndef broken():\n    raise OSError('no card')\n"
    )
    result = project.run()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["E*OSError: no card"])


DEATHS = [
    ("os.kill(os.getpid(), signal.SIGSEGV)", "was ended by SIGSEGV, during the test's body"),
    ("os._exit(7)", "ended with exit code 7, during the test's body"),
    ("os._exit(1)", "ended with exit code 1, during the test's body"),
    ("os._exit(0)", "ended with exit code 0, during the test's body"),
    ("time.sleep(60)", "did not end within 12 seconds and was ended, during the test's body"),
]


@pytest.mark.parametrize(("line", "words"), DEATHS, ids=["signal", "exit", "failure", "success", "hang"])
def test_death_in_the_body_fails_the_test_and_says_so(project: Project, line: str, words: str) -> None:
    recorded(project)
    limit = 12 if "sleep" in line else 120
    isolated(project, f"print('last words')\n{line}", f'isolation="process", timeout={limit}')
    result = project.run("--npudump-dump-dir=dumps")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            f"npudump: the test's process {words}; nothing was compared",
            "*Captured stdout of the process*",
            "last words",
            "npudump: 0 of 1 tests good, 1 process died (emulator)",
        ]
    )
    assert project.report()["status"] == "process died"


def test_time_limit_alone_isolates_the_test(project: Project) -> None:
    log = isolated(project, "", "timeout=60")
    project.record()
    assert pids(log, "body")[0] != os.getpid()


def test_death_behind_the_body_keeps_what_the_body_showed(project: Project) -> None:
    broken = "@pytest.fixture(autouse=True)\ndef ends():\n    yield\n    os.kill(os.getpid(), 9)\n"
    isolated(project, "", before=broken)
    result = project.run("--npudump-update-golden")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["npudump: the test's process was ended by SIGKILL, during the test's teardown; nothing *"]
    )
    assert not list(project.path.joinpath("golden").rglob("*.yaml"))
    recorded(project)
    project.model(change=0.5)
    isolated(project, "", 'isolation="process", escalate=False', before=broken)
    result = project.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "npudump: block/conv.2 (Conv output.0) differs: *",
            "also: the test's process was ended by SIGKILL, during the test's teardown",
        ]
    )


@pytest.mark.parametrize(
    ("arguments", "outcome"), [("reason='known'", "xfailed"), ("raises=ValueError", "failed")]
)
def test_death_may_be_expected(project: Project, arguments: str, outcome: str) -> None:
    isolated(project, "os.abort()", before=f"pytestmark = pytest.mark.xfail({arguments}, strict=True)\n")
    project.run().assert_outcomes(**{outcome: 1})


def test_exit_ends_the_whole_session(project: Project) -> None:
    isolated(project, "pytest.exit('enough', returncode=7)")
    project.test_file("def test_other():\n    pass\n", "test_z_other.py")
    result = project.run()
    assert result.ret == 7
    result.stdout.fnmatch_lines(["*Exit: enough*"])
    result.assert_outcomes()


PROGRAM = """
    with npu_dump.capture("program"):
        sleeper = [sys.executable, "-c", "import time; time.sleep(600)", "npudump-test-{name}"]
        npu_dump.run(sleeper, acl_json="a.json")
"""


def running(name: str) -> bool:
    """Whether a program of this test, with ``name`` in its command line, is alive."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if f"npudump-test-{name}\0".encode() in path.read_bytes():
                return True
    return False


def test_time_limit_ends_programs_of_the_test_and_puts_their_configuration_back(project: Project) -> None:
    name = project.path.parent.name
    isolated(project, PROGRAM.format(name=name).replace("\n    ", "\n"), "timeout=8")
    project.path.joinpath("a.json").write_text("{}")
    result = project.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["npudump: the test's process did not end within 8 seconds*"])
    assert not running(name)
    assert [path.name for path in project.path.glob("a.json*")] == ["a.json"]
    assert project.path.joinpath("a.json").read_text() == "{}"


@pytest.mark.parametrize("isolation", ["process", "none"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_pytest_that_is_killed_takes_its_programs_along(
    project: Project, number: signal.Signals, isolation: str
) -> None:
    name = f"{number.name}-{isolation}-{project.path.parent.name}"
    body = PROGRAM.format(name=name).replace("\n    ", "\n")
    isolated(project, body, f'isolation="{isolation}"')
    project.path.joinpath("a.json").write_text("{}")
    # Whoever runs these tests in the background, or with nohup, has signals ignored.
    heed = "import os, signal, sys; [signal.signal(n, signal.SIG_DFL) for n in (1, 2, 15)]; "
    run = "os.execv(sys.executable, [sys.executable, '-m', 'pytest', '--npudump-runtime=emulator'])"
    command = [sys.executable, "-c", heed + run]
    child = subprocess.Popen(command, cwd=project.path, stdout=subprocess.DEVNULL)
    wait_for(lambda: running(name))
    child.send_signal(number)
    child.wait(60)
    wait_for(lambda: not running(name))
    if number is not signal.SIGKILL or isolation == "process":
        wait_for(lambda: project.path.joinpath("a.json").read_text() == "{}")
        assert [path.name for path in project.path.glob("a.json*")] == ["a.json"]


def wait_for(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.05)


def test_words_of_a_crash_name_the_line_that_crashed(project: Project) -> None:
    isolated(project, "os.abort()")
    result = project.run()
    result.stdout.fnmatch_lines(
        ["*End of the process's stderr*", "Fatal Python error: Aborted", '  File "*", line * in test_small']
    )


def test_death_at_exit_fails_although_the_comparison_passed(project: Project) -> None:
    recorded(project)
    isolated(project, "import atexit\natexit.register(os.abort)")
    result = project.run()
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(
        ["npudump: the test's process was ended by SIGABRT, after the test had ended"]
    )


def test_whole_process_group_is_ended_with_the_test(project: Project) -> None:
    log = isolated(
        project,
        "import subprocess\n"
        "child = subprocess.Popen(['sleep', '600'])\n"
        "open('grandchild', 'w').write(str(child.pid))",
    )
    project.run("--npudump-update-golden").assert_outcomes(passed=1)
    assert log.exists()
    grandchild = int(project.path.joinpath("grandchild").read_text())
    for _ in range(100):
        if not _alive(grandchild):
            return
        time.sleep(0.05)
    pytest.fail("the process that the test left behind lives on")


def _alive(pid: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


def test_failing_comparison_is_run_again_in_another_process(project: Project) -> None:
    log = isolated(project, "")
    project.record()
    log.unlink()
    project.model(change=0.5)
    result = project.run("--npudump-dump-dir=dumps", "--junitxml=j.xml")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "npudump: block/conv.2 (Conv output.0) differs: *",
            "second run: the failure reproduced (5 layers dumped as tensors)",
        ]
    )
    first, second = pids(log, "body")
    assert first != second
    report = project.report()
    layers = ["image", "block/conv.1", "block/relu.1", "block/conv.2", "head/softmax"]
    assert report["escalation"]["layers"] == layers  # type: ignore[index]
    assert len([*ET.parse(project.path / "j.xml").iter("testcase")]) == 1  # noqa: S314 - written by pytest
    result.stdout.no_fnmatch_line("*not compared*")


def test_second_run_that_dies_is_told_apart_from_one_that_disagrees(project: Project) -> None:
    recorded(project)
    project.model(change=0.5)
    isolated(project, "if os.path.exists('again'):\n    os._exit(9)\nopen('again', 'w').close()")
    result = project.run("--npudump-dump-dir=dumps")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "npudump: block/conv.2 (Conv output.0) differs: *",
            "second run: its process ended with exit code 9, during the test's body",
        ]
    )


def test_golden_tensors_are_recorded_over_two_processes(project: Project) -> None:
    isolated(project, "", 'isolation="process", golden_tensors=["block/conv.2"]')
    project.record()
    assert project.golden.with_suffix(".safetensors").exists()
    project.run().assert_outcomes(passed=1)


def test_parameters_that_differ_from_process_to_process_are_named(project: Project) -> None:
    project.test_file(
        "import os\n@pytest.mark.npu_dump(isolation='process')\n"
        "@pytest.mark.parametrize('number', [os.getpid()])\ndef test_small(npu_dump, number):\n"
        + project.body
    )
    result = project.run("--npudump-update-golden")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["npudump: the test's process collected 1 tests of its file, and not this one*"]
    )


def test_test_that_is_marked_in_this_process_alone_is_named(project: Project) -> None:
    project.path.joinpath("conftest.py").write_text(
        "import pytest\n\ndef pytest_collection_modifyitems(items):\n    if len(items) > 1:\n"
        "        items[0].add_marker(pytest.mark.npu_dump(isolation='process'))\n"
    )
    project.test_file(f"def test_small(npu_dump):\n{project.body}\n")
    project.test_file("def test_other():\n    pass\n", "test_other.py")
    result = project.run("test_small.py", "test_other.py")
    result.assert_outcomes(failed=1, passed=1)
    result.stdout.fnmatch_lines(["npudump: the test's process found no marker npu_dump on the test: *"])


def test_wider_fixtures_of_the_tests_around_it_end_where_they_should(project: Project) -> None:
    shared = (
        "@pytest.fixture(scope='module')\ndef shared():\n    yield 1\n    print('shared ended')\n"
        "def test_before(shared):\n    pass\n"
    )
    project.test_file(
        shared
        + "@pytest.mark.npu_dump(isolation='process')\ndef test_small(npu_dump, shared):\n"
        + project.body
    )
    project.test_file("def test_after():\n    print('after')\n", "test_z_last.py")
    result = project.run("--npudump-update-golden", "-v")
    result.assert_outcomes(passed=3)


def test_option_isolates_every_marked_test_but_those_that_refuse(project: Project) -> None:
    log = project.path / "log.txt"
    head = IN_BODY.format(log=str(log))
    tests = [
        f"@pytest.mark.npu_dump({marker})\ndef test_{name}(npu_dump):\n    note('{name}')\n{project.body}\n"
        for name, marker in (("one", ""), ("two", ""), ("here", "isolation='none'"))
    ]
    project.test_file(head + "".join(tests))
    project.record("--npudump-isolation=process")
    found = {word: pids(log, word)[0] for word in ("one", "two", "here")}
    assert found["here"] == os.getpid()
    assert len(set(found.values())) == 3


def test_xdist_and_failures_of_last_time_work_with_isolated_tests(project: Project) -> None:
    bodies = {"good": "", "bad": "    assert 0\n"}
    project.test_file(
        "\n".join(
            f"@pytest.mark.npu_dump(isolation='process')\ndef test_{name}(npu_dump):\n{project.body}\n{body}"
            for name, body in bodies.items()
        )
    )
    project.pytester.makeini("[pytest]\naddopts = --strict-markers --strict-config\n")
    first = project.run("--npudump-update-golden", "-n2")
    first.assert_outcomes(passed=1, failed=1)
    again = project.run("--npudump-update-golden", "--lf")
    again.assert_outcomes(failed=1)
    again.stdout.fnmatch_lines(["*::test_bad*"])


def test_output_of_the_process_is_shown_where_nothing_is_captured(project: Project) -> None:
    isolated(project, "print('seen at once')")
    result = project.pytester.runpytest_subprocess(
        "--npudump-runtime=emulator", "--npudump-update-golden", "-s"
    )
    result.stdout.fnmatch_lines(["*seen at once"])


@pytest.mark.parametrize("value", ["0", "soon", "-1", "inf", "nan"])
def test_time_limit_that_is_none_is_refused(project: Project, value: str) -> None:
    project.marked()
    result = project.run(f"--npudump-isolation-timeout={value}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert re.search("--npudump-isolation-timeout is '.*', expected seconds", result.stderr.str())


def test_warnings_that_are_errors_leave_the_process_alone_and_fail_the_test_as_ever(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    isolated(project, "if 'WARN' in os.environ: warnings.warn('mind this')")
    ini = project.path / "tox.ini"
    ini.write_text(ini.read_text() + "\nfilterwarnings = error\n")
    run = partial(project.pytester.runpytest_subprocess, "--npudump-runtime=emulator")
    run("--npudump-update-golden").assert_outcomes(passed=1)
    monkeypatch.setenv("WARN", "1")
    result = run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*UserWarning: mind this*"])
