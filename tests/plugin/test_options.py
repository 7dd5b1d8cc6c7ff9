"""The table of options: a switch of the command line, a row of the docs, and mostly an ini key."""

from __future__ import annotations

import re
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_npudump.errors import RequestError
from pytest_npudump.plugin.options import all_options, settings_of
from pytest_npudump.settings import OPTIONS as ALWAYS
from pytest_npudump.settings import Option, Settings, parse_size

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "options.md"
OPTIONS = all_options()
NOT_DEFAULT = {
    "repeats": "5",
    "calibrate": "20",
    "device": "3",
    "devices": "0,1",
    "dump-limit": "2KiB",
    "artifacts-limit": "2KiB",
    "expect": "3",
    "tensor-budget": "3KiB",
    "tensor-cache-limit": "3KiB",
    "runtime": "emulator",
    "escalate": "off",
    "recompute": "float64",
    "keep-dumps": "all",
    "isolation": "process",
    "isolation-timeout": "90.5",
    "numerics": "other",
    "lang": "zh",
    "fail-on": "change",
    "golden-tensors": "auto",
}
APPROVING = [option for option in OPTIONS if not option.standing]
REFUSED = "approving is never a standing setting"


def other_value(option: Option) -> str:
    return NOT_DEFAULT.get(option.name, "somewhere")


def resolved(option: Option, text: str) -> object:
    """Return what Settings make of ``text``: written out here, not computed by the module."""
    known: dict[str, object] = {
        "repeats": 5,
        "calibrate": 20,
        "device": 3,
        "dump-limit": 2048,
        "artifacts-limit": 2048,
        "tensor-budget": 3072,
        "tensor-cache-limit": 3072,
        "escalate": False,
        "isolation-timeout": 90.5,
    }
    if option.modes:
        return "all"
    return True if isinstance(option.default, bool) else known.get(option.name, text)


def test_an_update_may_say_whose_goldens_it_writes(pytester: pytest.Pytester) -> None:
    for mode, flag in {"all": "", "failed": "=failed", "new": "=new"}.items():
        found = settings(pytester, f"--npudump-update-golden{flag}", "test_some.py")
        assert found.update_golden == mode


def test_an_update_takes_no_path_behind_it_for_its_value(pytester: pytest.Pytester) -> None:
    config = pytester.parseconfig("--npudump-update-golden", "test_some.py")
    assert settings_of(config).update_golden == "all"
    assert config.args == ["test_some.py"]


def test_an_update_of_another_kind_is_refused(pytester: pytest.Pytester) -> None:
    with pytest.raises(pytest.UsageError, match="'some'"):
        settings(pytester, "--npudump-update-golden=some")


def settings(pytester: pytest.Pytester, *arguments: str) -> Settings:
    return settings_of(pytester.parseconfig("-p", "no:cacheprovider", *arguments))


def value_of(found: Settings, option: Option) -> object:
    return getattr(found, option.field) if option in ALWAYS else option.of(found)


@pytest.fixture(autouse=True)
def _no_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)


def test_settings_have_one_field_for_each_option_that_is_no_feature_s() -> None:
    assert [*(option.field for option in ALWAYS), "features"] == [*Settings._fields]


def test_defaults_are_those_of_the_table(pytester: pytest.Pytester, defaults: Settings) -> None:
    assert settings(pytester) == defaults


def test_options_are_taken_from_the_command_line_and_from_ini_keys_of_their_names(
    pytester: pytest.Pytester, defaults: Settings
) -> None:
    for option in OPTIONS:
        text = other_value(option)
        switch = isinstance(option.default, bool)
        pytester.makeini("[pytest]\n")
        found = settings(pytester, option.flag if switch or option.modes else f"{option.flag}={text}")
        assert value_of(found, option) == resolved(option, text)
        if option.standing:
            key = f"{option.dest} = {'true' if switch else text}"
            pytester.makeini(f"[pytest]\naddopts = --strict-config\n{key}\n")
            found = settings(pytester)
            assert value_of(found, option) == resolved(option, text)
            assert [one for one in OPTIONS if value_of(found, one) != value_of(defaults, one)] == [option]
    pytester.makeini("[pytest]\nnpudump_escalate = off\nnpudump_device = 7\n")
    found = settings(pytester, "--npudump-escalate=on")
    assert (found.escalate, found.device) == (True, 7)


def test_the_options_that_approve_are_for_the_command_line_only() -> None:
    assert [option.name for option in APPROVING] == [
        "update-golden",
        "reason",
        "calibrate",
        "allow-update-in-ci",
    ]


def test_ini_key_that_would_approve_is_refused_with_the_reason(pytester: pytest.Pytester) -> None:
    for option in APPROVING:
        for strict, value in (("", "true"), ("addopts = --strict-config\n", "false")):
            pytester.makeini(f"[pytest]\n{strict}{option.dest} = {value}\n")
            words = f"ini key {option.dest}: {REFUSED}.*give {option.flag} on the"
            with pytest.raises(RequestError, match=words):
                settings(pytester)


@pytest.mark.e2e
def test_argument_file_that_would_approve_is_refused_with_the_reason(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.path.joinpath("more.txt").write_text("-q\n@last.txt\n")
    pytester.path.joinpath("last.txt").write_text("--npudump-update-golden\n")
    pytester.path.joinpath("test_small.py").write_text("def test_small():\n    pass\n")
    read = tuple(map(int, pytest.__version__.split(".")[:2])) >= (8, 2)  # before, @FILE was no file of words
    for place in ("the variable PYTEST_ADDOPTS", "addopts of pytest's configuration file"):
        if "variable" in place:
            monkeypatch.setenv("PYTEST_ADDOPTS", "@more.txt")
        else:
            monkeypatch.delenv("PYTEST_ADDOPTS")
            pytester.makeini("[pytest]\naddopts = @more.txt\n")
        result = pytester.runpytest_subprocess()
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        where = f"--npudump-update-golden in {place}: approving is never a standing setting"
        assert not read or where in result.stderr.str()


def test_addopts_that_would_approve_are_refused_with_the_reason(pytester: pytest.Pytester) -> None:
    for option in APPROVING:
        words = f"{option.flag}={other_value(option)}" if option.metavar else option.flag
        pytester.makeini("[pytest]\n")
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PYTEST_ADDOPTS", f"-q {words}")
            with pytest.raises(
                RequestError, match=f"{option.flag} in the variable PYTEST_ADDOPTS: {REFUSED}"
            ):
                settings(pytester)
        pytester.makeini(f"[pytest]\naddopts = -q {words}\n")
        with pytest.raises(RequestError, match=f"{option.flag} in addopts of pytest's .* file: {REFUSED}"):
            settings(pytester, words)


def test_value_outside_the_choices_is_refused_from_either_source(pytester: pytest.Pytester) -> None:
    for option in OPTIONS:
        if option.choices:
            with pytest.raises(pytest.UsageError, match="'gpu'"):
                pytester.parseconfig(f"{option.flag}=gpu")
            pytester.makeini(f"[pytest]\n{option.dest} = gpu\n")
            words = f"ini key {option.dest} is 'gpu', expected one of {option.choices[0]}"
            with pytest.raises(RequestError, match=words):
                settings(pytester)
            pytester.makeini("[pytest]\n")


def test_device_that_is_no_id_is_refused(pytester: pytest.Pytester) -> None:
    for text in ("-1", "first", "", "1.0", "0x1"):
        with pytest.raises(RequestError, match="expected a device id such as 0"):
            settings(pytester, f"--npudump-device={text}")


def test_help_names_every_option_and_its_ini_key(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_inprocess("--help", "-p", "no:cacheprovider", "-p", "no:asyncio")
    words = set(re.findall(r"[\w-]+", result.stdout.str()))
    assert {option.flag for option in OPTIONS} <= words
    assert {option.dest for option in OPTIONS} <= words


@pytest.mark.each(
    ("text", "size"),
    [
        ("0", 0),
        ("4096", 4096),
        ("17B", 17),
        ("1K", 1024),
        ("1KB", 1024),
        ("1kib", 1024),
        ("512MiB", 512 * 1024 * 1024),
        ("1.5 GB", 1610612736),
        (" 2TiB ", 2199023255552),
        ("0.5K", 512),
        ("9007199254740993", 9007199254740993),
    ],
)
def test_size_is_read_in_powers_of_1024(text: str, size: int) -> None:
    assert parse_size(text) == size


@given(st.integers(0, 10**9), st.integers(0, 10**9), st.sampled_from(["", "K", "M", "G", "T"]))
def test_size_is_the_exact_fraction_rounded_down(whole: int, part: int, unit: str) -> None:
    number = f"{whole}.{part:09d}"
    assert parse_size(number + unit) == int(Fraction(number) * 1024 ** " KMGT".index(unit or " "))


@pytest.mark.each(
    "text",
    ["", "big", "-1", "+1", "1e9", "1.", ".5", "1 K B", "1KiBs", "1P", "inf", "nan", "1,5G", "9" * 400],
)
def test_text_that_is_no_size_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(RequestError, match="expected a size such as 512MiB"):
        parse_size(text)


def test_docs_list_exactly_these_options_with_their_defaults() -> None:
    rows = re.findall(
        r"^\| `(--npudump-[a-z-]+)[^`]*` \|(.*)\|\s*$", PAGE.read_text(encoding="utf-8"), re.MULTILINE
    )
    options = {option.flag: option for option in OPTIONS}
    assert sorted(flag for flag, _ in rows) == sorted(options)
    for flag, rest in rows:
        option = options[flag]
        cells = [cell.strip().strip("`") for cell in re.split(r"(?<!\\)\|", rest)]
        default = "off" if option.default is False else str(option.default)
        assert default in cells or (not default and set(cells) & {"", "-", "none"}), (flag, default, cells)
