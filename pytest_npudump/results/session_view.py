"""View of saved results for a page: judged again by their own terms, with facts of the dumps."""

from __future__ import annotations

from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_npudump.compare.stats.verdict import EXTRA, FAIL, MISSING
from pytest_npudump.errors import NpudumpError
from pytest_npudump.language.translation import gettext as _, spoken
from pytest_npudump.record.edges import Edges
from pytest_npudump.regression import result as status
from pytest_npudump.regression.dataflow import edges_of
from pytest_npudump.report.origins import source_operators
from pytest_npudump.report.terminal import full_lines, headline, ways_out
from pytest_npudump.report.verdicts import shown
from pytest_npudump.report.view import (
    BAD,
    GOOD,
    LEFT_OUT,
    OPEN,
    SessionView,
    TestView,
    counted_once,
    neighbourhoods,
    read_elements,
    tensor_views,
)
from pytest_npudump.results.folder import FAILED, SKIPPED, XFAILED, Entry, ResultsFolder
from pytest_npudump.results.rejudge import Overrides, Rejudged, other_goldens, rejudge

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from pytest_npudump.record.record import Record
    from pytest_npudump.regression.result import Result


_ORDER = (BAD, OPEN, GOOD, LEFT_OUT)


def session_view(
    folder: ResultsFolder, entries: Iterable[Entry], terms: Overrides, problems: Iterable[str] = ()
) -> SessionView:
    """Return the view of saved results; failed ones come first."""
    judged = [rejudge(folder, entry, terms) for entry in entries]
    ordered = sorted(map(_test, judged), key=lambda test: (_ORDER.index(test.word), not test.tensors))
    return SessionView(tuple(ordered), (*other_goldens(judged), *problems), version("pytest-npudump"))


def _test(judged: Rejudged) -> TestView:
    """Return one test, judged again; the outcome of its run stands unless its golden has changed since."""
    entry, result, golden = judged.entry, judged.result, judged.golden
    data, anew = entry.data, judged.of_another_golden
    word, since, failure = _word(entry), "", judged.failure
    told: dict[str, Any] = {}
    notes = [*data["notes"]]
    if judged.why and not judged.why.startswith("verdict taken from the run"):
        notes.append(judged.why)
    if result is not None and result.comparison is not None:
        told = _compared(result, golden)
    if anew:
        words = _(
            "The golden file differs from that of the run, whose outcome was: {status}. This verdict "
            "compares the saved run with the current file."
        )
        since = words.format(status=_(entry.status))
        word = judged.word if judged.word in _ORDER else OPEN
    elif word != GOOD:
        told["elements"], problem = _elements(entry)
        notes += [problem] if problem else []
    before = golden.facts if golden is not None else {}
    actual = {str(fact): str(value) for fact, value in data["producer"].items()}
    whose = data["part"] or ("" if data["rank"] is None else _("rank {rank}").format(rank=data["rank"]))
    preset, numerics = data["tolerances"]["preset"], (data["numerics"] or {}).get("bounds", "")
    first = failure[0] if failure else ""
    if not first and result is not None and not result.good:
        first = headline(result).removeprefix("npudump: ")
    problems = result.problems if anew and result is not None else data["problems"]
    fallback = next(iter(problems), "") or (judged.why if anew else str(data["incomplete"] or ""))
    why = tuple(map(str, failure[1:])) if word != GOOD else ()
    text = tuple(map(spoken, problems))
    if result is not None and word != GOOD and (first or not result.good):
        text = tuple(full_lines(result, (first, *why)))
    return TestView(
        name=f"{entry.test} ({whose})" if whose else entry.test,
        word=word,
        status=judged.told()["status"] if anew else entry.status,
        runtime=str(data["runtime"]),
        headline="" if word == GOOD else first or fallback,
        why=why,
        hand_over=data["failure"].get("hand_over", "") if failure and word != GOOD else "",
        ways_out=tuple(ways_out(result)) if result is not None and word != GOOD else (),
        text=text,
        notes=tuple(dict.fromkeys(map(str, notes))),
        since=since,
        golden=str(data["golden"]["judged_with"] or data["golden"]["file"]),
        preset=str(numerics if numerics and preset == "default" else preset),
        when=str(data["time"]),
        producers=tuple((fact, before.get(fact), actual.get(fact)) for fact in {**before, **actual}),
        **told,
    )


def _word(entry: Entry) -> str:
    if entry.data["outcome"] in {SKIPPED, XFAILED}:
        return LEFT_OUT
    if entry.status in status.GOOD:
        return BAD if entry.data["outcome"] == FAILED else GOOD
    return BAD if entry.status in {status.FAILED, status.MISSING_GOLDEN} or entry.data["problems"] else OPEN


def _compared(result: Result, golden: Record | None) -> dict[str, Any]:
    """Return tensors, sources and the graph around these."""
    comparison = result.comparison
    assert comparison is not None  # noqa: S101 - checked by the caller
    found = source_operators(result.sources) if result.sources is not None else []
    unpaired = {
        name: one.key
        for one in comparison.failing
        if one.status in {EXTRA, MISSING}
        for name in one.key.operator_names
    }
    keys = [unpaired.get(source.altered, source.key) for source, _count in found]
    if not keys and comparison.first is not None and comparison.first.status == FAIL:
        keys = [comparison.first.key]
    tensors = tensor_views(comparison, comparison.tolerances, frozenset(keys))
    edges = Edges()
    with suppress(NpudumpError):  # a note of the judgement says so
        edges = edges_of(golden) if keys and golden is not None else edges
    around = neighbourhoods(comparison, edges, tensors, keys)
    once = counted_once(tensors, comparison)
    return {"tensors": once, "sources": tuple(map(str, keys)), "neighbourhoods": around}


def _elements(entry: Entry) -> tuple[Any, str]:
    details = entry.data["details"]
    if not details:
        return (), ""
    found, problem = read_elements(Path(str(details)).with_name("report.json"), entry.test)
    telling = tuple(one for one in found if one.measures or one.pattern or one.reproduced is False)
    return telling, problem.replace(str(details), shown(Path(str(details))))


def view_of_tests(
    folder: ResultsFolder, tests: Collection[str], terms: Overrides, problems: Sequence[str] = ()
) -> SessionView:
    """Return the view of one session's tests, of all those in a folder.

    Raises:
        ResultsError: results cannot be read.
    """
    results = folder.read()
    entries = [entry for entry in results.entries if entry.test in tests]
    return session_view(folder, entries, terms, (*problems, *results.problems))
