"""Every private name of pytest that this plugin uses; checked on pytest 7.4, 8.4 and 9.2.

pytest has no public way to run a test twice within its protocol.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from inspect import signature
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from _pytest.compat import NOTSET
from _pytest.runner import call_and_report, show_test_item
from _pytest.skipping import evaluate_skip_marks, evaluate_xfail_marks

_show: Any = show_test_item
_SHOW_ARGUMENTS = {"add_space": True} if "add_space" in signature(_show).parameters else {}


def has_fixture(item: pytest.Item, name: str) -> bool:
    """Return whether a fixture that a test asks for is defined, or pytest does not tell."""
    info: Any = getattr(item, "_fixtureinfo", None)
    return info is None or name in info.name2fixturedefs


def begin_attempt(item: pytest.Item, properties: Sequence[tuple[str, object]]) -> None:
    """Make ``item`` as it was before its first run: new fixtures, new instance, nothing captured.

    Args:
        item: the test.
        properties: its ``user_properties`` before the first run.
    """
    function: Any = item
    if hasattr(function, "_request") and not function._request:  # noqa: SLF001 - see the module's docstring
        function._initrequest()  # noqa: SLF001 - the same
        if getattr(function, "cls", None) is not None:
            function.__dict__.pop("_instance", None)
            function._obj = None  # noqa: SLF001 - pytest looks it up again on the new instance
    item._report_sections.clear()  # noqa: SLF001 - the same
    item.user_properties[:] = properties


def end_attempt(item: pytest.Item) -> None:
    """Drop the fixtures' values once their teardown has been reported."""
    function: Any = item
    if hasattr(function, "_request"):
        function._request = False  # noqa: SLF001 - what pytest's own runtestprotocol does
        function.funcargs = None


def run_phase(item: pytest.Item, when: str, **arguments: Any) -> pytest.TestReport:
    """Run one phase and return its report without logging it."""
    return call_and_report(item, when, log=False, **arguments)  # type: ignore[arg-type]


def summary_columns(reporter: Any) -> tuple[int, bool]:
    """Return the columns of the terminal of pytest's reporter, and whether it has colours."""
    writer = reporter._tw  # noqa: SLF001 - see the module's docstring
    return writer.fullwidth, writer.hasmarkup


def shown_test(config: Any, report: pytest.CollectReport | pytest.TestReport) -> str:
    """Return the name of a report's test as pytest shows it, relative to where pytest was started."""
    return str(config.cwd_relative_nodeid(getattr(report, "id", report.nodeid)))  # text before pytest 9.2


def show_setup(item: pytest.Item) -> None:
    """Print the line that ``--setup-show`` prints for a test that ran."""
    _show(item, **_SHOW_ARGUMENTS)


def failed_outside_of_the_call(item: pytest.Item) -> bool:
    """Return whether a ``unittest.TestCase`` has put aside a failure that its body did not raise."""
    return bool(getattr(item, "_excinfo", None))


def forget_failure(item: pytest.Item) -> None:
    """Drop the failure a ``unittest.TestCase`` has put aside, so that another one is reported."""
    if hasattr(item, "_excinfo"):
        vars(item)["_excinfo"] = None


def ids_of_parameters(callspec: Any) -> list[str]:
    """Return the ids of a test's parameters, in the order of their names; some may be hidden."""
    return list(callspec._idlist)  # noqa: SLF001 - see the module's docstring


def may_be_skipped(item: pytest.Item) -> bool:
    """Return whether a skip mark keeps the test from running, or is wrong, which its setup will report."""
    try:
        return evaluate_skip_marks(item) is not None
    except (Exception, pytest.fail.Exception):  # noqa: BLE001 - a condition is the user's code
        return True


def expect_failure(item: pytest.Item, report: pytest.TestReport) -> None:
    """Turn a failure into an expected one where an xfail mark without ``raises`` applies to the test."""
    try:
        mark = None if item.config.getoption("runxfail") else evaluate_xfail_marks(item)
    except (Exception, pytest.fail.Exception):  # noqa: BLE001 - a condition is the user's code
        return
    if mark is not None and mark.raises is None and report.failed:
        report.outcome = "skipped"
        vars(report)["wasxfail"] = mark.reason


def leave_nodes(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """End the fixtures of classes, modules and packages that ``nextitem`` is not in.

    For a test that ran elsewhere: pytest leaves the nodes of one test as it tears down the one before.
    """
    item.session._setupstate.teardown_exact(nextitem)  # noqa: SLF001 - see the module's docstring


def forget_earlier_failures(config: pytest.Config) -> None:
    """Keep a child's session from choosing tests by the cache of failures, and from rewriting that cache."""
    for name in ("lfplugin", "nfplugin", "stepwise", "stepwiseplugin"):
        if config.pluginmanager.has_plugin(name):
            config.pluginmanager.unregister(name=name)


def folder_for_a_child(config: pytest.Config) -> Path:
    """Return a folder that does not exist yet, for the temporary folders of a child's session."""
    base = base_temp(config)
    return next(path for number in count(1) if not (path := base / f"isolated-{number}").exists())


def was_narrowed(config: pytest.Config) -> bool:
    """Return whether arguments, expressions or earlier failures narrow a session's tests."""
    option = config.option
    named = getattr(getattr(config, "args_source", None), "name", "ARGS") == "ARGS"
    chosen = option.keyword or option.markexpr or getattr(option, "deselect", None)
    earlier = getattr(option, "lf", False) or getattr(option, "stepwise", False)
    return bool(named or chosen or earlier or option.maxfail)


def base_temp(config: pytest.Config) -> Path:
    """Return the folder below which pytest makes temporary folders in this session."""
    factory: Any = config._tmp_path_factory  # type: ignore[attr-defined]  # noqa: SLF001 - no fixture here
    return Path(factory.getbasetemp())


def has_no_case(item: pytest.Item) -> bool:
    """Return whether this is pytest's item for an empty set of parameters; its name differs by release."""
    parameters = item.callspec.params.values() if hasattr(item, "callspec") else ()
    return any(value is NOTSET for value in parameters)


def overrides(config: pytest.Config) -> dict[str, str]:
    """Return the ini keys that are given with ``-o``, wherever that stands; the last of a key counts."""
    given = config.getoption("override_ini", None) or ()
    return dict(word.split("=", 1) for word in given if "=" in word)


def unknown_keys(config: pytest.Config, prefix: str) -> list[str]:
    """Return the given ini keys of this prefix, in a file or with ``-o``, that are unknown.

    pytest only warns of them, and versions before 9 say nothing of ``-o``.
    """
    read: Any = config._inicfg if hasattr(config, "_inicfg") else config.inicfg  # noqa: SLF001 - the second is deprecated
    found = [key for key in (*read, *overrides(config)) if key.replace("-", "_").startswith(prefix)]
    known = (config._parser._inidict, getattr(config._parser, "_ini_aliases", ())) if found else ()  # noqa: SLF001 - see the module's docstring
    return [key for key in dict.fromkeys(found) if not any(key in keys for keys in known)]


def show_ini_keys_as_one(config: pytest.Config, keys: Collection[str], name: str, words: str) -> None:
    """Have ``--help``, before which this is called, show one entry in place of many ini keys.

    pytest refuses a key without a help, and knows none that is hidden. Versions up to 8 list the names apart.
    """
    parser: Any = config._parser  # noqa: SLF001 - see the module's docstring
    parser.addini(name, words)
    known = getattr(parser, "_ininames", parser._inidict)  # noqa: SLF001 - the same
    for key in keys:
        if isinstance(known, dict):
            known.pop(key, None)
        elif key in known:
            known.remove(key)
