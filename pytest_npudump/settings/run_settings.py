"""What the options say in one run."""

from __future__ import annotations

import os
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_npudump.errors import RequestError
from pytest_npudump.settings.option_table import ALL, OPTIONS
from pytest_npudump.settings.option_values import parse_count, parse_device, parse_seconds, parse_size

if TYPE_CHECKING:
    from collections.abc import Mapping

FEWEST = 3
"""Members of a calibration below which leaving one out says nothing."""

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

    ``calibrate`` is 0 where nothing is, ``update_golden`` "" where nothing is written. A named tuple, since
    every session of pytest makes the class: a dataclass of as many fields takes 0.8 ms longer.
    """

    update_golden: str
    repeats: int
    reason: str
    calibrate: int
    runtime: str
    require_npu: bool
    skip_without_npu: bool
    device: int | None
    devices: str
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
    tensor_cache_limit: int
    keep_dumps: str
    isolation: str
    isolation_timeout: float
    results: str
    expect: str
    summary: str
    artifacts: str
    artifacts_limit: int
    report: str
    lang: str
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
    for limit in ("dump_limit", "artifacts_limit", "tensor_budget", "tensor_cache_limit"):
        typed[limit] = parse_size(str(typed[limit]), f"--npudump-{limit.replace('_', '-')}")
    typed["escalate"] = ("off", "on", "twice").index(typed["escalate"])
    typed["isolation_timeout"] = parse_seconds(str(typed["isolation_timeout"]))
    settings = Settings(**typed)
    if settings.devices and settings.device is not None:
        raise RequestError("--npudump-device and --npudump-devices exclude each other: leave one out")
    if settings.skip_without_npu and (settings.require_npu or settings.runtime == "emulator"):
        other = "--npudump-require-npu" if settings.require_npu else "--npudump-runtime=emulator"
        raise RequestError(f"--npudump-skip-without-npu and {other} exclude each other: leave one out")
    return settings


@lru_cache(maxsize=1)
def default_settings() -> Settings:
    """Return what holds where neither the command line nor the ini file says anything."""
    return settings_from({option.dest: option.default for option in OPTIONS})


def ci_variable() -> str:
    """Return the variable that says that this is a gate, which must not approve what it checks, or ""."""
    unset = {"", "0", "false", "no"}
    return next((name for name in CI_VARIABLES if os.environ.get(name, "").strip().lower() not in unset), "")
