"""The child's side: a pytest that runs one test once and tells its parent everything.

Started as ``python -c "from pytest_npudump.plugin.isolation.child import main; main()" TASK``.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_npudump.plugin import _compat
from pytest_npudump.plugin.isolation.task import CHILD, LINES, Task, indices_of
from pytest_npudump.plugin.marker.item import Identity
from pytest_npudump.plugin.marker.marks import is_marked
from pytest_npudump.runtime.programs import interrupt_on_termination, last_lines
from pytest_npudump.storage.mailbox import dump_bytes, load_bytes, post

if TYPE_CHECKING:
    import warnings
    from collections.abc import Generator, Mapping

    from pytest_npudump.regression.session import CaseSession
    from pytest_npudump.results.kept import Kept

_EMULATOR = "pytest_npudump.emulator"
"""What stands for a device, and belongs to one process."""


def main() -> None:
    """Run the task whose file the command line names, and exit as pytest does."""
    run_task(Path(sys.argv[1]))


def run_task(file: Path, descriptor: int | None = None) -> None:
    """Run a task in this process, which is for nothing else, and exit as pytest does.

    Args:
        file: of the task.
        descriptor: over which output is handed to the parent; None for the one that the task names.
    """
    task = Task.read(file)
    task = task if descriptor is None else replace(task, socket=descriptor)
    interrupt_on_termination(lambda: _keep_output(task))
    sys.path[:] = task.path
    # This package is imported before pytest could rewrite it, and filterwarnings may make that an error.
    filters = [*(task.options.get("pythonwarnings") or ()), "ignore:Module already imported"]
    config = pytest.Config.fromdictargs({**task.options, "pythonwarnings": filters}, [str(task.file)])
    if task.worker is not None:
        vars(config).update(workerinput=dict(task.worker), workeroutput={})
    config.pluginmanager.register(Child(task), CHILD)
    sys.exit(config.hook.pytest_cmdline_main(config=config))


def _keep_output(task: Task) -> None:
    """Pass on what pytest has captured of the phase under way, before it ends and throws that away."""
    with contextlib.suppress(OSError):  # nothing is captured
        post(task.mailbox, "output", [last_lines(os.dup(descriptor), LINES) for descriptor in (1, 2)])


class Child:
    """Chooses the one test, and passes on its reports and warnings.

    Attributes:
        task: what this process is for.
    """

    def __init__(self, task: Task) -> None:
        self.task = task
        self._handed_over = False

    def _post(self, kind: str, content: object) -> None:
        post(self.task.mailbox, kind, content)

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        """Keep pytest's own record of failures as it is: the parent writes it."""
        _compat.forget_earlier_failures(config)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> Generator[None]:
        """Choose the test, whatever other plugins make of a file that is collected alone."""
        mine = [item for item in items if self._is_mine(item)]
        self._post("collected", (len(mine), len(items)))
        result = yield
        items[:] = mine[:1]
        return result

    def _is_mine(self, item: pytest.Item) -> bool:
        return str(Identity.of(item)) == self.task.identity and indices_of(item) == self.task.indices

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Run nothing where the test carries no marker here: its parent would take that for a crash."""
        if session.items and not is_marked(session.items[0]):
            self._post("unmarked", True)  # noqa: FBT003 - a message's content
            session.items.clear()

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Pass on why nothing can be collected."""
        if report.failed:
            self._post("collection failed", report.longreprtext)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        """Say what is under way, should it be the last that is heard.

        Behind descriptors 1 and 2 is now what pytest captures to, which nobody could read after a crash. They
        are handed over once, however often a plugin sets the test up.
        """
        if not self._handed_over:
            self._handed_over = True
            with socket.socket(fileno=self.task.socket) as connection:
                socket.send_fds(connection, [b"."], [1, 2])
        self._post("phase", "setup")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_call(self) -> None:
        """Say what is under way."""
        self._post("phase", "body")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_teardown(self) -> None:
        """Say what is under way."""
        self._post("phase", "teardown")

    def called(self, test: CaseSession | None) -> None:
        """Hand over what the body came to, should the process not live to the end of the teardown."""
        if test is not None and test.judged is not None:
            self.task.called.write_bytes(dump_bytes(test.handed_over()))

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """Pass on ``pytest.exit()``, which ends the whole session."""
        if isinstance(excinfo.value, pytest.exit.Exception):
            self._post("exit", (str(excinfo.value.msg), excinfo.value.returncode))

    def concluded(self, test: CaseSession | None, kept: Kept | None, *, again: bool, bad: str) -> None:
        """Hand over what has become of the test, before its reports.

        Args:
            test: with its outcome, where it came to one; None where it never began.
            kept: what is kept of it; None where nothing was judged.
            again: whether a second run is to follow.
            bad: the failure that stands, whoever runs the test again; "" without one.
        """
        if test is not None and again:
            self.task.judged.write_bytes(dump_bytes(test.handed_over()))
        told = {"again": again, "done": test is None or test.done, "bad": bad, "kept": kept}
        self._post("concluded", told | {"recording": test.recording if test is not None else None})

    def judged(self) -> Mapping[str, Any]:
        """Return what the first run, in a process before this one, came to."""
        judged: Mapping[str, Any] = load_bytes(self.task.judged.read_bytes())
        return judged

    def producer(self, facts: dict[str, str]) -> None:
        """Hand over what is known of the runtime as soon as it is loaded, for a parent that may need it."""
        self._post("producer", facts)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Pass on a report, and what other plugins have attached to it."""
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self._post("report", _plain(data))

    def pytest_warning_recorded(
        self, warning_message: warnings.WarningMessage, when: str, nodeid: str, location: Any
    ) -> None:
        """Pass on a warning of the run; those of the collection were the parent's too."""
        if when == "runtest":
            category = warning_message.category
            words = (str(warning_message.message), category.__module__, category.__qualname__)
            self._post("warning", (words, warning_message.filename, warning_message.lineno, nodeid, location))

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Remember the configuration, whose hooks know how reports are passed on."""
        self._config = session.config

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, exitstatus: int) -> None:
        """Say what a child needs of this package, and that nothing is missing."""
        ours = [name for name in sys.modules if name.startswith("pytest_npudump.")]
        self._post("modules", [name for name in ours if not name.startswith(_EMULATOR)])
        self._post("end", int(exitstatus))


def _plain(value: object) -> Any:
    """Return ``value`` as builtin types; what is none, a property of some test's own type say, as text."""
    if isinstance(value, dict):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(_plain, value)) if type(value) in {list, tuple} else [*map(_plain, value)]
    kept = value is None or type(value) in {bool, int, float, str, bytes}
    return value if kept else str(value)
