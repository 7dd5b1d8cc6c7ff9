"""Output folder of a session within its limit, and summaries for the service that runs it.

Kept results, dumps and the page are written there by those whose they are. This completes them with a
summary, ``session.json`` and CANN's log, and writes what GitHub, GitLab and others show.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_npudump.errors import NpudumpError
from pytest_npudump.golden.origin import installed
from pytest_npudump.language import ENGLISH
from pytest_npudump.language.text import byte_size, first_of
from pytest_npudump.language.translation import speaking
from pytest_npudump.plugin.features import OUTPUT_LIMIT
from pytest_npudump.plugin.marks import MARKERS
from pytest_npudump.plugin.paths import output_folder, results_path
from pytest_npudump.report.ci import JudgedTest, code_quality, error_commands, markdown_summary
from pytest_npudump.results.folder import ResultsFolder
from pytest_npudump.results.serialisation import given_options
from pytest_npudump.storage.atomic import locked, replace_file, write_whole

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pytest

    from pytest_npudump.plugin.reporter import Reported, Reporter
    from pytest_npudump.settings import Settings


class Output:
    """Writes once the session has ended."""

    def __init__(self, config: pytest.Config, settings: Settings) -> None:
        self._folder = output_folder(config, settings)
        self._limit: int | None = OUTPUT_LIMIT.of(settings)
        self._annotations: list[str] = []

    def pytest_npudump_wanted(self) -> bool:
        """Ask for a look at the end of the session whatever ran."""
        return self._folder is not None

    def pytest_npudump_session_end(self, reporter: Reporter) -> None:
        """Write everything, in English."""
        with speaking(ENGLISH):
            problems, root = reporter.problems(), reporter.config.rootpath
            tests = judged_tests(reporter.tests.values(), root)
            if self._folder is not None and tests:
                for line in complete(tests, reporter, self._folder, self._limit):
                    reporter.say(line)
            for line in write_summaries(tests, problems, reporter, self._folder):
                reporter.say(line)
            if on_github():  # whose runner reads these lines from the log
                self._annotations = [*error_commands(tests, problems)]

    def pytest_npudump_summary(self, terminalreporter: Any) -> None:
        """Print the lines that GitHub's runner reads from the log."""
        for line in self._annotations:
            terminalreporter.write_line(line)


feature = Output

_TEXT = frozenset({".txt", ".json", ".csv", ".md", ".html"})
"""Never removed: dumps are worth little without them, and they are small."""
_MOST_PROBLEMS = 3
_MOST_NAMED = 200
"""Files that ``session.json`` names of those that were removed, the largest: it counts them all."""
_MOST_PRODUCERS = 8
_PACKAGES = ("pytest", "numpy", "onnx", "onnxruntime", "torch", "torch-npu", "mindspore", "pytest-xdist")


def complete(
    tests: Sequence[JudgedTest], reporter: Reporter, folder: Path, limit: int | None
) -> Iterator[str]:
    """Add files for a person besides results and dumps, and remove those beyond the limit.

    Args:
        tests: of the session.
        reporter: of the session.
        folder: the output folder, which other sessions may have, too.
        limit: bytes that may be in it; None for any number.

    Yields:
        What the terminal says; trouble fails nothing.
    """
    trouble: list[str] = []
    if not all(test.good for test in tests):
        trouble += _copy_logs(reporter.began, folder / "log")
    removed: list[tuple[Path, int]] = []
    if limit is not None:
        over = sum(size for _, size in walk(folder)) - limit
        for path, size in sorted(_dumped(tests, folder), key=lambda file: -file[1]):
            if over <= 0:
                break
            with suppress(OSError):
                path.unlink()
                removed.append((path, size))
                over -= size
        if removed:
            names = first_of((f"{path.name} ({byte_size(size)})" for path, size in removed), 3)
            yield f"{folder}: over npudump_output_limit ({byte_size(limit)}), left out: {names}"
        if over > 0:
            yield (
                f"{folder}: {byte_size(limit + over)}, and npudump_output_limit is {byte_size(limit)}; "
                f"remove dumps of earlier sessions, or give more"
            )
    try:
        told = _index(tests, reporter, limit, trouble)
        named = ((path.relative_to(folder).as_posix(), size) for path, size in removed[:_MOST_NAMED])
        told["left_out"] = [{"file": name, "bytes": size} for name, size in named]
        told["left_out_in_all"] = {"files": len(removed), "bytes": sum(size for _, size in removed)}
        content = f"{json.dumps(told, indent=1, default=str)}\n".encode()
        _replace(folder / f"{reporter.prefix}session.json", content)
    except (OSError, NpudumpError) as error:
        trouble.append(f"{folder}: session.json cannot be written: {error}")
    yield from trouble[:_MOST_PROBLEMS]


def walk(folder: Path) -> Iterator[tuple[Path, int]]:
    """Yield the files below a folder with their sizes; links are not followed."""
    for parent, _, names in os.walk(folder):
        for name in sorted(names):
            path = Path(parent, name)
            with suppress(OSError):  # it has gone meanwhile
                if not path.is_symlink():
                    yield path, path.stat().st_size


def _dumped(tests: Sequence[JudgedTest], folder: Path) -> Iterator[tuple[Path, int]]:
    """Yield the dumps of failing tests, without their reports; others' dumps are theirs."""
    for test in tests:
        details = test.result.get("details")
        if details and not test.good and Path(details).is_relative_to(folder):
            files = walk(Path(details).parent)
            yield from (file for file in files if file[0].suffix not in _TEXT)


def _copy_logs(since: float, folder: Path) -> list[str]:
    """Copy CANN's logs since a time of the clock; by default it logs below the home directory."""
    base = Path(os.environ.get("ASCEND_PROCESS_LOG_PATH") or Path.home() / "ascend" / "log")
    problems: list[str] = []
    for path, _ in walk(base):
        target = folder / path.relative_to(base)
        try:
            if path.stat().st_mtime >= since:
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, target)
        except OSError as error:
            problems.append(f"{path} cannot be copied: {error.strerror or error}")
        if len(problems) >= _MOST_PROBLEMS:  # a full disk has no room for the others either
            break
    return problems


def _index(
    tests: Sequence[JudgedTest], reporter: Reporter, limit: int | None, problems: Sequence[str]
) -> dict[str, Any]:
    """Return the session's index for readers of its files: versions, settings and results."""
    names = {test.test for test in tests}
    producers: list[Mapping[str, str]] = []
    with suppress(OSError, NpudumpError):  # told where results are kept
        for entry in ResultsFolder(results_path(reporter.config, reporter.settings)).read().entries:
            found = entry.data["producer"] if entry.test in names else None
            if found and found not in producers:
                producers.append(found)
    return {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "packages": {
            package: found
            for name in sorted({"pytest-npudump", *_PACKAGES})
            for package, found in installed(name).items()
        },
        "producers": producers[:_MOST_PRODUCERS],
        "options": given_options(reporter.settings),
        "limit": limit,
        "problems": [*problems],
    }


CODE_QUALITY = "npudump-code-quality.json"
"""The file for GitLab, in the folder of the project."""
_DECORATORS = 200
"""Lines between a test's first decorator and its body that are looked through for the marker."""
_MOST = 1 << 26


def on_github() -> bool:
    """Return whether GitHub Actions runs this process."""
    return os.environ.get("GITHUB_ACTIONS") == "true"


def judged_tests(reported: Iterable[Reported], root: Path) -> tuple[JudgedTest, ...]:
    """Return the tests of a session with the places of their markers in the repository."""
    repository = Path(os.environ.get("GITHUB_WORKSPACE") or os.environ.get("CI_PROJECT_DIR") or root)
    tests = []
    for test in reported:
        path = Path(os.path.realpath(root / test.file))
        base = Path(os.path.realpath(repository))
        shown = path.relative_to(base).as_posix() if path.is_relative_to(base) else Path(test.file).as_posix()
        tests.append(JudgedTest(test.result, test.failed, shown, _marker_line(path, test.line)))
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
        if code.startswith("@") and any(name in code for name in MARKERS):
            return number
    return first + 1


def write_summaries(
    tests: Sequence[JudgedTest], problems: Sequence[str], reporter: Reporter, folder: Path | None
) -> list[str]:
    """Write the summaries of an ended session.

    Args:
        tests: of the session.
        problems: why the session does not pass, whatever its tests say.
        reporter: of the session.
        folder: for what it leaves; None for none.

    Returns:
        What cannot be written, in words: no verdict hangs on these files.
    """
    untold, root = [], reporter.config.rootpath
    step = os.environ.get("GITHUB_STEP_SUMMARY") if on_github() and (tests or problems) else None
    if step or folder:
        approval = reporter.settings.approval_flag
        text = markdown_summary(tests, problems, approval=approval, root=root)
        if step:
            untold += _tried(step, lambda: _append(Path(step), text))
        if folder:
            path = folder / f"{reporter.prefix}summary.md"
            untold += _tried(str(path), lambda: _replace(path, text.encode("utf-8", "backslashreplace")))
    if os.environ.get("GITLAB_CI") == "true" and tests:
        report = Path(os.environ.get("CI_PROJECT_DIR") or root) / CODE_QUALITY
        untold += _tried(str(report), lambda: _join(report, tests))
    return untold


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


def _join(path: Path, tests: Sequence[JudgedTest]) -> None:
    """Replace this session's part of the report of a job, which may have many sessions, even at once."""
    with locked(Path(os.path.realpath(path))) as target:
        replace_file(target, [code_quality(tests, target.read_bytes() if target.exists() else b"")])
