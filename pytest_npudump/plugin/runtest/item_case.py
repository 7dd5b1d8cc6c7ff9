"""From a pytest item to the case that it is, and the session of its runs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pytest

from pytest_npudump.compare.tolerances.rules import tolerances_for
from pytest_npudump.explain.reference import Reference
from pytest_npudump.golden.objects.tensor_store import store_of
from pytest_npudump.golden.variants import Goldens
from pytest_npudump.plugin.marker.item import Identity, request_of
from pytest_npudump.plugin.paths import started_with
from pytest_npudump.plugin.runtest.item_state import only_setup
from pytest_npudump.plugin.runtest.past_failures import past_sources
from pytest_npudump.plugin.terminal.progress import progress_of
from pytest_npudump.regression.case import Case, arguments_of
from pytest_npudump.regression.session import CaseSession
from pytest_npudump.request import AUTO_LAYERS
from pytest_npudump.runtime.base import RearrangingRuntime
from pytest_npudump.scene import SCENES

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_npudump.plugin.isolation.child import Child
    from pytest_npudump.plugin.paths import Paths
    from pytest_npudump.ranks.exchange import Exchange
    from pytest_npudump.request import DumpRequest
    from pytest_npudump.runtime.base import Runtime
    from pytest_npudump.runtime.remote import RemoteRuntime
    from pytest_npudump.settings import Settings


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
