"""Options that several commands have."""

from __future__ import annotations

from pytest_npudump.cli.common.options import LAYOUTS
from pytest_npudump.dump.arrays.layouts import HOST_AXES


def test_layouts_are_those_that_a_tensor_can_be_converted_to() -> None:
    assert ("ND", *HOST_AXES) == LAYOUTS
