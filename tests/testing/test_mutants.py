"""Runtimes and formats that are wrong on purpose: the tests for those of other packages fail for each."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from _pytest.outcomes import Failed, Skipped
from hypothesis import Phase, settings
from safetensors.numpy import save_file

from pytest_npudump.dump.records import Stats, TensorKey, TensorRecord
from pytest_npudump.errors import FormatError, RuntimeUnavailableError
from pytest_npudump.testing import FormatConformance, RuntimeConformance, Sample

ARRAY = np.array([1.5, -2.0, 0.25], np.float32)
ARRAYS = {"conv1:input.0": np.arange(-3, 3, dtype=np.int8).reshape(2, 3), "conv1:output.0": ARRAY}


class NumpySuite(RuntimeConformance):
    def execute(self, runtime: Any) -> Mapping[str, np.ndarray | None]:
        runtime.negative(ARRAY)
        return {"Default_neg-op0:output.0": -ARRAY}


class SafetensorsSuite(FormatConformance):
    def __init__(self, reader: Callable[[Path], Sequence[TensorRecord]]) -> None:
        self.reader = reader

    def read(self, path: Path) -> Sequence[TensorRecord]:
        return self.reader(path)


def failing(suite: object, given: Callable[[], dict[str, Any]], only: str = "") -> Iterator[str]:
    """Run each test of a suite on fresh values of its arguments; yield the names of those that fail."""
    for name in dir(type(suite)):
        if not name.startswith("test_") or only not in {"", name.removeprefix("test_")}:
            continue
        test = getattr(suite, name)
        values = given()
        wanted = inspect.signature(test).parameters
        try:
            test(**{argument: values[argument] for argument in wanted if argument in values})
        except Skipped:
            continue
        except (AssertionError, Failed, Exception):  # noqa: BLE001 - as pytest counts failures
            yield name.removeprefix("test_")


@pytest.fixture
def runtime_arguments(tmp_path: Path) -> Callable[[Callable[[], Any]], Callable[[], dict[str, Any]]]:
    numbers = iter(range(1000))

    def given(make: Callable[[], Any]) -> Callable[[], dict[str, Any]]:
        def fresh() -> dict[str, Any]:
            folder = tmp_path / str(next(numbers))
            (folder / "dump").mkdir(parents=True)
            return {"runtime": make(), "dump_path": folder / "dump", "tmp_path": folder}

        return fresh

    return given


def changed(base: type, **methods: Any) -> type:
    return type(f"Wrong{base.__name__}", (base,), methods)


def goes_on(self: Any) -> None:
    """Do not switch the dump off."""


def forgets_what_is_buffered(self: Any, target: Path, values: np.ndarray) -> None:
    del self, target, values


def rounds(self: Any, target: Path, values: np.ndarray) -> None:
    super(type(self), self).dumped(target, values + np.float32(1e-6))


def stays(self: Any, config: Path, *, resumed: bool = False) -> None:
    """Dump into the first folder for ever."""
    before = self.target or getattr(self, "first", None)
    super(type(self), self).start(config, resumed=resumed)
    self.first = self.target = before or self.target


def remembers(self: Any, config: Path, *, resumed: bool = False) -> None:
    del resumed
    super(type(self), self).start(config, resumed=True)


def forgets(self: Any, config: Path, *, resumed: bool = False) -> None:
    del resumed
    super(type(self), self).start(config)


def leaks(self: Any, config: Path, *, resumed: bool = False) -> None:
    os.environ["NUMPY_DUMP"] = str(config)
    super(type(self), self).start(config, resumed=resumed)


def published(self: Any, path: Path, *arguments: Any, **named: Any) -> None:
    super(type(self), self).write_config(path, *arguments, **named)
    path.chmod(0o644)


def keeps_dumping(self: Any) -> None:
    self.activity.released = True


def once_only(self: Any) -> None:
    if self.target is None:
        raise RuntimeUnavailableError("no dump is on")
    self.target = None


@pytest.mark.each(
    ("methods", "caught_by"),
    [
        ({"stop": goes_on}, "what_runs_afterwards_is_not_dumped"),
        ({"stop": once_only}, "stopping_and_closing_again_does_nothing"),
        ({"dumped": forgets_what_is_buffered}, "what_runs_between_start_and_stop_is_dumped"),
        ({"dumped": rounds}, "what_runs_between_start_and_stop_is_dumped"),
        ({"start": stays}, "each_dump_holds_its_own_run"),
        ({"start": remembers}, "what_is_said_of_a_run_begins_anew_with_each"),
        ({"start": forgets}, "what_is_said_of_a_run_begins_anew_with_each"),
        ({"start": leaks}, "the_process_is_left_as_it_was"),
        ({"write_config": published}, "the_configuration_is_the_users_own_and_names_the_dump"),
        ({"release": keeps_dumping}, "a_dump_that_is_left_to_the_test_is_off"),
        ({"producer": lambda _: {"runtime": "acl"}}, "a_golden_can_say_where_it_comes_from"),
        ({"producer": lambda _: {"runtime": "numpy", "n": 2}}, "a_golden_can_say_where_it_comes_from"),
        ({"load_model": lambda *_: None}, "a_model_file_that_is_not_there_is_refused"),
        ({"close": None}, "stopping_and_closing_again_does_nothing"),
    ],
)
def test_a_wrong_runtime_is_caught(
    methods: dict[str, Any],
    caught_by: str,
    others: Any,
    runtime_arguments: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("NUMPY_DUMP", raising=False)
    wrong = changed(others.NumpyRuntime, **methods)
    found = [*failing(NumpySuite(), runtime_arguments(wrong), caught_by)]
    monkeypatch.delenv("NUMPY_DUMP", raising=False)
    assert found == [caught_by]


def test_a_right_runtime_passes(others: Any, runtime_arguments: Any) -> None:
    assert [*failing(NumpySuite(), runtime_arguments(others.NumpyRuntime))] == []


def test_a_runtime_that_lacks_a_part_is_caught(others: Any, runtime_arguments: Any) -> None:
    class Whole(others.NumpyRuntime):  # type: ignore[misc]
        def __getattribute__(self, name: str) -> Any:
            if name == "hand_over":
                raise AttributeError(name)
            return super().__getattribute__(name)

    assert "it_has_all_parts_of_the_protocol" in [*failing(NumpySuite(), runtime_arguments(Whole))]


@pytest.fixture
def file_arguments(tmp_path: Path) -> Callable[[], dict[str, Any]]:
    numbers = iter(range(1000))
    path = tmp_path / "step0.safetensors"
    save_file(ARRAYS, path)

    def fresh() -> dict[str, Any]:
        folder = tmp_path / str(next(numbers))
        folder.mkdir()
        copy = folder / path.name
        copy.write_bytes(path.read_bytes())
        return {"sample": Sample(path, ARRAYS), "file": copy, "tmp_path": folder}

    return fresh


class Readers:
    """Readers that are wrong, each around one that is right."""

    def __init__(self, right: Callable[[Path], list[TensorRecord]]) -> None:
        self.right = right
        self.kept: list[Any] = []

    def skips_one(self, path: Path) -> list[TensorRecord]:
        return self.right(path)[1:]

    def makes_one_up(self, path: Path) -> list[TensorRecord]:
        records = self.right(path)
        return [*records, replace(records[0], key=TensorKey("conv9", "output", 0))]

    def reads_one_twice(self, path: Path) -> list[TensorRecord]:
        records = self.right(path)
        return [*records, records[0]]

    def swaps_the_shape(self, path: Path) -> list[TensorRecord]:
        return [replace(record, shape=record.shape and record.shape[::-1]) for record in self.right(path)]

    def loses_the_values(self, path: Path) -> list[TensorRecord]:
        return [replace(record, payload=None) for record in self.right(path)]

    def takes_one_type_for_another(self, path: Path) -> list[TensorRecord]:
        return [replace(one, dtype="int16", stats=Stats(nan=0)) for one in self.loses_the_values(path)]

    def is_off_by_a_byte(self, path: Path) -> list[TensorRecord]:
        found = self.right(path)
        return [
            replace(r, payload=r.payload and replace(r.payload, offset=r.payload.offset - 1)) for r in found
        ]

    def says_nothing_of_damage(self, path: Path) -> list[TensorRecord]:
        try:
            return self.right(path)
        except FormatError:
            return []

    def fails_in_its_own_words(self, path: Path) -> list[TensorRecord]:
        try:
            return self.right(path)
        except FormatError as error:
            raise ValueError(error) from None

    def names_no_file(self, path: Path) -> list[TensorRecord]:
        try:
            return self.right(path)
        except FormatError as error:
            raise FormatError("a file", error.reason) from None

    def names_a_byte_beyond_the_end(self, path: Path) -> list[TensorRecord]:
        try:
            return self.right(path)
        except FormatError as error:
            raise FormatError(path, error.reason, offset=1 << 40) from None

    def waits_for_pipes(self, path: Path) -> list[TensorRecord]:
        path.read_bytes()
        return self.right(path)

    def leaves_files_open(self, path: Path) -> list[TensorRecord]:
        self.kept.append(path.open("rb"))
        return self.right(path)

    def remembers(self, path: Path) -> list[TensorRecord]:
        self.kept += self.right(path)
        return [*self.kept]

    def cannot_be_pickled(self, path: Path) -> list[TensorRecord]:
        class Noted(str):
            __slots__ = ()

        return [replace(record, note=Noted("local")) for record in self.right(path)]


@pytest.mark.each(
    ("reader", "caught_by"),
    [
        ("skips_one", "every_tensor_is_read_with_its_values"),
        ("makes_one_up", "every_tensor_is_read_with_its_values"),
        ("reads_one_twice", "every_tensor_is_read_with_its_values"),
        ("swaps_the_shape", "every_tensor_is_read_with_its_values"),
        ("loses_the_values", "every_tensor_is_read_with_its_values"),
        ("takes_one_type_for_another", "every_tensor_is_read_with_its_values"),
        ("is_off_by_a_byte", "every_tensor_is_read_with_its_values"),
        ("says_nothing_of_damage", "a_file_that_is_cut_off_is_refused"),
        ("says_nothing_of_damage", "an_empty_file_is_refused"),
        ("fails_in_its_own_words", "a_damaged_file_is_read_as_far_as_it_goes_or_refused"),
        ("names_no_file", "a_file_that_is_cut_off_is_refused"),
        ("names_a_byte_beyond_the_end", "a_file_that_is_cut_off_is_refused"),
        ("waits_for_pipes", "what_is_no_file_is_refused_and_never_waited_for"),
        ("leaves_files_open", "no_file_is_left_open"),
        ("remembers", "reading_twice_says_the_same"),
        ("cannot_be_pickled", "records_cross_processes"),
    ],
)
def test_a_wrong_reader_is_caught(
    reader: str, caught_by: str, others: Any, file_arguments: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pytest_npudump.testing._HANG", 0.5)
    damaged: Any = FormatConformance.test_a_damaged_file_is_read_as_far_as_it_goes_or_refused
    unshrunk = settings(damaged._hypothesis_internal_use_settings, phases=[Phase.generate])
    monkeypatch.setattr(damaged, "_hypothesis_internal_use_settings", unshrunk)
    readers = Readers(others.Safetensors().read)
    found = [*failing(SafetensorsSuite(getattr(readers, reader)), file_arguments, caught_by)]
    for file in readers.kept:
        if hasattr(file, "close"):
            file.close()
    assert found == [caught_by]


def test_a_right_reader_passes(others: Any, file_arguments: Any) -> None:
    assert [*failing(SafetensorsSuite(others.Safetensors().read), file_arguments)] == []
