"""What the members of a calibration differ by, and how many runs a test is measured by."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_npudump.onnxmodels.variation import INPUTS, OPTIMISATION, PLAIN, THREADS, Variation

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

_THREADS = 2


def variation_of(member: int, varies: Collection[str]) -> Variation:
    """Return what a member differs by.

    The first one is a mere repetition, which tells whether the test repeats. All others have their inputs
    perturbed; of each four, one runs on two threads, one optimised, and one is both.

    Args:
        member: from 1.
        varies: what of inputs, threads and optimisation the runtime can vary.
    """
    if member == 1:
        return PLAIN
    return Variation(
        seed=member if INPUTS in varies else None,
        threads=_THREADS if member % 2 and THREADS in varies else 1,
        optimised=member % 4 >= 2 and OPTIMISATION in varies,  # noqa: PLR2004 - two of four
    )


def varied_words(variations: Iterable[Variation]) -> tuple[str, ...]:
    """Return what differs between members, as a golden keeps it."""
    found = [*variations]
    words = {
        "repeats": any(one.plain for one in found),
        INPUTS: any(one.seed is not None for one in found),
        THREADS: any(one.threads > 1 for one in found),
        OPTIMISATION: any(one.optimised for one in found),
    }
    return tuple(word for word, there in words.items() if there)
