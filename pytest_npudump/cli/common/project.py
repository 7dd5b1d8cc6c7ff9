"""The project around a command: its tests, as a pytest of its own collects them, its results, its goldens."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from contextlib import suppress
from glob import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_npudump.cli.common.output import complain
from pytest_npudump.cli.common.pytest_config import golden_folder, output_folder
from pytest_npudump.errors import GoldenError, RequestError
from pytest_npudump.golden.path import golden_path
from pytest_npudump.language.text import first_of
from pytest_npudump.language.translation import gettext as _
from pytest_npudump.report.verdicts import shown
from pytest_npudump.results.folder import LAST, LINES, ResultsError, ResultsFolder, results_in

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


_PLUGIN = "pytest_npudump.plugin.collection"


def collect(option: str, words: Sequence[str], test: str | None = None) -> dict[str, Any]:
    """Collect in the current folder, and return what the plugin has written.

    Args:
        option: the plugin's option that names the file to write.
        words: further options of pytest.
        test: what is collected; None for what pytest collects by itself.

    Raises:
        RequestError: something cannot be collected.
    """
    with tempfile.TemporaryDirectory(prefix="npudump-") as folder:
        file = Path(folder) / "collected.json"
        command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", _PLUGIN, f"{option}={file}"]
        command += [*words, *([test] if test else [])]
        done = subprocess.run(  # noqa: S603 - pytest, of this interpreter
            command, check=False, capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL
        )
        found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    if problems := found.get("problems"):
        where, text = problems[0]
        lines = [line for line in text.splitlines() if line.strip()]
        raised = [line[1:].strip() for line in lines if line.startswith("E ")]
        named = [line for line in lines if f"{test or ''}:" in line]
        cause = (raised or named or lines or ["no reason given"])[0]
        raise RequestError(f"{test or where or 'the tests'} cannot be collected: {cause}")
    if usage := [line for line in done.stderr.splitlines() if line.startswith("ERROR: ")]:
        raise RequestError(f"pytest collects nothing: {usage[0].removeprefix('ERROR: ')}")
    if not found:
        lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        internal = [line for line in lines if line.startswith("INTERNALERROR> ")]
        last = (internal or lines or ["no output"])[-1]
        raise RequestError(f"pytest ended with {done.returncode} before it collected anything: {last}")
    return found


_CACHED = Path(".pytest_cache/d/npudump/results")
"""Results in pytest's cache, unless ``cache_dir`` says otherwise."""


def last_results(named: Path | None) -> ResultsFolder:
    """Return the results of a session.

    Args:
        named: its output folder, or its results; None for the last session's, here or in a folder above.

    Raises:
        ResultsError: there are none.
        ConfigError: pytest's configuration, which may name the output folder, cannot be read.
    """
    found = results_in(named) if named is not None else last_if_any()
    if found is None:
        raise ResultsError(
            _(
                "{start}: neither here nor in a folder above are results in {cached} or in npudump_output: "
                "run the tests, or name the folder of results"
            ).format(start=Path.cwd(), cached=_CACHED)
        )
    return ResultsFolder(found)


def last_if_any() -> Path | None:
    """Return the folder of the last session's results; None where there is none."""
    start = Path.cwd()
    configured = output_folder(start)
    for folder in (start, *start.parents):
        places = [folder / _CACHED]
        with suppress(OSError, ValueError):
            places.append(Path((folder / _CACHED.parent / LAST).read_text("utf-8")))
        if configured is not None and folder in {configured.parent, start}:
            places.append(results_in(configured))
        if written := [place for place in places if (place / LINES).is_file()]:
            newest = max(written, key=lambda place: (place / LINES).stat().st_mtime)
            if (count := len({place.resolve() for place in written})) > 1:
                words = _("results: {path}, the newest of {count} folders")
                complain([words.format(path=shown(newest), count=count)])
            return newest
    return None


_PARTS = re.compile("/|::")


def is_called(test: str, name: str) -> bool:
    """Return whether a name is the last parts of a test's id, with its parameters or without."""
    return any(name in {part, part.partition("[")[0]} for part in last_parts(test))


def last_parts(test: str) -> Iterator[str]:
    """Yield a test's id, and all that it ends in behind a folder, its file and its classes."""
    return (test[at:] for at in (0, *(part.end() for part in _PARTS.finditer(test.partition("[")[0]))))


def golden_named(named: Path) -> Path:
    """Return a golden file that is named by its path, or as its test is, or by the last parts of that.

    Raises:
        ConfigError: pytest's configuration, which names the folder of goldens, cannot be read.
        RequestError: the parts are those of several tests.
    """
    from pytest_npudump.golden.store import read_golden  # noqa: PLC0415 - only where a golden is named

    text, (test, bracket, parameters) = str(named), str(named).partition("[")
    if named.exists() or named.suffix == ".yaml":
        return named
    # those here, else of a folder above
    folders = [golden_folder(Path.cwd()), *(above / golden_folder(above) for above in Path.cwd().parents)]
    folder = next((place for place in folders if place.is_dir()), folders[0])
    *_folders, function = _PARTS.split(test)
    if "::" in test:
        file, *classes, name = test.split("::")
        case = parameters.removesuffix("]") if bracket else None
        named = golden_path(folder, test_file=Path(file), classes=classes, name=name, param_id=case)
    if named.exists():
        return named
    found = {path: "" for path in folder.rglob(f"*{escape(function)}*.yaml") if "@" not in path.name}
    for path in sorted(found):
        with suppress(GoldenError):
            found[path] = read_golden(path).test
    called = [path for path, of in found.items() if is_called(of, text)]
    if len(called) > 1:
        tests = first_of(sorted(found[path] for path in called))
        raise RequestError(_("{name} names several goldens: {tests}").format(name=text, tests=tests))
    return called[0] if called else named


def golden_files(paths: Sequence[Path]) -> list[Path]:
    """Return the goldens and tensors that are named, or lie below folders that are.

    Raises:
        RequestError: something is not there, or a folder holds none.
    """
    from pytest_npudump.golden.census import files_below  # noqa: PLC0415 - only where goldens are looked at

    found: list[Path] = []
    for path in paths:
        if not path.exists():
            words = _("{path}: no such file or folder: name the folder of the goldens, or golden files")
            raise RequestError(words.format(path=path))
        files = files_below(path) if path.is_dir() else [path]
        if not files:
            raise RequestError(
                _("{path} has no golden file: name the folder of the goldens").format(path=path)
            )
        found += files
    return found
