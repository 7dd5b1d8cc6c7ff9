"""The functions of torch_npu that dump and wait, and ACL's answers in what they raise.

The dump's three functions exist twice. Those of ``torch_npu.npu`` queue the calls until the device is first
used and ignore what ACL answers; those of ``torch_npu.npu.utils``, used here, initialise the device and
raise.
"""

from __future__ import annotations

import re
from typing import Any

from pytest_npudump.errors import RuntimeUnavailableError
from pytest_npudump.runtime.acl.return_codes import REPEAT_INITIALIZE, AclError

UTILS = "torch_npu.npu.utils"
_QUEUEING = "torch_npu.npu.npu_config"
_CODE = re.compile(r"error code is (-?\d+)")
_PREFIX = re.compile(r"\[ERROR\] \S+ \(PID:[^)]*\)")


def call(torch_npu: Any, name: str, *arguments: object) -> None:
    """Call a function of torch_npu by its name.

    Args:
        torch_npu: the module.
        name: with the modules it is in: ``torch_npu.npu.synchronize``.
        arguments: what it takes.

    Raises:
        AclError: ACL refuses, by the code in the client's words.
        RuntimeUnavailableError: this torch_npu has no such function, or it fails in another way.
    """
    function = _function(torch_npu, name)
    text = f"{name}({', '.join(map(repr, arguments))})"
    try:
        function(*arguments)
    except (RuntimeError, OSError, AssertionError) as error:
        raise _refused(text, str(error)) from None


def _function(torch_npu: Any, name: str) -> Any:
    found: Any = torch_npu
    for part in name.split(".")[1:]:
        found = getattr(found, part, None)
    if found is None or getattr(found, "__module__", "") == _QUEUEING:
        raise RuntimeUnavailableError(
            f"torch_npu {getattr(torch_npu, '__version__', '')} has no {name} that reports errors; the dump "
            f"functions of torch_npu.npu ignore what ACL answers and are not used in its place"
        )
    return found


def _refused(call: str, words: str) -> RuntimeUnavailableError:
    """Return the error for what the client raised, with ACL's code where its text has one."""
    first, _, rest = words.partition("\n")
    match = _CODE.search(first)
    if match is None:
        return RuntimeUnavailableError(f"{call}: {' '.join(words.split())}")
    code = int(match[1])
    detail = " ".join(_PREFIX.sub("", rest).split())
    if code == REPEAT_INITIALIZE:
        detail = (
            "a dump is on already: end it with torch_npu.npu.utils.finalize_dump() before the marked test, "
            "and leave ACL_DUMP_DATA unset"
        )
    return AclError(call, code, detail)
