"""A run against its golden and its reference: the judgement that the plugin makes, and that is repeatable."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_npudump.compare.judge import Terms, judge, judge_tables
from pytest_npudump.compare.stats.allowances import bounds_by_measurement, told_by_both
from pytest_npudump.compare.stats.tables import describe_not_finite
from pytest_npudump.compare.stats.verdict import EXTRA, FAIL, MISSING, Comparison, Verdict
from pytest_npudump.compare.tolerances.rules import MARKER_RULES
from pytest_npudump.compare.tolerances.tolerance import GOLDEN as AGAINST_GOLDEN, Tolerances
from pytest_npudump.compare.tolerances.upstream import CHOOSING
from pytest_npudump.dump.records import Dump, TensorKey, sanitise
from pytest_npudump.dump.table import StatsTable, layer_of, sanitised_key
from pytest_npudump.errors import GoldenError, GoldenMissingError, said
from pytest_npudump.golden.store import left_out
from pytest_npudump.golden.stored_tensors import (
    GoldenTensor,
    TensorStore,
    fetch_tensors,
    missing_tensors,
    stored_tensors,
)
from pytest_npudump.golden.variants import foreign, unsaid
from pytest_npudump.language.text import first_of
from pytest_npudump.record.edges import SEVERAL, UNKNOWN, Edges, layer_at
from pytest_npudump.record.model_lines import FILE, NOTHING, ModelChange, change_of_models, types_between
from pytest_npudump.record.record import EMPTY, MODELS, OUTPUTS, Record, left_out_of, shards_of
from pytest_npudump.record.rows import parse_outputs
from pytest_npudump.regression import result as status
from pytest_npudump.regression.case import Case, known_edges
from pytest_npudump.regression.dataflow import edges_kept, edges_of, sources_of
from pytest_npudump.regression.result import Result
from pytest_npudump.regression.run_record import changed, notes_on, problems_of, with_listed
from pytest_npudump.request import AUTO_LAYERS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pytest_npudump.explain.reference import ReferenceResult


CHANGE = "change"
"""The value of ``npudump_fail_on`` with which a value that is not the golden's fails its test."""


def without_golden(run: Record, *problems: str) -> Result:
    """Return the outcome of a test that has no golden to be compared with, and why it cannot be one."""
    here = Path.cwd()
    path = run.path.relative_to(here) if run.path.is_relative_to(here) else run.path
    problems = (str(GoldenMissingError(said("no golden file {path}", path=path))), *problems)
    notes = tuple(filter(None, [describe_not_finite(run.table)]))
    return Result(status.MISSING_GOLDEN, run.path, problems=problems, notes=notes, tensors=len(run.table))


def judge_run(
    terms: Terms,
    golden: Record,
    run: Record,
    *,
    store: TensorStore | None = None,
    at_hand: Callable[[StatsTable], tuple[Edges, tuple[str, ...]]] | None = None,
    of_rank: bool = False,
    dumped: Sequence[Any] = (),
) -> Result:
    """Compare a run with its golden.

    Args:
        terms: by what.
        golden: what counts.
        run: what is judged; elements only where it has its tensors.
        store: where golden tensors are that do not lie beside the golden.
        at_hand: returns which tensor feeds which in the run, and notes; None for a saved run.
        of_rank: whether the run is that of one rank among others, each of which is judged by itself.
        dumped: the run's tensors, by row; indices that differ are judged by the values that they are of.

    Raises:
        GoldenError: the golden's tensors or weights cannot be read.
    """
    recorded, golden, run = golden, with_listed(golden, run), with_listed(run, golden)
    kept = terms.tensors if terms.kept else ()
    edges_after = at_hand or (lambda _table: (edges_of(run), ()))
    stored: Mapping[str, GoldenTensor] = stored_tensors(golden, store=store) if kept else {}
    lost: tuple[str, ...] = ()
    doubtful: tuple[str, ...] = ()
    lacking: tuple[str, ...] = ()
    if kept:
        if missing := missing_tensors(golden, stored, terms.kept):
            problem = said(
                "golden tensors named in the marker are not beside {path}: {first}; restore the "
                "safetensors file from version control, or accept again with --npudump-update-golden",
                path=golden.path.name,
                first=first_of(missing, 1),
            )
            lost = (problem,)
        if AUTO_LAYERS in terms.kept and not stored:
            problem = (
                f"golden_tensors is 'auto', and {golden.path.name} keeps no tensors: restore it from version "
                f"control, or accept anew with --npudump-update-golden"
            )
            lost = (*lost, problem)
        doubtful = left_out_notes(left_out(golden))
    try:
        if at_hand is not None:
            fetch_tensors(stored.values(), kept)
    except GoldenError as error:
        stored, lacking = {}, (str(error),)
    at_golden = (
        [stored.get(sanitised_key(key)) for key in golden.table.keys] if stored and run.tensors else ()
    )
    sides = replace(golden, tensors=at_golden), replace(run, tensors=run.tensors if at_golden else ())
    comparison = judge(*sides, terms)
    if not at_golden and dumped and any(CHOOSING.fullmatch(one.op_type) for one in comparison.failing):
        sides = sides[0], replace(run, tensors=dumped)
        comparison = judge(*sides, terms)
    renamed: Mapping[str, str] = {}
    if comparison.count(MISSING) and comparison.count(EXTRA) and terms.names is None and not terms.layers:
        from pytest_npudump.compare.correspondence import renamed_layers, with_names  # noqa: PLC0415 - rare

        if renamed := renamed_layers(golden, run, (edges_of(golden), edges_after(comparison.actual)[0])):
            golden, sides = with_names(golden, renamed), (with_names(sides[0], renamed), sides[1])
            comparison = judge(*sides, terms)
    for at, (unread, *_) in comparison.unreadable.items():
        words = said(
            "the elements of {key} cannot be compared: {reason}", key=comparison.key(at), reason=unread.reason
        )
        lacking = lacking or (words,)
    comparison = replace(comparison, elements={}, alone={}, pairs={})  # which would travel with the result
    judged = replace(run, table=comparison.actual)
    known = {sanitise(verdict.key.layer) for verdict in comparison.failing if verdict.status == "missing"}
    known |= {sanitise(layer_of(key)) for key in left_out_of(golden, run.facts)}
    changes, following = changes_of(comparison, golden) if terms.fail_on == CHANGE else ((), 0)
    others = first_of(f"{layer} -> {name}" for layer, name in renamed.items())
    models = models_between(terms, golden, run)
    rewired = terms.fail_on == CHANGE and models is not None and models.graph
    weights, uncompared = _weights_of_ranks(terms, golden, run)
    lost_ranks: tuple[str, ...] = ()
    if not of_rank and any("tp=" in kind for kind in {*run.table.op_types}):
        from pytest_npudump.compare import correspondence  # noqa: PLC0415 - of ranks only

        lost_ranks = correspondence.lost_ranks(golden, run)  # others' tensors would stand in for theirs
    problems = (
        *foreign(golden, run.test, run.facts, off=bool(comparison.count(FAIL))),
        *changed(golden, run.extra.get(EMPTY)),
        *lost_ranks,
        *weights,
        *problems_of(terms, judged, known),
        *_not_approved(terms, comparison),
        *lost,
        *(
            [said("renamed in the model, and compared under the new name: {names}", names=others)]
            if others
            else []
        ),
        *_changes(comparison, changes, following),
        *(_REWIRED,) * (rewired and not comparison.failing),
    )
    if not problems and comparison.nothing_judged:
        problems = (
            said(
                "no value was compared: the golden and the dump share no finite statistic and no hash "
                '(see the notes); use acl_json={{"dump_data": "tensor"}}, with golden_tensors where NaN '
                "or Inf hide the rest"
            ),
        )
    verdict = status.PASSED if not comparison.failing and not problems else status.FAILED
    if lacking and verdict == status.PASSED:
        verdict = status.ERROR
    named = models is not None and (models.graph or models.operators or models.types)
    if models is not None and named and comparison.failing and not terms.layers:
        models = _named_changes(models, golden, run, comparison, edges_after(comparison.actual)[0])
    empty = run.extra.get(EMPTY)
    sources, unread = sources_of(recorded, comparison, edges_after, models, empty, saved=run.fed)
    why = (terms.why,) if terms.why else ()
    beside = _outside_layers(terms, golden, run)
    notes = (why, run.notes, beside, uncompared, unsaid(golden), notes_on(golden, run.extra.get(EMPTY)))
    return Result(
        verdict,
        golden.path,
        comparison=comparison,
        problems=(*problems, *lacking),
        notes=(*(note for group in notes for note in group), *doubtful, *comparison.notes, *unread),
        tensors=len(comparison.actual),
        measured_bounds=bounds_by_measurement(comparison, comparison.tolerances),
        environment=golden.differences(run),
        sources=sources,
        changes=changes,
        idle_rules=_idle_rules(terms, comparison),
        models=models,
        weights=next(iter(weights), ""),
    )


def _outside_layers(terms: Terms, golden: Record, run: Record) -> tuple[str, ...]:
    """Report outputs of models outside of the layers that the test names, where they are out of tolerance."""
    blocks = [side.blocks.get(OUTPUTS, "") for side in (golden, run)]
    if not all(blocks) or blocks[0] == blocks[1]:
        return ()
    one, other = (
        replace(side, table=parse_outputs(block), extra={}, blocks={}, tensors=())
        for side, block in zip((golden, run), blocks, strict=True)
    )
    found = judge(one, other, replace(terms, layers=(), names=None))
    told = first_of(verdict.key for verdict in found.failing if verdict.status != EXTRA)
    note = said("outputs outside layers= are out of tolerance; they do not fail the test: {told}", told=told)
    return (note,) * bool(told)


_REWIRED = said("the model's graph changed: connections, types or versions of operators")
"""A problem where the run is to fail for any change: outputs may have changed places, and no value."""


def _weights_of_ranks(terms: Terms, golden: Record, run: Record) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Name the parameters of which ranks have others than a golden of one rank, and those not compared."""
    if len(shards_of(golden)) != 1 or len(shards_of(run)) < 2:  # noqa: PLR2004 - one rank has all
        return (), ()
    from pytest_npudump.compare.correspondence import Correspondence  # noqa: PLC0415 - of ranks only
    from pytest_npudump.runtime.modules.shards import other_weights  # noqa: PLC0415 - the same

    found, untold = other_weights(*(terms.names or Correspondence()).weights(golden, run))
    many = first_of(
        (f"{name} (rank {', '.join(ranks)})" if ranks else name for name, ranks in found.items()), 3
    )
    note = said("weights not compared: {names}", names=first_of(untold))
    problem = said("weights differ from the golden's: {names}", names=many)
    return (problem,) * bool(found), (note,) * bool(untold)


def models_between(terms: Terms, golden: Record, run: Record) -> ModelChange | None:
    """Return how a run's models, and what they were given, differ from the golden's; None if unknown.

    Where a model was executed more or less often, its inputs are not compared: their digest is of all.
    """
    whole = run
    if terms.names is not None and MODELS in golden.blocks and MODELS in run.blocks:
        golden, run = terms.names.renamed(golden, run)
    found = change_of_models(golden.blocks.get(MODELS, ""), run.blocks.get(MODELS, ""))
    if found is not None and run is not whole:
        found = replace(found, weighted=0)  # some of the operators were not compared
    if found is None or not found.fed:
        return found
    before, after = _executions(golden), _executions(run)
    fed = tuple(name for name in found.fed if len(before(name)) == len(after(name)))
    return replace(found, fed=fed) if fed or found.files or found.read != NOTHING else None


def _executions(record: Record) -> Callable[[str], set[tuple[object, ...]]]:
    """Return a function that gives what tells executions of a model apart, by its name."""
    qualifiers = {key.partition("#")[2].rpartition(":")[0] for key in record.table.keys}
    keys = [TensorKey.parse(f"any{'#' * bool(text)}{text}:output.0") for text in qualifiers]
    return lambda name: {(one.capture, one.load, one.step) for one in keys if one.model in {"", name}}


def _named_changes(
    models: ModelChange,
    golden: Record,
    run: Record,
    comparison: Comparison,
    after: Edges,
) -> ModelChange:
    """Name what changed in a graph by the layers and edges of both sides: digests tell of a part of them."""
    sides = [{sanitise(layer_of(key)) for key in side.table.keys} for side in (golden, run)]
    both, lost = sides[0] & sides[1], {EXTRA: dict[str, None](), MISSING: dict[str, None]()}
    for verdict in comparison.failing:
        name = sanitise(verdict.key.layer)
        if (
            verdict.status in lost
            and name not in both
            and (verdict.status == EXTRA or name not in after.feeds)
        ):
            lost[verdict.status][verdict.key.operator_names[0]] = None
    removed, added = (
        dict.fromkeys((*names, *lost[status]))
        for status, names in (
            (MISSING, models.removed),
            (EXTRA, [name for name in models.operators if name not in models.removed]),
        )
    )
    names = [dict.fromkeys(name for name in side if _layer(name) not in both) for side in (removed, added)]
    kept = dict.fromkeys(name for name in models.operators if _layer(name) in both)
    shown = {_layer(name): name for side in names for name in side}
    before, after = edges_of(golden).restricted(sides[0]), after.restricted(sides[1])
    rewired = {}
    for key in golden.table.keys:
        name = sanitise(layer_of(key))
        was, now = before.feeds.get(name), after.feeds.get(name)
        if was and now and name in both and not {UNKNOWN, SEVERAL} & {*was, *now} and was != now:
            ports = [sanitise(port.layer) for port in (*was, *now) if port is not None]
            text = TensorKey.parse(key).operator_names[0]
            rewired[text] = next((shown[port] for port in ports if port in shown), text)
    types = types_between(*(side.blocks.get(MODELS, "") for side in (golden, run)))
    types = {name: pair for name, pair in types.items() if _layer(name) in both}
    told = bool(names[0] or names[1] or rewired or types)
    # A golden accepted in part has the graph of its first recording, and edges and types of its layers.
    known = models.mixed and all(before.feeds.get(name) == after.feeds.get(name) for name in both)
    attributes = dict.fromkeys((*models.attributes, *kept))
    return replace(
        models,
        attributes=tuple(name for name in attributes if name not in types),
        types=types,
        operators=(*names[0], *names[1]),
        removed=tuple(names[0]),
        rewired=rewired,
        graph=not (told or known),
    )


def _layer(name: str) -> str:
    """Return the sanitised layer of an operator that a line of models names."""
    return sanitise(name.partition(FILE)[0])


def _not_approved(terms: Terms, comparison: Comparison) -> tuple[str, ...]:
    """Name rules of the marker for what the run has and the golden lacks: they decide nothing."""
    of_marker = terms.tolerances.having(lambda rule: rule.source == MARKER_RULES)
    if not of_marker.rules:
        return ()
    absent = of_marker.unmatched(comparison.actual)
    return tuple(
        f"tolerance rule {rule.describe()} of the marker decides nothing: the golden has no "
        f"{rule.statistic} of the tensors that it matches; accept anew, or remove it"
        for rule in of_marker.unmatched(told_by_both(comparison)[1])
        if rule not in absent
    )


def _idle_rules(terms: Terms, comparison: Comparison) -> tuple[str, ...]:
    """Return the rules of files that decide about no tensor of this test; they may about another's."""
    of_files = terms.tolerances.having(
        lambda rule: rule.source != MARKER_RULES and rule.against == AGAINST_GOLDEN
    )
    if not of_files.rules:
        return ()
    return tuple(rule.describe() for rule in of_files.unmatched(told_by_both(comparison)[1]))


def _changes(comparison: Comparison, changes: Sequence[Verdict], following: int) -> tuple[str, ...]:
    """Return the problem that values within tolerance are, where the run is to fail for any change."""
    if not changes:
        return ()
    words = said(
        "{count} of {expected} tensors changed within tolerance",
        count=len(changes),
        expected=comparison.expected,
    )
    if following:
        words += said(", besides {following} downstream of nondeterministic tensors", following=following)
    way_out = said("-o npudump_fail_on=change requires values identical to the golden as printed")
    return (said("{words}, first {key}; {way_out}", words=words, key=changes[0].key, way_out=way_out),)


def changes_of(comparison: Comparison, golden: Record) -> tuple[tuple[Verdict, ...], int]:
    """Return the passed tensors that are not identical to the golden's, by judging with zero tolerance.

    Args:
        comparison: by the tolerances of the test.
        golden: whose edges tell what follows from what does not repeat.

    Returns:
        What differs, in the order of execution, and how many other tensors follow from such as do not repeat,
        which says nothing of them.
    """
    if not comparison.changed:
        return (), 0
    judged = judge_tables(comparison.golden, comparison.actual, Tolerances("exact"))
    exact = {verdict.key: verdict for verdict in judged.failing}
    changed = tuple(exact.get(one.key, one) for one in comparison.verdicts() if one.changed)
    strays = comparison.within_noise | comparison.unsteady & comparison.differing
    every = enumerate(comparison.verdicts())
    wavering = {sanitise(verdict.key.layer) for at, verdict in every if at in strays}
    following = _following(golden, wavering)
    found = tuple(verdict for verdict in changed if sanitise(verdict.key.layer) not in following)
    return found, len(changed) - len(found)


def _following(golden: Record, layers: set[str]) -> set[str]:
    """Return the layers that some read, or read what these give, and so on."""
    readers: dict[str, set[str]] = {}
    for layer, ports in edges_of(golden).feeds.items() if layers else ():
        for port in ports:
            if port is not None and port.layer:
                readers.setdefault(sanitise(port.layer), set()).add(layer_at(layer))
    found: set[str] = set()
    waiting = [*layers]
    while waiting:
        new = readers.get(waiting.pop(), set()) - found
        found |= new
        waiting += new
    return found


def left_out_notes(layers: Sequence[str]) -> tuple[str, ...]:
    """Name layers without tensors in a golden, as the recording could not tell them apart."""
    if not layers:
        return ()
    note = (
        f"no golden tensors of {first_of(layers, 3)}, only statistics: several layers go by this "
        f"file name, and the second run cannot tell which is which"
    )
    return (note,)


def with_reference(outcome: Result, result: ReferenceResult | None) -> Result:
    """Return ``outcome`` with the result of the comparison with the reference: both must hold.

    Args:
        outcome: of the comparison with the golden, or of its recording.
        result: None where the test names no reference.
    """
    if result is None:
        return outcome
    failed = outcome.good and not result.good
    return replace(
        outcome,
        status=status.FAILED if failed else outcome.status,
        problems=outcome.problems + result.problems,
        notes=outcome.notes + result.notes,
        reference=result,
    )


def with_sources_off_reference(
    case: Case, golden: Record | None, dump: Dump, table: StatsTable, outcome: Result
) -> Result:
    """Return the outcome with the sources of mismatches with the reference, where the golden matches.

    In formats of 16 bits and fewer all tensors differ by rounding: no change is followed among those that
    pass.

    Args:
        case: the test.
        golden: what the run was compared with; None without one.
        dump: of the run.
        table: its statistics.
        outcome: of both comparisons.
    """
    result = outcome.reference
    if result is None or result.comparison is None or result.tolerances is None:
        return outcome
    differs = outcome.comparison is not None and outcome.comparison.count(FAIL)
    if differs or not result.comparison.count(FAIL):
        return outcome
    from pytest_npudump.explain.rounding import only_wide  # noqa: PLC0415 - as below
    from pytest_npudump.graph.sources import find_sources  # noqa: PLC0415 - where a test fails

    edges, notes = edges_kept(golden, table), tuple[str, ...]()
    if not edges.feeds:
        edges, notes = known_edges(case, dump.root, table)
    found = find_sources(result.comparison, edges, result.tolerances, walks=only_wide(table.dtypes))
    return replace(outcome, sources=found, notes=outcome.notes + notes)
