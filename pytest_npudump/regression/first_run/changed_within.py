"""What has changed within tolerance, where a test is to fail for any change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_npudump.compare.judge import judge_tables
from pytest_npudump.compare.tolerances.tolerance import Tolerances
from pytest_npudump.dump.records import sanitise
from pytest_npudump.graph.edges import edges_of_lines
from pytest_npudump.record.record import EDGES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_npudump.compare.stats.verdict import Comparison, Verdict
    from pytest_npudump.golden.content.text import Golden

_EXACT = "exact"


@dataclass(frozen=True, slots=True)
class Changes:
    """Tensors that pass and are not the golden's digit for digit.

    Attributes:
        found: what differs of them, in the order of execution.
        following: how many others follow from tensors that do not repeat, which says nothing of them.
    """

    found: tuple[Verdict, ...] = ()
    following: int = 0


def changes_of(comparison: Comparison, golden: Golden) -> Changes:
    """Return what has changed within tolerance, judged once more by no tolerance at all.

    Args:
        comparison: by the tolerances of the test.
        golden: whose edges tell what follows from what does not repeat.
    """
    if not comparison.changed:
        return Changes()
    judged = judge_tables(comparison.golden, comparison.actual, Tolerances(_EXACT))
    passing = {verdict.key for verdict in comparison.verdicts() if verdict.changed}
    changed = tuple(verdict for verdict in judged.failing if verdict.key in passing)
    wavering = _layers(comparison, comparison.within_noise | comparison.unsteady & comparison.differing)
    following = _following(golden, wavering)
    found = tuple(verdict for verdict in changed if sanitise(verdict.key.layer) not in following)
    return Changes(found, len(changed) - len(found))


def _layers(comparison: Comparison, positions: Iterable[int]) -> set[str]:
    wanted = frozenset(positions)
    every = enumerate(comparison.verdicts())
    return {sanitise(verdict.key.layer) for at, verdict in every if at in wanted}


def _following(golden: Golden, layers: set[str]) -> set[str]:
    """Return the layers that some read, or read what these give, and so on."""
    if not layers or not (block := golden.blocks.get(EDGES)):
        return set()
    readers: dict[str, set[str]] = {}
    for layer, ports in edges_of_lines(block, golden.path.name).feeds.items():
        for port in ports:
            if port is not None and port.layer:
                readers.setdefault(sanitise(port.layer), set()).add(layer)
    found: set[str] = set()
    waiting = [*layers]
    while waiting:
        new = readers.get(waiting.pop(), set()) - found
        found |= new
        waiting += new
    return found
