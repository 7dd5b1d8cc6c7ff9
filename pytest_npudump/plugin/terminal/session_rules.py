"""Rules of a file of tolerances that were about no tensor of any test of the session: misspelt, mostly."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_npudump.language.excerpt import first_of
from pytest_npudump.language.translation import gettext as _
from pytest_npudump.language.translation import ngettext
from pytest_npudump.plugin._compat import was_narrowed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import pytest

_SHOWN = 3


def idle_rules(results: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return the rules that no compared test has a tensor for; none where no test was compared."""
    idle = [result.get("idle_rules", ()) for result in results if "compared" in result]
    return tuple(rule for rule in idle[0] if all(rule in others for others in idle)) if idle else ()


def idle_line(rules: tuple[str, ...], config: pytest.Config) -> tuple[str, bool]:
    """Say that rules are idle, and whether the session fails for it: only where it ran all tests.

    Args:
        rules: as :func:`idle_rules` has them, at least one.
        config: of the session.
    """
    words = ngettext(
        "{count} tolerance rule matches no tensor of these tests: {rules}",
        "{count} tolerance rules match no tensor of these tests: {rules}",
        len(rules),
    ).format(count=len(rules), rules=first_of(rules, _SHOWN))
    if was_narrowed(config):
        return words, False
    advice = _("correct the layer, op_type, dtype or statistic, or remove it; the run does not pass")
    return f"{words}; {advice}", True
