"""Which runs may be written into a golden: none of the emulator's into a device's, and no other's noise."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_npudump.golden.variants import Goldens, not_calibrated, not_recorded, replaced_words
from pytest_npudump.request import DumpRequest

if TYPE_CHECKING:
    from pathlib import Path

TABLE = "columns: tensor dtype shape max min avg l2norm nan -inf +inf\ntensors: |\n"
ROW = "  fc:output.0 float16 1x2 0.225464 -0.093811 0.0658264 - 0 0 0\n"
DEVICE = {"runtime": "acl", "soc": "Ascend910B3", "cann": "9.1.0"}
EMULATOR = {"runtime": "emulator", "soc": "Emulator"}


def goldens(folder: Path, producer: dict[str, str], variant: str = "") -> Goldens:
    path = folder / "test_b.yaml"
    facts = ", ".join(f"{name}: {value}" for name, value in producer.items())
    head = "npudump-golden: 1\ntest: test_a.py::test_b\n"
    producer_line = f"producer: {{{facts}, scene: model, dump_mode: output}}\n"
    path.write_text(head + producer_line + TABLE + ROW, encoding="utf-8")
    own = folder / f"test_b@{variant}.yaml" if variant else None
    return Goldens("test_a.py::test_b", DumpRequest(), path, own)


@pytest.mark.each(
    ("recorded", "run", "refused"),
    [
        (DEVICE, EMULATOR, True),
        ({**DEVICE, "runtime": "mindspore"}, EMULATOR, True),
        (EMULATOR, EMULATOR, False),
        (EMULATOR, DEVICE, False),
        (DEVICE, {**DEVICE, "cann": "9.2.0"}, False),
        (DEVICE, {**DEVICE, "soc": "Ascend310P3"}, False),
    ],
)
def test_the_emulators_run_replaces_no_devices_golden(
    tmp_path: Path, recorded: dict[str, str], run: dict[str, str], *, refused: bool
) -> None:
    assert bool(not_recorded(goldens(tmp_path, recorded), run)) is refused


def test_beside_a_devices_golden_the_emulator_may_have_one(tmp_path: Path) -> None:
    assert not not_recorded(goldens(tmp_path, DEVICE, "emulated"), EMULATOR)


@pytest.mark.each(
    ("recorded", "run", "refused"),
    [
        (DEVICE, EMULATOR, True),
        (EMULATOR, DEVICE, True),
        (DEVICE, {**DEVICE, "soc": "Ascend310P3"}, True),
        (DEVICE, {**DEVICE, "cann": "9.2.0"}, False),
        (EMULATOR, EMULATOR, False),
    ],
)
def test_noise_is_that_of_the_chip_that_recorded_the_golden(
    tmp_path: Path, recorded: dict[str, str], run: dict[str, str], *, refused: bool
) -> None:
    assert bool(not_calibrated(goldens(tmp_path, recorded), run)) is refused


def test_a_variant_that_is_not_there_lends_no_noise_to_the_common_golden(tmp_path: Path) -> None:
    assert not_calibrated(goldens(tmp_path, DEVICE, "emulated"), EMULATOR)


def test_what_another_chip_had_recorded_is_told(tmp_path: Path) -> None:
    found = goldens(tmp_path, DEVICE)
    golden = found.read_if_any()
    (note,) = replaced_words(found, golden, {"runtime": "acl", "soc": "Ascend310P3"})
    assert note.startswith(
        "the golden was of runtime acl, soc Ascend910B3, and is of runtime acl, soc Ascend310P3"
    )
    assert replaced_words(found, golden, {**DEVICE, "cann": "9.2.0"}) == ()
    assert replaced_words(found, golden, {"runtime": "acl"}) == ()
    assert replaced_words(found, None, EMULATOR) == ()
    beside = goldens(tmp_path, DEVICE, "b")
    assert replaced_words(beside, beside.read_if_any(), {"runtime": "acl", "soc": "Ascend310P3"}) == ()


def test_what_cannot_be_read_stands_in_no_updates_way(tmp_path: Path) -> None:
    found = goldens(tmp_path, DEVICE)
    found.common.write_text("<<<<<<< ours\n", encoding="utf-8")
    assert not not_recorded(found, EMULATOR)
