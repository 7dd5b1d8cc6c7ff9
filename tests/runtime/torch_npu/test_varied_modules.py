"""Modules of the real torch whose inputs are perturbed; ``NPUDUMP_TORCHAIR`` names a folder with it."""

from __future__ import annotations

from typing import Any

import pytest

BEGIN = """
from types import SimpleNamespace
import torch
from pytest_npudump.onnxmodels.variation import PLAIN, Variation
from pytest_npudump.runtime.torch_npu.adapter import VariedModules

class Inner(torch.nn.Module):
    def forward(self, x):
        return x * 1

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Inner()
    def forward(self, x, more=None):
        return self.inner(x)

model = Model()
varied = VariedModules(SimpleNamespace(npu=SimpleNamespace(is_current_stream_capturing=lambda: capturing)))
capturing = False
varied.vary(Variation(seed=3))

def image(dtype=torch.float32):
    return torch.linspace(0.1, 0.9, 400, dtype=torch.float64).to(dtype).reshape(100, 4)

def moved(found, dtype):
    share = (found != image(dtype)).float().mean()
    return 0.2 < share < 0.8 and torch.allclose(found, image(dtype), rtol=2**-6)
"""
CASES = {
    "each type of float moves by a step, and is back behind the model": """
for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16):
    given = image(dtype)
    assert moved(model(given), dtype) and torch.equal(given, image(dtype)), dtype
assert varied.varying.perturbed == {"0 of Model"}, varied.varying
""",
    "integers stay and are named, wherever they are": """
ids = torch.arange(4)
model(image(), more={"a": [ids, torch.ones(2)]})
assert varied.varying.unperturbed == {"more['a'][0] of Model"}, varied.varying
assert varied.varying.perturbed == {"0 of Model", "more['a'][1] of Model"}, varied.varying
""",
    "what cannot be copied without an operator stays and is named": """
model(image().T)
model(torch.ones(()).expand(4))
assert varied.varying.unreached == {"0 of Model (not contiguous in memory)"}, varied.varying
capturing = True
assert torch.equal(model(image()), image())
assert "0 of Model (captured into a graph)" in varied.varying.unreached, varied.varying
""",
    "gradients are as without": """
given = image().requires_grad_()
linear = torch.nn.Linear(4, 2)
linear(given).sum().backward()
assert given.grad.shape == given.shape and torch.equal(given, image())
assert linear.weight.grad is not None
""",
    "tensors of inference mode are perturbed too": """
with torch.inference_mode():
    given = image()
    assert moved(model(given), torch.float32) and torch.equal(given, image())
assert moved(model(given), torch.float32)
""",
    "a compiled model is fed other values and compiled as by itself": """
compiled = torch.compile(model, fullgraph=True, backend="eager")
assert moved(compiled(image()), torch.float32)
whole = torch.compile(lambda x: model(x), fullgraph=True, backend="eager")
assert torch.equal(whole(image()), image())
""",
    "a cache that the model writes to keeps what was written": """
class Writes(torch.nn.Module):
    def forward(self, cache):
        cache[0] = 7
        return cache.sum()
cache = image()
Writes()(cache)
assert cache[0].tolist() == [7] * 4
""",
    "an error is the test's own, and torch is as it was when all is over": """
class Fails(torch.nn.Module):
    def forward(self, x):
        raise ValueError("no")
try:
    Fails()(image())
except ValueError:
    pass
assert moved(model(image()), torch.float32)
varied.vary(PLAIN)
assert torch.nn.Module.__call__ is torch.nn.Module._wrapped_call_impl
assert torch.equal(model(image()), image())
""",
}
END = """
import traceback

for name, body in CASES.items():
    capturing = False
    varied.vary(PLAIN)
    varied.varying.perturbed.clear()
    varied.vary(Variation(seed=3))
    try:
        exec(body)
    except Exception:
        print(name, traceback.format_exc())
"""


@pytest.mark.e2e
def test_modules(warm_torch: Any) -> None:
    ended = warm_torch.run("-c", f"CASES = {CASES!r}\n{BEGIN}{END}")
    assert ended == (0, "", "")
