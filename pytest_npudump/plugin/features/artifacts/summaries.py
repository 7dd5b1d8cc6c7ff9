"""Files and lines for the services that run tests."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_npudump.errors import NpudumpError
from pytest_npudump.report.ci import Judged, code_quality, error_commands, markdown_summary
from pytest_npudump.storage.atomic import locked, replace_file, write_whole

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_npudump.plugin.terminal.reporter import Reported, Reporter

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
    reporter: Reporter,
    summary: Path | None,
    artifacts: Path | None,
) -> list[str]:
    """Write what is wanted of a session that has ended.

    Args:
        tests: of the session.
        problems: why the session does not pass, whatever its tests say.
        reporter: of the session.
        summary: the file that is asked for; None for none.
        artifacts: the session's folder of artifacts; None without one.

    Returns:
        What cannot be written, in words: no verdict hangs on these files.
    """
    untold, root = [], reporter.config.rootpath
    step = os.environ.get("GITHUB_STEP_SUMMARY") if on_github() and (tests or problems) else None
    if step or summary:
        gathered = None if artifacts is None else os.path.relpath(artifacts, root)
        approval = reporter.settings.approval_flag
        text = markdown_summary(tests, problems, approval=approval, artifacts=gathered)
        if step:
            untold += _tried(step, lambda: _append(Path(step), text))
        if summary:
            path = summary.with_name(f"{reporter.prefix}{summary.name}")
            untold += _tried(str(path), lambda: _replace(path, text.encode("utf-8", "backslashreplace")))
    if on_gitlab() and tests:
        report = Path(os.environ.get("CI_PROJECT_DIR") or root) / CODE_QUALITY
        untold += _tried(str(report), lambda: _join(report, tests))
    return untold


def annotation_lines(tests: Sequence[Judged], problems: Sequence[str]) -> Iterable[str]:
    """Return the lines that GitHub's runner reads from the log; none elsewhere."""
    return error_commands(tests, problems) if on_github() else []


def _tried(name: str, write: Any) -> list[str]:
    try:
        write()
    except (OSError, NpudumpError) as error:
        return [f"the summary {name} cannot be written: {error}"]
    return []


def _append(path: Path, text: str) -> None:
    with path.open("a", encoding="utf-8", errors="backslashreplace") as file:
        file.write(f"{text}\n")


def _replace(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, [content])


def _join(path: Path, tests: Sequence[Judged]) -> None:
    """Replace this session's part of the report of a job, which may have many sessions, even at once."""
    with locked(Path(os.path.realpath(path))) as target:
        before = target.read_bytes() if target.exists() else b""
        replace_file(target, [code_quality(tests, before)])
