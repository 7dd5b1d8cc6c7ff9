"""Stale goldens at the end of a session that is to fail for them: by a collection of its own.

What a session itself has collected is narrowed by paths, ``-k``, ``--lf`` and other plugins. So the whole
project is collected again, from pytest's rootdir with its configuration, as ``npudump golden stale`` does.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

    from pytest_npudump.settings import Settings

STALE = "stale"
"""The value of ``--npudump-fail-on`` with which goldens that no test has fail the session."""
_COMMAND = "import sys; from pytest_npudump.cli import main; sys.exit(main(['golden', 'stale']))"


def is_asked(config: pytest.Config, settings: Settings) -> bool:
    """Whether this process is to look: not a worker, nor the child of a test, nor one that only collects."""
    from pytest_npudump.plugin.isolation.task import CHILD  # noqa: PLC0415 - only where asked for

    part = hasattr(config, "workerinput") or config.pluginmanager.has_plugin(CHILD)
    return settings.fail_on == STALE and not part and not config.option.collectonly


def stale_lines(config: pytest.Config, settings: Settings) -> list[str]:
    """Return what is stale, or why that is not known, in lines; none where nothing is.

    Args:
        config: of the session.
        settings: its options.
    """
    options = [f"--npudump-golden-dir={settings.golden_dir}"]
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
    return [f"--npudump-fail-on=stale: {heading}:", *(f"  {line}" for line in told)]
