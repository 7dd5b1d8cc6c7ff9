"""The dump of a run: read, and cut to what the test asks for, with a reason where that is nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_npudump.config.cann import default_statistics
from pytest_npudump.dump.records import sanitise
from pytest_npudump.dump.selection import (
    asked_statistics,
    resolve_raw_names,
    select_layers,
    suggest,
    with_raw_names,
)
from pytest_npudump.errors import DumpError, EmptyDumpError
from pytest_npudump.golden.content.unwritten_entries import left_out_of
from pytest_npudump.regression.run.diagnose import explain_empty
from pytest_npudump.regression.run.unwritten import without

if TYPE_CHECKING:
    from pytest_npudump.dump.records import Dump
    from pytest_npudump.golden.content.text import Golden
    from pytest_npudump.regression.attempt import Attempt
    from pytest_npudump.regression.case import Case


def read_run(case: Case, attempt: Attempt) -> Dump:
    """Read the dump of a run that has ended.

    Raises:
        DumpError: it holds nothing; the message has the likely cause.
    """
    activity = case.runtime.activity
    try:
        dump = attempt.read(case.steps_of("reading the dump"))
    except DumpError as error:
        # Files that are no dump, such as MindSpore's own lists, say less than a runtime that knows the cause.
        seen = "" if isinstance(error, EmptyDumpError) and activity.likely_cause else str(error)
        raise DumpError(explain_empty(case.request, activity, attempt.dump_path, seen)) from error
    if not dump.records and not dump.problems:
        raise DumpError(explain_empty(case.request, activity, attempt.dump_path, ""))
    return dump


def collect(case: Case, attempt: Attempt, golden: Golden | None) -> Dump:
    """Read the dump and keep the layers asked for.

    Raises:
        DumpError: it holds nothing, or nothing that was asked for; the message has the likely cause.
    """
    dump = read_run(case, attempt)
    default = default_statistics(case.runtime.producer().get("soc", ""))
    selected = asked_statistics(select_layers(dump, case.request), case.request.dump_stats or default)
    if not selected.records and not dump.problems:
        names = ", ".join(map(repr, case.request.layers))
        hint = suggest(case.request.layers[0], (record.key.layer for record in dump.records))
        raise DumpError(f"the dump has none of the layers that the marker names ({names}); {hint}")
    if case.settings.update_golden:
        return _named(case, golden, selected)
    return selected


def without_unwritten(case: Case, dump: Dump, golden: Golden | None) -> Dump:
    """Leave out what the golden says nothing wrote, unless it has the tensor; an update finds out anew."""
    if golden is None or case.settings.update_golden:
        return dump
    return without(dump, left_out_of(golden, case.goldens.facts(case.runtime.producer())), golden.table.keys)


def raw_names(case: Case, golden: Golden | None, dump: Dump) -> dict[str, tuple[str, ...]]:
    """Return the raw names of a dump's layers by those of its files, as golden, marker and models tell them.

    Nothing is told where the dump has them already, or a model's file cannot be read any more.
    """
    try:
        return _resolved(case, golden, dump)
    except DumpError:
        return {}


def _named(case: Case, golden: Golden | None, dump: Dump) -> Dump:
    return with_raw_names(dump, _resolved(case, golden, dump))


def _resolved(case: Case, golden: Golden | None, dump: Dump) -> dict[str, tuple[str, ...]]:
    if dump.raw_names:
        return {}
    return resolve_raw_names(
        {sanitise(record.key.layer) for record in dump.records},
        request=case.request,
        golden_keys=golden.table.keys if golden else (),
        models=case.runtime.activity.models,
        tree=dump.root,
    )


def told_by_raw_names(case: Case, golden: Golden | None, dump: Dump) -> Dump:
    """Give the layers of a dump their raw names, as far as the golden and the test's models tell them."""
    return with_raw_names(dump, raw_names(case, golden, dump))


def unreadable(dump: Dump) -> tuple[str, ...]:
    """Return the problems of a dump in words."""
    return tuple(f"unreadable file in the dump: {problem}" for problem in dump.problems)
