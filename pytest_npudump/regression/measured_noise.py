"""Measured noise of one test's runs, for the golden and for its reader.

Outputs that no kernel writes hold what is left over in memory, and have no place in a golden. MindSpore's CPU
kernels leave some of their outputs as memory was, such as ``output.1`` to ``output.4`` of BatchNorm in
inference. A recording finds them by comparing three processes: the run that is recorded; one in which glibc
fills memory (``MALLOC_PERTURB_``) and MindSpore lays out a graph's memory in another way, since a block that
is used again holds what the test itself put there; and a third like the second one. What differs between the
first two and not between the last two depends on memory alone. What differs between the last two as well
varies by itself, as without a seed, and is recorded like anything else.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_npudump.compare.judge import RUN, judge_tables
from pytest_npudump.compare.stats.verdict import FAIL
from pytest_npudump.dump.records import Dump, TensorKey
from pytest_npudump.dump.table import StatsTable, sanitised_key
from pytest_npudump.errors import joined, said
from pytest_npudump.language.text import first_of, number_of
from pytest_npudump.record.noise import CALIBRATION, REPEATS, Calibration, Noise, Repeats, columns_text
from pytest_npudump.record.record import JUDGED, LEFT_OUT, UNWRITTEN, Record, entries_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from pytest_npudump.compare.stats.allowances import Deviations
    from pytest_npudump.compare.tolerances.tolerance import Tolerances
    from pytest_npudump.regression.case import Case


_INPUT = "input"


@dataclass(frozen=True, slots=True)
class Measured:
    """Noise of a test, for its golden.

    Attributes:
        cells: of the column ``noise``, one a tensor of the golden; empty where none strays.
        head: the golden's keys ``repeats`` and ``calibration``.
        notes: what a person who accepts the golden should know.
    """

    cells: tuple[str, ...]
    head: Mapping[str, Any]
    notes: tuple[str, ...] = ()

    def on(self, table: StatsTable) -> StatsTable:
        """Return the golden's table with the column."""
        return replace(table, noise=self.cells)

    def with_calibration_of(self, previous: Record | None, table: StatsTable) -> Measured:
        """Return the same with the calibration of the golden that was there, if its values are the same.

        Args:
            previous: that golden; None without one.
            table: the values that are recorded.
        """
        if previous is None or CALIBRATION not in previous.extra or CALIBRATION in self.head:
            return self
        if self.cells or not same_values(previous.table, table):
            note = said(
                "the calibration of the previous golden was removed, as its values changed; measure again "
                "with --npudump-update-golden=calibrate"
            )
            return replace(self, notes=(*self.notes, note))
        head = {**self.head, CALIBRATION: previous.extra[CALIBRATION]}
        return replace(self, cells=previous.table.noise, head=head)


def same_values(one: StatsTable, other: StatsTable) -> bool:
    """Return whether two tables have the same tensors, and the same statistics of each."""
    columns = (one.keys, one.dtypes, one.shapes) == (other.keys, other.dtypes, other.shapes)
    return columns and np.array_equal(one.values, other.values, equal_nan=True)


def further_runs(case: Case) -> int:
    """Count the runs behind the first that measure a recorded test.

    Ranks agree on one second run, whatever was asked for.
    """
    if case.settings.calibrate:
        return case.settings.calibrate
    further = (case.request.repeats or case.settings.repeats) - 1
    return further if case.exchange is None else min(further, 1)


def once(reason: str) -> Measured:
    """Return the noise of a test that ran once.

    Args:
        reason: why it did not run again, for the note; "" where nobody wanted that.
    """
    words = said("unknown whether the test is deterministic: {reason}", reason=reason)
    return Measured((), {REPEATS: Repeats(1).to_head()}, (words,) if reason else ())


def repeated(alike: Sequence[Deviations], *, filtered: bool = False) -> Measured:
    """Return the noise of equal runs.

    Args:
        alike: the later runs against the first, one or more; they need not have all of its tensors.
        filtered: whether some layers are not dumped.
    """
    cells = columns_text(_noise(alike, alike))
    repeats = _repeats(alike, filtered=filtered)
    unseeded = _beyond(alike, exact=False).any()
    advice = said(
        "later runs will fail: give the test a seed, or measure its tolerances with "
        "--npudump-update-golden=calibrate"
    )
    notes = _repeat_notes(alike, repeats, advice if unseeded else "")
    return Measured(cells, {REPEATS: repeats.to_head()}, notes)


def calibrated(
    members: Sequence[Deviations],
    alike: Sequence[Deviations],
    factor: float,
    varied: tuple[str, ...],
    *,
    filtered: bool = False,
) -> Measured:
    """Return the noise of a calibration's members.

    Args:
        members: all of them.
        alike: those in which nothing was varied.
        factor: what their largest deviations are to be multiplied by.
        varied: what differed between them.
        filtered: whether some layers are not dumped.
    """
    cells = columns_text(_noise(members, alike))
    repeats = _repeats(alike, filtered=filtered)
    calibration = Calibration(len(members), factor, varied)
    head = {REPEATS: repeats.to_head(), CALIBRATION: calibration.to_head()}
    return Measured(cells, head, _repeat_notes(alike, repeats, said("the measured tolerances allow for it")))


def _noise(members: Sequence[Deviations], alike: Sequence[Deviations]) -> list[Noise]:
    strayed = [np.where(member.differs[:, np.newaxis], member.largest, 0.0) for member in members]
    largest = np.max(strayed, axis=0)
    varies = np.any([member.differs for member in alike], axis=0)
    return [
        Noise((row[0], row[1], row[2], row[3]), differs, row[4])
        for row, differs in zip(largest.tolist(), varies.tolist(), strict=True)
    ]


def _repeats(alike: Sequence[Deviations], *, filtered: bool) -> Repeats:
    compared = np.all([run.compared for run in alike], axis=0)
    part = None if compared.all() else int(compared.sum())
    return Repeats(1 + len(alike), culprits(alike, filtered=filtered), part)


def culprits(alike: Sequence[Deviations], *, filtered: bool = False) -> tuple[str, ...]:
    """Return the layers at which runs alike come apart, in the order of execution.

    The first layer that they disagree in is one, as the statistics of all before it agreed. So is any other
    that strays further than its tolerance while all of its inputs are dumped and agree. Where some layers are
    not dumped, one of these may be what the first got its values from: then its inputs have to agree as well.

    Args:
        alike: the later runs against the first.
        filtered: whether some layers are not dumped.
    """
    keys = [TensorKey.parse(key) for key in alike[0].keys]
    differs: NDArray[np.bool_] = np.any([run.differs for run in alike], axis=0)
    outside: NDArray[np.bool_] = np.any([run.outside for run in alike], axis=0)
    places = [replace(key, io="", slot=0) for key in keys]
    inputs: dict[TensorKey, bool] = {}
    for place, key, unlike in zip(places, keys, differs.tolist(), strict=True):
        if key.io == _INPUT:
            inputs[place] = inputs.get(place, True) and not unlike
    found = [
        key.layer
        for place, key, strays in zip(places, keys, (differs & outside).tolist(), strict=True)
        if strays and key.io != _INPUT and inputs.get(place, False)
    ]
    first = int(differs.argmax()) if differs.any() else None
    if first is not None and keys[first].io != _INPUT and inputs.get(places[first], not filtered):
        found.insert(0, keys[first].layer)
    order = {key.layer: row for row, key in reversed([*enumerate(keys)])}
    return tuple(sorted(dict.fromkeys(found), key=order.__getitem__))


def _beyond(alike: Sequence[Deviations], *, exact: bool) -> NDArray[np.bool_]:
    """Tensors, (n,), that stray by more than they may; of exact types, that stray at all."""
    found: NDArray[np.bool_] = np.any([run.differs & run.outside for run in alike], axis=0)
    return np.asarray(found & (alike[0].exact == exact))


def _repeat_notes(alike: Sequence[Deviations], repeats: Repeats, way_out: str) -> tuple[str, ...]:
    differs: NDArray[np.bool_] = np.any([run.differs for run in alike], axis=0)
    if not differs.any():
        return ()
    first = TensorKey.parse(alike[0].keys[int(differs.argmax())])
    if layers := first_of(repeats.not_deterministic):
        culprit = said("first seen at: {layers}", layers=layers)
    elif first.io == _INPUT:
        culprit = said("the inputs of the model already differ")
    else:
        culprit = said("first seen at {layer}, whose inputs are not dumped", layer=first.layer)
    beyond, exact = int(_beyond(alike, exact=False).sum()), int(_beyond(alike, exact=True).sum())
    parts = [said(", {beyond} of them by more than their tolerance", beyond=beyond) if beyond else ""]
    parts += [
        said(", {exact} of them of types that are otherwise compared exactly", exact=exact) if exact else ""
    ]
    note = said(
        "{count} of {total} tensors differ between {runs} equal runs{parts} "
        "({culprit}): their spread is in the golden's column noise; {way_out}",
        count=int(differs.sum()),
        total=len(differs),
        runs=repeats.runs,
        parts=joined("", parts),
        culprit=culprit,
        way_out=way_out or said("a run that differs as much counts as unchanged"),
    )
    return (note,)


NOT_LOOKED_FOR = (
    "which outputs MindSpore's CPU kernels leave unwritten was not found out, as that takes a run in which "
    "memory holds other values (isolation='process', and the test has to pass in it): where the golden holds "
    "such outputs, the test fails by chance"
)

_PERTURB = "MALLOC_PERTURB_"


@dataclass(frozen=True, slots=True)
class Unwritten:
    """Unwritten tensors, found by runs in other memory.

    Attributes:
        left_out: keys of tensors that nothing writes, as the dump has them.
        varying: keys of tensors that vary from run to run, whatever memory holds.
    """

    left_out: tuple[TensorKey, ...] = ()
    varying: tuple[TensorKey, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for a person who accepts a golden."""
        notes = []
        if self.left_out:
            notes.append(
                f"left out of the golden: {number_of(len(self.left_out), 'tensor')} that no kernel writes, "
                f"or only in part, and that hold what memory held before: {first_of(self.left_out)}; to "
                f"have one compared all the same, write {JUDGED!r} behind it under {UNWRITTEN!r} in the "
                f"golden, and accept anew"
            )
        if self.varying:
            notes.append(
                f"recorded as the first run had them: {number_of(len(self.varying), 'tensor')} that differ "
                f"from run to run: {first_of(self.varying)}; make the test deterministic, as "
                f"with mindspore.set_seed()"
            )
        return tuple(notes)


def looks_for_unwritten(case: Case) -> bool:
    """Return whether recording takes runs in other memory: whether on a CPU is known once it runs."""
    mindspore = case.runtime.name == "mindspore" and case.request.scene == "model"
    return mindspore and bool(case.settings.update_golden) and case.exchange is None


def other_memory(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment in which glibc fills memory with values far from what the given one leaves there.

    37 makes of it -3e16 as float32 and -219 as float16, 165 makes 1.5e16 and 203.
    """
    return {**environment, _PERTURB: "165" if environment.get(_PERTURB) == "37" else "37"}


def depends_on_memory(
    table: StatsTable, probe: StatsTable, tolerances: Tolerances, previous: Record | None
) -> bool:
    """Return whether a compared tensor differs in other memory."""
    judged = {sanitised_key(key) for key, word in entries_of(previous).items() if word == JUDGED}
    return bool(_differing(table, probe, tolerances) - judged)


def find_unwritten(dump: Dump, probe: StatsTable, again: Dump, tolerances: Tolerances) -> Unwritten:
    """Separate tensors that nothing writes from those that vary by themselves.

    An operator that leaves an output unwritten in one execution does so in every other one of its graph,
    whose memory may have held the same by chance.

    Args:
        dump: the run that is recorded.
        probe: statistics of one in other memory.
        again: another one in the same memory as the probe's.
        tolerances: of the test: a difference within them is none.
    """
    second = StatsTable.from_records(again.records)
    varying = _differing(probe, second, tolerances)
    held = set(map(sanitised_key, second.keys))
    table = StatsTable.from_records(dump.records)
    by_memory = (_differing(table, probe, tolerances) & held) - varying
    groups = {_output(TensorKey.parse(key)) for key in by_memory}
    groups -= {_output(TensorKey.parse(key)) for key in varying}
    keys = [record.key for record in dump.records]
    return Unwritten(
        tuple(key for key in keys if _output(key) in groups),
        tuple(key for key in keys if str(key.sanitised) in varying),
    )


def new_entries(previous: Record | None, left_out: Iterable[TensorKey]) -> dict[str, str]:
    """Return a new golden's list of unwritten tensors; those that a person marked as judged stay so."""
    judged = {key: word for key, word in entries_of(previous).items() if word == JUDGED}
    plain = set(map(sanitised_key, judged))
    return judged | {str(key): LEFT_OUT for key in left_out if str(key.sanitised) not in plain}


def by_layer(entries: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Return entries as a golden file holds them: a line for each layer."""
    layers: dict[str, dict[str, str]] = {}
    for key, word in entries.items():
        layer, _, slot = key.rpartition(":")
        layers.setdefault(layer, {})[slot] = word
    return layers


def without(dump: Dump, entries: Mapping[str, str], kept: Iterable[str] = ()) -> Dump:
    """Return a dump without the tensors that ``entries`` leave out, unless ``kept`` names them."""
    left_out = {sanitised_key(key) for key, word in entries.items() if word == LEFT_OUT}
    left_out -= set(map(sanitised_key, kept))
    if not left_out:
        return dump
    return replace(
        dump, records=tuple(record for record in dump.records if str(record.key.sanitised) not in left_out)
    )


def _differing(one: StatsTable, other: StatsTable, tolerances: Tolerances) -> set[str]:
    comparison = judge_tables(one, other, tolerances, RUN)
    return {str(verdict.key.sanitised) for verdict in comparison.failing if verdict.status == FAIL}


def _output(key: TensorKey) -> TensorKey:
    return replace(key.sanitised, turn=0, step=0)
