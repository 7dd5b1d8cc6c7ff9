"""What real releases of npu-smi print, as users have published it (shortened by rows)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pytest_npudump.runtime.inventory import Npu, parse_npu_smi, run_npu_smi

A2 = """
+------------------------------------------------------------------------------------------------+
| npu-smi 24.1.0                   Version: 24.1.0                                               |
+---------------------------+---------------+----------------------------------------------------+
| NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|
| Chip                      | Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)        |
+===========================+===============+====================================================+
| 0     910B                | OK            | 70.0        34                0    / 0             |
| 0                         | 0000:C1:00.0  | 0           1197 / 13553      1365 / 32768         |
+===========================+===============+====================================================+
| 1     910B                | OK            | 66.9        34                0    / 0             |
| 0                         | 0000:81:00.0  | 0           2411 / 15665      4    / 32768         |
+===========================+===============+====================================================+
"""
A3 = """
| npu-smi 24.1.rc3.7               Version: 24.1.rc3.7                                           |
+---------------------------+---------------+----------------------------------------------------+
| NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|
| Chip  Phy-ID              | Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)        |
+===========================+===============+====================================================+
| 0     Ascend910           | OK            | 178.7       37                0    / 0             |
| 0     0                   | 0000:9D:00.0  | 0           0    / 0          3419 / 65536         |
+------------------------------------------------------------------------------------------------+
| 0     Ascend910           | OK            | -           36                0    / 0             |
| 1     1                   | 0000:9F:00.0  | 0           0    / 0          3196 / 65536         |
+===========================+===============+====================================================+
| 1     Ascend910           | OK            | 186.4       36                0    / 0             |
| 0     2                   | 0000:99:00.0  | 0           0    / 0          3413 / 65536         |
+===========================+===============+====================================================+
| NPU     Chip              | Process id    | Process name             | Process memory(MB)      |
+===========================+===============+====================================================+
| 1       0                 | 824166        | VLLMWorker_TP            | 59316                   |
"""
DUO = """
| npu-smi 24.1.rc2                                 Version: 24.1.rc2                                     |
+-------------------------------+-----------------+------------------------------------------------------+
| NPU     Name                  | Health          | Power(W)     Temp(C)           Hugepages-Usage(page) |
| Chip    Device                | Bus-Id          | AICore(%)    Memory-Usage(MB)                        |
+===============================+=================+======================================================+
| 1792    310P3                 | OK              | NA           36                0     / 0             |
| 0       0                     | 0000:07:00.0    | 0            1821 / 44280                            |
+-------------------------------+-----------------+------------------------------------------------------+
| 1792    310P3                 | OK              | NA           36                0     / 0             |
| 1       1                     | 0000:07:00.0    | 0            1041 / 43693                            |
+===============================+=================+======================================================+
| NPU     Chip                  | Process id      | Process name             | Process memory(MB)        |
| No running processes found in NPU 1792                                                                 |
"""
BOARD = """
| npu-smi 23.0.rc3                                 Version: 23.0.rc3                     |
| NPU     Name       | Health     | Power(W)     Temp(C)           Hugepages-Usage(page) |
| Chip    Device     | Bus-Id     | AICore(%)    Memory-Usage(MB)                        |
+====================+============+======================================================+
| 0       310B4      | OK         | 7.7          54                15    / 15            |
| 0       0          | NA         | 0            2166 / 3513                             |
"""
A5 = """
| NPU ID | Name             | Health        | Power(W)    Temp(C)           Hugepages-Usage(page) |
|        |                  | Bus-Id        | NPU Util(%) Memory-Usage(MB)  HBM-Usage(MB)         |
+========+==================+===============+=====================================================+
| 3      | Ascend950        | OK            | 178.7       37                0    / 0              |
|        |                  | 0000:9D:00.0  | 0           0    / 0          3419 / 65536          |
"""


@pytest.mark.each(
    ("output", "expected"),
    [
        (A2, [(0, "910B"), (1, "910B")]),
        (A3, [(0, "Ascend910"), (1, "Ascend910"), (2, "Ascend910")]),
        (DUO, [(0, "310P3"), (1, "310P3")]),
        (BOARD, [(0, "310B4")]),
        (A5, [(3, "Ascend950")]),
        ("", []),
        ("dcmi module initialize failed. ret is -8005", []),
        ("| 1  910B | OK |", []),
    ],
)
def test_each_device_has_its_own_number(output: str, expected: list[tuple[int, str]]) -> None:
    assert parse_npu_smi(output) == tuple(Npu(device, name, "OK") for device, name in expected)


@pytest.mark.each(
    ("health", "ill"),
    [("OK", False), ("Warning", False), ("Alarm", True), ("Critical", True), ("UNKNOWN", True)],
)
def test_an_ill_device_is_told(health: str, ill: bool) -> None:  # noqa: FBT001 - a case
    _, second = parse_npu_smi(f"{health:13} ".join(A2.rsplit("OK            ", 1)))
    assert second == Npu(1, "910B", health)
    assert second.is_ill is ill


def _npu_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    program = tmp_path / "npu-smi"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)


def test_npu_smi_is_asked_for_info(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _npu_smi(tmp_path, monkeypatch, 'echo "asked for $1"')
    assert run_npu_smi() == "asked for info\n"


def test_npu_smi_that_fails_gives_its_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _npu_smi(tmp_path, monkeypatch, "echo dcmi module initialize failed. ret is -8005; exit 255")
    with pytest.raises(OSError, match="ended with 255: dcmi module initialize failed"):
        run_npu_smi()


def test_npu_smi_that_hangs_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _npu_smi(tmp_path, monkeypatch, "exec sleep 600")
    monkeypatch.setattr("pytest_npudump.runtime.inventory._SECONDS", 1)
    with pytest.raises(OSError, match="no answer within 1 seconds"):
        run_npu_smi()


def test_without_npu_smi_there_is_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert run_npu_smi() is None
