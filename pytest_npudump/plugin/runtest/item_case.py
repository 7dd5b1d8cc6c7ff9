"""What this plugin keeps of a pytest item while its test runs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest

from pytest_npudump.compare.tolerances.rules import tolerances_for
from pytest_npudump.errors import NpudumpError
from pytest_npudump.explain.reference import Reference
from pytest_npudump.golden.stored_tensors import store_of
from pytest_npudump.golden.variants import Goldens
from pytest_npudump.plugin.marker.item import Identity, request_of
from pytest_npudump.plugin.paths import golden_root, keeps_results, results_path, started_with
from pytest_npudump.plugin.reported import ITEM_OF_REPORT
from pytest_npudump.plugin.terminal.progress import progress_of
from pytest_npudump.regression.case import Case, arguments_of
from pytest_npudump.regression.dataflow import source_names
from pytest_npudump.regression.session import CaseSession
from pytest_npudump.request import AUTO_LAYERS
from pytest_npudump.runtime.base import RearrangingRuntime
from pytest_npudump.scene import SCENES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from pytest_npudump.plugin.isolation.child import Child
    from pytest_npudump.plugin.paths import Paths
    from pytest_npudump.ranks.exchange import Exchange
    from pytest_npudump.request import DumpRequest
    from pytest_npudump.results.entry import Entry
    from pytest_npudump.results.kept import Kept
    from pytest_npudump.runtime.base import Runtime
    from pytest_npudump.runtime.remote import RemoteRuntime
    from pytest_npudump.settings import Settings


ITEM = pytest.StashKey[str]()
"""What tells the item from all others of the session, whatever node id they share."""
TEST: pytest.StashKey[CaseSession] = pytest.StashKey()
"""The record of the test's runs."""
OURS = pytest.StashKey[bool]()
"""Whether this plugin runs the test's protocol."""
ENDED = pytest.StashKey[bool]()
"""Whether a report of the call is the test's own: its body has ended, and no fixture is being torn down."""
RESULT = pytest.StashKey[dict[str, Any]]()
"""What the test came to, for its report."""

PARTS = pytest.StashKey[list[pytest.TestReport]]()
"""The reports of subtests in the run under way."""
EARLIER_PARTS = pytest.StashKey[list[pytest.TestReport]]()
"""The reports of subtests in a run that this plugin repeats: some come as its fixtures are torn down."""
REPORTS = pytest.StashKey[dict[str, pytest.TestReport]]()
"""The reports of the run under way, by phase: of a phase that is repeated the last one."""
KEPT: pytest.StashKey[Kept | None] = pytest.StashKey()
"""What is kept of the test beside its golden; None where nothing was judged."""
BAD = pytest.StashKey[str]()
"""The failure that the test has come to, as text: it stands, whoever runs the test's phases again."""


def number_items(session: pytest.Session, marked: Iterable[pytest.Item]) -> None:
    """Give each marked item what tells it from all others: its place in the session, and the worker."""
    worker: Any = getattr(session.config, "workerinput", {})
    places = {item: number for number, item in enumerate(session.items)}
    for item in marked:
        item.stash[ITEM] = f"{worker.get('workerid', '')}#{places[item]}"


def tell_item(item: pytest.Item, report: pytest.TestReport) -> None:
    """Have a report of a marked item say which one it is of."""
    if ITEM in item.stash:
        vars(report)[ITEM_OF_REPORT] = item.stash[ITEM]


def only_setup(item: pytest.Item) -> bool:
    """Whether the session sets fixtures up and runs no test."""
    return bool(item.config.getoption("setuponly", default=False))


def will_run_again(item: pytest.Item) -> bool:
    """Whether this plugin runs the test's protocol and is going to run the test once more."""
    test = item.stash.get(TEST, None)
    wanted = test is not None and test.wants_second_run
    return item.stash.get(OURS, False) and wanted and may_run_again(item)


def may_run_again(item: pytest.Item) -> bool:
    """Whether a second run is allowed: not for tests that may fail, nor in a session about to stop."""
    stopping = item.session.shouldfail or item.session.shouldstop
    return not stopping and item.get_closest_marker("xfail") is None


_FAILED: pytest.StashKey[Mapping[str, Entry]] = pytest.StashKey()
"""By golden file, relative to the folder of goldens, the runs of earlier sessions that differ from it."""


def past_sources(
    config: pytest.Config, settings: Settings, request: DumpRequest, golden: Path
) -> tuple[str, ...]:
    """Return the layers in which the kept run of a test begins to differ from its golden.

    Nothing where none was kept, or the golden is another one since.

    Args:
        config: of the session.
        settings: its options.
        request: what the test asks for.
        golden: its golden file.
    """
    if AUTO_LAYERS not in request.golden_tensors or not settings.approves:
        return ()
    if _FAILED not in config.stash:
        config.stash[_FAILED] = _failed(config, settings)
    entry = config.stash[_FAILED].get(golden.relative_to(golden_root(config, settings)).as_posix())
    return () if entry is None else _sources(config, settings, entry)


def _failed(config: pytest.Config, settings: Settings) -> Mapping[str, Entry]:
    from pytest_npudump.results.folder import ResultsFolder  # noqa: PLC0415 - few sessions need it

    try:
        if not keeps_results(config, settings):
            return {}
        entries = ResultsFolder(results_path(config, settings)).read().entries
    except (OSError, NpudumpError):  # there are none, or they are another version's
        return {}
    return {entry.golden_file: entry for entry in entries if entry.is_open}


def _sources(config: pytest.Config, settings: Settings, entry: Entry) -> tuple[str, ...]:
    from pytest_npudump.results.folder import ResultsFolder  # noqa: PLC0415 - as above
    from pytest_npudump.results.rejudge import Overrides, rejudge  # noqa: PLC0415 - the same

    terms = Overrides(config.rootpath, golden_root(config, settings))
    judged = rejudge(ResultsFolder(results_path(config, settings)), entry, terms)
    result, golden = judged.result, judged.golden
    if result is None or result.comparison is None:
        return ()
    if golden is None or golden.digest != entry.data["golden"]["sha256"]:
        return ()
    return source_names(result.comparison, result.sources)


@dataclass(frozen=True, slots=True)
class Context:
    """What all tests of a session share.

    Attributes:
        settings: the options.
        paths: where goldens and dumps lie.
        exchange: what the ranks of a distributed run tell each other by; None for a process of its own.
    """

    settings: Settings
    paths: Paths
    exchange: Exchange | None = None


def session_of(item: pytest.Item, runtime: Runtime, context: Context) -> CaseSession:
    """Return the session of a test that has not run yet, and runs in this process."""
    return CaseSession(_case(item, runtime, context))


def session_in_child(item: pytest.Item, runtime: Runtime, context: Context, child: Child) -> CaseSession:
    """Return the session of a test whose run this process is for, its earlier runs included."""
    child.producer(dict(runtime.producer()))
    case = _case(item, runtime, context, child.task.directory)
    rearranged = False
    if child.task.other_memory and isinstance(runtime, RearrangingRuntime):
        rearranged = runtime.rearrange_memory()
    if child.task.run == 0 and not rearranged:
        pytest.skip("npudump: only on a CPU are outputs looked for that nothing writes")
    session = CaseSession(replace(case, isolated=True, probing=child.task.run == 0, progress=None))
    if child.task.run > 1:
        session.resume(child.judged())
    return session


def session_in_parent(item: pytest.Item, runtime: RemoteRuntime, context: Context) -> CaseSession:
    """Return the session of a test that runs in processes of its own, for which ``runtime`` stands here."""
    return CaseSession(replace(_case(item, runtime, context), isolated=True))


def _case(item: pytest.Item, runtime: Runtime, context: Context, directory: Path | None = None) -> Case:
    settings, paths = context.settings, context.paths
    request = _with_option(request_of(item), settings)
    named = Identity.of(item)
    identity, file = str(named), named.test_file.as_posix()
    variant = settings.golden_variant
    root, here = item.config.rootpath, item.config.invocation_params.dir
    started = started_with(item.config)
    rules = root / settings.tolerances if settings.tolerances else None
    name_folder = paths.dumps if only_setup(item) else paths.claimed
    golden, special = paths.golden(item), paths.golden(item, variant) if variant else None
    return Case(
        nodeid=identity,
        arguments=arguments_of(identity, file, root, here, started),
        here=here,
        started=started,
        request=request,
        settings=settings,
        runtime=runtime,
        goldens=Goldens(identity, request, golden, special, store=store_of(settings, root), root=root),
        tolerances=tolerances_for(request, settings, root),
        progress=progress_of(item.config),
        reference=Reference.of(request, item.path.parent, rules, settings.numerics),
        graph=item.path.parent / request.graph if request.graph else None,
        exchange=context.exchange,
        past_sources=past_sources(item.config, settings, request, special or golden),
        # Last: what was refused before leaves no folder behind.
        directory=directory or name_folder(identity, request if runtime.name == "emulator" else None),
    )


def _with_option(request: DumpRequest, settings: Settings) -> DumpRequest:
    """Return a request with the tensors that the option has kept where the marker names none."""
    if settings.golden_tensors != AUTO_LAYERS or request.golden_tensors:
        return request
    takes = SCENES[request.scene].statistics
    return replace(request, golden_tensors=(AUTO_LAYERS,)) if takes else request
