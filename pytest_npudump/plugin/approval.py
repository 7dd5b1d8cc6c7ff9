"""An update approves a test only where all of it passed: else the golden that was there is put back."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from pytest_npudump.errors import GoldenError
from pytest_npudump.plugin.item_state import EARLIER_PARTS, PARTS, RESULT, TEST
from pytest_npudump.regression import outcome as status
from pytest_npudump.storage.atomic import locked, replace_file
from pytest_npudump.storage.regular_file import read_regular

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from pytest_npudump.regression.session import CaseSession

_FOLDER = "before"
_ABSENT = ".absent"


def keep_golden(test: CaseSession) -> None:
    """Copy the golden files of a test that is about to be recorded beside its dumps.

    They are on disk, for a parent that outlives the process of an isolated test.

    Raises:
        GoldenError: they cannot be copied.
    """
    folder = test.case.directory / _FOLDER
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        for path in _files(test):
            _keep(path, folder)
    except OSError as error:
        raise GoldenError(
            f"{test.case.goldens.path}: nothing was recorded: the golden that is there cannot be copied to "
            f"{folder} first, to be put back should a later part of the test fail: {error.strerror}"
        ) from error


def _keep(path: Path, folder: Path) -> None:
    """Copy a file; one that nobody can read is replaced by an update, and counts as none."""
    try:
        (folder / path.name).write_bytes(read_regular(path))
    except (FileNotFoundError, PermissionError):
        (folder / f"{path.name}{_ABSENT}").touch()
    except OSError:
        if path.is_file():
            raise
        # What is no file is not replaced.


def withdraw_unless_passed(
    item: pytest.Item, test: CaseSession | None, reports: Sequence[pytest.TestReport]
) -> None:
    """Put the golden files back where a part of the test did not pass, and say so in its reports.

    Args:
        item: the test.
        test: its record; None where it never began.
        reports: of its phases, not logged yet.
    """
    failed = next((report for report in reports if not report.passed), None)
    if test is None or (failed is None and not failed_parts(item) and not failed_parts(item, EARLIER_PARTS)):
        return
    if test.case.settings.update_golden:
        words = f"the test's {failed.when if failed else 'subtest'} did not pass"
        problem = f"nothing was recorded: {words}"
        try:
            _put_back(test)
        except (GoldenError, OSError) as error:
            problem = f"{words}, and the golden that was there cannot be put back: {error}"
        if test.good:
            test.withdraw(problem)
            (failed or reports[-1]).sections.append(("npudump", problem))
            _amend(item, reports, status.PENDING)
    elif test.good and any(report.when == "call" and not report.passed for report in reports):
        _amend(item, reports, status.ERROR)


def failed_parts(item: pytest.Item, key: pytest.StashKey[list[pytest.TestReport]] = PARTS) -> int:
    """Return how many subtests of a run did not pass; those that were skipped are not counted."""
    parts = item.stash.get(key, [])
    return sum(part.failed or (part.skipped and hasattr(part, "wasxfail")) for part in parts)


def _files(test: CaseSession) -> tuple[Path, ...]:
    return test.case.goldens.path, test.case.goldens.path.with_suffix(".safetensors")


@contextmanager
def withdrawn_if_interrupted(item: pytest.Item) -> Iterator[None]:
    """Put the golden files back where the session ends in the block, before all of the test has passed.

    Raises:
        pytest.exit.Exception: they cannot be put back.
    """
    try:
        yield
    except BaseException:
        test = item.stash.get(TEST, None)
        if test is not None and test.case.settings.update_golden:
            try:
                _put_back(test)
            except (GoldenError, OSError) as error:
                words = (
                    f"npudump: {test.case.nodeid} was recorded and did not end, and its golden stays: {error}"
                )
                raise pytest.exit.Exception(words) from None
        raise


def _put_back(test: CaseSession) -> None:
    folder = test.case.directory / _FOLDER
    changed = [path for path in _files(test) if _is_changed(path, folder)]
    if not changed:
        return
    with locked(test.case.goldens.path):
        for path in changed:
            if _was_absent(path, folder):
                path.unlink(missing_ok=True)
            else:
                replace_file(path, [(folder / path.name).read_bytes()])


def _is_changed(path: Path, folder: Path) -> bool:
    """Whether a golden file is another than the one that was kept in ``folder``."""
    if _was_absent(path, folder):
        return path.exists()
    copy = folder / path.name
    return copy.exists() and not (path.exists() and path.read_bytes() == copy.read_bytes())


def _was_absent(path: Path, folder: Path) -> bool:
    return (folder / f"{path.name}{_ABSENT}").exists()


def _amend(item: pytest.Item, reports: Sequence[pytest.TestReport], word: str) -> None:
    """Correct the status in the result that reports carry, for the terminal and for JUnit."""
    item.stash.get(RESULT, {}).update(status=word)
    for report in reports:
        if "npudump" in vars(report):
            vars(report)["npudump"]["status"] = word
        report.user_properties[:] = [
            (name, json.dumps({**json.loads(str(value)), "status": word}, separators=(",", ":")))
            if name == "npudump"
            else (name, value)
            for name, value in report.user_properties
        ]
