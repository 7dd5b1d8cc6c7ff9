"""The folder of a test's dumps: private to the user, and deleted as soon as nobody needs it."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from pytest_npudump.errors import ConfigError

if TYPE_CHECKING:
    from pytest_npudump.regression.case import Case


def make_folder(case: Case) -> None:
    """Make the folder for the test's dumps, private to the user.

    Raises:
        ConfigError: it cannot be made.
    """
    try:
        case.directory.mkdir(parents=True, mode=0o700, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"{case.directory}: the folder for the test's dumps cannot be made: {error.strerror}; choose "
            f"another with --npudump-dump-dir"
        ) from error


def delete_dumps(case: Case) -> None:
    """Delete the dumps, unless the user keeps all."""
    if case.settings.keep_dumps != "all":
        shutil.rmtree(case.directory, ignore_errors=True)
