"""The text of a failure: complete where it is short, bounded where it is not."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from pytest_npudump.compare.stats.tables import compare_tables
from pytest_npudump.compare.stats.verdict import GRAPH_INPUT
from pytest_npudump.compare.tensors.difference import compare_tensors
from pytest_npudump.compare.tensors.picture import describe_tensor
from pytest_npudump.compare.tolerances.presets import Numerics
from pytest_npudump.compare.tolerances.tolerance import Tolerances
from pytest_npudump.dump.records import TensorKey, sanitise
from pytest_npudump.explain.operator_alone import CONVICTED, Alone, JudgedOperator
from pytest_npudump.explain.reference import ReferenceResult
from pytest_npudump.graph.sources import Source, Sources
from pytest_npudump.record.model_lines import ModelChange
from pytest_npudump.regression import result as status
from pytest_npudump.regression.result import WITHIN, Escalation, Finding
from pytest_npudump.report import terminal
from pytest_npudump.report.explanations import reference_lines
from pytest_npudump.report.files import ReportFiles
from pytest_npudump.report.layer_names import LayerNames
from pytest_npudump.report.result_json import full_json
from pytest_npudump.report.terminal import failure_lines, full_lines, headline
from tests.conftest import table_of
from tests.report.conftest import stats_table

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_npudump.dump.table import StatsTable
    from pytest_npudump.regression.result import Result


LINES = 40


def details_of(test: Result) -> ReportFiles:
    return ReportFiles(test.origin.directory / "report.txt", test.origin.directory / "report.json")


def text_of(test: Result, *, verbose: bool = False) -> list[str]:
    return failure_lines(test, details_of(test), verbose=verbose)[0]


def operator(layer: str, alone: Alone, op_type: str = "MatMul", **place: int) -> JudgedOperator:
    return JudgedOperator(TensorKey(layer, "output", 0, **place), op_type, "net.onnx", own=True, alone=alone)


def findings(count: int, *, reproduced: bool = True) -> tuple[Finding, ...]:
    """Findings with everything a finding can have."""
    golden = np.linspace(-1, 1, 64, dtype=np.float32)
    actual = golden.copy()
    actual[[3, 9]] = np.nan, 7.0
    difference = compare_tensors(golden, actual, rtol=1e-3, atol=0.0)
    return tuple(
        Finding(
            TensorKey(f"net/layer_{number}", "output", 0),
            reproduced,
            {} if reproduced else {"max": (1.5, float("nan")), "avg": (0.25, 0.5)},
            difference if number % 2 == 0 else None,
            None if number % 2 == 0 else describe_tensor(actual),
            note="a note on this tensor",
        )
        for number in range(count)
    )


def test_one_text_is_laid_out_where_the_other_is_not_shown(failed: Callable[..., Result]) -> None:
    test = failed(2)
    whole, short = failure_lines(test, details_of(test), verbose=False)
    assert failure_lines(test, details_of(test), verbose=False, spent=True) == (short, short)
    assert whole != short
    assert failure_lines(test, details_of(test), verbose=True) == (text_of(test, verbose=True), [])


def test_a_reference_has_no_head_of_a_table_without_rows(failed: Callable[..., Result]) -> None:
    found = {"good": False, "comparison": failed(2).comparison, "model": SimpleNamespace(name="m.onnx")}
    names = LayerNames.of(found["comparison"], 80)  # type: ignore[arg-type]
    told: Any = SimpleNamespace(**found, compared=2, layers=2, blames=(), remarks=())
    lines = reference_lines(told, 0, brief=True, names=names)
    assert [line for line in lines if "more" in line] == []
    assert not [line for line in lines if "statistic " in line]
    assert len(reference_lines(told, 1, brief=True, names=names)) == len(lines) + 3
    told.remarks = ("a remark",) * 9
    labels = [line.split(":")[0].strip() for line in reference_lines(told, 0, names=names)]
    assert (labels[:2], labels[-3:]) == (["reference", "first"], ["tolerance", "a remark", "a remark"])
    assert reference_lines(told, 0, brief=True, names=names) == lines


def test_a_short_text_counts_all_that_it_leaves_out(
    failed: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    test = failed([f"{TRANSFORMER}_{number}" for number in range(5)])
    test = replace(test, notes=("one", "two"), escalation=Escalation(notes=("three",)))
    reference = ReferenceResult(Path("m.onnx"), test.comparison, layers=5, compared=5)
    for told in (test, replace(test, comparison=None, reference=reference)):
        whole, short = failure_lines(told, details_of(told), verbose=False)
        assert [line for line in short if "report.txt" in line][:2] == [
            "  ... 5 rows in report.txt",
            "notes:      3 in report.txt",
        ]
        assert max(len(line) for line in (*whole, *short) if line[:6] not in {"report", "to acc"}) <= 80
        assert sum("names that start with .../" in line for line in whole) == 1


TRANSFORMER = "/vision_model/encoder/layers.11/self_attn/out_proj/quantized_MatMul"
NORM = "/vision_model/encoder/layers.11/layer_norm2/ReduceMean_of_the_squares"


@pytest.mark.parametrize("columns", [80, 120])
def test_every_line_fits_but_for_paths_and_commands(
    failed: Callable[..., Result], monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    names = [f"{name}_{number}" for number in range(3) for name in (TRANSFORMER, NORM)]
    keys = [TensorKey(name, "output", 0) for name in names]
    wrong, right = Alone("convicted", 0.02, 4.8e-6), Alone("acquitted", 0.0, 4.8e-6)
    operators = operator(names[0], wrong), operator(names[1], right)
    told = replace(findings(1)[0], key=keys[0])
    sources = Sources((Source(keys[1], "", 1, begins=keys[0], share=0.3),), 6, (keys[2],), "m")
    whole = failed(names, sources=sources)
    expected = {"npudump", "first", "source", "golden", "tolerance", "second run", "report", "to accept"}
    for isolated in ((), operators[1:], operators):
        test = replace(whole, escalation=Escalation((told,), tuple(names), isolated=isolated))
        _, short = failure_lines(test, details_of(test), verbose=False)
        for lines in (text_of(test), text_of(test, verbose=True), short):
            free = [line for line in lines if not line.startswith(("report: ", "hand over: ", "to accept: "))]
            assert max(map(len, free)) <= columns, free
            assert ("kernel error" in lines[0]) is (len(isolated) == 2)
            assert [line for line in lines if line.startswith("report: ")]
            assert lines[-1].startswith("to accept: ")
            assert "quantized_MatMul_0:output.0" in lines[0]
        assert not [line for line in short if " 1.5  " in line]
        assert "  ... 6 rows in report.txt" in short
        labels = {line.split(":")[0] for line in short if not line.startswith(" ")}
        assert labels >= expected
        assert ("recomputed" in labels) is bool(isolated)
        assert any(names[0] in line for line in full_lines(test))


def test_an_operator_that_only_the_golden_tells_is_handed_over_where_it_is_out_of_tolerance(
    failed: Callable[..., Result],
) -> None:
    alone = Alone(CONVICTED, 4e-6, 4.8e-7, "the golden matches")
    for name, there in (("net/layer_0", True), ("net/before", False)):
        escalation = Escalation((), (name,), isolated=(operator(name, alone, "Tanh"),))
        lines = text_of(failed(1, escalation=escalation))
        assert lines[0].startswith(f"npudump: {name}:output.0: possible kernel error, ")
        assert any(line.startswith("hand over: ") for line in lines) is there


def test_the_first_line_is_where_the_change_begins(failed: Callable[..., Result]) -> None:
    first, begins = TensorKey("net/layer_0", "output", 0), TensorKey("net/before", "output", 0)
    found = Sources((Source(first, "", 3, begins=begins, share=0.3),), 3, (), "model.onnx")
    test = failed(3, sources=found)
    assert test.comparison is not None
    same = replace(test, comparison=replace(test.comparison, numerics=Numerics("same", {})))
    mismatch = "net/layer_0:output.0 max 1.5, expected 1 (16700x tolerance)"
    assert headline(same) == (
        "npudump: the change is traced to net/before:output.0 (within tolerance, 0.3 of it); first mismatch: "
        f"{mismatch}"
    )
    # By projections or elements alone: no statistic tells how far it is off.
    unseen = replace(same, sources=replace(found, found=(replace(found.found[0], share=0.0),)))
    assert headline(unseen).startswith(
        "npudump: the change is traced to net/before:output.0 (within tolerance); "
    )
    assert not any(line.startswith("traced to: ") for line in text_of(same))
    assert any(line.startswith("traced to: ") for line in text_of(same, verbose=True))
    # Runs of other numerics differ everywhere: where theirs begins is a hint, and no cause.
    other = replace(test, comparison=replace(test.comparison, numerics=Numerics("other", {})))
    assert headline(other) == f"npudump: {mismatch}"
    assert any(line.startswith("traced to:  net/before:output.0 (within") for line in text_of(other))


CHANGED = ModelChange(("m.onnx",), weights=("a", "b"), attributes=("c",), weighted=7, read="all")


REMOVED = "n: removed; first mismatch: net/layer_0:output.0 max 1.5"
REWIRED = "n: connections changed; first mismatch: net/layer_0"
WEIGHTS = "a, b: weights changed (2 of 7 operators with weights); c: attributes changed"
MOVED = "a (axis 1): weight channels permuted (1 of 7 operators with weights); "
GRAPH = "the model's graph changed: connections, types or versions of operators; first mismatch: "


@pytest.mark.each(
    ("models", "first", "line"),
    [
        (
            ModelChange(read="all"),
            "net/layer_0",
            "identical to the golden's; a kernel, the driver or an input differs",
        ),
        (
            ModelChange(("m.onnx",), read="all"),
            "net/layer_0",
            "m.onnx: another file, same weights and attributes",
        ),
        (
            ModelChange(("m.om",), read="weights"),
            "net/layer_0",
            "m.om: another file; no change is known of graph, ",
        ),
        (
            ModelChange(("m.om",)),
            "another model file than the golden's: m.om (operators not compared); ",
            "",
        ),
        (CHANGED, f"{WEIGHTS}; first mismatch: net/layer_0", ""),
        (replace(CHANGED, weights=("a",), permuted={"a": 1}, attributes=()), MOVED, ""),
        (ModelChange(("m.onnx",), operators=("n",), removed=("n",), read="all"), REMOVED, ""),
        (
            ModelChange(
                ("m.onnx",), operators=("n", "o", "p"), removed=("p",), rewired={"q": "n"}, read="all"
            ),
            "p: removed; n, o: added; first mismatch: net/layer_0",
            "",
        ),
        (ModelChange(("m.onnx",), rewired={"n": "n"}, read="all"), REWIRED, ""),
        (ModelChange(("m.onnx",), graph=True, read="all"), GRAPH, ""),
        (None, "net/layer_0", ""),
    ],
)
def test_what_changed_in_the_model_comes_first(
    models: ModelChange | None, first: str, line: str, failed: Callable[..., Result]
) -> None:
    test = replace(failed(2), models=models)
    assert headline(test).startswith(f"npudump: {first}")
    told = [one for one in text_of(test) if one.startswith("model:")]
    assert [one[12:50] for one in told] == ([line[:38]] if line else [])
    assert bool(full_json(test)["model"]) is (models is not None)
    verbose = [one for one in text_of(test, verbose=True) if one.startswith("model:")]
    assert len(verbose) == (models is not None)


def test_a_model_that_is_the_same_accuses_nothing_of_a_tensor_of_another_form(
    failed: Callable[..., Result],
) -> None:
    golden, run = stats_table(["a", "b"], 1.0), stats_table(["b"], 1.0)
    comparison = compare_tables(golden, run, Tolerances())
    test = replace(failed(2), models=ModelChange(read="all"), comparison=comparison)
    assert "model:      identical to the golden's" in text_of(test)


def test_lines_of_code_are_those_of_what_the_first_line_names(failed: Callable[..., Result]) -> None:
    keys = [TensorKey(f"net/layer_{at}", "output", 0) for at in range(4)]
    wrong = JudgedOperator(keys[3], "Relu", "m.onnx", own=True, alone=Alone(CONVICTED, 1.0))
    begins = TensorKey("net/before", "output", 0)
    found = (
        Source(keys[0], "", 1, begins=begins),
        Source(keys[1], "", 1, altered="gone", begins=begins),
        Source(keys[2], "", 1),
        Source(keys[3], "", 1),
    )
    layers = ("net/layer_3", "net/before", "gone", "net/layer_2", "net/layer_0")
    code = {sanitise(layer): f"net.py:{at}" for at, layer in enumerate(layers)}
    code |= {"other": "net.py:9", "net_layer_1": "net.py:8"}
    given = {"sources": Sources(found, 4, (), "m"), "escalation": Escalation(isolated=(wrong,))}
    test = failed(4, code=code, **given)
    told = [line for line in full_lines(test) if line.startswith("code:")]
    assert told == [f"code:       {layer}: net.py:{at}" for at, layer in enumerate(layers)]
    assert [line for line in text_of(failed(99, code=code, **given)) if line.startswith("code:")] == told[:1]


FIRST_OF_MANY = "/vision_model/.../quantized_MatMul_0"
MANY = tuple(f"{TRANSFORMER}_{number}" for number in range(3)) + tuple(f"n{at}" for at in range(40))


@pytest.mark.each(
    ("models", "convicted", "first", "line"),
    [
        (replace(CHANGED, weights=MANY), 0, FIRST_OF_MANY, ": weights changed "),
        (
            replace(CHANGED, weights=MANY, permuted=dict.fromkeys(MANY, 1)),
            0,
            FIRST_OF_MANY,
            " (axis 1)",
        ),
        (ModelChange(("m.onnx",), operators=MANY, removed=MANY, read="all"), 0, FIRST_OF_MANY, ": removed "),
        (None, 9, f"{FIRST_OF_MANY}:output.0: possible kernel error,", ""),
    ],
)
def test_the_first_line_is_two_lines_at_most_whatever_is_known(
    failed: Callable[..., Result],
    monkeypatch: pytest.MonkeyPatch,
    *,
    models: ModelChange | None,
    convicted: int,
    first: str,
    line: str,
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    keys = [TensorKey(name, "output", 0) for name in MANY[:convicted]]
    wrong = Alone(CONVICTED, 2e-5, 4.8e-6)
    isolated = tuple(JudgedOperator(key, "MatMul", "net.onnx", own=True, alone=wrong) for key in keys)
    test = replace(failed([*MANY]), models=models, escalation=Escalation((), MANY, isolated=isolated))
    lines = text_of(test)
    assert lines[0].startswith(f"npudump: {first}")
    at = next(at for at, one in enumerate(lines) if one.startswith(("first:", "source:")))
    assert at <= 2
    rest = next((" ".join(lines[at:]) for at, one in enumerate(lines) if one.startswith("model:")), "")
    assert line in rest
    if models is not None:
        assert "and 40 more" in " ".join(rest.split())
        told = next(one for one in full_lines(test) if one.startswith("model:"))
        assert all(name in told for name in MANY)
    assert all(name in full_lines(test)[0] for name in MANY[:2])


def test_executions_of_an_operator_are_one_source(failed: Callable[..., Result]) -> None:
    wrong = Alone(CONVICTED, 1.0)
    alone = tuple(operator("net/layer_0", wrong, "Relu", step=step) for step in range(3))
    sources = Sources(tuple(Source(one.key, "", 3, fed=True) for one in alone), 3, (), "m")
    lines = text_of(replace(failed(3, sources=sources), escalation=Escalation((), ("a",), isolated=alone)))
    text = " ".join(" ".join(lines).split())
    assert "net/layer_0:output.0: kernel error, relative" in text
    assert "in 3 executions" in text
    assert "#step" not in text
    assert text.count("recomputed: ") == 1
    right = (replace(alone[1], alone=Alone("acquitted", 0.0, 1.0)), alone[2])
    told = text_of(replace(failed(3), escalation=Escalation((), ("a",), isolated=right)), verbose=True)
    assert sum(line.startswith("recomputed: ") for line in told) == 2


def test_an_input_that_is_dumped_with_each_reader_counts_once(failed: Callable[..., Result]) -> None:
    rows = [("x:output.0", 2.0), ("a:output.0", 3.0), ("x#turn=1:output.0", 2.0), ("x#turn=2:output.0", 2.0)]

    def side(by: float, largest: Callable[[str, float], float]) -> StatsTable:
        stats = ((key, {"max": largest(key, value), "min": -1.0, "avg": by}) for key, value in rows)
        table = table_of(*((key, "float32", (4,), told) for key, told in stats))
        return replace(table, op_types=(GRAPH_INPUT, "Relu", GRAPH_INPUT, GRAPH_INPUT))

    golden, actual = (side(by, lambda _, value, by=by: by * value) for by in (1.0, 1.5))
    found = Sources((Source(TensorKey("x", "output", 0), GRAPH_INPUT, 2),), 2, (), "m")
    test = replace(failed(1, sources=found), comparison=compare_tables(golden, actual, Tolerances()))
    lines = full_lines(test)
    assert [line.split()[0] for line in lines if line.startswith("  ")] == ["layer", "x", "a"]
    assert "mismatches: 2 of 4 tensors " in " ".join(lines)
    assert "1 mismatch downstream" in " ".join(lines)
    other = side(2, lambda key, _: len(key))
    test = replace(test, comparison=compare_tables(golden, other, Tolerances()))
    assert "mismatches: 4 of 4 tensors" in " ".join(full_lines(test))


def test_what_stands_for_a_prefix_is_said_before_the_table_and_its_count(
    failed: Callable[..., Result],
) -> None:
    names = [f"/model/encoder/layers.{at}/self_attention/projection/MatMul" for at in range(9)]
    test = failed(names)
    for lines in failure_lines(test, details_of(test), verbose=False):
        (legend,) = (at for at, line in enumerate(lines) if line.startswith("  names that start with .../ "))
        told = (at for at, line in enumerate(lines) if line.startswith("  ..."))
        (rows,) = (at for at in told if " in report.txt" in lines[at])
        rule = next(at for at, line in enumerate(lines) if line.startswith("tolerance:"))
        assert legend < rows < rule
    judged = operator(names[0], Alone("acquitted", 0.0, 1.0))
    assert test.comparison is not None
    few = [name if at < 6 else f"net/n{at}" for at, name in enumerate(names)]
    only = replace(failed(few), escalation=Escalation((), ("a",), isolated=(judged,)))
    failing = only.comparison.failing[6:]
    only = replace(only, comparison=replace(only.comparison, failing=failing, first=failing[0]))
    lines = text_of(only)
    cells = [line.split()[0] for line in lines if line[:2] == "  " != line[1:3]]
    assert cells[:2] == ["names", "layer"]


def test_a_wrong_kernel_and_a_changed_model_are_both_named(failed: Callable[..., Result]) -> None:
    wrong = operator("net/layer_0", Alone(CONVICTED, 1.0), "Relu")
    test = replace(failed(2, escalation=Escalation(isolated=(wrong,))), models=CHANGED)
    assert headline(test).startswith("npudump: net/layer_0:output.0: kernel error,")
    assert headline(test).endswith(f"; {WEIGHTS}")


def sources_of(layers: int) -> Sources:
    """So many sources, the changes of which begin elsewhere, and a tensor that nothing is known of."""
    keys = [TensorKey(f"net/layer_{number}", "output", 0) for number in range(layers)]
    found = tuple(Source(key, "MatMul", 1, begins=keys[0], share=0.5) for key in keys)
    return Sources(found, 10_000, tuple(keys[:2]), "model.onnx")


@pytest.mark.parametrize("sources", [None, sources_of(5)])
@pytest.mark.parametrize("reproduced", [True, False])
def test_ten_thousand_failing_layers_with_everything_else_stay_within_forty_lines(
    failed: Callable[..., Result],
    reproduced: bool,  # noqa: FBT001 - a parameter
    sources: Sources | None,
) -> None:
    escalation = Escalation(
        findings(500, reproduced=reproduced),
        tuple(f"net/layer_{number}" for number in range(10_000)),
        notes=tuple(f"note {number} on the second run" for number in range(50)),
    )
    test = failed(
        10_000,
        escalation=escalation,
        problems=tuple(f"unreadable file number {number}" for number in range(1000)),
        notes=tuple(f"note number {number}" for number in range(1000)),
        sources=sources,
    )
    assert test.comparison is not None
    numerics = Numerics("other", {"soc": ("Ascend910B3", "Ascend310P3")})
    compared = replace(test.comparison, numerics=numerics)
    test = replace(test, comparison=compared)
    lines = text_of(test)
    assert len(lines) <= LINES
    assert any(line.startswith("inputs: ") for line in lines) is (sources is not None)
    assert sum(line.startswith("  net/layer_") and " max" in line for line in lines) >= 2
    text = "\n".join(lines)
    assert "mismatches: 10000 of 10000 tensors" in text
    assert "more" in text
    assert "also:       ... and 998 more" in text
    assert "note:       ... and 998 more" in text
    assert ("second run: reproduced; 10000 layers dumped as tensors" in text) is reproduced
    assert "preset:     other: soc Ascend910B3 -> Ascend310P3" in text
    assert lines[-1] == "to accept:  pytest --npudump-update-golden test_a.py::test_b"


def test_lines_are_cut_but_not_those_to_be_copied(failed: Callable[..., Result]) -> None:
    test = failed(["n" * 5000, "m" * 5000], problems=("p" * 9000,))
    name = "test_a.py::test_b[" + "x" * 2000 + "]"
    test = replace(test, origin=replace(test.origin, arguments=(name,)))
    lines = text_of(test)
    assert max(map(len, lines[:-2])) <= 500
    assert lines[-1] == f"to accept:  pytest --npudump-update-golden {shlex.quote(name)}"
    assert max(map(len, full_lines(test))) >= 9000


def test_verbose_and_the_file_have_everything(
    failed: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "500")
    test = failed(200, escalation=Escalation(findings(40), ("a",)), notes=tuple(map(str, range(30))))
    verbose, full = text_of(test, verbose=True), full_lines(test)
    for number in range(200):
        assert any(line.startswith(f"  net/layer_{number} ") for line in verbose)
    assert sum("a note on this tensor" in line for line in verbose) == 40
    assert sum(line.startswith("note: ") for line in verbose) == 30
    assert [line for line in verbose if not line.startswith("report:")] == full


def test_of_a_million_rows_the_text_has_the_first_and_json_all(
    failed: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terminal, "MOST_ROWS", 20)
    test = failed(25)
    for lines in (text_of(test, verbose=True), full_lines(test)):
        assert sum(line.startswith("  net/layer_") for line in lines) == 20
        assert "  ... 5 more in report.json" in lines
    assert len(full_json(test)["comparison"]["verdicts"]) == 25


def test_names_from_a_dump_cannot_steer_the_terminal_or_break_lines(failed: Callable[..., Result]) -> None:
    test = failed(["a\x1b]0;owned\x07\nFAKE: all passed", "b\udc80"])
    for lines in (text_of(test), text_of(test, verbose=True), full_lines(test)):
        assert all(line.isprintable() for line in lines)
        assert not any(line.startswith("FAKE") for line in lines)
        "\n".join(lines).encode("utf-8")


def test_tensors_that_did_not_reproduce_come_first(failed: Callable[..., Result]) -> None:
    mixed = findings(3) + tuple(
        replace(f, key=TensorKey("odd", "output", 0), now=WITHIN) for f in findings(1, reproduced=False)
    )
    lines = text_of(failed(4, escalation=Escalation(mixed, ("a", "b"))))
    start = next(i for i, line in enumerate(lines) if line.startswith("second run: "))
    assert lines[start] == ("second run: NOT REPRODUCED in 1 of 4 tensors: 1 within tolerance of the golden;")
    assert lines[start + 2 : start + 4] == [
        "elements:   odd:output.0: first and second run differ: max 1.5, then nan, avg",
        "            0.25, then 0.5",
    ]


def test_inputs_that_differ_in_each_run_are_told_with_the_way_out(failed: Callable[..., Result]) -> None:
    other = tuple(replace(one, reproduced=False) for one in findings(2))
    told = text_of(failed(2, escalation=Escalation(other, ("a",), fed=("image",))))
    text = " ".join(" ".join(told).split())
    assert "inputs: the test feeds its model other values in each run: image; give these a seed" in text
    assert "to accept: give the inputs a seed then: pytest --npudump-update-golden" in text


def test_worst_element_and_special_values_are_told_with_their_places(failed: Callable[..., Result]) -> None:
    test = failed(1, escalation=Escalation(findings(2), ("a",)))
    text = " ".join(" ".join(text_of(test)).split())
    assert (
        "elements: net/layer_0:output.0: 2 of 64 out of tolerance of the golden tensor; worst at [3]" in text
    )
    assert "NaN or Inf differ: golden has 0 NaN" in text
    full = "\n".join(full_lines(test))
    assert "tolerance of the golden tensor; max abs error " in full
    assert "1 NaN, first at [3]" in full
    assert "max 7 at [9]" in full


def test_what_came_to_nothing_or_could_not_be_written_is_told(
    failed: Callable[..., Result], tmp_path: Path
) -> None:
    lines = text_of(failed(1, escalation=Escalation(problem="not run: too large")))
    assert "second run: not run: too large" in lines
    test = failed([], status=status.RECORDED, escalation=Escalation(problem="the tensors were not written"))
    assert headline(test) == "npudump: the tensors were not written"
    problem = "the report files could not be written: disk full"
    details = ReportFiles(tmp_path / "a", tmp_path / "b", problem)
    lines, _ = failure_lines(failed(1), details, verbose=False)
    assert problem in lines
    assert not any(line.startswith("report:") for line in lines)
    lines = text_of(failed([], status=status.ERROR, problems=("the dump is empty: x", "and y")))
    assert lines[:2] == ["npudump: the dump is empty: x", "also:       and y"]
    assert not any("--npudump-update-golden" in line for line in lines)


def test_missing_golden_names_the_command_that_creates_it(failed: Callable[..., Result]) -> None:
    test = failed([], status=status.MISSING_GOLDEN, problems=("no golden file g.yaml",))
    lines = text_of(test)
    assert lines[0] == "npudump: no golden file g.yaml"
    assert lines[-1] == "to create:  pytest --npudump-update-golden test_a.py::test_b"
    problems = (*test.problems, "layer 'x', named in the marker, is not in the dump")
    lines = text_of(failed([], status=status.MISSING_GOLDEN, problems=problems))
    assert lines[1] == f"also:       {problems[1]}"
    assert not any("to create" in line for line in lines)
