"""Host copies of models' inputs and outputs: projections for rows of the dump.

A device's statistics do not tell elements apart. Inputs and outputs of a graph pass through the test's own
memory, so that their projections cost no tensor in the dump. Where each row of an output has one element that
is by far the largest, as of a class that is all but certain, its place is known as well: projections do not
tell it from one in 200 others. They go to the row that the dump has of the
tensor: of an input its ``Data``, of an output the operator that writes it. A tensor that the test does not
have dumped has no row: outputs of a model of which a test selects layers stand beside its rows, for a note.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence, Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, field, replace
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from pytest_npudump.dump.arrays.decode import DecodeError
from pytest_npudump.dump.columns import UNTOLD, TensorTable
from pytest_npudump.dump.records import ARGMAX, BESIDE_MASK, WEIGHED, Dump, Stats, TensorKey, TensorRecord
from pytest_npudump.dump.selection import layers_meant
from pytest_npudump.dump.stats.compact_projections import as_printed, texts
from pytest_npudump.dump.stats.projections import project
from pytest_npudump.dump.stats.signs import factors
from pytest_npudump.dump.stats.tensor import tensor_stats
from pytest_npudump.dump.table import StatsTable
from pytest_npudump.record.model_lines import fed_line
from pytest_npudump.record.rows import render_outputs
from pytest_npudump.runtime.base import ModelSession, Port, PortedSession

_BY_FAR = 0.5
"""The share of a tensor's magnitude by which a row's largest element is larger: no preset allows so much."""
_MOST = 1 << 22
"""Elements beyond which nobody looks for the largest ones."""
_BESIDE = 1e3
"""How much larger a mask is than the elements beside it, at least."""
_FEW = 8
"""Rows whose places are told one by one."""


@dataclass(frozen=True, slots=True)
class _Passed:
    """A tensor that passed: shape and type that its row has to have, projections, where it is largest."""

    port: tuple[str, int]
    dtype: str
    shape: tuple[int, ...]
    sums: tuple[float, ...]
    peaks: str
    stats: Stats | None = None


@dataclass(slots=True)
class HostCopies:
    """Host copies of the sessions of one run.

    Attributes:
        sessions: of each session in the order of loading the stem of its file, and what passed: by the part
            of the test, then by the number of the execution. Of models in memory which load it is, too.
        fed: by the stem of a file a digest of each execution's inputs.
    """

    sessions: list[tuple[str, dict[str, dict[int, list[_Passed]]], int | None]] = field(default_factory=list)
    fed: dict[str, list[bytes]] = field(default_factory=dict)

    def watch(
        self,
        session: ModelSession,
        stem: str,
        part: Callable[[], str],
        steps: Sequence[tuple[int, int]],
        *,
        sums: bool = True,
        layers: Sequence[str] = (),
    ) -> None:
        """Look at what passes through a session from now on, if it tells what dumps call its tensors.

        Args:
            session: a model that has just been loaded.
            stem: of its file's name.
            part: tells which part of the test is under way.
            steps: intervals of the executions that are dumped; none for all.
            sums: whether projections are wanted, which a dump of tensors has.
            layers: those that the test names; outputs of others have no row.
        """
        if not isinstance(session, PortedSession):
            return
        seen: dict[str, dict[int, list[_Passed]]] = {}
        given, numbers = session.input_ports, count()
        ports = (*given, *session.output_ports)
        outputs = {port for port in session.output_ports if port is not None}
        named = layers_meant(layers, (layer for layer, _ in outputs)) if layers else ()
        outside = {port for port in outputs if port[0] not in named} if layers else ()
        self.sessions.append((stem, seen, None))

        def look(inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> None:
            number = next(numbers)
            if not steps or any(first <= number <= last for first, last in steps):
                self.fed.setdefault(stem, []).append(_digest(inputs))
                pairs = zip(ports, (*inputs, *outputs), strict=True)
                seen.setdefault(part(), {})[number] = [
                    one
                    for place, (port, array) in enumerate(pairs)
                    for one in _passed(
                        port,
                        array,
                        sums=sums,
                        peaks=place >= len(given),
                        whole=port in outside,
                    )
                ]

        session.look = look

    def watch_outputs(self, layer: str, stem: str, part: str, load: int) -> Callable[[int, int, Any], None]:
        """Return what looks where outputs are largest, by the number of the execution and the slot.

        The dump has projections of a model in memory.

        Args:
            layer: what dumps call the model as a layer.
            stem: what they call it as a model.
            part: of the test.
            load: which of its captures in that part.
        """
        seen: defaultdict[int, list[_Passed]] = defaultdict(list, {0: []})
        self.sessions.append((stem, {part: seen}, load))

        def look(number: int, slot: int, array: np.ndarray) -> None:
            seen[number] += _passed((layer, slot), array, sums=False, peaks=True)

        return look

    def completed(self, dump: Dump) -> Dump:
        """Return a dump with what is known of what passed, in those of its rows that have none."""
        keys = {name: one for names, one in self._keys() for name in names}
        records, found = dump.records, dict[int, _Passed]()
        names = ((TensorKey(stem, "", 0).name_text, digests) for stem, digests in self.fed.items())
        dump = replace(dump, fed="".join(fed_line(*one) for one in names if all(one[1])))
        if not keys:
            return dump
        texts = records.texts if isinstance(records, TensorTable) else [str(one.key) for one in records]
        for row, text in enumerate(texts):
            one = keys.get(text)
            if one is not None and (records[row].dtype, records[row].shape) == (one.dtype, one.shape):
                found[row] = one
        dump = replace(dump, outputs=self._outside({*texts}))
        return replace(dump, records=_with(records, found)) if found else dump

    def _outside(self, known: AbstractSet[str]) -> str:
        """Return the rows of outputs that the dump lacks, under the first key that they may have."""
        several = len({stem for stem, *_ in self.sessions}) > 1
        records = {}
        for names, one in self._keys():
            if one.stats is not None and known.isdisjoint(names):
                key = TensorKey.parse(names[several])
                records[key] = TensorRecord(
                    key, "", one.dtype, one.shape, Path(), stats=one.stats, digest=one.peaks
                )
        return render_outputs(StatsTable.from_records(as_printed([*records.values()]))) if records else ""

    def _keys(self) -> Iterator[tuple[list[str], _Passed]]:
        """Yield the host copies, each behind all keys that its row may have."""
        loads: defaultdict[tuple[str, str], int] = defaultdict(int)
        for stem, parts, own in self.sessions:
            for part, executions in parts.items():
                load, first = loads[stem, part] if own is None else own, min(executions)
                loads[stem, part] += 1
                for number, tensors in executions.items():
                    for one in tensors:
                        layer, slot = one.port
                        key = TensorKey(layer, "output", slot, step=number - first, load=load, capture=part)
                        every = key, replace(key, model=stem)
                        yield [*map(str, every), *(str(each.sanitised) for each in every)], one


def _digest(inputs: Sequence[np.ndarray]) -> bytes:
    """Return a digest of types, shapes and bytes; b"" of objects, whose bytes say nothing."""
    digest = sha256()
    for array in inputs:
        if array.dtype.hasobject:
            return b""
        digest.update(repr((str(array.dtype), array.shape)).encode())
        digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data if array.size else b"")
    return digest.digest()


def _passed(
    port: Port, array: np.ndarray, *, sums: bool, peaks: bool, whole: bool = False
) -> Iterator[_Passed]:
    if port is None or not (array.size or whole) or not (sums or peaks):
        return
    with suppress(DecodeError, TypeError, ValueError):  # a type whose values are no numbers
        found = project(array) if sums or whole else ()
        told = replace(tensor_stats(array), projections=found) if whole else None
        found = found if sums else ()
        yield _Passed(
            port, array.dtype.name, array.shape, found, _peaks(array) if peaks and array.size else "", told
        )


def _peaks(array: np.ndarray) -> str:
    """Return what plain projections do not tell of an output, as a hash is written; "" where nothing is told.

    It is where each row is largest, unless other numerics might turn one, and the projections of the elements
    by their factors: plain ones do not see that two elements change places, of one pair in 200. Beside a
    mask, one round or lowest number that is all of the largest elements, it is the projections of the other
    elements, of which those of all tell nothing.
    """
    values = array.squeeze()
    if not values.ndim or values.dtype.kind in "bcOSU" or values.size > _MOST:
        return ""
    rows = values.reshape(-1, values.shape[-1]).astype(np.float64)
    sizes = np.abs(rows)
    scale = sizes.max()
    if not np.isfinite(scale) or scale == 0:
        return ""
    if scale >= _BESIDE:
        beside = sizes < scale / _BESIDE
        mask = rows[~beside]
        lowest = values.dtype.kind == "f" and mask[0] == np.finfo(values.dtype).min
        if beside.any() and (mask == mask[0]).all() and (lowest or float(f"{mask[0]:.1g}") == mask[0]):
            [text] = texts(np.array([project(np.where(beside, rows, 0.0))]))
            return f"{ARGMAX}:{BESIDE_MASK}{text}"
    [text] = texts(np.array([project(rows.reshape(-1) * np.resize(factors(), rows.size))]))
    return f"{ARGMAX}:{_places(rows, _BY_FAR * scale)}{WEIGHED}{text}"


def _places(rows: np.ndarray, least: float) -> str:
    """Return the column of each row's largest element; "" where that of one is not larger by ``least``."""
    for some in (rows[:1], rows):  # the first alone decides most
        second, first = np.partition(some, -2, axis=1)[:, -2:].T
        if not (first - second >= least).all():
            return ""
    places = rows.argmax(axis=1)
    few = len(places) <= _FEW
    return "x".join(map(str, places)) if few else sha256(places.tobytes()).hexdigest()[:16]


def _with(records: Sequence[TensorRecord], found: Mapping[int, _Passed]) -> Sequence[TensorRecord]:
    sums = {row: one.sums for row, one in found.items() if one.sums}
    peaks = {row: one.peaks for row, one in found.items() if one.peaks}
    if isinstance(records, TensorTable):
        columns = records.columns
        digits = [0 if told == UNTOLD and row in sums else told for row, told in enumerate(columns.digits)]
        digests = [" ".join(filter(None, (one, peaks.get(row)))) for row, one in enumerate(columns.digest)]
        columns = replace(columns, digits=digits, projections={**sums, **columns.projections}, digest=digests)
        return TensorTable(records.files, columns)
    whole = [*records]
    for row in found:
        stats, digest = whole[row].stats, whole[row].digest
        if row in sums and (stats is None or stats.projections is None):
            stats = replace(stats or Stats(), projections=sums[row])
        digest = " ".join(filter(None, (digest, peaks.get(row))))
        whole[row] = replace(whole[row], stats=stats, digest=digest)
    return tuple(whole)
