"""Files of one execution under a configuration, and their content.

The rules are GE's (hicann/ge ``dump_manager.cc``, ``dump_properties.cc``, ``dump_callback.cc``), which reads
the configuration after adump has accepted it. Files are decided when the model is loaded, as in GE.

Overflow dump (``dump_debug``) keeps the operator that overflowed first, and a record that says so. The record
has the old layout of 2,048 bytes, without a magic: three units at fixed places, of which the AI Core's is
filled. Only float16 is watched, as it is what overflows in practice: a result that is infinite where no input
was. Weights are taken to be finite. As on a device only the first overflow of an execution is kept, with the
inputs and outputs of its operator.
"""

from __future__ import annotations

import re
import struct
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from pytest_npudump.config.acl_keys import steps
from pytest_npudump.dump.dtypes import BY_NAME
from pytest_npudump.dump.records import sanitise
from pytest_npudump.emulator.dumps import writer
from pytest_npudump.emulator.dumps.writer import NO_OFFSET, Slot, TaskFile, write
from pytest_npudump.emulator.faults import InjectedTrampling, trampled
from pytest_npudump.onnxmodels.graph import Operator
from pytest_npudump.onnxmodels.tensor_types import Tensor

EVERY_MODEL = ""
"""Key of what a ``dump_list`` item without ``model_name`` asks for: it holds for every model."""

_POSITION = re.compile(r"(input|output)(\d+)\Z")

Blacklist = dict[str, set[tuple[str, int]]]
STREAM = 3
"""Stream id of every task of a model."""


@dataclass(frozen=True, slots=True)
class DumpSettings:
    """An accepted configuration that dumps data.

    Attributes:
        root: ``{dump_path}/{time}/``.
        mode: ``input``, ``output`` or ``all``.
        statistics: mask of the statistics to write; 0 for full tensors.
        step: intervals of ``data_index`` that are dumped; empty for all.
        layers: per model (:data:`EVERY_MODEL` for all) the exact names to dump; empty for all of them.
        ranges: per model the ``opname_range`` pairs.
        watcher_nodes: names of the nodes that are watched; empty outside the watcher scene.
        name_blacklist, type_blacklist: per model and name the slots that are left out.
        all_models: whether ``dump_list`` is empty, so that everything is dumped.
        operators: whether single operators are dumped.
        overflow: whether only operators that overflow are dumped (``dump_debug``).
    """

    root: str
    mode: str
    statistics: int
    step: tuple[tuple[int, int], ...]
    layers: Mapping[str, frozenset[str]] = field(default_factory=dict)
    ranges: Mapping[str, tuple[tuple[str, str], ...]] = field(default_factory=dict)
    watcher_nodes: frozenset[str] = frozenset()
    name_blacklist: Mapping[str, Blacklist] = field(default_factory=dict)
    type_blacklist: Mapping[str, Blacklist] = field(default_factory=dict)
    all_models: bool = False
    operators: bool = False
    overflow: bool = False

    def step_selected(self, index: int) -> bool:
        """Return whether the execution with this ``data_index`` is dumped."""
        return not self.step or any(first <= index <= last for first, last in self.step)


def settings(dump: Mapping[str, Any], root: str, statistics: int) -> DumpSettings:
    """Parse ``dump``, the object of that name in an accepted configuration.

    ``statistics`` is the process-wide mask; it is ignored for full tensors.
    """
    # GE skips an empty model_name or layer, which only operators' scene allows.
    every = dump.get("dump_list", ())
    items = [item for item in every if item.get("model_name") != "" and item.get("layer") != []]
    blacklists: dict[str, dict[str, Blacklist]] = {
        key: defaultdict(lambda: defaultdict(set)) for key in ("opname_blacklist", "optype_blacklist")
    }
    layers: dict[str, frozenset[str]] = {}
    ranges: dict[str, tuple[tuple[str, str], ...]] = {}
    watched: frozenset[str] = frozenset()
    for item in items:
        model = item.get("model_name", EVERY_MODEL)
        layers[model] = frozenset(item.get("layer", ()))
        watched = frozenset(item.get("watcher_nodes", ())) or watched
        if item.get("opname_range"):
            ranges[model] = tuple((pair["begin"], pair["end"]) for pair in item["opname_range"])
        for key, lists in blacklists.items():
            for entry in item.get(key, ()):
                slots = (_POSITION.match(position) for position in entry.get("pos", ()))
                found = {(slot[1], int(slot[2])) for slot in slots if slot is not None}
                lists[model][entry.get("name", "")] |= found
    return DumpSettings(
        root=root,
        mode=dump.get("dump_mode", "output"),
        statistics=statistics if dump.get("dump_data") == "stats" else 0,
        step=steps(dump.get("dump_step", "")),
        layers=layers,
        ranges=ranges,
        watcher_nodes=watched,
        name_blacklist={model: found for model, found in blacklists["opname_blacklist"].items() if found},
        type_blacklist={model: found for model, found in blacklists["optype_blacklist"].items() if found},
        all_models=not items,
        operators=dump.get("dump_op_switch") == "on",
    )


def statistics_mask(dump: Mapping[str, Any]) -> int:
    """Return the statistics a configuration adds to the process's mask (``dump_setting.cpp``)."""
    if dump.get("dump_data") != "stats":
        return 0
    return writer.mask(dump["dump_stats"]) if dump.get("dump_stats") else writer.DEFAULT_MASK


@dataclass(frozen=True, slots=True)
class DumpTask:
    """One file.

    Attributes:
        op_type, op_name: raw.
        task: task id, which orders the files.
        inputs, outputs: names of the tensors it holds.
        watches: whether it shows another node's outputs after this task (watcher scene).
        tramplings: faults injected in the memory that it shows.
    """

    op_type: str
    op_name: str
    task: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    watches: bool = False
    tramplings: tuple[InjectedTrampling, ...] = ()


@dataclass(slots=True)
class DumpPlan:
    """The files of a model that was loaded while a dump was set.

    Attributes:
        settings: the configuration; a later one replaces only its directory and steps.
        tasks: the files of one execution, in the order they are written.
        active: false from ``finalize_dump`` to the next ``set_dump``.
    """

    settings: DumpSettings
    tasks: tuple[DumpTask, ...]
    active: bool = True

    @property
    def watches(self) -> bool:
        """Return whether this is the watcher scene."""
        return bool(self.settings.watcher_nodes)

    @property
    def tensors(self) -> tuple[str, ...]:
        """Names of all tensors that the files need."""
        names = (name for task in self.tasks for name in (*task.inputs, *task.outputs))
        return tuple(dict.fromkeys(names))


def plan(
    settings: DumpSettings,
    models: Sequence[str],
    operators: Sequence[Operator],
    data: Collection[str],
    faults: Sequence[InjectedTrampling] = (),
) -> DumpPlan:
    """Return the files of a model.

    ``models`` are the names that stand for it (its file's stem first, then its graph's name), ``data`` the
    names of its inputs, and ``faults`` what is injected in it. Each selected operator is followed by one
    ``Data`` file for every model input it reads, as in GE's ``DataDumper``.
    """
    if settings.watcher_nodes:
        return DumpPlan(settings, tuple(_watcher_tasks(settings, operators, faults)))
    if settings.overflow:
        return DumpPlan(settings, tuple(task_of(settings, models, operator) for operator in operators))
    names = selected(settings, models, operators)
    # Only a blacklist by type leaves out the files of inputs (output0).
    blacklists = [settings.type_blacklist.get(model, {}) for model in (*models, EVERY_MODEL)]
    if settings.mode == "input" or any(("output", 0) in b.get("Data", ()) for b in blacklists):
        data = ()
    tasks: list[DumpTask] = []
    for operator in operators:
        if operator.name in names:
            tasks.append(task_of(settings, models, operator))
            read = (tensor for tensor in operator.inputs if tensor in data)
            tasks += (DumpTask("Data", tensor, operator.task, (), (tensor,)) for tensor in read)
    return DumpPlan(settings, tuple(task for task in tasks if task.inputs or task.outputs))


def selected(settings: DumpSettings, models: Sequence[str], operators: Sequence[Operator]) -> set[str]:
    """Return the names of the operators to dump: those listed, and those in an ``opname_range``.

    Names are compared as they are. An item without ``model_name`` makes the other items irrelevant, and
    the model's file name counts before its graph's name (``DumpProperties::IsNeedDump``).
    """
    every = {operator.name for operator in operators}
    if settings.all_models:
        return every
    ranged = next((name for name in models if name in settings.ranges), None)
    ranges = settings.ranges[ranged] if ranged is not None else ()
    in_range = set[str]().union(*(_in_range(first, last, operators) for first, last in ranges))
    if EVERY_MODEL in settings.layers:
        listed = settings.layers[EVERY_MODEL]
        return (set(listed) & every if listed else every) | in_range
    model = next((name for name in models if name in settings.layers), None)
    if model is None:
        return in_range
    listed = settings.layers[model]
    return every if not listed and ranged is None else set(listed) & every | in_range


def _in_range(first: str, last: str, operators: Sequence[Operator]) -> set[str]:
    """Walk GE's state machine: an end before its begin, or a second begin after the end, stops it."""
    found: set[str] = set()
    state = "before"
    for operator in operators:
        if operator.name == first:
            if state == "after":
                break
            state = "after" if first == last else "inside"
        elif operator.name == last:
            if state == "before":
                break
            state = "after"
        elif state != "inside":
            state = "before"
            continue
        found.add(operator.name)
    return found


def task_of(settings: DumpSettings, models: Sequence[str], operator: Operator) -> DumpTask:
    """Return an operator's file: the slots that ``dump_mode`` and the blacklists leave."""
    name, op_type, blacklisted = operator.name, operator.op_type, set[tuple[str, int]]()
    for model in (*models, EVERY_MODEL) if settings.name_blacklist or settings.type_blacklist else ():
        blacklisted |= settings.name_blacklist.get(model, {}).get(name, set())
        blacklisted |= settings.type_blacklist.get(model, {}).get(op_type, set())

    def kept(io: str, tensors: tuple[str, ...]) -> tuple[str, ...]:
        if settings.mode not in {io, "all"}:
            return ()
        if not blacklisted:
            return tensors
        return tuple(tensor for slot, tensor in enumerate(tensors) if (io, slot) not in blacklisted)

    inputs, outputs = kept("input", operator.inputs), kept("output", operator.outputs)
    return DumpTask(op_type, name, operator.task, inputs, outputs)


def _watcher_tasks(
    settings: DumpSettings, operators: Sequence[Operator], faults: Sequence[InjectedTrampling]
) -> Iterator[DumpTask]:
    """Yield, in execution order, every watched node after itself and after each ``layer`` operator.

    Without ``layer`` that is every operator but the watched ones and collective ones.
    """
    layers = settings.layers.get(EVERY_MODEL)
    watched = [operator for operator in operators if operator.name in settings.watcher_nodes]
    active: list[InjectedTrampling] = []
    for operator in operators:
        active = [fault for fault in active if fault.victim != operator.name]
        active += [fault for fault in faults if fault.by == operator.name]
        if operator.name in settings.watcher_nodes:
            yield DumpTask(operator.op_type, operator.name, operator.task, (), operator.outputs)
        elif operator.op_type.startswith("Hcom"):
            continue
        elif layers is not None and (not layers or operator.name in layers):
            for node in watched:
                name = f"{operator.name}_To_{node.name}"
                trampled = tuple(fault for fault in active if fault.victim == node.name)
                yield DumpTask(
                    node.op_type, name, operator.task, (), node.outputs, watches=True, tramplings=trampled
                )


_SIZE = 2048
_INFO = 256
_STATUS = 1024
_FLOAT_OVERFLOW = 0x20
_CONVERSION_OVERFLOW = 0x100
_PC_START = 0x1240_8000_0000
_FEATURE_MAP, _OPERATOR_ADDRESS, _RECORD_ADDRESS = 0x1240_4000_0000, 0x1240_C000_0000, 0x1240_F000_0000
"""Addresses on the device: of a model's first tensor, of a single operator's, and of the record."""
_ALIGNMENT = 512


def first_overflow(tasks: Sequence[DumpTask], tensors: Mapping[str, Tensor]) -> DumpTask | None:
    """Return the first task with an infinite float16 output and finite inputs, or None."""
    for task in tasks:
        outputs = (tensors[name] for name in task.outputs)
        if any(tensor.dtype.name == "float16" and _infinite(tensor) for tensor in outputs) and not any(
            _infinite(tensors[name]) for name in task.inputs
        ):
            return task
    return None


def _infinite(tensor: Tensor) -> bool:
    return tensor.dtype.kind == "float" and bool(np.isinf(tensor.data).any())


def record_file(task: DumpTask, model_id: int, stream: int, own_task: int) -> TaskFile:
    """Return the file of an overflow in ``task``; ``own_task`` is the id of the record's task."""
    status = _CONVERSION_OVERFLOW if task.op_type == "Cast" else _FLOAT_OVERFLOW
    data = bytearray(_SIZE)
    struct.pack_into("<6Q", data, _INFO, model_id, stream, task.task, 0, _PC_START, 0)
    struct.pack_into("<3Q", data, _STATUS, 0, 0, status)
    tensor = Tensor(BY_NAME["uint8"], (_SIZE,), np.frombuffer(bytes(data), np.uint8))
    return TaskFile("Opdebug", "Node_OpDebug", own_task, stream, (), (Slot(tensor, _RECORD_ADDRESS),))


@dataclass(frozen=True, slots=True)
class OperatorRun:
    """One execution of a single operator: its type, and the ids of its task, stream and device."""

    op_type: str
    task: int
    stream: int
    device: int


def record_operator(
    settings: DumpSettings,
    call: OperatorRun,
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
    clock: Callable[[], int],
) -> None:
    """Write one execution's file.

    The operator is called like its type, as the operator models that CANN compiles are; executions differ
    by task id and time.
    """
    sides = {"x": inputs, "y": outputs}
    tensors = {f"{side}{index}": t for side, io in sides.items() for index, t in enumerate(io)}
    slots = {n: Slot(tensors[n], at, NO_OFFSET) for n, at in _addresses(tensors, _OPERATOR_ADDRESS).items()}
    names = [tuple(name for name in slots if name[0] == side) for side in sides]
    kept = task_of(settings, (), Operator(call.op_type, call.op_type, names[0], names[1], call.task))
    file = TaskFile(
        call.op_type,
        call.op_type,
        call.task,
        call.stream,
        [slots[name] for name in kept.inputs],
        [slots[name] for name in kept.outputs],
        settings.statistics,
    )
    write(f"{settings.root}{call.device}/", file, clock())  # with the slash that CANN has


@dataclass(frozen=True, slots=True)
class DumpedExecution:
    """Facts of one execution of a model that its dump lacks.

    Attributes:
        directory: where its files are, or would be if any operator left one.
        place: which execution.
        silent: shapes of the outputs of the operators that left no file, as no tensor of theirs holds a
            byte, by raw name; of the inputs where only these are dumped.
    """

    directory: str
    place: DumpedRun
    silent: Mapping[str, tuple[tuple[int, ...], ...]]


@dataclass(frozen=True, slots=True)
class DumpedRun:
    """Identity of an execution: device id, model name, model id and ``data_index``."""

    device: int
    model: str
    model_id: int
    index: int


def record(
    plan: DumpPlan,
    place: DumpedRun,
    tensors: Mapping[str, Tensor],
    previous: Mapping[str, Tensor],
    clock: Callable[[], int],
) -> DumpedExecution:
    """Write every file of ``plan``, or where overflows are dumped those of the first one.

    ``tensors`` are all tensors of this execution; ``previous`` those of the one before, which a watched
    node's memory still holds until the node itself has run.

    Returns:
        What was dumped of, and which operators left no file.
    """
    settings = plan.settings
    # The double slash is CANN's, and part of what is hashed.
    model = f"{sanitise(place.model)}/{place.model_id}"
    directory = f"{settings.root}{place.device}//{model}/{place.index}"
    addresses = _addresses(tensors, _FEATURE_MAP)
    produced = {name: task.task for task in plan.tasks if not task.watches for name in task.outputs}

    def slots(task: DumpTask, names: Iterable[str]) -> list[Slot]:
        return [
            Slot(
                _remembered(tensors[name], previous.get(name))
                if task.watches and produced[name] > task.task
                else trampled(tensors[name], task.tramplings),
                addresses[name],
            )
            for name in names
        ]

    tasks: Sequence[DumpTask] = plan.tasks
    if settings.overflow:
        found = first_overflow(plan.tasks, tensors)
        tasks = () if found is None else (found,)
    silent: dict[str, tuple[tuple[int, ...], ...]] = {}
    for task in tasks:
        file = TaskFile(
            task.op_type,
            task.op_name,
            task.task,
            STREAM,
            slots(task, task.inputs),
            slots(task, task.outputs),
            settings.statistics,
        )
        if not write(directory, file, clock()) and not task.watches:
            silent[task.op_name] = tuple(slot.tensor.shape for slot in file.outputs or file.inputs)
    if settings.overflow and tasks:
        own_task = max(task.task for task in plan.tasks) + 1
        write(directory, record_file(tasks[0], place.model_id, STREAM, own_task), clock())
    return DumpedExecution(directory, place, silent)


def _remembered(tensor: Tensor, previous: Tensor | None) -> Tensor:
    """Return the memory of ``tensor`` before it is written: the last execution's, or zeros."""
    if previous is not None and previous.shape == tensor.shape:
        return previous
    return replace(tensor, data=np.zeros_like(tensor.data))


def _addresses(tensors: Mapping[str, Tensor], address: int) -> dict[str, int]:
    """Lay the tensors out one behind the other, as in a device's feature map; none without bytes."""
    addresses = {}
    for name, tensor in tensors.items():
        addresses[name] = address if tensor.nbytes else 0
        address += -(-tensor.nbytes // _ALIGNMENT) * _ALIGNMENT
    return addresses
