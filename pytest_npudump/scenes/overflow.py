"""Overflow: a test fails if an operator overflowed that its golden does not list.

CANN keeps the first overflow of an execution: a record of what happened, and a dump of the operator, which
the record names by its task and stream. A healthy model leaves nothing and needs no golden. A golden lists
known overflows under its key ``overflow``, as ``operator: [what happened, ...]``.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pytest_npudump import outcome as status
from pytest_npudump.compare.table import StatsTable
from pytest_npudump.diagnose import explain_empty
from pytest_npudump.dump.container import read_container
from pytest_npudump.dump.overflow import OverflowUnit, read_overflow
from pytest_npudump.dump.reader import read_dump
from pytest_npudump.dump.records import Dump
from pytest_npudump.dump.tree import find_files
from pytest_npudump.errors import DumpError, FormatError, GoldenError
from pytest_npudump.golden.text import Golden
from pytest_npudump.outcome import Outcome
from pytest_npudump.scenes.operator_tensors import OperatorTensor, described
from pytest_npudump.scenes.reading import ran_under_dump, unreadable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from pytest_npudump.dump.records import TensorRecord
    from pytest_npudump.session import MarkedTest

KEY = "overflow"
"""The golden's key for known overflows."""

_BY_MINDSPORE = ("detected by MindSpore",)


@dataclass(frozen=True, slots=True)
class Overflow:
    """An operator that overflowed.

    Attributes:
        layer: its name; "" where the record names a task of which there is no dump.
        op_type: its type.
        kinds: what happened, as ``unit: words``.
        task, stream: ids in the record.
        record: the file of the record.
        place: what tells this execution from others, as ``name=value``; "" if nothing.
        tensors: its inputs and outputs in the first execution in which it overflowed.
        executions: how many executions of the model have it.
    """

    layer: str
    op_type: str
    kinds: tuple[str, ...]
    task: int
    stream: int
    record: Path
    place: str = ""
    tensors: tuple[OperatorTensor, ...] = ()
    executions: int = 1

    def to_json(self) -> dict[str, Any]:
        """Return the finding as plain JSON data."""
        return {
            "kind": "overflow",
            "operator": self.layer or None,
            "type": self.op_type or None,
            "what": list(self.kinds),
            "task": self.task,
            "stream": self.stream,
            "place": self.place or None,
            "executions": self.executions,
            "record": str(self.record),
            "tensors": [tensor.to_json() for tensor in self.tensors],
        }


def judge(test: MarkedTest) -> Outcome:
    """Hold the overflows of a run against those that the golden lists, or record them there."""
    path = test.goldens.path
    try:
        golden = _golden(test)
        known = {} if test.settings.update_golden else known_overflows(golden)
        dump, records = _read(test)
    except (DumpError, GoldenError) as error:
        return Outcome(status.ERROR, path, problems=(str(error),))
    found, problems = find_overflows(records, dump.records)
    found += detected_by_mindspore(dump.records)
    problems = (*unreadable(dump), *problems)
    if test.settings.update_golden:
        return _record(test, golden, found, problems)
    new = tuple(one for one in found if not one.layer or not set(one.kinds) <= set(known.get(one.layer, ())))
    good = not new and not problems
    return Outcome(
        status.PASSED if good else status.FAILED,
        path,
        problems=problems,
        notes=tuple(_notes(found, new, known)),
        tensors=len(dump.records),
        findings=new,
    )


def _golden(test: MarkedTest) -> Golden | None:
    try:
        return test.goldens.read_if_any()
    except GoldenError:
        if test.settings.update_golden:
            return None
        raise


def known_overflows(golden: Golden | None) -> Mapping[str, Sequence[str]]:
    """Return what a golden lists as known, by operator; nothing where there is none.

    Raises:
        GoldenError: its key ``overflow`` is no mapping of names to lists of text.
    """
    listed = {} if golden is None else golden.extra.get(KEY, {})
    if isinstance(listed, dict) and all(
        isinstance(kinds, list) and all(isinstance(kind, str) for kind in kinds) for kinds in listed.values()
    ):
        return listed
    path = golden.path if golden is not None else ""
    raise GoldenError(
        f"{path}: {KEY!r} is no mapping of operators to lists of what happened; restore the file from "
        f"version control, or approve anew with --npudump-update-golden"
    )


def _read(test: MarkedTest) -> tuple[Dump, tuple[Path, ...]]:
    """Read the run's dump and the paths of its overflow records.

    Raises:
        DumpError: there is none, and nothing shows that a model ran while overflows were dumped.
    """
    attempt, activity = test.attempt, test.runtime.activity
    tree = find_files(attempt.directory)
    if tree.overflow or tree.files or tree.problems:
        return _merge(attempt.directory, one_run=test.runtime.name == "mindspore"), tuple(tree.overflow)
    if ran_under_dump(activity):
        return Dump(attempt.directory, ()), ()
    why = explain_empty(test.request, activity, attempt.dump_path, "")
    raise DumpError(f"no overflow is recorded, and nothing shows that a model ran under the dump: {why}")


def _merge(directory: Path, *, one_run: bool) -> Dump:
    """Read the dumps around and in the captures of a run, those that hold nothing left out."""
    folders = sorted(path for path in directory.iterdir() if path.is_dir())
    parts = [
        (folder.name.partition("-")[2], read_dump(folder, stats=False, one_run=one_run))
        for folder in folders
        if any(path.is_file() for path in folder.rglob("*"))
    ]
    return Dump(
        directory,
        tuple(
            replace(record, key=replace(record.key, capture=name))
            for name, part in parts
            for record in part.records
        ),
        tuple(problem for _, part in parts for problem in part.problems),
    )


def find_overflows(
    paths: Iterable[Path], dumped: Sequence[TensorRecord]
) -> tuple[tuple[Overflow, ...], tuple[str, ...]]:
    """Read overflow records and find their operators.

    Args:
        paths: files of overflow records.
        dumped: the tensors of the same dump.

    Returns:
        One finding an operator and kind, in the order of time, and what could not be read.
    """
    found: dict[tuple[object, ...], Overflow] = {}
    problems = []
    for path in sorted(paths, key=lambda path: path.name.rpartition(".")[2]):
        try:
            units = [unit for record in _records(path) for unit in record]
        except FormatError as error:
            problems.append(f"unreadable overflow record: {error}")
            continue
        if not units:
            problems.append(f"{path}: the overflow record names no unit that overflowed")
        for one in (_overflow(unit, path, dumped) for unit in units):
            key = (one.layer, one.kinds, *(() if one.layer else (one.task, one.stream)))
            earlier = found.get(key)
            found[key] = one if earlier is None else replace(earlier, executions=earlier.executions + 1)
    return tuple(found.values()), tuple(problems)


def detected_by_mindspore(dumped: Iterable[TensorRecord]) -> tuple[Overflow, ...]:
    """Return the operators that MindSpore dumped because it found that they overflowed, in the order of time.

    Its synchronous dump (``op_debug_mode`` 3) leaves their inputs and outputs as npy files, and no record.
    """
    executions: dict[object, list[TensorRecord]] = {}
    for record in dumped:
        if record.path.suffix == ".npy" and record.op_type != "Parameter":
            executions.setdefault(replace(record.key, io="", slot=0), []).append(record)
    found: dict[str, Overflow] = {}
    for operator in executions.values():
        first = operator[0]
        earlier = found.get(first.key.layer)
        found[first.key.layer] = (
            _dumped(operator, _BY_MINDSPORE, first.task or 0, first.stream or 0, first.path)
            if earlier is None
            else replace(earlier, executions=earlier.executions + 1)
        )
    return tuple(found.values())


def _records(path: Path) -> Iterator[tuple[OverflowUnit, ...]]:
    for container in read_container(path):
        for tensor in container.tensors:
            if tensor.payload is None:
                raise FormatError(path, f"the overflow record has no data {tensor.note}".rstrip())
            yield read_overflow(tensor.payload).overflowed


def _overflow(unit: OverflowUnit, path: Path, dumped: Sequence[TensorRecord]) -> Overflow:
    task, stream = unit.fields["task_id"], unit.fields["stream_id"]
    kinds = tuple(text if text.startswith(unit.name) else f"{unit.name}: {text}" for text in unit.describe())
    operator = _operator(task, stream, path, dumped)
    if not operator:
        return Overflow("", "", kinds, task, stream, path)
    return _dumped(operator, kinds, task, stream, path)


def _dumped(
    operator: Sequence[TensorRecord], kinds: tuple[str, ...], task: int, stream: int, path: Path
) -> Overflow:
    first = operator[0]
    _, sign, qualifiers = str(first.key).rpartition(":")[0].partition("#")
    return Overflow(
        first.key.layer,
        first.op_type,
        kinds,
        task,
        stream,
        path,
        qualifiers if sign else "",
        tuple(map(_tensor, operator)),
    )


def _operator(task: int, stream: int, path: Path, dumped: Sequence[TensorRecord]) -> list[TensorRecord]:
    """Return the tensors of the operator with these ids, nothing where none or several may be meant.

    The record lies beside the operator's dump; where it does not, the ids have to be those of one file.
    """
    same = [r for r in dumped if r.task == task and r.stream in {stream, None}]
    files: defaultdict[Path, list[TensorRecord]] = defaultdict(list)
    for record in [r for r in same if r.path.parent == path.parent] or same:
        files[record.path].append(record)
    return next(iter(files.values())) if len(files) == 1 else []


def _tensor(record: TensorRecord) -> OperatorTensor:
    slot = (record.key.io, record.key.slot)
    if record.payload is None:
        return OperatorTensor(*slot, None, record.note or "no data", record.path)
    return described(slot, record.payload, record.dtype, record.shape)


def _notes(
    found: Sequence[Overflow], new: Sequence[Overflow], known: Mapping[str, Sequence[str]]
) -> Iterator[str]:
    approved = [one.layer for one in found if one not in new]
    if approved:
        yield (
            f"CANN keeps only the first overflow of an execution: behind {', '.join(approved)}, which the "
            f"golden lists, others may have overflowed unseen"
        )
    absent = [layer for layer in known if layer not in {one.layer for one in found}]
    if absent:
        yield f"the golden lists {', '.join(absent)}, which did not overflow this time"


def _record(
    test: MarkedTest, golden: Golden | None, found: Sequence[Overflow], problems: tuple[str, ...]
) -> Outcome:
    """Write the overflows into the golden; a model without any gets no golden, and keeps none."""
    path = test.goldens.path
    nameless = tuple(
        f"{one.record}: the overflow of task {one.task}, stream {one.stream} cannot be listed: the dump "
        f"has no operator with these ids"
        for one in found
        if not one.layer
    )
    if problems or nameless:
        return Outcome(status.ERROR, path, problems=problems + nameless)
    if golden is None and not found:
        return Outcome(status.UNCHANGED, path)
    kinds: defaultdict[str, list[str]] = defaultdict(list)
    for one in found:
        kinds[one.layer] += [kind for kind in one.kinds if kind not in kinds[one.layer]]
    empty = StatsTable.from_records(())
    base = golden or Golden(test=test.nodeid, producer={}, table=empty, path=path)
    extra = {key: value for key, value in base.extra.items() if key != KEY}
    listed = {KEY: dict(kinds)} if kinds else {}
    try:
        written, changed = test.goldens.write(
            replace(base, extra={**extra, **listed}), empty, test.runtime.producer()
        )
    except GoldenError as error:
        return Outcome(status.ERROR, path, problems=(str(error),))
    return Outcome(status.RECORDED if changed else status.UNCHANGED, written)
