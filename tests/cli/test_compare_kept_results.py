"""``npudump compare`` of two folders of kept results."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

Run = Callable[..., Any]


def test_what_differs_in_the_producers_of_all_tests_comes_first(kept: Any, run: Run) -> None:
    one = kept("one", {"conv": 1.0}, {"cann": "8.0"}, revision="a" * 40)
    done = run("compare", one, one)
    told = "origin: no known difference\n1 of 1 tests compared; with mismatches: 0\n"
    assert (done.code, done.out) == (0, told)
    other = kept("other", {"conv": 2.0}, {"cann": "8.1", "soc": "Ascend910B"}, revision="b" * 40)
    done = run("compare", one, other)
    first, second, third, test, bounds, *_ = done.out.splitlines()
    assert done.code == 1
    assert {first, second, third} == {
        f"origin: revision {'a' * 40} -> {'b' * 40}",
        "origin: cann 8.0 -> 8.1",
        "origin: soc - -> Ascend910B",
    }
    assert test == "test_a.py::test_x: mismatches: 1 of 1 tensor"
    assert bounds == "  preset other: cann 8.0 -> 8.1; unknown on one side: soc"
    other = kept("third", {"conv": 2.0, "add": 1.0}, {"cann": "8.1"}, revision="a" * 40)
    told = run("compare", one, other, "--json", "-").json
    assert told["origins"] == {"cann": ["8.0", "8.1"]}
    [test] = told["tests"]
    assert test["comparison"]["summary"]["failed"] == 1
    sides = kept("fourth", {"conv": 1.0, "relu": 1.0}), kept("fifth", {"conv": 1.0, "add": 1.0})
    done = run("compare", *sides)
    assert (done.code, "mismatches: 1 of 2 tensors, 1 new" in done.out) == (1, True)


def test_producers_decide_which_bounds_hold_unless_the_option_does(kept: Any, run: Run) -> None:
    half = {"dtype": "float16"}
    alike = kept("one", {"conv": 1.0}, **half), kept("other", {"conv": 1.003}, **half)
    newer = kept("third", {"conv": 1.0}, {"cann": "8.0"}, **half)
    newest = kept("fourth", {"conv": 1.003}, {"cann": "8.1"}, **half)
    assert run("compare", *alike).code == 1
    assert run("compare", *alike, "--rtol=0.01").code == 0
    assert run("compare", newer, newest).code == 0
    assert run("compare", newer, newest, "--preset=same").code == 1
    assert run("compare", newer, newest, "--preset=exact").code == 1


def test_a_preset_of_the_file_stays_where_the_option_says_what_default_is(
    kept: Any, run: Run, tmp_path: Path
) -> None:
    half = {"dtype": "float16"}
    sides = kept("one", {"conv": 1.0}, **half), kept("other", {"conv": 1.003}, **half)
    rules = tmp_path / "rules.yaml"
    for of_file, preset, code in (
        ("exact", "other", 1),
        ("exact", "hf32", 1),
        ("exact", "torch", 1),
        ("default", "other", 0),
        ("other", "same", 0),
    ):
        rules.write_text(f"preset: {of_file}\n", "utf-8")
        done = run("compare", *sides, "--tolerances", rules, f"--preset={preset}")
        assert done.code == code, (of_file, preset)


def test_what_one_side_lacks_is_told_and_is_no_pass(kept: Any, run: Run, tmp_path: Path) -> None:
    one, other = kept("one", {"conv": 1.0}), kept("other", {"conv": 1.0}, test="test_y")
    done = run("compare", one, other)
    assert (done.code, done.out.count("not compared")) == (2, 2)
    assert f"only {one} has a result of it" in done.out
    other = kept("lost", {"conv": 1.0}, record=None, incomplete="its teardown failed")
    done = run("compare", one, other)
    assert done.code == 2
    assert f"  {other} has no statistics of it: its teardown failed" in done.out
    skipped = {"outcome": "skipped", "record": None}
    sides = (kept(folder, {"conv": 1.0}, **skipped) for folder in ("skipped", "too"))
    assert run("compare", *sides).code == 2
    done = run("compare", one, tmp_path)  # a dump
    assert (done.code, "does not" in done.err) == (2, True)
    other = kept("damaged", {"conv": 1.0})
    for option in ("--plots=made", "--latest", "--layout=NHWC"):
        done = run("compare", one, other, option)
        assert (done.code, "needs tensors; saved results" in done.err) == (2, True)
    line = json.loads((other / "results.jsonl").read_text("utf-8"))
    (other / line["record"]["file"]).write_text("npudump-golden: 1\n", "utf-8")
    done = run("compare", one, other)
    assert (done.code, "not the record that was kept" in done.out) == (2, True)


def test_rules_by_operator_and_producer_go_by_the_second_run(kept: Any, run: Run, tmp_path: Path) -> None:
    one = kept("one", {"conv": 1.0}, {"soc": "A"})
    other = kept("other", {"conv": 2.0}, {"soc": "B"})
    rules = tmp_path / "rules.yaml"
    item = "rtol: 1, atol: 1, reason: wide"
    rules.write_text(f"rules: [{{layer: conv, {item}, producer: {{soc: B}}}}]\n", "utf-8")
    assert run("compare", one, other, "--tolerances", rules).code == 0
    assert run("compare", other, one, "--tolerances", rules).code == 1
    assert run("compare", one, other, "--producer", "soc=B").code == 2
    rules.write_text(f"rules: [{{op_type: Conv, {item}}}]\n", "utf-8")
    done = run("compare", one, other, "--tolerances", rules)
    assert done.code == 2
    assert "a tolerance rule names op_type, which the saved run does not contain" in done.out
    typed = kept("typed", {"conv": 2.0}, op_types=True)
    assert run("compare", one, typed, "--tolerances", rules).code == 0


def test_a_rule_for_a_layer_that_is_there_is_for_that_alone_though_its_name_is_a_glob_of_another(
    kept: Any, run: Run, tmp_path: Path
) -> None:
    one = kept("a", {"net/blk[1]": 1.0, "net/blk1": 1.0, "blk2": 1.0})
    other = kept("b", {"net/blk[1]": 1.1, "net/blk1": 1.1, "blk2": 1.1})
    rules = tmp_path / "t.yaml"
    for pattern, failing in (
        ("net/blk[1]", ["net/blk1", "blk2"]),
        ("net_blk[1]", ["net/blk1", "blk2"]),
        ("net/blk?", ["net/blk[1]", "blk2"]),
        ("blk[23]", ["net/blk[1]", "net/blk1"]),  # nothing is called so: a glob
    ):
        rules.write_text(f'rules: [{{layer: "{pattern}", rtol: 0.5, atol: 0, reason: x}}]\n', "utf-8")
        done = run("compare", one, other, "--tolerances", rules, "--json", "-")
        [told] = done.json["tests"]
        verdicts = told["comparison"]["verdicts"]
        assert [one["layer"] for one in verdicts if one["status"] == "fail"] == failing, pattern


def test_names_of_the_two_may_be_mapped(kept: Any, run: Run, tmp_path: Path) -> None:
    one = kept("one", {"h.0": 1.0, "h.1": 2.0, "h.2": 3.0})
    names = tmp_path / "names.yaml"
    names.write_text("blocks.*: h.*\nheads.*: head.*\n", encoding="utf-8")
    for value, code, last in (
        (3.0, 0, "1 of 1 tests compared; with mismatches: 0"),
        (3.5, 1, "with mismatches: 1"),
    ):
        other = kept(f"other{code}", {"blocks.0": 1.0, "blocks.1": 2.0, "blocks.2": value})
        assert run("compare", one, other).code == 1
        done = run("compare", one, other, "--map", names)
        assert (done.code, done.out.splitlines()[-1][-len(last) :]) == (code, last)
    assert "1 of 3 tensors" in done.out
    assert "blocks.2" in done.out
    assert "note: " in done.out
    assert "line 2" in done.out
    names.write_text("blocks.*: [h]\n", encoding="utf-8")
    done = run("compare", one, other, "--map", names)
    assert (done.code, "names.yaml, line 1" in done.err) == (2, True)
