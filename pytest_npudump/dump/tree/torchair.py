"""TorchAir's FX dumps: a list of tensors is one argument, with an index for each of its tensors."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_npudump.dump.names import DumpName
    from pytest_npudump.dump.places import DumpFile


def flat_slots(files: Sequence[DumpFile]) -> list[DumpFile]:
    """Return ``files`` with one slot for each tensor.

    A node with a list among its inputs (or outputs) has them numbered through in order, as CANN numbers
    the inputs of such an operator; other nodes keep their numbers.
    """
    slots: defaultdict[object, set[tuple[int, int]]] = defaultdict(set)
    for file in files:
        if file.name is not None and file.name.kind == "torchair":
            slots[_direction(file, file.name)].add(_position(file.name))
    listed = {
        direction: sorted(found) for direction, found in slots.items() if any(part >= 0 for _, part in found)
    }
    return [_numbered(file, listed) for file in files] if listed else list(files)


def _numbered(file: DumpFile, listed: dict[object, list[tuple[int, int]]]) -> DumpFile:
    name = file.name
    if name is None or name.kind != "torchair" or _direction(file, name) not in listed:
        return file
    slot = listed[_direction(file, name)].index(_position(name))
    return file._replace(name=name._replace(slot=slot, part=None))


def _direction(file: DumpFile, name: DumpName) -> object:
    return (file.path.parent, name.op_name, name.op_type, name.io)


def _position(name: DumpName) -> tuple[int, int]:
    return (name.slot, -1 if name.part is None else name.part)
