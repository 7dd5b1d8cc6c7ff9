"""``--npudump-artifacts``: what a person needs of a failed session, in one tree of bounded size.

A session gets a folder of its own, as jobs may run one pytest a file::

    session-1/
      artifacts.json   versions, what produced the runs, options, and what was left out, with its bytes
      summary.md       the session in Markdown
      report.html      the session's page, where results are kept and jinja2 is installed
      results/         verdicts and statistics: for npudump check, and npudump golden accept
      tests/           a folder a failing test: report.txt, report.json, acl.json and the dumps of its runs
      log/             what CANN logged while the session ran
"""

from __future__ import annotations

import json
import platform
from contextlib import suppress
from importlib.metadata import distributions
from importlib.util import find_spec
from itertools import count
from typing import TYPE_CHECKING, Any

from pytest_npudump.errors import NpudumpError
from pytest_npudump.language.excerpt import byte_size, first_of
from pytest_npudump.language.translation import speaking
from pytest_npudump.plugin.ci.artifact_files import (
    ArtifactFile,
    bytes_below,
    cann_logs,
    golden_tensors,
    of_tests,
    place,
    within,
    written,
)
from pytest_npudump.plugin.paths import keeps_results, results_path
from pytest_npudump.report.ci import markdown_summary
from pytest_npudump.results.folder import ResultsFolder
from pytest_npudump.results.kept import given_options

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    import pytest

    from pytest_npudump.report.ci import Judged
    from pytest_npudump.settings import Settings

_INDEX = "artifacts.json"
_PAGE = "report.html"
_RESULTS = "results"
_INDEX_ROOM = 1 << 14
"""Bytes for the index, which names the largest of what is left out: as many as there is room for."""
_MOST_PRODUCERS = 8
_PACKAGES = ("pytest", "numpy", "onnx", "onnxruntime", "torch", "torch-npu", "mindspore", "pytest-xdist")


def gather(
    tests: Sequence[Judged], problems: Sequence[str], config: pytest.Config, settings: Settings, since: float
) -> tuple[str, Path | None]:
    """Write the tree; trouble is told, and fails nothing.

    Args:
        tests: of the session.
        problems: why the session does not pass, whatever its tests say.
        config: pytest's.
        settings: the options.
        since: when the session began, in seconds of the clock that files' times are of.

    Returns:
        What the terminal says of it, and the folder of the session; None where nothing was gathered.
    """
    base = config.rootpath / settings.artifacts
    try:
        base.mkdir(parents=True, exist_ok=True)
        used = bytes_below(base)
        room = settings.artifacts_limit - used - _INDEX_ROOM
        if room < 0:
            return _no_room(base, used, settings.artifacts_limit), None
        folder = _new_folder(base)
        (folder / "summary.md").write_bytes(_summary(tests, problems, settings))
        trouble, producers = _copy_results(tests, config, settings, folder)
        trouble += _write_page(tests, problems, config, settings, folder)
        kept, dropped = within([*_files(tests, config, settings, folder, since)], room)
        trouble += place(kept, dropped, folder)
        (folder / _INDEX).write_bytes(_index(settings, producers, dropped, trouble))
    except OSError as error:
        return f"artifacts cannot be gathered in {base}: {error}", None
    return _words(folder, kept, dropped, trouble), folder


def _files(
    tests: Sequence[Judged], config: pytest.Config, settings: Settings, folder: Path, since: float
) -> Iterator[ArtifactFile]:
    yield from written(folder)
    yield from of_tests(tests)
    if keeps_results(config, settings):
        source = ResultsFolder(results_path(config, settings))
        yield from golden_tensors(source, {test.test for test in tests})
    yield from cann_logs(since)


def _no_room(base: Path, used: int, limit: int) -> str:
    return (
        f"artifacts are not gathered: {base} has {byte_size(used)}, and --npudump-artifacts-limit is "
        f"{byte_size(limit)}; remove what is there, or give more"
    )


def _summary(tests: Sequence[Judged], problems: Sequence[str], settings: Settings) -> bytes:
    text = markdown_summary(tests, problems, approval=settings.approval_flag, artifacts="")
    return text.encode("utf-8", "backslashreplace")


def _words(
    folder: Path, kept: Sequence[ArtifactFile], dropped: Sequence[ArtifactFile], problems: Sequence[str]
) -> str:
    text = f"artifacts are in {folder}: {byte_size(sum(file.size for file in kept))}"
    if dropped:
        names = first_of((f"{file.path.name} ({byte_size(file.size)})" for file in dropped), 3)
        text += f"; over the limit, and left out: {names}"
    return text + "".join(f"; {problem}" for problem in problems)


def _new_folder(base: Path) -> Path:
    for number in count(1):
        with suppress(FileExistsError):
            folder = base / f"session-{number}"
            folder.mkdir()
            return folder
    raise AssertionError  # count() has no end


def _copy_results(
    tests: Sequence[Judged], config: pytest.Config, settings: Settings, folder: Path
) -> tuple[list[str], list[Mapping[str, str]]]:
    """Copy what is kept of the session's tests alone; return trouble, and what produced the runs."""
    if not keeps_results(config, settings):
        return [], []
    names = {test.test for test in tests}
    try:
        source = ResultsFolder(results_path(config, settings))
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


def _write_page(
    tests: Sequence[Judged], problems: Sequence[str], config: pytest.Config, settings: Settings, folder: Path
) -> list[str]:
    """Write the page of the results that were copied, with what dumps tell while these are there."""
    results = folder / _RESULTS
    if not results.is_dir() or find_spec("jinja2") is None:
        return []
    from pytest_npudump.results.rejudge import Overrides  # noqa: PLC0415 - the same
    from pytest_npudump.results.session_page import page_of_tests  # noqa: PLC0415 - where results are kept

    try:
        with speaking(settings.lang):
            names, terms = {test.test for test in tests}, Overrides(config.rootpath)
            page_of_tests(ResultsFolder(results), names, terms, folder / _PAGE, problems)
    except NpudumpError as error:
        return [f"the page is not among them: {error}"]
    return []


def _index(
    settings: Settings,
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
            "limit": settings.artifacts_limit,
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
