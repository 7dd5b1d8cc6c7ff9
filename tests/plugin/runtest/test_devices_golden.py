"""On a machine without an NPU a device's golden is compared with, and written by nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Project


@pytest.fixture
def on_a_device(project: Project) -> Project:
    """A golden that a device has recorded."""
    project.marked()
    project.record()
    text = project.golden.read_text(encoding="utf-8")
    project.golden.write_text(
        text.replace("runtime: emulator, soc: Emulator", "runtime: acl, soc: Ascend910B3"), encoding="utf-8"
    )
    return project


@pytest.mark.parametrize("how", ["--npudump-update-golden", "--npudump-calibrate=3"])
def test_it_is_neither_replaced_nor_calibrated_by_the_emulator(on_a_device: Project, how: str) -> None:
    before = on_a_device.golden.read_bytes()
    result = on_a_device.run(how)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*test_small.yaml is *runtime acl, soc Ascend910B3*golden-variant=NAME*"])
    assert on_a_device.golden.read_bytes() == before


def test_a_failing_one_is_left_by_an_update_of_what_fails(on_a_device: Project) -> None:
    before = on_a_device.golden.read_bytes()
    on_a_device.model(change=0.01)
    result = on_a_device.run("--npudump-update-golden=failed")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["note: *is a device's*and this run the emulator's: record it*"])
    assert on_a_device.golden.read_bytes() == before


def test_a_golden_of_the_emulators_own_stands_beside_it(on_a_device: Project) -> None:
    device: Path = on_a_device.golden
    before = device.read_bytes()
    on_a_device.model(change=0.01)
    on_a_device.record("--npudump-golden-variant=emulated")
    on_a_device.run("--npudump-golden-variant=emulated").assert_outcomes(passed=1)
    assert device.read_bytes() == before


def test_a_failure_names_where_it_can_be_approved(on_a_device: Project) -> None:
    on_a_device.model(change=0.01)
    result = on_a_device.run()
    result.stdout.fnmatch_lines(["to approve on the device: pytest --npudump-update-golden *"])
