"""What pytest makes of a folder: which tests it collects, and what its configuration says of some options."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_npudump.doctor.pytest_config import locate, parse_options, words_of
from pytest_npudump.errors import RequestError
from pytest_npudump.language.translation import gettext as _

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_npudump.golden.stored_tensors import TensorStore

_PLUGIN = "pytest_npudump.plugin.collected"


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
        raise RequestError(
            _("{test} cannot be collected: {cause}").format(
                test=test or where or _("the tests"), cause=_cause(text, test or "")
            )
        )
    usage = [line for line in done.stderr.splitlines() if line.startswith("ERROR: ")]
    if usage:
        raise RequestError(
            _("pytest collects nothing: {usage}").format(usage=usage[0].removeprefix("ERROR: "))
        )
    if not found:
        last = _last_words(done.stdout + done.stderr)
        raise RequestError(
            _("pytest ended with {returncode} before it collected anything: {last}").format(
                returncode=done.returncode, last=last
            )
        )
    return found


def _last_words(output: str) -> str:
    lines = [line for line in output.splitlines() if line.strip()]
    internal = [line for line in lines if line.startswith("INTERNALERROR> ")]
    return (internal or lines or [_("no output")])[-1]


def _cause(text: str, test: str) -> str:
    """Return the line of a failed collection that has the reason: the exception's, or the one on ``test``."""
    lines = [line for line in text.splitlines() if line.strip()]
    raised = [line[1:].strip() for line in lines if line.startswith("E ")]
    named = [line for line in lines if f"{test}:" in line]
    return (raised or named or lines or [_("no reason given")])[0]


_USUAL = "golden"


def pytest_settings(folder: Path, names: Sequence[str]) -> tuple[Path, Mapping[str, str]]:
    """Return pytest's rootdir, and the values of keys: of the ini file, of its addopts and of the variable.

    Args:
        folder: a pytest that starts here would run the tests.
        names: of ini keys, each of which is an option, too; "" is the value of those that nobody names.

    Raises:
        ConfigError: pytest's configuration cannot be read.
    """
    file, ini = locate(folder.absolute())
    root = file.parent if file is not None else folder.absolute()
    told = {name: str(ini.get(name, "")) for name in names}
    told |= _given(names, ini.get("addopts", ""), root, _("addopts of {file}").format(file=file))
    told |= _given(names, os.environ.get("PYTEST_ADDOPTS", ""), root, "PYTEST_ADDOPTS")
    return root, told


def golden_folder(folder: Path) -> Path:
    """Return the folder of the goldens, relative to ``folder`` where it lies in it.

    Args:
        folder: a pytest that starts here would run the tests.

    Raises:
        ConfigError: pytest's configuration cannot be read.
    """
    root, told = pytest_settings(folder, ["npudump_golden_dir"])
    found = root / (told["npudump_golden_dir"] or _USUAL)
    own = folder.absolute()
    return found.relative_to(own) if found.is_relative_to(own) else found


def _given(names: Sequence[str], words: Any, folder: Path, origin: str) -> Mapping[str, str]:
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    for name in names:
        parser.add_argument(f"--{name.replace('_', '-')}", dest=name)
    found = vars(parse_options(parser, words_of(words, origin), folder, origin))
    return {name: value for name, value in found.items() if value is not None}


_STORE, _CACHE = "npudump_tensor_store", "npudump_tensor_cache"


def tensor_place(folder: Path, url: str = "", cache: str = "") -> TensorStore:
    """Return where stored tensors are.

    Args:
        folder: a pytest that starts here would run the tests.
        url: the store, whatever the configuration says; "" for that.
        cache: the folder of the cache, the same.

    Raises:
        ConfigError: pytest's configuration cannot be read.
    """
    from pytest_npudump.golden.stored_tensors import TensorStore  # noqa: PLC0415 - only where there is one

    root, told = pytest_settings(folder, (_STORE, _CACHE))
    own = cache or (str(root / Path(told[_CACHE]).expanduser()) if told[_CACHE] else "")
    return TensorStore(url or told[_STORE], own)
