"""Overflow: a test fails if an operator overflowed that its golden does not list.

CANN keeps the first overflow of an execution. A healthy model leaves nothing and needs no golden. A golden
lists known overflows under its key ``overflow``, as ``operator: [what happened, ...]``; the operator's name
is followed by ``#capture=...`` where it overflowed in a capture, and likewise by ``rank``, ``device`` and
``model`` where there are several.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pytest_npudump.dump.files.container import read_container
from pytest_npudump.dump.files.overflow import OverflowUnit, read_overflow
from pytest_npudump.dump.reader import read_dump
from pytest_npudump.dump.records import Dump, TensorRecord
from pytest_npudump.dump.table import StatsTable
from pytest_npudump.dump.tree.find import Tree, find_files
from pytest_npudump.errors import DumpError, FormatError, GoldenError, joined, said
from pytest_npudump.golden.variants import foreign, unsaid
from pytest_npudump.record.record import OVERFLOW, REASON, Record
from pytest_npudump.record.run_folder import dump_folders
from pytest_npudump.regression import result as status
from pytest_npudump.regression.diagnose import not_dumped, ran_under_dump, why_unshown
from pytest_npudump.regression.result import Result, recorded
from pytest_npudump.regression.run_record import golden_to_start_from, unreadable
from pytest_npudump.regression.scenes.findings import OperatorTensor, described, grouped, place_of, result_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from pytest_npudump.regression.attempt import Attempt
    from pytest_npudump.regression.case import Case
    from pytest_npudump.runtime.base import Activity


_SEVERAL = 2


def judge(case: Case, attempt: Attempt) -> Result:
    """Hold the overflows of a run against those that the golden lists, or record them there."""
    path = case.goldens.path
    try:
        golden = golden_to_start_from(case)
        known = {} if case.settings.update_golden else known_overflows(golden)
        dump, tree = _read(case, attempt)
    except (DumpError, GoldenError) as error:
        return Result(status.ERROR, path, problems=(str(error),))
    found, problems = find_overflows([file.path for file in tree.overflow], dump.records)
    found += detected_by_mindspore(dump.records)
    gaps = not_dumped(case.runtime.activity)
    problems = (*unreadable(dump), *problems, *_without_tensors(tree, dump), *((gaps,) if gaps else ()))
    if case.settings.update_golden:
        return _record(case, golden, found, problems)
    if golden is not None:
        facts = case.goldens.facts(case.runtime.producer())
        problems = (*foreign(golden, case.goldens.test, facts), *problems)
    new = tuple(one for one in found if not is_known(one, known))
    notes = (*(unsaid(golden) if golden else ()), *_notes(found, new, known))
    return result_of(new, problems, notes, tensors=len(dump.records), golden=path)


def is_known(one: Overflow, known: Mapping[str, Sequence[str]]) -> bool:
    """Return whether a golden lists an overflow: its operator, where it ran, and all its kinds.

    Goldens used to list names as they are, without ``%`` and ``#`` encoded: such an entry still holds outside
    of captures and of dumps with several ranks, devices or models.
    """
    if not one.layer:
        return False
    plain = "#" not in one.name and not {"%", "#"} & set(one.layer)
    listed = known.get(one.name, known.get(one.layer, ()) if plain else ())
    return set(one.kinds) <= set(listed)


def _without_tensors(tree: Tree, dump: Dump) -> Iterator[str]:
    """Name overflowed operators known by their file's name only."""
    read = {record.path for record in dump.records}
    unread = {problem.path for problem in dump.problems}
    for file in tree.files:
        if file.path.suffix != ".npy" and file.path not in read and str(file.path) not in unread:
            yield f"{file.path}: the operator was dumped, as it overflowed, and its dump holds no tensor"


def known_overflows(golden: Record | None) -> Mapping[str, Sequence[str]]:
    """Return a golden's known overflows by operator; none without a golden.

    Raises:
        GoldenError: its key ``overflow`` is no mapping of names to lists of text.
    """
    listed = {} if golden is None else golden.extra.get(OVERFLOW, {})
    if isinstance(listed, dict) and all(
        isinstance(kinds, list) and all(isinstance(kind, str) for kind in kinds) for kinds in listed.values()
    ):
        return listed
    path = golden.path if golden is not None else ""
    raise GoldenError(
        f"{path}: {OVERFLOW!r} is no mapping of operators to lists of what happened; restore the file from "
        f"version control, or accept anew with --npudump-update-golden"
    )


def _read(case: Case, attempt: Attempt) -> tuple[Dump, Tree]:
    """Read the run's dump, and find its files.

    Raises:
        DumpError: there is none, and nothing shows that a model ran while overflows were dumped and seen.
    """
    activity = case.runtime.activity
    tree = find_files(attempt.directory)
    if tree.overflow or tree.files or tree.problems:
        one_run = case.runtime.name == "mindspore"
        parts = [
            (capture, read_dump(folder, stats=False, one_run=one_run))
            for capture, folder in dump_folders(attempt.directory)
            if any(path.is_file() for path in folder.rglob("*"))
        ]
        records = tuple(
            replace(record, key=replace(record.key, capture=name))
            for name, part in parts
            for record in part.records
        )
        problems = tuple(problem for _, part in parts for problem in part.problems)
        return _with_models(Dump(attempt.directory, records, problems), tree, activity), tree
    if activity.evidence.blind:
        raise DumpError(
            said(
                "no overflow is recorded, and none could be: {why}",
                why=joined("; ", activity.evidence.blind),
            )
        )
    if ran_under_dump(activity):
        return Dump(attempt.directory, ()), tree
    raise DumpError(said("no overflow is recorded, and {why}", why=why_unshown(case, attempt)))


def _with_models(dump: Dump, tree: Tree, activity: Activity) -> Dump:
    """Put the model's name into every key where the test ran several models.

    The dump of an overflow holds only what overflowed, so that one model in it says little.
    """
    places = {file.path: file.place for file in tree.files}
    ran = {*map(str, activity.models), *activity.evidence.models}
    if len(ran) < _SEVERAL and len({place.model for place in places.values()} - {""}) < _SEVERAL:
        return dump
    records = tuple(
        replace(one, key=replace(one.key, model=places[one.path].model))
        if one.path in places and not one.key.model
        else one
        for one in dump.records
    )
    return replace(dump, records=records)


def _notes(
    found: Sequence[Overflow], new: Sequence[Overflow], known: Mapping[str, Sequence[str]]
) -> Iterator[str]:
    approved = [one.name for one in found if one not in new]
    overflowed = {one.name for one in found} | {one.layer for one in found if is_known(one, known)}
    absent = [name for name in known if name not in overflowed]
    elsewhere = [one.name for one in new if one.layer in absent]
    notes = (
        f"CANN keeps only the first overflow of an execution: behind {', '.join(approved)}, which the "
        f"golden lists, others may have overflowed unseen"
        if approved
        else "",
        f"the golden lists {', '.join(absent)}, which did not overflow this time" if absent else "",
        f"{', '.join(elsewhere)}: the golden lists the operator without this capture, rank, device or "
        f"model; it accepts an overflow only where it lists it"
        if elsewhere
        else "",
    )
    return filter(None, notes)


def _record(
    case: Case, golden: Record | None, found: Sequence[Overflow], problems: tuple[str, ...]
) -> Result:
    """Write the overflows into the golden; a model without any gets no golden, and keeps none."""
    path = case.goldens.path
    nameless = tuple(
        f"{one.record}: the overflow of task {one.task}, stream {one.stream} cannot be listed: the dump "
        f"has no operator with these ids"
        for one in found
        if not one.layer
    )
    if problems or nameless:
        return Result(status.ERROR, path, problems=problems + nameless)
    lost = case.goldens.lost_by_update(golden)
    if golden is None and not found and not lost:
        return Result(status.UNCHANGED, path)
    kinds: defaultdict[str, list[str]] = defaultdict(list)
    for one in found:
        kinds[one.name] += [kind for kind in one.kinds if kind not in kinds[one.name]]
    empty = StatsTable.from_records(())
    known: dict[str, object] = {OVERFLOW: dict(kinds)} if kinds else {}
    known |= {REASON: case.settings.reason} if case.settings.reason else {}
    try:
        recording = case.goldens.record(golden, empty, case.runtime.producer(), known=known)
    except GoldenError as error:
        return Result(status.ERROR, path, problems=(str(error),))
    return recorded(recording, notes=lost)


_BY_MINDSPORE = ("detected by MindSpore",)
_NO_RECORD = ("dumped, and no overflow record tells what happened: the record is lost",)


@dataclass(frozen=True, slots=True)
class Overflow:
    """An operator that overflowed.

    Attributes:
        layer: its name; "" where the record names a task of which there is no dump.
        op_type: its type.
        kinds: what happened, as ``unit: words``.
        task, stream: ids in the record.
        record: the file of the record; that of the dump where there is no record.
        place: what tells this execution from others, as ``name=value``; "" if nothing.
        tensors: its inputs and outputs in the first execution in which it overflowed.
        executions: how many executions of the model have it.
        name: what a golden lists it as, ``layer[#capture=...,rank=...,device=...,model=...]``; "" without a
            layer.
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
    name: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the finding as plain JSON data."""
        return {
            "kind": "overflow",
            "operator": self.layer or None,
            "listed_as": self.name or None,
            "type": self.op_type or None,
            "what": list(self.kinds),
            "task": self.task,
            "stream": self.stream,
            "place": self.place or None,
            "executions": self.executions,
            "record": str(self.record),
            "tensors": [tensor.to_json() for tensor in self.tensors],
        }


def find_overflows(
    paths: Iterable[Path], dumped: Sequence[TensorRecord]
) -> tuple[tuple[Overflow, ...], tuple[str, ...]]:
    """Read overflow records and find their operators; operators that no record names come last.

    Args:
        paths: files of overflow records.
        dumped: the tensors of the same dump.

    Returns:
        One finding an operator and kind, in the order of time, and what could not be read.
    """
    found: list[Overflow] = []
    problems = []
    named: set[Path] = set()
    for path in sorted(paths, key=lambda path: path.name.rpartition(".")[2]):
        try:
            units = [unit for record in _records(path) for unit in record]
        except FormatError as error:
            problems.append(f"unreadable overflow record: {error}")
            continue
        if not units:
            problems.append(f"{path}: the overflow record names no unit that overflowed")
        for unit in units:
            operators = _operators(unit, path, dumped)
            named.update(operators)
            found.append(_overflow(unit, path, operators))
    others = (one for one in dumped if one.path not in named and not _is_mindspore(one))
    found += [_found(operator, _NO_RECORD) for operator in _executions(others)]
    return grouped(found, _identity), tuple(problems)


def detected_by_mindspore(dumped: Iterable[TensorRecord]) -> tuple[Overflow, ...]:
    """Return the operators that MindSpore dumped because it found that they overflowed, in the order of time.

    Its synchronous dump (``op_debug_mode`` 3) leaves their inputs and outputs as npy files, and no record.
    """
    by_mindspore = (record for record in dumped if _is_mindspore(record) and record.op_type != "Parameter")
    return grouped((_found(operator, _BY_MINDSPORE) for operator in _executions(by_mindspore)), _identity)


def _identity(one: Overflow) -> object:
    return (one.name, one.kinds, *(() if one.layer else (one.task, one.stream)))


def _is_mindspore(record: TensorRecord) -> bool:
    return record.path.suffix == ".npy"


def _executions(dumped: Iterable[TensorRecord]) -> Iterable[Sequence[TensorRecord]]:
    executions: defaultdict[object, list[TensorRecord]] = defaultdict(list)
    for record in dumped:
        executions[replace(record.key, io="", slot=0)].append(record)
    return executions.values()


def _records(path: Path) -> Iterator[tuple[OverflowUnit, ...]]:
    for container in read_container(path):
        for tensor in container.tensors:
            if tensor.payload is None:
                raise FormatError(path, tensor.note)
            yield read_overflow(tensor.payload).overflowed


def _overflow(unit: OverflowUnit, path: Path, operators: Mapping[Path, Sequence[TensorRecord]]) -> Overflow:
    """Return the overflow of a record; its operator is not guessed where several are possible."""
    task, stream = unit.fields["task_id"], unit.fields["stream_id"]
    kinds = tuple(text if text.startswith(unit.name) else f"{unit.name}: {text}" for text in unit.describe())
    if len(operators) != 1:
        return Overflow("", "", kinds, task, stream, path)
    (operator,) = operators.values()
    return replace(_found(operator, kinds), task=task, stream=stream, record=path)


def _found(operator: Sequence[TensorRecord], kinds: tuple[str, ...]) -> Overflow:
    first = operator[0]
    return Overflow(
        first.key.layer,
        first.op_type,
        kinds,
        first.task or 0,
        first.stream or 0,
        first.path,
        place_of(first.key),
        tuple(described(one, (one.key.io, one.key.slot), one.path) for one in operator),
        name=str(replace(first.key, turn=0, step=0, load=0)).rpartition(":")[0],
    )


def _operators(
    unit: OverflowUnit, path: Path, dumped: Sequence[TensorRecord]
) -> Mapping[Path, Sequence[TensorRecord]]:
    """Return the tensors of the operators that a record may mean, by file.

    The record lies beside the operator's dump; where it does not, the ids have to be those of one file.
    """
    task, stream = unit.fields["task_id"], unit.fields["stream_id"]
    same = [r for r in dumped if r.task == task and r.stream in {stream, None}]
    files: defaultdict[Path, list[TensorRecord]] = defaultdict(list)
    for record in [r for r in same if r.path.parent == path.parent] or same:
        files[record.path].append(record)
    return files
