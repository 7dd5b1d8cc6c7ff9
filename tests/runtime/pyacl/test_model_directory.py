"""Which models a process has loaded by ``acl.op.set_model_dir``, told by what lies in the directory."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from pytest_npudump.runtime.acl import REPEAT_INITIALIZE, SUCCESS
from pytest_npudump.runtime.base import Evidence
from pytest_npudump.runtime.pyacl.observed import ModelDirectory

if TYPE_CHECKING:
    from pathlib import Path


def answers(*directories: Path) -> list[int]:
    """What a test gets that asks for each directory in a run of its own."""
    codes = iter([SUCCESS, *[REPEAT_INITIALIZE] * len(directories)])
    acl = SimpleNamespace(op=SimpleNamespace(set_model_dir=lambda _: next(codes)))
    models = ModelDirectory()
    found = []
    for directory in directories:
        models.watch(acl, Evidence(), resumed=False)
        found.append(acl.op.set_model_dir(str(directory)))
    models.stop()
    return found


@pytest.fixture
def linked(tmp_path: Path) -> tuple[Path, Path, Path]:
    """Three directories whose models lie behind a link: one, the same once more, and another."""
    for name, content in (("one", b"add"), ("again", b"add"), ("other", b"mul")):
        (tmp_path / f"{name}-models").mkdir()
        (tmp_path / f"{name}-models" / "add.om").write_bytes(content)
        (tmp_path / name).mkdir()
        (tmp_path / name / "models").symlink_to(tmp_path / f"{name}-models")
    return tmp_path / "one", tmp_path / "again", tmp_path / "other"


def test_models_behind_a_linked_folder_tell_directories_apart(linked: tuple[Path, Path, Path]) -> None:
    assert answers(*linked) == [SUCCESS, SUCCESS, REPEAT_INITIALIZE]


def test_a_link_to_a_folder_above_is_followed_once(linked: tuple[Path, Path, Path]) -> None:
    one, again, other = linked
    for directory in linked:
        (directory / "above").symlink_to(directory)
    assert answers(*linked) == [SUCCESS, SUCCESS, REPEAT_INITIALIZE]
    (again / "above").unlink()
    assert answers(one, again, other) == [SUCCESS, REPEAT_INITIALIZE, REPEAT_INITIALIZE]


def test_a_folder_that_two_links_name_counts_under_both(linked: tuple[Path, Path, Path]) -> None:
    one, again, _ = linked
    (one / "second").symlink_to("models")
    assert answers(one, again) == [SUCCESS, REPEAT_INITIALIZE]


def test_models_that_are_not_there_are_not_the_same(tmp_path: Path) -> None:
    assert answers(tmp_path / "none", tmp_path / "none") == [SUCCESS, REPEAT_INITIALIZE]
