"""Files and lines for the services that run tests: only where one of them runs this session, or asked for."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_npudump.report.ci import Judged

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_npudump.plugin.reported import Reported
    from pytest_npudump.settings import Settings

CODE_QUALITY = "npudump-code-quality.json"
"""The file for GitLab, in the folder of the project."""
_MARKER = "npu_dump"
_DECORATORS = 200
"""Lines between a test's first decorator and its body that are looked through for the marker."""
_MOST = 1 << 26


def on_github() -> bool:
    """Whether GitHub Actions runs this process."""
    return os.environ.get("GITHUB_ACTIONS") == "true"


def on_gitlab() -> bool:
    """Whether GitLab's runner runs this process."""
    return os.environ.get("GITLAB_CI") == "true"


def is_wanted(settings: Settings) -> bool:
    """Whether anything here is to be written."""
    return bool(settings.summary) or on_github() or on_gitlab()


def judged_tests(reported: Iterable[Reported], root: Path) -> tuple[Judged, ...]:
    """Return the tests of a session with the places of their markers in the repository.

    Args:
        reported: in the order in which they were.
        root: pytest's rootdir.
    """
    repository = Path(os.environ.get("GITHUB_WORKSPACE") or os.environ.get("CI_PROJECT_DIR") or root)
    tests = []
    for test in reported:
        path = Path(os.path.realpath(root / test.file))
        base = Path(os.path.realpath(repository))
        shown = path.relative_to(base).as_posix() if path.is_relative_to(base) else Path(test.file).as_posix()
        tests.append(Judged(test.result, test.failed, shown, _marker_line(path, test.line)))
    return tuple(tests)


def _marker_line(path: Path, first: int) -> int:
    """Return the line of the marker, from 1: that of the test where the marker stands elsewhere."""
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            lines = file.readlines(_MOST)[first : first + _DECORATORS]
    except OSError:
        return first + 1
    for number, line in enumerate(lines, first + 1):
        code = line.lstrip()
        if code.startswith(("def ", "async def ", "class ")):
            break
        if code.startswith("@") and _MARKER in code:
            return number
    return first + 1


def write_summaries(
    tests: Sequence[Judged],
    problems: Sequence[str],
    settings: Settings,
    root: Path,
    *,
    prefix: str = "",
    artifacts: Path | None = None,
) -> list[str]:
    """Write what is wanted of a session that has ended.

    Args:
        tests: of the session.
        problems: why the session does not pass, whatever its tests say.
        settings: the options.
        root: pytest's rootdir.
        prefix: of the summary's name, which keeps the ranks of a distributed run apart.
        artifacts: the session's folder of artifacts; None without one.

    Returns:
        What cannot be written, in words: no verdict hangs on these files.
    """
    from pytest_npudump.report.ci import markdown_summary  # noqa: PLC0415 - where it is wanted

    untold = []
    step = os.environ.get("GITHUB_STEP_SUMMARY") if on_github() else None
    step = step if tests or problems else None
    if step or settings.summary:
        gathered = None if artifacts is None else os.path.relpath(artifacts, root)
        text = markdown_summary(tests, problems, approval=settings.approval_flag, artifacts=gathered)
        if step:
            untold += _tried(step, lambda: _append(Path(step), text))
        if settings.summary:
            path = root / settings.summary
            path = path.with_name(f"{prefix}{path.name}")
            untold += _tried(str(path), lambda: _replace(path, text.encode("utf-8", "backslashreplace")))
    if on_gitlab() and tests:
        path = Path(os.environ.get("CI_PROJECT_DIR") or root) / CODE_QUALITY
        untold += _tried(str(path), lambda: _join(path, tests))
    return untold


def annotation_lines(tests: Sequence[Judged], problems: Sequence[str]) -> Iterable[str]:
    """Return the lines that GitHub's runner reads from the log; none elsewhere."""
    if not on_github():
        return []
    from pytest_npudump.report.ci import error_commands  # noqa: PLC0415 - only there

    return error_commands(tests, problems)


def _tried(name: str, write: Any) -> list[str]:
    from pytest_npudump.errors import NpudumpError  # noqa: PLC0415 - with what may raise it

    try:
        write()
    except (OSError, NpudumpError) as error:
        return [f"the summary {name} cannot be written: {error}"]
    return []


def _append(path: Path, text: str) -> None:
    with path.open("a", encoding="utf-8", errors="backslashreplace") as file:
        file.write(f"{text}\n")


def _replace(path: Path, content: bytes) -> None:
    from pytest_npudump.storage.atomic import write_whole  # noqa: PLC0415 - only where it is wanted

    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, [content])


def _join(path: Path, tests: Sequence[Judged]) -> None:
    """Replace this session's part of the report of a job, which may have many sessions, even at once."""
    from pytest_npudump.report.ci import code_quality  # noqa: PLC0415 - only for GitLab
    from pytest_npudump.storage.atomic import locked, replace_file  # noqa: PLC0415 - the same

    with locked(Path(os.path.realpath(path))) as target:
        before = target.read_bytes() if target.exists() else b""
        replace_file(target, [code_quality(tests, before)])
