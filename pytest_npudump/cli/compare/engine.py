"""Two sides to one comparison: statistics and elements are computed by the workers, then judged here."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

from pytest_npudump.cli.common.executors import run_together
from pytest_npudump.cli.common.progress import progress
from pytest_npudump.compare.judge import AS_GIVEN, GOLDEN, RUN, Terms, judge
from pytest_npudump.compare.stats.order import ABSENT
from pytest_npudump.compare.stats.verdict import aligned_keys
from pytest_npudump.dump.arrays.layouts import has_axes
from pytest_npudump.dump.columns import ColumnRecords
from pytest_npudump.dump.records import TensorRecord
from pytest_npudump.errors import said
from pytest_npudump.language.translation import gettext as _

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pytest_npudump.cli.common.executors import Workers
    from pytest_npudump.compare.patterns.pattern_search import Pattern
    from pytest_npudump.compare.stats.verdict import Comparison
    from pytest_npudump.compare.tensors.picture import Picture
    from pytest_npudump.compare.tensors.tensor_pair import Elements, Pair
    from pytest_npudump.compare.tolerances.tolerance import Tolerances
    from pytest_npudump.errors import FormatError
    from pytest_npudump.record.record import Record


@dataclass(frozen=True, slots=True, eq=False)
class SidesComparison:
    """What ``npudump compare`` found.

    Attributes:
        comparison: the verdicts, elements included.
        problems: what could not be read, of either side.
        notes: what the reader decided.
        patterns: where inside of them the first tensors that fail differ, by position.
        pictures: what can be drawn of the first tensors that fail, by position; none unless asked for.
    """

    comparison: Comparison
    problems: tuple[FormatError, ...]
    notes: tuple[str, ...]
    patterns: Mapping[int, Pattern] = field(default_factory=dict)
    pictures: Mapping[int, Picture] = field(default_factory=dict)


def compare_sides(
    golden: Record, actual: Record, terms: Terms, workers: Workers, *, drawn: int = 0
) -> SidesComparison:
    """Compare two sides: statistics of every tensor, and elements where both hold them.

    Args:
        golden: what counts.
        actual: what is judged.
        terms: by what.
        workers: what computes.
        drawn: failing tensors to draw, at most.
    """
    with progress(_("comparing statistics")):
        comparison = judge(golden, actual, terms, compute=partial(_compute, workers))
    layouts = _other_layouts(comparison, golden.tensors, actual.tensors)
    unreadable = chain(*comparison.unreadable.values())
    return SidesComparison(
        comparison,
        (*golden.problems, *actual.problems, *unreadable),
        (*golden.notes, *actual.notes, *layouts),
        _patterns(comparison),
        _pictures(comparison, drawn),
    )


def terms_of(golden: Record, tolerances: Tolerances, layout: str) -> Terms:
    """Return the terms that the command's options make: bounds are fixed, and a dump is no approval."""
    return Terms(tolerances, option=AS_GIVEN, against=GOLDEN if golden.digest else RUN, layout=layout)


def _compute(workers: Workers, pairs: Sequence[Pair]) -> list[Elements]:
    from pytest_npudump.compare.tensors.tensor_pair import compare_pairs  # noqa: PLC0415 - only where elements are

    with progress(_("comparing tensors")) as report:
        work = run_together(compare_pairs, pairs, workers, weight=lambda pair: pair.nbytes, progress=report)
        return [*work]


def _pictures(comparison: Comparison, most: int) -> Mapping[int, Picture]:
    """Draw the first failing tensors whose elements differ."""
    if not most or not comparison.failing:
        return {}
    from pytest_npudump.compare.tensors.picture import draw_pair  # noqa: PLC0415 - only where asked for

    failing = {verdict.key for verdict in comparison.failing}
    rows = enumerate(aligned_keys(comparison.golden, comparison.actual, comparison.alignment))
    drawn: dict[int, Picture] = {}
    for at, (key, _other) in rows:
        if len(drawn) == most:
            break
        if key not in failing or at not in comparison.elements:
            continue
        if (picture := draw_pair(comparison.pairs[at])) is not None:
            drawn[at] = picture
    return drawn


def _patterns(comparison: Comparison) -> Mapping[int, Pattern]:
    """Look for patterns in tensors that fail and whose elements were compared."""
    elements, pairs = comparison.elements, comparison.pairs
    if not elements or not comparison.failing:
        return {}
    from pytest_npudump.compare.patterns.pattern_search import find_patterns  # noqa: PLC0415 - only where elements fail

    failing = {verdict.key for verdict in comparison.failing}
    rows = enumerate(aligned_keys(comparison.golden, comparison.actual, comparison.alignment))
    return find_patterns(
        (at, pairs[at], elements[at]) for at, (key, _other) in rows if at in elements and key in failing
    )


def _other_layouts(comparison: Comparison, ours: Sequence[Any], theirs: Sequence[Any]) -> Iterator[str]:
    """Say of which tensors only statistics were compared although the names of their axes differ."""
    found = []
    formats = _formats(ours), _formats(theirs)
    rows = zip(comparison.alignment.golden.tolist(), comparison.alignment.actual.tolist(), strict=True)
    for position, (here, there) in enumerate(rows):
        if (
            ABSENT in {here, there}
            or position in comparison.elements
            or formats[0][here] == formats[1][there]
        ):
            continue
        computed = comparison.alone.get(position)
        one, other = (
            (computed and computed.golden) or ours[here],
            (computed and computed.actual) or theirs[there],
        )
        if not (isinstance(one, TensorRecord) and isinstance(other, TensorRecord)):
            continue
        if one.format != other.format and has_axes(one) and has_axes(other):
            found.append((one, other))
    if found:
        one, other = found[0]
        yield said(
            "the golden's layout is {golden}, the dump's {dump}, and statistics do not show "
            "the order of axes: {count} tensors (first: {first})",
            golden=one.format,
            dump=other.format,
            count=len(found),
            first=one.key,
        )


def _formats(tensors: Sequence[Any]) -> list[str | None]:
    """The layout of each tensor of a dump; None for one that is kept beside a golden file."""
    if isinstance(tensors, ColumnRecords):
        return tensors.column("format")
    return [tensor.format if isinstance(tensor, TensorRecord) else None for tensor in tensors]
