"""Directories of nothing but statistics CSV of single operators: names in columns, not an object each.

Most statistics dumps have only such directories. Their tensors get the keys, and stand in the order, that
:func:`pytest_npudump.dump.tree.keys.records_of` would give them.
"""

from __future__ import annotations

import re
import sys
from array import array
from collections import defaultdict
from dataclasses import dataclass
from itertools import islice
from operator import lt
from typing import TYPE_CHECKING

from pytest_npudump.dump.columns import ColumnRecords, FileColumns
from pytest_npudump.dump.execution import Execution
from pytest_npudump.dump.names import parse_name
from pytest_npudump.dump.parts import TensorPart
from pytest_npudump.dump.places import DumpFile
from pytest_npudump.dump.tree.eager import is_eager_type
from pytest_npudump.dump.tree.keys import GRAPH_INPUT, number_places, shared_names
from pytest_npudump.dump.tree.occurrences import number_turns

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from pytest_npudump.dump.columns import TensorColumns
    from pytest_npudump.dump.places import Place
    from pytest_npudump.dump.records import TensorRecord

_OPERATOR = re.compile(
    r"/(?!exception_info\.|display\.|Opdebug\.)([^./]+)\.([^./]+)\.(\d{1,18})(?:\.(\d{1,18}))?\.(\d{16})\.csv(?=/)",
    re.ASCII,
)
"""A name of ``pytest_npudump.dump.names`` of the kind ``operator``, without a slice, between two slashes."""


@dataclass(frozen=True, slots=True)
class TableFolder:
    """A directory of n statistics CSV.

    Attributes:
        directory: where they are.
        place: what the directory says.
        names: of the files.
        op_types, layers, tasks, streams, times: what these say, as ``DumpName`` has it.
    """

    directory: Path
    place: Place
    names: Sequence[str]
    op_types: Sequence[str]
    layers: Sequence[str]
    tasks: Sequence[int]
    streams: Sequence[int | None]
    times: Sequence[int]

    @classmethod
    def of(cls, directory: Path, place: Place, names: Sequence[str]) -> TableFolder | None:
        """Return a directory with files of these names; None where one is of another kind."""
        found = _OPERATOR.findall(f"/{'/'.join(names)}/")
        if len(found) != len(names) or not names:
            return None
        op_types, layers, tasks, streams, times = zip(*found, strict=True)
        eager = not place.model and place.iteration < 0 and any(map(is_eager_type, frozenset(op_types)))
        if eager or place.mindspore:
            return None
        return cls(
            directory,
            place,
            names,
            list(map(sys.intern, op_types)),
            list(map(sys.intern, layers)),
            list(map(int, tasks)),
            [int(stream) if stream else None for stream in streams],
            list(map(int, times)),
        )

    def files(self) -> Iterator[DumpFile]:
        """Yield the files one by one."""
        for name in self.names:
            yield DumpFile(self.directory / name, self.place, parse_name(name), "operator_csv")


def table_records(
    folders: Sequence[TableFolder], tensors: TensorColumns
) -> tuple[Sequence[TensorRecord], list[str]]:
    """Return the records of statistics CSV, in execution order, and notes.

    Args:
        folders: where the files are.
        tensors: what they hold; files are numbered through from the first folder on.
    """
    # Of each file the first tensor, as that is put in last.
    first = dict(zip(reversed(tensors.file), reversed(range(len(tensors))), strict=True))
    if not first:
        return (), []
    dump = _Tables(folders, _files(folders), tensors, first)
    ordered = dump.in_order()
    groups = dump.repeated(ordered)
    executions = [list(map(dump.execution, group)) for group in groups]
    for group, found in zip(groups, executions, strict=True):
        dump.files.turn.update(zip(group, number_turns(found), strict=True))
    return ColumnRecords(dump.files, tensors, dump.rows(ordered)), shared_names(executions)


def _files(folders: Sequence[TableFolder]) -> FileColumns:
    files = FileColumns()
    for at, folder in enumerate(folders):
        files.directories.append(str(folder.directory))
        files.folder += [at] * len(folder.names)
        files.name += folder.names
        files.op_type += folder.op_types
        files.layer += folder.layers
        files.task += folder.tasks
        files.stream += folder.streams
        files.time += folder.times
    return files


@dataclass(frozen=True, slots=True)
class _Tables:
    """The files of a dump; ``first`` has the first tensor of each that could be read."""

    folders: Sequence[TableFolder]
    files: FileColumns
    tensors: TensorColumns
    first: Mapping[int, int]

    def in_order(self) -> list[int]:
        """Sort the files by time, and alike ones as ``keys`` sorts executions."""
        files, present = self.files, sorted(self.first)
        times = self._times_of_inputs()
        if not times and len({files.time[file] for file in present}) == len(present):
            return sorted(present, key=files.time.__getitem__)
        io, slot, first = self.tensors.io, self.tensors.slot, self.first
        keys = {
            file: (
                times.get(file, files.time[file]),
                file not in times,
                files.task[file],
                io[first[file]],
                slot[first[file]],
                files.layer[file],
            )
            for file in present
        }
        return sorted(present, key=keys.__getitem__)

    def _times_of_inputs(self) -> dict[int, int]:
        """When the consumer of each input of a graph was dumped, if that was earlier than the input was."""
        files = self.files
        if GRAPH_INPUT not in files.op_type:
            return {}
        same = {folder.place: at for at, folder in enumerate(self.folders)}
        places = [same[folder.place] for folder in self.folders]
        tasks = {
            file: (places[files.folder[file]], files.task[file], files.stream[file]) for file in self.first
        }
        inputs = {file: files.time[file] for file in self.first if files.op_type[file] == GRAPH_INPUT}
        earliest: dict[object, int] = {}
        for file, task in tasks.items():
            if file not in inputs:
                earliest[task] = min(files.time[file], earliest.get(task, files.time[file]))
        return {file: min(time, earliest.get(tasks[file], time)) for file, time in inputs.items()}

    def repeated(self, ordered: Sequence[int]) -> list[list[int]]:
        """Give each folder its qualifiers; return the files of each layer that has several in one step."""
        files = self.files
        held = frozenset(map(files.folder.__getitem__, ordered))
        places = number_places({self.folders[folder].place for folder in held})
        blank = next(iter(places.values()))
        files.qualifiers = [places.get(folder.place, blank) for folder in self.folders]
        alike = {found: at for at, found in enumerate(files.qualifiers)}
        step = [alike[found] for found in files.qualifiers]
        layers = [(step[files.folder[file]], files.layer[file]) for file in ordered]
        if len(frozenset(layers)) == len(layers):
            return []
        groups: defaultdict[tuple[int, str], list[int]] = defaultdict(list)
        for file, layer in zip(ordered, layers, strict=True):
            groups[layer].append(file)
        return [group for group in groups.values() if len(group) > 1]

    def execution(self, file: int) -> Execution:
        """A file as what numbers turns takes it."""
        files, tensors, row = self.files, self.tensors, self.first[file]
        parts = []
        while row < len(tensors) and tensors.file[row] == file:
            parts.append(
                TensorPart(tensors.io[row], tensors.slot[row], tensors.dtype[row], tensors.shape[row])
            )
            row += 1
        folder = self.folders[files.folder[file]]
        return Execution(
            folder.place,
            folder.directory / files.name[file],
            files.op_type[file],
            files.layer[file],
            raw=False,
            time=files.time[file],
            task=files.task[file],
            stream=files.stream[file],
            parts=tuple(parts),
        )

    def rows(self, ordered: Sequence[int]) -> Sequence[int]:
        """Sort the tensors: by file, inputs before outputs, by slot."""
        rank = [0] * len(self.files.name)
        for at, file in enumerate(ordered):
            rank[file] = at
        ranks = map(rank.__getitem__, self.tensors.file)
        keys = list(zip(ranks, self.tensors.io, self.tensors.slot, strict=True))
        rows = range(len(keys))
        if all(map(lt, keys, islice(keys, 1, None))):
            return rows
        return array("q", sorted(rows, key=keys.__getitem__))
