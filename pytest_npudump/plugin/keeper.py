"""What a session keeps of its marked tests, as each of them ends; trouble is told once and fails nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import uuid4

from pytest_npudump.errors import NpudumpError
from pytest_npudump.plugin.marker.item import Identity, request_of
from pytest_npudump.plugin.paths import golden_root, keeps_results, results_path
from pytest_npudump.plugin.runtest.conclusion import why_incomplete
from pytest_npudump.plugin.runtest.item_case import ITEM, KEPT
from pytest_npudump.plugin.terminal.reporter import UNKEPT
from pytest_npudump.regression.result import RECORDED, UNCHANGED
from pytest_npudump.results.entry import (
    FAILED,
    PASSED,
    SESSION,
    SKIPPED,
    VERSION,
    XFAILED,
    XPASSED,
    ResultsError,
)
from pytest_npudump.scene import SCENES

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest

    from pytest_npudump.plugin.paths import Paths
    from pytest_npudump.results.folder import ResultsFolder
    from pytest_npudump.results.kept import Kept
    from pytest_npudump.settings import Settings


class Keeper:
    """Writes the results of a session's marked tests.

    Attributes:
        tests: the golden files of the tests that are to run, one a test.
    """

    def __init__(self, config: pytest.Config, settings: Settings, paths: Paths, rank: int | None) -> None:
        self._config = config
        self._settings = settings
        self._paths = paths
        self._rank = rank
        self._folder: ResultsFolder | None = None
        self._session = _session_name(config)
        self._failed = ""
        self.tests: frozenset[object] = frozenset()

    def keep(self, item: pytest.Item, reports: Sequence[pytest.TestReport]) -> None:
        """Keep what has become of a test, behind its teardown.

        Args:
            item: the test.
            reports: of its phases, not logged yet.
        """
        kept = item.stash.get(KEPT, None)
        if KEPT in item.stash:
            del item.stash[KEPT]
        if not reports or not keeps_results(self._config, self._settings):
            return
        try:
            if not self._failed:
                self._keep(item, reports, kept)
        except ResultsError as error:  # of the folder: another version's, or locked for a minute
            self._failed = str(error)
        except (OSError, NpudumpError) as error:  # the next test may have room
            vars(reports[-1])[UNKEPT] = str(error)
        if self._failed:
            vars(reports[-1])[UNKEPT] = self._failed

    def _keep(self, item: pytest.Item, reports: Sequence[pytest.TestReport], kept: Kept | None) -> None:
        from pytest_npudump.results.folder import ResultsFolder  # noqa: PLC0415 - with the first test that ended

        kept = self._complete(item, reports, kept)
        if self._folder is None:
            folder = ResultsFolder(results_path(self._config, self._settings))
            name, count = self._session, len(self.tests)
            session = {"version": VERSION, "kind": SESSION, "session": name, "tests": count}
            folder.add([session, kept.line], kept.records, kept.tensors)
            self._folder = folder
        else:
            self._folder.add([kept.line], kept.records, kept.tensors)

    def _complete(self, item: pytest.Item, reports: Sequence[pytest.TestReport], kept: Kept | None) -> Kept:
        """Return what is kept of a test, with what is known only once all of it has ended."""
        from pytest_npudump.golden.origin import revision  # noqa: PLC0415 - as above
        from pytest_npudump.results.entry import file_digest  # noqa: PLC0415 - the same
        from pytest_npudump.results.kept import Kept, blank_line, with_golden  # noqa: PLC0415 - as above

        identity, root = Identity.of(item), golden_root(self._config, self._settings)
        golden = self._paths.golden(item, self._settings.golden_variant)
        if kept is None:
            file = golden.relative_to(root).as_posix()
            kept = Kept(blank_line(str(identity), request_of(item), self._settings, file, self._rank))
        told = [vars(report)["npudump"] for report in reports if "npudump" in vars(report)]
        status = told[-1]["status"] if told else kept.line["status"]
        recorded = status in {RECORDED, UNCHANGED} and SCENES[request_of(item).scene].statistics
        if recorded:
            kept = with_golden(kept, root / kept.line["golden"]["file"])
        outcome = _outcome(reports)
        incomplete = why_incomplete(item, reports, judged=recorded or kept.line["snapshot"] is not None)
        if incomplete is None and outcome in {XFAILED, XPASSED}:
            incomplete = "the test is marked xfail"
        line = {
            **kept.line,
            "session": self._session,
            "item": item.stash[ITEM],
            "status": status,
            "outcome": outcome,
            "incomplete": incomplete,
            "details": told[-1].get("details") if told else None,
            "test_file": {"path": identity.test_file.as_posix(), "sha256": file_digest(item.path)},
            "revision": revision(self._config.rootpath),
        }
        return Kept(line, kept.records, kept.tensors)


def _session_name(config: pytest.Config) -> str:
    """Return what the processes of one session share, and no other session has."""
    worker: Any = getattr(config, "workerinput", {})
    return str(worker.get("testrunuid") or uuid4().hex)


def _outcome(reports: Sequence[pytest.TestReport]) -> str:
    """Return what pytest makes of the test."""
    if any(report.failed for report in reports):
        return FAILED
    expected = [report for report in reports if hasattr(report, "wasxfail")]
    if expected:
        return XFAILED if any(report.skipped for report in expected) else XPASSED
    return SKIPPED if any(report.skipped for report in reports) else PASSED
