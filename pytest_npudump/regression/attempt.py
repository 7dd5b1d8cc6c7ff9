"""One run of a test under dump: its directory, its acl.json, the operators it checked, and what it left."""

from __future__ import annotations

import re
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from pytest_npudump.config.acl_keys import steps
from pytest_npudump.dump.reader import read_dump
from pytest_npudump.dump.records import Dump
from pytest_npudump.errors import ConfigError, RequestError, said
from pytest_npudump.record.run_folder import dump_folder
from pytest_npudump.regression.host_copies import HostCopies
from pytest_npudump.request import DumpRequest, RunRequest
from pytest_npudump.storage.archive import unpacked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pytest_npudump.compare.ulps import OutputFault
    from pytest_npudump.runtime.base import ModelSession, Runtime

    Progress = Callable[[int, int], None]


KEPT = 32
"""Wrong examples whose dumps are kept: the last ones, of which hypothesis' smallest is the very last."""


@dataclass(frozen=True, slots=True)
class GivenTensor:
    """An input of an operator.

    Attributes:
        dtype: its type.
        shape: its dimensions.
        there: the value where the output is farthest off, if their shapes are the same; else None.
    """

    dtype: str
    shape: tuple[int, ...]
    there: float | int | None = None


@dataclass(frozen=True, slots=True)
class WrongOperator:
    """An operator that does not give what its reference does.

    Attributes:
        operator: its type.
        example: which check of the test it was, from 1 on.
        inputs: what it was given.
        dump: the example's directory.
        output: which of its outputs it is about; None where it is about none.
        dtype: of that output; "" without one.
        shape: of it; None without one.
        fault: what is wrong with its values; None where it never came to these.
        problem: what is wrong besides values, in words; "" for nothing.
    """

    operator: str
    example: int
    inputs: tuple[GivenTensor, ...]
    dump: Path
    output: int | None = None
    dtype: str = ""
    shape: tuple[int, ...] | None = None
    fault: OutputFault | None = None
    problem: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the operator as plain JSON data; numbers that are not finite as text."""
        found = asdict(self) | {
            "dump": str(self.dump),
            "shape": None if self.shape is None else [*self.shape],
        }
        for value in [*found["inputs"], *([found["fault"]] if found["fault"] else [])]:
            for name in ("there", "got", "expected"):
                if isinstance(value.get(name), float):
                    number = value[name]
                    value[name] = number if number - number == 0 else str(number)
        return found


@dataclass(slots=True)
class OperatorChecks:
    """Results of a run's operator checks.

    Attributes:
        begun: how many were begun.
        ended: how many came to a verdict, good or bad.
        failures: how many of them were bad.
        wrong: the last bad ones, whose dumps are kept.
    """

    begun: int = 0
    ended: int = 0
    failures: int = 0
    wrong: list[WrongOperator] = field(default_factory=list)

    def begin(self) -> int:
        """Count a check, and return its number."""
        self.begun += 1
        return self.begun

    def end(self, wrong: WrongOperator | None) -> Path | None:
        """Count a verdict, and return the dump of a bad one that is to be deleted, as there are enough."""
        self.ended += 1
        if wrong is None:
            return None
        self.failures += 1
        self.wrong.append(wrong)
        return self.wrong.pop(0).dump if len(self.wrong) > KEPT else None


_AFTER = "after-"
_BESIDE = "references"
"""Folder of what a test captures beside its dump."""
_CAPTURE_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")


@dataclass(slots=True)
class Attempt:
    """One run of a test.

    Attributes:
        directory: where its configuration and dump lie; private to the user.
        request: what is dumped.
        dump_data: ``stats`` or ``tensor``, in place of the request's; None for the request's.
        layers: raw operator names to dump in place of the request's; None for the request's.
        parts: of the test that have a dump each: "", captures, and the times behind these.
        checks: the operators that were checked in it.
        copies: what passed through the models that it loaded.
        captures: of torch modules, in the part under way.
        watched: whether those that have ended are of the golden, or beside it.
        compared: tensors that the test itself has held against each other.
    """

    directory: Path
    request: DumpRequest
    dump_data: str | None = None
    layers: tuple[str, ...] | None = None
    parts: tuple[str, ...] = ()
    _configs: dict[str, Path] = field(default_factory=dict)
    checks: OperatorChecks = field(default_factory=OperatorChecks)
    copies: HostCopies = field(default_factory=HostCopies)
    captures: list[Any] = field(default_factory=list)
    watched: set[bool] = field(default_factory=set)
    compared: int = 0
    _strangers: Any = None
    _given: list[tuple[Any, Any, int, str]] = field(default_factory=list)
    _capture: str = ""
    _one_run: bool = False

    @property
    def dump_path(self) -> Path:
        """Directory of the dump around the test, outside of any capture."""
        return dump_folder(self.directory)

    @property
    def part(self) -> str:
        """Part of the test under way: "", a capture's name, or the time after one."""
        return next(reversed(self._configs))

    @property
    def config(self) -> Path:
        """The configuration of the part under way: of the test, or of the capture it is in."""
        return next(reversed(self._configs.values()))

    def start(self, runtime: Runtime) -> Path:
        """Write the configuration, switch the dump on, and return the file's path.

        Raises:
            NpudumpError: the configuration is refused, or the runtime cannot dump.
        """
        with _prepared(self.directory):
            self.directory.mkdir(mode=0o700)
        # What MindSpore writes in one run may look like two: it gives several executions one iteration.
        self._one_run = runtime.name == "mindspore"
        config = self._configure(runtime, "", self.dump_path)
        self.parts = ("",)
        runtime.start(config)
        return config

    def _configure(self, runtime: Runtime, part: str, dump_path: Path) -> Path:
        with _prepared(self.directory):
            dump_path.mkdir(mode=0o700)
        config = self.directory / runtime.config_name
        if part:
            config = config.with_stem(f"{config.stem}-{part}")
        with _prepared(self.directory):
            runtime.write_config(config, RunRequest(self.request, dump_path, self.layers, self.dump_data))
        self._configs[part] = config
        return config

    @contextmanager
    def capture(self, runtime: Runtime, name: str) -> Iterator[Path]:
        """Give models loaded and run inside the block a dump of their own, under the key ``name``.

        What runs behind the block is dumped under the key ``after-name``, if anything is.

        Raises:
            RequestError: ``name`` is not one, or was used before, or another capture has not ended.
        """
        if not _CAPTURE_NAME.match(name) or name.startswith(_AFTER):
            raise RequestError(f"capture({name!r}): expected up to 64 letters, digits, '-' and '_'")
        if name in self.parts:
            raise RequestError(f"capture({name!r}): this test has a capture of that name already")
        if self._capture:
            raise RequestError(f"capture({name!r}): inside capture({self._capture!r}), end that one first")
        directory = self._switch(runtime, name)
        self._capture = name
        try:
            yield directory
        finally:
            self._capture = ""
            self._switch(runtime, _AFTER + name)

    @contextmanager
    def example(self, runtime: Runtime, number: int) -> Iterator[Path]:
        """Give work inside the block a dump of its own; work outside of examples has none then."""
        runtime.stop()
        part = f"example{number}"
        directory = self.directory / part
        config = self._configure(runtime, part, directory)
        del self._configs[part]  # an example is judged by itself
        runtime.start(config, resumed=True)
        try:
            yield directory
        finally:
            runtime.stop()
            config.unlink(missing_ok=True)

    def watch_modules(
        self, model: Any, limit: int, *, golden: bool = True, tensors: bool = False, **asked: Any
    ) -> Any:
        """Watch the modules of a model, in the part under way; the capture is to be started.

        Args:
            model: the model.
            limit: most bytes of the tensors of one execution.
            golden: whether it is a part of the dump; else of a folder beside.
            tensors: whether elements are wanted, where the request leaves it.
            asked: further arguments of a :class:`Capture`, or with ``force`` of an ``EngineCapture``; those
                that the request has where it has none.

        Raises:
            RequestError: it is no such model, or has no module of a name.
        """
        from pytest_npudump.runtime.modules import capture_of  # noqa: PLC0415 - where there is a model

        request, data = self.request, self.dump_data or self.request.dump_data
        asked = {"layers": request.layers, "inputs": request.dump_mode != "output", **asked}
        folder, only = dump_folder(self.directory, self.part), self.layers or None
        if golden:
            tensors = data == "tensor" if data is not None else tensors
        else:
            folder, only = self.directory / _BESIDE, None
        kind: Any = capture_of
        if "force" in asked:
            from pytest_npudump.runtime.modules.engine import EngineCapture  # noqa: PLC0415 - where there is one

            kind = EngineCapture
        capture = kind(model, folder, limit=limit, only=only, tensors=tensors, **asked)
        capture.number = sum(one.folder == folder and one.name == capture.name for one in self.captures)
        self.captures.append(capture)
        if golden and not tensors and kind is capture_of:
            stem = capture.path.parent.name
            capture.look = self.copies.watch_outputs(capture.name, stem, self.part, capture.number)
        if self._strangers is not None:  # torch may be there since
            self._strangers.start()
        return capture

    def watch_strangers(self) -> None:
        """Look for torch modules that run unwatched, to the end of the run."""
        from pytest_npudump.runtime.modules.strangers import Strangers  # noqa: PLC0415 - for modules

        self._strangers = Strangers()
        self._strangers.start()

    def watch_given(self, model: Any, limit: int, name: str) -> dict[str, str]:
        """Watch a model of a fixture, in each part of the test, until the test watches it by a call.

        Returns:
            Words for each of the layers asked for that it has not; another model may.
        """
        capture = self.watch_modules(model, limit, name=name, partly=True)
        self._given.append((capture, model, limit, name))
        capture.start()
        unknown: dict[str, str] = capture.unknown
        return unknown

    def end_captures(self, runtime: Runtime, *, of_part: bool = False) -> None:
        """End captures that still watch modules, and note the results of all, and what nothing watched.

        Where there are several parts, nothing is said of fixtures' models that one of them does not call.
        """
        captures, self.captures = self.captures, []
        if self._strangers is not None and (words := self._strangers.stop(captures)):
            runtime.activity.evidence.notes.append(words)
        for capture in captures:
            from pytest_npudump.runtime.modules.adapter import tell  # noqa: PLC0415 - where there is one

            capture.stop()
            given = (of_part or len(self.parts) > 1) and any(one is capture for one, *_ in self._given)
            if given and not (capture.steps or capture.problems):
                continue
            of_golden = capture.folder.name != _BESIDE
            self.watched.add(of_golden)
            if of_golden:
                tell(capture, runtime)

    def _switch(self, runtime: Runtime, part: str) -> Path:
        given = [more for one, *more in self._given if not one.stopped]
        self.end_captures(runtime, of_part=True)
        self._given = []
        runtime.stop()
        directory = dump_folder(self.directory, part)
        config = self._configure(runtime, part, directory)
        self.parts = (*self.parts, part)
        runtime.start(config, resumed=True)
        if self._strangers is not None:
            self._strangers.start()
        for model, limit, name in given:
            self.watch_given(model, limit, name)
        return directory

    def watch(self, session: ModelSession, file: Path) -> None:
        """Look at what passes through a session: its dump may not tell the elements apart."""
        if self.request.scene == "model":
            sums = "tensor" not in {self.dump_data, self.request.dump_data}
            when = steps(self.request.dump_step or "")
            layers = self.request.layers
            self.copies.watch(session, file.stem, lambda: self.part, when, sums=sums, layers=layers)

    @property
    def judged_by_test(self) -> bool:
        """Whether it has compared captures itself, and none is of a golden, nor has anything been dumped."""
        dumped = any(any(dump_folder(self.directory, part).iterdir()) for part in self.parts)
        return self.watched == {False} and self.compared > 0 and not dumped

    def read(self, progress: Progress | None = None, *, acl: bool = False, projections: bool = True) -> Dump:
        """Read all dumps of the run: around the captures, and in each of them.

        Args:
            progress: called with (files read, files in all).
            acl: whether statistics of tensors are computed as CANN's device code computes them.
            projections: whether these are computed with them.

        Raises:
            DumpError: a capture, or a test without captures, dumped nothing.
        """
        folders = {name: unpacked(dump_folder(self.directory, name)) for name in self.parts}
        around = [name for name in self.parts if not name or name.startswith(_AFTER)]
        empty = [name for name in around if not any(folders[name].iterdir())]
        wanted = [name for name in self.parts if name not in empty] or [""]
        read = partial(read_dump, acl=acl, projections=projections, progress=progress, one_run=self._one_run)
        dumps = [_with_capture(read(folders[name]), name) for name in wanted]
        if len(dumps) == 1:
            return dumps[0]
        return Dump(
            root=self.directory,
            records=tuple(record for dump in dumps for record in dump.records),
            problems=tuple(problem for dump in dumps for problem in dump.problems),
            notes=tuple(dict.fromkeys(note for dump in dumps for note in dump.notes)),
            raw_names=all(dump.raw_names for dump in dumps),
        )


@contextmanager
def _prepared(directory: Path) -> Iterator[None]:
    """Turn an error of the file system into one that says what could not be begun."""
    try:
        yield
    except OSError as error:
        raise ConfigError(
            said(
                "{directory}: the dump cannot be prepared: {error}; free space there, or choose "
                "another folder with --npudump-output",
                directory=directory,
                error=error.strerror or error,
            )
        ) from error


def _with_capture(dump: Dump, name: str) -> Dump:
    if not name:
        return dump
    records = tuple(replace(record, key=replace(record.key, capture=name)) for record in dump.records)
    return replace(dump, records=records)
