"""Upstream of a value: tolerances of a tensor under other numerics, by the operators that computed it.

A preset knows a tensor's own type. Other numerics change it by what is upstream:

* **the narrowest type** that its values went through. A float32 cast from float16 is as noisy as float16.
  Values go through every operator that reads them, but not through integers: an index or a shape is not a
  little off;
* **8-bit codes** of a quantisation. Where no code is upstream, rounding turns a few of them to the next one.
  A step that turned is noise of 8 bits in all that is computed from it. It has no direction: it moves a mean
  or a norm far less than single elements. Where projections show how far an operator's inputs are from the
  golden's, its output is hardly farther off, but for codes that turn in it;
* **a difference of nearly equal numbers**, whose noise is that of what was subtracted: the variance
  of a LayerNorm. Operators behind it have less of that noise.

Types and sizes are the golden's: a run that computes in a narrower type is not excused by it. Nothing is
known of a tensor whose edges the golden does not keep.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from pytest_npudump.compare.tolerances.presets import HF32, OTHER, bound
from pytest_npudump.dump.dtypes import is_exact
from pytest_npudump.dump.records import TensorKey
from pytest_npudump.dump.table import EXTREMES, PROJECTIONS, STATISTICS, StatsTable
from pytest_npudump.errors import joined, said

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from pytest_npudump.record.edges import Edges

WIDENED = frozenset({OTHER, HF32})
"""Presets whose bounds depend on what is upstream; those of the same numerics repeat what they read."""


def _kinds(names: str) -> re.Pattern[str]:
    return re.compile(rf"(?:aclnn)?(?:inplace)?(?:{names})(?:ext|d|v[2-5])?", re.IGNORECASE)


QUANTISING = _kinds("(?:ascend|dynamic|npu)*(?:re)?quant(?:izelinear|izepertensor|ize)?")
"""Operators that round floats to codes: of ONNX, GE, MindSpore and torch_npu, as the tables below."""
SUMMING = _kinds(
    "qlinear.*|(?:conv|matmul)integer|(?:depthwise)?conv(?:2d|3d)?|(?:batch|quant|quantbatch)?matmul|bmm|mm|q?gemm"
    "|fullyconnection|cast|(?:reduce)?sum"
)
"""Operators that compute wider integers of codes, or other codes."""
MOVING_CODES = _kinds(
    "reshape|transpose|permute|flatten|(?:un)?squeeze|expanddims|identity|copy|transdata|concat|split"
    "|(?:strided)?slice|gather|pad|max(?:imum|pool)?|min(?:imum)?|clip(?:byvalue)?|relu6?|resize.*"
)
"""Operators whose codes are their inputs' codes."""
CHOOSING = _kinds("arg(?:max|min)(?:withvalue)?|topk|sort|argsort")
"""Operators whose integers are indices of the first tensor that they read."""
DIFFERENCE = _kinds("sub|subtract|add|addn|tensoradd|biasadd")
"""Operators whose terms may cancel, so that their noise is that of the larger term."""
MEAN = _kinds("reducemean|reducesum|mean|sum")
"""The same of the elements of one tensor."""

DIVIDING = _kinds("reciprocal|div|realdiv|floatdiv|sqrt|rsqrt")
"""Operators whose result is largest, or has the greatest slope, where what they read last is smallest."""
LOGARITHM = _kinds("log")
"""Operators whose noise is the relative one of the smallest elements that they read."""
NORMALISING = _kinds(
    "pow|square|mul|multiply|abs|neg|maximum|max|cast|expand|broadcastto|tile|reshape|transpose|(?:un)?squeeze"
    "|expanddims|identity"
)
"""Operators between a difference and what it is divided by."""

_CANCELS = 4.0
"""Ratio of a term to the rest from which it counts as cancelled."""
_LITTLE = 1.05
"""Factor up to which tolerances are not widened."""
_MOST = 64.0
"""By what bounds are widened at most for what cancelled."""
_BEHIND = 10.0
"""The same behind operators that compute something else of it."""
_BLIND = 0.25
"""The most of a tensor's scale that they are widened to."""
_OF_MEAN = 0.25
"""Effect of other numerics on a mean, as a share of that on an element: as in the presets."""
TURNED = 0.02
"""The share of codes that may turn to the next one, where no code is upstream."""
_EXACT_FLOAT = TURNED / 100
"""Noise of a type that is much smaller than a step of codes is below this."""
_FEW = 2
"""Codes of any tensor that may."""
CODES = "codes"
_AS_CODES = "bfloat16"
_AIMED = {"avg": 0.01, "l2norm": 0.025}
"""Effect of 16-bit types beside codes on means and norms."""
_UNAIMED = 1.5
"""The same of codes that turned, times the root of their number: 1.3 at most in 100 QDQ models."""
_GAIN = 6.0
"""By what an operator may enlarge a relative difference, which projections tell within a factor of 3."""
_OWN = 2.0**-11
"""Relative difference by an operator itself that computes with codes, such as a bias rounded to theirs."""
_HIDDEN = 4.0
"""Steps of a few codes that turned both ways, which projections may not show."""
_TIES = 0.25
"""The share of codes that may turn of means and sums of codes, many of which are halfway between two."""
_STEADY = 2.0**-10
"""Spread of a constant tensor, by its root mean square."""

PASSING = _kinds(
    "(?:ascend|anti|dynamic|npu)*(?:de)?quant(?:izelinear|ize)?|(?:depthwise)?conv(?:transpose|integer)?(?:2d|3d)?"
    "|qlinear(?:conv|matmul|add|mul|concat|sigmoid|leakyrelu)|(?:batch|quant|quantbatch)?matmul(?:integer)?|bmm|mm"
    "|q?gemm|fullyconnection|cast|mul|muls|multiply|abs|neg"
    "|(?:leaky|p)relu|hardswish|hardsigmoid|sigmoid|tanh|gelu|bninference|batchnorm(?:alization)?|biasadd"
)
"""Operators whose result is about as far off as what they read, relatively; besides those that follow."""
POOLING = _kinds("(?:global)?(?:average|avg)pool(?:ing)?|pooling")


@dataclass(frozen=True, slots=True)
class Ancestry:
    """Operators and tensors from which a tensor was computed.

    Attributes:
        dtype: the narrowest type, of another tensor or its own; :data:`CODES` for that of 8-bit codes.
        turned: of codes that floats were rounded to, the share of them that may be the next one; else 0.
        wider: by what the noise of what cancelled exceeds that of what was left, of extremes and of norms.
        cancelled: what cancelled in a tensor of zeros, its largest magnitude and its root mean square.
        size: the tensor's largest magnitude and root mean square.
        passed_on: of codes and what is computed from them, the l2norm of the difference that follows from
            that of the inputs, and by what it may change the l2norm; infinite where that is not known.
    """

    dtype: str
    turned: float = 0.0
    wider: tuple[float, float] = (1.0, 1.0)
    cancelled: tuple[float, float] = (0.0, 0.0)
    size: tuple[float, float] = (math.nan, math.nan)
    passed_on: tuple[float, float] = (math.inf, math.inf)

    def bound(self, preset: str, dtype: str, statistic: str, count: int) -> tuple[float, float, str]:
        """``(rtol, atol)`` of a statistic of a tensor of ``dtype``, and why in words.

        Args:
            preset: one of :data:`WIDENED`.
            dtype: of the tensor.
            statistic: one of those that are measured, or of projections.
            count: number of its elements.
        """
        rtol, atol = bound(preset, dtype, statistic)
        if self.turned:
            why = said("1 step in {share:.2g} % of the codes", share=100 * self.turned)
            return rtol, _of_steps(self.turned, statistic, count), why
        base, reasons = (rtol, atol), []
        if self.dtype not in ("", dtype):
            codes = self.dtype == CODES
            theirs = bound(preset, _AS_CODES if codes else self.dtype, statistic)
            if theirs[0] > rtol:
                rtol, atol = theirs[0], max(atol, theirs[1])
                if codes and statistic in _AIMED:
                    rtol = min(rtol, _AIMED[statistic] + _UNAIMED / math.sqrt(count))
                if is_exact(dtype):
                    atol = max(atol, _of_steps(may_turn(count), statistic, count))
                reasons.append(
                    said("8-bit codes upstream") if codes else said("{dtype} upstream", dtype=self.dtype)
                )
        of_norm = int(statistic not in STATISTICS[:EXTREMES])
        wider, cancelled = self.wider[of_norm], self.cancelled[of_norm]
        if wider > 1:
            rtol = max(rtol, min(rtol * wider, _BLIND))
            reasons.append(said("{times:g} times for what cancelled upstream", times=wider))
        if cancelled:
            atol += rtol * cancelled * (math.sqrt(count) if statistic == "l2norm" else 1.0)
            reasons.append(said("{size:.3g} cancelled", size=cancelled))
        apart, aimed = self.passed_on
        root = math.sqrt(count)
        follows = {"avg": aimed / root, "l2norm": aimed, PROJECTIONS: apart / root}.get(statistic, apart)
        scale = self.size[of_norm] * (root if statistic == "l2norm" else 1.0)
        if base[0] * scale + base[1] + follows < rtol * scale + atol:
            reasons.append(said("as far off as its inputs"))
            rtol, atol = base[0], base[1] + follows
        return rtol, atol, joined(", ", reasons)

    def share(self, atol: float, count: int) -> float:
        """The share of elements that may be off by ``atol``: not all, of codes, nor of what they turn."""
        known = math.isfinite(self.passed_on[0]) and atol > 0
        return self.turned or (min(1.0, (self.passed_on[0] / atol) ** 2 / count) if known else 1.0)


def may_turn(count: int) -> float:
    """The share of codes that may be the next one, of so many, of floats that hardly differ."""
    return min(1.0, TURNED + _FEW / count)


def _of_steps(share: float, statistic: str, count: int) -> float:
    """Largest change of a statistic, ``atol``, where a share of codes may turn."""
    of_all = {"avg": share, "l2norm": math.sqrt(share * count), PROJECTIONS: math.sqrt(share)}
    return of_all.get(statistic, 1.0)


@dataclass(frozen=True, slots=True)
class Upstream:
    """Known facts of tensors from upstream.

    Attributes:
        found: by the golden's key, of those whose bounds it widens.
        counts: numbers of their elements.
    """

    found: Mapping[str, Ancestry] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        table: StatsTable,
        op_types: Sequence[str],
        edges: Edges,
        preset: str,
        strayed: NDArray[np.float64] | None = None,
    ) -> Upstream:
        """Look at what feeds each tensor of a golden.

        Args:
            table: the golden's.
            op_types: of its rows; "" where unknown: nothing is then known of codes and of what cancels.
            edges: what feeds each operator.
            preset: of the bounds that are widened.
            strayed: of a run's tensors, (n, 3), the l2norm of the difference from the golden's, what the mean
                differs by and the norm; NaN where unknown. None without a run.
        """
        if preset not in WIDENED or not edges.feeds:
            return cls()
        fed_by = edges.parents_of([TensorKey.parse(key) for key in table.keys])
        parents = [fed for fed, _ in fed_by]
        graph = _Inheritance(table, op_types, parents, preset)
        if strayed is not None:
            graph.follow(strayed, [known for _, known in fed_by])
        found = {key: one for row, key in enumerate(table.keys) if (one := graph.upstream(row)) is not None}
        counts = {key: table.counts[row] or 1 for row, key in enumerate(table.keys) if key in found}
        return cls(found, counts)


class _Inheritance:
    """Upstream of each row of a table, in the order of execution."""

    def __init__(
        self, table: StatsTable, op_types: Sequence[str], parents: Sequence[Sequence[int]], preset: str
    ) -> None:
        self._table, self._op_types, self._parents, self._preset = table, op_types, parents, preset
        self._sizes = _sizes(table)
        self._types: list[str] = []
        self._turned: list[float] = []
        self._wider = np.ones((len(table), 2))
        self._cancelled = np.zeros((len(table), 2))
        self._passed_on = np.full((len(table), 2), np.inf)
        for row, every in enumerate(parents):
            fed = [at for at in every if at < row]  # of a loop, what comes around is not known yet
            dtype, turned = self._type(row, fed)
            self._types.append(dtype)
            self._turned.append(turned)
            if not is_exact(table.dtypes[row]):
                self._cancel(row, fed)

    def upstream(self, row: int) -> Ancestry | None:
        own = self._table.dtypes[row]
        wider = [float(f"{w:.2g}") if w >= _LITTLE else 1.0 for w in self._wider[row].tolist()]
        cancelled = tuple(self._cancelled[row].tolist())
        if (
            self._types[row] in ("", own)
            and not self._turned[row]
            and wider == [1.0, 1.0]
            and not any(cancelled)
        ):
            return None
        size, passed_on = self._sizes[row].tolist(), self._passed_on[row].tolist()
        return Ancestry(
            self._types[row],
            self._turned[row],
            (wider[0], wider[1]),
            (cancelled[0], cancelled[1]),
            (size[0], size[1]),
            (passed_on[0], passed_on[1]),
        )

    def follow(self, strayed: NDArray[np.float64], known: Sequence[bool]) -> None:
        """Find what the differences of inputs explain in codes, and in what is computed from them.

        Args:
            strayed: as :meth:`Upstream.of` has it.
            known: whether the parents of a row are all of them.
        """
        table, columns = self._table, [STATISTICS.index(name) for name in ("avg", "l2norm")]
        counts = np.array([count or np.nan for count in table.counts], np.float64)
        means, norms = (np.where(table.known[:, at], table.values[:, at], np.nan) for at in columns)
        with np.errstate(invalid="ignore"):
            roots = np.sqrt(counts)
            spread = np.sqrt(np.maximum(np.square(norms) - counts * np.square(means), 0.0))
            spread = np.where(counts == 1, norms, np.maximum(spread, _STEADY * norms))
        aimed = np.maximum(strayed[:, 1] * roots, strayed[:, 2])
        moved, hidden = (strayed != 0).any(axis=1), np.zeros(len(table))
        exact, scalars = [*map(is_exact, table.dtypes)], defaultdict[str, list[int]](list)
        for row in np.flatnonzero(counts == 1).tolist():
            scalars[_place(table.keys[row])].append(row)
        for row, fed in enumerate(self._parents):
            codes = exact[row] and self._types[row] == CODES
            own = scalars and table.counts[row] != 1
            scaled = scalars[_place(table.keys[row])] if own else []  # a dynamic quantisation's
            read = [at for at in (*fed, *scaled) if moved[at]]
            hidden[row] = (
                _HIDDEN / max(spread[row], _HIDDEN)
                if codes and moved[row]
                else max(hidden[[*fed]], default=0.0)
            )
            op_type = self._op_types[row]
            adding, moves = _adds(op_type), MOVING_CODES.fullmatch(op_type) is not None
            quantises = QUANTISING.fullmatch(op_type) is not None
            if (
                self._types[row] != CODES
                or self._turned[row]
                or not (known[row] and fed)
                or not (adding or moves or PASSING.fullmatch(op_type))
                or any(exact[at] and (at in scaled or self._types[at] != CODES) for at in read)  # indices
                or (quantises and any(exact[at] for at in fed))  # what lies between is not known
                or (codes and adding)  # the same
            ):
                continue
            ties = quantises and any(_adds(self._op_types[at]) for at in fed)
            unseen = max(hidden[read], default=0.0)
            with np.errstate(invalid="ignore", divide="ignore"):
                scale = spread[row] if codes else norms[row]
                apart, along = (
                    scale
                    * (_OWN + unseen + _GAIN * float(np.sqrt(np.square(each[read] / spread[read]).sum())))
                    for each in (strayed[:, 0], aimed)
                )
                if adding or moves:  # of a part, which may be the part that differs
                    parts = 1.0 if moves else roots[row] / roots[read]
                    apart, along = (
                        max(one, _GAIN * float((each[read] * parts).sum()))
                        for one, each in ((apart, strayed[:, 0]), (along, aimed))
                    )
                if codes:
                    step = apart / roots[row]
                    apart = roots[row] * math.sqrt(step + step**2 + may_turn(int(counts[row])) + _TIES * ties)
                unaimed = apart * min(1.0, _GAIN / roots[row])
                most = apart, min(apart, along + unaimed + apart**2 / (2 * norms[row]))
            if np.isfinite(most).all():
                self._passed_on[row] = most

    def _width(self, dtype: str) -> float:
        return bound(self._preset, _AS_CODES if dtype == CODES else dtype, "max")[0] if dtype else -1.0

    def _type(self, row: int, fed: Sequence[int]) -> tuple[str, float]:
        """The narrowest type whose noise a tensor has, "" for none, and the share of codes that may turn."""
        own, op_type = self._table.dtypes[row], self._op_types[row]
        given = max((self._types[at] for at in fed), key=self._width, default="")
        if not is_exact(own):
            # Behind a format of fewer than 8 bits it is not known how far noise averages out.
            given = given if self._width(given) <= self._width(_AS_CODES) else _AS_CODES
            return max(own, given, key=self._width), 0.0
        turned = max((self._turned[at] for at in fed), default=0.0)
        if QUANTISING.fullmatch(op_type) and given:
            if given == CODES or self._width(given) >= _EXACT_FLOAT:
                return CODES, 0.0
            return CODES, may_turn(self._table.counts[row] or 1)
        if given == CODES and MOVING_CODES.fullmatch(op_type):
            return CODES, turned
        return (CODES, 0.0) if given == CODES and SUMMING.fullmatch(op_type) else ("", 0.0)

    def _cancel(self, row: int, fed: Sequence[int]) -> None:
        floats = [at for at in fed if not is_exact(self._table.dtypes[at])]
        if not floats:
            return
        size, op_type = self._sizes[row], self._op_types[row]
        before, wider = self._sizes[floats], self._wider[floats]
        if MEAN.fullmatch(op_type):
            counts = self._table.counts
            if "sum" in op_type.lower():
                before = before * ((counts[floats[0]] or 1) / (counts[row] or 1))
            before = before * _OF_MEAN
        elif not DIFFERENCE.fullmatch(op_type):
            divides = DIVIDING.fullmatch(op_type) is not None
            if divides:
                slope = self._slope(floats[-1], op_type)
                wider[-1] *= (slope, math.sqrt(slope))
            elif LOGARITHM.fullmatch(op_type):
                wider = wider * min(_BEHIND, max(1.0, self._ratio(floats[-1])))
            most = _MOST if divides or NORMALISING.fullmatch(op_type) else _BEHIND
            self._wider[row] = np.minimum(wider.max(axis=0), most)
            return
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(np.isfinite(before) & np.isfinite(size), before / size, 1.0)
        ratio = np.where(ratio > _CANCELS, ratio, np.minimum(ratio, 1.0))
        if MEAN.fullmatch(op_type):
            ratio = np.maximum(ratio, 1.0)
        found = np.nan_to_num(ratio * wider, nan=1.0, posinf=np.inf).max(axis=0)
        self._wider[row] = np.clip(found, 1.0, _MOST)
        zero = size == 0
        self._cancelled[row] = np.where(zero, np.nan_to_num(before, posinf=0.0).max(axis=0), 0.0)
        self._wider[row][zero] = 1.0

    def _slope(self, row: int, op_type: str) -> float:
        """Return the factor by which a division enlarges the noise of the divisor's smallest elements."""
        if self._wider[row, 0] <= 1:
            return 1.0
        ratio = self._ratio(row)
        return max(1.0, math.sqrt(ratio) / 2) if op_type.lower().endswith("sqrt") else ratio

    def _ratio(self, row: int) -> float:
        """Return the ratio of the largest element to the smallest; 1 where signs differ, or unknown."""
        low = min(np.abs(self._table.values[row, :EXTREMES]))
        one_sign = np.prod(self._table.values[row, :EXTREMES]) > 0
        return float(self._sizes[row, 0] / low) if one_sign and np.isfinite(self._sizes[row, 0]) else 1.0


@lru_cache(maxsize=256)
def _adds(op_type: str) -> bool:
    return any(kinds.fullmatch(op_type) for kinds in (POOLING, DIFFERENCE, MEAN))


def _place(key: str) -> str:
    """Return an operator's execution, of the key of an output."""
    return str(replace(TensorKey.parse(key), slot=0))


def _sizes(table: StatsTable) -> NDArray[np.float64]:
    """Largest magnitude and root mean square of each tensor, (n, 2); NaN where unknown."""
    extremes = np.where(table.known[:, :EXTREMES], np.abs(table.values[:, :EXTREMES]), np.nan)
    with np.errstate(all="ignore"):
        magnitude = np.where(np.isfinite(extremes).all(axis=1), extremes.max(axis=1), np.nan)
        column = STATISTICS.index("l2norm")
        counts = np.array([count or np.nan for count in table.counts], dtype=np.float64)
        root = np.where(table.known[:, column], table.values[:, column] / np.sqrt(counts), magnitude)
    return np.column_stack([magnitude, root])
