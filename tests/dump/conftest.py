"""What tests share that go through many cases in one item."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    Each = Callable[[Iterable[Any]], Iterable[Any]]
    Fresh = Callable[[], Path]

Case = TypeVar("Case")


@pytest.fixture
def each() -> Iterator[Callable[[Iterable[Case]], Iterator[Case]]]:
    """Go through cases; a test that fails prints the one that it failed at."""
    current: list[Case] = []

    def cases(values: Iterable[Case]) -> Iterator[Case]:
        for value in values:
            current[:] = [value]
            yield value
        current.clear()

    yield cases
    for value in current:
        print(f"the case that failed: {value!r}")  # noqa: T201 - pytest shows it with the failure


@pytest.fixture
def fresh(tmp_path: Path) -> Callable[[], Path]:
    """Make an empty folder for each case."""
    numbers = count()

    def folder() -> Path:
        path = tmp_path / f"case{next(numbers)}"
        path.mkdir()
        return path

    return folder
