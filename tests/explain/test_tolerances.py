"""Tolerances against a reference: the vendor's for a network, the coarsest type's, the user's."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_npudump.compare.stats.tables import compare_tables
from pytest_npudump.compare.tolerances.rules import (
    check_reference,
    load_tolerances,
    reference_tolerances,
    tolerances_for,
)
from pytest_npudump.compare.tolerances.tolerance import Rule, Tolerances
from pytest_npudump.errors import RequestError
from pytest_npudump.explain.reference import ReferenceResult
from pytest_npudump.request import DumpRequest
from tests.conftest import table_of

RULE = {"layer": "conv*", "rtol": 0.2, "atol": 0, "reason": "winograd", "against": "reference"}


def request(**marker: Any) -> DumpRequest:
    return DumpRequest(reference="m.onnx", **marker)


def rtol(
    request: DumpRequest, dtype: str, *others: str, layer: str = "conv", file: Path | None = None
) -> float:
    return reference_tolerances(request, file).among([dtype, *others]).decide(layer, dtype, "max").rtol


def test_coarsest_type_of_the_dump_decides() -> None:
    for dtype, others, expected in (
        ("float32", (), 1e-3),
        ("float16", (), 0.05),
        ("bfloat16", ("int32",), 0.05),
        ("float32", ("float16",), 0.05),
        ("float32", ("int8", "bool"), 1e-3),
        ("float64", ("float32",), 1e-3),
        ("float16", ("float8_e5m2",), 0.25),
        ("int32", ("float16",), 0.0),
        ("bool", ("float16",), 0.0),
    ):
        assert rtol(request(), dtype, *others) == expected, (dtype, others)
    rule = reference_tolerances(request(), None).among(["float32", "float16"]).decide("a", "float32", "max")
    assert "preset om-net for float16, which the model computes in" in rule.describe()


def test_marker_has_the_last_word(tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text(
        "rules:\n"
        "- {layer: 'conv*', dtype: float16, rtol: 1.0e-2, atol: 0, against: reference}\n"
        "- {layer: 'conv*', dtype: float16, rtol: 7.0e-4, atol: 0}\n"
    )
    assert rtol(request(), "float16", file=file) == 1e-2
    assert rtol(request(), "float16", layer="relu", file=file) == 0.05
    assert rtol(request(rtol=3e-2), "float16", file=file) == 3e-2
    assert rtol(request(rtol=3e-2, tolerances=(RULE,)), "float16", file=file) == 0.2
    assert rtol(request(rtol=3e-2, tolerances=(RULE,)), "float16", layer="relu", file=file) == 3e-2
    assert rtol(request(preset="torch"), "float16") == 1e-3


def test_rules_against_the_reference_never_loosen_a_golden_and_others_are_about_goldens(
    tmp_path: Path,
) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text("rules:\n- {layer: 'conv*', rtol: 0.5, atol: 0, reason: x, against: reference}\n")
    settings: Any = SimpleNamespace(tolerances=file.name, preset="")
    golden = tolerances_for(request(tolerances=(RULE,)), settings, tmp_path)
    assert golden.decide("conv", "float32", "max").rtol == 2e-5
    assert load_tolerances(file).rules == ()
    plain = {key: value for key, value in RULE.items() if key != "against"}
    assert rtol(request(tolerances=(plain,)), "float16") == 0.05


def test_bad_tolerances_are_refused() -> None:
    cases: tuple[tuple[dict[str, Any], str], ...] = (
        ({"tolerances": ({**RULE, "reason": ""},)}, "rule 1 allows more than the preset 'om-net'"),
        ({"tolerances": ({**RULE, "against": "om"},)}, "against is 'om', expected one of golden, reference"),
        ({"tolerances": ({**RULE, "rtol": -1},)}, "rtol is -1"),
        ({"preset": "nope"}, "unknown tolerance preset 'nope'"),
    )
    for marker, message in cases:
        with pytest.raises(RequestError, match=message):
            check_reference(request(**marker))
    with pytest.raises(RequestError, match="a rule with against='reference' needs reference"):
        check_reference(DumpRequest(tolerances=(RULE,)))  # which there is none of


def test_rules_by_operator_and_producer_are_about_references_too() -> None:
    rule = {**RULE, "op_type": "Conv*", "producer": {"soc": "Ascend310P*"}}
    given = reference_tolerances(request(tolerances=(rule,)), None)

    def decided(soc: str, op_type: str) -> float:
        tolerances = given.for_run({"soc": soc}).among(["float32"])
        return tolerances.decide("conv", "float32", "max", op_type=op_type).rtol

    assert decided("Ascend310P3", "Conv2D") == 0.2
    assert decided("Ascend310P3", "Relu") == decided("Ascend910B3", "Conv2D") == 1e-3
    assert given.for_run({}).rules == ()


ONE: dict[str, float | None] = {"max": 4.0, "min": -2.0, "avg": 0.5, "l2norm": 8.0, "nan": 0}


@pytest.mark.each(
    ("changed", "shape", "needed"),
    [
        ({"max": 4.4}, (4, 4), 0.1),
        ({"l2norm": 16.0, "min": -2.1}, (4, 4), 1.0),
        ({"nan": 1}, (4, 4), None),
        ({"max": 4.4}, (4, 5), None),
    ],
    ids=["an extreme", "the largest of two", "a count", "a shape"],
)
def test_a_layer_passes_with_the_tolerance_that_it_is_said_to_need_and_with_little_less_it_does_not(
    changed: dict[str, float | None], shape: tuple[int, ...], needed: float | None
) -> None:
    same = ("same:output.0", "float32", (4, 4), ONE)
    golden = table_of(same, ("other:output.0", "float32", (4, 4), ONE))
    run = table_of(same, ("other:output.0", "float32", shape, ONE | changed))
    found = compare_tables(golden, run, Tolerances())
    rtols, beyond = ReferenceResult(Path("m.onnx"), found).accepting
    assert [*rtols] == ["other"]
    assert [key.layer for key in beyond] == ["other"] * (needed is None)
    if needed is not None:
        assert rtols["other"] == pytest.approx(1.1 * needed)
        for share, failing in ((1.0, 0), (0.9, 1)):
            rule = Rule(share * rtols["other"], 0.0, layer="other")
            assert len(compare_tables(golden, run, Tolerances(rules=(rule,))).failing) == failing


def test_a_reference_that_nothing_was_compared_with_needs_no_tolerance() -> None:
    assert ReferenceResult(Path("m.onnx")).accepting == ({}, [])
