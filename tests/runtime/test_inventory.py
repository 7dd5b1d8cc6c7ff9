from __future__ import annotations

from pathlib import Path

import pytest

from pytest_npudump.errors import RequestError
from pytest_npudump.runtime.inventory import VISIBLE, Inventory, take_inventory


def _row(device: int, health: str) -> str:
    return f"| {device}     910B4     | {health}      | 88.9 |\n| 0       | 0000:C2:00.0  | 0  |\n"


def _smi(**healths: str) -> str:
    return "".join(_row(int(name.removeprefix("npu")), health) for name, health in healths.items())


def _machine(root: Path, *npus: int) -> Path:
    (root / "dev").mkdir()
    for name in ("davinci_manager", "davincix", *(f"davinci{npu}" for npu in npus)):
        (root / "dev" / name).touch()
    return root


def _inventory(option: str, root: Path, smi: str | None = None, visible: str = "") -> Inventory:
    return take_inventory(option, environ={VISIBLE: visible}, root=root, npu_smi=lambda: smi)


def test_auto_numbers_the_device_files_that_are_there_from_zero(tmp_path: Path) -> None:
    assert _inventory("auto", _machine(tmp_path, 10, 3, 4)) == Inventory({0: 3, 1: 4, 2: 10})


def test_auto_without_an_npu_locks_nothing_and_says_so(tmp_path: Path) -> None:
    found = _inventory("auto", tmp_path)
    assert not found.devices
    assert found.note == "no NPU is seen here: nothing is locked"


def test_visible_devices_are_numbered_as_cann_does_and_mean_those_of_the_machine(tmp_path: Path) -> None:
    root = _machine(tmp_path, 0, 1, 2, 3)
    assert _inventory("auto", root, visible="3, 1") == Inventory({0: 3, 1: 1})
    assert _inventory("1", root, visible="3,1") == Inventory({1: 1})


def test_auto_leaves_out_what_is_ill(tmp_path: Path) -> None:
    smi = _smi(npu0="OK", npu1="Critical", npu2="Warning")
    found = _inventory("auto", _machine(tmp_path, 0, 1, 2), smi)
    assert found == Inventory({0: 0, 2: 2}, "npu-smi says that device 1 is Critical: left out")


def test_a_device_that_is_named_is_used_though_it_is_ill(tmp_path: Path) -> None:
    found = _inventory("0,1", tmp_path, _smi(npu0="OK", npu1="Alarm"))
    assert set(found.devices) == {0, 1}
    assert found.note.startswith("npu-smi says that device 1 is Alarm, and it was named")


def test_nothing_but_ill_devices_ends_the_run(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="device 0 is Alarm, and there is no other"):
        _inventory("auto", _machine(tmp_path, 0), _smi(npu0="Alarm"))


def test_an_npu_smi_that_fails_is_told(tmp_path: Path) -> None:
    def fails() -> str:
        raise OSError("no answer within 20 seconds")

    found = take_inventory("auto", environ={}, root=_machine(tmp_path, 0), npu_smi=fails)
    assert found.devices == {0: 0}
    assert "no answer within 20 seconds" in found.note


@pytest.mark.each(
    ("option", "visible", "words"),
    [
        ("zero", "", "expected auto, or device ids"),
        ("0,", "", "expected auto, or device ids"),
        ("-1", "", "expected auto, or device ids"),
        ("99999", "", "expected auto, or device ids"),
        ("0;rm", "", "expected auto, or device ids"),
        ("1,1", "", "twice"),
        ("2", "4,5", "lets CANN see 2, which it numbers from 0 to 1"),
        ("auto", "all", "ASCEND_RT_VISIBLE_DEVICES is 'all'"),
    ],
)
def test_what_is_no_list_of_devices_is_refused(tmp_path: Path, option: str, visible: str, words: str) -> None:
    with pytest.raises(RequestError, match=words):
        _inventory(option, tmp_path, visible=visible)
