"""Findings of a comparison, as data: verdicts per tensor, their reasons, the first mismatch, and sums."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from pytest_npudump.compare.stats.alignment import ABSENT, Alignment
from pytest_npudump.dump.records import TensorKey, sanitise
from pytest_npudump.dump.table import PROJECTIONS, StatsTable
from pytest_npudump.errors import said
from pytest_npudump.language.translation import gettext as _
from pytest_npudump.onnxmodels.graph import draws_random

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from pytest_npudump.compare.tolerances.presets import Numerics
    from pytest_npudump.compare.tolerances.tolerance import Tolerances

Value = str | float | int | None

PASS = "pass"  # noqa: S105 - a verdict, no password
FAIL = "fail"
MISSING = "missing"
EXTRA = "extra"

CHECKSUM = "checksum"
"""Name of a checksum of integers or bools among reasons."""


@dataclass(frozen=True, slots=True)
class Reason:
    """Reason of a failing tensor: one property and the rule that decided.

    Attributes:
        statistic: ``dtype``, ``shape``, ``count`` or one of :data:`~pytest_npudump.dump.table.JUDGED`.
        golden, actual: the two values; None where unknown. Of projections 0 and their distance, which
            estimates the l2norm of the difference.
        allowed: greatest allowed difference; None where only equality passes.
        rule: the rule in words, with its reason and source.
    """

    statistic: str
    golden: Value
    actual: Value
    allowed: float | None
    rule: str

    @property
    def difference(self) -> float | None:
        """``actual - golden`` where both are finite numbers."""
        golden, actual = self.golden, self.actual
        if not isinstance(golden, (int, float)) or not isinstance(actual, (int, float)):
            return None
        return actual - golden if math.isfinite(golden) and math.isfinite(actual) else None

    @property
    def excess(self) -> float:
        """The difference in units of the tolerance; infinite without a tolerance or a number."""
        difference = self.difference
        return float(abs(difference) / self.allowed) if self.allowed and difference is not None else math.inf

    def __str__(self) -> str:
        """``max: 5.03125 -> 5.5, difference 0.46875, tolerance 0.005 [rtol=0.001 ... (preset default)]``."""
        return self.words()

    def words(self, said: Callable[..., str] = said) -> str:
        """Return this as text; of templates and values ``str.format`` makes one that is English for good."""
        text = f"{self.statistic}: {_shown(self.golden)} -> {_shown(self.actual)}"
        if self.statistic == PROJECTIONS and self.golden == 0:
            text = said(
                "{statistic}: the elements differ by an l2norm of about {actual:.2g}",
                statistic=self.statistic,
                actual=self.actual,
            )
            text += said(", tolerance {allowed:.6g}", allowed=self.allowed)
        elif self.allowed is not None and (difference := self.difference) is not None:
            text += said(
                ", difference {difference:.6g}, tolerance {allowed:.6g}",
                difference=abs(difference),
                allowed=self.allowed,
            )
        return text + f" [{self.rule}]"


def _shown(value: Value) -> str:
    return "unknown" if value is None else str(value)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome for one tensor.

    Attributes:
        key: which tensor, under its raw name where either side knows that.
        op_type: operator type; "" where unknown.
        status: ``pass``, ``fail``, ``missing`` (only the golden has it) or ``extra`` (only the dump).
        reasons: why it fails; empty for the other three.
        changed: whether it passes, and is not the golden's digit for digit.
    """

    key: TensorKey
    op_type: str
    status: str
    reasons: tuple[Reason, ...] = ()
    changed: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON data; ``key`` and ``changed`` are there only where they add something."""
        key = self.key
        data: dict[str, Any] = {
            "layer": key.layer,
            "op_type": self.op_type or None,
            "io": key.io,
            "slot": key.slot,
            "status": self.status,
            "reasons": [reason.words(str.format) for reason in self.reasons],
        }
        if self.changed:
            data["changed"] = True
        if key != TensorKey(key.layer, key.io, key.slot):
            data["key"] = str(key)
        return data


@dataclass(frozen=True, slots=True, eq=False)
class Comparison:
    """A dump judged against a golden.

    Attributes:
        golden, actual: the two sides.
        alignment: their rows in execution order.
        failing: verdicts other than ``pass``, in execution order.
        expected: tensors in the golden.
        compared: tensors that both sides have.
        passed: those of them that agree.
        first: the divergence to look at first; None where nothing diverges.
        origin: what is known of where it comes from: ``layer``, ``unseen``, ``before`` or ``structure``,
            see :func:`pytest_npudump.compare.stats.verdict.explain_first`; "" without one.
        remarks: what was decided about pairing, and which statistics were not compared.
        tolerances: what decided, with what was measured with the golden.
        doubts: what was not judged, or not in full.
        differing: positions in the alignment of tensors both sides have that are not the same digit for
            digit, whether they pass or fail.
        within_noise: positions of those that differ, and by no more than runs alike did when the golden was
            recorded; they are not among ``differing``.
        unsteady: positions of tensors of which runs alike gave other digits when the golden was recorded.
        repeats: whether the golden is known to repeat, but for those; None where it says nothing of it.
        own_keys: keys of the dump as read, by the key they got here where eager calls were numbered as the
            golden's, see :mod:`pytest_npudump.compare.stats.alignment`.
        numerics: which bounds fit golden and run; None where the tolerances were taken as they are.
        elements: what was compared element by element, by position in the alignment, as ``Elements``.
        alone: the same of tensors that only one side has the elements of, whose statistics these gave.
        pairs: the tensors that both are of, as ``Pair``.
    """

    golden: StatsTable
    actual: StatsTable
    alignment: Alignment
    failing: tuple[Verdict, ...]
    expected: int
    compared: int
    passed: int
    first: Verdict | None
    origin: str
    remarks: tuple[str, ...]
    tolerances: Tolerances
    doubts: tuple[Doubt, ...] = ()
    differing: frozenset[int] = frozenset()
    within_noise: frozenset[int] = frozenset()
    unsteady: frozenset[int] = frozenset()
    repeats: bool | None = None
    own_keys: Mapping[TensorKey, TensorKey] = field(default_factory=dict)
    numerics: Numerics | None = None
    elements: Mapping[int, Any] = field(default_factory=dict)
    alone: Mapping[int, Any] = field(default_factory=dict)
    pairs: Mapping[int, Any] = field(default_factory=dict)

    @property
    def unreadable(self) -> dict[int, tuple[Any, ...]]:
        """Errors of reading tensors whose elements were wanted, by position."""
        examined = {**self.elements, **self.alone}
        return {at: examined[at].problems for at in sorted(examined) if examined[at].problems}

    @property
    def ok(self) -> bool:
        """Return whether every tensor of the golden is there and matches, and no other one is."""
        return not self.failing

    @property
    def mismatches(self) -> tuple[Verdict, ...]:
        """Failing tensors; an input of the graph that is dumped with each of its readers counts once.

        New inputs, which tell of what was dumped and not of values, stand behind all others.
        """
        seen, found = dict[TensorKey, Verdict](), []
        for verdict in self.failing:
            given = verdict.op_type == GRAPH_INPUT
            first = seen.setdefault(replace(verdict.key.sanitised, turn=0), verdict) if given else verdict
            if first is verdict or (verdict.status, verdict.reasons) != (first.status, first.reasons):
                found.append(verdict)
        return tuple(sorted(found, key=is_new_input))

    @property
    def unjudged(self) -> int:
        """Number of passed tensors of whose values nothing was compared, neither statistics nor elements."""
        return len(frozenset[int]().union(*(doubt.unjudged for doubt in self.doubts)))

    @property
    def changed(self) -> int:
        """Number of passed tensors that are not the golden's digit for digit."""
        return len(self.differing) - sum(verdict.status == FAIL for verdict in self.failing)

    @property
    def wavering(self) -> int:
        """Number of passed tensors that differ by no more than the noise recorded with the golden."""
        return len(self.within_noise)

    @property
    def identical(self) -> int:
        """Number of passed tensors that are the golden's digit for digit, in all that was compared."""
        unseen = frozenset[int]().union(*(doubt.unjudged for doubt in self.doubts)) - self.differing
        return self.passed - self.changed - self.wavering - len(unseen - self.within_noise)

    @property
    def first_change(self) -> TensorKey | None:
        """The first tensor in execution order that is not the golden's digit for digit, passing or not.

        Tensors that are known not to repeat are passed over: that they differ says nothing.
        """
        at = min(self.differing - self.unsteady, default=None)
        if at is None:
            return None
        return self.key(at)

    @property
    def first_within(self) -> TensorKey | None:
        """The first tensor that passes and is not the golden's digit for digit."""
        failing = {verdict.key for verdict in self.failing}
        for at in sorted(self.differing):
            if (key := self.key(at)) not in failing:
                return key
        return None

    @property
    def nothing_judged(self) -> bool:
        """Return whether all tensors that hold elements match, and no values of any were compared."""
        if self.failing or not self.unjudged:
            return False
        shared = self.alignment.golden[self.alignment.both].tolist()
        holding = [row for row in shared if self.golden.counts[row] != 0]
        return self.unjudged == len(holding)

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on values that were not compared, and decisions about pairing."""
        return (*self.remarks, *(doubt.describe(self.compared) for doubt in self.doubts))

    def count(self, status: str) -> int:
        """Number of mismatches with that status."""
        return sum(verdict.status == status for verdict in self.mismatches)

    def key(self, at: int) -> TensorKey:
        """The key of the tensor at a position in the alignment."""
        here, there = int(self.alignment.golden[at]), int(self.alignment.actual[at])
        return key_at(self.golden, self.actual, here, there)

    def aligned_keys(self) -> Iterator[tuple[TensorKey, str]]:
        """Key and operator type of each tensor in execution order."""
        rows = zip(self.alignment.golden.tolist(), self.alignment.actual.tolist(), strict=True)
        return (
            (key_at(self.golden, self.actual, *row), type_at(self.golden, self.actual, *row)) for row in rows
        )

    def verdicts(self) -> Iterator[Verdict]:
        """All verdicts in execution order."""
        failing = {verdict.key: verdict for verdict in self.failing}
        for position, (key, op_type) in enumerate(self.aligned_keys()):
            yield failing.get(key) or Verdict(key, op_type, PASS, changed=position in self.differing)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON data: summary, first divergence and all verdicts."""
        return {
            "summary": {
                "expected": self.expected,
                "compared": self.compared,
                "passed": self.passed,
                "failed": self.count(FAIL),
                "missing": self.count(MISSING),
                "extra": self.count(EXTRA),
                "unjudged": self.unjudged,
                "identical": self.identical,
                "changed": self.changed,
                "wavering": self.wavering,
                "repeats": self.repeats,
                "notes": list(self.notes),
            },
            "first_divergence": None if self.first is None else _place(self.first.key),
            "first_change": None if (change := self.first_change) is None else _place(change),
            "verdicts": [verdict.to_json() for verdict in self.verdicts()],
        }


def _place(key: TensorKey) -> dict[str, Any]:
    return {"layer": key.layer, "io": key.io, "slot": key.slot}


def is_new_input(verdict: Verdict) -> bool:
    """Return whether a mismatch is an input that the golden has not, as with another ``dump_mode``."""
    return verdict.status == EXTRA and verdict.key.io == "input"


def key_at(golden: StatsTable, actual: StatsTable, here: int, there: int) -> TensorKey:
    """The key of golden row ``here`` and actual row ``there`` (-1: none), raw where either side is."""
    if here == ABSENT:
        return TensorKey.parse(actual.keys[there])
    key = TensorKey.parse(golden.keys[here])
    if there == ABSENT or golden.keys[here] == actual.keys[there] or sanitise(key.layer) != key.layer:
        return key
    return TensorKey.parse(actual.keys[there])


def type_at(golden: StatsTable, actual: StatsTable, here: int, there: int) -> str:
    """Return the operator type that either side has; "" where neither does."""
    found = actual.op_types[there] if there != ABSENT else ""
    return found or (golden.op_types[here] if here != ABSENT else "")


@dataclass(frozen=True, slots=True)
class Doubt:
    """Reason for which tensors match without having been judged in full.

    Attributes:
        text: the reason.
        keys: keys of the tensors, by position in the comparison's alignment and in its order.
        unjudged: positions of those that pass without any of their values judged.
        advice: what to do about it, with the sign that parts it from what is before; "" if nothing.
    """

    text: str
    keys: dict[int, str]
    unjudged: frozenset[int]
    advice: str = ""

    def without(self, positions: Collection[int]) -> Doubt:
        """Return the doubt about all other tensors."""
        keys = {at: key for at, key in self.keys.items() if at not in positions}
        return replace(self, keys=keys, unjudged=self.unjudged - frozenset(positions))

    def describe(self, compared: int) -> str:
        """The doubt in one line; ``compared`` is how many tensors both sides have."""
        first = next(iter(self.keys.values()))
        return said(
            "{text}: {count} of {compared} tensors (first: {first}){advice}",
            text=self.text,
            count=len(self.keys),
            compared=compared,
            first=first,
            advice=self.advice,
        )


LAYER = "layer"
UNSEEN = "unseen"
BEFORE = "before"
STRUCTURE = "structure"
GRAPH_INPUT = "Data"
"""Operator type of GE's graphs whose output is what the model was given."""


def first_divergence(failing: Sequence[Verdict]) -> Verdict | None:
    """The verdict to look at first.

    An input that only one side has tells that other tensors were dumped, not that a value changed: it is
    the first divergence only if there is no other. In a dump's order a failing output stands before the
    inputs it feeds, and a layer's inputs before its outputs; should they not, its failing input counts.

    Args:
        failing: verdicts other than ``pass`` in execution order.
    """
    telling = (v for v in failing if v.status == FAIL or v.key.io != "input")
    first = next(telling, failing[0] if failing else None)
    if first is None or first.status != FAIL or first.key.io == "input":
        return first
    fed = execution(first.key)
    inputs = (v for v in failing if v.status == FAIL and v.key.io == "input" and execution(v.key) == fed)
    return next(inputs, first)


def execution(key: TensorKey) -> TensorKey:
    """The key all tensors of one execution of a layer share."""
    return replace(key, io="", slot=0)


def origin_of(first: Verdict | None, compared: Iterable[str]) -> str:
    """Return the known origin of ``first``.

    Args:
        first: the first divergence.
        compared: texts of the keys, on either side, of the tensors that both sides have.

    Returns:
        ``layer``: its inputs agree, its output does not. ``unseen``: its inputs were not compared.
        ``before``: it is an input: the difference was there already. ``structure``: the tensor is on one
        side only. "" where nothing diverges.
    """
    if first is None:
        return ""
    if first.status in {MISSING, EXTRA}:
        return STRUCTURE
    if first.key.io == "input":
        return BEFORE
    fed = execution(first.key.sanitised)
    inputs = (TensorKey.parse(text).sanitised for text in compared if ":input." in text)
    return LAYER if any(execution(key) == fed for key in inputs) else UNSEEN


def explain_first(comparison: Comparison, *, feeds_seen: bool | None = False) -> str:
    """Describe the origin of the first mismatch, as far as known; "" without one.

    Args:
        comparison: of both sides.
        feeds_seen: whether the outputs that feed it are known, and both sides have them; None where only
            weights feed it.
    """
    first = comparison.first
    if first is None:
        return ""
    words = _explained(comparison, first, feeds_seen=feeds_seen)
    if not draws_random(first.op_type):
        return words
    return _("{words}; it draws random numbers, which differ in every process unless it has a seed").format(
        words=words
    )


def _explained(comparison: Comparison, first: Verdict, *, feeds_seen: bool | None) -> str:
    key = first.key
    if comparison.origin == STRUCTURE:
        return _("the model, the operators that ran, or the dump changed there")
    moved, unseen, before, own = _about(comparison, key)
    if comparison.origin == LAYER:
        if not own & (moved | unseen):
            return _("the statistics of its inputs match")
        return (
            _("what was compared of its inputs is within tolerance")
            if own & unseen
            else _("the statistics of its inputs are within tolerance")
        )
    if first.op_type == GRAPH_INPUT:
        return _("an input of the graph: other values are fed, or something wrote to them")
    if comparison.origin == BEFORE and feeds_seen:
        return _(
            "the output that feeds it is within tolerance: changed on the way by a conversion, an overwrite, "
            "or code between them"
        )
    if comparison.origin == BEFORE:
        return _("caused by a layer that was not dumped or compared, by what is fed, or by an overwrite")
    words = _("all statistics before it match") if before else _("no tensor was compared before it")
    if before & moved:
        words = _("all statistics before it are within tolerance")
    if before & unseen:
        words = _("all tensors compared before it are within tolerance")
    if feeds_seen:
        return _("{words}, including those of the outputs that feed it").format(words=words)
    return (
        words
        if own or feeds_seen is None
        else _("{words}; not all of its inputs are known").format(words=words)
    )


def inputs_match(comparison: Comparison, *, feeds_seen: bool | None) -> bool:
    """Return whether all statistics of the first mismatch's inputs are known, and the golden's.

    Args:
        comparison: of both sides.
        feeds_seen: as for :func:`explain_first`.
    """
    first = comparison.first
    if first is None or not (comparison.origin == LAYER or (comparison.origin == UNSEEN and feeds_seen)):
        return False
    moved, unseen, before, own = _about(comparison, first.key)
    return not (own if comparison.origin == LAYER else before) & (moved | unseen)


def _about(comparison: Comparison, key: TensorKey) -> tuple[set[int], set[int], set[int], set[int]]:
    """Return the positions of what moved, what was not compared, what is before a tensor, and its inputs."""
    sides = comparison.golden, comparison.actual
    rows = [*zip(comparison.alignment.golden.tolist(), comparison.alignment.actual.tolist(), strict=True)]
    unseen = {at for at, pair in enumerate(rows) if ABSENT in pair}
    unseen.update(*(doubt.unjudged for doubt in comparison.doubts))
    first = next(at for at, pair in enumerate(rows) if key_at(*sides, *pair) == key)
    texts = (sides[here == ABSENT].keys[there if here == ABSENT else here] for here, there in rows)
    inputs = ((at, key_at(*sides, *rows[at])) for at, text in enumerate(texts) if ":input." in text)
    fed = execution(key.sanitised)
    own = {at for at, one in inputs if one.io == "input" and execution(one.sanitised) == fed}
    return {*comparison.differing, *comparison.within_noise}, unseen, {*range(first)}, own
