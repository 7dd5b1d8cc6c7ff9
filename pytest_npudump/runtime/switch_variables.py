"""Variables that CANN reads, and which decide how an operator computes or whether it repeats."""

from __future__ import annotations

import os

_FACTS = {"INF_NAN_MODE_ENABLE": "inf_nan_mode", "HCCL_DETERMINISTIC": "hccl_deterministic"}


def variable_facts() -> dict[str, str]:
    """Return what a golden records of them: the value of each that is set, by the name of the fact."""
    told = {fact: os.environ.get(variable) for variable, fact in _FACTS.items()}
    return {fact: value for fact, value in told.items() if value}
