"""ATen operators with hostile arguments, as devices of several numerics compute them; prints the verdicts.

A device is healthy in more than one way: the CPU's own kernel of the type, float64 or float32 rounded to the
type, the same without subnormal numbers, or with the numbers among the arguments rounded.
"""

from __future__ import annotations

import json
import sys
import warnings
from functools import partial
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import torch

from pytest_npudump.explain.called_operators import CalledOperator
from pytest_npudump.explain.operator_alone import judge_alone
from pytest_npudump.runtime.aten import (
    KeptCall,
    KeptCalls,
    NotRecomputedError,
    Reading,
    WantedOutput,
    array_of,
    is_view,
    results_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


warnings.simplefilter("ignore")
F = torch.nn.functional
Tensor = Any
DTYPES = (torch.float32, torch.float16, torch.bfloat16)
UNARY: dict[str, Callable[[Tensor], Any]] = {
    name: getattr(torch, name)
    for name in (
        *("abs", "neg", "exp", "log", "sqrt", "rsqrt", "reciprocal", "sin", "cos", "tanh", "sigmoid", "erf"),
        *("floor", "ceil", "round", "trunc", "frac", "sign", "log1p", "expm1", "atan", "square", "relu"),
        *("isnan", "log2", "exp2", "logical_not", "asinh"),
    )
} | {
    "gelu": F.gelu,
    "silu": F.silu,
    "softplus": F.softplus,
    "hardswish": F.hardswish,
    "leaky_relu": F.leaky_relu,
    "elu": F.elu,
    "mish": F.mish,
    "clamp": lambda x: x.clamp(-1.5, 2.5),
    "pow": lambda x: x.pow(3),
    "add_scalar": lambda x: x + 0.1,
    "mul_scalar": lambda x: x * 0.1,
    "rsub": lambda x: 1.3 - x,
    "div_scalar": lambda x: x / 3,
    "lt": lambda x: x < 0.1,
    "eq": lambda x: x == 0.1,
    "remainder": lambda x: x.remainder(0.7),
    "floor_divide": lambda x: x.floor_divide(0.3),
    "nan_to_num": torch.nan_to_num,
    "to_half": lambda x: x.to(torch.float16),
    "to_single": lambda x: x.to(torch.float32),
    "to_int": lambda x: x.to(torch.int32),
    "sum": lambda x: x.sum(-1),
    "mean": lambda x: x.mean(-1),
    "amax": lambda x: x.amax(-1),
    "max_dim": lambda x: x.max(-1),
    "argmax": lambda x: x.argmax(-1),
    "var": lambda x: x.var(-1),
    "std": lambda x: x.std(-1),
    "norm": lambda x: torch.linalg.vector_norm(x, dim=-1),
    "prod": lambda x: x.prod(-1),
    "cumsum": lambda x: x.cumsum(-1),
    "logsumexp": lambda x: x.logsumexp(-1),
    "softmax": lambda x: x.softmax(-1),
    "log_softmax": lambda x: x.log_softmax(-1),
    "layer_norm": lambda x: F.layer_norm(x, x.shape[-1:]),
    "group_norm": lambda x: F.group_norm(x[None].expand(2, *x.shape).contiguous(), 1),
    "sort": lambda x: x.sort(-1),
    "topk": lambda x: x.topk(1, -1),
    "flip": lambda x: x.flip(-1),
    "roll": lambda x: x.roll(1, -1),
    "tril": torch.tril,
    "cat": lambda x: torch.cat([x, x]),
    "stack": lambda x: torch.stack([x, x]),
    "repeat": lambda x: x.repeat(2, 1),
    "clone": torch.clone,
    "index_select": lambda x: x.index_select(0, torch.tensor([0, 0])),
    "gather": lambda x: x.gather(0, torch.zeros((1, x.shape[1]), dtype=torch.int64)),
    "index_add": lambda x: torch.zeros_like(x).index_add(0, torch.zeros(x.shape[0], dtype=torch.int64), x),
    "scatter_add": lambda x: torch.zeros_like(x).scatter_add(0, torch.zeros(x.shape, dtype=torch.int64), x),
    "masked_fill": lambda x: x.masked_fill(x > 0, 0.1),
    "pad": lambda x: F.pad(x, (1, 2)),
    "embedding": lambda x: F.embedding(torch.tensor([0, 0]), x),
    "avg_pool2d": lambda x: F.avg_pool2d(x[None], 1),
    "upsample": lambda x: F.interpolate(x[None, None], scale_factor=2.0, mode="bilinear"),
}
BINARY: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "add": torch.add,
    "add_alpha": lambda x, y: x.add(y, alpha=0.3),
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "div_floor": lambda x, y: x.div(y, rounding_mode="floor"),
    "fmod": torch.fmod,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "atan2": torch.atan2,
    "ge": torch.ge,
    "where": lambda x, y: torch.where(x > y, x, y),
    "lerp": lambda x, y: x.lerp(y, 0.3),
    "addcmul": lambda x, y: x.addcmul(x, y, value=0.5),
    "addcdiv": lambda x, y: x.addcdiv(x, y, value=0.5),
    "mse_loss": F.mse_loss,
    "smooth_l1": F.smooth_l1_loss,
    "mixed": lambda x, y: x + y.to(torch.float32),
    "add_": lambda x, y: x.clone().add_(y),
    "mul_view": lambda x, y: x.clone()[:, :1].mul_(y[:, :1]),
    "add_out": lambda x, y: torch.add(x, y, out=torch.empty_like(x)),
    "foreach_add": lambda x, y: torch._foreach_add([x, y], [y, x]),
    "foreach_mul_": lambda x, y: torch._foreach_mul_([x.clone(), y.clone()], 1.1),
    "mm": lambda x, y: x @ y.t(),
    "bmm": lambda x, y: torch.bmm(x[None], y.t()[None]),
    "addmm": lambda x, y: torch.addmm(torch.ones(x.shape[0], dtype=x.dtype), x, y.t()),
    "linear": F.linear,
    "conv1d": lambda x, y: F.conv1d(x[None], y[:1, :1].expand(2, x.shape[0]).contiguous()[:, :, None]),
    "silu_backward": torch.ops.aten.silu_backward,
    "threshold_backward": lambda x, y: torch.ops.aten.threshold_backward(x, y, 0.0),
    "softmax_backward": lambda x, y: torch.ops.aten._softmax_backward_data(x, y.softmax(-1), -1, x.dtype),
}
SHAPES = ((1, 1), (3, 17), (16, 33))


def arguments(dtype: Any) -> Iterator[tuple[str, Tensor, Tensor]]:
    """Yield kinds of arguments with two of each."""
    made = torch.Generator().manual_seed(7)
    info = torch.finfo(dtype)
    special = [0.0, -0.0, 1.0, -1.0, 65504.0, 65519.0, 65536.0, -70000.0, info.max, -info.max, info.tiny]
    special += [info.smallest_normal / 2, info.eps, 1 + info.eps, 0.1, 0.3, 0.7, 2.0**15, 2.0**-14, 2.0**-24]
    for shape in SHAPES:
        count = shape[0] * shape[1]
        draw = [torch.randn(shape, generator=made, dtype=torch.float64) for _ in range(2)]
        picked = [torch.randint(0, len(special), (count,), generator=made) for _ in range(2)]
        hostile = [torch.tensor(special, dtype=torch.float64)[pick].reshape(shape) for pick in picked]
        some = [
            torch.where(torch.rand(shape, generator=made) < 0.1, h, d)
            for h, d in zip(hostile, draw, strict=True)
        ]
        broken = [d.clone() for d in draw]
        broken[0].view(-1)[0], broken[1].view(-1)[-1] = float("nan"), float("inf")
        kinds = {
            "plain": draw,
            "offset": [1000 + d for d in draw],
            "tiny": [d * info.smallest_normal for d in draw],
            "huge": [d * (info.max / 8) for d in draw],
            "equal": [torch.full(shape, 0.1), torch.full(shape, -0.1)],
            "hostile": hostile,
            "some hostile": some,
            "not finite": broken,
        }
        for kind, pair in kinds.items():
            x, y = (values.to(dtype) for values in pair)
            yield f"{kind} {shape}", x, y
        x, y = (values.to(dtype) for values in draw)
        yield f"strided {shape}", torch.stack([x, y], -1)[..., 1], y.t().contiguous().t()


def kept(function: Callable[[], Any]) -> list[tuple[KeptCall, list[Tensor]]]:
    """Return the calls that a function makes, each with what it gave."""
    calls = _Every("cpu")
    calls.want([WantedOutput("aclnnAny", "float32", ())], 1 << 30)
    calls.start()
    try:
        function()
    finally:
        calls.stop()
    return [
        (call, results)
        for call, results in zip(calls.kept().calls, calls.results, strict=True)
        if not call.why_not
    ]


class _Every(KeptCalls):
    """Keeps every call that computes."""

    def __init__(self, device: str) -> None:
        super().__init__(device)
        self.results: list[list[Tensor]] = []

    def _run(self, function: Any, given: tuple[Any, ...], named: dict[str, Any]) -> Any:
        if is_view(function):
            return function(*given, **named)
        copy = self._copy(function, given, named)
        returned = function(*given, **named)
        told: dict[str, Any] = {"why_not": copy} if isinstance(copy, str) else {"given": copy}
        self._kept.append(KeptCall(str(function), (), function=function, **told))
        self.results.append([r.detach().clone() for r in results_of(function, given, named, returned)])
        return returned


def devices(call: KeptCall, place: int, dtype: str, native: Any) -> Iterator[tuple[str, Any]]:
    """Yield what healthy devices give."""
    yield "kernel of the type", native
    if native.dtype.kind in "iub":
        return
    kind = np.dtype(native.dtype)
    smallest = float(ml_dtypes.finfo(kind).smallest_normal)
    for name, reading in {
        "float64": Reading("float64"),
        "float32": Reading("float32"),
        "flushing": Reading("float64", flushed=True),
        "rounded numbers": Reading("float64", rounded=dtype if dtype != "float32" else ""),
    }.items():
        try:
            result = call.recomputed(reading)[place]
        except NotRecomputedError:
            continue
        if result is None or result.shape != native.shape:
            continue
        with np.errstate(all="ignore"):
            values = result.astype(kind)
            flushed = np.where(np.abs(values.astype("f8")) < smallest, np.zeros((), kind), values)
        yield name, flushed if name == "flushing" else values


def operators() -> Iterator[tuple[str, Any, str, Callable[[], Any]]]:
    """Yield each operator with every kind of arguments, in a shape that goes round."""
    for dtype in DTYPES:
        kinds = [*arguments(dtype)]
        each = len(kinds) // len(SHAPES)
        for number, (name, function) in enumerate([*UNARY.items(), *BINARY.items()]):
            for place in range(each):
                kind, x, y = kinds[place + each * ((number + place) % len(SHAPES))]
                given = (x,) if name in UNARY else (x, y)
                yield name, dtype, kind, partial(function, *given)


MADE = frozenset({"zeros_like", "empty_like", "empty", "zeros", "ones", "full"})
"""Operators that make the arguments of others."""


def calls_of(name: str, function: Callable[[], Any]) -> Iterator[tuple[KeptCall, int, Tensor]]:
    """Yield each result of what an operator of the table calls."""
    try:
        calls = kept(function)
    except (RuntimeError, ValueError):
        return  # the CPU has no such kernel
    for call, results in calls:
        if call.operator in MADE or (call.operator == "_to_copy" and not name.startswith("to_")):
            continue
        yield from ((call, place, result) for place, result in enumerate(results))


def judged() -> dict[str, Any]:
    """Return how many verdicts there are of healthy operators, and of those that are 0.1 % off in float32."""
    found: dict[str, Any] = {"healthy": {}, "faulty": {}, "convicted": [], "missed": []}
    operators_seen: set[str] = set()
    for name, dtype, kind, function in operators():
        for call, place, result in calls_of(name, function):
            operators_seen.add(call.operator)
            type_, native = str(result.dtype).rpartition(".")[2], array_of(result.contiguous())
            where = [name, call.name, place, str(dtype), kind]
            same: dict[bytes, Any] = {}  # of devices that give the same bits
            for device, output in devices(call, place, type_, native):
                called = CalledOperator(call, place, type_, output, plain=True)
                alone = same.get(output.tobytes()) or judge_alone(called)
                same[output.tobytes()] = alone
                count(found["healthy"], f"{dtype} {alone.verdict}")
                if alone.verdict == "convicted":
                    found["convicted"].append([*where, device, alone.apart, alone.allowed, alone.why])
            usual = kind.startswith(("plain", "strided", "offset")) and type_ == "float32"
            if dtype == torch.float32 and usual and native.any() and np.isfinite(native).all():
                alone = judge_alone(
                    CalledOperator(call, place, type_, native * np.float32(1.001), plain=True)
                )
                count(found["faulty"], alone.verdict)
                if alone.verdict != "convicted":
                    found["missed"].append([*where, alone.verdict, alone.apart, alone.allowed, alone.why])
    return {**found, "operators": sorted(operators_seen)}


def count(counts: dict[str, int], name: str) -> None:
    counts[name] = counts.get(name, 0) + 1


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.stdout.write(json.dumps(judged()))
