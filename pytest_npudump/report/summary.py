"""The one line at the end of a session."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from pytest_npudump.language.translation import gettext as _
from pytest_npudump.language.translation import ngettext
from pytest_npudump.regression.result import GOOD

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def summary_line(results: Sequence[Mapping[str, Any]], *, approval: str = "") -> str:
    """Say what was compared, against what was expected, and what came of it.

    Args:
        results: of all tests.
        approval: the option by which the run writes goldens; the header that says so is not shown with
            ``-q``.
    """
    counts = Counter(str(result["status"]) for result in results)
    parts = [
        _("{good} of {count} tests good").format(good=sum(counts[word] for word in GOOD), count=len(results))
    ]
    compared = sum(result.get("compared", 0) for result in results)
    expected = sum(result.get("expected", 0) for result in results)
    if expected:
        parts.append(
            _("{compared} of {expected} tensors compared").format(compared=compared, expected=expected)
        )
    against = [result["reference"] for result in results if result.get("reference")]
    if against:
        layers = [sum(found[name] for found in against) for name in ("compared", "layers")]
        parts.append(
            _("{compared} of {layers} layers compared with a reference").format(
                compared=layers[0], layers=layers[1]
            )
        )
    parts += [
        _("{count} {status}").format(count=counts[word], status=_(word))
        for word in counts
        if word != "passed"
    ]
    unjudged = sum(result.get("unjudged", 0) for result in results)
    if unjudged:
        parts.append(
            ngettext(
                "{unjudged} tensor without finite statistics (values not judged)",
                "{unjudged} tensors without finite statistics (values not judged)",
                unjudged,
            ).format(unjudged=unjudged)
        )
    if changed := [result for result in results if result.get("changed")]:
        count = sum(result["changed"] for result in changed)
        first = changed[0]["first_within"]
        parts.append(
            _("{count} of {expected} tensors changed within tolerance, first {first}").format(
                count=count, expected=expected, first=first
            )
        )
    if wavering := sum(result.get("wavering", 0) for result in results):
        parts.append(_("{wavering} differ as they did when they were recorded").format(wavering=wavering))
    if measured := sum(result.get("calibrated", 0) for result in results):
        parts.append(
            _("{measured} tensors have measured bounds wider than the preset's").format(measured=measured)
        )
    wide = Counter(str(result["bounds"]) for result in results if result.get("bounds", "same") != "same")
    parts += [
        _("{wide} by the bounds for {name} numerics").format(wide=wide[name], name=name)
        for name in sorted(wide)
    ]
    first = next((result["first"] for result in results if result.get("first")), None)
    if first:
        parts.append(_("first divergence {first}").format(first=first))
    runtimes = sorted({str(result["runtime"]) for result in results if result.get("runtime")})
    end = _("; this run approves ({approval})").format(approval=approval) if approval else ""
    return _("npudump: {parts} ({runtimes}){end}").format(
        parts=_(", ").join(parts), runtimes="/".join(runtimes) or _("nothing ran"), end=end
    )
