"""Operators that ran and left no file: CANN writes none where no tensor of an operator holds a byte.

An output of shape 0x3 then has no row, and could become 3x0, or no output at all, unseen. The emulator knows
which operators these were, and the shapes they had; a golden lists them under its key ``empty``, in the
spelling of the keys of its tensors. An NPU, and a program of its own process, tell nothing of them.
"""

from __future__ import annotations

import os
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_npudump.dump.records import TensorKey
from pytest_npudump.dump.selection import layers_meant
from pytest_npudump.dump.table import shape_text
from pytest_npudump.language.excerpt import first_of
from pytest_npudump.record.record import EMPTY
from pytest_npudump.runtime.base import RecordingRuntime

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pytest_npudump.dump.records import Dump
    from pytest_npudump.emulator.dumps.recorder import Execution
    from pytest_npudump.golden.content.text import Golden
    from pytest_npudump.regression.case import Case

_SHOWN = 3
_SLOT = ":output.0"
_CAPTURE = "dump-"
"""Begins the directory of a capture's dump, which ends in the capture's name."""


def empty_operators(case: Case, dump: Dump) -> dict[str, list[str]] | None:
    """Return shapes of the outputs of the operators that left no file; None where nothing can tell.

    The shapes are those of the run, of the inputs where only these are dumped. They are listed by operator,
    with the qualifiers that keys of tensors have: ``name#model=net,step=1``.
    """
    if not isinstance(case.runtime, RecordingRuntime):
        return None
    root = Path(os.path.abspath(case.directory))  # noqa: PTH100 - links are kept, as in the dump's own paths
    run = root / Path(os.path.abspath(dump.root)).relative_to(root).parts[0]  # noqa: PTH100 - the same
    parts: defaultdict[str, list[Execution]] = defaultdict(list)
    for execution in case.runtime.dumped():
        directory = Path(execution.directory)
        if directory.is_relative_to(run):
            parts[directory.relative_to(run).parts[0].removeprefix(_CAPTURE)].append(execution)
    if not parts:
        return None
    found: dict[str, list[str]] = {}
    for part, executions in parts.items():
        found |= _in_part("" if part == "dump" else part, executions)
    layers = (*map(_layer, found), *(record.key.layer for record in dump.records))
    wanted = layers_meant(case.request.layers or ["*"], layers)
    return {name: shapes for name, shapes in found.items() if _layer(name) in wanted}


def _in_part(capture: str, executions: Iterable[Execution]) -> dict[str, list[str]]:
    """Return the operators of one dump, told apart as the reader of dumps tells tensors apart."""
    places = [execution.place for execution in executions]
    models, devices = {place.model for place in places}, {place.device for place in places}
    loads: defaultdict[tuple[int, str], set[int]] = defaultdict(set)
    first: dict[int, int] = {}
    for place in places:
        loads[place.device, place.model].add(place.model_id)
        first[place.model_id] = min(place.index, first.get(place.model_id, place.index))
    found: dict[str, list[str]] = {}
    for execution in executions:
        place = execution.place
        for name, shapes in execution.silent.items():
            key = TensorKey(
                name,
                "output",
                0,
                step=place.index - first[place.model_id],
                model=place.model if len(models) > 1 else "",
                load=sorted(loads[place.device, place.model]).index(place.model_id),
                device=place.device if len(devices) > 1 else -1,
                capture=capture,
            )
            found[str(key).removesuffix(_SLOT)] = [shape_text(shape) for shape in shapes]
    return found


def _layer(name: str) -> str:
    return TensorKey.parse(f"{name}{_SLOT}").layer


def changed(golden: Golden, now: Mapping[str, list[str]] | None) -> tuple[str, ...]:
    """Say which operators without a file differ from those that the golden lists."""
    listed = golden.extra.get(EMPTY)
    if EMPTY not in golden.extra or now is None or listed == now:
        return ()
    before: Mapping[str, Any] = listed if isinstance(listed, dict) else {}
    names = [name for name in dict.fromkeys([*before, *now]) if before.get(name) != now.get(name)]
    shown = first_of((f"{name}: {_text(before, name)} -> {_text(now, name)}" for name in names), _SHOWN, "; ")
    return (f"operators whose tensors hold no element, and which leave no file, differ: {shown}",)


def notes_on(golden: Golden, now: Mapping[str, list[str]] | None) -> tuple[str, ...]:
    """Name the operators without a file that are not compared, as one side does not tell of them."""
    listed = golden.extra.get(EMPTY)
    if now is None and listed:
        names = first_of(listed, _SHOWN)
        return (f"{names}: not compared, as no tensor of it holds an element, and only the emulator tells",)
    if not now or EMPTY in golden.extra:
        return ()
    note = (
        f"{first_of(now, _SHOWN)}: not compared, as no tensor of it holds an element, and it left no file; "
        f"approve anew to have the golden list its shapes"
    )
    return (note,)


def _text(side: Mapping[str, Any], name: str) -> str:
    shapes = side.get(name)
    return ", ".join(map(str, shapes)) if isinstance(shapes, list) else "not among them"
