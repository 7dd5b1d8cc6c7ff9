"""Choice between tensors and statistics for a golden where the test has none: small ones, at little time.

A recording runs the test with statistics. If its tensors fit a budget it runs with these too, and that run is
the one that is recorded, unless it took 1.3 times as long and a second more, and so did another. Its
statistics are kept in as many digits as a device prints, with rounded projections in a short column. What was
chosen stands in the golden, for all runs to come; an update does not choose anew.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

from pytest_npudump.config.acl_json import check_request
from pytest_npudump.config.cann import rules_version
from pytest_npudump.errors import ConfigError, said
from pytest_npudump.language.text import byte_size
from pytest_npudump.runtime.acl import AclJson

if TYPE_CHECKING:
    from pytest_npudump.regression.case import Case
    from pytest_npudump.regression.result import Result


_SLOWER, _SECONDS = 1.3, 1.0
"""A run with tensors may take this many times as long as one with statistics, and so many seconds more.

Tests that pass pay it in each run. The seconds are for what a process does once, such as imports.
"""


def may_take_tensors(case: Case, first: Result) -> bool:
    """Return whether a recorded run is tried with tensors, of models that the plugin itself has loaded."""
    return _bytes(first) <= case.settings.auto_tensors and _has_choice(case, first)


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
        said("recorded with tensors; for statistics only: acl_json={{'dump_data': 'stats'}}")
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
