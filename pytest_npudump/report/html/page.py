"""The page of a session, filled from its view by a jinja2 template that escapes whatever it is given.

The tensors of a test are packed columns for the page's table, as ten thousand rows of HTML take megabytes.
"""

from __future__ import annotations

import base64
import hashlib
import importlib
import json
import math
import re
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pytest_npudump.dump.table import STATISTICS
from pytest_npudump.errors import MissingExtraError
from pytest_npudump.language.translation import gettext as _, is_english, ngettext, spoken
from pytest_npudump.report.charts import (
    IN_BOX,
    WORDS,
    axes_words,
    errors_svg,
    graph_svg,
    map_uri,
    strip_svg,
    values_svg,
)
from pytest_npudump.report.files import write_files
from pytest_npudump.report.layer_names import LayerNames
from pytest_npudump.report.verdicts import number, numbers, plain, times
from pytest_npudump.report.view import (
    BAD,
    GOOD,
    IDENTICAL,
    LEFT_OUT,
    OPEN,
    OUTSIDE,
    SOURCE,
    STATES,
    UNPAIRED,
    ElementsView,
    SessionView,
    TensorView,
    TestView,
)

INFINITE, ABSENT = -1, -2
"""Stand for a share that is infinite, and for none."""


def payload(tensors: Sequence[TensorView], most_statistics: int) -> str:
    """Return tensors as JSON, deflated, in base 64.

    ``words`` has each recurring text; ``rows`` has a list a column; ``statistics`` both sides' values by
    position, of what is not identical.

    Args:
        tensors: in order of execution.
        most_statistics: tensors with statistics; the worst come first, and the others are in report.json.
    """
    words: dict[str, int] = {}

    def number_of(word: str) -> int:  # of words that recur, each written once
        return words.setdefault(plain(word), len(words))

    keys = [plain(str(one.key)) for one in tensors]
    data = {
        "prefix": LayerNames(keys).prefix,
        "names": STATISTICS,
        "states": STATES,
        "key": keys,
        "state": [STATES.index(one.state) for one in tensors],
        "share": [_share(one.share) for one in tensors],
        "type": [number_of(one.op_type) for one in tensors],
        "kind": [number_of(f"{one.dtype} {one.shape}") for one in tensors],
        "decided": [number_of(one.decided) for one in tensors],
        "pair": [number_of(side) for one in tensors for side in one.pair],
        "allowed": [number_of(one.allowed) for one in tensors],
        "rule": [number_of(one.rule) for one in tensors],
        "statistics": {str(at): _statistics(tensors[at]) for at in _told(tensors, most_statistics)},
    }
    text = json.dumps(data | {"words": [*words]}, separators=(",", ":"), allow_nan=False)
    return base64.b64encode(zlib.compress(text.encode(), 9)).decode()


def _told(tensors: Sequence[TensorView], most: int) -> list[int]:
    """Return positions whose statistics are shown: mismatches and changes, the worst first."""
    differing = [at for at, one in enumerate(tensors) if one.state != IDENTICAL]
    return sorted(sorted(differing, key=lambda at: STATES.index(tensors[at].state))[:most])


def _statistics(tensor: TensorView) -> list[Any]:
    if not (tensor.golden and tensor.actual):
        return [[*map(number, side)] for side in (tensor.golden, tensor.actual)]
    return [*zip(*map(numbers, tensor.golden, tensor.actual), strict=True)]


def _share(share: float) -> float | int:
    if math.isnan(share):
        return ABSENT
    return INFINITE if math.isinf(share) else float(f"{share:.3g}")


_HERE = Path(__file__).parent
_ACROSS, _NAMED = 72, 40
"""Columns of lines that names are cut for, and of these names."""
_STATISTICS = 10_000
"""Tensors of a page that come with both sides' statistics."""
_PICTURES = 60
"""Tensors of a page whose elements are shown."""
_GRAPHS = 3
"""Sources of a test whose surroundings are drawn."""
_LINES = 400
"""Lines of a failure's text."""
_LABEL = 12
_COLON = re.compile("[:：] *")
"""Signs of a line's label, its colon among them."""
_OPEN = 3
"""Failing tests that are unfolded when the page opens."""


INDEX = "index.html"


def write(view: SessionView, folder: Path, name: str = "", /) -> list[Path]:
    """Write the page, as a ``Writer`` of the table of media.

    Raises:
        MissingExtraError: jinja2 is not installed.
        NpudumpError: it cannot be written.
    """
    target = folder / (f"{name}.html" if name else INDEX)
    content = page(view).encode("utf-8", "backslashreplace")
    return write_files({target: content}, lambda error: f"{target}: the report cannot be written: {error}")


_ENDS = re.compile(r"(?<=[\w.][/_])(?=[^\W\d])|(?<=::)")
"""Places where a name may be broken: behind ``/``, ``_`` and ``::``."""


def page(session: SessionView) -> str:
    """Return the page, complete in itself: style, script and data are inside of it.

    Raises:
        MissingExtraError: jinja2 is not installed.
    """
    jinja2: Any = MissingExtraError.imported("the HTML report", "jinja2", "report")
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    may_break = jinja2.utils.markupsafe.Markup("<wbr>")
    environment.filters |= {
        "plain": plain,
        "number": number,
        "numbers": numbers,
        "spoken": spoken,
        "parts": lambda name: may_break.join(_ENDS.split(name)),  # a text with names
    }
    environment.globals |= {"_": _, "ngettext": ngettext, "counted": _counted}
    script = (_HERE / "templates" / "page.js").read_text("utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    statistics, pictures = _STATISTICS, _PICTURES
    tests = []
    for at, test in enumerate(session.tests):
        tests.append(_shown(test, at, statistics, pictures))
        differing = sum(one.state != STATES[-1] for one in test.tensors)
        statistics, pictures = max(0, statistics - differing), max(0, pictures - len(test.elements))
    text: str = environment.get_template("page.html.j2").render(
        title=_("npudump report"),
        session=session,
        tests=tests,
        words=WORDS,
        totals=[(word, session.count(word)) for word in (BAD, OPEN, GOOD, LEFT_OUT) if session.count(word)],
        style=jinja2.utils.markupsafe.Markup((_HERE / "templates" / "page.css").read_text("utf-8")),
        script=jinja2.utils.markupsafe.Markup(script),
        digest=digest,
        translations=_translations(script),
    )
    return text


def _translations(script: str) -> Any:
    """Return the script's texts in the page's language as JSON; "" in English."""
    if is_english():
        return ""
    texts = [*re.findall(r'\bt\("([^"]*)"', script), *STATES]
    return _markup(json.dumps({text: _(text) for text in texts}, ensure_ascii=False).replace("<", "\\u003c"))


def _shown(test: TestView, at: int, statistics: int, pictures: int) -> dict[str, Any]:
    """Return the template's data of a test, its charts drawn."""
    keys = [plain(str(one.key)) for one in test.tensors]
    worst, names, boxes = _worst(test), LayerNames(keys, _ACROSS), LayerNames(keys, _ACROSS)
    names.fit(names.layers, _NAMED)
    boxes.fit((plain(one.name) for around in test.neighbourhoods for one in around.operators), IN_BOX)
    graphs = [(one, _markup(graph_svg(one, boxes))) for one in test.neighbourhoods[:_GRAPHS]]
    headline = names.text(plain(spoken(test.headline)))
    why = [_labelled(names.text(plain(spoken(sentence)))) for sentence in test.why]
    for name in (*(one.source for one in test.neighbourhoods), *(one.key for one in test.elements)):
        names.text(plain(name))  # which a heading has
    states = [(state, sum(one.state == state for one in test.tensors)) for state in STATES]
    label = _(", ").join(_counted(state, count) for state, count in states if count)
    return {
        "view": test,
        "id": f"test-{at}",
        "open": test.word == BAD and at < _OPEN,
        "states": [(state, count) for state, count in states if count],
        "strip": _markup(
            strip_svg(
                test.tensors,
                _("tensors in order of execution: {states}").format(states=label),
            )
        ),
        "graphs": graphs,
        "elements": [_elements(one) for one in test.elements[:pictures]],
        "elements_left": max(0, len(test.elements) - pictures),
        "data": payload(test.tensors, statistics) if test.tensors else "",
        "worst": worst,
        "short": lambda name: names.text(plain(name)),
        "headline": headline,
        "legend": " ".join(map(str.strip, names.legend() or boxes.legend())),
        "why": why,
        "differs": any(golden not in {None, actual} for _name, golden, actual in test.producers),
        "off": times(worst.share) if worst is not None and math.isfinite(worst.share) else "",
        "commands": [_way_out(line) for line in test.ways_out],
        "text": "\n".join(map(plain, test.text[:_LINES])),
        "lines_left": max(0, len(test.text) - _LINES),
    }


def _counted(state: str, count: int) -> str:
    if state == SOURCE:
        return ngettext("{count} source", "{count} sources", count).format(count=count)
    if state == OUTSIDE:  # a source is one, too
        return ngettext("{count} other mismatch", "{count} other mismatches", count).format(count=count)
    return _("{count} {status}").format(count=count, status=_(state))


def _way_out(line: str) -> tuple[str, str, bool]:
    """Split a way out into its purpose, the action, and whether that is a command."""
    label, rest = _COLON.split(line, maxsplit=1)
    if label == _COLON.split(_("to accept:  {command}"))[0]:
        label = _("If the change is meant, accept it")
    return label, rest, rest.startswith("pytest ")


def _labelled(sentence: str) -> tuple[str, str]:
    """Return the label that a line of a terminal begins with, "" for none, and the rest."""
    label, *rest = _COLON.split(sentence, maxsplit=1)
    return (label, rest[0]) if rest and len(label) < _LABEL else ("", sentence)


def _worst(test: TestView) -> TensorView | None:
    """Return the tensor that the first screen is about: the first source, else the first that fails."""
    told = [one for one in test.tensors if one.state in (SOURCE, OUTSIDE, UNPAIRED)]
    return min(told, key=lambda one: one.state != SOURCE, default=None)


def _elements(view: ElementsView) -> dict[str, Any]:
    picture = view.picture
    told = {"view": view, "histogram": "", "errors": "", "map": "", "axes": ("", "")}
    if picture is None:
        return told
    rank = len(view.worst[0].index) if view.worst else picture.axes + 1
    return told | {
        "histogram": _markup(values_svg(picture)),
        "errors": _markup(errors_svg(picture)),
        "map": map_uri(picture),
        "axes": axes_words(picture, rank),
    }


def _markup(svg: str) -> Any:
    """Return a chart of ours, which has escaped what it was given, as it is."""
    return importlib.import_module("markupsafe").Markup(svg)
