"""What the comparison with the reference does to the outcome of a test."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_npudump.regression import outcome as status
from pytest_npudump.regression.outcome import Outcome

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_npudump.reference.result import ReferenceResult


def with_reference(outcome: Outcome, result: ReferenceResult | None) -> Outcome:
    """Return ``outcome`` with what the comparison with the reference says: both must hold.

    Args:
        outcome: of the comparison with the golden, or of its recording.
        result: None where the test names no reference.
    """
    if result is None:
        return outcome
    failed = outcome.good and not result.good
    return replace(
        outcome,
        status=status.FAILED if failed else outcome.status,
        problems=outcome.problems + result.problems,
        notes=outcome.notes + result.notes,
        reference=result,
    )


def by_reference_alone(
    path: Path, *, tensors: int, problems: tuple[str, ...], notes: tuple[str, ...]
) -> Outcome:
    """Return the outcome of a test without a golden, before its reference is heard.

    Args:
        path: where the golden would be.
        tensors: number of tensors that were dumped and selected.
        problems: what is wrong with the dump; any of them fails the test.
        notes: of the dump's reader.
    """
    said = f"there is no golden {path.name}: the layers were compared with the reference only"
    word = status.FAILED if problems else status.PASSED
    return Outcome(word, path, problems=problems, notes=(*notes, said), tensors=tensors)


def not_recorded(path: Path, result: ReferenceResult, *, tensors: int) -> Outcome:
    """Return the outcome of an update whose layers differ from the reference: nothing is approved."""
    problem = (
        f"nothing was recorded: the layers are not shown to agree with the reference {result.model.name}; "
        f"to record them all the same, take reference out of the marker or give it the tolerance"
    )
    outcome = Outcome(status.FAILED, path, problems=(problem,), tensors=tensors)
    return with_reference(outcome, result)
