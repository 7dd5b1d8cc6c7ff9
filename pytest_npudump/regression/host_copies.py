"""Host copies of models' inputs and outputs: projections for rows of the dump.

A device's statistics do not tell elements apart. Inputs and outputs of a graph pass through the test's own
memory, so that their projections cost no tensor in the dump. They go to the row that the dump has of the
tensor: of an input its ``Data``, of an output the operator that writes it. A tensor that the test does not
have dumped has no row, and none is made for it: a test that selects layers is judged by these alone.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from itertools import count
from typing import TYPE_CHECKING

from pytest_npudump.dump.arrays.decode import DecodeError
from pytest_npudump.dump.columns import UNTOLD, TensorTable
from pytest_npudump.dump.records import Dump, Stats, TensorKey, TensorRecord, sanitise
from pytest_npudump.dump.stats.projections import project
from pytest_npudump.runtime.base import ModelSession, Port, PortedSession

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import numpy as np


@dataclass(frozen=True, slots=True)
class _Passed:
    """A tensor that passed: the shape and type that its row has to have, and its projections."""

    port: tuple[str, int]
    dtype: str
    shape: tuple[int, ...]
    sums: tuple[float, ...]


@dataclass(slots=True)
class HostCopies:
    """Host copies of the sessions of one run.

    Attributes:
        sessions: of each session in the order of loading the stem of its file, and what passed: by the part
            of the test, then by the number of the execution.
    """

    sessions: list[tuple[str, dict[str, dict[int, list[_Passed]]]]] = field(default_factory=list)

    def watch(
        self, session: ModelSession, stem: str, part: Callable[[], str], steps: Sequence[tuple[int, int]]
    ) -> None:
        """Look at what passes through a session from now on, if it tells what dumps call its tensors.

        Args:
            session: a model that has just been loaded.
            stem: of its file's name.
            part: tells which part of the test is under way.
            steps: intervals of the executions that are dumped; none for all.
        """
        if not isinstance(session, PortedSession):
            return
        seen: dict[str, dict[int, list[_Passed]]] = defaultdict(dict)
        ports, numbers = (*session.input_ports, *session.output_ports), count()
        self.sessions.append((stem, seen))

        def look(inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> None:
            number = next(numbers)
            if not steps or any(first <= number <= last for first, last in steps):
                pairs = zip(ports, (*inputs, *outputs), strict=True)
                seen[part()][number] = [one for port, array in pairs for one in _passed(port, array)]

        session.look = look

    def completed(self, dump: Dump) -> Dump:
        """Return a dump with the projections of what passed, in those of its rows that have none."""
        keys = dict(self._keys())
        records, found = dump.records, {}
        if not keys:
            return dump
        texts = records.texts if isinstance(records, TensorTable) else [str(one.key) for one in records]
        for row, text in enumerate(texts):
            one = keys.get(text)
            if one is not None and (records[row].dtype, records[row].shape) == (one.dtype, one.shape):
                found[row] = one.sums
        return replace(dump, records=_with_projections(records, found)) if found else dump

    def _keys(self) -> Iterator[tuple[str, _Passed]]:
        """Yield the host copies under each key that their row may have."""
        loads: defaultdict[tuple[str, str], int] = defaultdict(int)
        for stem, parts in self.sessions:
            for part, executions in parts.items():
                load, first = loads[stem, part], min(executions)
                loads[stem, part] += 1
                for number, tensors in executions.items():
                    for one in tensors:
                        layer, slot = one.port
                        for name in {layer, sanitise(layer)}:
                            key = TensorKey(
                                name, "output", slot, step=number - first, load=load, capture=part
                            )
                            yield str(key), one
                            yield str(replace(key, model=stem)), one


def _passed(port: Port, array: np.ndarray) -> Iterator[_Passed]:
    if port is None or not array.size:
        return
    try:
        yield _Passed(port, array.dtype.name, array.shape, project(array))
    except DecodeError:  # a type whose values are no numbers
        return


def _with_projections(
    records: Sequence[TensorRecord], found: Mapping[int, tuple[float, ...]]
) -> Sequence[TensorRecord]:
    if isinstance(records, TensorTable):
        columns = records.columns
        digits = [0 if told == UNTOLD and row in found else told for row, told in enumerate(columns.digits)]
        sums = {**found, **columns.projections}
        return TensorTable(records.files, replace(columns, digits=digits, projections=sums))
    return tuple(
        replace(record, stats=replace(record.stats or Stats(), projections=found[row]))
        if row in found and (record.stats is None or record.stats.projections is None)
        else record
        for row, record in enumerate(records)
    )
