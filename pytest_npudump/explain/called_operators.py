"""The calls of ATen operators that gave what a dump holds, each computed again on the CPU from its arguments.

A dumped tensor is a call's result if the call may run its operator of CANN and gave the same bytes, and if as
many tensors of that operator have these bytes as calls gave them, so that their order pairs them.

The noise on top of the bounds of healthy operators is the call's own: what a unit in the last place of its
arguments makes of its result, how far the CPU in float32 is from the CPU in float64, and, of 16-bit results,
how far the CPU's kernel of that type is off. A call that is off by less than a few of these is never
convicted, whatever it computes.
"""

from __future__ import annotations

import math
import shutil
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from pytest_npudump.explain.dumped_operators import host_of
from pytest_npudump.explain.operator_alone import (
    CONVICTED,
    DUMPED,
    MARGIN,
    Alone,
    Healthy,
    JudgedOperator,
    NotAtHandError,
    distance,
    healthy,
    isolate,
)
from pytest_npudump.explain.rounding import largest_of, rounded_to
from pytest_npudump.language.text import number_of
from pytest_npudump.runtime.aten import (
    KeptCall,
    KeptRun,
    NotCopiedError,
    NotRecomputedError,
    Reading,
    digest_of,
    save_call,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from pytest_npudump.dump.records import TensorKey, TensorRecord
    from pytest_npudump.explain.operator_alone import Changes

    Array = np.ndarray[Any, np.dtype[Any]]

_MATRIX = frozenset(
    {"mm", "bmm", "addmm", "addbmm", "baddbmm", "addmv", "mv", "dot", "matmul", "linear"}
    | {"convolution", "_convolution", "convolution_backward", "conv2d"}
)
"""Operators of the matrix unit."""

_TIES = frozenset(
    {"argmax", "argmin", "argsort", "cummax", "cummin", "kthvalue", "max", "median", "min", "mode"}
    | {"nanmedian", "sort", "topk", "unique", "_unique2", "max_pool2d_with_indices", "adaptive_max_pool2d"}
)
"""Operators that may give the place of either of equal values."""

_SELECTING = frozenset(
    {
        "where",
        "masked_fill",
        "gather",
        "index_select",
        "index",
        "slice",
        "select",
        "cat",
        "stack",
        "clone",
        "permute",
    }
    | {"transpose", "view", "reshape", "expand", "repeat", "flip", "roll", "constant_pad_nd", "tril", "triu"}
    | {"maximum", "minimum", "clamp", "clamp_min", "clamp_max", "relu", "hardtanh", "amax", "amin"}
)
"""Operators that only select, move or copy elements."""

_JUMPS = frozenset({"div", "floor_divide", "fmod", "remainder", "__lshift__", "__rshift__"})
"""Operators whose result jumps where a quotient is almost an integer, or that C leaves undefined."""


_MOST_NOISE = 0.05
"""Noise beyond which a call says nothing: in what it makes of its arguments no digit is certain."""

_FLUSHED = 1 + 2.0**-5
"""Multiple of the smallest normal number below which a result may be rounded under it, and be zero."""

_INNER_ROUNDING = {"float16": 2.0**-11, "bfloat16": 2.0**-8}
"""Largest error of one rounding to the type inside of a kernel."""


@dataclass(frozen=True, slots=True, eq=False)
class CalledOperator:
    """One result of a call, as the device gave it.

    Attributes:
        call: which.
        place: of the result, among the results of the call.
        dtype: of the result on the device.
        output: its values, in the host's layout; of no elements where the call is only computed again.
        wide: ``float32`` or ``float64``, in which the CPU computes.
        plain: whether its matrix unit is known to take float32 operands as they are.
    """

    call: KeptCall
    place: int
    dtype: str
    output: Array = field(default_factory=lambda: np.empty(0))
    wide: str = "float32"
    plain: bool = False

    @property
    def name(self) -> str:
        """The call, as torch prints it."""
        return self.call.name

    @property
    def feeds(self) -> Mapping[str, Array]:
        """Return nothing: arguments of a call have no names."""
        return {}

    def expected(self) -> Array:
        """Compute the result on the CPU."""
        return self._read(Reading(self.wide))

    def healthy(self, expected: Array) -> Healthy:
        """Return a healthy device's error limit; a kernel may round to its type between its steps."""
        dtype = self.dtype
        other = self._read(Reading("float64" if self.wide == "float32" else "float32"))
        moved = self._read(Reading(self.wide, moved=True))
        noise = math.inf
        if {other.shape, moved.shape} == {expected.shape}:
            with np.errstate(over="ignore"):
                held = [one.astype(np.float32).astype(np.float64) for one in (other, moved)]
            noise = max(distance(one, expected.astype(np.float64), largest_of(dtype)) for one in held)
        if noise > _MOST_NOISE:
            raise NotRecomputedError("1 ULP of its inputs changes its result")
        matrix = self.call.operator.rstrip("_") in _MATRIX
        bounds = healthy(dtype, noise, plain=self.plain and dtype == "float32", matrix=matrix)
        native = self._native_distance(expected)
        inner = max(_INNER_ROUNDING.get(dtype, 0.0), native if math.isfinite(native) else 0.0)
        if MARGIN * inner <= bounds.most:
            return bounds
        return replace(bounds, most=MARGIN * inner, means=f"rounding to {dtype} between its steps")

    def floats(self, actual: Array, expected: Array, bounds: Healthy) -> Iterator[tuple[Array, Array]]:
        """Yield the output and what it may be, by each way in which a device may hold what it is given."""
        edge = largest_of(self.dtype) * (1 - min(bounds.most, 0.5))
        for one, form in self._held(actual, expected):  # what is infinite here may be as good as that there
            both = (np.abs(one) >= edge) & (np.abs(form) >= edge) & (np.sign(one) == np.sign(form))
            yield np.where(both & (np.isinf(one) | np.isinf(form)), form, one), form

    def _held(self, actual: Array, expected: Array) -> Iterator[tuple[Array, Array]]:
        dtype, wide = self.dtype, self.wide
        readings = [expected]
        if dtype in _INNER_ROUNDING:
            readings.append(self._read(Reading(wide, rounded=dtype)))
        for reading in readings:
            yield actual, reading.astype(np.float64)
            yield actual, rounded_to(reading, dtype).astype(np.float64)
        smallest = _FLUSHED * float(ml_dtypes.finfo(dtype).smallest_normal)  # type: ignore[no-untyped-call]
        given = (array.astype(np.float64) for array in (actual, expected, *self.call.floats()))
        if any(bool((np.abs(array) < smallest).any()) for array in given):
            flushed = self._read(Reading(wide, flushed=True)).astype(np.float64)
            below = (np.abs(actual) <= smallest) & (np.abs(flushed) <= smallest)
            yield np.where(below, 0.0, actual), np.where(below, 0.0, flushed)

    def integers(self, expected: Array) -> Iterator[tuple[Array, str]]:
        """Yield integers or booleans, which may depend on the very type that the arguments have."""
        for kind in ("float64", ""):
            try:
                found = self._read(Reading(kind))
            except NotRecomputedError:
                continue
            if found.shape == expected.shape and found.dtype.kind in "iub":
                yield found, ""

    def selects(self) -> bool:
        """Return whether it only selects, moves or copies elements."""
        return self.call.operator.rstrip("_") in _SELECTING

    def sized(self) -> bool:
        """Return False: a call may have written to part of a tensor."""
        return False

    def finite(self) -> bool:
        """Return whether its arguments are finite."""
        return all(bool(np.isfinite(one.astype(np.float64)).all()) for one in self.call.floats())

    def beyond(self, *_: Array) -> None:
        """Return None: no bound of elements is known."""

    def excuse(self, actual: Array, expected: Array, apart: float) -> str:
        """Return why a healthy operator may give a result that is far off; "" where none may."""
        operator, whole = self.call.operator.rstrip("_"), expected.dtype.kind != "f"
        endless = not whole and math.isinf(apart)
        rounds = operator in _JUMPS and (operator != "div" or self.call.name.endswith("_mode"))
        reasons = (
            (
                endless and not np.any(expected),
                "on the CPU it gives nothing but zeros, of which no share can be taken",
            ),
            (
                endless and math.isinf(self._native_distance(expected)),
                "a kernel of its type on the CPU overflows on the way, too",
            ),
            (whole and operator in _TIES, "ties are not told from errors there"),
            (rounds, "its result jumps where a quotient is almost an integer"),
            (
                whole and not self.finite(),
                "its inputs hold NaN or infinities, of which devices make different things",
            ),
            (
                operator in {"_to_copy", "copy", "to", "_foreach_copy"}
                and actual.dtype.kind in "iu"
                and any(
                    bool((np.abs(one.astype(np.float64)) > np.iinfo(actual.dtype).max).any())
                    for one in self.call.floats()
                ),
                f"its inputs hold values beyond those of {self.dtype}",
            ),
        )
        return next((words for applies, words in reasons if applies), "")

    def _read(self, reading: Reading) -> Array:
        found = self.call.recomputed(reading)
        result = found[self.place] if self.place < len(found) else None
        if result is None:
            raise NotRecomputedError("the CPU returned no output to compare")
        return result

    def _native_distance(self, expected: Array) -> float:
        """Return the error of the CPU's kernel of the very 16-bit type; 0 where it has none."""
        if self.dtype not in _INNER_ROUNDING:
            return 0.0
        try:
            native = self._read(Reading(""))
        except NotRecomputedError:
            return 0.0
        return distance(native.astype(np.float64), expected.astype(np.float64), largest_of(self.dtype))


@dataclass(slots=True)
class CallArchive:
    """The calls of a run that are convicted, saved for those who want to see them fail, each in a folder.

    Attributes:
        folder: made with the first call.
        left: bytes of arrays that there is room for.
        notes: which calls are not there, and why.
    """

    folder: Path
    left: int
    notes: list[str] = field(default_factory=list)
    _count: int = 0

    def save(self, call: KeptCall, judged: Mapping[str, Any], output: Array) -> Path | None:
        """Save a call with one of its results; return the folder, or None, and a note, where it cannot be."""
        size = (call.given.size if call.given is not None else 0) + 2 * output.nbytes
        folder = self.folder / str(self._count)
        why = f"{size} bytes are more than is left of npudump_dump_limit ({self.left})"
        if size <= self.left:
            try:
                save_call(folder, call, judged, output)
            except (NotCopiedError, NotRecomputedError, OSError) as error:
                shutil.rmtree(folder, ignore_errors=True)
                why = str(error)
            else:
                self._count += 1
                self.left -= size
                return folder
        self.notes.append(f"{call.name} was not saved, so that npudump repro cannot hand it over: {why}")
        return None


@dataclass(frozen=True, slots=True)
class CallBench:
    """Recomputation of calls.

    Attributes:
        kept: the calls of the run.
        wide: type in which the CPU computes, ``float32`` or ``float64``.
        hf32: kinds of operators that may take float32 operands as HF32, ``matmul`` and ``conv``.
        archive: where calls go that are convicted; None for nowhere.
    """

    kept: KeptRun
    wide: str = "float32"
    hf32: frozenset[str] = frozenset({"matmul", "conv"})
    archive: CallArchive | None = None

    def isolate(
        self,
        suspects: Sequence[TensorKey],
        records: Sequence[TensorRecord],
        changes: Changes | None = None,
    ) -> tuple[JudgedOperator, ...]:
        """Judge outputs by what their calls were given.

        Args:
            suspects: the outputs of eager calls.
            records: the tensors of the run, those of the suspects' layers among them, in execution order.
            changes: what the golden tells of an output.
        """

        def isolated(key: TensorKey, operators: Sequence[CalledOperator], alone: Alone) -> JudgedOperator:
            saved = None
            if alone.verdict == CONVICTED and self.archive is not None:
                one = operators[0]
                apart, allowed = (x if math.isfinite(x) else None for x in (alone.apart, alone.allowed))
                judged = {name: getattr(one, name) for name in ("place", "dtype", "wide", "plain")}
                judged |= {"apart": apart, "allowed": allowed, "why": alone.why}
                saved = self.archive.save(one.call, judged, one.output)
            name = operators[0].name if operators else ""
            return JudgedOperator(
                key, "", "", own=False, alone=alone, call=name, saved=saved, inputs=DUMPED if name else ""
            )

        return isolate(
            suspects,
            lambda key: self._operators(key, records),
            isolated,
            changes=changes,
        )

    def _operators(self, key: TensorKey, records: Sequence[TensorRecord]) -> list[CalledOperator]:
        """Return the results that have the values of a dumped tensor, all of one call."""
        record = next((one for one in records if one.key.sanitised == key.sanitised), None)
        if record is None:
            raise NotAtHandError("the second run has no such tensor")
        output = host_of(record, 0)
        digest, layer = digest_of(output), record.key.layer
        api = layer.partition(">")[0]
        related = [call for call in self.kept.calls if call.may_run(api)]
        calls = [call for call in related if any(given == digest for _, given in call.results)]
        if not calls:
            why = next((call.why_not for call in related if not call.results), self.kept.why_none)
            raise NotAtHandError(why or f"no call of torch that is known to run {api} gave these values")
        alike = (
            one.key
            for one in records
            if one.key == record.key or (_is_like(one, record) and digest_of(host_of(one, 0)) == digest)
        )
        turns = [*dict.fromkeys(replace(one, slot=0) for one in alike)]  # executions that gave the same
        if len(turns) != len(calls):
            raise NotAtHandError(
                f"{layer}: {number_of(len(turns), 'dumped tensor')} with these values, but "
                f"{number_of(len(calls), 'call')} of torch: which call gave which is not certain"
            )
        call = calls[turns.index(replace(record.key, slot=0))]
        plain = ("conv" if "conv" in call.operator else "matmul") not in self.hf32
        places = [place for place, given in call.results if given == digest]
        return [CalledOperator(call, one, record.dtype, output, self.wide, plain) for one in places]


def _is_like(other: TensorRecord, record: TensorRecord) -> bool:
    """Return whether another tensor of the same operator may have the same values, unread as they are."""
    alike = other.key.layer == record.key.layer and other.key.io == record.key.io == "output"
    if not alike or (other.dtype, other.shape) != (record.dtype, record.shape):
        return False
    stats, others = record.stats, other.stats
    return stats is None or others is None or (stats.max, stats.min) == (others.max, others.min)
