"""What legitimately differs between two runs of one model: rounding of its inputs, threads, optimisation."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_npudump.onnxmodels.tensor_types import Tensor


@dataclass(frozen=True, slots=True)
class Variation:
    """One member of a calibration.

    Attributes:
        seed: of what the inputs are perturbed by; None leaves them as they are.
        threads: on how many an operator runs.
        optimised: whether onnxruntime optimises the graph as far as its tensors allow.
    """

    seed: int | None = None
    threads: int = 1
    optimised: bool = False

    @property
    def plain(self) -> bool:
        """Whether nothing differs: a mere repetition."""
        return self == Variation()


PLAIN = Variation()


@dataclass(slots=True)
class Varying:
    """What varies in a machine at present.

    Attributes:
        variation: of models that are loaded or run from now on.
        unperturbed: names of inputs that were left as they are, as they hold no floating-point values.
    """

    variation: Variation = PLAIN
    unperturbed: set[str] = field(default_factory=set)

    def feeds(self, feeds: dict[str, Tensor], execution: int) -> dict[str, Tensor]:
        """Return the inputs of an execution as they are to be."""
        if self.variation.seed is None:
            return feeds
        changed, left = perturbed(feeds, self.variation.seed, execution)
        self.unperturbed |= left
        return changed


def perturbed(feeds: Mapping[str, Tensor], seed: int, execution: int) -> tuple[dict[str, Tensor], set[str]]:
    """Change each element of floating-point inputs by about one unit in the last place: ``x (1 + a u)``.

    ``u`` is uniform in [-1, 1] and ``a`` the step of the type at 1 (numpy's ``eps``), so that an element
    stays or goes to a neighbour. Zeros, NaN and infinities stay, as does what would become an infinity.

    Args:
        feeds: the inputs of one execution by name.
        seed: the member's; the same seed, input and execution give the same values.
        execution: which one of the model it is, from 0.

    Returns:
        The inputs, and the names of those that hold no floating-point values and are as they were.
    """
    import ml_dtypes  # noqa: PLC0415 - only in a calibration

    changed, left = dict(feeds), set()
    for number, (name, tensor) in enumerate(feeds.items()):
        array = tensor.data
        if array.dtype.kind in "iub?":
            left.add(name)
            continue
        try:
            step = float(ml_dtypes.finfo(array.dtype).eps)  # type: ignore[no-untyped-call]
        except ValueError:
            left.add(name)
            continue
        u = np.random.default_rng((seed, execution, number)).uniform(-1, 1, array.shape)
        wide = array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)
        with np.errstate(over="ignore", invalid="ignore"):
            moved = (wide * (1 + step * u)).astype(array.dtype)
        # A mask of the type's lowest value would become an infinity, and the model's values NaN.
        changed[name] = replace(tensor, data=np.where(np.isfinite(moved), moved, array))
    return changed, left
