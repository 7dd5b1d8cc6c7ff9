from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    Run = Callable[..., Any]

TREES = Path(__file__).parent.parent / "data" / "trees"
RECORDS = Path(__file__).parent.parent / "data" / "dump" / "overflow"


def test_a_real_record_is_explained(run: Run) -> None:
    done = run("overflow", TREES / "acl-overflow")
    assert done.code == 1
    assert done.out.splitlines()[1].split()[:6] == ["AIC", "floating-point", "overflow", "-", "1", "2"]


@pytest.mark.parametrize("name", ["old", "aic", "aic_v1", "aiv", "aicpu", "sdma"])
def test_the_record_is_the_object_canns_tool_writes(run: Run, name: str) -> None:
    done = run("overflow", RECORDS / name, "--json", "-")
    (found,) = done.json
    assert found["record"] == json.loads((RECORDS / f"{name}.json").read_text())
    assert found["file"] == str(RECORDS / name)
    assert done.code == 1
    assert all(unit["reasons"] for unit in found["overflowed"])


def test_the_layer_is_that_of_the_records_stream_and_task(run: Run, tmp_path: Path) -> None:
    shutil.copytree(TREES / "acl-overflow", tmp_path / "tree")
    source = next((TREES / "acl-tensor").rglob("MatMul*"))
    for task in (3, 4):
        shutil.copy(source, tmp_path / "tree" / f"MatMul.net_fc{task}.{task}.2.1795229153283276")
    done = run("overflow", tmp_path / "tree", "--json", "-")
    assert done.json[0]["overflowed"] == [
        {"unit": "AIC", "reasons": ["floating-point overflow"], "layers": ["MatMul net_fc3"]}
    ]
    assert "MatMul net_fc3" in run("overflow", tmp_path / "tree").out


def test_a_dump_without_overflow_is_good(run: Run) -> None:
    assert run("overflow", TREES / "acl-stats") == (0, "no overflow records\n", "")


def test_a_damaged_record_is_named(run: Run, tmp_path: Path) -> None:
    shutil.copytree(TREES / "acl-overflow", tmp_path / "tree")
    path = next((tmp_path / "tree").glob("Opdebug*[0-9]"))
    path.write_bytes(path.read_bytes()[:-8])
    done = run("overflow", tmp_path / "tree")
    assert done.code == 2
    assert str(path) in done.err


@pytest.mark.parametrize("name", ["missing", "empty"])
def test_nothing_to_read_is_an_error(run: Run, tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    done = run("overflow", tmp_path / name)
    assert (done.code, done.out) == (2, "")
    assert str(tmp_path / name) in done.err


def test_a_file_that_is_no_record_is_an_error(run: Run) -> None:
    path = next((TREES / "acl-tensor").rglob("MatMul*"))
    done = run("overflow", path)
    assert done.code == 2
    assert "overflow record of" in done.err
