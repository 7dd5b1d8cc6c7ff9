"""Shared parts of the adapters over ACL: return codes, acl.json, facts, overflow mode.

In saturation mode an overflow raises a flag, which the overflow dump goes by; in INF/NAN mode, the default of
Ascend910B and later, it leaves Inf or NaN in the result, and no flag.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn

from pytest_npudump.config.acl_json import asks_for_statistics, dump_section, write_acl_json
from pytest_npudump.config.cann import collecting_words
from pytest_npudump.errors import ConfigError, RuntimeUnavailableError, in_one_line
from pytest_npudump.runtime.base import Evidence, RunActivity

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pytest_npudump.request import RunRequest


SUCCESS = 0
UNINITIALIZE = 100001
REPEAT_INITIALIZE = 100002
DUMP_NOT_RUN = 100045
NO_CONTEXT = 107002

ENDED_BY_TEST = (
    "the test has ended the dump itself; take npu_dump.config_path if it is to switch the dump on and off, "
    "else leave out finalize_dump()"
)
"""Meaning of :data:`DUMP_NOT_RUN` where the adapter had switched the dump on."""

_NAMES: Mapping[int, str] = MappingProxyType(
    {
        100000: "ACL_ERROR_INVALID_PARAM",
        UNINITIALIZE: "ACL_ERROR_UNINITIALIZE",
        REPEAT_INITIALIZE: "ACL_ERROR_REPEAT_INITIALIZE",
        100003: "ACL_ERROR_INVALID_FILE",
        100006: "ACL_ERROR_PARSE_FILE",
        100009: "ACL_ERROR_INVALID_DUMP_CONFIG",
        100024: "ACL_ERROR_OP_NOT_FOUND",
        100037: "ACL_ERROR_REPEAT_FINALIZE",
        DUMP_NOT_RUN: "ACL_ERROR_DUMP_NOT_RUN",
        107001: "ACL_ERROR_RT_INVALID_DEVICEID",
        NO_CONTEXT: "ACL_ERROR_RT_CONTEXT_NULL",
        145000: "ACL_ERROR_GE_PARAM_INVALID",
        145002: "ACL_ERROR_GE_EXEC_MODEL_PATH_INVALID",
        145003: "ACL_ERROR_GE_EXEC_MODEL_ID_INVALID",
        145006: "ACL_ERROR_GE_EXEC_MODEL_DATA_SIZE_INVALID",
        545000: "ACL_ERROR_GE_INTERNAL_ERROR",
        207001: "ACL_ERROR_RT_MEMORY_ALLOCATION",
        500000: "ACL_ERROR_INTERNAL_ERROR",
        500001: "ACL_ERROR_FAILURE",
        507011: "ACL_ERROR_RT_MODEL_EXECUTE",
        507014: "ACL_ERROR_RT_AICORE_TIMEOUT",
        507015: "ACL_ERROR_RT_AICORE_EXCEPTION",
        507018: "ACL_ERROR_RT_AICPU_EXCEPTION",
    }
)


class AclError(RuntimeUnavailableError):
    """A call of ACL that did not return 0.

    Attributes:
        call: the call, as a user would write it.
        code: what it returned.
        detail: what ACL itself says of it; "" for nothing.
    """

    def __init__(self, call: str, code: int, detail: str) -> None:
        name = _NAMES.get(code, "see aclError in CANN's documentation")
        text = f"{call} returned {code} ({name})"
        super().__init__(f"{text}: {detail}" if detail else text)
        self.call = call
        self.code = code
        self.detail = detail

    def because(self, reason: str) -> AclError:
        """Return the same error with a reason that ACL lacks."""
        return AclError(self.call, self.code, reason)

    @classmethod
    def of(cls, acl: Any, call: str, code: int) -> AclError:
        """Return the error for ``code``, with ACL's own text."""
        text = acl.get_recent_err_msg() if hasattr(acl, "get_recent_err_msg") else None
        return cls(call, code, in_one_line(text) if text else "")


def check(acl: Any, call: str, code: int) -> None:
    """Raise :class:`AclError` with ACL's own message unless ``code`` is 0."""
    __tracebackhide__ = True
    if code != SUCCESS:
        raise AclError.of(acl, call, code)


def value(acl: Any, call: str, result: tuple[Any, int]) -> Any:
    """Unpack a ``(value, ret)`` pair, raising :class:`AclError` unless ``ret`` is 0."""
    __tracebackhide__ = True
    check(acl, call, result[-1])
    return result[0]


_INF_NAN = 1
"""``ACL_RT_OVERFLOW_MODE_INFNAN``; 0 is saturation."""
_OK = 0

MODE_UNKNOWN = (
    "whether the NPU saturates is not known; in INF/NAN mode CANN's overflow dump would have seen nothing"
)


def blind(way_out: str) -> str:
    """Explain that the overflow dump saw nothing, and how to switch saturation mode on."""
    return (
        f"the NPU computes in INF/NAN mode, in which CANN's overflow dump sees no overflow: {way_out}, for "
        f"saturation mode, or leave the mode and test another scene, whose statistics count NaN and Inf"
    )


def look_at_mode(acl: Any, evidence: Evidence) -> None:
    """Ask pyACL for the mode of the current thread's device, and note what an overflow dump saw there."""
    mode, code = None, None
    ask = getattr(acl.rt, "get_device_sat_mode", None)
    if ask is not None:
        mode, code = ask()
    if code != _OK:
        answer = "this pyACL cannot tell" if ask is None else f"acl.rt.get_device_sat_mode() returned {code}"
        evidence.notes.append(f"{MODE_UNKNOWN} ({answer})")
    elif mode == _INF_NAN:
        words = blind("call acl.rt.set_device_sat_mode(0) behind acl.rt.set_device()")
        evidence.blind += [] if words in evidence.blind else [words]


class AclJson:
    """The part of a runtime that is configured by an acl.json.

    Attributes:
        refused_while_collecting: scenes of which GE dumps nothing while ``NPU_COLLECT_PATH`` is set.
    """

    config_name = "acl.json"
    refused_while_collecting = frozenset({"model", "op", "check_op", "overflow", "watcher"})

    def write_config(self, path: Path, request: RunRequest) -> None:
        """Write the acl.json of a request.

        Raises:
            ConfigError: the dump path is one that CANN would accept and then not use, or the environment
                has GE dump nothing.
            RuntimeUnavailableError: the device that is asked what it is cannot be used.
        """
        refused = collecting_words(os.environ) if request.test.scene in self.refused_while_collecting else ""
        if refused:
            raise ConfigError(refused)
        soc = self.soc_name() if asks_for_statistics(request) else ""
        write_acl_json(path, dump_section(request, soc))

    def producer(self) -> Mapping[str, str]:
        """Return facts about the origin of what is dumped, as a golden records them: here none."""
        return {}

    def hand_over(self: Any, program: str, models: tuple[Path, ...] = ()) -> None:
        """Leave the dump to a program of its own process."""
        self.release()
        if self._graphs is not None:
            self._graphs.stop()
        self.activity.programs += (program,)
        self.activity.models += models

    def soc_name(self) -> str:
        """Return the name of the chip that computes the statistics; "" where it is not known."""
        return str(self.producer().get("soc", ""))


_FACTS = {"INF_NAN_MODE_ENABLE": "inf_nan_mode", "HCCL_DETERMINISTIC": "hccl_deterministic"}


def variable_facts() -> dict[str, str]:
    """Return the variables that a golden records: the value of each that is set, by the name of the fact."""
    told = {fact: os.environ.get(variable) for variable, fact in _FACTS.items()}
    return {fact: value for fact, value in told.items() if value}


_UNKNOWN = "the process ended before its dump was complete"
"""Gap of a process that ended before it reported."""


@dataclass(slots=True)
class RemoteRuntime(AclJson):
    """Runtime of a child process in its parent; no dump is on in this process.

    Attributes:
        name: as in ``--npudump-runtime``.
        facts: what the child of the last run said of it.
    """

    name: str
    facts: Mapping[str, str] = field(default_factory=dict)
    activity: RunActivity = field(default_factory=lambda: RunActivity(likely_cause=_UNKNOWN))

    def producer(self) -> Mapping[str, str]:
        """Return the child's facts of its runtime."""
        return self.facts or {"runtime": self.name}

    def start(self, config: Path, *, resumed: bool = False) -> None:
        """Do nothing: the dump is the child's."""

    def stop(self) -> None:
        """Do nothing: the dump ended with the child."""

    def release(self) -> None:
        """Do nothing."""

    def hand_over(self, program: str, models: tuple[Path, ...] = ()) -> None:
        """Do nothing."""

    def load_model(self, path: Path) -> NoReturn:
        """Refuse.

        Raises:
            RuntimeUnavailableError: always.
        """
        raise RuntimeUnavailableError(f"{path}: models of an isolated test are loaded in its own process")

    def close(self) -> None:
        """Do nothing."""
