"""Looking after a store of golden tensors, with a folder and a real S3 server behind it."""

from __future__ import annotations

import json
import shutil
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from pytest_npudump.cli.common.pytest_config import tensor_place
from pytest_npudump.golden.store import read_golden
from pytest_npudump.golden.stored_tensors import TensorStore, read_tensors, stage_stored

if TYPE_CHECKING:
    from pathlib import Path

    from .conftest import Repository

Run = Any
ARRAYS = {"conv": np.array([1, 2], np.float32), "fc": np.array([3, 4], np.float32)}
DIGESTS = {name: sha256(array.tobytes()).hexdigest() for name, array in ARRAYS.items()}


@pytest.fixture
def place(repository: Repository) -> TensorStore:
    """A store and a cache beside the repository, named in its ini file."""
    repository.path.joinpath("shared").mkdir()
    url = f"file://{repository.path}/shared"
    lines = ("[pytest]", f"npudump_tensor_store = {url}", "npudump_tensor_cache = cache")
    repository.path.joinpath("pytest.ini").write_text("\n".join(lines))
    return TensorStore(url, str(repository.path / "cache"))


@pytest.fixture
def stored(repository: Repository, place: TensorStore) -> Path:
    """Two goldens that share a tensor of the store; the second has one more."""
    for name, layers in (("test_one", ["conv"]), ("test_two", ["conv", "fc"])):
        repository.approve(name, dict.fromkeys(layers, 1.0))
        golden = read_golden(repository.golden(name))
        stage_stored(
            golden, {f"{key}:output.0": (ARRAYS[key], "float32") for key in layers}, (), place
        ).commit()
    return repository.path


def objects(folder: Path) -> dict[str, Path]:
    return {path.name: path for path in folder.rglob("*") if path.is_file()}


def test_what_is_lacking_is_named_and_pushed(stored: Path, run: Run) -> None:
    objects(stored / "shared")[DIGESTS["conv"]].unlink()
    objects(stored / "shared")[DIGESTS["fc"]].write_bytes(b"\0" * 7)
    code, out, _ = run("golden", "status", "--json", "-")
    assert code != 0
    told = json.loads(out)["store"]
    found = {one["sha256"]: one for one in told.pop("objects")}
    assert told == {"store": f"file://{stored}/shared", "cache": f"{stored}/cache", "cache_bytes": 16}
    words = {name: [found[digest][key] for key in ("stored", "cached", "problem", "tensors")]
             for name, digest in DIGESTS.items()}  # fmt: skip
    assert words == {"conv": [False, True, None, 2], "fc": [False, True, "only 7 bytes", 1]}
    tensor = f"test_one.yaml: conv:output.0 and 1 more (sha256 {DIGESTS['conv']}, 8 bytes)"
    lines = run("golden", "status").out.splitlines()
    (line,) = [line for line in lines if line.startswith("not in the store: ")]
    assert line.endswith(f"{tensor}: npudump golden remote push")
    (line,) = [line for line in lines if line.startswith("only 7 bytes in the store: ")]
    assert line.endswith(": npudump golden remote push --replace")
    assert run("golden", "remote", "push").out == "2 put into the store, 0 there before\n"
    objects(stored / "shared")[DIGESTS["fc"]].write_bytes(b"\0" * 8)  # of that name and size
    assert run("golden", "remote", "push").out == "0 put into the store, 2 there before\n"
    assert run("golden", "remote", "push", "--replace").out == "2 put into the store, 0 there before\n"
    assert {name: objects(stored / "shared")[digest].read_bytes() for name, digest in DIGESTS.items()} == {
        name: array.tobytes() for name, array in ARRAYS.items()
    }
    assert json.loads(run("golden", "status", "--json", "-").out)["store"]["objects"][0]["stored"]


def test_what_is_neither_here_nor_there_is_said(stored: Path, run: Run) -> None:
    for folder in ("shared", "cache"):
        objects(stored / folder)[DIGESTS["fc"]].unlink()
    assert "not cached here: push it where it is, or record it anew" in run("golden", "status").out
    done = run("golden", "remote", "push")
    assert (done.code, done.out) == (1, "0 put into the store, 1 there before, 1 failed\n")
    assert "is not cached here, or damaged" in done.err
    done = run("golden", "remote", "pull")
    assert (done.code, done.out) == (1, "0 fetched, 1 cached before, 1 failed\n")
    assert "golden tensor fc:output.0 is not cached, and is not in the store" in done.err


def test_a_damaged_cache_is_mended_by_pull_and_is_enough_without_the_store(stored: Path, run: Run) -> None:
    objects(stored / "cache")[DIGESTS["fc"]].write_bytes(b"\0" * 8)
    objects(stored / "cache")[DIGESTS["conv"]].unlink()
    assert run("golden", "remote", "pull").out == "2 fetched, 0 cached before\n"
    assert objects(stored / "cache")[DIGESTS["fc"]].read_bytes() == ARRAYS["fc"].tobytes()
    assert run("golden", "remote", "pull").out == "0 fetched, 2 cached before\n"
    shutil.rmtree(stored / "cache")
    run("golden", "remote", "pull")
    shutil.rmtree(stored / "shared")
    assert run("golden", "remote", "pull", "--store", "").code == 2
    for name in ("test_one", "test_two"):
        golden = read_golden(stored / "golden" / "test_a" / f"{name}.yaml")
        found = read_tensors(golden, TensorStore("", str(stored / "cache")))
        assert found["conv:output.0"].tolist() == [1, 2]
    told = f"file://{stored}/shared: there is no such folder: mount it, or make it first"
    for action in ("push", "pull"):
        assert run("golden", "remote", action) == (2, "", f"npudump: {told}\n"), action


def test_a_server_that_is_stopped_is_one_line(stored: Path, run: Run, s3: Any) -> None:
    assert run("golden", "remote", "push", "--store", s3.url).out == "2 put into the store, 0 there before\n"
    assert set(s3.objects().values()) == {array.tobytes() for array in ARRAYS.values()}
    shutil.rmtree(stored / "cache")
    s3.stop()
    for action in ("push", "pull"):
        done = run("golden", "remote", action, "--store", s3.url)
        assert (done.code, done.out) == (2, ""), action
        assert done.err.startswith(f"npudump: {s3.url}: cannot be read or written now: ")


def test_the_store_is_the_one_that_pytest_would_take(
    repository: Repository, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository.approve("test_x", {"conv": 1.0})
    for action in ("push", "pull"):
        done = run("golden", "remote", action)
        assert (done.code, done.out) == (2, ""), action
        assert "no store of golden tensors is named: set npudump_tensor_store" in done.err
    (repository.path / "other").mkdir()
    setting = f"npudump_tensor_store={repository.path.as_uri()}/other"
    for ini, options in ((setting, ""), (f"addopts = -o {setting}", ""), ("", f"-o{setting}")):
        (repository.path / "pytest.ini").write_text(f"[pytest]\n{ini}\n")
        monkeypatch.setenv("PYTEST_ADDOPTS", options)
        assert tensor_place(repository.path).url == f"file://{repository.path}/other", (ini, options)


def test_a_golden_that_cannot_be_read_is_said_and_the_others_are_looked_at(stored: Path, run: Run) -> None:
    path = stored / "golden" / "test_a" / "test_one.yaml"
    path.write_text(path.read_text()[:-9])
    done = run("golden", "remote", "push")
    assert done.code == 2
    assert done.out == "0 put into the store, 2 there before\n"
    assert "test_one.yaml, line " in done.err
