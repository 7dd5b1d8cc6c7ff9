"""Approving a run by what was kept of it: its golden is written from the record, whole or in some layers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pytest_npudump.compare.stats.not_finite import describe_not_finite
from pytest_npudump.compare.stats.order import ABSENT, align
from pytest_npudump.dump.table import layer_of
from pytest_npudump.golden.applicable import VARIANTS
from pytest_npudump.golden.content.table_rows import rows_of
from pytest_npudump.golden.pair import KEY
from pytest_npudump.golden.stamps import Stamp, stamped
from pytest_npudump.golden.store import read_golden, write_golden
from pytest_npudump.graph.edges import edges_of_lines, lines_of
from pytest_npudump.language.excerpt import first_of
from pytest_npudump.record.record import EDGES, OP_TYPES, POINTERS, REASON
from pytest_npudump.results.approved_noise import after_all_rows, after_some_rows
from pytest_npudump.results.approved_tensors import approved_tensors
from pytest_npudump.results.entry import ACCEPTED, REJECTED, Entry, ResultsError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_npudump.dump.table import StatsTable
    from pytest_npudump.golden.content.text import Golden
    from pytest_npudump.results.pending_run import Pending


@dataclass(frozen=True, slots=True)
class Approval:
    """What came of an approval.

    Attributes:
        entry: what is to be kept of the run from here on.
        notes: what the golden does not know any more, for the person who approves it.
    """

    entry: Entry
    notes: tuple[str, ...] = ()


def approve(pending: Pending, layers: Sequence[str] = (), reason: str = "") -> Approval:
    """Write the golden of a run, atomically and under its lock.

    Args:
        pending: the run.
        layers: names or globs of the layers that are approved; none for all.
        reason: why, kept in the golden; "" for none.

    Raises:
        ResultsError: it cannot be approved, or none of its layers that differ is named.
        GoldenError: the golden cannot be written, or is another one meanwhile; it is as it was.
    """
    if pending.refusals or pending.record is None or pending.goldens is None:
        raise ResultsError(f"{pending.entry.test}: refused: {'; '.join(pending.refusals)}")
    golden, notes = _approved(pending, pending.record, layers, reason)
    replacing = pending.golden.file_digest if pending.golden and pending.golden.path == pending.path else ""
    wanted = pending.layers_named(layers)
    chosen = {key for key in golden.table.keys if layer_of(key) in wanted}
    tensors = approved_tensors(pending, golden, chosen)
    if tensors is None:
        write_golden(pending.path, golden, replacing=replacing)
    else:
        pending.goldens.stage(golden, tensors).commit(replacing)
    data = pending.entry.data
    if not layers:
        return Approval(Entry({**data, "decision": ACCEPTED}), notes)
    digest = read_golden(pending.path).digest
    file = {**data["golden"], "judged_with": data["golden"]["file"], "sha256": digest}
    return Approval(Entry({**data, "golden": file}), notes)


def refuse_idle(runs: Sequence[Pending], layers: Sequence[str]) -> None:
    """Refuse names and globs of layers of which none of the runs that differ has one that does.

    Raises:
        ResultsError: one is misspelt, or its layer agrees.
    """
    compared = [(one, one.comparison) for one in runs if one.comparison is not None]
    differing = [(run, {verdict.key.layer: None for verdict in found.failing}) for run, found in compared]
    idle = [
        one for one in layers if not any(run.layers_named([one]) & names.keys() for run, names in differing)
    ]
    names = dict.fromkeys(name for _, found in differing for name in found)
    if names and idle:
        raise ResultsError(f"{', '.join(idle)} names no layer that differs; these do: {first_of(names)}")


def reject(pending: Pending) -> Entry:
    """Return what is to be kept of a run whose golden stays as it is."""
    return Entry({**pending.entry.data, "decision": REJECTED})


def _approved(
    pending: Pending, record: Golden, layers: Sequence[str], reason: str
) -> tuple[Golden, tuple[str, ...]]:
    """Return the golden that is written, and notes on what it does not know."""
    before = pending.golden
    if layers and before is None:
        raise ResultsError(
            f"{pending.entry.test}: has no golden yet, of which some layers could change: accept all of it"
        )
    if layers and before is not None:
        rows = _chosen_rows(pending, before, record, layers)
        table = rows_of((before.table, record.table), rows)
        golden = replace(before, table=table, path=pending.path, blocks=_blocks(before, table))
        golden, notes = after_some_rows(golden, before, [at for at, row in enumerate(rows) if row[0]])
    else:
        base = before.base if before is not None and before.path == pending.path else None
        golden = replace(record, path=pending.path, base=base)
        golden, notes = after_all_rows(golden, before)
    other = before is not None and before.path != pending.path
    left = {KEY, REASON, *([VARIANTS] if other else [])}
    extra = {name: value for name, value in golden.extra.items() if name not in left}
    blocks = {name: text for name, text in golden.blocks.items() if name not in {OP_TYPES, POINTERS}}
    golden = replace(golden, extra=extra | ({REASON: reason} if reason else {}), blocks=blocks)
    notes += tuple(filter(None, [describe_not_finite(golden.table)]))
    return stamped(golden, None if other else before, Stamp.today(pending.entry.data["revision"])), notes


def _blocks(golden: Golden, table: StatsTable) -> dict[str, str]:
    """Return the golden's blocks for another table: edges are those between layers that are in it."""
    text = golden.blocks.get(EDGES, "")
    edges = lines_of(edges_of_lines(text, golden.path.name), dict.fromkeys(map(layer_of, table.keys)))
    return {**golden.blocks, **({EDGES: edges} if text else {})}


def _chosen_rows(
    pending: Pending, golden: Golden, record: Golden, layers: Sequence[str]
) -> list[tuple[int, int]]:
    """Return the rows of the golden, 0, and of the record, 1, in place of its own in some layers."""
    comparison = pending.comparison
    wanted = pending.layers_named(layers)
    failing = comparison.failing if comparison is not None else ()
    if not any(verdict.key.layer in wanted for verdict in failing):
        names = first_of(dict.fromkeys(verdict.key.layer for verdict in failing))
        raise ResultsError(
            f"{pending.entry.test}: {', '.join(layers)} names no layer that differs; these do: {names}"
        )
    if comparison is not None and comparison.own_keys:
        raise ResultsError(
            f"{pending.entry.test}: its eager calls have other numbers than in the golden: accept all of it"
        )
    alignment = align(golden.table.keys, record.table.keys)
    rows = []
    for here, there in zip(alignment.golden.tolist(), alignment.actual.tolist(), strict=True):
        key = golden.table.keys[here] if here != ABSENT else record.table.keys[there]
        chosen = (1, there) if layer_of(key) in wanted else (0, here)
        if chosen[1] != ABSENT:
            rows.append(chosen)
    return rows
