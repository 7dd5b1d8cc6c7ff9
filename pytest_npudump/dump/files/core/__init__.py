"""Cores of kernels that failed, for CANN's debugger."""

from __future__ import annotations

from pytest_npudump.dump.files.format import Format

FORMAT = Format(
    "core",
    named=lambda kind, _suffix: kind == "core",
    part="cores",
    instead="the core of a kernel that failed, which holds no tensor of the model: msdebug opens it",
)
