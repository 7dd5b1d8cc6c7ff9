"""Which ranks meet: those of one run, however they were started, and none of an earlier run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_npudump.errors import ConfigError
from pytest_npudump.ranks.rank import Rank, has_joined, is_present, join

JOIN = """
import sys
from pytest_npudump.ranks import rank as exchange
from pytest_npudump.ranks.rank import join
from pytest_npudump.ranks.rank import Rank
exchange._COMMON, number = sys.argv[1], int(sys.argv[2])
print(join(Rank(number, 2, number, 2)), flush=True)
sys.stdin.read()
"""
TORCHRUN = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500", "TORCHELASTIC_RUN_ID": "none"}


class Process:
    """A rank in a process of its own, started by a shell of its own, which stays until told to leave."""

    def __init__(self, tmp_path: Path, number: int, **variables: str) -> None:
        command = f'"{sys.executable}" -c "$JOIN" "{tmp_path}" {number}; true'
        self._process = subprocess.Popen(
            ["sh", "-c", command],
            env={**os.environ, **variables, "JOIN": JOIN},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        self.folder = Path(self._process.stdout.readline().strip())

    def leave(self) -> None:
        self._process.communicate("")


def rank(number: int, size: int = 2) -> Rank:
    return Rank(number, size, number, size)


def test_rank_that_is_joining_is_never_taken_for_one_that_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """What others see between the opening of a file and its content, which a busy machine keeps for long."""
    folder, seen, write = join(rank(0)), [], Path.write_text

    def slowly(path: Path, text: str, **given: str) -> int:
        path.touch()
        seen.append(has_joined(folder, 1) and not is_present(folder, 1))
        return write(path, text, **given)

    monkeypatch.setattr(Path, "write_text", slowly)
    assert join(rank(1)) == folder
    assert is_present(folder, 1)
    assert seen == [False]


def test_ranks_of_one_address_meet_whatever_started_them_and_later_ones_begin_anew(tmp_path: Path) -> None:
    """As a second session of a rank does, which the others follow."""
    first, second = (Process(tmp_path, number, **TORCHRUN) for number in range(2))
    assert first.folder == second.folder
    assert has_joined(first.folder, 0)
    assert is_present(first.folder, 1)
    second.leave()
    assert has_joined(first.folder, 1)
    assert not is_present(first.folder, 1)
    first.leave()
    one, zero = (Process(tmp_path, number, **TORCHRUN) for number in (1, 0))
    assert one.folder == zero.folder != first.folder
    zero.leave()
    again = Process(tmp_path, 0, **TORCHRUN)
    assert again.folder != zero.folder
    one.leave()
    follows = Process(tmp_path, 1, **TORCHRUN)
    assert follows.folder == again.folder
    again.leave()
    follows.leave()


def test_ranks_that_nothing_names_a_run_of_meet_only_by_their_launcher(tmp_path: Path) -> None:
    for variables in ({}, {"MASTER_ADDR": "127.0.0.1"}, {"TORCHELASTIC_RUN_ID": "none"}):
        assert join(rank(0), variables) == join(rank(1), variables)
    first, second = (Process(tmp_path, number, **variables) for number in range(2))
    assert first.folder != second.folder
    first.leave()
    second.leave()


@pytest.mark.each(
    "other",
    [
        {"MASTER_PORT": "29501"},
        {"MASTER_ADDR": "localhost"},
        {"TORCHELASTIC_RUN_ID": "42"},
        {"WORLD_SIZE": "4"},
    ],
)
def test_runs_that_differ_in_a_variable_do_not_meet(other: dict[str, str]) -> None:
    assert join(rank(0), TORCHRUN) != join(rank(1), TORCHRUN | other)


def test_another_process_that_got_the_id_of_an_ended_one_does_not_count() -> None:
    folder = join(rank(0))
    assert is_present(folder, 0)
    (folder / "here.0").write_text(json.dumps({"process": os.getpid(), "began": 1}))
    assert not is_present(folder, 0)
    assert [one.stat().st_mode & 0o777 for one in (folder, folder.parent)] == [0o700] * 2


@pytest.mark.each("text", ["", "{", "7", '{"process": 1}', '{"process": "x", "began": 0}', "[]"])
def test_damaged_note_of_a_process_is_no_living_rank(text: str) -> None:
    folder = join(rank(0))
    folder.joinpath("here.1").write_text(text)
    assert not is_present(folder, 1)


def test_folder_of_somebody_else_is_refused(tmp_path: Path) -> None:
    base = tmp_path / f"npudump-ranks-{os.getuid()}"
    base.symlink_to(tmp_path / "elsewhere")
    tmp_path.joinpath("elsewhere").mkdir()
    with pytest.raises(ConfigError, match="expected a folder of this user's own"):
        join(rank(0))


def test_ranks_meet_below_tmpdir_where_the_common_folder_cannot_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pytest_npudump.ranks.rank._COMMON", str(tmp_path / "absent"))
    assert tmp_path in join(rank(0)).parents


def test_meeting_place_that_cannot_be_made_is_refused_with_what_to_do(tmp_path: Path) -> None:
    tmp_path.joinpath(f"npudump-ranks-{os.getuid()}").write_text("")
    with pytest.raises(ConfigError, match="set TMPDIR"):
        join(rank(0))


def test_ranks_meet_although_each_has_a_tmpdir_of_its_own(tmp_path: Path) -> None:
    places = [tmp_path / "first", tmp_path / "second"]
    for place in places:
        place.mkdir()
    ranks = [Process(tmp_path, n, TMPDIR=str(places[n]), **TORCHRUN) for n in range(2)]
    try:
        assert ranks[0].folder == ranks[1].folder
        assert all(is_present(ranks[0].folder, number) for number in range(2))
    finally:
        for process in ranks:
            process.leave()


def test_folders_of_runs_that_are_over_are_removed() -> None:
    old, young = (join(rank(0), {"MASTER_PORT": port}) for port in ("1", "2"))
    for folder in (old, young):
        folder.joinpath("here.0").write_text(json.dumps({"process": os.getpid(), "began": 1}))
    os.utime(old, (1, 1))
    living = join(rank(0), {"MASTER_PORT": "3"})
    os.utime(living, (1, 1))
    join(rank(1), {"MASTER_PORT": "4"})
    assert not old.exists()
    assert young.exists()
    assert living.exists()
