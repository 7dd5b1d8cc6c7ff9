"""The judge: two records under terms make a comparison, for pytest, the command, kept results, the reference.

It alone gives verdicts; explanations measure how far tensors are apart. It pairs eager calls, has tensors
compared where both records have them, computes the statistics that a record of tensors lacks, and decides by
which bounds.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_npudump.compare.stats.alignment import ABSENT, Alignment, align, number_calls
from pytest_npudump.compare.stats.fingerprints import distances
from pytest_npudump.compare.stats.numbers import Pairs
from pytest_npudump.compare.stats.tables import compare_tables
from pytest_npudump.compare.stats.verdict import FAIL, Comparison, type_at
from pytest_npudump.compare.tensors.element_verdict import with_elements
from pytest_npudump.compare.tolerances.presets import AUTO, Numerics, numerics_of
from pytest_npudump.compare.tolerances.tolerance import BOUNDED, DEFAULT, Tolerances
from pytest_npudump.compare.tolerances.upstream import WIDENED, Upstream
from pytest_npudump.dump.columns import TensorTable
from pytest_npudump.dump.dtypes import is_exact
from pytest_npudump.dump.records import TensorKey, TensorRecord, sanitise
from pytest_npudump.dump.selection import by_file_names
from pytest_npudump.dump.table import PROJECTIONS, STATISTICS, StatsTable, layer_of, sanitised_key, shape_of
from pytest_npudump.errors import said
from pytest_npudump.language.text import first_of
from pytest_npudump.record.edges import edges_of_lines
from pytest_npudump.record.model_lines import ALL, WEIGHTS, change_of_models
from pytest_npudump.record.record import (
    EDGES,
    LEFT_OUT,
    MODELS,
    UNWRITTEN,
    Record,
    entries_of,
    left_out_of,
    rows_of,
)
from pytest_npudump.request import KnownNames

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from pytest_npudump.compare.correspondence import Correspondence
    from pytest_npudump.compare.tensors.tensor_pair import Pair, PairElements


GOLDEN, RUN, REFERENCE = "golden", "run", "reference"
"""Kind of the first record: accepted; another run, which may have fewer facts; or a reference's."""
EVERY = ("*",)
BY_DEFAULT = ("l2norm",)
"""Statistics that CANN computes on some chips only, where a test names none."""
AS_GIVEN = ""


@dataclass(frozen=True, slots=True)
class Terms:
    """Terms of a verdict: all that it depends on besides the two records.

    Attributes:
        tolerances: preset and rules for a run of this producer.
        option: which bounds stand for the preset ``default``; with ``auto`` the records' facts say it, and
            with :data:`AS_GIVEN` the tolerances are taken as they are.
        against: what the first record is.
        tensors: names and globs of the layers whose elements are judged where both records have them.
        layout: in which they are compared.
        layers: what the test names, all of which have to be there.
        kept: names and globs of layers whose tensors the golden is to keep.
        fail_on: ``change`` where values within tolerance fail as well.
        unasked: statistics that the test does not ask for by their names, and that CANN prints on some chips:
            they are judged where the golden has any of them.
        why: why this golden counts.
        names: which layers are which, and what ranks hold; None where both sides call all alike.
    """

    tolerances: Tolerances = field(default_factory=Tolerances)
    option: str = AUTO
    against: str = GOLDEN
    tensors: tuple[str, ...] = EVERY
    layout: str = "ND"
    layers: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    fail_on: str = ""
    unasked: tuple[str, ...] = ()
    why: str = ""
    names: Correspondence | None = None

    def numerics(self, golden: Record, run: Record) -> Numerics | None:
        """Decide by the producers of the two; the preset, then the option, may have decided."""
        if self.option == AS_GIVEN:
            return None
        return numerics_of(
            golden.differences(run),
            run.facts,
            option=self.option,
            preset=self.tolerances.preset,
        )


def judge(
    golden: Record,
    run: Record,
    terms: Terms,
    *,
    elements: Mapping[int, PairElements] | None = None,
    compute: Callable[[Sequence[Pair]], Iterable[PairElements]] | None = None,
) -> Comparison:
    """Judge a run: statistics of every tensor, and elements where both records have them.

    Args:
        golden: what counts.
        run: what is judged.
        terms: by what.
        elements: what is known of them already, by row, of a reference whose tensors nobody can keep.
        compute: looks at pairs of tensors, by workers perhaps; None for here and now.

    Raises:
        GoldenError: what the golden says of its noise is not as it is written.
    """
    numerics, tolerances = terms.numerics(golden, run), terms.tolerances
    if numerics is not None:
        tolerances = tolerances.under(numerics.bounds)
    if terms.against == GOLDEN and (golden.extra or golden.table.noise):
        from pytest_npudump.record.noise import calibrated_of  # noqa: PLC0415 - of goldens only

        tolerances = tolerances.with_measured(calibrated_of(golden) or tolerances.measured)
    paired: tuple[str, ...] = ()
    names = terms.names
    keys = golden.table.keys, run.table.keys
    if names is None and keys[0] != keys[1] and any("rank=" in key for key in chain(*keys)):
        from pytest_npudump.compare.correspondence import implied, ranks_of  # noqa: PLC0415 - where ranks hold parts

        names = implied(golden, run)
        if names is None and ranks_of(golden.table) != ranks_of(run.table):
            paired = (said("ranks differ; state how they share tensors in a map, as {text}", text=_LAYOUTS),)
    own_ranks = True
    if names is not None:
        from pytest_npudump.compare.correspondence import ranks_of  # noqa: PLC0415 - where there is a file

        own_ranks = ranks_of(golden.table) == ranks_of(run.table)
        golden, run, paired = names.matched(golden, run)
    # Of ranks that the golden has, too, each is compared with its own.
    if "rank=" not in " ".join(keys[0]) and "rank=" in " ".join(golden.table.keys):
        from pytest_npudump.compare.correspondence import with_own_copies  # noqa: PLC0415 - where ranks have copies

        golden, copies = with_own_copies(golden, run)
        tolerances = replace(tolerances, copies=copies)
    run, left_out = seen_by(golden, run, terms)
    numbered, own_keys, of_calls = number_calls(golden.table, run.table)
    tables = golden.table, numbered
    tensors = golden.tensors, run.tensors
    pairs: dict[int, Pair] = {}
    examined: dict[int, PairElements] = {}
    if elements is None and any(map(_holds_elements, tensors)):
        tolerances = with_upstream(golden, numbered, tolerances, whole=not terms.layers)
        alignment = align(tables[0].keys, tables[1].keys)
        rows = alignment.golden.tolist(), alignment.actual.tolist()
        pairs = dict(_pairs(tensors, tables, rows, terms, tolerances))
        examined = dict(zip(pairs, (compute or _compute_here)([*pairs.values()]), strict=True))
        tables = (
            _with_computed(tables[0], tensors[0], rows[0], {at: one.golden for at, one in examined.items()}),
            _with_computed(tables[1], tensors[1], rows[1], {at: one.actual for at, one in examined.items()}),
        )
        if tolerances.upstream.found:
            apart = {
                rows[0][at]: one.difference.relative_l2 * one.difference.norm
                for at, one in examined.items()
                if one.difference is not None
            }
            tolerances = with_upstream(
                replace(golden, table=tables[0]), tables[1], tolerances, apart, whole=not terms.layers
            )
    compared = {at: one for at, one in examined.items() if pairs[at].golden and pairs[at].actual}
    found = compared if elements is None else dict(elements)
    repeats = tolerances.measured is not None and tolerances.measured.repeats
    own = numerics == Numerics() and repeats
    alone = partial(_changed_alone, golden, run, terms, tables) if own else None
    judged_by = partial(compare_tables, *tables, approved=terms.against != RUN, alone=alone)
    comparison = judged_by(tolerances)
    if comparison.count(FAIL) and not pairs:  # which takes ten times as long as to compare
        tolerances = with_upstream(golden, numbered, tolerances, whole=not terms.layers)
        if tolerances.upstream.found:
            comparison = judged_by(tolerances)
    if comparison.count(FAIL) and (bounded := _of_bounded(comparison)):
        tolerances = replace(tolerances, bounded=bounded)
        comparison = judged_by(tolerances)
    tolerances = replace(tolerances, alone=comparison.tolerances.alone)
    comparison = with_elements(comparison, found, tolerances)
    if comparison.count(FAIL) and _holds_elements(run.tensors):
        from pytest_npudump.compare.tensors.indices import without_ties  # noqa: PLC0415 - as above

        comparison = without_ties(comparison, golden, tensors[1], pairs, tolerances)
    sides = (side for pair in pairs.values() for side in (pair.golden, pair.actual))
    if comparison.failing and any(getattr(side, "parts", None) for side in sides):
        from pytest_npudump.compare.correspondence import notes_on_ranks  # noqa: PLC0415 - where ranks hold parts

        failing = {verdict.key for verdict in comparison.failing}
        joined = ((key, pair) for at, pair in pairs.items() if (key := comparison.key(at)) in failing)
        paired = (*notes_on_ranks(joined), *paired)
    return replace(
        comparison,
        remarks=(*paired, *left_out, *of_calls, *comparison.remarks),
        repeats=comparison.repeats if own_ranks else None,  # ranks add up in another order
        own_keys=own_keys,
        numerics=numerics,
        tolerances=tolerances,
        elements=found,
        alone={at: one for at, one in examined.items() if at not in compared},
        pairs=pairs,
    )


def _of_bounded(comparison: Comparison) -> dict[str, int]:
    """Return the golden's keys of the float32 results of operators that give numbers up to 1."""
    if not any(BOUNDED.fullmatch(verdict.op_type) for verdict in comparison.failing):
        return {}
    one, other, alignment = comparison.golden, comparison.actual, comparison.alignment
    rows = zip(alignment.golden.tolist(), alignment.actual.tolist(), strict=True)
    return {
        one.keys[here]: one.counts[here] or 1
        for here, there in rows
        if ABSENT not in (here, there)
        and one.dtypes[here] == "float32"
        and BOUNDED.fullmatch(type_at(one, other, here, there))
    }


def _changed_alone(
    golden: Record,
    run: Record,
    terms: Terms,
    tables: tuple[StatsTable, StatsTable],
    *,
    alignment: Alignment,
    differing: Collection[int],
    unsteady: Collection[int],
) -> frozenset[str]:
    """Return the golden's keys of tensors that changed while all that they were computed from did not.

    They are of a golden with projections of every tensor, that repeats bit for bit, in its own numerics and
    its own graph: there a difference is one operator's, and not that of many. Where weights are others, only
    operators with such weights count: what others make of them may have changed by less than is told. An om
    with the golden's weights in another file is compiled anew, perhaps into kernels that round otherwise.
    """
    one, other = tables
    own = terms.against == GOLDEN and terms.tolerances.preset == DEFAULT and not terms.layers
    told = one.summed and other.summed and EDGES in golden.blocks
    if not (own and told and differing):
        return frozenset()
    change = change_of_models(golden.blocks.get(MODELS, ""), run.blocks.get(MODELS, ""))
    if change is None or change.attributes or change.types or change.operators or change.graph:
        return frozenset()
    if change.read != ALL and not (change.read == WEIGHTS and change.weights):
        return frozenset()
    projected = one.tells(PROJECTIONS), other.tells(PROJECTIONS)
    as_before, changed, op_types = set[int](), set[int](), dict[int, str]()
    for at, (here, there) in enumerate(
        zip(alignment.golden.tolist(), alignment.actual.tolist(), strict=True)
    ):
        if at in differing:
            changed |= {here} if at not in unsteady else set()
            op_types[here] = type_at(one, other, here, there)
        elif ABSENT not in (here, there) and projected[0][here] and projected[1][there]:
            as_before.add(here)
    fed = fed_as_before(golden, one, as_before, changed, op_types)
    return frozenset(key for key in fed if not change.weights or change.names(TensorKey.parse(key)))


def fed_as_before(
    golden: Record,
    table: StatsTable,
    as_before: Collection[int],
    changed: Iterable[int],
    op_types: Mapping[int, str],
) -> frozenset[str]:
    """Return the keys of tensors that may differ by one operator's rounding, as what it read does not.

    Args:
        golden: with edges.
        table: its statistics.
        as_before: rows of tensors that are the golden's.
        changed: rows of those in question.
        op_types: of operators, as far as they are known.
    """
    edges = edges_of_lines(golden.blocks[EDGES], golden.path.name)
    parents = edges.parents_of([TensorKey.parse(key) for key in table.keys])
    before = frozenset(as_before)
    fed = ((row, *parents[row]) for row in changed)
    return frozenset(
        table.keys[row]
        for row, read, known in fed
        if known
        and read
        and before.issuperset(read)
        and not _may_enlarge(table, read, row, op_types.get(row, ""))
    )


_LAYOUTS = 'layouts: {"*": "t h[tp]"}'
_CURVED = frozenset({"Exp", "Log", "LogSoftmax", "Pow", "Softmax", "SoftmaxV2"})
_ADDING = frozenset({"Add", "Sub", "Sum"})
_SCALING = {"Mul": 0, "Muls": 0, "Div": 1, "RealDiv": 1}
"""Operators whose input from this one on only scales the result where it is a single number."""
_REST = 0.25


def _may_enlarge(table: StatsTable, read: Sequence[int], row: int, op_type: str) -> bool:
    """Return whether an operator may enlarge a difference that rounding hides into a reported one.

    So it is where the greater part of what it read goes away: of values far from 0, or of ones added up.

    Args:
        table: with l2norms, as all with projections in short.
        read: rows of what the operator read.
        row: of what it made of that.
        op_type: of the operator.
    """
    scales = read[_SCALING.get(op_type, len(read)) :]
    factors = {at for at in scales if table.counts[at] == 1}
    rounded = [at for at in read if at not in factors and not is_exact(table.dtypes[at])]
    norms, means = (table.values[rounded, STATISTICS.index(name)] for name in ("l2norm", "avg"))
    counts = np.array([table.counts[at] or 0 for at in rounded], np.float64)
    spread = np.square(norms) - counts * np.square(means)
    far = not (spread >= np.square(_REST * norms)).all()
    gone = not table.values[row, STATISTICS.index("l2norm")] >= _REST * norms.max(initial=0.0)
    return far or (gone and op_type in _ADDING) or op_type in _CURVED


def with_upstream(
    golden: Record,
    run: StatsTable,
    tolerances: Tolerances,
    apart: Mapping[int, float] = MappingProxyType({}),
    *,
    whole: bool = True,
) -> Tolerances:
    """Return tolerances with the golden's edges upstream of each tensor.

    Args:
        golden: whose edges, types and sizes count.
        run: which tells the types of operators, and how far inputs are from the golden's; its table for none.
        tolerances: of a preset for other numerics; any other stays as it is.
        apart: the l2norm of the difference where elements were compared, by the golden's row.
        whole: whether all operators are there: codes may turn in those between.
    """
    if tolerances.preset not in WIDENED or EDGES not in golden.blocks:
        return tolerances
    table = golden.table
    told = dict(zip(map(sanitised_key, run.keys), run.op_types, strict=True))
    own = zip(table.keys, table.op_types, strict=True)
    op_types = [told.get(sanitised_key(key), "") or op_type for key, op_type in own]
    edges = edges_of_lines(golden.blocks[EDGES], golden.path.name)
    strayed = None if run is table or not whole else _strayed(table, run, apart)
    return replace(tolerances, upstream=Upstream.of(table, op_types, edges, tolerances.preset, strayed))


def _strayed(golden: StatsTable, run: StatsTable, apart: Mapping[int, float]) -> NDArray[np.float64]:
    """Return the distance of a run's tensors from a golden's n, and of their means and norms: (n, 3)."""
    pairs = Pairs.of(golden, run, align(golden.keys, run.keys))
    found = np.full((len(golden), 3), np.nan)
    found[pairs.here, 0] = distances(pairs)
    found[[*apart], 0] = [*apart.values()]
    columns = [STATISTICS.index(name) for name in ("avg", "l2norm")]
    here, there = (side[:, columns] for side in (golden.values[pairs.here], run.values[pairs.there]))
    found[pairs.here, 1:] = np.abs(there - here)
    return found


def seen_by(golden: Record, run: Record, terms: Terms) -> tuple[Record, tuple[str, ...]]:
    """Return a run as its golden sees it, and notes on tensors that are left out.

    A layer of which the run knows only the name of its files has the golden's raw name. A statistic that CANN
    printed unasked, and the golden has of no tensor, is left out: a golden that was recorded without l2norm
    is compared without it. So is a tensor that nothing wrote when the golden was recorded, unless the golden
    has it all the same.

    Args:
        golden: what counts.
        run: all that it left.
        terms: by what it is judged.
    """
    named = _under_names_of(golden.table, run.table, guessed=run.file_names)
    if named is not run.table:
        run = replace(run, table=named)
    columns = [STATISTICS.index(name) for name in terms.unasked]
    left_out = [at for at in columns if not golden.table.known[:, at].any() and run.table.known[:, at].any()]
    printed = np.flatnonzero(run.table.digits)
    if left_out and len(printed):
        known, values = run.table.known.copy(), run.table.values.copy()
        cells = np.ix_(printed, np.array(left_out))
        known[cells], values[cells] = False, np.nan
        run = replace(run, table=replace(run.table, known=known, values=values))
    if terms.against != GOLDEN or UNWRITTEN not in golden.extra:
        return run, ()
    entries = left_out_of(golden, run.facts)
    if not entries and LEFT_OUT in entries_of(golden).values():
        note = said(
            "{path}: {unwritten!r} applies only to the MindSpore version on a CPU that recorded "
            "it; all tensors of this run are compared",
            path=golden.path.name,
            unwritten=UNWRITTEN,
        )
        return run, (note,)
    keys = [sanitised_key(key) for key in run.table.keys]
    missing = {*map(sanitised_key, entries)}.intersection(keys)
    missing.difference_update(map(sanitised_key, golden.table.keys))
    if not missing:
        return run, ()
    rows = [row for row, key in enumerate(keys) if key not in missing]
    table = (
        rows_of((run.table, run.table), [(0, row) for row in rows]) if rows else StatsTable.from_records(())
    )
    tensors = [run.tensors[row] for row in rows] if run.tensors else ()
    names = first_of(key for key in entries if sanitised_key(key) in missing)
    why = said("as nothing wrote them when the golden was recorded")
    note = said("tensors not compared, {why}: {names}", why=why, names=names)
    return replace(run, table=table, tensors=tensors), (note,)


def _under_names_of(golden: StatsTable, run: StatsTable, *, guessed: bool) -> StatsTable:
    """Return a run's table under the raw names that a golden has for names of files.

    A name of files that several layers share, of the golden or of the run, is nobody's.

    Args:
        golden: whose names they are.
        run: what is named.
        guessed: whether raw names of the run are only what something had for names of its files.
    """
    known = set(golden.keys)
    if golden.keys == run.keys or known.issuperset(run.keys):
        return run
    theirs, ours = (by_file_names(map(layer_of, side.keys)) for side in (golden, run))
    names: dict[str, str] = {}
    for plain, layers in ours.items():
        found = theirs.get(plain, ())
        if len(found) == len(layers) == 1 and layers != found and (guessed or layers[0] == plain):
            names[layers[0]] = found[0]
    return run.under_names(names) if names else run


def judge_tables(
    golden: StatsTable, run: StatsTable, tolerances: Tolerances, against: str = GOLDEN
) -> Comparison:
    """Judge statistics of which nothing else is known, by tolerances as they are."""
    return judge(Record.of(golden), Record.of(run), Terms(tolerances, option=AS_GIVEN, against=against))


def _compute_here(pairs: Sequence[Pair]) -> Iterable[PairElements]:
    from pytest_npudump.compare.tensors.tensor_pair import compare_pair  # noqa: PLC0415 - only where elements are

    return map(compare_pair, pairs)


def _holds_elements(tensors: Sequence[Any]) -> bool:
    if isinstance(tensors, TensorTable):
        return any(payload is not None for payload, *_ in tensors.columns.places.values())
    return any(map(_has_elements, tensors))


def _has_elements(tensor: Any) -> bool:
    return tensor.payload is not None if isinstance(tensor, TensorRecord) else tensor is not None


def _pairs(
    tensors: tuple[Sequence[Any], Sequence[Any]],
    tables: tuple[StatsTable, StatsTable],
    rows: tuple[list[int], list[int]],
    terms: Terms,
    tolerances: Tolerances,
) -> Iterator[tuple[int, Pair]]:
    """Yield pairs to read, by position in the alignment: two tensors, or one without statistics."""
    from pytest_npudump.compare.tensors.tensor_pair import Pair  # noqa: PLC0415 - as above

    golden, actual = tables
    projections = golden.projections is not None
    every = terms.tensors == EVERY
    wanted = set[str]() if every else KnownNames(map(layer_of, golden.keys), sanitise).meant(terms.tensors)
    tolerances = tolerances.for_layers_of(golden.keys, actual.keys)
    for position, (here, there) in enumerate(zip(*rows, strict=True)):
        one: Any = tensors[0][here] if here != ABSENT and tensors[0] else None
        other: Any = tensors[1][there] if there != ABSENT and tensors[1] else None
        if _has_elements(one) and _has_elements(other):
            layer = layer_of(golden.keys[here])
            needed = _needs_statistics(one) or _needs_statistics(other)
            if not (every or needed or layer in wanted):
                continue
            if sanitise(layer) == layer:  # the dump may know the raw name
                layer = layer_of(actual.keys[there])
            dtype = (one if isinstance(one, TensorRecord) else other).dtype
            op_type = actual.op_types[there] or golden.op_types[here]
            bounds = tolerances.elements(layer, dtype, golden.keys[here], op_type)
            yield position, Pair(one, other, terms.layout, *bounds, projections=projections)
        elif _needs_statistics(one):
            shape = None if there == ABSENT else shape_of(actual.shapes[there])
            yield position, Pair(one, None, terms.layout, shape=shape)
        elif _needs_statistics(other, projections=projections):
            shape = None if here == ABSENT else shape_of(golden.shapes[here])
            yield position, Pair(None, other, terms.layout, shape=shape, projections=projections)


def _needs_statistics(tensor: Any, *, projections: bool = False) -> bool:
    if not isinstance(tensor, TensorRecord) or tensor.payload is None or tensor.shape is None:
        return False
    return tensor.stats is None or (projections and tensor.stats.projections is None)


def _with_computed(
    table: StatsTable, tensors: Sequence[Any], rows: Sequence[int], records: Mapping[int, TensorRecord | None]
) -> StatsTable:
    """Return a table with the statistics that came with the elements, in the layout these were compared in.

    Args:
        table: of one side.
        tensors: of that side, row by row.
        rows: of that side, by position in the alignment.
        records: as they came, by position.
    """
    new = {rows[at]: one for at, one in records.items() if one is not None and one is not tensors[rows[at]]}
    if not new:
        return table
    computed = replace(StatsTable.from_records(new.values()), keys=tuple([table.keys[row] for row in new]))
    if len(new) == len(table):
        places = {row: at for at, row in enumerate(new)}
        return rows_of((computed, computed), [(0, places[row]) for row in range(len(table))])
    at = {row: number for number, row in enumerate(new)}
    return rows_of((table, computed), [(1, at[row]) if row in at else (0, row) for row in range(len(table))])
