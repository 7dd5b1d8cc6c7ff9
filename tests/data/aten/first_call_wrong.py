"""A device for a reproduction: the CPU, whose first call of the operator that FIRST_WRONG names is off.

A reproduction runs its call on the device first, and on the CPU afterwards.
"""

from __future__ import annotations

import os
from typing import Any

FAULT = os.environ.get("FIRST_WRONG", "")

if FAULT:
    import torch

    CALLS: list[str] = []
    LIBRARY = torch.library.Library("aten", "IMPL")

    def off(result: Any) -> Any:
        CALLS.append(FAULT)
        return result * 1.001 if len(CALLS) == 1 else result

    KERNELS = {
        "relu": lambda x: off(torch.clamp_min(x, 0)),
        "mul_.Tensor": lambda x, y: x.copy_(off(torch.mul(x, y))),
    }
    LIBRARY.impl(FAULT, KERNELS[FAULT], "CPU")
