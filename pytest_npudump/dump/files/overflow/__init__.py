"""Overflow records (``Opdebug...``): dump files that hold no tensor, but what overflowed."""

from __future__ import annotations

from pytest_npudump.dump.files.format import Format

FORMAT = Format(
    "overflow",
    named=lambda kind, _suffix: kind == "opdebug",
    part="overflow",
    instead="an overflow record, which holds no tensor: npudump overflow {path}",
)
