"""Goldens with variants: the one that applies by what ran is compared and written, and it is said which."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_npudump.cli import main
from pytest_npudump.golden.store import VARIANT, read_golden
from pytest_npudump.record.text import parse

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Project
    from pytest_npudump.record.record import Record


def alone(path: Path) -> Record:
    """What a file holds, and not what it stands for."""
    return parse(path.read_text(encoding="utf-8"), path)


@pytest.fixture
def split(project: Project) -> Project:
    """A golden of a device, and a variant for the emulator of which two tensors differ."""
    project.marked()
    project.record()
    base = project.golden
    text = base.read_text(encoding="utf-8").replace("runtime: emulator", "runtime: acl")
    base.write_text(text, encoding="utf-8")
    project.model(change=0.01)
    project.record("--npudump-golden-variant=emu")
    assert main(["golden", "split", str(variant(project)), "--by", "runtime"]) == 0
    return project


def variant(project: Project) -> Path:
    return project.path / "golden" / "test_small" / "test_small@emu.yaml"


def common(project: Project) -> Path:
    return variant(project).with_name("test_small.yaml")


def test_the_variant_that_applies_is_compared_and_the_report_says_why(split: Project) -> None:
    result = split.run("-rA")
    result.assert_outcomes(passed=1)
    words = "compared with the variant 'emu', which test_small.yaml names for runtime emulator"
    result.stdout.fnmatch_lines([f"*{words}*"])
    split.model()  # as the common golden has it
    result = split.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["golden: * fail against *test_small@emu.yaml*"])
    result.stdout.fnmatch_lines([f"*{words}*"])


def test_the_file_has_only_the_tensors_that_differ(split: Project) -> None:
    own, whole = alone(variant(split)), read_golden(variant(split))
    assert {key.partition("#")[0].rpartition(":")[0] or key for key in own.table.keys} <= {
        "block/conv.2",
        "head/softmax",
    }
    assert len(own.table) < len(whole.table) == len(read_golden(common(split)).table)


def test_an_update_writes_the_variant_that_applies(split: Project) -> None:
    before = common(split).read_bytes()
    split.model(change=0.02)
    split.run("--npudump-update-golden").assert_outcomes(passed=1)
    assert common(split).read_bytes() == before
    assert VARIANT in alone(variant(split)).extra
    split.run().assert_outcomes(passed=1)
    assert main(["golden", "verify", str(split.path / "golden")]) == 0


def test_a_run_that_no_variant_is_for_does_not_calibrate_the_common_golden(split: Project) -> None:
    text = common(split).read_text(encoding="utf-8")
    common(split).write_text(text.replace("runtime: emulator", "runtime: mindspore"), encoding="utf-8")
    split.model()
    split.run("-q").assert_outcomes(passed=1)
    before = common(split).read_bytes()
    split.run("--npudump-calibrate=5").assert_outcomes(failed=1)
    assert common(split).read_bytes() == before


@pytest.mark.parametrize("mode", ["", "=failed"])
def test_a_run_that_no_variant_is_for_does_not_replace_the_common_golden(split: Project, mode: str) -> None:
    text = common(split).read_text(encoding="utf-8")
    common(split).write_text(text.replace("runtime: emulator", "runtime: mindspore"), encoding="utf-8")
    before = common(split).read_bytes()
    result = split.run(f"--npudump-update-golden{mode}")
    result.assert_outcomes(failed=1)
    assert common(split).read_bytes() == before
    if not mode:
        result.stdout.fnmatch_lines(["*has variants, none of them for this run*npudump golden split*"])


def test_a_variant_that_is_named_and_not_there_is_an_error_and_not_the_common_golden(split: Project) -> None:
    split.model()
    variant(split).unlink()
    result = split.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*test_small@emu.yaml: test_small.yaml names this variant*"])


def test_two_variants_that_fit_are_an_error(split: Project) -> None:
    text = common(split).read_text(encoding="utf-8")
    two = text.replace(
        "  emu: {runtime: emulator}\n", "  emu: {runtime: emulator}\n  two: {runtime: emulator}\n"
    )
    assert two != text
    common(split).write_text(two, encoding="utf-8")
    for mode in ("--npudump-update-golden", "-q"):
        result = split.run(mode)
        result.assert_outcomes(failed=1)
        result.stdout.fnmatch_lines(
            ["*the variants 'emu' (runtime emulator) and 'two' (runtime emulator) fit one*"]
        )


def test_an_option_names_the_variant_whatever_ran(split: Project) -> None:
    result = split.run("-rA", "--npudump-golden-variant=other")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["*compared with the common golden test_small.yaml: --npudump-golden-variant*"]
    )


def test_kept_results_are_judged_and_accepted_by_the_variant(
    split: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(split.path)
    before = common(split).read_bytes()
    split.run("--npudump-results=kept").assert_outcomes(passed=1)
    assert main(["check", "kept"]) == 0
    split.model(change=0.02)
    split.run("--npudump-results=kept").assert_outcomes(failed=1)
    assert main(["check", "kept"]) == 1
    assert main(["golden", "pending", "--results", "kept"]) == 1
    assert main(["golden", "accept", "--results", "kept"]) == 0, capsys.readouterr().err
    assert common(split).read_bytes() == before
    assert VARIANT in alone(variant(split)).extra
    split.run("--npudump-results=kept").assert_outcomes(passed=1)
    split.run("--npudump-results=kept", "--npudump-update-golden").assert_outcomes(passed=1)
    assert main(["check", "kept"]) == 0


def test_runs_in_processes_of_their_own_choose_the_same(split: Project) -> None:
    split.run("--npudump-isolation=process").assert_outcomes(passed=1)
    split.model(change=0.02)
    split.run("--npudump-isolation=process").assert_outcomes(failed=1)
    before = common(split).read_bytes()
    split.run("--npudump-isolation=process", "--npudump-update-golden").assert_outcomes(passed=1)
    assert common(split).read_bytes() == before
    assert VARIANT in alone(variant(split)).extra


def test_a_variant_that_is_folded_leaves_the_common_golden_for_its_runs(split: Project) -> None:
    assert main(["golden", "fold", str(variant(split))]) == 1
    assert variant(split).exists()
    assert main(["golden", "fold", str(variant(split)), "--yes"]) == 0
    assert not variant(split).exists()
    assert "variants" not in read_golden(common(split)).extra
    split.run().assert_outcomes(failed=1)
    split.model()
    split.run().assert_outcomes(passed=1)


def test_a_variant_may_be_written_whole_again(split: Project) -> None:
    whole = read_golden(variant(split))
    assert main(["golden", "fold", "--whole", str(variant(split))]) == 0
    assert alone(variant(split)).table.keys == whole.table.keys
    split.run().assert_outcomes(passed=1)
