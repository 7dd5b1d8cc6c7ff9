"""Outputs that no kernel writes: what they hold is left over in memory, and has no place in a golden.

MindSpore's CPU kernels leave some of their outputs as memory was, such as ``output.1`` to ``output.4`` of
BatchNorm in inference. A recording finds them by comparing three processes: the run that is recorded; one in
which glibc fills memory (``MALLOC_PERTURB_``) and MindSpore lays out a graph's memory in another way, since a
block that is used again holds what the test itself put there; and a third like the second one. What differs
between the first two and not between the last two depends on memory alone. What differs between the last
two as well varies by itself, as without a seed, and is recorded like anything else.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pytest_npudump.compare.judge import RUN, judge_tables
from pytest_npudump.compare.stats.verdict import FAIL
from pytest_npudump.dump.records import TensorKey
from pytest_npudump.dump.table import StatsTable, sanitised_key
from pytest_npudump.language.text import first_of
from pytest_npudump.record.record import JUDGED, LEFT_OUT, UNWRITTEN, entries_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pytest_npudump.compare.tolerances.tolerance import Tolerances
    from pytest_npudump.dump.records import Dump
    from pytest_npudump.record.record import Record
    from pytest_npudump.regression.case import Case


NOT_LOOKED_FOR = (
    "which outputs MindSpore's CPU kernels leave unwritten was not found out, as that takes a run in which "
    "memory holds other values (isolation='process', and the test has to pass in it): where the golden holds "
    "such outputs, the test fails by chance"
)

_PERTURB = "MALLOC_PERTURB_"


@dataclass(frozen=True, slots=True)
class Unwritten:
    """What runs in other memory showed of a dump.

    Attributes:
        left_out: keys of tensors that nothing writes, as the dump has them.
        varying: keys of tensors that vary from run to run, whatever memory holds.
    """

    left_out: tuple[TensorKey, ...] = ()
    varying: tuple[TensorKey, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """What a person who accepts a golden should know."""
        notes = []
        if self.left_out:
            notes.append(
                f"{len(self.left_out)} tensors are left out of the golden, as no kernel writes them, or not "
                f"all of them, and they hold what was left over in memory: {first_of(self.left_out)}; to "
                f"have one compared all the same, write {JUDGED!r} behind it under {UNWRITTEN!r} in the "
                f"golden, and accept anew"
            )
        if self.varying:
            notes.append(
                f"{len(self.varying)} tensors differ from run to run and were recorded as the first run had "
                f"them: {first_of(self.varying)}; make the test deterministic, as with mindspore.set_seed()"
            )
        return tuple(notes)


def looks_for_unwritten(case: Case) -> bool:
    """Whether recording it takes runs in other memory: known once it runs is whether on a CPU."""
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
    """Whether a tensor that is not to be judged in any case differs in other memory."""
    judged = {sanitised_key(key) for key, word in entries_of(previous).items() if word == JUDGED}
    return bool(_differing(table, probe, tolerances) - judged)


def find_unwritten(dump: Dump, probe: StatsTable, again: Dump, tolerances: Tolerances) -> Unwritten:
    """Tell tensors that nothing writes from those that vary by themselves.

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
    """Return what a new golden says of unwritten tensors; what a person marked as judged stays so."""
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
