"""``acl.mdl.dump_reg_callback``: have pyACL hand its dump to a function, and be sure that all of it came.

CANN calls the function from a thread of its own, which needs Python's lock for it. pyACL keeps that lock in
its calls, ``acl.mdl.finalize_dump()`` included, which waits for that thread: with a chunk left over both
would wait for ever. So the rest is waited for before, with the lock free. The emulator calls within the
execution.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_npudump.errors import RuntimeUnavailableError
from pytest_npudump.runtime.acl.return_codes import NO_CONTEXT, SUCCESS, check

if TYPE_CHECKING:
    from pytest_npudump.dump.callback.receiver import DumpReceiver

QUIET_SECONDS = 0.25
"""How long nothing has to come from a device that is idle, until all is taken to have come."""
PATIENCE_SECONDS = 10.0
"""The same while a file lacks its last chunk."""

NOT_RELEASED = (
    "transport='callback': the dump is handed to this process by the adapter's own acl; npu_dump.config, "
    "config_path, run() and torchair_config() leave it to code that switches it on itself, which takes "
    "transport='files'"
)


def require_callback(acl: Any) -> None:
    """Refuse a pyACL without the call.

    Raises:
        RuntimeUnavailableError: says what to do instead.
    """
    if not hasattr(acl.mdl, "dump_reg_callback"):
        raise RuntimeUnavailableError(
            "transport='callback': this pyACL has no acl.mdl.dump_reg_callback; take transport='files'"
        )


def stop_receiving(acl: Any, receiver: DumpReceiver, *, queued: bool) -> None:
    """Take what is still to come, and have no more handed over.

    Args:
        acl: the module.
        receiver: the function that is registered.
        queued: whether it is called from a thread that is behind the device.

    Raises:
        AclError: the device reports an error; what it dumped may be incomplete.
    """
    try:
        if queued:
            code = acl.rt.synchronize_device()
            check(acl, "acl.rt.synchronize_device()", SUCCESS if code == NO_CONTEXT else code)
            receiver.settle(QUIET_SECONDS, PATIENCE_SECONDS)
    finally:
        acl.mdl.dump_unreg_callback()
