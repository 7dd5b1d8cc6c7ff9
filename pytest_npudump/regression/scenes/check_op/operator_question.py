"""What a check of an operator asks: the call, and what its reference gives."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from pytest_npudump.compare.ulps import is_float
from pytest_npudump.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import DTypeLike, NDArray

    Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Question:
    """One check.

    Attributes:
        operator: CANN's type.
        inputs: as the test gives them.
        reference: called with copies of the inputs; returns one array or a sequence of them.
        call: runs the operator on copies of the inputs, and returns its outputs; None for ``acl.op``.
        attributes: of the operator, for ``acl.op``.
        ulps: how far outputs may be off; None for the default of their type.
        atol: an absolute difference that suffices.
        dtypes: of the outputs; None for those of the reference, floats in that of the first input of floats.
        widen: whether the reference gets floats in float64.
    """

    operator: str
    inputs: tuple[Array, ...]
    reference: Callable[..., Any]
    call: Callable[..., Any] | None = None
    attributes: Mapping[str, Any] = field(default_factory=dict)
    ulps: int | None = None
    atol: float = 0.0
    dtypes: Sequence[DTypeLike] | None = None
    widen: bool = True


@dataclass(frozen=True, slots=True)
class Expected:
    """An output as the reference gives it.

    Attributes:
        values: in the reference's own precision; of integers and bools in the type of the output.
        dtype: what the output is to be.
    """

    values: Array
    dtype: np.dtype[Any]


def answer_of(question: Question) -> tuple[Expected, ...]:
    """Ask the reference.

    Raises:
        RequestError: it returns no arrays, or not as many as there are ``dtypes``, or values beyond them.
    """
    given = [_widened(array) if question.widen else array.copy() for array in question.inputs]
    with np.errstate(all="ignore"):
        found = arrays_of(question.reference(*given), "reference")
    if not found:
        raise RequestError(f"check_op({question.operator!r}): the reference gives no output")
    if question.dtypes is None:
        floats = [array.dtype for array in question.inputs if is_float(array.dtype)]
        dtypes = [floats[0] if floats and is_float(array.dtype) else array.dtype for array in found]
    else:
        dtypes = [np.dtype(dtype) for dtype in question.dtypes]
    if len(dtypes) != len(found):
        raise RequestError(
            f"check_op({question.operator!r}): dtypes names {len(dtypes)} outputs, the reference gives "
            f"{len(found)}"
        )
    pairs = zip(found, dtypes, strict=True)
    return tuple(_expected(question.operator, array, dtype) for array, dtype in pairs)


def _widened(array: Array) -> Array:
    return array.astype(np.float64) if is_float(array.dtype) else array.copy()


def _expected(operator: str, array: Array, dtype: np.dtype[Any]) -> Expected:
    if is_float(dtype):
        return Expected(array, dtype)
    with np.errstate(invalid="ignore"):
        plain = array.astype(dtype)
    if not np.array_equal(plain, array):
        raise RequestError(
            f"check_op({operator!r}): the reference gives {array.dtype} with values that {dtype} does not "
            f"hold; let it return {dtype}, or name another type in dtypes"
        )
    return Expected(plain, dtype)


def arrays_of(found: Any, who: str) -> list[Array]:
    """Return what a callable gave as arrays on the host: one array, tensor or number, or a sequence of them.

    Raises:
        RequestError: a part of it is nothing of the kind.
    """
    return [_array(one, who) for one in (found if isinstance(found, list | tuple) else [found])]


def _array(found: Any, who: str) -> Array:
    if hasattr(found, "detach"):  # a tensor of torch, which need not be imported to be known
        found = found.detach().cpu()
        if str(found.dtype) == "torch.bfloat16":
            import torch  # type: ignore[import-not-found,unused-ignore]  # noqa: PLC0415 - it is there

            return np.asarray(found.view(torch.int16).numpy()).view(ml_dtypes.bfloat16)
    if hasattr(found, "numpy"):
        found = found.numpy()
    array: Array = np.asarray(found)
    if array.dtype.kind not in "biuf" and not is_float(array.dtype):
        raise RequestError(
            f"check_op: the {who} gave {type(found).__name__} ({array.dtype}), expected arrays of floats, "
            f"integers or bools"
        )
    return array
