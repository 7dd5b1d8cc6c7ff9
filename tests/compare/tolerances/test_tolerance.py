from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytest_npudump.compare.tolerances.presets import PRESETS, bound
from pytest_npudump.compare.tolerances.tolerance import Rule, Tolerances
from pytest_npudump.dump.dtypes import ALL
from pytest_npudump.dump.records import Stats, TensorKey, TensorRecord
from pytest_npudump.dump.table import StatsTable
from pytest_npudump.errors import RequestError
from pytest_npudump.record.noise import Calibrated
from tests.conftest import real_table, table_of

EXACT = "exact"


def rule(**given: Any) -> Any:
    return Rule(**{"rtol": 0.5, "atol": 0.25, "source": "marker"} | given)


@pytest.mark.each("preset", PRESETS)
def test_every_float_type_has_a_bound_in_every_preset_and_exact_types_and_counts_none(preset: str) -> None:
    missing = [d.name for d in ALL if d.kind in {"float", "complex"} and d.name not in PRESETS[preset]]
    assert missing == []
    for dtype in (*(d.name for d in ALL if d.exact), "-", "unheard-of"):
        assert bound(preset, dtype, "max") == (0, 0), dtype
    assert bound(preset, "float32", "nan") == (0, 0)


SAME = ((2e-5, 2.0**-30), (1e-3, 2.0**-20), (8e-3, 2.0**-20))
PUBLISHED = {
    "default": SAME,
    "same": SAME,
    "other": ((2e-5, 2.0**-22), (1.2e-2, 2.0**-20), (0.14, 2.0**-20)),
    "hf32": ((1.2e-2, 2.0**-22), (1.2e-2, 2.0**-20), (0.14, 2.0**-20)),
    "exact": ((0.0, 0.0),) * 3,
    "torch": ((1.3e-6, 1e-5), (1e-3, 1e-5), (1.6e-2, 1e-5)),
    "ascend-abs": ((2.0**-20, 2.0**-30), (2.0**-10, 2.0**-16), (2.0**-8, 2.0**-16)),
    "ascend-accum": ((2.0**-11, 0.0), (2.0**-8, 0.0), (2.0**-7, 0.0)),
    "atb-opcheck": ((2.0**-20, 0.0), (2.0**-10, 0.0), (2.0**-8, 0.0)),
    "torch-npu": ((1e-4, 1e-4), (1e-3, 1e-3), (1e-3, 1e-3)),
    "om-net": ((1e-3, 2.0**-30), (0.05, 2.0**-20), (0.05, 2.0**-20)),
    "polygraphy": ((1e-5, 1e-5),) * 3,
}
DTYPES = ("float32", "float16", "bfloat16")


def test_published_numbers() -> None:
    assert {name: tuple(bound(name, dtype, "max") for dtype in DTYPES) for name in PRESETS} == PUBLISHED


NOWHERE_ELSE = {
    "float64": (1e-7, 2.0**-60),
    "complex128": (1e-7, 2.0**-60),
    "complex64": (2e-5, 2.0**-30),
    "complex32": (1e-3, 2.0**-20),
    "float8_e4m3fn": (0.125, 0.0),
    "float8_e5m2": (0.25, 0.0),
    "float6_e2m3fn": (0.125, 0.0),
    "float6_e3m2fn": (0.25, 0.0),
    "float4_e2m1fn": (0.5, 0.0),
    "float4_e1m2fn": (0.25, 0.0),
    "hifloat8": (0.25, 0.0),
    "hifloat4": (0.25, 0.0),
    "float8_e8m0fnu": (0.0, 0.0),
}
"""Bounds of the types that the published table does not have, in presets that say nothing of them."""

OWN = {
    "torch": {
        **dict.fromkeys(("float64", "complex128"), (1e-7, 1e-7)),
        "complex64": (1.3e-6, 1e-5),
        "complex32": (1e-3, 1e-5),
    },
    "other": {"complex64": (2e-5, 2.0**-22), "complex32": (1.2e-2, 2.0**-20)},
    "hf32": {"complex64": (1.2e-2, 2.0**-22), "complex32": (1.2e-2, 2.0**-20)},
    "om-net": {"complex64": (1e-3, 2.0**-30), "complex32": (0.05, 2.0**-20)},
    "exact": dict.fromkeys(NOWHERE_ELSE, (0.0, 0.0)),
}


@pytest.mark.each("preset", PRESETS)
def test_bounds_of_the_types_that_the_published_table_does_not_have(preset: str) -> None:
    expected = NOWHERE_ELSE | OWN.get(preset, {})
    assert {dtype: bound(preset, dtype, "max") for dtype in expected} == expected
    published = {"float32", "float16", "bfloat16"}
    assert expected.keys() | published == {d.name for d in ALL if d.kind in {"float", "complex"}}


@pytest.mark.each("dtype", ["float8_e4m3fn", "float8_e5m2", "float16", "bfloat16"])
def test_the_default_is_about_one_step_of_the_format(dtype: str) -> None:
    import ml_dtypes

    assert bound("default", dtype, "max")[0] == pytest.approx(float(ml_dtypes.finfo(dtype).eps), rel=0.03)


FINE, COARSE = (6e-3, 1.5e-2, 1.5e-2), (6e-2, 0.1, 0.15)
FINER = {
    "same": ((5e-6, 1e-5, 1.5e-5), (1e-3,) * 3, (8e-3,) * 3),
    "other": ((5e-6, 1e-5, 1.5e-5), FINE, COARSE),
    "hf32": ((1e-2, 1e-2, 1.5e-2), FINE, COARSE),
    "torch": ((1.3e-6,) * 3, (1e-3,) * 3, (1.6e-2,) * 3),
}


@pytest.mark.each("preset", FINER)
def test_statistics_in_which_rounding_averages_out_have_bounds_of_their_own(preset: str) -> None:
    for dtype, expected in zip(DTYPES, FINER[preset], strict=True):
        assert tuple(bound(preset, dtype, name)[0] for name in ("avg", "l2norm", "projections")) == expected


def test_the_default_gives_way_to_what_fits_and_a_named_preset_does_not() -> None:
    for bounds in ("same", "other", "hf32"):
        assert Tolerances().under(bounds).preset == bounds
        assert Tolerances("torch").under(bounds).preset == "torch"
    with pytest.raises(RequestError, match=r"unknown tolerance preset 'lax', expected one of default"):
        Tolerances("lax")
    # Coarse formats have tighter means.
    assert bound("default", "float8_e4m3fn", "avg")[0] < bound("default", "float8_e4m3fn", "max")[0]
    assert bound("default", "float16", "avg") == bound("default", "float16", "max")


CONV = (rule(rtol=0.1), rule(layer="conv*", rtol=0.2, atol=0), rule(dtype="int8"))
BLOCK = (rule(layer="block/*", op_type="Conv*"),)


@pytest.mark.each(
    ("rules", "asked", "expected"),
    [
        # the last matching rule decides alone; what none covers falls to the preset
        (CONV, ("conv1", "float16", "max"), (0.2, 0, "marker")),
        (CONV, ("fc", "float16", "max"), (0.1, 0.25, "marker")),
        ((rule(layer="conv*"),), ("fc", "float16", "max"), (1e-3, 2.0**-20, "preset default")),
        # a type of integers has to be named, and a count
        *(
            ((rule(dtype=dtype),), ("a", exact, "max"), (0, 0, EXACT))
            for dtype in ("*", "*16", "?nt8", "[iu]nt8")
            for exact in ("int8", "int16", "uint16", "bool", "-")
        ),
        *(((rule(dtype=dtype),), ("a", "int8", "max"), (0.5, 0.25, "marker")) for dtype in ("int8", "int*")),
        ((rule(),), ("a", "float16", "nan"), (0, 0, EXACT)),
        ((rule(statistic="nan"),), ("a", "float16", "nan"), (0.5, 0.25, "marker")),
        # layer and operator must both match
        (BLOCK, ("block/a", "float32", "max", "", "Conv2D"), (0.5, 0.25, "marker")),
        *(
            (BLOCK, (layer, "float32", "max", "", op_type), (2e-5, 2.0**-30, "preset default"))
            for layer, op_type in (("block/a", "Relu"), ("other", "Conv2D"), ("other", "Relu"))
        ),
    ],
)
def test_which_rule_decides(rules: Any, asked: Any, expected: Any) -> None:
    found = Tolerances(rules=rules).decide(*asked)
    assert (found.rtol, found.atol, found.source) == expected


@pytest.mark.each(
    ("pattern", "layer", "reached"),
    [
        ("*", "anything", True),
        ("conv1", "conv1", True),
        ("conv1", "Conv1", False),
        ("conv*", "conv1", True),
        ("net/conv.1", "net_conv_1", True),
        ("net/*", "net_conv_1", True),
        ("net_conv_1", "net/conv.1", True),
        ("net/conv.1", "net.conv/1", False),
        ("a[0]", "a[0]", True),
        ("a[0]", "a0", False),  # an index, and no choice of one character
        ("a[0]*", "a0b", False),
        ("a[0]*", "a[0]b", True),
        ("a[01]", "a0", True),
        ("a[0]/b", "a[0]_b", True),
        ("conv", "conv1", False),
    ],
)
def test_layers_are_reached_raw_or_sanitised(pattern: str, layer: str, reached: object) -> None:
    assert rule(layer=pattern).reaches(layer) is reached


def test_rules_that_match_nothing_are_told() -> None:
    table = table_of(("conv1:output.0", "float16", (1,), {"max": 1.0, "avg": 1.0, "nan": 0}))
    wrong = rule(layer="cnov*"), rule(dtype="int8"), rule(layer="conv1", dtype="float32")
    right = rule(layer="con*"), rule(statistic="nan"), rule(layer="conv1", dtype="float16", statistic="avg")
    assert Tolerances(rules=(*wrong, *right)).unmatched(table) == wrong
    other = table_of(("x:output.0", "int8", (1,), {"max": 1}))
    assert Tolerances(rules=(*wrong, *right)).unmatched(table, other) == (wrong[0], wrong[2])


def test_a_rule_for_a_statistic_is_about_the_tensors_that_have_it() -> None:
    three = table_of(("a:output.0", "float32", (1,), {"max": 1.0, "min": 1.0, "avg": 1.0}))
    four = table_of(
        ("a:output.0", "float32", (1,), {"max": 1.0}),
        ("b:output.0", "float32", (1,), {"max": 1.0, "l2norm": 1.0}),
    )
    wrong = (
        *(rule(statistic="l2norm"), rule(statistic="projections"), rule(statistic="nan")),
        *(rule(layer="a", statistic="l2norm"), rule(dtype="float16", statistic="max")),
    )
    right = rule(statistic="max"), rule(statistic="avg"), rule(), rule(layer="a", dtype="float32")
    assert Tolerances(rules=(*right, *wrong)).unmatched(three) == wrong
    assert Tolerances(rules=(*right, *wrong)).unmatched(three, four) == wrong[1:]
    projected = three.with_projections({0: [1.0] * 8})
    assert Tolerances(rules=wrong).unmatched(projected, four) == wrong[2:]
    mean = table_of(("a:output.0", "float32", (1,), {"avg": 1.0}))
    assert Tolerances(rules=right).unmatched(mean) == right[:1]


@pytest.mark.each(("digest", "known"), [("md5:0", True), ("md5:0", False), ("", False)])
def test_a_rule_for_max_is_about_tensors_of_hashes_and_elements_too(digest: str, *, known: bool) -> None:
    told = Stats(l2norm=1.0) if known else Stats()
    key = TensorKey("a", "output", 0)
    record = TensorRecord(key, "", "bfloat16", (1,), Path("d"), stats=told, digest=digest)
    rules = rule(statistic="max"), rule(statistic="min")
    assert Tolerances(rules=rules).unmatched(StatsTable.from_records([record])) == rules[1:]


def test_what_was_measured_of_one_tensor_widens_no_other() -> None:
    measured = Calibrated.of(("a:output.0",), ("1e-2,-,-,-",), factor=5)
    preset = Tolerances("same")
    tolerances = preset.with_measured(measured)
    assert tolerances.decide("a", "float32", "max", "a:output.0").rtol == 0.05
    for layer, statistic in (("b", "max"), ("a", "min")):
        of = layer, "float32", statistic
        assert tolerances.decide(*of, f"{layer}:output.0") == preset.decide(*of)
    assert tolerances.elements("b", "float32", "b:output.0") == preset.elements("b", "float32")


def test_elements_have_the_bound_of_extremes_and_a_rule_describes_itself() -> None:
    tolerances = Tolerances(rules=(rule(layer="conv*", statistic="avg"),))
    assert tolerances.elements("conv1", "float32") == (2e-5, 2.0**-30)
    assert tolerances.extended([rule(layer="conv*")]).elements("conv1", "float32") == (0.5, 0.25)
    text = rule(layer="attn*", statistic="max", one_sided="above", reason="softmax is noisy").describe()
    assert text == "rtol=0.5 atol=0.25 layer=attn* statistic=max one_sided=above (marker: softmax is noisy)"


@pytest.mark.each(
    ("glob", "op_type", "expected"),
    [
        ("MatMulV2", "MatMulV2", True),
        ("MatMul*", "MatMulV2", True),
        ("matmul*", "MatMulV2", False),
        ("QKVParallelLinear", "QKVParallelLinear[tp=2:256+64+64]", True),
        ("QKV", "QKVParallelLinear[tp=2:256+64+64]", False),
        ("MatMul", "MatMulV2", False),
        ("[CM]*", "Conv2D", True),
        ("*", "Conv2D", True),
        ("*", "", True),
        ("MatMul*", "", False),
        ("?*", "", False),
        ("**", "", False),
    ],
)
def test_a_rule_reaches_operators_of_its_type_and_unknown_ones_by_a_star_alone(
    glob: str, op_type: str, *, expected: bool
) -> None:
    own = rule(op_type=glob)
    tolerances = Tolerances(rules=(own,))
    assert (tolerances.decide("a", "float32", "max", op_type=op_type) is own) is expected
    assert (tolerances.element_rule("a", "float32", op_type=op_type) is own) is expected
    assert (tolerances.elements("a", "float32", op_type=op_type) == (0.5, 0.25)) is expected


def test_a_rule_for_an_operator_that_nothing_is_matches_nothing() -> None:
    table = real_table("golden")
    known = table.op_types[0]
    rules = rule(op_type=known), rule(op_type=known.lower()), rule(op_type="*"), rule(op_type="Cnov2D")
    assert Tolerances(rules=rules).unmatched(table) == (rules[1], rules[3])
    # Types are asked for only where a rule names them.
    assert not Tolerances(rules=(rule(layer="a", dtype="float16"),)).names_op_types
    assert Tolerances(rules=(rule(), rule(op_type="Conv2D"))).names_op_types
