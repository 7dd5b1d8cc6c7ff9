"""Which goldens an update writes: those that fail, or are new, and the variant that applies."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from pytest_npudump.cli import main
from pytest_npudump.golden.store import VARIANT
from pytest_npudump.record.record import Record
from pytest_npudump.record.text import parse
from tests.plugin.conftest import Project

UPDATE = "--npudump-update-golden"
MODEL = """
    run(npu_dump, path={model!r})
"""
TWO_MODELS = "".join(
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


def goldens(project: Project) -> dict[str, tuple[int, bytes]]:
    """Return when each golden was written, and its content."""
    paths = sorted(project.path.joinpath("golden").rglob("*.yaml"))
    return {path.stem: (path.stat().st_mtime_ns, path.read_bytes()) for path in paths}


@pytest.fixture
def two_models(project: Project) -> Project:
    """A project with two_models goldens, of which one does not fit any more, and a test without one."""
    copy(project, "same")
    copy(project, "other")
    project.test_file(TWO_MODELS)
    project.record()
    copy(project, "other", change=0.01)
    project.test_file(TWO_MODELS + THIRD)
    return project


def test_an_update_of_what_fails_or_is_new_writes_that_golden_alone(two_models: Project) -> None:
    """What is deselected keeps its golden and gets none."""
    before = goldens(two_models)
    for mode in ("failed", "new", "all"):
        two_models.run(f"{UPDATE}={mode}", "-k", "same", passed=1, deselected=2)
        assert goldens(two_models) == before
    two_models.run(f"{UPDATE}=new", passed=2, failed=1)
    after = goldens(two_models)
    assert {name: after[name] for name in before} == before
    assert after.keys() - before.keys() == {"test_third"}
    next(two_models.path.rglob("test_third.yaml")).unlink()
    words = "npudump: --npudump-update-golden=failed: this run writes *"
    result = two_models.run(f"{UPDATE}=failed", "-rA", passed=2, failed=1, shows=words)
    result.stdout.fnmatch_lines(["*the golden was rewritten because of mismatches: * of 5 tensors, first *"])
    after = goldens(two_models)
    assert after.keys() == before.keys()
    assert [name for name in after if after[name][1] != before[name][1]] == ["test_other"]
    assert [name for name in after if after[name][0] != before[name][0]] == ["test_other"]
    two_models.run("-k", "same or other", passed=2)
    path = next(two_models.path.joinpath("golden").rglob("test_same.yaml"))
    path.write_bytes(b"<<<<<<< ours\n" + path.read_bytes())
    unreadable = path.read_bytes()
    for mode in ("new", "failed"):
        two_models.run(f"{UPDATE}={mode}", "-k", "same", failed=1)
        assert path.read_bytes() == unreadable


@pytest.mark.parametrize("mode", ["failed", "new", "all"])
def test_a_test_that_does_not_pass_as_a_whole_approves_nothing(project: Project, mode: str) -> None:
    if mode != "new":
        project.recorded(change=0.01)
    before = goldens(project)
    body = MODEL.format(model="small.onnx")
    for decorator, end in BROKEN.values():
        project.test_file(f"{decorator}@pytest.mark.npu_dump\ndef test_small(npu_dump):{body}{end}")
        project.run(f"--npudump-update-golden={mode}")
        assert goldens(project) == before
        assert not [*project.path.joinpath("golden").rglob(".npudump-*")]


def test_a_reason_is_of_an_update_and_goes_with_the_next(project: Project) -> None:
    project.marked()
    project.refused("ERROR: npudump: --npudump-reason needs --npudump-update-golden*", "--npudump-reason=why")
    project.record("--npudump-reason=first: a new kernel")
    assert yaml.safe_load(project.golden.read_text("utf-8"))["reason"] == "first: a new kernel"
    first = project.golden.read_text("utf-8")
    project.record("--npudump-reason=nothing has changed")
    assert project.golden.read_text("utf-8") == first
    project.model(change=0.1)
    project.record()
    assert "reason" not in yaml.safe_load(project.golden.read_text("utf-8"))


def test_no_update_writes_through_a_symbolic_link(
    project: Project, tmp_path_factory: pytest.TempPathFactory
) -> None:
    outside = tmp_path_factory.mktemp("outside")
    project.recorded("golden_tensors=['*']")
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
            words = f"*{path.name}: is a symbolic link, through which nothing is written*"
            assert project.run(UPDATE, shows=words).ret == 1, (path.name, there)
            assert path.is_symlink()
            assert [one.read_bytes() for one in outside.iterdir()] == [content] * there
            path.unlink()
            path.write_bytes(content)
            target.unlink(missing_ok=True)
    folder = project.golden.parent
    folder.rename(outside / "folder")
    folder.symlink_to(outside / "folder")
    before = {path: path.read_bytes() for path in outside.rglob("*.*")}
    assert project.run(UPDATE).ret == 1
    assert project.run("--npudump-update-golden=calibrate", "-onpudump_calibration_runs=3").ret == 1
    assert {path: path.read_bytes() for path in outside.rglob("*.*")} == before
    folder.unlink()
    folder.parent.rmdir()
    (outside / "golden").mkdir()
    project.path.joinpath("golden").symlink_to(outside / "golden")
    project.record()
    assert len([*(outside / "golden").rglob("test_small.*")]) == len(kept)


def alone(path: Path) -> Record:
    """What a file holds, and not what it stands for."""
    return parse(path.read_text(encoding="utf-8"), path)


@pytest.fixture
def split(project: Project) -> Project:
    """A golden of a device, and a variant for the emulator of which two tensors differ."""
    project.recorded()
    base = project.golden
    text = base.read_text(encoding="utf-8").replace("runtime: emulator", "runtime: acl")
    base.write_text(text, encoding="utf-8")
    project.model(change=0.01)
    project.record("-onpudump_golden_variant=emu")
    assert main(["golden", "split", str(variant(project)), "--by", "runtime"]) == 0
    return project


def variant(project: Project) -> Path:
    return project.path / "golden" / "test_small" / "test_small@emu.yaml"


def common(project: Project) -> Path:
    return variant(project).with_name("test_small.yaml")


def test_the_variant_that_applies_is_compared_and_the_report_says_why(split: Project) -> None:
    """An option names another, whatever ran."""
    words = "*compared with the variant 'emu', which test_small.yaml names for runtime emulator*"
    split.run("-rA", passed=1, shows=words)
    split.model()  # as the common golden has it
    result = split.run(failed=1, shows="golden: *test_small@emu.yaml; mismatches: *")
    result.stdout.fnmatch_lines([words])
    split.model(change=0.01)
    words = "*compared with the common golden test_small.yaml: npudump_golden_variant*"
    split.run("-rA", "-onpudump_golden_variant=other", failed=1, shows=words)


def test_an_update_writes_the_variant_that_applies(split: Project) -> None:
    before = common(split).read_bytes()
    split.model(change=0.02)
    split.run(UPDATE, passed=1)
    assert common(split).read_bytes() == before
    assert VARIANT in alone(variant(split)).extra
    split.run(passed=1)
    assert main(["golden", "status", "--no-collect", str(split.path / "golden")]) == 0


def test_a_run_that_no_variant_is_for_does_not_replace_the_common_golden(split: Project) -> None:
    text = common(split).read_text(encoding="utf-8")
    common(split).write_text(text.replace("runtime: emulator", "runtime: mindspore"), encoding="utf-8")
    before = common(split).read_bytes()
    words = "*has variants, none of them for this run*npudump golden split*"
    split.run(UPDATE, failed=1, shows=words)
    split.run("--npudump-update-golden=failed", failed=1)
    split.model()
    split.run("--npudump-update-golden=calibrate", "-onpudump_calibration_runs=5", failed=1)
    split.run(passed=1)
    assert common(split).read_bytes() == before


def test_kept_results_are_judged_and_accepted_by_the_variant(split: Project) -> None:
    split.patch.chdir(split.path)
    kept = ("--results", "results")
    before = common(split).read_bytes()
    split.run("--npudump-output=.", passed=1)
    assert main(["check", "results"]) == 0
    split.model(change=0.02)
    split.run("--npudump-output=.", failed=1)
    assert main(["check", "results"]) == 1
    assert main(["golden", "diff", *kept]) == 1
    code, _, errors = split.command("golden", "accept", *kept)
    assert code == 0, errors
    assert common(split).read_bytes() == before
    assert VARIANT in alone(variant(split)).extra
    split.run("--npudump-output=.", passed=1)
    split.run("--npudump-output=.", UPDATE, passed=1)
    assert main(["check", "results"]) == 0
