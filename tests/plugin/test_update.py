"""An update replaces a golden that stands in the way of a comparison, whatever is wrong with it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from conftest import Project

LOST = "*note: *the golden that was there could not be read, and nothing of it is kept: *test_small.yaml*"


def edited(change: Callable[[bytes], bytes]) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(change(path.read_bytes()))


def linked(target: str) -> Callable[[Path], None]:
    def apply(path: Path) -> None:
        path.unlink()
        path.symlink_to(target)

    return apply


DAMAGES: dict[str, Callable[[Path], object]] = {
    "cut": edited(lambda content: content[:-40]),
    "empty": edited(lambda _: b""),
    "conflict markers": edited(lambda content: b"<<<<<<< HEAD\n" + content),
    "another version": edited(lambda content: content.replace(b"golden: 1", b"golden: 9")),
    "not UTF-8": edited(lambda content: content + b"\xff"),
    "a row twice": edited(lambda content: content + content.splitlines()[-1] + b"\n"),
    "an integer of 5000 digits": edited(
        lambda content: content.replace(b"columns:", b"mine: 0x" + b"f" * 5000 + b"\ncolumns:")
    ),
    "a link to itself": linked("test_small.yaml"),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_an_update_replaces_a_golden_that_cannot_be_read_and_says_so(
    project: Project, damage: Callable[[Path], object]
) -> None:
    project.marked()
    project.record()
    approved = project.golden.read_bytes()
    damage(project.golden)
    project.run().assert_outcomes(failed=1)
    updated = project.run("--npudump-update-golden")
    updated.assert_outcomes(passed=1)
    updated.stdout.fnmatch_lines([LOST])
    assert project.golden.read_bytes() == approved


def test_an_update_makes_the_file_that_a_dangling_link_leads_to(project: Project) -> None:
    project.marked()
    project.record()
    linked("elsewhere.yaml")(project.golden)
    project.record()
    assert project.path.joinpath("golden/test_small/test_small.yaml").is_symlink()
    project.run().assert_outcomes(passed=1)


def test_an_update_refuses_to_replace_a_directory(project: Project) -> None:
    project.marked()
    place = project.path / "golden" / "test_small" / "test_small.yaml"
    place.mkdir(parents=True)
    place.joinpath("notes.txt").write_text("mine")
    result = project.run("--npudump-update-golden")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["npudump: *test_small.yaml: cannot be written: it is a directory; move it*"])
    assert place.joinpath("notes.txt").read_text() == "mine"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes in files here")
@pytest.mark.parametrize("option", ["--npudump-update-golden", "--npudump-preset=default"])
def test_a_pipe_in_place_of_the_golden_is_not_waited_for(project: Project, option: str) -> None:
    project.marked()
    project.record()
    place = project.golden
    place.unlink()
    os.mkfifo(place)
    result = project.run(option)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["npudump: *test_small.yaml*it is a pipe, a socket or a device; move it*"])


def test_a_key_that_cannot_be_written_again_is_dropped_and_named(project: Project) -> None:
    project.marked()
    project.record()
    approved = project.golden.read_text()
    project.golden.write_text(approved.replace("columns:", "mine: .nan\nother: 1\ncolumns:"))
    updated = project.run("--npudump-update-golden")
    updated.assert_outcomes(passed=1)
    updated.stdout.fnmatch_lines(["*note: *test_small.yaml: its key 'mine' cannot be written again*"])
    assert project.golden.read_text() == approved.replace("columns:", "other: 1\ncolumns:")


@pytest.mark.parametrize("content", [None, b"damaged"])
def test_an_update_replaces_golden_tensors_that_are_lost_or_damaged(
    project: Project, content: bytes | None
) -> None:
    project.marked("golden_tensors=['block/conv.2']")
    project.record()
    beside = project.golden.with_suffix(".safetensors")
    approved = beside.read_bytes()
    beside.unlink()
    if content is not None:
        beside.write_bytes(content)
    project.run().assert_outcomes(failed=1)
    project.record()
    assert beside.read_bytes() == approved


def test_an_update_refuses_to_replace_a_directory_of_golden_tensors(project: Project) -> None:
    project.marked("golden_tensors=['block/conv.2']")
    project.path.joinpath("golden/test_small/test_small.safetensors").mkdir(parents=True)
    result = project.run("--npudump-update-golden")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["npudump: nothing was recorded: *test_small.safetensors: cannot be written*"]
    )
    assert not [*project.path.rglob("golden/**/*.yaml")]


def test_an_update_of_a_healthy_overflow_test_replaces_a_damaged_golden(project: Project) -> None:
    project.marked("scene='overflow'")
    place = project.path / "golden" / "test_small" / "test_small.yaml"
    place.parent.mkdir(parents=True)
    place.write_text("<<<<<<< HEAD\n")
    project.run().assert_outcomes(failed=1)
    updated = project.run("--npudump-update-golden")
    updated.assert_outcomes(passed=1)
    updated.stdout.fnmatch_lines([LOST])
    project.run().assert_outcomes(passed=1)
