"""What is written for services: a tree of artifacts, as far as there is room, and summaries."""

from __future__ import annotations

import json
import os
import platform
import shutil
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import distributions
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_npudump.errors import NpudumpError, joined, said
from pytest_npudump.language.text import byte_size, first_of
from pytest_npudump.language.translation import speaking
from pytest_npudump.plugin.features.keeper import has_place, results_path
from pytest_npudump.plugin.marks import MARKERS
from pytest_npudump.report.ci import JudgedTest, code_quality, error_commands, markdown_summary
from pytest_npudump.results.folder import ResultsFolder
from pytest_npudump.results.kept import given_options
from pytest_npudump.storage.atomic import locked, replace_file, write_whole

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from pytest_npudump.plugin.reporter import Reported, Reporter
    from pytest_npudump.settings import Settings


_TEXT = frozenset({".txt", ".json", ".csv", ".md", ".html"})
"""Kept before anything else: dumps are worth little without them, and they are small."""
_LEAST_ROOM = 2
"""Files that cannot be copied before the others are not tried: a full disk has no room for these either."""


@dataclass(frozen=True, slots=True)
class ArtifactFile:
    """A file of the tree, or a folder that is of use as a whole.

    Attributes:
        path: where it lies.
        name: where it goes, relative to the folder of the session.
        size: in bytes.
    """

    path: Path
    name: str
    size: int

    @property
    def rank(self) -> tuple[bool, int]:
        """Text and what is in place first, then the smallest: the largest are left out first."""
        return self.path.suffix not in _TEXT and not self.path.is_dir(), self.size


def walk(folder: Path) -> Iterator[tuple[Path, int]]:
    """Yield the files below a folder with their sizes; links are not followed."""
    for parent, _, names in os.walk(folder):
        for name in sorted(names):
            path = Path(parent, name)
            with suppress(OSError):  # it has gone meanwhile
                if not path.is_symlink():
                    yield path, path.stat().st_size


def bytes_below(folder: Path) -> int:
    """Return the bytes of all files below a folder."""
    return sum(size for _, size in walk(folder))


def written(folder: Path) -> Iterator[ArtifactFile]:
    """Yield what was made in the folder of a session itself: a folder in it counts as one."""
    for path in sorted(folder.iterdir()):
        yield ArtifactFile(path, path.name, bytes_below(path) if path.is_dir() else path.stat().st_size)


def of_tests(tests: Sequence[JudgedTest]) -> Iterator[ArtifactFile]:
    """Yield what failing tests have left."""
    for test in tests:
        details = test.result.get("details")
        if test.good or not details:
            continue
        directory = Path(details).parent
        for path, size in walk(directory):
            name = f"tests/{directory.name}/{path.relative_to(directory).as_posix()}"
            yield ArtifactFile(path, name, size)


def cann_logs(since: float) -> Iterator[ArtifactFile]:
    """Yield what CANN has logged since a time of the clock: by default it logs below the home directory."""
    base = Path(os.environ.get("ASCEND_PROCESS_LOG_PATH") or Path.home() / "ascend" / "log")
    for path, size in walk(base):
        with suppress(OSError):
            if path.stat().st_mtime >= since:
                yield ArtifactFile(path, f"log/{path.relative_to(base).as_posix()}", size)


def golden_tensors(source: ResultsFolder, tests: Collection[str]) -> Iterator[ArtifactFile]:
    """Yield golden tensors of tests that wait for a decision, by where an approval looks for them."""
    with suppress(NpudumpError):  # told where the results themselves are copied
        entries = [entry for entry in source.read().entries if entry.test in tests]
        for digest in {one: None for entry in entries for one in entry.objects}:
            path = source.tensors.cache.path(digest)
            if path.is_file():
                name = path.relative_to(source.path).as_posix()
                yield ArtifactFile(path, f"results/{name}", path.stat().st_size)


def within(files: Sequence[ArtifactFile], limit: int) -> tuple[list[ArtifactFile], list[ArtifactFile]]:
    """Return the files that fit, and those that do not, the largest first."""
    kept, dropped = [], []
    for file in sorted(files, key=lambda file: file.rank):
        if file.size <= limit:
            kept.append(file)
            limit -= file.size
        else:
            dropped.append(file)
    return kept, sorted(dropped, key=lambda file: -file.size)


def place(kept: Sequence[ArtifactFile], dropped: Sequence[ArtifactFile], folder: Path) -> list[str]:
    """Copy what is kept to the folder of a session, and take out of it what is not; return what failed."""
    problems: list[str] = []
    for file in dropped:
        if file.path.parent == folder:
            shutil.rmtree(file.path) if file.path.is_dir() else file.path.unlink()
    for file in kept:
        target = folder / file.name
        if target == file.path:
            continue
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file.path, target)
        except OSError as error:
            target.unlink(missing_ok=True)
            problems.append(f"{file.path} cannot be copied: {error.strerror or error}")
            if len(problems) > _LEAST_ROOM:
                break
    return problems


_INDEX = "artifacts.json"
_PAGE = "report"
_RESULTS = "results"
_INDEX_ROOM = 1 << 14
"""Bytes for the index, which names the largest of what is left out: as many as there is room for."""
_MOST_PRODUCERS = 8
_PACKAGES = ("pytest", "numpy", "onnx", "onnxruntime", "torch", "torch-npu", "mindspore", "pytest-xdist")


def gather(
    tests: Sequence[JudgedTest], problems: Sequence[str], reporter: Reporter, base: Path, limit: int
) -> tuple[str, Path | None]:
    """Write the tree; trouble is told, and fails nothing.

    Args:
        tests: of the session.
        problems: why the session does not pass, whatever its tests say.
        reporter: of the session.
        base: the folder of all sessions' trees.
        limit: bytes that may be in it.

    Returns:
        What the terminal says of it, and the folder of the session; None where nothing was gathered.
    """
    settings = reporter.settings
    try:
        base.mkdir(parents=True, exist_ok=True)
        used = bytes_below(base)
        room = limit - used - _INDEX_ROOM
        if room < 0:
            return (
                f"artifacts are not gathered: {base} has {byte_size(used)}, and --npudump-artifacts-limit is "
                f"{byte_size(limit)}; remove what is there, or give more"
            ), None
        folder = _new_folder(base)
        summary = markdown_summary(tests, problems, approval=settings.approval_flag, artifacts="")
        (folder / "summary.md").write_bytes(summary.encode("utf-8", "backslashreplace"))
        source = None
        if has_place(reporter.config, settings):
            source = ResultsFolder(results_path(reporter.config, settings))
        trouble, producers = _copy_results(tests, source, folder)
        trouble += _write_page(tests, reporter, folder)
        files = [*written(folder), *of_tests(tests)]
        files += golden_tensors(source, {test.test for test in tests}) if source is not None else ()
        kept, dropped = within([*files, *cann_logs(reporter.began)], room)
        trouble += place(kept, dropped, folder)
        (folder / _INDEX).write_bytes(_index(settings, limit, producers, dropped, trouble))
    except OSError as error:
        return f"artifacts cannot be gathered in {base}: {error}", None
    return _words(folder, kept, dropped, trouble), folder


def _words(
    folder: Path, kept: Sequence[ArtifactFile], dropped: Sequence[ArtifactFile], problems: Sequence[str]
) -> str:
    text = f"artifacts are in {folder}: {byte_size(sum(file.size for file in kept))}"
    if dropped:
        names = first_of((f"{file.path.name} ({byte_size(file.size)})" for file in dropped), 3)
        text += f"; over the limit, and left out: {names}"
    return text + joined("", (said("; {problem}", problem=problem) for problem in problems))


def _new_folder(base: Path) -> Path:
    for number in count(1):
        with suppress(FileExistsError):
            folder = base / f"session-{number}"
            folder.mkdir()
            return folder
    raise AssertionError  # count() has no end


def _copy_results(
    tests: Sequence[JudgedTest], source: ResultsFolder | None, folder: Path
) -> tuple[list[str], list[Mapping[str, str]]]:
    """Copy what is kept of the session's tests alone; return trouble, and what produced the runs."""
    if source is None:
        return [], []
    names = {test.test for test in tests}
    try:
        entries = [entry for entry in source.read().entries if entry.test in names]
        target = ResultsFolder(folder / _RESULTS)
        for entry in entries:
            records = {entry.record_file: source.record(entry)} if entry.record_file else {}
            target.add([entry.data], records)
    except (OSError, NpudumpError) as error:
        return [f"results are not among them: {error}"], []
    producers: list[Mapping[str, str]] = []
    for entry in entries:
        if (found := entry.data["producer"]) and found not in producers:
            producers.append(found)
    return [], producers


def _write_page(tests: Sequence[JudgedTest], reporter: Reporter, folder: Path) -> list[str]:
    """Write the page of the results that were copied, with what dumps tell while these are there."""
    results = folder / _RESULTS
    if not results.is_dir() or find_spec("jinja2") is None:
        return []
    from pytest_npudump.report.html import page  # noqa: PLC0415 - where results are kept
    from pytest_npudump.results.rejudge import Overrides  # noqa: PLC0415 - the same
    from pytest_npudump.results.session_view import view_of_tests  # noqa: PLC0415 - where results are kept

    try:
        with speaking(reporter.settings.lang):
            names, terms = {test.test for test in tests}, Overrides(reporter.config.rootpath)
            view = view_of_tests(ResultsFolder(results), names, terms, reporter.problems())
            page.write(view, folder, _PAGE)
    except NpudumpError as error:
        return [f"the page is not among them: {error}"]
    return []


def _index(
    settings: Settings,
    limit: int,
    producers: Sequence[Mapping[str, str]],
    dropped: Sequence[ArtifactFile],
    problems: Sequence[str],
) -> bytes:
    """Return the index: of files that are left out as many as there is room for, the largest first."""
    named = len(dropped)
    while True:
        index: dict[str, Any] = {
            "python": platform.python_version(),
            "machine": platform.machine(),
            "packages": _versions(),
            "producers": [*producers][:_MOST_PRODUCERS],
            "options": given_options(settings),
            "limit": limit,
            "left_out": [{"file": file.name, "bytes": file.size} for file in dropped[:named]],
            "left_out_in_all": {"files": len(dropped), "bytes": sum(file.size for file in dropped)},
            "problems": [*problems],
        }
        content = f"{json.dumps(index, indent=1, default=str)}\n".encode()
        if len(content) <= _INDEX_ROOM or not named:
            return content
        named = named * _INDEX_ROOM // len(content) if named > 1 else 0


def _versions() -> dict[str, str]:
    wanted = {"pytest-npudump", *_PACKAGES}
    found = {(package.name or "").lower().replace("_", "-"): package.version for package in distributions()}
    return {name: found[name] for name in sorted(wanted) if name in found}


CODE_QUALITY = "npudump-code-quality.json"
"""The file for GitLab, in the folder of the project."""
_DECORATORS = 200
"""Lines between a test's first decorator and its body that are looked through for the marker."""
_MOST = 1 << 26


def on_github() -> bool:
    """Whether GitHub Actions runs this process."""
    return os.environ.get("GITHUB_ACTIONS") == "true"


def on_gitlab() -> bool:
    """Whether GitLab's runner runs this process."""
    return os.environ.get("GITLAB_CI") == "true"


def judged_tests(reported: Iterable[Reported], root: Path) -> tuple[JudgedTest, ...]:
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
    tests: Sequence[JudgedTest],
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


def annotation_lines(tests: Sequence[JudgedTest], problems: Sequence[str]) -> Iterable[str]:
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


def _join(path: Path, tests: Sequence[JudgedTest]) -> None:
    """Replace this session's part of the report of a job, which may have many sessions, even at once."""
    with locked(Path(os.path.realpath(path))) as target:
        before = target.read_bytes() if target.exists() else b""
        replace_file(target, [code_quality(tests, before)])
