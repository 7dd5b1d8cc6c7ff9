"""``npudump golden show``: a golden's origin, repetition and tolerances."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from pytest_npudump.cli.common.output import columns, present
from pytest_npudump.cli.common.project import golden_named, last_results
from pytest_npudump.cli.common.tolerance_options import chosen_tolerances
from pytest_npudump.compare.judge import fed_as_before, with_upstream
from pytest_npudump.compare.stats.allowances import Allowance, allowances
from pytest_npudump.compare.stats.tables import blind_keys, describe_blind, describe_not_finite
from pytest_npudump.compare.tolerances.presets import SAME
from pytest_npudump.compare.tolerances.tolerance import ANY, Rule, Tolerances
from pytest_npudump.dump.selection import layers_called, suggest
from pytest_npudump.dump.table import PROJECTIONS, is_count, layer_of, sanitised_key
from pytest_npudump.errors import RequestError
from pytest_npudump.golden.origin import in_words
from pytest_npudump.golden.store import differing, read_golden
from pytest_npudump.golden.stored_tensors import pointers_of
from pytest_npudump.golden.variants import variants_of
from pytest_npudump.language import mark
from pytest_npudump.language.text import byte_size
from pytest_npudump.language.translation import counted, gettext as _, spoken
from pytest_npudump.record.model_lines import model_files_of
from pytest_npudump.record.noise import calibrated_of, calibration_of, repeats_of
from pytest_npudump.record.record import EDGES, MODELS, REASON, RECORDED, Record
from pytest_npudump.report.verdicts import number
from pytest_npudump.results.rejudge import read_record


def run(arguments: argparse.Namespace) -> int:
    """Print it, or write JSON; 0.

    Raises:
        RequestError: a rule or a layer is of nothing in the golden.
    """
    golden = read_golden(golden_named(arguments.golden))
    bounds: list[Allowance] | None = None
    asked = (arguments.layer, arguments.preset, arguments.producer, arguments.results)
    if arguments.tolerances is not None or any(asked):
        bounds, lines = _bounds(arguments, golden)
    else:
        lines = _lines(golden)
    present(arguments, lambda: _as_json(golden, bounds), lines)
    return 0


def _lines(golden: Record) -> Iterator[str]:
    facts = ", ".join(f"{name} {value}" for name, value in golden.producer.items())
    day = in_words(golden.extra.get(RECORDED)) or _("date unknown")
    note, pointers, base = describe_not_finite(golden.table), pointers_of(golden), golden.base
    files = model_files_of(golden.blocks.get(MODELS, ""))
    lines = (
        _("test:        {test}").format(test=golden.test),
        _("producer:    {facts}").format(facts=facts),
        _("recorded:    {day}").format(day=day),
        *_changes(golden),
        _("tensors:     {count}").format(count=len(golden.table)),
        _("note: {note}").format(note=spoken(note)) if note else "",
        _("stored:      {count} of them, {size}").format(
            count=len(pointers), size=byte_size(sum(one.size for one in pointers.values()))
        )
        if pointers
        else "",
        _("models:      {names}").format(names=", ".join(files)) if files else "",
        _("variant:     {count} of them differ from {name}").format(
            count=len(differing(golden, base)), name=base.path.name
        )
        if base is not None
        else "",
        *(
            _("variant:     {name}, for {facts}").format(
                name=name, facts=", ".join(f"{fact} {value}" for fact, value in asked.items())
            )
            for name, asked in variants_of(golden).items()
        ),
        _("repeats:     {words}").format(words=_repeats(golden)),
        _("calibration: {words}").format(words=_calibration(golden)),
    )
    return filter(None, lines)


def _changes(golden: Record) -> Iterator[str]:
    """Yield the reasons and times of tensors' changes, the latest first."""
    stamps = [golden.changed[key] for key in golden.table.keys if key in golden.changed]
    for stamp, count in sorted(Counter(stamps).items(), reverse=True):
        yield counted(
            count,
            "changed:     {count} tensor, {day}",
            "changed:     {count} tensors, {day}",
            day=in_words(stamp),
        )
    if reason := golden.extra.get(REASON):
        yield _("reason:      {reason}").format(reason=reason)


def _repeats(golden: Record) -> str:
    found = repeats_of(golden.extra, golden.path)
    if found is None or found.runs == 1:
        return _("unknown: recorded from one run")
    of = (
        _("all")
        if found.compared is None
        else _("{compared} of {count}").format(compared=found.compared, count=len(golden.table))
    )
    varying = sum(cell.startswith("~") for cell in golden.table.noise)
    words = _("{runs} runs, tensors compared: {of}, with other values: {varying}").format(
        runs=found.runs, of=of, varying=varying or _("none")
    )
    if not found.not_deterministic:
        return words
    return _("{words}; first seen at: {operators}").format(
        words=words, operators=", ".join(found.not_deterministic)
    )


def _calibration(golden: Record) -> str:
    found = calibration_of(golden.extra, golden.path)
    if found is None:
        return _("none")
    return _("{members} members, factor {factor:g}, varied: {varied}").format(
        members=found.members, factor=found.factor, varied=", ".join(found.varied)
    )


def _as_json(golden: Record, bounds: Sequence[Allowance] | None) -> dict[str, Any]:
    repeats = repeats_of(golden.extra, golden.path)
    calibration = calibration_of(golden.extra, golden.path)
    told: dict[str, Any] = {
        "test": golden.test,
        "producer": dict(golden.producer),
        "recorded": golden.extra.get(RECORDED),
        "changed": {key: golden.changed[key] for key in golden.table.keys if key in golden.changed},
        "reason": golden.extra.get(REASON),
        "tensors": len(golden.table),
        "repeats": None if repeats is None else repeats.to_head(),
        "calibration": None if calibration is None else calibration.to_head(),
    }
    if bounds is not None:
        told["tolerances"] = [
            {
                "key": allowance.key,
                "dtype": allowance.dtype,
                "statistic": allowance.statistic,
                "golden": allowance.value,
                "allowed": allowance.allowed,
                "printed": allowance.printed,
                "steps": allowance.steps,
                "share": allowance.share,
                "rule": allowance.rule.describe(),
                "blind": allowance.blind,
            }
            for allowance in bounds
        ]
    return told


_WIDTH = (mark("tolerance"), mark("steps"), mark("% of tensor"), mark("rule"))
_EACH = (mark("tensor"), "dtype", mark("statistic"), mark("golden"), *_WIDTH)
_RULES = (mark("tensors"), "dtype", mark("statistic"), mark("widest for"), *_WIDTH)


def _bounds(arguments: argparse.Namespace, golden: Record) -> tuple[list[Allowance], Iterator[str]]:
    """Return the tolerance of each statistic of a golden, and its lines."""
    if arguments.results:
        golden = _as_it_ran(golden, arguments.results)
    tolerances = _chosen(arguments, golden).with_measured(calibrated_of(golden))
    tolerances = with_upstream(golden, golden.table, tolerances)
    layers = dict.fromkeys(map(layer_of, golden.table.keys))
    wanted_layers = layers_called([arguments.layer or "*"], layers)
    found = list(allowances(golden.table, tolerances, wanted_layers))
    if alone := _rounded_alone(arguments, golden, tolerances):
        tighter = allowances(golden.table, replace(tolerances, alone=alone), wanted_layers)
        found += [one for one in tighter if one.key in alone and one.statistic == PROJECTIONS]
    if arguments.layer and not found:
        hint = suggest(arguments.layer, layers)
        raise RequestError(
            _("{golden} has no layer {layer!r} with a finite value; {hint}").format(
                golden=arguments.golden, layer=arguments.layer, hint=hint
            )
        )
    wanted = {allowance.key for allowance in found}
    blind = describe_blind([key for key in blind_keys(golden.table, tolerances) if key in wanted])
    return found, chain(_bound_lines(found, each=bool(arguments.layer)), [blind] if blind else [])


def _rounded_alone(arguments: argparse.Namespace, golden: Record, tolerances: Tolerances) -> frozenset[str]:
    """Return the tensors that may differ by one operator's rounding only, where what it reads does not."""
    measured, table = calibrated_of(golden), golden.table
    repeats = measured is not None and measured.repeats
    if arguments.preset or tolerances.preset != SAME or not (table.summed and repeats):
        return frozenset()
    if EDGES not in golden.blocks or MODELS not in golden.blocks:
        return frozenset()
    rows = np.flatnonzero(table.tells(PROJECTIONS)).tolist()
    return fed_as_before(golden, table, rows, rows, dict(enumerate(table.op_types)))


def _chosen(arguments: argparse.Namespace, golden: Record) -> Tolerances:
    tolerances = chosen_tolerances(arguments, golden.facts)
    typed = next((rule for rule in tolerances.rules if rule.op_type != ANY), None)
    if typed is not None and not arguments.results:
        raise RequestError(
            _(
                "tolerance rule {rule} names operator types, which a golden does not contain: give a "
                "session's results with --results"
            ).format(rule=typed.describe())
        )
    for rule in tolerances.unmatched(golden.table):
        raise RequestError(
            _(
                "tolerance rule {rule} matches nothing in {golden}: correct its layer, op_type, dtype or "
                "statistic, or remove it"
            ).format(rule=rule.describe(), golden=arguments.golden)
        )
    return tolerances


def _bound_lines(found: list[Allowance], *, each: bool) -> Iterator[str]:
    yield from columns([*map(_row, found)] if each else [*_by_rule(found)], _EACH if each else _RULES)
    loosened = any(is_count(allowance.statistic) for allowance in found)
    yield (
        _("all other counts of NaN and infinities, dtypes and shapes must be equal")
        if loosened
        else _("counts of NaN and infinities, dtypes and shapes must be equal")
    )
    blind = list(dict.fromkeys(allowance.key for allowance in found if allowance.blind))
    if blind:
        yield _("zeros would pass in a statistic (tensors: {count}, first: {first})").format(
            count=len(blind), first=blind[0]
        )


def _by_rule(found: Iterable[Allowance]) -> Iterator[tuple[str, ...]]:
    groups: dict[tuple[Rule, str, str], list[Allowance]] = {}
    for allowance in found:
        groups.setdefault((allowance.rule, allowance.dtype, allowance.statistic), []).append(allowance)
    for (rule, dtype, statistic), members in groups.items():
        widest = max(members, key=lambda one: one.share or 0.0)
        where = dtype, _measured(statistic), widest.key
        yield (str(len(members)), *where, *_width(widest), spoken(rule.describe()))


def _row(allowance: Allowance) -> tuple[str, ...]:
    one = allowance
    value = "0" if one.statistic == PROJECTIONS else number(one.value)
    name = _measured(one.statistic)
    return (one.key, one.dtype, name, value, *_width(one), spoken(one.rule.describe()))


def _measured(statistic: str) -> str:
    """Return the name of a statistic, as failures have it."""
    return _("difference") if statistic == PROJECTIONS else statistic


def _width(allowance: Allowance) -> tuple[str, str, str]:
    steps, share = allowance.steps, allowance.share
    printed = (
        _(" + {printed} (digits)").format(printed=number(allowance.printed)) if allowance.printed else ""
    )
    percent = "-" if share is None else f"{100 * share:.3g}"
    return (number(allowance.allowed) + printed, "-" if steps is None else f"{steps:.3g}", percent)


def _as_it_ran(golden: Record, results: Path) -> Record:
    """Return a golden with the types of operators and the producer of the last kept run of its test.

    Raises:
        RequestError: the results hold no statistics of the test.
        ResultsError: they, or those of the test, cannot be read.
    """
    folder = last_results(results)
    entries = [entry for entry in folder.read().entries if entry.test == golden.test and entry.record_file]
    if not entries:
        raise RequestError(f"{results} holds no statistics of {golden.test}: run it, or name other results")
    last = max(entries, key=lambda entry: str(entry.data["time"]))
    run = read_record(folder, last)
    ran = dict(zip(map(sanitised_key, run.table.keys), run.table.op_types, strict=True))
    types = tuple(ran.get(sanitised_key(key), "") for key in golden.table.keys)
    return replace(golden, producer=run.producer, table=replace(golden.table, op_types=types))
