"""Folders of dumps."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from pytest_npudump.plugin.paths import Paths
from pytest_npudump.settings import Settings

TEST = "test_model.py::test_layers"


def test_runs_of_one_test_that_share_a_folder_of_dumps_have_folders_of_their_own(
    tmp_path: Path, defaults: Settings
) -> None:
    """One that cannot be made is named all the same."""
    hook = SimpleNamespace(pytest_npudump_dumps_base=lambda **_asked: None)
    config: Any = SimpleNamespace(rootpath=tmp_path, hook=hook)

    def paths_of(place: str) -> Paths:
        return Paths(config, defaults._replace(output=str(tmp_path / place)))

    paths = [paths_of("dumps") for _ in range(8)]
    with ThreadPoolExecutor(8) as executor:
        found = [*executor.map(lambda number: paths[number % 8].claimed(TEST), range(200))]
    assert len(set(found)) == 200
    assert {one.stat().st_mode & 0o777 for one in found} == {0o700}
    (tmp_path / "gone").symlink_to(tmp_path / "nothing")
    (tmp_path / "file").touch()
    for place in ("gone", "file"):
        one = paths_of(place).claimed(TEST)
        assert one.parent == tmp_path / place / "dumps"
        assert not one.exists()
