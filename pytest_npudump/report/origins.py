"""The sources of a failure in words, and in the few that JUnit has room for."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from pytest_npudump.compare.stats.verdict import (
    EXTRA,
    FAIL,
    GRAPH_INPUT,
    MISSING,
    Comparison,
    Verdict,
    explain_first,
    inputs_match,
)
from pytest_npudump.dump.records import TensorKey, sanitise
from pytest_npudump.dump.selection import layers_meant
from pytest_npudump.dump.table import StatsTable, layer_of
from pytest_npudump.errors import joined
from pytest_npudump.language.text import first_of
from pytest_npudump.language.translation import gettext as _, ngettext, spoken
from pytest_npudump.record.model_lines import ALL, NOTHING, PARAMETERS, ModelChange
from pytest_npudump.report.verdicts import times

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pytest_npudump.graph.sources import Source, Sources
    from pytest_npudump.regression.result import Result


T = TypeVar("T")
_FORM = frozenset({"dtype", "shape", "count"})
_SHOWN = 3
_SEVERAL = 2


def mismatches(comparison: Comparison) -> str:
    """Count the mismatching tensors, missing ones included, and the new ones."""
    new, failing = comparison.count(EXTRA), comparison.mismatches
    return ngettext(
        "mismatches: {count} of {expected} tensor{new}",
        "mismatches: {count} of {expected} tensors{new}",
        comparison.expected,
    ).format(
        count=len(failing) - new,
        expected=comparison.expected,
        new=_(", {new} new").format(new=new) if new else "",
    )


def origin_lines(
    sources: Sources | None,
    comparison: Comparison,
    *,
    brief: bool,
    traced: bool = True,
    unlike: str = "",
    models: ModelChange | None = None,
) -> tuple[list[str], int]:
    """Describe the first mismatch, and the sources of all that follow; and the last line of a short text.

    Args:
        sources: None where nothing is known of what feeds what differs.
        comparison: of which they are.
        brief: as for :func:`source_lines`.
        traced: as for that.
        unlike: what is known of a first mismatch that is fed otherwise, or on one side only; "" for no more.
        models: as for that.
    """
    first = comparison.first
    assert first is not None  # noqa: S101 - something fails
    reason = unlike or explain_first(comparison, feeds_seen=feeds_are_seen(sources, first))
    alone = sources.independent if sources is not None else ()
    if sources is not None:  # with what only one side has
        sources = replace(sources, failing=len(comparison.mismatches))
    operators = [source for source, _count in by_operator(alone, lambda source: source.key)]
    gone = any(source.altered in first.key.operator_names for source in operators)
    if sources is not None and ([source.key for source in operators] == [first.key] or gone):
        return source_lines(sources, brief=brief, reason=reason, traced=traced, models=models), 0
    lines = [_("first:      {key}; {reason}").format(key=first.key, reason=reason)]
    if sources is not None:
        return lines + source_lines(sources, brief=brief, traced=traced, models=models), 1
    if comparison.count(FAIL) and comparison.compared >= _SEVERAL:
        lines.append(
            _(
                "sources:    unknown, as the inputs of the mismatches are not known; set graph= or "
                'acl_json={"dump_mode": "all"} in the marker'
            )
        )
    return lines, 0


def source_lines(
    sources: Sources | None,
    *,
    brief: bool,
    reason: str = "",
    traced: bool = True,
    models: ModelChange | None = None,
) -> list[str]:
    """Describe the sources, their traces, and unknown inputs.

    Args:
        sources: of a failure; None where nothing is known of what feeds which.
        brief: whether to show the first few only, in at most two lines.
        reason: what is known of the first one, where it is the only one.
        traced: whether to say where the changes of sources begin.
        models: how they differ from the golden's; None where that is not known.
    """
    if sources is None:
        return []
    limit = _SHOWN if brief else None
    alone = source_operators(sources)
    reached = [source for source in sources.found if source.behind is not None]
    if len(alone) == 1:
        words = _downstream(*alone[0], sources.failing, reason, models)
        lines = [_("source:     {words}").format(words=words)]
    else:
        words = first_of((_downstream(*one, sources.failing, models=models) for one in alone), limit)
        lines = [_("sources:    {count}: {words}").format(count=len(alone), words=words)]
    if reached:
        named = first_of((source.key for source in reached), 1 if brief else None)
        lines.append(
            _("again:      out of tolerance again after tensors that pass: {named}").format(named=named)
        )
    if (walked := [source for source, _count in alone if source.begins is not None]) and traced:
        words = _("{begins} ({within}), upstream of {key}")
        traces = (words.format(begins=one.begins, within=_within(one), key=one.key) for one in walked)
        lines.append(_("traced to:  {words}").format(words=first_of(traces, limit)))
    if sources.unplaced:
        words = _("inputs:     not all known for {count} of {failing} mismatches; first: {unplaced}")
        lines.append(
            words.format(count=len(sources.unplaced), failing=sources.failing, unplaced=sources.unplaced[0])
        )
    return lines


def source_operators(sources: Sources) -> list[tuple[Source, int]]:
    """Return the first independent source of each operator, and in how many executions it is one."""
    most = dict[TensorKey, int]()
    for source in sources.independent:
        most[_operator(source.key)] = max(most.get(_operator(source.key), 0), source.explains)
    return [
        (replace(source, explains=most[_operator(source.key)]), count)
        for source, count in by_operator(sources.independent, lambda source: source.key)
    ]


def by_operator(found: Iterable[T], key: Callable[[T], TensorKey]) -> list[tuple[T, int]]:
    """Return the first of what was found of each operator, and in how many executions it was."""
    groups: dict[TensorKey, list[T]] = {}
    for one in found:
        groups.setdefault(_operator(key(one)), []).append(one)
    return [
        (group[0], len({replace(key(one).sanitised, slot=0) for one in group})) for group in groups.values()
    ]


def _operator(key: TensorKey) -> TensorKey:
    return replace(key.sanitised, slot=0, step=0, turn=0, load=0)


def _downstream(
    source: Source, count: int, failing: int, reason: str = "", models: ModelChange | None = None
) -> str:
    downstream = source.explains - 1
    words = "" if failing > 1 else _("no other mismatch")
    if downstream and source.explains < failing:
        # What is reached through tensors that pass, or by no known edge, is not counted.
        words = ngettext(
            "at least {downstream} mismatch downstream",
            "at least {downstream} mismatches downstream",
            downstream,
        )
    elif downstream:
        words = ngettext("{downstream} mismatch downstream", "{downstream} mismatches downstream", downstream)
    unknown = not (source.known or reason)  # which says so
    doubts = (_("in a cycle"),) * source.cycle + (_("inputs unknown"),) * unknown
    known = [*filter(None, [reason, words.format(downstream=downstream)]), *doubts]
    known += [_("in {count} executions").format(count=count)] if count > 1 else []
    place, listed = str(source.key), bool(reason)
    if source.altered and models is not None:
        words = _("{operator} ({change}), upstream of {key}")
        place = words.format(
            operator=source.altered, change=_alteration(models, source.altered), key=source.key
        )
        known, listed = [one for one in known if one != reason], True
    if not known:
        return place
    if listed:
        return _("{key}; {words}").format(key=place, words=_("; ").join(known))
    return _("{key} ({words})").format(key=place, words=_(", ").join(known))


def _within(source: Source) -> str:
    """Describe a change within tolerance, without its share where no statistic tells it."""
    share = _("within tolerance, {share} of it").format(share=times(source.share))
    return share if source.share else _("within tolerance")


def _alteration(models: ModelChange, operator: str) -> str:
    """Describe in a word or two how an operator changed."""
    if operator in models.operators:
        return _("removed") if operator in models.removed else _("added")
    if operator in models.types:
        return _("type changed")
    if operator in models.weights:
        return _("weights changed")
    return _("attributes changed") if operator in models.attributes else _("connections changed")


def what_changed(
    result: Result, most: int | None = _SHOWN, *, counts: bool = True, every: bool = False
) -> str:
    """Describe the cause: changes known besides values; "" for none.

    Args:
        result: of a test.
        most: operators that are named; None for all.
        counts: whether to say of how many operators with weights some changed.
        every: whether to tell also of those that are upstream of no mismatch.
    """
    models = result.models
    if models is not None and result.sources is not None and result.sources.beside and not every:
        models = models.without(result.sources.beside)
    changes = [spoken(result.weights)] if result.weights else []
    if models is not None:
        changes += _model_changes(models, most, counts=counts)
    return joined(_("; "), changes)


def changed_behind(result: Result) -> bool:
    """Return whether nothing that is known to have changed is seen upstream of the first mismatch.

    All of it ran behind that, or is not upstream, or what it gives is the golden's.
    """
    comparison, models = result.comparison, result.models
    first = comparison.first if comparison is not None else None
    if comparison is None or first is None or first.status != FAIL or models is None:
        return False
    changed = {*models.weights, *models.attributes, *models.types}
    if models.fed or models.read == NOTHING or result.weights:
        return False
    if result.sources is not None and result.sources.unaltered:
        return True
    if not changed or models.operators or models.reconnected:
        return False
    if models.read == PARAMETERS and any(_is_inside(first.key, name, models) for name in changed):
        return False
    behind = set[str]()
    for key, _type in (rows := comparison.aligned_keys()):
        if models.names(key):
            return False
        if key == first.key:
            break
    for key, _type in rows:
        behind.update(key.operator_names)
    return changed <= behind


def _is_inside(key: TensorKey, name: str, models: ModelChange) -> bool:
    """Return whether a module, as lines of models call it, contains that of a tensor, and ends later."""
    name = name.partition("#")[0]
    return key.name_text.startswith(f"{name}.") or f"{name}{PARAMETERS}" in models.files


def is_altered(result: Result) -> bool:
    """Return whether operators are known to have changed that may be the cause of the first mismatch."""
    altered = bool(result.weights) or (result.models is not None and bool(result.models.altered))
    return altered and not changed_behind(result)


def _model_changes(models: ModelChange, most: int | None, *, counts: bool) -> Iterator[str]:
    if models.fed:
        yield _("model {names}: inputs changed").format(names=first_of(models.fed, most))
    if models.files and models.read == NOTHING:
        words = _("another model file than the golden's: {names} (operators not compared)")
        yield words.format(names=first_of(models.files, most))
    weights = [name for name in models.weights if name not in models.permuted]
    axis = _("{name} (axis {axis})") if counts else "{name}"
    moved = [axis.format(name=name, axis=at) for name, at in models.permuted.items()]
    gone, added = models.removed, [name for name in models.operators if name not in models.removed]
    rewired = [name for name, cause in models.rewired.items() if cause == name]
    typed = _("{name} ({before}, now {now})")
    types = [typed.format(name=name, before=was, now=now) for name, (was, now) in models.types.items()]
    share = ngettext(
        " ({count} of {weighted} operator with weights)",
        " ({count} of {weighted} operators with weights)",
        models.weighted,
    )
    for names, change, of in (
        (weights, _("weights changed"), share),
        (moved, _("weight channels permuted"), share),
        (types, _("type changed"), ""),
        (models.attributes, _("attributes changed"), ""),
        (gone, _("removed"), ""),
        (added, _("added"), ""),
        (rewired, _("connections changed"), ""),
    ):
        if names:
            told = of.format(count=len(names), weighted=models.weighted) if counts and models.weighted else ""
            words = _("{names}: {change}{share}")
            yield words.format(names=first_of(names, most), change=change, share=told)
    if models.graph:
        yield _("the model's graph changed: connections, types or versions of operators")


def one_sided(result: Result) -> str:
    """Describe why the first mismatch is fed otherwise or on one side only; "" where no more is known."""
    first = result.comparison.first if result.comparison is not None else None
    given = first is not None and (first.status, first.op_type) == (FAIL, GRAPH_INPUT)
    if first is not None and given and result.models is not None:
        fed = first.key.model in result.models.fed or (result.models.fed and not first.key.model)
        return _("an input of the graph") if fed else ""
    if first is None or result.comparison is None or first.status not in {MISSING, EXTRA}:
        return ""
    layer, asked = first.key.layer, result.origin.layers
    if result.models is not None and {*result.models.operators} & {*first.key.operator_names}:
        return _("not in the run's model") if first.status == MISSING else _("not in the golden's model")
    if first.status == MISSING and asked and not layers_meant(asked, [layer]):
        return _("layers= in the marker no longer names it")
    before, now = (
        _executions(table, first.key) for table in (result.comparison.golden, result.comparison.actual)
    )
    if before and now and before != now:
        return _("executions: {now}, expected {before}").format(now=now, before=before)
    return _("the operators that ran, or the dump, changed there") if _same_model(result.models) else ""


def _executions(table: StatsTable, key: TensorKey) -> int:
    """Return how often a table has a tensor, in whatever execution."""
    wanted, layer = replace(key.sanitised, step=0, turn=0, load=0, capture=""), sanitise(key.layer)
    alike = (TensorKey.parse(text).sanitised for text in table.keys if sanitise(layer_of(text)) == layer)
    return sum(replace(one, step=0, turn=0, load=0, capture="") == wanted for one in alike)


def _same_model(models: ModelChange | None) -> bool:
    """Return whether a run's models are known to compute what the golden's do."""
    return models is not None and not (models.changed or models.mixed) and models.read == ALL


def model_line(result: Result, *, brief: bool, cause: bool, untold: bool = False) -> list[str]:
    """Describe changes of the models, where the headline does not.

    Without a ``cause`` that is known it says what else may differ. The headline has left some ``untold``.
    """
    models = result.models
    if models is None:
        return []
    first = result.comparison.first if result.comparison is not None else None
    # Whether both sides have it, of one type and shape, so that values differ.
    values = first is None or (
        first.status == FAIL and _FORM.isdisjoint(reason.statistic for reason in first.reasons)
    )
    blamed = values and not cause and not models.fed and not not_reproduced(result)
    behind = blamed and changed_behind(result)
    if brief and not (untold or behind) and (models.changed or models.read == NOTHING):
        return []
    words = what_changed(result, _SHOWN if brief else None, counts=not (brief and behind), every=True)
    whole = _same_model(models)
    names = first_of(models.files)
    means = _("{words}; a kernel, the driver or an input differs") if whole else ""
    if whole and models.fed_alike:
        means = _("{words}; a kernel or the driver differs")
    if behind:
        means = _("{words}; not seen upstream of the first mismatch: a kernel, code or an input may differ")
    if behind and models.fed_alike and models.read == ALL:
        means = _("{words}; not seen upstream of the first mismatch: a kernel or the driver may differ")
    if models.mixed and not models.changed:
        words = _("the golden's layers were accepted from runs of several models")
    elif models.files and not models.changed:
        known = _("{names}: another file; no change is known of graph, weights and attributes")
        words = (_("{names}: another file, same weights and attributes") if whole else known).format(
            names=names
        )
    elif whole:
        words = _("identical to the golden's")
    elif not models.files and models.read == PARAMETERS:
        words = _("its parameters are identical to the golden's")
        means = _("{words}; the code, a kernel, the driver or an input differs")
        if models.fed_alike and first is not None and not first.key.step:  # later ones are in no digest
            means = _("{words}; the code, a kernel or the driver differs")
    if means and blamed:
        words = means.format(words=words)
    return [_("model:      {words}").format(words=words)]


def not_reproduced(result: Result) -> bool:
    """Return whether the second run did otherwise than the first one in the first mismatch."""
    first = result.comparison.first if result.comparison is not None else None
    findings = result.escalation.findings if result.escalation is not None else ()
    return first is not None and any(
        one.reproduced is False and one.key.sanitised == first.key.sanitised for one in findings
    )


def with_matching_inputs(result: Result) -> frozenset[str]:
    """Return the keys of tensors that changed while the statistics of their inputs match."""
    comparison = result.comparison
    first = comparison.first if comparison is not None else None
    if comparison is None or first is None:
        return frozenset()
    matched = inputs_match(comparison, feeds_seen=feeds_are_seen(result.sources, first))
    return comparison.tolerances.alone | ({str(first.key)} if matched else set())


def where_it_begins(result: Result) -> str:
    """Describe where the change of the first mismatch begins; "" where that is the mismatch, or not known.

    Nor is it told where more is known: what has changed. Only runs of the same numerics tell: others differ
    by rounding everywhere.
    """
    comparison, sources = result.comparison, result.sources
    first = comparison.first if comparison is not None else None
    if first is None or not _same(result) or what_changed(result):
        return ""
    for source in sources.independent if sources is not None else ():
        if source.key == first.key and source.begins is not None:
            words = _("the change is traced to {begins} ({within})")
            return words.format(begins=source.begins, within=_within(source))
    change = _first_change(result) if sources is None else None
    if change is None:
        return ""
    return _("the first change is in {change} (within tolerance)").format(change=change)


def first_change(result: Result) -> list[str]:
    """Describe the first change, if it comes before the first mismatch."""
    change = _first_change(result)
    words = _("changed:    {change} is the first that is not identical to the golden as printed")
    return [] if change is None else [words.format(change=change)]


def _first_change(result: Result) -> TensorKey | None:
    """Return the first change, which counts for runs of the same numerics, if the golden repeats."""
    comparison = result.comparison
    if comparison is None or not _same(result) or not comparison.repeats:
        return None
    change, first = comparison.first_change, comparison.first
    if change is None or first is None or first.status != FAIL or change == first.key:
        return None
    return change


def _same(result: Result) -> bool:
    return result.numerics is not None and result.numerics.same


def feeds_are_seen(sources: Sources | None, first: Verdict | None) -> bool | None:
    """Return whether inputs of the first mismatch are known and were compared; nothing before it fails.

    None where nothing but weights feeds it.
    """
    at_first = [source for source in sources.found if source.key == first.key] if sources and first else []
    return at_first[0].fed and at_first[0].known and not at_first[0].cycle if at_first else False


def more_sources(sources: Sources | None, shown: Verdict) -> str:
    """Name independent sources, but for the one shown, for a headline; "" for none."""
    alone = sources.independent if sources is not None else ()
    layers = {(source.key.model, source.key.layer): source.key.layer for source in alone}
    own = layers.pop((shown.key.model, shown.key.layer), None)
    others = list(layers.values())
    if sources is None or not others:
        return ""
    words = ngettext("; {count} other source: {named}", "; {count} other sources: {named}", len(others))
    if own is None and shown.status == FAIL and shown.key not in sources.unplaced:
        words = ngettext("; source: {named}", "; {count} sources: {named}", len(others))
    return words.format(count=len(others), named=first_of(others, _SHOWN))


def small_sources(sources: Sources) -> dict[str, Any]:
    """Return the first independent sources, one of each operator, and how many there are in all."""
    alone = source_operators(sources)
    return {"in_all": len(alone), "first": [source.to_json() for source, _count in alone[:_SHOWN]]}
