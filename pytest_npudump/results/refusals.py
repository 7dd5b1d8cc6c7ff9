"""Why what was kept of a run cannot become its golden without running again, as far as the run tells."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_npudump.regression import outcome as status
from pytest_npudump.regression.case import Case, terms_of
from pytest_npudump.regression.run.snapshot import problems_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_npudump.regression.outcome import FirstRun, Result

_UPDATE = "approve with --npudump-update-golden"


def refusals_of(case: Case, result: Result, first: FirstRun) -> tuple[str, ...]:
    """Return the reasons, in words; nothing where the run may be approved by what was kept of it.

    Args:
        case: the test.
        result: what became of the test.
        first: the run that decided.
    """
    return tuple(_reasons(case, result, first))


def _reasons(case: Case, result: Result, first: FirstRun) -> Iterator[str]:
    outcome = result.outcome
    if first.snapshot is None:
        if outcome.status not in status.GOOD:
            yield _unseen(case, result)
        return
    yield from problems_of(terms_of(case), first.snapshot)
    if case.exchange is not None or first.part:
        yield f"several ranks or devices have one golden, of which one was kept: {_UPDATE}"
    if outcome.reference is not None and not outcome.reference.good:
        yield f"its layers are not shown to agree with the reference {outcome.reference.model.name}"
    if first.judged_with is None and first.snapshot.facts.get("device_target") == "CPU":
        yield f"which outputs MindSpore's CPU kernels leave unwritten takes runs of its own: {_UPDATE}"


def _unseen(case: Case, result: Result) -> str:
    scene = case.request.scene
    if scene not in {"model", "op"}:
        return f"the scene {scene} is judged without statistics of its own"
    return f"nothing was compared: {result.outcome.status}"
