"""Saved results: a session's results of its marked tests for ``npudump check`` and ``npudump golden``.

Each test's are kept as it ends; trouble is told once and fails nothing. At the session's end earlier results
go, and cached golden tensors beyond ``npudump_tensor_cache_limit``.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from pytest_npudump.errors import NpudumpError, said
from pytest_npudump.golden.origin import revision
from pytest_npudump.golden.stored_tensors import store_of
from pytest_npudump.language.text import typed
from pytest_npudump.language.translation import ngettext
from pytest_npudump.plugin.conclusion import why_incomplete
from pytest_npudump.plugin.features import TENSOR_CACHE_LIMIT
from pytest_npudump.plugin.item_case import ITEM, KEPT, RESULT, only_setup
from pytest_npudump.plugin.marker import Identity, request_of
from pytest_npudump.plugin.marks import is_marked
from pytest_npudump.plugin.paths import golden_root, has_place, results_path
from pytest_npudump.plugin.reporter import CHILD, ITEM_OF_REPORT, Reporter
from pytest_npudump.regression.dataflow import source_names
from pytest_npudump.regression.result import RECORDED, UNCHANGED, Result
from pytest_npudump.report.verdicts import shown
from pytest_npudump.request import AUTO_LAYERS, DumpRequest
from pytest_npudump.results.folder import (
    FAILED,
    LAST,
    PASSED,
    SESSION,
    SKIPPED,
    VERSION,
    XFAILED,
    XPASSED,
    Entry,
    ResultsError,
    ResultsFolder,
    file_digest,
)
from pytest_npudump.results.serialisation import Kept, blank_line, keep, with_golden
from pytest_npudump.scene import SCENES
from pytest_npudump.settings import Settings, ci_variable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pytest

    from pytest_npudump.plugin.runner import Runner
    from pytest_npudump.regression.session import CaseSession


_UNKEPT = "npudump_results"
"""Attribute of a test's report that says why its result is not kept."""
_BEFORE, _BEHIND = 1, 5
"""Places of lines."""


class Keeper:
    """Keeps the results of a session's marked tests.

    Attributes:
        unkept: why the results of tests are not kept, by what tells a test from all others.
    """

    def __init__(self, config: pytest.Config, settings: Settings) -> None:
        self._config = config
        self._settings = settings
        self._place = partial(results_path, config, settings) if has_place(config, settings) else None
        self._named = bool(settings.output)
        self._folder: ResultsFolder | None = None
        worker: Any = getattr(config, "workerinput", {})
        self._session = str(worker.get("testrunuid") or uuid4().hex)
        self._failed = ""
        self._past: Mapping[str, Entry] | None = None
        self.unkept: dict[str, str] = {}

    def pytest_npudump_judged(self, item: pytest.Item, test: CaseSession, result: Result) -> None:
        """Keep the result of a run in memory."""
        if test.judged is not None and self._place is not None:
            root = golden_root(self._config, test.case.settings)
            told: dict[str, Any] = item.stash[RESULT]
            item.stash[KEPT] = keep(test.case, result, told, root)

    def pytest_npudump_ended(
        self, runner: Runner, item: pytest.Item, reports: Sequence[pytest.TestReport]
    ) -> None:
        """Keep the result of a test, behind its teardown."""
        if only_setup(item) or self._config.pluginmanager.has_plugin(CHILD):
            return
        kept = item.stash.get(KEPT, None)
        if KEPT in item.stash:
            del item.stash[KEPT]
        if not reports or self._place is None:
            return
        try:
            if not self._failed:
                self._keep(runner, item, reports, kept, self._place)
        except ResultsError as error:  # of the folder: another version's, or locked for a minute
            self._failed = str(error)
        except (OSError, NpudumpError) as error:  # the next test may have room
            vars(reports[-1])[_UNKEPT] = str(error)
        if self._failed:
            vars(reports[-1])[_UNKEPT] = self._failed

    def _keep(
        self,
        runner: Runner,
        item: pytest.Item,
        reports: Sequence[pytest.TestReport],
        kept: Kept | None,
        place: Callable[[], Path],
    ) -> None:
        # Complete the result of a test with facts known only at its end.
        identity, root = Identity.of(item), golden_root(self._config, self._settings)
        golden = runner.paths.golden(item, self._settings.golden_variant)
        if kept is None:
            file = golden.relative_to(root).as_posix()
            rank = runner.exchange.rank.number if runner.exchange is not None else None
            kept = Kept(blank_line(str(identity), request_of(item), self._settings, file, rank))
        told = [vars(report)["npudump"] for report in reports if "npudump" in vars(report)]
        status = told[-1]["status"] if told else kept.line["status"]
        recorded = status in {RECORDED, UNCHANGED} and SCENES[request_of(item).scene].statistics
        if recorded:
            kept = with_golden(kept, root / kept.line["golden"]["file"])
        outcome = _outcome(reports)
        incomplete = why_incomplete(item, reports, judged=recorded or kept.line["snapshot"] is not None)
        if incomplete is None and outcome in {XFAILED, XPASSED}:
            incomplete = said("the test is marked xfail")
        models, top = kept.line.get("models", {}), self._config.rootpath
        within = {path: Path(path).relative_to(top) for path in models if Path(path).is_relative_to(top)}
        failure, hand_over = kept.line.get("failure"), told[-1].get("hand_over", "") if told else ""
        line = {
            **kept.line,
            "session": self._session,
            "item": item.stash[ITEM],
            "status": status,
            "outcome": outcome,
            "incomplete": incomplete,
            "details": told[-1].get("details") if told else None,
            **({} if failure is None else {"failure": {**failure, "hand_over": hand_over}}),
            "test_file": {"path": identity.test_file.as_posix(), "sha256": file_digest(item.path)},
            **(
                {"models": {path.as_posix(): models[name] for name, path in within.items()}} if within else {}
            ),
            "revision": revision(self._config.rootpath),
        }
        kept = Kept(line, kept.records, kept.tensors)
        lines = [kept.line]
        if self._folder is None:
            marked, variant = filter(is_marked, item.session.items), self._settings.golden_variant
            count = len({runner.paths.golden(one, variant) for one in marked})
            lines.insert(0, {"version": VERSION, "kind": SESSION, "session": self._session, "tests": count})
        folder = self._folder or ResultsFolder(place())
        folder.add(lines, kept.records, kept.tensors)
        if self._folder is None and self._named:
            # Leave in pytest's cache where the last session's results lie, for commands without a folder.
            cache: Any = getattr(self._config, "cache", None)
            with suppress(OSError):
                if cache is not None:
                    (cache.mkdir("npudump") / LAST).write_text(str(place().resolve()), "utf-8")
        self._folder = folder

    def pytest_npudump_past_sources(self, request: DumpRequest, golden: Path) -> tuple[str, ...] | None:
        """Return the layers in which the kept run of a test begins to differ from its golden.

        Nothing where none was kept, or the golden is another one since.
        """
        if AUTO_LAYERS not in request.golden_tensors or not self._settings.approves or self._place is None:
            return None
        root = golden_root(self._config, self._settings)
        if self._past is None:
            self._past = {}
            with suppress(OSError, NpudumpError):  # there are none, or they are another version's
                entries = ResultsFolder(self._place()).read().entries
                self._past = {entry.golden_file: entry for entry in entries if entry.is_open}
        entry = self._past.get(golden.relative_to(root).as_posix())
        if entry is None:
            return None
        from pytest_npudump.results.rejudge import Overrides, rejudge  # noqa: PLC0415 - where accepted

        judged = rejudge(ResultsFolder(self._place()), entry, Overrides(self._config.rootpath, root))
        result, now = judged.result, judged.golden
        is_same = now is not None and now.digest == entry.data["golden"]["sha256"]
        if result is None or result.comparison is None or not is_same:
            return None
        return source_names(result.comparison, result.sources)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note why the result of a test is not saved."""
        told = vars(report)
        if _UNKEPT in told:
            self.unkept[told.get(ITEM_OF_REPORT, report.nodeid)] = told[_UNKEPT]

    def kept_tests(self, reporter: Reporter) -> set[str]:
        """Return the names of the tests whose results are kept."""
        told = reporter.tests.items()
        return {str(test.result.get("test", test.nodeid)) for item, test in told if item not in self.unkept}

    def unkept_line(self, reporter: Reporter) -> str:
        """Count the results that are not saved, with a reason; "" where all are."""
        if not self.unkept:
            return ""
        error, *_ = self.unkept.values()
        if not self.kept_tests(reporter):
            return said("results are not saved: {error}", error=str(error))
        count, total = len(self.unkept), len({*reporter.tests, *self.unkept})
        return said(
            "the results of {count} of {total} tests are not saved: {error}",
            count=count,
            total=total,
            error=str(error),
        )

    def pytest_npudump_session_end(self, reporter: Reporter) -> None:
        """Remove what is kept of earlier runs of the tests that ran, and report those pending review."""
        if self._settings.tensor_store and reporter.tests:
            from pytest_npudump.golden.objects import trim  # noqa: PLC0415 - where there is a store

            store = store_of(self._settings, self._config.rootpath)
            trim(store.cache, TENSOR_CACHE_LIMIT.of(self._settings))
        if line := self.unkept_line(reporter):
            reporter.say(line, _BEFORE)
        tests = self.kept_tests(reporter)
        if not tests or self._place is None:
            return
        try:
            folder = self._place()
            entries = ResultsFolder(folder).compact()
        except (OSError, NpudumpError) as error:
            reporter.say(
                said("results of earlier runs cannot be removed: {error}", error=str(error)), _BEFORE
            )
            return
        rank = reporter.rank.number if reporter.rank is not None else None
        here = (entry for entry in entries if entry.test in tests and entry.data["rank"] == rank)
        count = sum(entry.is_open and not entry.data["refusals"] for entry in here)
        # In CI pytest's cache goes with the machine, so that only a folder that was named is worth a word.
        if count and not (ci_variable() and not self._named):
            reporter.say(self._decision_line(count, folder), _BEHIND)

    def _decision_line(self, count: int, folder: Path) -> str:
        """Count the runs pending review, and name the command for it."""
        root, here = self._config.rootpath, self._config.invocation_params.dir
        below = here.is_relative_to(
            root
        )  # where the command finds the repository and pytest's cache by itself
        options = [] if below and not self._named else ["--results", shown(folder, here)]
        options += [] if below else ["--root", shown(root, here)]
        command = typed("npudump", "golden", "review", *options)
        return ngettext(
            "{count} run pending review: {command}", "{count} runs pending review: {command}", count
        ).format(count=count, command=command)


feature = Keeper


def _outcome(reports: Sequence[pytest.TestReport]) -> str:
    """Return pytest's outcome of the test."""
    if any(report.failed for report in reports):
        return FAILED
    if expected := [report for report in reports if hasattr(report, "wasxfail")]:
        return XFAILED if any(report.skipped for report in expected) else XPASSED
    return SKIPPED if any(report.skipped for report in reports) else PASSED
