"""Where tests dump: the same answer as pytest's own, which is asked in a process that is forked."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from pytest_npudump.doctor.pytest_config import default_place, dump_place
from pytest_npudump.errors import ConfigError

CONFTEST = """
import json
from pathlib import Path
from pytest_npudump.plugin.options import settings_of
from pytest_npudump.plugin.paths import output_folder

def pytest_sessionstart(session):
    config, base = session.config, session.config.getoption("basetemp")
    output = output_folder(config, settings_of(config))
    place = output / "dumps" if output else base and Path(base).absolute() / "npudump"
    Path("place.json").write_text(json.dumps(str(place or "")))
"""
PYPROJECT = "[tool.pytest.ini_options]\n"
SCENES: dict[str, tuple[dict[str, str], str, str]] = {
    "nothing": ({}, "", ""),
    "pyproject": ({"pyproject.toml": f"{PYPROJECT}npudump_output = 'a'\n"}, "", "a/dumps"),
    "pytest.ini": ({"pytest.ini": "[pytest]\nnpudump_output = a b\n"}, "", "a b/dumps"),
    ".pytest.ini": ({".pytest.ini": "[pytest]\nnpudump_output = a\n"}, "", "a/dumps"),
    "tox.ini": ({"tox.ini": "[pytest]\nnpudump_output = a\n"}, "", "a/dumps"),
    "setup.cfg": ({"setup.cfg": "[tool:pytest]\nnpudump_output = a\n"}, "", "a/dumps"),
    "an empty pytest.ini hides the rest": (
        {"pytest.ini": "", "tox.ini": "[pytest]\nnpudump_output = a\n"},
        "",
        "",
    ),
    "a pyproject.toml without pytest does not": (
        {"pyproject.toml": "[tool.x]\n", "tox.ini": "[pytest]\nnpudump_output = a\n"},
        "",
        "a/dumps",
    ),
    "an absolute folder": ({"pytest.ini": "[pytest]\nnpudump_output = /var/a\n"}, "", "/var/a/dumps"),
    "addopts before the key": (
        {"pytest.ini": "[pytest]\nnpudump_output = a\naddopts = -q '--npudump-output=b c'\n"},
        "",
        "b c/dumps",
    ),
    "addopts as a list": (
        {"pyproject.toml": f"{PYPROJECT}addopts = ['-ra', '--npudump-output', 'b']\n"},
        "",
        "b/dumps",
    ),
    "the variable before addopts": (
        {"pytest.ini": "[pytest]\naddopts = --npudump-output=b\n"},
        "--npudump-output=c",
        "c/dumps",
    ),
    "the variable overrides the key": (
        {"pytest.ini": "[pytest]\nnpudump_output = a\n"},
        "-o npudump_output=c",
        "c/dumps",
    ),
    "a file of arguments": (
        {"pytest.ini": "[pytest]\naddopts = @more\n", "more": "-q\n--npudump-output=b c\n"},
        "",
        "b c/dumps",
    ),
    "a file of arguments in another, named by the variable": (
        {"one": "@sub/two\n-q\n", "sub/two": "-o\nnpudump_output=c\n"},
        "@one",
        "c/dumps",
    ),
    "basetemp": ({"pytest.ini": "[pytest]\naddopts = --basetemp=t\n"}, "", "t/npudump"),
    "the key before basetemp": (
        {"pytest.ini": "[pytest]\naddopts = --basetemp=t\nnpudump_output = a\n"},
        "",
        "a/dumps",
    ),
}


@pytest.mark.parametrize(("files", "addopts", "expected"), SCENES.values(), ids=SCENES.keys())
def test_the_place_is_the_one_that_pytest_would_use(
    pytester: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
    warm: Any,
    *,
    files: dict[str, str],
    addopts: str,
    expected: str,
) -> None:
    pytester.makeconftest(CONFTEST)
    if "@" in str(files) and pytest.version_tuple < (8, 2):
        pytest.skip("pytest reads files of arguments since 8.2")
    for name, text in files.items():
        (pytester.path / name).parent.mkdir(exist_ok=True)
        (pytester.path / name).write_text(text)
    monkeypatch.setenv("PYTEST_ADDOPTS", addopts)
    environ = {"PYTEST_ADDOPTS": addopts}
    found = dump_place(pytester.path, environ)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # the other plugins take time to import
    pytester.run(*warm.client, "-mpytest", "-p", "pytest_npudump.plugin")
    asked = json.loads((pytester.path / "place.json").read_text())
    if expected:
        assert str(found.path) == asked == str(pytester.path / expected)
        assert found.origin
    else:
        assert asked == ""
        assert (found.path, found.origin) == (default_place(environ), "")


def test_a_folder_takes_the_file_above_it_and_dumps_where_that_lies(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\nnpudump_output = a\n")
    (tmp_path / "sub").mkdir()
    found = dump_place(tmp_path / "sub", {})
    assert found.path == tmp_path / "a" / "dumps"
    assert found.origin == f"npudump_output in {tmp_path / 'pytest.ini'}"


@pytest.mark.parametrize(("major", "expected"), [(8, "c"), (9, "a")])
def test_pytest_9_reads_toml_files_of_its_own(tmp_path: Path, major: int, expected: str) -> None:
    (tmp_path / "pytest.toml").write_text("[pytest]\nnpudump_output = 'a'\n")
    (tmp_path / "pyproject.toml").write_text("[tool.pytest]\nnpudump_output = 'b'\n")
    (tmp_path / "tox.ini").write_text("[pytest]\nnpudump_output = c\n")
    assert dump_place(tmp_path, {}, pytest_major=major).path == tmp_path / expected / "dumps"
    (tmp_path / "pytest.toml").unlink()
    assert dump_place(tmp_path, {}, pytest_major=9).path == tmp_path / "b" / "dumps"


@pytest.mark.each(
    ("name", "text"),
    [
        ("pyproject.toml", "[tool.pytest"),
        ("pytest.ini", "npudump_output = a\n"),
        ("pytest.ini", "[pytest]\naddopts = 'open\n"),
        ("tox.ini", "[pytest]\na = 1\na = 2\n"),
    ],
)
def test_a_file_that_pytest_cannot_read_is_an_error_that_names_it(
    tmp_path: Path, name: str, text: str
) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError, match=name):
        dump_place(tmp_path, {})


def test_a_variable_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="PYTEST_ADDOPTS"):
        dump_place(tmp_path, {**os.environ, "PYTEST_ADDOPTS": "--basetemp"})


@pytest.mark.parametrize(("text", "why"), [(None, "No such file"), ("@more\n", "names itself")])
def test_a_file_of_arguments_that_cannot_be_read_is_named(tmp_path: Path, text: str | None, why: str) -> None:
    if text is not None:
        (tmp_path / "more").write_text(text)
    with pytest.raises(ConfigError, match=f"PYTEST_ADDOPTS.*{why}.*more"):
        dump_place(tmp_path, {"PYTEST_ADDOPTS": "@more"})
