"""An update replaces a golden that stands in the way of a comparison, whatever is wrong with it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from pytest_npudump.regression import result as status
from tests.regression.conftest import HEALTHY, REGRESSED, Flow, run

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

LOST = "the golden that was there could not be read, and nothing of it is kept: "
KEPT: dict[str, Any] = {"golden_tensors": ("net/MatMul@0",)}


def edited(change: Callable[[bytes], bytes]) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(change(path.read_bytes()))


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
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_an_update_replaces_a_golden_that_cannot_be_read_and_says_so(
    flow: Flow, damage: Callable[[Path], object]
) -> None:
    flow.record()
    approved = flow.golden.read_bytes()
    damage(flow.golden)
    refused = flow.first(flow.case(), HEALTHY)
    assert refused.status == status.ERROR
    assert "test.yaml" in refused.problems[0]
    updated = flow.first(flow.case(update_golden="all"), HEALTHY)
    assert (updated.status, updated.recording is None) == (status.RECORDED, False)
    assert any(note.startswith(LOST) and "test.yaml" in note for note in updated.notes)
    assert updated.recording is not None
    updated.recording.commit()
    assert flow.golden.read_bytes() == approved


@pytest.mark.parametrize("target", ["elsewhere.yaml", "test.yaml"], ids=["dangling", "to itself"])
def test_an_update_writes_through_no_link(flow: Flow, target: str) -> None:
    flow.record()
    flow.golden.unlink()
    flow.golden.symlink_to(target)
    outcome = flow.first(flow.case(update_golden="all"), HEALTHY)
    assert outcome.status == status.ERROR
    assert "is a symbolic link, through which nothing is written" in outcome.problems[0]
    assert [path.name for path in flow.golden.parent.iterdir()] == ["test.yaml"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes in files here")
@pytest.mark.parametrize("update", ["all", ""], ids=["update", "compare"])
def test_a_pipe_in_place_of_the_golden_is_not_waited_for(flow: Flow, *, update: bool) -> None:
    flow.record()
    flow.golden.unlink()
    os.mkfifo(flow.golden)
    outcome = flow.first(flow.case(update_golden=update), HEALTHY)
    assert outcome.status == status.ERROR
    assert "it is a pipe, a socket or a device; move it" in outcome.problems[0]


@pytest.mark.parametrize(
    ("suffix", "given"), [(".yaml", {}), (".safetensors", KEPT)], ids=["golden", "golden tensors"]
)
def test_an_update_refuses_to_replace_a_directory(flow: Flow, suffix: str, given: dict[str, Any]) -> None:
    place = flow.golden.with_suffix(suffix)
    place.mkdir(parents=True)
    place.joinpath("notes.txt").write_text("mine")
    session = flow.session(flow.case(update_golden="all", **given), HEALTHY, HEALTHY)
    run(session)
    if given:
        run(session)
    assert (session.good, session.recording) == (False, None)
    assert "cannot be written" in session.result.problems[0]
    assert place.joinpath("notes.txt").read_text() == "mine"
    assert not flow.golden.is_file()


def test_a_key_that_cannot_be_written_again_is_dropped_and_named(flow: Flow) -> None:
    flow.record()
    approved = flow.golden.read_text()
    flow.golden.write_text(approved.replace("columns:", "mine: .nan\nother: 1\ncolumns:"))
    updated = flow.first(flow.case(update_golden="all"), HEALTHY)
    assert any("test.yaml: its key 'mine' cannot be written again" in note for note in updated.notes)
    assert updated.recording is not None
    updated.recording.commit()
    assert flow.golden.read_text() == approved.replace("columns:", "other: 1\ncolumns:")


@pytest.mark.parametrize("content", [None, b"damaged"])
def test_an_update_replaces_golden_tensors_that_are_lost_or_damaged(
    flow: Flow, content: bytes | None
) -> None:
    flow.record(**KEPT)
    beside = flow.golden.with_suffix(".safetensors")
    approved = beside.read_bytes()
    beside.unlink()
    if content is not None:
        beside.write_bytes(content)
    refused = flow.first(flow.case(**KEPT), HEALTHY)
    assert not refused.good
    assert "safetensors" in " ".join(refused.problems)
    flow.record(**KEPT)
    assert beside.read_bytes() == approved


def test_golden_tensors_of_another_recording_fail_until_they_are_recorded_anew(flow: Flow) -> None:
    flow.record(**KEPT)
    beside = flow.golden.with_suffix(".safetensors")
    old = beside.read_bytes()
    flow.record(REGRESSED, **KEPT)
    beside.write_bytes(old)
    refused = flow.first(flow.case(**KEPT), REGRESSED)
    assert not refused.good
    assert "was recorded with other statistics than test.yaml" in " ".join(refused.problems)
    flow.record(REGRESSED, **KEPT)
    assert flow.first(flow.case(**KEPT), REGRESSED).good


def test_tensors_that_the_marker_has_left_out_are_not_judged(flow: Flow) -> None:
    flow.record(**KEPT)
    flow.record(REGRESSED)
    assert flow.first(flow.case(), REGRESSED).good
