"""Names of eager calls: CANN puts a counter of the process into them, which a golden must not see.

An operator of ``aclnn`` is dumped outside of any model under these types and names (opbase, ``op_dfx.cpp``
and ``indv_dump.cpp``), where 17 is the counter, inputs and outputs in one file or in two::

    aclnnAdd_17_L2.aclnnAdd             the call of the API
    aclnnAdd_17_L0.Add                  a kernel that the call ran
    L2DfxAbscent_17_L0.L0DfxAbscent     where CANN does not know the API, or the kernel
    L2DfxAbscent_17._L0BnInference      a kernel of the older interface
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_npudump.dump.execution import Execution

_UNKNOWN_API = "L2DfxAbscent"
_CALLS = ">"
_COUNTED = re.compile(r"(?P<api>[A-Za-z]\w*)_(?P<counter>\d{1,20})_(?P<level>L[02])", re.ASCII)
_INDIVIDUAL = re.compile(rf"{_UNKNOWN_API}_(?P<counter>\d{{1,20}})", re.ASCII)
_INDIVIDUAL_NAME = "_L0"
_EAGER_LAYER = re.compile(rf"(?:aclnn\w*|{_UNKNOWN_API})\Z|[A-Za-z]\w*{_CALLS}", re.ASCII)


def is_eager(layer: str) -> bool:
    """Whether ``layer`` is the name that :func:`_without_counter` gives to an eager call or its kernel."""
    return _EAGER_LAYER.match(layer) is not None


def is_eager_type(op_type: str) -> bool:
    """Whether ``op_type`` may be that of an eager call, with the counter."""
    return _COUNTED.fullmatch(op_type) is not None or _INDIVIDUAL.fullmatch(op_type) is not None


def _without_counter(execution: Execution) -> Execution:
    """Return ``execution`` with its counter as ``call`` and out of its names; a model's as it is.

    The layer becomes the API, or ``API>kernel``; the type keeps its level: ``aclnnAdd_L2``.
    """
    place, name = execution.place, execution.layer
    if place.model or place.iteration >= 0:
        return execution
    counted = _COUNTED.fullmatch(execution.op_type)
    if counted is not None:
        api, counter, level = counted.groups()
        layer = api if level == "L2" else f"{api}{_CALLS}{name}"
        return _named(execution, layer, f"{api}_{level}", counter)
    individual = _INDIVIDUAL.fullmatch(execution.op_type)
    if individual is not None and name.startswith(_INDIVIDUAL_NAME):
        kernel = name.removeprefix(_INDIVIDUAL_NAME)
        return _named(
            execution, f"{_UNKNOWN_API}{_CALLS}{kernel}", f"{_UNKNOWN_API}_L0", individual["counter"]
        )
    return execution


def _named(execution: Execution, layer: str, op_type: str, counter: str) -> Execution:
    # These names are identifiers, in which CANN has nothing to replace: as good as a header's.
    return execution._replace(layer=layer, op_type=op_type, call=int(counter), raw=True)


def without_counters(executions: Iterable[Execution]) -> list[Execution]:
    """Return all executions without the counters of eager calls."""
    return [_without_counter(execution) for execution in executions]
