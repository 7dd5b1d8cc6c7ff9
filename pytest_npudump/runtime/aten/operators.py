"""What torch's schema of an operator tells of a call, and which operators of ``aclnn`` it may run.

torch_npu's op-plugin calls most of them as ATen does: ``add`` runs ``aclnnAdd``, with a scalar
``aclnnAdds``, in place ``aclnnInplaceAdd``; ``_softmax_backward_data`` runs ``aclnnSoftmaxBackward``. Those
it calls otherwise are listed here (``op_plugin/ops/opapi``, ``op_plugin_functions.yaml``). A call may run
others besides: that it may run one does not say that it did.
"""

from __future__ import annotations

import re
import sys
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Arguments = tuple[Any, ...]
    Named = dict[str, Any]
    from collections.abc import Mapping


def name_of(function: Any) -> str:
    """Return the operator's name without namespace and overload, as ``add_``; "" of a higher-order one."""
    schema = getattr(function, "_schema", None)
    return "" if schema is None else str(schema.name.rpartition("::")[2])


def is_view(function: Any) -> bool:
    """Whether an operator gives back what it was given, in another shape: no kernel runs."""
    aliases = [value.alias_info for value in function._schema.returns if value.alias_info is not None]  # noqa: SLF001 - torch's only name for it
    return any(not alias.is_write for alias in aliases)


def writes(function: Any) -> bool:
    """Whether an operator changes some of its arguments."""
    return bool(function._schema.is_mutable)  # noqa: SLF001 - torch's only name for it


def makes_new(function: Any) -> bool:
    """Whether an operator returns something besides what it is given to write to."""
    returns = function._schema.returns  # noqa: SLF001 - torch's only name for it
    return any(value.alias_info is None for value in returns)


def why_random(function: Any, arguments: Arguments, named: Named) -> str:
    """Say why a call gives something else every time; "" where it does not.

    Attention with a dropout of 0 draws nothing, although it is tagged so.
    """
    torch = sys.modules["torch"]
    if torch.Tag.nondeterministic_seeded not in function.tags:
        return ""
    schema = function._schema.arguments  # noqa: SLF001 - torch's only name for it
    given = {argument.name: argument.default_value for argument in schema if argument.has_default_value()}
    given |= given_by_name(function, arguments, named)
    if given.get("dropout_p") == 0.0:
        return ""
    return f"{function} draws random numbers"


def given_by_name(function: Any, arguments: Arguments, named: Named) -> Iterator[tuple[str, Any]]:
    """Yield the arguments of a call with the names that the schema gives them, in its order."""
    for place, argument in enumerate(function._schema.arguments):  # noqa: SLF001 - torch's only name for it
        if place < len(arguments):
            yield argument.name, arguments[place]
        elif argument.name in named:
            yield argument.name, named[argument.name]


def written_by(function: Any, arguments: Arguments, named: Named) -> list[Any]:
    """Return the tensors among the arguments that a call writes to, ``out=`` included."""
    schema = function._schema.arguments  # noqa: SLF001 - torch's only name for it
    written = {a.name for a in schema if a.alias_info is not None and a.alias_info.is_write}
    given = given_by_name(function, arguments, named)
    return [tensor for name, value in given if name in written for tensor in tensors_in(value)]


def results_of(function: Any, arguments: Arguments, named: Named, returned: Any) -> list[Any]:
    """Return what a call has computed: the new tensors that it returns, then those it has written to.

    What is written to and returned is there once. A call of the same operator elsewhere has as many, in the
    same order.
    """
    values = function._schema.returns  # noqa: SLF001 - torch's only name for it
    several = len(values) > 1
    new = [
        tensor
        for place, value in enumerate(values)
        if value.alias_info is None
        for tensor in tensors_in(returned[place] if several else returned)
    ]
    return [*new, *written_by(function, arguments, named)]


def tensors_in(value: Any) -> Iterator[Any]:
    """Yield the tensors in an argument, or in what a call returned."""
    if isinstance(value, sys.modules["torch"].Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for each in value:
            yield from tensors_in(each)


def mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    """Return an argument with everything in it that is no list changed."""
    if isinstance(value, list | tuple):
        return type(value)(mapped(each, change) for each in value)
    return change(value)


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
