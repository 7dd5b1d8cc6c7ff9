"""Statistics and projections of one tensor while its bytes arrive, of which one piece at most is held."""

from __future__ import annotations

import math
from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pytest_npudump.dump.bytes.chunks import CHUNK_BYTES
from pytest_npudump.dump.stats.accumulators import is_packed, raw_accumulator
from pytest_npudump.dump.stats.projected import Projected
from pytest_npudump.dump.stats.projections import raw_projector
from pytest_npudump.dump.stats.tensor import ACL_TYPES, as_device
from pytest_npudump.dump.values.dtypes import BY_NAME

if TYPE_CHECKING:
    from pytest_npudump.dump.records import Stats


@dataclass(frozen=True, slots=True)
class TensorResult:
    """The statistics of a tensor that has arrived.

    Attributes:
        stats: of the elements of its shape, with projections.
        device: with the quirks of CANN's device-side writer, which takes all bytes for elements, alignment
            behind the shape included; None for types it computes nothing of.
    """

    stats: Stats
    device: Stats | None


class TensorStream:
    """Takes the bytes of a tensor in order, cut anywhere, and keeps those of one piece at most.

    The pieces that statistics are made of are those of a file's tensor, so that both come out the same,
    bit for bit.

    Args:
        dtype: its type, one with values.
        count: elements of its shape.
        size: bytes that will arrive; at least those of the shape, what is behind them is alignment.
    """

    def __init__(self, dtype: str, count: int, size: int) -> None:
        bits = BY_NAME[dtype].bits
        self._running = Projected(raw_accumulator(dtype, count), raw_projector(dtype, count))
        itemsize = 1 if is_packed(dtype) else bits // 8
        self._limit = CHUNK_BYTES - CHUNK_BYTES % itemsize
        self._shape_end = (count * bits + 7) // 8
        self._is_acl = dtype in ACL_TYPES
        self._end = max(size - size % itemsize, self._shape_end) if self._is_acl else self._shape_end
        self._buffer = np.empty(0, np.uint8)
        self._at = self._filled = 0
        self._nan_first: bool | None = None
        self._stats: Stats | None = None
        if not self._shape_end:
            self._finish_shape()

    def feed(self, data: np.ndarray) -> None:
        """Take the next bytes, contiguous uint8 of shape (n,); they may be overwritten afterwards."""
        while data.size and self._at < self._end:
            stop = self._shape_end if self._at < self._shape_end else self._end
            taken = data[: min(self._limit - self._filled, stop - self._at)]
            data = data[taken.size :]
            self._at += taken.size
            if taken.size == self._limit and taken.view(self._running.dtype).flags.aligned:
                self._add(self._running, taken)
            else:
                self._keep(taken)
            if self._at == self._shape_end:
                self._finish_shape()
            if self._filled == self._limit or self._at == self._end:
                self._add_kept()

    def _keep(self, data: np.ndarray) -> None:
        if not self._buffer.size:
            self._buffer = np.empty(min(self._limit, self._end), np.uint8)
        self._buffer[self._filled : self._filled + data.size] = data
        self._filled += data.size

    def _add_kept(self) -> None:
        if self._filled:
            self._add(self._running, self._buffer[: self._filled])
            self._filled = 0

    def _add(self, running: Projected, data: np.ndarray) -> None:
        piece = data.view(running.dtype)
        if not piece.dtype.isnative:
            piece = piece.astype(piece.dtype.newbyteorder("="))
        if self._nan_first is None:
            self._nan_first = piece.dtype.kind == "f" and math.isnan(float(piece[0]))
        with np.errstate(all="ignore"):
            running.add(piece)

    def _finish_shape(self) -> None:
        running = self._running
        if self._at == self._end:
            self._add_kept()
        elif self._filled:  # alignment belongs to the same piece, for the device's statistics alone
            running = deepcopy(running)
            self._add(running, self._buffer[: self._filled])
        self._stats = running.stats()
        self._running = self._running.without_projections()

    def result(self) -> TensorResult:
        """Return the statistics, once all bytes have arrived."""
        assert self._stats is not None  # noqa: S101 - a record's tensors are asked behind their last byte
        device = None
        if self._is_acl:
            device = as_device(self._running.stats(), nan_first=bool(self._nan_first))
        return TensorResult(self._stats, device)
