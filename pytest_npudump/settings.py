"""The options: the table of them, what a user typed, and what holds in one run.

:mod:`pytest_npudump.plugin.options` makes pytest's options of the table.
"""

from __future__ import annotations

import os
import re
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_npudump.errors import RequestError, said

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


ALL, FAILED, NEW = "all", "failed", "new"
"""Whose goldens ``--npudump-update-golden`` writes: every test's that runs, those that
a run fails against, or those that are not there."""


FEWEST = 3
"""Members of a calibration below which leaving one out says nothing."""

_SIZE = re.compile(r"(?P<whole>\d{1,18})(\.(?P<part>\d{1,18}))?\s*(?P<unit>[KMGT]i?B?|B)?\Z", re.IGNORECASE)
_POWERS = {"": 0, "B": 0, "K": 1, "M": 2, "G": 3, "T": 4}


def parse_size(text: str, flag: str = "--npudump-dump-limit") -> int:
    """Bytes in a size such as ``512MiB``, ``1.5 GB`` or ``4096``; K, M, G and T are powers of 1024.

    Raises:
        RequestError: ``text`` is no such size.
    """
    match = _SIZE.match(text.strip())
    if match is None:
        raise RequestError(
            said("{flag} is {value!r}, expected a size such as 512MiB or 4GiB", flag=flag, value=text)
        )
    power = _POWERS[(match["unit"] or "")[:1].upper()]
    part = match["part"] or ""
    return (int(match["whole"] + part) << 10 * power) // int(f"1{'0' * len(part)}")


def _runs(least: int, *, may_be_off: bool = False) -> Callable[[str, str], int]:
    def parse(text: str, flag: str) -> int:
        number = int(text) if text.strip().isdecimal() and len(text) < 6 else -1  # noqa: PLR2004 - no such number is meant
        if may_be_off and (not text or not number):
            return 0
        if number < least:
            raise RequestError(
                said(
                    "{flag} is {value!r}, expected a number of runs, {least} or more",
                    flag=flag,
                    value=text,
                    least=least,
                )
            )
        return number

    return parse


def _device(text: str, flag: str) -> int | None:
    if text == "auto":
        return None
    if not text.strip().isdecimal():
        raise RequestError(said("{flag} is {value!r}, expected a device id such as 0", flag=flag, value=text))
    return int(text)


def parse_seconds(text: str, flag: str) -> float:
    """Return a number of seconds, greater than 0.

    Raises:
        RequestError: ``text`` is no such number.
    """
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise RequestError(
            said("{flag} is {value!r}, expected seconds, greater than 0", flag=flag, value=text)
        )
    return seconds


class Option(NamedTuple):
    """One option.

    Attributes:
        name: without prefix, as in ``--npudump-NAME`` and the ini key ``npudump_NAME``.
        default: value where neither the command line nor the ini file says anything; False for a switch.
        help: one sentence.
        metavar: what ``--help`` calls the value; "" for a switch.
        choices: allowed values; empty where any text is allowed.
        standing: whether an ini file may set it; approving is for one run, and never for all of them.
        modes: values of an option that needs none, the first of which it then has.
        parse: makes the value of what is typed and of the option as typed; None where the text is the value.
    """

    name: str
    default: str | bool
    help: str
    metavar: str = ""
    choices: tuple[str, ...] = ()
    standing: bool = True
    modes: tuple[str, ...] = ()
    parse: Callable[[str, str], Any] | None = None

    @property
    def field(self) -> str:
        """The attribute of the settings, or for a feature's option the key among those."""
        return self.name.replace("-", "_")

    @property
    def flag(self) -> str:
        """The option as typed on the command line."""
        return f"--npudump-{self.name}"

    @property
    def dest(self) -> str:
        """The ini key, and the attribute in pytest's namespace."""
        return f"npudump_{self.field}"

    def value(self, given: Any) -> Any:
        """Return what is given, as the type that the option has.

        Raises:
            RequestError: it is none of the option's values.
        """
        return given if self.parse is None else self.parse(str(given), self.flag)

    def of(self, settings: Settings) -> Any:
        """Return the value of a feature's option."""
        return settings.features.get(self.field, self.value(self.default))


OPTIONS: tuple[Option, ...] = (
    Option(
        "update-golden",
        default="",
        help="write what the layers say now into the golden files, for review in a diff: of all tests that "
        "run, or only (=failed) those that differ from their golden, or (=new) those that have none; refused "
        "under CI",
        standing=False,
        modes=(ALL, FAILED, NEW),
    ),
    Option(
        "repeats",
        default="2",
        help="how often a test runs that is recorded: what differs between these runs is never judged as "
        "exact; 1 saves the time, and the golden then does not know whether the test repeats",
        metavar="N",
        parse=_runs(1),
    ),
    Option(
        "reason",
        default="",
        help="why goldens are updated, in words: it stands in each that the run changes",
        metavar="TEXT",
        standing=False,
    ),
    Option(
        "calibrate",
        default="",
        help="measure the tolerances of a golden by N further runs of each test, under what legitimately "
        "varies: rounding of inputs, threads and optimisation on the emulator, else repetitions; refused "
        "under CI",
        metavar="N",
        standing=False,
        parse=_runs(FEWEST, may_be_off=True),
    ),
    Option(
        "runtime",
        default="auto",
        help="what runs the models: the real pyACL, torch_npu, mindspore, the emulator, or (auto) torch_npu "
        "where the tests have imported it, pyACL where a device answers, else the emulator",
        choices=("auto", "acl", "torch_npu", "mindspore", "emulator"),
    ),
    Option(
        "require-npu",
        default=False,
        help="end the run with an error before the first test where no NPU answers",
    ),
    Option(
        "skip-without-npu",
        default=False,
        help="skip marked tests, with the reason, where no NPU answers, in place of using the emulator",
    ),
    Option(
        "device",
        default="auto",
        help="device id that models are loaded on; auto is LOCAL_RANK of a distributed run, else 0",
        metavar="ID",
        parse=_device,
    ),
    Option(
        "golden-dir",
        default="golden",
        help="folder of the golden files, relative to pytest's rootdir",
        metavar="DIR",
    ),
    Option(
        "golden-variant",
        default="",
        help="read and write goldens of this variant (a SoC, say), with the common golden as fall-back",
        metavar="NAME",
    ),
    Option(
        "preset",
        default="",
        help="tolerance preset where the marker names none; else that of the tolerance file, else 'default'",
        metavar="NAME",
    ),
    Option(
        "numerics",
        default="auto",
        help="which bounds the preset 'default' stands for: those for a run of the same numerics as the "
        "golden's, for other ones, for other ones of which one may compute in HF32, or (auto) those that fit "
        "what is known of both",
        choices=("auto", "same", "other", "hf32"),
    ),
    Option(
        "fail-on",
        default="difference",
        help="what fails a test: a difference beyond its tolerance, or (change) every value that is not the "
        "golden's digit for digit; and (stale), besides differences, what fails the session: goldens that no "
        "test has, by a collection of its own",
        choices=("difference", "change", "stale"),
    ),
    Option(
        "tolerances",
        default="",
        help="YAML file of tolerance rules, relative to rootdir",
        metavar="FILE",
    ),
    Option(
        "escalate",
        default="on",
        help="whether a failing test runs again with a tensor dump of its failing layers, and (twice) once "
        "more with what feeds the operators that were acquitted, and with what did not fit",
        choices=("on", "off", "twice"),
        parse=lambda text, _: ("off", "on", "twice").index(text),
    ),
    Option(
        "recompute",
        default="float32",
        help="whether the second run of a failing test of torch_npu keeps what suspected operators were "
        "given, and recomputes them on the CPU: in float32, in float64, or not at all (off)",
        choices=("float32", "float64", "off"),
    ),
    Option(
        "dump-dir",
        default="",
        help="folder for dumps and reports of failing tests; default below pytest's temporary folder",
        metavar="DIR",
    ),
    Option(
        "dump-limit",
        default="1GiB",
        help="most bytes of tensors that one second run dumps",
        metavar="SIZE",
        parse=parse_size,
    ),
    Option(
        "tensor-budget",
        default="256MiB",
        help="most bytes of golden tensors that one test may keep; a recording beyond it fails",
        metavar="SIZE",
        parse=parse_size,
    ),
    Option(
        "golden-tensors",
        default="marker",
        help="whose tensors are kept with goldens: those of layers that a marker names, or (auto) in tests "
        "whose marker names none those of the graph's outputs and of sources of past failures",
        choices=("marker", "auto"),
    ),
    Option(
        "tensor-store",
        default="",
        help="where golden tensors are kept instead of beside the golden, which then has their hashes: "
        "s3://bucket/folder (extra s3), file:///shared/folder, or what else fsspec reaches (extra store)",
        metavar="URL",
    ),
    Option(
        "tensor-cache",
        default="",
        help="folder in which this machine keeps stored tensors, relative to rootdir; default below the "
        "user's cache directory",
        metavar="DIR",
    ),
    Option(
        "keep-dumps",
        default="failed",
        help="whose dumps are kept: those of failed tests, or of all",
        choices=("failed", "all"),
    ),
    Option(
        "lang",
        default="auto",
        help="language of what people read, the terminal and the page: en, zh, or (auto) Chinese where the "
        "locale (LC_ALL, LC_MESSAGES, LANG) is; what programs read stays English",
        choices=("auto", "en", "zh"),
    ),
    Option(
        "allow-update-in-ci",
        default=False,
        help="let update-golden write in CI",
        standing=False,
    ),
)


CI_VARIABLES = (
    "CI",
    "CONTINUOUS_INTEGRATION",
    "BUILD_NUMBER",
    "APPVEYOR",
    "BITBUCKET_BUILD_NUMBER",
    "BUILDKITE",
    "CIRCLECI",
    "CIRRUS_CI",
    "CODEBUILD_BUILD_ID",
    "DRONE",
    "GITHUB_ACTIONS",
    "GITLAB_CI",
    "JENKINS_URL",
    "TEAMCITY_VERSION",
    "TF_BUILD",
    "TRAVIS",
)
"""Variables that services set in the processes that they run: those of many services, then those of one."""


class Settings(NamedTuple):
    """The options of one run; each attribute is the option of its name, sizes in bytes, times in seconds.

    ``calibrate`` is 0 where nothing is, ``update_golden`` "" where nothing is written, and ``features`` has
    what is not as usual of the options that features bring, by field. A named tuple, since every session
    of pytest makes the class: a dataclass of as many fields takes 0.8 ms longer.
    """

    update_golden: str
    repeats: int
    reason: str
    calibrate: int
    runtime: str
    require_npu: bool
    skip_without_npu: bool
    device: int | None
    golden_dir: str
    golden_variant: str
    preset: str
    numerics: str
    fail_on: str
    tolerances: str
    escalate: int
    recompute: str
    dump_dir: str
    dump_limit: int
    tensor_budget: int
    golden_tensors: str
    tensor_store: str
    tensor_cache: str
    keep_dumps: str
    lang: str
    allow_update_in_ci: bool
    features: Mapping[str, Any] = MappingProxyType({})

    @property
    def approval_flag(self) -> str:
        """The option by which this run writes golden files, as it is typed; "" where it writes none."""
        if not self.update_golden:
            return "--npudump-calibrate" if self.calibrate else ""
        mode = "" if self.update_golden == ALL else f"={self.update_golden}"
        return f"--npudump-update-golden{mode}"

    @property
    def approves(self) -> bool:
        """Whether this run writes golden files."""
        return bool(self.update_golden or self.calibrate)


def settings_from(values: Mapping[str, Any]) -> Settings:
    """Return the options as typed values.

    Args:
        values: by ini key, as the command line or an ini file has them.

    Raises:
        RequestError: a value is not one of its option's.
    """
    settings = Settings(**{option.field: option.value(values[option.dest]) for option in OPTIONS})
    if settings.skip_without_npu and (settings.require_npu or settings.runtime == "emulator"):
        other = "--npudump-require-npu" if settings.require_npu else "--npudump-runtime=emulator"
        raise RequestError(
            said("--npudump-skip-without-npu and {other} exclude each other: leave one out", other=other)
        )
    return settings


@lru_cache(maxsize=1)
def default_settings() -> Settings:
    """Return what holds where neither the command line nor the ini file says anything."""
    return settings_from({option.dest: option.default for option in OPTIONS})


def ci_variable() -> str:
    """Return the variable that says that this is a gate, which must not approve what it checks, or ""."""
    unset = {"", "0", "false", "no"}
    return next((name for name in CI_VARIABLES if os.environ.get(name, "").strip().lower() not in unset), "")
