"""``npudump tolerance explain``: which bound each statistic of a golden has, and how wide it is."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pytest_npudump.cli.common.output import columns, present
from pytest_npudump.cli.common.tolerance_options import chosen_tolerances
from pytest_npudump.compare.stats.allowances import allowances
from pytest_npudump.compare.stats.tables import blind_keys, describe_blind
from pytest_npudump.compare.tolerances.tolerance import ANY
from pytest_npudump.dump.selection import layers_meant, suggest
from pytest_npudump.dump.table import is_count, layer_of, sanitised_key
from pytest_npudump.errors import RequestError
from pytest_npudump.golden.store import read_golden
from pytest_npudump.language import mark
from pytest_npudump.language.translation import gettext as _
from pytest_npudump.record.noise import calibrated_of
from pytest_npudump.report.verdicts import number
from pytest_npudump.results.folder import ResultsFolder
from pytest_npudump.results.rejudge import read_record

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from pytest_npudump.compare.stats.allowances import Allowance
    from pytest_npudump.compare.tolerances.tolerance import Rule, Tolerances
    from pytest_npudump.record.record import Record


_WIDTH = (mark("allowed"), mark("steps"), mark("% of tensor"), mark("rule"))
_EACH = (mark("tensor"), "dtype", mark("statistic"), mark("golden"), *_WIDTH)
_RULES = (mark("tensors"), "dtype", mark("statistic"), mark("widest for"), *_WIDTH)


def run(arguments: argparse.Namespace) -> int:
    """Print the bounds, or write JSON; 0."""
    golden = read_golden(arguments.golden)
    if arguments.results:
        golden = _as_it_ran(golden, arguments.results)
    tolerances = _tolerances(arguments, golden).with_measured(calibrated_of(golden))
    layers = dict.fromkeys(map(layer_of, golden.table.keys))
    found = list(allowances(golden.table, tolerances, layers_meant([arguments.layer or "*"], layers)))
    if arguments.layer and not found:
        hint = suggest(arguments.layer, layers)
        raise RequestError(
            _("{golden} has no layer {layer!r} with a finite value; {hint}").format(
                golden=arguments.golden, layer=arguments.layer, hint=hint
            )
        )
    wanted = {allowance.key for allowance in found}
    blind = describe_blind([key for key in blind_keys(golden.table, tolerances) if key in wanted])
    lines = [*_lines(found, each=bool(arguments.layer)), *([blind] if blind else [])]
    present(arguments, lambda: [_as_json(allowance) for allowance in found], lines)
    return 0


def _tolerances(arguments: argparse.Namespace, golden: Record) -> Tolerances:
    facts = golden.facts
    tolerances = chosen_tolerances(arguments, facts)
    typed = next((rule for rule in tolerances.rules if rule.op_type != ANY), None)
    if typed is not None and not arguments.results:
        raise RequestError(
            _(
                "tolerance rule {rule} names operators, whose types a golden does not tell: name a session's "
                "results, which do, with --results"
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


def _lines(found: list[Allowance], *, each: bool) -> Iterator[str]:
    yield from columns([*map(_row, found)] if each else [*_by_rule(found)], _EACH if each else _RULES)
    loosened = any(is_count(allowance.statistic) for allowance in found)
    yield (
        _("all other counts of NaN and infinities, dtypes and shapes must be equal")
        if loosened
        else _("counts of NaN and infinities, dtypes and shapes must be equal")
    )
    blind = list(dict.fromkeys(allowance.key for allowance in found if allowance.blind))
    if blind:
        yield _("zeros would pass in a statistic of {count} tensors (first: {first})").format(
            count=len(blind), first=blind[0]
        )


def _by_rule(found: Iterable[Allowance]) -> Iterator[tuple[str, ...]]:
    groups: dict[tuple[Rule, str, str], list[Allowance]] = {}
    for allowance in found:
        groups.setdefault((allowance.rule, allowance.dtype, allowance.statistic), []).append(allowance)
    for (rule, dtype, statistic), members in groups.items():
        widest = max(members, key=lambda one: one.share or 0.0)
        yield (str(len(members)), dtype, statistic, widest.key, *_width(widest), rule.describe())


def _row(allowance: Allowance) -> tuple[str, ...]:
    one = allowance
    return (one.key, one.dtype, one.statistic, number(one.value), *_width(one), one.rule.describe())


def _width(allowance: Allowance) -> tuple[str, str, str]:
    steps, share = allowance.steps, allowance.share
    printed = (
        _(" + {printed} (digits)").format(printed=number(allowance.printed)) if allowance.printed else ""
    )
    percent = "-" if share is None else f"{100 * share:.3g}"
    return (number(allowance.allowed) + printed, "-" if steps is None else f"{steps:.3g}", percent)


def _as_json(allowance: Allowance) -> dict[str, Any]:
    return {
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


def _as_it_ran(golden: Record, results: Path) -> Record:
    """Return a golden with the types of operators and the producer of the last kept run of its test.

    Args:
        golden: as it was read.
        results: the folder of a session's results.

    Raises:
        RequestError: the results hold no statistics of the test.
        ResultsError: they, or those of the test, cannot be read.
    """
    folder = ResultsFolder(results)
    entries = [entry for entry in folder.read().entries if entry.test == golden.test and entry.record_file]
    if not entries:
        raise RequestError(f"{results} holds no statistics of {golden.test}: run it, or name other results")
    last = max(entries, key=lambda entry: str(entry.data["time"]))
    run = read_record(folder, last)
    ran = dict(zip(map(sanitised_key, run.table.keys), run.table.op_types, strict=True))
    types = tuple(ran.get(sanitised_key(key), "") for key in golden.table.keys)
    return replace(golden, producer=run.producer, table=replace(golden.table, op_types=types))
