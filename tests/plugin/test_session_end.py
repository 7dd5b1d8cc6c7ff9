"""What a session shows of long work, and its last lines: what it counts, what waits, and what fails it."""

from __future__ import annotations

import os
from xml.etree import ElementTree as ET

import pytest

from pytest_npudump.cli import main
from pytest_npudump.plugin import terminal
from tests.conftest import on_a_terminal
from tests.plugin.conftest import Project, held

BROKEN = """
@pytest.fixture
def broken():
    raise RuntimeError("no device")

@pytest.mark.npu_dump
def test_broken(broken, npu_dump):
    pass
"""


@pytest.mark.e2e
def test_a_test_whose_setup_fails_is_counted_told_once_and_no_comparison(project: Project) -> None:
    project.test_file(BROKEN, "test_broken.py")
    options = ("--junitxml=junit.xml", "--npudump-output=.", "-onpudump_expect=1")
    shows = [
        "npudump: 0 of 1 tests passed, 1 not compared (emulator); see npudump --explain",
        "*0 marked tests were compared*",
    ]
    project.run(*options, errors=1, shows=shows, hides="*pending review*")
    assert len(ET.parse(project.path / "junit.xml").findall(".//testcase")) == 1  # noqa: S314 - pytest's own
    assert "test_broken" in (project.path / "summary.md").read_text("utf-8")
    project.marked()
    project.run("--npudump-output=.", failed=1, errors=1)
    shown = project.command("check", "results")[1]
    assert shown.splitlines()[-1].endswith("(emulator); see npudump --explain")
    project.run("--npudump-update-golden", "test_small.py", passed=1)
    shows = [
        "*RuntimeError: no device",
        "npudump: 1 of 2 tests passed, 1 not compared; * (emulator); see npudump --explain",
    ]
    project.run("-n1", passed=1, errors=1, shows=shows)
    project.path.joinpath("test_small.py").unlink()
    project.test_file(BROKEN.replace("raise RuntimeError", "pytest.skip"), "test_broken.py")
    project.run(skipped=1, hides="npudump: * tests passed*")


def test_runs_that_fail_or_have_no_golden_wait_where_they_are_kept(project: Project) -> None:
    project.pytester.makeini("[pytest]\n")  # with pytest's cache
    project.marked()
    project.patch.chdir(project.path)
    words = "npudump: 1 run pending review: npudump golden review"
    project.run("-p", "no:cacheprovider", hides="*pending review*")
    project.run(shows=[words, "npudump: 0 of 1 tests passed*"])
    assert main(["golden", "accept"]) == 0
    for verb in ("accept", "review"):
        assert project.command("golden", verb) == (0, "no run is pending review\n", "")
    kept = "--npudump-output=out"
    project.run(kept, hides="*pending review*")
    project.model(change=0.01)
    project.run(kept, shows=f"{words} --results out/results")
    project.patch.setenv("CI", "true")
    project.run(hides="*pending review*")
    project.run("--npudump-output=.", shows="*golden review --results results")
    project.marked(body="    assert False\n")
    project.run("--npudump-output=.", hides="*pending review*")


TWO = "".join(f"\n@pytest.mark.npu_dump\ndef test_{name}(npu_dump):\n{{body}}" for name in ("one", "two"))
GOOD = "- {layer: 'block/conv.2', rtol: 0, atol: 0}\n"
MISSPELT = "- {layer: block/conv_3, rtol: 0, atol: 0}\n"
WORDS = "npudump: 1 tolerance rule matches no tensor of these tests: rtol=0 atol=0 layer=block/conv_3 *"


PROJECTIONS = "- {layer: 'block/conv.1', statistic: projections, rtol: 0, atol: 0}\n"


@pytest.fixture
def two(project: Project) -> Project:
    """A project with two tests and their goldens of statistics."""
    project.test_file(TWO.format(body=project.body))
    project.record("-onpudump_auto_tensors=0")
    return project


def write_rules(project: Project, rules: str) -> None:
    (project.pytester.path / "tolerances.yaml").write_text(f"rules:\n{rules}", "utf-8")


def judged(project: Project, *options: str) -> pytest.RunResult:
    return project.run("--npudump-tolerances=tolerances.yaml", *options)


@pytest.mark.parametrize("options", [(), pytest.param(("-p", "xdist", "-n2"), marks=pytest.mark.e2e)])
def test_a_misspelt_rule_fails_a_session_of_all_tests_and_is_told_by_a_narrow_one(
    two: Project, options: tuple[str, ...]
) -> None:
    write_rules(two, GOOD + MISSPELT)
    result = judged(two, *options)
    assert held(result, f"{WORDS}; *the run does not pass", passed=2).ret == pytest.ExitCode.TESTS_FAILED
    for narrow in (("-k", "one"), ("test_small.py",)):
        assert held(judged(two, *narrow), WORDS).ret == 0


def test_a_rule_for_a_statistic_has_to_be_one_that_a_golden_has(two: Project) -> None:
    write_rules(two, GOOD)
    assert held(judged(two), hides="*matches no tensor*").ret == 0
    write_rules(two, GOOD + PROJECTIONS)
    idle = "npudump: 1 tolerance rule matches no tensor of these tests: *statistic=projections*"
    assert held(judged(two), f"{idle}; *the run does not pass").ret == pytest.ExitCode.TESTS_FAILED
    source = TWO.format(body=two.body).replace(
        "npu_dump\n", 'npu_dump(acl_json={"dump_data": "tensor"})\n', 1
    )
    two.test_file(source)
    two.record("-onpudump_repeats=1")
    assert held(judged(two), hides="*matches no tensor*").ret == 0


STALE = "-onpudump_fail_on=stale"


@pytest.mark.usefixtures("collects")
def test_a_golden_without_a_test_fails_a_session_that_asks_for_it(two: Project) -> None:
    failed = pytest.ExitCode.TESTS_FAILED
    for options in ((), ("test_small.py::test_one",)):
        assert two.run(STALE, *options).ret == 0
    two.run("--npudump-update-golden", "-onpudump_golden_dir=other")
    two.test_file(TWO.format(body=two.body).replace("test_two", "test_renamed"))
    shows = [
        "npudump: npudump_fail_on=stale: goldens are stale:",
        "npudump:     *test_two.yaml: test_small.py has no test_two",
    ]
    two.run(STALE, "-k", "one", passed=1, deselected=1, shows=shows)
    ini = two.path / "tox.ini"
    ini.write_text(ini.read_text("utf-8") + "\nnpudump_fail_on = stale\n", "utf-8")
    words = "npudump: *other/test_small/test_two.yaml: test_small.py has no *"
    assert two.run("-onpudump_golden_dir=other", "-k", "one", shows=words).ret == failed
    two.path.joinpath("golden/test_small/test_two.yaml").unlink()
    two.run("--npudump-update-golden", "-onpudump_fail_on=difference", passed=2)
    two.path.joinpath("rules.yaml").write_text(f"rules:\n{GOOD.replace('conv.2', 'gone')}", "utf-8")
    shows = ["npudump:   rules that match no tensor of any test:", "npudump:     *rules.yaml: *block/gone*"]
    ini.write_text(ini.read_text("utf-8") + "npudump_tolerances = rules.yaml\n", "utf-8")
    assert two.run(passed=2, shows=shows).ret == failed
    two.test_file("raise RuntimeError('broken')\n", "test_broken.py")
    words = "npudump: npudump_fail_on=stale: whether goldens are stale is not known:"
    assert two.run("test_small.py", shows=words).ret == failed


IMPATIENT = """
from pytest_npudump.plugin import terminal
terminal.PATIENCE = terminal.SILENCE = 0.0
"""


def drawn_by(project: Project, *options: str, columns: str = "120") -> str:
    """Run pytest in a project, where its output is a terminal; what was drawn there."""
    words = ["-p", "no:cacheprovider", "--npudump-runtime=emulator", "--npudump-output=.", *options]
    command = [*project.pytester._getpytestargs(), *words]
    return on_a_terminal(command, project.path, COLUMNS=columns, PYTEST_ADDOPTS="")[1]


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
    drawn = drawn_by(failing, *options)
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
    drawn = drawn_by(project, "--color=no", columns="80")
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
