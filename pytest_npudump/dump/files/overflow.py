"""Overflow records: the tensor of an ``Opdebug.Node_OpDebug`` file.

Two layouts: the old one has three units at fixed places, the new one begins with a magic and has one
accelerator. Only the first overflow of a step is kept. Sources: msaccucmp's constants (formats.md 4.7).

The old layout has nothing to be known by, and a record whose magic is damaged must not read as one: its ids
have to be of CANN's 32 bits, and one without overflow has nothing but zeros between its fields. Nothing but
zeros is what a disk leaves of a file that was not written; CANN writes records where something overflowed.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

from pytest_npudump.dump.filebytes import raw_bytes
from pytest_npudump.dump.names import DumpFile, Place, context, marks_layout, read_place
from pytest_npudump.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from pytest_npudump.dump.records import Payload

MAGIC = 0x5A5A5A5A

STATUS_BITS = (
    (0x8, "negation of the smallest signed integer"),
    (0x10, "integer addition, subtraction, multiplication or multiply-add overflow"),
    (0x20, "floating-point overflow"),
    (0x80, "negative floating-point value converted to unsigned"),
    (0x100, "overflow in converting float32 or int32 to float16"),
    (0x400, "cube accumulation overflow"),
)
"""Bits of an AI Core's status, after CANN's documentation."""

_INFO = ("model_id", "stream_id", "task_id", "task_type", "pc_start", "para_base")
_OLD_SIZE = 2048
_OLD_UNITS = (
    ("DHA Atomic Add", 0, 512, ("status",)),
    ("L2 Atomic Add", 128, 768, ("status",)),
    ("AI Core", 256, 1024, ("kernel_code", "block_idx", "status")),
)
_IDS = _INFO[:4]
_TASK = (*_IDS, "context_id")
_CORE = (*_TASK, "thread_id", "pc_start", "para_base", "core_id", "block_id", "status")
_ACCELERATORS = {
    0: ("AIC", _CORE),
    1: ("AIV", _CORE),
    2: ("AICPU", (*_TASK, "cpu_id", "thread_id", "status")),
    3: ("SDMA", (*_TASK, "thread_id", "src_addr", "dst_addr", "channel_id", "status")),
}
_CORE_UNITS = {"AI Core", "AIC", "AIV"}
_HEX = {"pc_start", "para_base", "kernel_code", "src_addr", "dst_addr"}
_HEAD = struct.Struct("<6I")
_STATUS_WORDS = 4


@dataclass(frozen=True, slots=True)
class OverflowUnit:
    """Report of one unit of the chip.

    Attributes:
        name: ``DHA Atomic Add``, ``L2 Atomic Add``, ``AI Core`` (old layout), ``AIC``, ``AIV``, ``AICPU``
            or ``SDMA``.
        fields: CANN's key names and values, without the status.
        status: one word, or four in version 1 of AIC and AIV.
    """

    name: str
    fields: dict[str, int]
    status: tuple[int, ...]

    @property
    def overflowed(self) -> bool:
        """Return whether any bit of the status is set."""
        return any(self.status)

    def describe(self) -> tuple[str, ...]:
        """The status in words, one text for each bit that is set; nothing where none is."""
        if self.name not in _CORE_UNITS:
            return (f"{self.name} overflow (status {self.status[0]:#x})",) if self.overflowed else ()
        texts = [text for bit, text in STATUS_BITS if self.status[0] & bit]
        if rest := self.status[0] & ~sum(bit for bit, _ in STATUS_BITS):
            texts.append(f"undocumented status bits {rest:#x}")
        texts += [f"status word {i} is {word:#x}" for i, word in enumerate(self.status[1:], 1) if word]
        return tuple(texts)

    def to_json(self) -> dict[str, Any]:
        """The object CANN's tool writes, key order included."""
        fields: dict[str, Any] = {k: hex(v) if k in _HEX else v for k, v in self.fields.items()}
        return {**fields, "status": list(self.status) if len(self.status) > 1 else self.status[0]}


@dataclass(frozen=True, slots=True)
class OverflowRecord:
    """One overflow record.

    Attributes:
        units: one of the new layout, three of the old one.
        version: 0 or 1 in the new layout; None in the old one.
        valid, rsv, data_len: as in the new layout's header; 0 in the old one.
    """

    units: tuple[OverflowUnit, ...]
    version: int | None = None
    valid: int = 0
    rsv: int = 0
    data_len: int = 0

    @property
    def overflowed(self) -> tuple[OverflowUnit, ...]:
        """The units that report an overflow."""
        return tuple(unit for unit in self.units if unit.overflowed)

    def to_json(self) -> dict[str, Any]:
        """The object CANN's tool writes, key order included."""
        if self.version is None:
            return {unit.name: unit.to_json() for unit in self.units}
        (unit,) = self.units
        accelerator = {"valid": self.valid, "acc_type": unit.name, "rsv": self.rsv, "data_len": self.data_len}
        return {
            "magic": hex(MAGIC),
            "version": self.version,
            "acc_list": {**accelerator, "data": unit.to_json()},
        }


def read_overflow(payload: Payload) -> OverflowRecord:
    """The overflow record in the bytes of a dumped tensor.

    Raises:
        FormatError: the bytes are no overflow record.
    """
    return parse_overflow(raw_bytes(payload).tobytes(), payload.path, payload.offset)


def parse_overflow(data: bytes, path: Path | str, offset: int = 0) -> OverflowRecord:
    """The overflow record in ``data``, which begins at byte ``offset`` of ``path``.

    Raises:
        FormatError: too short, an unknown accelerator, a length that is not the accelerator's, or neither
            the magic of the new layout nor what the old one has, such as nothing but zeros.
    """
    if len(data) >= _HEAD.size and _HEAD.unpack_from(data)[0] == MAGIC:
        return _new(data, path, offset)
    if len(data) < _OLD_SIZE:
        raise FormatError(
            path, f"no overflow record: {len(data)} bytes, expected {_OLD_SIZE} or a magic", offset=offset
        )
    if not any(data):
        raise FormatError(
            path,
            f"no overflow record: {len(data)} zeros, which name no task and tell no overflow, as in a file "
            f"that was not written to its end or that holds something else",
            offset=offset,
        )
    record = OverflowRecord(tuple(_old_unit(data, *unit) for unit in _OLD_UNITS))
    if (damaged := next((offset + at for at in _not_old(data, record)), None)) is not None:
        raise FormatError(
            path,
            f"no overflow record of either layout: the new one begins with {MAGIC:#x}, and the old one has "
            f"ids of 32 bits and zeros between its fields, unlike byte {damaged}: the file is damaged, or "
            f"holds something else",
            offset=offset,
        )
    return record


def _not_old(data: bytes, record: OverflowRecord) -> Iterator[int]:
    """Yield the bytes that a record of the old layout does not have: wide ids, data without overflow."""
    for unit, (_, info, _, _) in zip(record.units, _OLD_UNITS, strict=True):
        yield from (info + 8 * number for number, name in enumerate(_IDS) if unit.fields[name] >> 32)
    if not record.overflowed:
        rest = bytearray(data)
        for _, info, status, names in _OLD_UNITS:
            for start, count in ((info, len(_INFO)), (status, len(names))):
                rest[start : start + 8 * count] = bytes(8 * count)
        yield from (at for at, byte in enumerate(rest) if byte)


def _old_unit(data: bytes, name: str, info: int, status: int, names: tuple[str, ...]) -> OverflowUnit:
    fields = dict(zip(_INFO, _words(data, info, len(_INFO)), strict=True))
    fields.update(zip(names, _words(data, status, len(names)), strict=True))
    return OverflowUnit(name, fields, (fields.pop("status"),))


def _new(data: bytes, path: Path | str, offset: int) -> OverflowRecord:
    _, version, valid, kind, rsv, data_len = _HEAD.unpack_from(data)
    if kind not in _ACCELERATORS or version > 1:
        raise FormatError(
            path,
            f"overflow record of version {version}, accelerator {kind}, expected 0 or 1 and 0 to 3",
            offset=offset,
        )
    name, names = _ACCELERATORS[kind]
    words = _STATUS_WORDS if version and name in _CORE_UNITS else 1
    count = len(names) - 1 + words
    if data_len != 8 * count or _HEAD.size + data_len > len(data):
        raise FormatError(
            path,
            f"overflow record of {name}: data_len {data_len} in {len(data)} bytes, expected {8 * count}",
            offset=offset + 20,
        )
    values = _words(data, _HEAD.size, count)
    fields = dict(zip(names[:-1], values[:-words], strict=True))
    return OverflowRecord((OverflowUnit(name, fields, values[-words:]),), version, valid, rsv, data_len)


def _words(data: bytes, offset: int, count: int) -> tuple[int, ...]:
    return struct.unpack_from(f"<{count}Q", data, offset)


_Ids = tuple[int, int]
_Steps = dict[tuple[int, int], dict[str, None]]
"""Types and names of operators, by the step and iteration in which they were dumped."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """The operators that a unit of an overflow record may mean.

    Attributes:
        names: types and names, in the order of the dump's files; more than one where the dump does not tell
            them apart.
        untold: which of ``device`` and ``model`` the dump does not tell of the record or of these operators,
            so that another one's may be among them.
    """

    names: tuple[str, ...] = ()
    untold: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class DumpedOperators:
    """The operators that lie in a dump, to be asked for those of an overflow record.

    Attributes:
        root: the dump path.
        above: its last directories that belong to the dump's layout.
        by_ids: the operators by stream and task, and by place without the step.
    """

    root: Path
    above: tuple[str, ...]
    by_ids: Mapping[_Ids, Mapping[Place, _Steps]]

    @classmethod
    def of(cls, root: Path, files: Iterable[DumpFile]) -> DumpedOperators:
        """Return the operators whose files lie below ``root``; those without stream and task are left out."""
        found: defaultdict[_Ids, dict[Place, _Steps]] = defaultdict(dict)
        for _, place, name, _ in files:
            if name is not None and name.stream is not None and name.task is not None:
                steps = found[name.stream, name.task].setdefault(place._replace(step=-1, iteration=-1), {})
                steps.setdefault((place.step, place.iteration), {})[f"{name.op_type} {name.op_name}"] = None
        return cls(root, context(root.resolve().parts), found)

    def meant_by(self, unit: OverflowUnit, record: Path) -> Candidates:
        """Return the operators that ``unit`` of the overflow record in the file ``record`` may mean.

        They are those of the record's step, or of any where that step has none.
        """
        places = self.by_ids.get((unit.fields["stream_id"], unit.fields["task_id"]), {})
        if not places:
            return Candidates()
        parts = record.relative_to(self.root).parts[:-1]
        here = read_place(parts if marks_layout(parts) else (*self.above, *parts))
        found = {at: steps for at, steps in places.items() if _may_be_one_place(here, at)}
        told = here.model_id >= 0
        if not told:
            by_record = {at: steps for at, steps in found.items() if at.model_id == unit.fields["model_id"]}
            told, found = bool(by_record), by_record or found
        here_then = {
            at: {
                step: names
                for step, names in steps.items()
                if _may_be_same(here.step, step[0]) and _may_be_same(here.iteration, step[1])
            }
            for at, steps in found.items()
        }
        found = {at: steps for at, steps in here_then.items() if steps} or found
        names = (name for steps in found.values() for name in chain(*steps.values()))
        untold = []
        if any(min(here.device, place.device) < 0 for place in found):
            untold.append("device")
        if any(not told or place.model_id < 0 for place in found):
            untold.append("model")
        return Candidates(tuple(dict.fromkeys(names)), tuple(untold))


def _may_be_one_place(one: Place, other: Place) -> bool:
    """Return whether two places may be one: a loaded model on one device in one run, as far as known."""
    depth = min(len(one.run), len(other.run))
    return (
        one.run[:depth] == other.run[:depth]
        and _may_be_same(one.rank, other.rank)
        and _may_be_same(one.device, other.device)
        and (
            min(one.model_id, other.model_id) < 0
            or (one.model, one.model_id) == (other.model, other.model_id)
            # Both may be numbers, which only the kind of container puts in order.
            or (
                (one.either or other.either)
                and {one.model, str(one.model_id)} == {other.model, str(other.model_id)}
            )
        )
    )


def _may_be_same(one: int, other: int) -> bool:
    return one == other or min(one, other) < 0
