"""The hooks pytest finds: options, marker, fixture, and the switch that brings in the rest.

Nothing heavy is imported here; :mod:`pytest_npudump.plugin.runner`, which runs marked tests, is registered
with the first marked test that is collected.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from pytest_npudump.errors import NpudumpError, RequestError, joined, said
from pytest_npudump.language import ENGLISH, chosen
from pytest_npudump.plugin.features import FEATURES, HookPoints, name_of, register_features
from pytest_npudump.plugin.marks import (
    MARKERS,
    for_all_spellings,
    is_marked,
    late_marker,
    marker_line,
    take_marks,
    unread_in_conftests,
    unread_marks,
)
from pytest_npudump.plugin.options import add_options, settings_of, shorten_help, usage_errors
from pytest_npudump.plugin.reporter import REPORTER, Reporter, reports_here
from pytest_npudump.settings import ALL, FAILED, NEW, NPU, Settings, ci_variable

if TYPE_CHECKING:
    from collections.abc import Generator

    from pytest_npudump.plugin.fixture import NpuDump
    from pytest_npudump.plugin.runner import Runner


SETTINGS = pytest.StashKey[Settings]()
_SAID = pytest.StashKey[bool]()
"""True if the report of a test's body, where it came to that, names a marker that came too late."""
_APPROVES = {
    ALL: said("this run writes the golden files and compares nothing with them"),
    FAILED: said("this run writes the golden files of tests that differ from them"),
    NEW: said("this run writes golden files that are missing; the others are compared"),
}
"""Effect of a run, by the mode of ``--npudump-update-golden``."""
_RUNNER = "npudump-runner"
_CHECKED = pytest.StashKey[bool]()
"""True if tolerances for all tests were checked."""
_WITH_TESTS = pytest.StashKey[bool]()
"""True if the features that only marked tests need are registered."""


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    """Add the hooks by which features take part."""
    pluginmanager.add_hookspecs(HookPoints)


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    """Add the options, and their ini keys."""
    add_options(parser, pluginmanager)


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker and resolve the options; refuse what would undermine a gate."""
    for name in MARKERS:
        config.addinivalue_line("markers", marker_line(name))
    with usage_errors(config):
        for name in (_RUNNER, REPORTER, *map(name_of, FEATURES)):
            if config.pluginmanager.is_blocked(name):
                raise RequestError(
                    said(
                        "-p no:{name} blocks a part of the plugin without which marked tests are "
                        "not compared, or not reported; leave it out. To do without the plugin use -p "
                        "no:npudump",
                        name=name,
                    )
                )
        config.stash[SETTINGS] = settings = settings_of(config)
        if settings.output:
            from pytest_npudump.plugin.paths import check_output  # noqa: PLC0415 - only where one is named

            check_output(config, settings)
        if reports_here(config):
            reporter = Reporter(config, settings, lambda: _bring_in_features(config))
            config.pluginmanager.register(reporter, REPORTER)
        register_features(config, settings, early=True)
        if settings.approves and not settings.allow_in_ci and (variable := ci_variable()):
            raise RequestError(
                said(
                    "{flag} is refused because the variable {variable} is set: a gate "
                    "must not accept what it checks. Update on a developer's machine and commit the "
                    "diff; to update in CI on purpose add -o npudump_allow_in_ci=true",
                    flag=settings.approval_flag,
                    variable=variable,
                )
            )
        if settings.reason and not settings.update_golden:
            raise RequestError(said("--npudump-reason needs --npudump-update-golden"))
        if settings.approves and config.getoption("dist", "no") == "each":
            raise RequestError(
                said(
                    "--dist=each runs a test in every worker, and an update writes one golden per "
                    "test: remove the update or --dist"
                )
            )
    if chosen(settings.lang) != ENGLISH:
        from pytest_npudump.plugin.terminal import Speaker  # noqa: PLC0415 - for another language

        config.pluginmanager.register(Speaker(settings.lang), "npudump-speaker")
    if config.getoption("help"):
        shorten_help(config)
    if settings.runtime == "emulator":
        from pytest_npudump.runtime.emulator import offer_emulator  # noqa: PLC0415 - only where chosen

        config.add_cleanup(offer_emulator())


def pytest_report_header(config: pytest.Config) -> list[str] | None:
    """Note that a run writes goldens, where it does."""
    settings = config.stash[SETTINGS]
    if not settings.approves:
        return None
    from pytest_npudump.language.translation import speaking, spoken  # noqa: PLC0415 - only where it accepts
    from pytest_npudump.plugin.terminal import fitted  # noqa: PLC0415 - the same

    if settings.update_golden:
        what: str = _APPROVES[settings.update_golden]
    else:
        what = said(
            "this run measures noise in {runs} runs of each test, and writes it into the golden files of "
            "tests that pass",
            runs=settings.calibrate,
        )
    with speaking(settings.lang):
        line = spoken(said("npudump: {flag}: {what}", flag=settings.approval_flag, what=what))
        return fitted(config.pluginmanager.get_plugin("terminalreporter"), line)


def pytest_sessionstart(session: pytest.Session) -> None:
    """End the run before its first test where an NPU is required and none answers."""
    settings = session.config.stash[SETTINGS]
    if settings.runtime == NPU and not hasattr(session.config, "workerinput"):
        from pytest_npudump.plugin.item_case import runtime_as_given  # noqa: PLC0415 - only where asked for
        from pytest_npudump.runtime.registry import require  # noqa: PLC0415 - only where asked for

        with usage_errors(session.config):
            require(runtime_as_given(session.config, settings))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Turn a marker's impossible request into a collection error."""
    report = yield
    marked = take_marks([node for node in report.result if isinstance(node, pytest.Item)])
    problems = [problem for _, problem in _problems(marked, collector.config)]
    problems += [
        said("{test}: {problem}", test=collector.nodeid, problem=unread)
        for unread in (unread_marks(collector, report.result) if report.passed else ())
    ]
    if problems:
        report.outcome = "failed"
        text = joined("\n", [said("npudump: {problem}", problem=problem) for problem in problems])
        report.longrepr = str.__str__(text)
        report.result = []
        from pytest_npudump.plugin.terminal import attach_spoken  # noqa: PLC0415 - for errors

        attach_spoken(report, text, collector.config.stash[SETTINGS].lang)
    elif marked:
        _bring_in_runner(collector.config)
    elif report.failed and "No module named 'acl'" in str(report.longrepr):
        report.sections.append(
            (
                "npudump",
                said("on a machine without an NPU, --npudump-runtime=emulator provides the module acl"),
            )
        )
    return report


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(config: pytest.Config) -> Generator[None]:
    """Have ``-m`` take both spellings of the marker for one: a gate that names either has to be whole."""
    given = config.getoption("markexpr", "")
    if not given:
        return (yield)
    config.option.markexpr = for_all_spellings(given)
    try:
        return (yield)
    finally:
        config.option.markexpr = given


@pytest.hookimpl(tryfirst=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Check and bring in what other plugins and conftest files have marked since, whatever hook they use."""
    for problem in unread_in_conftests(session.config):
        _end(session, problem, "conftest.py")
    for item, problem in _problems(take_marks(session.items), session.config):
        _refuse(item, problem, item.nodeid)
        session.items.remove(item)
    marked = list(filter(is_marked, session.items))
    if not marked:
        return
    from pytest_npudump.plugin.item_case import number_items  # noqa: PLC0415 - with the first marked test

    number_items(session, marked)
    for item, problem in _bring_in_runner(session.config).shared_goldens(marked):
        _end(item, problem, item.nodeid)


def _end(node: pytest.Item | pytest.Session, problem: str, name: str) -> None:
    """End the session for a problem; in a worker of xdist report an error of the collection."""
    if not hasattr(node.config, "workerinput"):
        with usage_errors(node.config):
            raise RequestError(problem)
    _refuse(node, problem, name)


def _refuse(node: pytest.Item | pytest.Session, problem: str, name: str) -> None:
    """Report an error of the collection: an exception in a worker of xdist would end in an internal one."""
    report = pytest.CollectReport(name, "failed", said("npudump: {problem}", problem=problem), [])
    node.ihook.pytest_collectreport(report=report)


def _problems(items: list[pytest.Item], config: pytest.Config) -> list[tuple[pytest.Item, str]]:
    if not items:
        return []
    _check_tolerances(config)
    from pytest_npudump.language.text import inert  # noqa: PLC0415 - with the first marked test
    from pytest_npudump.plugin.marker import check_item  # noqa: PLC0415 - the same

    found = ((item, check_item(item, config.stash[SETTINGS])) for item in items)
    told = [
        (item, said("{test}: {problem}", test=item.nodeid, problem=problem))
        for item, problem in found
        if problem
    ]
    return [(item, inert(text)) for item, text in told]


def _check_tolerances(config: pytest.Config) -> None:
    """End the run where its preset or its file of tolerances is wrong, for which no test is to blame."""
    settings = config.stash[SETTINGS]
    if _CHECKED in config.stash or not (settings.tolerances or settings.preset):
        return
    config.stash[_CHECKED] = True
    from pytest_npudump.compare.tolerances.rules import tolerances_for  # noqa: PLC0415 - where they are given
    from pytest_npudump.request import DumpRequest  # noqa: PLC0415 - the same

    with (
        suppress(NpudumpError) if hasattr(config, "workerinput") else usage_errors(config)
    ):  # each test says it
        tolerances_for(DumpRequest(), settings, config.rootpath)


@pytest.hookimpl(wrapper=True)
def pytest_report_to_serializable(
    report: pytest.CollectReport | pytest.TestReport,
) -> Generator[None, dict[str, Any] | None, dict[str, Any] | None]:
    """Have a report that goes to another process carry the templates of its messages."""
    data = yield
    if data is None or (
        report.passed and not any(name in getattr(report, "keywords", ()) for name in MARKERS)
    ):
        return data
    from pytest_npudump.language.translation import carried  # noqa: PLC0415 - for what is ours, or has failed

    return {name: _encodable(value) for name, value in carried(data).items()}


def _encodable(value: Any) -> Any:
    """Return data with names of files that are no UTF-8 escaped, of which pytest-xdist sends none."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {_encodable(name): _encodable(one) for name, one in value.items()}
    return type(value)(map(_encodable, value)) if type(value) in {list, tuple} else value


@pytest.hookimpl(wrapper=True)
def pytest_report_from_serializable(data: dict[str, Any]) -> Generator[None, Any, Any]:
    """Bring the templates back."""
    if "messages" in data:
        from pytest_npudump.language.translation import restored  # noqa: PLC0415 - where there are any

        again = restored(data)
        data.clear()
        data.update(again)
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Fail a test whose marker came too late, which would pass without a comparison."""
    item.stash[_SAID] = True
    result = yield
    text = late_marker(item)
    item.stash[_SAID] = bool(text)
    if text:
        pytest.fail(said("npudump: {text}", text=text), pytrace=False)
    return result


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, Any, Any]:
    """Fail a test that was marked behind its body; what its body's phase has said is not said again."""
    result = yield
    if item.stash.get(_SAID, None) is False and (text := late_marker(item)):
        pytest.fail(said("npudump: {text}", text=text), pytrace=False)
    return result


def _bring_in_runner(config: pytest.Config) -> Runner:
    runner: Runner | None = config.pluginmanager.get_plugin(_RUNNER)
    if runner is None:
        from pytest_npudump.plugin.runner import Runner  # noqa: PLC0415 - with the first marked test

        _bring_in_features(config)
        runner = Runner(config, config.stash[SETTINGS])
        config.pluginmanager.register(runner, _RUNNER)
    return runner


def _bring_in_features(config: pytest.Config) -> None:
    if _WITH_TESTS not in config.stash:
        config.stash[_WITH_TESTS] = True
        with usage_errors(config):
            register_features(config, config.stash[SETTINGS], early=False)


@pytest.fixture
def npu_dump(request: pytest.FixtureRequest) -> NpuDump:
    """Give the test hold of the dump around it: load_model, config, config_path, capture, records."""
    from pytest_npudump.plugin.fixture import without_marker  # noqa: PLC0415 - only for marked tests

    runner: Any = request.config.pluginmanager.get_plugin(_RUNNER)
    if runner is None or not is_marked(request.node):
        text = late_marker(request.node) or without_marker(request.node.nodeid)
        pytest.fail(said("npudump: {text}", text=text), pytrace=False)
    fixture: NpuDump = runner.fixture_for(request.node)
    return fixture


@pytest.fixture(scope="session")
def npu_device() -> int:
    """Give the id of the NPU that this process has: with ``npudump_devices`` one of the pool."""
    from pytest_npudump.ranks.rank import own_device  # noqa: PLC0415 - only where asked for

    try:
        return own_device()
    except NpudumpError as error:
        pytest.fail(said("npudump: {error}", error=str(error)), pytrace=False)
