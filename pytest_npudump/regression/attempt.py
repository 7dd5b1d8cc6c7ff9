"""One run of a test under dump: its directory, its acl.json, the operators it checked, and what it left.

A device's statistics do not tell elements apart. Inputs and outputs of a graph pass through the test's own
memory, so that their projections cost no tensor in the dump. Where each row of an output has one element that
is by far the largest, as of a class that is all but certain, its place is known as well: projections do not
tell it from one in 200 others. They go to the row that the dump has of the tensor: of an input its ``Data``,
of an output the operator that writes it. A tensor that the test does not have dumped has no row: outputs of a
model of which a test selects layers stand beside its rows, for a note.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence, Set as AbstractSet
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_npudump.config.acl_keys import steps
from pytest_npudump.dump.arrays.decode import DecodeError
from pytest_npudump.dump.columns import UNTOLD, TensorTable
from pytest_npudump.dump.reader import read_dump
from pytest_npudump.dump.records import BESIDE_MASK, WEIGHED, Dump, Stats, TensorKey, TensorRecord, with_peaks
from pytest_npudump.dump.selection import layers_meant
from pytest_npudump.dump.stats.compact_projections import as_printed, texts
from pytest_npudump.dump.stats.projections import project, projector_of
from pytest_npudump.dump.stats.signs import factors
from pytest_npudump.dump.stats.tensor import tensor_stats
from pytest_npudump.dump.table import StatsTable
from pytest_npudump.errors import ConfigError, RequestError, said
from pytest_npudump.record.model_lines import fed_line
from pytest_npudump.record.rows import render_outputs
from pytest_npudump.record.run_folder import dump_folder
from pytest_npudump.request import DumpRequest, RunRequest
from pytest_npudump.runtime.base import ModelSession, Port, PortedSession
from pytest_npudump.storage.archive import unpacked

if TYPE_CHECKING:
    from pytest_npudump.compare.ulps import OutputFault
    from pytest_npudump.runtime.base import Runtime

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


_BY_FAR = 0.5
"""The share of a tensor's magnitude by which a row's largest element is larger: no preset allows so much."""
_MOST = 1 << 22
"""Elements beyond which nobody looks for the largest ones."""
_MASK = 1e3
"""How much larger a mask is than the elements beside it, at least."""
_FEW = 8
"""Rows whose places are told one by one."""


@dataclass(frozen=True, slots=True)
class _Passed:
    """A tensor that passed: shape and type that its row has to have, projections, text for its hashes."""

    port: tuple[str, int]
    dtype: str
    shape: tuple[int, ...]
    sums: tuple[float, ...]
    peaks: str
    stats: Stats | None = None


@dataclass(slots=True)
class HostCopies:
    """Host copies of the sessions of one run.

    Attributes:
        sessions: of each session in the order of loading the stem of its file, and what passed: by the part
            of the test, then by the number of the execution. Of models in memory which load it is, too.
        fed: by the stem of a file a digest of each execution's inputs.
    """

    sessions: list[tuple[str, dict[str, dict[int, list[_Passed]]], int | None]] = field(default_factory=list)
    fed: dict[str, list[bytes]] = field(default_factory=dict)

    def watch(
        self,
        session: ModelSession,
        stem: str,
        part: Callable[[], str],
        steps: Sequence[tuple[int, int]],
        *,
        sums: bool = True,
        layers: Sequence[str] = (),
    ) -> None:
        """Look at what passes through a session from now on, if it tells what dumps call its tensors.

        Args:
            session: a model that has just been loaded.
            stem: of its file's name.
            part: tells which part of the test is under way.
            steps: intervals of the executions that are dumped; none for all.
            sums: whether projections are wanted, which a dump of tensors has.
            layers: those that the test names; outputs of others have no row.
        """
        if not isinstance(session, PortedSession):
            return
        seen: dict[str, dict[int, list[_Passed]]] = {}
        given, numbers = session.input_ports, count()
        ports = (*given, *session.output_ports)
        outputs = {port for port in session.output_ports if port is not None}
        named = layers_meant(layers, (layer for layer, _ in outputs)) if layers else ()
        outside = {port for port in outputs if port[0] not in named} if layers else ()
        self.sessions.append((stem, seen, None))

        def look(inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> None:
            number = next(numbers)
            if not steps or any(first <= number <= last for first, last in steps):
                self.fed.setdefault(stem, []).append(_digest(inputs))
                pairs = zip(ports, (*inputs, *outputs), strict=True)
                seen.setdefault(part(), {})[number] = [
                    one
                    for place, (port, array) in enumerate(pairs)
                    for one in _passed(
                        port,
                        array,
                        sums=sums,
                        peaks=place >= len(given),
                        whole=port in outside,
                    )
                ]

        session.look = look

    def watch_outputs(self, layer: str, stem: str, part: str, load: int) -> Callable[[int, int, Any], None]:
        """Return a function that looks where outputs are largest, by number of the execution and slot.

        The dump has projections of a model in memory.

        Args:
            layer: what dumps call the model as a layer.
            stem: what they call it as a model.
            part: of the test.
            load: which of its captures in that part.
        """
        seen: defaultdict[int, list[_Passed]] = defaultdict(list, {0: []})
        self.sessions.append((stem, {part: seen}, load))

        def look(number: int, slot: int, array: np.ndarray) -> None:
            seen[number] += _passed((layer, slot), array, sums=False, peaks=True)

        return look

    def completed(self, dump: Dump) -> Dump:
        """Return a dump with what is known of what passed, in those of its rows that have none."""
        keys = {name: one for names, one in self._keys() for name in names}
        records, found = dump.records, dict[int, _Passed]()
        names = ((TensorKey(stem, "", 0).name_text, digests) for stem, digests in self.fed.items())
        dump = replace(dump, fed="".join(fed_line(*one) for one in names if all(one[1])))
        if not keys:
            return dump
        texts = records.texts if isinstance(records, TensorTable) else [str(one.key) for one in records]
        for row, text in enumerate(texts):
            one = keys.get(text)
            if one is not None and (records[row].dtype, records[row].shape) == (one.dtype, one.shape):
                found[row] = one
        dump = replace(dump, outputs=self._outside({*texts}))
        return replace(dump, records=_with(records, found)) if found else dump

    def _outside(self, known: AbstractSet[str]) -> str:
        """Return the rows of outputs that the dump lacks, under the first key that they may have."""
        several = len({stem for stem, *_ in self.sessions}) > 1
        records = {}
        for names, one in self._keys():
            if one.stats is not None and known.isdisjoint(names):
                key = TensorKey.parse(names[several])
                records[key] = TensorRecord(
                    key, "", one.dtype, one.shape, Path(), stats=one.stats, digest=with_peaks("", one.peaks)
                )
        return render_outputs(StatsTable.from_records(as_printed([*records.values()]))) if records else ""

    def _keys(self) -> Iterator[tuple[list[str], _Passed]]:
        """Yield the host copies, each behind all keys that its row may have."""
        loads: defaultdict[tuple[str, str], int] = defaultdict(int)
        for stem, parts, own in self.sessions:
            for part, executions in parts.items():
                load, first = loads[stem, part] if own is None else own, min(executions)
                loads[stem, part] += 1
                for number, tensors in executions.items():
                    for one in tensors:
                        layer, slot = one.port
                        key = TensorKey(layer, "output", slot, step=number - first, load=load, capture=part)
                        every = key, replace(key, model=stem)
                        yield [*map(str, every), *(str(each.sanitised) for each in every)], one


def _digest(inputs: Sequence[np.ndarray]) -> bytes:
    """Return a digest of types, shapes and bytes; b"" of objects, whose bytes say nothing."""
    digest = sha256()
    for array in inputs:
        if array.dtype.hasobject:
            return b""
        digest.update(repr((str(array.dtype), array.shape)).encode())
        digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data if array.size else b"")
    return digest.digest()


def _passed(
    port: Port, array: np.ndarray, *, sums: bool, peaks: bool, whole: bool = False
) -> Iterator[_Passed]:
    if port is None or not (array.size or whole) or not (sums or peaks):
        return
    with suppress(DecodeError, TypeError, ValueError):  # a type whose values are no numbers
        told = projector_of(array) if sums or whole else None
        found = told.sums() if told is not None else ()
        text = told.checksum() if told is not None else ""
        text += _peaks(array) if peaks and array.size else ""
        stats = replace(tensor_stats(array), projections=found) if whole else None
        yield _Passed(port, array.dtype.name, array.shape, found if sums else (), text, stats)


def _peaks(array: np.ndarray) -> str:
    """Return, for an output's hashes, the facts that plain projections lack; "" where there are none.

    It is where each row is largest, unless other numerics might turn one, and the projections of the elements
    by their factors: plain ones do not see that two elements change places, of one pair in 200. Beside a
    mask, one round or lowest number that is all of the largest elements, it is the projections of the other
    elements, of which those of all tell nothing.
    """
    values = array.squeeze()
    if not values.ndim or values.dtype.kind in "bcOSU" or values.size > _MOST:
        return ""
    rows = values.reshape(-1, values.shape[-1]).astype(np.float64)
    sizes = np.abs(rows)
    scale = sizes.max()
    if not np.isfinite(scale) or scale == 0:
        return ""
    if scale >= _MASK:
        beside = sizes < scale / _MASK
        mask = rows[~beside]
        lowest = values.dtype.kind == "f" and mask[0] == np.finfo(values.dtype).min
        if beside.any() and (mask == mask[0]).all() and (lowest or float(f"{mask[0]:.1g}") == mask[0]):
            [text] = texts(np.array([project(np.where(beside, rows, 0.0))]))
            return f"{BESIDE_MASK}{text}"
    [text] = texts(np.array([project(rows.reshape(-1) * np.resize(factors(), rows.size))]))
    return f"{_places(rows, _BY_FAR * scale)}{WEIGHED}{text}"


def _places(rows: np.ndarray, least: float) -> str:
    """Return the column of each row's largest element; "" where that of one is not larger by ``least``."""
    for some in (rows[:1], rows):  # the first alone decides most
        second, first = np.partition(some, -2, axis=1)[:, -2:].T
        if not (first - second >= least).all():
            return ""
    places = rows.argmax(axis=1)
    few = len(places) <= _FEW
    return "x".join(map(str, places)) if few else sha256(places.tobytes()).hexdigest()[:16]


def _with(records: Sequence[TensorRecord], found: Mapping[int, _Passed]) -> Sequence[TensorRecord]:
    sums = {row: one.sums for row, one in found.items() if one.sums}
    peaks = {row: one.peaks for row, one in found.items() if one.peaks}
    if isinstance(records, TensorTable):
        columns = records.columns
        digits = [0 if told == UNTOLD and row in sums else told for row, told in enumerate(columns.digits)]
        digests = [with_peaks(one, peaks.get(row, "")) for row, one in enumerate(columns.digest)]
        columns = replace(columns, digits=digits, projections={**sums, **columns.projections}, digest=digests)
        return TensorTable(records.files, columns)
    whole = [*records]
    for row in found:
        stats, digest = whole[row].stats, whole[row].digest
        if row in sums and (stats is None or stats.projections is None):
            stats = replace(stats or Stats(), projections=sums[row])
        whole[row] = replace(whole[row], stats=stats, digest=with_peaks(digest, peaks.get(row, "")))
    return tuple(whole)


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
