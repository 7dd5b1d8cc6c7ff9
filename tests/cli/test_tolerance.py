"""``npudump golden show --tolerances``: the bound of each statistic, its origin, and how wide it is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]
GOLDEN = """npudump-golden: 1
test: test_a.py::test_a
producer: {runtime: acl, digits: 6}
columns: tensor dtype shape max min avg l2norm nan -inf +inf
tensors: |
  net/conv:output.0 float32 4 2 -1 0.5 4 0 0 0
  net/cast:output.0 float16 4 1.5 -1 0.5 - 0 0 0
  net/tiny:output.0 float32 4 1e-10 0 5e-11 1e-10 0 0 0
  net/shape:output.0 int64 4 96 1 40.25 - 0 0 0
"""


@pytest.fixture
def golden(tmp_path: Path) -> Path:
    path = tmp_path / "golden.yaml"
    path.write_text(GOLDEN, "utf-8")
    return path


def shown(run: Run, path: Path, *words: object) -> list[dict[str, Any]]:
    done = run("golden", "show", "--tolerances=", path, *words, "--json", "-")
    return list(done.json["tolerances"])


def test_each_statistic_of_a_layer_has_its_bound_by_its_own_scale(run: Run, golden: Path) -> None:
    rows = {row["statistic"]: row for row in shown(run, golden, "net/conv")}
    atol = 2.0**-30
    assert rows["max"]["allowed"] == rows["min"]["allowed"] == pytest.approx(2e-5 * 2 + atol)
    assert rows["avg"]["allowed"] == pytest.approx(5e-6 * (4 / 4**0.5) + atol)  # rms
    assert rows["l2norm"]["allowed"] == pytest.approx(1e-5 * 4 + atol)
    assert rows["max"]["steps"] == pytest.approx((2e-5 * 2 + atol) / 2.0**-22)
    assert rows["max"]["share"] == pytest.approx(2e-5, rel=1e-4)
    assert rows["max"]["printed"] == pytest.approx(5e-6)


def test_the_bounds_are_those_of_the_numerics(run: Run, golden: Path) -> None:
    for numerics, rtol in (("same", 1e-3), ("other", 1.2e-2), ("hf32", 1.2e-2)):
        row, *_ = shown(run, golden, "net/cast", "--preset", numerics)
        assert row["allowed"] == pytest.approx(1.5 * rtol + 2.0**-20)
        assert f"(preset {numerics})" in row["rule"]


def test_without_a_layer_there_is_a_line_for_each_rule_with_the_tensor_it_is_widest_for(
    run: Run, golden: Path
) -> None:
    done = run("golden", "show", "--tolerances=", golden)
    lines = done.out.splitlines()
    assert lines[0].split()[:4] == ["tensors", "dtype", "statistic", "widest"]
    assert lines[1].split()[:4] == ["2", "float32", "max", "net/tiny:output.0"]
    assert sum(line.split()[1] == "float32" for line in lines[1:5]) == 4
    assert lines[-1] == "zeros would pass in a statistic (tensors: 1, first: net/tiny:output.0)"


def test_a_rule_is_quoted_with_its_reason_and_one_that_matches_nothing_is_refused(
    run: Run, golden: Path, tmp_path: Path
) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text("rules: [{layer: net/conv, rtol: 0.1, atol: 0, reason: a new kernel}]\n", "utf-8")
    (row, *_) = shown(run, golden, "net/conv", "--tolerances", rules)
    assert row["allowed"] == pytest.approx(0.2)
    assert "a new kernel" in row["rule"]
    rules.write_text("rules: [{layer: net/conf, rtol: 0.1, atol: 0, reason: a new kernel}]\n", "utf-8")
    done = run("golden", "show", "--tolerances=", golden, "--tolerances", rules)
    assert done.code == 2
    assert "matches nothing" in done.err


def test_integers_have_steps_of_no_float_format_and_what_there_is_not_is_refused(
    run: Run, golden: Path
) -> None:
    rows = shown(run, golden, "net/shape")
    assert [(row["allowed"], row["steps"], row["printed"]) for row in rows[:2]] == [(0.0, None, 0.0)] * 2
    done = run("golden", "show", "--tolerances=", golden, "net/con")
    assert (done.code, "net/conv" in done.err) == (2, True)
    done = run("golden", "show", "--tolerances=", golden, "--producer", "chip=a")
    assert done.code == 2
    assert "--producer chip=a: expected FACT=VALUE with one of runtime, soc" in done.err


def test_a_layer_that_is_there_is_meant_alone_though_its_name_is_a_glob_of_another(
    run: Run, golden: Path, tmp_path: Path
) -> None:
    golden.write_text(GOLDEN.replace("net/cast", "net/blk[1]").replace("net/tiny", "net/blk1"), "utf-8")
    path = tmp_path / "rules.yaml"
    for spelling in ("net/blk[1]", "net_blk[1]"):
        rows = shown(run, golden, spelling)
        assert {row["key"] for row in rows} == {"net/blk[1]:output.0"}
        path.write_text(f'rules: [{{layer: "{spelling}", rtol: 0.5, atol: 0, reason: x}}]\n', "utf-8")
        rows = shown(run, golden, "net/blk*", "--tolerances", path)
        loosened = {row["key"] for row in rows if row["rule"].startswith("rtol=0.5")}
        assert loosened == {"net/blk[1]:output.0"}


NANS = """npudump-golden: 1
test: test_a.py::test_a
producer: {runtime: acl, digits: 6}
columns: tensor dtype shape max min avg l2norm nan -inf +inf
tensors: |
  net/conv:output.0 float32 40 2 -1 nan nan 3 0 1
  net/none:output.0 float32 40 nan nan nan nan 40 0 0
  net/cast:output.0 float16 4 1.5 -1 0.5 - 0 0 0
"""


def loosened(run: Run, path: Path, *words: object) -> dict[tuple[str, str], dict[str, Any]]:
    counts = [row for row in shown(run, path, *words) if row["statistic"] in {"nan", "neg_inf", "pos_inf"}]
    return {(row["key"], row["statistic"]): row for row in counts}


def test_counts_that_a_rule_loosens_are_shown_as_compare_allows_them(
    run: Run, golden: Path, tmp_path: Path
) -> None:
    golden.write_text(NANS, "utf-8")
    path = tmp_path / "rules.yaml"
    path.write_text("rules: [{statistic: nan, rtol: 1, atol: 10, reason: a mask}]\n", "utf-8")
    found = loosened(run, golden, "--tolerances", path)
    allowed = {"net/conv:output.0": 12.0, "net/none:output.0": 50.0, "net/cast:output.0": 11.5}
    assert {key: row["allowed"] for key, row in found.items()} == {
        (key, "nan"): value for key, value in allowed.items()
    }
    row = found["net/conv:output.0", "nan"]
    assert (row["golden"], row["printed"], row["steps"], row["share"]) == (3, 0, None, 12 / 40)
    assert "a mask" in row["rule"]
    assert row["blind"]
    done = run("golden", "show", "--tolerances=", golden, "net/conv", "--tolerances", path)
    lines = done.out.splitlines()
    (line,) = [line for line in lines if line.split()[2] == "nan"]
    assert line.split()[:7] == ["net/conv:output.0", "float32", "nan", "3", "12", "-", "30"]
    assert "all other counts of NaN and infinities, dtypes and shapes must be equal" in lines
    done = run("golden", "show", "--tolerances=", golden, "--tolerances", path)
    assert any(
        line.split()[:4] == ["2", "float32", "nan", "net/none:output.0"] for line in done.out.splitlines()
    )
    assert "all other counts" in done.out


def test_counts_that_no_rule_loosens_must_be_equal_and_are_not_shown(
    run: Run, golden: Path, tmp_path: Path
) -> None:
    golden.write_text(NANS, "utf-8")
    path = tmp_path / "rules.yaml"
    for rule, count in (
        ("statistic: pos_inf, rtol: 0, atol: 1, reason: x", "pos_inf"),
        ("statistic: neg_inf, one_sided: below, rtol: 0, atol: 0, reason: x", "neg_inf"),
        ("statistic: nan, rtol: 0, atol: 0", ""),
        ("rtol: 1, atol: 1, reason: x", ""),
    ):
        path.write_text(f"rules: [{{layer: net/conv, {rule}}}]\n", "utf-8")
        expected = [("net/conv:output.0", count)] * bool(count)
        assert list(loosened(run, golden, "--tolerances", path)) == expected, rule
        last = run("golden", "show", "--tolerances=", golden, "--tolerances", path).out
        assert ("all other counts of NaN" in last) == bool(count)
        assert ("\ncounts of NaN and infinities, dtypes and shapes must be equal" in last) != bool(count)


BY_OPERATOR = "rules: [{op_type: 'Conv*', rtol: 0.1, atol: 0, reason: a new kernel}]\n"


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    """A file with one rule for convolutions."""
    path = tmp_path / "rules.yaml"
    path.write_text(BY_OPERATOR, "utf-8")
    return path


def test_operators_are_those_of_a_kept_run_as_goldens_tell_none(
    run: Run, golden: Path, rules: Path, kept: Run
) -> None:
    explain = ("golden", "show", "--tolerances=", golden, "--tolerances", rules)
    done = run(*explain)
    assert done.code == 2
    assert "op_type=Conv*" in done.err
    assert "with --results" in done.err
    golden.write_text(GOLDEN.replace("test_a.py::test_a", "test_a.py::test_x"), "utf-8")
    results = kept("results", {"net/conv": 2.0, "net/other": 1.0}, op_types=True)
    found = run(*explain, "--results", results, "--json", "-").json["tolerances"]
    assert {row["key"] for row in found if "a new kernel" in row["rule"]} == {"net/conv:output.0"}


def test_results_without_the_test_or_an_operator_of_the_rule_s_type_are_errors(
    run: Run, golden: Path, rules: Path, kept: Run
) -> None:
    explain = ("golden", "show", "--tolerances=", golden, "--tolerances", rules)
    done = run(*explain, "--results", kept("results", {"net/conv": 2.0}))
    assert done.code == 2
    assert "holds no statistics of test_a.py::test_a" in done.err
    golden.write_text(GOLDEN.replace("test_a.py::test_a", "test_a.py::test_x"), "utf-8")
    done = run(*explain, "--results", kept("others", {"net/other": 2.0}, op_types=True))
    assert done.code == 2
    assert "matches nothing" in done.err


def test_the_producer_is_the_golden_s_unless_it_is_told(run: Run, golden: Path, tmp_path: Path) -> None:
    path = tmp_path / "rules.yaml"
    item = "{layer: net/conv, rtol: 0.1, atol: 0, reason: wide, producer: {runtime: emulator}}"
    path.write_text(f"rules: [{item}]\n", "utf-8")
    for words, holds in (
        ((), False),
        (("--producer", "runtime=emulator"), True),
        (("--producer", "soc=A"), False),
    ):
        rows = shown(run, golden, "--tolerances", path, *words)
        assert any("wide" in row["rule"] for row in rows) is holds, words
