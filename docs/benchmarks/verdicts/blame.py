"""From the first tensor that fails to the operator at fault: what projections say, and running it alone."""

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


def by_projections(golden: Observed, run: Observed) -> np.ndarray:
    """Estimates of the relative l2norm of the difference, (n,)."""
    distance = np.linalg.norm(run.projections - golden.projections, axis=1) / np.sqrt(8)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.nan_to_num(distance / golden.full.values[:, 3], posinf=0.0))


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
