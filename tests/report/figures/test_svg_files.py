"""Charts as SVG files, read back as XML."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import numpy as np

from pytest_npudump.compare.tensors.picture import draw
from pytest_npudump.dump.records import TensorKey
from pytest_npudump.report.charts import write_figures
from pytest_npudump.report.view import IDENTICAL, SOURCE, TensorView

if TYPE_CHECKING:
    from pathlib import Path

TITLE = "a & <script>层"


def tensor(at: int) -> TensorView:
    state, share = (SOURCE, 100.0) if at == 3 else (IDENTICAL, 0.0)
    key = TensorKey(f"layer{at}<", "output", 0)
    return TensorView(key, "Conv", state, share, "pass", "", "6x9", (), ())


def texts(path: Path) -> list[str]:
    return ["".join(one.itertext()) for one in ET.parse(path).iter() if one.tag.endswith("}text")]  # noqa: S314 - ours


def test_a_run_and_its_tensors_are_drawn_with_names_as_text(tmp_path: Path) -> None:
    golden = np.random.default_rng(1).normal(size=(6, 9))
    picture = draw(golden, golden + 0.5, rtol=0, atol=1e-3)
    assert picture is not None
    tensors = [tensor(at) for at in range(9)]
    run, elements = write_figures(tmp_path / "new", TITLE, tensors, {3: picture})
    assert (run.name, elements.name) == ("run.svg", "tensor-1.svg")
    assert {TITLE, "1 source", "8 identical, digit for digit"} <= set(texts(run))
    assert {"layer3<:output.0", "where the errors are: axis 0 down, axis 1 across"} <= set(texts(elements))
    written = [path.read_bytes() for path in (run, elements)]
    again = write_figures(tmp_path / "again", TITLE, tensors, {3: picture})
    assert [path.read_bytes() for path in again] == written


def test_a_run_of_no_tensor_is_drawn(tmp_path: Path) -> None:
    [run] = write_figures(tmp_path, "empty", [], {})
    assert texts(run) == ["empty"]
