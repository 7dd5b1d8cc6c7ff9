"""Operators that draw random numbers, known by their types: of ONNX, CANN, MindSpore and torch."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from pytest_npudump.language.text import first_of
from pytest_npudump.onnxmodels.graph import every_node

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from pytest_npudump.dump.records import Dump

EAGER = "aclnn"
"""Begins the types of calls of torch_npu, whose generator goes on from run to run in one process."""
_DRAWS = (
    r"(?i)(?:aclnn)?(?:inplace)?(?:dsa)?(?!\w*(?:grad|backward|domask))"
    r"(?:rand\w*|dropout\w*|bernoulli\w*|multinomial\w*|uniform\w*|loguniform\w*|exponential\w*"
    r"|(?:parameterized)?truncatednormal\w*|standardnormal\w*|standardlaplace|normal(?:(?:float|tensor)\w*)?"
    r"|geometric|cauchy|gamma|poisson|nondeterministicints|genbitmask)"
)
"""Compiled when it is first asked, which a comparison without failures does not."""
_TRAINING_MODE = 2
"""Position of the input that has ONNX's Dropout drop something."""
_SHOWN = 3


def draws_random(op_type: str) -> bool:
    """Whether operators of a type draw random numbers; those that are given a seed as an input do not."""
    return re.fullmatch(_DRAWS, op_type) is not None


def random_layers(dump: Dump, models: Iterable[Path]) -> tuple[str, ...]:
    """Return the layers that draw random numbers without a seed of their own, each as ``name (type)``.

    Args:
        dump: of a run; the types of its operators tell.
        models: files that ran. ONNX files tell which operators have a seed, and of some that were not dumped.
    """
    nodes = [node for path in models for node in _nodes(path)]
    drawing = {node.op_type: node for node in nodes if draws_random(node.op_type) and not _is_fixed(node)}
    fixed = {node.op_type for node in nodes} - drawing.keys()
    dumped = {
        f"{record.key.layer} ({record.op_type})": record.op_type
        for record in dump.records
        if draws_random(record.op_type) and record.op_type not in fixed
    }
    unseen = [f"{node.name or '?'} ({name})" for name, node in drawing.items() if name not in dumped.values()]
    return (*dumped, *unseen)


def _nodes(path: Path) -> Iterator[Any]:
    """Yield the nodes of the ONNX file that a model is, or that lies beside it, if one can be read."""
    from pytest_npudump.errors import MissingExtraError  # noqa: PLC0415 - the same
    from pytest_npudump.onnxmodels.sessions import ModelError, read_model  # noqa: PLC0415 - after a run

    file = path.with_suffix(".onnx")
    if not file.is_file():
        return
    try:
        model = read_model(file)
    except (MissingExtraError, ModelError):
        return
    yield from every_node(model)


def _is_fixed(node: Any) -> bool:
    """Whether a node of ONNX draws the same numbers in every process, or none."""
    if node.op_type == "Dropout":
        return len(node.input) <= _TRAINING_MODE or not node.input[_TRAINING_MODE]
    return any(attribute.name == "seed" for attribute in node.attribute)


def drawing_words(layers: tuple[str, ...]) -> str:
    """Say which layers draw random numbers."""
    return f"{first_of(layers, _SHOWN)} draw{'' if len(layers) > 1 else 's'} random numbers"
