"""What a dump tells of a run: statistics in full, as ACL prints them, and projections."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pytest_npudump.dump.records import TensorKey, TensorRecord
from pytest_npudump.dump.stats.projections import project
from pytest_npudump.dump.stats.tensor import tensor_stats
from pytest_npudump.dump.table import StatsTable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from verdicts.network import Network
    from verdicts.numerics import Numerics

DIGITS = 6
"""Significant digits of ACL's statistics."""

_NOWHERE = Path("run")


@dataclass(frozen=True)
class Tensor:
    """One tensor.

    Attributes:
        full: its record, statistics in full precision.
        printed: its record as a default ACL dump has it: max, min and avg with six digits.
        projected: its record with projections, as of ``dump_data="tensor"``.
    """

    full: TensorRecord
    printed: TensorRecord
    projected: TensorRecord


@dataclass(frozen=True)
class Observed:
    """A run.

    Attributes:
        tensors: outputs of operators in execution order, by name.
        makers: the index of the node that each one comes from.
    """

    tensors: Mapping[str, Tensor]
    makers: Mapping[str, int]

    def restricted(self, names: set[str]) -> Observed:
        """The same of fewer tensors."""
        return Observed({name: t for name, t in self.tensors.items() if name in names}, self.makers)

    @cached_property
    def full(self) -> StatsTable:
        return StatsTable.from_records(tensor.full for tensor in self.tensors.values())

    @cached_property
    def printed(self) -> StatsTable:
        return StatsTable.from_records(tensor.printed for tensor in self.tensors.values())

    @cached_property
    def projected(self) -> StatsTable:
        return StatsTable.from_records(tensor.projected for tensor in self.tensors.values())

    @property
    def projections(self) -> np.ndarray:
        """Float64 of shape (n, 8)."""
        found = self.projected.projections
        return np.empty((0, 8)) if found is None else found


def observe(
    network: Network,
    tensors: Mapping[str, np.ndarray],
    numerics: Numerics,
    base: tuple[Mapping[str, np.ndarray], Observed] | None = None,
) -> Observed:
    """What a dump would tell of a run; tensors that are the very arrays of ``base`` are as there."""
    found: dict[str, Tensor] = {}
    makers: dict[str, int] = {}
    for node in network.nodes:
        for slot, name in enumerate(node.outputs):
            if name not in tensors:
                continue
            makers[name] = node.index
            if base is not None and tensors[name] is base[0].get(name):
                found[name] = base[1].tensors[name]
                continue
            stored = numerics.stored(tensors[name])
            key = TensorKey(node.name, "output", slot)
            stats = tensor_stats(stored)
            record = TensorRecord(key, node.op_type, stored.dtype.name, stored.shape, _NOWHERE, stats=stats)
            projected = replace(record, stats=replace(stats, projections=project(stored)))
            found[name] = Tensor(record, _printed(record), projected)
    return Observed(found, makers)


def _printed(record: TensorRecord) -> TensorRecord:
    stats = record.stats
    assert stats is not None
    values = {
        name: value if isinstance(value, int) or value is None else float(f"{value:.{DIGITS}g}")
        for name, value in (("max", stats.max), ("min", stats.min), ("avg", stats.avg))
    }
    return replace(record, stats=replace(stats, **values, l2norm=None, digits=DIGITS))
