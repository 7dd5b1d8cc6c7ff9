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
NOT_DEFAULT = {
    "repeats": "5",
    "calibration-runs": "12",
    "devices": "0,1",
    "dump-limit": "2KiB",
    "auto-tensors": "2KiB",
    "output-limit": "2KiB",
    "expect": "3",
    "tensor-budget": "3KiB",
    "tensor-cache-limit": "3KiB",
    "runtime": "emulator",
    "escalate": "twice,float64",
    "keep-dumps": "all",
    "isolation": "90.5",
    "lang": "zh",
    "fail-on": "change",
    "golden-tensors": "auto",
}
APPROVING = [option for option in OPTIONS if not option.standing]
REFUSED = "every 'pytest' would rewrite the goldens"


def other_value(option: Option) -> str:
    return "true" if isinstance(option.default, bool) else NOT_DEFAULT.get(option.name, "somewhere")


def typed(option: Option, value: str = "") -> list[str]:
    """Return the option as it is given on a command line."""
    value = value or other_value(option)
    if not option.typed:
        return ["-o", f"{option.dest}={value}"]
    return [option.flag if option.modes or isinstance(option.default, bool) else f"{option.flag}={value}"]


def resolved(option: Option, text: str) -> object:
    """Return what Settings make of ``text``: written out here, not computed by the module."""
    known: dict[str, object] = {
        "repeats": 5,
        "calibration-runs": 12,
        "dump-limit": 2048,
        "output-limit": 2048,
        "auto-tensors": 2048,
        "tensor-budget": 3072,
        "tensor-cache-limit": 3072,
    }
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
    found = settings(pytester, "--npudump-update-golden", calibrate, "-o", "npudump_calibration_runs=3")
    assert (found.update_golden, found.calibrate) == ("all", 3)


def test_an_update_of_another_kind_is_refused(pytester: pytest.Pytester) -> None:
    with pytest.raises(RequestError, match="'some'"):
        settings(pytester, "--npudump-update-golden=some")


def settings(pytester: pytest.Pytester, *arguments: str) -> Settings:
    return settings_of(pytester.parseconfig("-p", "no:cacheprovider", *arguments))


def value_of(found: Settings, option: Option) -> object:
    return getattr(found, option.field) if option in ALWAYS else option.of(found)


@pytest.fixture(autouse=True)
def _no_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)


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
    if runs is None:
        with pytest.raises(RequestError, match=r"npudump_escalate is .*, expected off, on or twice"):
            settings(pytester, "-o", f"npudump_escalate={text}")
        return
    found = settings(pytester, "-o", f"npudump_escalate={text}")
    assert (found.second_runs, found.recompute) == (runs, recompute)


@pytest.mark.each(
    ("preset", "bounds"),
    [
        ("", "auto"),
        ("default", "auto"),
        ("torch", "auto"),
        *((name,) * 2 for name in ("same", "other", "hf32")),
    ],
)
def test_a_preset_says_which_bounds_hold(pytester: pytest.Pytester, preset: str, bounds: str) -> None:
    assert settings(pytester, "-o", f"npudump_preset={preset}").bounds == bounds


def test_the_options_that_approve_are_for_the_command_line_only() -> None:
    assert [option.name for option in APPROVING] == ["update-golden", "reason", "allow-in-ci"]


def test_ini_key_that_would_approve_is_refused_with_the_reason(pytester: pytest.Pytester) -> None:
    given = {option.dest: option.flag for option in APPROVING}
    given |= {"npudump_calibrate": "--npudump-update-golden=calibrate"}
    given |= dict.fromkeys(
        ("npudump_allow_update_in_ci", "npudump_allow_in_ci"), "-o npudump_allow_in_ci=true"
    )
    for key, flag in given.items():
        for strict, value in (("", "true"), ("addopts = --strict-config\n", "false")):
            pytester.makeini(f"[pytest]\n{strict}{key} = {value}\n")
            with pytest.raises(RequestError, match=f"ini key {key}: {REFUSED}.*give {flag} on the"):
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
        where = f"--npudump-update-golden in {place}: every 'pytest' would rewrite the goldens"
        assert not read or where in result.stderr.str()


def test_addopts_that_would_approve_are_refused_with_the_reason(pytester: pytest.Pytester) -> None:
    lines = [
        ("--npudump-update-golden", "--npudump-update-golden=calibrate"),
        ("--npudump-calibrate", "--npudump-calibrate=3"),
    ]
    lines += [(option.flag, " ".join(typed(option))) for option in APPROVING if option.typed]
    ways = (
        "-o npudump_allow_in_ci=1",
        "-onpudump_allow_in_ci=1",
        "-qonpudump_allow_in_ci=1",
        "--override-ini=npudump_allow_in_ci=1",
    )
    lines += [("npudump_allow_in_ci", words) for words in ways]
    for shown, words in lines:
        pytester.makeini("[pytest]\n")
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PYTEST_ADDOPTS", f"-q {words}")
            with pytest.raises(RequestError, match=f"{shown} in the variable PYTEST_ADDOPTS: {REFUSED}"):
                settings(pytester)
        pytester.makeini(f"[pytest]\naddopts = -q {words}\n")
        with pytest.raises(RequestError, match=f"{shown} in addopts of pytest's .* file: {REFUSED}"):
            settings(pytester, *shlex.split(words))


def test_value_outside_the_choices_is_refused_from_either_source(pytester: pytest.Pytester) -> None:
    for option in OPTIONS:
        if option.choices:
            words = f"ini key {option.dest} is 'cuda', expected one of {option.choices[0]}"
            if option.typed:
                with pytest.raises(RequestError, match=f"{option.flag} is 'cuda', expected one of "):
                    settings(pytester, f"{option.flag}=cuda")
            with pytest.raises(RequestError, match=words):
                settings(pytester, "-o", f"{option.dest}=cuda")
            pytester.makeini(f"[pytest]\n{option.dest} = cuda\n")
            with pytest.raises(RequestError, match=words):
                settings(pytester)
            pytester.makeini("[pytest]\n")


@pytest.mark.each(
    ("given", "told"),
    [
        ("--npudump-preset=other", "-o npudump_preset=other"),
        ("--npudump-numerics=other", "-o npudump_preset=other"),
        ("--npudump-calibrate=7", "--npudump-update-golden=calibrate -o npudump_calibration_runs=7"),
        ("--npudump-repeats", "-o npudump_repeats=VALUE"),
        ("--npudump-require-npu", "--npudump-runtime=npu"),
        ("--npudump-skip-without-npu", "--npudump-runtime=npu-or-skip"),
        ("--npudump-device=3", "-o npudump_devices=3"),
        ("--npudump-recompute=off", "-o npudump_escalate=on,no-recompute"),
        ("--npudump-recompute=float64", "-o npudump_escalate=on,float64"),
        ("--npudump-isolation-timeout=60", "-o npudump_isolation=60"),
        ("--npudump-dump-dir=a b", "--npudump-output='a b'"),
        ("--npudump-results=kept", "--npudump-output=kept"),
        ("--npudump-artifacts=art", "--npudump-output=art"),
        ("--npudump-artifacts-limit=1GiB", "-o npudump_output_limit=1GiB"),
        ("--npudump-summary=s.md", "--npudump-output=DIR"),
        ("--npudump-allow-update-in-ci", "-o npudump_allow_in_ci=true"),
        ("--npudump-allow-in-ci", "-o npudump_allow_in_ci=true"),
    ],
)
def test_an_option_that_has_gone_is_refused_with_what_is_given_now(
    pytester: pytest.Pytester, given: str, told: str
) -> None:
    words = f"there is no {given} any more: give {told} instead"
    with pytest.raises(RequestError, match=re.escape(words)):
        settings(pytester, given)


def test_every_option_but_six_that_there_was_is_refused(pytester: pytest.Pytester) -> None:
    was = {
        *("update-golden", "repeats", "reason", "calibrate", "runtime", "require-npu", "skip-without-npu"),
        *("device", "devices", "golden-dir", "golden-variant", "preset", "numerics", "fail-on", "tolerances"),
        *("escalate", "recompute", "dump-dir", "dump-limit", "tensor-budget", "golden-tensors", "lang"),
        *("tensor-store", "tensor-cache", "tensor-cache-limit", "keep-dumps", "isolation", "expect"),
        *("isolation-timeout", "results", "summary", "artifacts", "artifacts-limit", "report"),
        "allow-update-in-ci",
    }
    kept = {option.name for option in OPTIONS if option.typed}
    assert kept - was == {"output"}
    for name in was - kept:
        with pytest.raises(RequestError, match=f"there is no --npudump-{name}(=1)? any more"):
            settings(pytester, f"--npudump-{name}=1")


@pytest.mark.each(
    ("key", "told"),
    [
        ("npudump_numerics = other", "npudump_preset = other"),
        ("npudump_require_npu = true", "npudump_runtime = npu"),
        ("npudump_skip_without_npu = false", "npudump_runtime = npu-or-skip"),
        ("npudump_device = 3", "npudump_devices = 3"),
        ("npudump_recompute = off", "npudump_escalate = on,no-recompute"),
        ("npudump_isolation_timeout = 60", "npudump_isolation = 60"),
        ("npudump_dump_dir = dumps", "npudump_output = dumps"),
        ("npudump_results = kept", "npudump_output = kept"),
        ("npudump_summary = s.md", "npudump_output = DIR"),
        ("npudump_artifacts = art", "npudump_output = art"),
        ("npudump_artifacts_limit = 1GiB", "npudump_output_limit = 1GiB"),
    ],
)
def test_an_ini_key_that_has_gone_is_refused_with_what_is_written_now(
    pytester: pytest.Pytester, key: str, told: str
) -> None:
    name = key.partition(" ")[0]
    pytester.makeini(f"[pytest]\n{key}\n")
    with pytest.raises(RequestError, match=f"there is no ini key {name} any more: give {told} instead"):
        settings(pytester)


def test_a_switch_that_has_gone_does_not_swallow_the_path_behind_it(pytester: pytest.Pytester) -> None:
    with pytest.raises(RequestError, match=r"there is no --npudump-require-npu any more: give .*=npu "):
        settings(pytester, "--npudump-require-npu", "test_it.py")


def test_a_report_that_names_a_folder_is_refused(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nnpudump_report = site\n")
    words = r"ini key npudump_report: .*'site'.*expected true or false: --npudump-output names the folder"
    with pytest.raises(RequestError, match=words):
        settings(pytester)
    pytester.makeini("[pytest]\n")
    words = "--npudump-report takes no folder: give --npudump-output='a b' --npudump-report"
    for typed_now in (["--npudump-report=a b"], ["--npudump-report", "a b"]):
        with pytest.raises(RequestError, match=re.escape(words)):
            settings(pytester, *typed_now)
    pytester.mkdir("a b")
    for behind in (["a b"], ["a b::test_x"], ["-q"], []):
        assert settings(pytester, "--npudump-report", *behind).features["report"]


@pytest.mark.each(
    ("words", "told"),
    [
        (["--npudump-update-golden=al"], "--npudump-update-golden takes no 'al': did you mean all?"),
        (
            ["--npudump-update-golden=x"],
            "--npudump-update-golden takes no 'x', expected one of all, failed, new, calibrate",
        ),
        (
            ["--npudump-update-goldens"],
            "there is no --npudump-update-goldens: did you mean --npudump-update-golden?",
        ),
        (["--npudump-runtime=emu"], "--npudump-runtime is 'emu': did you mean emulator?"),
        (
            ["--npudump-runtime", "xyz"],
            "--npudump-runtime is 'xyz', expected one of auto, npu, npu-or-skip, acl",
        ),
        (["-o", "npudump_runtime=emulatr"], "ini key npudump_runtime is 'emulatr': did you mean emulator?"),
        (["--npudump-numerics=auto"], "there is no --npudump-numerics=auto any more: leave it out"),
    ],
)
def test_a_choice_that_is_none_is_refused_with_the_near_one(
    pytester: pytest.Pytester, words: list[str], told: str
) -> None:
    pytester.makeini("[pytest]\n")
    with pytest.raises(RequestError, match=re.escape(told)):
        settings(pytester, *words)


@pytest.mark.each(
    ("key", "told"),
    [
        ("npudump_fail-on", "did you mean npudump_fail_on?"),
        ("npudump_expects", "did you mean npudump_expect?"),
        ("npudump_reslts", "did you mean npudump_results?"),
        ("npudump-golden-dir", "did you mean npudump_golden_dir?"),
        ("npudump_qqqqqqqqq", "see pytest --help -v"),
    ],
)
def test_a_key_that_is_none_is_refused_with_the_near_one(
    pytester: pytest.Pytester, key: str, told: str
) -> None:
    words = re.escape(f"there is no ini key {key}: {told}")
    pytester.makeini("[pytest]\n")
    with pytest.raises(RequestError, match=words):
        settings(pytester, "-o", f"{key}=change")
    pytester.makeini(f"[pytest]\n{key} = change\n")
    with pytest.raises(RequestError, match=words):
        settings(pytester)
    pytester.path.joinpath("tox.ini").unlink()
    pytester.makepyprojecttoml(f'[tool.pytest.ini_options]\n{key} = "change"\n')
    with pytest.raises(RequestError, match=words):
        settings(pytester)
    pytester.path.joinpath("pyproject.toml").unlink()


def test_a_key_of_another_plugin_is_its_own(pytester: pytest.Pytester) -> None:
    pytester.makeconftest("def pytest_addoption(parser):\n    parser.addini('npudump_mine', 'help')\n")
    pytester.makeini("[pytest]\nnpudump_mine = 1\nother_unknown = 1\n")
    assert settings(pytester, "-o", "npudump_mine=2").fail_on == "difference"


def test_an_option_that_approves_is_no_key_for_one_run_either(pytester: pytest.Pytester) -> None:
    for key, typed_now in (
        ("npudump_update_golden=all", "--npudump-update-golden"),
        ("npudump_update_golden=failed", "--npudump-update-golden=failed"),
        ("npudump_reason=a b", "--npudump-reason='a b'"),
    ):
        words = f"{key.partition('=')[0]} is no key for -o: give the option by its own name, {typed_now}"
        with pytest.raises(RequestError, match=f"{re.escape(words)}$"):
            settings(pytester, "-o", key)
        pytester.makeini(f"[pytest]\naddopts = -o '{key}'\n")
        with pytest.raises(RequestError, match=f"in addopts of pytest's configuration file: {REFUSED}"):
            settings(pytester)
        pytester.makeini("[pytest]\n")


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
        done = project.pytester.runpytest_subprocess("--npudump-update-golden", *options)
        assert f"npudump: runtime emulator ({how})" in done.outlines, done.outlines
    for options, key, how in (
        (["--npudump-runtime=npu"], "", "--npudump-runtime=npu"),
        ([], "npudump_runtime = npu\n", "ini key npudump_runtime = npu"),
    ):
        ini.write_text(f"{before}\n{key}", "utf-8")
        done = project.pytester.runpytest_subprocess(*options)
        assert any(f"{how}: no module 'acl'" in line and "set_env.sh" in line for line in done.errlines)


def test_help_is_little_longer_and_names_every_option_and_the_page_of_the_rest(
    pytester: pytest.Pytester,
) -> None:
    ways = ((), ("-p", "no:npudump"), ("-v",))
    helps = [pytester.runpytest_subprocess("--help", *way).outlines for way in ways]
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
