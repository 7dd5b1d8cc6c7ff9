"""Where dumps lie: in folders of their own, and where the report says."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_npudump.plugin.paths import Paths
from pytest_npudump.settings import Settings


@pytest.mark.parametrize("option", ["", "--npudump-output", "-onpudump_keep_dumps=all"])
def test_dumps_of_tests_that_fail_are_where_the_report_says(
    project: Any, tmp_path: Path, option: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = tmp_path / "base"
    given = option == "--npudump-output"
    options = [f"{option}={tmp_path / 'named'}"] if given else [*filter(None, [option])]
    place = tmp_path / "named" / "dumps" if given else base / "npudump"
    project.path.joinpath("tox.ini").unlink(missing_ok=True)
    project.test_file(
        """
        import os
        def run(npu_dump, expected):
            with npu_dump.load_model("small.onnx") as model:
                model.run(np.zeros((1, 1, 8, 8), np.float32) + expected)

        @pytest.mark.npu_dump
        def test_good(npu_dump):
            run(npu_dump, 1)

        @pytest.mark.npu_dump
        def test_bad(npu_dump):
            run(npu_dump, int(os.environ["VALUE"]))
        """
    )
    monkeypatch.setenv("VALUE", "1")
    assert project.run("--npudump-update-golden", f"--basetemp={base}", *options).ret == 0
    monkeypatch.setenv("VALUE", "2")
    result = project.run(f"--basetemp={base}", *options, passed=1, failed=1)
    kept = {path.name.partition("-")[0].removeprefix("test_small_py_") for path in place.glob("test_small*")}
    assert kept == ({"test_good", "test_bad"} if "all" in option else {"test_bad"})
    names = {path.name for path in place.rglob("*") if path.is_file()}
    assert any(name.startswith("Conv.block_conv_1.") for name in names)
    result.stdout.fnmatch_lines([f"*{place}/test_small_py_test_bad-*"])


TEST = "test_model.py::test_layers"


def paths_of(root: Path, defaults: Settings, dump_dir: Path) -> Paths:
    config: Any = SimpleNamespace(rootpath=root)
    return Paths(config, defaults._replace(output=str(dump_dir)))


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
        assert found.parent == tmp_path / place / "dumps"
        assert not found.exists()
