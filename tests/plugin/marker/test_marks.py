from __future__ import annotations

from pytest_npudump.plugin.marker.item import CHECKS
from pytest_npudump.plugin.marker.marks import ARGUMENTS, marker_line


def test_every_argument_of_the_marker_is_explained_once() -> None:
    explained = [name for names in ARGUMENTS for name in names.split(", ")]
    assert sorted(explained) == sorted(CHECKS)


def test_the_line_begins_as_pytest_reads_the_name_of_a_marker() -> None:
    assert marker_line("npu_dump").partition("(")[0] == "npu_dump"
    assert all(len(line) < 200 for line in marker_line("npu_dump").splitlines())
