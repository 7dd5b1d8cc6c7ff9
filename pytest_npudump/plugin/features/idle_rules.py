"""Tolerance rules that are about nothing: a session of all tests does not pass with them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_npudump.errors import said
from pytest_npudump.language.text import first_of
from pytest_npudump.language.translation import gettext as _, ngettext
from pytest_npudump.plugin._compat import was_narrowed
from pytest_npudump.regression.result import idle_everywhere

if TYPE_CHECKING:
    from pytest_npudump.plugin.reporter import Reporter
    from pytest_npudump.settings import Settings


_PLACE = 3
_SHOWN = 3


def feature(_config: pytest.Config, _settings: Settings) -> IdleRules:
    """Return a finder of idle rules."""
    return IdleRules()


class IdleRules:
    """Search for rules that no compared test has a tensor for."""

    @pytest.hookimpl(trylast=True)
    def pytest_npudump_check(self, reporter: Reporter) -> None:
        """Report such rules, and fail a session for them that ran all tests."""
        compared = [result for result in reporter.results if "compared" in result]
        rules = idle_everywhere([result.get("idle_rules", ()) for result in compared])
        if not rules:
            return
        narrowed = was_narrowed(reporter.config)
        reporter.say(_words(rules, narrowed=narrowed), _PLACE)
        if not narrowed:
            reporter.fail(lambda: _words(rules, narrowed=False))


def _words(rules: tuple[str, ...], *, narrowed: bool) -> str:
    words = ngettext(
        "{count} tolerance rule matches no tensor of these tests: {rules}",
        "{count} tolerance rules match no tensor of these tests: {rules}",
        len(rules),
    ).format(count=len(rules), rules=first_of(rules, _SHOWN))
    if narrowed:
        return words
    advice = _("correct the layer, op_type, dtype or statistic, or remove it; the run does not pass")
    return said("{words}; {advice}", words=words, advice=advice)
