"""Records of a dump's tensors, whatever wrote it, under one key type.

A record is a row of the table that readers of every format give; everything else (golden files, comparison,
reports) knows only these.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from pytest_npudump.errors import FormatError, RequestError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_UNSAFE = re.compile(r"[\s%#\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\ufeff\ufffe\uffff\ud800-\udfff]")
_SLOT = re.compile(r"(?P<io>[a-z_]+)\.(?P<slot>\d+)\Z")
_QUALIFIERS = ("capture", "rank", "device", "model", "load", "step", "turn")
SUMMED = 15
"""Digits of an avg and l2norm that were added up in another order, of which the last ones mean nothing."""
_PLAIN = (0, 0, "", 0, -1, -1, "")


def sanitise(name: str) -> str:
    r"""Return ``name`` as CANN writes it into file names: space, ``.``, ``/`` and ``\`` become ``_``."""
    return name.replace("/", "_").replace(".", "_").replace(" ", "_").replace("\\", "_")


def key_name(text: str) -> str:
    """Return a name as texts of keys have it."""
    return _UNSAFE.sub(
        lambda m: "".join(f"%{byte:02X}" for byte in m.group().encode("utf-8", "surrogateescape")), text
    )


def _decode(text: str) -> str:
    if "%" not in text:
        return text
    raw = re.sub(rb"%([0-9A-F]{2})", lambda m: bytes([int(m.group(1), 16)]), text.encode())
    return raw.decode("utf-8", "surrogateescape")


@dataclass(frozen=True, slots=True, order=True)
class TensorKey:
    """Key of a tensor: one input or output of one execution of a layer.

    Only what tells tensors of one dump apart is set, so that a key does not change with the process,
    the clock or the device: the qualifiers keep their defaults where a dump has only one model, one
    device, one step and so on.

    Attributes:
        layer: operator name (``op_name``), raw where it is known, else as sanitised in file names.
        io: ``input``, ``output``, ``buffer`` or ``workspace``.
        slot: index among the tensors of that direction.
        turn: 0 for the first execution of the layer in a step, 1 for the second ...
        step: which execution of the model (``data_index``), counted from the first one dumped.
        model: model name, where the dump holds more than one.
        load: 0 for the first model loaded under that name, 1 for the second ...
        device: device id, where the dump holds more than one; else -1.
        rank: rank of a distributed run, where the dump holds more than one; else -1.
        capture: name given to ``npu_dump.capture()``.
    """

    layer: str
    io: str
    slot: int
    turn: int = 0
    step: int = 0
    model: str = ""
    load: int = 0
    device: int = -1
    rank: int = -1
    capture: str = ""

    def __str__(self) -> str:
        """``layer[#qualifier=value,...]:io.slot`` with white space, ``%`` and ``#`` percent-encoded."""
        return f"{key_name(self.layer)}{self.qualifiers_text}:{self.io}.{self.slot}"

    @property
    def name_text(self) -> str:
        """The name of the layer, the first part of the text."""
        return key_name(self.layer)

    @property
    def operator_names(self) -> tuple[str, ...]:
        """Names of the operator in lines of models: with the model where several ran."""
        name = key_name(self.layer)
        return (f"{name}#model={key_name(self.model)}", name) if self.model else (name,)

    @property
    def qualifiers_text(self) -> str:
        """The second part of the text, such as ``#step=1,turn=2``; "" where all have their defaults."""
        if (self.turn, self.step, self.model, self.load, self.device, self.rank, self.capture) == _PLAIN:
            return ""
        parts = []
        for name in _QUALIFIERS:
            value = getattr(self, name)
            if value in ("", -1) or (value == 0 and name not in {"device", "rank"}):
                continue
            text = key_name(value).replace(",", "%2C") if isinstance(value, str) else str(value)
            parts.append(f"{name}={text}")
        return "#" + ",".join(parts) if parts else ""

    @property
    def sanitised(self) -> TensorKey:
        """The same key with the layer's name as file names carry it."""
        name = sanitise(self.layer)
        return self if name == self.layer else TensorKey(name, *_BEHIND(self))

    @property
    def execution(self) -> TensorKey:
        """The part that keys of all tensors of one execution of a model share."""
        return replace(self, layer="", io="", slot=0, turn=0)

    @classmethod
    def parse(cls, text: str) -> TensorKey:
        """The key that ``str()`` wrote as ``text``.

        Raises:
            RequestError: ``text`` is not of the form ``layer[#qualifiers]:io.slot``.
        """
        head, colon, tail = text.rpartition(":")
        place = _place_of(tail)
        if not colon or place is None or not head:
            raise RequestError(
                f"{text!r} is not a tensor's key, expected layer:io.slot such as conv1:output.0"
            )
        layer, _, qualifiers = head.partition("#")
        if not qualifiers:
            return cls(_decode(layer), *place)
        values: dict[str, str | int] = {}
        for part in filter(None, qualifiers.split(",")):
            name, _, value = part.partition("=")
            if name in {"model", "capture"}:
                values[name] = _decode(value)
            elif name in _QUALIFIERS and value.isdigit():
                values[name] = int(value)
            else:
                known = ", ".join(_QUALIFIERS)
                raise RequestError(f"{text!r}: unknown qualifier {part!r}, expected one of {known}")
        return cls(_decode(layer), *place, **values)  # type: ignore[arg-type]


_BEHIND = attrgetter(*(one.name for one in fields(TensorKey)[1:]))
"""All of a key but its layer; ``replace`` takes twice as long."""


@lru_cache(maxsize=4096)
def _place_of(text: str) -> tuple[str, int] | None:
    """The direction and the slot that a key ends in, one object for all keys that end so; None for others."""
    match = _SLOT.match(text)
    return None if match is None else (match["io"], int(match["slot"]))


@dataclass(frozen=True, slots=True)
class Stats:
    """Statistics of one tensor; None is "unknown": the producer did not compute it.

    Attributes:
        count: number of elements.
        max: largest value; int for integer and bool tensors, else float (NaN and infinities included).
        min: smallest value, of the same type.
        avg: arithmetic mean.
        l2norm: square root of the sum of squares.
        nan: number of such elements.
        neg_inf: number of negative infinities.
        pos_inf: number of positive infinities.
        zero: number of zeros.
        digits: significant decimal digits the float values carry; None for full precision. ACL's CSV
            files carry 6. :data:`SUMMED` stands for sums in float64 of another order than ours.
        projections: sums of the finite elements under eight rows of random signs, see
            :mod:`pytest_npudump.dump.stats.signs`; in full precision, whatever ``digits`` says.
        checksum: of integers and bools that have projections, see :mod:`pytest_npudump.dump.stats.signs`;
            "" of others.
    """

    count: int | None = None
    max: float | int | None = None
    min: float | int | None = None
    avg: float | None = None
    l2norm: float | None = None
    nan: int | None = None
    neg_inf: int | None = None
    pos_inf: int | None = None
    zero: int | None = None
    digits: int | None = None
    projections: tuple[float, ...] | None = None
    checksum: str = ""

    @classmethod
    def of_parts(cls, parts: Sequence[Stats]) -> Stats:
        """Return the statistics of a tensor by those of its parts; unknown ones of a part are unknown."""

        def column(name: str) -> list[Any] | None:
            cells = [getattr(one, name) for one in parts]
            return None if None in cells else cells

        found: dict[str, Any] = {}
        for name in ("count", "nan", "neg_inf", "pos_inf", "zero"):
            found[name] = None if (cells := column(name)) is None else sum(cells)
        for name, best in (("max", max), ("min", min)):
            cells = column(name)
            numbers = [cell for cell in cells or () if cell == cell]  # noqa: PLR0124 - NaN
            found[name] = None if cells is None else best(numbers) if numbers else math.nan
        if (norms := column("l2norm")) is not None:
            found["l2norm"] = math.sqrt(sum(norm * norm for norm in norms))
        if (means := column("avg")) is not None and (counts := column("count")) is not None:
            weighed = [mean * count for mean, count in zip(means, counts, strict=True) if count]
            found["avg"] = sum(weighed) / sum(counts) if weighed else math.nan
        digits = [one.digits for one in parts if one.digits]
        return cls(**found, digits=min(digits) if digits else SUMMED if len(parts) > 1 else None)


@dataclass(frozen=True, slots=True)
class Payload:
    """Place of a tensor's bytes.

    Attributes:
        path: the file.
        offset: first byte of the data.
        nbytes: bytes of data that belong to the shape (not counting alignment behind it).
        kind: ``raw`` (device bytes), ``npy``, or ``strided``: raw, in another order than C's; ``none``: of no
            elements, in no file.
        axes: size and stride of each axis, in elements, where it is strided.
        data: the bytes themselves, where they are so few that they were read with the header; else none.
    """

    path: Path
    offset: int
    nbytes: int
    kind: str = "raw"
    axes: tuple[tuple[int, int], ...] = ()
    data: bytes = field(default=b"", compare=False, repr=False)


ARGMAX = "argmax"
"""Stands behind hashes for where the rows of an output are by far the largest: ``argmax:17``."""
BESIDE_MASK, WEIGHED = "~", "="
"""What stands before projections in the text of :data:`ARGMAX`, behind the places where it tells any: of the
elements beside a mask, or of all, each by its factor of :func:`pytest_npudump.dump.stats.signs.factors`."""
CHECKSUM, CHECKSUM_LENGTH = "x", 17
"""What :attr:`Stats.checksum` begins with, and its length: it stands first in the text of :data:`ARGMAX`."""


def with_peaks(digest: str, text: str) -> str:
    """Return hashes with a text of :data:`ARGMAX` behind them, in which a checksum stands first."""
    if not text:
        return digest
    hashes, _, told = digest.partition(f"{ARGMAX}:")
    both = text + told if text.startswith(CHECKSUM) else told + text
    return f"{hashes.rstrip()} {ARGMAX}:{both}".lstrip()


def parted_digest(digest: str) -> tuple[str, str]:
    """Return a checksum that stands in hashes, "" for none, and these without it."""
    hashes, mark, told = digest.partition(f"{ARGMAX}:")
    checksum = told[:CHECKSUM_LENGTH] if told.startswith(CHECKSUM) else ""
    rest = told.removeprefix(checksum)
    return checksum, f"{hashes}{mark}{rest}" if rest else hashes.rstrip()


@dataclass(frozen=True, slots=True)
class TensorRecord:
    """One tensor of a dump.

    Attributes:
        key: which tensor.
        op_type: operator type, ``Conv2D``; "" where unknown.
        dtype: name after :mod:`pytest_npudump.dump.dtypes`; ``-`` where unknown.
        shape: as on the device; None where unknown.
        format: layout name such as ``NCHW``; "" where unknown.
        size: bytes the producer says the tensor has, alignment included; None where unknown.
        stats: None where the dump has a tensor whose statistics were not asked for or cannot be computed.
        time: microseconds since the epoch at which it was dumped; 0 where unknown.
        task: id from the file name; None where it has none.
        stream: the same.
        path: the file it was read from.
        payload: the tensor's bytes, where the dump has them.
        original_shape: shape before CANN's layout conversion; None where unknown.
        sub_format: group count of FRACTAL_Z and the like; 0 where unknown.
        note: why something is missing (no statistics for this type, null address ...); "" if nothing is.
        digest: hashes of the tensor's bytes that the producer computed, in lower case: ``md5:5d41...``,
            ``sha1:aaf4...``, or both in this order with a space between; "" where it gave none. Behind them
            :data:`ARGMAX` of an output, and of what has a checksum.
    """

    key: TensorKey
    op_type: str
    dtype: str
    shape: tuple[int, ...] | None
    path: Path
    format: str = ""
    size: int | None = None
    stats: Stats | None = None
    time: int = 0
    task: int | None = None
    stream: int | None = None
    payload: Payload | None = None
    original_shape: tuple[int, ...] | None = None
    sub_format: int = 0
    note: str = ""
    digest: str = ""


@dataclass(frozen=True, slots=True)
class Dump:
    """A dump that was read.

    Attributes:
        root: directory it was read from.
        records: one a tensor, in execution order (time of the dump, task id, inputs before outputs): a table
            of columns as it was read, or a tuple.
        problems: files that could not be read; a dump with problems must not pass for a good one.
        notes: what a reader decided that a user may want to know.
        raw_names: whether the layers' names are raw (from headers) rather than sanitised (from file names).
        overflow: files of overflow records, which hold no tensor of the model.
        fed: lines of a golden for what models were given, as far as it passed through host memory.
        outputs: the same for their outputs that are not among the records.
    """

    root: Path
    records: Sequence[TensorRecord]
    problems: tuple[FormatError, ...] = ()
    notes: tuple[str, ...] = field(default=())
    raw_names: bool = False
    overflow: tuple[Path, ...] = ()
    fed: str = ""
    outputs: str = ""
