"""Whether pytest insists on the plugin: what doctor says is what pytest itself does."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pytest_npudump.doctor.checks import ABSENT, OK, PROBLEM, WARNING, DoctorFinding
from tests.doctor.conftest import Machine

Named = Callable[..., DoctorFinding]
REQUIRED = "required_plugins = pytest-npudump\n"


@pytest.mark.parametrize(
    ("file", "text", "state"),
    [
        ("pytest.ini", f"[pytest]\n{REQUIRED}", OK),
        ("pytest.ini", "[pytest]\nrequired_plugins = pytest-xdist>=3 pytest-npudump>=0.1\n", OK),
        ("pyproject.toml", "[tool.pytest.ini_options]\nrequired_plugins = ['pytest-npudump']\n", OK),
        ("pytest.ini", "[pytest]\nrequired_plugins = pytest-xdist pytest-npudump-more\n", WARNING),
        ("tox.ini", "[pytest]\n", WARNING),
        ("other.ini", "", ABSENT),
    ],
)
def test_required_plugins_is_looked_for_where_pytest_reads_it(
    machine: Machine, pytester: pytest.Pytester, named: Named, *, file: str, text: str, state: str
) -> None:
    machine.environ.pop("PYTEST_ADDOPTS", None)
    pytester.path.joinpath(file).write_text(text)
    finding = named([*machine.lines("pytest", tests=pytester.path)], "required_plugins")
    assert finding.state == state, finding
    assert state == OK or "required_plugins = pytest-npudump" in finding.remedy


UNSEEN = "import pytest\n\n@pytest.mark.npu_dump\ndef test_small():\n    pass\n"
BLOCKED = {
    "-p no:npudump on the command line": ((), {}, ("-p", "no:npudump")),
    "in addopts": (("addopts = -p no:npudump\n",), {}, ()),
    "in PYTEST_ADDOPTS": ((), {"PYTEST_ADDOPTS": "-p no:npudump"}, ()),
    "no autoload": ((), {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}, ()),
}


@pytest.mark.parametrize(("ini", "environ", "options"), BLOCKED.values(), ids=BLOCKED.keys())
def test_marked_test_passes_unseen_without_the_plugin_unless_it_is_required(
    machine: Machine,
    pytester: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
    *,
    ini: tuple[str, ...],
    environ: dict[str, str],
    options: tuple[str, ...],
) -> None:
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    pytester.makepyfile(UNSEEN)
    command = (*pytester._getpytestargs(), "-p", "no:cacheprovider", "-W", "ignore", *options)
    file = pytester.path / "pytest.ini"
    file.write_text("".join(("[pytest]\n", *ini)))
    assert pytester.run(*command).ret == 0
    file.write_text("".join(("[pytest]\n", REQUIRED, *ini)))
    result = pytester.run(*command)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*Missing required plugins: pytest-npudump*"])
    machine.environ.update(environ)
    findings = {finding.name: finding for finding in machine.lines("pytest", tests=pytester.path)}
    assert findings["required_plugins"].state == OK
    assert ("plugin" in findings) is not bool(options)
    assert options or findings["plugin"].state == PROBLEM


@pytest.mark.parametrize(("more", "state"), [("", PROBLEM), (" -p npudump", OK)])
def test_option_that_switches_autoload_off_is_named(
    machine: Machine, pytester: pytest.Pytester, more: str, state: str
) -> None:
    machine.environ.pop("PYTEST_ADDOPTS", None)
    words = f"addopts = --disable-plugin-autoload{more}\n"
    pytester.path.joinpath("pytest.ini").write_text(f"[pytest]\n{words}{REQUIRED}")
    findings = [*machine.lines("pytest", tests=pytester.path)]
    assert (PROBLEM in [finding.state for finding in findings]) is (state == PROBLEM)
    assert state == OK or "--disable-plugin-autoload in addopts of" in str(findings)


def test_autoload_that_is_off_is_no_problem_where_the_plugin_is_named(
    machine: Machine, pytester: pytest.Pytester
) -> None:
    machine.environ.update(PYTEST_DISABLE_PLUGIN_AUTOLOAD="1", PYTEST_ADDOPTS="-p npudump")
    pytester.path.joinpath("pytest.ini").write_text(f"[pytest]\n{REQUIRED}")
    assert [finding.state for finding in machine.lines("pytest", tests=pytester.path)] == [OK]


@pytest.mark.parametrize(
    ("word", "loads"), [("-p\nno:npudump\n", True), ("--disable-plugin-autoload\n", False)]
)
def test_files_of_arguments_count_as_pytest_counts_them(
    machine: Machine, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, word: str, *, loads: bool
) -> None:
    """pytest looks for -p before it opens such files, and heeds none in them."""
    if pytest.version_tuple < (8, 4):
        pytest.skip("pytest reads such files since 8.2, and has the option since 8.4")
    monkeypatch.setenv("PYTEST_ADDOPTS", "@more")
    pytester.makepyfile(UNSEEN)
    pytester.path.joinpath("more").write_text(word)
    pytester.path.joinpath("pytest.ini").write_text(f"[pytest]\n{REQUIRED}")
    result = pytester.run(*pytester._getpytestargs(), "-p", "no:cacheprovider", "-W", "ignore")
    assert (result.ret == pytest.ExitCode.USAGE_ERROR) is not loads
    machine.environ.update(PYTEST_ADDOPTS="@more")
    states = [finding.state for finding in machine.lines("pytest", tests=pytester.path)]
    assert (PROBLEM in states) is not loads
