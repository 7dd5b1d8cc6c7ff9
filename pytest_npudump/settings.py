"""The one table of options, and what they say in one run; :mod:`pytest_npudump.plugin.options` reads them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from pytest_npudump.errors import RequestError
from pytest_npudump.option_values import parse_count, parse_device, parse_seconds, parse_size

if TYPE_CHECKING:
    from collections.abc import Mapping

ALL, FAILED, NEW = "all", "failed", "new"
"""Whose goldens ``--npudump-update-golden`` writes: every test's that runs, those that
a run fails against, or those that are not there."""

FEWEST = 3
"""Members of a calibration below which leaving one out says nothing."""


@dataclass(frozen=True, slots=True)
class Option:
    """One option.

    Attributes:
        name: without prefix, as in ``--npudump-NAME`` and the ini key ``npudump_NAME``.
        default: value where neither the command line nor the ini file says anything; False for a switch.
        help: one sentence.
        metavar: what ``--help`` calls the value; "" for a switch.
        choices: allowed values; empty where any text is allowed.
        standing: whether an ini file may set it; approving is for one run, and never for all of them.
        modes: values of an option that needs none, the first of which it then has.
    """

    name: str
    default: str | bool
    help: str
    metavar: str = ""
    choices: tuple[str, ...] = ()
    standing: bool = True
    modes: tuple[str, ...] = ()

    @property
    def flag(self) -> str:
        """The option as typed on the command line."""
        return f"--npudump-{self.name}"

    @property
    def dest(self) -> str:
        """The ini key, and the attribute in pytest's namespace."""
        return f"npudump_{self.name.replace('-', '_')}"


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
    ),
    Option(
        "calibrate",
        default="",
        help="measure the tolerances of a golden by N further runs of each test, under what legitimately "
        "varies: rounding of inputs, threads and optimisation on the emulator, else repetitions; refused "
        "under CI",
        metavar="N",
        standing=False,
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
        "device",
        default="auto",
        help="device id that models are loaded on; auto is LOCAL_RANK of a distributed run, else 0",
        metavar="ID",
    ),
    Option(
        "devices",
        default="",
        help="device ids, or (auto) all that are there and healthy, which processes use in turns: each has "
        "one of its own, locked for all users of the machine while a test runs; without it nothing is locked",
        metavar="auto|IDS",
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
        help="whether a failing test runs again with a tensor dump of its failing layers",
        choices=("on", "off"),
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
    ),
    Option(
        "tensor-budget",
        default="256MiB",
        help="most bytes of golden tensors that one test may keep; a recording beyond it fails",
        metavar="SIZE",
    ),
    Option(
        "keep-dumps",
        default="failed",
        help="whose dumps are kept: those of failed tests, or of all",
        choices=("failed", "all"),
    ),
    Option(
        "isolation",
        default="auto",
        help="whether marked tests run in a child process each: all of them, or (auto) those whose marker, "
        "scene or runtime needs it",
        choices=("auto", "process"),
    ),
    Option(
        "isolation-timeout",
        default="1800",
        help="seconds that one isolated run of a test may take",
        metavar="SECONDS",
    ),
    Option(
        "results",
        default="",
        help="folder in which verdicts and statistics of each marked test are kept for npudump check and "
        "npudump golden; default in pytest's cache",
        metavar="DIR",
    ),
    Option(
        "bisect",
        default=False,
        help="end with an exit code for git bisect run: 0 where the marked tests pass, 1 where one differs, "
        "125 where that could not be judged",
    ),
    Option(
        "expect",
        default="",
        help="fail a run that compared fewer marked tests than this number, or not all those that this file "
        "names, one a line, as pytest --collect-only -q prints them",
        metavar="N|FILE",
    ),
    Option(
        "summary",
        default="",
        help="file for a summary in Markdown, as GitHub Actions gets it unasked",
        metavar="FILE",
    ),
    Option(
        "artifacts",
        default="",
        help="folder in which each session gathers what a person needs of its failing tests: reports, dumps, "
        "kept results, versions, CANN's log",
        metavar="DIR",
    ),
    Option(
        "artifacts-limit",
        default="1GiB",
        help="most bytes in the folder of artifacts; the largest files are left out first, and named",
        metavar="SIZE",
    ),
    Option(
        "report",
        default="",
        help="folder for a page of the session's marked tests, index.html, for a browser (extra report)",
        metavar="DIR",
    ),
    Option(
        "allow-update-in-ci",
        default=False,
        help="let update-golden write although the variable CI is set",
        standing=False,
    ),
)


@dataclass(frozen=True, slots=True)
class Settings:
    """The options of one run; each attribute is the option of its name, sizes in bytes, times in seconds.

    ``calibrate`` is 0 where nothing is, ``update_golden`` "" where nothing is written.
    """

    update_golden: str
    repeats: int
    calibrate: int
    runtime: str
    require_npu: bool
    device: int | None
    devices: str
    golden_dir: str
    golden_variant: str
    preset: str
    numerics: str
    fail_on: str
    tolerances: str
    escalate: bool
    dump_dir: str
    dump_limit: int
    tensor_budget: int
    keep_dumps: str
    isolation: str
    isolation_timeout: float
    results: str
    bisect: bool
    expect: str
    summary: str
    artifacts: str
    artifacts_limit: int
    report: str
    allow_update_in_ci: bool

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
    typed = {name.removeprefix("npudump_"): value for name, value in values.items()}
    typed["device"] = parse_device(str(typed["device"]))
    typed["repeats"] = parse_count(str(typed["repeats"]), "repeats", 1)
    typed["calibrate"] = parse_count(str(typed["calibrate"] or 0), "calibrate", FEWEST, off=0)
    for limit in ("dump_limit", "artifacts_limit", "tensor_budget"):
        typed[limit] = parse_size(str(typed[limit]), f"--npudump-{limit.replace('_', '-')}")
    typed["escalate"] = typed["escalate"] == "on"
    typed["isolation_timeout"] = parse_seconds(str(typed["isolation_timeout"]))
    settings = Settings(**typed)
    if settings.devices and settings.device is not None:
        raise RequestError("--npudump-device and --npudump-devices exclude each other: leave one out")
    return settings


@lru_cache(maxsize=1)
def default_settings() -> Settings:
    """Return what holds where neither the command line nor the ini file says anything."""
    return settings_from({option.dest: option.default for option in OPTIONS})


def in_ci() -> bool:
    """Whether the variable ``CI`` says that this is a gate, which must not approve what it checks."""
    return os.environ.get("CI", "").strip().lower() not in {"", "0", "false", "no"}
