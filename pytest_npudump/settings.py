"""The options: the table of them, what a user typed, and what holds in one run.

:mod:`pytest_npudump.plugin.options` makes pytest's options of the table.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple

from pytest_npudump.errors import RequestError, said

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
    power = {"": 0, "B": 0, "K": 1, "M": 2, "G": 3, "T": 4}[(match["unit"] or "")[:1].upper()]
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
        standing: whether an ini file may set it; accepting is for one run, and never for all of them.
        typed: whether it is an option of the command line, too, and not an ini key alone.
        modes: values of an option that needs none, the first of which it then has.
        parse: makes the value of a text, ``default`` among them, and of the option as typed; None where the
            text is the value.
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
        """Convert a given value to the type of the option.

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
        help="write golden files instead of comparing: of all tests that run, of tests that fail (=failed), "
        "of tests without a golden (=new); =calibrate measures tolerances; in CI only with "
        "-o npudump_allow_in_ci=true",
        standing=False,
        typed=True,
        modes=(ALL, FAILED, NEW),
    ),
    Option(
        "reason",
        default="",
        help="reason of an update, stored in each golden that the run changes",
        metavar="TEXT",
        standing=False,
        typed=True,
    ),
    Option(
        "runtime",
        default="auto",
        help="runtime of the models: acl (pyACL), torch_npu, mindspore, emulator, modules (torch modules or "
        "MindSpore cells as layers, on any device, as the marker's scene='modules'); auto (default): "
        "torch_npu if imported by the tests, acl if a device answers, else emulator; npu: as auto, but end "
        "the run if no NPU answers; npu-or-skip: skip marked tests then",
        choices=("auto", NPU, NPU_OR_SKIP, "acl", "torch_npu", "mindspore", "emulator", "modules"),
        typed=True,
    ),
    Option(
        "output",
        default="",
        help="output folder, relative to rootdir: results, dumps of failing tests, report, summary.md, "
        "session.json, CANN's log; default: results in pytest's cache, dumps in its temporary folder",
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
        help="number of runs of a test that is recorded; values that vary between them are not compared as "
        "exact; 1: faster, without noise and determinism data",
        metavar="N",
        parse=_runs(1),
    ),
    Option(
        "calibration-runs",
        default="20",
        help="number of runs of each test for --npudump-update-golden=calibrate; on the emulator they vary "
        "rounding of inputs, threads and optimisation",
        metavar="N",
        parse=_runs(FEWEST),
    ),
    Option("golden-dir", default="golden", help="folder of golden files, relative to rootdir", metavar="DIR"),
    Option(
        "golden-variant",
        default="",
        help="variant of goldens to read and write, such as a SoC; fallback: the common golden",
        metavar="NAME",
    ),
    Option(
        "preset",
        default="",
        help="tolerance preset of tests whose marker has none; without it that of the tolerance file, else "
        "default: same, other or hf32, whichever fits the environments of golden and run (same "
        "environment, different environment, HF32 possible)",
        metavar="NAME",
    ),
    Option(
        "fail-on",
        default="difference",
        help="condition of failure: difference (default: a value out of tolerance), change (a value that is "
        "not identical as printed), stale (difference, and the session fails if a golden has no test)",
        choices=("difference", "change", "stale"),
    ),
    Option(
        "escalate",
        default="on",
        help="second run of a failing test with a tensor dump of the mismatching layers: on (default), off, "
        "twice (a third run dumps inputs of operators whose recomputation matches). For torch_npu "
        "suspected operators are recomputed on the CPU in float32; with a comma in float64, or not "
        "(no-recompute): twice,float64",
        metavar="on|off|twice[,float64|,no-recompute]",
        parse=_escalation,
    ),
    Option(
        "dump-limit",
        default="1GiB",
        help="maximum size of tensors per second run",
        metavar="SIZE",
        parse=parse_size,
    ),
    Option(
        "auto-tensors",
        default="512MiB",
        help="maximum size of a run's tensors up to which a new golden is recorded of them, where the marker "
        "leaves dump_data at auto; 0: of statistics",
        metavar="SIZE",
        parse=parse_size,
    ),
    Option(
        "tensor-budget",
        default="256MiB",
        help="maximum size of golden tensors per test; a larger recording fails",
        metavar="SIZE",
        parse=parse_size,
    ),
    Option(
        "golden-tensors",
        default="marker",
        help="golden tensors: of the layers in the marker (default); auto: without these of the graph's "
        "outputs and of sources of past failures",
        choices=("marker", "auto"),
    ),
    Option(
        "tensor-store",
        default="",
        help="store of golden tensors, of which goldens then have the hashes: s3://bucket/folder (extra "
        "s3), file:///shared/folder, or another URL of fsspec (extra store)",
        metavar="URL",
    ),
    Option(
        "tensor-cache",
        default="",
        help="folder of cached golden tensors, relative to rootdir; default: below the user's cache "
        "directory",
        metavar="DIR",
    ),
    Option(
        "keep-dumps",
        default="failed",
        help="tests whose dumps are kept: failed or all",
        choices=("failed", "all"),
    ),
    Option(
        "lang",
        default="auto",
        help="language of terminal and page: en, zh, or auto (the locale's: LC_ALL, LC_MESSAGES, LANG); "
        "files for programs are English",
        choices=("auto", "en", "zh"),
    ),
    Option("allow-in-ci", default=False, help="allow --npudump-update-golden in CI", standing=False),
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
        """Number of times that a failing test may run again."""
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
        """Return whether this run writes golden files."""
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
    """Return the settings without a command line or an ini file."""
    return settings_from({option.dest: option.default for option in OPTIONS})


def ci_variable() -> str:
    """Return the variable that marks a gate, which must not accept what it checks; "" for none."""
    unset = {"", "0", "false", "no"}
    return next((name for name in CI_VARIABLES if os.environ.get(name, "").strip().lower() not in unset), "")
