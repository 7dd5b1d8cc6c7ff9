"""Golden files: ``npudump golden verify``, ``list``, ``stale`` and ``prune``, ``split`` and ``fold``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_npudump.cli.common.collection import collect
from pytest_npudump.cli.common.output import columns, complain, emit, present
from pytest_npudump.compare.tolerances.rules import load_tolerances
from pytest_npudump.compare.tolerances.tolerance import ANY, GOLDEN
from pytest_npudump.doctor.pytest_config import golden_folder
from pytest_npudump.errors import GoldenError, RequestError
from pytest_npudump.golden.census import Census, Collection, census, faults, files_below
from pytest_npudump.golden.store import read_golden
from pytest_npudump.golden.variants import fold, split
from pytest_npudump.language.text import first_of
from pytest_npudump.language.translation import gettext as _
from pytest_npudump.language.translation import spoken
from pytest_npudump.report.verdicts import shown

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from pytest_npudump.compare.tolerances.tolerance import Rule
    from pytest_npudump.golden.census import GoldenFinding
    from pytest_npudump.golden.variants import Part


def verify(arguments: argparse.Namespace) -> int:
    """Say what is wrong; 1 where anything is.

    Raises:
        RequestError: there is nothing to look at.
    """
    files = golden_files(named_or_usual(arguments.paths))
    found = [*faults(dict.fromkeys(files))]
    left = len(files) - len({fault.path for fault in found})
    sound = _("{left} of {count} files are sound").format(left=left, count=len(files))
    present(
        arguments,
        lambda: [{"path": str(fault.path), "reason": fault.reason} for fault in found],
        [*(spoken(fault.reason) for fault in found), sound],
    )
    return 1 if found else 0


def named_or_usual(paths: Sequence[Path]) -> Sequence[Path]:
    """Return what a command line names, or the folder of the goldens where it names nothing.

    Raises:
        ConfigError: pytest's configuration, which may name the folder, cannot be read.
    """
    return paths or [golden_folder(Path.cwd())]


def golden_files(paths: Sequence[Path]) -> list[Path]:
    """Return the goldens and tensors that are named, or lie below folders that are.

    Raises:
        RequestError: something is not there, or a folder holds none.
    """
    found: list[Path] = []
    for path in paths:
        if not path.exists():
            words = _("{path}: no such file or folder: name the folder of the goldens, or golden files")
            raise RequestError(words.format(path=path))
        files = files_below(path) if path.is_dir() else [path]
        if not files:
            raise RequestError(f"{path}: holds no golden file: name the folder of the goldens")
        found += files
    return found


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
    found = collect("--npudump-owners-to", [])
    goldens = {Path(path): test for path, test in found["goldens"].items()}
    collection = Collection(
        *(Path(found["root"]), Path(found["rootdir"]), goldens),
        *(frozenset(found["files"]), frozenset(found["unclear"])),
    )
    expected = goldens.keys() - {Path(path) for path in found["without"]}
    missing = tuple(test for path, test in goldens.items() if path in expected and not path.exists())
    rules = Path(found["tolerances"]) if found["tolerances"] else None
    return _Stock(census(collection, variants), rules, missing)


def _lines(findings: Sequence[GoldenFinding], heading: str) -> Iterator[str]:
    """Yield a heading and a line for each file; nothing where there are none."""
    if findings:
        yield heading
    for finding in findings:
        why = finding.why.removeprefix(f"{finding.path}: ")
        yield f"  {shown(finding.path)}: {why}"


def _as_json(findings: Sequence[GoldenFinding]) -> list[dict[str, Any]]:
    """Return findings as plain JSON data."""
    return [{"path": str(finding.path), "why": finding.why} for finding in findings]


def list_all(arguments: argparse.Namespace) -> int:
    """List the goldens that tests have; 0."""
    used = _take_stock().census.used
    rows = [(one.why, shown(one.path)) for one in used]
    present(
        arguments,
        lambda: [{"path": str(one.path), "test": one.why} for one in used],
        columns(rows, ("test", "golden")) if rows else ["no test has a golden"],
    )
    return 0


def stale(arguments: argparse.Namespace) -> int:
    """List files that no test reads, and what cannot be judged; 1 where there are any."""
    stock = _take_stock(arguments.variant)
    found = stock.census
    rules, unjudged = _idle_rules(stock)
    data = {"stale": _as_json(found.stale), "unjudged": _as_json(found.unjudged), "used": len(found.used)}
    lines = [
        *_lines(found.stale, "no test reads:"),
        *_lines(found.unjudged, "not judged, and not removed by prune:"),
    ]
    if rules:
        lines += ["rules that match no tensor of any test:", *(f"  {rule}" for rule in rules)]
    if unjudged:
        lines.append(f"not judged: {unjudged}")
    counts = f"{len(found.stale)} stale, {len(found.unjudged)} not judged"
    counts += f"; {len(rules)} rules match nothing" if rules else ""
    lines.append(f"{len(found.used)} goldens in use, {counts}")
    present(arguments, lambda: data | {"rules": rules, "unjudged_rules": unjudged or None}, lines)
    return 1 if found.stale or rules else 0


def prune(arguments: argparse.Namespace) -> int:
    """Remove files that no test reads, or say which; 1 where some wait for ``--yes``, 2 where one stays."""
    stale = _take_stock(arguments.variant).census.stale
    if not arguments.yes:
        emit(_lines(stale, "would be removed with --yes:"))
        emit([] if stale else ["nothing is stale"])
        return 1 if stale else 0
    removed = [*map(_removed, stale)]
    emit([f"{sum(removed)} of {len(stale)} files removed"])
    return 0 if all(removed) else 2


def _removed(finding: GoldenFinding) -> bool:
    try:
        finding.remove()
    except GoldenError as error:
        complain([error])
        return False
    emit([f"removed: {shown(finding.path)}"])
    return True


def _idle_rules(stock: _Stock) -> tuple[Sequence[str], str]:
    """Hold the rules against all goldens that tests have.

    Rules about references are of layers that goldens need not have, and are left out.

    Returns:
        Rules that match nothing in any golden, as a verdict quotes them; or why such rules may match all the
        same.

    Raises:
        RequestError: the file of tolerances cannot be read, or holds a rule that is refused.
    """
    if stock.tolerances is None:
        return (), ""
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
        missing = first_of(unread, 3)
        words = f"{len(rules)} rules match no golden, and not all are there: {missing}"
        return (), words
    return [f"{stock.tolerances}: {rule.describe()}" for rule in rules], ""


def _for_any_run(rule: Rule) -> Rule:
    """Return a rule for all operators and producers: a golden tells no types, and of one producer only."""
    return replace(rule, op_type=ANY, producer=())


def split_all(arguments: argparse.Namespace) -> int:
    """Write variants as what differs; 2 where one cannot be."""
    good = True
    for path in arguments.variants:
        try:
            part = split(path, arguments.by)
        except GoldenError as error:
            complain([error])
            good = False
            continue
        facts = ", ".join(f"{name} {value}" for name, value in part.facts.items())
        emit([f"split: {path}: {_differing(part)}, which names it for runs of {facts}"])
    return 0 if good else 2


def _differing(part: Part) -> str:
    return f"{part.differing} of {part.tensors} tensors differ from {part.base.name}"


def fold_all(arguments: argparse.Namespace) -> int:
    """Take variants back; 1 where one waits for ``--yes``, 2 where one cannot be."""
    return max(_folded(path, whole=arguments.whole, yes=arguments.yes) for path in arguments.variants)


def _folded(path: Path, *, whole: bool, yes: bool) -> int:
    try:
        part = fold(path, whole=whole, dry=True)
        count = _differing(part)
        if part.differing and not (yes or whole):
            emit([f"would be removed with --yes: {path}: {count}, with which its runs are compared then"])
            return 1
        fold(path, whole=whole)
    except GoldenError as error:
        complain([error])
        return 2
    words = "a golden of its own" if whole else f"removed; its runs are compared with {part.base.name}"
    emit([f"folded: {path}: {words} ({count})"])
    return 0
