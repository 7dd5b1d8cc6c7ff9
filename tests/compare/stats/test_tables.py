"""Statistics against statistics: what fails, what has changed, and by which rule."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from pytest_npudump.compare.stats.allowances import allowances, shares_of_allowed
from pytest_npudump.compare.stats.tables import compare_tables
from pytest_npudump.compare.stats.verdict import Comparison, explain_first
from pytest_npudump.compare.tolerances.tolerance import Rule, Tolerances
from pytest_npudump.dump.records import SUMMED, Stats, TensorKey, TensorRecord
from pytest_npudump.dump.stats.projections import project
from pytest_npudump.dump.stats.tensor import tensor_stats
from pytest_npudump.dump.table import PROJECTIONS, StatsTable, layer_of
from tests.conftest import real_table, table_of

Make = Callable[..., StatsTable]
NAN, INF = math.nan, math.inf
KEY = "conv1:output.0"
COUNTS = ("nan", "neg_inf", "pos_inf")
GOOD = {"count": 2, "max": 4.0, "min": -8.0, "avg": 0.5, "nan": 0, "neg_inf": 0, "pos_inf": 0}


def judge(
    golden: Any,
    actual: Any,
    *,
    dtype: str = "float16",
    rules: Any = (),
    preset: str = "default",
    shape: Any = (2,),
) -> Any:
    """Compare one tensor with one; gives the comparison."""
    tables = [table_of((KEY, dtype, shape, stats)) for stats in (golden, actual)]
    return compare_tables(*tables, Tolerances(preset, tuple(rules)))


def failed(comparison: Comparison) -> Any:
    return [reason.statistic for verdict in comparison.failing for reason in verdict.reasons]


def test_in_a_real_model_a_regression_and_a_nan_are_found_where_they_were_made() -> None:
    golden = real_table("golden")
    comparison = compare_tables(golden, real_table("golden"), Tolerances("exact"))
    assert (comparison.ok, comparison.first, comparison.notes) == (True, None, ())
    assert (comparison.expected, comparison.compared, comparison.passed) == (551, 551, 551)
    comparison = compare_tables(golden, real_table("regressed"), Tolerances())
    assert (str(comparison.first.key), comparison.first.op_type) == ("net_Conv@21:output.0", "Conv")
    assert comparison.origin == "layer"
    assert "the statistics of its inputs match" in explain_first(comparison)
    order = [golden.keys.index(str(verdict.key)) for verdict in comparison.failing]
    assert order == sorted(order)
    first = compare_tables(golden, real_table("nan"), Tolerances()).first
    assert str(first.key) == "net_Conv@21:output.0"
    assert [reason.statistic for reason in first.reasons] == ["max", "min", "avg", "nan"]


def test_every_tensor_that_differs_in_text_fails_under_exact() -> None:
    golden, actual = real_table("golden"), real_table("regressed")
    differing = {
        key
        for row, key in enumerate(golden.keys)
        if any(golden.value(row, column) != actual.value(row, column) for column in (0, 1, 2, 4, 5, 6))
    }
    comparison = compare_tables(golden, actual, Tolerances("exact"))
    assert {str(verdict.key) for verdict in comparison.failing} == differing
    assert len(differing) == 327


def printed(**values: Any) -> Any:
    return GOOD | {"digits": 6} | values


EXACT, ANYTHING, WIDE = {"preset": "exact"}, {"rules": [Rule(1e9, 1e9)]}, {"dtype": "int64"}
NORM = GOOD | {"l2norm": 1000.0}
INFINITE = GOOD | {"max": INF, "avg": INF, "pos_inf": 1}
MEAN = {"max": 100, "min": 0, "avg": 100 / 3}
WHOLE = {"max": 127, "min": -5, "avg": 41.6667, "digits": 6}
BARE = {"max": None, "min": None, "avg": None}
ADDED_UP = GOOD | {"digits": SUMMED}
SMALL = {"count": 100, "max": 0.4, "min": -0.4, "avg": 0.01, "l2norm": 0.5}
MASKED = {"count": 120, "max": 2.01, "min": -1e9, "avg": -2.5e8, "l2norm": 5.4772e9}
LOG = GOOD | {"max": -1e-8, "min": -30.0}
FLOAT32 = {"dtype": "float32", "preset": "same"}
JUDGED: list[tuple[Any, Any, Any, list[str]]] = [
    # the golden, the run, by what, and the statistics that fail
    (GOOD, GOOD | {"avg": 0.5 + 8e-3}, {}, []),  # by the tensor's magnitude
    (GOOD, GOOD | {"avg": 0.5 + 8.1e-3}, {}, ["avg"]),
    (GOOD, GOOD | {"max": 8.0, "min": -4.0, "avg": -0.5}, {}, ["max", "min", "avg"]),
    (NORM, NORM | {"l2norm": 1001.0}, {}, []),  # by its own magnitude
    (NORM, NORM | {"l2norm": 1001.1}, {}, ["l2norm"]),
    (SMALL, SMALL | {"avg": 0.0101}, {}, ["avg"]),  # by its root mean square, here 0.05
    (SMALL, SMALL | {"avg": 0.01004}, {}, []),
    *(
        (MASKED | {"min": mask}, MASKED | {"min": mask, "max": found}, given, failing)
        for mask, given in (
            (-1e9, FLOAT32),
            (float(np.finfo(np.float32).min), FLOAT32),
            (-65504.0, {}),
        )
        for found, failing in ((2.01 * (1 + 1e-5), []), (7.01, ["max"]), (1.005, ["max"]), (2.2, ["max"]))
    ),
    (MASKED, MASKED | {"min": -1e9 - 6400}, FLOAT32, []),  # the mask by its own magnitude
    (MASKED | {"max": 1e9, "min": 0.0}, MASKED | {"max": 1e9, "min": 0.1}, FLOAT32, ["min"]),
    (LOG, LOG | {"max": 0.0}, FLOAT32, []),  # no mask, but noise of what cancelled
    (INFINITE, INFINITE, {}, []),
    (INFINITE, INFINITE | {"min": -8.1}, {}, ["min"]),  # an infinity widens nothing
    ({"avg": 0.5}, {"avg": 0.5004}, {}, []),  # without extremes by itself
    ({"avg": 0.5}, {"avg": 0.51}, {}, ["avg"]),
    *((GOOD, GOOD | {name: 1}, ANYTHING, [name]) for name in COUNTS),
    *((GOOD, GOOD | {name: 1}, {"rules": [Rule(0, 1, statistic=name)]}, []) for name in COUNTS),
    (
        GOOD | {"max": 1.7e308},
        GOOD | {"max": -1.7e308},
        {"dtype": "float64", "rules": [Rule(1e10, 1e308)]},
        ["max"],
    ),
    *(
        ({"max": golden, "min": 0, "avg": 0.0}, {"max": actual, "min": 0, "avg": 0.0}, given, failing)
        for dtype, golden, actual in (
            ("int32", 1000000, 1000001),
            ("bool", 1, 0),
            ("uint64", 2**64 - 1, 2**64 - 2),
            ("int64", 2**53, 2**53 + 1),
            ("int64", -(2**63), -(2**63) + 1),
            ("-", 5, 6),
        )
        for given, failing in (
            (ANYTHING | {"dtype": dtype}, ["max"]),
            ({"dtype": dtype, "rules": [Rule(0, 1, dtype=dtype)]}, []),
        )
    ),
    ({"max": 2**63 - 1}, {"max": NAN}, WIDE, ["max"]),
    ({"max": INF}, {"max": 2**63 - 1}, WIDE, ["max"]),
    (MEAN, MEAN | {"avg": math.nextafter(100 / 3, 0)}, {"dtype": "int8"}, []),
    (MEAN, MEAN | {"avg": 100 / 3 + 1e-9}, {"dtype": "int8"}, ["avg"]),
    (printed(avg=0.666667), GOOD | {"avg": 2 / 3}, EXACT, []),  # six digits are what rounds to them
    (GOOD | {"avg": 2 / 3}, printed(avg=0.666667), EXACT, []),
    (printed(avg=0.666667), GOOD | {"avg": 0.6666676}, EXACT, ["avg"]),
    (printed(avg=0.666667), printed(avg=0.666667), EXACT, []),
    (printed(avg=0.666667), printed(avg=0.666668), EXACT, ["avg"]),
    (printed(avg=1.0), GOOD | {"avg": 1.000004}, EXACT, []),
    (printed(avg=1.0), GOOD | {"avg": 1.000006}, EXACT, ["avg"]),
    (printed(avg=0.0), GOOD | {"avg": 1e-9}, EXACT, ["avg"]),
    (printed(avg=0.7, digits=1), GOOD | {"avg": 2 / 3}, EXACT, []),
    (printed(avg=0.7, digits=1), GOOD | {"avg": 0.76}, EXACT, ["avg"]),
    (printed(min=-1.92188), GOOD | {"min": -1.921875}, EXACT, []),  # half way between two texts
    (printed(min=-1.92188), GOOD | {"min": -1.9218749}, EXACT, ["min"]),
    (printed(avg=1.0), printed(avg=1.00001), {"rules": [Rule(0, 1e-6)]}, []),  # wider by a digit
    (printed(avg=1.0), printed(avg=1.00002), {"rules": [Rule(0, 1e-6)]}, ["avg"]),
    (WHOLE, WHOLE, {"dtype": "int8"}, []),
    (WHOLE, WHOLE | {"avg": 41.6668}, {"dtype": "int8"}, ["avg"]),
    (WHOLE, WHOLE | {"avg": 125 / 3, "digits": None}, {"dtype": "int8"}, []),
    (WHOLE, WHOLE | {"max": 130}, {"dtype": "int16", "rules": [Rule(0, 2)]}, ["max"]),
    (ADDED_UP, ADDED_UP | {"max": 4.1}, {}, ["max"]),
    ({"max": 4294967295, "digits": 6}, {"max": 4294967294, "digits": 6}, {"dtype": "uint32"}, ["max"]),
    (GOOD, GOOD | {"max": 9.0}, {"rules": [Rule(0, 0, one_sided="above")]}, ["max"]),
    (GOOD, GOOD | {"max": 3.0}, {"rules": [Rule(0, 0, one_sided="above")]}, []),
    *((GOOD, GOOD | {lost: None}, {}, [lost]) for lost in ("max", "min", "avg")),
    ({"max": 1.0, "l2norm": 1.0}, {"max": 1.0}, {}, ["l2norm"]),  # beside no max, min or avg
    (GOOD, {"count": 2}, {}, ["max", "min", "avg", *COUNTS]),
    (GOOD | BARE, GOOD | {"max": NAN}, {"rules": [Rule(1e300, 1e300)]}, ["max", "min", "avg"]),
]


@pytest.mark.each(("golden", "actual", "given", "failing"), JUDGED)
def test_what_fails_by_its_statistics(golden: Any, actual: Any, given: Any, failing: list[str]) -> None:
    assert failed(judge(golden, actual, **given)) == failing
    assert judge(golden, golden, **given).ok


@pytest.mark.each("name", ["max", "min", "avg", "l2norm"])
@pytest.mark.each(
    ("golden", "actual"),
    [(1.0, NAN), (NAN, 1.0), (1.0, INF), (INF, 1.0), (INF, -INF), (NAN, INF), (-1.7e308, INF)],
)
def test_nan_and_infinity_equal_only_themselves(name: str, golden: Any, actual: Any) -> None:
    rules = [Rule(1e300, 1e300)]
    assert failed(judge(GOOD | {name: golden}, GOOD | {name: actual}, rules=rules)) == [name]
    for value in (golden, actual):
        assert judge(GOOD | {name: value}, GOOD | {name: value}, preset="exact").ok


def test_dtype_shape_and_count_are_exact() -> None:
    golden = table_of((KEY, "float16", (2, 3), {"max": 1.0}))
    actual = table_of((KEY, "float32", (3, 2), {"max": 1.0, "count": 8}))
    reasons = compare_tables(golden, actual, Tolerances()).failing[0].reasons
    assert [(r.statistic, r.golden, r.actual) for r in reasons] == [
        ("dtype", "float16", "float32"),
        ("shape", "2x3", "3x2"),
        ("count", 6, 8),
    ]


@pytest.mark.each(
    ("golden", "actual", "fails"),
    [
        (("-", None), ("-", None), []),
        (("-", None), ("int8", (2,)), []),
        (("int8", (2,)), ("-", None), ["dtype", "shape", "count"]),
    ],
)
def test_unknown_dtypes_and_shapes(golden: Any, actual: Any, fails: Any) -> None:
    tables = [table_of((KEY, *side, {"max": 1, "min": 1, "avg": 1.0})) for side in (golden, actual)]
    assert failed(compare_tables(*tables, Tolerances())) == fails


def test_a_one_sided_rule_judges_wide_integers_beyond_its_tolerance() -> None:
    for base in (2**53, 2**62, -(2**62)):
        for side, judged in (("above", (1,)), ("below", (-1,)), ("both", (1, -1))):
            rule = Rule(0, 2, dtype="int64", one_sided=side)
            for sign in (1, -1):
                for off in (1, 2, 3, 1000):
                    found = judge({"max": base}, {"max": base + sign * off}, dtype="int64", rules=[rule])
                    assert found.ok is not (off > 2 and sign in judged), (base, side, sign * off)


def test_the_type_of_a_tensor_whose_golden_does_not_know_it_is_the_run_s() -> None:
    other = ("conv2:output.0", "float32", (2,), GOOD)
    for dtype, value, fails in (
        ("float16", 4.007, []),
        ("float16", 4.01, ["max"]),
        ("float32", 4.007, ["max"]),
        ("int32", 4.007, ["max"]),
    ):
        tables = [
            table_of(other, (KEY, own, (2,), GOOD | {"max": top}))
            for own, top in (("-", 4.0), (dtype, value))
        ]
        assert failed(compare_tables(*tables, Tolerances())) == fails, (dtype, value)
    wide = [table_of((KEY, own, (2,), {"max": top})) for own, top in (("-", 2**60), ("int64", 2**60 + 1))]
    rule = Rule(0, 1, dtype="int64")
    assert compare_tables(*wide, Tolerances("exact", (rule,))).ok
    assert failed(compare_tables(*wide, Tolerances("exact", (Rule(0, 1, dtype="uint64"),)))) == ["max"]


FLOAT = ("float32", (2,), GOOD)
LACKED = "not compared, as the golden does not have it"


@pytest.mark.each(
    ("golden", "dump", "note"),
    [
        # dtype, shape and statistics of each tensor of both, and what is said of them
        (
            [("float32", (2,), NORM)],
            [FLOAT],
            "not compared, as no tensor of this dump has it but the golden does: l2norm",
        ),
        (
            [FLOAT] * 2,
            [("float32", (2,), NORM)] * 2,
            f"{LACKED} (tensors: 2, first: layer0:output.0): l2norm",
        ),
        *(
            (
                [("float32", (2,), GOOD | {name: None})],
                [("float32", (2,), GOOD | {name: 5})],
                f"{LACKED} (tensors: 1, first: layer0:output.0): {name}",
            )
            for name in (*COUNTS, "l2norm")
        ),
        *(
            (
                [FLOAT, (dtype, shape, GOOD)],
                [FLOAT] * 2,
                f"{LACKED} (tensors: 1, first: layer1:output.0): {named}",
            )
            for dtype, shape, named in (
                ("-", (2,), "dtype"),
                ("float32", None, "shape"),
                ("-", None, "dtype, shape"),
            )
        ),
    ],
)
def test_what_one_side_lacks_is_noted_once(golden: Any, dump: Any, note: str) -> None:
    tables = [
        table_of(*((f"layer{at}:output.0", *row) for at, row in enumerate(rows))) for rows in (golden, dump)
    ]
    comparison = compare_tables(*tables, Tolerances())
    assert (comparison.ok, comparison.notes) == (True, (note,))
    assert compare_tables(tables[0], tables[0], Tolerances()).notes == ()


@pytest.mark.each("lacking", [("max",), ("min",), ("avg",), ("max", "min", "avg")])
def test_a_value_that_one_side_has_not_fails(lacking: Any) -> None:
    whole = ("b:output.0", "float32", (2,), NORM)
    full, lost = (table_of((KEY, *whole[1:3], NORM | gone), whole) for gone in ({}, dict.fromkeys(lacking)))
    comparison = compare_tables(lost, full, Tolerances())
    (verdict,) = comparison.failing
    rule = "the golden has no value to compare with: accept again"
    assert [(r.statistic, r.golden, r.actual, r.allowed, r.rule) for r in verdict.reasons] == [
        (name, None, NORM[name], None, rule) for name in lacking
    ]
    assert (comparison.passed, comparison.notes) == (1, ())
    (verdict,) = compare_tables(
        full, table_of((KEY, *whole[1:3], NORM | {"l2norm": None}), whole), Tolerances()
    ).failing
    assert str(verdict.reasons[0]).startswith("l2norm: 1000.0 -> unknown [the golden has a value")


def test_a_run_that_is_no_golden_may_tell_less_than_another() -> None:
    first = table_of((KEY, "bfloat16", (2,), {}))
    second = table_of((KEY, "bfloat16", (2,), {"max": 1.0, "min": 0.0, "avg": 0.5}))
    comparison = compare_tables(first, second, Tolerances(), approved=False)
    assert (comparison.ok, comparison.unjudged) == (True, 1)
    lacking = f"not compared, as the golden does not have it (tensors: 1, first: {KEY}): max, min, avg"
    assert comparison.notes[0] == lacking


UNTOLD = (
    "no statistic on both sides, so that only dtype and shape were compared: 2 of 3 tensors "
    "(first: b:output.0)"
)
HIDDEN = (
    "NaN or Inf in the golden's max, min or avg, which hides changes of other elements: 2 of 3 tensors "
    "(first: b:output.0); compare these tensors element by element, with "
    'acl_json={"dump_data": "tensor"} and golden_tensors'
)


@pytest.mark.each(
    ("stats", "note"),
    [
        ({}, UNTOLD),
        ({"max": NAN, "min": NAN, "avg": NAN, "nan": 1, "neg_inf": 0, "pos_inf": 0}, HIDDEN),
    ],
)
def test_a_tensor_of_which_no_statistic_tells_anything_passes_unjudged(stats: Any, note: str) -> None:
    table = table_of(
        *((f"{n}:output.0", "float32", (8,), s) for n, s in zip("abc", [GOOD, stats, stats], strict=True))
    )
    comparison = compare_tables(table, table, Tolerances())
    assert (comparison.ok, comparison.passed, comparison.unjudged) == (True, 3, 2)
    assert comparison.notes == (note,)


ALL_NAN = {"max": NAN, "min": NAN, "avg": NAN}
LARGE = {"shape": (8,)}


@pytest.mark.each(
    ("golden", "run", "given", "failing", "unjudged", "noted"),
    [
        # the golden, what the run has otherwise, which statistics fail, and what is doubted
        ({"max": 4.0, "min": -INF, "avg": -INF, "neg_inf": 1}, {}, LARGE, [], 0, 1),
        ({"max": 4.0, "min": 4.0, "avg": NAN, "nan": 1}, {}, LARGE, [], 0, 1),
        ({"max": INF, "min": -INF, "avg": NAN, "neg_inf": 1, "pos_inf": 1}, {}, LARGE, [], 1, 1),
        ({"max": INF}, {}, LARGE, [], 1, 1),
        ({"max": INF, "min": 4.0, "avg": INF}, {}, LARGE, [], 0, 1),
        # all elements are NaN or infinite, so that there are no others
        (ALL_NAN | {"nan": 2}, {}, {}, [], 0, 0),
        ({"max": INF, "avg": NAN, "nan": 1, "pos_inf": 1}, {}, {}, [], 0, 0),
        (ALL_NAN | {"nan": 2}, {}, {"shape": None}, [], 1, 1),
        (ALL_NAN | {"nan": 1}, {"nan": 2}, LARGE, ["nan"], 0, 1),  # what fails is not doubted
        *(({"max": value, "min": value, "avg": value}, {}, LARGE, [], 0, 0) for value in (INF, -INF)),
        *(
            ({"max": value, "min": value, "avg": value}, {"max": -value}, LARGE, ["max"], 0, 0)
            for value in (INF, -INF)
        ),
    ],
)
def test_what_nan_and_infinities_hide_is_doubted(
    *,
    golden: Any,
    run: Any,
    given: Any,
    failing: list[str],
    unjudged: int,
    noted: int,
) -> None:
    comparison = judge(golden, golden | run, **given)
    assert (failed(comparison), comparison.unjudged) == (failing, unjudged)
    doubted = [note for note in comparison.notes if note.startswith("NaN or Inf in the golden's")]
    assert (len(doubted), len(comparison.notes)) == (noted, noted)
    assert not comparison.nothing_judged or unjudged


def test_missing_and_extra_tensors_fail() -> None:
    golden, actual = (
        table_of(*[(f"{n}:output.0", "float16", (2,), GOOD) for n in s]) for s in ("abc", "acd")
    )
    comparison = compare_tables(golden, actual, Tolerances())
    assert [(v.key.layer, v.status) for v in comparison.failing] == [("b", "missing"), ("d", "extra")]
    assert (comparison.expected, comparison.compared, comparison.passed) == (3, 2, 2)
    empty = table_of()
    sides = ((empty, empty), (golden, empty), (empty, golden))
    assert [compare_tables(*pair, Tolerances()).ok for pair in sides] == [True, False, False]


def test_the_raw_name_is_reported_and_rules_reach_it() -> None:
    golden = table_of(("net/conv.1:output.0", "float16", (2,), GOOD))
    actual = table_of(("net_conv_1:output.0", "float16", (2,), GOOD | {"max": 5.0}))
    for sides in ((golden, actual), (actual, golden)):
        assert compare_tables(*sides, Tolerances()).first.key.layer == "net/conv.1"
        assert compare_tables(*sides, Tolerances(rules=(Rule(1, 1, layer="net/*"),))).ok


def test_a_reason_carries_numbers_and_the_rule_that_decided() -> None:
    rules = [Rule(0.01, 0, layer="conv*", reason="winograd", source="marker")]
    (verdict,) = judge(GOOD, GOOD | {"max": 5.0}, rules=rules).failing
    (reason,) = verdict.reasons
    assert (reason.golden, reason.actual, reason.allowed) == (4.0, 5.0, 0.08)
    assert str(reason) == (
        "max: 4.0 -> 5.0, difference 1, tolerance 0.08 [rtol=0.01 atol=0 layer=conv* (marker: winograd)]"
    )


NAN_FIRST = ALL_NAN | {"count": 9, "nan": 2, "pos_inf": 0, "neg_inf": 0, "digits": 6}
COMPUTED = NAN_FIRST | {"max": 3.5, "min": -2.0, "digits": None}


def test_extremes_that_cann_prints_as_nan_say_nothing_of_computed_ones_and_hide_no_other_difference() -> None:
    for sides in ((NAN_FIRST, COMPUTED), (COMPUTED, NAN_FIRST)):
        comparison = judge(*sides, dtype="float32", shape=(9,), preset="exact")
        assert (comparison.ok, comparison.unjudged) == (True, 1)
        assert any("max and min not compared: CANN prints NaN" in note for note in comparison.notes)
    others = ({"nan": 3}, {"nan": None}, {"pos_inf": 1}, {"max": NAN}, {"avg": 0.5}, {"digits": 6})
    for changed in others:
        assert not judge(COMPUTED | changed, NAN_FIRST, dtype="float32", shape=(9,)).ok, changed


BASE = NORM | {"count": 4, "max": 2.5, "min": -1.0, "l2norm": 4.0, "digits": None}


def compared(*pairs: tuple[dict[str, Any], dict[str, Any]], dtype: str = "float32") -> Any:
    sides = [
        table_of(*[(f"layer{n}:output.0", dtype, (4,), BASE | pair[s]) for n, pair in enumerate(pairs)])
        for s in (0, 1)
    ]
    return compare_tables(sides[0], sides[1], Tolerances())


def counts(comparison: Comparison) -> tuple[int, int, int]:
    return comparison.identical, comparison.changed, len(comparison.failing)


SLIGHT, FAR = {"max": 2.5 * (1 + 1e-6)}, {"max": 2.6}


@pytest.mark.each(
    ("pairs", "dtype", "told", "firsts"),
    [
        # tensors of both; how many are identical, changed and fail; the first that changed, passes so, fails
        ([({}, {}), ({}, SLIGHT), ({}, FAR)], "float32", (1, 1, 1), (1, 1, 2)),
        ([({}, {}), ({}, FAR), ({}, {"avg": 0.5 * (1 + 1e-7)})], "float32", (1, 1, 1), (1, 2, 1)),
        ([({}, {"max": 9.0}), ({}, SLIGHT)], "float32", (0, 1, 1), (0, 1, 0)),
        ([({"avg": NAN}, {"avg": NAN}), ({"max": 0.0}, {"max": -0.0})], "float32", (2, 0, 0), ()),
        ([({"max": 2**60}, {"max": 2**60 + 1})], "int64", (0, 0, 1), (0, None, 0)),
        # the order in which integers were added is no change
        ([({"avg": 0.5}, {"avg": math.nextafter(0.5, 1)})], "int64", (1, 0, 0), ()),
        # a norm that cannot be is no scale
        (
            [({"l2norm": 1e30, "max": 100.0}, {"l2norm": 1e30, "max": 100.0, "avg": 50.0})],
            "float32",
            (0, 0, 1),
            (0, None, 0),
        ),
    ],
)
def test_identical_changed_and_failing_are_told_apart(
    pairs: Any, dtype: str, told: tuple[int, int, int], firsts: Any
) -> None:
    found = compared(*pairs, dtype=dtype)
    assert counts(found) == told
    own = (found.first_change, found.first_within, found.first and found.first.key)
    names = [None if at is None else f"layer{at}:output.0" for at in firsts or (None,) * 3]
    assert [None if one is None else str(one) for one in own] == names
    assert (found.to_json()["first_change"] is None) is (found.first_change is None)
    within = {verdict.key for verdict in found.verdicts() if verdict.changed}
    assert (found.first_within in within) is bool(found.changed)


@pytest.mark.each(
    ("golden", "actual", "changed"),
    [
        ({"digits": 6, "max": 2.50001}, {"digits": 6, "max": 2.50002}, True),
        ({"digits": 6, "max": 2.50001}, {"digits": 6, "max": 2.50001}, False),
        ({"digits": 6, "max": 2.50001}, {"max": 2.500009}, False),
        ({"digits": 6, "max": 2.50001}, {"max": 2.500016}, True),
        ({"max": 2.500009}, {"digits": 6, "max": 2.50001}, False),
        ({"max": 2.5}, {"max": math.nextafter(2.5, 3)}, True),
    ],
)
def test_a_value_is_compared_with_the_digits_that_are_printed(
    golden: dict[str, Any], actual: dict[str, Any], *, changed: bool
) -> None:
    found = compared((golden, actual))
    assert found.passed == 1
    assert bool(found.changed) is changed


finite = st.floats(-1e6, 1e6, width=32)


@given(golden=st.lists(finite, min_size=1, max_size=5), data=st.data())
def test_full_precision_changes_are_exactly_the_values_that_are_not_equal(
    golden: list[float], data: st.DataObject
) -> None:
    above = [float(np.nextafter(np.float32(g), np.float32(9e9))) for g in golden]
    actual = [data.draw(st.sampled_from(pair)) for pair in zip(golden, above, strict=True)]
    found = compared(*[({"max": g}, {"max": a}) for g, a in zip(golden, actual, strict=True)])
    unequal = [n for n, (g, a) in enumerate(zip(golden, actual, strict=True)) if g != a]
    assert sorted(found.differing) == unequal
    first = found.first_change
    assert (None if first is None else str(first)) == (f"layer{unequal[0]}:output.0" if unequal else None)


def test_integers_that_no_float_tells_apart_have_changed() -> None:
    sides = (BASE | {"max": 2**53 + n} for n in (0, 1))
    found = judge(*sides, dtype="int64", shape=(4,), rules=[Rule(0.0, 5.0, dtype="int64", reason="a trial")])
    assert counts(found) == (0, 1, 0)


TYPES = {"a": "Conv2D", "b": "MatMulV2", "c": ""}


def table(make: Callable[[str], TensorRecord], *, typed: bool) -> StatsTable:
    records = [replace(make(layer), op_type=TYPES[layer] if typed else "") for layer in TYPES]
    return StatsTable.from_records(records)


def record(layer: str, dtype: str, stats: Stats, digest: str = "") -> TensorRecord:
    return TensorRecord(TensorKey(layer, "output", 0), "", dtype, (4,), Path("d"), stats=stats, digest=digest)


def floats(value: float, layer: str) -> TensorRecord:
    return record(layer, "float32", Stats(4, value, 0.0, value / 2, value, 0, 0, 0))


def integers(value: int, layer: str) -> TensorRecord:
    return record(layer, "int64", Stats(4, value, 0, value / 2, None, 0, 0, 0))


def hashed(value: int, layer: str) -> TensorRecord:
    stats = Stats(4, 1.0, 0.0, 0.5, None, 0, 0, 0)
    return record(layer, "float32", stats, f"md5:{value:032x}")


def projected(value: float, layer: str) -> TensorRecord:
    array = np.array([1, 2, 3, 4], np.float32)
    moved = np.array([1, 2, 3 + value, 4 - value], np.float32)
    stats = replace(tensor_stats(array), projections=project(moved))
    return record(layer, "float32", stats)


@pytest.mark.each(
    ("make", "before", "now"),
    [
        (floats, 1.0, 1.25),
        (integers, 100, 101),
        (integers, 2**60, 2**60 + 2),
        (hashed, 1, 2),
        (projected, 0.0, 0.25),
    ],
)
@pytest.mark.each("sides", ["golden", "dump"])
def test_a_rule_decides_for_the_operators_of_its_type_alone(
    make: Callable[..., TensorRecord], before: float, now: float, sides: str
) -> None:
    golden = table(lambda layer: make(before, layer), typed=sides == "dump")
    actual = table(lambda layer: make(now, layer), typed=True)
    dtype = "int64" if make is integers else "*"
    exact = Rule(0, 0, statistic="*") if make is hashed else None
    wide = Rule(0.5, 0.5, dtype=dtype, op_type="MatMul*")
    rules = (*([exact] if exact else []), wide)
    failing = [
        verdict.key.layer for verdict in compare_tables(golden, actual, Tolerances(rules=rules)).failing
    ]
    assert failing == ["a", "c"]
    tight = Rule(0, 0, dtype=dtype, op_type="Conv2D")
    rules = (Rule(0.5, 0.5, dtype=dtype), tight)
    failing = [
        verdict.key.layer for verdict in compare_tables(golden, actual, Tolerances(rules=rules)).failing
    ]
    assert failing == ["a"]


def test_shares_and_allowances_go_by_the_same_rule() -> None:
    golden, actual = (
        [table(lambda layer, value=value: floats(value, layer), typed=typed) for typed in (False, True)]
        for value in (1.0, 1.25)
    )
    # Where a dump knows no type, the other side's counts.
    comparison = compare_tables(golden[1], actual[0], Tolerances(rules=(Rule(0.5, 0, op_type="Conv2D"),)))
    assert [verdict.key.layer for verdict in comparison.failing] == ["b", "c"]
    tolerances = Tolerances(rules=(Rule(0.25, 0, op_type="Conv2D"),))
    shares = shares_of_allowed(compare_tables(golden[0], actual[1], tolerances), tolerances)
    assert shares[0] == pytest.approx(1.0)
    assert shares[1] > 1000
    found = allowed(actual[1], tolerances, "max")
    assert found["a:output.0"].allowed == 0.25 * 1.25
    assert found["b:output.0"].allowed < 1e-4
    tolerances = Tolerances(rules=(Rule(0.25, 0, op_type="Conv2D", statistic=PROJECTIONS),))
    found = allowed(table(lambda layer: projected(0.25, layer), typed=True), tolerances, PROJECTIONS)
    assert found["a:output.0"].rule.rtol == 0.25
    assert found["b:output.0"].rule.rtol == found["c:output.0"].rule.rtol < 1e-4


def allowed(actual: StatsTable, tolerances: Tolerances, statistic: str) -> dict[str, Any]:
    found = allowances(actual, tolerances, {*map(layer_of, actual.keys)})
    return {one.key: one for one in found if one.statistic == statistic}


@pytest.mark.each("op_type", ["Conv", "*ul*", "[A-M]*", "No"])
def test_a_real_model_fails_as_by_a_rule_for_each_layer_of_the_type(op_type: str) -> None:
    golden, actual = real_table("golden"), real_table("regressed")
    by_type = Rule(0.5, 0.5, op_type=op_type)
    layers = {
        layer_of(key): None
        for key, name in zip(actual.keys, actual.op_types, strict=True)
        if by_type.reaches("", name)
    }
    by_layer = tuple(Rule(0.5, 0.5, layer=layer) for layer in layers)
    untyped = replace(golden, op_types=("",) * len(golden))
    found = [
        compare_tables(untyped, actual, Tolerances(rules=rules)).failing for rules in ((by_type,), by_layer)
    ]
    assert [verdict.key for verdict in found[0]] == [verdict.key for verdict in found[1]]
    assert (op_type == "No") is not bool(layers)
