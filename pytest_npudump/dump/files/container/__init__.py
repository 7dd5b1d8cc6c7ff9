"""Dump files: the protobuf container of CANN's writers, and the TLV container of some SoCs.

``proto`` is the header of the one, ``tlv`` the other, ``container_tensors`` what both have in common.
"""

from __future__ import annotations

from pytest_npudump.dump.files.format import Format

TLV_MAGIC = b"\x5a\x5a\x5a\x5a"
"""Bytes 8 to 11 of a TLV container."""

_PROTOBUF_START = b"\x0a\x03"


FORMAT = Format(
    "container",
    named=lambda kind, suffix: not suffix and kind != "opdebug",
    begins=lambda _path, start: start[8:] == TLV_MAGIC or start[8:10] == _PROTOBUF_START,
)
