"""Which operators of ``aclnn`` a call of ATen may run, by their names.

torch_npu's op-plugin calls most of them as ATen does: ``add`` runs ``aclnnAdd``, with a scalar
``aclnnAdds``, in place ``aclnnInplaceAdd``; ``_softmax_backward_data`` runs ``aclnnSoftmaxBackward``. Those
it calls otherwise are listed here (``op_plugin/ops/opapi``, ``op_plugin_functions.yaml``). A call may run
others besides: that it may run one does not say that it did.
"""

from __future__ import annotations

import re
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

OTHERWISE: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "_to_copy": ("aclnnCast", "aclnnInplaceCopy"),
        "avg_pool2d": ("aclnnAvgPool2d",),
        "baddbmm": ("aclnnBaddbmm", "aclnnBatchMatMul"),
        "bmm": ("aclnnBatchMatMul",),
        "clone": ("aclnnInplaceCopy",),
        "contiguous": ("aclnnInplaceCopy",),
        "copy_": ("aclnnInplaceCopy", "aclnnCast"),
        "linear": ("aclnnAddmm", "aclnnMm", "aclnnMatmul"),
        "lt": ("aclnnLessScalar",),
        "max_pool2d_with_indices": ("aclnnMaxPool2dWithMask",),
        "mm": ("aclnnMm", "aclnnMatmul"),
        "nansum": ("aclnnReduceNansum",),
        "ones_like": ("aclnnInplaceOne",),
        "sum": ("aclnnReduceSum",),
        "topk": ("aclnnTopk",),
        "where": ("aclnnSWhere",),
    }
)
"""Operators of ATen, and those of aclnn that are not called alike."""

_API = re.compile(r"aclnn(?:Inplace)?(?P<name>[A-Za-z]\w*)", re.ASCII)
_VARIANT = re.compile(
    r"(?:V\d+|WeightNz|WithDim|Tensor|Scalar|Dim|Mods?|Impl|Correction|All|Int|Value|Decimals|s)\Z"
)
_AROUND = re.compile(r"\A(?:native_|special_|npu_)|_(?:forward|data|impl|helper)(?=_|\Z)")


@lru_cache(maxsize=4096)  # it is asked of every call while a test runs
def may_run(operator: str, api: str) -> bool:
    """Whether a call of an operator may run one of aclnn.

    Args:
        operator: name in ATen without overload, as ``add_``.
        api: name in CANN, as ``aclnnInplaceAdd``.
    """
    match = _API.fullmatch(api)
    if match is None:
        return False
    known = {_stem(operator)}.union(*(_stems(_API.sub(r"\g<name>", name)) for name in _others(operator)))
    return not known.isdisjoint(_stems(match["name"]))


def _others(operator: str) -> tuple[str, ...]:
    return OTHERWISE.get(operator, OTHERWISE.get(operator.rstrip("_"), ()))


def _stem(operator: str) -> str:
    """Return ATen's name without what it has around the operation."""
    return _AROUND.sub("", operator.strip("_")).replace("_", "").lower()


def _stems(name: str) -> set[str]:
    """Return CANN's name, and what is left without the words for a variant at its end."""
    found = {name.lower()}
    while (shorter := _VARIANT.sub("", name)) != name and shorter:
        found.add(shorter.lower())
        name = shorter
    return found
