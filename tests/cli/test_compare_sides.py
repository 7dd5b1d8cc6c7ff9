"""Sides of ``npudump compare`` that are not two dumps of models: eager calls, projections, an ONNX model."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_npudump.dump.files.container import dump_data_class
from pytest_npudump.dump.reader import read_dump
from pytest_npudump.dump.table import StatsTable
from pytest_npudump.golden.store import write_golden
from pytest_npudump.record.record import Record
from tests.cli.conftest import dump_file

Run = Callable[..., Any]
TIME = 1795228705872229
CALLS = [("aclnnAdd", 1.0), ("aclnnMul", 2.0), ("aclnnAdd", 3.0), ("aclnnAdd", 5.0)]


def eager_dump(root: Path, calls: Sequence[tuple[str, float]], *, counter: int = 0) -> Path:
    """Write the tensor files of eager calls with two equal float32 elements each."""
    folder = root / "20261121045635" / "0"
    folder.mkdir(parents=True)
    for at, (api, value) in enumerate(calls):
        message: Any = dump_data_class()(version="2.0", dump_time=TIME + at, op_name=api)
        tensor = message.output.add(data_type=1, format=2, size=8, address=4096)
        tensor.shape.dim.append(2)
        header = message.SerializeToString()
        name = f"{api}_{counter + at}_L2.{api}.65535.65535.{TIME + at}"
        data = struct.pack("<Q", len(header)) + header + struct.pack("<2f", value, value)
        folder.joinpath(name).write_bytes(data)
    return root


def found(done: Any) -> list[tuple[str, str]]:
    return [
        (verdict["status"], verdict.get("key", verdict["layer"]))
        for verdict in done.json["verdicts"]
        if verdict["status"] != "pass"
    ]


def test_a_call_more_is_one_extra_tensor_and_all_others_are_compared_by_element(
    run: Run, tmp_path: Path
) -> None:
    golden = eager_dump(tmp_path / "a", CALLS)
    actual = eager_dump(tmp_path / "b", [CALLS[0], ("aclnnAdd", 9.0), *CALLS[1:]], counter=70)
    done = run("compare", golden, actual, "--json", "-")
    assert done.code == 1
    assert found(done) == [("extra", "aclnnAdd#turn=3:output.0")]
    assert [v["elements"]["max_abs"] for v in done.json["verdicts"] if v["status"] == "pass"] == [0.0] * 4
    assert any("1 only in the dump, of 5: aclnnAdd (call 2)" in n for n in done.json["summary"]["notes"])


def test_a_changed_element_behind_a_lost_call_is_compared_with_its_own_golden(
    run: Run, tmp_path: Path
) -> None:
    golden = eager_dump(tmp_path / "a", CALLS)
    actual = eager_dump(tmp_path / "b", [CALLS[0], CALLS[2], ("aclnnExp", 0.0), ("aclnnAdd", 5.5)])
    done = run("compare", golden, actual, "--json", "-")
    assert found(done) == [
        ("missing", "aclnnMul"),
        ("extra", "aclnnExp"),
        ("fail", "aclnnAdd#turn=2:output.0"),
    ]
    (changed,) = [verdict for verdict in done.json["verdicts"] if verdict["status"] == "fail"]
    assert changed["elements"]["max_abs"] == 0.5


def test_runs_whose_counters_differ_agree(run: Run, tmp_path: Path) -> None:
    done = run("compare", eager_dump(tmp_path / "a", CALLS), eager_dump(tmp_path / "b", CALLS, counter=999))
    assert done.code == 0


Run = Callable[..., Any]
VALUES = np.random.default_rng(0).standard_normal((50, 60), np.float32)
PERMUTED = VALUES[[1, 0, *range(2, 50)]]
CSV_HEAD = "Input/Output,Index,Data Size,Data Type,Format,Shape,Max Value,Min Value,Avg Value,Count,Nan Count"


def golden_of(tmp_path: Path, *, projections: bool = True) -> Path:
    dump_file(tmp_path / "before", "net/relu", VALUES)
    table = StatsTable.from_records(read_dump(tmp_path / "before", projections=projections).records)
    path = tmp_path / "golden.yaml"
    write_golden(Record("t", {"runtime": "acl"}, table, path))
    return path


def test_projections_of_a_golden_are_compared_with_those_of_tensors(run: Run, tmp_path: Path) -> None:
    golden = golden_of(tmp_path)
    assert run("compare", golden, tmp_path / "before").code == 0
    dump_file(tmp_path / "after", "net/relu", PERMUTED)
    done = run("compare", golden, tmp_path / "after", "--json", "-")
    assert done.code == 1
    [verdict] = done.json["verdicts"]
    [reason] = verdict["reasons"]
    assert reason.startswith("projections: the elements differ by an l2norm of about ")
    assert done.json["first_change"] == {"layer": "net/relu", "io": "output", "slot": 0}
    assert "l2norm of the difference about" in run("compare", golden, tmp_path / "after").out
    rows = run("golden", "show", "--tolerances=", golden, "--json", "-").json["tolerances"]
    assert [row["statistic"] for row in rows] == ["max", "min", "avg", "l2norm", "projections"]
    assert rows[-1]["rule"].startswith("rtol=1.5e-05")
    assert rows[-1]["golden"] == pytest.approx(float(np.linalg.norm(VALUES)), rel=1e-6)
    assert " difference " in run("golden", "show", "--tolerances=", golden, "net/relu").out
    golden = golden_of(tmp_path, projections=False)  # which is compared without
    assert "projections" not in run("compare", golden, tmp_path / "after", "--json", "-").out


@pytest.mark.parametrize("values", [VALUES, PERMUTED], ids=["as it was", "permuted"])
def test_a_table_beside_the_tensors_does_not_hide_their_projections(
    run: Run, tmp_path: Path, values: np.ndarray
) -> None:
    golden = golden_of(tmp_path)
    path = dump_file(tmp_path / "after", "net/relu", values)
    told = f"{VALUES.max():.6g},{VALUES.min():.6g},{VALUES.mean():.6g},3000,0,0,0"
    rows = [f"{CSV_HEAD},Negative Inf Count,Positive Inf Count", f"Output,0,12000,DT_FLOAT,ND,50x60,{told}"]
    path.with_name(f"{path.name}.csv").write_text("\n".join(rows) + "\n")
    done = run("compare", golden, tmp_path / "after", "--json", "-")
    found = {reason.partition(":")[0] for v in done.json["verdicts"] for reason in v["reasons"]}
    assert found == (set() if values is VALUES else {"projections"})
    [record] = read_dump(tmp_path / "after", projections=True).records
    assert record.stats is not None
    assert (record.stats.digits, record.stats.projections is not None) == (6, True)


DATA = Path(__file__).parents[1] / "data" / "reference"


def test_dump_that_agrees_is_0(run: Run, classifier: Path) -> None:
    done = run("compare", classifier, DATA / "golden", "--inputs", classifier.with_suffix(".npz"))
    assert done.code == 0, done
    assert "of 5 of 5 layers, all within tolerance" in done.out


def test_dump_of_changed_weights_is_1(run: Run, classifier: Path) -> None:
    inputs = ("--inputs", classifier.with_suffix(".npz"))
    done = run("compare", classifier, DATA / "regressed", *inputs)
    assert done.code == 1
    assert "\nagainst the reference classifier.onnx: net/Conv@22:input.0 relative_l2 0.11102 from" in done.out
    assert run("compare", classifier, DATA / "regressed", *inputs, "--rtol", "0.5").code == 0
    assert run("compare", classifier, DATA / "golden", *inputs, "--rtol", "1e-7").code == 1
    found = run("compare", classifier, DATA / "regressed", *inputs, "--json", "-").json
    assert found["first"] == "net/Conv@22:input.0"
    assert len(found["comparison"]["verdicts"]) == found["comparison"]["summary"]["compared"]


@pytest.mark.each(
    ("words", "message"),
    [
        ((), "the inputs of the model are not known"),
        (("--inputs", "gone.npz"), "--inputs gone.npz: cannot be read"),
        (("--map", "gone.yaml"), "map: gone.yaml cannot be read"),
        (("--rtol", "-1"), "--rtol -1.0: expected a finite number"),
        (("--preset", "nope"), "unknown tolerance preset 'nope'"),
    ],
)
def test_what_cannot_be_compared_is_2(
    run: Run, classifier: Path, words: tuple[str, ...], message: str
) -> None:
    done = run("compare", classifier, DATA / "golden", *words)
    assert done.code == 2
    assert message in done.out + done.err


def test_inputs_of_another_kind_or_without_a_model_are_2(run: Run, classifier: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros(3))
    np.savez(tmp_path / "o.npz", x=np.array([object()]))
    (tmp_path / "b.npz").write_bytes(b"PK\x03\x04 no archive")
    for name, told in (("x.npy", "expected an npz file"), ("o.npz", ""), ("b.npz", "")):
        done = run("compare", classifier, DATA / "golden", "--inputs", tmp_path / name)
        assert (done.code, told in done.err) == (2, True)
    done = run("compare", DATA / "golden", DATA / "golden", "--inputs", classifier.with_suffix(".npz"))
    assert done.code == 2
    assert "--inputs: only with an ONNX model in place of GOLDEN" in done.err
