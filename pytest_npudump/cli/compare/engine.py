"""Two sides to one comparison: statistics and elements are computed by the workers, then judged here."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pytest_npudump.cli.common.executors import run_together
from pytest_npudump.cli.common.progress import progress
from pytest_npudump.compare.stats.eager_calls import number_calls, under_golden_keys
from pytest_npudump.compare.stats.order import ABSENT, align
from pytest_npudump.compare.stats.tables import compare_tables
from pytest_npudump.compare.stats.verdict import aligned_keys
from pytest_npudump.compare.tensors.element_verdict import with_elements
from pytest_npudump.dump.arrays.host import has_axes
from pytest_npudump.dump.columns import ColumnRecords
from pytest_npudump.dump.records import TensorRecord, sanitise
from pytest_npudump.dump.table import shape_of
from pytest_npudump.dump.unguarded import replace as changed
from pytest_npudump.errors import DumpError
from pytest_npudump.language.translation import gettext as _
from pytest_npudump.language.translation import said

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pytest_npudump.cli.common.executors import Workers
    from pytest_npudump.cli.compare.sides import Side
    from pytest_npudump.compare.patterns.pattern_search import Pattern
    from pytest_npudump.compare.stats.verdict import Comparison
    from pytest_npudump.compare.tensors.picture import Picture
    from pytest_npudump.compare.tensors.tensor_pair import Elements, Pair
    from pytest_npudump.compare.tolerances.tolerance import Tolerances
    from pytest_npudump.errors import FormatError
    from pytest_npudump.golden.tensors import GoldenTensor

    _Tensors = Sequence[TensorRecord | GoldenTensor | None]
    _Changed = list[TensorRecord | GoldenTensor | None]


@dataclass(frozen=True, slots=True, eq=False)
class Result:
    """What ``npudump compare`` found.

    Attributes:
        comparison: the verdicts, elements included.
        elements: what was compared element by element, by position in the comparison's alignment.
        problems: what could not be read, of either side.
        notes: what the reader decided.
        patterns: where inside of them the first tensors that fail differ, by position.
        pictures: what can be drawn of the first tensors that fail, by position; none unless asked for.
    """

    comparison: Comparison
    elements: Mapping[int, Elements]
    problems: tuple[FormatError, ...]
    notes: tuple[str, ...]
    patterns: Mapping[int, Pattern] = field(default_factory=dict)
    pictures: Mapping[int, Picture] = field(default_factory=dict)


def compare_sides(
    golden: Side, actual: Side, tolerances: Tolerances, workers: Workers, *, layout: str, drawn: int = 0
) -> Result:
    """Compare two sides: statistics of every tensor, and elements where both hold them.

    Args:
        golden: what counts.
        actual: what is judged.
        tolerances: what may differ.
        workers: what computes.
        layout: in which elements are compared.
        drawn: failing tensors to draw, at most.

    Raises:
        DumpError: a side has no tensor that could be read.
    """
    tolerances = tolerances.with_measured(golden.measured)
    tolerances = tolerances.for_layers_of(golden.keys, actual.keys)
    problems = [*golden.problems, *actual.problems]
    for side in (golden, actual):
        if not side.tensors:
            raise DumpError(
                "\n".join(_("unreadable: {problem}").format(problem=problem) for problem in side.problems)
            )
    actual = _numbered(golden, actual)
    ours, theirs = golden.tensors, actual.tensors
    elements: dict[int, Elements] = {}
    pairs: dict[int, Pair] = {}
    if golden.has_elements or actual.has_elements:
        ours, theirs = list(ours), list(theirs)
        alignment = align(golden.keys, actual.keys)
        rows = alignment.golden.tolist(), alignment.actual.tolist()
        found = _pairs(golden, actual, rows, layout)
        pairs = {at: _with_tolerance(pair, tolerances) for at, pair in found}
        problems += _examine(pairs, rows, workers, into=(ours, theirs, elements))
    with progress(_("comparing statistics")):
        tables = golden.statistics(ours), actual.statistics(theirs)
        comparison = compare_tables(*tables, tolerances, approved=golden.table is not None)
        judged = with_elements(comparison, elements, tolerances)
    notes = (*golden.notes, *actual.notes, *_other_layouts(judged, ours, theirs, elements))
    patterns = _patterns(judged, elements, pairs)
    return Result(
        judged, elements, tuple(problems), notes, patterns, _pictures(judged, elements, pairs, drawn)
    )


def _pictures(
    comparison: Comparison, elements: Mapping[int, Elements], pairs: Mapping[int, Pair], most: int
) -> Mapping[int, Picture]:
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
        if key in failing and at in elements and (picture := draw_pair(pairs[at])) is not None:
            drawn[at] = picture
    return drawn


def _patterns(
    comparison: Comparison, elements: Mapping[int, Elements], pairs: Mapping[int, Pair]
) -> Mapping[int, Pattern]:
    """Look for patterns in tensors that fail and whose elements were compared."""
    if not elements or not comparison.failing:
        return {}
    from pytest_npudump.compare.patterns.pattern_search import find_patterns  # noqa: PLC0415 - only where elements fail

    failing = {verdict.key for verdict in comparison.failing}
    rows = enumerate(aligned_keys(comparison.golden, comparison.actual, comparison.alignment))
    return find_patterns(
        (at, pairs[at], elements[at]) for at, (key, _other) in rows if at in elements and key in failing
    )


def _other_layouts(
    comparison: Comparison, ours: _Tensors, theirs: _Tensors, elements: Mapping[int, Elements]
) -> Iterator[str]:
    """Say of which tensors only statistics were compared although the names of their axes differ."""
    found = []
    formats = _formats(ours), _formats(theirs)
    rows = zip(comparison.alignment.golden.tolist(), comparison.alignment.actual.tolist(), strict=True)
    for position, (here, there) in enumerate(rows):
        if ABSENT in {here, there} or position in elements or formats[0][here] == formats[1][there]:
            continue
        one, other = ours[here], theirs[there]
        if not (isinstance(one, TensorRecord) and isinstance(other, TensorRecord)):
            continue
        if has_axes(one) and has_axes(other):
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


def _formats(tensors: _Tensors) -> list[str | None]:
    """The layout of each tensor of a dump; None for one that is kept beside a golden file."""
    if isinstance(tensors, ColumnRecords):
        return tensors.column("format")
    return [tensor.format if isinstance(tensor, TensorRecord) else None for tensor in tensors]


def _numbered(golden: Side, actual: Side) -> Side:
    """Return ``actual`` with its eager calls numbered as those of ``golden``.

    The values of tensor files are not read yet, so of calls alike in name, dtype and shape the last is extra.
    """
    if not (golden.may_hold_calls and actual.may_hold_calls):
        return actual
    found = number_calls(golden.statistics(golden.tensors), actual.statistics(actual.tensors))
    notes = (*actual.notes, *found.notes)
    if actual.table is not None:
        return replace(actual, table=found.table, notes=notes)
    records = [tensor for tensor in actual.tensors if isinstance(tensor, TensorRecord)]
    return replace(actual, tensors=under_golden_keys(records, found.own), notes=notes)


def _examine(
    pairs: Mapping[int, Pair],
    rows: tuple[list[int], list[int]],
    workers: Workers,
    *,
    into: tuple[_Changed, _Changed, dict[int, Elements]],
) -> list[FormatError]:
    """Have tensors compared and statistics computed; put records and findings ``into`` place."""
    from pytest_npudump.compare.tensors.tensor_pair import compare_pairs  # noqa: PLC0415 - only where elements are

    ours, theirs, elements = into
    here, there = rows
    problems: list[FormatError] = []
    with progress(_("comparing tensors")) as report:
        work = run_together(
            compare_pairs, list(pairs.values()), workers, weight=lambda pair: pair.nbytes, progress=report
        )
        for at, found in zip(pairs, work, strict=True):
            problems += found.problems
            if found.golden is not None:
                ours[here[at]] = found.golden
            if found.actual is not None:
                theirs[there[at]] = found.actual
            if pairs[at].golden is not None and pairs[at].actual is not None:
                elements[at] = found
    return problems


def _pairs(
    golden: Side, actual: Side, rows: tuple[list[int], list[int]], layout: str
) -> Iterator[tuple[int, Pair]]:
    """Yield what workers have to look at, by position in the alignment."""
    from pytest_npudump.compare.tensors.tensor_pair import Pair  # noqa: PLC0415 - as above

    projections = golden.table is not None and golden.table.projections is not None
    for position, (ours, theirs) in enumerate(zip(*rows, strict=True)):
        one = None if ours == ABSENT else golden.tensors[ours]
        other = None if theirs == ABSENT else actual.tensors[theirs]
        found = other if isinstance(other, TensorRecord) else None
        if _has_bytes(one) and _has_bytes(found):
            yield position, Pair(one, found, layout, projections=projections)
        elif isinstance(one, TensorRecord) and _needs_statistics(one):
            yield position, Pair(one, None, layout, shape=_shape(actual, theirs))
        elif found is not None and _needs_statistics(found, projections=projections):
            shape = _shape(golden, ours)
            yield position, Pair(None, found, layout, shape=shape, projections=projections)


def _has_bytes(tensor: TensorRecord | GoldenTensor | None) -> bool:
    return tensor.payload is not None if isinstance(tensor, TensorRecord) else tensor is not None


def _needs_statistics(record: TensorRecord, *, projections: bool = False) -> bool:
    untold = record.stats is None or (projections and record.stats.projections is None)
    return untold and record.payload is not None and record.shape is not None


def _shape(side: Side, row: int) -> tuple[int, ...] | None:
    """The shape that a side tells of the tensor in a row; None where it has no such row, or no shape."""
    if row == ABSENT:
        return None
    tensor = side.tensors[row]
    if isinstance(tensor, TensorRecord):
        return tensor.shape
    return shape_of(side.table.shapes[row]) if side.table is not None else None


def _with_tolerance(pair: Pair, tolerances: Tolerances) -> Pair:
    """Return ``pair`` with the tolerance of its layer, under the raw name where one is known."""
    if pair.golden is None or pair.actual is None:
        return pair
    layer, dtype, op_type = pair.actual.key.layer, pair.actual.dtype, pair.actual.op_type
    if isinstance(pair.golden, TensorRecord):
        dtype, op_type = pair.golden.dtype, op_type or pair.golden.op_type
        if sanitise(pair.golden.key.layer) != pair.golden.key.layer:
            layer = pair.golden.key.layer
    rtol, atol = tolerances.elements(layer, dtype, op_type=op_type)
    return changed(pair, rtol=rtol, atol=atol)
