"""The column ``noise`` and the head keys that explain it."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from pytest_npudump.errors import GoldenError
from pytest_npudump.record.noise import (
    CELL,
    Calibration,
    Noise,
    Repeats,
    calibration_of,
    columns_text,
    parse_noise,
    render_noise,
    repeats_of,
)
from pytest_npudump.record.text import parse, render

PATH = Path("golden.yaml")
DEVIATION = st.floats(0, 1e300, allow_subnormal=False) | st.just(math.inf)
GOLDEN = """npudump-golden: 1
test: test_a.py::test_a
producer: {runtime: acl, digits: 6}
repeats: {runs: 2}
columns: tensor dtype shape max min avg l2norm nan -inf +inf noise
tensors: |
  conv float32 4 2 -1 0.5 4 0 0 0 ~1.2e-6,3e-7,-,4e-8
  relu float32 4 2 0 0.5 4 0 0 0 -
"""


@given(st.tuples(DEVIATION, DEVIATION, DEVIATION, DEVIATION), DEVIATION, st.booleans())
def test_a_cell_never_tells_less_than_was_measured_and_at_most_a_tenth_more(
    largest: tuple[float, float, float, float], projections: float, varies: object
) -> None:
    cell = render_noise(Noise(largest, bool(varies), projections))
    assert CELL.fullmatch(cell)
    read = parse_noise(cell)
    assert read.varies is varies
    for told, measured in zip(read.by_statistic.values(), (*largest, projections), strict=True):
        assert measured <= told <= measured * 1.1 + 1e-323
    assert render_noise(read) == cell


@pytest.mark.each(
    ("largest", "varies", "cell"),
    [
        ((0.0, 0.0, 0.0, 0.0), False, "-"),
        ((1.14e-6, 3e-7, 0.0, 4e-8), False, "1.2e-6,3e-7,-,4e-8"),
        ((0.0, 0.0, 0.0, 0.0), True, "~-,-,-,-"),
        ((0.5, 12.0, math.inf, 0.00031), True, "~0.5,12,inf,0.00031"),
    ],
)
def test_cells_are_short(largest: tuple[float, float, float, float], cell: str, *, varies: bool) -> None:
    assert render_noise(Noise(largest, varies)) == cell


@pytest.mark.each(
    ("cell", "projections"),
    [("1e-6,-,-,-", 0.0), ("1e-6,-,-,-,2e-5", 2e-5), ("~-,-,-,-,inf", math.inf), ("-", 0.0)],
)
def test_projections_are_a_fifth_number_that_need_not_be_there(cell: str, projections: float) -> None:
    read = parse_noise(cell)
    assert read.by_statistic["projections"] == projections
    assert render_noise(read) == cell


def test_there_is_no_column_where_nothing_strays() -> None:
    assert columns_text([Noise((0.0, 0.0, 0.0, 0.0))] * 3) == ()


def test_a_golden_with_noise_is_read_and_written_as_it_is() -> None:
    golden = parse(GOLDEN, PATH)
    assert golden.table.noise == ("~1.2e-6,3e-7,-,4e-8", "-")
    assert render(golden) == GOLDEN


@pytest.mark.each("cell", ["1,2,3", "-1,2,3,4", "nan,0,0,0", "~", "1e-6", "1,2,3,4,5,6", "1_0,0,0,0"])
def test_a_damaged_cell_is_named_with_its_line(cell: str) -> None:
    with pytest.raises(GoldenError, match=r"line 8: .* is not a noise, expected such as"):
        parse(GOLDEN.replace("0 0 0 -\n", f"0 0 0 {cell}\n"), PATH)


@pytest.mark.each(("factor", "told"), [(5.0, "5"), (7.5, "7.5")])
def test_a_factor_is_told_in_full(factor: float, told: str) -> None:
    assert repr(Calibration(20, factor, ("repeats",)).to_head()["factor"]) == told


def test_heads_are_read_as_they_were_written() -> None:
    repeats, calibration = Repeats(2, ("conv",), 3), Calibration(20, 7.0, ("repeats", "inputs"))
    head = {"repeats": repeats.to_head(), "calibration": calibration.to_head()}
    assert repeats_of(head, PATH) == repeats
    assert calibration_of(head, PATH) == calibration
    assert repeats_of({}, PATH) is None
    assert calibration_of({}, PATH) is None


@pytest.mark.each(
    "head",
    [
        {"repeats": 2},
        {"repeats": {"runs": 0}},
        {"repeats": {"runs": True}},
        {"repeats": {"runs": 2, "other": 1}},
        {"repeats": {"runs": 2, "not_deterministic": "conv"}},
        {"calibration": {"members": 3}},
        {"calibration": {"members": 3, "factor": 0.5, "varied": []}},
        {"calibration": {"members": 3, "factor": math.inf, "varied": []}},
        {"calibration": {"members": 3, "factor": True, "varied": []}},
        {"calibration": {"members": 3, "factor": 5, "varied": "inputs"}},
    ],
)
def test_a_damaged_head_is_refused_with_the_way_out(head: dict[str, object]) -> None:
    read = repeats_of if "repeats" in head else calibration_of
    with pytest.raises(GoldenError, match="accept anew"):
        read(head, PATH)


OPTIONAL = {
    "count": ("4", "-"),
    "digits": ("6", "9"),
    "digest": ("md5:5d41", "-"),
    "noise": ("~1e-6,-,-,-,2e-6", "-"),
}
HEADS = {
    "repeats": "{runs: 2, compared: 1}",
    "calibration": "{members: 3, factor: 5, varied: [repeats]}",
    "reason": "retrained",
}
LINES = {
    "projections": "  conv:output.0 1.5 -2 0 3 4 5 6 7\n",
    "edges": "  conv < -\n  relu < conv:output.0\n",
}


@given(
    st.sets(st.sampled_from([*OPTIONAL])),
    st.sets(st.sampled_from([*HEADS])),
    st.sets(st.sampled_from([*LINES])),
)
def test_a_golden_with_any_of_what_is_optional_is_read_and_keeps_it(
    columns: set[str], heads: set[str], blocks: set[str]
) -> None:
    chosen = [name for name in OPTIONAL if name in columns]
    lines = [
        " ".join((f"  {row}", *(OPTIONAL[name][at] for name in chosen)))
        for at, row in enumerate(("conv float32 4 2 -1 0.5 4 0 0 0", "relu float32 4 2 0 0.5 4 0 0 0"))
    ]
    parts = [
        "npudump-golden: 1\ntest: test_a.py::test_a\nproducer: {runtime: acl, digits: 6}\n",
        *(f"{name}: {value}\n" for name, value in HEADS.items() if name in heads),
        " ".join(("columns: tensor dtype shape max min avg l2norm nan -inf +inf", *chosen)),
        "\ntensors: |\n" + "\n".join(lines) + "\n",
        *(f"{name}: |\n{text}" for name, text in LINES.items() if name in blocks),
    ]
    golden = parse("".join(parts), PATH)
    table = golden.table
    assert golden.extra.keys() == heads
    assert (repeats_of(golden.extra, PATH) is not None) is ("repeats" in heads)
    assert (calibration_of(golden.extra, PATH) is not None) is ("calibration" in heads)
    assert table.noise == (OPTIONAL["noise"] if "noise" in columns else ())
    assert table.digests == (("md5:5d41", "") if "digest" in columns else ())
    assert table.digits.tolist() == ([6, 9] if "digits" in columns else [6, 6])
    assert table.counts == ((4, None) if "count" in columns else (4, 4))
    assert (table.projections is not None) is ("projections" in blocks)
    again = parse(render(golden), PATH)
    assert render(again) == render(golden)
    body = render(golden).partition("tensors: |\n")[2].splitlines()
    assert body[: len(lines)] == lines
