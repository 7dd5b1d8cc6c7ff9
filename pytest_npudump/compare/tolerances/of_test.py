"""Which tolerances a test is judged by: the run's preset and file, then the marker's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_npudump.compare.tolerances.rules import load_tolerances, parse_rules
from pytest_npudump.compare.tolerances.tolerance import Rule, Tolerances

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_npudump.request import DumpRequest
    from pytest_npudump.settings import Settings

MARKER_RULES = "marker tolerances"
"""Source of the rules in a marker's ``tolerances``, which must all match something in their test."""


def tolerances_for(request: DumpRequest, settings: Settings, rootdir: Path) -> Tolerances:
    """Combine what the options and the marker say; the marker has the last word.

    ``rtol`` and ``atol`` of the marker hold for every floating-point statistic of the test; one given
    without the other means 0 for the other, as in ``pytest.approx``.

    Raises:
        RequestError: an unknown preset, a bad rule, or a tolerance file that cannot be read.
    """
    base = load_tolerances(rootdir / settings.tolerances) if settings.tolerances else Tolerances()
    preset = request.preset or settings.preset or base.preset
    combined = Tolerances(preset, base.rules)
    if request.rtol is not None or request.atol is not None:
        combined = combined.extended([Rule(request.rtol or 0.0, request.atol or 0.0, source="marker")])
    return combined.extended(parse_rules(request.tolerances, preset=preset, source=MARKER_RULES))
