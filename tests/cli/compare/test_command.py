from __future__ import annotations

import json
import math
import re
import shutil
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest

from pytest_npudump.dump.files.container import dump_data_class
from pytest_npudump.golden.store import stage_pair
from pytest_npudump.record.record import Record

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_npudump.dump.table import StatsTable

    Run = Callable[..., Any]

DATA = Path(__file__).parents[2] / "data"
TENSORS = DATA / "trees" / "acl-tensor"
STATISTICS = DATA / "trees" / "acl-stats"
GOLDEN = DATA.parent.parent / "golden" / "tests" / "demo" / "test_ppocr"

STAMP = 1795228705872229
VALUES = np.linspace(-3, 5, 4096, dtype=np.float32)


def _two(
    tmp_path: Path, dump_file: Run, golden: np.ndarray, actual: np.ndarray, **options: Any
) -> tuple[Path, Path]:
    dump_file(tmp_path / "golden", "net/relu", golden, **options)
    dump_file(tmp_path / "actual", "net/relu", actual, **options)
    return tmp_path / "golden", tmp_path / "actual"


def test_real_tensors_agree_with_themselves_element_by_element(run: Run) -> None:
    done = run("compare", TENSORS, TENSORS)
    assert done == (0, "4 of 4 tensors compared, 4 of them element by element, all within tolerance\n", "")


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
        assert "step=4" in run("stats", sides[1]).out


def test_a_rule_of_the_file_that_matches_nothing_is_named(run: Run, tmp_path: Path) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text("rules: [{layer: no_such, rtol: 0, atol: 0}, {layer: '*', rtol: 0, atol: 0}]\n")
    done = run("compare", TENSORS, TENSORS, "--tolerances", rules)
    assert done.code == 0
    assert "rtol=0 atol=0 layer=no_such" in done.err
    assert done.err.count("matches no tensor of either side") == 1


def test_a_rule_for_a_statistic_that_one_side_lacks_is_named(
    run: Run, tmp_path: Path, dump_file: Run
) -> None:
    golden, actual = tmp_path / "golden.yaml", tmp_path / "actual"
    dump_file(actual, "net/relu", VALUES)
    head = "npudump-golden: 1\ntest: test_a.py::test_a\nproducer: {runtime: acl, digits: 6}\n"
    columns = "columns: tensor dtype shape max min avg l2norm nan -inf +inf\ntensors: |\n"
    rules = tmp_path / "rules.yaml"
    rules.write_text("rules: [{statistic: l2norm, rtol: 0, atol: 0}, {statistic: avg, rtol: 0, atol: 0}]\n")
    for norm, idle in (("-", 1), ("4", 0)):
        row = f"  net/relu:output.0 float32 4096 5 -3 1 {norm} 0 0 0\n"
        golden.write_text(head + columns + row, "utf-8")
        done = run("compare", golden, actual, "--tolerances", rules)
        assert done.err.count("statistic=l2norm") == idle
        words = "decides nothing: only one side has this statistic of the tensors that it matches"
        assert done.err.count(words) == idle


def test_the_json_has_the_published_shape(run: Run) -> None:
    done = run("compare", TENSORS, TENSORS, "--json", "-")
    assert set(done.json) == {"summary", "first_divergence", "first_change", "verdicts"}
    assert done.json["first_divergence"] is None
    assert done.json["first_change"] is None
    assert (done.json["summary"]["identical"], done.json["summary"]["changed"]) == (4, 0)
    first = done.json["verdicts"][0]
    expected = {"layer": "net/MatMul@0", "op_type": "MatMul", "io": "input", "slot": 0, "status": "pass"}
    assert {name: first[name] for name in expected} == expected
    assert first["reasons"] == []
    assert first["elements"]["cosine"] == pytest.approx(1, abs=1e-12)
    assert first["elements"]["layout"] == "host"


@pytest.mark.parametrize(
    "change",
    [
        lambda values: values[::-1],
        lambda values: np.roll(values, 1)[np.argsort(np.arange(values.size) % 2, kind="stable")],
    ],
    ids=["reversed", "permuted"],
)
def test_a_permutation_that_leaves_all_statistics_equal_is_a_difference(
    run: Run, tmp_path: Path, dump_file: Run, change: Callable[[np.ndarray], np.ndarray]
) -> None:
    sides = _two(tmp_path, dump_file, VALUES, np.ascontiguousarray(change(VALUES)))
    done = run("compare", *sides, "--json", "-")
    assert done.code == 1
    assert done.json["first_divergence"] == {"layer": "net/relu", "io": "output", "slot": 0}
    (verdict,) = done.json["verdicts"]
    assert verdict["status"] == "fail"
    assert [reason.split(":")[0] for reason in verdict["reasons"]] == ["max_abs", "relative_l2"]


def test_a_flipped_sign_that_leaves_all_statistics_equal_is_a_difference(
    run: Run, tmp_path: Path, dump_file: Run
) -> None:
    values = np.array([1, -1, 2, -2] * 8, np.float16)
    done = run("compare", *_two(tmp_path, dump_file, values, -values))
    assert done.code == 1
    assert "elements: max abs 4, " in done.out
    header, row = done.out.splitlines()[2:4]
    assert header.endswith("max abs  max rel  cosine  within  compared in")
    assert row.split()[-5:] == ["4", "2", "-1", "0%", "host"]


def test_permuted_small_elements_beside_one_large_one_are_a_difference(
    run: Run, tmp_path: Path, dump_file: Run
) -> None:
    values = np.random.default_rng(1).standard_normal(1 << 14).astype(np.float16)
    values[0] = 1000
    done = run(
        "compare",
        *_two(tmp_path, dump_file, values, np.concatenate([values[:1], values[:0:-1]])),
        "--json",
        "-",
    )
    (verdict,) = done.json["verdicts"]
    assert done.code == 1
    assert any(reason.startswith("relative_l2") for reason in verdict["reasons"])


def test_noise_of_a_step_of_the_format_passes(run: Run, tmp_path: Path, dump_file: Run) -> None:
    values = np.random.default_rng(2).standard_normal(1 << 14).astype(np.float16)
    noisy = np.nextafter(values, np.float16(np.inf))
    noisy[:64] = values[:64] + np.float16(5e-4)
    done = run("compare", *_two(tmp_path, dump_file, values, noisy), "--json", "-")
    assert done.code == 0
    assert 0 < done.json["verdicts"][0]["elements"]["within"] < 1


def test_measures_are_those_of_numpy_in_float64(run: Run, tmp_path: Path, dump_file: Run) -> None:
    other = VALUES + np.sin(np.arange(VALUES.size, dtype=np.float32))
    done = run("compare", *_two(tmp_path, dump_file, VALUES, other), "--json", "-")
    found = done.json["verdicts"][0]["elements"]
    golden, actual = VALUES.astype(float), other.astype(float)
    assert found["max_abs"] == pytest.approx(np.abs(actual - golden).max(), rel=1e-6)
    assert found["cosine"] == pytest.approx(
        golden @ actual / np.linalg.norm(golden) / np.linalg.norm(actual), rel=1e-9
    )
    assert found["relative_l2"] == pytest.approx(
        np.linalg.norm(actual - golden) / np.linalg.norm(golden), rel=1e-6
    )
    within = np.abs(actual - golden) <= 2.0**-30 + 2e-5 * np.abs(golden)
    assert found["within"] == np.count_nonzero(within) / within.size


def test_a_nan_that_moved_is_a_difference(run: Run, tmp_path: Path, dump_file: Run) -> None:
    golden, actual = VALUES.copy(), VALUES.copy()
    golden[1], actual[2] = math.nan, math.nan
    actual[1], golden[2] = VALUES[1], VALUES[2]
    done = run("compare", *_two(tmp_path, dump_file, golden, actual), "--json", "-")
    assert done.code == 1
    reasons = done.json["verdicts"][0]["reasons"]
    assert reasons[0].startswith("NaN and Inf: 1 NaN -> 1 NaN, 2 places differ, first at [1] [")


def test_integers_are_exact_element_by_element(run: Run, tmp_path: Path, dump_file: Run) -> None:
    values = np.arange(100, dtype=np.int32)
    done = run("compare", *_two(tmp_path, dump_file, values, values[::-1].copy()), "--json", "-")
    assert done.code == 1
    assert done.json["verdicts"][0]["reasons"][0].startswith(
        "elements: equal -> 100 of 100 differ, by 99 at most"
    )


def test_types_without_values_are_compared_byte_by_byte(run: Run, tmp_path: Path, dump_file: Run) -> None:
    values = np.arange(64, dtype=np.uint8)
    other = values.copy()
    other[3] = 9
    same = run("compare", *_two(tmp_path / "same", dump_file, values, values, dtype="qint8"))
    assert same.code == 0
    assert "byte by byte" in same.out
    differs = run("compare", *_two(tmp_path, dump_file, values, other, dtype="qint8"), "--json", "-")
    assert differs.code == 1
    assert differs.json["verdicts"][0]["reasons"] == ["bytes: 64 equal -> 1 differ [must be equal]"]


def test_addresses_are_not_compared_and_it_is_said(run: Run, tmp_path: Path, dump_file: Run) -> None:
    one, other = np.arange(8, dtype=np.uint8), np.arange(8, 16, dtype=np.uint8)
    done = run("compare", *_two(tmp_path, dump_file, one, other, dtype="resource", shape=(1,)))
    assert done.code == 2
    assert "1 of 1 tensors compared, 1 of them without a value to judge: nothing was judged" in done.out
    assert "elements not compared" in done.out


def test_padding_of_a_device_layout_does_not_count(run: Run, tmp_path: Path, dump_file: Run) -> None:
    golden = np.arange(1 * 1 * 2 * 2 * 16, dtype=np.float16).reshape(1, 1, 2, 2, 16)
    actual = golden.copy()
    golden[..., 3:], actual[..., 3:] = 0, 60000
    options = {"layout": "NC1HWC0", "original": (1, 3, 2, 2)}
    done = run("compare", *_two(tmp_path, dump_file, golden, actual, **options), "--json", "-")
    assert done.code == 0
    assert done.json["verdicts"][0]["elements"]["shape"] == [1, 3, 2, 2]


def test_a_host_tensor_equals_the_same_one_in_a_device_layout(
    run: Run, tmp_path: Path, dump_file: Run
) -> None:
    host = np.random.default_rng(3).standard_normal((1, 3, 2, 2)).astype(np.float16)
    device = np.zeros((1, 1, 2, 2, 16), np.float16)
    device[..., :3] = host.transpose(0, 2, 3, 1)[:, None]
    dump_file(tmp_path / "golden", "conv", host, layout="NCHW")
    dump_file(tmp_path / "actual", "conv", device, layout="NC1HWC0", original=host.shape)
    assert run("compare", tmp_path / "golden", tmp_path / "actual").code == 0


def test_a_layout_that_cannot_be_converted_is_compared_on_the_device_and_says_so(
    run: Run, tmp_path: Path, dump_file: Run
) -> None:
    sides = _two(tmp_path, dump_file, VALUES, VALUES + np.float32(1), layout="FRACTAL_DECONV")
    done = run("compare", *sides)
    assert done.code == 1
    assert "compared as it lies on the device: no conversion from FRACTAL_DECONV" in done.out
    assert done.out.splitlines()[-1].split()[-1] == "device"


def test_bfloat16_compares_in_its_own_type(run: Run, tmp_path: Path, dump_file: Run) -> None:
    values = VALUES.astype(ml_dtypes.bfloat16)
    assert run("compare", *_two(tmp_path, dump_file, values, values)).code == 0
    other = values.copy()
    other[0] = 40
    assert run("compare", *_two(tmp_path / "b", dump_file, values, other)).code == 1


def test_rtol_on_the_command_line_decides(run: Run, tmp_path: Path, dump_file: Run) -> None:
    sides = _two(tmp_path, dump_file, VALUES, VALUES * np.float32(1.01))
    assert run("compare", *sides).code == 1
    assert run("compare", *sides, "--rtol", "0.02").code == 0
    assert run("compare", *sides, "--rtol", "-1").code == 2
    same = run("compare", sides[0], sides[0], "--preset", "exact")
    assert same.code == 0


def test_statistics_alone_are_compared_as_before(run: Run, tmp_path: Path) -> None:
    assert run("compare", STATISTICS, STATISTICS).out == "54 of 54 tensors compared, all within tolerance\n"
    changed = tmp_path / "changed"
    shutil.copytree(STATISTICS, changed)
    path = next(changed.rglob("Softmax*.csv"))
    path.write_text(path.read_text().replace("0.225", "0.325"))
    done = run("compare", STATISTICS, changed)
    assert done.code == 1
    assert "first diverging layer: net_Softmax@0" in done.out


@pytest.mark.parametrize("verbose", [(), ("-v",)], ids=["brief", "verbose"])
def test_a_comparison_that_fails_says_what_changed_within_tolerance_as_one_that_passes(
    run: Run, tmp_path: Path, dump_file: Run, verbose: tuple[str, ...]
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
        "4 of 4 tensors compared, 4 of them element by element: 1 differ",
        told,
    ]
    assert failing.out.count("changed within tolerance") == 1
    data = run("compare", *sides, "--json", "-").json
    assert data["summary"]["changed"] == 2
    assert [verdict["layer"] for verdict in data["verdicts"] if verdict.get("changed")] == ["near", "nearer"]


def test_a_golden_file_is_compared_with_a_dump(run: Run) -> None:
    golden = next(GOLDEN.glob("*said.yaml"))
    done = run("compare", golden, STATISTICS)
    assert done.code == 1
    assert "first diverging layer" in done.out


@pytest.mark.parametrize("kind", ["nothing", "text", "directory", "empty file"])
def test_what_is_neither_a_golden_nor_a_dump_is_refused_without_advice_on_updating(
    run: Run, tmp_path: Path, kind: str
) -> None:
    path = tmp_path / "input"
    if kind == "text":
        path.write_text("a: mapping\nof: yaml\n")
    elif kind == "directory":
        path.mkdir()
    elif kind == "empty file":
        path.write_bytes(b"")
    done = run("compare", path, STATISTICS)
    assert done.code == 2
    assert done.out == ""
    assert str(path) in done.err
    assert "npudump-update-golden" not in done.err
    if kind != "directory":
        assert "neither a golden file nor a dump directory" in done.err


def test_a_damaged_golden_says_where(run: Run, tmp_path: Path) -> None:
    golden = tmp_path / "g.yaml"
    golden.write_text("npudump-golden: 1\ntest: t\n")
    done = run("compare", golden, STATISTICS)
    assert done.code == 2
    assert f"{golden}, line 1" in done.err


def test_unreadable_files_are_named_after_what_could_be_read(run: Run, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(TENSORS, broken)
    paths = sorted(path for path in broken.rglob("*") if path.is_file())
    paths[0].write_bytes(paths[0].read_bytes()[:40])
    done = run("compare", TENSORS, broken)
    assert done.code == 2
    assert "2 of 4 tensors compared, 2 of them element by element: 2 differ" in done.out
    assert done.err.count("npudump: unreadable: ") == 1
    assert str(paths[0]) in done.err


def test_a_tensor_shorter_than_its_shape_is_named_and_no_pass(
    run: Run, tmp_path: Path, dump_file: Run
) -> None:
    golden = dump_file(tmp_path / "golden", "a", VALUES)
    actual = dump_file(tmp_path / "actual", "a", VALUES, shape=(5000,))
    done = run("compare", golden.parent, actual.parent)
    assert done.code == 2
    assert str(actual) in done.err


def test_two_single_files_are_compared(run: Run) -> None:
    path = next(path for path in TENSORS.rglob("MatMul*"))
    assert run("compare", path, path).code == 0


def test_a_layer_on_one_side_only_is_a_difference(run: Run, dump_file: Run, tmp_path: Path) -> None:
    golden, actual = _two(tmp_path, dump_file, VALUES, VALUES)
    dump_file(actual, "new", VALUES, number=2)
    done = run("compare", golden, actual, "--json", "-")
    assert done.code == 1
    assert [verdict["status"] for verdict in done.json["verdicts"]] == ["pass", "extra"]


def test_a_verbose_report_lists_every_failing_tensor(run: Run, dump_file: Run, tmp_path: Path) -> None:
    for number in range(25):
        dump_file(tmp_path / "golden", f"layer_{number:02d}", VALUES, number=number)
        dump_file(tmp_path / "actual", f"layer_{number:02d}", VALUES[::-1].copy(), number=number)
    sides = tmp_path / "golden", tmp_path / "actual"
    assert "... and 5 more (-v lists all)" in run("compare", *sides).out
    assert "layer_24" in run("compare", *sides, "-v").out


def test_a_golden_with_tensors_beside_it_is_compared_element_by_element(
    run: Run, dump_file: Run, tmp_path: Path
) -> None:
    from safetensors.numpy import save_file

    golden = tmp_path / "g.yaml"
    golden.write_text(
        "npudump-golden: 1\ntest: t\nproducer: {runtime: acl}\n"
        "columns: tensor dtype shape max min avg l2norm nan -inf +inf\n"
        "tensors: |\n"
        f"  net/relu:output.0 float32 4096 5.0 -3.0 1.0 {np.linalg.norm(VALUES.astype(float))} 0 0 0\n"
    )
    save_file({"net/relu:output.0": VALUES}, tmp_path / "g.safetensors")
    golden_side, actual = _two(tmp_path, dump_file, VALUES, VALUES[::-1].copy())
    done = run("compare", golden, actual, "--json", "-")
    assert done.code == 1
    assert done.json["summary"]["elements_compared"] == 1
    assert run("compare", golden, golden_side).code == 0


def test_tensors_of_another_recording_than_the_golden_file_are_unreadable(
    run: Run, dump_file: Run, tmp_path: Path, make_table: Callable[..., StatsTable]
) -> None:
    facts = ("net/relu:output.0", "float32", (4096,), {"max": 5.0})
    golden = Record("t", {}, make_table(facts), tmp_path / "g.yaml")
    stage_pair(golden, {"net/relu:output.0": (VALUES, "float32")}, {}).commit()
    before = (tmp_path / "g.safetensors").read_bytes()
    stage_pair(golden, {"net/relu:output.0": (VALUES + 1, "float32")}, {}).commit()
    (tmp_path / "g.safetensors").write_bytes(before)
    _, actual = _two(tmp_path, dump_file, VALUES, VALUES)
    done = run("compare", golden.path, actual)
    assert done.code == 2
    assert "recorded with other statistics than g.yaml" in done.err


def test_an_escape_sequence_in_a_layers_name_does_not_reach_the_terminal(
    run: Run, dump_file: Run, tmp_path: Path
) -> None:
    for side, values in (("golden", VALUES), ("actual", -VALUES)):
        dump_file(tmp_path / side, "evil\x1b[31m", values).rename(
            tmp_path / side / f"T.e.1.3.{1795228705872229}"
        )
    done = run("compare", tmp_path / "golden", tmp_path / "actual")
    assert done.code == 1
    assert "\x1b" not in done.out


def test_a_length_in_a_header_is_not_believed(run: Run, dump_file: Run, tmp_path: Path) -> None:
    path = dump_file(tmp_path / "a", "x", VALUES)
    path.write_bytes(struct.pack("<Q", 1 << 60) + path.read_bytes()[8:])
    done = run("compare", path.parent, path.parent)
    assert done.code == 2
    assert str(path) in done.err


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


def test_axes_are_put_into_the_golden_s_order(run: Run, tmp_path: Path, dump_file: Run) -> None:
    nchw = np.random.default_rng(0).standard_normal((1, 2, 2, 2)).astype(np.float32)
    dump_file(tmp_path / "golden", "conv", nchw, layout="NCHW")
    dump_file(tmp_path / "same", "conv", np.ascontiguousarray(nchw.transpose(0, 2, 3, 1)), layout="NHWC")
    dump_file(tmp_path / "other", "conv", nchw, layout="NHWC")
    assert run("compare", tmp_path / "golden", tmp_path / "same").code == 0
    assert run("compare", tmp_path / "golden", tmp_path / "other").code == 1


def test_statistics_of_a_host_tensor_are_compared_with_those_of_the_tensor_in_its_device_layout(
    run: Run, tmp_path: Path, dump_file: Run
) -> None:
    host = np.random.default_rng(3).standard_normal((1, 20, 2, 2)).astype(np.float32)
    padded = np.zeros((1, 32, 2, 2), np.float32)
    padded[:, :20] = host
    device = np.ascontiguousarray(padded.reshape(1, 2, 16, 2, 2).transpose(0, 1, 3, 4, 2))
    dump_file(tmp_path / "tensors", "conv", device, layout="NC1HWC0", original=host.shape)
    row = [f"{float(value):.6g}" for value in (host.max(), host.min(), host.mean(dtype=np.float64))]
    text = (
        "Input/Output,Index,Data Size,Data Type,Format,Shape,Max Value,Min Value,Avg Value,Count,"
        "Nan Count,Negative Inf Count,Positive Inf Count\n"
        f"Output,0,{host.nbytes},DT_FLOAT,NCHW,1x20x2x2,{','.join(row)},{host.size},0,0,0\n"
    )
    (tmp_path / "stats").mkdir()
    (tmp_path / "stats" / f"Type.conv.1.3.{STAMP}.csv").write_text(text)
    done = run("compare", tmp_path / "stats", tmp_path / "tensors")
    assert (done.code, done.err) == (0, "")


def test_statistics_of_tensors_with_other_names_of_axes_come_with_a_note(run: Run, tmp_path: Path) -> None:
    for name, layout in (("golden", "NCHW"), ("actual", "NHWC")):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"Type.conv.1.3.{STAMP}.csv").write_text(
            "Input/Output,Index,Data Size,Data Type,Format,Shape,Max Value,Min Value,Avg Value,Count,"
            f"Nan Count,Negative Inf Count,Positive Inf Count\nOutput,0,32,DT_FLOAT,{layout},1x2x2x2,1,0,0.5,"
            "8,0,0,0\n"
        )
    done = run("compare", tmp_path / "golden", tmp_path / "actual")
    assert done.code == 0
    assert "note: the golden's layout is NCHW, the dump's NHWC, and statistics do not show" in done.out


def test_values_below_atol_and_small_ones_beside_a_large_one_pass_with_a_note(
    run: Run, tmp_path: Path, dump_file: Run
) -> None:
    small = np.full(64, 1e-10, np.float32)
    done = run("compare", *_two(tmp_path / "small", dump_file, small, -small))
    assert done.code == 0
    assert "note: all values are below the absolute tolerance" in done.out
    golden = np.random.default_rng(0).standard_normal(4096).astype(ml_dtypes.bfloat16)
    golden[0] = 30000
    actual = golden.copy()
    actual[1:] = golden[:0:-1]
    done = run("compare", *_two(tmp_path / "large", dump_file, golden, actual))
    assert done.code == 0
    assert "note: most elements are farther off than rtol of themselves" in done.out


def test_where_inside_a_tensor_it_differs_is_told(run: Run, tmp_path: Path, dump_file: Run) -> None:
    values = np.random.default_rng(1).standard_normal((8, 512)).astype(np.float16)
    tail = np.where(np.arange(512) < 500, values, np.float16(0))
    for side, arrays in (("golden", (values, values)), ("actual", (tail, -values))):
        for number, array in enumerate(arrays):
            dump_file(tmp_path / side, f"layer_{number}", array, number=number)
    done = run("compare", tmp_path / "golden", tmp_path / "actual", "--json", tmp_path / "found.json")
    assert done.code == 1
    words = "the last 12 of 512 columns: 0 instead of values (explains all of the difference)"
    assert f"\npattern: {words}\n" in done.out
    assert "pattern of layer_1:output.0: every element: the sign is flipped (explains all " in done.out
    told = json.loads((tmp_path / "found.json").read_text())["verdicts"]
    assert [verdict["pattern"]["kind"] for verdict in told] == ["stuck", "sign"]


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
    run: Callable[..., Any], nine: tuple[Path, Path], tmp_path: Path
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


def test_plots_of_equal_dumps_are_the_run_alone(
    run: Callable[..., Any], nine: tuple[Path, Path], tmp_path: Path
) -> None:
    assert run("compare", nine[0], nine[0], "--plots", tmp_path / "out").code == 0
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["run.svg"]


def test_a_file_that_cannot_be_read_is_told_behind_the_pictures(
    run: Callable[..., Any], nine: tuple[Path, Path], tmp_path: Path
) -> None:
    next(nine[1].iterdir()).write_bytes(b"\x93NUMPY")
    assert run("compare", *nine, "--plots", tmp_path / "out").code == 2
    assert (tmp_path / "out/run.svg").exists()


def test_plots_of_an_onnx_model_and_into_a_file_are_refused(
    run: Callable[..., Any], nine: tuple[Path, Path], tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    for words, told in (
        (("m.onnx", nine[1], "--plots", tmp_path / "out"), "--plots: not with an ONNX model"),
        ((*nine, "--plots", tmp_path / "file"), "the pictures cannot be written"),
    ):
        done = run("compare", *words)
        assert (done.code, told in done.err) == (2, True)
