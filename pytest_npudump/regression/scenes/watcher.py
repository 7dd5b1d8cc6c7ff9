"""The watcher: outputs of ``watcher_nodes`` must not change while the operators of ``layers`` run.

CANN dumps every watched output after its own operator C (``C``) and after each operator A of ``layers``, or
after every operator where it has none (``A_To_C``, with the task id of A); not after a watched operator, nor
after a collective one, whose type begins with ``Hcom``. Snapshots are put into the order in which their
operators ran, and each is compared with the one before it, so that a change is laid to the first operator
behind it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pytest_npudump.dump.arrays.decode import load
from pytest_npudump.dump.dtypes import BY_NAME
from pytest_npudump.dump.filebytes import raw_bytes
from pytest_npudump.dump.names import split_watcher
from pytest_npudump.dump.records import Dump, Payload, TensorRecord, sanitise
from pytest_npudump.errors import DumpError
from pytest_npudump.language.text import first_of
from pytest_npudump.regression import result as status
from pytest_npudump.regression.result import Result
from pytest_npudump.regression.run_record import read_run, unreadable
from pytest_npudump.regression.scenes.findings import place_of, result_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pytest_npudump.regression.attempt import Attempt
    from pytest_npudump.regression.case import Case
    from pytest_npudump.request import DumpRequest


@dataclass(frozen=True, slots=True)
class Trampling:
    """A watched output that changed.

    Attributes:
        by: the operator behind which the change shows first.
        since: the operator behind which the output was still as before: the watched one itself, or one
            behind it. Whatever ran in between may have done it.
        node: the watched operator.
        place: what else tells this execution from others, as ``name=value``; "" if nothing.
        change: which elements.
        before, after: the two snapshots of the output.
    """

    by: str
    since: str
    node: str
    place: str
    change: SnapshotChange
    before: TensorRecord
    after: TensorRecord

    def to_json(self) -> dict[str, Any]:
        """Return the finding as plain JSON data."""
        change, output = self.change, self.after
        return {
            "kind": "trampling",
            "by": self.by,
            "since": self.since,
            "node": self.node,
            "output": output.key.slot,
            "place": self.place or None,
            "dtype": output.dtype,
            "shape": None if output.shape is None else list(output.shape),
            "format": output.format or None,
            "changed": change.changed,
            "count": change.count,
            "first": None if change.first is None else list(change.first),
            "values": [str(change.before), str(change.after)],
            "files": [str(self.before.path), str(output.path)],
        }


class _Snapshot(NamedTuple):
    layer: str
    node: str
    record: TensorRecord


def judge(case: Case, attempt: Attempt) -> Result:
    """Compare the snapshots of every watched output; nothing to compare is a failure, never a pass."""
    try:
        dump = read_run(case, attempt)
    except DumpError as error:
        return Result(status.ERROR, None, problems=(str(error),))
    findings, problems, compared = find_tramplings(dump, case.request)
    problems = (*unreadable(dump), *problems)
    notes, both = dump.notes, [name for name in case.request.layers if name in case.request.watcher_nodes]
    if both:
        notes += (
            (
                f"layers: CANN dumps no other output after a watched operator, so that nothing was compared "
                f"after {first_of(both)}"
            ),
        )
    return result_of(findings, problems, notes, tensors=compared)


def find_tramplings(dump: Dump, request: DumpRequest) -> tuple[tuple[Trampling, ...], tuple[str, ...], int]:
    """Compare the snapshots of a dump.

    Args:
        dump: what a run left, with tensors.
        request: its ``layers`` and ``watcher_nodes`` are raw names.

    Returns:
        The findings in execution order, what could not be compared, and the number of snapshots compared.
    """
    groups: defaultdict[tuple[object, ...], list[_Snapshot]] = defaultdict(list)
    for snapshot in _snapshots(dump.records, request):
        key = snapshot.record.key  # one output in one execution of a model
        place = (key.capture, key.rank, key.device, key.model, key.load, key.step)
        output = (snapshot.node, key.io, key.slot, *place)
        groups[output].append(snapshot)
    findings: list[Trampling] = []
    problems: list[str] = []
    compared = 0
    for group in groups.values():
        for before, after in _pairs(group):
            try:
                change = compare_snapshots(before.record, after.record)
            except DumpError as error:
                problems.append(str(error))
                continue
            compared += 1
            if change.changed:
                findings.append(
                    Trampling(
                        by=after.layer,
                        since=before.layer or before.node,
                        node=after.node,
                        place=place_of(after.record.key),
                        change=change,
                        before=before.record,
                        after=after.record,
                    )
                )
    findings.sort(key=lambda finding: finding.place)
    return tuple(findings), (*problems, *_not_compared(request, groups.values())), compared


def _snapshots(records: Iterable[TensorRecord], request: DumpRequest) -> Iterator[_Snapshot]:
    layers, nodes = _spellings(request.layers), _spellings(request.watcher_nodes)
    for record in records:
        name = record.key.layer
        if record.key.io != "output":  # of a collective operator, which has a file of its inputs
            continue
        found = None if name in nodes and not layers else split_watcher(name, layers, nodes)
        if found is not None:
            yield _Snapshot(layers.get(found[0], found[0]), nodes[found[1]], record)
        elif name in nodes:
            yield _Snapshot("", nodes[name], record)


def _spellings(names: Sequence[str]) -> Mapping[str, str]:
    """Raw names by every spelling that a dump may have."""
    return {sanitise(name): name for name in names} | {name: name for name in names}


def _pairs(group: Sequence[_Snapshot]) -> Iterator[tuple[_Snapshot, _Snapshot]]:
    """Yield each snapshot behind the watched operator with the one before it.

    A snapshot from before the watched operator ran shows what the memory was used for earlier.
    """
    before: _Snapshot | None = None
    for snapshot in _in_order(group):
        if not snapshot.layer:
            before = snapshot
        elif before is not None:
            yield before, snapshot
            before = snapshot


def _in_order(group: Sequence[_Snapshot]) -> list[_Snapshot]:
    """Order by task id where one stream has them all, else by the time of the dump."""
    streams = {snapshot.record.stream for snapshot in group}
    tasks = [snapshot.record.task for snapshot in group]
    if len(streams) == 1 and None not in tasks and len(set(tasks)) == len(tasks):
        return sorted(group, key=lambda snapshot: snapshot.record.task or 0)
    return sorted(group, key=lambda snapshot: snapshot.record.time)


def _not_compared(request: DumpRequest, groups: Iterable[Sequence[_Snapshot]]) -> Iterator[str]:
    """Name pairs of the marker without a comparison in any execution, and why."""
    found: dict[str, None] = {}
    nodes = set()
    for group in groups:
        node = group[0].node
        dumped = {snapshot.layer for snapshot in group}
        nodes.add(node)
        if "" not in dumped:
            found[f"watched operator {node!r} was not dumped after itself: {_EXACT}"] = None
            continue
        compared = {after.layer for _, after in _pairs(group)}
        if not compared and not request.layers:
            found[f"there is no snapshot of {node!r} after an operator behind it: {_EXACT}"] = None
        for layer in request.layers:
            if layer not in compared and layer not in request.watcher_nodes:
                why = f"there is no snapshot of {node!r} after {layer!r}: {_EXACT}; after a collective one "
                why += "it has none"
                if layer in dumped:
                    why = f"{layer!r} runs before {node!r} and cannot trample its output: name operators "
                    why += "behind it"
                found[why] = None
    yield from found
    for node in request.watcher_nodes:
        if node not in nodes:
            yield f"watched operator {node!r} is not in the dump: {_EXACT}"


_EXACT = "CANN takes exact operator names of the model as built, and watches operators of static graphs only"


_BITS = 8


@dataclass(frozen=True, slots=True)
class SnapshotChange:
    """Difference between two snapshots.

    Attributes:
        changed: number of elements whose bits differ; 0 if the snapshots are the same.
        count: number of elements.
        first: index of the first of them in the shape on the device; None where none differs.
        before, after: its value in the two snapshots; None where the type has no values.
    """

    changed: int
    count: int
    first: tuple[int, ...] | None = None
    before: object = None
    after: object = None


def compare_snapshots(before: TensorRecord, after: TensorRecord) -> SnapshotChange:
    """Compare two snapshots bit for bit: NaN equals the same NaN, 0 is not -0.

    Elements that share a byte are compared one by one; those of a type of no known size by bytes.

    Raises:
        DumpError: a snapshot has no data, or the two differ in type or shape.
    """
    one, other = _payload(before), _payload(after)
    if (before.dtype, before.shape, one.nbytes) != (after.dtype, after.shape, other.nbytes):
        raise DumpError(
            f"the snapshots {one.path} and {other.path} differ in form: {before.dtype} {before.shape} of "
            f"{one.nbytes} bytes, then {after.dtype} {after.shape} of {other.nbytes} bytes"
        )
    shape = before.shape or ()
    count = math.prod(shape)
    first, second = _elements(before, one, count), _elements(after, other, count)
    shape = shape if len(first) == count else (len(first),)
    differing = np.any(first != second, axis=1)
    changed = int(np.count_nonzero(differing))
    if not changed:
        return SnapshotChange(0, len(first))
    index = tuple(int(i) for i in np.unravel_index(int(differing.argmax()), shape)) if shape else ()
    return SnapshotChange(changed, len(first), index, _value(before, index), _value(after, index))


def _payload(record: TensorRecord) -> Payload:
    if record.payload is None:
        why = f" ({record.note})" if record.note else ""
        raise DumpError(f"{record.path}: the snapshot {record.key} has no data{why}")
    return record.payload


def _elements(record: TensorRecord, payload: Payload, count: int) -> np.ndarray:
    """Return the elements as rows of bytes, shape (elements, bytes of one)."""
    data = raw_bytes(payload)
    dtype = BY_NAME.get(record.dtype)
    if dtype is not None and 0 < dtype.bits < _BITS and record.shape is not None:
        try:
            return load(payload, record.dtype, record.shape).reshape(-1, 1)
        except DumpError:
            return data.reshape(-1, 1)
    if dtype is None or not dtype.bits or not count or len(data) * _BITS != count * dtype.bits:
        return data.reshape(-1, 1)
    return data.reshape(count, -1)


def _value(record: TensorRecord, index: tuple[int, ...]) -> object:
    if record.payload is None or record.shape is None or len(index) != len(record.shape):
        return None
    try:
        value = load(record.payload, record.dtype, record.shape)[index]
    except DumpError:
        return None
    return value.item()
