"""How much of a reference a comparison has seen: agreement of what nothing computed says nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_npudump.reference.reference_model import Node, ReferenceModel

_MOVERS = frozenset(
    {"Cast", "Flatten", "Identity", "Reshape", "Shape", "Size", "Squeeze", "Transpose", "Unsqueeze"}
)
"""Types of operators whose output has the values of their first input, or its shape, and no weight's."""


def given_tensors(model: ReferenceModel) -> frozenset[str]:
    """Return the graph's inputs and what is only moved, reshaped or cast of them.

    They are right in any model that was fed the same arrays, another one included.
    """
    given = set(model.inputs)
    for node in model.nodes:
        if node.operator.op_type in _MOVERS and node.all_inputs and node.all_inputs[0] in given:
            given.update(node.operator.outputs)
    return frozenset(given)


def unseen(model: ReferenceModel, compared: Iterable[str]) -> tuple[Node, ...]:
    """Return the operators that matter to the model's outputs and to none of the tensors ``compared``.

    A difference in such an operator, its weights included, cannot show in the comparison.

    Args:
        model: the reference.
        compared: names of its tensors that were compared.
    """
    seen = _behind(model, compared)
    return tuple(node for node in _behind(model, model.outputs).values() if node.name not in seen)


def _behind(model: ReferenceModel, tensors: Iterable[str]) -> dict[str, Node]:
    """Return the operators that ``tensors`` are computed by, directly or not, in execution order."""
    wanted, found = set(tensors), []
    for node in reversed(model.nodes):
        if wanted.intersection(node.operator.outputs):
            found.append(node)
            wanted.update(node.all_inputs, node.captured)
    return {node.name: node for node in reversed(found)}
