"""The projections of tensors in files, in the order in which their files hold the elements."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pytest_npudump.dump.arrays.decode import check_npy_type, numpy_dtype, too_short, why_opaque
from pytest_npudump.dump.arrays.npy import read_npy_header
from pytest_npudump.dump.bytes.chunks import CHUNK_BYTES, file_pieces
from pytest_npudump.dump.stats.accumulators import is_packed
from pytest_npudump.dump.stats.float_elements import raw_elements
from pytest_npudump.dump.stats.projections import Projector, project
from pytest_npudump.dump.values.dtypes import BY_NAME

if TYPE_CHECKING:
    from pytest_npudump.dump.records import Payload
    from pytest_npudump.dump.stats.projections import Projections


def payload_projections(payload: Payload, dtype: str, count: int) -> Projections | None:
    """The projections of the first ``count`` elements of a payload of the type called ``dtype``.

    Memory does not grow with the payload. None where the type has no values.

    Raises:
        DecodeError: the payload is smaller than ``count`` elements.
        FormatError: the file cannot be read.
    """
    if why_opaque(dtype):
        return None
    if payload.kind == "npy":
        header = read_npy_header(payload.path, may_be_float32=dtype == "float32")
        check_npy_type(payload, header.dtype, dtype)
        return project(np.load(payload.path, mmap_mode="r", allow_pickle=False))
    nbytes = (count * BY_NAME[dtype].bits + 7) // 8
    if nbytes > payload.nbytes:
        raise too_short(payload, dtype, count, payload.nbytes)
    unit = np.dtype(np.uint8) if is_packed(dtype) else numpy_dtype(dtype)
    projector = Projector(raw_elements(dtype), count * (2 if BY_NAME[dtype].kind == "complex" else 1))
    for octets in file_pieces(payload.path, payload.offset, nbytes, CHUNK_BYTES):
        piece = octets.view(unit)
        projector.add(piece if unit.isnative else piece.astype(unit.newbyteorder("=")))
    return projector.projections()
