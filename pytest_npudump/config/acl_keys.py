"""The keys of acl.json's ``dump`` object, their types and values, and the grammar of its paths and steps.

Sources: ``dump_config_converter.cpp:29-46, 118-145, 516-609, 887-920, 1080-1117`` of hicann/runtime.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from pytest_npudump.config.rule_table import Refusal, shown

MAX_BYTES = 512
"""Longest ``dump_path`` in bytes (``MAX_DUMP_PATH_LENGTH``)."""
PATH_CHARACTERS = re.compile(rb"[A-Za-z0-9\-=\[\];\\,./!@#$%^&*()_+{}:?]*")
"""Characters that adump allows after ``host:``, and GE anywhere (``file_utils.cpp:364-382``)."""
OVERRIDING = ("ASCEND_DUMP_PATH", "ASCEND_WORK_PATH")
"""Variables that send exception dumps elsewhere, the first one that can be used; 8.5.0 knows the second."""
MAX_INTERVALS = 100
_LONG_MAX = (1 << 63) - 1
_LONG_DIGITS = 19
_STOI = re.compile(rb"[ \t\n\v\f\r]*([+-]?[0-9]+)")

OPTIONS: Final[dict[str, tuple[str, ...]]] = {
    "dump_mode": ("all", "input", "output"),
    "dump_data": ("stats", "tensor"),
    "dump_op_switch": ("off", "on"),
    "dump_level": ("all", "kernel", "op"),
    "dump_debug": ("off", "on"),
    "dump_scene": (
        "aic_err_brief_dump",
        "aic_err_detail_dump",
        "aic_err_norm_dump",
        "lite_exception",
        "watcher",
    ),
    "dump_kernel_data": ("all", "assert", "printf", "tensor", "timestamp"),
    "dump_stats": ("Avg", "L2norm", "Max", "Min", "Nan", "Negative Inf", "Positive Inf"),
}

STRING_KEYS: Final = (
    "dump_path",
    "dump_mode",
    "dump_op_switch",
    "dump_level",
    "dump_scene",
    "dump_data",
    "dump_debug",
    "dump_kernel_data",
    "dump_step",
)
"""In the order in which CANN checks their types."""

EXAMPLES: Final = {
    "dump_path": '"/var/dump"',
    "dump_step": '"0|5-10"',
    "dump_stats": '["Max", "Min"]',
    "dump_list": '[{"model_name": "resnet50", "layer": ["conv1"]}]',
    "model_name": '"resnet50"',
    "layer": '["conv1"]',
    "watcher_nodes": '["conv1"]',
    "optype_blacklist": '[{"name": "Conv2D", "pos": ["input0"]}]',
    "opname_blacklist": '[{"name": "conv1", "pos": ["input0"]}]',
    "opname_range": '[{"begin": "conv1", "end": "relu1"}]',
    "name": '"conv1"',
    "pos": '["input0", "output0"]',
    "begin": '"conv1"',
    "end": '"relu1"',
}

BLACKLIST: Final[dict[str, Any]] = {"name": "string", "pos": ["string"]}
ITEM: Final[dict[str, Any]] = {
    "model_name": "string",
    "layer": ["string"],
    "watcher_nodes": ["string"],
    "optype_blacklist": [BLACKLIST],
    "opname_blacklist": [BLACKLIST],
    "opname_range": [{"begin": "string", "end": "string"}],
}
DUMP: Final[dict[str, Any]] = {
    **dict.fromkeys(STRING_KEYS, "string"),
    "dump_stats": ["string"],
    "dump_list": [ITEM],
}
"""The shape of the ``dump`` object, in the order in which CANN checks it."""
NESTED: Final = ("optype_blacklist", "opname_blacklist", "opname_range")
"""The keys of a member of ``dump_list`` that hold objects."""

SCENE_TYPES: Final = {
    "lite_exception": "ARGS_EXCEPTION",
    "aic_err_brief_dump": "ARGS_EXCEPTION",
    "aic_err_norm_dump": "EXCEPTION",
    "aic_err_detail_dump": "AIC_ERR_DETAIL_DUMP",
}
"""Dump that each exception scene switches on (``dump_config_converter.cpp:965-976``)."""


def getline_split(text: bytes, delimiter: bytes) -> list[bytes]:
    """Split as ``std::getline`` in a loop does: nothing after a delimiter at the end."""
    parts = text.split(delimiter)
    return parts[:-1] if parts[-1] == b"" else parts


def remote_path(dump_path: bytes) -> bytes | None:
    """Return the part behind ``host:`` if CANN takes ``dump_path`` for a remote one, else None.

    The host must be four parts that ``std::stoi`` reads as 0 to 255, so ``1a.2.3.4`` and ``1.2.3.4.`` pass.
    """
    host, colon, path = dump_path.partition(b":")
    if not colon or not path:
        return None
    octets = [_STOI.match(octet) for octet in getline_split(host, b".")]
    read = [int(octet[1]) for octet in octets if octet is not None and len(octet[1]) <= MAX_BYTES]
    return path if len(read) == len(octets) == 4 and all(0 <= octet <= 255 for octet in read) else None  # noqa: PLR2004 - of IPv4


def path_reasons(dump: Mapping[str, Any], cwd: Path, *, must_be_directory: bool = True) -> Iterator[Refusal]:
    """Yield adump's refusals of ``dump_path``, a string if it is there at all."""
    if "dump_path" not in dump:
        yield Refusal("dump_path", "missing", 'add "dump_path" with a directory that exists', "EP0001")
        return
    value: str = dump["dump_path"]
    path = value.encode()
    remote = remote_path(path)
    if not path:
        yield Refusal("dump_path", "empty", "write a directory that exists", "EP0001")
    elif len(path) > MAX_BYTES:
        yield Refusal(
            "dump_path",
            f"{len(path)} bytes long, CANN takes {MAX_BYTES}",
            "write a shorter path, or a symbolic link",
            "EP0003",
        )
    elif remote is not None:
        if not PATH_CHARACTERS.fullmatch(remote):
            problem = f"{shown(value)} has characters that CANN refuses after host:"
            yield Refusal(
                "dump_path", problem, r"use letters, digits and -=[];\,./!@#$%^&*()_+{}:?", "EP0003"
            )
    else:
        located = _located(value, cwd)
        place = f"{shown(value)} (seen from {cwd})" if not value.startswith("/") else shown(value)
        problem, hint = "", ""
        try:
            mode = os.stat(located).st_mode  # noqa: PTH116 - bytes, so that any file system encoding works
        except OSError:
            expands = "CANN expands neither ~ nor $HOME: write the path out"
            problem, hint = f"{place} does not exist", expands if value[:1] in "~$" else "create it first"
        else:
            if must_be_directory and not stat.S_ISDIR(mode):
                problem, hint = f"{place} is not a directory", "write a directory"
            elif not os.access(located, os.R_OK | os.W_OK):
                problem, hint = f"{place} may not be read and written", "grant both, or use another"
        if problem:
            yield Refusal("dump_path", problem, hint, "EP0003")


def _located(value: str, cwd: Path) -> bytes:
    # A C string ends at its first NUL, so that is where CANN's realpath() stops reading; an empty one is
    # no path at all, where joining it to cwd would give cwd.
    path = value.encode().partition(b"\0")[0]
    return os.path.join(os.fsencode(cwd), path) if path else b""  # noqa: PTH118 - bytes


def exception_path(dump: Mapping[str, Any], cwd: Path, environ: Mapping[str, str]) -> str:
    """Return exception dumps' path: ``ASCEND_DUMP_PATH``, else ``ASCEND_WORK_PATH``, else ``dump_path``.

    A variable counts only if its directory is there, or can be made, readable and writable
    (``dump_config_converter.cpp:1080-1117``).
    """
    values = (environ.get(variable, "") for variable in OVERRIDING)
    usable = (value for value in values if value and _usable(_located(value, cwd)))
    return next(usable, str(dump.get("dump_path", "")))


def _usable(path: bytes) -> bool:
    if os.path.isdir(path):  # noqa: PTH112 - bytes
        return os.access(path, os.R_OK | os.W_OK)
    parent = os.path.dirname(path.rstrip(b"/"))  # noqa: PTH120 - bytes
    while parent not in (b"", b"/") and not os.path.lexists(parent):
        parent = os.path.dirname(parent)  # noqa: PTH120 - bytes
    makes = os.path.isdir(parent) and os.access(parent, os.W_OK | os.X_OK)  # noqa: PTH112 - bytes
    return makes and not os.path.lexists(path)


def step_reasons(step: str) -> Iterator[Refusal]:
    """Yield the refusals of a ``dump_step``: ``3|5-10``; empty means every step.

    There is no upper bound: ``strtol`` saturates, so two huge bounds are equal.
    """
    intervals = step.split("|") if step else []
    if len(intervals) > MAX_INTERVALS:
        problem = f"{len(intervals)} intervals, CANN takes {MAX_INTERVALS}"
        yield Refusal("dump_step", problem, "join neighbours into ranges such as 5-10", "EP0003")
        return
    for index, interval in enumerate(intervals):
        bounds = interval.split("-")
        problem = ""
        if len(bounds) > len(("begin", "end")):
            problem = "has more than one -"
        elif not all(bound.isascii() and bound.isdigit() for bound in bounds):
            problem = "is not made of digits"
        elif _strtol(bounds[0]) > _strtol(bounds[-1]):
            problem = "starts after its end"
        if problem:
            remedy = 'write steps as "3" or "5-10", joined by |'
            yield Refusal(f"dump_step[{index}]", f"{shown(interval)} {problem}", remedy, "EP0003")


def _strtol(digits: str) -> int:
    significant = digits.lstrip("0")
    return min(int(significant or "0"), _LONG_MAX) if len(significant) <= _LONG_DIGITS else _LONG_MAX


def members(value: object) -> list[dict[str, Any]]:
    """Return the members of an array as CANN reads them: what is no object counts as ``{}``."""
    return [member if isinstance(member, dict) else {} for member in value] if isinstance(value, list) else []


def with_members(item: Mapping[str, Any]) -> dict[str, Any]:
    """Return a member of ``dump_list`` as CANN reads it, its own arrays of objects likewise."""
    return {
        key: members(value) if key in NESTED and isinstance(value, list) else value
        for key, value in item.items()
    }


def steps(text: str) -> tuple[tuple[int, int], ...]:
    """Return the intervals of ``dump_step``, both ends included: ``0|2-5`` is ``((0, 0), (2, 5))``."""
    pairs = (interval.partition("-") for interval in text.split("|") if interval)
    return tuple((int(first), int(last or first)) for first, _, last in pairs)
