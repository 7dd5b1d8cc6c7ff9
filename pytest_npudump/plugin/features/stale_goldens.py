"""Goldens without a test, and tolerance rules without a tensor: a session does not pass with them.

Goldens are looked for by a collection of its own, where ``npudump_fail_on=stale`` asks for it.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from functools import partial
from typing import TYPE_CHECKING

import pytest

from pytest_npudump.errors import said
from pytest_npudump.plugin._compat import was_narrowed

if TYPE_CHECKING:
    from pytest_npudump.plugin.reporter import Reporter
    from pytest_npudump.settings import Settings


_PLACE, _PLACE_OF_RULES = 2, 3
_SHOWN = 3
_COMMAND = "import sys; from pytest_npudump.cli import main; sys.exit(main(['golden', 'status', '--prune']))"


class StaleGoldens:
    """Search for stale goldens, and idle rules, at the end of the session."""

    def __init__(self, _config: pytest.Config, settings: Settings) -> None:
        self._stale = settings.fail_on == "stale"

    def pytest_npudump_wanted(self) -> bool | None:
        """Ask for a look at the end of the session whatever ran, for stale goldens."""
        return self._stale or None

    @pytest.hookimpl(trylast=True)
    def pytest_npudump_check(self, reporter: Reporter) -> None:
        """Fail a session that ended well where there are any, or that is unknown."""
        for line in _lines(reporter.config, reporter.settings) if self._stale else ():
            reporter.say(line, _PLACE)
            reporter.fail(partial(str, line), pytest.ExitCode.NO_TESTS_COLLECTED)
        rules = [result.get("idle_rules", ()) for result in reporter.results if "compared" in result]
        narrowed = was_narrowed(reporter.config)
        if words := _words(rules, narrowed=narrowed):
            reporter.say(words, _PLACE_OF_RULES)
            if not narrowed:
                reporter.fail(lambda: _words(rules, narrowed=False))


feature = StaleGoldens


def _words(found: list[tuple[str, ...]], *, narrowed: bool) -> str:
    """Describe the rules that no compared test has a tensor for; "" without any."""
    from pytest_npudump.language.text import first_of  # noqa: PLC0415 - for marked tests
    from pytest_npudump.language.translation import gettext as _, ngettext  # noqa: PLC0415 - the same
    from pytest_npudump.regression.result import idle_everywhere  # noqa: PLC0415 - the same

    if not (rules := idle_everywhere(found)):
        return ""
    words = ngettext(
        "{count} tolerance rule matches no tensor of these tests: {rules}",
        "{count} tolerance rules match no tensor of these tests: {rules}",
        len(rules),
    ).format(count=len(rules), rules=first_of(rules, _SHOWN))
    if narrowed:
        return words
    advice = _("correct the layer, op_type, dtype or statistic, or remove it; the run does not pass")
    return said("{words}; {advice}", words=words, advice=advice)


def _lines(config: pytest.Config, settings: Settings) -> list[str]:
    """Return the stale goldens, or why they are not known, in lines; none without any."""
    options = ["-o", f"npudump_golden_dir={settings.golden_dir}"]
    if config.inipath is not None:
        options += ["-c", str(config.inipath)]
    given = os.environ.get("PYTEST_ADDOPTS", "")
    environment = {**os.environ, "PYTEST_ADDOPTS": f"{given} {shlex.join(options)}".strip()}
    done = subprocess.run(  # noqa: S603 - this package, in this interpreter
        [sys.executable, "-c", _COMMAND],
        cwd=config.rootpath,
        env=environment,
        check=False,
        capture_output=True,
        text=True,
        errors="replace",
        stdin=subprocess.DEVNULL,
    )
    if not done.returncode:
        return []
    told = (done.stdout if done.returncode == 1 else done.stderr or done.stdout).splitlines()
    heading = "goldens are stale" if done.returncode == 1 else "whether goldens are stale is not known"
    return [f"npudump_fail_on=stale: {heading}:", *(f"  {line}" for line in told)]
