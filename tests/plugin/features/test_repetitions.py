"""Tests that a plugin repeats: one golden for all repetitions, which none of them may differ from unseen."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Project

MODEL = """
    image = np.linspace(-1, 1, 64, dtype=np.float32).reshape(1, 1, 8, 8) * np.float32({factor})
    with npu_dump.load_model("small.onnx") as model:
        model.run(image)
"""
PLAIN = "@pytest.mark.npu_dump({arguments})\ndef test_small(npu_dump):\n" + MODEL.format(factor="1")
PARAMETERS = """
@pytest.fixture(params=[1, 2], autouse=True)
def unasked(request):
    return request.param

@pytest.mark.npu_dump
@pytest.mark.parametrize(("a", "b"), [(1, 1), (1, 3)], ids=["low", "high"])
def test_small(npu_dump, a, b, unasked):
""" + MODEL.format(factor="a * b * unasked")
DIFFERING = """
RUNS = []

@pytest.mark.npu_dump({arguments})
def test_small(npu_dump):
    import pathlib
    count = pathlib.Path("count")
    count.write_text((count.read_text() if count.exists() else "") + ".")
""" + MODEL.format(factor="len(count.read_text())")
NUMBERED_BY_PARAMETRIZE = """
import pytest

@pytest.hookimpl(trylast=True)
def pytest_generate_tests(metafunc):
    metafunc.fixturenames.append("__again")
    metafunc.parametrize("__again", list(range(2)))
"""


def names(project: Project) -> list[str]:
    return sorted(path.name for path in project.path.joinpath("golden").rglob("*.yaml"))


@pytest.mark.parametrize("isolation", ["none", "process"])
def test_all_repetitions_have_one_golden_that_is_the_plain_test_s(project: Project, isolation: str) -> None:
    project.test_file(PLAIN.format(arguments=f"isolation={isolation!r}"))
    project.run("--npudump-update-golden", "--count=2").assert_outcomes(passed=2)
    assert names(project) == ["test_small.yaml"]
    assert "test: test_small.py::test_small\n" in project.golden.read_text()
    project.run().assert_outcomes(passed=1)
    project.run("--count=2").assert_outcomes(passed=2)


def test_golden_of_the_plain_test_is_that_of_its_repetitions(project: Project) -> None:
    project.test_file(PLAIN.format(arguments=""))
    project.record()
    project.model(change=0.01)
    result = project.run("--count=2", "--npudump-escalate=off")
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(["to approve: pytest --npudump-update-golden test_small.py::test_small"])


def test_other_parameters_keep_a_golden_each(project: Project) -> None:
    project.test_file(PARAMETERS)
    project.record()
    plain = names(project)
    assert len(plain) == 4
    project.run("--npudump-update-golden", "--count=2").assert_outcomes(passed=8)
    assert names(project) == plain
    project.run("--count=2").assert_outcomes(passed=8)


def test_number_that_is_parametrised_directly_is_a_repetition_too(project: Project) -> None:
    project.path.joinpath("conftest.py").write_text(NUMBERED_BY_PARAMETRIZE)
    project.test_file(PARAMETERS)
    project.run("--npudump-update-golden").assert_outcomes(passed=8)
    assert len(names(project)) == 4


@pytest.mark.parametrize("isolation", ["none", "process"])
def test_update_fails_for_a_repetition_that_differs_from_the_first(project: Project, isolation: str) -> None:
    project.test_file(DIFFERING.format(arguments=f"isolation={isolation!r}, escalate=False"))
    result = project.run("--npudump-update-golden", "--npudump-repeats=1", "--count=2")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        ["npudump: *differs: *", "an earlier repetition recorded the golden in this run, *"]
    )
    assert len(names(project)) == 1


@pytest.mark.e2e
def test_update_of_repetitions_on_several_workers_is_refused(project: Project) -> None:
    project.test_file(PLAIN.format(arguments=""))
    options = ("--npudump-runtime=emulator", "--npudump-update-golden", "--count=2", "-n1")
    result = project.pytester.runpytest_subprocess(*options)
    assert result.ret != 0
    result.stdout.fnmatch_lines(["npu_dump: *all repetitions of a test share one golden, *leave out -n *"])
    assert not project.path.joinpath("golden").exists()
