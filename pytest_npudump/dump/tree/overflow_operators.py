"""Which operator an overflow record means: that of its stream and task, on its device and in its model.

Streams and tasks are numbered anew on every device and in every model that is loaded. The record's directory
tells device and model where the dump is laid out as CANN does it; the record itself tells a model's id, too.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from pytest_npudump.dump.places import context, marks_layout, read_place

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from pytest_npudump.dump.files.overflow.reader import OverflowUnit
    from pytest_npudump.dump.places import DumpFile, Place

_Ids = tuple[int, int]
_Steps = dict[tuple[int, int], dict[str, None]]
"""Types and names of operators, by the step and iteration in which they were dumped."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """The operators that a unit of an overflow record may mean.

    Attributes:
        names: types and names, in the order of the dump's files; more than one where the dump does not tell
            them apart.
        untold: which of ``device`` and ``model`` the dump does not tell of the record or of these operators,
            so that another one's may be among them.
    """

    names: tuple[str, ...] = ()
    untold: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class DumpedOperators:
    """The operators that lie in a dump, to be asked for those of an overflow record.

    Attributes:
        root: the dump path.
        above: its last directories that belong to the dump's layout.
        by_ids: the operators by stream and task, and by place without the step.
    """

    root: Path
    above: tuple[str, ...]
    by_ids: Mapping[_Ids, Mapping[Place, _Steps]]

    @classmethod
    def of(cls, root: Path, files: Iterable[DumpFile]) -> DumpedOperators:
        """Return the operators whose files lie below ``root``; those without stream and task are left out."""
        found: defaultdict[_Ids, dict[Place, _Steps]] = defaultdict(dict)
        for _, place, name, _ in files:
            if name is not None and name.stream is not None and name.task is not None:
                steps = found[name.stream, name.task].setdefault(place._replace(step=-1, iteration=-1), {})
                steps.setdefault((place.step, place.iteration), {})[f"{name.op_type} {name.op_name}"] = None
        return cls(root, context(root.resolve().parts), found)

    def meant_by(self, unit: OverflowUnit, record: Path) -> Candidates:
        """Return the operators that ``unit`` of the overflow record in the file ``record`` may mean.

        They are those of the record's step, or of any where that step has none.
        """
        places = self.by_ids.get((unit.fields["stream_id"], unit.fields["task_id"]), {})
        if not places:
            return Candidates()
        here = self._place(record)
        found = {at: steps for at, steps in places.items() if _may_be_one_place(here, at)}
        told = here.model_id >= 0
        if not told:
            by_record = {at: steps for at, steps in found.items() if at.model_id == unit.fields["model_id"]}
            told, found = bool(by_record), by_record or found
        here_then = {at: _at_step(here, steps) for at, steps in found.items()}
        found = {at: steps for at, steps in here_then.items() if steps} or found
        names = (name for steps in found.values() for name in chain(*steps.values()))
        return Candidates(tuple(dict.fromkeys(names)), tuple(_untold(here, found, model_told=told)))

    def _place(self, record: Path) -> Place:
        parts = record.relative_to(self.root).parts[:-1]
        return read_place(parts if marks_layout(parts) else (*self.above, *parts))


def _at_step(here: Place, steps: _Steps) -> _Steps:
    """Return those of ``steps`` that may be that of ``here``."""
    return {
        (step, iteration): names
        for (step, iteration), names in steps.items()
        if _may_be_same(here.step, step) and _may_be_same(here.iteration, iteration)
    }


def _may_be_one_place(one: Place, other: Place) -> bool:
    """Whether two places are of one loaded model on one device in one run, as far as they tell."""
    depth = min(len(one.run), len(other.run))
    return (
        one.run[:depth] == other.run[:depth]
        and _may_be_same(one.rank, other.rank)
        and _may_be_same(one.device, other.device)
        and _may_be_one_model(one, other)
    )


def _may_be_same(one: int, other: int) -> bool:
    return one == other or min(one, other) < 0


def _may_be_one_model(one: Place, other: Place) -> bool:
    if min(one.model_id, other.model_id) < 0:
        return True
    if one.either or other.either:  # both are numbers, which only the kind of container puts in order
        return {one.model, str(one.model_id)} == {other.model, str(other.model_id)}
    return (one.model, one.model_id) == (other.model, other.model_id)


def _untold(here: Place, found: Iterable[Place], *, model_told: bool) -> Iterator[str]:
    if any(min(here.device, place.device) < 0 for place in found):
        yield "device"
    if any(not model_told or place.model_id < 0 for place in found):
        yield "model"
