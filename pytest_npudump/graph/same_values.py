"""Edges of a dump that has inputs: an input that holds what one output before it held came from there."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_npudump.dump.records import TensorKey
from pytest_npudump.dump.table import NEEDED
from pytest_npudump.graph.edges import UNKNOWN, Edges, Node, Port

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_npudump.dump.table import StatsTable

TOLD_BY = "equal values of inputs and outputs"


def same_values(table: StatsTable) -> Edges:
    """Return the edges that a table of a run with ``dump_mode="all"`` shows.

    Type, number of elements and all statistics must be equal, and hashes where there are any. It is evidence
    only where one output has these, and the elements are not all alike; any other input is fed by unknown.
    """
    outputs: dict[tuple[object, ...], list[TensorKey]] = defaultdict(list)
    feeds: dict[TensorKey, dict[int, Port]] = defaultdict(dict)
    for row, text in enumerate(table.keys):
        key = TensorKey.parse(text)
        told = _told(table, row)
        told = told and (replace(key, layer="", io="", slot=0, turn=0), *told)
        if key.io == "output" and told:
            outputs[told].append(key)
        elif key.io == "input":
            makers = outputs.get(told, ()) if told else ()
            port = Port(makers[0].layer, makers[0].slot) if len(makers) == 1 else UNKNOWN
            feeds[replace(key, io="", slot=0)][key.slot] = port
    return Edges.of(_nodes(feeds), TOLD_BY)


def _nodes(feeds: Mapping[TensorKey, Mapping[int, Port]]) -> Iterator[Node]:
    for key, ports in feeds.items():
        if set(ports.values()) != {UNKNOWN}:
            yield Node(key.layer, "", tuple(ports.get(slot, UNKNOWN) for slot in range(max(ports) + 1)))


def _told(table: StatsTable, row: int) -> tuple[object, ...]:
    """Return what a table tells of a tensor's values; () where many tensors may have the same."""
    values = table.statistics(row)
    if None in values[:NEEDED] or values[0] == values[1] or any(value != value for value in values):  # noqa: PLR0124 - NaN
        return ()
    digest = table.digests[row] if table.digests else ""
    return (table.dtypes[row], table.counts[row], *values, digest)
