"""Tensors that a capture has seen: their statistics, where they are computed, and their files.

Statistics are those of :mod:`pytest_npudump.dump.stats`: by itself where tensors are in host memory, else by
:func:`reduced` on the device, where they stay a row of numbers until it is fetched for :func:`decoded`.
"""

from __future__ import annotations

import csv
import struct
import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import lru_cache
from gc import is_tracked
from hashlib import sha256
from io import StringIO
from itertools import chain
from math import inf, nan
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pytest_npudump.dump.records import SUMMED, Stats
from pytest_npudump.dump.stats import signs

INPUT, OUTPUT = 2, 3
"""A module's argument, or its result."""

ROW, SUMS = 8, 8
"""Cells of a row of statistics, and of the projections behind them."""
_BATCH_ROWS, _BATCH_BYTES = 64, 1 << 22
"""Most tensors of a batch, and their bytes."""
_SMALL = {"cpu": 1 << 16}
"""Most bytes of a tensor that is worth a copy into a batch: in host memory, and (1 MiB) elsewhere."""
BATCHED = frozenset({"float64", "float32", "float16", "bfloat16"})
WIDE = frozenset({"cpu", "cuda", "xpu"})
"""Devices that add up in float64; others do so in float32, of which six digits count."""
_TITLES = (
    "Op Type,Op Name,Task ID,Stream ID,Timestamp,IO,Slot,Data Size,Data Type,Shape,Max Value,Min Value,"
    "Avg Value,L2Norm Value,Count,NaN Count,Negative Inf Count,Positive Inf Count,Zero Count,Digits,"
    "Projections"
)


class Value(NamedTuple):
    """One tensor that was seen.

    Attributes:
        module: number of the module.
        kind: :data:`INPUT` or :data:`OUTPUT`.
        slot: which of these.
        dtype: torch's name of its type.
        shape: its dimensions.
        size: its bytes.
        elements: how many it has.
        wide: whether sums on its device are in float64.
    """

    module: int
    kind: int
    slot: int
    dtype: str
    shape: tuple[int, ...]
    size: int
    elements: int
    wide: bool


@dataclass(slots=True)
class Seen:
    """A tensor that was seen, its statistics or elements, None while these are not known, and its device."""

    value: Value
    found: Any
    device: Any = None


class Batch:
    """Tensors of one type and shape, copied as they come, to be reduced together: a few calls for all.

    Attributes:
        nbytes: size of the copies.
        seen: the tensors that it holds.
    """

    def __init__(self, tensor: Any, *, on_host: bool, wide: bool) -> None:
        torch, size = sys.modules["torch"], tensor.numel() * tensor.element_size()
        most = min(_BATCH_ROWS, _BATCH_BYTES // size)
        self.nbytes, self._on_host, self._wide = most * size, on_host, wide
        with torch.inference_mode(mode=False):
            self._rows = torch.empty((most, tensor.numel()), dtype=tensor.dtype, device=tensor.device)
            self._room = [row.view(tensor.shape) for row in self._rows]
        self.seen: list[Seen] = []

    @classmethod
    def takes(cls, value: Value, device: str) -> bool:
        """Return whether such tensors, on a device of this type, are worth a copy."""
        return 0 < value.size <= _SMALL.get(device, 1 << 20) and value.dtype in BATCHED

    @property
    def full(self) -> bool:
        """Return whether it has no room left."""
        return len(self.seen) == len(self._room)

    def add(self, seen: Seen, tensor: Any) -> None:
        """Copy a tensor."""
        self._room[len(self.seen)].copy_(tensor)
        self.seen.append(seen)

    def reduce(self) -> Any:
        """Reduce the tensors, of which there are some.

        Returns:
            Rows on the device for :func:`decoded`, int64 of shape (k, 16); None where tensors have their
            statistics.
        """
        rows = self._rows[: len(self.seen)]
        if not self._on_host:
            return reduced_rows(rows, wide=self._wide)
        from pytest_npudump.dump.stats.tensor import rows_stats  # noqa: PLC0415 - with the first tensor

        for seen, stats in zip(self.seen, rows_stats(array_of(rows)), strict=True):
            seen.found = stats
        return None


class DumpFiles:
    """Writes the files of steps.

    Attributes:
        stamp: of the last tensor, in microseconds.
    """

    def __init__(self, paths: Sequence[str], kinds: Sequence[str], stamp: int) -> None:
        self._paths, self._kinds, self.stamp = paths, kinds, stamp
        self._cells: dict[Value, tuple[str, str]] = {}

    def write_rows(self, folder: Path, step: Sequence[Seen]) -> None:
        """Write a row per tensor."""
        from pytest_npudump.dump.stats.compact_projections import texts  # noqa: PLC0415 - with a first tensor

        folder.mkdir(parents=True, exist_ok=True)
        known = [one.found.projections for one in step if one.found is not None and one.found.projections]
        sums = iter(texts(np.array(known)) if known else ())
        lines = [_TITLES]
        for seen in step:
            head, tail = self._cells.get(seen.value) or self._cells_of(seen.value)
            self.stamp += 1
            stats: Stats | None = seen.found
            if stats is not None:
                numbers = stats.max, stats.min, stats.avg, stats.l2norm, stats.count, stats.nan
                others = stats.neg_inf, stats.pos_inf, stats.zero, stats.digits or 0
                tail += f",{','.join(map(str, (*numbers, *others)))}".replace("None", "NA")
                tail += f",{next(sums) if stats.projections else '-'}"
                tail += f"@{stats.checksum}" if stats.checksum else ""
            lines.append(f"{head},{self.stamp},{tail}")
        octets = "\n".join([*lines, ""]).encode("utf-8", "surrogateescape")
        (folder / "statistic.csv").write_bytes(octets)

    def _cells_of(self, value: Value) -> tuple[str, str]:
        """Return the cells of a row before the time, and those behind it which are no statistics."""
        text, (name, kind, io) = StringIO(), self._named(value)
        shape = f"({','.join(map(str, value.shape))})"
        lines = csv.writer(text, lineterminator="\n")
        lines.writerows([(kind, name, 0, 0), (io, value.slot, value.size, value.dtype, shape)])
        head, _, tail = text.getvalue()[:-1].rpartition("\n")
        return self._cells.setdefault(value, (head, tail))

    def write_tensors(self, folder: Path, step: Sequence[Seen]) -> None:
        """Write a file per tensor."""
        folder.mkdir(parents=True, exist_ok=True)
        lines = []
        for at, seen in enumerate(step):
            value, tensor = seen.value, seen.found
            name, kind, io = self._named(value)
            self.stamp += 1
            long = f"{kind}.{name.replace('/', '_')}.0.0.{self.stamp:016}.{io}.{value.slot}.ND"
            lines.append((f"{at}.npy", f"{long}.{value.dtype}.npy"))
            header = f"{{'descr': {_descr(value.dtype)!r}, 'fortran_order': False, 'shape': {value.shape}, }}"
            text = header.encode() + b" " * (-(len(header) + 11) % 64) + b"\n"
            octets = array_of(tensor).reshape(-1).view("u1").data
            with (folder / f"{at}.npy").open("wb") as file:
                file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text)
                file.write(octets)
        with (folder / "mapping.csv").open("w", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows(lines)

    def _named(self, value: Value) -> tuple[str, str, str]:
        io = "input" if value.kind == INPUT else "output"
        return self._paths[value.module], self._kinds[value.module], io


def tensors_in(value: Any, kind: Any = None, others: list[Any] | None = None) -> list[Any]:
    """Return the tensors in what a module returns, or is given, in order; of torch, or of a class.

    Those of a dict are in the order of its keys, in which order ever it was filled.

    ``others`` gets the objects that may hold more, which are not looked through, and floats and arrays.
    """
    kind = kind or sys.modules["torch"].Tensor
    if isinstance(value, kind):
        return [value]
    found: list[Any] = []

    def look(value: Any) -> None:
        if isinstance(value, kind):
            found.append(value)
        elif isinstance(value, (list, tuple)):
            for one in value:
                look(one)
        elif isinstance(value, dict):
            look([value[key] for key in sorted(value, key=str)])
        elif is_dataclass(type(value)):
            look([getattr(value, one.name) for one in fields(value)])
        elif others is not None and (
            is_tracked(value) or isinstance(value, float) or hasattr(value, "__array__")
        ):  # one that is tracked refers to others, as no count or text does
            others.append(value)

    look(value)
    return found


_MOST_FED = 1 << 25
"""Bytes of a model's inputs beyond which their digest would take longer than a passing test should."""


def bytes_of(tensor: Any) -> bytes:
    """Return the elements of a tensor, wherever it is."""
    if hasattr(tensor, "asnumpy"):
        return bytes(tensor.asnumpy().tobytes())
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return bytes(flat.view(sys.modules["torch"].uint8).numpy().tobytes()) if flat.numel() else b""


def versions_of(model: Any) -> dict[str, int]:
    """Return how often each parameter of a ``torch.nn.Module`` was written in place, but lazy ones."""
    held = chain(model.named_parameters(), model.named_buffers())
    ready = ((name, one) for name, one in held if not hasattr(one, "materialize") and not one.is_inference())
    return {name: one._version for name, one in ready}  # noqa: SLF001 - torch's notes on autograd name it


def digest_of(tensors: Sequence[Any]) -> bytes:
    """Return a digest of what a model was given; b"" where that is large, or no elements can be had."""
    digest = sha256()
    try:
        if not 0 < sum(int(one.nbytes) for one in tensors) <= _MOST_FED:
            return b""
        for one in tensors:
            digest.update(repr((str(one.dtype), tuple(one.shape))).encode() + bytes_of(one))
    except (RuntimeError, TypeError, ValueError, AttributeError):  # of tensors that stand for others
        return b""
    return digest.digest()


def reduced(tensor: Any, *, wide: bool = True) -> Any:
    """Reduce a tensor to its statistics on its device, without waiting for it.

    Args:
        tensor: of any type and shape.
        wide: whether sums are in float64; else in float32.

    Returns:
        An int64 tensor of shape (16,), for :func:`decoded`; None for a type whose values cannot be had.
    """
    torch = sys.modules["torch"]
    if not tensor.numel():
        return torch.zeros(ROW + SUMS, dtype=torch.int64, device=tensor.device)
    if tensor.is_floating_point() and tensor.element_size() == 1:
        try:
            tensor = tensor.to(torch.float32)
        except (RuntimeError, NotImplementedError):
            return None
    return reduced_rows(tensor.reshape(1, -1), wide=wide)[0]


def reduced_rows(rows: Any, *, wide: bool) -> Any:
    """Reduce each row of a tensor of shape (k, n), n > 0, to an int64 row of shape (16,)."""
    torch = sys.modules["torch"]
    kind, code = (torch.float64, torch.int64) if wide else (torch.float32, torch.int32)
    int64 = torch.int64

    def found(numbers: Sequence[Any], counts: Sequence[Any], sums: Any = None) -> Any:
        cells = [torch.stack([one.to(kind) for one in numbers], 1).view(code).to(int64)]
        cells.append(torch.stack([one.to(int64) for one in counts], 1))
        spare = ROW - len(numbers) - len(counts) + (SUMS if sums is None else 0)
        cells.append(torch.zeros((len(rows), spare), dtype=int64, device=rows.device))
        if sums is not None:
            cells.append(sums if sums.dtype == int64 else sums.view(code).to(int64))
        return torch.cat(cells, 1)

    def marked(rows: Any, room: Any = None) -> Any:
        if rows.element_size() > 4:  # noqa: PLR2004 - of which devices know no such function
            plain = rows.masked_fill(rows.isnan(), 2 * _MARK)
            return plain.masked_fill(plain == inf, _MARK).masked_fill(plain == -inf, -_MARK)
        if rows.dtype == torch.float16:  # in which a mark is no number
            rows = room = rows.float()
        return torch.nan_to_num(rows, 2 * _MARK, _MARK, -_MARK, out=room)

    if rows.is_complex():
        parts = torch.view_as_real(rows.resolve_conj())
        flat, filled = parts.flatten(1), parts != 0
        counts = [one.any(-1).sum(1) for one in (parts.isnan(), filled)]
        counts.append((parts.isfinite() & filled).flatten(1).sum(1))
        return found([torch.linalg.vector_norm(flat.to(kind), dim=1)], counts, _projected(marked(flat), kind))
    if rows.is_floating_point():
        room, exact = torch.empty_like(rows), torch.float32 if rows.shape[1] < 1 << 24 else int64

        def without_nan(value: float) -> Any:
            if rows.element_size() > 4:  # noqa: PLR2004 - of which devices know no such function
                return rows.masked_fill(rows.isnan(), value)
            return rows.nan_to_num(value, inf, -inf)

        def count(test: str, value: Any) -> Any:
            # As numbers: bools are compared, and added up, several times as slowly.
            if wide:
                return getattr(torch, test)(rows, value, out=room).sum(1, dtype=exact)
            return getattr(room.copy_(rows), f"{test}_")(value).sum(1, dtype=exact)

        summed = rows if rows.element_size() <= kind.itemsize else rows.to(kind)
        numbers = [
            without_nan(-inf).amax(1),
            without_nan(inf).amin(1),
            summed.sum(1, dtype=kind),
            torch.linalg.vector_norm(summed, dim=1, dtype=kind),
        ]
        counts = [count("ne", rows), count("eq", inf), count("eq", -inf), count("ne", 0)]
        return found(numbers, counts, _projected(marked(rows, room), kind))
    top = rows.dtype == getattr(torch, "uint64", None)
    whole = rows.view(int64) if top else rows.to(int64)
    low, high = whole & 0xFFFFFFFF, whole >> 32
    ordered = whole ^ -(1 << 63) if top else whole
    high = high & 0xFFFFFFFF if top else high
    floats = high.to(kind) * 2.0**32 + low.to(kind) if top else whole.to(kind)
    counts = [ordered.amax(1), ordered.amin(1), high.sum(1), low.sum(1), (whole != 0).sum(1)]
    counts += [] if (total := _checksum(rows)) is None else [torch.ones_like(total), total]
    return found(
        [torch.linalg.vector_norm(floats, dim=1)],
        counts,
        None if top and not wide else _projected(*((floats, kind) if wide else (whole.clone(), int64))),
    )


_MARK = 2.0**-120
"""An infinity in the sums of floats, where beside numbers it is nothing: in their definition it is 1."""
_BLOCKS = 1 << 12
"""Most blocks of a tensor with projections."""


@lru_cache(maxsize=64)
def signs_on(device: Any, dtype: Any, kind: Any) -> tuple[Any, ...]:
    """Return the signs of places in a type, those of columns and of blocks in that of sums, and their turns.

    Copies from host memory to a device are no part of a graph: they are made before a capture.
    """
    torch = sys.modules["torch"]
    of_blocks, turns = signs.block_signs(0, _BLOCKS)
    with torch.inference_mode(mode=False):
        found = (
            torch.from_numpy(one.copy()).to(of).to(device)
            for one, of in (
                (signs.place_signs(), dtype),
                (signs.column_signs(), kind),
                (of_blocks, kind),
                (turns, torch.int64),
            )
        )
        return tuple(found)


@lru_cache(maxsize=64)
def factors_on(device: Any) -> tuple[Any, Any] | None:
    """Return the factors of places and blocks of a checksum, made before a capture as those signs are.

    None where a device does not sum up as the host does, as where it has no such integers.
    """
    torch, wrapped = sys.modules["torch"], signs.place_factors()
    tables = (one.view(np.int64).copy() for one in (wrapped, signs.block_factors(0, _BLOCKS)))
    sample = wrapped.view(np.int16)[:-1]
    host = signs.Checksum()
    host.add(sample)
    try:
        with torch.inference_mode(mode=False):
            found = places, blocks = tuple(torch.from_numpy(one).to(device) for one in tables)
            total = int(_sum_of_words(torch.from_numpy(sample.copy()).to(device)[None], places, blocks))
    except RuntimeError:
        return None
    return found if signs.checksum_text(total) == host.text() else None


def _checksum(rows: Any) -> Any:
    """Return the checksum, (k,), of rows of integers or bools, (k, n); None where there is none."""
    words = -(-rows.shape[1] * rows.element_size() // signs.WORD)
    factors = factors_on(rows.device)
    if factors is None or rows.shape[1] < 2 or words > _BLOCKS * signs.BLOCK:  # noqa: PLR2004 - one is its max
        return None
    return _sum_of_words(rows, *factors)


def _sum_of_words(rows: Any, places: Any, blocks: Any) -> Any:
    torch, octets = sys.modules["torch"], rows.contiguous().view(sys.modules["torch"].uint8)
    words = -(-octets.shape[1] // signs.WORD)
    if spare := words * signs.WORD - octets.shape[1]:
        octets = torch.cat([octets, octets.new_zeros((len(octets), spare))], 1)
    elif octets.storage_offset() % signs.WORD:
        octets = octets.clone()
    mixed = octets.view(torch.int64) * (signs.SPREAD - (1 << 64))
    mixed ^= (mixed >> 32) & 0xFFFFFFFF
    edge = words // signs.BLOCK * signs.BLOCK
    parts = mixed[:, :edge].reshape(-1, signs.BLOCK), mixed[:, edge:]
    sums = [(one * places[: one.shape[1]]).sum(1).reshape(len(rows), -1) for one in parts if one.numel()]
    every = torch.cat(sums, 1)
    return (every * blocks[: every.shape[1]]).sum(1)


def _projected(rows: Any, kind: Any) -> Any:
    """Return the projections, (k, 8), of rows of finite numbers, (k, n), added up in a type; ends these."""
    torch, (places, columns, of_blocks, turns) = sys.modules["torch"], signs_on(rows.device, rows.dtype, kind)
    whole = rows.shape[1] // signs.BLOCK * signs.BLOCK
    found = []
    for part in (rows[:, :whole].reshape(-1, signs.BLOCK), rows[:, whole:]):
        if part.numel():
            size = part.shape[1]
            edge = size - size % signs.COLUMNS
            signed = part.mul_(places[:size])
            sums = signed[:, :edge].reshape(len(part), -1, signs.COLUMNS).sum(1, dtype=kind)
            sums[:, : size - edge] += signed[:, edge:]
            plain = rows.is_cpu and kind is torch.float64  # elsewhere products may be rounded more
            sums = sums @ columns.T if plain else (sums[:, None] * columns).sum(2)
            found.append(sums.reshape(len(rows), -1))
    every = torch.cat(found, 1)
    chosen = slice(every.shape[1])
    return (every[:, turns[chosen]] * of_blocks[chosen]).reshape(len(rows), -1, SUMS).sum(1)


def decoded(row: Sequence[int], value: Value) -> Stats:
    """Return the statistics in a row of :func:`reduced`."""
    count, digits = value.elements, SUMMED if value.wide else 6
    row, codes = row[:ROW], row[ROW:]
    known = len(codes) > 0 and _has_projections(value.dtype, count, wide=value.wide)
    if "complex" in value.dtype:
        nans, filled, finite = row[1:4]
        norm, *told = _floats([row[0], *codes], value)
        sums = tuple(one / (1 if finite else _MARK) for one in told) if known else None
        return Stats(count, l2norm=norm, nan=nans, zero=count - filled, digits=digits, projections=sums)
    if not count:
        none = (0.0,) * SUMS if known else None
        return Stats(0, l2norm=0.0, nan=0, neg_inf=0, pos_inf=0, zero=0, digits=digits, projections=none)
    if "float" in value.dtype:
        high, low, total, norm, *told = _floats([*row[:4], *codes], value)
        sums = tuple(told) if known else None
        nans, pos, neg, filled = row[4:]
        if sums and filled == nans + pos + neg:  # numbers beside marks are all 0
            sums = tuple(one / _MARK for one in sums)
        high, low = (nan, nan) if nans == count else (high + 0.0, low + 0.0)
        return Stats(
            count, high, low, total / count + 0.0, norm, nans, neg, pos, count - filled, digits, sums
        )
    (norm,), (most, least, above, below, filled, has, summed) = _floats(row[:1], value), row[1:ROW]
    sums = (_floats(codes, value) if value.wide else tuple(map(float, codes))) if known else None
    shift = 1 << 63 if value.dtype == "uint64" else 0
    total = (above << 32) + below
    text = signs.checksum_text(summed) if has and sums and count > 1 else ""
    return Stats(
        count, most + shift, least + shift, total / count, norm, 0, 0, 0, count - filled, digits, sums, text
    )


def _has_projections(dtype: str, count: int, *, wide: bool = True) -> bool:
    """Return whether all devices agree on the projections of such a tensor."""
    return (wide or dtype != "uint64") and count * (1 + ("complex" in dtype)) <= _BLOCKS * signs.BLOCK


def _floats(codes: Sequence[int], value: Value) -> tuple[float, ...]:
    whole, real = ("q", "d") if value.wide else ("i", "f")
    return struct.unpack(f"<{len(codes)}{real}", struct.pack(f"<{len(codes)}{whole}", *codes))


def array_of(tensor: Any) -> Any:
    """Return the elements of a tensor in host memory as a numpy array, of ml_dtypes' types where need be."""
    if not hasattr(tensor, "resolve_conj"):  # no tensor of torch: it is one
        return tensor
    torch, plain = sys.modules["torch"], tensor.detach().resolve_conj().resolve_neg().contiguous()
    try:
        return plain.numpy()
    except TypeError:
        import ml_dtypes  # noqa: PLC0415 - only these types need it

        flat = plain.as_strided((plain.numel(),), (1,))  # a single element may have another stride
        octets = flat.view(torch.uint8).numpy()
        return octets.view(getattr(ml_dtypes, str(tensor.dtype).removeprefix("torch."))).reshape(tensor.shape)


def host_stats(tensor: Any) -> Stats | None:
    """Return the statistics of a tensor in host memory, or an array; None where its type is unknown."""
    from pytest_npudump.dump.arrays.decode import DecodeError  # noqa: PLC0415 - with the first tensor
    from pytest_npudump.dump.stats.tensor import projected_stats, tensor_stats  # noqa: PLC0415 - the same

    try:
        array = array_of(tensor)
        known = _has_projections(array.dtype.name, array.size)
        return projected_stats(array) if known else tensor_stats(array)
    except (AttributeError, DecodeError):  # neither numpy nor ml_dtypes knows values of this type
        return None


def _descr(dtype: str) -> str:
    plain = getattr(np, "bool_" if dtype == "bool" else dtype, None)
    return dtype if plain is None else str(np.dtype(plain).str)
