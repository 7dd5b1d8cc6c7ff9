"""One dump directory, one run: two runs below one path are found out, not mixed."""

from __future__ import annotations

from collections import defaultdict
from itertools import combinations
from typing import TYPE_CHECKING

from pytest_npudump.errors import DumpError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from pytest_npudump.dump.tree import DumpFile

_Run = tuple[str, ...]


def select_run(files: Sequence[DumpFile], root: Path, *, latest: bool) -> tuple[list[DumpFile], list[str]]:
    """Return the files of one run, and notes on what was left out.

    One run may write several time directories (GE's and adump's, beside or inside each other). They are
    two runs if an operator of the same rank, device, model and step lies in both, unless one is inside
    the other. ``latest`` drops every directory up to the start of the last run.

    Raises:
        DumpError: two runs, and ``latest`` was not asked for.
    """
    runs = {file.place.run for file in files}
    if len(runs) < 2:  # noqa: PLR2004 - one run is the rule
        return list(files), []
    pair = _conflict(files)
    if pair is None:
        return list(files), []
    older, newer = ("/".join((str(root), *run)) for run in pair)
    if not latest:
        raise DumpError(
            f"two runs in one dump: {older} and {newer} hold the same operators. Give one of the two "
            "directories, clear the dump path before each run, or ask for the latest run"
        )
    kept = [file for file in files if _is_later(file.place.run, *pair)]
    return kept, [f"only the latest run was read: everything up to {older} was left out"]


def _is_later(run: _Run, older: _Run, newer: _Run) -> bool:
    """Whether ``run`` came after ``older``; directories beside it inside one time directory did not."""
    beside = run[:1] == older[:1] != newer[:1]
    return run > older and not beside


def _conflict(files: Iterable[DumpFile]) -> tuple[_Run, _Run] | None:
    """Return the last two runs that hold the same operator, in order of time; None if all is one run."""
    held: defaultdict[_Run, set[object]] = defaultdict(set)
    for file in files:
        if file.name is not None:
            place, name = file.place, file.name
            held[place.run].add(
                (place.rank, place.device, place.model, place.step, name.op_type, name.op_name, name.suffix)
            )
    pairs = [
        (older, newer)
        for older, newer in combinations(sorted(held), 2)
        if newer[: len(older)] != older and held[older] & held[newer]
    ]
    return max(pairs) if pairs else None
