"""Keys of a dump's tensors: qualifiers only where they tell tensors apart.

The order is that of the time of the dump, then the task id, then inputs before outputs by slot. A ``Data``
operator, an input of the graph, stands before its consumer: CANN dumps it with the consumer's task, and maybe
after it. A layer that ran several times in a step gets turns by time. So do operators whose raw names differ
only in characters that CANN replaces in file names, where only file names are known.

CANN puts a counter of the process into the names of eager calls, which a golden must not see. An operator of
``aclnn`` is dumped outside of any model under these types and names (opbase, ``op_dfx.cpp`` and
``indv_dump.cpp``), where 17 is the counter, inputs and outputs in one file or in two::

    aclnnAdd_17_L2.aclnnAdd             the call of the API
    aclnnAdd_17_L0.Add                  a kernel that the call ran
    L2DfxAbscent_17_L0.L0DfxAbscent     where CANN does not know the API, or the kernel
    L2DfxAbscent_17._L0BnInference      a kernel of the older interface

They go by API and kernel, and get turns by the counter.
"""

from __future__ import annotations

import re
from array import array
from collections import Counter, defaultdict
from itertools import chain, islice, repeat
from operator import lt
from typing import TYPE_CHECKING

from pytest_npudump.dump.columns import (
    IO_ORDER,
    Execution,
    FileColumns,
    Qualifiers,
    TensorColumns,
    TensorTable,
)
from pytest_npudump.dump.records import sanitise
from pytest_npudump.language.text import first_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from pytest_npudump.dump.names import Place
    from pytest_npudump.dump.tree.find import TableFolder

    Slots = defaultdict[int, tuple[tuple[str, int], ...]]
    """Directions and slots of the tensors of each file."""

_GRAPH_INPUT = "Data"
_UNKNOWN_API = "L2DfxAbscent"
_CALLS = ">"
_COUNTED = re.compile(r"(?P<api>[A-Za-z]\w*)_(?P<counter>\d{1,20})_(?P<level>L[02])", re.ASCII)
_INDIVIDUAL = re.compile(rf"{_UNKNOWN_API}_(?P<counter>\d{{1,20}})", re.ASCII)
_INDIVIDUAL_NAME = "_L0"
_EAGER_LAYER = re.compile(rf"(?:aclnn\w*|{_UNKNOWN_API})\Z|[A-Za-z]\w*{_CALLS}", re.ASCII)


def is_eager(layer: str) -> bool:
    """Return whether ``layer`` is the name that an eager call or its kernel has in a key."""
    return _EAGER_LAYER.match(layer) is not None


def records_of(executions: Iterable[Execution]) -> tuple[TensorTable, list[str]]:
    """Return the tensors of all executions, in execution order, and notes."""
    files, tensors = columns_of(executions)
    return keyed(files, tensors, range(len(files.name)))


def columns_of(executions: Iterable[Execution]) -> tuple[FileColumns, TensorColumns]:
    """Put executions into columns, each as a file of its own."""
    found = list(executions)
    objects = {id(execution.place): execution.place for execution in found}  # one a directory; a hash is slow
    numbers = {place: at for at, place in enumerate(dict.fromkeys(objects.values()))}
    folders = {key: numbers[place] for key, place in objects.items()}
    files = FileColumns(
        list(numbers),
        [],
        [folders[id(execution.place)] for execution in found],
        [execution.path for execution in found],
        [execution.op_type for execution in found],
        [execution.layer for execution in found],
        [execution.task for execution in found],
        [execution.stream for execution in found],
        [execution.time for execution in found],
        {at for at, execution in enumerate(found) if execution.raw},
        {at for at, execution in enumerate(found) if execution.single},
        {at: execution.thread for at, execution in enumerate(found) if execution.thread is not None},
        turn={at: execution.turn for at, execution in enumerate(found) if execution.turn},
    )
    parts = [part for execution in found for part in execution.parts]
    tensors = TensorColumns.of(parts)
    tensors.file = array("q", chain.from_iterable(repeat(at, len(one.parts)) for at, one in enumerate(found)))
    tensors.io, tensors.slot = [part.io for part in parts], [part.slot for part in parts]
    return files, tensors


def files_of(folders: Sequence[TableFolder]) -> FileColumns:
    """Return the files of directories of statistics CSV, numbered through from the first one on."""
    files = FileColumns()
    for at, folder in enumerate(folders):
        files.places.append(folder.place)
        files.directories.append(str(folder.directory))
        files.folder += [at] * len(folder.names)
        files.name += folder.names
        files.op_type += folder.op_types
        files.layer += folder.layers
        files.task += folder.tasks
        files.stream += folder.streams
        files.time += folder.times
    return files


def keyed(
    files: FileColumns, tensors: TensorColumns, present: Sequence[int] | None = None
) -> tuple[TensorTable, list[str]]:
    """Return the tensors of files in execution order, with their keys, and notes.

    Args:
        files: of a dump.
        tensors: what they hold.
        present: those that could be read, which hold all tensors; None for those that hold any.
    """
    several: defaultdict[int, list[tuple[str, int]]] = defaultdict(list)
    for file, io, slot in zip(tensors.file, tensors.io, tensors.slot, strict=True):
        several[file].append((io, slot))
    slots: Slots = defaultdict(tuple, {file: tuple(held) for file, held in several.items()})
    order, notes = _give_keys(files, sorted(slots) if present is None else present, slots)
    rank = [0] * len(files.name)
    for at, file in enumerate(order):
        rank[file] = at
    ranks, directions = map(rank.__getitem__, tensors.file), map(IO_ORDER.__getitem__, tensors.io)
    keys = list(zip(ranks, directions, tensors.slot, strict=True))
    if not all(map(lt, keys, islice(keys, 1, None))):
        tensors = tensors.taken(sorted(range(len(keys)), key=keys.__getitem__))
    return TensorTable(files, tensors), notes


def _give_keys(files: FileColumns, present: Sequence[int], slots: Slots) -> tuple[list[int], list[str]]:
    """Put the parts of keys into ``files``.

    Args:
        files: of a dump.
        present: those that could be read.
        slots: their tensors.

    Returns:
        ``present`` in execution order, and notes.
    """
    _drop_counters(files, present)
    raw: defaultdict[str, set[str]] = defaultdict(set)
    for at in files.raw:
        raw[sanitise(files.layer[at])].add(files.layer[at])
    for at in present if raw and len(files.raw) < len(present) else ():
        names = raw.get(files.layer[at], ())
        if at not in files.raw and len(names) == 1:
            (files.layer[at],) = names
            files.raw.add(at)
    order = _in_order(files, present, slots)
    folders = frozenset(map(files.folder.__getitem__, order))
    numbered = _number_places({files.places[folder] for folder in folders})
    blank = next(iter(numbered.values()), Qualifiers(0, "", 0, -1, -1))
    files.qualifiers = [numbered.get(place, blank) for place in files.places]
    alike = {found: at for at, found in enumerate(files.qualifiers)}
    steps = [alike[found] for found in files.qualifiers]
    layers: list[object] = list(map(files.layer.__getitem__, order))
    if files.turn or len(frozenset(steps)) > 1:
        layers = [(steps[files.folder[at]], files.layer[at], files.turn.get(at, 0)) for at in order]
    distinct = frozenset(layers)
    if len(distinct) == len(layers):
        return order, []
    if files.single.issuperset(order) and not files.call and not files.thread:
        # A file or row a tensor: if none of a layer comes again, and all are of one operator, it ran once.
        found = list(map(slots.__getitem__, order))
        tensors: list[object] = list(zip(layers, found, strict=True))
        if max(map(len, found), default=0) > 1:
            tensors = [(layer, (one,)) for layer, held in zip(layers, found, strict=True) for one in held]
        ids = (map(column.__getitem__, order) for column in (files.op_type, files.task, files.stream))
        operators = frozenset(zip(layers, *ids, strict=True))
        if len(frozenset(tensors)) == len(tensors) and len(operators) == len(distinct):
            return order, []
    groups: defaultdict[object, list[int]] = defaultdict(list)
    for at, layer in zip(order, layers, strict=True):
        groups[layer].append(at)
    repeated = [group for group in groups.values() if len(group) > 1]
    for group in repeated:
        files.turn.update(zip(group, _turns(files, group, slots), strict=True))
    shared = sorted({files.layer[group[0]] for group in repeated if _is_shared(files, group)})
    if not shared:
        return order, []
    note = (
        "several operators have one file name, and are numbered by time (turn 0, 1 ...): "
        f"{first_of(shared)} (CANN replaces space, '.', '/' and '\\' in names; "
        "a tensor dump has the raw ones)"
    )
    return order, [note]


def _drop_counters(files: FileColumns, present: Iterable[int]) -> None:
    """Take the counters of eager calls out of names: the layer becomes the API, or ``API>kernel``."""
    loose = {at for at, place in enumerate(files.places) if not place.model and place.iteration < 0}
    for at in present if loose else ():
        found = _COUNTED.fullmatch(files.op_type[at]) or _INDIVIDUAL.fullmatch(files.op_type[at])
        if found is None or files.folder[at] not in loose:
            continue
        api, level, kernel = _UNKNOWN_API, "L0", files.layer[at]
        if found.re is _COUNTED:
            api, level = found["api"], found["level"]
        elif kernel.startswith(_INDIVIDUAL_NAME):
            kernel = kernel.removeprefix(_INDIVIDUAL_NAME)
        else:
            continue
        files.layer[at] = api if level == "L2" else f"{api}{_CALLS}{kernel}"
        files.op_type[at] = f"{api}_{level}"
        files.call[at] = int(found["counter"])
        # These names are identifiers, in which CANN has nothing to replace: as good as a header's.
        files.raw.add(at)


def _in_order(files: FileColumns, present: Sequence[int], slots: Slots) -> list[int]:
    times, types = files.time, files.op_type
    inputs = {at for at in present if types[at] == _GRAPH_INPUT} if _GRAPH_INPUT in types else set()
    same = {place: at for at, place in enumerate(files.places)}
    consumed: dict[object, int] = {}
    tasks = {
        at: (same[files.places[files.folder[at]]], files.task[at], files.stream[at])
        for at in (present if inputs else ())
    }
    for at, task in tasks.items():
        if at not in inputs:
            consumed[task] = min(times[at], consumed.get(task, times[at]))

    begun = list(map(times.__getitem__, present))
    for number, at in enumerate(present if inputs else ()):
        if at in inputs:
            begun[number] = min(times[at], consumed.get(tasks[at], times[at]))
    held = list(map(slots.__getitem__, present))
    firsts = {found: found[0] if found else ("input", 0) for found in frozenset(held)}
    starts = {found: (IO_ORDER[io], slot) for found, (io, slot) in firsts.items()}
    task_ids = list(map(files.task.__getitem__, present))
    keys = list(
        zip(
            begun,
            repeat(0, len(present))
            if all(begun)
            else [
                0 if time else files.places[files.folder[at]].step
                for at, time in zip(present, begun, strict=True)
            ],
            [at not in inputs for at in present] if inputs else repeat(0, len(present)),
            [-1 if task is None else task for task in task_ids] if None in task_ids else task_ids,
            map(starts.__getitem__, held),
            map(files.layer.__getitem__, present),
            strict=True,
        )
    )
    return [present[at] for at in sorted(range(len(keys)), key=keys.__getitem__)]


def _turns(files: FileColumns, group: Sequence[int], slots: Slots) -> list[int]:
    """Return the turn of each file of one layer in one step; ``group`` is in order of time.

    * FFTS+ slices of one operator run at the same time, so they are counted by their thread, not by time.
    * A collective operator has two files, its inputs from before and its outputs from after: one turn.
    * Where each tensor has a file or row of its own, a turn ends when one of its tensors comes again.
    * Eager calls are counted by the counter in their names: the order in which the process made them, which
      is the same in every run where the order of their times on several streams is not. Inputs and outputs of
      a call may have a file and a task each; a call may run one kernel twice.
    """
    order = list(range(len(group)))
    turns = [0] * len(group)
    if not files.call.keys().isdisjoint(group):
        order.sort(key=lambda at: (files.call.get(group[at], -1), at))
    elif not files.thread.keys().isdisjoint(group):
        seen: Counter[object] = Counter()
        ranks = []
        for at, file in enumerate(group):
            thread = files.thread.get(file)
            slice_ = files.task[file], files.stream[file], thread
            ranks.append((seen[slice_], thread or (-1, -1, -1), at))
            seen[slice_] += 1
        for turn, (*_, at) in enumerate(sorted(ranks)):
            turns[at] = turn
        return turns
    turn, held = -1, set[tuple[str, int]]()
    previous = -1
    for at in order:
        tensors = set(slots[group[at]])
        if previous < 0 or held & tensors or not _continues(files, previous, group[at], held, tensors):
            turn, held = turn + 1, tensors
        else:
            held |= tensors
        previous = group[at]
        turns[at] = turn
    return turns


def _continues(
    files: FileColumns,
    previous: int,
    file: int,
    held: Iterable[tuple[str, int]],
    tensors: Iterable[tuple[str, int]],
) -> bool:
    """Return whether two files, neither of which has a tensor of the other, are of one turn."""
    if previous in files.call or file in files.call:
        return files.call.get(previous) == files.call.get(file)
    if previous in files.single and file in files.single:
        return files.op_type[previous] == files.op_type[file]
    one, other = ((files.op_type[at], files.task[at], files.stream[at]) for at in (previous, file))
    return one == other and {io for io, _ in held} == {"input"} and {io for io, _ in tensors} == {"output"}


def _is_shared(files: FileColumns, group: Sequence[int]) -> bool:
    """Return whether a name stands for several operators: told by different types or task ids in one step.

    An input of the graph has the task id of each operator that reads it.
    """
    if group[0] in files.raw:
        return False
    operators = {
        (
            files.op_type[at],
            *((files.task[at], files.stream[at]) if files.op_type[at] != _GRAPH_INPUT else ()),
        )
        for at in group
    }
    return len(operators) > 1


def _number_places(places: Collection[Place]) -> dict[Place, Qualifiers]:
    """Number steps from the first one, or as the program does, loads by model id; drop what all places share.

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
            first[_counter(place)] = 0 if place.counted else min(step, first.get(_counter(place), step))
    many_devices = any(len(found) > 1 for found in devices.values())
    names = {
        place: (
            f"{place.model}/{place.model_id}"
            if place.mindspore and len(graphs[place.rank, place.model]) > 1
            else place.model
        )
        for place in places
    }
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
    """Return the counter of steps: the process where it names them, elsewhere each loaded model."""
    if place.step < 0:
        return (*_model(place), place.model_id)
    return (place.rank, place.run if place.mindspore else place.device)
