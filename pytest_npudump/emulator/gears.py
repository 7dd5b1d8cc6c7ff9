"""Gears: the shapes that ATC compiles a model for. An ONNX file has none: a test says what ATC was told.

Source: the documents of ATC's ``--dynamic_batch_size``, ``--dynamic_image_size`` and ``--dynamic_dims`` and
of ``acl.mdl.set_dynamic_batch_size`` and its kin. Such a model has one more input, which tells an
execution's gear.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_npudump.onnxmodels import sessions

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    Shape = tuple[int, ...]

SHAPE_DATA = "ascend_mbatch_shape_data"
"""Name of the input that tells the gear."""
BATCH, IMAGE, DIMS = "batch", "image", "dims"


@dataclass(frozen=True, slots=True)
class GearOption:
    """One of ATC's options: which, and the values of each gear."""

    kind: str
    gears: tuple[Shape, ...]


COMPILED: dict[str, GearOption] = {}
"""By name of a model, what ATC was told for it."""


@dataclass(frozen=True, slots=True)
class Gears:
    """The gears of a model.

    Attributes:
        option: what ATC was told.
        raw: shapes of all inputs, -1 where a gear puts a value.
        outputs: by gear, the shapes of all outputs.
    """

    option: GearOption
    raw: tuple[Shape, ...]
    outputs: tuple[tuple[Shape, ...], ...]

    def inputs(self, gear: int) -> tuple[Shape, ...]:
        """Return the shapes of all inputs but the one that names the gear."""
        return fill(self.option.kind, self.raw, self.option.gears[gear])

    def index(self, values: Shape) -> int | None:
        """Return the number of the gear with these values."""
        gears = self.option.gears
        return gears.index(values) if values in gears else None

    @property
    def largest(self) -> int:
        """The gear with the most elements."""
        return max(range(len(self.outputs)), key=lambda gear: math.prod(self.option.gears[gear]))


def fill(kind: str, raw: Sequence[Shape], values: Shape) -> tuple[Shape, ...]:
    """Return shapes with the values of a gear where they have -1.

    Raises:
        ModelError: a gear has more or fewer values than dimensions vary.
    """
    counts = [shape.count(-1) for shape in raw]
    fits = sum(counts) == len(values) if kind == DIMS else set(counts) - {0} == {len(values)}
    if not fits:
        raise sessions.ModelError(f"the gear {values} does not fit inputs of the shapes {list(raw)}")
    everything = iter(values)
    filled = []
    for shape in raw:
        own = everything if kind == DIMS else iter(values)
        filled.append(tuple(next(own) if dim < 0 else dim for dim in shape))
    return tuple(filled)


def gears_of(source: Path | bytes, inputs: Mapping[str, Shape], option: GearOption) -> Gears:
    """Return the gears of a model, what its outputs are by ONNX's shape inference.

    ``inputs`` are the shapes of all inputs by name, -1 where a dimension varies.

    Raises:
        ModelError: a gear does not fit the inputs, or does not tell what an output is.
    """
    raw = tuple(inputs.values())
    outputs = []
    for values in option.gears:
        shapes = dict(zip(inputs, fill(option.kind, raw, values), strict=True))
        model = sessions.read_model(source)
        graph = model.graph
        for value in graph.input:
            for dim, size in zip(value.type.tensor_type.shape.dim, shapes.get(value.name, ()), strict=False):
                dim.dim_value = size
        del graph.value_info[:]
        for value in graph.output:
            value.type.tensor_type.ClearField("shape")
        graph = sessions.onnx().shape_inference.infer_shapes(model, data_prop=True).graph
        found = []
        for value in graph.output:
            dims = value.type.tensor_type.shape.dim
            if not value.type.tensor_type.HasField("shape") or not all(
                dim.HasField("dim_value") for dim in dims
            ):
                raise sessions.ModelError(f"a gear does not tell the shape of the output {value.name!r}")
            found.append(tuple(dim.dim_value for dim in dims))
        outputs.append(tuple(found))
    return Gears(option, raw, tuple(outputs))


def compile_for(
    model: str,
    *,
    batch_sizes: Sequence[int] = (),
    image_sizes: Sequence[tuple[int, int]] = (),
    dims: Sequence[tuple[int, ...]] = (),
) -> None:
    """Let models of that name that are loaded from now on be as ATC makes them with one of its options.

    ``install.reset()`` ends it. Such a model cannot be dumped here: GE puts operators of its own around the
    copies that it makes of the graph.

    Args:
        model: name of the model (its file's stem, or its graph's name).
        batch_sizes: ``--dynamic_batch_size``.
        image_sizes: ``--dynamic_image_size``, height and width of each gear.
        dims: ``--dynamic_dims``, of each gear the values of all dimensions that vary, in order.

    Raises:
        ValueError: not exactly one of the options is given, or a value is less than 1.
    """
    given: dict[str, list[Shape]] = {
        BATCH: [(size,) for size in batch_sizes],
        IMAGE: list(image_sizes),
        DIMS: list(dims),
    }
    options = [GearOption(kind, tuple(gears)) for kind, gears in given.items() if gears]
    if len(options) != 1 or any(value < 1 for gear in options[0].gears for value in gear):
        raise ValueError("expected one of batch_sizes, image_sizes and dims, with values of at least 1")
    COMPILED[model] = options[0]
