from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from pytest_npudump.plugin.paths import Paths

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_npudump.settings import Settings

TEST = "test_model.py::test_layers"


def paths_of(root: Path, defaults: Settings, dump_dir: Path) -> Paths:
    config: Any = SimpleNamespace(rootpath=root)
    return Paths(config, defaults._replace(dump_dir=str(dump_dir)))


def test_runs_of_one_test_that_share_a_folder_of_dumps_have_folders_of_their_own(
    tmp_path: Path, defaults: Settings
) -> None:
    paths = [paths_of(tmp_path, defaults, tmp_path / "dumps") for _ in range(8)]
    with ThreadPoolExecutor(8) as executor:
        found = [*executor.map(lambda number: paths[number % 8].claimed(TEST), range(200))]
    assert len(set(found)) == 200
    assert {one.stat().st_mode & 0o777 for one in found} == {0o700}


def test_a_folder_of_dumps_that_cannot_be_made_is_named_all_the_same(
    tmp_path: Path, defaults: Settings
) -> None:
    (tmp_path / "gone").symlink_to(tmp_path / "nothing")
    (tmp_path / "file").touch()
    for place in ("gone", "file"):
        found = paths_of(tmp_path, defaults, tmp_path / place).claimed(TEST)
        assert found.parent == tmp_path / place
        assert not found.exists()
