"""npy files, one for each tensor: by MindSpore, by TorchAir, and those converted from a dump file."""

from __future__ import annotations

from pytest_npudump.dump.files.format import Format

_MISNAMED = (
    "it may hold a tensor, and its name does not tell which: expected a name of MindSpore or of "
    "TorchAir, or that of a dump file and .output.0.npy; rename it, or take it out of the dump"
)


FORMAT = Format("npy", named=lambda _kind, suffix: suffix == ".npy", misnamed=(".npy", _MISNAMED))
