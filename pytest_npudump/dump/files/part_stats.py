"""Statistics of one tensor of a file, computed where its producer gave none."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

from pytest_npudump.dump.arrays.decode import DecodeError, why_opaque
from pytest_npudump.dump.execution import with_projections_of
from pytest_npudump.dump.stats.tensor import payload_stats
from pytest_npudump.dump.values.dtypes import BY_NAME
from pytest_npudump.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pytest_npudump.dump.execution import TensorPart
    from pytest_npudump.dump.records import Payload, Stats


def with_stats(
    part: TensorPart, path: Path, statistics: Callable[[TensorPart], Stats | None]
) -> tuple[TensorPart, list[FormatError]]:
    """Compute the statistics of one tensor; a note says why there are none, a problem what is damaged."""
    if part.payload is None or part.shape is None:
        return part, []
    try:
        found = statistics(part)
    except DecodeError as error:
        problem = FormatError(path, f"{part.io} {part.slot}: {error}", offset=part.payload.offset)
        return part._replace(note=str(error)), [problem]
    if found is None:
        why = why_opaque(part.dtype) or f"CANN computes no statistics for {part.dtype}"
        return part._replace(note=part.note or why), []
    return part._replace(stats=found), []


def file_stats(part: TensorPart, *, acl: bool, projections: bool) -> Stats | None:
    """Compute the statistics of a tensor that has bytes, with projections or not; None for types without.

    Raises:
        DecodeError: the bytes are too few.
    """
    assert part.payload is not None  # noqa: S101 - asked only for tensors with bytes
    own = (part.payload, part.dtype, prod(part.shape or ()))
    if not acl:
        return payload_stats(*own, projections=projections)
    payload, count = _extent(part.payload, part)
    found = payload_stats(payload, part.dtype, count, acl=True)
    if found is None or not projections:
        return found
    # Alignment behind the shape, which the device takes for elements, is none of the tensor's.
    return with_projections_of(found, payload_stats(*own, projections=True))


def _extent(payload: Payload, part: TensorPart) -> tuple[Payload, int]:
    """Return the bytes that CANN's device code takes for the tensor: all of ``size``, alignment included."""
    bits = BY_NAME[part.dtype].bits if part.dtype in BY_NAME else 0
    if payload.kind != "raw" or not part.size or bits < 8 or part.size <= payload.nbytes:  # noqa: PLR2004 - a byte
        return payload, prod(part.shape or ())
    return replace(payload, nbytes=part.size), part.size * 8 // bits
