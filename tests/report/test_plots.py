"""Charts as PNG and SVG, read back by another library."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from PIL import Image

from pytest_npudump.compare.tensors.picture import draw
from pytest_npudump.dump.records import TensorKey
from pytest_npudump.errors import MissingExtraError
from pytest_npudump.report.plots import check_matplotlib, elements_figure, save, strip_figure
from pytest_npudump.report.view.tensor_views import IDENTICAL, SOURCE, TensorView

if TYPE_CHECKING:
    from pathlib import Path

TITLE = "$\\frac{1}$ <script>层"


def tensor(at: int) -> TensorView:
    state, share = (SOURCE, 100.0) if at == 3 else (IDENTICAL, 0.0)
    return TensorView(TensorKey(f"layer{at}", "output", 0), "Conv", state, share, "pass", "", "", (), ())


def texts(path: Path) -> list[str]:
    return ["".join(one.itertext()) for one in ET.parse(path).iter() if one.tag.endswith("}text")]  # noqa: S314 - ours


def test_a_run_is_drawn_as_png_and_svg_with_names_as_text(tmp_path: Path) -> None:
    png, svg = save(strip_figure([tensor(at) for at in range(9)], TITLE), tmp_path / "new" / "run")
    with Image.open(png) as image:
        assert image.size[0] > 1000
        colours = {colour for _, colour in image.convert("RGB").getcolors(1 << 20)}
    assert {(0xB3, 0x26, 0x1E), (0x00, 0x72, 0xB2)} <= colours
    assert TITLE in texts(svg)
    assert "1 source" in texts(svg)


def test_elements_are_drawn(tmp_path: Path) -> None:
    golden = np.random.default_rng(1).normal(size=(6, 9))
    picture = draw(golden, golden + 0.5, rtol=0, atol=1e-3)
    assert picture is not None
    png, svg = save(elements_figure(picture, TITLE), tmp_path / "tensor")
    assert png.stat().st_size > 1000
    assert {TITLE, "golden", "this run"} <= set(texts(svg))


def test_no_word_of_a_tensor_s_picture_is_cut_off() -> None:
    golden = np.random.default_rng(1).normal(size=(6, 9))
    picture = draw(golden, golden + 0.5, rtol=0, atol=1e-3)
    assert picture is not None
    figure = elements_figure(picture, "layer:output.0")
    figure.canvas.draw()
    inside = figure.get_tightbbox()
    assert min(inside.x0, inside.y0) >= 0
    assert inside.x1 <= figure.get_figwidth()
    assert inside.y1 <= figure.get_figheight()


def test_the_same_run_gives_the_same_files(tmp_path: Path) -> None:
    tensors = [tensor(at) for at in range(5)]
    first, second = (save(strip_figure(tensors, "run"), tmp_path / name) for name in "ab")
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]


def test_a_run_of_no_tensor_is_drawn(tmp_path: Path) -> None:
    assert all(path.exists() for path in save(strip_figure([], "empty"), tmp_path / "run"))


def test_without_matplotlib_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtraError, match=r"pytest-npudump\[plot\]"):
        check_matplotlib()
