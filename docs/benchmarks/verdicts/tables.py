"""Results as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verdicts.experiment import HOPS, WALKS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from verdicts.experiment import Results, Tally

_COLUMNS = ("0.01", "0.001", "0.0001", "1e-05", "structure", "one element", "permutation")


def tables(results: Results) -> Iterator[str]:
    """Lines of Markdown."""
    for dtype, kinds in results.deviations.items():
        yield from _noise(dtype, kinds)
    for dtype, tallies in results.tallies.items():
        yield from _faults(dtype, tallies)
        yield from _first(dtype, tallies)
        yield from _alarms(dtype, tallies)
        yield from _isolated(dtype, results.isolated[dtype])


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _head(*cells: str) -> Iterator[str]:
    yield _row(*cells)
    yield f"|{'---|' * len(cells)}"


def _noise(dtype: str, kinds: dict[str, object]) -> Iterator[str]:
    yield f"\n{dtype}: the largest deviations of other numerics\n"
    yield from _head("numerics", "max, min / M", "avg / rms", "l2norm / l2norm", "projections / l2norm")
    for kind, largest in kinds.items():
        yield _row(kind, *(f"{value:.1e}" for value in largest))  # type: ignore[attr-defined]


def _faults(dtype: str, tallies: dict[str, Tally]) -> Iterator[str]:
    counts = next(iter(tallies.values())).faults
    yield f"\n{dtype}: {sum(counts.values())} faults; found, and of those found named right, in per cent\n"
    titles = [f"{column} ({counts[column]})" for column in _COLUMNS]
    hops = [f"within {hops}" for hops in HOPS[1:]]
    yield from _head("rule", *titles, "all", "right first", *hops, *WALKS, "one independent source")
    for name, tally in tallies.items():
        shares = [tally.detected(column) for column in _COLUMNS] + [tally.detected()]
        shares += [tally.right(away) for away in HOPS]
        found = max(sum(tally.found.values()), 1)
        shares += [tally.walked[way] / found for way in WALKS]
        shares.append(tally.sourced["one"] / found)
        told = len(shares) if tally.sourced["all"] else len(shares) - len(WALKS) - 1
        projections = len(shares) - 2
        cells = [f"{100 * share:.1f}" for share in shares]
        yield _row(name, *(c if at < told or at == projections else "-" for at, c in enumerate(cells)))


def _first(dtype: str, tallies: dict[str, Tally]) -> Iterator[str]:
    yield f"\n{dtype}: of the faults found, those whose operator fails first, in per cent\n"
    yield from _head("rule", *_COLUMNS, "all but permutation")
    others = _COLUMNS[:-1]
    for name, tally in tallies.items():
        shares = [*(tally.right(0, column) for column in _COLUMNS), tally.right(0, *others)]
        yield _row(name, *(f"{100 * share:.1f}" for share in shares))


def _isolated(dtype: str, found: list[tuple[float, float]]) -> Iterator[str]:
    noise = max(healthy for _, healthy in found)
    convicted = sum(difference > noise for difference, _ in found) / len(found)
    yield f"\n{dtype}: alone on its inputs, a healthy operator that adds up in another order differs by at"
    yield f"most {noise:.1e} of the l2norm; {100 * convicted:.1f} % of the faulted ones differ by more.\n"


def _alarms(dtype: str, tallies: dict[str, Tally]) -> Iterator[str]:
    runs = next(iter(tallies.values())).runs
    yield f"\n{dtype}: runs that fail though nothing is wrong (in brackets per cent of tensors)\n"
    yield from _head("rule", *(f"{kind} ({count})" for kind, count in runs.items()))
    for name, tally in tallies.items():
        yield _row(
            name,
            *(
                f"{tally.alarms[kind]} ({100 * tally.failing[kind] / tally.tensors[kind]:.1f})"
                for kind in runs
            ),
        )
