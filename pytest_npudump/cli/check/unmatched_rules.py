"""Rules of a file that none of the tests of kept results has a tensor for: misspelt, mostly."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_npudump.language.translation import gettext as _

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_npudump.results.rejudge import Rejudged


def idle_lines(judged: Sequence[Rejudged]) -> Iterator[str]:
    """Name the rules of files that decide about no tensor of any of the judged tests."""
    outcomes = [one.result for one in judged if one.result is not None]
    idle = [outcome.idle_rules for outcome in outcomes if outcome.comparison is not None]
    for rule in idle[0] if idle else ():
        if all(rule in others for others in idle):
            yield _("the rule {rule} matches no tensor of these tests").format(rule=rule)
