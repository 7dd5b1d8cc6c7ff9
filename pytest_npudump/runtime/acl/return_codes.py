"""pyACL's return conventions, turned into values and exceptions."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from pytest_npudump.errors import RuntimeUnavailableError

if TYPE_CHECKING:
    from collections.abc import Mapping

SUCCESS = 0
UNINITIALIZE = 100001
REPEAT_INITIALIZE = 100002
DUMP_NOT_RUN = 100045
NO_CONTEXT = 107002

ENDED_BY_TEST = (
    "the test has ended the dump itself; take npu_dump.config_path if it is to switch the dump on and off, "
    "else leave out finalize_dump()"
)
"""What :data:`DUMP_NOT_RUN` means where the adapter had switched the dump on."""

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
        """Return the same answer with a reason that says more than ACL does."""
        return AclError(self.call, self.code, reason)

    @classmethod
    def of(cls, acl: Any, call: str, code: int) -> AclError:
        """Return the error for ``code``, with what ACL itself says of it."""
        text = acl.get_recent_err_msg() if hasattr(acl, "get_recent_err_msg") else None
        return cls(call, code, " ".join(str(text).split()) if text else "")


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
