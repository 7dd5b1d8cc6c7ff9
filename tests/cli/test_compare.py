from __future__ import annotations

import json
import math
import re
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

from pytest_npudump.compare.patterns import pattern_search
from pytest_npudump.dump.files.container import dump_data_class
from pytest_npudump.golden.store import stage_pair
from pytest_npudump.record.record import Record
from tests.cli.conftest import dump_file
from tests.conftest import table_of
from tests.dump.conftest import HEADER as CSV, STAMP

Run = Any
DATA = Path(__file__).parents[1] / "data"
TENSORS = DATA / "trees" / "acl-tensor"
STATISTICS = DATA / "trees" / "acl-stats"
GOLDEN = DATA.parent.parent / "golden" / "tests" / "demo" / "test_ppocr"
VALUES = np.linspace(-3, 5, 4096, dtype=np.float32)
HEAD = "npudump-golden: 1\ntest: test_a.py::test_a\nproducer: {runtime: acl, digits: 6}\n"
COLUMNS = "columns: tensor dtype shape max min avg l2norm nan -inf +inf\ntensors: |\n"


@pytest.fixture
def pair(tmp_path: Path) -> Callable[..., tuple[Path, Path]]:
    """Write two dumps of a tensor each: ``pair(golden, actual, **options)``."""
    written = iter(range(100))

    def write(golden: np.ndarray, actual: np.ndarray, **options: Any) -> tuple[Path, Path]:
        folder = tmp_path / f"pair{next(written)}"
        for side, values in (("golden", golden), ("actual", actual)):
            dump_file(folder / side, "net/relu", np.ascontiguousarray(values), **options)
        return folder / "golden", folder / "actual"

    return write


@pytest.fixture
def verdict(pair: Run, run: Run) -> Callable[..., tuple[int, Any]]:
    """Compare two tensors: the exit code, and their verdict as JSON."""

    def compare(golden: np.ndarray, actual: np.ndarray, **options: Any) -> tuple[int, Any]:
        done = run("compare", *pair(golden, actual, **options), "--json", "-")
        return done.code, done.json["verdicts"][0]

    return compare


def test_the_steps_of_mindspore_s_asynchronous_dumps_are_compared_by_number(run: Run, tmp_path: Path) -> None:
    for layout in ("0/net/1", "0"):
        sides = []
        for steps in ((5, 6), (5, 9), (5, 6)):
            sides.append(tmp_path / layout / str(len(sides)))
            for iteration, step in enumerate(steps):
                below = f"{layout}/{iteration}" if layout != "0" else layout
                folder = sides[-1] / f"{step}/2026010101010{iteration}/{below}"
                folder.mkdir(parents=True)
                name = f"Add.a.0.0.{STAMP + iteration}.output.0.DefaultFormat.float32.npy"
                np.save(folder / name, VALUES)
        assert run("compare", sides[0], sides[2]).code == 0
        done = run("compare", sides[0], sides[1])
        assert done.code == 1
        assert re.search(r"^a +Add +output.0 \(step=1\) +missing", done.out, re.MULTILINE)
        assert re.search(r"^a +Add +output.0 \(step=4\) +new", done.out, re.MULTILINE)
        assert "step=4" in run("ls", sides[1]).out
        assert "step=4" in run("ls", "--stats", sides[1]).out


def test_a_rule_that_matches_nothing_or_is_for_a_statistic_that_one_side_lacks_is_named(
    run: Run, tmp_path: Path, pair: Run
) -> None:
    golden, rules = tmp_path / "golden.yaml", tmp_path / "rules.yaml"
    rules.write_text("rules: [{layer: no_such, rtol: 0, atol: 0}, {layer: '*', rtol: 0, atol: 0}]\n")
    done = run("compare", TENSORS, TENSORS, "--tolerances", rules)
    assert done.code == 0
    assert "rtol=0 atol=0 layer=no_such" in done.err
    assert done.err.count("matches no tensor of either side") == 1
    rules.write_text("rules: [{statistic: l2norm, rtol: 0, atol: 0}, {statistic: avg, rtol: 0, atol: 0}]\n")
    for norm, idle in (("-", 1), ("4", 0)):
        golden.write_text(f"{HEAD}{COLUMNS}  net/relu:output.0 float32 4096 5 -3 1 {norm} 0 0 0\n", "utf-8")
        done = run("compare", golden, pair(VALUES, VALUES)[1], "--tolerances", rules)
        assert done.err.count("statistic=l2norm") == idle
        words = "decides nothing: only one side has this statistic of the tensors that it matches"
        assert done.err.count(words) == idle


def _noisy() -> tuple[np.ndarray, np.ndarray]:
    values = np.random.default_rng(2).standard_normal(1 << 14).astype(np.float16)
    noisy = np.nextafter(values, np.float16(np.inf))
    noisy[:64] = values[:64] + np.float16(5e-4)
    return values, noisy


def _spiky() -> np.ndarray:
    values = np.random.default_rng(1).standard_normal(1 << 14).astype(np.float16)
    values[0] = 1000
    return values


def _changed(values: np.ndarray, at: int, value: float) -> np.ndarray:
    other = values.copy()
    other[at] = value
    return other


BYTES, BFLOATS = np.arange(64, dtype=np.uint8), VALUES.astype(ml_dtypes.bfloat16)
INTEGERS, SIGNS = np.arange(100, dtype=np.int32), np.array([1, -1, 2, -2] * 8, np.float16)
PAIRS: list[tuple[np.ndarray, np.ndarray, dict[str, Any], list[str]]] = [
    # Statistics are equal, and elements are not.
    (VALUES, VALUES[::-1], {}, ["max_abs: ", "relative_l2: "]),
    (
        VALUES,
        np.roll(VALUES, 1)[np.argsort(np.arange(VALUES.size) % 2, kind="stable")],
        {},
        ["max_abs: ", "relative_l2: "],
    ),
    (SIGNS, -SIGNS, {}, ["max_abs: 0", "relative_l2: "]),
    (_spiky(), np.concatenate([_spiky()[:1], _spiky()[:0:-1]]), {}, ["relative_l2: "]),
    (
        _changed(VALUES, 1, math.nan),
        _changed(VALUES, 2, math.nan),
        {},
        ["NaN and Inf: 1 NaN -> 1 NaN, 2 places differ, first at [1] ["],
    ),
    (INTEGERS, INTEGERS[::-1], {}, ["elements: equal -> 100 of 100 differ, by 99 at most"]),
    (
        BYTES,
        _changed(BYTES, 3, 9),
        {"dtype": "qint8"},
        ["bytes: 64 equal -> 1 differ [exact match required]"],
    ),
    (BFLOATS, BFLOATS, {}, []),
    (BFLOATS, _changed(BFLOATS, 0, 40), {}, ["max: "]),
    (*_noisy(), {}, []),
]


@pytest.mark.each("golden, actual, options, reasons", PAIRS)
def test_elements_decide(
    verdict: Run, golden: np.ndarray, actual: np.ndarray, options: dict[str, Any], reasons: list[str]
) -> None:
    found, told = verdict(golden, actual, **options)
    assert (found, told["status"]) == ((1, "fail") if reasons else (0, "pass"))
    assert all(any(one.startswith(reason) for one in told["reasons"]) for reason in reasons), told["reasons"]


def test_padding_of_a_device_layout_does_not_count_and_noise_of_a_step_is_outside_of_some_bounds(
    verdict: Run,
) -> None:
    golden = np.arange(1 * 1 * 2 * 2 * 16, dtype=np.float16).reshape(1, 1, 2, 2, 16)
    actual = golden.copy()
    golden[..., 3:], actual[..., 3:] = 0, 60000
    code, told = verdict(golden, actual, layout="NC1HWC0", original=(1, 3, 2, 2))
    assert (code, told["elements"]["shape"]) == (0, [1, 3, 2, 2])
    assert 0 < verdict(*_noisy())[1]["elements"]["within"] < 1


def test_what_is_not_compared_by_value_is_said(run: Run, pair: Run) -> None:
    same = run("compare", *pair(BYTES, BYTES, dtype="qint8"))
    assert (same.code, "byte by byte" in same.out) == (0, True)
    done = run("compare", *pair(BYTES[:8], BYTES[8:16], dtype="resource", shape=(1,)))
    assert done.code == 2
    assert "1 of 1 tensors compared, 1 of them without a finite value: nothing was compared" in done.out
    assert "elements not compared" in done.out
    done = run("compare", *pair(VALUES, VALUES + np.float32(1), layout="FRACTAL_DECONV"))
    assert done.code == 1
    assert "compared in the device's layout: no conversion from FRACTAL_DECONV" in done.out
    assert done.out.splitlines()[-1].split()[-1] == "device"


def test_layouts_are_brought_into_the_golden_s(run: Run, tmp_path: Path) -> None:
    host = np.random.default_rng(3).standard_normal((1, 3, 2, 2)).astype(np.float16)
    device = np.zeros((1, 1, 2, 2, 16), np.float16)
    device[..., :3] = host.transpose(0, 2, 3, 1)[:, None]
    dump_file(tmp_path / "golden", "conv", host, layout="NCHW")
    dump_file(tmp_path / "device", "conv", device, layout="NC1HWC0", original=host.shape)
    square = np.random.default_rng(0).standard_normal((1, 2, 2, 2)).astype(np.float32)
    dump_file(tmp_path / "nchw", "conv", square, layout="NCHW")
    dump_file(tmp_path / "nhwc", "conv", np.ascontiguousarray(square.transpose(0, 2, 3, 1)), layout="NHWC")
    dump_file(tmp_path / "other", "conv", square, layout="NHWC")
    for golden, actual, code in (("golden", "device", 0), ("nchw", "nhwc", 0), ("nchw", "other", 1)):
        assert run("compare", tmp_path / golden, tmp_path / actual).code == code


def test_rtol_on_the_command_line_decides_and_statistics_alone_name_the_first_layer(
    run: Run, tmp_path: Path, pair: Run
) -> None:
    sides = pair(VALUES, VALUES * np.float32(1.01))
    for words, code in (((), 1), (("--rtol", "0.02"), 0), (("--rtol", "-1"), 2)):
        assert run("compare", *sides, *words).code == code
    assert run("compare", sides[0], sides[0], "--preset", "exact").code == 0
    changed = tmp_path / "changed"
    shutil.copytree(STATISTICS, changed)
    path = next(changed.rglob("Softmax*.csv"))
    path.write_text(path.read_text().replace("0.225", "0.325"))
    done = run("compare", STATISTICS, changed)
    assert (done.code, "first mismatch: net_Softmax@0" in done.out) == (1, True)
    done = run("compare", next(GOLDEN.glob("*said.yaml")), STATISTICS)
    assert (done.code, "first mismatch" in done.out) == (1, True)


@pytest.mark.each("verbose", [(), ("-v",)])
def test_a_comparison_that_fails_says_what_changed_within_tolerance_as_one_that_passes(
    run: Run, tmp_path: Path, verbose: tuple[str, ...]
) -> None:
    near, far = VALUES * np.float32(1 + 1e-6), VALUES * np.float32(2)
    tensors = {"same": VALUES, "near": near, "nearer": near}
    for number, (name, values) in enumerate(tensors.items(), 1):
        for side, held in (("golden", VALUES), ("actual", values)):
            dump_file(tmp_path / side, name, held, number=number)
    sides = (tmp_path / "golden", tmp_path / "actual")
    passing = run("compare", *sides, *verbose)
    assert passing.code == 0
    told = "2 changed within tolerance, first near:output.0"
    assert passing.out.splitlines()[-1] == told
    for side, held in zip(sides, (VALUES, far), strict=True):
        dump_file(side, "far", held, number=9)
    failing = run("compare", *sides, *verbose)
    assert failing.code == 1
    assert failing.out.splitlines()[:2] == [
        "4 of 4 tensors compared, 4 of them element by element; mismatches: 1",
        told,
    ]
    assert failing.out.count("changed within tolerance") == 1
    data = run("compare", *sides, "--json", "-").json
    assert data["summary"]["changed"] == 2
    assert [verdict["layer"] for verdict in data["verdicts"] if verdict.get("changed")] == ["near", "nearer"]


@pytest.mark.each("content", [None, "a: mapping\nof: yaml\n", "", b""])
def test_what_is_neither_a_golden_nor_a_dump_is_refused_without_advice_on_updating(
    run: Run, tmp_path: Path, content: str | bytes | None
) -> None:
    path = tmp_path / "input"
    if isinstance(content, str):
        path.write_text(content)
    elif content is not None:
        path.mkdir()
    done = run("compare", path, STATISTICS)
    assert (done.code, done.out, str(path) in done.err) == (2, "", True)
    assert "npudump-update-golden" not in done.err
    assert path.is_dir() or "neither a golden file nor a dump directory" in done.err


def test_what_cannot_be_read_is_named_and_never_passes(run: Run, tmp_path: Path, pair: Run) -> None:
    golden = tmp_path / "g.yaml"
    golden.write_text("npudump-golden: 1\ntest: t\n")
    done = run("compare", golden, STATISTICS)
    assert (done.code, f"{golden}, line 1" in done.err) == (2, True)
    # One file of a dump: the rest is compared.
    broken = tmp_path / "broken"
    shutil.copytree(TENSORS, broken)
    cut = min(path for path in broken.rglob("*") if path.is_file())
    cut.write_bytes(cut.read_bytes()[:40])
    done = run("compare", TENSORS, broken)
    assert done.code == 2
    assert "2 of 4 tensors compared, 2 of them element by element; mismatches: 2" in done.out
    assert (done.err.count("npudump: unreadable: "), str(cut) in done.err) == (1, True)
    # A tensor that is shorter than its shape, and a length in a header that is not believed.
    whole = dump_file(tmp_path / "whole", "a", VALUES)
    short = dump_file(tmp_path / "short", "a", VALUES, shape=(5000,))
    long = dump_file(tmp_path / "long", "x", VALUES)
    long.write_bytes(struct.pack("<Q", 1 << 60) + long.read_bytes()[8:])
    for one, other in ((whole, short), (long, long)):
        done = run("compare", one.parent, other.parent)
        assert (done.code, str(other) in done.err) == (2, True)
    # Tensors of another recording than the golden file.
    record = Record("t", {}, table_of(("net/relu:output.0", "float32", (4096,), {"max": 5.0})), golden)
    stage_pair(record, {"net/relu:output.0": (VALUES, "float32")}, {}).commit()
    before = golden.with_suffix(".safetensors").read_bytes()
    stage_pair(record, {"net/relu:output.0": (VALUES + 1, "float32")}, {}).commit()
    golden.with_suffix(".safetensors").write_bytes(before)
    done = run("compare", golden, pair(VALUES, VALUES)[1])
    assert (done.code, "recorded with other statistics than g.yaml" in done.err) == (2, True)


def test_a_layer_on_one_side_only_is_a_difference_and_no_name_steers_the_terminal(
    run: Run, tmp_path: Path, pair: Run
) -> None:
    golden, actual = pair(VALUES, VALUES)
    dump_file(actual, "new", VALUES, number=2)
    done = run("compare", golden, actual, "--json", "-")
    assert done.code == 1
    assert [verdict["status"] for verdict in done.json["verdicts"]] == ["pass", "extra"]
    for side, values in (("golden", VALUES), ("actual", -VALUES)):
        path = dump_file(tmp_path / side, "evil\x1b[31m", values)
        path.rename(path.with_name(f"T.e.1.3.{STAMP}"))
    done = run("compare", tmp_path / "golden", tmp_path / "actual")
    assert (done.code, "\x1b" in done.out) == (1, False)


def test_a_verbose_report_lists_every_failing_tensor(run: Run, tmp_path: Path) -> None:
    for number in range(25):
        dump_file(tmp_path / "golden", f"layer_{number:02d}", VALUES, number=number)
        dump_file(tmp_path / "actual", f"layer_{number:02d}", VALUES[::-1].copy(), number=number)
    sides = tmp_path / "golden", tmp_path / "actual"
    assert "... and 5 more (-v lists all)" in run("compare", *sides).out
    assert "layer_24" in run("compare", *sides, "-v").out


def test_a_golden_with_tensors_beside_it_is_compared_element_by_element(
    run: Run, tmp_path: Path, pair: Run
) -> None:
    norm = np.linalg.norm(VALUES.astype(float))
    row = f"  net/relu float32 4096 5.0 -3.0 1.0 {norm} 0 0 0\n"
    (tmp_path / "g.yaml").write_text(HEAD.replace(", digits: 6", "") + COLUMNS + row)
    save_file({"net/relu:output.0": VALUES}, tmp_path / "g.safetensors")
    same, other = pair(VALUES, VALUES[::-1])
    done = run("compare", tmp_path / "g.yaml", other, "--json", "-")
    assert (done.code, done.json["summary"]["elements_compared"]) == (1, 1)
    assert run("compare", tmp_path / "g.yaml", same).code == 0


def test_tensors_without_a_shape_are_compared_byte_by_byte(run: Run, tmp_path: Path) -> None:
    def write(name: str, data: bytes, message: Any) -> Path:
        header = message.SerializeToString()
        path = tmp_path / name / f"exception_info.2.3.{STAMP}"
        path.parent.mkdir()
        path.write_bytes(struct.pack("<Q", len(header)) + header + data)
        return path.parent

    message = dump_data_class()(version="2.0", dump_time=1)
    message.input.add(data_type=0, size=64, address=4096)
    message.space.add(size=8)
    one = write("one", bytes(72), message)
    same = run("compare", one, write("same", bytes(64) + b"scratch!", message))
    assert same.code == 0
    assert "a workspace is scratch memory" in same.out
    differs = run("compare", one, write("other", bytes(63) + b"\1" + bytes(8), message))
    assert differs.code == 1
    assert "1 of 64 bytes" in differs.out


def test_statistics_of_a_host_tensor_are_compared_with_those_of_the_tensor_in_its_device_layout(
    run: Run, tmp_path: Path
) -> None:
    def table(side: str, row: str) -> Path:
        (tmp_path / side).mkdir()
        (tmp_path / side / f"Type.conv.1.3.{STAMP}.csv").write_text(f"{CSV}{row}\n")
        return tmp_path / side

    host = np.random.default_rng(3).standard_normal((1, 20, 2, 2)).astype(np.float32)
    padded = np.zeros((1, 32, 2, 2), np.float32)
    padded[:, :20] = host
    device = np.ascontiguousarray(padded.reshape(1, 2, 16, 2, 2).transpose(0, 1, 3, 4, 2))
    dump_file(tmp_path / "tensors", "conv", device, layout="NC1HWC0", original=host.shape)
    row = ",".join(f"{float(value):.6g}" for value in (host.max(), host.min(), host.mean(dtype=np.float64)))
    stats = table("stats", f"Output,0,{host.nbytes},DT_FLOAT,NCHW,1x20x2x2,{row},{host.size},0,0,0")
    done = run("compare", stats, tmp_path / "tensors")
    assert (done.code, done.err) == (0, "")
    # Those of tensors with other names of axes come with a note.
    sides = [table(name, f"Output,0,32,DT_FLOAT,{name},1x2x2x2,1,0,0.5,8,0,0,0") for name in ("NCHW", "NHWC")]
    done = run("compare", *sides)
    assert done.code == 0
    assert "note: the golden's layout is NCHW, the dump's NHWC, and statistics do not show" in done.out


def test_values_below_atol_and_small_ones_beside_a_large_one_pass_with_a_note(run: Run, pair: Run) -> None:
    small = np.full(64, 1e-10, np.float32)
    golden = np.random.default_rng(0).standard_normal(4096).astype(ml_dtypes.bfloat16)
    golden[0] = 30000
    for sides, note in (
        (pair(small, -small), "all values are below the absolute tolerance"),
        (
            pair(golden, np.concatenate([golden[:1], golden[:0:-1]])),
            "most elements differ by more than rtol of their own value",
        ),
    ):
        done = run("compare", *sides)
        assert (done.code, f"note: {note}" in done.out) == (0, True)


def test_where_inside_a_tensor_it_differs_is_told(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = np.random.default_rng(1).standard_normal((8, 512)).astype(np.float16)
    tail = np.where(np.arange(512) < 500, values, np.float16(0))
    for side, arrays in (("golden", (values, values)), ("actual", (tail, -values))):
        for number, array in enumerate(arrays):
            dump_file(tmp_path / side, f"layer_{number}", array, number=number)
    done = run("compare", tmp_path / "golden", tmp_path / "actual", "--json", tmp_path / "found.json")
    assert done.code == 1
    words = "the last 12 of 512 columns: 0, expected other values (100 % of the difference)"
    assert f"\npattern: {words}\n" in done.out
    assert "pattern of layer_1:output.0: every element: the sign is flipped (100 % " in done.out
    told = json.loads((tmp_path / "found.json").read_text())
    assert [verdict["pattern"]["kind"] for verdict in told["verdicts"]] == ["stuck", "sign"]
    assert (told["summary"]["notes"], "searched" in done.out) == ([], False)
    monkeypatch.setattr(pattern_search, "SEARCHED", 1)
    done = run("compare", tmp_path / "golden", tmp_path / "actual", "--json", tmp_path / "found.json")
    note = "tensors searched for patterns in part or not at all: 1 after the first 1"
    assert f"note: {note}" in done.out
    assert json.loads((tmp_path / "found.json").read_text())["summary"]["notes"] == [note]


@pytest.fixture
def nine(tmp_path: Path) -> tuple[Path, Path]:
    """Two dumps of nine tensors, of which the last eight differ."""
    for side, factor in (("a", 1.0), ("b", 2.0)):
        (tmp_path / side).mkdir()
        for turn in range(9):
            values = np.float32(turn + 1) * np.linspace(-1, 1, 60, dtype=np.float32).reshape(6, 10)
            name = f"Conv.layer{turn}.{turn}.0.{1700000000000000 + turn}.output.0.DefaultFormat.npy"
            np.save(tmp_path / side / name, values * np.float32(factor if turn else 1))
    return tmp_path / "a", tmp_path / "b"


def test_plots_draw_the_run_and_the_first_failing_tensors(
    run: Run, nine: tuple[Path, Path], tmp_path: Path
) -> None:
    plain = run("compare", *nine)
    done = run("compare", *nine, "--plots", tmp_path / "out")
    assert done.code == plain.code == 1
    names = ["run.svg", *(f"tensor-{number}.svg" for number in range(1, 7))]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == names
    assert "layer1:output.0" in (tmp_path / "out/tensor-1.svg").read_text("utf-8")
    told = [f"picture: {tmp_path / 'out' / name}" for name in names]
    assert done.out.splitlines() == [*plain.out.splitlines(), *told]
    assert run("compare", *nine, "--plots", tmp_path / "out", "--json", "-").json["summary"]["failed"] == 8
    assert run("compare", nine[0], nine[0], "--plots", tmp_path / "equal").code == 0
    assert [path.name for path in (tmp_path / "equal").iterdir()] == ["run.svg"]
    (tmp_path / "file").touch()
    for words, refused in (
        (("m.onnx", nine[1], "--plots", tmp_path / "out"), "--plots: not with an ONNX model"),
        ((*nine, "--plots", tmp_path / "file"), "the pictures cannot be written"),
    ):
        done = run("compare", *words)
        assert (done.code, refused in done.err) == (2, True)
    next(nine[1].iterdir()).write_bytes(b"\x93NUMPY")  # which is told behind the pictures
    assert run("compare", *nine, "--plots", tmp_path / "odd").code == 2
    assert (tmp_path / "odd/run.svg").exists()
