"""From a pytest item to the record of its runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_npudump.goldens import Goldens
from pytest_npudump.isolation.remote import RemoteRuntime
from pytest_npudump.marked import Identity, request_of
from pytest_npudump.reference.reference import Reference
from pytest_npudump.report.progress import progress_of
from pytest_npudump.session import MarkedTest
from pytest_npudump.tolerating import tolerances_for

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from pytest_npudump.isolation.child import Child
    from pytest_npudump.options import Settings
    from pytest_npudump.places import Places
    from pytest_npudump.runtime.base import Runtime


def marked_test(
    item: pytest.Item, runtime: Runtime, *, settings: Settings, places: Places, directory: Path | None = None
) -> MarkedTest:
    """Return the record of a test that has not run yet.

    Args:
        item: the test.
        runtime: what runs its models.
        settings: the options of the session.
        places: where its golden and its dumps lie.
        directory: where its dumps go; None for a new one.
    """
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
    )


def record_in_child(
    item: pytest.Item, runtime: Runtime, child: Child, *, settings: Settings, places: Places
) -> MarkedTest:
    """Return the record of a test whose run this process is for, its earlier runs included."""
    child.producer(dict(runtime.producer()))
    test = marked_test(item, runtime, settings=settings, places=places, directory=child.task.directory)
    if child.task.run > 1:
        test.adopt(child.judged())
    return test


def record_in_parent(item: pytest.Item, name: str, *, settings: Settings, places: Places) -> MarkedTest:
    """Return the record of a test that runs in a process of its own, under the runtime called ``name``."""
    return marked_test(item, RemoteRuntime(name), settings=settings, places=places)
