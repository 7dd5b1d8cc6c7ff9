"""Digests of parameters that no file has: what a run's say of those that a golden was recorded with."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

from pytest_npudump.record.model_lines import PARAMETERS, change_of_models, check_model_lines, fed_line
from pytest_npudump.runtime.modules.adapter import parameter_lines


@dataclass
class Cell:
    """As much of a ``mindspore.nn.Cell`` as is asked of one."""

    arrays: dict[str, np.ndarray]

    def parameters_and_names(self) -> list[tuple[str, Parameter]]:
        return [(name, Parameter(array)) for name, array in self.arrays.items()]


@dataclass
class Parameter:
    array: np.ndarray

    @property
    def nbytes(self) -> int:
        return self.array.nbytes

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    @property
    def dtype(self) -> str:
        return f"mindspore.{self.array.dtype}"

    def asnumpy(self) -> np.ndarray:
        return self.array


NET = Cell(
    {
        "conv.weight": np.arange(24, dtype=np.float32).reshape(4, 3, 2),
        "conv.bias": np.arange(4, dtype=np.float32),
        "fc.weight": np.ones((2, 4), np.float16),
        "scale": np.float32([2]),
    }
)


def _with(**arrays: np.ndarray | None) -> Cell:
    told = NET.arrays | {name.replace("__", "."): array for name, array in arrays.items()}
    return replace(NET, arrays={name: array for name, array in told.items() if array is not None})


@pytest.mark.each(
    ("net", "weights", "permuted", "operators"),
    [
        (_with(), (), {}, ()),
        (_with(conv__bias=np.float32([0, 1, 2, 4])), ("conv",), {}, ()),
        (_with(conv__weight=NET.arrays["conv.weight"][:, ::-1]), ("conv",), {"conv": 1}, ()),
        (_with(fc__weight=np.ones((4, 2), np.float16)), ("fc",), {}, ()),
        (_with(fc__weight=np.ones((2, 4), np.float32)), ("fc",), {}, ()),
        (_with(scale=np.float32([3])), ("Net",), {}, ()),
        (_with(fc__weight=None), (), {}, ("fc",)),
    ],
)
def test_parameters_that_changed_are_told_by_layer(
    net: Cell, weights: tuple[str, ...], permuted: dict[str, int], operators: tuple[str, ...]
) -> None:
    golden, run = parameter_lines("Net", NET), parameter_lines("Net", net)
    check_model_lines(run)
    found = change_of_models(golden, run)
    assert found is not None
    assert (found.weights, found.permuted, found.operators) == (weights, permuted, operators)
    assert found.read == PARAMETERS
    assert found.changed == bool(weights or operators)


def test_nothing_is_told_of_more_than_takes_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_npudump.runtime.modules.adapter._MOST", 128)
    assert parameter_lines("Net", NET) == ""
    assert parameter_lines("Net", Cell({})) == ""
    assert parameter_lines("Net", NET, [b"given", b"then"]) == fed_line("Net", [b"given", b"then"])
    assert parameter_lines("Net", NET, [b"given", None]) == ""
    assert parameter_lines("an engine, whose parameters are in other processes", object()) == ""
