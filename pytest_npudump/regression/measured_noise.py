"""Measured noise of one test's runs, for the golden and for its reader.

Outputs that no kernel writes hold what is left over in memory, and have no place in a golden.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_npudump.dump.records import Dump, TensorKey, TensorRecord
from pytest_npudump.dump.table import StatsTable, sanitised_key
from pytest_npudump.errors import joined, said
from pytest_npudump.golden.store import KEY
from pytest_npudump.language.text import first_of
from pytest_npudump.record.noise import CALIBRATION, REPEATS, Calibration, Noise, Repeats, columns_text
from pytest_npudump.record.record import JUDGED, LEFT_OUT, Record, entries_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from pytest_npudump.compare.stats.allowances import Deviations
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
                "the calibration of the previous golden was removed, as its values changed; {anew}",
                anew=measured_anew(previous.extra),
            )
            return replace(self, notes=(*self.notes, note))
        head = {**self.head, CALIBRATION: previous.extra[CALIBRATION]}
        return replace(self, cells=previous.table.noise, head=head)


def measured_anew(extra: Mapping[str, object]) -> str:
    """Return how the noise that a golden of these keys had is measured anew.

    A calibration alone needs a run that passes, which one whose noise is not known may not.
    """
    option = "--npudump-update-golden"
    if CALIBRATION not in extra:
        return said("measured anew by {option}", option=option)
    if KEY in extra:  # a recording with golden tensors is not calibrated at once
        return said("measured anew by {option}, then {option}=calibrate", option=option)
    return said("measured anew by {option}", option=f"{option} {option}=calibrate")


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


def repeated(
    alike: Sequence[Deviations],
    *,
    filtered: bool = False,
    members: Sequence[Deviations] = (),
    calibration: Calibration | None = None,
    measurable: bool = True,
) -> Measured:
    """Return the noise of equal runs, or of a calibration's members.

    Args:
        alike: the later runs against the first in which nothing was varied, one or more; they need not have
            all of its tensors.
        filtered: whether some layers are not dumped.
        members: all of a calibration's runs.
        calibration: what is to be known of it; None without one.
        measurable: whether the test can be recorded and calibrated at once.
    """
    cells = columns_text(_noise(members or alike, alike))
    compared = np.all([run.compared for run in alike], axis=0)
    part = None if compared.all() else int(compared.sum())
    repeats = Repeats(1 + len(alike), culprits(alike, filtered=filtered), part)
    head = {REPEATS: repeats.to_head()}
    way_out, advice = "", tuple[str, ...]()
    if calibration is not None:
        head |= {CALIBRATION: calibration.to_head()}
        way_out = said("the measured tolerances allow for it")
    elif _beyond(alike, exact=False).any():
        way_out = said("later runs will fail")
        options = "--npudump-update-golden --npudump-update-golden=calibrate"
        measure = said("measure its tolerances with {options}", options=options)
        ways = measure if measurable else said("set tolerance rules")
        advice = (said("for later runs to pass, give the test a seed, or {ways}", ways=ways),)
    return Measured(cells, head, (*_repeat_notes(alike, repeats, way_out), *advice))


def _noise(members: Sequence[Deviations], alike: Sequence[Deviations]) -> list[Noise]:
    strayed = [np.where(member.differs[:, np.newaxis], member.largest, 0.0) for member in members]
    largest = np.max(strayed, axis=0)
    varies = np.any([member.differs for member in alike], axis=0)
    return [
        Noise((row[0], row[1], row[2], row[3]), differs, row[4])
        for row, differs in zip(largest.tolist(), varies.tolist(), strict=True)
    ]


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


_NOT_WRITTEN = {"BatchNorm": (1, 2, 3, 4), "LSTM": (3, 4)}
"""Outputs that MindSpore's CPU kernels leave as memory was, by types of operators; some but in inference."""


def unwritten_of(records: Iterable[TensorRecord], facts: Mapping[str, str]) -> list[TensorKey]:
    """Return the outputs of a run of these facts that hold what memory held before."""
    if (facts.get("runtime"), facts.get("device_target")) != ("mindspore", "CPU"):
        return []
    return [
        replace(one.key, slot=slot)
        for one in records
        if one.key.io == "output" and not one.key.slot
        for slot in _NOT_WRITTEN.get(one.op_type, ())
    ]


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
