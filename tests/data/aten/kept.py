"""Has the real torch make calls on the CPU as if it was the device, and prints what was kept of them."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from saved_calls import wrongs

from pytest_npudump.explain.called_operators import CalledOperator
from pytest_npudump.explain.operator_alone import judge_alone
from pytest_npudump.runtime.aten import (
    KeptCalls,
    NotRecomputedError,
    Reading,
    WantedOutput,
    array_of,
    digest_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable


X = torch.arange(12, dtype=torch.float32).reshape(3, 4) / 7
Y = torch.linspace(-1, 1, 12).reshape(3, 4)


def on_view() -> Any:
    whole = X.clone()
    return whole[:, 1:3].mul_(Y[:, 1:3])


def onto_itself() -> Any:
    whole = X.clone()
    return whole.mul_(whole)


def transposed() -> Any:
    square = (X @ Y.t()).clone()
    return torch.add(square, square.t())


def out() -> Any:
    result = torch.full((3, 4), float("nan"))
    torch.add(X, Y, alpha=2, out=result)
    return result


def foreach() -> Any:
    tensors = [X.clone(), Y.clone()]
    torch._foreach_mul_(tensors, 3.0)
    return tensors


def batch_norm() -> Any:
    mean, var = torch.zeros(4), torch.ones(4)
    found = torch.ops.aten.native_batch_norm(X, None, None, mean, var, bool(1), 0.1, 1e-5)
    return list(found)


def gradient() -> Any:
    given = X.clone().requires_grad_()
    given.sigmoid().sum().backward()
    return given.grad


def batch_norm_with_statistics() -> Any:
    mean, var = X[0].clone(), Y[0].abs()
    return list(torch.ops.aten._native_batch_norm_legit(X, None, None, mean, var, bool(0), 0.1, 1e-5))[:1]


def renorm() -> Any:
    weight = X.clone()
    return torch.embedding_renorm_(weight, torch.tensor([1, 2]), 0.5, 2.0)


def leaves_noise() -> Any:
    noise = Y.clone()
    return torch.ops.npu_test.adds_and_doubles(noise, X)


def put() -> Any:
    whole = X.clone()
    whole[[0, 2]] = Y[[0, 2]]
    return whole


def attention() -> Any:
    return torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        X[None, None], X[None, None], Y[None, None]
    )


LIBRARY = torch.library.Library("npu_test", "DEF")
LIBRARY.define("adds_and_doubles(Tensor(a!) x, Tensor y) -> Tensor")


def adds_and_doubles(x: Any, y: Any) -> Any:
    result = (x + y).sum(0)
    x.mul_(2)
    return result


LIBRARY.impl("adds_and_doubles", adds_and_doubles, "CPU")

CASES: dict[str, tuple[str, Callable[[], Any]]] = {
    "a view written to": ("aclnnInplaceMul", on_view),
    "written onto itself": ("aclnnInplaceMul", onto_itself),
    "its own transpose": ("aclnnAdd", transposed),
    "out=": ("aclnnAdd", out),
    "list in place": ("aclnnForeachMul", foreach),
    "list": ("aclnnForeachAdd", lambda: torch._foreach_add([X, Y], [Y, X], alpha=2)),
    "tensors in a list": ("aclnnCat", lambda: torch.cat([X, Y], 1)),
    "tensors that may be left out": ("aclnnIndexPutImpl", put),
    "several results": ("aclnnMaxDim", lambda: torch.max(X, 1)),
    "several results, of which the schema does not say what it writes": ("aclnnBatchNorm", batch_norm),
    "a result beside what is written to": ("aclnnBatchNormLegit", batch_norm_with_statistics),
    "a result of what is written to": ("aclnnAddsAndDoubles", leaves_noise),
    "written in part": ("aclnnEmbeddingRenorm", renorm),
    "integers": ("aclnnAdd", lambda: torch.arange(5) + 3),
    "booleans": ("aclnnLtTensor", lambda: X < Y),
    "halves with numbers": ("aclnnMuls", lambda: X.half() * 0.1),
    "halves with singles": ("aclnnAdd", lambda: X.half() + Y),
    "integers with a fraction": ("aclnnAdds", lambda: torch.arange(5) + 0.5),
    "named": ("aclnnReduceSum", lambda: torch.sum(X.half(), dim=1, keepdim=True, dtype=torch.float32)),
    "cast": ("aclnnCast", lambda: X.to(torch.bfloat16)),
    "one element": ("aclnnMul", lambda: X[0, 1] * Y[1, 2]),
    "expanded": ("aclnnAdd", lambda: torch.add(X[:1].expand(3, 4), Y)),
    "attention without dropout": ("aclnnScaledDotProductFlashAttentionForCpu", attention),
    "gradient": ("aclnnSigmoidBackward", gradient),
}


def tensors(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


def kept(
    api: str, function: Callable[[], Any], limit: int = 1 << 20, **known: Any
) -> tuple[KeptCalls, list[Any]]:
    """Return what is kept of a function's calls for all that it returns, and that."""
    wanted = [WantedOutput(api, str(t.dtype).rpartition(".")[2], tuple(t.shape)) for t in tensors(function())]
    calls = KeptCalls("cpu", **known)
    calls.want(wanted, limit)
    calls.start()
    try:
        found = [tensor.detach().clone() for tensor in tensors(function())]
    finally:
        calls.stop()
    return calls, found


def case(api: str, function: Callable[[], Any]) -> Any:
    """Return what is wrong with what was kept of a call; [] where nothing is."""
    calls, found = kept(api, function)
    wrong = []
    for tensor in found:
        array = array_of(tensor.contiguous())
        at = [(c, p) for c in calls.kept().calls for p, d in c.results if d == digest_of(array)]
        if not at:
            wrong.append("no call gave it")
        for call, place in at:
            dtype = str(tensor.dtype).rpartition(".")[2]
            alone = judge_alone(CalledOperator(call, place, dtype, array, plain=True))
            if alone.verdict != "acquitted":
                wrong.append(f"{call.name} {alone}")
            wrong += wrongs(call, place, dtype, array)
            if array.dtype.kind == "f" and dtype == "float32" and array.any():
                alone = judge_alone(CalledOperator(call, place, dtype, array * np.float32(1.001), plain=True))
                if alone.verdict != "convicted":
                    wrong.append(f"wrong: {call.name} {alone}")
    return wrong


def why(api: str, function: Callable[[], Any], **known: Any) -> list[str]:
    """Return why calls cannot be recomputed."""
    return [call.why_not for call in kept(api, function, **known)[0].kept().calls]


def untouched() -> bool:
    """Whether recomputing leaves torch's random numbers, and what was kept, as they are."""
    calls, _ = kept("aclnnInplaceMul", on_view)
    (call,) = calls.kept().calls
    state = torch.random.get_rng_state()
    first = call.recomputed(Reading())
    call.recomputed(Reading(moved=True, flushed=True))
    again = call.recomputed(Reading())
    same = all(
        np.array_equal(a, b) for a, b in zip(first, again, strict=True) if a is not None and b is not None
    )
    return same and torch.equal(state, torch.random.get_rng_state())


def without_kernel() -> str:
    """Return what is said of an operator that the CPU does not have."""
    LIBRARY.define("only_there(Tensor x) -> Tensor")
    wrong = {"on": True}

    def kernel(x: Any) -> Any:
        if not wrong["on"]:
            raise NotImplementedError("no such kernel")
        return x + 1

    LIBRARY.impl("only_there", kernel, "CPU")
    calls, _ = kept("aclnnOnlyThere", lambda: torch.ops.npu_test.only_there(X))
    wrong["on"] = False
    try:
        calls.kept().calls[0].recomputed(Reading())
    except NotRecomputedError as error:
        return str(error)
    return ""


def extremes() -> list[int]:
    """Return how many calls are kept whose extremes are those of the first run, and are not."""
    counts = []
    for known in ((0.0, float(X.max())), (0.0, 3.0)):
        calls = KeptCalls("cpu")
        calls.want([WantedOutput("aclnnRelu", "float32", (3, 4), known)], 1 << 20)
        calls.start()
        torch.relu(X)
        calls.stop()
        counts.append(len(calls.kept().calls))
    return counts


result = {
    "cases": {name: case(*found) for name, found in CASES.items()},
    "random": why("aclnnBernoulli", lambda: torch.bernoulli(X.sigmoid())),
    "limit": why("aclnnAdd", lambda: X + Y, limit=50),
    "private": why("aclnnAdd", lambda: X + Y, why_not=lambda _: "in a private format"),
    "recorded": why("aclnnAdd", lambda: X + Y, recording=lambda: True),
    "why none": kept("aclnnAdd", lambda: X + Y, recording=lambda: True)[0].kept().why_none,
    "views": why("aclnnView", lambda: X.view(4, 3)),
    "sparse": why("aclnnMul", lambda: torch.mul(X.to_sparse(), 2.0).to_dense()),
    "untouched": untouched(),
    "without kernel": without_kernel(),
    "extremes": extremes(),
}
sys.stdout.write(json.dumps(result))
