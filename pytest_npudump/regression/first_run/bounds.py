"""Which bounds hold between a test's golden and its run, and what is said of values that merely changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_npudump.compare.tolerances.numerics import AUTO, Numerics, numerics_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_npudump.compare.stats.verdict import Comparison
    from pytest_npudump.regression.case import Case

CHANGE = "change"
"""The value of ``--npudump-fail-on`` with which a value that is not the golden's fails its test."""


def numerics_for(
    case: Case, differences: Mapping[str, tuple[str, str]], facts: Mapping[str, str]
) -> Numerics:
    """Decide by what produced the golden and this run; the marker, then the option, may have decided.

    Args:
        case: the test.
        differences: facts of origin in which the golden and the run differ.
        facts: of the run's origin.
    """
    return numerics_of(
        differences,
        facts,
        marker=case.request.numerics,
        option=case.settings.numerics or AUTO,
    )


def _change_words(comparison: Comparison) -> str:
    """Say how many tensors pass that are not the golden's digit for digit; "" where none is."""
    if not comparison.changed:
        return ""
    words = f"{comparison.changed} of {comparison.expected} tensors changed within tolerance"
    return f"{words}, first {comparison.first_within}"


def changes(case: Case, comparison: Comparison) -> tuple[str, ...]:
    """Return the problem that changes are where the run is to fail for them."""
    words = _change_words(comparison)
    if case.settings.fail_on != CHANGE or not words:
        return ()
    return (f"{words}; --npudump-fail-on=change lets nothing pass but the golden's own digits",)
