"""Cells of MindSpore whose inputs are perturbed, over a stand-in; ``tests/mindspore`` has the real one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from pytest_npudump.onnxmodels.variation import PLAIN, Variation
from pytest_npudump.runtime.mindspore.adapter import VariedCells

if TYPE_CHECKING:
    from collections.abc import Iterator


class Tensor:
    def __init__(self, values: np.ndarray, dtype: Any = None) -> None:
        self.values, self.dtype = values, dtype

    def asnumpy(self) -> np.ndarray:
        if self.dtype == "bfloat16":
            raise TypeError("no numpy for bfloat16")
        return self.values


class Parameter(Tensor):
    pass


class Cell:
    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self.construct(*arguments, **named)

    def construct(self, *arguments: Any, **named: Any) -> Any:
        return arguments, named


class GraphCell(Cell):
    def __call__(self, *arguments: Any) -> Any:
        return self.construct(*arguments)


class Outer(Cell):
    def construct(self, *arguments: Any, **named: Any) -> Any:
        return Cell()(*arguments, **named)


@pytest.fixture
def cells() -> Iterator[VariedCells]:
    nn = SimpleNamespace(Cell=Cell, GraphCell=GraphCell)
    found = VariedCells(SimpleNamespace(nn=nn, Tensor=Tensor, Parameter=Parameter))
    yield found
    found.vary(PLAIN)


IMAGE = np.linspace(0.1, 0.9, 100, dtype=np.float32)


@pytest.mark.parametrize("kind", [Cell, GraphCell, Outer])
def test_a_cell_is_fed_values_that_differ_by_a_step(cells: VariedCells, kind: type[Cell]) -> None:
    cells.vary(Variation(seed=2))
    given = Tensor(IMAGE.copy())
    (fed,), _ = kind()(given)
    assert 0 < np.abs(fed.values.view(np.int32) - IMAGE.view(np.int32)).max() <= 2
    np.testing.assert_array_equal(given.values, IMAGE)
    assert cells.varying.perturbed == {f"0 of {kind.__name__}"}


def test_only_tensors_of_floats_are_perturbed_and_others_named(cells: VariedCells) -> None:
    cells.vary(Variation(seed=2))
    ids, weight, half = Tensor(np.arange(3)), Parameter(IMAGE), Tensor(IMAGE, "bfloat16")
    arguments, named = Cell()(ids, weight, half, [Tensor(IMAGE)], 5, mask=Tensor(IMAGE))
    assert arguments[:3] == (ids, weight, half)
    assert (arguments[4], (named["mask"].values != IMAGE).any()) == (5, True)
    assert cells.varying.unperturbed == {"0 of Cell"}
    assert cells.varying.unreached == {"2 of Cell (no numpy for bfloat16)", "3 of Cell (list)"}
    assert cells.varying.perturbed == {"mask of Cell"}


def test_what_a_cell_is_fed_is_noted_where_a_device_may_be_waited_for(cells: VariedCells) -> None:
    for waits in (False, True):
        cells.vary(Variation(looks=True, waits=waits))
        for _ in range(2):
            assert Cell()(Tensor(IMAGE), mask=Tensor(np.arange(3)))[0][0].values is IMAGE
        noted = [(each.key.layer, each.key.step) for each in cells.varying.fed]
        names = [(name, step) for step in range(2) for name in ("0 of Cell", "mask of Cell")]
        assert noted == (names if waits else [])


def test_mindspore_is_as_it_was_when_all_is_over(cells: VariedCells) -> None:
    before = Cell.__call__
    cells.vary(Variation(seed=2))
    cells.vary(PLAIN)
    assert Cell.__call__ is before
    given = Tensor(IMAGE)
    assert Cell()(given)[0] == (given,)


def test_a_mindspore_without_cells_is_left_alone() -> None:
    cells = VariedCells(SimpleNamespace())
    cells.vary(Variation(seed=2))
    assert not cells.varying.perturbed
    cells.vary(PLAIN)
