"""``npudump plot`` on two dumps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from PIL import Image

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def dumps(tmp_path: Path) -> tuple[Path, Path]:
    """Two dumps of nine tensors, of which the last eight differ."""
    for side, factor in (("a", 1.0), ("b", 2.0)):
        (tmp_path / side).mkdir()
        for turn in range(9):
            values = np.float32(turn + 1) * np.linspace(-1, 1, 60, dtype=np.float32).reshape(6, 10)
            name = f"Conv.layer{turn}.{turn}.0.{1700000000000000 + turn}.output.0.DefaultFormat.npy"
            np.save(tmp_path / side / name, values * np.float32(factor if turn else 1))
    return tmp_path / "a", tmp_path / "b"


def test_draws_the_run_and_the_first_failing_tensors(
    run: Callable[..., Any], dumps: tuple[Path, Path], tmp_path: Path
) -> None:
    done = run("plot", *dumps, "-o", tmp_path / "out")
    assert done.code == 0
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    stems = ["run", *(f"tensor-{number}" for number in range(1, 7))]
    assert names == sorted(f"{stem}.{kind}" for stem in stems for kind in ("png", "svg"))
    with Image.open(tmp_path / "out/run.png") as image:
        assert image.format == "PNG"
    assert "layer1:output.0" in (tmp_path / "out/tensor-1.svg").read_text("utf-8")


def test_equal_dumps_have_the_picture_of_the_run_alone(
    run: Callable[..., Any], dumps: tuple[Path, Path], tmp_path: Path
) -> None:
    assert run("plot", dumps[0], dumps[0], "-o", tmp_path / "out").code == 0
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["run.png", "run.svg"]


def test_a_file_that_cannot_be_read_is_told_behind_the_pictures(
    run: Callable[..., Any], dumps: tuple[Path, Path], tmp_path: Path
) -> None:
    next(dumps[1].iterdir()).write_bytes(b"\x93NUMPY")
    done = run("plot", *dumps, "-o", tmp_path / "out")
    assert done.code == 2
    assert (tmp_path / "out/run.png").exists()
