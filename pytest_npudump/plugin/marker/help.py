"""What ``pytest --markers`` says about the marker: every argument by name."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

ARGUMENTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "layers": "operator names or globs; none: every layer",
        "scene": "model (default), op, overflow, watcher or exception",
        "dump_scene": "which exception dump, with scene='exception'",
        "model_name, dump_mode, dump_level, dump_step, dump_data, dump_stats, dump_kernel_data, "
        "optype_blacklist, opname_blacklist, opname_range, watcher_nodes": "as in acl.json",
        "golden_tensors": "layers whose tensors are kept beside the golden",
        "rtol, atol": "tolerance of floating-point statistics; one alone makes the other 0",
        "preset": "name of a tolerance preset",
        "tolerances": "rules such as [{'layer': 'conv*', 'rtol': 1e-2, 'atol': 0, 'reason': '...'}]",
        "escalate": "False: no second run with the tensors of failing layers",
        "isolation, timeout": "'process' for a child process or 'none', and the seconds it may run",
        "transport": "'files', or 'callback' for tensors that are judged as they arrive",
        "reference, reference_map": "ONNX model to compare the layers with, and YAML file of names",
        "data_dump": "further keys of MindSpore's data_dump.json",
        "ranks": "goldens of a distributed run: one for 'each' rank, or the 'same' for all",
    }
)
"""Arguments of the marker, those of one meaning together, and what they say."""


def marker_line(name: str) -> str:
    """Return the text that is registered for the marker ``name``."""
    lines = [f"  {arguments}: {meaning}" for arguments, meaning in ARGUMENTS.items()]
    purpose = "run the test under ACL dump and compare its layers with a golden file (pytest-npudump)."
    return "\n".join([f"{name}(layers=None, *, ...): {purpose} Arguments:", *lines])
