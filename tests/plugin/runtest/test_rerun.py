"""How the second run behaves beside everything else pytest does around a test."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest

if TYPE_CHECKING:
    from conftest import Project

BODY = """
    print("run", len(LOG))
    image = np.linspace(-1, 1, 64, dtype=np.float32).reshape(1, 1, 8, 8)
    with npu_dump.load_model("small.onnx") as model:
        model.run(image)
"""


def failing(project: Project, source: str) -> None:
    """Record the goldens of ``source``, then change the model."""
    project.test_file(source)
    project.record()
    project.model(change=0.01)


ONE = "LOG = []\n@pytest.mark.npu_dump\ndef test_small(npu_dump):\n" + BODY


def test_junit_has_one_case_with_one_failure_and_the_attempts_as_a_property(project: Project) -> None:
    failing(project, ONE)
    project.run("--junitxml=out.xml")
    root = ET.parse(project.path / "out.xml").getroot()  # noqa: S314 - pytest's own file
    (case,) = root.iter("testcase")
    (failure,) = case.iter("failure")
    assert "npudump: block/conv.2 (Conv output.0) differs" in failure.get("message", "")
    (value,) = [p.get("value") for p in case.iter("property") if p.get("name") == "npudump"]
    data = json.loads(str(value))
    assert data["attempts"] == 2
    assert data["reproduced"] is True
    assert data["first"] == "block/conv.2:output.0"
    assert root.find("testsuite").get("tests") == "1"  # type: ignore[union-attr]


def test_properties_set_at_collection_stay(project: Project) -> None:
    project.path.joinpath("conftest.py").write_text(
        "def pytest_collection_modifyitems(items):\n    items[0].user_properties.append(('ticket', '17'))\n"
    )
    failing(project, ONE)
    project.run("--junitxml=out.xml")
    root = ET.parse(project.path / "out.xml").getroot()  # noqa: S314 - pytest's own file
    names = [str(p.get("name")) for p in root.iter("property")]
    assert [name for name in names if not name.startswith("npudump.")] == ["ticket", "npudump"]


def test_captured_output_is_that_of_the_last_run_only(project: Project) -> None:
    failing(
        project,
        "LOG = []\n@pytest.fixture\ndef grow():\n    LOG.append(1)\n"
        + ONE.replace("LOG = []\n", "").replace("(npu_dump)", "(npu_dump, grow)"),
    )
    result = project.run()
    result.stdout.fnmatch_lines(["run 2"])
    result.stdout.no_fnmatch_line("run 1")


def test_function_fixtures_are_set_up_anew_and_wider_ones_stay(project: Project) -> None:
    source = """
    LOG = []

    @pytest.fixture
    def narrow():
        LOG.append("narrow up")
        yield
        LOG.append("narrow down")

    @pytest.fixture(scope="class")
    def middle():
        LOG.append("class up")
        yield
        LOG.append("class down")

    @pytest.fixture(scope="module")
    def wide():
        LOG.append("module up")
        yield
        LOG.append("module down")
        with open("log.txt", "w") as file:
            file.write(", ".join(LOG))

    class TestIt:
        @pytest.mark.npu_dump
        def test_small(self, npu_dump, wide, middle, narrow):
            self.count = getattr(self, "count", 0) + 1
            assert self.count == 1, "a new instance for each run"
            image = np.linspace(-1, 1, 64, dtype=np.float32).reshape(1, 1, 8, 8)
            with npu_dump.load_model("small.onnx") as model:
                model.run(image)

        def test_after(self, wide, middle):
            LOG.append("next test")
    """
    failing(project, source)
    project.run().assert_outcomes(failed=1, passed=1)
    assert (project.path / "log.txt").read_text() == (
        "module up, class up, narrow up, narrow down, narrow up, narrow down, next test, "
        "class down, module down"
    )


def test_exitfirst_stops_after_the_explained_failure(project: Project) -> None:
    failing(project, ONE + "\ndef test_later():\n    pass\n")
    result = project.run("-x")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["second run: the failure reproduced*"])


def test_last_failed_selects_the_test_again(project: Project) -> None:
    failing(project, ONE + "\ndef test_later():\n    pass\n")
    project.pytester.makeini("[pytest]\n")
    project.run()
    result = project.run("--lf")
    result.assert_outcomes(failed=1)


def test_each_parameter_has_a_golden_of_its_own(project: Project) -> None:
    source = """
    @pytest.mark.npu_dump
    @pytest.mark.parametrize("scale", [1, 2])
    def test_small(npu_dump, scale):
        image = np.linspace(-1, 1, 64, dtype=np.float32).reshape(1, 1, 8, 8) * np.float32(scale)
        with npu_dump.load_model("small.onnx") as model:
            model.run(image)
    """
    failing(project, source)
    assert len(list(project.path.joinpath("golden").rglob("*.yaml"))) == 2
    result = project.run()
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(
        ["to approve: pytest --npudump-update-golden 'test_small.py::test_small[[]2]'"]
    )


def test_unittest_case_is_dumped_and_run_again(project: Project) -> None:
    source = """
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
            self.assertFalse(Path("broken").exists())
    """
    failing(project, source)
    result = project.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["npudump: *conv*differs: *", "second run: the failure reproduced*"])
    project.path.joinpath("broken").touch()
    result = project.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*self.assertFalse*", "*its dump was not compared*"])


def test_async_test_is_dumped_and_run_again(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTEST_ADDOPTS")
    project.pytester.makeini("[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\n")
    source = """
    import asyncio

    @pytest.mark.npu_dump
    async def test_small(npu_dump):
        await asyncio.sleep(0)
        image = np.linspace(-1, 1, 64, dtype=np.float32).reshape(1, 1, 8, 8)
        with npu_dump.load_model("small.onnx") as model:
            model.run(image)
    """
    failing(project, source)
    result = project.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["second run: the failure reproduced*"])


def test_failing_and_passing_unittest_subtests_are_left_alone(project: Project) -> None:
    project.test_file(
        """
        import unittest
        from pathlib import Path

        @pytest.mark.npu_dump
        class TestSmall(unittest.TestCase):
            def test_small(self):
                import acl
                from pytest_npudump.runtime.pyacl.model import PyAclModel
                acl.init(), acl.rt.set_device(0)
                image = np.linspace(-1, 1, 64, dtype=np.float32).reshape(1, 1, 8, 8)
                for number in range(2):
                    with self.subTest(number=number):
                        with PyAclModel.load(acl, Path("small.onnx"), on_run=lambda: None) as model:
                            model.run(image)
        """
    )
    project.record()
    assert project.run().ret == 0
    project.model(change=0.01)
    result = project.run()
    assert result.ret == 1
    result.stdout.fnmatch_lines(["second run: the failure reproduced*"])


def test_two_cases_that_share_an_id_are_refused(project: Project) -> None:
    project.test_file(
        """
        @pytest.mark.npu_dump
        @pytest.mark.parametrize("a", ["c", "b-c"])
        @pytest.mark.parametrize("b", ["a-b", "a"])
        def test_small(npu_dump, a, b):
            pass
        """
    )
    result = project.run()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: npu_dump: *a-b-c* would share the golden *"])


def test_hypothesis_test_is_refused_at_collection(project: Project) -> None:
    project.test_file(
        """
        from hypothesis import given, strategies

        @pytest.mark.npu_dump
        @given(strategies.integers())
        def test_small(number):
            pass
        """
    )
    result = project.run()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*test_small.py::test_small: npu_dump does not go with hypothesis' @given*"])


def test_xfail_is_not_run_again(project: Project) -> None:
    failing(
        project, "LOG = []\n@pytest.mark.xfail\n@pytest.mark.npu_dump\ndef test_small(npu_dump):\n" + BODY
    )
    project.run("--npudump-dump-dir=dumps").assert_outcomes(xfailed=1)
    assert not list(project.path.glob("dumps/*/run2"))


def test_skipped_test_does_not_touch_the_runtime(project: Project) -> None:
    project.test_file("@pytest.mark.skip\n@pytest.mark.npu_dump\ndef test_small(npu_dump):\n    pass\n")
    project.run("--npudump-dump-dir=dumps").assert_outcomes(skipped=1)
    assert not project.path.joinpath("dumps").exists()


def test_skip_inside_the_body_compares_nothing(project: Project) -> None:
    project.marked(body="    pytest.skip('not today')\n")
    project.run().assert_outcomes(skipped=1)


@pytest.mark.e2e
def test_xdist_workers_report_to_one_summary(project: Project) -> None:
    source = """
    @pytest.mark.npu_dump
    @pytest.mark.parametrize("scale", [1, 2, 3, 4])
    def test_small(npu_dump, scale):
        image = np.linspace(-1, 1, 64, dtype=np.float32).reshape(1, 1, 8, 8) * np.float32(scale)
        with npu_dump.load_model("small.onnx") as model:
            model.run(image)
    """
    project.test_file(source)
    options = ("--npudump-runtime=emulator", "-n2")
    project.pytester.runpytest_subprocess("--npudump-update-golden", *options).assert_outcomes(passed=4)
    result = project.pytester.runpytest_subprocess(*options)
    result.assert_outcomes(passed=4)
    result.stdout.fnmatch_lines(["npudump: 4 of 4 tests good, 20 of 20 tensors compared (emulator)"])
    project.model(change=0.01)
    result = project.pytester.runpytest_subprocess(*options, "--junitxml=out.xml")
    result.assert_outcomes(failed=4)
    root = ET.parse(project.path / "out.xml").getroot()  # noqa: S314 - pytest's own file
    assert len(list(root.iter("testcase"))) == len(list(root.iter("failure"))) == 4


@pytest.mark.e2e
def test_bad_marker_is_a_collection_error_under_xdist(project: Project) -> None:
    project.marked("layer=['a']")
    result = project.pytester.runpytest_subprocess("--npudump-runtime=emulator", "-n2")
    assert result.ret != 0
    result.stdout.fnmatch_lines(["*test_small.py::test_small: layer: unknown argument; allowed are layers*"])


def test_rerunfailures_does_not_turn_a_regression_green_nor_run_it_more_often(project: Project) -> None:
    failing(project, ONE)
    flaky = "count = []\n\ndef test_flaky():\n    count.append(1)\n    assert len(count) > 1\n"
    project.test_file(flaky, "test_flaky.py")
    result = project.run("--reruns=3")
    outcomes = result.parseoutcomes()
    assert outcomes["failed"] == 1
    assert outcomes["passed"] == 1
    assert outcomes["rerun"] == 1
    result.stdout.fnmatch_lines(["second run: the failure reproduced*"])


def test_rerunfailures_does_not_turn_a_missing_golden_green(project: Project) -> None:
    project.marked()
    result = project.run("--reruns=3")
    result.assert_outcomes(failed=1)
    assert not project.path.joinpath("golden").exists()


def test_setup_only_dumps_nothing(project: Project) -> None:
    project.marked()
    result = project.run("--setup-only", "--npudump-dump-dir=dumps")
    assert result.ret == 0
    assert not project.path.joinpath("dumps").exists()


@pytest.mark.parametrize("flag", ["-v", "-q"])
def test_verbose_shows_every_failing_tensor(project: Project, flag: str) -> None:
    body = "".join(f"        model.run(image * np.float32({step}))\n" for step in range(2, 12))
    failing(project, ONE + body)
    result = project.run(flag)
    rows = [line for line in result.outlines if "block/conv.2 " in line and "output.0" in line]
    assert (len(rows) >= 11) is (flag == "-v")
    assert any(line.startswith("  ... and ") for line in result.outlines) is (flag == "-q")


def test_failure_of_a_second_setup_leaves_the_verdict_standing(project: Project) -> None:
    source = """
    import pathlib
    LOG = []

    @pytest.fixture
    def once():
        LOG.append(1)
        if len(LOG) > 1:
            raise OSError("device busy")

    @pytest.mark.npu_dump
    def test_small(npu_dump, once):
        image = np.linspace(-1, 1, 64, dtype=np.float32).reshape(1, 1, 8, 8)
        with npu_dump.load_model("small.onnx") as model:
            model.run(image)
    """
    failing(project, source)
    result = project.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["npudump: block/conv.2 *", "second run: setup of the second run: *device busy*"]
    )
