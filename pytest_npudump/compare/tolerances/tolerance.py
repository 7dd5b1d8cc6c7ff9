"""Tolerances of statistics: a preset by data type, and rules by layer, operator, type and statistic.

The last rule that matches decides, alone: rules of the run's file come before those of the marker, so the
marker has the last word. Integers, bools and counts are exact unless a rule names their type or statistic:
a ``*``, or a glob that begins with one (``*16``), never loosens them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from fnmatch import translate
from functools import lru_cache
from itertools import chain, compress
from math import inf, sqrt
from typing import TYPE_CHECKING

import numpy as np

from pytest_npudump.compare.tolerances.presets import PRESETS, ROUNDED_ALONE, SAME, bound
from pytest_npudump.compare.tolerances.upstream import Upstream
from pytest_npudump.dump.dtypes import is_exact
from pytest_npudump.dump.records import sanitise
from pytest_npudump.dump.table import JUDGED, PROJECTIONS, StatsTable, is_count, layer_of
from pytest_npudump.errors import RequestError, hint, joined, said
from pytest_npudump.request import KnownNames, as_glob, is_glob

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from numpy.typing import NDArray

    from pytest_npudump.record.noise import Calibrated


ANY = "*"
_WILD = ("*", "?", "[")
SIDES = ("both", "above", "below")
DEFAULT = "default"
"""The preset that stands for the one that fits the numerics of both sides."""
GOLDEN = "golden"
REFERENCE = "reference"
AGAINST = (GOLDEN, REFERENCE)
"""Subjects of a rule: comparisons with the golden, or with an ONNX reference."""
_OF_ELEMENTS = ("max", "min", PROJECTIONS)
_PLACES = ("layer", "op_type", "dtype", "statistic")


OF_ONE = said("its inputs match")
"""Why one operator's rounding is the bound of projections."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One tolerance.

    Attributes:
        rtol: allowed difference relative to the golden tensor's magnitude.
        atol: allowed difference on top of it, in the tensor's own unit.
        layer: layer name or glob, raw or as file names carry it.
        op_type: operator type or glob, as CANN writes it; a type that is not known is reached by ``*`` alone.
        dtype: data type name or glob.
        statistic: one of :data:`~pytest_npudump.dump.table.JUDGED`, or ``*`` for max, min, avg, l2norm and
            projections.
        one_sided: ``above``: only values above the golden can fail; ``below``: only those below; ``both``.
        reason: why the difference is allowed.
        source: where the rule was given: ``marker``, ``tolerances.yaml, rule 2``, ``preset default``.
        against: one of :data:`AGAINST`.
        producer: facts of the run and their globs, as :mod:`.producers` has them; none for any run.
    """

    rtol: float
    atol: float
    layer: str = ANY
    dtype: str = ANY
    statistic: str = ANY
    one_sided: str = "both"
    reason: str = ""
    source: str = ""
    against: str = GOLDEN
    op_type: str = ANY
    producer: tuple[tuple[str, str], ...] = ()

    def describe(self) -> str:
        """The rule in one line, as a verdict quotes it."""
        where = [f"{n}={v}" for n in _PLACES if (v := getattr(self, n)) != ANY]
        if self.one_sided != "both":
            where.append(f"one_sided={self.one_sided}")
        if self.against != GOLDEN:
            where.append(f"against={self.against}")
        where += [f"producer.{name}={glob}" for name, glob in self.producer]
        reason = f": {self.reason}" if self.reason else ""
        text = " ".join([f"rtol={self.rtol:g} atol={self.atol:g}", *where])
        return joined("", (text, " (", self.source, reason, ")")) if self.source or reason else text

    @property
    def names_dtype(self) -> bool:
        """Return whether the rule names types; a glob that begins with a wildcard does not."""
        return self.dtype[:1] not in _WILD

    def covers(self, dtype: str, statistic: str) -> bool:
        """Return whether the rule covers a statistic of tensors of that type."""
        if self.statistic not in (ANY, statistic):
            return False
        if is_count(statistic) and ANY in (self.statistic, self.dtype):
            return self.statistic != ANY
        named = self.names_dtype or not is_exact(dtype)
        return named and (self.dtype == ANY or bool(_pattern(self.dtype).match(dtype)))

    def suits(self, facts: Mapping[str, str]) -> bool:
        """Return whether the rule is for such a producer, which has all the facts that the rule names."""
        return all(name in facts and _pattern(glob).match(facts[name]) for name, glob in self.producer)

    def reaches(self, layer: str, op_type: str = "", *, literally: bool = False) -> bool:
        """Return whether the rule is about the layer, in its raw or its sanitised spelling.

        Args:
            layer: its name.
            op_type: the type of its operator; "" where unknown.
            literally: whether the rule's layer is a name, whatever wildcards it has, and no glob.
        """
        kind = op_type.partition("[")[0]  # without what a rank holds of it
        if self.op_type != ANY and not (kind and _pattern(self.op_type).match(kind)):
            return False
        if self.layer in (ANY, layer):
            return True
        plain = sanitise(layer)
        spelling = sanitise(self.layer) if plain == layer else self.layer
        if literally or spelling == plain:
            return spelling == plain
        glob = _pattern(spelling)
        return bool(glob.match(layer) or glob.match(plain))


BOUNDED = re.compile(r"(?:aclnn)?sigmoid", re.IGNORECASE)
"""Operators whose results, up to 1, are as exact as 1 is: in vectors, and in what these leave over."""
_STEP_AT_1 = 2.0**-23


@dataclass(frozen=True, slots=True)
class Tolerances:
    """A preset and the rules on top of it, the last matching one deciding.

    Attributes:
        preset: name of one of :data:`PRESETS`.
        rules: in the order they were given.
        measured: bounds of the golden's tensors that replace the preset's where they are wider.
        names: what rules have for a layer and is a layer's own name, wildcards and all.
        upstream: what the preset's bounds are widened by, of tensors by what they were computed from.
        alone: the golden's keys of tensors that changed while all that they were computed from did not, see
            :data:`.presets.ROUNDED_ALONE`.
        copies: keys of what is compared with the first rank's copy of it, in one run and so in one numerics.
        bounded: the golden's keys of float32 results of :data:`BOUNDED` operators, with their elements.
    """

    preset: str = DEFAULT
    rules: tuple[Rule, ...] = ()
    measured: Calibrated | None = None
    names: frozenset[str] = frozenset()
    upstream: Upstream = field(default_factory=Upstream)
    alone: frozenset[str] = frozenset()
    copies: frozenset[str] = frozenset()
    bounded: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse a preset that does not exist."""
        if self.preset not in PRESETS:
            raise RequestError(
                said(
                    "unknown tolerance preset {preset!r}{hint}",
                    preset=self.preset,
                    hint=hint(self.preset, PRESETS),
                )
            )

    def extended(self, rules: Iterable[Rule]) -> Tolerances:
        """The same with ``rules`` behind the present ones, which they override."""
        return replace(self, rules=(*self.rules, *rules))

    def under(self, bounds: str) -> Tolerances:
        """The same, with the preset ``bounds`` in place of ``default``; a preset that was named stays."""
        return replace(self, preset=bounds) if self.preset == DEFAULT else self

    def with_measured(self, measured: Calibrated | None) -> Tolerances:
        """The same with what was measured with a golden; None for nothing."""
        return replace(self, measured=measured)

    def for_run(self, facts: Mapping[str, str]) -> Tolerances:
        """The same with the rules for a run of such a producer only; before, those of all producers decide.

        Args:
            facts: of the run's origin, as a golden records them.
        """
        if not any(rule.producer for rule in self.rules):
            return self
        return self.having(lambda rule: rule.suits(facts))

    def for_layers_of(self, *keys: Iterable[str]) -> Tolerances:
        """The same where there are these tensors: a rule for a layer with the name of one is for that alone.

        Args:
            keys: of the tensors of either side. Names that are known stay so.
        """
        globs = {rule.layer for rule in self.rules if rule.layer != ANY and is_glob(rule.layer)}
        every = [*chain(*keys)] if globs else []
        if not is_glob("\n".join(every)):
            return self
        layers = KnownNames((layer_of(key) for key in every if is_glob(key)), sanitise)
        return replace(self, names=self.names.union(filter(layers.called, globs)))

    @property
    def names_layers(self) -> bool:
        """Return whether any rule names layers, so that two layers of one type may differ in rules."""
        return any(rule.layer != ANY for rule in self.rules)

    @property
    def names_op_types(self) -> bool:
        """Return whether any rule is about the layers of some operators only."""
        return any(rule.op_type != ANY for rule in self.rules)

    def decide(self, layer: str, dtype: str, statistic: str, key: str = "", op_type: str = "") -> Rule:
        """The rule for one statistic of a layer's tensors; the preset's where no other matches.

        Args:
            layer: the layer's name.
            dtype: name of the tensor's type.
            statistic: one of :data:`STATISTICS`.
            key: the golden's key of the tensor, by which measured bounds are found; "" leaves these out.
            op_type: the type of the layer's operator; "" where unknown.
        """
        given = self._given(layer, dtype, statistic, op_type)
        return given or self._measured(dtype, statistic, key, (statistic,))

    def _given(self, layer: str, dtype: str, statistic: str, op_type: str) -> Rule | None:
        rules = (rule for rule in reversed(self.rules) if rule.covers(dtype, statistic))
        return next(
            (rule for rule in rules if rule.reaches(layer, op_type, literally=rule.layer in self.names)), None
        )

    def unmeasured_rtol(self, layer: str, dtype: str, statistic: str, op_type: str = "") -> float:
        """The ``rtol`` that a measured bound has to exceed to decide in its place; infinite where none can.

        Args:
            layer: the layer's name.
            dtype: name of the tensor's type.
            statistic: one of :data:`STATISTICS`.
            op_type: the type of the layer's operator; "" where unknown.
        """
        if not self._heeds_measured(dtype) or self._given(layer, dtype, statistic, op_type) is not None:
            return inf
        return _preset_rule(self.preset, dtype, statistic).rtol

    def is_measured(self, rule: Rule) -> bool:
        """Return whether a rule that these decided on is a measured tolerance."""
        return self.measured is not None and rule.source == self.measured.source

    def _heeds_measured(self, dtype: str) -> bool:
        return self.measured is not None and (self.measured.widens or is_exact(dtype))

    def _measured(self, dtype: str, statistic: str, key: str, by: tuple[str, ...]) -> Rule:
        """The preset's rule for a statistic, or what was measured of those of ``by`` where that is wider."""
        rule = self._of_preset(dtype, statistic, key)
        if self.measured is None or not self._heeds_measured(dtype):
            return rule
        rtol = max(self.measured.rtol(key, name) for name in by)
        about = statistic if by == (statistic,) else ANY
        return (
            replace(rule, rtol=rtol, statistic=about, source=self.measured.source)
            if rtol > rule.rtol
            else rule
        )

    def _of_preset(self, dtype: str, statistic: str, key: str) -> Rule:
        """The preset's rule for a statistic, as wide as what computed the tensor makes it."""
        rule = self._by_inputs(dtype, statistic, key)
        if key not in self.bounded or not rule.rtol or is_count(statistic):
            return rule
        atol = _STEP_AT_1 * (sqrt(self.bounded[key]) if statistic == "l2norm" else 1.0)
        if atol <= rule.atol:
            return rule
        source = joined(": ", (f"preset {self.preset}", said("a step of results up to 1")))
        return replace(rule, atol=atol, dtype=dtype, source=source)

    def _by_inputs(self, dtype: str, statistic: str, key: str) -> Rule:
        """The preset's rule for a statistic, as wide as what the tensor was computed from makes it."""
        if key in self.alone and statistic == PROJECTIONS and dtype in ROUNDED_ALONE:
            source = f"preset {self.preset}: " + OF_ONE
            return replace(
                _preset_rule(self.preset, dtype, statistic), rtol=ROUNDED_ALONE[dtype], source=source
            )
        rule, found = _preset_rule(self.preset, dtype, statistic), self.upstream.found.get(key)
        if key in self.copies and (same := _preset_rule(SAME, dtype, statistic)).rtol <= rule.rtol:
            return replace(same, source=f"preset {SAME}: " + said("a copy of the first rank's"))
        if found is None or is_count(statistic):
            return rule
        rtol, atol, why = found.bound(self.preset, dtype, statistic, self.upstream.counts[key])
        if (rtol, atol) == (rule.rtol, rule.atol):
            return rule
        return Rule(rtol, atol, dtype=dtype, source=joined(": ", (f"preset {self.preset}", why)))

    def largest_atol(self) -> float:
        """An absolute tolerance that none of the rules, nor any of the preset, exceeds."""
        return max([rule.atol for rule in self.rules] + [atol for _, atol in PRESETS[self.preset].values()])

    def element_rule(self, layer: str, dtype: str, key: str = "", op_type: str = "") -> Rule:
        """The rule for the single elements of a layer's tensors: that of their extremes.

        Of elements nothing is measured. What extremes and projections have strayed by stands for it.

        Args:
            layer: the layer's name.
            dtype: name of the tensor's type.
            key: the golden's key of the tensor; "" leaves measured bounds out.
            op_type: the type of the layer's operator; "" where unknown.
        """
        given = self._given(layer, dtype, "max", op_type)
        return given or self._measured(dtype, "max", key, _OF_ELEMENTS)

    def elements(self, layer: str, dtype: str, key: str = "", op_type: str = "") -> tuple[float, float]:
        """``(rtol, atol)`` of :meth:`element_rule`."""
        rule = self.element_rule(layer, dtype, key, op_type)
        return rule.rtol, rule.atol

    def turned(self, rule: Rule, key: str) -> float:
        """The share of a tensor's elements that may be off by a rule's ``atol``: not all, of codes."""
        found = self.upstream.found.get(key)
        own = found is not None and rule.source.startswith(f"preset {self.preset}: ")
        return found.share(rule.atol, self.upstream.counts[key]) if found is not None and own else 1.0

    def having(self, rules: Callable[[Rule], bool]) -> Tolerances:
        """The same with those of the rules only."""
        return replace(self, rules=tuple(filter(rules, self.rules)))

    def unmatched(self, *tables: StatsTable) -> tuple[Rule, ...]:
        """Return rules about no tensor of any of ``tables``: a misspelt layer, most of the time.

        A rule for one statistic is about the tensors that have it.
        """
        if not self.rules:
            return ()
        rows = [
            (layer_of(key), op_type, dtype)
            for table in tables
            for key, op_type, dtype in zip(table.keys, table.op_types, table.dtypes, strict=True)
        ]
        every = frozenset(rows)
        telling = {ANY: every}
        for statistic in {rule.statistic for rule in self.rules} - {ANY}:
            told = np.concatenate([_tells(table, statistic) for table in tables])
            telling[statistic] = every if told.all() else frozenset(compress(rows, told.tolist()))
        names = self.for_layers_of(*(table.keys for table in tables)).names
        return tuple(
            rule
            for rule in self.rules
            if not _matches_any(rule, telling[rule.statistic], literally=rule.layer in names)
        )


def _tells(table: StatsTable, statistic: str) -> NDArray[np.bool_]:
    """Rows, (n,), of which the rule for a statistic decides something.

    That for max decides about hashes and elements, too, which are all there is of tensors without statistics.
    """
    told = table.tells(statistic)
    if statistic != "max" or told.all():
        return told
    hashed = np.array([bool(digest) for digest in table.digests] or [False])
    return np.asarray(told | hashed | ~table.known.any(axis=1))


def _matches_any(rule: Rule, tensors: Iterable[tuple[str, str, str]], *, literally: bool) -> bool:
    statistics = JUDGED if rule.statistic == ANY else (rule.statistic,)
    covered: dict[str, bool] = {}
    for layer, op_type, dtype in tensors:
        if dtype not in covered:
            covered[dtype] = any(rule.covers(dtype, statistic) for statistic in statistics)
        if covered[dtype] and rule.reaches(layer, op_type, literally=literally):
            return True
    return False


@lru_cache(maxsize=512)
def _pattern(glob: str) -> re.Pattern[str]:
    return re.compile(translate(as_glob(glob)))


@lru_cache(maxsize=1024)
def _preset_rule(preset: str, dtype: str, statistic: str) -> Rule:
    rtol, atol = bound(preset, dtype, statistic)
    if is_count(statistic):
        return Rule(rtol, atol, source=said("exact"))
    if is_exact(dtype):
        return Rule(rtol, atol, dtype=dtype, source=said("exact"))
    return Rule(rtol, atol, dtype=dtype, source=f"preset {preset}")
