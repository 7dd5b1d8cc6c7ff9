"""Whether the device computes in the mode in which CANN sees overflows.

In saturation mode an overflow raises a flag, which the overflow dump goes by; in INF/NAN mode, the default of
Ascend910B and later, it leaves Inf or NaN in the result, and no flag.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_npudump.runtime.base import Evidence

_INF_NAN = 1
"""``ACL_RT_OVERFLOW_MODE_INFNAN``; 0 is saturation."""
_OK = 0

MODE_UNKNOWN = (
    "whether the NPU saturates is not known; in INF/NAN mode CANN's overflow dump would have seen nothing"
)


def blind(way_out: str) -> str:
    """Say that the overflow dump saw nothing, and how to switch saturation mode on."""
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
