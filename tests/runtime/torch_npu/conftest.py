"""A stand-in for torch_npu that notes its calls."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

CLIENT = Path(__file__).parents[2] / "data" / "torch_client"


@pytest.fixture(scope="session")
def stand_in() -> Path:
    """The folder in which ``import torch_npu`` finds the stand-in."""
    return CLIENT


@pytest.fixture
def torch_npu(stand_in: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The stand-in, imported anew and gone afterwards."""
    monkeypatch.syspath_prepend(str(stand_in))
    known = set(sys.modules)
    import torch_npu  # type: ignore[import-not-found]

    yield torch_npu
    for name in set(sys.modules) - known:
        if name.partition(".")[0] in {"torch", "torch_npu"}:
            del sys.modules[name]
