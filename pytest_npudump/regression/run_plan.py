"""Plan of the runs behind the first: of the layers that one dumps as tensors, and of what varies in others.

A recording runs the test with statistics. If its tensors fit a budget it runs with these too, and that run is
the one that is recorded, unless it took 1.3 times as long and a second more, and so did another. Its
statistics are kept in as many digits as a device prints, with rounded projections in a short column. What was
chosen stands in the golden, for all runs to come; an update does not choose anew.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

from pytest_npudump.config.acl_json import check_request
from pytest_npudump.config.cann import rules_version
from pytest_npudump.dump.records import Dump, TensorKey, sanitise
from pytest_npudump.dump.selection import resolve_raw_names
from pytest_npudump.errors import ConfigError, DumpError, said
from pytest_npudump.language.text import byte_size, first_of, number_of
from pytest_npudump.onnxmodels.variation import INPUTS, OPTIMISATION, PLAIN, THREADS, Variation
from pytest_npudump.record.edges import SEVERAL, UNKNOWN, Edges
from pytest_npudump.regression import result as status
from pytest_npudump.regression.dataflow import edges_of_device, edges_of_run
from pytest_npudump.regression.result import Escalation, Result, recorded_with_tensors
from pytest_npudump.regression.run_record import needs_processes
from pytest_npudump.runtime.acl import AclJson
from pytest_npudump.runtime.base import VaryingRuntime

if TYPE_CHECKING:
    from collections.abc import Collection

    from pytest_npudump.dump.records import TensorRecord
    from pytest_npudump.regression.case import Case


@dataclass(frozen=True, slots=True)
class Plan:
    """Plan of the second run.

    Attributes:
        layers: names of the layers wanted, as the first run reported them.
        raw_layers: what acl.json names; empty where everything has to be dumped.
        omitted: failing layers left out because there are too many, or of the size limit.
        notes: what a reader of the report should know.
        skipped: the escalation to report where no second run can say anything; None where one runs.
        suspects: outputs of operators that are to be judged by their inputs.
        accompanies: whether it takes place for the other ranks' sake, with nothing to find out.
        inputs: whether what the layers read is dumped too, besides what they put out.
        earlier: what the second run has found, where this is of a third one.
        measures: how many runs, each as the first one, measure how far the test strays; 0 for none.
        tries: how many runs before these may dump tensors, which take the first one's place if that costs
            little.
    """

    layers: tuple[str, ...]
    raw_layers: tuple[str, ...] = ()
    omitted: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    skipped: Escalation | None = None
    suspects: tuple[TensorKey, ...] = ()
    accompanies: bool = False
    inputs: bool = False
    earlier: Escalation | None = None
    measures: int = 0
    tries: int = 0

    @property
    def runs(self) -> bool:
        """Return whether there is to be a second run."""
        return self.skipped is None

    @property
    def further(self) -> int:
        """Number of runs behind the first."""
        explaining = 1 if self.earlier is None else 2
        return (self.measures + self.tries or explaining) if self.runs else 0


def plan_second_run(case: Case, first: Result) -> Plan | None:
    """Decide whether the test runs again, and with which layers; None where there is nothing to find out."""
    outcome, dump = first, first.run.dump
    if dump is None:
        return None
    if first.run.to_measure:  # with tensors, if models that the plugin itself has loaded have small ones
        fits = _bytes(first) <= case.settings.auto_tensors and _has_choice(case, first)
        return Plan((), measures=first.run.to_measure, tries=int(fits))
    if outcome.status == status.PENDING:
        if problem := needs_processes(case, dump):
            return Plan((), skipped=Escalation(problem=problem))
        wanted = first.run.kept.layers if first.run.kept is not None else ()
        plan = _plan(case, first, dump, wanted) if wanted else Plan(())
        repeats = further_runs(case) > 0 and sum(sizes_of(dump).values()) <= case.settings.dump_limit
        if repeats:
            plan = replace(plan, raw_layers=())  # what may not repeat is dumped too
        if plan.omitted and plan.runs:
            plan = replace(plan, skipped=Escalation(omitted=plan.omitted, problem=plan.notes[0]))
        return plan
    if not (case.settings.second_runs and case.request.escalate):
        return None
    # The layers that fail, those under suspicion first, and what these read. Where none fails: those whose
    # tensors an acceptance of the run would keep.
    failing = failing_layers(first)
    also = first.run.kept.lacking(dump) if first.run.kept is not None else ()
    if not failing:
        alone = case.exchange is None and not first.part  # what ranks share is not approved by what one left
        return _plan(case, first, dump, also) if also and alone else None
    edges = edges_of_run(case, first)
    return plan_suspects(case, first, dump, suspects_of(first), failing, edges=edges, also=also)


_MOST_FAILING = 1000
"""Failing layers that a run dumps besides suspects, what is upstream of these, and golden tensors."""


def plan_suspects(
    case: Case,
    first: Result,
    dump: Dump,
    suspects: tuple[TensorKey, ...],
    failing: tuple[str, ...],
    *,
    edges: Edges,
    also: tuple[str, ...] = (),
) -> Plan:
    """Plan for layers under suspicion, what is upstream, failing ones and what feeds these: what fits.

    Args:
        case: the test.
        first: its first run.
        dump: that run's.
        suspects: outputs that are to be judged by their inputs.
        failing: layers that are of interest besides.
        edges: of the first run.
        also: layers that are wanted where all others fit.
    """
    upstream = upstream_of(edges, dump, suspects)
    suspected = [key.layer for key in suspects]
    kept = first.run.kept.layers if first.run.kept is not None else ()
    near = {*map(sanitise, (*suspected, *upstream, *kept))}
    beyond = tuple(layer for layer in failing[_MOST_FAILING:] if sanitise(layer) not in near)
    left_out = {*map(sanitise, beyond)}
    failing = tuple(layer for layer in failing if sanitise(layer) not in left_out)
    by_file_name: dict[str, str] = {}
    for layer in (*failing, *suspected, *upstream):
        by_file_name.setdefault(sanitise(layer), layer)
    nearest = (by_file_name[sanitise(layer)] for layer in (*suspected, *upstream, *failing))
    outputs = (key for key in first.failing_keys if key.io == "output")
    feeding = feeders_of(edges, dump, tuple(key for key in outputs if sanitise(key.layer) not in left_out))
    for layer in (*also, *feeding):
        by_file_name.setdefault(sanitise(layer), layer)
    wanted = tuple(dict.fromkeys((*nearest, *by_file_name.values())))  # not all may fit
    beside = frozenset(wanted) - set(failing)
    known = edges if case.reference is None else edges_of_device(case, first)
    plan, inputs = None, needs_inputs(case, known, dump, suspects)
    if inputs:
        plan = _plan(case, first, dump, wanted, beside, sizes=sizes_with_inputs(edges, dump, wanted))
        inputs = bool(plan.raw_layers) and {key.layer for key in suspects} <= set(plan.layers)
    plan = plan if plan is not None and inputs else _plan(case, first, dump, wanted, beside)
    plan = replace(plan, suspects=suspects, inputs=inputs)
    if not beyond:
        return plan
    words = f"second run limited to {len(failing)} of {len(failing) + len(beyond)} mismatching layers "
    words += "(sources first, then others in execution order; those with golden tensors stay)"
    return replace(plan, omitted=(*plan.omitted, *beyond), notes=(words, *plan.notes))


def _plan(
    case: Case,
    first: Result,
    dump: Dump,
    wanted: tuple[str, ...],
    beside: frozenset[str] = frozenset(),
    *,
    sizes: Mapping[str, int] | None = None,
) -> Plan:
    """Plan for ``wanted`` layers, of which those ``beside`` the failing ones are left out where need be.

    ``sizes`` are bytes by layer as file names spell it; None for those that the first run dumped.
    """
    sizes = sizes_of(dump) if sizes is None else sizes
    chosen, left_out = _within_limit(wanted, sizes, case.settings.dump_limit)
    if too_large := beside.intersection(left_out):  # what feeds a source pushes out nothing that fails
        fitting = tuple(layer for layer in wanted if layer not in too_large)
        chosen, _ = _within_limit(fitting, sizes, case.settings.dump_limit)
        left_out = tuple(layer for layer in wanted if layer not in chosen)
    omitted = tuple(layer for layer in left_out if layer not in beside)
    notes = []
    if left_out:
        exceeded = f"the tensors of {number_of(len(wanted), 'layer')} exceed npudump_dump_limit "
        exceeded += f"({byte_size(case.settings.dump_limit)}); {number_of(len(chosen), 'layer')} dumped"
        notes.append(f"{exceeded} (sources first, then their inputs, then others in execution order)")
    if not chosen:
        skipped = Escalation(omitted=omitted, problem=f"not run: {exceeded}")
        return Plan(wanted, omitted=omitted, skipped=skipped)
    raw, unresolved = _raw_layers(case, first, dump, chosen)
    if nameless := beside.intersection(unresolved):
        named = tuple(layer for layer in chosen if layer not in nameless)
        raw, unresolved = _raw_layers(case, first, dump, named)
        # Where a consumer is among them that left no file in the first run, an input comes with it.
        inputs = {record.key.layer for record in dump.records if record.op_type == "Data"}
        chosen = tuple(layer for layer in chosen if layer not in nameless - inputs)
    if case.request.scene == "op":
        return Plan(
            chosen, (), omitted, (*notes, said("acl.json cannot select single operators: all were dumped"))
        )
    if unresolved and sum(sizes.values()) > case.settings.dump_limit:
        problem = f"not run: {_unresolved(unresolved)}, and a dump of every layer exceeds npudump_dump_limit"
        return Plan(wanted, skipped=Escalation(problem=problem))
    if unresolved:
        notes.append(
            said(
                "{names}: the second run dumped every layer and kept those it needs",
                names=_unresolved(unresolved),
            )
        )
        raw = ()
    return Plan(chosen, raw, omitted, tuple(notes))


def _unresolved(names: tuple[str, ...]) -> str:
    return (
        f"the raw operator name behind {first_of(names, 3)} is not known (acl.json takes no names of files; "
        f"name the layers in the marker, load the model with npu_dump.load_model, or record the golden again)"
    )


def _within_limit(
    wanted: tuple[str, ...], sizes: Mapping[str, int], limit: int
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    left, total = dict(sizes), 0
    for position, layer in enumerate(wanted):
        total += left.pop(sanitise(layer), 0)  # layers alike in file names are in one sum
        if total > limit:
            return wanted[:position], wanted[position:]
    return wanted, ()


def _raw_layers(
    case: Case, first: Result, dump: Dump, layers: tuple[str, ...]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the raw names to dump for ``layers``, and those that none is known for."""
    consumers, lonely = _consumers(dump, layers)
    layers = (*layers, *consumers)
    if dump.raw_names:
        return layers, lonely
    wanted = {sanitise(layer) for layer in layers}
    told = (first.comparison, first.reference.comparison if first.reference is not None else None)
    keys = tuple(key for comparison in told if comparison is not None for key in comparison.golden.keys)
    models = case.runtime.activity.models
    known: Mapping[str, Any] = {"request": case.request, "golden_keys": keys, "tree": dump.root}
    try:
        found = resolve_raw_names(wanted, models=models, **known)
    except DumpError:  # the model's file cannot be read any more: what the others know has to do
        found = resolve_raw_names(wanted, models=(), **known)
    if case.runtime.name == "modules":  # whose files have the paths of modules
        found = {sanitise(layer): (layer,) for layer in layers} | found
    raw = dict.fromkeys(name for layer in layers for name in found.get(sanitise(layer), ()))
    return tuple(raw), (*lonely, *(layer for layer in layers if sanitise(layer) not in found))


def _consumers(dump: Dump, layers: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the layers that consume graph inputs among ``layers``, and inputs whose consumer is not known.

    CANN dumps an input of the graph, a ``Data`` operator, with the task of its consumer, and only with that.
    """
    tasks = {(r.task, r.stream): r.key.layer for r in dump.records if r.op_type == "Data"}
    wanted = {task: layer for task, layer in tasks.items() if layer in layers}
    found = {
        (r.task, r.stream): r.key.layer
        for r in dump.records
        if r.op_type != "Data" and (r.task, r.stream) in wanted
    }
    lonely = tuple(layer for task, layer in wanted.items() if task not in found)
    return tuple(layer for layer in dict.fromkeys(found.values()) if layer not in layers), lonely


_ONCE = "not run: pytest, or another plugin that runs the test, lets it run once only"
_REPEATED = "not run: the test had failed by itself before, and another plugin repeated it"


def agreed_plan(case: Case, first: Result, *, repeated: bool, repeatable: bool) -> Plan | None:
    """Decide whether the test runs again, and with which layers; None where there is nothing to find out.

    A model whose ranks wait for each other runs on all of them or on none: a rank with nothing to find out
    accompanies the others.

    Args:
        case: the test.
        first: its run that has been judged.
        repeated: whether there was a run before that one.
        repeatable: whether pytest's session lets the test run again.
    """
    plan = plan_second_run(case, first)
    if plan is not None and plan.runs and repeated:
        plan = replace(plan, skipped=Escalation(problem=_REPEATED))
    if plan is not None and plan.runs and plan.measures and not repeatable:
        plan = replace(plan, skipped=Escalation(problem=_ONCE))
    exchange = case.exchange
    if exchange is None:
        return plan
    from pytest_npudump.ranks.agreement import NO_REPETITION, agree, stand_aside  # noqa: PLC0415 - of ranks only

    if not repeatable:
        stand_aside(exchange, case.nodeid, NO_REPETITION)
    wants = plan is not None and plan.runs
    again, problem = agree(exchange, case.nodeid, wants=wants)
    if plan is not None and wants and not again:
        return replace(plan, skipped=Escalation(problem=problem))
    return Plan((), accompanies=True) if again and not wants else plan


_TWICE = 2
"""Value of ``escalate`` that asks for it."""


def plan_third_run(case: Case, first: Result, escalation: Escalation) -> Plan | None:
    """Decide whether the test runs a third time, and with which layers; None where nothing is left to see.

    Suspects are what feeds an operator that was acquitted, as the change came in with that, and those whose
    inputs had no room. Ranks, which would have to run again together, have no third run.

    Args:
        case: the test.
        first: its first run.
        escalation: what the second run has found.
    """
    dump = first.run.dump
    if case.settings.second_runs < _TWICE or case.exchange is not None or dump is None or first.good:
        return None
    if escalation.problem or escalation.reproduced is False:
        return None
    edges = edges_of_run(case, first)
    # Those that have room together with what feeds them: else they cannot be judged.
    sizes, left, wanted, found = sizes_of(dump), case.settings.dump_limit, set[str](), list[TensorKey]()
    for key in dict.fromkeys(_suspects(edges, dump, escalation)):
        layers = {sanitise(layer) for layer in (key.layer, *feeders_of(edges, dump, (key,)))} - wanted
        if (size := sum(sizes.get(layer, largest_of(dump)) for layer in layers)) <= left:
            left -= size
            wanted |= layers
            found.append(key)
    suspects = tuple(found)
    if not suspects and not escalation.omitted:
        return None
    plan = plan_suspects(case, first, dump, suspects, escalation.omitted, edges=edges)
    return replace(plan, earlier=escalation) if plan.runs else None


def _suspects(edges: Edges, dump: Dump, escalation: Escalation) -> Iterator[TensorKey]:
    from pytest_npudump.explain.operator_alone import ACQUITTED, CONVICTED, UNKNOWN as NOT_JUDGED  # noqa: PLC0415 - not in a pass

    judged = {str(one.key.sanitised) for one in escalation.isolated}
    dumped = {sanitise(layer) for layer in escalation.layers}
    found = any(one.alone.verdict == CONVICTED for one in escalation.isolated)
    for one in escalation.isolated:
        feeders = {sanitise(layer) for layer in feeders_of(edges, dump, (one.key,))}
        if one.alone.verdict == NOT_JUDGED and feeders - dumped:
            yield one.key
        if one.alone.verdict == ACQUITTED and not (found and one.upstream):
            for port in edges.feeds.get(sanitise(one.key.layer), ()):
                if port is not None and edges.feeds.get(sanitise(port.layer)):  # and no input of the graph
                    made = replace(one.key, layer=port.layer, slot=port.slot)
                    yield from [made] * (str(made.sanitised) not in judged)


def suspects_of(outcome: Result) -> tuple[TensorKey, ...]:
    """Return the outputs to be judged by their inputs, in order of execution.

    They are each independent source and where its change begins, then those behind another; the first failure
    where no source is known.
    """
    found: list[TensorKey] = []
    sources = outcome.sources.found if outcome.sources is not None else ()
    for source in sorted(sources, key=lambda one: one.behind is not None):
        found += [source.key] if source.begins is None else [source.key, source.begins]
    outputs = [key for key in dict.fromkeys(found or outcome.failing_keys) if key.io == "output"]
    return tuple(outputs if found else outputs[:1])


def failing_layers(outcome: Result) -> tuple[str, ...]:
    """Layers with values to look at: a missing one has none, a new one has nothing to be compared with.

    Each is there once, under its raw name where the golden or the reference knows that.
    """
    names: dict[str, str] = {}
    for key in outcome.failing_keys:
        plain = sanitise(key.layer)
        if names.get(plain, plain) == plain:
            names[plain] = key.layer
    return tuple(names.values())


def feeders_of(edges: Edges, dump: Dump, suspects: tuple[TensorKey, ...]) -> tuple[str, ...]:
    """Return the layers whose outputs are what the suspects read, as far as that is known, nearest first.

    Args:
        edges: of the first run.
        dump: that run's; what it has not dumped is left out.
        suspects: the outputs under suspicion.
    """
    dumped = {sanitise(record.key.layer): record.key.layer for record in dump.records}
    ports = (port for key in suspects for port in edges.feeds.get(sanitise(key.layer), ()))
    layers = (sanitise(port.layer) for port in ports if port not in (None, UNKNOWN, SEVERAL))
    return tuple(dict.fromkeys(dumped[layer] for layer in layers if layer in dumped))


_SMALL = 16 << 20
"""Bytes that layers may have together that are dumped beyond a number of them."""


def upstream_of(edges: Edges, dump: Dump, suspects: tuple[TensorKey, ...]) -> tuple[str, ...]:
    """Return the layers that the suspects depend on, nearest first: what feeds them, and others beyond.

    These are a number of whatever size, and more while all are small.

    Args:
        edges: of the first run.
        dump: that run's; what it has not dumped is looked through, and left out.
        suspects: the outputs under suspicion.
    """
    from pytest_npudump.explain.operator_alone import MOST_UPSTREAM, UPSTREAM, nearest_first  # noqa: PLC0415 - not in a pass

    dumped = {sanitise(record.key.layer): record.key.layer for record in dump.records}
    starts = list(dict.fromkeys(sanitise(key.layer) for key in suspects))

    def feeding(layer: str) -> Sequence[str]:
        ports = edges.feeds.get(layer, ())
        return [sanitise(port.layer) for port in ports if port is not None and port.slot >= 0]

    direct = {layer for start in starts for layer in feeding(start)}.intersection(dumped) - {*starts}
    every = nearest_first("", lambda layer: feeding(layer) if layer else starts)
    sizes, total, found = sizes_of(dump), 0, list[str]()
    for layer in islice(
        (one for one in every if one in dumped and one not in starts), len(direct) + MOST_UPSTREAM
    ):
        total += sizes[layer]
        if len(found) >= len(direct) + UPSTREAM and total > _SMALL:
            break
        found.append(dumped[layer])
    return tuple(found)


def needs_inputs(case: Case, edges: Edges, dump: Dump, suspects: tuple[TensorKey, ...]) -> bool:
    """Return whether a suspect reads a tensor that is no known output: it is dumped as an input, then."""
    if (case.request.scene, case.request.dump_mode) != ("model", "output"):
        return False
    sizes = _output_sizes(dump)
    return any(size is None for key in suspects for size in _input_sizes(key.layer, edges, sizes))


def _output_sizes(dump: Dump) -> dict[tuple[str, int], int]:
    """Return the bytes of each output that was dumped, by its layer as file names spell it, and its slot."""
    return {
        (sanitise(record.key.layer), record.key.slot): record.size or 0
        for record in dump.records
        if record.key.io == "output"
    }


def _input_sizes(layer: str, edges: Edges, outputs: Mapping[tuple[str, int], int]) -> tuple[int | None, ...]:
    """Return the bytes of what a layer reads, constants left out; None where no dumped one is known."""
    ports = edges.feeds.get(sanitise(layer), (UNKNOWN,))
    return tuple(outputs.get((sanitise(port.layer), port.slot)) for port in ports if port is not None)


def sizes_of(dump: Dump) -> dict[str, int]:
    """Return the bytes that a dump has of each layer, as file names spell it."""
    sizes: dict[str, int] = {}
    for record in dump.records:
        layer = sanitise(record.key.layer)
        sizes[layer] = sizes.get(layer, 0) + (record.size or 0)
    return sizes


def largest_of(dump: Dump) -> int:
    """Return the size of the largest tensor of a dump, for tensors that it lacks."""
    return max((record.size or 0 for record in dump.records), default=0)


def sizes_with_inputs(edges: Edges, dump: Dump, wanted: Iterable[str]) -> dict[str, int]:
    """Return the bytes of layers by file names, their inputs included, as far as the dump has them."""
    sizes, unknown, outputs = sizes_of(dump), largest_of(dump), _output_sizes(dump)
    for layer in wanted:
        read = (unknown if size is None else size for size in _input_sizes(layer, edges, outputs))
        sizes[sanitise(layer)] = sizes.get(sanitise(layer), unknown) + sum(read)
    return sizes


_SLOWER, _SECONDS = 1.3, 1.0
"""A run with tensors may take this many times as long as one with statistics, and so many seconds more.

Tests that pass pay it in each run. The seconds are for what a process does once, such as imports.
"""


def with_reason(case: Case, first: Result) -> Result:
    """Return a recorded run with a note where it would be tried with tensors if these were smaller."""
    size, most = _bytes(first), case.settings.auto_tensors
    if not 0 < most < size or not _has_choice(case, first):
        return first
    words = said(
        "recorded with statistics; tensors take {size}, and npudump_auto_tensors allows {most}",
        size=byte_size(size),
        most=byte_size(most),
    )
    return _noted(first, words)


def _bytes(first: Result) -> int:
    return sum(record.size or 0 for record in first.run.records)


def _has_choice(case: Case, first: Result) -> bool:
    request, activity, dump = case.request, case.runtime.activity, first.run.dump
    plain = request.scene == "model" and request.dump_data is None
    plain = plain and not (request.dump_stats or request.golden_tensors)
    own = isinstance(case.runtime, AclJson) and bool(activity.models)
    elsewhere = activity.released or activity.programs or case.isolated or case.exchange is not None
    if not (plain and own) or elsewhere or case.settings.calibrate or dump is None:
        return False
    if case.goldens.path.exists() or case.goldens.common.exists():  # of statistics, and stays so
        return False
    try:
        check_request(replace(request, dump_data="tensor"), version=rules_version(), cwd=Path.cwd())
    except ConfigError:
        return False
    return True


def with_tensors(case: Case) -> Case:
    """Return a test whose golden is recorded of tensors."""
    request = replace(case.request, dump_data="tensor", chosen=True)
    return replace(case, request=request, goldens=replace(case.goldens, request=request))


def seconds_of(case: Case) -> float:
    """Return the clock for a run's duration: of processors where nothing else works for the test.

    So what else a machine has to do decides nothing there. On a device it is the clock's.
    """
    return sum(os.times()[:4]) if case.runtime.name == "emulator" else monotonic()


def decided(times: tuple[float, float], first: Result, tried: Result) -> tuple[bool, Result]:
    """Decide by the times of runs; return whether tensors were chosen, and the run to record, which notes it.

    Args:
        times: seconds with statistics, and with tensors.
        first: the run with statistics.
        tried: the run with tensors.
    """
    takes = times[1] <= _SLOWER * times[0] + _SECONDS and tried.run.to_measure > 0
    words = (
        recorded_with_tensors()
        if takes
        else said(
            "recorded with statistics; tensors take {ratio} times as long",
            ratio=f"{times[1] / max(times[0], 1e-6):.1f}",
        )
    )
    return takes, _noted(tried if takes else first, words)


def _noted(found: Result, words: str) -> Result:
    dump = found.run.dump
    return found if dump is None else found.with_run(dump=replace(dump, notes=(*dump.notes, words)))


def further_runs(case: Case) -> int:
    """Count the runs behind the first that measure a recorded test.

    Ranks agree on one second run, whatever was asked for.
    """
    if case.settings.calibrate:
        return case.settings.calibrate
    further = (case.request.repeats or case.settings.repeats) - 1
    return further if case.exchange is None else min(further, 1)


def vary(case: Case, member: int | None) -> None:
    """Have the next run differ by what a member of the test's calibration differs by, and look at its inputs.

    Args:
        case: the test.
        member: from 1; 0 for a run that is none, None behind a run.
    """
    if not isinstance(case.runtime, VaryingRuntime):
        return
    calibrates = bool(case.settings.calibrate) and case.request.scene == "model"
    wanted = variation_of(member, case.runtime.varies) if calibrates and member else PLAIN
    records = bool(case.settings.update_golden) and further_runs(case) > 0
    looks = member is not None and (calibrates or records)
    case.runtime.vary(replace(wanted, looks=looks, waits=looks and calibrates))


def fed(case: Case) -> tuple[TensorRecord, ...]:
    """Return the recorded inputs of models of the run that has ended."""
    return tuple(case.runtime.varying.fed) if isinstance(case.runtime, VaryingRuntime) else ()


_THREADS = 2


def variation_of(member: int, varies: Collection[str]) -> Variation:
    """Return the variation of a member.

    The first one is a mere repetition, which tells whether the test repeats. All others have their inputs
    perturbed; of each four, one runs on two threads, one optimised, and one is both.

    Args:
        member: from 1.
        varies: what of inputs, threads and optimisation the runtime can vary.
    """
    if member == 1:
        return PLAIN
    return Variation(
        seed=member if INPUTS in varies else None,
        threads=_THREADS if member % 2 and THREADS in varies else 1,
        optimised=member % 4 >= 2 and OPTIMISATION in varies,  # noqa: PLR2004 - two of four
    )
