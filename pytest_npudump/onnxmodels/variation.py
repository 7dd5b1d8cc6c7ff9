"""Variation between two runs of one model: rounding of its inputs, threads, optimisation."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pytest_npudump.dump.records import TensorKey, TensorRecord

if TYPE_CHECKING:
    from pytest_npudump.onnxmodels.tensor_types import Tensor

INPUTS, THREADS, OPTIMISATION = "inputs", "threads", "optimisation"
"""Variations that a runtime may be able to make, as a golden keeps them."""


@dataclass(frozen=True, slots=True)
class Variation:
    """One member of a calibration.

    Attributes:
        seed: of what the inputs are perturbed by; None leaves them as they are.
        threads: on how many an operator runs.
        optimised: whether onnxruntime optimises the graph as far as its tensors allow.
        looks: whether what models are fed is noted in :attr:`Varying.fed`, which makes no difference.
        waits: whether a device is waited for to see it.
    """

    seed: int | None = None
    threads: int = 1
    optimised: bool = False
    looks: bool = field(default=False, compare=False)
    waits: bool = field(default=False, compare=False)

    @property
    def plain(self) -> bool:
        """Return whether nothing differs: a mere repetition."""
        return self == Variation()


PLAIN = Variation()


@dataclass(slots=True)
class Varying:
    """Present variation of a machine, and its effects.

    Attributes:
        variation: of models that are loaded or run from now on.
        perturbed: names of inputs that were perturbed since the last variation began.
        unperturbed: names of inputs that were left as they are, as they hold no floating-point values.
        unreached: inputs that were left as they are for another reason, in words.
        fed: each input of each execution before it was perturbed, in their order, with a hash of its bytes;
            the key's step is the execution's number in the run, the stream the thread that fed it.
    """

    variation: Variation = PLAIN
    perturbed: set[str] = field(default_factory=set)
    unperturbed: set[str] = field(default_factory=set)
    unreached: set[str] = field(default_factory=set)
    fed: list[TensorRecord] = field(default_factory=list)
    _executions: int = 0

    def begin(self, variation: Variation) -> None:
        """Vary so from now on; what came of the last variation can be read until another one begins."""
        self.variation = variation
        if variation.looks or not variation.plain:
            self.fed, self._executions = [], 0
            for names in (self.perturbed, self.unperturbed, self.unreached):
                names.clear()

    def feeds(self, feeds: dict[str, Tensor], execution: int, *, dumped: bool = True) -> dict[str, Tensor]:
        """Return the inputs of an execution as they are to be; the same mapping where none is perturbed.

        Args:
            feeds: the inputs.
            execution: which one of the run it is, from 0.
            dumped: whether it is dumped; what others are fed is not noted.
        """
        number_in_run, self._executions = self._executions, self._executions + 1
        if dumped:
            for name, tensor in feeds.items():
                self.note_fed(name, tensor.data, number_in_run)
        if self.variation.seed is None:
            return feeds
        changed = dict(feeds)
        for number, (name, tensor) in enumerate(feeds.items()):
            if (moved := self.moved(name, tensor.data, (execution, number))) is not None:
                changed[name] = replace(tensor, data=moved)
        return changed

    def note_fed(self, name: str, array: np.ndarray, execution: int) -> None:
        """Note an input of an execution, the run's first one being 0, where somebody looks."""
        if not self.variation.looks:
            return
        from pytest_npudump.dump.arrays.decode import DecodeError  # noqa: PLC0415 - as below
        from pytest_npudump.dump.stats.tensor import projected_stats  # noqa: PLC0415 - where somebody looks

        flat = np.ascontiguousarray(array).reshape(-1)
        digest = blake2b(flat.view(np.uint8).data, digest_size=16).hexdigest()
        try:
            stats = projected_stats(flat)
        except DecodeError:  # a type whose values are no numbers
            stats = None
        key, dtype = TensorKey(name, "input", 0, step=execution), flat.dtype.name
        record = TensorRecord(key, "", dtype, flat.shape, Path(), stats=stats, digest=digest)
        self.fed.append(replace(record, stream=threading.get_ident()))

    def moved(self, name: str, array: np.ndarray, place: tuple[int, int]) -> np.ndarray | None:
        """Return one input as it is to be, and note its name; None where it stays as it is.

        Args:
            name: of the input, for reports.
            array: its values.
            place: which execution of the run it is of, and which of its inputs it is, from 0.
        """
        if self.variation.seed is None:
            return None
        moved = perturbed(array, (self.variation.seed, *place))
        (self.unperturbed if moved is None else self.perturbed).add(name)
        return moved


def perturbed(array: np.ndarray, seed: tuple[int, ...]) -> np.ndarray | None:
    """Change each element of an input by about one unit in the last place: ``x (1 + a u)``.

    ``u`` is uniform in [-1, 1] and ``a`` the step of the type at 1 (numpy's ``eps``), so that an element
    stays or goes to a neighbour. Zeros, NaN and infinities stay, as does what would become an infinity.

    Args:
        array: the input, of any shape.
        seed: the same one gives the same values.

    Returns:
        As many elements of the same type; None for a type that holds no floating-point values.
    """
    import ml_dtypes  # noqa: PLC0415 - only in a calibration

    if array.dtype.kind in "iub?":
        return None
    try:
        step = float(ml_dtypes.finfo(array.dtype).eps)  # type: ignore[no-untyped-call]
    except ValueError:
        return None
    u = np.random.default_rng(seed).uniform(-1, 1, array.shape)
    wide = array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        moved = (wide * (1 + step * u)).astype(array.dtype)
    # A mask of the type's lowest value would become an infinity, and the model's values NaN.
    return np.where(np.isfinite(moved), moved, array)
