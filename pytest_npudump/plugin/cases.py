"""From a pytest item to the record of its runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from pytest_npudump.compare.tolerances.of_test import tolerances_for
from pytest_npudump.golden.of_test import Goldens
from pytest_npudump.plugin.isolation.remote import RemoteRuntime
from pytest_npudump.plugin.marker.item import Identity, request_of
from pytest_npudump.plugin.terminal.progress import progress_of
from pytest_npudump.reference.reference import Reference
from pytest_npudump.regression.session import MarkedTest
from pytest_npudump.runtime.base import RearrangingRuntime

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_npudump.plugin.isolation.child import Child
    from pytest_npudump.plugin.places import Places
    from pytest_npudump.ranks.exchange import Exchange
    from pytest_npudump.runtime.base import Runtime
    from pytest_npudump.settings import Settings


@dataclass(frozen=True, slots=True)
class Context:
    """What all tests of a session share.

    Attributes:
        settings: the options.
        places: where goldens and dumps lie.
        exchange: what the ranks of a distributed run tell each other by; None for a process of its own.
    """

    settings: Settings
    places: Places
    exchange: Exchange | None = None


def marked_test(
    item: pytest.Item, runtime: Runtime, context: Context, directory: Path | None = None
) -> MarkedTest:
    """Return the record of a test that has not run yet.

    Args:
        item: the test.
        runtime: what runs its models.
        context: what it shares with the other tests.
        directory: where its dumps go; None for a new one.
    """
    settings, places = context.settings, context.places
    request = request_of(item)
    identity = str(Identity.of(item))
    variant = settings.golden_variant
    rules = item.config.rootpath / settings.tolerances if settings.tolerances else None
    return MarkedTest(
        nodeid=identity,
        request=request,
        settings=settings,
        runtime=runtime,
        goldens=Goldens(
            identity,
            request,
            places.golden(item),
            places.golden(item, variant) if variant else None,
        ),
        tolerances=tolerances_for(request, settings, item.config.rootpath),
        directory=directory or places.dumps(identity),
        progress=progress_of(item.config),
        reference=Reference.of(request, item.path.parent, rules),
        exchange=context.exchange,
    )


def record_in_child(item: pytest.Item, runtime: Runtime, context: Context, child: Child) -> MarkedTest:
    """Return the record of a test whose run this process is for, its earlier runs included."""
    child.producer(dict(runtime.producer()))
    test = marked_test(item, runtime, context, child.task.directory)
    test.isolated = True
    rearranged = False
    if child.task.other_memory and isinstance(runtime, RearrangingRuntime):
        rearranged = runtime.rearrange_memory()
    if child.task.run == 0 and not rearranged:
        pytest.skip("npudump: only on a CPU are outputs looked for that nothing writes")
    test.probing = child.task.run == 0
    if child.task.run > 1:
        test.adopt(child.judged())
    return test


def record_in_parent(item: pytest.Item, name: str, context: Context) -> MarkedTest:
    """Return the record of a test that runs in a process of its own, under the runtime called ``name``."""
    test = marked_test(item, RemoteRuntime(name), context)
    test.isolated = True
    return test
