"""``npudump golden status``: how the goldens of a project stand, by its tests, its results and its store."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from pytest_npudump.cli.common.output import columns, complain, emit, present
from pytest_npudump.cli.common.project import collect, golden_files, last_if_any, last_results
from pytest_npudump.cli.common.pytest_config import golden_folder, tensor_place
from pytest_npudump.cli.common.work import progress
from pytest_npudump.cli.golden.pending import as_json, waiting_lines
from pytest_npudump.compare.tolerances.rules import load_tolerances
from pytest_npudump.compare.tolerances.tolerance import ANY, GOLDEN, Rule
from pytest_npudump.dump.records import sanitise
from pytest_npudump.errors import GoldenError, RequestError, StoreError
from pytest_npudump.golden.census import (
    SUFFIX,
    TENSORS,
    Census,
    Collection,
    Fault,
    GoldenFinding,
    State,
    census,
    faults,
    look,
    named_objects,
)
from pytest_npudump.golden.objects import cached_objects
from pytest_npudump.golden.store import read_golden
from pytest_npudump.language import mark
from pytest_npudump.language.text import first_of, typed
from pytest_npudump.language.translation import gettext as _, ngettext, spoken
from pytest_npudump.report.verdicts import shown
from pytest_npudump.results.acceptance import Pending, pending_of
from pytest_npudump.results.folder import ResultsError, ResultsFolder
from pytest_npudump.results.rejudge import terms_at

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping, Sequence

    from pytest_npudump.golden.stored_tensors import TensorStore


@dataclass(slots=True)
class _Status:
    """State of the goldens; None where it was not asked for, or is not known.

    Attributes:
        unknown: what could not be read, collected or asked, in words.
        files: the goldens and tensors that were looked at.
        broken: those that cannot be read, or do not belong together.
        census: of the goldens, by the tests of this folder.
        rules: rules of tolerances that match no tensor of any test.
        unjudged_rules: why it is not known of others.
        waiting: runs that are pending review.
        renamed: by a stale golden, a test without one that may be its test under a new name, and its golden.
        store: of golden tensors, where one is configured.
        states: where the tensors are that goldens name in it.
    """

    unknown: list[str] = field(default_factory=list)
    files: list[Path] = field(default_factory=list)
    broken: list[Fault] = field(default_factory=list)
    census: Census | None = None
    rules: Sequence[str] = ()
    unjudged_rules: str = ""
    waiting: list[Pending] | None = None
    renamed: dict[Path, tuple[str, Path]] = field(default_factory=dict)
    store: TensorStore | None = None
    states: list[State] = field(default_factory=list)

    @property
    def code(self) -> int:
        """The exit code: 0 all is well, 1 there is something to do, 2 something is not known."""
        if self.unknown or self.broken:
            return 2
        stale = self.census is not None and self.census.stale
        return int(bool(stale or self.rules or self.waiting or not all(one.stored for one in self.states)))


def run(arguments: argparse.Namespace) -> int:
    """Print the state of the goldens, or remove stale ones.

    Raises:
        RequestError: options that make no sense together, or no golden where one is named.
        GoldenError: no golden is of a variant that is named.
        OSError: a folder cannot be looked at.
    """
    if arguments.no_collect and (arguments.prune or arguments.variant):
        raise RequestError(_("--no-collect: --prune and --variant need the tests; leave it out"))
    if arguments.yes and not arguments.prune:
        raise RequestError(_("--yes: only with --prune"))
    if arguments.prune:
        return _prune(arguments)
    found = _status(arguments)
    present(arguments, lambda: _as_json(found), _lines(found, verbose=arguments.verbose))
    complain(map(spoken, found.unknown))
    return found.code


def _status(arguments: argparse.Namespace) -> _Status:
    found = _Status()
    paths = arguments.paths or [golden_folder(Path.cwd())]
    try:
        found.files = golden_files(paths)
    except RequestError as error:
        if arguments.paths:
            raise
        found.unknown.append(str(error))
    found.broken = [*faults(dict.fromkeys(found.files))]
    if arguments.no_collect:
        return found
    stock = None
    try:
        stock = _take_stock(arguments.variant, arguments.paths)
        found.census = stock.census
        found.rules, found.unjudged_rules = _idle_rules(stock)
    except RequestError as error:
        found.unknown.append(str(error))
    if found.census is not None:  # a file is in one list
        stale = {one.path.absolute() for one in found.census.stale}
        found.broken = [one for one in found.broken if one.path.absolute() not in stale]
    try:
        found.waiting, problems = _waiting(arguments)
        found.unknown += problems
    except ResultsError as error:
        found.unknown.append(str(error))
    if stock is not None:
        found.renamed = _renamed(stock, found.waiting or ())
    store = tensor_place(paths[0])
    if store.url:
        named, _unread = named_objects(path for path in found.files if path.suffix == SUFFIX)
        try:
            with progress(_("looking at the store")) as steps:
                found.states = look(named, store, steps)
            found.store = store
        except StoreError as error:
            found.unknown.append(str(error))
    return found


def _waiting(arguments: argparse.Namespace) -> tuple[list[Pending] | None, Sequence[str]]:
    """Return the runs that are pending review, None without results, and what of these cannot be read.

    Raises:
        ResultsError: there are no results where they are named, or they cannot be read.
    """
    place = last_results(arguments.results).path if arguments.results else last_if_any()
    if place is None:
        return None, []
    folder = ResultsFolder(place)
    results = folder.read()
    pending = pending_of(folder, results, terms_at(results.entries, arguments.root, None))
    return [one for one in pending if _is_below(one.path, arguments.paths)], results.problems


def _renamed(stock: _Stock, waiting: Sequence[Pending]) -> dict[Path, tuple[str, Path]]:
    """Return, by stale golden, the one test of the same tensors that has none, and its golden."""
    runs = [one for one in waiting if one.record is not None and one.path in stock.missing]
    old = {}
    for finding in stock.census.stale if runs else ():
        if finding.path.suffix == SUFFIX:
            with suppress(GoldenError):
                old[finding.path] = {*map(sanitise, read_golden(finding.path).table.keys)}
    found = {}
    for path, keys in old.items():
        alike = [
            one for one in runs if one.record is not None and {*map(sanitise, one.record.table.keys)} == keys
        ]
        alike = [one for one in alike if one.path.parent == path.parent] or alike
        rivals = [other for other, others in old.items() if others == keys and other.parent == path.parent]
        if len(alike) == len(rivals) == 1:
            found[path] = alike[0].entry.test, alike[0].path
    return found


def _is_below(path: Path, places: Sequence[Path]) -> bool:
    """Return whether a file is one of the places or below one; any is where there are none."""
    return not places or any(path.resolve().is_relative_to(place.resolve()) for place in places)


def _as_json(found: _Status) -> dict[str, Any]:
    known, store = found.census, found.store
    return {
        "files": len(found.files),
        "faults": [{"path": str(one.path), "reason": one.reason} for one in found.broken],
        "goldens": known and [{"path": str(one.path), "test": one.why} for one in known.used],
        "used": known and len(known.used),
        "stale": known and _findings_json(known.stale),
        "unjudged": known and _findings_json(known.unjudged),
        "rules": list(found.rules),
        "unjudged_rules": found.unjudged_rules or None,
        "pending": found.waiting and [*map(as_json, found.waiting)],
        "store": store
        and _store_json(found.states, store, sum(one.size for one in cached_objects(store.cache))),
        "unknown": found.unknown,
    }


def _lacking(states: Sequence[State]) -> Iterator[str]:
    """Yield a line for each tensor that the store lacks, with the way out."""
    for state in states:
        if state.stored:
            continue
        push_here = f"npudump golden remote push{' --replace' if state.problem else ''}"
        way_out = push_here if state.cached else "not cached here: push it where it is, or record it anew"
        yield f"{state.problem or 'not'} in the store: {state.named.words}: {way_out}"


def _store_json(states: Sequence[State], store: TensorStore, cached_bytes: int) -> dict[str, Any]:
    """Return a store and where the tensors are that goldens name in it, as plain JSON data."""
    return {
        "store": store.url,
        "cache": str(store.cache.folder),
        "cache_bytes": cached_bytes,
        "objects": [
            {
                "sha256": state.named.pointer.digest,
                "bytes": state.named.pointer.size,
                "golden": str(state.named.golden),
                "tensor": state.named.pointer.key,
                "tensors": state.named.tensors,
                "stored": state.stored,
                "cached": state.cached,
                "problem": state.problem or None,
            }
            for state in states
        ],
    }


def _findings_json(findings: Sequence[GoldenFinding]) -> list[dict[str, Any]]:
    return [{"path": str(finding.path), "why": finding.why} for finding in findings]


def _lines(found: _Status, *, verbose: bool) -> Iterator[str]:
    known = found.census
    if known is not None and verbose and known.used:
        yield from columns([(one.why, shown(one.path)) for one in known.used], (mark("test"), mark("golden")))
    yield from (spoken(one.reason) for one in found.broken)
    if known is not None:
        yield from _finding_lines(known.stale, _("no test reads (--prune --yes removes):"), found.renamed)
        told = {one.path.absolute() for one in found.broken}
        unjudged = [one for one in known.unjudged if one.path.absolute() not in told]
        yield from _finding_lines(unjudged, _("unknown whether a test reads (--prune leaves):"))
    yield from _rule_lines(found.rules)
    if found.unjudged_rules:
        yield _("unknown whether rules match: {why}").format(why=found.unjudged_rules)
    if found.waiting:
        yield from waiting_lines(found.waiting)
    yield from _lacking(found.states)
    yield _summary(found)


def _summary(found: _Status) -> str:
    bad, count = len({one.path for one in found.broken}), len(found.files)
    known = found.census if count else None
    used, stale, unjudged = map(len, (known.used, known.stale, known.unjudged) if known else ((), (), ()))
    rules, waiting = len(found.rules), len(found.waiting or ())
    absent = sum(not one.stored for one in found.states)
    told = (
        (count, _("{left} of {count} files valid").format(left=count - bad, count=count)),
        (not count, _("no golden file")),
        (known, ngettext("{used} golden in use", "{used} goldens in use", used).format(used=used)),
        (known, _("{stale} stale").format(stale=stale)),
        (unjudged, _("{count} unknown").format(count=unjudged)),
        (
            rules,
            ngettext("{count} rule matches nothing", "{count} rules match nothing", rules).format(
                count=rules
            ),
        ),
        (
            waiting,
            ngettext("{count} run pending review", "{count} runs pending review", waiting).format(
                count=waiting
            ),
        ),
        (
            absent,
            ngettext(
                "{count} golden tensor not in the store", "{count} golden tensors not in the store", absent
            ).format(count=absent),
        ),
        (found.unknown, _("the rest is unknown")),
    )
    return _("; ").join(words for there, words in told if there)


def _prune(arguments: argparse.Namespace) -> int:
    """Remove files that no test reads, or list them; 1 where some wait for ``--yes``, 2 where one stays."""
    stock = _take_stock(arguments.variant, arguments.paths)
    stale = stock.census.stale
    if not arguments.yes:
        waiting, _problems = _waiting(arguments)
        rules, _why = _idle_rules(stock)
        emit(_finding_lines(stale, _("would be removed with --yes:"), _renamed(stock, waiting or ())))
        emit(_rule_lines(rules))
        emit([] if stale or rules else [_("nothing is stale")])
        return 1 if stale or rules else 0
    removed = [*map(_removed, stale)]
    words = ngettext("{count} of {all} file removed", "{count} of {all} files removed", len(stale))
    emit([words.format(count=sum(removed), all=len(stale))])
    return 0 if all(removed) else 2


def _removed(finding: GoldenFinding) -> bool:
    try:
        finding.remove()
    except GoldenError as error:
        complain([error])
        return False
    emit([_("removed: {path}").format(path=shown(finding.path))])
    return True


def _finding_lines(
    findings: Sequence[GoldenFinding],
    heading: str,
    renamed: Mapping[Path, tuple[str, Path]] = MappingProxyType({}),
) -> Iterator[str]:
    """Yield a heading, a line for each file, and which test it may be of; nothing without files."""
    if findings:
        yield heading
    for finding in findings:
        why = finding.why.removeprefix(f"{finding.path}: ")
        yield f"  {shown(finding.path)}: {spoken(why)}"
        if finding.path in renamed:
            test, path = renamed[finding.path]
            yield "    " + _(
                "renamed? {test} has the same tensors and no golden; if it is the same test:"
            ).format(test=test)
            for suffix in (SUFFIX, TENSORS):
                if (file := finding.path.with_suffix(suffix)).exists():
                    yield f"    git mv {typed(shown(file), shown(path.with_suffix(suffix)))}"
            yield "    " + _('and write its name behind "test:" in that file')


def _rule_lines(rules: Sequence[str]) -> Iterator[str]:
    """Yield rules that match nothing, below a heading; nothing where there are none."""
    if rules:
        yield _("rules that match no tensor of any test:")
        yield from (f"  {rule}" for rule in rules)


@dataclass(frozen=True, slots=True)
class _Stock:
    """Tests collected, held against the golden files beside them.

    Attributes:
        census: of the goldens.
        tolerances: the file of rules that runs read; None without one.
        missing: tests that have no golden yet, by the file that it is to be.
    """

    census: Census
    tolerances: Path | None
    missing: Mapping[Path, str]


def _take_stock(variants: Sequence[str], paths: Sequence[Path]) -> _Stock:
    """Collect the tests of the current folder, and judge the files of their goldens.

    Args:
        variants: those that runs select, besides those that a common golden names; none for any.
        paths: files and folders that are asked about; none for all.

    Raises:
        RequestError: something cannot be collected: nothing is judged.
        OSError: a folder cannot be looked at.
    """
    told = collect("--npudump-owners-to", [])
    goldens = {Path(path): test for path, test in told["goldens"].items()}
    collection = Collection(
        *(Path(told["root"]), Path(told["rootdir"]), goldens),
        *(frozenset(told["files"]), frozenset(told["unclear"])),
    )
    expected = goldens.keys() - {Path(path) for path in told["without"]}
    missing = {path: test for path, test in goldens.items() if path in expected and not path.exists()}
    rules = Path(told["tolerances"]) if told["tolerances"] else None
    found = census(collection, variants)
    kept = (
        tuple(one for one in kind if _is_below(one.path, paths))
        for kind in (found.used, found.stale, found.unjudged)
    )
    return _Stock(Census(*kept), None if paths else rules, missing)


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
    rules, unread = tolerances.rules, [*stock.missing.values()]
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
        words = ngettext(
            "{count} rule matches no golden, and not every golden can be looked at: {missing}",
            "{count} rules match no golden, and not every golden can be looked at: {missing}",
            len(rules),
        )
        return (), words.format(count=len(rules), missing=first_of(unread, 3))
    return [f"{stock.tolerances}: {rule.describe()}" for rule in rules], ""


def _for_any_run(rule: Rule) -> Rule:
    """Return a rule for all operators and producers: a golden has no types, and one producer only."""
    return replace(rule, op_type=ANY, producer=())
