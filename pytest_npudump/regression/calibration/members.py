"""What the members of a calibration differ by, and how many runs a test is measured by."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_npudump.onnxmodels.variation import PLAIN, Variation

if TYPE_CHECKING:
    from collections.abc import Iterable

_THREADS = 2


def variation_of(member: int, *, varies: bool) -> Variation:
    """Return what a member differs by.

    The first one is a mere repetition, which tells whether the test repeats. All others have their inputs
    perturbed; of each four, one runs on two threads, one optimised, and one is both.

    Args:
        member: from 1.
        varies: whether the runtime can vary anything.
    """
    if not varies or member == 1:
        return PLAIN
    return Variation(seed=member, threads=_THREADS if member % 2 else 1, optimised=member % 4 >= 2)  # noqa: PLR2004 - two of four


def varied_words(variations: Iterable[Variation]) -> tuple[str, ...]:
    """Return what differs between members, as a golden keeps it."""
    found = [*variations]
    words = {
        "repeats": any(one.plain for one in found),
        "inputs": any(one.seed is not None for one in found),
        "threads": any(one.threads > 1 for one in found),
        "optimisation": any(one.optimised for one in found),
    }
    return tuple(word for word, there in words.items() if there)
