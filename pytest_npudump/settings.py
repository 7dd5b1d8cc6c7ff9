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
CALIBRATE = "calibrate"
"""The value of the same option with which it measures tolerances."""

NPU, NPU_OR_SKIP = "npu", "npu-or-skip"
"""Runtimes for which an NPU has to answer: else the run ends, or its marked tests are skipped."""
BOUNDS = ("same", "other", "hf32")
"""Presets that say for which numerics the bounds are that ``default`` chooses by what is known of both."""

FEWEST = 3
"""Members of a calibration below which leaving one out says nothing."""

_SIZE = re.compile(r"(?P<whole>\d{1,18})(\.(?P<part>\d{1,18}))?\s*(?P<unit>[KMGT]i?B?|B)?\Z", re.IGNORECASE)
_POWERS = {"": 0, "B": 0, "K": 1, "M": 2, "G": 3, "T": 4}


def parse_size(text: str, flag: str = "npudump_dump_limit") -> int:
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


def _runs(least: int) -> Callable[[str, str], int]:
    def parse(text: str, flag: str) -> int:
        number = int(text) if text.strip().isdecimal() and len(text) < 6 else -1  # noqa: PLR2004 - no such number is meant
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


_SECOND_RUNS = ("off", "on", "twice")
_RECOMPUTED = {"no-recompute": "off", "float32": "float32", "float64": "float64"}


def _escalation(text: str, flag: str) -> str:
    runs, comma, recomputed = text.partition(",")
    if runs not in _SECOND_RUNS or (comma and recomputed not in _RECOMPUTED):
        raise RequestError(
            said(
                "{flag} is {value!r}, expected off, on or twice, and with a comma float64 or no-recompute: "
                "twice,float64",
                flag=flag,
                value=text,
            )
        )
    return text


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
            said(
                "{flag} is {value!r}, expected auto, process, or seconds greater than 0",
                flag=flag,
                value=text,
            )
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
        typed: whether it is an option of the command line, too, and not an ini key alone.
        modes: values of an option that needs none, the first of which it then has.
        parse: makes the value of what is typed and of the option as typed; None where the text is the value.
    """

    name: str
    default: str | bool
    help: str
    metavar: str = ""
    choices: tuple[str, ...] = ()
    standing: bool = True
    typed: bool = False
    modes: tuple[str, ...] = ()
    parse: Callable[[str, str], Any] | None = None

    @property
    def field(self) -> str:
        """The attribute of the settings, or for a feature's option the key among those."""
        return self.name.replace("-", "_")

    @property
    def flag(self) -> str:
        """The option as typed on the command line: a key behind pytest's own ``-o``."""
        return f"--npudump-{self.name}" if self.typed else f"-o {self.dest}"

    @property
    def dest(self) -> str:
        """The ini key, and the attribute in pytest's namespace."""
        return f"npudump_{self.field}"

    def value(self, given: Any) -> Any:
        """Return what is given, as the type that the option has.

        Raises:
            RequestError: it is none of the option's values.
        """
        return given if self.parse is None else self.parse(str(given), self.flag.removeprefix("-o "))

    def of(self, settings: Settings) -> Any:
        """Return the value of a feature's option."""
        return settings.features.get(self.field, self.value(self.default))


OPTIONS: tuple[Option, ...] = (
    Option(
        "update-golden",
        default="",
        help="write what the layers say now into the golden files, for review in a diff: of all tests that "
        "run, or only (=failed) those that differ from their golden, or (=new) those that have none; or "
        "(=calibrate) measure their tolerances; refused under CI",
        standing=False,
        typed=True,
        modes=(ALL, FAILED, NEW),
    ),
    Option(
        "reason",
        default="",
        help="why goldens are updated, in words: it stands in each that the run changes",
        metavar="TEXT",
        standing=False,
        typed=True,
    ),
    Option(
        "runtime",
        default="auto",
        help="what runs the models: pyACL (acl), torch_npu, mindspore, the emulator; or (auto) torch_npu "
        "where the tests have imported it, pyACL where a device answers, else the emulator. Where no NPU "
        "answers, npu ends the run before its first test, and npu-or-skip skips marked tests",
        choices=("auto", NPU, NPU_OR_SKIP, "acl", "torch_npu", "mindspore", "emulator"),
        typed=True,
    ),
    Option(
        "output",
        default="",
        help="folder, relative to rootdir, for what a session leaves: results, dumps of failing tests, "
        "report, summary.md, session.json, CANN's log; without it results are in pytest's cache, dumps "
        "below its temporary folder",
        metavar="DIR",
        typed=True,
    ),
    Option(
        "tolerances",
        default="",
        help="YAML file of tolerance rules, relative to rootdir",
        metavar="FILE",
        typed=True,
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
        "calibration-runs",
        default="20",
        help="further runs of each test by which --npudump-update-golden=calibrate measures, under what "
        "legitimately varies: rounding of inputs, threads and optimisation on the emulator, else repetitions",
        metavar="N",
        parse=_runs(FEWEST),
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
        help="tolerance preset where the marker names none; else that of the tolerance file, else default: "
        "bounds that fit what is known of golden and run. same, other and hf32 are those for a run of the "
        "same numerics as the golden's, for other ones, for other ones of which one may compute in HF32",
        metavar="NAME",
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
        "escalate",
        default="on",
        help="whether a failing test runs again with a tensor dump of its failing layers, and (twice) once "
        "more with what feeds the operators that were acquitted, and with what did not fit. The second run "
        "of torch_npu keeps what suspected operators were given, and recomputes them on the CPU in float32; "
        "with a comma in float64, or not (no-recompute): twice,float64",
        metavar="on|off|twice[,float64|,no-recompute]",
        parse=_escalation,
    ),
    Option(
        "dump-limit",
        default="1GiB",
        help="most bytes of tensors that one second run dumps",
        metavar="SIZE",
        parse=parse_size,
    ),
    Option(
        "auto-tensors",
        default="0",
        help="most bytes of a run's tensors for which a recording takes these, with projections, in place of "
        "a device's statistics, where the marker leaves dump_data at auto and a run is at most twice as long",
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
        "allow-in-ci",
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

    ``calibrate`` is the number of runs where tolerances are measured, else 0, ``update_golden`` "" where
    nothing is written, and ``features`` has what is not as usual of the options that features bring, by
    field. A named tuple, since every session of pytest makes the class: a dataclass of as many fields takes
    0.8 ms longer.
    """

    update_golden: str
    reason: str
    runtime: str
    output: str
    tolerances: str
    repeats: int
    calibration_runs: int
    golden_dir: str
    golden_variant: str
    preset: str
    fail_on: str
    escalate: str
    dump_limit: int
    auto_tensors: int
    tensor_budget: int
    golden_tensors: str
    tensor_store: str
    tensor_cache: str
    keep_dumps: str
    lang: str
    allow_in_ci: bool
    calibrate: int = 0
    features: Mapping[str, Any] = MappingProxyType({})

    @property
    def second_runs(self) -> int:
        """How often a failing test may run again."""
        return _SECOND_RUNS.index(self.escalate.partition(",")[0])

    @property
    def recompute(self) -> str:
        """The type in which suspected operators of torch_npu are recomputed, or ``off``."""
        return _RECOMPUTED.get(self.escalate.partition(",")[2], "float32")

    @property
    def bounds(self) -> str:
        """The numerics for which the preset has bounds; ``auto`` for those that fit golden and run."""
        return self.preset if self.preset in BOUNDS else "auto"

    @property
    def approval_flag(self) -> str:
        """The option by which this run writes golden files, as it is typed; "" where it writes none."""
        if not self.approves:
            return ""
        mode = (
            CALIBRATE if not self.update_golden else "" if self.update_golden == ALL else self.update_golden
        )
        return f"--npudump-update-golden={mode}".rstrip("=")

    @property
    def approves(self) -> bool:
        """Whether this run writes golden files."""
        return bool(self.update_golden or self.calibrate)


def settings_from(values: Mapping[str, Any]) -> Settings:
    """Return the options as typed values.

    Args:
        values: by ini key, as the command line or an ini file has them; ``npudump_calibrate`` may be among
            them, and says that tolerances are measured.

    Raises:
        RequestError: a value is not one of its option's.
    """
    settings = Settings(**{option.field: option.value(values[option.dest]) for option in OPTIONS})
    return settings._replace(calibrate=settings.calibration_runs if values.get("npudump_calibrate") else 0)


@lru_cache(maxsize=1)
def default_settings() -> Settings:
    """Return what holds where neither the command line nor the ini file says anything."""
    return settings_from({option.dest: option.default for option in OPTIONS})


def ci_variable() -> str:
    """Return the variable that says that this is a gate, which must not approve what it checks, or ""."""
    unset = {"", "0", "false", "no"}
    return next((name for name in CI_VARIABLES if os.environ.get(name, "").strip().lower() not in unset), "")
