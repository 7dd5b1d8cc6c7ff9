"""Golden tensors in a store, with a real S3 server that is stopped at the worst moments."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from threading import Lock
from typing import Any

import pytest

from pytest_npudump.golden.objects import ObjectStore
from tests.plugin.conftest import Project

pytestmark = pytest.mark.e2e
KEPT = "acl_json={'dump_data': 'tensor'}, golden_tensors=['block/conv.2', 'head/softmax']"
UNREACHABLE = (
    "npudump: golden tensor * is not cached, and its store is not at hand: run again when it is, or cache "
    "what goldens name beforehand with 'npudump golden remote pull'; {url}: cannot be read or written now: *"
)


@pytest.fixture
def stored(project: Project, s3: Any) -> Project:
    """A project whose golden tensors lie in a bucket, with a cache of its own."""
    project.pytester.makeini(
        f"[pytest]\naddopts = --strict-config -p no:cacheprovider\nnpudump_tensor_store = {s3.url}\n"
        f"npudump_tensor_cache = cache\n"
    )
    project.marked(KEPT)
    return project


def clear_cache(project: Project) -> None:
    for path in [path for path in project.path.joinpath("cache").rglob("*") if path.is_file()]:
        path.unlink()


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_golden_has_hashes_and_a_machine_without_a_cache_fetches_what_it_compares(
    stored: Project, s3: Any
) -> None:
    stored.record("-onpudump_tensor_store=")
    beside = stored.golden.with_suffix(".safetensors")
    assert beside.exists()
    stored.run(passed=1)
    beside.unlink()
    stored.record()
    assert list(contents(stored.path / "golden")) == ["test_small/test_small.yaml"]
    objects = s3.objects()
    assert len(objects) == 2
    for name, content in objects.items():
        digest = sha256(content).hexdigest()
        assert name == f"tensors/sha256/{digest[:2]}/{digest}"
        assert f" sha256:{digest} {len(content)} " in stored.golden.read_text()
    before = contents(stored.path / "cache")
    clear_cache(stored)
    stored.run(passed=1)
    assert contents(stored.path / "cache") == before
    s3.stop()
    stored.run(passed=1)


def test_elements_that_statistics_do_not_see_are_compared_with_the_store(stored: Project) -> None:
    """The image is turned: all that is told of its tensor stays, but for its elements."""
    every = "acl_json={'dump_data': 'tensor'}, golden_tensors=['image']"
    stored.marked(every)
    stored.record()
    clear_cache(stored)
    stored.marked(every, stored.body.replace("reshape(", "reshape(8, 8).T.copy().reshape("))
    shows = ["*image*output.0*max_abs*", "*image:output.0: * out of tolerance of the golden tensor; *"]
    stored.run("-v", failed=1, shows=shows)


def stop_behind(method: str, count: int, s3: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Stop the server once our code has done something that often; returns how often it has tried."""
    before, calls, turn = getattr(ObjectStore, method), [0], Lock()

    def counted(self: ObjectStore, *arguments: Any) -> Any:
        with turn:  # several are fetched at once
            calls[0] += 1
            found = before(self, *arguments)
            if method == "read":
                found = iter([*found])
            if calls[0] == count:
                s3.stop()
            return found

    monkeypatch.setattr(ObjectStore, method, counted)
    return lambda: calls[0]


def test_a_server_that_stops_within_an_update_leaves_the_golden_as_it_was(stored: Project, s3: Any) -> None:
    stored.record()
    before = contents(stored.path / "golden")
    stored.model(change=0.5)
    tried = stop_behind("write", 1, s3, stored.patch)
    words = f"npudump: nothing was recorded: {s3.url}: cannot be read or written now: *"
    stored.run("--npudump-update-golden", failed=1, shows=words)
    assert tried() == 1
    assert contents(stored.path / "golden") == before
    stored.model()
    stored.run().assert_outcomes(passed=1)  # its tensors are cached


def test_a_server_that_stops_within_a_check_passes_no_test_nor_does_one_that_cannot_be_had(
    stored: Project, s3: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored.marked("golden_tensors=['block/conv.2', 'head/softmax']")  # of statistics alone, too
    stored.record()
    clear_cache(stored)
    tried = stop_behind("read", 1, s3, monkeypatch)
    stored.run(failed=1, shows=UNREACHABLE.format(url=s3.url))
    assert tried() >= 1
    for path, content in contents(stored.path / "cache").items():
        assert path.endswith(sha256(content).hexdigest())  # whole, or not there
    clear_cache(stored)
    shows = [
        UNREACHABLE.format(url=s3.url),
        "npudump: 0 of 1 tests passed, 1 failed; 5 of 5 tensors compared (emulator); *",
    ]
    stored.run(failed=1, shows=shows)
    stored.model(change=0.5)
    shows = [
        "*block/conv.2:output.0*",
        "*its store is not at hand*",
        "npudump: 0 of 1 tests passed, 1 failed; *; first mismatch block/conv.2*",
    ]
    stored.run(failed=1, shows=shows)


def test_a_damaged_object_fails_the_test_and_a_damaged_cache_is_mended(stored: Project, s3: Any) -> None:
    stored.record()
    for path in stored.path.joinpath("cache").rglob("*"):
        if path.is_file():
            path.write_bytes(bytes(path.stat().st_size))
    stored.run().assert_outcomes(passed=1)
    clear_cache(stored)
    bucket = s3.url.split("/")[2]
    for name, content in s3.objects().items():
        s3.client().put_object(Bucket=bucket, Key=name, Body=bytes(len(content)))
    stored.run(failed=1, shows=f"npudump: {s3.url}/sha256/*: is damaged, *remote push --replace*")


def test_an_address_that_is_none_is_refused(stored: Project) -> None:
    words = "*npudump_tensor_store is 'shared/folder', expected an address such as s3://*"
    options = ("--npudump-update-golden", "-onpudump_tensor_store=shared/folder")
    assert stored.run(*options, shows=words).ret != 0
    assert not (stored.path / "golden").exists()
