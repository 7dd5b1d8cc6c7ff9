"""Every private name of pytest that this plugin uses; checked on pytest 7.4, 8.4 and 9.2.

pytest has no public way to run a test twice within its protocol.
"""

from __future__ import annotations

from inspect import signature
from typing import TYPE_CHECKING, Any

from _pytest.runner import call_and_report, show_test_item

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import pytest

_show: Any = show_test_item
_SHOW_ARGUMENTS = {"add_space": True} if "add_space" in signature(_show).parameters else {}


def begin_attempt(item: pytest.Item, properties: Sequence[tuple[str, object]]) -> None:
    """Make ``item`` as it was before its first run: new fixtures, new instance, nothing captured.

    Args:
        item: the test.
        properties: its ``user_properties`` before the first run.
    """
    function: Any = item
    if hasattr(function, "_request") and not function._request:  # noqa: SLF001 - see the module's docstring
        function._initrequest()  # noqa: SLF001 - the same
        _forget_instance(function)
    item._report_sections.clear()  # noqa: SLF001 - the same
    item.user_properties[:] = properties


def _forget_instance(function: Any) -> None:
    if getattr(function, "cls", None) is not None:
        function.__dict__.pop("_instance", None)
        function._obj = None  # noqa: SLF001 - pytest looks it up again on the new instance


def end_attempt(item: pytest.Item) -> None:
    """Drop the fixtures' values once their teardown has been reported."""
    function: Any = item
    if hasattr(function, "_request"):
        function._request = False  # noqa: SLF001 - what pytest's own runtestprotocol does
        function.funcargs = None


def run_phase(item: pytest.Item, when: str, **arguments: Any) -> pytest.TestReport:
    """Run one phase and return its report without logging it."""
    return call_and_report(item, when, log=False, **arguments)  # type: ignore[arg-type]


def show_setup(item: pytest.Item) -> None:
    """Print the line that ``--setup-show`` prints for a test that ran."""
    _show(item, **_SHOW_ARGUMENTS)


def failed_outside_of_the_call(item: pytest.Item) -> bool:
    """Whether a ``unittest.TestCase`` has put aside a failure that its body did not raise."""
    return bool(getattr(item, "_excinfo", None))


def forget_failure(item: pytest.Item) -> None:
    """Drop the failure a ``unittest.TestCase`` has put aside, so that another one is reported."""
    if hasattr(item, "_excinfo"):
        vars(item)["_excinfo"] = None


def base_temp(config: pytest.Config) -> Path:
    """Return the folder below which pytest makes temporary folders in this session."""
    factory: Any = config._tmp_path_factory  # type: ignore[attr-defined]  # noqa: SLF001 - no fixture here
    path: Path = factory.getbasetemp()
    return path
