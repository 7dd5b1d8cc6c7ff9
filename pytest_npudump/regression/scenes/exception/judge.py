"""Exceptions: a test fails if an operator failed on the device, also where its body passes over the error.

The runtime leaves a dump of the operator (``dump_scene: aic_err_...``). A healthy run leaves none, so a test
passes only where something shows that a model ran while the dump was on. There is no golden: a failed
operator cannot be approved.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_npudump.errors import DumpError, FormatError
from pytest_npudump.regression import outcome as status
from pytest_npudump.regression.outcome import Outcome
from pytest_npudump.regression.run.diagnose import ran_under_dump, why_unshown
from pytest_npudump.regression.scenes.exception.dump_paths import Found, dumps_of_others, find_dumps
from pytest_npudump.regression.scenes.exception.dumps import DETAIL, FailedOperator, from_name, with_content

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from pathlib import Path

    from pytest_npudump.regression.attempt import Attempt
    from pytest_npudump.regression.case import Case

_RENUMBERED = "ASCEND_RT_VISIBLE_DEVICES"
"""Devices that it renumbers have other numbers in a dump than in the program, or not."""
_FALLBACK = (
    "no core was written although dump_scene='aic_err_detail_dump' asks for one: the detail dump did not "
    "start on this device, and CANN fell back to aic_err_brief_dump"
)


def judge(case: Case, attempt: Attempt) -> Outcome:
    """Fail the test if an operator failed, or if nothing shows that the dump was on while a model ran."""
    outcome = examine(case, attempt)
    activity = case.runtime.activity
    if outcome.good and activity.evidence.failed:
        return replace(outcome, status=status.FAILED, problems=(_undumped(activity.evidence.failed),))
    if not outcome.good or ran_under_dump(activity):
        return outcome
    return Outcome(status.ERROR, None, problems=(f"no operator failed, and {why_unshown(case, attempt)}",))


def _undumped(calls: Sequence[str]) -> str:
    return (
        f"{' and '.join(calls)}, an error of the device, and yet no exception dump was left; look into the "
        f"CANN log for [Dump][Exception], and whether the disk is full"
    )


def examine(case: Case, attempt: Attempt | None) -> Outcome:
    """Return the operators that failed in the last run of a test, whatever became of its process.

    Nothing is raised: what cannot be read is a problem of the outcome. Without findings and problems the
    status is ``passed``, which says nothing of whether the dump was on.
    """
    failed: list[FailedOperator] = []
    problems: list[str] = []
    notes: list[str] = []
    try:
        for tree in find_dumps(attempt, os.environ) if attempt is not None else ():
            foreign = dumps_of_others(tree, _used_by_others(case))
            notes += [_left_out(tree, foreign)] if foreign else []
            found = tree.without(foreign)
            read, unreadable = _read(found)
            failed += read
            problems += unreadable
            notes += () if found.outside else found.tree.notes
    except (DumpError, OSError) as error:
        problems.append(f"the exception dumps cannot be looked for: {error}")
    findings = _grouped(failed)
    detail = case.request.dump_scene == "aic_err_detail_dump"
    if detail and findings and not any(one.kind == DETAIL for one in findings):
        notes.append(_FALLBACK)
    good = not findings and not problems
    return Outcome(
        status.PASSED if good else status.FAILED,
        None,
        problems=tuple(problems),
        notes=tuple(notes),
        tensors=sum(len(one.tensors) for one in findings),
        findings=findings,
    )


def _used_by_others(case: Case) -> Callable[[int], bool]:
    """Return what tells whether a device is another rank's; none is where nothing is known of that."""
    if case.exchange is None or os.environ.get(_RENUMBERED):
        return lambda _: False
    rank, given = case.exchange.rank, case.settings.device
    if given is not None:
        return lambda device: device != given
    return lambda device: device != rank.local and (device < rank.local_size or not rank.local_size)


def _left_out(found: Found, foreign: Collection[Path]) -> str:
    devices = ", ".join(sorted({path.relative_to(found.root).parts[0] for path in foreign}, key=int))
    return f"exception dumps of device {devices} in {found.root} are left to the ranks that use it"


def _read(found: Found) -> tuple[list[FailedOperator], list[str]]:
    """Read the dumps of a tree; one that is truncated still tells what its name does."""
    failed = []
    problems = [f"unreadable file in the exception dump: {error}" for error in found.tree.problems]
    seen: set[object] = set()
    for file in found.dumps:
        one = replace(from_name(file), capture=found.capture, outside=found.outside)
        first = one.identity not in seen
        seen.add(one.identity)
        try:
            one = with_content(one, tensors=first)
        except (DumpError, OSError) as error:
            reason = error if isinstance(error, FormatError) else f"{file.path}: {error}"
            problems.append(f"unreadable exception dump: {reason}")
        beside = tuple(path for path in found.others if path.parent == file.path.parent)
        failed.append(replace(one, attached=beside))
    return failed, problems


def _grouped(failed: Sequence[FailedOperator]) -> tuple[FailedOperator, ...]:
    """Return one finding an operator, the first of its dumps, in the order of time."""
    groups: dict[tuple[object, ...], FailedOperator] = {}
    for one in failed:
        first = groups.get(one.identity)
        groups[one.identity] = (
            one if first is None else replace(first, executions=first.executions + one.executions)
        )
    return tuple(groups.values())
