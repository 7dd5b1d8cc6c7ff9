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
    done = run("golden", "show", golden(), "--noise")
    assert done.code == 0
    assert done.out.splitlines() == [
        "test:        test_a.py::test_a",
        "producer:    runtime acl, soc Ascend910B3",
        "recorded:    date unknown",
        "tensors:     3",
        "repeats:     unknown: recorded from one run",
        "calibration: none",
        "no tensor has noise: all bounds are the preset's",
    ]


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


def test_what_was_measured_is_told_widest_first(run: Run, golden: Callable[..., Path]) -> None:
    out = run("golden", "show", golden(CALIBRATED, CELLS), "--noise").out.splitlines()
    assert out[4] == ("repeats:     2 runs, all tensors compared, 1 with other values; first seen at: relu")
    assert out[5] == "calibration: 20 members, factor 7, varied: inputs"
    assert "calibrated: 20 members, factor 7" in out[6]
    assert out[7].split()[-2:] == ["projections", "%"]
    assert out[8].split() == ["relu:output.0", "float16", "no", "210", "(0.1)", "175", "140", "-"]
    assert out[9].split() == ["conv:output.0", "float32", "yes", "0.7", "(0.002)", "1.4", "(0.001)", "-"]
    assert out[10].startswith(
        "measured tolerances so wide that a tensor of zeros would pass (tensors: 1, first: relu"
    )
    assert len(out) == 11


def test_noise_within_the_preset_s_bounds_is_no_bound(run: Run, golden: Callable[..., Path]) -> None:
    cells = {"conv": "1e-6,-,2.6e-9,-", "relu": "2e-5,-,-,2e-3", "fc": "3e-8,-,2.6e-9,-"}
    path = golden(CALIBRATED, cells)
    out = run("golden", "show", path, "--noise").out.splitlines()
    assert out[6].startswith("measured tolerances wider than the preset same's (calibrated: 20")
    assert out[8].split() == ["relu:output.0", "float16", "yes", "(0.1)", "(0.1)", "(0.1)", "1.4", "-"]
    assert out[9:] == ["for 2 of 3 tensors with noise the tolerances of the preset same are wide enough"]
    none = run("golden", "show", golden(CALIBRATED, {**cells, "relu": "-"}), "--noise").out.splitlines()
    assert none[6:] == ["for 2 of 2 tensors with noise the tolerances of the preset same are wide enough"]


def test_the_bounds_are_those_that_tolerance_explain_tells(run: Run, golden: Callable[..., Path]) -> None:
    cells = {"conv": "1e-6,-,2.6e-9,1e-3", "relu": "2e-5,0.1,-,2e-3", "fc": "inf,-,2.6e-9,-"}
    path = golden(CALIBRATED, cells)
    explained = {
        (row["key"], row["statistic"]): (row["allowed"], row["rule"])
        for row in run("golden", "show", "--tolerances=", path, "*", "--json", "-").json["tolerances"]
    }
    rows = run("golden", "show", path, "--noise", "--json", "-").json["noise"]
    told = {
        (row["key"], name): (one["allowed"], one["rule"])
        for row in rows
        for name, one in row["bounds"].items()
    }
    assert told == explained
    measured = {(row["key"], name) for row in rows for name, one in row["bounds"].items() if one["measured"]}
    assert measured == {("conv:output.0", "l2norm"), ("relu:output.0", "min"), ("relu:output.0", "l2norm")}
    assert [row["key"] for row in rows] == ["relu:output.0", "conv:output.0", "fc:output.0"]


def test_without_a_calibration_the_spread_is_told_that_is_no_change(
    run: Run, golden: Callable[..., Path]
) -> None:
    out = run(
        "golden",
        "show",
        golden("repeats: {runs: 2}\n", dict.fromkeys(ROWS, "-") | {"relu": "~1e-6,-,-,-"}),
        "--noise",
    ).out
    assert out.splitlines()[6] == (
        "differences that are no change (spread of 2 recording runs, factor 5), in % of each statistic's "
        "scale, widest first:"
    )
    assert out.splitlines()[8].split() == ["relu:output.0", "float16", "no", "0.0005", "-", "-", "-", "-"]
    assert len(out.splitlines()) == 9


def test_a_limit_says_how_many_are_left_out(run: Run, golden: Callable[..., Path]) -> None:
    out = run("golden", "show", golden(CALIBRATED, CELLS), "--noise", "--limit", "1").out
    assert "... and 1 more" in out
    assert "conv" not in out


def test_json_has_the_deviations_and_what_they_are_multiplied_by(
    run: Run, golden: Callable[..., Path]
) -> None:
    cells = CELLS | {"fc": "inf,-,-,-"}
    told = run("golden", "show", golden(CALIBRATED, cells), "--noise", "--json", "-").json
    assert told["repeats"] == {"runs": 2, "not_deterministic": ["relu"]}
    assert told["calibration"] == {"members": 20, "factor": 7, "varied": ["inputs"]}
    noise = {row["key"]: row for row in told["noise"]}
    atol = 2.0**-20

    def bound(allowed: float, rtol: str, statistic: str) -> dict[str, Any]:
        rule = (
            f"{rtol} atol=9.53674e-07 dtype=float16 statistic={statistic} (calibrated: 20 members, factor 7)"
        )
        return {"allowed": pytest.approx(allowed), "rule": rule, "measured": True}

    assert noise["fc:output.0"]["largest"]["max"] is None
    assert noise["relu:output.0"] == {
        "key": "relu:output.0",
        "dtype": "float16",
        "varies": True,
        "largest": {"max": 0.3, "min": 0.0, "avg": 0.25, "l2norm": 0.2, "projections": 0.5},
        "factor": 7.0,
        "bounds": {
            "max": bound(4.2 + atol, "rtol=2.1", "max"),
            "min": {
                "allowed": pytest.approx(0.002 + atol),
                "rule": "rtol=0.001 atol=9.53674e-07 dtype=float16 (preset same)",
                "measured": False,
            },
            "avg": bound(3.5 + atol, "rtol=1.75", "avg"),
            "l2norm": bound(5.6 + atol, "rtol=1.4", "l2norm"),
        },
        "sees_nothing": True,
    }
    assert "noise" not in run("golden", "show", golden(CALIBRATED, cells), "--json", "-").json


def test_a_damaged_head_is_an_error_with_the_way_out(run: Run, golden: Callable[..., Path]) -> None:
    done = run("golden", "show", golden("repeats: 2\n"))
    assert done.code == 2
    assert "accept anew with --npudump-update-golden" in done.err


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
