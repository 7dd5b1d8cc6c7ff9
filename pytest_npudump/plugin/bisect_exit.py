"""What a session means to ``git bisect run``: its exit code where ``--npudump-bisect`` is given.

git takes 0 for good, 1 to 127 for bad, but for 125, which skips the revision, and ends at anything above.
pytest's own codes 2 to 5 say that tests could not run, which is no verdict about a revision.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest

from pytest_npudump.language.inert import inert
from pytest_npudump.plugin.isolation.task import CHILD
from pytest_npudump.plugin.marker.marks import MARKER
from pytest_npudump.plugin.reported import ITEM_OF_REPORT

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from pytest_npudump.settings import Settings

GOOD, BAD, UNJUDGED, INTERRUPTED = 0, 1, 125, 130
"""Exit codes; git ends a bisection at the last."""

_WORDS = {GOOD: "good", BAD: "bad", UNJUDGED: "skip", INTERRUPTED: "ends the bisection"}
_NAME = "npudump-bisect"


class BisectExit:
    """Follows the tests of a session, and says with which code it ends.

    Attributes:
        started: whether there was a session: ``--help`` and the like have none.
    """

    def __init__(self, settings: Settings) -> None:
        self._fails_on_change = settings.fail_on == "change"
        self._differing: dict[str, str] = {}
        self._judged: set[str] = set()
        self._unjudged: dict[str, str] = {}
        self._interrupted = False
        self.started = False

    def pytest_sessionstart(self) -> None:
        """Remember that there is a session."""
        self.started = True

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note what became of a test: of one that another plugin repeats, the last run counts."""
        if MARKER not in report.keywords:
            return
        result: Mapping[str, Any] | None = vars(report).get("npudump")
        name = vars(report).get(ITEM_OF_REPORT, report.nodeid)
        if report.when == "setup":
            self._forget(name)
            if not report.passed:
                words = "skipped" if report.skipped else "its setup failed"
                self._unjudged[name] = f"{report.nodeid}: {words}"
        elif result is not None and not hasattr(report, "wasxfail"):
            self._note(name, result, report)

    def _forget(self, name: str) -> None:
        self._judged.discard(name)
        self._differing.pop(name, None)
        self._unjudged.pop(name, None)

    def _note(self, name: str, result: Mapping[str, Any], report: pytest.TestReport) -> None:
        test = result.get("test", report.nodeid)
        if result["status"] == "passed" and report.passed:
            self._judged.add(name)
        elif result.get("reproduced") is False:
            words = "it differs, and did not when it ran again"
            self._unjudged[name] = f"{test}: {words}"
        elif result["status"] == "failed" and self._differs(result):
            first = result.get("first") or result.get("operator") or "differs"
            self._differing[name] = f"{test}: {first}"
        else:
            words = "skipped" if report.skipped else _status(result)
            self._unjudged[name] = f"{test}: {words}"

    def _differs(self, result: Mapping[str, Any]) -> bool:
        """Whether values decided: a dump that cannot be read, say, fails a test and says nothing of them."""
        counts = ["fail", "missing", "extra", "findings", *(["changed"] if self._fails_on_change else [])]
        if any(result.get(name, 0) for name in counts):
            return True
        reference = result.get("reference")
        return reference is not None and not reference["good"]

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """Remember that a person has ended the session, which no further revision is to follow.

        What pytest ends by itself, as behind errors of the collection, and ``pytest.exit`` come here too.
        """
        error = excinfo.value
        self._interrupted = isinstance(error, KeyboardInterrupt) and not isinstance(
            error, pytest.Session.Interrupted
        )

    def code(self, exit_status: int) -> int:
        """Return the exit code in place of pytest's own."""
        if self._interrupted:
            return INTERRUPTED
        if self._differing:
            return BAD
        return GOOD if exit_status == pytest.ExitCode.OK and self._judged and not self._unjudged else UNJUDGED

    def why(self, exit_status: int) -> str:
        """Say in one line why it is that code."""
        code = self.code(exit_status)
        if code == INTERRUPTED:
            return "interrupted"
        if code == BAD:
            return f"{_first(self._differing)}; {len(self._differing)} of {self._count()} marked tests differ"
        if code == GOOD:
            return f"{len(self._judged)} marked tests judged, none differs"
        if self._unjudged:
            return (
                f"not judged: {_first(self._unjudged)}; {len(self._unjudged)} of {self._count()} marked tests"
            )
        if not self._judged:
            return "no marked test ran"
        return f"the marked tests pass, and pytest ends with {int(exit_status)}: something else failed"

    def _count(self) -> int:
        return len({*self._judged, *self._differing, *self._unjudged})


def with_bisect_code(config: pytest.Config) -> Generator[None, Any, Any]:
    """Wrap the whole of a session: its code becomes one for git, an error of usage included.

    Args:
        config: of the session, not configured yet.
    """
    if _is_followed_elsewhere(config):
        return (yield)
    try:
        status = yield
    except pytest.UsageError as error:
        for line in error.args:
            _say(f"ERROR: {line}")
        _announce(UNJUDGED, "pytest could not start")
        return UNJUDGED
    judge: BisectExit | None = config.pluginmanager.get_plugin(_NAME)
    if judge is None or not judge.started:
        return status
    code = judge.code(status)
    _announce(code, judge.why(status))
    return code


def skip_revision(error: BaseException) -> None:
    """End the process as one whose revision cannot be judged: a conftest of it cannot be loaded.

    Raises:
        SystemExit: always.
    """
    _say(f"ERROR: {error}")
    _announce(UNJUDGED, "a conftest file cannot be loaded")
    raise SystemExit(UNJUDGED)


def follow_tests(config: pytest.Config, settings: Settings) -> None:
    """Follow the tests of a session, unless another process does."""
    if not _is_followed_elsewhere(config):
        config.pluginmanager.register(BisectExit(settings), _NAME)


def _is_followed_elsewhere(config: pytest.Config) -> bool:
    """Whether this is a worker of xdist, or the process of one test."""
    return hasattr(config, "workerinput") or config.pluginmanager.has_plugin(CHILD)


def _first(tests: Mapping[str, str]) -> str:
    return next(iter(tests.values()))


def _status(result: Mapping[str, Any]) -> str:
    return "failed without a difference of values" if result["status"] == "failed" else str(result["status"])


def _announce(code: int, why: str) -> None:
    _say(f"npudump: bisect: exit code {code} ({_WORDS[code]}): {why}")


def _say(text: str) -> None:
    sys.stdout.flush()  # where both go to one file, this line is the last
    sys.stderr.write(f"{inert(text)}\n")
    sys.stderr.flush()
