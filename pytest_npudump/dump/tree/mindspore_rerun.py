"""A second dump of the same MindSpore program, of fewer operators, under the keys of the first.

Which qualifiers a key has depends on what else is in a dump: graphs are told apart where there are several,
iterations counted from the first one. A dump of few operators may lack all of one graph, or the first
iterations. What does not depend on it is what MindSpore's own directories say, apart from the time of the
run, and the occurrence of a tensor in one.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_npudump.dump.places import Place, read_place
from pytest_npudump.dump.records import sanitise

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pytest_npudump.dump.records import Dump, TensorRecord

_Identity = tuple[Place, str, str, int, int]


def under_first_keys(first: Dump, again: Dump) -> Dump:
    """Return ``again`` with the keys that ``first`` has for the same tensors.

    Dumps of other producers, and tensors that ``first`` does not have, stay as they are.

    Args:
        first: the dump of the first run.
        again: that of a run of the same program in a process of its own, into another directory.
    """
    keys = {identity: record.key for identity, record in _identified(first)}
    found = {id(record): keys.get(identity) for identity, record in _identified(again)}
    records = tuple(replace(record, key=found.get(id(record)) or record.key) for record in again.records)
    return replace(again, records=records)


def _identified(dump: Dump) -> Iterator[tuple[_Identity, TensorRecord]]:
    """Yield MindSpore's tensors with what tells them apart in any dump of the program."""
    seen: Counter[tuple[Place, str, str, int]] = Counter()
    places = {parent: _place(parent, dump) for parent in {record.path.parent for record in dump.records}}
    for record in sorted(dump.records, key=lambda record: record.time):
        place = places[record.path.parent]
        if place is None:
            continue
        tensor = (place, sanitise(record.key.layer), record.key.io, record.key.slot)
        yield (*tensor, seen[tensor]), record
        seen[tensor] += 1


def _place(directory: Path, dump: Dump) -> Place | None:
    """Return what a directory of the dump says of any run; None where it is none of MindSpore's."""
    if not directory.is_relative_to(dump.root):
        return None
    place = read_place(directory.relative_to(dump.root).parts)
    return place._replace(run=()) if place.mindspore or place.step >= 0 else None
