"""Where in a tensor the error sits, as a small PNG: a pixel a cell."""

from __future__ import annotations

import base64
import struct
import zlib
from typing import TYPE_CHECKING

from pytest_npudump.language.translation import gettext as _
from pytest_npudump.report.figures.colours import cell_colour

if TYPE_CHECKING:
    from pytest_npudump.compare.tensors.picture import Picture

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_PALETTE = b"".join(bytes(cell_colour(level)) for level in range(256))


def map_png(picture: Picture) -> bytes:
    """Return the map of a picture that has one, as a PNG of as many pixels."""
    width = picture.columns
    rows = (picture.cells[start : start + width] for start in range(0, len(picture.cells), width))
    header = struct.pack(">IIBBBBB", width, picture.rows, 8, 3, 0, 0, 0)  # 8 bits, by palette
    pixels = zlib.compress(b"".join(b"\0" + row for row in rows), 9)
    chunks = ((b"IHDR", header), (b"PLTE", _PALETTE), (b"IDAT", pixels), (b"IEND", b""))
    return _SIGNATURE + b"".join(_chunk(kind, data) for kind, data in chunks)


def map_uri(picture: Picture) -> str:
    """Return the map as a ``data:`` address; "" where the picture has none."""
    if not picture.cells:
        return ""
    return f"data:image/png;base64,{base64.b64encode(map_png(picture)).decode()}"


def axes_words(picture: Picture, rank: int) -> tuple[str, str]:
    """Say which axes of a tensor of ``rank`` axes run down the map, and which across."""
    return _axes(range(picture.axes)), _axes(range(picture.axes, rank))


def _axes(axes: range) -> str:
    if not axes:
        return "-"
    return (
        _("axis {axis}").format(axis=axes[0])
        if len(axes) == 1
        else _("axes {first}-{last}").format(first=axes[0], last=axes[-1])
    )


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
