"""Measured noise: runs behind the first measure how far a healthy test strays, for its golden.

They are equal, or those of a calibration, which vary what they can. Bounds made of some of these have to hold
for the others.
"""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from pytest_npudump.compare.judge import RUN, judge_tables
from pytest_npudump.compare.stats.allowances import Deviations, deviations, structural_difference
from pytest_npudump.compare.stats.tables import blind_keys, describe_blind
from pytest_npudump.compare.stats.verdict import EXTRA, GRAPH_INPUT, Comparison
from pytest_npudump.dump.records import TensorKey
from pytest_npudump.dump.table import MEASURED, PROJECTIONS, StatsTable, sanitised_key
from pytest_npudump.errors import DumpError, GoldenError, joined, said
from pytest_npudump.language.text import first_of
from pytest_npudump.onnxmodels.variation import INPUTS, OPTIMISATION, PLAIN, THREADS, Variation, Varying
from pytest_npudump.record.noise import (
    CALIBRATION,
    FACTOR,
    LARGEST_FACTOR,
    MEASURABLE,
    REPEATS,
    Calibrated,
    Calibration,
    Noise,
    Repeats,
    columns_text,
)
from pytest_npudump.record.rows import by_name, parse_outputs, short
from pytest_npudump.regression import result as status
from pytest_npudump.regression.judgement import with_reference
from pytest_npudump.regression.run_plan import fed, variation_of
from pytest_npudump.regression.run_record import (
    Measured,
    by_rank,
    collect,
    golden_to_start_from,
    record,
    told_by_raw_names,
    unreadable,
    without_unwritten,
)
from pytest_npudump.runtime.base import VaryingRuntime

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from pytest_npudump.compare.tolerances.tolerance import Tolerances
    from pytest_npudump.dump.records import TensorRecord
    from pytest_npudump.record.record import Record
    from pytest_npudump.regression.attempt import Attempt
    from pytest_npudump.regression.case import Case
    from pytest_npudump.regression.result import Result


_BY_TENSOR = ("largest", "floor", "differs", "uncountable", "compared", "exact")


@dataclass(frozen=True, slots=True)
class Member:
    """One of these runs.

    Attributes:
        variation: in what it differed on purpose.
        strayed: it against the first run, never against another golden: what lies between that golden and
            the first run is there in each member, so that it is a change and no noise.
        unperturbed: inputs of models that were not perturbed, as they hold no floating-point values.
        unreached: inputs that were not for another reason, in words.
        fed_otherwise: inputs of models to which the test gave other values than in the first run.
        outputs: as :attr:`~pytest_npudump.dump.records.Dump.outputs`.
    """

    variation: Variation
    strayed: Deviations
    unperturbed: frozenset[str] = frozenset()
    unreached: frozenset[str] = frozenset()
    fed_otherwise: frozenset[str] = frozenset()
    outputs: str = ""


def with_steady_outputs(case: Case, first: Result, again: str) -> Result:
    """Leave out of a run what an equal run gave other values of, among outputs that have no row.

    Args:
        case: the test.
        first: of the run.
        again: such outputs of the other run.
    """
    dump = first.run.dump
    if dump is None or not dump.outputs:
        return first
    found = judge_tables(parse_outputs(dump.outputs), parse_outputs(again), case.tolerances)
    strays = {short(str(verdict.key)) for verdict in found.failing}
    lines = (line for name, line in by_name(dump.outputs).items() if name not in strays)
    return first.with_run(dump=replace(dump, outputs="".join(f"{line}\n" for line in lines)))


def fed_otherwise(
    first: Sequence[TensorRecord], later: Sequence[TensorRecord], tolerances: Tolerances
) -> frozenset[str]:
    """Return the inputs that two runs of a test gave values that differ by more than their tolerance.

    Executions of one thread are compared in their order. Those of several come in any: equal values are taken
    out before others are compared.
    """
    names: set[str] = set()
    ordered = _of_one_thread(first) and _of_one_thread(later)
    for name in dict.fromkeys(each.key.layer for each in (*first, *later)):
        here, there = ([each for each in run if each.key.layer == name] for run in (first, later))
        if ordered:
            pairs = enumerate(zip(here, there, strict=False))
            same = {number for number, (one, other) in pairs if one.digest == other.digest}
            here = [each for number, each in enumerate(here) if number not in same]
            there = [each for number, each in enumerate(there) if number not in same]
        else:
            alike = Counter(each.digest for each in here) & Counter(each.digest for each in there)
            here, there = _without(here, alike), _without(there, alike)
        known = all(each.stats is not None for each in (*here, *there))
        before, after = (
            StatsTable.from_records(
                replace(each, key=replace(each.key, step=number), digest="")
                for number, each in enumerate(run)
            )
            for run in (here, there)
        )
        if not known or judge_tables(before, after, tolerances, RUN).failing:
            names.add(name)
    return frozenset(names)


def _begun_otherwise(
    first: Sequence[TensorRecord], later: Sequence[TensorRecord], tolerances: Tolerances
) -> frozenset[str]:
    """Return the inputs of a varied run's first execution with other values than that of the first run.

    Later ones may be made of what the model put out, which varies with it. Where several threads ran the
    model, it is compared with all executions of the first run.
    """
    if _of_one_thread(first) and _of_one_thread(later):
        first = [each for each in first if not each.key.step]
    known = {(each.key.layer, each.digest) for each in first}
    begun = [each for each in later if not each.key.step and (each.key.layer, each.digest) not in known]
    return frozenset(
        each.key.layer
        for each in begun
        if all(fed_otherwise([one], [each], tolerances) for one in first if one.key.layer == each.key.layer)
    )


def fed_words(names: Iterable[str]) -> str:
    """Report inputs without data of the test's own."""
    return said(
        "the test feeds its model other values in each run: {names}; give these a seed",
        names=first_of(sorted(names)),
    )


def _of_one_thread(run: Sequence[TensorRecord]) -> bool:
    return len({each.stream for each in run}) < 2  # noqa: PLR2004 - one, or none where nothing was fed


def _without(run: Sequence[TensorRecord], digests: Counter[str]) -> list[TensorRecord]:
    left, rest = digests.copy(), []
    for each in run:
        if left[each.digest]:
            left[each.digest] -= 1
        else:
            rest.append(each)
    return rest


def measure(case: Case, first: Result, attempt: Attempt, member: int) -> Member | str:
    """Read the dump of one of these runs, measure it, and delete it unless all are kept.

    Args:
        case: the test.
        first: its first run.
        attempt: the run.
        member: which one it is, from 1.

    Returns:
        The member, or in what its tensors differ from the first run's besides values, in words.

    Raises:
        DumpError: it cannot be read.
        GoldenError: the golden cannot be read.
    """
    golden = golden_to_start_from(case)
    table, outputs = _table(case, first, attempt, golden)
    before = StatsTable.from_records(first.run.records)
    bounds = first.numerics.bounds if first.numerics is not None else ""
    tolerances = case.tolerances.under(bounds) if bounds else case.tolerances
    variation = PLAIN
    if (runtime := _varied(case)) is not None:
        variation = variation_of(member, runtime.varies)
        variation = variation if runtime.varying.perturbed else replace(variation, seed=None)
    again = judge_tables(before, table, tolerances)
    if difference := structural_difference(again):
        return difference
    strayed = deviations(again, tolerances)
    if first.status != status.PENDING and golden is not None:
        strayed = _under_golden(strayed, judge_tables(golden.table, before, tolerances))
    if case.settings.keep_dumps != "all":
        shutil.rmtree(attempt.directory, ignore_errors=True)
    differing = fed_otherwise if variation.plain else _begun_otherwise
    unlike = differing(first.run.fed, fed(case), tolerances)
    left = case.runtime.varying if isinstance(case.runtime, VaryingRuntime) and member > 1 else Varying()
    kept, unreached = frozenset(left.unperturbed), frozenset(left.unreached)
    return Member(variation, strayed, kept, unreached, unlike, outputs)


def _table(case: Case, first: Result, attempt: Attempt, golden: Record | None) -> tuple[StatsTable, str]:
    if undumped := case.runtime.activity.evidence.undumped:
        raise DumpError(f"not all that it ran is in its dump: {'; '.join(undumped)}")
    dump = without_unwritten(case, collect(case, attempt, golden), golden)
    if problems := unreadable(dump):
        raise DumpError(joined("; ", problems))
    if first.part:
        dump = by_rank(dump).get(first.part, dump)
    table = StatsTable.from_records(dump.records)
    if golden is not None and first.status != status.PENDING:
        comparison = judge_tables(golden.table, table, case.tolerances)
        if comparison.count(EXTRA):
            table = StatsTable.from_records(told_by_raw_names(case, golden, dump).records)
    return table, dump.outputs


def _varied(case: Case) -> VaryingRuntime | None:
    """Return the runtime where a calibration varies models: programs of their own are out of reach."""
    runtime, reached = case.runtime, case.request.scene == "model" and not case.runtime.activity.programs
    return runtime if isinstance(runtime, VaryingRuntime) and case.settings.calibrate and reached else None


def _under_golden(strayed: Deviations, comparison: Comparison) -> Deviations:
    """Return deviations from the first run for the golden's tensors, in their order."""
    alignment, golden = comparison.alignment, comparison.golden
    order = np.empty(len(golden), dtype=np.intp)
    order[alignment.golden] = alignment.actual
    kept = np.column_stack([golden.known[:, :MEASURED], golden.tells(PROJECTIONS)])
    rows = {name: getattr(strayed, name)[order] for name in _BY_TENSOR}
    rows["largest"] = np.where(kept, rows["largest"], 0.0)
    return replace(strayed, keys=golden.keys, **rows)


def unmeasured(case: Case, first: Result, reason: str) -> Result:
    """Return the first run where it is the only one: recorded with a note, or not calibrated.

    Args:
        case: the test.
        first: its run.
        reason: why there is no other one.
    """
    if case.settings.calibrate:
        return unrecorded(first, f"not calibrated: {reason}")
    return _recorded(case, first, once(reason))


def conclude(case: Case, first: Result, members: Sequence[Member]) -> Result:
    """Return the first run with the outcome of all: recorded, calibrated, or neither, with the reason.

    Args:
        case: the test.
        first: its first run, which is recorded or compared with a golden.
        members: all others.
    """
    alike = [member.strayed for member in members if member.variation.plain]
    for member in members:
        if member.variation.plain:
            first = with_steady_outputs(case, first, member.outputs)
    if problem := _fed_otherwise(first, members):
        return unrecorded(first, f"not calibrated: {problem}" if case.settings.calibrate else problem)
    if not case.settings.calibrate:
        measured = repeated(alike, filtered=bool(case.request.layers), measurable=case.exchange is None)
        return _recorded(case, first, measured)
    strayed = [member.strayed for member in members]
    factor, sensitive = hold_out(strayed)
    if factor is None:
        shown = first_of(sensitive, separator="; ")
        return unrecorded(
            first,
            f"not calibrated: bounds made from all members but one do not hold for that one, even with "
            f"factor {FACTORS[-1]:g}. Most sensitive: {shown}. Take more members, give these layers a rule "
            f"of their own, or leave them out with layers",
        )
    variations = [member.variation for member in members]
    words = {
        "repeats": any(one.plain for one in variations),
        INPUTS: any(one.seed is not None for one in variations),
        THREADS: any(one.threads > 1 for one in variations),
        OPTIMISATION: any(one.optimised for one in variations),
    }
    varied = tuple(word for word, there in words.items() if there)
    calibration = Calibration(len(members), factor, varied)
    measured = repeated(alike, filtered=bool(case.request.layers), members=strayed, calibration=calibration)
    told = f"calibrated with {len(members)} members, varied: {', '.join(varied)}; factor {factor:g}"
    if factor != FACTOR:
        told += f", raised from {FACTOR:g} as members that were held out did not pass with less"
    notes = [told]
    if varied == ("repeats",):
        why = "the plugin cannot vary what the test runs"
        if (runtime := _varied(case)) is not None:
            why = f"the plugin saw no input with floating-point values ({runtime.seen_as_inputs})"
        told = f"only repetitions were measured, as {why}: of a device that repeats "
        notes.append(f"{told}exactly these bounds hold no noise")
    for names, why in (
        ({name for member in members for name in member.unperturbed}, "hold no floating-point values"),
        ({name for member in members for name in member.unreached}, "cannot be changed where they lie"),
    ):
        if names:
            notes.append(f"not perturbed, as they {why}: inputs {', '.join(sorted(names))}")
    notes += measured.notes
    settle = _recorded if first.status == status.PENDING else _calibrated
    return settle(case, first, replace(measured, notes=tuple(notes)))


def _fed_otherwise(first: Result, members: Sequence[Member]) -> str:
    """Name model inputs that differ between runs by more than their tolerance; "" for none.

    What follows from these is no noise, and bounds made of it would hide faults. An input that differs
    between runs alike, in whose dumps nothing differs, is of no account where no dump differs: nothing dumped
    may depend on it.
    """
    records = first.run.records
    given = {str(record.key.sanitised) for record in records if record.op_type == GRAPH_INPUT}
    alike = [member for member in members if member.variation.plain]
    names = {
        key
        for member in alike
        for key, differs in zip(
            member.strayed.keys, (member.strayed.differs & member.strayed.outside).tolist(), strict=True
        )
        if differs and sanitised_key(key) in given
    }
    differs = [(each, bool(each.strayed.differs.any())) for each in members]
    idle = {
        name for each, told in differs if each.variation.plain and not told for name in each.fed_otherwise
    }
    names = names or {
        name for each, told in differs for name in each.fed_otherwise if told or name not in idle
    }
    return fed_words(names) if names else ""


def unrecorded(first: Result, problem: str) -> Result:
    """Return the first run where nothing is recorded, and nothing calibrated, for this problem."""
    pending = first.status == status.PENDING
    word, lost = (status.PENDING, "nothing was recorded: ") if pending else (status.ERROR, "")
    return replace(first, status=word, problems=(f"{lost}{problem}",))


def _recorded(case: Case, first: Result, measured: Measured) -> Result:
    table = StatsTable.from_records(first.run.records)
    recorded = record(case, golden_to_start_from(case), first, table, measured=measured)
    blind = _blind_notes(case, measured, table)
    return with_reference(replace(recorded, notes=first.notes + recorded.notes + blind), first.reference)


def _calibrated(case: Case, first: Result, measured: Measured) -> Result:
    """Put the column and its keys into the golden that the first run matches."""
    try:
        golden = golden_to_start_from(case)
        assert golden is not None  # noqa: S101 - the first run was compared with it
        table = replace(golden.table, noise=measured.cells)
        calibrated = replace(golden, table=table, extra={**golden.extra, **measured.head})
        recording = case.goldens.stage(calibrated, None)
    except GoldenError as error:
        return unrecorded(first, f"not calibrated: {error}")
    notes, comparison = measured.notes, first.comparison
    if comparison is not None and comparison.changed:
        notes += (
            said(
                "measured around this run, in which tensors changed within tolerance ({count}, first "
                "{first}): the measured bounds allow for no such change",
                count=comparison.changed,
                first=comparison.first_within,
            ),
        )
    notes += _blind_notes(case, measured, golden.table)
    return replace(first, notes=first.notes + notes, recording=recording)


def _blind_notes(case: Case, measured: Measured, table: StatsTable) -> tuple[str, ...]:
    """Name the tensors of which the measured bounds see nothing."""
    calibration = measured.head.get(CALIBRATION)
    factor = FACTOR if calibration is None else calibration["factor"]
    bounds = Calibrated.of(
        table.keys, measured.cells, factor=factor, source="measured", widens=calibration is not None
    )
    blind = describe_blind(blind_keys(table, case.tolerances.with_measured(bounds)))
    return (blind,) if blind else ()


FACTORS = (FACTOR, 7.0, 10.0, 14.0, LARGEST_FACTOR)
"""The factors that are tried: probtest's, and steps of about the square root of 2 up to four times it."""


def hold_out(members: Sequence[Deviations]) -> tuple[float | None, tuple[str, ...]]:
    """Leave each member out of the bounds in turn.

    Only the member that strays furthest in a statistic can break a bound there, as the bounds of all others
    are made of it.

    Args:
        members: two or more, of the same n tensors.

    Returns:
        The smallest of :data:`FACTORS` under which every member passes the bounds of the others; None where
        none does, and then what fails under the largest, worst first.
    """
    strayed = np.stack([member.largest for member in members])
    furthest = strayed.argmax(axis=0)[np.newaxis]
    largest = np.take_along_axis(strayed, furthest, axis=0)[0]
    floor = np.take_along_axis(np.stack([member.floor for member in members]), furthest, axis=0)[0]
    np.put_along_axis(strayed, furthest, 0.0, axis=0)
    others = strayed.max(axis=0)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        needed = np.where(largest > floor, largest / others, 0.0)
    needed[~np.isfinite(largest)] = np.inf
    needed[np.any([member.uncountable for member in members], axis=0)] = np.inf
    most = float(needed.max(initial=0.0))
    factor = next((factor for factor in FACTORS if most <= factor), None)
    if factor is not None:
        return factor, ()
    bad = np.argwhere(needed > FACTORS[-1]).tolist()
    bad.sort(key=lambda cell: (-needed[tuple(cell)], -largest[tuple(cell)]))
    return None, tuple(
        f"{members[0].keys[row]} {MEASURABLE[column]} differs by {largest[row, column]:.2g} of its scale, "
        f"the others {f'{others[row, column]:.2g} at most' if others[row, column] else 'not at all'}"
        for row, column in bad
    )


_INPUT = "input"


def once(reason: str) -> Measured:
    """Return the noise of a test that ran once.

    Args:
        reason: why it did not run again, for the note; "" where nobody wanted that.
    """
    words = said("unknown whether the test is deterministic: {reason}", reason=reason)
    return Measured((), {REPEATS: Repeats(1).to_head()}, (words,) if reason else ())


def repeated(
    alike: Sequence[Deviations],
    *,
    filtered: bool = False,
    members: Sequence[Deviations] = (),
    calibration: Calibration | None = None,
    measurable: bool = True,
) -> Measured:
    """Return the noise of equal runs, or of a calibration's members.

    Args:
        alike: the later runs against the first in which nothing was varied, one or more; they need not have
            all of its tensors.
        filtered: whether some layers are not dumped.
        members: all of a calibration's runs.
        calibration: what is to be known of it; None without one.
        measurable: whether the test can be recorded and calibrated at once.
    """
    cells = columns_text(_noise(members or alike, alike))
    compared = np.all([run.compared for run in alike], axis=0)
    part = None if compared.all() else int(compared.sum())
    repeats = Repeats(1 + len(alike), culprits(alike, filtered=filtered), part)
    head = {REPEATS: repeats.to_head()}
    way_out, advice = "", tuple[str, ...]()
    if calibration is not None:
        head |= {CALIBRATION: calibration.to_head()}
        way_out = said("the measured tolerances allow for it")
    elif _beyond(alike, exact=False).any():
        way_out = said("later runs will fail")
        options = "--npudump-update-golden --npudump-update-golden=calibrate"
        measure = said("measure its tolerances with {options}", options=options)
        ways = measure if measurable else said("set tolerance rules")
        advice = (said("for later runs to pass, give the test a seed, or {ways}", ways=ways),)
    return Measured(cells, head, (*_repeat_notes(alike, repeats, way_out), *advice))


def _noise(members: Sequence[Deviations], alike: Sequence[Deviations]) -> list[Noise]:
    strayed = [np.where(member.differs[:, np.newaxis], member.largest, 0.0) for member in members]
    largest = np.max(strayed, axis=0)
    varies = np.any([member.differs for member in alike], axis=0)
    return [
        Noise((row[0], row[1], row[2], row[3]), differs, row[4])
        for row, differs in zip(largest.tolist(), varies.tolist(), strict=True)
    ]


def culprits(alike: Sequence[Deviations], *, filtered: bool = False) -> tuple[str, ...]:
    """Return the layers at which runs alike come apart, in the order of execution.

    The first layer that they disagree in is one, as the statistics of all before it agreed. So is any other
    that strays further than its tolerance while all of its inputs are dumped and agree. Where some layers are
    not dumped, one of these may be what the first got its values from: then its inputs have to agree as well.

    Args:
        alike: the later runs against the first.
        filtered: whether some layers are not dumped.
    """
    keys = [TensorKey.parse(key) for key in alike[0].keys]
    differs: NDArray[np.bool_] = np.any([run.differs for run in alike], axis=0)
    outside: NDArray[np.bool_] = np.any([run.outside for run in alike], axis=0)
    places = [replace(key, io="", slot=0) for key in keys]
    inputs: dict[TensorKey, bool] = {}
    for place, key, unlike in zip(places, keys, differs.tolist(), strict=True):
        if key.io == _INPUT:
            inputs[place] = inputs.get(place, True) and not unlike
    found = [
        key.layer
        for place, key, strays in zip(places, keys, (differs & outside).tolist(), strict=True)
        if strays and key.io != _INPUT and inputs.get(place, False)
    ]
    first = int(differs.argmax()) if differs.any() else None
    if first is not None and keys[first].io != _INPUT and inputs.get(places[first], not filtered):
        found.insert(0, keys[first].layer)
    order = {key.layer: row for row, key in reversed([*enumerate(keys)])}
    return tuple(sorted(dict.fromkeys(found), key=order.__getitem__))


def _beyond(alike: Sequence[Deviations], *, exact: bool) -> NDArray[np.bool_]:
    """Tensors, (n,), that stray by more than they may; of exact types, that stray at all."""
    found: NDArray[np.bool_] = np.any([run.differs & run.outside for run in alike], axis=0)
    return np.asarray(found & (alike[0].exact == exact))


def _repeat_notes(alike: Sequence[Deviations], repeats: Repeats, way_out: str) -> tuple[str, ...]:
    differs: NDArray[np.bool_] = np.any([run.differs for run in alike], axis=0)
    if not differs.any():
        return ()
    first = TensorKey.parse(alike[0].keys[int(differs.argmax())])
    if layers := first_of(repeats.not_deterministic):
        culprit = said("first seen at: {layers}", layers=layers)
    elif first.io == _INPUT:
        culprit = said("the inputs of the model already differ")
    else:
        culprit = said("first seen at {layer}, whose inputs are not dumped", layer=first.layer)
    beyond, exact = int(_beyond(alike, exact=False).sum()), int(_beyond(alike, exact=True).sum())
    parts = [said(", {beyond} of them by more than their tolerance", beyond=beyond) if beyond else ""]
    parts += [
        said(", {exact} of them of types that are otherwise compared exactly", exact=exact) if exact else ""
    ]
    note = said(
        "{count} of {total} tensors differ between {runs} equal runs{parts} "
        "({culprit}): their spread is in the golden's column noise; {way_out}",
        count=int(differs.sum()),
        total=len(differs),
        runs=repeats.runs,
        parts=joined("", parts),
        culprit=culprit,
        way_out=way_out or said("a run that differs as much counts as unchanged"),
    )
    return (note,)
