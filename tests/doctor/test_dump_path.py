"""Whether a dump can be written."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_npudump.doctor.machine import OK, PROBLEM, WARNING, Finding
from pytest_npudump.doctor.pytest_config import default_place

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import Machine

    Named = Callable[..., Finding]


def test_the_default_is_where_pytest_makes_its_folders(tmp_path_factory: pytest.TempPathFactory) -> None:
    own = tmp_path_factory.getbasetemp()
    if own.parent.name.startswith("pytest-of-"):
        assert own.is_relative_to(default_place()) or own.parent.name == default_place().name
    assert default_place({"PYTEST_DEBUG_TEMPROOT": "/var/tmp"}).parent == Path("/var/tmp").resolve()  # noqa: S108 - a path in a variable
    assert default_place({}).parent == Path(tempfile.gettempdir()).resolve()


def test_a_good_place_is_written_to_and_left_as_it_was(machine: Machine, tmp_path: Path) -> None:
    findings = list(machine.lines("dumping", tmp_path))
    assert {finding.state for finding in findings} == {OK}
    assert list(tmp_path.iterdir()) == [machine.root]


def test_a_place_that_does_not_exist_is_judged_by_its_nearest_folder(
    machine: Machine, tmp_path: Path, named: Named
) -> None:
    findings = list(machine.lines("dumping", tmp_path / "a" / "b"))
    assert named(findings, "write").text == f"a file could be written in {tmp_path}; b will be made"
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize("name", ["with blank", "größe", "a~b", "x<y", "l" * 250 + "/" + "m" * 250])
def test_names_that_cann_does_not_dump_into_are_problems(
    machine: Machine, tmp_path: Path, named: Named, name: str
) -> None:
    found = named(list(machine.lines("dumping", tmp_path / name)), "dump path")
    assert found.state == PROBLEM
    assert "--npudump-dump-dir" in found.remedy


@pytest.mark.parametrize("name", ["dumps", "with blank"])
def test_the_key_or_option_that_names_the_place_is_said(
    machine: Machine, tmp_path: Path, named: Named, name: str
) -> None:
    findings = list(machine.lines("dumping", tmp_path / name, "npudump_dump_dir in pytest.ini"))
    assert "(npudump_dump_dir in pytest.ini)" in named(findings, "dump path").text


def test_a_file_in_its_place_is_a_problem(machine: Machine, tmp_path: Path, named: Named) -> None:
    (tmp_path / "dumps").write_text("")
    found = named(list(machine.lines("dumping", tmp_path / "dumps")), "write")
    assert (found.state, found.text) == (PROBLEM, f"{tmp_path / 'dumps'} is not a directory")


def test_a_folder_of_others_is_a_problem(machine: Machine, tmp_path: Path, named: Named) -> None:
    machine.forbidden = (str(tmp_path),)
    assert named(list(machine.lines("dumping", tmp_path)), "write").state == PROBLEM


def test_a_disk_that_refuses_is_a_problem_with_its_reason(machine: Machine, named: Named) -> None:
    found = named(list(machine.lines("dumping", Path("/proc/dumps"))), "write")
    assert found.state == PROBLEM
    assert "/proc: " in found.text


@pytest.mark.parametrize(
    ("free", "words"),
    [((1 << 20, 1 << 20), "0.0 GiB free"), ((1 << 40, 100), "only 100 more files")],
)
def test_little_space_is_a_warning(
    machine: Machine, tmp_path: Path, named: Named, free: tuple[int, int | None], words: str
) -> None:
    machine.free = free
    found = named(list(machine.lines("dumping", tmp_path)), "space")
    assert found.state == WARNING
    assert words in found.text


def test_a_file_system_that_counts_no_files_is_good(machine: Machine, tmp_path: Path, named: Named) -> None:
    machine.free = (1 << 40, None)
    assert named(list(machine.lines("dumping", tmp_path)), "space").state == OK
