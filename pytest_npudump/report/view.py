"""View of a session for pages, pictures and notebooks, as data: made once, put into words by each medium."""

from __future__ import annotations

import base64
import binascii
import math
import re
from collections import defaultdict
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from pytest_npudump.compare.stats.alignment import ABSENT
from pytest_npudump.compare.stats.allowances import shares_of_allowed
from pytest_npudump.compare.stats.verdict import EXTRA, FAIL, MISSING, PASS, Comparison, Value, Verdict
from pytest_npudump.compare.tensors.picture import BINS, SIDE, Picture
from pytest_npudump.dump.table import STATISTICS, StatsTable
from pytest_npudump.graph.sources import TensorGraph
from pytest_npudump.language import mark
from pytest_npudump.language.translation import gettext as _
from pytest_npudump.record.run_folder import read_report
from pytest_npudump.report.verdicts import deciding_rule, numbers, row, worst

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from pathlib import Path

    from pytest_npudump.compare.tolerances.tolerance import Tolerances
    from pytest_npudump.dump.records import TensorKey
    from pytest_npudump.record.edges import Edges


SOURCE, OUTSIDE, UNPAIRED = mark("source"), mark("mismatch"), mark("unpaired")
CHANGED, UNJUDGED, IDENTICAL = mark("changed"), mark("unchecked"), mark("identical")
STATES = (SOURCE, OUTSIDE, UNPAIRED, CHANGED, UNJUDGED, IDENTICAL)
"""States of a tensor, the worst first: outside its tolerance with no other that explains it, outside, on
one side only, within its tolerance though not the golden's digit for digit, with no value that was judged,
and the golden's digits."""


@dataclass(frozen=True, slots=True)
class TensorView:
    """One tensor.

    Attributes:
        key: which one.
        op_type: its operator's type; "" where unknown.
        state: one of :data:`STATES`.
        share: its largest difference by what that may be; infinite where nothing may differ or no number
            tells it, NaN where only one side has the tensor.
        dtype, shape: of the golden's side, where it has the tensor.
        golden, actual: the values of :data:`~pytest_npudump.dump.table.STATISTICS`, None where a side does
            not tell one; no values where it lacks the tensor.
        decided: the statistic that decided a failure, or of a change the first that is another one; "" for
            none.
        pair: both sides' values of that, as text.
        allowed: how far these may be apart, as text; "" where no number tells it, or nothing failed.
        rule: the rule that decided a failure, in words.
    """

    key: TensorKey
    op_type: str
    state: str
    share: float
    dtype: str
    shape: str
    golden: tuple[Value, ...]
    actual: tuple[Value, ...]
    decided: str = ""
    pair: tuple[str, str] = ("", "")
    allowed: str = ""
    rule: str = ""


def tensor_views(
    comparison: Comparison, tolerances: Tolerances, sources: Collection[TensorKey] = ()
) -> tuple[TensorView, ...]:
    """Return the tensors of a comparison in order of execution."""
    shares = shares_of_allowed(comparison, tolerances).tolist()
    unjudged = frozenset[int]().union(*(doubt.unjudged for doubt in comparison.doubts))
    alignment = comparison.alignment
    rows = zip(alignment.golden.tolist(), alignment.actual.tolist(), strict=True)
    golden, actual = comparison.golden, comparison.actual
    found = []
    for at, (verdict, (here, there)) in enumerate(zip(comparison.verdicts(), rows, strict=True)):
        table, row = (actual, there) if here == ABSENT else (golden, here)
        state = _state(verdict, sources)
        if state == IDENTICAL and at in comparison.within_noise:
            state = CHANGED
        elif state == IDENTICAL and at in unjudged:
            state = UNJUDGED
        both = _values(golden, here), _values(actual, there)
        decided, pair, allowed = _decision(verdict, *both)
        reason, share = worst(verdict), shares[at]
        if reason is not None and math.isfinite(told := reason.excess):
            share = told  # of the statistic that is shown: projections may be off by more
        found.append(
            TensorView(
                key=verdict.key,
                op_type=verdict.op_type,
                state=state,
                share=share,
                dtype=table.dtypes[row],
                shape=table.shapes[row],
                golden=both[0],
                actual=both[1],
                decided=decided,
                pair=pair,
                allowed=allowed,
                rule=deciding_rule(verdict),
            )
        )
    return tuple(found)


def counted_once(tensors: Iterable[TensorView], comparison: Comparison) -> tuple[TensorView, ...]:
    """Return the tensors without the mismatches that count once with another; see ``mismatches`` there."""
    again = {one.key for one in comparison.failing} - {one.key for one in comparison.mismatches}
    return tuple(one for one in tensors if one.key not in again)


def _decision(
    verdict: Verdict, golden: tuple[Value, ...], actual: tuple[Value, ...]
) -> tuple[str, tuple[str, str], str]:
    """Return the statistic that a row is about, both its values, and how far these may be apart."""
    if verdict.status != PASS:
        name, *sides, allowed, _off = row(verdict)[3:]
        return name, (sides[0], sides[1]), allowed
    for name, before, now in zip(STATISTICS, golden, actual, strict=False):
        if verdict.status == PASS and before is not None and now is not None and before != now:
            return name, numbers(before, now), ""
    return "", ("", ""), ""


def _state(verdict: Verdict, sources: Collection[TensorKey]) -> str:
    if verdict.status != PASS and verdict.key in sources:
        return SOURCE
    if verdict.status == FAIL:
        return OUTSIDE
    if verdict.status in {MISSING, EXTRA}:
        return UNPAIRED
    assert verdict.status == PASS  # noqa: S101 - there are four
    return CHANGED if verdict.changed else IDENTICAL


def _values(table: StatsTable, row: int) -> tuple[Value, ...]:
    return () if row == ABSENT else tuple(table.statistics(row))


def magnitude(share: float) -> float:
    """Return the height of a share on a logarithmic scale: 0 at the tolerance, cut to -3 and 6.

    NaN, which stands for no share, is at the tolerance.
    """
    if math.isnan(share):
        return 0.0
    if share == math.inf:
        return HIGHEST
    return min(max(math.log10(share), LOWEST), HIGHEST) if share > 0 else LOWEST


LOWEST, HIGHEST = -3.0, 6.0
"""Decades of the scale below and above the tolerance."""


COLUMNS = 480
"""Most columns of a strip."""


@dataclass(frozen=True, slots=True)
class Column:
    """Consecutive tensors.

    Attributes:
        first, last: their positions, both included.
        at: position of the worst, which the column stands for.
        state: of that, one of :data:`~pytest_npudump.report.view.STATES`.
        height: of that, as :func:`~pytest_npudump.report.view.magnitude` gives it.
    """

    first: int
    last: int
    at: int
    state: str
    height: float


def strip_columns(tensors: Sequence[TensorView], most: int = COLUMNS) -> tuple[Column, ...]:
    """Return the columns of a strip, at most ``most``, each of as many tensors or one fewer.

    A source shows whatever else is in its column, and a failing tensor before one that passes.
    """
    count = min(most, len(tensors))
    found = []
    for number in range(count):
        first, end = number * len(tensors) // count, (number + 1) * len(tensors) // count
        at = min(range(first, end), key=lambda at: (_rank(tensors[at]), -magnitude(tensors[at].share)))
        found.append(Column(first, end - 1, at, tensors[at].state, magnitude(tensors[at].share)))
    return tuple(found)


BEFORE, BEHIND = 2, 3
"""Operators shown before a source and behind it, in a line."""
ABREAST = 4
"""Most operators side by side; what is worse comes first."""


@dataclass(frozen=True, slots=True)
class ViewedOperator:
    """One operator of the picture.

    Attributes:
        name: the layer.
        op_type: "" where unknown.
        state: of the worst of its tensors.
        at: position of that tensor in the run.
        column: 0 for the source, below 0 before it.
        row: place in the column, from 0.
    """

    name: str
    op_type: str
    state: str
    at: int
    column: int
    row: int


@dataclass(frozen=True, slots=True)
class Neighbourhood:
    """The operators around a source.

    Attributes:
        source: its layer.
        operators: in columns.
        arrows: pairs of positions in ``operators``, from what feeds to what is fed.
        left_out: operators as near that are not shown.
    """

    source: str
    operators: tuple[ViewedOperator, ...]
    arrows: tuple[tuple[int, int], ...]
    left_out: int


def neighbourhoods(
    comparison: Comparison, edges: Edges, tensors: Sequence[TensorView], sources: Sequence[TensorKey]
) -> tuple[Neighbourhood, ...]:
    """Return the pictures of sources; none where nothing is known of what feeds what."""
    if not edges.feeds or not sources:
        return ()
    graph = TensorGraph.of(comparison, edges)
    names = [key.layer for key in graph.keys]
    fed: defaultdict[str, dict[str, None]] = defaultdict(dict)
    feeds: defaultdict[str, dict[str, None]] = defaultdict(dict)
    for name, parents in zip(names, graph.parents, strict=True):
        for parent in parents:
            if names[parent] != name:
                feeds[name][names[parent]] = None
                fed[names[parent]][name] = None
    worst: dict[str, int] = {}
    for at, name in enumerate(names):
        if name not in worst or _rank(tensors[at]) < _rank(tensors[worst[name]]):
            worst[name] = at
    layers = dict.fromkeys(key.layer for key in sources)
    return tuple(_around(layer, feeds, fed, worst, tensors) for layer in layers if layer in worst)


def _rank(tensor: TensorView) -> int:
    return STATES.index(tensor.state)


def _around(
    source: str,
    feeds: Mapping[str, Mapping[str, None]],
    fed: Mapping[str, Mapping[str, None]],
    worst: Mapping[str, int],
    tensors: Sequence[TensorView],
) -> Neighbourhood:
    columns: dict[str, int] = {source: 0}
    left_out = 0
    for step, reach, links in ((-1, BEFORE, feeds), (1, BEHIND, fed)):
        front = [source]
        for distance in range(1, reach + 1):
            near = dict.fromkeys(n for name in front for n in links.get(name, ()) if n not in columns)
            ordered = sorted(near, key=lambda name: (_rank(tensors[worst[name]]), worst[name]))
            front = ordered[:ABREAST]
            left_out += len(ordered) - len(front)
            columns |= dict.fromkeys(front, step * distance)
    rows: defaultdict[int, int] = defaultdict(int)
    operators = []
    for name, column in columns.items():
        view = tensors[worst[name]]
        operators.append(ViewedOperator(name, view.op_type, view.state, worst[name], column, rows[column]))
        rows[column] += 1
    places = {name: at for at, name in enumerate(columns)}
    arrows = tuple(
        (places[one], at) for name, at in places.items() for one in feeds.get(name, ()) if one in places
    )
    return Neighbourhood(source, tuple(operators), arrows, left_out)


_MEASURES = {
    "max_abs": mark("max abs error"),
    "max_rel": mark("max rel error"),
    "relative_l2": mark("relative L2 error"),
    "cosine": mark("cosine similarity"),
    "max_ulp": mark("max ULP error"),
    "outside": mark("elements out of tolerance"),
    "count": mark("elements"),
    "rtol": mark("relative tolerance"),
    "atol": mark("absolute tolerance"),
    "special_different": mark("places where only one side has NaN or Inf"),
}
"""Distances of elements, as report.json names them, and their names for people."""


@dataclass(frozen=True, slots=True)
class Element:
    """One of the worst elements: its coordinates, both values and their distance, as text or numbers."""

    index: tuple[int, ...]
    golden: float | int | str
    actual: float | int | str
    off: float | int | str


@dataclass(frozen=True, slots=True)
class ElementsView:
    """Facts of one tensor's elements.

    Attributes:
        key: which tensor.
        reproduced: whether the second run did the same; None where it lacks the tensor.
        measures: names, to be translated, and values of distances; none where no golden tensor was kept.
        pattern: what explains the difference, in words; "" for nothing.
        worst: the elements farthest off.
        picture: what can be drawn.
        note: why something is missing.
        path: the dumped file; "" for none.
        now: how the second run's tensor compares with the golden; "" where that is not known.
    """

    key: str
    reproduced: bool | None
    measures: tuple[tuple[str, float | int | str], ...]
    pattern: str
    worst: tuple[Element, ...]
    picture: Picture | None
    note: str
    path: str
    now: str = ""


def read_elements(report: Path, test: str) -> tuple[tuple[ElementsView, ...], str]:
    """Read the second run's elements; with them why none are known, or "".

    Args:
        report: ``report.json`` beside the test's dumps.
        test: its name; a report of another test, left by a later session, is none of this one's.
    """
    try:
        data = read_report(report)
    except OSError:
        return (), _("{report} is not there: pictures of elements need the dumps' folder").format(
            report=report
        )
    except ValueError:
        return (), _("{report} is no JSON").format(report=report)
    if not isinstance(data, dict) or data.get("test") != test:
        return (), _("{report} is of another test").format(report=report)
    escalation = data.get("escalation")
    if not isinstance(escalation, dict):
        return (), ""
    try:
        return tuple(_view(finding) for finding in escalation["findings"]), str(escalation["problem"] or "")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        return (), _("{report} was written by another version: {error!r}").format(report=report, error=error)


def _view(finding: Mapping[str, Any]) -> ElementsView:
    elements, pattern = finding["elements"] or {}, finding["pattern"] or {}
    measures = [(word, elements[name]) for name, word in _MEASURES.items() if elements.get(name) is not None]
    picture = finding.get("picture")
    return ElementsView(
        key=str(finding["key"]),
        reproduced=finding["reproduced"],
        now=str(finding.get("against_golden") or ""),
        measures=tuple(measures),
        pattern=f"{pattern['where']}: {pattern['what']}" if pattern else "",
        worst=tuple(
            Element(tuple(one["index"]), one["golden"], one["actual"], one["abs"])
            for one in elements.get("worst", ())
        ),
        picture=None if picture is None else picture_from(picture),
        note=str(finding["note"] or ""),
        path=str(finding["path"] or ""),
    )


def picture_from(data: Mapping[str, Any]) -> Picture:
    """Return a picture of its plain data.

    Raises:
        KeyError, TypeError, ValueError: it is none.
    """
    told = {name: data[name] for name in Picture.__slots__}
    for name in ("golden", "actual", "errors"):
        told[name] = tuple(map(int, told[name]))
        if len(told[name]) not in {0, BINS}:
            raise ValueError(f"{name} has {len(told[name])} bins")
    try:
        told["cells"] = base64.b64decode(told["cells"], validate=True)
    except binascii.Error as error:
        raise ValueError(f"cells: {error}") from error
    if len(told["cells"]) != told["rows"] * told["columns"] or max(told["rows"], told["columns"]) > SIDE:
        raise ValueError("the map has not as many cells as it says")
    return Picture(**told)


GOOD, BAD, OPEN, LEFT_OUT = "good", "bad", "open", "left out"
"""Meanings of a test: passed, failed, not decidable, or skipped or expected to fail."""


_NAME = 80
"""Signs of a test's name in that of a file."""


@dataclass(frozen=True, slots=True)
class TestView:
    """One test.

    Attributes:
        name: its node id, and whose part of it where ranks judge by themselves.
        word: :data:`GOOD`, :data:`BAD`, :data:`OPEN` or :data:`LEFT_OUT`.
        status: in the plugin's words.
        runtime: what ran the model.
        headline: a failure in one line; "" for none.
        why: what the second run, the operator alone and patterns say of the cause, a sentence each.
        ways_out: what to do next; commands among it.
        hand_over: the command that makes a folder of its own of the failure; "" where there is none.
        text: the failure as a terminal shows it, in full.
        tensors: in order of execution; none where nothing was compared.
        sources: keys of failing tensors that no other explains.
        neighbourhoods: the graph around these.
        elements: what the second run showed, one a tensor.
        producers: facts of origin, as (name, of the golden, of this run); None where a side tells none.
        notes: what a reader should know.
        since: which golden the verdict is about, where that has changed since the run; else "".
        golden: the golden file.
        preset: of tolerances, and which bounds.
        when: it was judged, ISO 8601.
    """

    __test__ = False

    name: str
    word: str
    status: str
    runtime: str
    headline: str = ""
    why: tuple[str, ...] = ()
    ways_out: tuple[str, ...] = ()
    hand_over: str = ""
    text: tuple[str, ...] = ()
    tensors: tuple[TensorView, ...] = ()
    sources: tuple[str, ...] = ()
    neighbourhoods: tuple[Neighbourhood, ...] = ()
    elements: tuple[ElementsView, ...] = ()
    producers: tuple[tuple[str, str | None, str | None], ...] = ()
    notes: tuple[str, ...] = ()
    since: str = ""
    golden: str = ""
    preset: str = ""
    when: str = ""

    @property
    def file_name(self) -> str:
        """A file's name that no other test of the session has."""
        plain = re.sub(r"[^A-Za-z0-9_.-]+", "_", self.name.rpartition("/")[2])[:_NAME]
        return f"{plain}-{sha256(self.name.encode('utf-8', 'backslashreplace')).hexdigest()[:6]}"


@dataclass(frozen=True, slots=True)
class SessionView:
    """A session.

    Attributes:
        tests: in the order in which they ended; what failed comes first.
        problems: what a reader of all of it must know; tests may be missing because of it.
        version: of this package.
    """

    tests: tuple[TestView, ...]
    problems: tuple[str, ...] = ()
    version: str = ""

    def count(self, word: str) -> int:
        """Number of tests with that word."""
        return sum(test.word == word for test in self.tests)
