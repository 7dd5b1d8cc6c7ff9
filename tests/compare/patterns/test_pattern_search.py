"""Patterns are planted with numpy alone; what is claimed is checked against what was planted."""

from __future__ import annotations

import re
import tracemalloc
from collections import Counter
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import assume, given, strategies as st

from pytest_npudump.compare.patterns import likely_places as evidence_module, pattern_search, possible_changes
from pytest_npudump.compare.patterns.pattern_search import Limits, Pattern, find_pattern, note_on_limits
from pytest_npudump.compare.tensors import difference as chunks
from pytest_npudump.compare.tensors.difference import compare_tensors

Array = np.ndarray[Any, np.dtype[Any]]
FLOATS = ("float64", "float32", "float16", "bfloat16")
SMALL = ("float8_e4m3fn", "float8_e5m2", "int8", "uint8")
SHAPE = (2, 24, 9, 37)


def tensor(dtype: str, shape: tuple[int, ...] = SHAPE, seed: int = 0) -> Array:
    found = np.dtype(getattr(ml_dtypes, dtype, None) or dtype)
    values = np.random.default_rng(seed).normal(size=shape)
    return (values * (20 if found.itemsize == 1 else 1) + (60 if found.kind == "u" else 0)).astype(found)


def pattern(golden: Array, actual: Array, rtol: float | None = None, **at_hand: Any) -> Pattern | None:
    exact = golden.dtype.kind in "iub"
    rtol = 0.0 if exact else 1e-3 if rtol is None else rtol
    return find_pattern(golden, actual, compare_tensors(golden, actual, rtol=rtol, atol=0), **at_hand)


def said(golden: Array, actual: Array, **at_hand: Any) -> str:
    found = pattern(golden, actual, **at_hand)
    return "" if found is None else f"{found.where}: {found.what}"


def changed(golden: Array, place: Any, value: Any) -> Array:
    actual = golden.copy()
    actual[place] = value
    return actual


PLACES = {
    "the last 5 of 37 columns (tail of a 16-tile)": np.s_[..., -5:],
    "the first 4 of 37 columns": np.s_[..., :4],
    "columns 16 to 31 of 37 (a whole 16-tile)": np.s_[..., 16:32],
    "columns 3 to 6 of 37": np.s_[..., 3:7],
    "every 2nd of 37 columns, 0 to 36": np.s_[..., ::2],
    "channel 3 of 24": np.s_[:, 3],
    "channels 3, 7 and 21 of 24": np.s_[:, [3, 7, 21]],
    "the last 8 of 24 channels (tail of a 16-tile)": np.s_[:, 16:],
    "batch entry 1 of 2": np.s_[1],
    "row 8 of 9 in channel 2 of 24": np.s_[:, 2, 8],
    "one element of 15984, at [1, 2, 3, 4]": np.s_[1, 2, 3, 4],
}


@pytest.mark.each("dtype", [*FLOATS, *SMALL])
@pytest.mark.each("words", PLACES)
def test_a_place_of_zeros_is_found_in_every_type(dtype: str, words: str) -> None:
    golden = tensor(dtype)
    golden[golden == 0] = 1
    assert said(golden, changed(golden, PLACES[words], 0), layout="NCHW").startswith(f"{words}: 0, expected ")


def test_a_bool_is_stuck_or_inverted() -> None:
    golden = tensor("float32") > 0
    where = "channel 3 of 24: "
    assert said(golden, changed(golden, np.s_[:, 3], 1), layout="NCHW") == f"{where}1, expected other values"
    assert said(golden, changed(golden, np.s_[:, 3], ~golden[:, 3]), layout="NCHW") == f"{where}is inverted"


@pytest.mark.each("dtype", FLOATS)
@pytest.mark.each("number", [1.5, -2.0, 0.1, 1e4])
def test_a_factor_and_an_offset_are_named(dtype: str, number: float) -> None:
    golden = tensor(dtype)
    for change, kind in ((np.multiply, "factor"), (np.add, "offset")):
        found = pattern(golden, change(golden.astype("f8"), number).astype(golden.dtype), rtol=1e-2)
        assert found is not None
        if kind == "factor" or abs(number) < 100:
            assert found.kind == kind
            (own,) = re.findall(r"[-+]?\d[-+.\de]*", found.what)
            assert float(own) == pytest.approx(number, rel=1e-2)


@pytest.mark.each("dtype", FLOATS)
@pytest.mark.each(
    ("words", "change"),
    [
        ("the sign is flipped", np.negative),
        ("rows shifted by 3 (or by -6), round the end", lambda x: np.roll(x, 3, axis=2)),
        ("shifted by 7 elements in memory, towards the beginning", lambda x: np.roll(x, -7)),
        (
            "the values with axes in the order [0, 2, 3, 1]",
            lambda x: np.ascontiguousarray(x.transpose(0, 2, 3, 1)).reshape(x.shape),
        ),
    ],
)
def test_a_change_of_all_elements_is_named(dtype: str, words: str, change: Any) -> None:
    golden = tensor(dtype)
    assert said(golden, change(golden)) == f"every element: {words}"


@pytest.mark.each("dtype", [*FLOATS, *SMALL])
def test_two_channels_that_changed_places_are_named(dtype: str) -> None:
    golden = tensor(dtype)
    actual = golden[:, [*range(4), 9, *range(5, 9), 4, *range(10, 24)]]
    words = "channels 4 and 9 of 24: channels 4 and 9 have changed places"
    assert said(golden, actual, layout="NCHW") == words


def test_values_that_are_all_there_in_disorder_are_told_as_such() -> None:
    golden = tensor("float32")
    actual = np.random.default_rng(3).permutation(golden.reshape(-1)).reshape(golden.shape)
    assert said(golden, actual) == "every element: the same values in another order"
    alike = tensor("float32", (64, 50))
    alike[5] = alike[9]  # either of which may have gone to either place
    moved = changed(alike, [5, 20, 9, 30], alike[[20, 5, 30, 9]])
    assert said(alike, moved) == "rows 5, 9, 20 and 30 of 64: the same values in another order"


def test_nan_is_one_value_and_random_bits_look_like_memory_nobody_wrote() -> None:
    golden = tensor("float16")
    actual = golden.copy()
    actual[:, 3].view("u2")[...] = 0xFFFF
    assert said(golden, actual).endswith("along axis 1: NaN, expected other values")
    golden = tensor("float32")
    bits = np.random.default_rng(1).integers(0, 2**32, golden[:, 3].shape, dtype=np.uint32)
    found = pattern(golden, changed(golden, np.s_[:, 3], bits.view("f4")))
    assert found is not None
    assert found.kind == "unwritten"


def test_values_of_a_tensor_at_hand_are_recognised() -> None:
    golden, other = tensor("float32"), tensor("float32", seed=9)
    actual = changed(golden, np.s_[:, 3], other[:, 3])
    words = "index 3 of 24 along axis 1: the values of conv1:input.0"
    assert said(golden, actual, others={"conv1:input.0": other}) == words
    assert said(golden, actual) == "index 3 of 24 along axis 1: other values"


@pytest.mark.each(
    ("mask", "kept", "what"),
    [
        (-1e9, 0.0, "the values of its input"),
        (-1e9, -1e4, "other values"),
        (-1e9, -2.0, "other values"),
        (-1e4, 0.0, "+10000 was added"),
        (-1e4, -2.0, "+9998 was added"),
    ],
)
def test_values_beside_a_mask_are_judged_by_their_own_size(mask: float, kept: float, what: str) -> None:
    """Another mask in its place is no input, and an input that is not known is no memory nobody wrote."""
    for shape, masked in (((16, 16), np.s_[:, 11:]), ((4, 64, 64), np.s_[..., 20:])):
        scores = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
        golden, actual = scores.copy(), scores.copy()
        golden[masked] += np.float32(mask)
        actual[masked] += np.float32(kept)
        assert said(golden, actual, others={"its input": scores}).endswith(f": {what}")
        found = said(golden, actual)
        assert found.endswith(what if "added" in what else ": other values")


def test_the_end_of_memory_is_told_as_such() -> None:
    golden = tensor("float32", (40, 100))
    actual = golden.copy()
    actual.reshape(-1)[-250:] = 0
    assert said(golden, actual) == (
        "elements in memory order: the last 250 of 4000: 0, expected other values"
    )


@given(
    st.sampled_from([*FLOATS, *SMALL, "bool"]),
    st.integers(0, 2**32),
    st.lists(st.integers(2, 12), min_size=1, max_size=4),
    st.floats(0.01, 1),
)
def test_random_noise_claims_nothing(dtype: str, seed: int, shape: list[int], density: float) -> None:
    assume(np.prod(shape) >= 64)
    hit = np.random.default_rng(seed).random(shape) < density
    assume(hit.sum() >= 8)
    kind = "float32" if dtype == "bool" else dtype
    golden, other = (tensor(kind, tuple(shape), number) for number in (seed, seed + 1))
    if dtype == "bool":
        golden, other = golden > 0, other > 0
    assert pattern(golden, np.where(hit, other, golden)) is None


@given(st.integers(0, 2**32), st.sampled_from(FLOATS), st.sampled_from([1e-4, 1e-2, 1.0]))
def test_gaussian_noise_on_all_elements_claims_nothing(seed: int, dtype: str, size: float) -> None:
    golden = tensor(dtype, (8, 4, 33), seed)
    noise = size * np.random.default_rng(seed + 1).normal(size=golden.shape)
    actual = (golden.astype("f8") + noise).astype(golden.dtype)
    assume((golden != actual).sum() >= 64)
    assert pattern(golden, actual, rtol=1e-6) is None


CHANGES: dict[str, Any] = {
    "stuck": np.zeros_like,
    "sign": lambda x: -x,
    "factor": lambda x: x * np.float32(3),
    "offset": lambda x: x + np.float32(4),
}


@given(st.integers(0, 2**32), st.permutations(sorted(CHANGES)), st.permutations(range(16)))
def test_two_patterns_at_once_claim_only_the_places_of_both(
    seed: int, kinds: list[str], channels: list[int]
) -> None:
    golden = tensor("float32", (2, 16, 8, 5), seed)
    actual = golden.copy()
    for kind, channel in zip(kinds[:2], channels[:2], strict=True):
        actual[:, channel] = CHANGES[kind](golden[:, channel])
    found = pattern(golden, actual, layout="NCHW")
    if found is not None:
        assert found.kind == "place"
        low, high = sorted(channels[:2])
        assert found.where.startswith(f"channels {low} and {high} of 16")


@given(st.integers(0, 2**32), st.sampled_from(sorted(CHANGES)), st.integers(0, 15), st.floats(0.15, 0.6))
def test_a_near_miss_names_no_change(seed: int, kind: str, channel: int, spoiled: float) -> None:
    rng = np.random.default_rng(seed)
    golden = tensor("float32", (2, 16, 20, 10), seed)
    actual = golden.copy()
    actual[:, channel] = CHANGES[kind](golden[:, channel])
    hit = rng.random(golden.shape) < spoiled
    hit[:, :channel] = hit[:, channel + 1 :] = False
    actual[hit] += 5 * rng.normal(size=int(hit.sum())).astype(np.float32)
    found = pattern(golden, actual)
    assert found is None or (found.kind == "place" and found.where.startswith(f"index {channel} of 16"))


@pytest.mark.each(
    ("kind", "change"),
    [("factor", lambda x: 1.5 * x), ("offset", lambda x: x - 2), ("stuck", lambda x: 0 * x + 9)],
)
def test_a_change_of_nine_elements_in_ten_is_named(kind: str, change: Any) -> None:
    golden = tensor("float32", (64, 512))
    half = np.random.default_rng(1).random(golden.shape) < 0.08
    actual = np.where(half, (golden + change(golden)) / 2, change(golden))
    found = pattern(golden, actual)
    assert found is not None
    assert (found.kind, found.share) == (kind, pytest.approx(0.92, abs=0.02))


@given(st.integers(0, 2**32), st.integers(0, 15), st.floats(0.2, 1))
def test_a_difference_elsewhere_refuses_the_place(seed: int, channel: int, share: float) -> None:
    rng = np.random.default_rng(seed)
    golden = tensor("float32", (2, 16, 20, 10), seed)
    actual = changed(golden, np.s_[:, channel], 0)
    elsewhere = rng.random(golden.shape) < share / 15
    actual[elsewhere] += 5 * rng.normal(size=int(elsewhere.sum())).astype(np.float32)
    assert pattern(golden, actual) is None


def test_what_is_zero_or_special_on_both_sides_counts_for_nothing() -> None:
    words = "channel 3 of 24: 0, expected other values"
    golden = np.maximum(tensor("float32"), 0)
    actual = changed(golden, np.s_[:, 3], 0)
    assert said(golden, actual, layout="NCHW") == words
    actual[1, 5, 2, 7] += 1
    assert said(golden, actual, layout="NCHW") == words
    golden = changed(tensor("float32"), np.s_[0, 0, 0, :3], [np.nan, np.inf, -np.inf])
    assert said(golden, changed(golden, np.s_[:, 3], 0), layout="NCHW") == words
    assert pattern(golden, golden.copy()) is None
    actual = golden.copy()  # a few elements of a channel are not the channel
    actual[0, 3].reshape(-1)[::5] += 1
    actual[1, 3].reshape(-1)[2::7] -= 2
    assert pattern(golden, actual) is None


@pytest.mark.each("dtype", ["complex64", "int64", "uint64"])
def test_what_float64_does_not_hold_is_not_looked_at(dtype: str) -> None:
    golden = np.full((8, 8), 2**60 + 1).astype(dtype)
    assert pattern(golden, changed(golden, np.s_[:, 3], 0)) is None


def test_a_sample_of_the_failing_elements_leads_to_claims_about_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evidence_module, "SAMPLE", 64)
    golden = tensor("float32", (1 << 16,))  # before whose end the sample ends
    assert said(golden, golden + tensor("float32", golden.shape, seed=1)) == ""
    monkeypatch.setattr(evidence_module, "CHUNK", 1000)
    assert chunks.CHUNK > 1000
    golden = tensor("float32")
    for words in ("the last 5 of 37 columns (tail of a 16-tile)", "channel 3 of 24", "batch entry 1 of 2"):
        found = said(golden, changed(golden, PLACES[words], 0), layout="NCHW")
        assert found == f"{words}: 0, expected other values"
    assert said(golden, -golden) == "every element: the sign is flipped"
    noisy = golden + np.random.default_rng(1).normal(size=golden.shape).astype("f4")
    assert pattern(golden, noisy) is None


def test_a_pattern_is_plain_data_and_a_layout_that_names_no_axes_is_not_read_as_names() -> None:
    golden = tensor("float32", (8, 64))
    actual = changed(golden, np.s_[3], 0)
    assert said(golden, actual, layout="ND") == "row 3 of 8: 0, expected other values"
    found = pattern(golden, -golden)
    assert found is not None
    told = {"kind": "sign", "where": "every element", "what": "the sign is flipped", "share": 1.0}
    assert found.to_json() == told
    assert str(found) == "every element: the sign is flipped (100 % of the difference)"


@given(st.data(), st.lists(st.integers(1, 9), min_size=1, max_size=4))
def test_a_place_holds_the_same_elements_by_index_and_in_a_piece_of_memory(
    data: st.DataObject, shape: list[int]
) -> None:
    size = int(np.prod(shape))
    lines: list[Any] = []
    inside = np.ones(size, bool)
    for axis, along in enumerate(np.unravel_index(np.arange(size), shape)):
        length = shape[axis]
        begin, end, step = (data.draw(st.integers(*ends)) for ends in ((0, length - 1), (1, length), (1, 3)))
        few = tuple(sorted(data.draw(st.sets(st.integers(0, length - 1), min_size=1))))
        chosen = data.draw(st.sampled_from([None, few, range(begin, max(end, begin + 1), step)]))
        if chosen is not None:
            lines.append((axis, chosen))
            inside &= np.isin(along, list(chosen))
    place = evidence_module.LikelyPlace(tuple(shape), tuple(lines))
    start = data.draw(st.integers(0, size - 1))
    stop = data.draw(st.integers(start + 1, size))
    assert (place.holds(np.arange(size)) == inside).all()
    assert (place.holds_piece(start, stop) == inside[start:stop]).all()


@given(
    st.sampled_from(["float32", "float16", "bfloat16", "float8_e4m3fn", "int8", "uint16", "bool", "float64"]),
    st.integers(0, 2**32),
    st.sampled_from([1, 1e-40, 1e-6, 1e4, 3e38]),
    st.sampled_from([(0, 0), (1e-3, 0), (1e-3, 1e-5), (0, 1), (1e-40, 1e-44)]),
    st.sampled_from(["none", "zero", "a distance"]),
)
def test_which_elements_fail_is_as_float64_has_it(
    dtype: str, seed: int, scale: float, bounds: tuple[float, float], threshold: str
) -> None:
    rng, kind = np.random.default_rng(seed), np.dtype(getattr(ml_dtypes, dtype, None) or dtype)
    with np.errstate(all="ignore"):
        values = rng.choice([1, 1.001, 1 + 1e-7, -1, 0, 3], (2, 200)) * rng.choice([1, scale], 200)
        if kind.kind == "f":
            values[rng.random(values.shape) < rng.choice([0, 0.1])] = rng.choice([np.nan, np.inf, -np.inf])
        sides = np.abs(values).astype(kind) if kind.kind in "ub" else values.astype(kind)
        wide = sides.astype("f8")
        distance = np.abs(wide[1] - wide[0])
        limits = {
            "none": None,
            "zero": 0.0,
            "a distance": float(distance[np.isfinite(distance)].max(initial=0)),
        }
        tensors = evidence_module.Tensors(*sides, (200,), *bounds, limits[threshold])
        limit = bounds[1] + bounds[0] * np.abs(wide[0]) if threshold == "none" else limits[threshold]
        finite, same = np.isfinite(wide).all(axis=0), (wide[0] == wide[1]) | np.isnan(wide).all(axis=0)
        expected = np.where(finite, distance > limit, ~same)
        assert (tensors.fails(*map(evidence_module.wide, sides)) == expected).all()


SHIFTED = tensor("float16", (64, 64))
BEYOND = np.array([2**53, 2**53 + 1] * 500, np.uint64)
SIX_AXES = tensor("float32", (3,) * 6)
ROWS = np.roll(tensor("float32", (500, 4)), 1, axis=1)


@pytest.mark.each(
    ("cap", "golden", "actual", "words"),
    [
        (("LARGEST", 100), SHIFTED, -SHIFTED, "1 above 0 Mi elements"),
        (("LARGEST_MOVED", 100), SHIFTED, np.roll(SHIFTED, 5), "1 above 0 Mi elements (moved values)"),
        (("_CHECKS", 0), SHIFTED, -SHIFTED, "1 with more than 0 candidates"),
        (("_MOST_LINES", 9), ROWS, ROWS[::-1], "1 with more than 9 changed lines (their order)"),
        (None, SIX_AXES, SIX_AXES.transpose(3, 1, 5, 0, 2, 4), "1 with more than 5 axes (their order)"),
        (None, SHIFTED.astype("complex64"), -SHIFTED, "1 complex or with integers from 2^53"),
        (None, BEYOND, BEYOND + np.uint64(1), "1 complex or with integers from 2^53"),
        (None, BEYOND.astype(np.int64), BEYOND.astype(np.int64) + 1, "1 complex or with integers from 2^53"),
        (None, SHIFTED, -SHIFTED, ""),
    ],
)
def test_a_search_that_left_something_out_says_so(
    monkeypatch: pytest.MonkeyPatch, cap: tuple[str, int] | None, golden: Array, actual: Array, words: str
) -> None:
    for module in (pattern_search, possible_changes) if cap else ():
        monkeypatch.setattr(module, *cap, raising=False)
    limits: Limits = Counter()
    actual = np.ascontiguousarray(actual.astype(golden.dtype))
    found = find_pattern(golden, actual, compare_tensors(golden, actual, rtol=0, atol=0), limits=limits)
    noted = "tensors searched for patterns in part or not at all: "
    assert note_on_limits(limits) == ((noted + words,) if words else ())
    assert (found is None or found.kind == "moved") == bool(words)


@pytest.mark.each("shape", [(1 << 18, 2), (2, 1 << 18), (1 << 16, 4), (4, 8, 16, 16, 8)])
def test_lines_of_few_elements_are_neither_sorted_nor_held_where_they_are_others(
    monkeypatch: pytest.MonkeyPatch, shape: tuple[int, ...]
) -> None:
    golden, actual = (tensor("int8", shape, seed) for seed in (1, 2))
    monkeypatch.setattr(possible_changes, "CHUNK", 1 << 12)
    difference = compare_tensors(golden, actual, rtol=0, atol=0)
    sort, sizes = np.argsort, []
    monkeypatch.setattr(np, "argsort", lambda values, **how: sizes.append(values.size) or sort(values, **how))
    tracemalloc.start()
    try:
        assert find_pattern(golden, actual, difference) is None
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert max(sizes, default=0) <= 1 << 12
    assert peak < (8 << 20) + 16 * golden.size


@pytest.mark.each("shape", [(20_000, 2), (70_000, 3), (5, 6, 7, 8, 9), (9, 70_000)])
@pytest.mark.each(
    ("words", "order"),
    [
        ("shifted by 2 (or by ", lambda n: np.roll(np.arange(n), 2)),
        ("in another order: 4 are at the place of another", lambda n: np.r_[3, 0, 1, 2, np.arange(4, n)]),
    ],
)
def test_the_order_of_lines_is_found_in_narrow_and_deep_shapes(
    shape: tuple[int, ...], words: str, order: Any
) -> None:
    golden = tensor("float32", shape)
    assert words in said(golden, np.ascontiguousarray(golden[order(shape[0])]))
