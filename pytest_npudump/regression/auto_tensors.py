"""Whether a golden is recorded of tensors where the test leaves it open: small ones, that take little longer.

A recording runs the test with statistics. If its tensors fit a budget it runs with these too, and a run that
took at most twice as long is the one that is recorded. What was chosen stands in the golden, for all runs to
come.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_npudump.config.acl_json import check_request
from pytest_npudump.config.cann import rules_version
from pytest_npudump.errors import ConfigError, said
from pytest_npudump.runtime.acl import AclJson

if TYPE_CHECKING:
    from pytest_npudump.regression.case import Case
    from pytest_npudump.regression.result import Result


_SLOWER = 2.0
"""How much longer a run with tensors may take."""


def may_take_tensors(case: Case, first: Result) -> bool:
    """Whether a run that is recorded is tried with tensors, of models that the plugin itself has loaded."""
    request, activity, dump = case.request, case.runtime.activity, first.run.dump
    plain = request.scene == "model" and request.dump_data is None and not request.dump_stats
    own = isinstance(case.runtime, AclJson) and bool(activity.models)
    elsewhere = activity.released or activity.programs or case.isolated or case.exchange is not None
    if not (plain and own) or elsewhere or case.settings.calibrate or dump is None:
        return False
    if sum(record.size or 0 for record in dump.records) > case.settings.auto_tensors:
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


def decided(times: tuple[float, float], first: Result, tried: Result) -> tuple[bool, Result]:
    """Decide by how long runs took; return whether tensors were chosen, and the run to record, which says so.

    Args:
        times: seconds with statistics, and with tensors.
        first: the run with statistics.
        tried: the run with tensors.
    """
    ratio = times[1] / max(times[0], 1e-6)
    takes = ratio <= _SLOWER and tried.run.to_measure > 0
    size = sum(record.size or 0 for record in first.run.records) / (1 << 20)
    told, times_as_long = f"{size:.3g} MiB", f"{ratio:.1f}"
    words = (
        said(
            "recorded of tensors: {size} a run, {ratio} times as long as statistics",
            size=told,
            ratio=times_as_long,
        )
        if takes
        else said(
            "recorded of statistics: tensors ({size} a run) take {ratio} times as long",
            size=told,
            ratio=times_as_long,
        )
    )
    found = tried if takes else first
    dump = found.run.dump
    return takes, found if dump is None else found.with_run(dump=replace(dump, notes=(*dump.notes, words)))
