"""Runs judged against their model in float32, by what rounding does to it and by the flat preset."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from pytest_npudump.compare.stats.tables import compare_tables
from pytest_npudump.compare.tensors.difference import compare_tensors
from pytest_npudump.compare.tensors.element_verdict import with_elements
from pytest_npudump.compare.tensors.tensor_pair import PairElements
from pytest_npudump.compare.tolerances.rules import ReferenceTolerances
from pytest_npudump.compare.tolerances.tolerance import Tolerances
from pytest_npudump.dump.records import TensorKey
from pytest_npudump.dump.table import StatsTable
from pytest_npudump.explain.rounding import Rounding, by_rounding
from verdicts.execution import Runner
from verdicts.faults import faults
from verdicts.numerics import Numerics, noises
from verdicts.observed import observe

if TYPE_CHECKING:
    from verdicts.execution import Tensors
    from verdicts.network import Network
    from verdicts.observed import Observed

RULES = ("three ways", "om-net")


@dataclass
class Counts:
    """What became of the runs of one format, by rule and whether tensors were dumped.

    Attributes:
        faults: injected, by the column of the table.
        found: of these, found and named right at once, by rule, tensors or statistics, and column.
        right: the same, of those whose first failing tensor is the faulted operator's.
        runs, alarms: runs in other numerics by kind, and how many of them fail.
    """

    faults: Counter[str] = field(default_factory=Counter)
    found: Counter[tuple[str, bool, str]] = field(default_factory=Counter)
    right: Counter[tuple[str, bool]] = field(default_factory=Counter)
    runs: Counter[str] = field(default_factory=Counter)
    alarms: Counter[tuple[str, bool, str]] = field(default_factory=Counter)


class ThreeWays:
    """One model in one format, whose device adds up in another order than the CPU."""

    def __init__(self, network: Network, dtype: str, counts: Counts) -> None:
        self._network, self._numerics, self._counts = network, Numerics(dtype), counts
        self._exact = Runner(network, Numerics()).run()
        self._golden = observe(network, self._exact, Numerics())
        narrow = Runner(network, self._numerics).run() if dtype != "float32" else {}
        self._roundings = {
            TensorKey.parse(key): Rounding.of(self._exact[name], narrow[name])
            for name, key in zip(self._golden.tensors, self._golden.full.keys, strict=True)
            if name in narrow and self._exact[name].dtype == np.float32
        }

    def inject(self, count: int, seed: int) -> None:
        """Judge runs with one fault each, on a device that is right but for it."""
        device = Runner(self._network, replace(self._numerics, order=1))
        base = device.run()
        for fault in faults(self._network, count, seed):
            tensors = device.faulty(base, fault.node, fault.after)
            name = fault.node.outputs[0]
            if np.array_equal(tensors[name], base[name], equal_nan=True):
                continue
            self._counts.faults[fault.column] += 1
            seen = observe(self._network, tensors, self._numerics)
            for rule in RULES:
                for full in (False, True):
                    first = self._first(seen, tensors, rule, full=full)
                    if first is not None:
                        self._counts.found[rule, full, fault.column] += 1
                        self._counts.right[rule, full] += seen.makers[first] == fault.node.index

    def calm(self, members: int) -> None:
        """Judge runs in other numerics without a fault."""
        for kind, variants in noises(self._numerics.dtype, members).items():
            for numerics in variants:
                tensors = Runner(self._network, numerics).run()
                seen = observe(self._network, tensors, numerics)
                self._counts.runs[kind] += 1
                for rule in RULES:
                    for full in (False, True):
                        failed = self._first(seen, tensors, rule, full=full) is not None
                        self._counts.alarms[rule, full, kind] += failed

    def _first(self, seen: Observed, tensors: Tensors, rule: str, *, full: bool) -> str | None:
        """The first tensor that fails, None where none does."""
        names = [name for name in self._golden.tensors if name in seen.tensors]
        here = [self._golden.tensors[name].full for name in names]
        there = [seen.tensors[name].full if full else seen.tensors[name].printed for name in names]
        here = [replace(one, dtype=other.dtype) for one, other in zip(here, there, strict=True)]
        if not full:
            here = [replace(one, stats=replace(one.stats, l2norm=None)) for one in here]  # type: ignore[type-var]
        flat = ReferenceTolerances().among(record.dtype for record in there)
        tolerances = flat if rule == "om-net" else Tolerances("same")
        comparison = compare_tables(StatsTable.from_records(here), StatsTable.from_records(there), tolerances)
        if full:
            elements = {}
            for row, (name, record) in enumerate(zip(names, there, strict=True)):
                rtol, atol = tolerances.elements(record.key.layer, record.dtype)
                pair = self._exact[name], tensors[name]
                elements[row] = PairElements(difference=compare_tensors(*pair, rtol=rtol, atol=atol))
            comparison = with_elements(comparison, elements, tolerances)
        if rule != "om-net":
            comparison, _ = by_rounding(comparison, self._roundings, tolerances)
        failing = {str(verdict.key) for verdict in comparison.failing}
        return next((n for n, one in zip(names, here, strict=True) if str(one.key) in failing), None)
