"""The table of options: a switch of the command line, and mostly an ini key."""

from __future__ import annotations

import re
import shlex
from contextlib import nullcontext
from fractions import Fraction

import pytest
from hypothesis import given, strategies as st

from pytest_npudump.errors import RequestError
from pytest_npudump.plugin.options import all_options, settings_of
from pytest_npudump.plugin.paths import check_output
from pytest_npudump.settings import OPTIONS as ALWAYS, Option, Settings, parse_size
from tests.plugin.conftest import Project

OPTIONS = all_options()
SIZES = {"dump-limit": 2, "auto-tensors": 2, "output-limit": 2, "tensor-budget": 3, "tensor-cache-limit": 3}
NOT_DEFAULT = {
    "repeats": "5",
    "calibration-runs": "12",
    "devices": "0,1",
    "expect": "3",
    "runtime": "emulator",
    "escalate": "twice,float64",
    "keep-dumps": "all",
    "isolation": "90.5",
    "lang": "zh",
    "fail-on": "change",
    "golden-tensors": "auto",
    **{name: f"{size}KiB" for name, size in SIZES.items()},
}
BARE = [
    f"-pno:{plugin}"
    for plugin in (
        *("cacheprovider", "debugging", "doctest", "faulthandler", "legacypath", "logging", "pastebin"),
        *("recwarn", "setuponly", "setupplan", "stepwise", "subtests", "unittest"),
    )
]
"""What a session does without, of which only the settings are asked."""
APPROVING = [option for option in OPTIONS if not option.standing]
REFUSED = "every 'pytest' would rewrite the goldens"


def other_value(option: Option) -> str:
    assert option.parse is None or option.name in NOT_DEFAULT, f"give {option.name} a value in NOT_DEFAULT"
    return "true" if isinstance(option.default, bool) else NOT_DEFAULT.get(option.name, "somewhere")


def typed(option: Option, value: str = "") -> list[str]:
    """Return the option as it is given on a command line."""
    value = value or other_value(option)
    if not option.typed:
        return ["-o", f"{option.dest}={value}"]
    return [option.flag if option.modes or isinstance(option.default, bool) else f"{option.flag}={value}"]


def resolved(option: Option, text: str) -> object:
    """Return what Settings make of ``text``: written out here, not computed by the module."""
    known: dict[str, object] = {name: 1024 * size for name, size in SIZES.items()}
    known |= {"repeats": 5, "calibration-runs": 12}
    if option.modes:
        return "all"
    return True if isinstance(option.default, bool) else known.get(option.name, text)


def test_an_update_may_say_whose_goldens_it_writes(pytester: pytest.Pytester) -> None:
    for mode, flag in {"all": "", "failed": "=failed", "new": "=new"}.items():
        config = pytester.parseconfig(f"--npudump-update-golden{flag}", "test_some.py")
        assert config.args == ["test_some.py"], "which is no value of the option's"
        found = settings_of(config)
        assert (found.update_golden, found.calibrate) == (mode, 0)
        assert found.approval_flag == f"--npudump-update-golden{flag}"


def test_a_calibration_is_an_update_that_may_come_with_another(pytester: pytest.Pytester) -> None:
    calibrate = "--npudump-update-golden=calibrate"
    found = settings(pytester, calibrate)
    assert (found.update_golden, found.calibrate, found.approval_flag) == ("", 20, calibrate)
    assert found.approves
    found = settings(pytester, "--npudump-update-golden", calibrate, "-o", "npudump_calibration_runs=3")
    assert (found.update_golden, found.calibrate) == ("all", 3)
    refused(pytester, "'some'", "--npudump-update-golden=some")


def settings(pytester: pytest.Pytester, *arguments: str) -> Settings:
    return settings_of(pytester.parseconfig(*BARE, *arguments))


def refused(pytester: pytest.Pytester, pattern: str, *arguments: str, ini: str | None = None) -> None:
    """Hold what is said of these arguments, or of a key, against a pattern; leave no key."""
    if ini is not None:
        pytester.makeini(f"[pytest]\n{ini}\n")
    with pytest.raises(RequestError, match=pattern):
        settings(pytester, *arguments)
    if ini is not None:
        pytester.makeini("[pytest]\n")


def value_of(found: Settings, option: Option) -> object:
    return getattr(found, option.field) if option in ALWAYS else option.of(found)


@pytest.fixture(autouse=True)
def _no_options(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have no options but a test's own, and no plugins of others, which take longer to load than all else."""
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTEST_PLUGINS", "pytest_npudump.plugin")


def test_settings_have_one_field_for_each_option_that_is_no_feature_s() -> None:
    assert [*(option.field for option in ALWAYS), "calibrate", "features"] == [*Settings._fields]


def test_defaults_are_those_of_the_table(pytester: pytest.Pytester, defaults: Settings) -> None:
    assert settings(pytester) == defaults


def test_options_are_taken_from_the_command_line_and_from_ini_keys_of_their_names(
    pytester: pytest.Pytester, defaults: Settings
) -> None:
    for option in OPTIONS:
        text = other_value(option)
        pytester.makeini("[pytest]\n")
        found = settings(pytester, *typed(option))
        assert value_of(found, option) == resolved(option, text)
        if option.standing:
            pytester.makeini(f"[pytest]\naddopts = --strict-config\n{option.dest} = {text}\n")
            found = settings(pytester)
            assert value_of(found, option) == resolved(option, text)
            assert [one for one in OPTIONS if value_of(found, one) != value_of(defaults, one)] == [option]
    pytester.makeini("[pytest]\nnpudump_escalate = off\nnpudump_output = here\nnpudump_repeats = 3\n")
    found = settings(pytester, "-o", "npudump_escalate=on", "--npudump-output=there")
    assert (found.escalate, found.output, found.repeats) == ("on", "there", 3)


@pytest.mark.each(
    ("text", "runs", "recompute"),
    [
        ("off", 0, "float32"),
        ("on", 1, "float32"),
        ("twice,float64", 2, "float64"),
        ("on,no-recompute", 1, "off"),
        *(
            (text, None, "")
            for text in ("", "thrice", "on,", "on,float16", ",float64", "float64", "on, float64")
        ),
    ],
)
def test_escalation_says_how_often_and_in_what(
    pytester: pytest.Pytester, text: str, runs: int | None, recompute: str
) -> None:
    option = ("-o", f"npudump_escalate={text}")
    if runs is None:
        refused(pytester, r"npudump_escalate is .*, expected off, on or twice", *option)
        return
    found = settings(pytester, *option)
    assert (found.second_runs, found.recompute) == (runs, recompute)


NO_VALUES = {
    "repeats": ("a number of runs, 1 or more", ("0", "-1", "two", "1e3")),
    "calibration_runs": ("a number of runs, 3 or more", ("0.5", "2", "x")),
    "isolation": ("auto, process, or seconds greater than 0", ("0", "soon", "-1", "inf", "nan")),
}


def test_a_value_that_is_none_is_refused_with_what_is_expected(pytester: pytest.Pytester) -> None:
    for name, (expected, values) in NO_VALUES.items():
        for value in values:
            refused(pytester, f"npudump_{name} is .*, expected {expected}", f"-onpudump_{name}={value}")


def test_a_preset_says_which_bounds_hold(pytester: pytest.Pytester) -> None:
    auto = dict.fromkeys(("", "default", "torch"), "auto")
    for preset, bounds in {**auto, **{name: name for name in ("same", "other", "hf32")}}.items():
        assert settings(pytester, "-o", f"npudump_preset={preset}").bounds == bounds


def test_the_options_that_approve_are_for_the_command_line_only() -> None:
    assert [option.name for option in APPROVING] == ["update-golden", "reason", "allow-in-ci"]


def test_ini_key_that_would_approve_is_refused_with_the_reason(pytester: pytest.Pytester) -> None:
    given = {option.dest: option.flag for option in APPROVING}
    given["npudump_allow_in_ci"] = "-o npudump_allow_in_ci=true"
    for key, flag in given.items():
        for strict, value in (("", "true"), ("addopts = --strict-config\n", "false")):
            words = f"ini key {key}: {REFUSED}.*give {flag} on the"
            refused(pytester, words, ini=f"{strict}{key} = {value}")


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
        where = f"--npudump-update-golden in {place}: every 'pytest' would rewrite the goldens"
        assert not read or where in result.stderr.str()


def test_addopts_that_would_approve_are_refused_with_the_reason(pytester: pytest.Pytester) -> None:
    calibrate = "--npudump-update-golden=calibrate"
    lines = [("--npudump-update-golden", calibrate)]
    lines += [(option.flag, " ".join(typed(option))) for option in APPROVING if option.typed]
    ways = ("-o npudump_", "-onpudump_", "-qonpudump_", "--override-ini=npudump_")
    lines += [("npudump_allow_in_ci", f"{way}allow_in_ci=1") for way in ways]
    for shown, words in lines:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PYTEST_ADDOPTS", f"-q {words}")
            refused(pytester, f"{shown} in the variable PYTEST_ADDOPTS: {REFUSED}", ini="")
        told = f"{shown} in addopts of pytest's .* file: {REFUSED}"
        refused(pytester, told, *shlex.split(words), ini=f"addopts = -q {words}")


def test_value_outside_the_choices_is_refused_from_either_source(pytester: pytest.Pytester) -> None:
    for option in OPTIONS:
        if option.choices:
            words = f"ini key {option.dest} is 'cuda', expected one of {option.choices[0]}"
            if option.typed:
                refused(pytester, f"{option.flag} is 'cuda', expected one of ", f"{option.flag}=cuda")
            refused(pytester, words, "-o", f"{option.dest}=cuda")
            refused(pytester, words, ini=f"{option.dest} = cuda")


GONE = {
    **dict.fromkeys(("dump-dir", "results", "artifacts", "summary"), "--npudump-output=DIR"),
    "calibrate": "--npudump-update-golden=calibrate -o npudump_calibration_runs=N",
    "require-npu": "--npudump-runtime=npu",
    "skip-without-npu": "--npudump-runtime=npu-or-skip",
    "device": "-o npudump_devices=IDS",
    "numerics": "-o npudump_preset=NAME",
    "recompute": "-o npudump_escalate=on,float64 or =on,no-recompute",
    "isolation-timeout": "-o npudump_isolation=SECONDS",
    "artifacts-limit": "-o npudump_output_limit=SIZE",
    "allow-update-in-ci": "-o npudump_allow_in_ci=true",
}
KEYS_NOW = {
    **dict.fromkeys(("dump-limit", "tensor-budget", "tensor-cache-limit"), "SIZE"),
    **dict.fromkeys(("golden-variant", "preset"), "NAME"),
    **dict.fromkeys(("golden-dir", "tensor-cache"), "DIR"),
    "repeats": "N",
    "tensor-store": "URL",
    "lang": "auto|en|zh",
    "fail-on": "difference|change|stale",
    "keep-dumps": "failed|all",
    "golden-tensors": "marker|auto",
    "expect": "N|FILE",
    "devices": "auto|IDS",
    "escalate": "on|off|twice[,float64|,no-recompute]",
    "isolation": "auto|process|SECONDS",
}


def test_an_option_that_has_gone_is_refused_with_what_is_given_now(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a value or without, and with a path behind it."""
    keys = {name: f"-o npudump_{name.replace('-', '_')}={value}" for name, value in KEYS_NOW.items()}
    told = GONE | keys
    for name, now in told.items():
        words = re.escape(f"there is no --npudump-{name}: did you mean {now}?")
        refused(pytester, words, f"--npudump-{name}=1")
        refused(pytester, words, f"--npudump-{name}", "test_it.py")
    for name, now in GONE.items():
        key = f"npudump_{name}".replace("-", "_")
        words = re.escape(f"there is no ini key {key}: did you mean {now}?")
        refused(pytester, words, ini=f"{key} = 1")
        refused(pytester, words, "-o", f"{key}=1")
    refused(pytester, "ini key npudump_report: .*'site'.*expected true or false", ini="npudump_report = site")
    word = "--npudump-require-npu"
    words = re.escape(f"there is no {word}: did you mean {GONE['require-npu']}?")
    pytester.path.joinpath("words").write_text(f"{word}\n-q\n")
    places = [word, "@words"] if pytest.version_tuple >= (8, 2) else [word]
    for place in places:
        refused(pytester, words, place, word)
        refused(pytester, words, ini=f"addopts = -q {place}")
        with monkeypatch.context() as patch:
            patch.setenv("PYTEST_ADDOPTS", place)
            refused(pytester, words)


def test_a_choice_or_key_that_is_none_is_refused_with_the_near_one(pytester: pytest.Pytester) -> None:
    """A key of another plugin is its own."""
    update = "--npudump-update-golden"
    for words, told in {
        f"{update}=cal": f"{update} takes no 'cal': did you mean calibrate?",
        f"{update}=al": f"{update} takes no 'al': did you mean all?",
        f"{update}=x": f"{update} takes no 'x', expected one of all, failed, new, calibrate",
        f"{update}s": f"there is no {update}s: did you mean {update}?",
        "--npudump-runtime=emu": "--npudump-runtime is 'emu': did you mean emulator?",
        "--npudump-runtime xyz": "--npudump-runtime is 'xyz', expected one of auto, npu, npu-or-skip, acl",
        "-o npudump_runtime=emulatr": "ini key npudump_runtime is 'emulatr': did you mean emulator?",
        "--npudump-keep": "there is no --npudump-keep: did you mean -o npudump_keep_dumps=failed|all?",
        "--npudump-language=zh": "there is no --npudump-language: did you mean -o npudump_lang=auto|en|zh?",
        "--npudump-isolate": "there is no --npudump-isolate: did you mean -o npudump_isolation=",
        "--npudump_output=y": "there is no --npudump_output: did you mean --npudump-output?",
        "--npudump_lang=zh": "there is no --npudump_lang: did you mean -o npudump_lang=auto|en|zh?",
    }.items():
        refused(pytester, re.escape(told), *words.split(), ini="")
    for key, told in {
        "npudump_fail-on": "did you mean npudump_fail_on?",
        "npudump_expects": "did you mean npudump_expect?",
        "npudump_reslts": "did you mean --npudump-output=DIR?",
        "npudump-golden-dir": "did you mean npudump_golden_dir?",
        "npudump_qqqqqqqqq": "see pytest --help -v",
    }.items():
        words = re.escape(f"there is no ini key {key}: {told}")
        refused(pytester, words, "-o", f"{key}=change", ini="")
        refused(pytester, words, ini=f"{key} = change")
        pytester.path.joinpath("tox.ini").unlink()
        pytester.makepyprojecttoml(f'[tool.pytest.ini_options]\n{key} = "change"\n')
        refused(pytester, words)
        pytester.path.joinpath("pyproject.toml").unlink()
    pytester.makeconftest("def pytest_addoption(parser):\n    parser.addini('npudump_mine', 'help')\n")
    pytester.makeini("[pytest]\nnpudump_mine = 1\nother_unknown = 1\n")
    assert settings(pytester, "-o", "npudump_mine=2").fail_on == "difference"


def test_an_option_that_approves_is_no_key_for_one_run_either(pytester: pytest.Pytester) -> None:
    for key, typed_now in (
        ("npudump_update_golden=failed", "--npudump-update-golden"),
        ("npudump_update_golden=true", "--npudump-update-golden"),
        ("npudump_reason=a b", "--npudump-reason"),
    ):
        words = f"{key.partition('=')[0]} is no key for -o: give the option, {typed_now}"
        refused(pytester, f"{re.escape(words)}$", "-o", key)
        words = f"in addopts of pytest's configuration file: {REFUSED}"
        refused(pytester, words, ini=f"addopts = -o '{key}'")


def test_output_and_goldens_do_not_lie_in_each_other(pytester: pytest.Pytester) -> None:
    pytester.path.joinpath("real").mkdir()
    pytester.path.joinpath("link").symlink_to("real")
    pytester.path.joinpath("out").mkdir()
    pytester.path.joinpath("out/dumps").symlink_to("../real")
    for output, goldens, refused in (
        ("golden", "golden", True),
        ("golden/out", "golden", True),
        ("real/out", "link", True),
        ("link/../real/out", "real", True),
        ("art", "art/results", True),
        ("art", "art/report/golden", True),
        ("out", "real/golden", True),
        ("art", "art/golden", False),
        ("golden-out", "golden", False),
        (".", "golden", False),
    ):
        config = pytester.parseconfig(f"--npudump-output={output}", "-o", f"npudump_golden_dir={goldens}")
        held = pytest.raises(RequestError, match="choose another") if refused else nullcontext()
        with held:
            check_output(config, settings_of(config))
    done = pytester.runpytest_inprocess("--npudump-output=golden/out")
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines(["*--npudump-output */golden/out is in the folder of the goldens, */golden: *"])


@pytest.mark.usefixtures("_no_acl")
def test_the_header_says_how_the_runtime_was_chosen(project: Project) -> None:
    project.marked()
    ini = project.path / "tox.ini"
    before = ini.read_text("utf-8")
    for options, key, how in (
        (["--npudump-runtime=emulator"], "", "--npudump-runtime=emulator"),
        (["-o", "npudump_runtime=emulator"], "", "-o npudump_runtime=emulator"),
        ([], "npudump_runtime = emulator\n", "ini key npudump_runtime = emulator"),
        ([], "", "auto, no module 'acl'"),
        ([], "npudump_runtime = auto\n", "auto, no module 'acl'"),
    ):
        ini.write_text(f"{before}\n{key}", "utf-8")
        done = project.pytester.runpytest_inprocess("--npudump-update-golden", *options)
        assert f"npudump: runtime emulator ({how})" in done.outlines, done.outlines


def test_help_is_little_longer_and_names_every_option_and_the_page_of_the_rest(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTEST_PLUGINS")
    monkeypatch.delenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD")
    ways = ((), ("-p", "no:npudump"), ("-v",))
    helps = [pytester.runpytest_inprocess("--help", *way).outlines for way in ways]
    assert len(helps[0]) - len(helps[1]) <= 32
    words = set(re.findall(r"[\w.-]+", "\n".join(helps[0])))
    assert {option.flag for option in OPTIONS if option.typed} <= words
    told = [" ".join(" ".join(lines).split()) for lines in helps]
    assert "npudump_NAME=VALUE: pytest --help -v" in told[0]
    assert "-o npudump_allow_in_ci=true" in told[0]
    for option in OPTIONS:
        if option.standing and not option.typed:
            assert f"{option.dest} (string): {' '.join(option.help.split()[:6])}" in told[2]
    assert "refused" not in told[2].partition("npudump_")[2].partition("Environment variables")[0]


def test_size_is_read_in_powers_of_1024() -> None:
    exact = {"0": 0, "4096": 4096, "17B": 17, "0.5K": 512, "9007199254740993": 9007199254740993}
    units = {"1K": 1024, "1KB": 1024, "1kib": 1024, "512MiB": 512 * 1024 * 1024, "1.5 GB": 1610612736}
    for text, size in {**exact, **units, " 2TiB ": 2199023255552}.items():
        assert parse_size(text) == size, text


@given(st.integers(0, 10**9), st.integers(0, 10**9), st.sampled_from(["", "K", "M", "G", "T"]))
def test_size_is_the_exact_fraction_rounded_down(whole: int, part: int, unit: str) -> None:
    number = f"{whole}.{part:09d}"
    assert parse_size(number + unit) == int(Fraction(number) * 1024 ** " KMGT".index(unit or " "))


def test_text_that_is_no_size_is_refused_with_an_example() -> None:
    wrong = ["", "big", "-1", "+1", "1e9", "1.", ".5", "1 K B", "1KiBs", "1P", "inf", "nan", "1,5G"]
    for text in [*wrong, "9" * 400]:
        with pytest.raises(RequestError, match="expected a size such as 512MiB"):
            parse_size(text)
