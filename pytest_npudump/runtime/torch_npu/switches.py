"""Switches of torch and torch_npu that decide how an operator rounds, and whether it repeats."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import Any

from pytest_npudump.runtime.switch_variables import variable_facts


def switches(torch_npu: Any) -> dict[str, str]:
    """Return the facts that are known of this process: ``torch``, ``deterministic``, ``hf32`` and the like.

    ``hf32`` names what may compute in it, ``matmul`` and ``conv``, or is ``off``: torch_npu allows it to
    convolutions unless told otherwise (``torch_npu/npu/npu_config.py``).

    Args:
        torch_npu: the module. What an older one does not have is left out.
    """
    facts: dict[str, str] = {}
    torch: Any = sys.modules.get("torch")
    with suppress(AttributeError):
        facts["torch"] = str(torch.__version__)
        facts["deterministic"] = "on" if torch.are_deterministic_algorithms_enabled() else "off"
    with suppress(AttributeError, RuntimeError):
        allowed = [name for name in ("matmul", "conv") if getattr(torch_npu.npu, name).allow_hf32 is True]
        facts["hf32"] = "+".join(allowed) or "off"
    return facts | variable_facts()
