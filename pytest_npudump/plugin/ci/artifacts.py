"""``--npudump-artifacts``: what a person needs of a failed session, in one tree of bounded size.

A session gets a folder of its own, as jobs may run one pytest a file::

    session-1/
      artifacts.json   versions, options, and each file that was left out, with its bytes
      summary.md       the session in Markdown
      report.html      the session's page, where results are kept and jinja2 is installed
      results/         verdicts and statistics: for npudump check, and npudump golden accept
      tests/           a folder a failing test: report.txt, report.json, acl.json and the dumps of its runs
      log/             what CANN logged while the session ran
"""

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

from pytest_npudump.errors import NpudumpError
from pytest_npudump.language.excerpt import first_of
from pytest_npudump.language.translation import speaking
from pytest_npudump.plugin.paths import keeps_results, results_path
from pytest_npudump.report.ci.markdown import markdown_summary
from pytest_npudump.results.folder import ResultsFolder

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pytest

    from pytest_npudump.report.ci.judged import Judged
    from pytest_npudump.settings import Settings

INDEX = "artifacts.json"
_PAGE = "report.html"
_TEXT = frozenset({".txt", ".json", ".csv"})
"""Kept before anything else: a report is worth little without them, and they are small."""
_PACKAGES = ("pytest", "numpy", "onnx", "onnxruntime", "torch", "torch-npu", "mindspore", "pytest-xdist")


@dataclass(frozen=True, slots=True)
class _File:
    """A file to be gathered.

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
        """Text first, then the smallest: the largest are left out first."""
        return self.path.suffix not in _TEXT, self.size


def gather(tests: Sequence[Judged], config: pytest.Config, settings: Settings, since: float) -> str:
    """Write the tree, and return what the terminal says of it; trouble is told, and fails nothing.

    Args:
        tests: of the session.
        config: pytest's.
        settings: the options.
        since: when the session began, in seconds of the clock that files' times are of.
    """
    base = config.rootpath / settings.artifacts
    try:
        base.mkdir(parents=True, exist_ok=True)
        left = settings.artifacts_limit - sum(size for _, size in _walk(base))
        folder = _new_folder(base)
        (folder / "summary.md").write_bytes(_summary(tests, settings))
        problems = _copy_results(tests, config, settings, folder)
        problems += _write_page(tests, config, settings, folder)
        left -= sum(size for _, size in _walk(folder))
        files = [*_of_tests(tests), *_tensors(tests, config, settings), *_logs(since)]
        kept, dropped = _within(files, left)
        problems += _copy(kept, folder)
        _write_index(folder, settings, dropped, problems)
    except OSError as error:
        return f"artifacts cannot be gathered in {base}: {error}"
    return _words(folder, kept, dropped, problems)


def _summary(tests: Sequence[Judged], settings: Settings) -> bytes:
    return markdown_summary(tests, approval=settings.approval_flag).encode("utf-8", "backslashreplace")


def _words(folder: Path, kept: Sequence[_File], dropped: Sequence[_File], problems: Sequence[str]) -> str:
    text = f"artifacts are in {folder}: {_bytes(sum(file.size for file in kept))} of failing tests"
    if dropped:
        names = first_of((f"{file.path.name} ({_bytes(file.size)})" for file in dropped), 3)
        text += f"; over the limit, and left out: {names}"
    return text + "".join(f"; {problem}" for problem in problems)


def _bytes(size: int) -> str:
    return f"{size / (1 << 20):.1f} MiB"


def _new_folder(base: Path) -> Path:
    for number in count(1):
        with suppress(FileExistsError):
            folder = base / f"session-{number}"
            folder.mkdir()
            return folder
    raise AssertionError  # count() has no end


def _walk(folder: Path) -> Iterator[tuple[Path, int]]:
    """Yield the files below a folder with their sizes; links are not followed."""
    for parent, _, names in os.walk(folder):
        for name in sorted(names):
            path = Path(parent, name)
            with suppress(OSError):  # it has gone meanwhile
                if not path.is_symlink():
                    yield path, path.stat().st_size


def _of_tests(tests: Sequence[Judged]) -> Iterator[_File]:
    for test in tests:
        details = test.result.get("details")
        if test.good or not details:
            continue
        directory = Path(details).parent
        for path, size in _walk(directory):
            yield _File(path, f"tests/{directory.name}/{path.relative_to(directory).as_posix()}", size)


def _logs(since: float) -> Iterator[_File]:
    """Yield what CANN has logged since the session began: by default it logs below the home directory."""
    base = Path(os.environ.get("ASCEND_PROCESS_LOG_PATH") or Path.home() / "ascend" / "log")
    for path, size in _walk(base):
        with suppress(OSError):
            if path.stat().st_mtime >= since:
                yield _File(path, f"log/{path.relative_to(base).as_posix()}", size)


def _within(files: Sequence[_File], limit: int) -> tuple[list[_File], list[_File]]:
    """Return the files that fit, and those that do not, the largest first."""
    kept, dropped = [], []
    for file in sorted(files, key=lambda file: file.rank):
        if file.size <= limit:
            kept.append(file)
            limit -= file.size
        else:
            dropped.append(file)
    return kept, sorted(dropped, key=lambda file: -file.size)


def _copy(files: Sequence[_File], folder: Path) -> list[str]:
    problems = []
    for file in files:
        target = folder / file.name
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file.path, target)
        except OSError as error:
            target.unlink(missing_ok=True)
            problems.append(f"{file.path} cannot be copied: {error.strerror or error}")
            if len(problems) > 2:  # noqa: PLR2004 - a full disk has no room for the others either
                break
    return problems


def _copy_results(
    tests: Sequence[Judged], config: pytest.Config, settings: Settings, folder: Path
) -> list[str]:
    """Copy what is kept of the session's tests, and of no other."""
    if not keeps_results(config, settings):
        return []
    names = {test.test for test in tests}
    try:
        source = ResultsFolder(results_path(config, settings))
        results = source.read()
        entries = [entry for entry in results.entries if entry.test in names]
        target = ResultsFolder(folder / "results")
        for entry in entries:
            records = {entry.record_file: source.record(entry)} if entry.record_file else {}
            target.add([entry.data], records)
    except (OSError, NpudumpError) as error:
        return [f"results are not among them: {error}"]
    return []


def _write_page(
    tests: Sequence[Judged], config: pytest.Config, settings: Settings, folder: Path
) -> list[str]:
    """Write the page of the results that were copied, with what dumps tell while these are there."""
    results = folder / "results"
    if not results.is_dir() or find_spec("jinja2") is None:
        return []
    from pytest_npudump.results.session_page import page_of_tests  # noqa: PLC0415 - where results are kept
    from pytest_npudump.results.terms import Terms  # noqa: PLC0415 - the same

    try:
        with speaking(settings.lang):
            page_of_tests(
                ResultsFolder(results), {test.test for test in tests}, Terms(config.rootpath), folder / _PAGE
            )
    except NpudumpError as error:
        return [f"the page is not among them: {error}"]
    return []


def _tensors(tests: Sequence[Judged], config: pytest.Config, settings: Settings) -> Iterator[_File]:
    """Yield golden tensors of tests that wait for a decision, by where an approval looks for them."""
    if not keeps_results(config, settings):
        return
    source, names = ResultsFolder(results_path(config, settings)), {test.test for test in tests}
    with suppress(NpudumpError):  # told where the results themselves are copied
        for digest in {
            one: None for entry in source.read().entries if entry.test in names for one in entry.objects
        }:
            path = source.tensors.cache.path(digest)
            if path.is_file():
                name = path.relative_to(source.path).as_posix()
                yield _File(path, f"results/{name}", path.stat().st_size)


def _write_index(folder: Path, settings: Settings, dropped: Sequence[_File], problems: Sequence[str]) -> None:
    index: dict[str, Any] = {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "packages": _versions(),
        "limit": settings.artifacts_limit,
        "left_out": [{"file": file.name, "bytes": file.size} for file in dropped],
        "problems": [*problems],
    }
    (folder / INDEX).write_text(json.dumps(index, indent=1, default=str) + "\n", encoding="utf-8")


def _versions() -> dict[str, str]:
    wanted = {"pytest-npudump", *_PACKAGES}
    found = {(package.name or "").lower().replace("_", "-"): package.version for package in distributions()}
    return {name: found[name] for name in sorted(wanted) if name in found}
