"""Goldens by the tests of a folder: ``npudump golden list``, ``stale`` and ``prune``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_npudump.cli.common.output import columns, emit, to_stderr, write_json
from pytest_npudump.cli.common.pytest_folder import collect
from pytest_npudump.compare.tolerances.rules import load_tolerances
from pytest_npudump.compare.tolerances.tolerance import ANY, GOLDEN
from pytest_npudump.errors import GoldenError, said
from pytest_npudump.golden.census import Census, Collection, census
from pytest_npudump.golden.store import read_golden
from pytest_npudump.language.text import first_of
from pytest_npudump.language.translation import gettext as _
from pytest_npudump.language.translation import mark, spoken
from pytest_npudump.report.verdicts import shown

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from pytest_npudump.compare.tolerances.tolerance import Rule
    from pytest_npudump.golden.census import Finding


@dataclass(frozen=True, slots=True)
class _Stock:
    """What a collection of tests says of the files beside them.

    Attributes:
        census: of the goldens.
        tolerances: the file of rules that runs read; None without one.
        missing: tests that have no golden yet.
    """

    census: Census
    tolerances: Path | None
    missing: tuple[str, ...]


def _take_stock(variants: Sequence[str] = ()) -> _Stock:
    """Collect the tests of the current folder, and judge the files of their goldens.

    Raises:
        RequestError: something cannot be collected: nothing is judged.
        OSError: a folder cannot be looked at.
    """
    found = collect("pytest_npudump.plugin.golden_owners", "--npudump-owners-to", [])
    goldens = {Path(path): test for path, test in found["goldens"].items()}
    collection = Collection(
        *(Path(found["root"]), Path(found["rootdir"]), goldens),
        *(frozenset(found["files"]), frozenset(found["unclear"])),
    )
    expected = goldens.keys() - {Path(path) for path in found["without"]}
    missing = tuple(test for path, test in goldens.items() if path in expected and not path.exists())
    rules = Path(found["tolerances"]) if found["tolerances"] else None
    return _Stock(census(collection, variants), rules, missing)


def _lines(findings: Sequence[Finding], heading: str) -> Iterator[str]:
    """Yield a heading and a line for each file; nothing where there are none."""
    if findings:
        yield heading
    for finding in findings:
        why = spoken(finding.why.removeprefix(f"{finding.path}: "))
        yield f"  {shown(finding.path)}: {why}"


def _as_json(findings: Sequence[Finding]) -> list[dict[str, Any]]:
    """Return findings as plain JSON data."""
    return [{"path": str(finding.path), "why": finding.why} for finding in findings]


def list_all(arguments: argparse.Namespace) -> int:
    """List the goldens that tests have; 0."""
    used = _take_stock().census.used
    if arguments.json:
        write_json([{"path": str(one.path), "test": one.why} for one in used], arguments.json)
    if arguments.json != "-":
        rows = [(one.why, shown(one.path)) for one in used]
        emit(columns(rows, (mark("test"), mark("golden"))) if rows else [_("no test has a golden")])
    return 0


def stale(arguments: argparse.Namespace) -> int:
    """List files that no test reads, and what cannot be judged; 1 where there are any."""
    stock = _take_stock(arguments.variant)
    found, rules = stock.census, _idle_rules(stock)
    if arguments.json:
        data = {"stale": _as_json(found.stale), "unjudged": _as_json(found.unjudged), "used": len(found.used)}
        write_json({**data, "rules": rules.found, "unjudged_rules": rules.unjudged or None}, arguments.json)
    if arguments.json != "-":
        emit(_lines(found.stale, _("no test reads:")))
        emit(_lines(found.unjudged, _("not judged, and not removed by prune:")))
        emit([_("rules that match no tensor of any test:")] if rules.found else [])
        emit(f"  {rule}" for rule in rules.found)
        emit([_("not judged: {unjudged}").format(unjudged=spoken(rules.unjudged))] if rules.unjudged else [])
        counts = _("{stale} stale, {unjudged} not judged").format(
            stale=len(found.stale), unjudged=len(found.unjudged)
        )
        counts += _("; {count} rules match nothing").format(count=len(rules.found)) if rules.found else ""
        emit([_("{count} goldens in use, {counts}").format(count=len(found.used), counts=counts)])
    return 1 if found.stale or rules.found else 0


def prune(arguments: argparse.Namespace) -> int:
    """Remove files that no test reads, or say which; 1 where some wait for ``--yes``, 2 where one stays."""
    stale = _take_stock(arguments.variant).census.stale
    if not arguments.yes:
        emit(_lines(stale, _("would be removed with --yes:")))
        emit([] if stale else [_("nothing is stale")])
        return 1 if stale else 0
    removed = [*map(_removed, stale)]
    emit([_("{removed} of {count} files removed").format(removed=sum(removed), count=len(stale))])
    return 0 if all(removed) else 2


def _removed(finding: Finding) -> bool:
    try:
        finding.remove()
    except GoldenError as error:
        to_stderr(f"npudump: {error}")
        return False
    emit([_("removed: {path}").format(path=shown(finding.path))])
    return True


@dataclass(frozen=True, slots=True)
class _IdleRules:
    """What goldens say of the rules.

    Attributes:
        found: rules that match nothing in any golden, as a verdict quotes them.
        unjudged: why rules that match nothing may match all the same; "" where they do not.
    """

    found: tuple[str, ...] = ()
    unjudged: str = ""


def _idle_rules(stock: _Stock) -> _IdleRules:
    """Hold the rules against all goldens that tests have.

    Rules about references are of layers that goldens need not have, and are left out.

    Raises:
        RequestError: the file of tolerances cannot be read, or holds a rule that is refused.
    """
    if stock.tolerances is None:
        return _IdleRules()
    tolerances = load_tolerances(stock.tolerances, against=GOLDEN)
    rules, unread = tolerances.rules, list(stock.missing)
    for golden in stock.census.used:
        if not rules:
            break
        try:
            table = read_golden(golden.path).table
        except GoldenError as error:
            unread.append(str(error))
            continue
        idle = replace(tolerances, rules=tuple(map(_for_any_run, rules))).unmatched(table)
        rules = tuple(rule for rule in rules if _for_any_run(rule) in idle)
    if rules and unread:
        return _IdleRules(
            unjudged=said(
                "{count} rules match no golden, and not all are there: {missing}",
                count=len(rules),
                missing=first_of(unread, 3),
            )
        )
    return _IdleRules(tuple(f"{stock.tolerances}: {rule.describe()}" for rule in rules))


def _for_any_run(rule: Rule) -> Rule:
    """Return a rule for all operators and producers: a golden tells no types, and of one producer only."""
    return replace(rule, op_type=ANY, producer=())
