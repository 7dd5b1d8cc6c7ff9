"""Ratio verdicts of torch modules: bfloat16 against float32, healthy and with a fault in one module.

``python -m docs.benchmarks.verdicts.run_modules [NETWORKS] [FAULTS]``; it needs torch. The device is the CPU
under a dispatch mode that multiplies matrices in pieces whose sums are rounded, and normalises in float32:
another order of sums and other roundings than those of the CPU's own bfloat16.
"""

from __future__ import annotations

import copy
import sys
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

sys.path.insert(0, str(Path(__file__).parents[3] / "tests" / "data" / "modules"))
import models

from pytest_npudump.explain.module_ratio import ratios
from pytest_npudump.explain.rounding import DEVICE
from pytest_npudump.runtime.modules.capture import Capture

ATEN = torch.ops.aten


class Device(TorchDispatchMode):
    """Matrices in ``pieces`` along the sum, each rounded; the sum of them is rounded once."""

    def __init__(self, pieces: int) -> None:
        super().__init__()
        self.pieces = pieces

    def __torch_dispatch__(self, call: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if (
            call in {ATEN.mm.default, ATEN.bmm.default, ATEN.addmm.default}
            and args[-1].dtype is torch.bfloat16
        ):
            left, right = args[-2], args[-1]
            step = max(1, -(-left.shape[-1] // self.pieces))
            parts = zip(left.split(step, -1), right.split(step, -2), strict=True)
            total = sum((one @ other).float() for one, other in parts)
            if call is ATEN.addmm.default:
                total = total + args[0].float()
            return total.to(left.dtype)
        if call is ATEN.native_layer_norm.default and args[0].dtype is torch.bfloat16:
            wide = [one.float() if isinstance(one, torch.Tensor) else one for one in args]
            found = call(*wide)
            return (found[0].to(args[0].dtype), *found[1:])
        return call(*args, **kwargs)


def _row(output: Any) -> Any:
    output[..., 1] *= 1.1
    return output


def _tile(output: Any) -> Any:
    output[..., : max(1, output.shape[-1] // 8)] = 0
    return output


def _swap(output: Any) -> Any:
    output[..., [0, 1]] = output[..., [1, 0]]
    return output


def _bias(output: Any) -> Any:
    return output + 0.05 * output.float().std().to(output.dtype)


def _element(output: Any) -> Any:
    output.view(-1)[3] += 0.5 * output.float().std().to(output.dtype)
    return output


def _coarse(output: Any) -> Any:
    """Mantissas of 4 bits in place of 8."""
    return (output.view(torch.int16) & ~0xF).view(torch.bfloat16)


def _scale(output: Any) -> Any:
    return output * 1.03


FAULTS = {one.__name__[1:]: one for one in (_row, _tile, _swap, _bias, _element, _coarse, _scale)}


def network(seed: int) -> Any:
    """Return a transformer of 12 blocks with weights of its own."""
    torch.manual_seed(seed)
    models.DIM = (16, 32, 64, 96, 128)[seed % 5]
    made = models.Transformer(12).eval().requires_grad_(requires_grad=False)
    for parameter in made.parameters():
        parameter.mul_(1 + 0.5 * (seed % 3))
    return made


def judged(exact: nn.Module, device: nn.Module, given: Any, pieces: int) -> Any:
    """Return the ratio of each tensor, in the order of execution."""
    rounded = copy.deepcopy(exact).bfloat16()
    with TemporaryDirectory() as folder:
        captures = []
        for at, (model, mode) in enumerate(((exact, 1), (rounded, 1), (device, pieces))):
            capture = Capture(model, Path(folder) / str(at), tensors=True)
            with capture:
                if mode == 1:
                    model(given)
                else:
                    with Device(mode):
                        model(given)
            captures.append(capture)
        return ratios(captures[2], captures[1], captures[0])


def main(networks: int = 11, faults: int = 200) -> None:
    """Print both tables."""
    worst: list[float] = []
    wrong = 0
    for seed in range(networks):
        exact = network(seed)
        found = judged(exact, copy.deepcopy(exact).bfloat16(), models.words(seed), 2 + seed % 3)
        worst += [one.ratio for one in found]
        wrong += sum(one.whose == DEVICE for one in found)
    worst.sort()
    half, most = (worst[int(share * (len(worst) - 1))] for share in (0.5, 0.99))
    print(
        f"healthy: {wrong} of {len(worst)} modules convicted; ratio p50 {half:.2f}, p99 {most:.2f}, "
        f"most {worst[-1]:.2f}"
    )
    convicted: Counter[str] = Counter()
    named: Counter[str] = Counter()
    every: Counter[str] = Counter()
    for seed in range(faults):
        exact = network(seed)
        device = copy.deepcopy(exact).bfloat16()
        kind = [*FAULTS][seed % len(FAULTS)]
        leaves = [name for name, one in device.named_modules() if not [*one.children()] and name != "blocks"]
        name = leaves[torch.randint(0, len(leaves), ()).item()]
        fault = FAULTS[kind]
        device.get_submodule(name).register_forward_hook(lambda *told, fault=fault: fault(told[2].clone()))
        found = judged(exact, device, models.words(seed), 2 + seed % 3)
        first = next((one.key.layer for one in found if one.whose == DEVICE), None)
        every[kind] += 1
        convicted[kind] += first is not None
        named[kind] += first == name
    for kind, count in every.items():
        print(f"{kind:8} {count:3} faulty, {convicted[kind]:3} found, {named[kind]:3} named")
    print(
        f"all      {sum(every.values())} faulty, {sum(convicted.values())} found, {sum(named.values())} named"
    )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
