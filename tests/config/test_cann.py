from __future__ import annotations

from pathlib import Path

import pytest

from pytest_npudump.config.adump import validate
from pytest_npudump.config.cann import PROFILES, installed_cann, profile_for, rules_version
from pytest_npudump.errors import ConfigError


@pytest.mark.each(
    ("version", "profile"),
    [
        *((profile, profile) for profile in PROFILES),
        ("8.1.RC1", "8.5.0"),
        ("8.5.1", "8.5.0"),
        ("8.5.0.alpha001", "8.5.0"),
        ("9.0.1", "9.0.0"),
        ("9.0.0-beta.1", "9.0.0"),
        ("9.1.0-beta.1", "9.0.0"),
        ("9.1.0-beta.2.pre", "9.1.0"),
        ("9.1.0-beta.10", "9.1.0"),
        ("9.1", "9.1.0"),
        ("9.2.0-beta.1", "9.1.0"),
        ("10.0.0", "9.1.0"),
    ],
)
def test_every_release_has_a_rule_set(version: str, profile: str) -> None:
    assert profile_for(version) == profile


@pytest.mark.each("version", ["", "latest", "9", "V100R001", "9.1.0 beta", "9.x"])
def test_what_is_no_version_is_an_error(version: str) -> None:
    with pytest.raises(ConfigError, match="expected a release"):
        profile_for(version)


def test_a_release_older_than_the_published_source_is_said_to_be_judged_by_another(tmp_path: Path) -> None:
    text = b'{"dump": {"dump_path": ".", "dump_list": [{"model_name": "m"}]}}'
    assert any("8.1.RC1" in warning for warning in validate(text, version="8.1.RC1", cwd=tmp_path).warnings)
    assert validate(text, version="8.5.0", cwd=tmp_path).warnings == ()


@pytest.mark.each(
    ("file", "content", "version"),
    [
        (
            "aarch64-linux/ascend_toolkit_install.info",
            "package_name=Ascend-cann-toolkit\nversion=8.1.RC1\n",
            "8.1.RC1",
        ),
        ("x86_64-linux/ascend_toolkit_install.info", "version=9.1.0-beta.3\narch=x86_64\n", "9.1.0-beta.3"),
        ("ascend_toolkit_install.info", "version=8.5.0\ninnerversion=V100R001C23\n", "8.5.0"),
        ("version.cfg", "# version: 1.0\nruntime_running_version=[7.3.0.1.231:8.0.RC2]\n", "8.0.RC2"),
        ("runtime/version.info", "Version=7.6.0.1.220\nversion_dir=8.2.RC1\n", "8.2.RC1"),
        ("share/info/runtime/version.info", "Version=9.0.0\n", "9.0.0"),
        ("version.cfg", "nothing of the kind", None),
        ("version.cfg", "version=7.6.0.1.220\n", None),
    ],
)
def test_the_installed_release_is_read_from_the_toolkit(
    tmp_path: Path, file: str, content: str, version: str | None
) -> None:
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).write_text(content)
    assert installed_cann({"ASCEND_HOME_PATH": str(tmp_path)}) == version
    assert installed_cann({"ASCEND_TOOLKIT_HOME": str(tmp_path)}) == version


@pytest.mark.each("environ", [{}, {"ASCEND_HOME_PATH": ""}, {"ASCEND_HOME_PATH": "/nonexistent/cann"}])
def test_without_a_toolkit_there_is_no_release(environ: dict[str, str]) -> None:
    assert installed_cann(environ) is None
    assert rules_version(environ) == "9.1.0"
