"""What the runs behind the first come to: a golden that knows its noise, or the reason why there is none."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_npudump.compare.stats.blind_bounds import blind_keys, describe_blind
from pytest_npudump.compare.stats.first_divergence import GRAPH_INPUT
from pytest_npudump.compare.tolerances.calibrated import Calibrated
from pytest_npudump.dump.table import StatsTable, sanitised_key
from pytest_npudump.errors import GoldenError
from pytest_npudump.golden.content.noise import CALIBRATION, FACTOR
from pytest_npudump.language.excerpt import first_of
from pytest_npudump.regression import outcome as status
from pytest_npudump.regression.calibration.held_out import FACTORS, hold_out
from pytest_npudump.regression.calibration.members import varied_words
from pytest_npudump.regression.calibration.series import fed_words
from pytest_npudump.regression.measured_noise import calibrated, once, repeated
from pytest_npudump.regression.record import golden_to_start_from, record
from pytest_npudump.regression.reference_outcome import with_reference
from pytest_npudump.runtime.base import VaryingRuntime

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_npudump.regression.calibration.held_out import HeldOut
    from pytest_npudump.regression.calibration.series import Member
    from pytest_npudump.regression.case import Case
    from pytest_npudump.regression.measured_noise import Measured
    from pytest_npudump.regression.outcome import FirstRun


def unmeasured(case: Case, first: FirstRun, reason: str) -> FirstRun:
    """Return the first run where it is the only one: recorded with that said, or not calibrated.

    Args:
        case: the test.
        first: its run.
        reason: why there is no other one.
    """
    if case.settings.calibrate:
        return unrecorded(first, f"not calibrated: {reason}")
    return _recorded(case, first, once(reason))


def conclude(case: Case, first: FirstRun, members: Sequence[Member]) -> FirstRun:
    """Return the first run with the outcome of all: recorded, calibrated, or neither, with the reason.

    Args:
        case: the test.
        first: its first run, which is recorded or compared with a golden.
        members: all others.
    """
    alike = [member.strayed for member in members if member.variation.plain]
    if problem := _fed_otherwise(first, members):
        return unrecorded(first, f"not calibrated: {problem}" if case.settings.calibrate else problem)
    if not case.settings.calibrate:
        return _recorded(case, first, repeated(alike, filtered=bool(case.request.layers)))
    strayed = [member.strayed for member in members]
    held = hold_out(strayed)
    if held.factor is None:
        return unrecorded(first, _not_calibrated(held))
    varied = varied_words(member.variation for member in members)
    measured = calibrated(strayed, alike, held.factor, varied, filtered=bool(case.request.layers))
    notes = (*_told(members, held, varied), *_not_varied(case, members, varied), *measured.notes)
    measured = replace(measured, notes=notes)
    if first.outcome.status == status.PENDING:
        return _recorded(case, first, measured)
    return _calibrated(case, first, measured)


def _fed_otherwise(first: FirstRun, members: Sequence[Member]) -> str:
    """Say which inputs of a model differ between runs by more than their tolerance; "" for none.

    What follows from these is no noise, and bounds made of it would hide faults. An input that differs
    between runs alike, in whose dumps nothing differs, is of no account where no dump differs: nothing dumped
    may depend on it.
    """
    records = first.dump.records if first.dump is not None else ()
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


def unrecorded(first: FirstRun, problem: str) -> FirstRun:
    """Return the first run where nothing is recorded, and nothing calibrated, for this problem."""
    outcome = first.outcome
    pending = outcome.status == status.PENDING
    word, lost = (status.PENDING, "nothing was recorded: ") if pending else (status.ERROR, "")
    return replace(first, outcome=replace(outcome, status=word, problems=(f"{lost}{problem}",)))


def _not_calibrated(held: HeldOut) -> str:
    shown = first_of(held.sensitive, separator="; ")
    return (
        f"not calibrated: bounds made from all members but one do not hold for that one, even with factor "
        f"{FACTORS[-1]:g}. Most sensitive: {shown}. Take more members, give these layers a rule of their "
        f"own, or leave them out with layers"
    )


def _told(members: Sequence[Member], held: HeldOut, varied: tuple[str, ...]) -> tuple[str, ...]:
    notes = [f"calibrated with {len(members)} members, varied: {', '.join(varied)}; factor {held.factor:g}"]
    if held.factor != FACTOR:
        notes[0] += f", raised from {FACTOR:g} as members that were held out did not pass with less"
    return tuple(notes)


def _not_varied(case: Case, members: Sequence[Member], varied: tuple[str, ...]) -> Iterator[str]:
    """Say which inputs stayed as they were, and why."""
    if varied == ("repeats",):
        yield (
            f"only repetitions were measured, as {_why_only_repeated(case)}: of a device that repeats "
            f"exactly these bounds hold no noise"
        )
    kept = sorted({name for member in members for name in member.unperturbed})
    if kept:
        yield f"not perturbed, as they hold no floating-point values: inputs {', '.join(kept)}"
    unreached = sorted({name for member in members for name in member.unreached})
    if unreached:
        yield f"not perturbed, as they cannot be changed where they lie: inputs {', '.join(unreached)}"


def _why_only_repeated(case: Case) -> str:
    if case.request.scene != "model":
        return f"what scene={case.request.scene!r} runs is fed out of reach of the plugin"
    if case.runtime.activity.programs:
        return "programs of npu_dump.run() feed their models themselves, out of reach of the plugin"
    if not isinstance(case.runtime, VaryingRuntime):
        return f"the runtime {case.runtime.name} can vary nothing"
    return f"the plugin saw no input with floating-point values ({case.runtime.seen_as_inputs})"


def _recorded(case: Case, first: FirstRun, measured: Measured) -> FirstRun:
    table = StatsTable.from_records(first.dump.records if first.dump is not None else ())
    outcome = record(case, golden_to_start_from(case), first, table, measured=measured)
    blind = _blind_notes(case, measured, measured.on(table))
    outcome = replace(outcome, notes=first.outcome.notes + outcome.notes + blind)
    return replace(first, outcome=with_reference(outcome, first.outcome.reference))


def _calibrated(case: Case, first: FirstRun, measured: Measured) -> FirstRun:
    """Put the column and its keys into the golden that the first run agrees with."""
    try:
        golden = golden_to_start_from(case)
        assert golden is not None  # noqa: S101 - the first run was compared with it
        recording = case.goldens.calibrate(golden, measured.cells, measured.head)
    except GoldenError as error:
        return unrecorded(first, f"not calibrated: {error}")
    notes = (*measured.notes, *_change_notes(first), *_blind_notes(case, measured, golden.table))
    outcome = replace(first.outcome, notes=first.outcome.notes + notes, recording=recording)
    return replace(first, outcome=outcome)


def _change_notes(first: FirstRun) -> tuple[str, ...]:
    """Say that what lies between the golden and the run that was calibrated is no noise."""
    comparison = first.outcome.comparison
    if comparison is None or not comparison.changed:
        return ()
    note = (
        f"measured around this run, in which {comparison.changed} tensors changed within tolerance (first "
        f"{comparison.first_within}): the measured bounds allow for none of that change"
    )
    return (note,)


def _blind_notes(case: Case, measured: Measured, table: StatsTable) -> tuple[str, ...]:
    """Name the tensors of which the measured bounds see nothing."""
    calibration = measured.head.get(CALIBRATION)
    factor = FACTOR if calibration is None else calibration["factor"]
    bounds = Calibrated.of(
        table.keys, measured.cells, factor=factor, source="measured", widens=calibration is not None
    )
    blind = describe_blind(blind_keys(table, case.tolerances.with_measured(bounds)))
    return (blind,) if blind else ()
