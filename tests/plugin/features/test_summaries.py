"""What a session writes for GitHub and GitLab, and for anyone who asks."""

from __future__ import annotations

import json
import re

import junitparser
import pytest

from tests.plugin.conftest import Project

SOURCE = """
@pytest.mark.parametrize("unused", [1])
@pytest.mark.npu_dump
def test_small(npu_dump, unused):
    run(npu_dump)
"""
MARKER = 13
"""Line of the marker in the file that the project makes of it."""


@pytest.fixture(autouse=True)
def _at_home(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GITHUB_STEP_SUMMARY", "GITHUB_WORKSPACE", "CI_PROJECT_DIR"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def regressed(project: Project) -> Project:
    project.test_file(SOURCE)
    project.record()
    project.model(change=0.1)
    return project


def test_session_that_does_not_pass_whatever_its_tests_say_is_told_as_such(regressed: Project) -> None:
    regressed.model()
    regressed.patch.setenv("GITHUB_ACTIONS", "true")
    options = ("--npudump-output=.", "-onpudump_lang=zh")
    assert regressed.run(*options, "-onpudump_expect=1").ret == 0
    summary = regressed.path / "summary.md"
    assert summary.read_text("utf-8").startswith("### ✅")
    words = "npudump_expect=2: 1 marked test was compared: the run does not pass"
    result = regressed.run(*options, "--npudump-report", "-onpudump_expect=2")
    assert result.ret == 1
    result.stdout.fnmatch_lines([f"::error title=npudump::{words}"])
    told = summary.read_text("utf-8")
    assert told.startswith("### ❌")
    text = (regressed.path / "report" / "index.html").read_text("utf-8")
    assert "npudump_expect=2：比对了 1 个带标记的用例：本次运行不通过" in text
    assert f"\n\n- `{words}`\n" in told


@pytest.mark.e2e
def test_worker_that_dies_is_told_where_all_other_tests_pass(regressed: Project) -> None:
    regressed.model()
    dies = "\n@pytest.mark.npu_dump\ndef test_dies():\n    os._exit(3)\n"
    regressed.test_file(f"import os\n{SOURCE}{dies}")
    regressed.run("--npudump-output=.", "-n1", passed=1, failed=1)
    told = (regressed.path / "summary.md").read_text("utf-8")
    assert told.startswith("### ❌")
    assert "- `a worker died in test_small.py::test_dies: nothing is known of that test`" in told


def test_summary_of_an_earlier_session_does_not_stand_where_no_marked_test_runs(regressed: Project) -> None:
    regressed.model()
    regressed.run("--npudump-output=.")
    summary = regressed.path / "summary.md"
    assert summary.read_text("utf-8").startswith("### ✅")
    regressed.run("--npudump-output=.", "--collect-only")
    assert summary.read_text("utf-8").startswith("### ✅")
    regressed.test_file("import missing_module\n")
    assert regressed.run("--npudump-output=.").ret == 2
    assert summary.read_text("utf-8").startswith(
        "### ❌ npudump&#58; no marked test has run\n\n- `pytest ended with exit code 2`"
    )
    regressed.test_file("def test_other():\n    pass\n")
    assert regressed.run("--npudump-output=.").ret == 0
    words = "npudump: the summary *test_small.py/summary.md cannot be written: *"
    assert regressed.run("--npudump-output=test_small.py", shows=words).ret == 0
    assert summary.read_text("utf-8") == "### npudump&#58; no marked test has run\n"


def test_github_gets_a_summary_and_an_annotation_at_the_marker(regressed: Project) -> None:
    """GitLab gets a report of the job, and no annotation."""
    step = regressed.path / "step.md"
    step.write_text("before\n")
    place = f"{regressed.path.name}/test_small.py,line={MARKER}"
    words = f"::error file={place},title=npudump%3A failed::npudump: block/conv.2: weights changed *"
    with regressed.patch.context() as patch:
        patch.setenv("GITHUB_ACTIONS", "true")
        patch.setenv("GITHUB_STEP_SUMMARY", str(step))
        patch.setenv("GITHUB_WORKSPACE", str(regressed.path.parent))
        regressed.run(shows=words)
    marker = regressed.path.joinpath("test_small.py").read_text().splitlines()[MARKER - 1]
    assert marker == "@pytest.mark.npu_dump"
    text = step.read_text("utf-8")
    assert text.startswith("before\n")
    assert text.count("### ❌") == 1
    regressed.patch.setenv("GITLAB_CI", "true")
    regressed.patch.setenv("CI_PROJECT_DIR", str(regressed.path))
    regressed.run(hides="::error*")
    report = regressed.path / "npudump-code-quality.json"
    (entry,) = json.loads(report.read_bytes())
    assert entry["location"] == {"path": "test_small.py", "lines": {"begin": MARKER}}
    regressed.model()
    regressed.run()
    assert json.loads(report.read_bytes()) == []


def commands(text: str) -> list[str]:
    """Return the lines of a log that actions/runner takes for commands."""
    begins = re.compile(r"\s*::(error|warning|notice|debug|group|add-mask|stop-commands|set-output)\b.*::")
    within = re.compile(r"##\[(error|warning|notice|debug|group|add-mask|stop-commands|set-output)\b.*\]")
    return [line for line in text.splitlines() if begins.match(line) or within.search(line)]


def test_no_name_of_a_layer_is_a_command_to_github(project: Project) -> None:
    name = "::error title=x::owned\n::warning::\r##[error]a ##[stop-commands]pause"
    project.test_file(SOURCE)
    project.model(named=name)
    project.record()
    project.model(named=name, change=0.1)
    project.patch.setenv("GITHUB_ACTIONS", "true")
    for options in ([], ["-v"], ["-onpudump_lang=zh"]):
        result = project.run("--npudump-output=.", *options, failed=1)
        [line] = commands("\n".join(result.outlines + result.errlines))
        assert line.startswith("::error file=test_small.py,")
    kept = ["--results", "results", "--root", "."]
    for words in (
        *(["check", "results"], ["check", "results", "--json", "-"], ["report", "results", "-o", "page"]),
        *(["golden", verb, *kept] for verb in ("status", "diff")),
        ["golden", "review", "--allow-in-ci", *kept],
    ):
        _, shown, errors = project.command(*words)
        assert shown
        assert commands(shown + errors) == []


@pytest.mark.e2e
def test_junit_has_plain_properties_of_each_test(regressed: Project) -> None:
    """In the older family, too, and from workers."""
    regressed.run("--junitxml=junit.xml", "-o", "junit_family=xunit1", "-n1")
    (suite,) = junitparser.JUnitXml.fromfile(str(regressed.path / "junit.xml"))
    (case,) = suite
    (failure,) = case.result
    assert "npudump: block/conv.2: weights changed " in failure.message
    properties = {found.name: found.value for found in case.child(junitparser.Properties)}
    assert properties["npudump.status"] == "failed"
    assert properties["npudump.source"] == "block/conv.2:output.0 (1 downstream)"
    assert properties["npudump.tensors"] == "5 of 5 compared, 2 out of tolerance"
    assert str(properties["npudump.golden"]).endswith(".yaml")
    assert json.loads(str(properties["npudump"]))["status"] == "failed"
