"""What a dump configuration means for a model: which files one execution leaves.

The rules are GE's (hicann/ge ``dump_manager.cc``, ``dump_properties.cc``, ``dump_callback.cc``), which reads
the configuration after adump has accepted it. Files are decided when the model is loaded, as in GE.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pytest_npudump.emulator.dumps import stats_text

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from pytest_npudump.emulator.faults import InjectedTrampling
    from pytest_npudump.onnxmodels.graph import Operator


EVERY_MODEL = ""
"""Key of what a ``dump_list`` item without ``model_name`` asks for: it holds for every model."""

_POSITION = re.compile(r"(input|output)(\d+)\Z")

Blacklist = dict[str, set[tuple[str, int]]]


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
        """Whether the execution with this ``data_index`` is dumped."""
        return not self.step or any(first <= index <= last for first, last in self.step)


def settings(dump: Mapping[str, Any], root: str, statistics: int) -> DumpSettings:
    """Return what ``dump``, the object of that name in an accepted configuration, asks for.

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
    return stats_text.mask(dump["dump_stats"]) if dump.get("dump_stats") else stats_text.DEFAULT_MASK


def steps(text: str) -> tuple[tuple[int, int], ...]:
    """Return the intervals of ``dump_step``, both ends included: ``0|2-5`` is ``((0, 0), (2, 5))``."""
    pairs = (interval.partition("-") for interval in text.split("|") if interval)
    return tuple((int(first), int(last or first)) for first, _, last in pairs)


STREAM = 3
"""Stream id of every task of a model."""


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
    in_range: set[str] = set()
    for first, last in settings.ranges[ranged] if ranged is not None else ():
        in_range |= _in_range(first, last, operators)
    if EVERY_MODEL in settings.layers:
        listed = settings.layers[EVERY_MODEL]
        return (set(listed) & every if listed else every) | in_range
    model = next((name for name in models if name in settings.layers), None)
    if model is None:
        return in_range
    listed = settings.layers[model]
    if not listed and ranged is None:
        return every
    return set(listed) & every | in_range


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
