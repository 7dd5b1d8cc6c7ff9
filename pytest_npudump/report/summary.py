"""The line at the end of a session, and what else is known of all of its tests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pytest_npudump.language import mark, plural
from pytest_npudump.language.text import first_of
from pytest_npudump.language.translation import counted, gettext as _, ngettext
from pytest_npudump.regression.result import DIED, ERROR, FAILED, GOOD, MISSING_GOLDEN, PASSED, is_not_dumped

PAGE = "npudump --explain"
"""The command that shows what a failure and this line mean."""
_SEVERAL = {MISSING_GOLDEN: mark("goldens missing"), DIED: mark("processes died")}
"""Statuses as they are called of more tests than one."""


def summary_line(results: Sequence[Mapping[str, Any]], *, approval: str = "", page: str = "") -> str:
    """Return the session's line: tests passed, tensors compared, and the first mismatch.

    Args:
        results: of all tests.
        approval: the option by which the run writes goldens of tests that pass; the header that says so is
            not shown with ``-q``.
        page: what says more of failures, which a line that tells of one names; "" for none.
    """
    statuses = (str(result["status"]) for result in results)
    counts = Counter(FAILED if status == ERROR else status for status in statuses)  # as pytest counts them
    passed = sum(counts[word] for word in GOOD)
    tests = _("{passed} of {count} tests passed").format(passed=passed, count=len(results))
    others = [
        _("{count} {status}").format(count=number, status=_(_SEVERAL.get(word, word) if number > 1 else word))
        for word, number in counts.items()
        if word != PASSED
    ]
    compared, expected = (sum(result.get(name, 0) for result in results) for name in ("compared", "expected"))
    against = [result["reference"] for result in results if result.get("reference")]
    layers = [sum(found[name] for found in against) for name in ("compared", "layers")]
    failing = next((result for result in results if result.get("first")), None)
    parts = (
        _(", ").join([tests, *others]),
        ngettext(
            "{compared} of {expected} tensor compared", "{compared} of {expected} tensors compared", expected
        ).format(compared=compared, expected=expected)
        if expected
        else "",
        _("{compared} of {layers} layers compared with a reference").format(
            compared=layers[0], layers=layers[1]
        )
        if against
        else "",
        _("first mismatch {first}").format(first=_short(failing, "first")) if failing else "",
    )
    runtimes = sorted({str(result["runtime"]) for result in results if result.get("runtime")})
    end = (
        _("; this run updates goldens ({approval})").format(approval=approval) if approval and passed else ""
    )
    if page and passed < len(results):
        end += _("; see {page}").format(page=page)
    return _("npudump: {parts} ({runtimes}){end}").format(
        parts=_("; ").join(filter(None, parts)), runtimes="/".join(runtimes) or _("nothing ran"), end=end
    )


def _short(result: Mapping[str, Any], name: str) -> str:
    """Return a tensor of a result, its layer's name cut where that is long."""
    key = str(result.get(name))
    return str(result.get("cut_names", {}).get(key, key))


_CHANGED = mark("{count} of {expected} tensors changed within tolerance, first {first}")
_REMARKS = (
    (
        "unjudged",
        plural(
            "{count} tensor has no finite statistics: its values were not compared",
            "{count} tensors have no finite statistics: their values were not compared",
        ),
    ),
    ("changed", (_CHANGED, _CHANGED)),
    (
        "wavering",
        plural(
            "{count} tensor differs as it did between the recorded runs",
            "{count} tensors differ as they did between the recorded runs",
        ),
    ),
    (
        "calibrated",
        plural(
            "{count} tensor has a measured tolerance wider than the preset's",
            "{count} tensors have measured tolerances wider than the preset's",
        ),
    ),
)
"""Counts of results that are to be known of a session, and what is said of them."""


def remarks(results: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield further facts of a session's tensors, each in a sentence."""
    notes: dict[Any, None] = dict.fromkeys(note for result in results for note in result.get("notes", ()))
    if unseen := [note.values for note in notes if is_not_dumped(note)]:
        count = sum(int(values["count"]) for values in unseen)
        named = _("{layers} ({model})")
        layers = first_of(dict.fromkeys(named.format(**values) for values in unseen), 3)
        told = _("operators neither dumped nor compared: {count}, inside {layers}")
        yield told.format(count=count, layers=layers)
    expected = sum(result.get("expected", 0) for result in results)
    for name, words in _REMARKS:
        if having := [result for result in results if result.get(name)]:
            first = _short(having[0], "first_within")
            first += f" ({having[0]['test']})" if len(results) > 1 else ""
            count = sum(result[name] for result in having)
            yield counted(count, *words, first=first, expected=expected)
    passed = [result for result in results if result["status"] == PASSED]
    if fed := [result["test"] for result in passed if (result.get("model") or {}).get("fed")]:
        yield counted(
            len(fed),
            "{count} test passed with changed inputs: {first}",
            "{count} tests passed with changed inputs, first {first}",
            first=fed[0],
        )
    if models := [result for result in passed if (result.get("model") or {}).get("changed")]:
        first, what = models[0]["test"], models[0]["model"]["first"]
        yield counted(
            len(models),
            "{count} test passed with a changed model: {first} ({what})",
            "{count} tests passed with a changed model, first {first} ({what})",
            first=first,
            what=what,
        )
    wide = Counter(str(result["bounds"]) for result in results if result.get("bounds", "same") != "same")
    for name in sorted(wide):
        yield counted(
            wide[name],
            "{count} test was compared with the preset {name}",
            "{count} tests were compared with the preset {name}",
            name=name,
        )
