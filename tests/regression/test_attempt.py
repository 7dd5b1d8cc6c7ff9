"""One run under dump: its files, its captures, and what it reads back."""

from __future__ import annotations

import json
import shutil
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from pytest_npudump.errors import ConfigError, DumpError, RequestError
from pytest_npudump.regression.attempt import Attempt
from pytest_npudump.request import DumpRequest
from pytest_npudump.runtime.acl import AclJson

SAMPLE = Path(__file__).parents[1] / "data" / "emulator" / "mixed-dtypes.csv"


@dataclass
class Recorder(AclJson):
    """A runtime that keeps what it was told, and dumps where its configuration says."""

    name: str = "acl"
    calls: list[tuple[str, bool]] = field(default_factory=list)
    config: Path | None = None

    def start(self, config: Path, *, resumed: bool = False) -> None:
        assert self.config is None, "a dump is on already"
        self.config = config
        self.calls.append((config.name, resumed))

    def stop(self) -> None:
        self.config = None
        self.calls.append(("stop", False))

    def run(self, layer: str) -> None:
        """Dump one operator as CANN does, below a directory named after the time."""
        assert self.config is not None
        root = Path(json.loads(self.config.read_text())["dump"]["dump_path"])
        folder = root / "20260101010101" / "0"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"Stats.{layer}.1.2.1795228705885133.csv").write_bytes(SAMPLE.read_bytes())


@pytest.fixture
def recorder() -> Any:
    return Recorder()


@pytest.fixture
def run(tmp_path: Path, recorder: Any) -> Attempt:
    """A run whose dump is on."""
    found = attempt(tmp_path)
    found.start(recorder)
    return found


def attempt(tmp_path: Path, **arguments: Any) -> Attempt:
    return Attempt(tmp_path / "run1", DumpRequest(), **arguments)


def layers(run: Attempt) -> list[tuple[str, str]]:
    keys = (record.key for record in run.read().records)
    return list(dict.fromkeys((key.capture, key.layer) for key in keys))


def test_everything_it_makes_is_private(run: Attempt, recorder: Any) -> None:
    with run.capture(recorder, "first"):
        pass
    made = [run.directory, *run.directory.iterdir()]
    assert all(path.stat().st_mode & 0o1777 == (0o700 if path.is_dir() else 0o600) for path in made)
    assert len(made) == 7


def test_second_attempt_dumps_tensors_of_the_layers_it_is_given_and_never_into_what_exists(
    tmp_path: Path, recorder: Any
) -> None:
    run = attempt(tmp_path, dump_data="tensor", layers=("net/conv.1",))
    dump = json.loads(run.start(recorder).read_text())["dump"]
    assert dump["dump_data"] == "tensor"
    assert dump["dump_list"] == [{"layer": ["net/conv.1"]}]
    recorder.calls.clear()
    with pytest.raises(ConfigError, match="run1: the dump cannot be prepared: File exists"):
        attempt(tmp_path).start(recorder)
    run = Attempt(tmp_path / "run 1", DumpRequest())  # which CANN would not use
    with pytest.raises(ConfigError, match="spaces"):
        run.start(recorder)
    assert recorder.calls == []


def test_without_captures_the_dump_is_read_under_no_name_and_one_of_nothing_is_an_error(
    run: Attempt, recorder: Any
) -> None:
    with pytest.raises(DumpError, match="holds nothing"):
        run.read()
    recorder.run("conv")
    assert layers(run) == [("", "conv")]


@pytest.mark.each(("runtime", "refused"), [("acl", True), ("mindspore", False)])
def test_two_runs_in_one_dump_are_an_error_but_of_mindspore(
    tmp_path: Path, runtime: str, *, refused: bool
) -> None:
    """Whose folders of further graphs look like it."""
    recorder = Recorder(name=runtime)
    run = attempt(tmp_path)
    run.start(recorder)
    recorder.run("conv")
    one = next((run.directory / "dump").iterdir())
    shutil.copytree(one, one.with_name("20260101010102"))
    with pytest.raises(DumpError, match="runs") if refused else nullcontext():
        run.read()


def test_captures_get_a_dump_of_their_own_each(run: Attempt, recorder: Any) -> None:
    recorder.run("before")
    for name in ("first", "second"):
        with run.capture(recorder, name) as directory:
            recorder.run("conv")
            assert directory == run.directory / f"dump-{name}"
        recorder.run("between")
    parts = ("first", "after-first", "second", "after-second")
    resumed = [call for part in parts for call in (("stop", False), (f"acl-{part}.json", True))]
    assert recorder.calls == [("acl.json", False), *resumed]
    names = ("before", "conv", "between", "conv", "between")
    assert layers(run) == [*zip(("", *parts), names, strict=True)]


def test_only_captures_count_where_nothing_ran_around_them(run: Attempt, recorder: Any) -> None:
    with run.capture(recorder, "only"):
        recorder.run("conv")
    assert layers(run) == [("only", "conv")]


def test_capture_that_dumped_nothing_is_an_error_although_others_did(run: Attempt, recorder: Any) -> None:
    recorder.run("conv")
    with run.capture(recorder, "empty"):
        pass
    with pytest.raises(DumpError, match="dump-empty holds nothing"):
        run.read()


def test_unreadable_file_of_one_capture_is_a_problem_of_the_whole(run: Attempt, recorder: Any) -> None:
    recorder.run("conv")
    with run.capture(recorder, "broken") as directory:
        recorder.run("conv")
        next(directory.rglob("*.csv")).write_text("Input/Output,Index\n")
    dump = run.read()
    assert [Path(problem.path).parts[-4] for problem in dump.problems] == ["dump-broken"]
    assert {record.key.capture for record in dump.records} == {""}


def test_dump_is_switched_back_when_the_block_fails(run: Attempt, recorder: Any) -> None:
    with pytest.raises(ZeroDivisionError), run.capture(recorder, "first"):
        raise ZeroDivisionError
    assert recorder.calls[-1] == ("acl-after-first.json", True)


def test_name_that_is_not_plain_is_refused_before_anything_is_switched(run: Attempt, recorder: Any) -> None:
    for name in ("", "a b", "a/b", "..", "ü", "a\n", "x" * 65, "after-a", "a.b"):
        with pytest.raises(RequestError, match="expected up to 64 letters"), run.capture(recorder, name):
            pass
        assert recorder.calls == [("acl.json", False)], name


def test_capture_inside_another_or_of_a_name_that_was_used_is_refused(run: Attempt, recorder: Any) -> None:
    with run.capture(recorder, "outer"):
        with (
            pytest.raises(RequestError, match=r"inside capture\('outer'\), end that one first"),
            run.capture(recorder, "inner"),
        ):
            pass
        recorder.run("conv")
    with run.capture(recorder, "inner"):
        recorder.run("conv")
    again = pytest.raises(RequestError, match="has a capture of that name already")
    with again, run.capture(recorder, "outer"):
        pass
    assert layers(run) == [("outer", "conv"), ("inner", "conv")]
