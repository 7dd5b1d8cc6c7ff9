"""``npudump golden show``: origin, repetition, calibration, and the tensors with the widest bounds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]
HEAD = """npudump-golden: 1
test: test_a.py::test_a
producer: {{runtime: acl, soc: Ascend910B3, digits: 6}}
{extra}columns: tensor dtype shape max min avg l2norm nan -inf +inf{column}
tensors: |
"""
ROWS = {
    "conv": "float32 4 2 -1 0.5 4 0 0 0",
    "relu": "float16 4 2 0 0.5 4 0 0 0",
    "fc": "float32 4 2 -1 0.5 4 0 0 0",
}
CELLS = {"conv": "1e-3,-,2e-3,-", "relu": "~0.3,-,0.25,0.2,0.5", "fc": "-"}
CALIBRATED = (
    "repeats: {runs: 2, not_deterministic: [relu]}\ncalibration: {members: 20, factor: 7, varied: [inputs]}\n"
)


@pytest.fixture
def golden(tmp_path: Path) -> Callable[..., Path]:
    def write(extra: str = "", cells: dict[str, str] | None = None) -> Path:
        path = tmp_path / "golden.yaml"
        text = HEAD.format(extra=extra, column=" noise" if cells else "")
        lines = (
            f"  {name}:output.0 {row} {(cells or {}).get(name, '')}".rstrip() for name, row in ROWS.items()
        )
        path.write_text(text + "\n".join(lines) + "\n", "utf-8")
        return path

    return write


def test_a_golden_of_an_earlier_version_says_that_nothing_is_known(
    run: Run, golden: Callable[..., Path]
) -> None:
    done = run("golden", "show", golden())
    assert done.code == 0
    assert done.out.splitlines() == [
        "test:        test_a.py::test_a",
        "producer:    runtime acl, soc Ascend910B3",
        "recorded:    date unknown",
        "tensors:     3",
        "repeats:     unknown: recorded from one run",
        "calibration: none",
    ]
    done = run("golden", "show", golden("repeats: 2\n"))  # a damaged head
    assert (done.code, "accept anew with --npudump-update-golden" in done.err) == (2, True)


def test_when_and_why_it_changed_is_told(run: Run, golden: Callable[..., Path]) -> None:
    path = golden("recorded: 2025-02-03 aaaaaaaaaaaa\nreason: retrained\n")
    text = path.read_text("utf-8").splitlines()
    models = ("models: |", "  #m.onnx AAAAAAAAAAAAAAAA -", "")
    path.write_text("\n".join([*text[:-1], f"{text[-1]} # 2026-11-23 bbbbbbbbbbbb", *models]), "utf-8")
    out = run("golden", "show", path).out.splitlines()
    assert out[2:7] == [
        "recorded:    2025-02-03 at aaaaaaaaaaaa",
        "changed:     1 tensor, 2026-11-23 at bbbbbbbbbbbb",
        "reason:      retrained",
        "tensors:     3",
        "models:      m.onnx",
    ]
    assert "2025-02-03（提交 aaaaaaaaaaaa）" in run("--lang", "zh", "golden", "show", path).out


def test_tolerances_for_other_numerics_name_what_is_upstream(
    run: Run, golden: Callable[..., Path], tmp_path: Path
) -> None:
    path, other = golden(), tmp_path / "other.yaml"
    path.write_text(path.read_text("utf-8") + "edges: |\n  fc < relu:output.0 -\n", "utf-8")
    other.write_text("preset: other\n", "utf-8")
    lines = run("golden", "show", "--tolerances", other, path).out.splitlines()
    assert [line.split("(")[-1] for line in lines if "float32  max" in line] == [
        "preset other)",
        "preset other: float16 upstream)",
    ]
    done = run("--lang", "zh", "golden", "show", "--tolerances", other, path)
    assert "preset other: 上游有 float16" in done.out


def test_measured_tolerances_are_those_of_their_statistics(run: Run, golden: Callable[..., Path]) -> None:
    cells = {"conv": "1e-6,-,2.6e-9,1e-3", "relu": "2e-5,0.1,-,2e-3", "fc": "inf,-,2.6e-9,-"}
    told = run("golden", "show", golden(CALIBRATED, cells), "*", "--json", "-").json
    assert told["repeats"] == {"runs": 2, "not_deterministic": ["relu"]}
    assert told["calibration"] == {"members": 20, "factor": 7, "varied": ["inputs"]}
    rules = {(row["key"], row["statistic"]): row["rule"] for row in told["tolerances"]}
    measured = {row for row, rule in rules.items() if "calibrated: 20 members, factor 7" in rule}
    assert measured == {("conv:output.0", "l2norm"), ("relu:output.0", "min"), ("relu:output.0", "l2norm")}
    shown = [run("golden", "show", golden(CALIBRATED, cells), name).out for name in ("conv", "conv:output.0")]
    assert shown[0] == shown[1] != ""


def test_tolerances_name_what_failures_do(run: Run, golden: Callable[..., Path]) -> None:
    sums = " ".join(["1"] * 8)
    path = golden()
    path.write_text(f"{path.read_text('utf-8')}projections: |\n  conv:output.0 {sums}\n", "utf-8")
    out = run("golden", "show", "--tolerances=", path, "conv").out
    found = [line.split()[2:4] for line in out.splitlines()]
    assert found.count(["difference", "0"]) == 1
    assert " difference " in run("golden", "show", "--tolerances=", path).out
