"""Which files one execution of a loaded model leaves: decided when the model is loaded, as in GE."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_npudump.emulator.dumps.dump_settings import EVERY_MODEL, DumpSettings

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from pytest_npudump.emulator.faults import Trampling
    from pytest_npudump.onnxmodels.graph import Operator

STREAM = 3
"""Stream id of every task of a model."""


@dataclass(frozen=True, slots=True)
class Task:
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
    tramplings: tuple[Trampling, ...] = ()


@dataclass(slots=True)
class Plan:
    """The files of a model that was loaded while a dump was set.

    Attributes:
        settings: the configuration; a later one replaces only its directory and steps.
        tasks: the files of one execution, in the order they are written.
        active: false from ``finalize_dump`` to the next ``set_dump``.
    """

    settings: DumpSettings
    tasks: tuple[Task, ...]
    active: bool = True

    @property
    def watches(self) -> bool:
        """Whether this is the watcher scene."""
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
    faults: Sequence[Trampling] = (),
) -> Plan:
    """Return the files of a model.

    ``models`` are the names that stand for it (its file's stem first, then its graph's name), ``data`` the
    names of its inputs, and ``faults`` what is injected in it. Each selected operator is followed by one
    ``Data`` file for every model input it reads, as in GE's ``DataDumper``.
    """
    if settings.watcher_nodes:
        return Plan(settings, tuple(_watcher_tasks(settings, operators, faults)))
    if settings.overflow:
        return Plan(settings, tuple(task_of(settings, models, operator) for operator in operators))
    names = selected(settings, models, operators)
    tasks: list[Task] = []
    for operator in operators:
        if operator.name in names:
            tasks.append(task_of(settings, models, operator))
            tasks += _data_tasks(settings, models, operator, data)
    return Plan(settings, tuple(task for task in tasks if task.inputs or task.outputs))


def selected(settings: DumpSettings, models: Sequence[str], operators: Sequence[Operator]) -> set[str]:
    """Return the names of the operators to dump: those listed, and those in an ``opname_range``.

    Names are compared as they are. An item without ``model_name`` makes the other items irrelevant, and
    the model's file name counts before its graph's name (``DumpProperties::IsNeedDump``).
    """
    every = {operator.name for operator in operators}
    if settings.all_models:
        return every
    in_range = _in_ranges(settings, models, operators)
    if EVERY_MODEL in settings.layers:
        listed = settings.layers[EVERY_MODEL]
        return (set(listed) & every if listed else every) | in_range
    model = next((name for name in models if name in settings.layers), None)
    if model is None:
        return in_range
    listed = settings.layers[model]
    if not listed and not any(name in settings.ranges for name in models):
        return every
    return set(listed) & every | in_range


def _in_ranges(settings: DumpSettings, models: Sequence[str], operators: Sequence[Operator]) -> set[str]:
    model = next((name for name in models if name in settings.ranges), None)
    found: set[str] = set()
    for first, last in settings.ranges[model] if model is not None else ():
        found |= _in_range(first, last, operators)
    return found


def _in_range(first: str, last: str, operators: Sequence[Operator]) -> set[str]:
    """Walk GE's state machine: an end before its begin, or a second begin after the end, stops it."""
    found: set[str] = set()
    state = "before"
    for operator in operators:
        if operator.name == first:
            if state == "after":
                break
            state = "after" if first == last else "inside"
            found.add(operator.name)
        elif operator.name == last:
            if state == "before":
                break
            state = "after"
            found.add(operator.name)
        elif state == "inside":
            found.add(operator.name)
        else:
            state = "before"
    return found


def task_of(settings: DumpSettings, models: Sequence[str], operator: Operator) -> Task:
    """Return an operator's file: the slots that ``dump_mode`` and the blacklists leave."""

    def kept(io: str, tensors: tuple[str, ...]) -> tuple[str, ...]:
        if settings.mode not in {io, "all"}:
            return ()
        if not (settings.name_blacklist or settings.type_blacklist):
            return tensors
        return tuple(
            tensor
            for slot, tensor in enumerate(tensors)
            if not _blacklisted(settings, models, operator, (io, slot))
        )

    return Task(
        operator.op_type,
        operator.name,
        operator.task,
        kept("input", operator.inputs),
        kept("output", operator.outputs),
    )


def _blacklisted(
    settings: DumpSettings, models: Sequence[str], operator: Operator, slot: tuple[str, int]
) -> bool:
    return any(
        slot in lists.get(model, {}).get(name, ())
        for model in (*models, EVERY_MODEL)
        for lists, name in (
            (settings.name_blacklist, operator.name),
            (settings.type_blacklist, operator.op_type),
        )
    )


def _data_tasks(
    settings: DumpSettings, models: Sequence[str], consumer: Operator, data: Collection[str]
) -> Iterator[Task]:
    """Yield the ``Data`` files of an operator; only a blacklist by type leaves them out (output0)."""
    blacklists = (settings.type_blacklist.get(model, {}) for model in (*models, EVERY_MODEL))
    if settings.mode == "input" or any(("output", 0) in b.get("Data", ()) for b in blacklists):
        return
    for tensor in consumer.inputs:
        if tensor in data:
            yield Task("Data", tensor, consumer.task, (), (tensor,))


def _watcher_tasks(
    settings: DumpSettings, operators: Sequence[Operator], faults: Sequence[Trampling]
) -> Iterator[Task]:
    """Yield, in execution order, every watched node after itself and after each ``layer`` operator.

    Without ``layer`` that is every operator but the watched ones and collective ones.
    """
    layers = settings.layers.get(EVERY_MODEL)
    watched = [operator for operator in operators if operator.name in settings.watcher_nodes]
    active: list[Trampling] = []
    for operator in operators:
        active = [fault for fault in active if fault.victim != operator.name]
        active += [fault for fault in faults if fault.by == operator.name]
        if operator.name in settings.watcher_nodes:
            yield Task(operator.op_type, operator.name, operator.task, (), operator.outputs)
        elif operator.op_type.startswith("Hcom"):
            continue
        elif layers is not None and (not layers or operator.name in layers):
            for node in watched:
                name = f"{operator.name}_To_{node.name}"
                trampled = tuple(fault for fault in active if fault.victim == node.name)
                yield Task(
                    node.op_type, name, operator.task, (), node.outputs, watches=True, tramplings=trampled
                )
