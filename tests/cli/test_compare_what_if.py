"""What other tolerances would have missed or caught, beside the verdict that counts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

Run = Callable[..., Any]
VALUES = np.linspace(-3, 5, 4096, dtype=np.float32)


@pytest.fixture
def sides(tmp_path: Path, dump_file: Run) -> tuple[Path, Path]:
    """Three layers: equal, off by 2e-6 of the magnitude, and off by 2e-3 of it."""
    for number, (layer, near, far) in enumerate([("same", 0, 0), ("near", 0, 1e-5), ("far", 0, 1e-2)]):
        dump_file(tmp_path / "a", layer, VALUES + np.float32(near), number=number)
        dump_file(tmp_path / "b", layer, VALUES + np.float32(far), number=number)
    return tmp_path / "a", tmp_path / "b"


def test_each_says_what_it_misses_and_catches_and_decides_nothing(run: Run, sides: tuple[Path, Path]) -> None:
    done = run("compare", *sides, "--what-if", "hf32", "--what-if", "exact", "--what-if", "same")
    assert done.code == 1
    assert done.out.splitlines()[-3:] == [
        "what if hf32: 0 would mismatch; it misses 1 (far:output.0)",
        "what if exact: 2 would mismatch; it catches 1 (near:output.0)",
        "what if same: 1 would mismatch, the same ones",
    ]
    assert run("compare", *sides).code == 1


def test_a_pass_stays_one(run: Run, sides: tuple[Path, Path]) -> None:
    done = run("compare", *sides, "--preset", "hf32", "--what-if", "exact", "--json", "-")
    assert done.code == 0
    (found,) = done.json["what_if"]
    assert found == {
        "tolerances": "exact",
        "failing": 2,
        "missed": [],
        "caught": ["near:output.0", "far:output.0"],
    }


def test_a_file_of_rules_is_tried_too(run: Run, sides: tuple[Path, Path], tmp_path: Path) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text("rules: [{layer: far, rtol: 0.1, atol: 0, reason: a new kernel}]\n", "utf-8")
    done = run("compare", *sides, "--what-if", rules)
    assert done.out.splitlines()[-1] == f"what if {rules}: 0 would mismatch; it misses 1 (far:output.0)"


def test_what_is_neither_preset_nor_file_is_refused(run: Run, sides: tuple[Path, Path]) -> None:
    done = run("compare", *sides, "--what-if", "loose")
    assert done.code == 2
    assert "--what-if loose: neither a file nor a preset" in done.err


def test_rules_by_operator_and_producer_decide_of_elements_too(
    run: Run, sides: tuple[Path, Path], tmp_path: Path
) -> None:
    rules = tmp_path / "rules.yaml"
    item = "rtol: 0.1, atol: 0, reason: a new kernel"
    rules.write_text(f"rules: [{{op_type: 'Ty*', {item}}}]\n", "utf-8")
    assert run("compare", *sides, "--tolerances", rules).code == 0
    rules.write_text(f"rules: [{{op_type: 'Conv*', {item}}}]\n", "utf-8")
    done = run("compare", *sides, "--tolerances", rules)
    assert done.code == 1
    assert "op_type=Conv*" in done.err
    rules.write_text(f"rules: [{{layer: far, {item}, producer: {{soc: A*}}}}]\n", "utf-8")
    done = run("compare", *sides, "--tolerances", rules, "--what-if", rules)
    assert done.code == 1
    assert done.err.count("skipped: soc of this run unknown; give --producer FACT=VALUE") == 2
    assert run("compare", *sides, "--tolerances", rules, "--producer", "soc=A1").code == 0
    done = run("compare", *sides, "--tolerances", rules, "--producer", "soc=B1")
    assert (done.code, done.err) == (1, "")


def test_rules_of_its_file_that_match_nothing_or_are_left_out_are_named(
    run: Run, sides: tuple[Path, Path], tmp_path: Path
) -> None:
    misspelt, other = tmp_path / "un.yaml", tmp_path / "all.yaml"
    item = "rtol: 0.1, atol: 0, reason: a new kernel"
    misspelt.write_text(f"rules: [{{layer: 'Cnov@2*', {item}}}, {{layer: far, {item}}}]\n", "utf-8")
    counts = "{statistic: nan, rtol: 0, atol: 0}"
    other.write_text(f"rules: [{{layer: far, {item}, producer: {{soc: A*}}}}, {counts}]\n", "utf-8")
    done = run("compare", *sides, "--what-if", misspelt, "--what-if", "exact", "--what-if", other)
    assert done.code == 1
    left, idle = done.err.splitlines()
    assert left.startswith(f"npudump: --what-if {other}: rule rtol=0.1 atol=0 layer=far producer.soc=A* ")
    assert left.endswith("skipped: soc of this run unknown; give --producer FACT=VALUE")
    assert idle.startswith(f"npudump: --what-if {misspelt}: the rule rtol=0.1 atol=0 layer=Cnov@2* ")
    assert idle.endswith("matches no tensor of either side")
    done = run("compare", *sides, "--what-if", misspelt, "--tolerances", misspelt)
    assert done.err.count("matches no tensor of either side") == 2
    assert done.err.count("--what-if") == 1
