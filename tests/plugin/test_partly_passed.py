"""A part of a test does not pass: an update accepts nothing of it, and no comparison counts as good."""

from __future__ import annotations

import json
from collections.abc import Sequence
from xml.etree import ElementTree as ET

import pytest

from tests.plugin.conftest import Project

UNITTEST = """
import unittest
from pathlib import Path

@pytest.mark.npu_dump
class TestSmall(unittest.TestCase):
    def test_small(self):
        import acl
        from pytest_npudump.runtime.pyacl.model import PyAclModel
        acl.init(), acl.rt.set_device(0)
        image = np.linspace(-1, 1, 64, dtype=np.float32).reshape(1, 1, 8, 8)
        with PyAclModel.load(acl, Path("small.onnx"), on_run=lambda: None) as model:
            model.run(image)
        for number in range(3):
            with self.subTest(number=number):
                assert number != 1 or not Path("broken").exists()
"""
HEAD = "from pathlib import Path\nBROKEN = Path('broken').exists\n"
MARKED = "\n@pytest.mark.npu_dump\ndef test_small(npu_dump{fixtures}):\n    run(npu_dump)\n"
PYTEST = (
    HEAD
    + MARKED.format(fixtures=", subtests")
    + ("    for number in range(3):\n        with subtests.test(number=number):\n            {statement}\n")
)
AFTERWARDS = {
    "finalizer": HEAD
    + "@pytest.fixture\ndef guard():\n    yield\n    assert not BROKEN(), 'teardown'\n"
    + MARKED.format(fixtures=", guard"),
    "wider finalizer": HEAD
    + "@pytest.fixture(scope='module')\ndef guard():\n    yield\n    assert not BROKEN(), 'teardown'\n"
    + MARKED.format(fixtures=", guard"),
    "pytest.fail in teardown": HEAD
    + "def teardown_function():\n    BROKEN() and pytest.fail('teardown')\n"
    + MARKED.format(fixtures=""),
    "strict xfail": HEAD
    + "@pytest.mark.xfail('__import__(\"os\").path.exists(\"broken\")', strict=True, reason='teardown')"
    + MARKED.format(fixtures=""),
}
SOFT = """
import pytest
from pathlib import Path

@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if call.when == "call" and Path("broken").exists():
        report.outcome, report.longrepr = "failed", "a soft assertion failed"
    return report
"""


def beside(project: Project) -> list[str]:
    """Names of all files in the folder of the golden, those of an unfinished recording included."""
    return sorted(path.name for path in project.golden.parent.iterdir())


def approved_then_broken(project: Project, source: str, arguments: str = "") -> bytes:
    """Record the golden, change the model, and break a part of the test that is not the comparison."""
    project.test_file(source.replace("npu_dump\n", f"npu_dump({arguments})\n", 1))
    project.record()
    project.model(change=0.01)
    project.path.joinpath("broken").touch()
    return project.golden.read_bytes()


UPDATE = "--npudump-update-golden"
NOT_RECORDED = "npudump: 0 of 1 tests passed, 1 not recorded *"
ISOLATIONS = ["auto", pytest.param("process", marks=pytest.mark.e2e)]
TENSORS = "golden_tensors=['block/*']"
RECORDED = [("", "auto"), (TENSORS, "auto"), pytest.param(TENSORS, "process", marks=pytest.mark.e2e)]


def unchanged(project: Project, golden: bytes, *options: str, shows: Sequence[str], **outcomes: int) -> None:
    """Hold an update against what it shows, and the golden against what it was."""
    result = project.run(UPDATE, *options, shows=shows, **outcomes)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert project.golden.read_bytes() == golden


@pytest.mark.parametrize(
    "source",
    [
        UNITTEST,
        PYTEST.format(statement="assert number != 1 or not BROKEN()"),
        PYTEST.format(statement="number == 1 and BROKEN() and pytest.xfail('not yet')"),
    ],
    ids=["unittest", "pytest", "expected failure"],
)
def test_update_records_nothing_where_a_subtest_did_not_pass(project: Project, source: str) -> None:
    """Nor is its comparison good."""
    if "subtests" in source:
        pytest.importorskip("_pytest.subtests", reason="the fixture subtests came with pytest 9")
    golden = approved_then_broken(project, source)
    shows = [
        "npudump: subtests did not pass (1): nothing was compared and nothing recorded",
        "npudump: 0 of 1 tests passed, 1 not compared *",
    ]
    unchanged(project, golden, shows=shows)
    project.model()
    assert "xfail" in source or project.run(shows=shows[1:]).ret == pytest.ExitCode.TESTS_FAILED


def statuses(project: Project) -> set[str]:
    """Return what the properties of JUnit's file say became of the test."""
    found = [*ET.parse(project.path / "out.xml").iter("property")]  # noqa: S314 - ours
    told = {str(p.get("value")) for p in found if p.get("name") == "npudump.status"}
    whole = {json.loads(str(p.get("value")))["status"] for p in found if p.get("name") == "npudump"}
    assert told == whole
    return told


@pytest.mark.parametrize("place", AFTERWARDS)
def test_update_takes_back_what_it_recorded_where_a_later_part_fails(project: Project, place: str) -> None:
    golden = approved_then_broken(project, AFTERWARDS[place])
    shows = ["nothing was recorded: the test's * did not pass", NOT_RECORDED]
    unchanged(project, golden, "--junitxml=out.xml", shows=shows)
    assert beside(project) == [project.golden.name]
    assert statuses(project) == {"not recorded"}


def test_update_takes_back_the_first_golden_and_its_tensors(project: Project) -> None:
    project.path.joinpath("broken").touch()
    project.test_file(AFTERWARDS["finalizer"].replace("npu_dump\n", f"npu_dump({TENSORS})\n", 1))
    project.run(UPDATE, passed=1, errors=2)  # each run has a teardown
    assert not [path for path in project.path.joinpath("golden").rglob("*") if path.is_file()]
    project.path.joinpath("broken").unlink()
    project.record()
    assert {path.suffix for path in project.golden.parent.iterdir()} == {".yaml", ".safetensors"}


LATE_SUBTEST = (
    f"{HEAD}@pytest.fixture\ndef guard(subtests):\n    yield\n    with subtests.test('late'):\n"
    f"        assert not BROKEN()\n{MARKED.format(fixtures=', guard')}"
)


@pytest.mark.parametrize(("arguments", "isolation"), RECORDED)
def test_update_takes_back_what_it_recorded_where_a_late_subtest_fails(
    project: Project, arguments: str, isolation: str
) -> None:
    pytest.importorskip("_pytest.subtests", reason="the fixture subtests came with pytest 9")
    golden = approved_then_broken(project, LATE_SUBTEST, arguments)
    unchanged(project, golden, f"-onpudump_isolation={isolation}", shows=[NOT_RECORDED])


def test_soft_assertion_that_fails_the_report_approves_nothing(project: Project) -> None:
    project.path.joinpath("conftest.py").write_text(SOFT)
    golden = approved_then_broken(project, MARKED.format(fixtures=""))
    unchanged(project, golden, failed=1, shows=[])
    project.model()
    words = "npudump: 0 of 1 tests passed, 1 failed; 5 of 5 tensors compared (emulator); *"
    project.run(failed=1, shows=words)


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_update_takes_back_what_it_recorded_where_the_session_ends_in_the_teardown(
    project: Project, isolation: str
) -> None:
    """And does not say recorded where the teardown of the first of two runs failed."""
    source = f"{HEAD}@pytest.fixture\ndef guard():\n    yield\n{{}}{MARKED.format(fixtures=', guard')}"
    golden = approved_then_broken(project, source.format("    BROKEN() and pytest.exit('enough')\n"))
    project.run(UPDATE, f"-onpudump_isolation={isolation}")
    assert project.golden.read_bytes() == golden
    assert beside(project) == [project.golden.name]
    project.path.joinpath("broken").unlink()
    project.golden.unlink()
    teardown = "    failed = BROKEN()\n    Path('broken').unlink(missing_ok=True)\n    assert not failed\n"
    project.model()
    golden = approved_then_broken(project, source.format(teardown), TENSORS)
    options = (f"-onpudump_isolation={isolation}", "--junitxml=out.xml")
    unchanged(project, golden, *options, passed=1, errors=1, shows=[NOT_RECORDED])
    assert beside(project) == sorted([project.golden.name, project.golden.with_suffix(".safetensors").name])
    assert statuses(project) == {"not recorded"}


@pytest.mark.parametrize(("arguments", "isolation"), RECORDED)
def test_nothing_counts_before_the_end_of_the_teardown(
    project: Project, arguments: str, isolation: str
) -> None:
    """The golden is as it was while fixtures are torn down, and is the new one afterwards."""
    seen = (
        "    BROKEN() and Path('seen').write_bytes(next(Path('golden').rglob('test*.yaml')).read_bytes())\n"
    )
    source = f"{HEAD}@pytest.fixture\ndef guard():\n    yield\n{seen}{MARKED.format(fixtures=', guard')}"
    golden = approved_then_broken(project, source, arguments)
    project.run(UPDATE, f"-onpudump_isolation={isolation}", passed=1)
    assert (project.path / "seen").read_bytes() == golden != project.golden.read_bytes()
    project.run(passed=1)
    assert beside(project) == [p.name for p in sorted(project.golden.parent.glob("[!.]*"))]


def test_repetition_by_another_plugin_is_approved_when_its_teardown_has_passed(project: Project) -> None:
    """Some plugins run a test's phases themselves: what was recorded counts behind their last one."""
    project.path.joinpath("conftest.py").write_text(
        "import pytest\nfrom _pytest.runner import runtestprotocol\n"
        "@pytest.hookimpl(tryfirst=True)\ndef pytest_runtest_protocol(item, nextitem):\n"
        "    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)\n"
        "    runtestprotocol(item, nextitem=nextitem)\n    return True\n"
    )
    golden = approved_then_broken(project, AFTERWARDS["finalizer"])
    project.run("--npudump-update-golden").assert_outcomes(passed=1, errors=1)
    assert project.golden.read_bytes() == golden
    assert beside(project) == [project.golden.name]
    project.path.joinpath("broken").unlink()
    project.run("--npudump-update-golden").assert_outcomes(passed=1)
    assert project.golden.read_bytes() != golden
    assert beside(project) == [project.golden.name]


def test_recording_that_cannot_take_its_place_fails_the_test(project: Project) -> None:
    source = f"{HEAD}@pytest.fixture\ndef guard():\n    yield\n"
    source += "    [left.unlink() for left in Path('golden').rglob('.npudump-*.tmp') if BROKEN()]\n"
    golden = approved_then_broken(project, source + MARKED.format(fixtures=", guard"))
    words = "npudump: nothing was recorded: *what was recorded is not there any more: another run *"
    unchanged(project, golden, passed=1, errors=1, shows=[words, NOT_RECORDED])
