"""A piece of a model that fails by itself: operators, their inputs, and what says that they are wrong."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np

    from pytest_npudump.dump.records import TensorKey
    from pytest_npudump.record.record import Record
    from pytest_npudump.reference.operator_alone import Alone
    from pytest_npudump.reproduction.failure import Failure

    Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True, eq=False)
class FailingPiece:
    """A piece of a model that fails by itself, and what is known of it.

    Attributes:
        failure: what the report knows of it.
        name: of the model, without a suffix; that of the one that failed, so that dumps are alike.
        origin: the model's file.
        layers: names of the operators.
        model: the ONNX file.
        inputs: an array for each input, in order.
        criterion: what the output is held against.
        reference: the ONNX file that says what is right; None where it is ``model``.
        golden: the golden that decides; None where the reference does.
        expected: what onnxruntime makes of the inputs, by name.
        got: what the device made of them.
        alone: how far the two are apart; None where it was not measured.
        computed: whether the inputs are onnxruntime's, and not the dump's.
        drawn: whether inputs, and weights, are drawn.
        remarks: what a reader should know.
    """

    failure: Failure
    name: str
    origin: str
    layers: tuple[str, ...]
    model: bytes
    inputs: Mapping[str, Array]
    criterion: str
    reference: bytes | None = None
    golden: Record | None = None
    expected: Mapping[str, Array] = field(default_factory=dict)
    got: Mapping[str, Array] = field(default_factory=dict)
    alone: Alone | None = None
    computed: bool = False
    drawn: bool = False
    remarks: tuple[str, ...] = ()

    @property
    def key(self) -> TensorKey:
        """The tensor that fails."""
        return self.failure.key

    @property
    def reference_file(self) -> str:
        """The name of the model that says what is right."""
        return f"{self.name}.onnx" if self.reference is None else f"{self.name}.reference.onnx"
