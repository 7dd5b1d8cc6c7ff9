"""A failing run leaves its golden tensors, and an approval without running again keeps them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from pytest_npudump.cli import main
from pytest_npudump.golden.store import read_golden
from pytest_npudump.golden.stored_tensors import TensorStore, read_tensors
from pytest_npudump.regression import first_run
from pytest_npudump.regression.dataflow import layers_to_keep

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Project

KEEP = "--npudump-results=kept"
LAST = "block_conv_2:output.0"


def accept(*words: str) -> int:
    return main(["golden", "accept", "--results", "kept", *words])


def kept(project: Project, store: TensorStore | None = None) -> dict[str, np.ndarray]:
    """Return copies of the golden's tensors."""
    return {name: np.array(one) for name, one in read_tensors(read_golden(project.golden), store).items()}


def objects(project: Project) -> list[Path]:
    return [path for path in (project.path / "kept" / "tensors").rglob("*") if path.is_file()]


@pytest.mark.parametrize("arguments", ["golden_tensors=['*']", "golden_tensors=['*'], dump_data='tensor'"])
def test_an_approved_run_keeps_the_tensors_that_an_update_would(project: Project, arguments: str) -> None:
    project.marked(arguments)
    project.record()
    before = kept(project)
    project.model(change=0.01)
    assert project.run(KEEP).ret == 1
    assert accept() == 0
    accepted = kept(project)
    assert project.run(KEEP).ret == 0
    assert objects(project) == []
    project.record()
    updated = kept(project)
    assert accepted.keys() == updated.keys() == before.keys()
    assert all(np.array_equal(accepted[name], updated[name]) for name in updated)
    assert not all(np.array_equal(accepted[name], before[name]) for name in updated)


def test_tensors_go_to_the_store_of_the_project(project: Project) -> None:
    (project.path / "store").mkdir()
    place = (f"--npudump-tensor-store=file://{project.path}/store", "--npudump-tensor-cache=cache")
    project.marked("golden_tensors=['block/conv.2']")
    project.record(*place)
    store = TensorStore(f"file://{project.path}/store", str(project.path / "cache"))
    [before] = kept(project, store).values()
    project.model(change=0.01)
    project.run(KEEP, *place)
    assert accept() == 0
    [after] = kept(project, store).values()
    assert not np.array_equal(before, after)
    assert not project.golden.with_suffix(".safetensors").exists()
    assert len([*(project.path / "store").rglob("*")]) > 2
    assert project.run(*place).ret == 0


def test_layers_that_are_not_named_keep_their_tensors(project: Project) -> None:
    project.marked("golden_tensors=['*'], dump_data='tensor'")
    project.record()
    before = kept(project)
    project.model(change=0.01, nan=True)
    project.run(KEEP)
    assert accept("--layers", "block/conv.2") == 0
    after = kept(project)
    assert [name for name in before if not np.array_equal(before[name], after[name], equal_nan=True)] == [
        LAST
    ]


@pytest.mark.parametrize("damage", ["gone", "changed"])
def test_a_tensor_that_is_not_what_the_run_had_is_refused(
    project: Project, damage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    project.marked("golden_tensors=['block/conv.2']")
    project.record()
    before = project.golden.read_bytes()
    project.model(change=0.01)
    project.run(KEEP)
    [path] = objects(project)
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(bytes(len(path.read_bytes())))
    assert accept() == 2
    assert "a golden tensor is not at hand" in capsys.readouterr().err
    assert project.golden.read_bytes() == before


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--npudump-dump-limit=1"], "that of block_conv_2:output.0 (not run: the tensors of"),
        (["--npudump-escalate=off"], "neither the run nor its second run has"),
        (["--npudump-tensor-budget=1"], "more than --npudump-tensor-budget"),
    ],
)
def test_a_run_without_the_tensors_says_so(
    project: Project, options: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    project.marked("golden_tensors=['block/conv.2']")
    project.record()
    before = project.golden.read_bytes()
    project.model(change=0.01)
    project.run(KEEP, *options)
    assert accept() == 2
    told = capsys.readouterr().err
    assert reason in told
    assert "the run left none" not in told
    assert project.golden.read_bytes() == before


@pytest.mark.parametrize(
    "arguments",
    [
        "golden_tensors=['block/conv.2']",
        "golden_tensors='auto'",
        "golden_tensors=['block/conv.2'], dump_data='tensor'",
    ],
)
def test_a_first_golden_takes_the_tensors_of_its_run_or_of_the_second(
    project: Project, arguments: str
) -> None:
    project.marked(arguments)
    result = project.run(KEEP)
    dumped = "dumped as tensors, for an approval to keep" in result.stdout.str()
    assert dumped == ("dump_data" not in arguments)
    assert accept() == 0
    assert [*kept(project)] == ["head_softmax:output.0" if "auto" in arguments else LAST]
    assert read_golden(project.golden).extra["repeats"] == {"runs": 1}
    assert project.run().ret == 0


def test_a_marker_that_asks_for_more_takes_the_tensors_without_an_update(project: Project) -> None:
    project.marked("")
    project.record()
    project.marked("golden_tensors=['block/conv.2']")
    result = project.run(KEEP)
    lines = ["*golden tensors named in the marker are not beside*", "*second run: 1 layer*"]
    result.stdout.fnmatch_lines(lines)
    assert accept() == 0
    assert [*kept(project)] == [LAST]
    assert project.run().ret == 0


def test_what_an_approval_keeps_is_worked_out_once(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    project.marked("golden_tensors='auto'")
    project.record()
    project.model(change=0.01)
    asked: list[object] = []

    def counted(*known: Any) -> Any:
        asked.append(known)
        return layers_to_keep(*known)

    monkeypatch.setattr(first_run, "layers_to_keep", counted)
    assert project.run(KEEP).ret == 1
    assert len(asked) == 1
    assert accept() == 0


def test_tensors_beyond_the_budget_are_told_once(project: Project) -> None:
    project.marked("golden_tensors=['block/conv.2']")
    result = project.run("--npudump-update-golden", "--npudump-tensor-budget=1")
    result.stdout.fnmatch_lines(["npudump: nothing was recorded: golden_tensors: the tensors have *"])
    result.stdout.no_fnmatch_line("second run: *")
    assert not [*(project.path / "golden").rglob("*.yaml")]


def test_artifacts_carry_the_tensors(project: Project) -> None:
    project.marked("golden_tensors=['block/conv.2']")
    project.record()
    project.model(change=0.01)
    project.run(KEEP, "--npudump-artifacts=artifacts")
    folder = project.path / "artifacts" / "session-1" / "results"
    assert [path.name for path in objects(project)] == [
        path.name for path in (folder / "tensors").rglob("*") if path.is_file()
    ]
    assert main(["golden", "accept", "--results", str(folder)]) == 0
