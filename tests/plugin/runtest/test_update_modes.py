"""An update of what fails, or of what is new, leaves every other golden as it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import yaml

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Project

MODEL = """
    image = np.linspace(-1, 1, 64, dtype=np.float32).reshape(1, 1, 8, 8)
    with npu_dump.load_model({model!r}) as model:
        model.run(image)
"""
TWO = "".join(
    f"\n@pytest.mark.npu_dump\ndef test_{name}(npu_dump):" + MODEL.format(model=f"{name}.onnx")
    for name in ("same", "other")
)
THIRD = "\n@pytest.mark.npu_dump\ndef test_third(npu_dump):" + MODEL.format(model="same.onnx")
BROKEN = {
    "failing body": ("", "    assert False\n"),
    "skip": ("", "    pytest.skip('half way')\n"),
    "xfail": ("@pytest.mark.xfail\n", ""),
    "failing xfail": ("@pytest.mark.xfail\n", "    assert False\n"),
    "failing teardown": (
        "@pytest.fixture\ndef guard():\n    yield\n    assert False\n\n@pytest.mark.usefixtures('guard')\n",
        "",
    ),
}


def copy(project: Project, name: str, **changes: object) -> None:
    project.model(**changes)
    project.path.joinpath(f"{name}.onnx").write_bytes(project.path.joinpath("small.onnx").read_bytes())


def goldens(project: Project) -> dict[str, bytes]:
    return {path.stem: path.read_bytes() for path in sorted(project.path.joinpath("golden").rglob("*.yaml"))}


def stamps(project: Project) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in project.path.joinpath("golden").rglob("*.yaml")}


@pytest.fixture
def two(project: Project) -> Project:
    """A project with two goldens, of which one does not fit any more, and a test without one."""
    copy(project, "same")
    copy(project, "other")
    project.test_file(TWO)
    project.record()
    copy(project, "other", change=0.01)
    project.test_file(TWO + THIRD)
    return project


def test_an_update_of_what_fails_writes_that_golden_alone(two: Project) -> None:
    before, written = goldens(two), stamps(two)
    result = two.run("--npudump-update-golden=failed", "-rA")
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(["npudump: THIS RUN APPROVES (--npudump-update-golden=failed): where a *"])
    result.stdout.fnmatch_lines(["*written anew because the run differed from it: * of 5 tensors, first *"])
    after = goldens(two)
    assert after.keys() == before.keys()
    assert [name for name in after if after[name] != before[name]] == ["test_other"]
    assert [path.stem for path, time in stamps(two).items() if time != written[path]] == ["test_other"]
    two.run("-k", "same or other").assert_outcomes(passed=2)


def test_an_update_of_what_is_new_writes_that_golden_alone_and_compares_the_others(two: Project) -> None:
    before = goldens(two)
    result = two.run("--npudump-update-golden=new")
    result.assert_outcomes(passed=2, failed=1)
    after = goldens(two)
    assert {name: after[name] for name in before} == before
    assert after.keys() - before.keys() == {"test_third"}


def test_an_update_of_what_is_new_does_not_replace_a_golden_that_cannot_be_read(two: Project) -> None:
    path = next(two.path.joinpath("golden").rglob("test_same.yaml"))
    path.write_bytes(b"<<<<<<< ours\n" + path.read_bytes())
    before = path.read_bytes()
    for mode in ("new", "failed"):
        two.run(f"--npudump-update-golden={mode}", "-k", "same").assert_outcomes(failed=1)
        assert path.read_bytes() == before


@pytest.mark.parametrize("mode", ["failed", "new", "all"])
def test_what_is_deselected_keeps_its_golden_and_gets_none(two: Project, mode: str) -> None:
    before, written = goldens(two), stamps(two)
    two.run(f"--npudump-update-golden={mode}", "-k", "same").assert_outcomes(passed=1, deselected=2)
    assert goldens(two) == before
    assert stamps(two) == written


@pytest.mark.parametrize("mode", ["failed", "new", "all"])
@pytest.mark.parametrize("how", BROKEN)
def test_a_test_that_does_not_pass_as_a_whole_approves_nothing(project: Project, mode: str, how: str) -> None:
    copy(project, "small")
    project.marked()
    if mode != "new":
        project.record()
        copy(project, "small", change=0.01)
    before = goldens(project)
    decorator, end = BROKEN[how]
    body = MODEL.format(model="small.onnx")
    project.test_file(f"{decorator}@pytest.mark.npu_dump\ndef test_small(npu_dump):{body}{end}")
    project.run(f"--npudump-update-golden={mode}")
    assert goldens(project) == before
    assert not [*project.path.joinpath("golden").rglob(".npudump-*")]


@pytest.mark.parametrize("mode", ["failed", "new"])
def test_runs_in_processes_of_their_own_write_the_same_goldens(two: Project, mode: str) -> None:
    before = goldens(two)
    result = two.run(f"--npudump-update-golden={mode}", "--npudump-isolation=process")
    result.assert_outcomes(passed=2, failed=1)
    after = goldens(two)
    changed = {name for name in after if after[name] != before.get(name)}
    assert changed == ({"test_other"} if mode == "failed" else {"test_third"})


def test_a_reason_stands_in_goldens_that_change_and_in_no_others(project: Project) -> None:
    project.marked()
    project.record("--npudump-reason=first: a new kernel")
    first = yaml.safe_load(project.golden.read_text("utf-8"))
    assert first["reason"] == "first: a new kernel"
    project.record("--npudump-reason=nothing has changed")
    assert yaml.safe_load(project.golden.read_text("utf-8")) == first
    project.model(change=0.1)
    project.record("--npudump-reason=new weights")
    assert yaml.safe_load(project.golden.read_text("utf-8"))["reason"] == "new weights"
    project.model()
    project.record()
    assert "reason" not in yaml.safe_load(project.golden.read_text("utf-8"))


def test_a_reason_without_an_update_is_refused(project: Project) -> None:
    project.marked()
    result = project.run("--npudump-reason=why")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: npudump: --npudump-reason is of an update*"])


def test_no_update_writes_through_a_symbolic_link(
    project: Project, tmp_path_factory: pytest.TempPathFactory
) -> None:
    outside = tmp_path_factory.mktemp("outside")
    project.marked("golden_tensors=['*']")
    project.record()
    kept = {path: path.read_bytes() for path in project.path.joinpath("golden").rglob("test_small.*")}
    assert {path.suffix for path in kept} == {".yaml", ".safetensors"}
    project.model(change=0.01)
    for path, content in kept.items():
        for there in (True, False):
            target = outside / path.name
            if there:
                target.write_bytes(content)
            path.unlink()
            path.symlink_to(target)
            result = project.run("--npudump-update-golden")
            assert result.ret == 1, (path.name, there)
            result.stdout.fnmatch_lines(
                [f"*{path.name}: is a symbolic link, through which nothing is written*"]
            )
            assert path.is_symlink()
            assert [one.read_bytes() for one in outside.iterdir()] == [content] * there
            path.unlink()
            path.write_bytes(content)
            target.unlink(missing_ok=True)
    folder = project.golden.parent
    folder.rename(outside / "folder")
    folder.symlink_to(outside / "folder")
    before = {path: path.read_bytes() for path in outside.rglob("*.*")}
    assert project.run("--npudump-update-golden").ret == 1
    assert project.run("--npudump-calibrate=3").ret == 1
    assert {path: path.read_bytes() for path in outside.rglob("*.*")} == before
    folder.unlink()
    folder.parent.rmdir()
    (outside / "golden").mkdir()
    project.path.joinpath("golden").symlink_to(outside / "golden")
    project.record()
    assert len([*(outside / "golden").rglob("test_small.*")]) == len(kept)
