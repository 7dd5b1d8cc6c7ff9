"""Gears, which an ONNX file does not have: a test says what ATC was told for a model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_npudump.emulator.execution.dynamic_shapes import BATCH, DIMS, IMAGE, Option
from pytest_npudump.emulator.process.state import process

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_npudump.emulator.execution.dynamic_shapes import Shape


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
    options = [Option(kind, tuple(gears)) for kind, gears in given.items() if gears]
    if len(options) != 1 or any(value < 1 for gear in options[0].gears for value in gear):
        raise ValueError("expected one of batch_sizes, image_sizes and dims, with values of at least 1")
    process().gears[model] = options[0]
