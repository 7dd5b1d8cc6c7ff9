"""Kept results judged again, by the code that judged the runs: without a device, and without running."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pytest_npudump.compare.tolerances.numerics import UNKNOWN
from pytest_npudump.errors import GoldenError, NpudumpError
from pytest_npudump.golden.content.text import Golden, parse
from pytest_npudump.language.translation import mark, said
from pytest_npudump.record.record import OP_TYPES
from pytest_npudump.regression import outcome as status
from pytest_npudump.regression.first_run.judge_snapshot import judge_snapshot, without_golden
from pytest_npudump.regression.outcome import Outcome, Result
from pytest_npudump.report.result_json import result_json
from pytest_npudump.results.entry import SKIPPED, XFAILED, ResultsError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_npudump.compare.judge import Terms as JudgedBy
    from pytest_npudump.compare.tolerances.tolerance import Tolerances
    from pytest_npudump.golden.objects.tensor_store import TensorStore
    from pytest_npudump.record.record import Record
    from pytest_npudump.results.entry import Entry
    from pytest_npudump.results.folder import ResultsFolder
    from pytest_npudump.results.terms import Terms

GOOD, BAD, UNJUDGED, LEFT_OUT = mark("good"), mark("bad"), mark("unjudged"), mark("left out")
"""What a test means for a gate; tests that were skipped, or are expected to fail, are left out of it."""


@dataclass(frozen=True, slots=True)
class Rejudged:
    """A kept result, judged again.

    Attributes:
        entry: the result.
        result: what came of it; None where it stands as the run had it, or cannot be judged.
        word: what it means for a gate, one of the constants of this module.
        why: why it stands as it was, or cannot be judged; "" where it was judged.
    """

    entry: Entry
    result: Result | None
    word: str
    why: str = ""
    golden: Golden | None = None

    @property
    def is_doubtful(self) -> bool:
        """Whether its statistics agree, which does not make it pass."""
        return self.word == UNJUDGED and self.result is not None and self.result.good

    def told(self) -> dict[str, Any]:
        """Return what came of it in the form of a result of a run, for the line of a session."""
        if self.result is not None:
            told = result_json(self.result, None)
            return told | {"status": UNJUDGED} if self.is_doubtful else told
        data = self.entry.data
        if self.word == UNJUDGED and data["status"] in status.GOOD:
            data = {**data, "status": UNJUDGED}
        return {name: data[name] for name in ("test", "status", "runtime")} | {"notes": data["notes"]}


def rejudge(folder: ResultsFolder, entry: Entry, terms: Terms) -> Rejudged:
    """Judge one kept result.

    Args:
        folder: where it lies.
        entry: the result.
        terms: what it is judged by.
    """
    if entry.data["outcome"] == SKIPPED:
        return Rejudged(entry, None, LEFT_OUT, said("it was skipped"))
    if not entry.record_file:
        return _standing(entry)
    try:
        judging, goldens = terms.judging(entry), terms.goldens(entry)
        record = read_record(folder, entry)
        check_types(entry, judging.tolerances, record)
        golden = goldens.read_if_any()
        run = replace(run_of(record, entry), test=entry.test, path=goldens.path)
        outcome = _judged(judging, golden, run, entry, goldens.store)
    except NpudumpError as error:
        return Rejudged(entry, None, UNJUDGED, str(error))
    result = Result(terms.origin(entry), outcome, part=_whose(entry))
    word = {status.PASSED: GOOD, status.FAILED: BAD}.get(outcome.status, UNJUDGED)
    if entry.data["outcome"] == XFAILED:
        return Rejudged(entry, result, LEFT_OUT, said("it is expected to fail"), golden)
    if word == GOOD and (why := _doubt(entry, golden, terms)):
        return Rejudged(entry, result, UNJUDGED, why, golden)
    return Rejudged(entry, result, word, golden=golden)


def read_record(folder: ResultsFolder, entry: Entry) -> Golden:
    """Return a run's statistics as the golden they would be, with the types of operators.

    Raises:
        ResultsError: the record cannot be read.
    """
    path = folder.path / entry.record_file
    try:
        golden = parse(folder.record(entry).decode(), path)
    except (GoldenError, UnicodeDecodeError) as error:
        raise ResultsError(f"{path}: the record of {entry.test} is damaged: {error}; run it again") from error
    types = golden.blocks.get(OP_TYPES, "").split("\n")[:-1]
    if len(types) != len(golden.table):
        return golden
    named = tuple("" if name == UNKNOWN else name for name in types)
    return replace(golden, table=replace(golden.table, op_types=named))


def check_types(entry: Entry, tolerances: Tolerances, *records: Golden) -> None:
    """Refuse rules that ask for operators' types where kept runs tell none.

    A run that was recorded keeps types only where its own rules ask for them.

    Raises:
        ResultsError: none of the records tells any.
    """
    if tolerances.names_op_types and not any(any(record.table.op_types) for record in records):
        words = "a tolerance rule names op_type, and what was kept of its run tells no types of operators"
        raise ResultsError(f"{entry.test}: {words}: run it again")


def run_of(record: Record, entry: Entry) -> Record:
    """Return what a run left: its record, and what its entry tells of its reader."""
    told = entry.data["snapshot"] or {}
    return replace(
        record,
        file_names=bool(told.get("file_names")),
        problems=tuple(told.get("problems", ())),
        notes=tuple(told.get("notes", ())),
    )


def _judged(
    judging: JudgedBy, golden: Golden | None, snapshot: Record, entry: Entry, store: TensorStore
) -> Outcome:
    reference = entry.data["reference"]
    if golden is None and reference is not None:
        problems = (*entry.data["problems"], *_off_reference(reference))
        word = status.PASSED if reference["good"] and not problems else status.FAILED
        return Outcome(word, snapshot.path, problems=problems, tensors=len(snapshot.table))
    if golden is None:
        return without_golden(snapshot)
    outcome = judge_snapshot(judging, golden, snapshot, store=store)
    if reference is None or reference["good"]:
        return outcome
    found = _off_reference(reference) or tuple(entry.data["problems"])
    told = tuple(dict.fromkeys((*outcome.problems, *found)))
    return replace(outcome, status=status.FAILED, problems=told)


def _off_reference(reference: Mapping[str, Any]) -> tuple[str, ...]:
    """Say how far a run was off its reference; what prevented a comparison is among the run's problems."""
    if reference["good"] or not reference["failed"]:
        return ()
    words = (
        f"the run differed from the reference {reference['model']} in {reference['failed']} tensors, first "
        f"{reference['first']}: that stands, as it takes the tensors to judge it again"
    )
    return (words,)


def _doubt(entry: Entry, golden: Golden | None, terms: Terms) -> str:
    """Say why statistics that agree do not make a test pass; "" where they do."""
    data = entry.data
    if data["incomplete"] is not None:
        return said("its statistics agree, and its run was not complete: {why}", why=data["incomplete"])
    if not data["snapshot"]["has_tensors"] or golden is None:
        return ""
    if terms.changed or golden.digest != data["golden"]["sha256"]:
        return said("its statistics agree; the elements of its tensors, which were judged too, were not kept")
    if data["status"] not in status.GOOD:
        return said("its statistics agree; elements of its tensors did not, in the run")
    return ""


def _standing(entry: Entry) -> Rejudged:
    """Return a result that cannot be judged again, as there are no statistics of it."""
    why = (
        next(iter(entry.data["refusals"]), "")
        or entry.data["incomplete"]
        or said("there are no statistics of it")
    )
    if entry.data["outcome"] == XFAILED:
        return Rejudged(entry, None, LEFT_OUT, said("it is expected to fail"))
    word = GOOD if entry.status in status.GOOD else BAD if entry.status == status.FAILED else UNJUDGED
    if word == GOOD and entry.data["incomplete"] not in {None, "it was not compared"}:
        word = UNJUDGED
    return Rejudged(entry, None, word, f"as its run had it: {why}")


def _whose(entry: Entry) -> str:
    rank = entry.data["rank"]
    return str(entry.data["part"]) or ("" if rank is None else f"rank {rank}")
