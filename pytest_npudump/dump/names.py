"""Parser of file names and directories of a dump.

File names are read from the right, as the left parts may hold anything. Grammars (CANN's device-side
writer, adump's capture and exception writers, MindSpore, TorchAir)::

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

Layouts of directories (CANN, TorchAir, msprobe, MindSpore), below the dump path::

    {time14}[/{time14}]/{device}[/{model}/{model id}/{step}]         ACL; TLV writer: {model id}/{model}
    worldsize{N}_global_rank{R}/{time14}/{device}/...                 TorchAir
    worldsize{N}_global_rank{R}/gm_{time20}_dump/{step}               TorchAir, FX graphs
    rank_{R}/{time14}/step_{S}[/{time14}/{device}/...]                msprobe, offline
    step{S}/{rank{R}|proc{P}}/dump.json                               msprobe's PrecisionDebugger
    rank_{R}/{net}/{graph}/{iteration}                                MindSpore, synchronous
    {step}/{time14}/{device}[/{model}/{model id}][/{iteration}]       MindSpore on Ascend, asynchronous
    pid{P}/device{D}/...                                              CANN's helper mode
    extra-info/data-dump/{device}                                     exception dumps

Files whose names were too long for the file system are called otherwise: the data lie under a short name
and ``mapping.csv`` in the same directory tells the long one, a line ``{short},{long}`` each, without a
header. CANN's short name is the decimal libstdc++ hash of the full path (device dumps) or of the file name
(exception dumps), with a line per chunk of 128 MiB; MindSpore's is a number and ``.npy``; CANN's tools use
a UUID or random digits.

A hash can be checked where the long name is that of an exception dump, or where another line has its hash;
the path that a device dump hashed is known only to the process that wrote it.
"""

from __future__ import annotations

import csv
import re
from calendar import timegm
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from pytest_npudump.errors import FormatError
from pytest_npudump.storage.regular_file import read_small

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
_DOTTED = re.compile(rf"(?P<type>[^.]+)\.(?P<name>.+){_IDS}(?:\.4{_SLICE})?(?P<suffix>\.csv)?", _FLAGS)
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
_CORES = (("core", _CORE),)
"""CANN keeps the last 255 characters of a core's name, so that its begin may be lost."""


class DumpName(NamedTuple):
    """Parsed name of one dump file.

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
    """Parse ``name`` (without directories); None if it is no dump file's name."""
    grammars: Sequence[tuple[str, re.Pattern[str]]]
    if name.endswith(".npy"):
        grammars = (("mindspore", _MINDSPORE), ("torchair", _TORCHAIR))
    elif name.endswith(".core"):
        grammars = _CORES
    else:
        grammars = (("exception", _BRIEF),) if name.startswith(("exception_info.", "display.")) else _DUMPS
    for kind, grammar in grammars:
        if (match := grammar.fullmatch(name)) is not None:
            return _named(kind, match)
    return None


def _named(kind: str, match: re.Match[str]) -> DumpName | None:
    """Parse a name by the first grammar that fits; None where its time is no date."""
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
    for found in re.finditer(f"(?={_WATCHER})", op_name):
        layer, node = op_name[: found.start()], op_name[found.start() + len(_WATCHER) :]
        if node in nodes and (layer in layers or not layers):
            return layer, node
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
    """Parse the name of a converted tensor; None for any other.

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
    """Parse the name of a dump file, or of a tensor converted from one; None if it is neither."""
    return parse_name(name) or parse_converted(name)


def is_copy(path: Path) -> bool:
    """Return whether a file is called like a tensor that was converted from a file beside it."""
    match = _CONVERTED.fullmatch(path.name)
    return match is not None and path.with_name(match["dump"]).is_file()


_TIME = re.compile(r"\d{14}|\d{17}|gm_\d{20}_dump", re.ASCII)
_SHORTEST_TIME = 13
_RANK = re.compile(r"(?:rank_?|worldsize\d+_global_rank)(\d+)", re.ASCII)
_STEP = re.compile(r"step_?(\d+)", re.ASCII)
_DEVICE = re.compile(r"device_?(\d+)", re.ASCII)
_PROCESS = re.compile(r"(?:pid_?|proc)\d+", re.ASCII)
_MARKS = (_TIME, _RANK, _STEP, _DEVICE, _PROCESS)
_DATA_DUMP = "data-dump"
_CONSTANTS = "constants"

# The levels below the device by which of them are numbers: all exist only where the task carries them.
_LEVELS: dict[tuple[bool, ...], tuple[str, ...]] = {
    (): (),
    (True,): ("iteration",),
    (False, True): ("model", "model_id"),
    (True, True): ("model_id", "iteration"),
    (False, True, True): ("model", "model_id", "iteration"),
    (True, False, True): ("model_id", "model", "iteration"),
    (True, True, True): ("model", "model_id", "iteration"),
}


class Place(NamedTuple):
    """Parsed directory of a dump file.

    Attributes:
        run: directories that tell one run from another: the time directories, outermost first, with
            whatever lies above them and is none of the following.
        rank, device: ids; -1 where the directories have none.
        model: model or net name; "" where there is none (single operators).
        model_id: id of the loaded model, or of the graph in a net; -1 where there is none.
        iteration: execution of the model (``data_index``); -1 where there is none.
        step: step of the program (``step_id``, MindSpore's iteration, ``step_3``), in which a model may be
            executed several times; -1 where there is none.
        mindspore: in a tree of MindSpore's synchronous dump.
        either: model and model id may stand the other way round: both are numbers.
        counted: the step is the program's own number of it, which others keep where one is missing.
    """

    run: tuple[str, ...] = ()
    rank: int = -1
    device: int = -1
    model: str = ""
    model_id: int = -1
    iteration: int = -1
    step: int = -1
    mindspore: bool = False
    either: bool = False
    counted: bool = False


def read_place(parts: Sequence[str]) -> Place:
    """Parse the directories ``parts``, below the dump path and outermost first."""
    # Behind the last directory that marks the layout, or a step or device named as such.
    marks = [
        at for at, part in enumerate(parts, 1) if part == _DATA_DUMP or any(m.fullmatch(part) for m in _MARKS)
    ]
    head, tail = parts[: max(marks, default=0)], parts[max(marks, default=0) :]
    place = Place()
    run: list[str] = []
    last_int = -1
    for part in head:
        rank, step, device = _RANK.fullmatch(part), _STEP.fullmatch(part), _DEVICE.fullmatch(part)
        if rank is not None:
            place = place._replace(rank=int(rank[1]))
        elif step is not None:
            place = place._replace(step=int(step[1]))
        elif device is not None:
            place = place._replace(device=int(device[1]))
        elif part.isdecimal() and len(part) < _SHORTEST_TIME:
            last_int = int(part)
        elif part not in {"extra-info", _DATA_DUMP}:
            run.append(part)
    place = place._replace(run=tuple(run), step=place.step if place.step >= 0 else last_int)
    if place.rank >= 0 and not any(_TIME.fullmatch(part) for part in head) and len(tail) > 1:
        return _mindspore(place, tail)
    if head and head[-1].startswith("gm_") and len(tail) == 1 and tail[0].isdecimal():
        return place._replace(step=int(tail[0]))
    return _acl(place, tail)


def context(parts: Sequence[str]) -> tuple[str, ...]:
    """Return the last directories of a dump path that already belong to the dump's layout.

    A dump may be given by a directory inside it, such as its time directory or one step.
    """
    near = parts[-6:]
    for at, part in enumerate(near):
        inner = near[at + 1 : at + 2]
        if _RANK.fullmatch(part) or part == _DATA_DUMP:
            return tuple(near[at:])
        if _TIME.fullmatch(part) and all(name.isdecimal() or _STEP.fullmatch(name) for name in inner):
            return tuple(near[at:])
    return ()


def marks_layout(parts: Sequence[str]) -> bool:
    """Return whether a directory of ``parts`` is one of a dump only: a time, a rank or exception dumps."""
    return any(_TIME.fullmatch(part) or _RANK.fullmatch(part) or part == _DATA_DUMP for part in parts)


def swapped(place: Place) -> Place:
    """Return ``place`` with model and model id exchanged, as the TLV writer orders them."""
    return place._replace(model=str(place.model_id), model_id=int(place.model), either=False)


def _mindspore(place: Place, tail: Sequence[str]) -> Place:
    net, *rest = (part for part in tail if part != _CONSTANTS)
    graph = rest.pop(0) if rest and rest[0].isdecimal() else ""
    step = rest.pop(0) if rest and rest[0].isdecimal() else ""
    return place._replace(
        model="/".join((net, *rest)),
        model_id=int(graph) if graph else -1,
        step=int(step) if step else place.step,
        mindspore=True,
    )


def _acl(place: Place, tail: Sequence[str]) -> Place:
    rest = list(tail)
    if rest and rest[0].isdecimal() and place.device < 0:
        place = place._replace(device=int(rest.pop(0)))
    numbers = tuple(part.isdecimal() for part in rest)
    fields = _LEVELS.get(numbers)
    if fields is None:
        return place._replace(model="/".join(rest))
    values = dict(zip(fields, rest, strict=True))
    return place._replace(
        model=values.get("model", place.model),
        model_id=int(values.get("model_id", place.model_id)),
        iteration=int(values.get("iteration", place.iteration)),
        either=numbers == (True, True, True),
    )


class DumpFile(NamedTuple):
    """One file of a dump.

    Attributes:
        path: where it lies.
        place: what its directories say.
        name: what its name says (its long name, where ``mapping.csv`` has one); None for a container
            under a name of no known grammar and for a ``statistic.csv``.
        format: name of its format in the table of :mod:`pytest_npudump.dump.files`.
    """

    path: Path
    place: Place
    name: DumpName | None
    format: str


MAPPING = "mapping.csv"
MSPROBE = "dump.json"
"""Statistics of msprobe's ``PrecisionDebugger``, and which files beside it hold tensors."""
MSPROBE_TENSORS = "dump_tensor_data"
MSPROBE_BESIDE = frozenset({"construct.json", "stack.json"})
PARAMETER = "Parameter"
"""Type of a module's parameter."""
MODULE_EDGES = "module_edges.txt"
"""Inputs of each module of a model whose modules are in the folders beside, as lines of a golden."""

_MASK = (1 << 64) - 1
_MULTIPLIER = 0xC6A4A7935BD1E995
_SEED = 0xC70F6907
_RANDOM_DIGITS = 16
"""Digits of the short names of msaicerr; a hash has more but once in 1,800 times."""
_EXCEPTION_STAMP = len("20261120080910123")


def libstdcxx_hash(data: bytes) -> int:
    """Return ``std::hash<std::string>`` of libstdc++ on 64-bit machines: MurmurHash2 with its own seed."""
    whole = len(data) - len(data) % 8
    value = _SEED ^ (len(data) * _MULTIPLIER & _MASK)
    for at in range(0, whole, 8):
        block = int.from_bytes(data[at : at + 8], "little") * _MULTIPLIER & _MASK
        value = (value ^ _mix(block)) * _MULTIPLIER & _MASK
    if whole < len(data):
        value = (value ^ int.from_bytes(data[whole:], "little")) * _MULTIPLIER & _MASK
    return _shift(_mix(value))


def _shift(value: int) -> int:
    return value ^ value >> 47


def _mix(value: int) -> int:
    return _shift(value) * _MULTIPLIER & _MASK


def read_mapping(path: Path) -> dict[str, str]:
    """Read a ``mapping.csv``: the long name of each short one. Equal lines count once.

    Two long names for one short name are settled by CANN's hash of the name, where that decides.

    Raises:
        FormatError: the file cannot be read or is cut short, a line has no comma or an empty side, a name
            cannot be a file's, a short name has two long ones, or is known to be the hash of another name.
    """
    names: dict[str, str] = {}
    places: dict[tuple[str, str], tuple[int, int]] = {}
    for number, offset, short, long in _lines(path):
        if not short or not long:
            raise _error(path, (number, offset), "expected a line of the form short name,long name")
        if not (_is_file_name(short) and _is_file_name(long)):
            reason = f"{short!r} and {long!r} are not the names of two files, without directories"
            raise _error(path, (number, offset), f"{reason}: the file is damaged, collect the dump again")
        places.setdefault((short, long), (number, offset))
        if (known := names.setdefault(short, long)) != long:
            both = (known, long)
            hashed = [name for name in both if _hash_of(name) == short]
            if len(hashed) != 1:
                raise FormatError(
                    path,
                    f"{short} stands for both {both[0]!r} and {both[1]!r}; the dump mixes two runs",
                    offset=offset,
                )
            names[short] = hashed[0]
    for short, long in names.items():
        # Else a number that another tool made up.
        is_hash = short.isdecimal() and len(short) > _RANDOM_DIGITS and int(short) <= _MASK
        if is_hash and _contradicts(short, long, names):
            raise _error(
                path,
                places[short, long],
                f"{short} is not the hash of {long!r}, which is {_hash_of(long)}: the file is damaged, "
                "collect the dump again",
            )
    return names


def alias(path: Path) -> str:
    """Return the name that ``mapping.csv`` beside the file ``path`` has for it and that hashes to its own.

    "" where there is none, or the mapping cannot be read.
    """
    try:
        long = read_mapping(path.with_name(MAPPING)).get(path.name, "")
    except FormatError:
        return ""
    return long if _hash_of(long) == path.name else ""


def is_short_name(path: Path) -> bool:
    """Return whether a name is one that only ``mapping.csv`` explains: CANN's hash, or MindSpore's number."""
    return path.suffix in {"", ".npy"} and path.stem.isdecimal()


def nameless(path: Path) -> FormatError:
    """The error for a file under a short name that nothing explains."""
    return FormatError(path, f"its name tells no operator, and no {MAPPING} beside it does")


def _error(path: Path, place: tuple[int, int], reason: str) -> FormatError:
    number, offset = place
    return FormatError(path, f"line {number}: {reason}", offset=offset)


def _is_file_name(name: str) -> bool:
    return name not in {".", ".."} and not {"/", "\0"} & set(name)


def _hash_of(long: str) -> str:
    return str(libstdcxx_hash(long.encode("utf-8", "surrogateescape")))


def _contradicts(short: str, long: str, names: Collection[str]) -> bool:
    found = _hash_of(long)
    if found == short:
        return False
    name = parse_name(long)
    hashed_alone = name is not None and name.kind == "exception" and len(name.stamp) == _EXCEPTION_STAMP
    return hashed_alone or found in names


def _lines(path: Path) -> Iterator[tuple[int, int, str, str]]:
    """Yield the number, the byte, the short name and the long name of each line that is not empty."""
    offset = 0
    for number, raw in enumerate(read_small(path).splitlines(keepends=True), 1):
        if line := raw.rstrip(b"\r\n"):
            short, _, long = line.decode("utf-8", "surrogateescape").partition(",")
            if long.startswith('"'):
                # Only csv.writer (msaicerr) quotes; an operator's name cannot begin with a quotation mark.
                long = next(csv.reader([long]))[0]
            if not raw.endswith(b"\n"):
                reason = "no line feed at its end: the file was cut short, collect the dump again"
                raise _error(path, (number, offset), reason)
            yield number, offset, short, long
        offset += len(raw)
