"""What is upstream of a tensor decides its bounds under other numerics, and only there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pytest_npudump.compare.judge import Terms, judge
from pytest_npudump.compare.stats.verdict import FAIL
from pytest_npudump.compare.tolerances.tolerance import Rule, Tolerances
from pytest_npudump.compare.tolerances.upstream import Ancestry
from pytest_npudump.dump.records import Payload, TensorKey, TensorRecord
from pytest_npudump.dump.stats.projections import project
from pytest_npudump.dump.stats.tensor import tensor_stats
from pytest_npudump.dump.table import StatsTable
from pytest_npudump.record.record import EDGES, Record
from pytest_npudump.regression.judgement import judge_run

Array = np.ndarray[tuple[int, ...], np.dtype[np.generic]]
Row = tuple[str, str, Array, str]
RNG = np.random.default_rng(3)
X = RNG.normal(size=(8, 64)).astype(np.float32)
CODES = np.clip(np.rint(X * 40), -128, 127).astype(np.int8)


def row(name: str, op_type: str, array: Array, fed: str = "") -> Row:
    """A tensor: the layer, its operator, its elements, and the layers that feed it."""
    return name, op_type, array, fed


def records(
    rows: Sequence[Row], folder: Path | None = None, *, projections: bool = True
) -> list[TensorRecord]:
    found = []
    for name, op_type, array, _ in rows:
        stats = replace(tensor_stats(array), projections=project(array) if projections else None)
        layer, _, slot = name.partition(".")
        key = TensorKey(layer, "output", int(slot or 0))
        record = TensorRecord(key, op_type, array.dtype.name, array.shape, Path("run"), stats=stats)
        if folder is not None:
            path = folder / name
            path.write_bytes(array.tobytes())
            record = replace(record, path=path, payload=Payload(path, 0, array.nbytes))
        found.append(record)
    return found


def outside(
    rows: Sequence[Row],
    changes: Mapping[str, Array],
    preset: str = "other",
    *,
    folder: Path | None = None,
    rules: tuple[Rule, ...] = (),
    edges: bool = True,
    projections: bool = True,
    layers: tuple[str, ...] = (),
    kept: bool = True,
) -> dict[str, str]:
    """What fails, with the rules, where a run has other elements; of a golden that knows no operators."""
    sides = []
    for number, side in enumerate((rows, [(n, op, changes.get(n, a), fed) for n, op, a, fed in rows])):
        own = None if folder is None else folder / str(number)
        if own is not None:
            own.mkdir(exist_ok=True)
        found = records(side, own, projections=projections)
        table = StatsTable.from_records(found)
        if not number:
            table = replace(table, op_types=("",) * len(table))
        ports = {
            name.partition(".")[0]: [f"{port}:output.0" if port != "-" else "-" for port in fed.split()]
            for name, _, _, fed in rows
            if fed
        }
        lines = [f"{name} < {' '.join(fed)}\n" for name, fed in ports.items()]
        blocks = {EDGES: "".join(lines)} if edges and not number else {}
        tensors = tuple(found) if folder is not None and (number or kept) else ()
        sides.append(Record("", {}, table, Path("golden.yaml"), blocks=blocks, tensors=tensors))
    terms = Terms(Tolerances(preset, rules), layers=layers)
    if kept:
        comparison = judge(sides[0], sides[1], terms)
    else:
        told = judge_run(terms, sides[0], replace(sides[1], tensors=()), dumped=sides[1].tensors).comparison
        assert told is not None
        comparison = told
    return {one.key.layer: one.reasons[0].rule for one in comparison.failing if one.status == FAIL}


def off(array: Array, share: float) -> Array:
    """The same with noise of a share of its magnitude, at most."""
    noise = share * np.abs(array).max() * (2 * np.random.default_rng(5).random(array.shape) - 1)
    return (array + noise).astype(array.dtype)


HALF = X.astype(np.float16)
CHAIN = [
    row("product", "MatMul", HALF),
    row("cast", "Cast", HALF.astype(np.float32), "product"),
    row("softmax", "Softmax", X * 2, "cast -"),
    row("shape", "Shape", np.array([8, 64]), "cast"),
    row("scaled", "Cast", np.array([8, 64], np.float32), "shape"),
    row("alone", "MatMul", X, "-"),
]
NOISY = {name: off(array, 5e-3) for name, _, array, _ in CHAIN if array.dtype == np.float32}


def test_the_narrowest_type_upstream_decides_through_all_that_computes() -> None:
    found = outside(CHAIN, NOISY)
    assert list(found) == ["scaled", "alone"]  # behind a shape, and behind nothing that is known
    assert "(preset other)" in found["alone"]
    assert "float16 upstream" in outside(CHAIN, {"softmax": off(X * 2, 5e-2)})["softmax"]


@pytest.mark.each("preset", ["same", "exact", "ascend-abs", "torch"])
def test_no_other_preset_is_widened(preset: str) -> None:
    assert set(outside(CHAIN, NOISY, preset)) == set(NOISY)


def test_a_rule_and_a_golden_without_edges_decide_as_ever() -> None:
    rules = (Rule(1e-6, 0, layer="softmax", source="marker"),)
    assert "marker" in outside(CHAIN, NOISY, rules=rules)["softmax"]
    assert set(outside(CHAIN, NOISY, edges=False)) == set(NOISY)


def test_types_are_the_golden_s() -> None:
    narrow = NOISY["alone"].astype(np.float16)
    assert "exact match required" in outside(CHAIN, {"alone": narrow})["alone"]
    rows = [row("product", "MatMul", X), row("softmax", "Softmax", X, "product")]
    found = outside(rows, {"product": X.astype(np.float16), "softmax": off(X, 5e-3)})
    assert list(found) == ["product", "softmax"]
    assert "(preset other)" in found["softmax"]


QUANTISED = [
    row("x", "MatMul", X),
    row("codes", "QuantizeLinear", CODES, "x - -"),
    row("moved", "Transpose", CODES.T.copy(), "codes"),
    row("sums", "ConvInteger", CODES.astype(np.int32) * 9, "codes - - -"),
    row("floats", "DequantizeLinear", CODES / np.float32(40), "moved - -"),
    row("again", "QuantizeLinear", CODES + np.int8(1), "floats - -"),
    row("index", "ArgMax", CODES.argmax(axis=1), "codes"),
    row("mask", "Greater", CODES > 0, "codes -"),
    row("other", "Cast", CODES.copy(), "x"),
]


def turned(array: Array, number: int, step: int = 1) -> Array:
    """The same with some codes a step further, none of them an extreme one."""
    found = array.copy().reshape(-1)
    inner = np.flatnonzero(np.abs(found) < 100)
    found[inner[:: len(inner) // number][:number]] += np.asarray(step, found.dtype)
    return found.reshape(array.shape)


@pytest.mark.parametrize("tensors", [False, True])
def test_a_small_share_of_codes_may_turn_to_the_next(tmp_path: Path, tensors: bool) -> None:  # noqa: FBT001
    def found(layer: str, number: int, step: int = 1, preset: str = "other") -> dict[str, str]:
        array = next(array for name, _, array, _ in QUANTISED if name == layer)
        changes = {layer: turned(array, number, step)}
        return outside(QUANTISED, changes, preset, folder=tmp_path if tensors else None)

    assert CODES.size == 512
    for layer in ("codes", "moved"):
        assert not found(layer, 5)
        assert "of the codes" in found(layer, 100)[layer]
        assert found(layer, 1, preset="same")
    assert found("codes", 5, 60)  # a few, and far
    there_and_back = turned(turned(CODES, 200), 100, -2)
    assert outside(QUANTISED, {"codes": there_and_back}, folder=tmp_path if tensors else None)
    assert found("other", 1)  # no quantisation, as far as anybody knows
    assert found("sums", 40, 9)  # of the golden's codes
    assert found("again", 200, 60)


def of_codes(codes: Array) -> dict[str, Array]:
    """What follows from other codes than the golden's."""
    sums, floats = codes.astype(np.int32) * 9, codes / np.float32(40)
    return {"codes": codes, "moved": codes.T.copy(), "sums": sums, "floats": floats}


@pytest.mark.parametrize("tensors", [False, True])
def test_what_follows_from_codes_may_be_as_far_off_as_they_are(tmp_path: Path, tensors: bool) -> None:  # noqa: FBT001
    few = of_codes(turned(CODES, 5))
    again = turned(next(array for name, _, array, _ in QUANTISED if name == "again"), 60)

    def failing(**changes: Array) -> set[str]:
        return {*outside(QUANTISED, few | changes, folder=tmp_path if tensors else None)}

    assert not failing()
    assert not failing(again=again)  # where a step is upstream, more codes turn
    one_code = CODES.T.copy()
    one_code[3, 5] += np.int8(100 if one_code[3, 5] < 0 else -100)
    noise = 2e-3 * np.abs(few["floats"]).max() * RNG.choice([-1, 1], few["floats"].shape)
    assert not failing(floats=few["floats"] + noise.astype(np.float32))
    for name, wrong in {
        "sums": few["sums"] * 21 // 20,
        "floats": few["floats"] * np.float32(1.02),
        "again": again + np.int8(1),
    }.items():
        assert failing(**{name: wrong}) == {name}
    assert failing(moved=one_code) == {"moved"}
    assert failing(floats=np.roll(few["floats"], 1, axis=0)) == {"floats"}


def test_what_is_computed_of_codes_has_the_noise_of_8_bits() -> None:
    floats = next(array for name, _, array, _ in QUANTISED if name == "floats")
    for unknown in ({"projections": False}, {"layers": ("*",)}):  # how far inputs are off, or what is between
        assert not outside(QUANTISED, {"floats": off(floats, 2e-2)}, **unknown)
    found = outside(QUANTISED, {"floats": off(floats, 0.5)}, projections=False)
    assert "8-bit codes upstream" in found["floats"]
    index = np.roll(CODES.argmax(axis=1), 1)
    assert list(outside(QUANTISED, {"index": index, "mask": CODES < 0})) == ["index", "mask"]


def test_a_difference_is_as_noisy_as_what_was_subtracted() -> None:
    wide = (1000 + X).astype(np.float32)
    mean = wide.mean(axis=1, keepdims=True)
    centred, still = wide - mean, (wide - mean + 3000).astype(np.float32)
    rows = [
        row("wide", "MatMul", wide),
        row("mean", "ReduceMean", mean, "wide"),
        row("centred", "Sub", centred, "wide mean"),
        row("square", "Mul", centred * centred, "centred centred"),
        row("zero", "Sub", np.zeros_like(X), "wide wide"),
        row("still", "Add", still, "centred -"),
        row("fresh", "MatMul", X, "-"),
    ]
    noise = 1e-6 * 1000 * (2 * np.random.default_rng(5).random(X.shape) - 1)
    changed = {
        name: (array + noise.astype(np.float32)) for name, _, array, _ in rows if array.shape == X.shape
    }
    assert list(outside(rows, changed)) == ["fresh"]
    assert {"centred", "square", "zero", "fresh"} <= set(outside(rows, changed, "same"))
    found = outside(rows, {"centred": off(centred, 0.5), "zero": X, "still": off(still, 1e-3)})
    assert "times for what cancelled upstream" in found["centred"]
    assert "cancelled" in found["zero"]
    assert "(preset other)" in found["still"]  # the noise is small again beside what was added


def test_a_logarithm_is_as_noisy_as_the_smallest_that_it_reads() -> None:
    power = np.exp(4 * X - 8).astype(np.float32)
    rows = [
        row("power", "MatMul", power),
        row("log", "Log", np.log(power), "power"),
        row("alone", "Log", X, "-"),
    ]
    changed = {name: off(array, 2e-5) for name, _, array, fed in rows if name != "power"}
    assert list(outside(rows, changed)) == ["alone"]
    assert list(outside(rows, {"log": off(np.log(power), 1e-3)})) == ["log"]


def test_a_quotient_is_as_noisy_as_the_smallest_divisor() -> None:
    wide = (20 + np.abs(X)).astype(np.float32)
    gap, signs, level = wide - np.float32(19.5), wide - np.float32(21.5), (1 + X**2).astype(np.float32)
    cancelled, ratio = wide.max() / gap.max(), gap.max() / gap.min()
    expected: list[tuple[str, str, Array, str, float]] = [
        ("level", "MatMul", level, "-", 1),
        ("gap", "Sub", gap, "wide -", cancelled),
        ("quotient", "RealDiv", level / gap, "level gap", cancelled * ratio),
        ("whole", "Reciprocal", 1 / gap, "gap", cancelled * ratio),
        ("root", "Rsqrt", 1 / np.sqrt(gap), "gap", cancelled * np.sqrt(ratio) / 2),
        ("divided", "Div", gap / level, "gap level", cancelled),
        ("steady", "Reciprocal", 1 / level, "level", 1),
        ("signs", "Sub", signs, "wide -", wide.max() / np.abs(signs).max()),
        ("around", "Reciprocal", 1 / signs, "signs", wide.max() / np.abs(signs).max()),
    ]
    rows = [row("wide", "MatMul", wide), *(row(*one[:4]) for one in expected)]
    found = outside(rows, {name: off(array, 0.1) for name, _, array, _ in rows})
    for name, *_, times in expected:
        words = f": {times:.2g} times for what cancelled upstream" if times > 1 else "(preset other)"
        assert words in found[name], name


def test_results_up_to_1_are_as_exact_as_1_is() -> None:
    tiny = (1e-6 * (1 + X**2)).astype(np.float32)
    rows = [row("scores", "Sigmoid", tiny, "-"), row("product", "Mul", tiny, "-")]
    near, far = (tiny + np.float32(size) for size in (6e-8, 1e-6))
    for preset in ("same", "other"):
        assert list(outside(rows, {"scores": near, "product": near}, preset)) == ["product"]
        assert list(outside(rows, {"scores": far, "product": far}, preset)) == ["scores", "product"]


def test_zeros_do_not_pass_for_what_cancelled() -> None:
    wide = (1e7 + X).astype(np.float32)
    rows = [row("wide", "MatMul", wide), row("centred", "Sub", X, "wide wide")]
    assert list(outside(rows, {"centred": np.zeros_like(X)})) == ["centred"]
    one = np.zeros_like(X)
    one[0, 0] = 1e6
    rows = [row("spike", "MatMul", X + one), row("gone", "Sub", 0 * X, "spike spike")]
    assert not outside(rows, {"gone": 1e-6 * one})
    assert list(outside(rows, {"gone": np.ones_like(X)})) == ["gone"]


SCORES = np.array([[0.1, 0.7, 0.700001, 0.2], [0.9, 0.3, 0.4, 0.1]], np.float32)
SORTED = np.argsort(-SCORES, axis=1)[:, :2]


@pytest.mark.each(
    "what, op_type, golden, run, good",
    [
        ("the other of a tie", "ArgMax", [2, 0], [1, 0], True),
        ("really another", "ArgMax", [2, 0], [2, 2], False),
        ("no index at all", "ArgMax", [2, 0], [9, 0], False),
        ("no operator that chooses", "Gather", [2, 0], [1, 0], False),
        ("the golden's are no extremes", "ArgMax", [1, 0], [2, 0], False),
        ("smallest values", "ArgMinD", [0, 3], [0, 3], True),
        ("a tie swapped", "TopKV2", SORTED, SORTED[:, ::-1] * [[1], [0]] + SORTED * [[0], [1]], True),
        ("one of them another", "TopKV2", SORTED, [[2, 3], [0, 2]], False),
    ],
)
def test_indices_are_judged_by_their_values_under_other_numerics(  # noqa: PLR0917
    tmp_path: Path,
    what: str,
    op_type: str,
    golden: object,
    run: object,
    good: bool,  # noqa: FBT001
) -> None:
    before, now = np.asarray(golden, np.int64), np.asarray(run, np.int64)
    rows = [row("scores", "MatMul", SCORES), row("index", op_type, before, "scores -")]
    assert (not outside(rows, {"index": now}, folder=tmp_path)) == good, what
    changed = not np.array_equal(before, now)
    assert bool(outside(rows, {"index": now}, "same", folder=tmp_path)) == changed, what  # equal values only
    assert bool(outside(rows, {"index": now})) == changed, f"{what}: without tensors"


TIED = np.array([[0.1, 0.7, 0.7, 0.2], [0.9, 0.3, 0.4, 0.1]], np.float32)
UNTIED = TIED * np.float32([1, 1, 0.9, 1])
TWO = np.array([[1, 2], [0, 2]])
OTHER_TWO = np.array([[2, 1], [0, 2]])


@pytest.mark.each(
    "what, op_type, scores, golden, run, good",
    [
        ("the other of a tie", "ArgMax", TIED, [1, 0], [2, 0], True),
        ("an axis that is kept", "ArgMaxV2", TIED, [[1], [0]], [[2], [0]], True),
        ("no extreme", "ArgMax", TIED, [1, 0], [1, 2], False),
        ("no index at all", "ArgMax", TIED, [1, 0], [4, 0], False),
        ("the smallest", "ArgMax", np.ones_like(TIED) - TIED, [1, 0], [2, 0], False),
        ("of the smallest", "ArgMin", np.ones_like(TIED) - TIED, [1, 0], [2, 0], True),
        ("nothing ties", "ArgMax", UNTIED, [2, 0], [1, 0], False),
        ("an axis that is not known", "ArgMax", TIED[:, :2] * 0, [1, 0], [0, 0], False),
        ("nothing that chooses", "Gather", TIED, [1, 0], [2, 0], False),
        ("the values at them", "TopK", TIED, TWO, OTHER_TWO, True),
        ("other values at them", "TopK", TIED, TWO, [[2, 1], [2, 0]], False),
        ("one of them twice", "TopK", TIED, TWO, [[2, 2], [0, 2]], False),
    ],
)
def test_indices_of_equal_values_pass_where_only_the_run_has_tensors(  # noqa: PLR0917
    tmp_path: Path,
    what: str,
    op_type: str,
    scores: Array,
    golden: object,
    run: object,
    good: bool,  # noqa: FBT001
) -> None:
    before, now = np.asarray(golden, np.int64), np.asarray(run, np.int64)
    index = "index.1" if op_type == "TopK" else "index"
    rows = [row("scores", "MatMul", scores), row(index, op_type, before, "scores -")]
    values = row("index", op_type, np.take_along_axis(TIED, TWO, 1))
    for preset in ("same", "other"):
        told = [*rows, *([values] if op_type == "TopK" else [])]
        assert (not outside(told, {index: now}, preset, folder=tmp_path, kept=False)) == good, (what, preset)
    assert outside(told, {index: now}, "exact", folder=tmp_path, kept=False), what
    assert outside(rows, {index: now, "scores": -scores}, folder=tmp_path, kept=False), what
    if op_type == "TopK":
        assert outside(rows, {index: now}, folder=tmp_path, kept=False), "the values at them are not there"


# Of float32 and of float16 under other numerics: the maximum's, 20 and 12,000 millionths.
RTOL, ATOL, WIDE = 2e-5, 2**-22, (0.012 - 2e-5) * 10 + 2**-20 - 2**-22


@pytest.mark.each(
    ("ancestry", "dtype", "statistic", "expected"),
    [
        (Ancestry(""), "float32", "max", (RTOL, ATOL, "")),
        (Ancestry("int8", 0.25), "int8", "max", (0, 1, "1 step in 25 % of the codes")),
        (Ancestry("float16"), "float32", "max", (0.012, 2**-20, "float16 upstream")),
        (
            Ancestry("", wider=(2, 9)),
            "float32",
            "max",
            (2 * RTOL, ATOL, "2 times for what cancelled upstream"),
        ),
        (Ancestry("", cancelled=(3, 9)), "float32", "max", (RTOL, ATOL + 3 * RTOL, "3 cancelled")),
        (Ancestry("", cancelled=(9, 3)), "float32", "l2norm", (1e-5, ATOL + 12e-5, "3 cancelled")),
        # The inputs' difference follows where that is less: it is here, and is not by a thousandth.
        (
            Ancestry("float16", size=(10, 99), passed_on=(WIDE * 0.999, 0)),
            "float32",
            "max",
            (RTOL, ATOL + WIDE * 0.999, "float16 upstream, as far off as its inputs"),
        ),
        (
            Ancestry("float16", size=(10, 99), passed_on=(WIDE * 1.001, 0)),
            "float32",
            "max",
            (0.012, 2**-20, "float16 upstream"),
        ),
    ],
)
def test_a_bound_is_the_widest_that_its_ancestry_asks_for(
    ancestry: Ancestry, dtype: str, statistic: str, expected: tuple[float, float, str]
) -> None:
    rtol, atol, why = ancestry.bound("other", dtype, statistic, 16)
    assert (rtol, atol) == pytest.approx(expected[:2], rel=1e-12)
    assert str(why) == expected[2]
