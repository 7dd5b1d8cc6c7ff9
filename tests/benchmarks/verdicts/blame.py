"""From the first tensor that fails to the operator at fault: by walking back, and by running it alone."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from verdicts.execution import compute

if TYPE_CHECKING:
    from collections.abc import Mapping

    from verdicts.network import Network, Node
    from verdicts.numerics import Numerics
    from verdicts.observed import Observed

SHARE = 1 / 3
"""Of an output's difference that an input must have to be followed."""


def by_statistics(golden: Observed, run: Observed) -> np.ndarray:
    """Differences of four statistics in full precision, each in its scale; the largest, (n,)."""
    before, after = golden.full, run.full
    values, counts = before.values[:, :4], np.maximum(np.array(before.counts, float), 1)
    largest, norm = np.abs(values[:, :2]).max(axis=1), values[:, 3]
    scales = np.stack([largest, largest, norm / np.sqrt(counts), norm], axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        found = np.abs(after.values[:, :4] - values) / scales
    return np.asarray(np.nan_to_num(found, posinf=0.0).max(axis=1))


def by_projections(golden: Observed, run: Observed) -> np.ndarray:
    """Estimates of the relative l2norm of the difference, (n,)."""
    distance = np.linalg.norm(run.projections - golden.projections, axis=1) / np.sqrt(8)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.nan_to_num(distance / golden.full.values[:, 3], posinf=0.0))


def walked_back(first: int, parents: Mapping[int, set[int]], differences: Mapping[int, float]) -> int:
    """The operator that is left when the worst input is followed while it explains the difference.

    Args:
        first: index of the operator whose output fails first.
        parents: what each operator reads from.
        differences: of outputs, relative, by operator; those that did not change may be missing.
    """
    at = first
    while True:
        worst = max(parents[at], key=lambda node: differences.get(node, 0.0), default=at)
        if worst == at or differences.get(worst, 0.0) < SHARE * differences.get(at, 0.0):
            return at
        if not differences.get(worst, 0.0):
            return at
        at = worst


def alone(
    network: Network, node: Node, tensors: Mapping[str, np.ndarray], numerics: Numerics
) -> tuple[float, float]:
    """An operator alone on its inputs, as they are in a run.

    Returns:
        The relative l2norm of the difference between the run's output and what a healthy operator makes of
        the same inputs, and of that between two healthy ones that add up in different orders.
    """
    healthy = _stored(node, tensors, numerics, network.opset)
    other = _stored(node, tensors, replace(numerics, order=3), network.opset)
    return _distance(tensors[node.outputs[0]], healthy), _distance(other, healthy)


def _stored(node: Node, tensors: Mapping[str, np.ndarray], numerics: Numerics, opset: int) -> np.ndarray:
    return numerics.rounded(compute(node, tensors, numerics, opset)[0])


def _distance(one: np.ndarray, other: np.ndarray) -> float:
    wide = other.astype(np.float64)
    return float(np.linalg.norm((one - wide).reshape(-1)) / max(np.linalg.norm(wide.reshape(-1)), 1e-300))
