"""The text of a reproduction's test."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

FILE = "test_repro.py"
NODEID = f"{FILE}::test_repro"
INPUTS = "inputs.npz"

_TEXT = '''\
"""A failing piece of a model by itself: README.md says more."""

from pathlib import Path

{imports}import numpy as np
import pytest


@pytest.mark.npu_dump({arguments})
def test_repro(npu_dump):
    arrays = np.load(Path(__file__).parent / {inputs!r})
    inputs = [
{lines}
    ]
    with npu_dump.load_model({model!r}) as model:
        model.run(*inputs)
'''


def test_text(model: str, inputs: Sequence[tuple[str, str]], arguments: Mapping[str, object]) -> str:
    """Return the file; whatever names there are in it are literals of Python.

    Args:
        model: the model's name, without a suffix.
        inputs: name and dtype of each; one that numpy lacks is kept as integers of its width.
        arguments: of the marker.
    """
    exotic = any(is_exotic(dtype) for _, dtype in inputs)
    lines = [
        f'        arrays["input_{at}"]{f".view(ml_dtypes.{dtype})" if is_exotic(dtype) else ""},  # {name!r}'
        for at, (name, dtype) in enumerate(inputs)
    ]
    return _TEXT.format(
        imports="import ml_dtypes\n" if exotic else "",
        arguments=", ".join(f"{name}={value!r}" for name, value in arguments.items()),
        inputs=INPUTS,
        lines="\n".join(lines),
        model=f"{model}.om",
    )


def is_exotic(dtype: str) -> bool:
    """Whether numpy has no type of that name, and cannot store it."""
    return dtype.startswith(("bfloat", "float8", "float4", "float6", "int4", "uint4", "int2", "uint2"))
