"""The one line at the end of a session."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from pytest_npudump.regression.outcome import GOOD

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
    parts = [f"{sum(counts[word] for word in GOOD)} of {len(results)} tests good"]
    compared = sum(result.get("compared", 0) for result in results)
    expected = sum(result.get("expected", 0) for result in results)
    if expected:
        parts.append(f"{compared} of {expected} tensors compared")
    against = [result["reference"] for result in results if result.get("reference")]
    if against:
        layers = [sum(found[name] for found in against) for name in ("compared", "layers")]
        parts.append(f"{layers[0]} of {layers[1]} layers compared with a reference")
    parts += [f"{counts[word]} {word}" for word in counts if word != "passed"]
    unjudged = sum(result.get("unjudged", 0) for result in results)
    if unjudged:
        parts.append(
            f"{unjudged} tensor{'' if unjudged == 1 else 's'} without finite statistics (values not judged)"
        )
    if changed := [result for result in results if result.get("changed")]:
        count = sum(result["changed"] for result in changed)
        first = changed[0]["first_within"]
        parts.append(f"{count} of {expected} tensors changed within tolerance, first {first}")
    if wavering := sum(result.get("wavering", 0) for result in results):
        parts.append(f"{wavering} differ as they did when they were recorded")
    if measured := sum(result.get("calibrated", 0) for result in results):
        parts.append(f"{measured} tensors have measured bounds")
    wide = Counter(str(result["bounds"]) for result in results if result.get("bounds", "same") != "same")
    parts += [f"{wide[name]} by the bounds for {name} numerics" for name in sorted(wide)]
    first = next((result["first"] for result in results if result.get("first")), None)
    if first:
        parts.append(f"first divergence {first}")
    runtimes = sorted({str(result["runtime"]) for result in results if result.get("runtime")})
    end = f"; this run approves ({approval})" if approval else ""
    return f"npudump: {', '.join(parts)} ({'/'.join(runtimes) or 'nothing ran'}){end}"
