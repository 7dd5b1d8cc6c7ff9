"""Whose definitions the statistics of a run follow: this package's, or those of CANN's device code."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_npudump.compare.table import StatsTable
    from pytest_npudump.request import DumpRequest


def as_printed(request: DumpRequest, golden: StatsTable | None) -> bool:
    """Whether statistics that come by callback are computed as CANN's device code computes its own.

    They are where the golden has CANN's, printed with few digits: else a NaN in a first element, alignment
    behind a shape or a type that CANN computes nothing of would differ although the tensors are the same.

    Args:
        request: what the test asks for.
        golden: what the run is compared with; None where it is recorded.
    """
    return request.transport == "callback" and golden is not None and bool(golden.digits.any())
