from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pytest_npudump.dump.files.container import dump_data_class

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
