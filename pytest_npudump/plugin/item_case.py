"""State of a pytest item while its test runs: earlier runs, case, runtime and devices."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pytest

from pytest_npudump.compare.tolerances.rules import tolerances_for
from pytest_npudump.errors import NpudumpError, said
from pytest_npudump.golden.stored_tensors import store_of
from pytest_npudump.golden.variants import Goldens, as_recorded
from pytest_npudump.plugin import _compat
from pytest_npudump.plugin.marker import Identity, request_of
from pytest_npudump.plugin.marks import is_marked
from pytest_npudump.plugin.paths import Paths, started_with
from pytest_npudump.plugin.reporter import ITEM_OF_REPORT
from pytest_npudump.plugin.terminal import progress_of
from pytest_npudump.ranks.rank import own_device
from pytest_npudump.regression.case import Case, arguments_of, names_of
from pytest_npudump.request import AUTO_LAYERS, DumpRequest
from pytest_npudump.runtime.registry import Choice, choose, load, provider_of, why_no_npu
from pytest_npudump.scene import SCENES
from pytest_npudump.settings import NPU_OR_SKIP, Settings

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from pytest_npudump.explain.reference import Reference
    from pytest_npudump.ranks.rank import Exchange
    from pytest_npudump.regression.session import CaseSession
    from pytest_npudump.results.serialisation import Kept
    from pytest_npudump.runtime.base import Runtime


EXCHANGE: pytest.StashKey[Exchange] = pytest.StashKey()
"""In the stash of the session: what the ranks of a distributed run tell each other by."""
ITEM = pytest.StashKey[str]()
"""Identity of the item in the session, whatever node id it shares."""
TEST: pytest.StashKey[CaseSession] = pytest.StashKey()
"""The record of the test's runs."""
OURS = pytest.StashKey[bool]()
"""True if this plugin runs the test's protocol."""
ENDED = pytest.StashKey[bool]()
"""True if a report of the call is the test's own: its body has ended, and no fixture is torn down."""
RESULT = pytest.StashKey[dict[str, Any]]()
"""Result of the test, for its report."""

PARTS = pytest.StashKey[list[pytest.TestReport]]()
"""The reports of subtests in the run under way."""
EARLIER_PARTS = pytest.StashKey[list[pytest.TestReport]]()
"""The reports of subtests in a run that this plugin repeats: some come as its fixtures are torn down."""
REPORTS = pytest.StashKey[dict[str, pytest.TestReport]]()
"""The reports of the run under way, by phase: of a phase that is repeated the last one."""
KEPT: pytest.StashKey[Kept | None] = pytest.StashKey()
"""Saved data of the test beside its golden; None where nothing was judged."""
BAD = pytest.StashKey[str]()
"""The failure that the test has come to, as text: it stands, whoever runs the test's phases again."""


def number_items(session: pytest.Session, marked: Iterable[pytest.Item]) -> None:
    """Give each marked item its identity: its place in the session, and the worker."""
    worker: Any = getattr(session.config, "workerinput", {})
    places = {item: number for number, item in enumerate(session.items)}
    for item in marked:
        item.stash[ITEM] = f"{worker.get('workerid', '')}#{places[item]}"


def tell_item(item: pytest.Item, report: pytest.TestReport) -> None:
    """Mark a report with its marked item."""
    if ITEM in item.stash:
        vars(report)[ITEM_OF_REPORT] = item.stash[ITEM]


def only_setup(item: pytest.Item) -> bool:
    """Return whether the session sets fixtures up and runs no test."""
    return bool(item.config.getoption("setuponly", default=False))


def will_run_again(item: pytest.Item) -> bool:
    """Return whether this plugin runs the test's protocol and is going to run the test once more."""
    test = item.stash.get(TEST, None)
    wanted = test is not None and test.wants_second_run
    return item.stash.get(OURS, False) and wanted and may_run_again(item)


def may_run_again(item: pytest.Item) -> bool:
    """Return whether a second run is allowed: not for tests that may fail, nor in a session about to stop."""
    stopping = item.session.shouldfail or item.session.shouldstop
    return not stopping and item.get_closest_marker("xfail") is None


def case_of(
    item: pytest.Item, runtime: Runtime, settings: Settings, paths: Paths, directory: Path | None = None
) -> Case:
    """Return the case of a test that is about to run.

    Args:
        item: the test.
        runtime: what runs its models.
        settings: the options that it runs under.
        paths: where goldens and dumps lie.
        directory: where its dumps go; None for a new folder.
    """
    request, config = _with_option(request_of(item), settings), item.config
    named = Identity.of(item)
    identity, file = str(named), named.test_file.as_posix()
    variant = settings.golden_variant
    root, here = config.rootpath, config.invocation_params.dir
    started = started_with(config)
    rules = root / settings.tolerances if settings.tolerances else None
    name_folder = paths.dumps if only_setup(item) else paths.claimed
    golden, special = paths.golden(item), paths.golden(item, variant) if variant else None
    request = as_recorded(request, special if special is not None and special.exists() else golden)
    reference: Reference | None = None
    if request.reference is not None:
        from pytest_npudump.explain.reference import Reference  # noqa: PLC0415 - for tests that have one

        reference = Reference.of(request, item.path.parent, rules, settings.bounds)
    past = config.hook.pytest_npudump_past_sources(request=request, golden=special or golden)
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
        progress=progress_of(config),
        reference=reference,
        graph=item.path.parent / request.graph if request.graph else None,
        exchange=config.stash.get(EXCHANGE, None),
        past_sources=past or (),
        names=names_of(request.reference_map if request.reference is None else None, item.path.parent),
        # Last: what was refused before leaves no folder behind.
        directory=directory or name_folder(identity, request if runtime.name == "emulator" else None),
    )


def _with_option(request: DumpRequest, settings: Settings) -> DumpRequest:
    """Return a request with the tensors that the option has kept where the marker names none."""
    if settings.golden_tensors != AUTO_LAYERS or request.golden_tensors:
        return request
    return replace(request, golden_tensors=(AUTO_LAYERS,)) if SCENES[request.scene].statistics else request


HELD_DEVICES = pytest.StashKey[tuple[int, ...]]()
"""Ids of the devices that are held for a test, by this process or its parent."""


def runtime_as_given(config: pytest.Config, settings: Settings) -> str:
    """Return the setting of a session's runtime, an option or a key; ``auto`` without one."""
    key, name = "npudump_runtime", settings.runtime
    if config.getoption(key) is not None:
        return f"--npudump-runtime={name}"
    if key in _compat.overrides(config):
        return f"-o {key}={name}"
    return name if name == "auto" else said("ini key {key} = {name}", key=key, name=name)


class SessionRuntime:
    """Runtime of a session's marked tests."""

    def __init__(self, config: pytest.Config, settings: Settings) -> None:
        self._settings = settings
        self._given = runtime_as_given(config, settings)
        self._loaded: Runtime | None = None
        self._modules: Runtime | None = None

    @cached_property
    def chosen(self) -> Choice:
        """Runtime, and why it was chosen.

        Raises:
            RuntimeUnavailableError: none can be chosen.
        """
        return choose(self._settings.runtime, self._given)

    def loaded(self, device: int, *, modules: bool = False) -> Runtime:
        """Return the runtime on a device, which stays that of the first call, or that of modules.

        Raises:
            RuntimeUnavailableError: the one chosen cannot work here.
        """
        if modules:
            self._modules = self._modules or provider_of("modules").load("scene='modules'", device)
            return self._modules
        if self._loaded is None:
            self._loaded = load(self.chosen, device)
        return self._loaded

    def why_skipped(self) -> str:
        """Return why marked tests are skipped: no NPU answers; "" where they are not."""
        return why_no_npu(self._given) if self._settings.runtime == NPU_OR_SKIP else ""

    @property
    def name(self) -> str:
        """The runtime's name; the wanted one's where none can be had."""
        try:
            return self.chosen.name
        except NpudumpError:
            return self._settings.runtime

    def announcement(self) -> str:
        """Return the line of the session's header."""
        try:
            if why := self.why_skipped():
                return said("npudump: marked tests are skipped: {why}", why=why)
            choice = self.chosen
        except NpudumpError as error:
            return said("npudump: no runtime: {error}", error=str(error))
        return said("npudump: runtime {name} ({why})", name=choice.name, why=choice.why)

    def close(self) -> None:
        """Give the device back."""
        if self._loaded is not None:
            self._loaded.close()


def is_of_modules(item: pytest.Item) -> bool:
    """Return whether a test's layers are modules by its marker, whatever runtime the session has."""
    try:
        return request_of(item).modules
    except NpudumpError:  # which the test fails with
        return False


def watch_models(item: pytest.Item, test: CaseSession) -> None:
    """Watch the models that fixtures of a test gave it, or hold, where its layers are modules.

    Raises:
        pytest.fail.Exception: a model has no module of a name.
    """
    if test.case.runtime.name != "modules":
        return
    from pytest_npudump.runtime.modules import models_in  # noqa: PLC0415 - where there are models

    given: dict[str, object] = getattr(item, "funcargs", {})
    models = models_in(given)
    several = len(models.keys() & given.keys()) > 1
    unknown: dict[str, str] | None = None
    for name, model in models.items():
        named = name if several or (name not in given and len(models) > 1) else ""
        try:
            found = test.attempt.watch_given(model, test.case.settings.dump_limit, named)
        except NpudumpError as error:
            raise pytest.fail.Exception(str(error), pytrace=False) from None
        unknown = found if unknown is None else {key: unknown[key] for key in unknown.keys() & found}
    for words in (unknown or {}).values():
        raise pytest.fail.Exception(words, pytrace=False)
    test.attempt.watch_strangers()


def number_of_devices(item: pytest.Item) -> int:
    """Count the devices of a test."""
    if is_marked(item):
        try:
            return request_of(item).devices
        except NpudumpError:  # which the test fails with
            return 0
    return int("npu_device" in getattr(item, "fixturenames", ()))


def devices_of(item: pytest.Item) -> tuple[int, ...]:
    """Return the ids of a test's devices, its process's own first."""
    if (held := item.stash.get(HELD_DEVICES, None)) is not None:
        return held
    own = own_device()
    return tuple(range(own, own + max(1, number_of_devices(item))))
