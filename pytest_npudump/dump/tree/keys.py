"""Which key each tensor of a dump gets: qualifiers only where they tell tensors apart."""

from __future__ import annotations

from collections import defaultdict
from operator import attrgetter
from typing import TYPE_CHECKING

from pytest_npudump.dump.columns import Qualifiers
from pytest_npudump.dump.execution import IO_ORDER, Execution
from pytest_npudump.dump.records import TensorKey, TensorRecord, sanitise
from pytest_npudump.dump.tree.eager import without_counters
from pytest_npudump.dump.tree.occurrences import number_turns
from pytest_npudump.language.excerpt import first_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from pytest_npudump.dump.parts import TensorPart
    from pytest_npudump.dump.places import Place

GRAPH_INPUT = "Data"


def records_of(executions: Iterable[Execution]) -> tuple[tuple[TensorRecord, ...], list[str]]:
    """Return the records of all executions, in execution order, and notes.

    The order is that of the time of the dump, then the task id, then inputs before outputs by slot. A
    ``Data`` operator, an input of the graph, stands before its consumer: CANN dumps it with the consumer's
    task, and maybe after it.
    A layer that ran several times in a step gets turns by time. So do operators whose raw names differ
    only in characters that CANN replaces in file names, where only file names are known.
    Eager calls go by API and kernel, and get turns by the counter in their names.
    """
    named = _with_raw_names(without_counters(executions))
    consumers = _consumers(named)
    ordered = sorted(named, key=lambda execution: _order(execution, consumers))
    places = _qualifiers_of(ordered)
    groups: defaultdict[tuple[int, str], list[Execution]] = defaultdict(list)
    for execution, place in zip(ordered, places, strict=True):
        groups[id(place), execution.layer].append(execution)
    repeated = [group for group in groups.values() if len(group) > 1 and not _once(group)]
    turns = {
        id(execution): turn
        for group in repeated
        for execution, turn in zip(group, number_turns(group), strict=True)
    }
    records: list[TensorRecord] = []
    for execution, place in zip(ordered, places, strict=True):
        records += _records(execution, place, turns.get(id(execution), 0))
    return tuple(records), shared_names(groups.values())


def _qualifiers_of(executions: Sequence[Execution]) -> list[Qualifiers]:
    """Return the qualifiers of each execution, equal ones as one object.

    Places are looked up by identity first: there is one object a directory, and a hash of it takes longer
    than all else that is done with an execution here.
    """
    objects = {id(execution.place): execution.place for execution in executions}
    numbered = number_places(set(objects.values()))
    single: dict[Qualifiers, Qualifiers] = {}
    found = {key: single.setdefault(numbered[place], numbered[place]) for key, place in objects.items()}
    return [found[id(execution.place)] for execution in executions]


def _once(group: Sequence[Execution]) -> bool:
    """Whether a group is one turn at a glance: rows of one tensor each, all of one task and all different.

    Most operators of merged statistics are.
    """
    first = group[0]
    tensors = set()
    for execution in group:
        if not execution.single or execution.thread is not None or execution.call >= 0:
            return False
        if execution.op_type != first.op_type or len(execution.parts) != 1:
            return False
        tensors.add(execution.parts[0][:2])
    return len(tensors) == len(group)


def _consumers(executions: Collection[Execution]) -> dict[object, int]:
    """Return when each task was first dumped, graph inputs apart; nothing if there are none of these."""
    times: dict[object, int] = {}
    if GRAPH_INPUT not in map(attrgetter("op_type"), executions):
        return times
    for execution in executions:
        if execution.op_type != GRAPH_INPUT:
            task = (execution.place, execution.task, execution.stream)
            times[task] = min(execution.time, times.get(task, execution.time))
    return times


def _order(execution: Execution, consumers: Mapping[object, int]) -> tuple[int, bool, int, int, int, str]:
    first = execution.parts[0] if execution.parts else None
    io, slot = (IO_ORDER[first.io], first.slot) if first is not None else (0, 0)
    task = -1 if execution.task is None else execution.task
    time, consumer = execution.time, execution.op_type != GRAPH_INPUT
    if not consumer:
        time = min(time, consumers.get((execution.place, execution.task, execution.stream), time))
    return (time, consumer, task, io, slot, execution.layer)


def _records(execution: Execution, place: Qualifiers, turn: int) -> list[TensorRecord]:
    """Return the records of one execution; tuples are unpacked and arguments positional for speed."""
    _, path, op_type, layer, _, time, task, stream, parts, *_ = execution
    if len(parts) > 1:
        parts = tuple(sorted(parts, key=_part_order))
    return [
        TensorRecord(
            TensorKey(layer, io, slot, turn, *place),
            op_type,
            dtype,
            shape,
            path if payload is None or payload.kind == "raw" else payload.path,
            layout,
            size,
            stats,
            time,
            task,
            stream,
            payload,
            original_shape,
            sub_format,
            note,
            digest,
        )
        for (
            io,
            slot,
            dtype,
            shape,
            layout,
            size,
            stats,
            note,
            payload,
            original_shape,
            sub_format,
            digest,
        ) in parts
    ]


def _part_order(part: TensorPart) -> tuple[int, int]:
    return (IO_ORDER[part.io], part.slot)


def _with_raw_names(executions: Iterable[Execution]) -> list[Execution]:
    """Give executions known by a sanitised name the raw one, where tensor files tell exactly one."""
    found = list(executions)
    raw: defaultdict[str, set[str]] = defaultdict(set)
    for execution in found:
        if execution.raw:
            raw[sanitise(execution.layer)].add(execution.layer)
    if not raw or all(execution.raw for execution in found):
        return found
    return [_renamed(execution, raw.get(execution.layer, ())) for execution in found]


def _renamed(execution: Execution, names: Collection[str]) -> Execution:
    if execution.raw or len(names) != 1:
        return execution
    (name,) = names
    return execution._replace(layer=name, raw=True)


def number_places(places: Collection[Place]) -> dict[Place, Qualifiers]:
    """Number steps from the first one, loads by model id; drop what all places share.

    Where no directory names the program's step, it is the execution of the model. Where one does, executions
    of a model in one step are turns of its layers.
    """
    devices: defaultdict[int, set[int]] = defaultdict(set)
    graphs: defaultdict[tuple[int, str], set[int]] = defaultdict(set)
    loads: defaultdict[tuple[int, int, str], set[int]] = defaultdict(set)
    first: dict[object, int] = {}
    steps = {place: place.step if place.step >= 0 else place.iteration for place in places}
    for place, step in steps.items():
        devices[place.rank].add(place.device)
        kind = graphs[place.rank, place.model] if place.mindspore else loads[_model(place)]
        kind.add(place.model_id)
        if step >= 0:
            first[_counter(place)] = min(step, first.get(_counter(place), step))
    many_devices = any(len(found) > 1 for found in devices.values())
    names = {place: _model_name(place, graphs[place.rank, place.model]) for place in places}
    many_models = len(set(names.values())) > 1
    return {
        place: Qualifiers(
            step=step - first[_counter(place)] if step >= 0 else 0,
            model=names[place] if many_models else "",
            load=0 if place.mindspore else sorted(loads[_model(place)]).index(place.model_id),
            device=place.device if many_devices else -1,
            rank=place.rank if len(devices) > 1 else -1,
        )
        for place, step in steps.items()
    }


def _model(place: Place) -> tuple[int, int, str]:
    return (place.rank, place.device, place.model)


def _counter(place: Place) -> object:
    """What counts the steps: the process where it names them, elsewhere each loaded model."""
    if place.step < 0:
        return (*_model(place), place.model_id)
    return (place.rank, place.run if place.mindspore else place.device)


def _model_name(place: Place, graphs: Collection[int]) -> str:
    """A net of MindSpore holds several graphs, whose operators may share names."""
    return f"{place.model}/{place.model_id}" if place.mindspore and len(graphs) > 1 else place.model


def shared_names(groups: Iterable[Sequence[Execution]]) -> list[str]:
    """Say which names stand for several operators: told by different types or task ids in one step.

    An input of the graph has the task id of each operator that reads it.
    """
    shared = sorted(
        {
            group[0].layer
            for group in groups
            if len(group) > 1
            and not group[0].raw
            and len(
                {
                    (found.op_type, *((found.task, found.stream) if found.op_type != GRAPH_INPUT else ()))
                    for found in group
                }
            )
            > 1
        }
    )
    if not shared:
        return []
    note = (
        "several operators go by one file name, and are told apart by time as turn 0, 1 ...: "
        f"{first_of(shared)} (CANN replaces space, '.', '/' and '\\' in names; "
        "a tensor dump has the raw ones)"
    )
    return [note]
