"""What the directories of a dump say: time, device, model, step, rank.

Layouts (CANN, TorchAir, msprobe, MindSpore), below the dump path::

    {time14}[/{time14}]/{device}[/{model}/{model id}/{step}]         ACL; TLV writer: {model id}/{model}
    worldsize{N}_global_rank{R}/{time14}/{device}/...                 TorchAir
    worldsize{N}_global_rank{R}/gm_{time20}_dump/{step}               TorchAir, FX graphs
    rank_{R}/{time14}/step_{S}[/{time14}/{device}/...]                msprobe
    rank_{R}/{net}/{graph}/{iteration}                                MindSpore, synchronous
    {step}/{time14}/{device}[/{model}/{model id}][/{iteration}]       MindSpore on Ascend, asynchronous
    pid{P}/device{D}/...                                              CANN's helper mode
    extra-info/data-dump/{device}                                     exception dumps
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pytest_npudump.dump.names import DumpName

_TIME = re.compile(r"\d{14}|\d{17}|gm_\d{20}_dump", re.ASCII)
_SHORTEST_TIME = 13
_GRAPH_MODULE = "gm_"
_RANK = re.compile(r"(?:rank_?|worldsize\d+_global_rank)(\d+)", re.ASCII)
_STEP = re.compile(r"step_?(\d+)", re.ASCII)
_DEVICE = re.compile(r"device_?(\d+)", re.ASCII)
_PROCESS = re.compile(r"pid_?\d+", re.ASCII)
_MARKS = (_TIME, _RANK, _STEP, _DEVICE, _PROCESS)
_EXCEPTION = "data-dump"
_CONSTANTS = "constants"

# The levels below the device by which of them are numbers: all exist only where the task carries them.
_LEVELS: dict[tuple[bool, ...], tuple[str, ...]] = {
    (): (),
    (True,): ("iteration",),
    (False, True): ("model", "model_id"),
    (True, True): ("model_id", "iteration"),
    (False, True, True): ("model", "model_id", "iteration"),
    (True, False, True): ("model_id", "model", "iteration"),
    (True, True, True): ("model", "model_id", "iteration"),
}


class Place(NamedTuple):
    """What the directory of a dump file says.

    Attributes:
        run: directories that tell one run from another: the time directories, outermost first, with
            whatever lies above them and is none of the following.
        rank, device: ids; -1 where the directories have none.
        model: model or net name; "" where there is none (single operators).
        model_id: id of the loaded model, or of the graph in a net; -1 where there is none.
        iteration: execution of the model (``data_index``); -1 where there is none.
        step: step of the program (``step_id``, MindSpore's iteration, ``step_3``), in which a model may be
            executed several times; -1 where there is none.
        mindspore: in a tree of MindSpore's synchronous dump.
        either: model and model id may stand the other way round: both are numbers.
    """

    run: tuple[str, ...] = ()
    rank: int = -1
    device: int = -1
    model: str = ""
    model_id: int = -1
    iteration: int = -1
    step: int = -1
    mindspore: bool = False
    either: bool = False


def read_place(parts: Sequence[str]) -> Place:
    """Return what the directories ``parts``, below the dump path and outermost first, say."""
    head, tail = _split(parts)
    place = Place()
    run: list[str] = []
    last_int = -1
    for part in head:
        rank, step, device = _RANK.fullmatch(part), _STEP.fullmatch(part), _DEVICE.fullmatch(part)
        if rank is not None:
            place = place._replace(rank=int(rank[1]))
        elif step is not None:
            place = place._replace(step=int(step[1]))
        elif device is not None:
            place = place._replace(device=int(device[1]))
        elif part.isdecimal() and len(part) < _SHORTEST_TIME:
            last_int = int(part)
        elif part not in {"extra-info", _EXCEPTION}:
            run.append(part)
    place = place._replace(run=tuple(run), step=place.step if place.step >= 0 else last_int)
    if place.rank >= 0 and not any(_TIME.fullmatch(part) for part in head) and len(tail) > 1:
        return _mindspore(place, tail)
    if head and head[-1].startswith(_GRAPH_MODULE) and len(tail) == 1 and tail[0].isdecimal():
        return place._replace(step=int(tail[0]))
    return _acl(place, tail)


def context(parts: Sequence[str]) -> tuple[str, ...]:
    """Return the last directories of a dump path that already belong to the dump's layout.

    A dump may be given by a directory inside it, such as its time directory or one step.
    """
    near = parts[-6:]
    for at, part in enumerate(near):
        inner = near[at + 1 : at + 2]
        if _RANK.fullmatch(part) or part == _EXCEPTION:
            return tuple(near[at:])
        if _TIME.fullmatch(part) and all(name.isdecimal() or _STEP.fullmatch(name) for name in inner):
            return tuple(near[at:])
    return ()


def marks_layout(parts: Sequence[str]) -> bool:
    """Whether ``parts`` hold a directory that only a dump's layout has: a time, a rank or exception dumps."""
    return any(_TIME.fullmatch(part) or _RANK.fullmatch(part) or part == _EXCEPTION for part in parts)


def swapped(place: Place) -> Place:
    """Return ``place`` with model and model id exchanged, as the TLV writer orders them."""
    return place._replace(model=str(place.model_id), model_id=int(place.model), either=False)


def _split(parts: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """Split behind the last directory that marks the layout (and a step or device named as such)."""
    last = 0
    for at, part in enumerate(parts):
        if part == _EXCEPTION or any(pattern.fullmatch(part) for pattern in _MARKS):
            last = at + 1
    return parts[:last], parts[last:]


def _mindspore(place: Place, tail: Sequence[str]) -> Place:
    net, *rest = (part for part in tail if part != _CONSTANTS)
    graph = rest.pop(0) if rest and rest[0].isdecimal() else ""
    step = rest.pop(0) if rest and rest[0].isdecimal() else ""
    return place._replace(
        model="/".join((net, *rest)),
        model_id=int(graph) if graph else -1,
        step=int(step) if step else place.step,
        mindspore=True,
    )


def _acl(place: Place, tail: Sequence[str]) -> Place:
    rest = list(tail)
    if rest and rest[0].isdecimal() and place.device < 0:
        place = place._replace(device=int(rest.pop(0)))
    numbers = tuple(part.isdecimal() for part in rest)
    fields = _LEVELS.get(numbers)
    if fields is None:
        return place._replace(model="/".join(rest))
    values = dict(zip(fields, rest, strict=True))
    return place._replace(
        model=values.get("model", place.model),
        model_id=int(values.get("model_id", place.model_id)),
        iteration=int(values.get("iteration", place.iteration)),
        either=numbers == (True, True, True),
    )


class DumpFile(NamedTuple):
    """One file of a dump.

    Attributes:
        path: where it lies.
        place: what its directories say.
        name: what its name says (its long name, where ``mapping.csv`` has one); None for a container
            under a name of no known grammar and for a ``statistic.csv``.
        format: name of its format in the table of :mod:`pytest_npudump.dump.files`.
    """

    path: Path
    place: Place
    name: DumpName | None
    format: str
