"""Recomputation of an operator from its own inputs, apart from the golden and other operators.

Errors are relative L2 norms of the difference to the recomputed tensor, in float64. The limit for a healthy
operator was measured on seven models (PP-OCR's, magika, silero-vad), each operator on its own inputs, against
onnxruntime. It grows to the change that 1 ULP of the inputs makes: a sum that cancels has a larger error than
others, and no fault.

What is computed again is a :class:`Recomputable`: an operator of a model, by onnxruntime, or a call of torch,
on the CPU.
"""

from __future__ import annotations

import math
import sys
import time
from collections import deque
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np

from pytest_npudump.compare.stats.numbers import masks
from pytest_npudump.compare.tolerances.presets import ROUNDED_ALONE
from pytest_npudump.dump.table import squeezed
from pytest_npudump.errors import NpudumpError, joined, said
from pytest_npudump.explain.rounding import largest_of, rounded_to, smallest_of
from pytest_npudump.language.text import first_of
from pytest_npudump.runtime.aten import NotRecomputedError

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
    from pathlib import Path

    from pytest_npudump.compare.patterns.pattern_search import Pattern
    from pytest_npudump.dump.records import TensorKey

    Array = np.ndarray[Any, np.dtype[Any]]
    Changes = Callable[[TensorKey, Array, Array], tuple[float, float]]
    """How far an output, and another in its place, are off the golden: relative L2, or 0 where unknown."""

CONVICTED = "convicted"
ACQUITTED = "acquitted"
UNKNOWN = "unknown"
CERTAIN, LIKELY, POSSIBLE, MATCH = "certain", "likely", "possible", "match"
DUMPED, WEIGHTED, FED = "dumped", "weights", "upstream"
"""Origins of an operator's inputs: dumped or kept with it, so but for the weights, or put out upstream."""

MARGIN = 4.0
"""By how much measured noise may be exceeded: so far single layers that were held out exceeded theirs."""

UPSTREAM, MOST_UPSTREAM = 32, 128
"""Operators that are looked at upstream of a failure: whatever their size, and at most."""
NO_OPERATOR = "no operator computes it"
"""Reason for which an input of a graph is undecided; not worth a note."""

_FUSED = 16.0
"""By how much a graph that was optimised exceeds what single layers may be off: by 2 to 7 in nine models."""

_OTHERS = 512
"""Failing operators that are looked at beside suspects, at most: what is left out depends on no machine."""

_SEARCHED = 4
"""Convicted operators whose difference a pattern is looked for in, at most: as many as a page shows."""

_FEW_ELEMENTS = 8
"""Elements, at most, that the largest difference among them says enough of: too few for a pattern."""

_SECONDS = 3
"""Time after which no further operator is looked at beside suspects."""

_HALF_STEP = 2.0**12
"""Units in the last place of float32 in one of HF32 and of float16."""


class NotAtHandError(NpudumpError):
    """Reason why an operator cannot be run on its inputs, or judged by them."""


@dataclass(frozen=True, slots=True)
class Healthy:
    """Error limit of a healthy operator, as relative L2.

    Attributes:
        usual: with accumulators and operands of float32.
        most: with what a device may use instead.
        means: what that is; "" where nothing is known to be.
        again: how far it is off what it gave before, on the same inputs in the same numerics.
    """

    usual: float
    most: float
    means: str = ""
    again: float = 0.0


HEALTHY: Mapping[str, Healthy] = MappingProxyType(
    {
        "float32": Healthy(1.2e-6, 1.1e-3, "HF32 operands"),
        "float16": Healthy(4.9e-5, 4.2e-3, "float16 accumulators"),
        "bfloat16": Healthy(1.9e-4, 1.9e-4),
    }
)
"""Measured noise of healthy operators by the type of their output."""


def healthy(dtype: str, noise: float, *, plain: bool, matrix: bool) -> Healthy:
    """Return the error limit of an operator, :data:`MARGIN` included.

    Args:
        dtype: of its output on the device, one of :data:`HEALTHY`.
        noise: how far inputs that differ by a unit in the last place of float32 put its output off.
        plain: whether it is known to compute with float32 operands and accumulators, as the emulator does.
        matrix: whether it runs on the matrix unit, which may take float32 operands as HF32, with 11 bits of
            mantissa.
    """
    known = HEALTHY[dtype]
    usual, again = MARGIN * max(known.usual, noise), max(ROUNDED_ALONE[dtype], MARGIN * noise)
    if plain or not known.means or (dtype == "float32" and not matrix):
        return Healthy(usual, usual, again=again)
    return Healthy(usual, MARGIN * max(known.most, _HALF_STEP * noise), known.means, again)


@dataclass(frozen=True, slots=True)
class Alone:
    """Result of recomputing an operator.

    Attributes:
        verdict: :data:`CONVICTED`, :data:`ACQUITTED` or :data:`UNKNOWN`.
        apart: relative L2 distance of the output from what its inputs give; NaN where it was not measured.
        allowed: the distance beyond which it is convicted; NaN where none applies.
        why: why it is unknown, or what decides it other than the distance; "" for none.
        bounded: whether each element is known to be as exact as rounding leaves it.
    """

    verdict: str
    apart: float = math.nan
    allowed: float = math.nan
    why: str = ""
    bounded: bool = False

    def unless(self, why: str) -> Alone:
        """Return the verdict, unknown where there is a reason against a conviction."""
        return replace(self, verdict=UNKNOWN, why=why) if why and self.verdict == CONVICTED else self


class Recomputable(Protocol):
    """An operator with what a run gave it, and one output, which can be computed again."""

    @property
    def name(self) -> str:
        """The operator's name, for people."""

    @property
    def dtype(self) -> str:
        """Type of the output on the device."""

    @property
    def output(self) -> Array:
        """Values of the output, in the host's layout."""

    @property
    def feeds(self) -> Mapping[str, Array]:
        """Known arrays that it read, by name."""

    def expected(self) -> Array:
        """Compute the output again, in the wide type.

        Raises:
            NotRecomputedError: that cannot be.
        """

    def healthy(self, expected: Array) -> Healthy:
        """Return a healthy device's error limit, of a type among :data:`HEALTHY`.

        Raises:
            NotRecomputedError: that is not known.
        """

    def floats(self, actual: Array, expected: Array, bounds: Healthy) -> Iterator[tuple[Array, Array]]:
        """Yield the output and what it may be, by each way in which a device may hold what it is given."""

    def integers(self, expected: Array) -> Iterator[tuple[Array, str]]:
        """Yield each possible output of integers or booleans, in the same way; with what it then does."""

    def selects(self) -> bool:
        """Return whether it only selects, moves or copies elements: none is rounded, so all are equal."""

    def sized(self) -> bool:
        """Return whether its inputs leave no doubt of how many elements its output has."""

    def finite(self) -> bool:
        """Return whether its inputs are finite: devices treat NaN and infinities differently."""

    def beyond(self, actual: Array, expected: Array) -> int | None:
        """Count elements farther off than rounding explains; None where that is not known."""

    def excuse(self, actual: Array, expected: Array, apart: float) -> str:
        """Return why a healthy operator may give a wrong output; "" where none may."""


def judge_alone(
    operator: Recomputable, changes: Callable[[Array, Array], tuple[float, float]] | None = None
) -> Alone:
    """Hold an operator's output against what its inputs give; the nearest way to compute that counts.

    Args:
        operator: with its output.
        changes: how far the output, and what its inputs give, are off the golden; None without one.
    """
    output = operator.output
    try:
        expected = operator.expected()
        if squeezed(output.shape) != squeezed(expected.shape):
            shapes = f"its shape is {list(output.shape)}, recomputed {list(expected.shape)}"
            wrong_size = output.size != expected.size and operator.sized()
            return Alone(CONVICTED if wrong_size else UNKNOWN, why=shapes)
        actual = output.reshape(expected.shape)
        if expected.dtype.kind in "iub":
            forms = operator.integers(expected)
            wrong = [(int(np.count_nonzero(actual != one)), why) for one, why in forms]
            if not wrong:
                return Alone(UNKNOWN, why="the CPU returned no output to compare")
            if (least := min(wrong, key=lambda one: one[0]))[0] == 0:
                return Alone(ACQUITTED, 0.0, 0.0, least[1])
            why = f"{wrong[0][0]} of {actual.size} values differ from the recomputed ones"
            alone = Alone(CONVICTED, why=why)
        else:
            if operator.dtype not in HEALTHY or expected.dtype.kind != "f":
                why = f"the error limit of a healthy operator is unknown for {operator.dtype}"
                return Alone(UNKNOWN, why=why)
            largest, usual = largest_of(operator.dtype), MARGIN * HEALTHY[operator.dtype].usual
            actual = actual.astype(np.float64)
            apart = distance(actual, expected.astype(np.float64), largest)
            if apart <= usual:  # the bounds take more runs, and are no narrower
                alone = Alone(ACQUITTED, apart, usual)
            else:
                bounds = operator.healthy(expected)
                pairs = operator.floats(actual, expected, bounds)
                apart = min(distance(one, form.astype(np.float64), largest) for one, form in pairs)
                alone = _by_distance(apart, bounds, operator)
            beyond = operator.beyond(actual, expected) if alone.verdict == ACQUITTED and apart else None
            alone = replace(alone, bounded=beyond == 0)
            if operator.selects() and 0 < apart < math.inf:
                if alone.verdict == CONVICTED:
                    alone = replace(alone, allowed=0.0)
                elif wrong_ones := _unequal(actual, expected, operator.dtype):
                    why = f"{wrong_ones} of {actual.size} values differ from the recomputed ones"
                    alone = Alone(CONVICTED, why=why)
            elif beyond:
                why = f"{beyond} of {actual.size} values are farther off than rounding explains"
                alone = Alone(CONVICTED, why=why)
            elif changes is not None and alone.verdict != CONVICTED and 0 < apart < math.inf:
                alone = _by_golden(alone, operator, expected, changes)
        if alone.verdict == CONVICTED:
            return alone.unless(operator.excuse(actual, expected, alone.apart))
    except NotRecomputedError as error:
        return Alone(UNKNOWN, why=str(error))
    return alone


def _by_golden(
    alone: Alone,
    operator: Recomputable,
    expected: Array,
    changes: Callable[[Array, Array], tuple[float, float]],
) -> Alone:
    """Judge an output that healthy operators may be as far off by the golden as well.

    Most of a change that is much greater than the distance came in with the inputs. A smaller one is the
    operator's where what its inputs give is the golden.
    """
    output = operator.output
    changed, expected_changed = changes(output, expected.astype(output.dtype).reshape(output.shape))
    if not changed or alone.apart <= changed / MARGIN:
        return alone
    limit = operator.healthy(expected).again
    if alone.apart > limit and expected_changed <= changed / MARGIN:
        why = said(
            "relative L2 error {apart}, limit {limit}; the golden matches",
            apart=f"{alone.apart:.2g}",
            limit=f"{limit:.2g}",
        )
        return Alone(CONVICTED, alone.apart, limit, why)
    why = said(
        "its statistics changed by {changed}; the error limit is {most}",
        changed=f"{changed:.2g}",
        most=f"{alone.allowed:.2g}",
    )
    return replace(alone, verdict=UNKNOWN, why=alone.why or why)


def _by_distance(apart: float, bounds: Healthy, operator: Recomputable) -> Alone:
    if math.isinf(apart) and not operator.finite():
        return Alone(UNKNOWN, why="its inputs contain NaN or Inf, which devices treat differently")
    if math.isinf(apart):
        why = "NaN, Inf or all zeros where the recomputed tensor has none, or the reverse"
        return Alone(CONVICTED, apart, bounds.most, why)
    if bounds.usual < apart <= bounds.most:
        why = f"limit {bounds.most:.2g} with {bounds.means}, {bounds.usual:.2g} in float32"
        return Alone(UNKNOWN, apart, bounds.most, why)
    return Alone(ACQUITTED if apart <= bounds.usual else CONVICTED, apart, bounds.most)


def distance(actual: Array, expected: Array, largest: float) -> float:
    """Return the relative L2 distance; infinite where NaN, infinities or a tensor of zeros are not matched.

    What the device's type cannot hold may be infinite there, or its largest number. The elements beside those
    of a mask, such as -1e9, are measured by themselves as well, and the larger distance counts.
    """
    beyond = np.abs(expected) > largest
    held = beyond & (np.abs(actual) >= largest) & (np.sign(actual) == np.sign(expected))
    finite = np.isfinite(expected) & ~held
    with np.errstate(invalid="ignore"):
        same = held | (actual == expected) | (np.isnan(actual) & np.isnan(expected))
    if not np.all(same | (finite & np.isfinite(actual))):
        return math.inf
    numbers = np.where(finite, expected, 0.0)
    apart = np.where(same, 0.0, actual - numbers)
    difference, scale = norm(apart), norm(numbers)
    whole = difference / scale if scale else math.inf if difference else 0.0
    mask = masked(numbers)
    beside = norm(numbers[~mask]) if mask.any() else 0.0
    return max(whole, norm(apart[~mask]) / beside) if beside else whole


def masked(array: Array) -> Array:
    """Return which elements of float64 values are a mask's, beside the median magnitude of others."""
    magnitude = np.abs(array)
    likely = masks(magnitude, 0.0)
    if not likely.any() or likely.all():
        return np.zeros(array.shape, np.bool_)
    return masks(magnitude, float(np.median(magnitude[~likely])))


def _unequal(actual: Array, expected: Array, dtype: str) -> int:
    """Count the elements that are not the expected ones, rounded to the type; below normal numbers any is."""
    with np.errstate(over="ignore", invalid="ignore"):
        held = rounded_to(expected.astype(np.float32), dtype).astype(np.float64)
        smallest = smallest_of(dtype)
        saturated = (np.abs(held) > largest_of(dtype)) & (np.abs(actual) >= largest_of(dtype))
        saturated &= np.sign(held) == np.sign(actual)
        return int(np.count_nonzero((np.abs(actual - held) > smallest) & ~saturated))


def norm(array: Array) -> float:
    """Return the L2 norm of float64 values."""
    return math.sqrt(float(np.sum(np.square(array))))


@dataclass(frozen=True, slots=True)
class JudgedOperator:
    """An operator under suspicion, alone.

    Attributes:
        key: its output.
        op_type: ONNX's type; "" where it has no counterpart there.
        model: name of the ONNX file it was recomputed with; "" where ATen's operator was run on the CPU.
        own: whether that is the model that ran, or lies beside it, and not a reference: its weights are
            those of the run.
        alone: the verdict.
        converted: whether it lies beside what ran, which was made of it as far as is known.
        call: the call of ATen that gave it, as ``aten.add.Tensor``; "" where that is not known.
        saved: folder of that call's files, where it is convicted; None where there is none.
        upstream: whether it is no suspect itself, but lies upstream of one that was acquitted, or fails
            behind a source.
        inputs: :data:`DUMPED`, :data:`WEIGHTED` or :data:`FED`: what wrote to them looks like its own error;
            "" where it was not computed again.
        pattern: what explains the difference from what its inputs give, where it is convicted.
    """

    key: TensorKey
    op_type: str
    model: str
    own: bool
    alone: Alone
    converted: bool = False
    call: str = ""
    saved: Path | None = None
    upstream: bool = False
    inputs: str = ""
    pattern: Pattern | None = None

    @property
    def certainty(self) -> str:
        """How far the verdict is certain.

        :data:`CERTAIN`: an error of the operator. :data:`LIKELY`: or something wrote to a tensor between two.
        :data:`POSSIBLE`: or another order of sums, or a fusion. :data:`MATCH` where it is acquitted, or
        :data:`UNKNOWN`.
        """
        if self.alone.verdict != CONVICTED:
            return MATCH if self.alone.verdict == ACQUITTED else UNKNOWN
        if self.alone.apart <= _FUSED * self.alone.allowed:
            return POSSIBLE
        return LIKELY if self.inputs in {WEIGHTED, FED} else CERTAIN

    def to_json(self) -> dict[str, Any]:
        """Plain JSON data; what was not measured, or is infinite, is null."""
        apart, allowed = self.alone.apart, self.alone.allowed
        return {
            "key": str(self.key),
            "layer": self.key.layer,
            "op_type": self.op_type or None,
            "verdict": self.alone.verdict,
            "certainty": self.certainty,
            "relative_l2": apart if math.isfinite(apart) else None,
            "allowed": allowed if math.isfinite(allowed) else None,
            "why": self.alone.why or None,
            "model": self.model or None,
            "call": self.call or None,
            "saved": str(self.saved) if self.saved is not None else None,
            "own_model": self.own,
            "converted": self.converted,
            "upstream": self.upstream,
            "inputs": self.inputs or None,
            "pattern": self.pattern.to_json() if self.pattern is not None else None,
        }


@dataclass(slots=True)
class Search:
    """Budget of a search among operators that are no suspects, and where it ended.

    Attributes:
        nbytes: that may still be read.
        seconds: it may take.
        ended: where operators were left out, and why.
        left: how many failing outputs were left out, and why.
    """

    nbytes: int
    seconds: int = _SECONDS
    ended: dict[TensorKey, str] = field(default_factory=dict)
    left: tuple[int, str] = 0, ""
    _until: float = 0.0

    def refused(self, size: int) -> str:
        """Return why no further operator of so many bytes is judged; "" where it is."""
        self._until = self._until or time.monotonic() + self.seconds
        if size > self.nbytes:
            return said("npudump_dump_limit was reached")
        if time.monotonic() > self._until:
            return said("the time limit of {seconds} s was reached", seconds=self.seconds)
        self.nbytes -= size
        return ""

    def end(self, key: TensorKey, why: str) -> None:
        """Note an operator that is not judged, nor what lies behind it, and why."""
        self.ended.setdefault(key, why)

    def __str__(self) -> str:
        told, (count, why) = [], self.left
        if self.ended:
            keys, reason = first_of(self.ended, 3), next(iter(self.ended.values()))
            told.append(said("the search ended at {keys} ({why})", keys=keys, why=reason))
        if count:
            told.append(
                said("other mismatching tensors not recomputed: {count} ({why})", count=count, why=why)
            )
        return joined("; ", told)


Found = TypeVar("Found", bound="Recomputable")


def isolate(
    suspects: Sequence[TensorKey],
    operators: Callable[[TensorKey], Sequence[Found]],
    isolated: Callable[[TensorKey, Sequence[Found], Alone], JudgedOperator],
    fed_by: Callable[[TensorKey], Sequence[TensorKey]] = lambda _: (),
    *,
    others: Sequence[TensorKey] = (),
    size: Callable[[TensorKey], int] = lambda _: 0,
    search: Search | None = None,
    changes: Changes | None = None,
) -> tuple[JudgedOperator, ...]:
    """Judge outputs by what the inputs of their operators give, and what lies upstream of the acquitted.

    Args:
        suspects: the outputs.
        operators: what gave an output: one operator, or several results that hold the same values; it raises
            an :class:`NpudumpError` where nothing can be computed again.
        isolated: makes of a verdict what is said of an output; without operators where none was found.
        fed_by: outputs that an output's operator reads, and that can be judged.
        others: outputs to be judged besides, if they can be: faults may be there that those of suspects hide.
        size: bytes that are read to judge an output.
        search: what is spent beside suspects; None for no bound but numbers.
        changes: what the golden tells of an output.
    """
    judged: dict[TensorKey, JudgedOperator] = {}
    search = search or Search(sys.maxsize)
    convicted = 0

    def verdict(key: TensorKey) -> str:
        nonlocal convicted
        found: Sequence[Found] = ()
        try:
            found = operators(key)
            of_key = None if changes is None else partial(changes, key)
            alones = [judge_alone(operator, of_key) for operator in found]
            if len({alone.verdict for alone in alones}) > 1:
                name = found[0].name
                raise NotAtHandError(f"{name} returned these values {len(found)} times, and only some match")
            alone = alones[0]
        except NpudumpError as error:
            alone = Alone(UNKNOWN, why=str(error))
        told = isolated(key, found, alone)
        if told.alone.verdict == CONVICTED:
            convicted += 1
            told = replace(told, pattern=_pattern(found[0]) if convicted <= _SEARCHED else None)
        judged[key] = told
        return told.alone.verdict

    def refused(key: TensorKey) -> str:
        return search.refused(size(key))

    found = judged_upstream(suspects, fed_by, verdict, MOST_UPSTREAM, refused=refused, ended=search.end)
    left = [key for key in others if key not in judged]
    for number, key in enumerate(left):
        if why := refused(key) if number < _OTHERS else said("limit {count}", count=_OTHERS):
            search.left = len(left) - number, why
            break
        if verdict(key) == UNKNOWN:
            del judged[key]
    if convicted:
        search.ended.clear()  # what lies upstream of others is not the cause
    return tuple(judged[key] for key in dict.fromkeys((*found, *judged)))


def _pattern(operator: Recomputable) -> Pattern | None:
    """Describe the output of an operator with a kernel error against the expected one."""
    from pytest_npudump.compare.patterns import pattern_search  # noqa: PLC0415 - reports need none
    from pytest_npudump.compare.patterns.possible_changes import LEAST, named  # noqa: PLC0415 - as above
    from pytest_npudump.compare.tensors.difference import compare_tensors  # noqa: PLC0415 - as above

    dtype, output, expected = operator.dtype, operator.output, operator.expected()
    if output.size != expected.size:
        return None
    expected = expected.astype(output.dtype).reshape(output.shape)
    rtol = MARGIN * HEALTHY[dtype].usual if dtype in HEALTHY else 0.0
    wide = expected.astype(np.float64)
    scale = norm(np.where(np.isfinite(wide), wide, 0.0)) / math.sqrt(max(wide.size, 1))
    difference = compare_tensors(expected, output, rtol=rtol, atol=rtol * scale, worst=_FEW_ELEMENTS)
    with np.errstate(over="ignore"):  # of 16 bits, which were recomputed in 32
        others = {
            f"its input {name}": one.astype(output.dtype)
            if dtype in HEALTHY and one.dtype.kind == "f"
            else one
            for name, one in operator.feeds.items()
            if one.size == output.size
        }
    found = pattern_search.find_pattern(expected, output, difference, others=others, noise=rtol)
    exact = output.dtype.kind in "iub"  # no relative error tells how far they are off
    if found is not None or not difference.outside or (not exact and difference.outside > _FEW_ELEMENTS):
        return found
    worst, share = difference.worst[0], 1.0
    if not exact and not difference.special:
        beyond = math.hypot(*(one.abs for one in difference.worst[: difference.outside]))
        share = min((beyond / norm(output.astype(np.float64) - wide)) ** 2, 1.0)
    where = said("{outside} of {count} elements", outside=difference.outside, count=difference.count)
    told = said(
        "worst at {index}: {actual}, expected {golden}",
        index=[*worst.index],
        actual=worst.actual if exact else named(worst.actual.real),
        golden=worst.golden if exact else named(worst.golden.real),
    )
    return pattern_search.Pattern("place", where, told, share) if share >= LEAST else None


Place = TypeVar("Place", bound="Hashable")


def judged_upstream(
    suspects: Sequence[Place],
    fed_by: Callable[[Place], Sequence[Place]],
    verdict: Callable[[Place], str],
    most: int,
    *,
    refused: Callable[[Place], str] = lambda _: "",
    ended: Callable[[Place, str], None] = lambda *_: None,
) -> tuple[Place, ...]:
    """Judge suspects and, from each that no convicted one feeds, what lies upstream, nearest first.

    A change that an operator passes on came in with what it read, so that one of those upstream made it.

    Args:
        suspects: operators, all of which are judged.
        fed_by: what feeds an operator and can be judged.
        verdict: the judge; asked once for each operator.
        most: how many are judged upstream of one suspect, at most.
        refused: why one upstream is not judged any more, nor any behind it; "" where it is.
        ended: called with (place, why) where the search ends before all is judged.

    Returns:
        Those that were judged, in that order.
    """
    found = {place: verdict(place) for place in dict.fromkeys(suspects)}
    for suspect in tuple(found):
        if found[suspect] == CONVICTED or any(
            found.get(place) == CONVICTED for place in nearest_first(suspect, fed_by)
        ):
            continue
        left = most
        for place in nearest_first(suspect, fed_by):
            if place not in found:
                why = refused(place) if left else said("limit {count}", count=most)
                if why:
                    ended(place, why)
                    break
                found[place] = verdict(place)
                left -= 1
            if found[place] == CONVICTED:
                break
    return tuple(found)


def nearest_first(start: Place, fed_by: Callable[[Place], Sequence[Place]]) -> Iterator[Place]:
    """Yield all that is upstream of a place, by how many operators lie between."""
    waiting, seen = deque([start]), {start}
    while waiting:
        for place in fed_by(waiting.popleft()):
            if place not in seen:
                seen.add(place)
                waiting.append(place)
                yield place
