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
    from collections.abc import Collection, Sequence
    from pathlib import Path


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
    r"(?P<name>display|exception_info)\.(?P<stream>\d+)\.(?P<task>\d+)(?P<core>\.\w+\.\w+)?"
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
    r"(?P<name>.+)\.(?P<stream>\d+)\.(?P<task>\d+)(?P<core>\.\d+\.\d+)\.(?P<time>\d{17})", _FLAGS
)
_CORE = re.compile(
    r"(?P<name>.*)\.(?P<stream>\d+)\.(?P<task>\d+)\.(?P<time>\d{17})(?P<suffix>\.core)", _FLAGS
)
_CUSTOM = re.compile(r"(?P<name>.+)\.custom\.(?P<time>\d{17})", _FLAGS)
_MINDSPORE = re.compile(
    rf"(?P<type>[^.]+)\.(?P<name>.+){_IDS}"
    r"\.(?P<io>input|output)\.(?P<slot>\d+)\.(?P<format>[A-Za-z]\w*)(?:\.(?P<dtype>\w+))?(?P<suffix>\.npy)",
    _FLAGS,
)
_TORCHAIR = re.compile(
    r"(?P<name>[^-]+)-(?P<type>.+)\.(?P<io>INPUT|OUTPUT)\.(?P<slot>\d+)(?:\.(?P<part>\d+))?"
    r"\.(?P<time>\d{20})(?P<suffix>\.npy)",
    _FLAGS,
)

_DUMPS = (
    ("operator", _OPERATOR),
    ("capture", _CAPTURE),
    ("operator", _DOTTED),
    ("exception", _CALLBACK),
    ("exception", _CUSTOM),
    ("exception", _EXCEPTION),
)
_NPY = (("mindspore", _MINDSPORE), ("torchair", _TORCHAIR))
_CORES = (("core", _CORE),)
"""CANN keeps the last 255 characters of a core's name, so that its begin may be lost."""

_BRIEFS = (("exception", _BRIEF),)


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
    grammars: Sequence[tuple[str, re.Pattern[str]]]
    if name.endswith(".npy"):
        grammars = _NPY
    elif name.endswith(".core"):
        grammars = _CORES
    else:
        grammars = _BRIEFS if name.startswith(("exception_info.", "display.")) else _DUMPS
    for kind, grammar in grammars:
        match = grammar.fullmatch(name)
        if match is not None:
            return _named(kind, match)
    return None


def _named(kind: str, match: re.Match[str]) -> DumpName | None:
    """Return what the first grammar that fits a name makes of it; None where its time is no date."""
    found = match.groupdict("")
    time = _microseconds(found["time"])
    if time is None:
        return None
    task, stream, number, part, slot, context = (
        int(found[group]) if found.get(group) else None
        for group in ("task", "stream", "number", "part", "slot", "context")
    )
    op_type = found.get("type", "")
    return DumpName(
        "opdebug" if kind == "operator" and op_type == "Opdebug" else kind,
        op_type,
        found["name"] + found.get("core", ""),  # of a brief one the core of its task stands for the operator
        task,
        stream,
        time,
        found["time"],
        found.get("suffix", ""),
        number,
        None if context is None else (context, int(found["thread"]), int(found["device"])),
        found.get("io", "").lower(),
        -1 if slot is None else slot,
        part,
        found.get("format", ""),
        found.get("dtype", ""),
    )


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


def _microseconds(stamp: str) -> int | None:
    """Return microseconds of a stamp of 16, 17 or 20 digits, or None if it is no date."""
    if len(stamp) == len("1795228705872229"):
        return int(stamp)
    year, rest = int(stamp[:4]), [int(stamp[at : at + 2]) for at in range(4, 14, 2)]
    limits = ((1, 12), (1, 31), (0, 23), (0, 59), (0, 60))
    if not year or any(not low <= value <= high for value, (low, high) in zip(rest, limits, strict=True)):
        return None
    return timegm((year, *rest)) * 1_000_000 + int(stamp[14:].ljust(6, "0"))


CONVERTED = "converted"
"""``DumpName.kind`` of these files."""

_CONVERTED = re.compile(
    r"(?P<dump>.+)\.(?P<io>input|output|buffer|workspace)\.(?P<slot>\d+)"
    r"(?:\.(?:(?P<number>\d+)|\d+(?:x\d+)+))?\.npy",
    re.ASCII | re.DOTALL,
)
_SOURCES = frozenset({"operator", "capture", "exception"})


def parse_converted(name: str) -> DumpName | None:
    """Return what the name of a converted tensor says, or None if it is none.

    ``part`` is the single number behind the slot, where there is one.
    """
    match = _CONVERTED.fullmatch(name) if name.endswith(".npy") else None
    source = None if match is None else parse_name(match["dump"])
    if match is None or source is None or source.kind not in _SOURCES or source.suffix:
        return None
    number = match["number"]
    return source._replace(
        kind=CONVERTED,
        suffix=".npy",
        io=match["io"],
        slot=int(match["slot"]),
        part=None if number is None else int(number),
    )


def name_of(name: str) -> DumpName | None:
    """Return what the name of a dump file, or of a tensor converted from one, says; None if it is neither."""
    return parse_name(name) or parse_converted(name)


def is_copy(path: Path) -> bool:
    """Whether a file is called like a tensor that was converted from a file beside it."""
    match = _CONVERTED.fullmatch(path.name)
    return match is not None and path.with_name(match["dump"]).is_file()
