"""The first run: which golden applies to it, and its dump recorded in that or compared with it.

Only what ran can settle which golden applies, and whether that is compared or written. An update of failing
tests compares first, and records the same dump where that fails. Where ranks share a golden, each rank of a
dump is compared with it, and what is recorded holds for all.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from pytest_npudump.compare.judge import seen_by
from pytest_npudump.compare.stats.alignment import under_golden_keys
from pytest_npudump.compare.stats.verdict import EXTRA
from pytest_npudump.dump.table import StatsTable
from pytest_npudump.errors import DumpError, GoldenError, said
from pytest_npudump.golden.variants import Goldens, names_variants, not_calibrated, not_recorded
from pytest_npudump.language.text import first_of
from pytest_npudump.onnxmodels.graph import drawing_words
from pytest_npudump.record.record import EDGES, MODELS, Record
from pytest_npudump.regression import result as status
from pytest_npudump.regression.case import Case, known_edges, terms_of
from pytest_npudump.regression.dataflow import (
    edges_to_keep,
    layers_to_keep,
    models_to_keep,
    same_layers,
    with_inherited,
)
from pytest_npudump.regression.diagnose import full_words, notes_of
from pytest_npudump.regression.judgement import (
    judge_run,
    models_between,
    with_reference,
    with_sources_off_reference,
    without_golden,
)
from pytest_npudump.regression.result import KeptLayers, Result, Run
from pytest_npudump.regression.run_plan import further_runs
from pytest_npudump.regression.run_record import (
    by_rank,
    collect,
    drawing_alike,
    golden_to_start_from,
    problems_of,
    problems_of_dump,
    record,
    record_of_run,
    told_by_raw_names,
    without_unwritten,
)
from pytest_npudump.regression.scenes import scene_module
from pytest_npudump.scene import SCENES
from pytest_npudump.settings import ALL, FAILED, NEW

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_npudump.compare.tolerances.tolerance import Tolerances
    from pytest_npudump.dump.records import Dump
    from pytest_npudump.regression.attempt import Attempt


_FEW = 8
_KEEPING = (status.PENDING, status.FAILED, status.MISSING_GOLDEN)


def judge(case: Case, attempt: Attempt) -> Result:
    """Read the dump of a first run, and record it, compare it or have its scene judge it.

    Whatever cannot be read or decided is an outcome that fails the test, never an exception.
    """
    undumped = tuple(case.runtime.activity.evidence.undumped)
    failed = Result(status.ERROR, case.goldens.path, problems=undumped)
    first = failed if undumped else _judged(case, attempt)
    # What has passed has all that the golden lists.
    full = full_words(case.directory) if first.status != status.PASSED else ""
    told = "\n".join(first.problems)
    notes = [note for note in (*notes_of(case), full) if note and note not in told]
    return replace(first, notes=(*first.notes, *notes))


def _judged(case: Case, attempt: Attempt) -> Result:
    if not SCENES[case.request.scene].statistics:
        result: Result = scene_module(case.request.scene).judge(case, attempt)
        return result
    try:
        golden = golden_to_start_from(case)
        if golden is None and case.runtime.name == "modules" and attempt.judged_by_test:
            return Result(status.PASSED, None, tensors=attempt.compared)
        dump = collect(case, attempt, golden)
        written = without_unwritten(case, dump, golden)
        dump = written if case.settings.update_golden else dump
        table = StatsTable.from_records(dump.records)
    except (DumpError, GoldenError) as error:
        return Result(status.ERROR, case.goldens.path, problems=(str(error),))
    reference = case.reference
    compared = reference.judge(written.records, case.request) if reference is not None else None
    if case.settings.update_golden and compared is not None and not compared.good:
        problem = said(
            "nothing was recorded: layers mismatch the reference {model}; to record them anyway, remove "
            "reference= from the marker or give it a tolerance",
            model=compared.model.name,
        )
        first = Result(
            status.FAILED, case.goldens.path, problems=(problem,), tensors=len(table), run=Run(dump)
        )
        return with_reference(first, compared)
    parts = by_rank(dump) if case.request.ranks == "same" else {}
    if len(parts) > 1 and case.settings.calibrate:
        problem = said(
            "not calibrated: {parts} share a golden, of which only one can be measured",
            parts=", ".join(parts),
        )
        first = Result(
            status.ERROR, case.goldens.path, problems=(problem,), tensors=len(table), run=Run(dump)
        )
        return with_reference(first, compared)
    try:
        if len(parts) > 1:  # several ranks that share a golden
            first = _judge_parts(case, golden, parts)
        else:
            first = (_record if case.settings.update_golden else _compare)(case, golden, dump, table)
        first = with_reference(first, compared)
        first = with_sources_off_reference(case, golden, dump, table, first)
        return first.with_run(kept=_kept(case, golden, first))
    except GoldenError as error:
        if case.settings.update_golden:
            raise
        return Result(status.ERROR, case.goldens.path, problems=(str(error),), run=Run(dump))


def _kept(case: Case, golden: Record | None, first: Result) -> KeptLayers | None:
    """Return the layers whose tensors are to be kept of a run that is recorded, or that may be approved."""
    if first.run.dump is None or not case.request.golden_tensors or first.status not in _KEEPING:
        return None
    kept = layers_to_keep(case, golden, first.run.dump)
    if first.run.record is None or first.run.golden is None or first.status == status.PENDING:
        return kept
    run, _ = seen_by(first.run.golden, first.run.record, terms_of(case))
    return with_inherited(case, first.run.golden, kept, run.table)


def _shared(case: Case, table: StatsTable) -> Result | None:
    """Judge an update by the golden that all ranks share, which rank 0 records if it holds for each.

    Args:
        case: the test.
        table: what this rank would record.

    Returns:
        What came of the test on a rank that records nothing; None on the one that does.
    """
    exchange = case.exchange
    if exchange is None or case.request.ranks != "same":
        return None
    from pytest_npudump.ranks.agreement import nothing_recorded, stand_aside, why_not_shared  # noqa: PLC0415 - of ranks only

    try:
        alone = exchange.rank.spans_machines
        why = "" if alone else why_not_shared(exchange, case.nodeid, table, case.tolerances)
    except GoldenError as error:
        why = f"the statistics of the ranks cannot be compared: {error}"
        stand_aside(exchange, case.nodeid, why)
    if why:
        problems = (nothing_recorded(why),)
        return Result(status.ERROR, case.goldens.path, problems=problems, tensors=len(table))
    if exchange.rank.number == 0:
        return None
    held = "it was not compared with this rank's values" if alone else "it holds for this rank"
    note = f"{exchange.rank}: rank 0 records the golden that all ranks share; {held}"
    return Result(status.UNCHANGED, case.goldens.path, notes=(note,), tensors=len(table))


def _judge_parts(case: Case, golden: Record | None, parts: Mapping[str, Dump]) -> Result:
    """Judge each rank, or device, of a dump by the golden they share; the first that fails is reported.

    Args:
        case: the test.
        golden: the shared golden; None where there is none.
        parts: the dump of each, by name.

    Raises:
        GoldenError: the golden's tensors cannot be read.
    """
    if case.settings.update_golden:
        from pytest_npudump.ranks.agreement import differing, nothing_recorded  # noqa: PLC0415 - of ranks only

        # The first rank is recorded, if every other one passes a comparison with it.
        (name, dump), *others = parts.items()
        table = StatsTable.from_records(dump.records)
        for other, of_other in others:
            why = differing(other, name, table, StatsTable.from_records(of_other.records), case.tolerances)
            if why:
                problems = (nothing_recorded(why),)
                return Result(status.ERROR, case.goldens.path, problems=problems, tensors=len(table))
        return replace(_record(case, golden, dump, table), part=name)
    runs = {
        name: _compare(case, golden, dump, StatsTable.from_records(dump.records))
        for name, dump in parts.items()
    }
    bad = [name for name, run in runs.items() if not run.good]
    compared = {name: run.comparison for name, run in runs.items()}
    changed = [name for name, comparison in compared.items() if comparison is not None and comparison.changed]
    shown = (bad or changed or [*runs])[0]
    among = f"of {len(parts)} compared with one golden"
    note = (
        f"mismatches in {first_of(bad, _FEW)}, {among}; shown is {shown}"
        if bad
        else f"no mismatch in any {among}"
    )
    return replace(runs[shown], notes=(note, *runs[shown].notes), part=shown)


def _compare(case: Case, golden: Record | None, dump: Dump, table: StatsTable) -> Result:
    run, terms, rewired = record_of_run(case, golden, dump, table), terms_of(case), False
    if golden is None and case.reference is not None:
        problems, path = problems_of(terms, run), case.goldens.path
        heard = said(
            "there is no golden {path}: the layers were compared with the reference only", path=path.name
        )
        word = status.FAILED if problems else status.PASSED
        outcome = Result(word, path, problems=problems, notes=(*dump.notes, heard), tensors=len(table))
    elif golden is None:
        outcome = without_golden(run, *problems_of(terms, run))
    else:
        at_hand = partial(known_edges, case, dump.root)
        store, of_rank = case.goldens.store, case.exchange is not None
        outcome = judge_run(
            terms, golden, run, store=store, at_hand=at_hand, of_rank=of_rank, dumped=dump.records
        )
        # Weights are read where they may have changed: of other numerics, passing tensors differ anyhow.
        same = outcome.numerics is not None and outcome.numerics.same
        moved = same and outcome.comparison is not None and outcome.comparison.changed
        asked = (outcome.failing_keys or moved) and MODELS in golden.blocks
        if (asked or not outcome.good) and MODELS not in run.blocks:
            run = replace(run, blocks={**run.blocks, **models_to_keep(case, golden, dump)})
            outcome = replace(outcome, models=models_between(terms, golden, run)) if asked else outcome
        rewired = outcome.models is not None and bool(outcome.models.reconnected)
    if golden is not None and outcome.good and not rewired and same_layers(golden.table, run.table):
        edges: Mapping[str, str] = {EDGES: golden.blocks[EDGES]} if EDGES in golden.blocks else {}
    else:  # of a run that may take the golden's place
        edges, _ = edges_to_keep(case, None, dump, run.table)
    run = replace(run, blocks={**run.blocks, **edges})
    comparison, dump = outcome.comparison, without_unwritten(case, dump, golden)
    if comparison is not None and (comparison.count(EXTRA) or comparison.own_keys):
        dump = told_by_raw_names(case, golden, dump)  # the golden knows no raw names for what is new
        dump = replace(dump, records=under_golden_keys(dump.records, comparison.own_keys))
    further = case.settings.calibrate if comparison is not None and outcome.good else 0
    return replace(outcome, run=Run(dump, run, golden, to_measure=further))


def _record(case: Case, golden: Record | None, dump: Dump, table: StatsTable) -> Result:
    path, count = case.goldens.path, len(table)
    run = replace(Record.of(table), problems=problems_of_dump(case, dump))
    if problems := problems_of(terms_of(case), run):
        return Result(status.ERROR, path, problems=problems, tensors=count, run=Run(dump))
    if (outcome := _shared(case, table)) is not None:
        return outcome.with_run(dump=dump)
    tensors = bool(case.request.golden_tensors)
    needing = said("the golden tensors need") if tensors else said("it needs")
    waiting = said("nothing was recorded: {needing} a second run, which did not take place", needing=needing)
    models = models_to_keep(case, golden, dump).get(MODELS, "")
    first = Result(status.PENDING, path, problems=(waiting,), tensors=count, run=Run(dump, models=models))
    if tensors and case.settings.calibrate:
        problem = said(
            "not calibrated: {needing} a run of its own; record first, then calibrate",
            needing=needing,
        )
        return replace(first, status=status.ERROR, problems=(problem,))
    if tensors:
        return first
    further = further_runs(case)
    alike = drawing_alike(case, dump) if further else ()
    if further and (case.settings.calibrate or not alike):
        return first.with_run(to_measure=further)
    from pytest_npudump.regression.calibration import once  # noqa: PLC0415 - a run that is recorded

    reason = said("{words}, alike in all runs of one process", words=drawing_words(alike)) if further else ""
    return record(case, golden, first, table, measured=once(reason))


@dataclass(frozen=True, slots=True)
class Settled:
    """Decisions behind the first run of a test.

    Attributes:
        goldens: its golden files, with the variant that applies.
        update_golden: "all" where the run is recorded, "" where it is compared.
        tolerances: with the rules for a run of this producer.
    """

    goldens: Goldens
    update_golden: str
    tolerances: Tolerances

    def applied(self, case: Case) -> Case:
        """Return the case with what was settled."""
        settings = case.settings._replace(update_golden=self.update_golden)
        return replace(case, goldens=self.goldens, settings=settings, tolerances=self.tolerances)


def judge_settled(case: Case, attempt: Attempt) -> tuple[Result, Settled]:
    """Settle the terms of a first run, and judge it.

    Args:
        case: the test.
        attempt: its run, which has ended.
    """
    mode, facts = case.settings.update_golden, case.goldens.facts(case.runtime.producer())
    case = replace(case, tolerances=case.tolerances.for_run(facts))
    if case.reference is not None:
        case.reference.settle(facts)
    try:
        case = replace(case, goldens=case.goldens.for_run(facts))
    except GoldenError as error:
        if mode != ALL or names_variants(case.goldens.common):
            return _error(case, str(error))
    if mode in {FAILED, NEW} and case.exchange is not None:
        problem = said("--npudump-update-golden={mode} is for one process, and this run has ranks", mode=mode)
        return _error(
            case,
            said(
                "{problem}: accept with --npudump-update-golden, some tests by their names", problem=problem
            ),
        )
    if mode == NEW:
        mode = ""
        with suppress(GoldenError):  # of one that cannot be read the comparison says what is wrong with it
            mode = ALL if case.goldens.read_if_any() is None else ""
    if problem := _unwritable(case, mode, facts):
        return _error(case, problem)
    settled = Settled(case.goldens, "" if mode == FAILED else mode, case.tolerances)
    first = judge(settled.applied(case), attempt)
    if mode != FAILED or first.status != status.FAILED:
        return first, settled
    if problem := _unwritable(case, ALL, facts):
        return replace(first, notes=(*first.notes, problem)), settled
    settled, why = replace(settled, update_golden=ALL), _why(first)
    first = judge(settled.applied(case), attempt)
    return replace(first, notes=(why, *first.notes)), settled


def _unwritable(case: Case, mode: str, facts: Mapping[str, str]) -> str:
    if mode == ALL:
        return case.goldens.unrecordable or not_recorded(case.goldens, facts)
    return case.goldens.unrecordable or not_calibrated(case.goldens, facts) if case.settings.calibrate else ""


def _why(outcome: Result) -> str:
    if (comparison := outcome.comparison) is not None and comparison.first is not None:
        words = said(
            "{count} of {expected} tensors, first {key}",
            count=len(comparison.mismatches),
            expected=comparison.expected,
            key=comparison.first.key,
        )
    else:
        words = next(iter(outcome.problems), said("the reference or the scene"))
    return said("the golden was rewritten because of mismatches: {words}", words=words)


def _error(case: Case, problem: str) -> tuple[Result, Settled]:
    result = Result(status.ERROR, case.goldens.path, problems=(problem,))
    return result, Settled(case.goldens, "", case.tolerances)
