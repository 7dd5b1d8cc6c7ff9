"""Which operator a failure names at the end: sources, walking back, and operators alone on their inputs."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
from onnxruntime.capi.onnxruntime_pybind11_state import Fail

from pytest_npudump.compare.tolerances.tolerance import Tolerances
from pytest_npudump.errors import NpudumpError
from pytest_npudump.explain.dumped_operators import DumpedOperator
from pytest_npudump.explain.matches import NAME
from pytest_npudump.explain.operator_alone import CONVICTED, UNKNOWN, UPSTREAM, judge_alone, judged_upstream
from pytest_npudump.explain.reference_model import ReferenceModel
from pytest_npudump.onnxmodels.graph import draws_random
from verdicts.execution import Runner
from verdicts.faults import faults
from verdicts.numerics import Numerics, noises
from verdicts.observed import observe
from verdicts.rules import FULL, PRINTED, PROJECTED, Product

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from verdicts.execution import Tensors
    from verdicts.faults import Fault
    from verdicts.network import Network
    from verdicts.observed import Observed

TOLD = (PRINTED, FULL, PROJECTED)
REACHES = (0, 8, UPSTREAM)
"""How many operators upstream of a suspect are judged, at most."""

_SEEN = frozenset({"0.01", "0.001", "structure"})
"""Columns of faults of which two are planted at once."""


@dataclass
class Counts:
    """Counts of one format.

    Attributes:
        faults: injected.
        found: of these, with a tensor that fails, by what a dump tells.
        named: of those found, whose operator is the one that is named, by what a dump tells, whether the
            golden repeats, and how far upstream operators are judged; None where no model is at hand.
        healthy: verdicts on healthy operators, by where they were: kinds of numerics, and runs with a fault.
        pairs: runs with two faults in branches that have nothing to do with each other.
        both: of these, in which both operators are named, by what a dump tells and whether with a model.
    """

    faults: int = 0
    found: Counter[str] = field(default_factory=Counter)
    named: Counter[tuple[str, bool, int | None]] = field(default_factory=Counter)
    healthy: defaultdict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    pairs: Counter[str] = field(default_factory=Counter)
    both: Counter[tuple[str, bool]] = field(default_factory=Counter)


class Judge:
    """Operators of a network, each alone on what a run has of its inputs.

    Args:
        network: the model.
        dtype: what tensors are stored as.
    """

    def __init__(self, network: Network, dtype: str) -> None:
        self._model, self._numerics = ReferenceModel.read(network.source.path), Numerics(dtype)
        makers = {name: node for node in self._model.nodes for name in node.operator.outputs}
        self._nodes = {node.index: makers[node.outputs[0]] for node in network.nodes}
        self._network = network

    def verdict(self, index: int, tensors: Mapping[str, np.ndarray], *, plain: bool = True) -> str:
        """Judge an operator by its first output.

        Args:
            index: of the operator.
            tensors: what the run left.
            plain: whether the device is known to have float32 operands and accumulators.
        """
        own, node = self._network.nodes[index], self._nodes[index]
        constants = {name: self._numerics.rounded(array) for name, array in own.constants.items()}
        values = {**constants, **tensors}
        if draws_random(own.op_type) or not {*node.fed_by, own.outputs[0]} <= values.keys():
            return UNKNOWN
        feeds = {name: values[name] for name in node.fed_by}
        output = tensors[own.outputs[0]]
        dtype = self._numerics.dtype if output.dtype == np.float32 else output.dtype.name
        try:
            found = DumpedOperator(self._model, node, own.outputs[0], feeds, output, dtype, NAME, plain)
            return judge_alone(found).verdict
        except NpudumpError:
            return UNKNOWN


class Naming:
    """One model in one format."""

    def __init__(self, network: Network, dtype: str, counts: Counts) -> None:
        self._network, self._numerics, self._counts = network, Numerics(dtype), counts
        self._runner = Runner(network, self._numerics)
        self.tensors = self._runner.run()
        self.golden = observe(network, self.tensors, self._numerics)
        self._parents = {at: sorted(found) for at, found in network.parents().items()}
        self._edges, self._judge = network.edges(), Judge(network, dtype)
        self._indices = {node.name: node.index for node in network.nodes}

    def inject(self, count: int, seed: int) -> None:
        """Judge runs with one fault each."""
        for fault, tensors in self._faulty(count, seed):
            self._counts.faults += 1
            self._one(fault, tensors)

    def pair(self, count: int, seed: int) -> None:
        """Judge runs with two faults, neither of which feeds the other's operator."""
        several = (fault for fault, _ in self._faulty(8 * count, seed) if fault.column in _SEEN)
        apart = [pair for pair in combinations(several, 2) if not self._related(*pair)]
        for at in np.random.default_rng(seed).permutation(len(apart))[:count]:
            first, second = apart[at]
            one = self._runner.faulty(self.tensors, first.node, first.after)
            self._two((first, second), self._runner.faulty(one, second.node, second.after))

    def calm(self, members: int) -> None:
        """Judge healthy operators in other numerics, each on the inputs that it had."""
        for kind, variants in noises(self._numerics.dtype, members).items():
            for numerics in variants:
                tensors = Runner(self._network, numerics).run()
                plain = numerics.operands is None
                self._counts.healthy[kind].update(
                    self._judge.verdict(node.index, tensors, plain=plain) for node in self._network.nodes
                )

    def _faulty(self, count: int, seed: int) -> Iterator[tuple[Fault, Tensors]]:
        for fault in faults(self._network, count, seed):
            try:
                tensors = self._runner.faulty(self.tensors, fault.node, fault.after)
            except Fail:
                continue
            name = fault.node.outputs[0]
            if not np.array_equal(tensors[name], self.tensors[name], equal_nan=True):
                yield fault, tensors

    def _one(self, fault: Fault, tensors: Tensors) -> None:
        verdicts: dict[int, str] = {}
        seen = observe(self._network, tensors, self._numerics, (self.tensors, self.golden))
        for told in TOLD:
            product = Product(Tolerances("same"), told)
            if not product(self.golden, seen).any():
                continue
            self._counts.found[told] += 1
            for repeats in (False, True):
                for reach in (None, *REACHES):
                    groups = self._suspects(product, seen, repeats=repeats)
                    named = self._named(groups, tensors, verdicts, reach)
                    self._counts.named[told, repeats, reach] += named == {fault.node.index}
        for index, verdict in verdicts.items():
            if index != fault.node.index:
                self._counts.healthy["runs with a fault"][verdict] += 1

    def _two(self, pair: tuple[Fault, Fault], tensors: Tensors) -> None:
        faulted = {fault.node.index for fault in pair}
        seen = observe(self._network, tensors, self._numerics, (self.tensors, self.golden))
        for told in TOLD:
            product = Product(Tolerances("same"), told)
            makers = [seen.makers[name] for name in seen.tensors]
            if not faulted <= {makers[at] for at in np.flatnonzero(product(self.golden, seen))}:
                continue
            self._counts.pairs[told] += 1
            groups = self._suspects(product, seen, repeats=True)
            for reach in (None, UPSTREAM):
                named = self._named(groups, tensors, {}, reach, every=True)
                self._counts.both[told, reach is not None] += faulted <= named

    def _suspects(self, product: Product, seen: Observed, *, repeats: bool) -> list[list[int]]:
        found = product.sources(self.golden, seen, self._edges, repeats=repeats)
        if found is None:
            failing = int(np.flatnonzero(product(self.golden, seen))[0])
            return [[seen.makers[[*seen.tensors][failing]]]]
        return [
            [self._indices[key.layer] for key in (source.begins, source.key) if key is not None]
            for source in found.independent
        ]

    def _named(
        self,
        groups: list[list[int]],
        tensors: Tensors,
        verdicts: dict[int, str],
        reach: int | None,
        *,
        every: bool = False,
    ) -> set[int]:
        """The operators that are named: those that are convicted, or else where the first source begins."""
        begins = {group[0] for group in groups[: None if every else 1]}
        if reach is None:
            return begins

        def verdict(index: int) -> str:
            if index not in verdicts:
                verdicts[index] = self._judge.verdict(index, tensors)
            return verdicts[index]

        suspects = [index for group in groups for index in reversed(group)]
        judged = judged_upstream(suspects, self._parents.__getitem__, verdict, reach)
        convicted = {index for index in judged if verdicts[index] == CONVICTED}
        return convicted or begins

    def _related(self, one: Fault, other: Fault) -> bool:
        low, high = sorted((one.node.index, other.node.index))
        return any(node.index == high for node in self._network.following(self._network.nodes[low]))
