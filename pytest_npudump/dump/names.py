"""File names of a dump, read from the right: the left parts may hold anything.

Grammars (CANN's device-side writer, adump's capture and exception writers, MindSpore, TorchAir)::

    {type}.{name}.{task}.{stream}.{time16}[.4.{context}.{thread}.{device}][.csv]     operator
    {type}.{name}.{task}.{time16}                                       operator, without a stream
    {type}.{name}.{number}.{task}.{stream}.{time16}[.FFTSPLUS.{context}.{thread}.{device}]  capture
    {type}.{name}.{task}.{time17}                                       exception
    exception_info.{stream}.{task}.{time16 or 17}                       exception, without a name
    {kernel|exception_info}.{stream}.{task}.{core type}.{core}.{time17} exception, from a callback
    {name}.custom.{time17}                                              exception
    {kernel}.{stream}.{task}.{time17}.core                              core of the failed kernel
    {type}.{name}.{task}.{stream}.{time16}.{io}.{slot}.{format}[.{dtype}].npy        mindspore
    {node}-{target}.{INPUT|OUTPUT}.{slot}[.{part}].{time20}.npy         torchair

``time16`` is microseconds since the epoch, ``time17`` local time to the millisecond
(``YYYYMMDDHHMMSSmmm``), ``time20`` local time to the microsecond. The literal 4 is the task type FFTS+.
"""

from __future__ import annotations

import re
from calendar import timegm
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection

_WATCHER = "_To_"
_FLAGS = re.ASCII | re.DOTALL
_IDS = r"\.(?P<task>\d+)\.(?P<stream>\d+)\.(?P<time>\d{16})"
_SLICE = r"\.(?P<context>\d+)\.(?P<thread>\d+)\.(?P<device>\d+)"

# CANN leaves no dot in a sanitised name, so this pattern is exact; the order below is one of preference.
_OPERATOR = re.compile(
    r"(?P<type>[^.]+)\.(?P<name>[^.]+)\.(?P<task>\d+)(?:\.(?P<stream>\d+))?\.(?P<time>\d{16})"
    rf"(?:\.4{_SLICE})?(?P<suffix>\.csv)?",
    _FLAGS,
)
_BRIEF = re.compile(
    r"(?P<head>display|exception_info)\.(?P<stream>\d+)\.(?P<task>\d+)(?P<core>\.\w+\.\w+)?"
    r"\.(?P<time>\d{16,17})",
    _FLAGS,
)
_CAPTURE = re.compile(rf"(?P<type>[^.]+)\.(?P<name>.+)\.(?P<number>\d+){_IDS}(?:\.FFTSPLUS{_SLICE})?", _FLAGS)
_DOTTED = re.compile(
    rf"(?P<type>[^.]+)\.(?P<name>.+){_IDS}(?:\.4{_SLICE})?(?P<suffix>\.csv)?",
    _FLAGS,
)
_EXCEPTION = re.compile(r"(?P<type>[^.]+)\.(?P<name>.+)\.(?P<task>\d+)\.(?P<time>\d{17})", _FLAGS)
_CALLBACK = re.compile(
    r"(?P<head>.+)\.(?P<stream>\d+)\.(?P<task>\d+)(?P<core>\.\d+\.\d+)\.(?P<time>\d{17})", _FLAGS
)
_CORE = re.compile(r"(?P<name>.*)\.(?P<stream>\d+)\.(?P<task>\d+)\.(?P<time>\d{17})\.core", _FLAGS)
_CUSTOM = re.compile(r"(?P<name>.+)\.custom\.(?P<time>\d{17})", _FLAGS)
_MINDSPORE = re.compile(
    rf"(?P<type>[^.]+)\.(?P<name>.+){_IDS}"
    r"\.(?P<io>input|output)\.(?P<slot>\d+)\.(?P<format>[A-Za-z]\w*)(?:\.(?P<dtype>\w+))?\.npy",
    _FLAGS,
)
_TORCHAIR = re.compile(
    r"(?P<node>[^-]+)-(?P<target>.+)\.(?P<io>INPUT|OUTPUT)\.(?P<slot>\d+)(?:\.(?P<part>\d+))?"
    r"\.(?P<time>\d{20})\.npy",
    _FLAGS,
)


class DumpName(NamedTuple):
    """What the name of one dump file says.

    A tuple, since a dump of 10,000 files has 10,000 of them and a frozen dataclass takes four times as long.

    Attributes:
        kind: ``operator``, ``opdebug`` (an overflow record), ``capture``, ``exception``, ``core``,
            ``mindspore`` or ``torchair``.
        op_type: operator type as written; "" where the name has none.
        op_name: operator name as written: sanitised by CANN except in capture mode.
        task, stream: ids; None where the name has none.
        time: microseconds since the epoch. A stamp of 17 or 20 digits is local time in a zone the name
            does not tell; it is read as UTC, which keeps the order.
        stamp: the digits the time was read from.
        suffix: "", ``.csv``, ``.npy`` or ``.core``.
        dump_number: number of the capture; None elsewhere.
        ffts: (context, thread, device) of an FFTS+ slice, or None.
        io, slot, part, format, dtype: of an npy file, as written, ``io`` in lower case; ``part`` is the
            index inside a list of tensors (TorchAir).
    """

    kind: str
    op_type: str
    op_name: str
    task: int | None
    stream: int | None
    time: int
    stamp: str
    suffix: str = ""
    dump_number: int | None = None
    ffts: tuple[int, int, int] | None = None
    io: str = ""
    slot: int = -1
    part: int | None = None
    format: str = ""
    dtype: str = ""


def parse_name(name: str) -> DumpName | None:
    """Return what ``name`` (without directories) says, or None if it is no dump file's name."""
    if name.endswith(".npy"):
        return _mindspore(name) or _torchair(name)
    if name.endswith(".core"):
        return _core(name)
    if name.startswith(("exception_info.", "display.")):
        return _brief(name)
    match = _OPERATOR.fullmatch(name)
    if match is not None:
        return _operator(match)
    capture = _CAPTURE.fullmatch(name)
    if capture is not None:
        return _captured(capture)
    match = _DOTTED.fullmatch(name)
    return _exception(name) if match is None else _operator(match)


def split_watcher(op_name: str, layers: Collection[str], nodes: Collection[str]) -> tuple[str, str] | None:
    """Return (layer, watcher node) if ``op_name`` is what CANN's watcher writes after a layer, else None.

    The name is ``{layer}_To_{node}``; an ordinary operator's name may hold ``_To_`` too, hence both
    parts must be among the names that were asked for (``layers``, ``nodes``: in the same spelling as
    ``op_name``, raw or sanitised). Without ``layers`` every operator was asked for.
    """
    at = op_name.find(_WATCHER)
    while at >= 0:
        layer, node = op_name[:at], op_name[at + len(_WATCHER) :]
        if node in nodes and (layer in layers or not layers):
            return layer, node
        at = op_name.find(_WATCHER, at + 1)
    return None


def _operator(match: re.Match[str]) -> DumpName:
    op_type, op_name, task, stream, stamp, context, thread, device, suffix = match.groups()
    return DumpName(
        "opdebug" if op_type == "Opdebug" else "operator",
        op_type,
        op_name,
        int(task),
        None if stream is None else int(stream),
        int(stamp),
        stamp,
        suffix or "",
        None,
        None if context is None else (int(context), int(thread), int(device)),
    )


def _captured(match: re.Match[str]) -> DumpName:
    op_type, op_name, number, task, stream, stamp, context, thread, device = match.groups()
    ffts = None if context is None else (int(context), int(thread), int(device))
    return DumpName(
        "capture", op_type, op_name, int(task), int(stream), int(stamp), stamp, "", int(number), ffts
    )


def _brief(name: str) -> DumpName | None:
    """An exception dump that is called after ids only; the task or its core stands for the operator."""
    match = _BRIEF.fullmatch(name)
    time = None if match is None else _microseconds(match["time"])
    if match is None or time is None:
        return None
    return _by_ids(match, time)


def _by_ids(match: re.Match[str], time: int) -> DumpName:
    op_name = match["head"] + (match["core"] or "")
    return DumpName("exception", "", op_name, int(match["task"]), int(match["stream"]), time, match["time"])


def _exception(name: str) -> DumpName | None:
    match = _CALLBACK.fullmatch(name)
    if match is not None:
        time = _microseconds(match["time"])
        return None if time is None else _by_ids(match, time)
    match = _CUSTOM.fullmatch(name)
    if match is None:
        match = _EXCEPTION.fullmatch(name)
    time = None if match is None else _microseconds(match["time"])
    if match is None or time is None:
        return None
    found = match.groupdict()
    task = found.get("task")
    return DumpName(
        "exception",
        found.get("type", ""),
        found["name"],
        None if task is None else int(task),
        None,
        time,
        found["time"],
    )


def _core(name: str) -> DumpName | None:
    """The core of a kernel. CANN keeps the last 255 characters of a name, so that its begin may be lost."""
    match = _CORE.fullmatch(name)
    time = None if match is None else _microseconds(match["time"])
    if match is None or time is None:
        return None
    kernel, task, stream = match["name"], int(match["task"]), int(match["stream"])
    return DumpName("core", "", kernel, task, stream, time, match["time"], ".core")


def _mindspore(name: str) -> DumpName | None:
    match = _MINDSPORE.fullmatch(name)
    if match is None:
        return None
    op_type, op_name, task, stream, stamp, io, slot, layout, dtype = match.groups()
    return DumpName(
        "mindspore",
        op_type,
        op_name,
        int(task),
        int(stream),
        int(stamp),
        stamp,
        ".npy",
        io=io,
        slot=int(slot),
        format=layout,
        dtype=dtype or "",
    )


def _torchair(name: str) -> DumpName | None:
    match = _TORCHAIR.fullmatch(name)
    time = None if match is None else _microseconds(match["time"])
    if match is None or time is None:
        return None
    node, target, io, slot, part, stamp = match.groups()
    return DumpName(
        "torchair",
        target,
        node,
        None,
        None,
        time,
        stamp,
        ".npy",
        io=io.lower(),
        slot=int(slot),
        part=None if part is None else int(part),
    )


def _microseconds(stamp: str) -> int | None:
    """Return microseconds of a stamp of 16, 17 or 20 digits, or None if it is no date."""
    if len(stamp) == len("1795228705872229"):
        return int(stamp)
    year, rest = int(stamp[:4]), [int(stamp[at : at + 2]) for at in range(4, 14, 2)]
    limits = ((1, 12), (1, 31), (0, 23), (0, 59), (0, 60))
    if not year or any(not low <= value <= high for value, (low, high) in zip(rest, limits, strict=True)):
        return None
    return timegm((year, *rest)) * 1_000_000 + int(stamp[14:].ljust(6, "0"))
