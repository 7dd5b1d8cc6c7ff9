"""Counts: of faults, which are found and named; of runs in other numerics, which fail."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from onnxruntime.capi.onnxruntime_pybind11_state import Fail

from pytest_npudump.graph.sources import walked_back
from verdicts.blame import alone, by_projections
from verdicts.execution import Runner, whole
from verdicts.faults import faults
from verdicts.numerics import Numerics, noises
from verdicts.observed import observe
from verdicts.rules import Product

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from verdicts.faults import Fault
    from verdicts.network import Network
    from verdicts.observed import Observed
    from verdicts.rules import Rule

HOPS = (0, 2, 5, 10)
WALKS = ("source", "golden repeats", "projections")
"""Ways back: from the first source by statistics, the same where the golden repeats bit for bit, and from the
first that fails by projections."""


@dataclass
class Tally:
    """What one rule made of a format's runs.

    Attributes:
        faults: injected, by the column of the table.
        found: those of them with a tensor that fails.
        hops: of those found, by column and by how many operators the faulted one is upstream of the first
            that fails; those beyond the largest of :data:`HOPS` are under -1.
        walked: of those found, whose operator is where walking back ends, by :data:`WALKS`; counted under
            ``sourced`` for rules of the package.
        sourced: of those found, how many there are, and of how many all sources but one follow from it.
        runs, alarms: runs in other numerics by kind, and those with a tensor that fails.
        tensors, failing: the same of tensors.
    """

    faults: Counter[str] = field(default_factory=Counter)
    found: Counter[str] = field(default_factory=Counter)
    hops: Counter[tuple[str, int]] = field(default_factory=Counter)
    walked: Counter[str] = field(default_factory=Counter)
    sourced: Counter[str] = field(default_factory=Counter)
    runs: Counter[str] = field(default_factory=Counter)
    alarms: Counter[str] = field(default_factory=Counter)
    tensors: Counter[str] = field(default_factory=Counter)
    failing: Counter[str] = field(default_factory=Counter)

    def detected(self, *columns: str) -> float:
        """Share of faults found, of all columns or some."""
        names = columns or tuple(self.faults)
        return sum(self.found[c] for c in names) / max(sum(self.faults[c] for c in names), 1)

    def right(self, hops: int = 0, *columns: str) -> float:
        """Share of the faults found whose operator is at most so far upstream of the first failing one."""
        names = columns or tuple(self.faults)
        near = sum(n for (name, away), n in self.hops.items() if name in names and 0 <= away <= hops)
        return near / max(sum(self.found[name] for name in names), 1)


@dataclass
class Results:
    """Results by format: tallies by rule, the largest deviations of other numerics by kind and statistic, and
    of each fault what :func:`verdicts.blame.alone` finds of its operator."""

    tallies: dict[str, dict[str, Tally]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(Tally))
    )
    deviations: dict[str, dict[str, np.ndarray]] = field(default_factory=lambda: defaultdict(dict))
    isolated: dict[str, list[tuple[float, float]]] = field(default_factory=lambda: defaultdict(list))


class Bench:
    """One model in one format.

    Args:
        network: the model.
        dtype: the format.
        rules: what judges.
        results: what is counted in.
    """

    def __init__(self, network: Network, dtype: str, rules: Sequence[Rule], results: Results) -> None:
        self._network, self._numerics, self._rules = network, Numerics(dtype), rules
        self._tallies = results.tallies[dtype]
        self._deviations, self._isolated = results.deviations[dtype], results.isolated[dtype]
        self._runner = Runner(network, self._numerics)
        self.tensors = self._runner.run()
        self.golden = observe(network, self.tensors, self._numerics)
        self._parents, self._edges = network.parents(), network.edges()

    def inject(self, count: int, seed: int) -> None:
        """Judge runs with one fault each.

        Faults that do not change the operator's output are none, nor are those of a size that the model
        computes, with which it does not run.
        """
        for fault in faults(self._network, count, seed):
            try:
                tensors = self._runner.faulty(self.tensors, fault.node, fault.after)
            except Fail:
                continue
            name = fault.node.outputs[0]
            if not np.array_equal(tensors[name], self.tensors[name], equal_nan=True):
                self._judge_fault(fault, tensors)

    def _judge_fault(self, fault: Fault, tensors: Mapping[str, np.ndarray]) -> None:
        seen = observe(self._network, tensors, self._numerics, (self.tensors, self.golden))
        makers = [seen.makers[name] for name in seen.tensors]
        differences = dict(zip(makers, by_projections(self.golden, seen).tolist(), strict=True))
        healthy = self._runner.prepared(self._network.nodes[fault.node.index])
        self._isolated.append(alone(self._network, healthy, tensors, self._numerics))
        for rule in self._rules:
            tally = self._tallies[rule.name]
            tally.faults[fault.column] += 1
            failing = np.flatnonzero(rule.judge(self.golden, seen))
            if failing.size:
                tally.found[fault.column] += 1
                first = makers[int(failing[0])]
                tally.hops[fault.column, self._hops(first, fault.node.index)] += 1
                walk = walked_back(first, self._fed_by, differences, any_change=lambda _: False)
                tally.walked["projections"] += walk[-1] == fault.node.index
                if isinstance(rule.judge, Product):
                    self._source(rule.judge, seen, fault.node.name, tally)

    def _source(self, judge: Product, seen: Observed, faulted: str, tally: Tally) -> None:
        tally.sourced["all"] += 1
        for way, repeats in zip(WALKS, (False, True), strict=False):
            found = judge.sources(self.golden, seen, self._edges, repeats=repeats)
            if found is None:
                continue
            source = found.found[0]
            tally.walked[way] += (source.begins or source.key).layer == faulted
            tally.sourced["one"] += not repeats and len(found.independent) == 1

    def _fed_by(self, node: int) -> list[int]:
        return sorted(self._parents[node])

    def _hops(self, first: int, faulted: int) -> int:
        """Operators between the first that fails and the faulted one, upstream; -1 if not within reach."""
        reached = {first}
        for away in range(HOPS[-1] + 1):
            if faulted in reached:
                return away
            reached |= {parent for node in reached for parent in self._parents[node]}
        return -1

    def calm(self, members: int) -> None:
        """Judge runs in other numerics."""
        for kind, observed in self._others(members):
            golden = self.golden.restricted(set(observed.tensors))
            self._deviations[kind] = np.maximum(self._deviations.get(kind, 0), deviation(golden, observed))
            for rule in self._rules:
                fails = rule.judge(golden, observed)
                tally = self._tallies[rule.name]
                tally.runs[kind] += 1
                tally.alarms[kind] += bool(fails.any())
                tally.tensors[kind] += fails.size
                tally.failing[kind] += int(fails.sum())

    def _others(self, members: int) -> Iterator[tuple[str, Observed]]:
        dtype = self._numerics.dtype
        for kind, variants in noises(dtype, members).items():
            for numerics in variants:
                yield kind, observe(self._network, Runner(self._network, numerics).run(), numerics)
        if dtype == "float32":
            threads = whole(self._network, threads=2)
            yield "two threads", observe(self._network, threads, self._numerics)
            for seed in range(members):
                optimised = whole(self._network, optimised=True, seed=seed)
                yield "graph optimised", observe(self._network, optimised, self._numerics)


def deviation(golden: Observed, run: Observed) -> np.ndarray:
    """Largest differences of max and min by M, avg by rms, l2norm and projections by l2norm: shape (4,)."""
    before, after = golden.full, run.full
    floats = np.array([dtype.endswith(("float16", "float32")) for dtype in before.dtypes])
    values, counts = before.values, np.array(before.counts, float)
    difference = np.abs(after.values[:, :4] - values[:, :4])
    largest, norm = np.abs(values[:, :2]).max(axis=1), values[:, 3]
    distance = np.linalg.norm(run.projections - golden.projections, axis=1) / np.sqrt(8)
    with np.errstate(invalid="ignore", divide="ignore"):
        found = np.stack(
            [
                difference[:, :2].max(axis=1) / largest,
                difference[:, 2] / (norm / np.sqrt(counts)),
                difference[:, 3] / norm,
                distance / norm,
            ],
            axis=1,
        )
    return np.asarray(np.nan_to_num(found[floats], posinf=0.0).max(axis=0, initial=0.0))
