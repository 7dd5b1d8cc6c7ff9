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


def goldens(project: Project) -> dict[str, bytes]:
    return {path.stem: path.read_bytes() for path in sorted(project.path.joinpath("golden").rglob("*.yaml"))}


def stamps(project: Project) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in project.path.joinpath("golden").rglob("*.yaml")}


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


def test_an_update_of_what_fails_writes_that_golden_alone(two_models: Project) -> None:
    before, written = goldens(two_models), stamps(two_models)
    result = two_models.run(
        "--npudump-update-golden=failed",
        "-rA",
        passed=2,
        failed=1,
        shows="npudump: --npudump-update-golden=failed: this run writes *",
    )
    result.stdout.fnmatch_lines(["*the golden was rewritten because of mismatches: * of 5 tensors, first *"])
    after = goldens(two_models)
    assert after.keys() == before.keys()
    assert [name for name in after if after[name] != before[name]] == ["test_other"]
    assert [path.stem for path, time in stamps(two_models).items() if time != written[path]] == ["test_other"]
    two_models.run("-k", "same or other").assert_outcomes(passed=2)


def test_an_update_of_what_is_new_writes_that_golden_alone_and_compares_the_others(
    two_models: Project,
) -> None:
    before = goldens(two_models)
    two_models.run("--npudump-update-golden=new", passed=2, failed=1)
    after = goldens(two_models)
    assert {name: after[name] for name in before} == before
    assert after.keys() - before.keys() == {"test_third"}


def test_an_update_of_what_is_new_does_not_replace_a_golden_that_cannot_be_read(two_models: Project) -> None:
    path = next(two_models.path.joinpath("golden").rglob("test_same.yaml"))
    path.write_bytes(b"<<<<<<< ours\n" + path.read_bytes())
    before = path.read_bytes()
    for mode in ("new", "failed"):
        two_models.run(f"--npudump-update-golden={mode}", "-k", "same").assert_outcomes(failed=1)
        assert path.read_bytes() == before


def test_what_is_deselected_keeps_its_golden_and_gets_none(two_models: Project) -> None:
    before, written = goldens(two_models), stamps(two_models)
    for mode in ("failed", "new", "all"):
        two_models.run(f"--npudump-update-golden={mode}", "-k", "same", passed=1, deselected=2)
        assert goldens(two_models) == before
        assert stamps(two_models) == written


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
    result = project.run("--npudump-reason=why")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: npudump: --npudump-reason needs --npudump-update-golden*"])
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
    result = split.run("-rA", passed=1)
    words = "compared with the variant 'emu', which test_small.yaml names for runtime emulator"
    result.stdout.fnmatch_lines([f"*{words}*"])
    split.model()  # as the common golden has it
    result = split.run(failed=1, shows="golden: *test_small@emu.yaml; mismatches: *")
    result.stdout.fnmatch_lines([f"*{words}*"])


def test_an_update_writes_the_variant_that_applies(split: Project) -> None:
    before = common(split).read_bytes()
    split.model(change=0.02)
    split.run("--npudump-update-golden").assert_outcomes(passed=1)
    assert common(split).read_bytes() == before
    assert VARIANT in alone(variant(split)).extra
    split.run().assert_outcomes(passed=1)
    assert main(["golden", "status", "--no-collect", str(split.path / "golden")]) == 0


def test_a_run_that_no_variant_is_for_does_not_replace_the_common_golden(split: Project) -> None:
    text = common(split).read_text(encoding="utf-8")
    common(split).write_text(text.replace("runtime: emulator", "runtime: mindspore"), encoding="utf-8")
    before = common(split).read_bytes()
    words = "*has variants, none of them for this run*npudump golden split*"
    split.run("--npudump-update-golden", failed=1, shows=words)
    split.run("--npudump-update-golden=failed", failed=1)
    split.model()
    split.run("--npudump-update-golden=calibrate", "-onpudump_calibration_runs=5", failed=1)
    split.run(passed=1)
    assert common(split).read_bytes() == before


def test_an_option_names_the_variant_whatever_ran(split: Project) -> None:
    split.run(
        "-rA",
        "-onpudump_golden_variant=other",
        failed=1,
        shows="*compared with the common golden test_small.yaml: npudump_golden_variant*",
    )


def test_kept_results_are_judged_and_accepted_by_the_variant(
    split: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(split.path)
    before = common(split).read_bytes()
    split.run("--npudump-output=.").assert_outcomes(passed=1)
    assert main(["check", "results"]) == 0
    split.model(change=0.02)
    split.run("--npudump-output=.").assert_outcomes(failed=1)
    assert main(["check", "results"]) == 1
    assert main(["golden", "diff", "--results", "results"]) == 1
    assert main(["golden", "accept", "--results", "results"]) == 0, capsys.readouterr().err
    assert common(split).read_bytes() == before
    assert VARIANT in alone(variant(split)).extra
    split.run("--npudump-output=.").assert_outcomes(passed=1)
    split.run("--npudump-output=.", "--npudump-update-golden").assert_outcomes(passed=1)
    assert main(["check", "results"]) == 0
