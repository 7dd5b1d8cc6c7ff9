"""Which tensor feeds which in a test: written into its golden, and asked where it fails."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_npudump.compare.stats.verdict import FAIL
from pytest_npudump.compare.tolerances.numerics import SAME
from pytest_npudump.dump.records import sanitise
from pytest_npudump.dump.table import layer_of
from pytest_npudump.graph.edges import Edges, edges_of_lines, lines_of
from pytest_npudump.graph.model_files import edges_at_hand
from pytest_npudump.graph.sources import find_sources
from pytest_npudump.record.record import EDGES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from pytest_npudump.compare.stats.verdict import Comparison
    from pytest_npudump.dump.records import Dump
    from pytest_npudump.dump.table import StatsTable
    from pytest_npudump.graph.sources import Sources
    from pytest_npudump.record.record import Record
    from pytest_npudump.regression.case import Case


def edges_of_models(case: Case, root: Path, table: StatsTable) -> tuple[Edges, tuple[str, ...]]:
    """Return what is known of which tensor of a run feeds which, and why of some it is not.

    Files of models count that are what they were when they were loaded.

    Args:
        case: the test.
        root: the dump path.
        table: the run's tensors.
    """
    activity = case.runtime.activity
    models = [path for path in activity.models if activity.evidence.files.keeps_graph(path)]
    edges, notes = edges_at_hand(models, root, table, case.graph)
    again = (
        f"which tensor feeds which is not known from {path.name}, which was written again after it was "
        f"loaded; graph= in the marker can tell"
        for path in dict.fromkeys(activity.models)
        if path not in models
    )
    return edges, (*notes, *again)


def edges_to_keep(
    case: Case, previous: Record | None, dump: Dump, table: StatsTable
) -> tuple[Mapping[str, str], tuple[str, ...]]:
    """Return the block of a golden that is recorded, none where nothing is known, and notes.

    Args:
        case: the test.
        previous: the golden that is replaced; what only that knows stays, if it has the same layers.
        dump: of the run.
        table: what is recorded of it.
    """
    edges, notes = edges_of_models(case, dump.root, table)
    if previous is not None and same_layers(previous.table, table):
        edges = edges.completed(_told(previous))
    text = lines_of(edges, dict.fromkeys(map(layer_of, table.keys)))
    return ({EDGES: text} if text else {}), notes


def sources_of(
    golden: Record,
    comparison: Comparison,
    at_hand: Callable[[StatsTable], tuple[Edges, tuple[str, ...]]] | None = None,
) -> tuple[Sources | None, tuple[str, ...]]:
    """Return the sources of a failure, and notes.

    Edges are the golden's. Those at hand count where it has none, or is of another graph: where the run has
    other layers, some may be fed by others than they were. Other numerics differ anywhere, and no change
    tells anything.

    Args:
        golden: what the run was compared with.
        comparison: of both.
        at_hand: returns the edges of the run and notes; None where nothing does.
    """
    if not comparison.count(FAIL):
        return None, ()
    edges, notes = _told(golden), tuple[str, ...]()
    if at_hand is not None and (not edges.feeds or not same_layers(golden.table, comparison.actual)):
        found, notes = at_hand(comparison.actual)
        edges = found if found.feeds else edges
    same = comparison.numerics is not None and comparison.numerics.bounds == SAME
    repeats = same and bool(comparison.repeats)
    return find_sources(comparison, edges, comparison.tolerances, repeats=repeats), notes


def at_hand_of(case: Case, dump: Dump) -> Callable[[StatsTable], tuple[Edges, tuple[str, ...]]]:
    """Return what tells which tensor feeds which in a run."""
    return lambda table: edges_of_models(case, dump.root, table)


def edges_kept(golden: Record | None, table: StatsTable) -> Edges:
    """Return the edges that a golden keeps, if they are those of a run: none where that has other layers."""
    return _told(golden) if golden is not None and same_layers(golden.table, table) else Edges()


def _told(golden: Record | None) -> Edges:
    text = golden.blocks.get(EDGES, "") if golden is not None else ""
    return edges_of_lines(text, golden.path.name) if golden is not None and text else Edges()


def same_layers(one: StatsTable, other: StatsTable) -> bool:
    """Whether two tables have the same layers, as file names spell them."""
    if one.keys == other.keys:
        return True
    here, there = ({sanitise(layer_of(key)) for key in table.keys} for table in (one, other))
    return here == there
