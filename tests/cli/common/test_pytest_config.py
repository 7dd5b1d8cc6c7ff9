"""Where tests dump, and whether the plugin is loaded: the same answers as pytest's own, which is asked."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest

from pytest_npudump.cli.common.pytest_config import default_place, dump_place, loading
from pytest_npudump.errors import ConfigError


@pytest.fixture(autouse=True)
def _no_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)


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
    path, origin = dump_place(pytester.path)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # the other plugins take time to import
    pytester.run(*warm.client, "-mpytest", "-p", "pytest_npudump.plugin")
    asked = json.loads((pytester.path / "place.json").read_text())
    if expected:
        assert str(path) == asked == str(pytester.path / expected)
        assert origin
    else:
        assert asked == ""
        assert (path, origin) == (default_place(), "")


def test_the_default_is_where_pytest_makes_its_folders(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path_factory.getbasetemp()
    if own.parent.name.startswith("pytest-of-"):
        assert own.is_relative_to(default_place()) or own.parent.name == default_place().name
    monkeypatch.setenv("PYTEST_DEBUG_TEMPROOT", "/var/tmp")  # noqa: S108 - a path in a variable
    assert default_place().parent == Path("/var/tmp").resolve()  # noqa: S108 - the same
    monkeypatch.delenv("PYTEST_DEBUG_TEMPROOT")
    assert default_place().parent == Path(tempfile.gettempdir()).resolve()


def test_a_folder_takes_the_file_above_it_and_dumps_where_that_lies(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\nnpudump_output = a\n")
    (tmp_path / "sub").mkdir()
    expected = (tmp_path / "a" / "dumps", f"npudump_output in {tmp_path / 'pytest.ini'}")
    assert dump_place(tmp_path / "sub") == expected


def test_pytest_9_reads_toml_files_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pytest.toml").write_text("[pytest]\nnpudump_output = 'a'\n")
    (tmp_path / "pyproject.toml").write_text("[tool.pytest]\nnpudump_output = 'b'\n")
    (tmp_path / "tox.ini").write_text("[pytest]\nnpudump_output = c\n")
    for release, expected in (("8.4.2", "c"), ("9.0.1", "a")):
        monkeypatch.setattr("importlib.metadata.version", lambda _, release=release: release)
        assert dump_place(tmp_path)[0] == tmp_path / expected / "dumps"
    (tmp_path / "pytest.toml").unlink()
    assert dump_place(tmp_path)[0] == tmp_path / "b" / "dumps"


@pytest.mark.each(
    ("name", "text", "words"),
    [
        ("pyproject.toml", "[tool.pytest", "pyproject.toml"),
        ("pyproject.toml", "tool = 3", "pyproject.toml"),
        ("pytest.ini", "npudump_output = a\n", "pytest.ini"),
        ("pytest.ini", "[pytest]\naddopts = 'open\n", "pytest.ini"),
        ("tox.ini", "[pytest]\na = 1\na = 2\n", "tox.ini"),
        ("PYTEST_ADDOPTS", "--basetemp", "PYTEST_ADDOPTS"),
        ("PYTEST_ADDOPTS", "@gone", "PYTEST_ADDOPTS.*No such file.*gone"),
        ("PYTEST_ADDOPTS", "@more", "PYTEST_ADDOPTS.*names itself.*more"),
    ],
)
def test_what_cannot_be_read_is_an_error_that_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, name: str, text: str, words: str
) -> None:
    (tmp_path / "more").write_text("@more\n")
    if name.isupper():
        monkeypatch.setenv(name, text)
    else:
        (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError, match=words):
        dump_place(tmp_path)


REQUIRED = "required_plugins = pytest-npudump\n"


@pytest.mark.each(
    ("file", "text", "required"),
    [
        ("pytest.ini", f"[pytest]\n{REQUIRED}", "pytest-npudump"),
        (
            "pytest.ini",
            "[pytest]\nrequired_plugins = pytest-xdist>=3 pytest-npudump>=0.1\n",
            "pytest-npudump>=0.1",
        ),
        ("pyproject.toml", f"{PYPROJECT}required_plugins = ['pytest-npudump']\n", "pytest-npudump"),
        ("pytest.ini", "[pytest]\nrequired_plugins = pytest-xdist pytest-npudump-more\n", ""),
        ("tox.ini", "[pytest]\n", ""),
        ("other.ini", "", None),
    ],
)
def test_required_plugins_is_looked_for_where_pytest_reads_it(
    tmp_path: Path, file: str, text: str, *, required: str | None
) -> None:
    (tmp_path / file).write_text(text)
    expected = (None, "") if required is None else (tmp_path / file, required)
    assert loading(tmp_path)[:2] == expected


UNSEEN = "import pytest\n\n@pytest.mark.npu_dump\ndef test_small():\n    pass\n"
NO_AUTOLOAD = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
BLOCKED: dict[str, tuple[str, dict[str, str], str, bool]] = {
    "in addopts": ("addopts = -p no:npudump\n", {}, "", False),
    "in PYTEST_ADDOPTS": ("", {"PYTEST_ADDOPTS": "-p no:npudump"}, "", False),
    "no autoload": ("", NO_AUTOLOAD, "", False),
    "no autoload, but the plugin's name": ("", {**NO_AUTOLOAD, "PYTEST_ADDOPTS": "-p npudump"}, "", True),
    "autoload off by an option": ("addopts = --disable-plugin-autoload\n", {}, "", False),
    "-p in a file of arguments, which pytest does not heed": (
        "",
        {"PYTEST_ADDOPTS": "@more"},
        "-p\nno:npudump\n",
        True,
    ),
    "autoload off in one": ("", {"PYTEST_ADDOPTS": "@more"}, "--disable-plugin-autoload\n", False),
}


@pytest.mark.parametrize(("ini", "environ", "more", "loads"), BLOCKED.values(), ids=BLOCKED.keys())
def test_a_plugin_that_is_not_loaded_is_seen_where_it_is_required(
    pytester: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
    *,
    ini: str,
    environ: dict[str, str],
    more: str,
    loads: bool,
) -> None:
    if (more or "autoload" in ini) and pytest.version_tuple < (8, 4):
        pytest.skip("pytest reads such files since 8.2, and has the option since 8.4")
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    pytester.makepyfile(UNSEEN)
    (pytester.path / "more").write_text(more)
    file = pytester.path / "pytest.ini"
    file.write_text(f"[pytest]\n{REQUIRED}{ini}")
    command = (*pytester._getpytestargs(), "-p", "no:cacheprovider", "-W", "ignore")
    result = pytester.run(*command)
    assert (result.ret == pytest.ExitCode.USAGE_ERROR) is not loads
    result.stderr.fnmatch_lines([] if loads else ["*Missing required plugins: pytest-npudump*"])
    found, required, blocked = loading(pytester.path)
    assert (found, required, bool(blocked)) == (file, "pytest-npudump", not loads)
    if ini and not loads:
        assert blocked == f"{ini.removeprefix('addopts = ').strip()} in addopts of {file}" + (
            ", and no option -p npudump" if "autoload" in ini else ""
        )
        file.write_text(f"[pytest]\n{ini}")
        assert pytester.run(*command).ret == 0  # the marked test passes, unseen
