"""The ACL return codes the emulator gives, under CANN's names, and how it refuses.

Numbers: ``acl/acl_base_rt.h`` (1000xx, 5000xx), ``acl/error_codes/rt_error_codes.h`` (1070xx, 2070xx,
5070xx), ``acl/error_codes/ge_error_codes.h`` (1450xx). What pyACL has and the emulator cannot do is said at
the call, never passed over.
"""

from __future__ import annotations

from types import ModuleType
from typing import NoReturn

from pytest_npudump.errors import RuntimeUnavailableError

SUCCESS = 0
INVALID_PARAM = 100000
UNINITIALIZE = 100001
REPEAT_INITIALIZE = 100002
INVALID_FILE = 100003
PARSE_FILE = 100006
INVALID_DUMP_CONFIG = 100009
OP_LOAD_FAILED = 100014
OP_NOT_FOUND = 100024
REPEAT_FINALIZE = 100037
DUMP_NOT_RUN = 100045
RT_PARAM_INVALID = 107000
RT_INVALID_DEVICEID = 107001
RT_CONTEXT_NULL = 107002
RT_STREAM_CONTEXT = 107003
RT_MODEL_CONTEXT = 107004
RT_EVENT_TIMESTAMP_INVALID = 107006
RT_STREAM_SUBSCRIBE = 107011
RT_THREAD_SUBSCRIBE = 107012
RT_STREAM_NO_CB_REG = 107015
RT_FEATURE_NOT_SUPPORT = 207000
RT_MEMORY_ALLOCATION = 207001
GE_PARAM_INVALID = 145000
GE_EXEC_NOT_INIT = 145001
GE_EXEC_MODEL_PATH_INVALID = 145002
GE_EXEC_MODEL_ID_INVALID = 145003
GE_EXEC_MODEL_DATA_SIZE_INVALID = 145006
GE_DYNAMIC_BATCH_SIZE_INVALID = 145013
GE_INTERNAL_ERROR = 545000
INTERNAL_ERROR = 500000
RT_INTERNAL_ERROR = 507000
RT_MODEL_EXECUTE = 507011
"""A model whose operator ends with an AI Core exception: ``aclmdlExecute`` by CANN's fault guide ("Execute
model failed, ge result[507011]")."""
RT_REPORT_TIMEOUT = 507012
RT_AICORE_EXCEPTION = 507015
"""A single operator that does: what waiting for its stream returns."""
RT_STREAM_SYNC_TIMEOUT = 507046
RT_EVENT_SYNC_TIMEOUT = 507047


class RefusedError(Exception):
    """A call, or work on the device, that ends with a code other than 0.

    Attributes:
        code: what the call returns.
        why: for ``acl.get_recent_err_msg``.
    """

    def __init__(self, code: int, why: str) -> None:
        super().__init__(code, why)
        self.code = code
        self.why = why


def refuse_if(refused: object, code: int, why: str) -> None:
    """End a call with a code where something is true of it."""
    if refused:
        raise RefusedError(code, why)


class NotEmulatedError(RuntimeUnavailableError, AttributeError):
    """A name of pyACL, or one that pyACL does not have either, that the emulator does not offer."""

    def __init__(self, name: str, why: str = "") -> None:
        reason = f" ({why})" if why else ""
        super().__init__(f"{name}: the emulator does not have it{reason}; run this on an NPU")


def missing(module: str, name: str, why: str = "") -> NoReturn:
    """Refuse ``acl.<module>.<name>``, with the reason where there is a particular one.

    Raises:
        NotEmulatedError: always; names that begin with ``__`` get a plain AttributeError.
    """
    if name.startswith("__"):
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    raise NotEmulatedError(f"{module}.{name}", why)


class AbsentModule(ModuleType):
    """A sub-module of pyACL of which nothing is emulated."""

    def __getattr__(self, name: str) -> NoReturn:
        """Refuse every name."""
        missing(self.__name__, name)
