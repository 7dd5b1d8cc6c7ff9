"""``npudump_fail_on=stale``: goldens that no test has fail the session, by a collection of its own."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from functools import partial
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pytest_npudump.plugin.reporter import Reporter
    from pytest_npudump.settings import Settings


_PLACE = 2
_COMMAND = "import sys; from pytest_npudump.cli import main; sys.exit(main(['golden', 'status', '--prune']))"


def feature(_config: pytest.Config, _settings: Settings) -> StaleGoldens:
    """Return the finder."""
    return StaleGoldens()


class StaleGoldens:
    """Search for stale goldens at the end of the session."""

    def pytest_npudump_wanted(self) -> bool:
        """Ask for a look at the end of the session whatever ran."""
        return True

    def pytest_npudump_check(self, reporter: Reporter) -> None:
        """Fail a session that ended well where goldens are stale, or that is unknown."""
        for line in _lines(reporter.config, reporter.settings):
            reporter.say(line, _PLACE)
            reporter.fail(partial(str, line), pytest.ExitCode.NO_TESTS_COLLECTED)


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
