"""Checks of modules by a test: two runs are the same, or a device computes well."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_npudump.compare.judge import RUN, Terms, judge
from pytest_npudump.compare.tolerances.presets import OTHER, SAME
from pytest_npudump.compare.tolerances.rules import tolerances_for
from pytest_npudump.dump.table import StatsTable
from pytest_npudump.errors import ModuleMismatchError, RequestError
from pytest_npudump.explain.module_ratio import ModuleRatio, ratios, records_of
from pytest_npudump.explain.rounding import DEVICE, DTYPE
from pytest_npudump.language import mark
from pytest_npudump.plugin.marker import parse_marker
from pytest_npudump.record.record import Record
from pytest_npudump.report.verdicts import number, row as row_of, sentence, table, times
from pytest_npudump.runtime.modules.wrappers import unwrapped

if TYPE_CHECKING:
    from pytest_npudump.compare.correspondence import Correspondence
    from pytest_npudump.regression.session import CaseSession
    from pytest_npudump.runtime.modules.capture import Capture


_ROWS = 20
_SIDES = mark("first"), mark("second")
_COLUMNS = ("layer", "type", "tensor", "statistic", *_SIDES, "tolerance", "x tol")


def watch(test: CaseSession, model: object, *, golden: bool, **asked: Any) -> Any:
    """Watch the modules of a model; a capture of the same one that a fixture has begun ends.

    Raises:
        RequestError: it is no such model, has no module of a name, or the marker lacks scene='modules' here.
    """
    case, attempt = test.case, test.attempt
    if golden and case.runtime.name in {"emulator", "mindspore"}:
        raise RequestError(
            f"npu_dump.modules(): with the runtime {case.runtime.name} it needs the marker's scene='modules'"
        )
    for capture in [*attempt.captures]:
        if capture.model is unwrapped(model) and not capture.stopped:
            capture.stop()
            if not capture.steps:
                attempt.captures.remove(capture)
    capture = attempt.watch_modules(model, case.settings.dump_limit, golden=golden, **asked)
    capture.start()
    return capture


def same(
    test: CaseSession, one: Capture, other: Capture, names: Correspondence | None, **bounds: Any
) -> None:
    """Hold two captures against each other, execution by execution.

    Raises:
        ModuleMismatchError: a tensor is not the same; it names the first, and up to 20.
        RequestError: the bounds, or the names, are none, or the captures are one.
    """
    __tracebackhide__ = True
    if one is other:
        raise RequestError("npu_dump.same(): takes two captures, not one twice")
    if test.attempt.layers:  # of a second run, which dumps a part
        return
    for capture in (one, other):
        capture.stop()
        if not capture.steps:
            why = next(iter((*capture.problems, *capture.notes)), "")
            raise ModuleMismatchError(f"npu_dump.same(): nothing to compare of {capture.name}: {why}")
    case, records = test.case, [records_of(capture) for capture in (one, other)]
    asked = {name: value for name, value in bounds.items() if value is not None}
    try:
        request = parse_marker((), asked, case.request)
    except RequestError as error:
        raise RequestError(f"npu_dump.same(): {error}") from None
    tolerances = tolerances_for(request, case.settings, case.goldens.root or Path())
    elements = all(capture.tensors for capture in (one, other))
    sides = [
        replace(Record.of(StatsTable.from_records(some)), tensors=some if elements else ())
        for some in records
    ]
    terms = Terms(tolerances, case.settings.bounds, RUN, names=names)
    comparison = judge(sides[0], sides[1], terms)
    case.runtime.activity.evidence.notes += comparison.remarks
    if failing := comparison.failing:
        every = len(comparison.alignment.golden)
        words = (
            f"npu_dump.same(): {len(failing)} of {every} tensors differ; first: "
            f"{sentence(failing[0], sides=_SIDES)}"
        )
        rows = table([row_of(verdict, _SIDES) for verdict in failing[:_ROWS]], _COLUMNS)
        if comparison.tolerances.preset == SAME:
            rows.append(f'tolerance: preset {SAME}; set preset="{OTHER}" if only rounding differs')
        raise ModuleMismatchError("\n".join([words, *rows]))
    if comparison.nothing_judged:
        raise ModuleMismatchError("npu_dump.same(): the two share no finite statistic")
    test.attempt.compared += comparison.expected


def judged_ratios(
    test: CaseSession,
    device: Capture | Path,
    rounded: Capture | Path,
    exact: Capture | Path,
    names: Correspondence | None,
) -> tuple[ModuleRatio, ...]:
    """Return the three-tensor ratio of each module.

    Raises:
        ModuleMismatchError: the device computes a module wrongly, the first in the order of execution.
        RequestError: there are no tensors of all three.
    """
    __tracebackhide__ = True
    if test.attempt.layers:
        return ()
    found = ratios(device, rounded, exact, test.case.runtime.activity.evidence.notes, names)
    wrong = [one for one in found if one.whose == DEVICE]
    if not wrong:
        test.attempt.compared += sum(one.whose != DTYPE for one in found)
        return found
    counts = Counter(one.whose for one in found)
    first = wrong[0]
    words = (
        f"npu_dump.ratio(): rounding does not explain it: {first.key} ({first.op_type}): relative_l2 "
        f"error {number(first.device)}, {times(first.ratio)}x that of rounding on the CPU; {len(wrong)} of "
        f"{len(found)} tensors, {counts[DTYPE]} more lost to rounding"
    )
    rows = [
        (
            one.key.layer,
            one.op_type,
            str(one.key).rpartition(":")[2],
            number(one.rounding),
            number(one.device),
            times(one.ratio),
        )
        for one in wrong[:_ROWS]
    ]
    columns = ("layer", "type", "tensor", "rounding", "device", "ratio")
    raise ModuleMismatchError("\n".join([words, *table(rows, columns)]))
