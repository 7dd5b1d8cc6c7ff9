"""Other plugins that run a test again: a bad outcome stands, a body that failed by itself may pass."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest

from tests.plugin.conftest import Project

NO_FLAKY = "-p no:asyncio -p no:flaky -p no:hypothesispytest"
RESTORING = """
RUNS = []

@pytest.mark.npu_dump({arguments})
def test_small(npu_dump):
    import shutil
    run(npu_dump)
    RUNS.append(1)
    if len(RUNS) == {runs}:  # whoever runs the test once more finds the accepted model
        shutil.copy("good.bin", "small.onnx")
"""
FLAKY_BODY = """
@pytest.mark.npu_dump({arguments})
def test_small(npu_dump):
    from pathlib import Path
    run(npu_dump)
    second = Path("once").exists()
    Path("once").touch()
    assert second, "the body fails by itself"
"""
INSIDE_THE_REPORT = """
import pytest

@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if call.when == "call" and report.failed:
        hook = item.ihook
        hook.pytest_runtest_teardown(item=item, nextitem=item.parent)
        item._initrequest()
        pytest.CallInfo.from_call(lambda: hook.pytest_runtest_setup(item=item), "setup")
        again = pytest.CallInfo.from_call(lambda: hook.pytest_runtest_call(item=item), "call")
        fresh = pytest.TestReport.from_item_and_call(item, again)
        report.outcome, report.longrepr = fresh.outcome, fresh.longrepr
    return report
"""
KEEPS_THE_FAILURE = """
import gc, weakref

KEPT, SEEN = [], []

def pytest_npudump_judged(result):
    SEEN.append(weakref.ref(result.comparison.actual.values))

def pytest_exception_interact(call):
    KEPT.append(call.excinfo)

def pytest_sessionfinish():
    gc.collect()
    left = [one() for one in SEEN if one() is not None]
    open("left.txt", "w").write(f"{len(KEPT)} failures of {len(SEEN)} results, {len(left)} left")
"""
AROUND_THE_PROTOCOL = """
import pytest
from _pytest.runner import runtestprotocol

@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item, nextitem):
    yield
    for report in runtestprotocol(item, log=False, nextitem=nextitem):
        (report.when == "call" or not report.passed) and open("again.txt", "a").write(report.outcome + " ")
    return True
"""
INSTEAD_OF_THE_PROTOCOL = """
import pytest
from _pytest.runner import runtestprotocol

@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session):
    for number in range(2):
        for item in session.items:
            runtestprotocol(item, log=number == 1, nextitem=None)
    return True
"""
ENDS_THE_DUMP_ITSELF = """
RUNS = []

@pytest.mark.npu_dump({arguments})
def test_small(npu_dump):
    import shutil
    from pathlib import Path
    import acl
    first = not Path("again").exists()
    Path("again").touch()
    if not first:
        shutil.copy("good.bin", "small.onnx")
    run(npu_dump)
    if first:
        acl.mdl.finalize_dump()
"""
SWALLOWS_A_FAILURE = """
@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if call.when == "call" and report.failed and "fails by itself" in report.longreprtext:
        report.outcome, report.longrepr = "passed", None
    return report
"""
PASSED = "npudump: 1 of 1 tests passed; 5 of 5 tensors compared (emulator)"
SUMMARY = (
    "npudump: 0 of 1 tests passed, 1 failed; 5 of 5 tensors compared; first mismatch block/conv.2:output.0*"
)


def regressed(project: Project, arguments: str = "", runs: int = 1, conftest: str = "") -> None:
    project.path.joinpath("good.bin").write_bytes(project.path.joinpath("small.onnx").read_bytes())
    project.test_file(RESTORING.format(arguments=arguments, runs=runs))
    project.record()
    project.model(change=0.01)
    project.path.joinpath("conftest.py").write_text(conftest)


def failing_once(project: Project, source: str, name: str = "once") -> None:
    """Record the golden of a test whose first run is another than those behind it."""
    project.test_file(source)
    project.path.joinpath(name).touch()
    project.record("-onpudump_repeats=1")
    project.path.joinpath(name).unlink()


def retried(project: Project, *lines: str, more: str = "") -> pytest.RunResult:
    """Run the project with pytest-retry, and look for these lines."""
    project.patch.setenv("PYTEST_ADDOPTS", NO_FLAKY + more)
    result = project.pytester.runpytest_subprocess("--npudump-runtime=emulator", "--retries=2")
    result.stdout.fnmatch_lines(lines)
    return result


@pytest.mark.parametrize(("arguments", "runs"), [("escalate=False", 1), ("", 2)])
def test_regression_stands_where_a_plugin_repeats_it_inside_the_report(
    project: Project, arguments: str, runs: int
) -> None:
    regressed(project, arguments, runs, INSIDE_THE_REPORT)
    shows = ["npudump: *block/conv.2:output.0 * expected *", SUMMARY]
    project.run("--junitxml=out.xml", failed=1, shows=shows)
    names = [p.get("name") for p in ET.parse(project.path / "out.xml").iter("property")]  # noqa: S314 - ours
    assert names.count("npudump") == 1
    assert len(names) == len(set(names))


def test_regression_stands_where_a_plugin_runs_the_protocol_once_more(project: Project) -> None:
    """So does a pass without a comparison."""
    regressed(project, "escalate=False", conftest=AROUND_THE_PROTOCOL + KEEPS_THE_FAILURE)
    project.run(failed=1)
    assert project.path.joinpath("left.txt").read_text() == "2 failures of 1 results, 0 left"
    assert "passed" not in project.path.joinpath("again.txt").read_text()
    project.model()
    project.path.joinpath("conftest.py").unlink()
    failing_once(project, FLAKY_BODY.format(arguments=""))
    project.path.joinpath("conftest.py").write_text(AROUND_THE_PROTOCOL + SWALLOWS_A_FAILURE)
    project.run(failed=1, shows="npudump: the test passed without having been compared with its golden")
    assert "passed" not in project.path.joinpath("again.txt").read_text()


def test_regression_stands_where_a_plugin_runs_all_tests_itself(project: Project) -> None:
    regressed(project, conftest=INSTEAD_OF_THE_PROTOCOL)
    result = project.run(shows="npudump: block/conv.2:output.0 *")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert "passed" not in result.parseoutcomes()


def test_missing_golden_and_empty_dump_stand_too(project: Project) -> None:
    """A body that fails however often it is repeated ends no session."""
    project.test_file(
        """
        @pytest.mark.npu_dump
        def test_missing(npu_dump):
            run(npu_dump)

        RUNS = []

        @pytest.mark.npu_dump
        def test_empty(npu_dump):
            RUNS.append(1)
            assert len(RUNS) == 1, "it was run again"
        """
    )
    project.path.joinpath("conftest.py").write_text(INSIDE_THE_REPORT)
    project.run(failed=2, shows="*no golden file*", hides="*it was run again*")
    project.test_file(f"@pytest.mark.npu_dump\ndef test_small(npu_dump):\n{project.body}    assert False\n")
    words = "npudump: 0 of 1 tests passed, 1 not compared (emulator); see npudump --explain"
    project.run("--npudump-output=.", failed=1, shows=words)
    assert '"status":"not compared"' in project.path.joinpath("results/results.jsonl").read_text("utf-8")


def test_body_that_failed_by_itself_is_compared_when_it_is_repeated(project: Project) -> None:
    failing_once(project, FLAKY_BODY.format(arguments=""))
    project.path.joinpath("conftest.py").write_text(INSIDE_THE_REPORT)
    project.run(passed=1, shows=PASSED)
    project.path.joinpath("once").unlink()
    project.model(change=0.01)
    shows = [
        "npudump: block/conv.2: weights changed *block/conv.2:output.0 *",
        "second run: not run: the test had failed by itself before*",
        SUMMARY,
    ]
    project.run(failed=1, shows=shows)


@pytest.mark.e2e
@pytest.mark.parametrize("isolation", ["none", "process"])
def test_pytest_retry_does_not_turn_a_regression_green(project: Project, isolation: str) -> None:
    """Nor a run whose dump cannot be ended; it may repeat a body that failed by itself."""
    regressed(project, f"escalate=False, isolation={isolation!r}")
    result = retried(project, "npudump: block/conv.2:output.0 *", SUMMARY)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert result.parseoutcomes()["failed"] == 1
    assert "passed" not in result.parseoutcomes()
    project.model()
    failing_once(project, FLAKY_BODY.format(arguments=f"isolation={isolation!r}"))
    result = retried(project, PASSED)
    assert (result.ret, result.parseoutcomes()["passed"]) == (0, 1)
    failing_once(project, ENDS_THE_DUMP_ITSELF.format(arguments=f"isolation={isolation!r}"), "again")
    project.model(change=0.01)
    words = "npudump: acl.mdl.finalize_dump() returned 100045 *: the test has ended the dump itself; *"
    result = retried(project, words, more=" -p no:rerunfailures")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert "passed" not in result.parseoutcomes()


def test_flaky_does_not_turn_a_regression_green(project: Project) -> None:
    regressed(project, "escalate=False")
    project.patch.setenv("PYTEST_ADDOPTS", "-p no:asyncio -p no:pytest-retry -p no:hypothesispytest")
    assert project.run("--force-flaky", "--max-runs=3", failed=1).ret == pytest.ExitCode.TESTS_FAILED
