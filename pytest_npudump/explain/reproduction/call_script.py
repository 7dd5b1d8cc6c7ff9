"""One call of torch on the device, compared with the same call on the CPU: README.md says more.

Exit 0: it is as on the CPU; 1: it is not; 2: it cannot be run here.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

FOLDER = Path(__file__).parent
CALL: dict[str, Any] = json.loads((FOLDER / "call.json").read_text(encoding="utf-8"))
JUDGED: dict[str, Any] = CALL["judged"]
HALVES = (torch.float16, torch.bfloat16)
LEAST_MASK = 1e8


def main() -> int:
    """Run the call, print how far it is off, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="", help="npu or cpu; default: npu if there is one")
    device = parser.parse_args().device
    try:
        device = device or ("npu" if has_npu() else "cpu")
        fails = is_wrong(device)
    except Exception as error:  # noqa: BLE001 - whatever went wrong, nothing has been judged
        print(f"{CALL['operator']} cannot be run on {device}: {error}")
        return 2
    print("mismatch with the CPU" if fails else "matches the CPU")
    return int(fails)


def is_wrong(device: str) -> bool:
    """Run the call on a device and on the CPU, and say whether they differ."""
    got = run(device)
    readings = []
    for way in ways(got.dtype):
        with contextlib.suppress(RuntimeError, TypeError):  # not all of them need be there
            readings.append(run("cpu", **way))
    if not readings:
        raise RuntimeError("the CPU computes it in no type")
    print(f"{CALL['operator']} on {device}, compared with the CPU in {JUDGED['wide']}:")
    got = got.to("cpu")
    if got.is_floating_point():
        return wrong_floats(got, readings)
    wrong = min(int((got != one).sum()) for one in readings)
    print(f"{wrong} of {got.numel()} values differ")
    return wrong > 0


def has_npu() -> bool:
    """Return whether torch_npu is installed and a device answers; set HF32 as in the failing run."""
    try:
        import torch_npu  # noqa: F401, PLC0415 - a machine without it has the CPU
    except ImportError:
        return False
    npu = torch.npu
    if CALL["hf32"]:
        npu.matmul.allow_hf32 = "matmul" in CALL["hf32"]
        npu.conv.allow_hf32 = "conv" in CALL["hf32"]
    return bool(npu.is_available())


def ways(dtype: torch.dtype) -> list[dict[str, Any]]:
    """Return the ways in which a healthy device may hold its inputs, for a result of a type."""
    if not dtype.is_floating_point:
        return [{"wide": torch.float64}, {}]
    wide = getattr(torch, JUDGED["wide"])
    found = [{"wide": wide}, {"wide": wide, "flushed": True}]
    return [*found, {"wide": wide, "rounded": dtype}] if dtype in HALVES else found


def run(
    device: str,
    wide: torch.dtype | None = None,
    *,
    flushed: bool = False,
    rounded: torch.dtype | None = None,
) -> torch.Tensor:
    """Return the result in question.

    Args:
        device: on which.
        wide: in which narrower floating-point arguments are; None leaves them as they are.
        flushed: whether what is too small for a normal number is zero.
        rounded: what numbers among the arguments are rounded to.
    """
    operator = torch.ops
    for part in CALL["operator"].split("."):
        operator = getattr(operator, part)
    with np.load(FOLDER / "inputs.npz", allow_pickle=False) as archive:
        flats = {  # numpy lacks some types, kept as integers of their width
            name: torch.from_numpy(archive[name]).view(getattr(torch, dtype))
            for name, dtype in CALL["memory"].items()
        }
    memory = {name: held(flat, wide, flushed=flushed).to(device) for name, flat in flats.items()}
    schema = operator._schema.arguments  # noqa: SLF001 - torch's only name for it
    types = {argument.name: str(argument.type) for argument in schema}
    given = [*zip(types, CALL["arguments"], strict=False), *CALL["named"].items()]
    values = [
        number(name, types[name], built(value, memory, device, wide), wide, rounded) for name, value in given
    ]
    count = len(CALL["arguments"])
    arguments, named = values[:count], dict(zip(CALL["named"], values[count:], strict=True))
    with torch.no_grad():
        returned = operator(*arguments, **named)
    whole = returned if CALL["result"]["of"] == "returned" else values
    result: torch.Tensor = [*tensors_in(whole)][CALL["result"]["at"]]
    return result


def held(flat: torch.Tensor, wide: torch.dtype | None, *, flushed: bool) -> torch.Tensor:
    """Return memory as a device may hold it."""
    if not flat.is_floating_point():
        return flat
    values = flat.to(wider(flat.dtype, wide))
    if flushed:
        values = values.where(values.abs() >= torch.finfo(flat.dtype).smallest_normal, 0)
    return values


def wider(dtype: torch.dtype, wide: torch.dtype | None) -> torch.dtype:
    """Return the wider of two types."""
    return wide if wide is not None and wide.itemsize > dtype.itemsize else dtype


def built(data: Any, memory: dict[str, torch.Tensor], device: str, wide: torch.dtype | None) -> Any:
    """Return an argument: tensors are views into memory, which they may share."""
    if isinstance(data, list):
        return [built(each, memory, device, wide) for each in data]
    if not isinstance(data, dict):
        return data
    ((kind, value),) = data.items()
    if kind == "tensor":
        name, sizes, strides, offset = value
        return memory[name].as_strided(sizes, strides, offset)
    if kind == "complex":
        return complex(*(built(part, memory, device, wide) for part in value))
    if kind in ("float", "device"):
        return float(value) if kind == "float" else torch.device(device)
    named = getattr(torch, value)
    return wider(named, wide) if kind == "dtype" and named.is_floating_point else named


def number(name: str, kind: str, value: Any, wide: torch.dtype | None, rounded: torch.dtype | None) -> Any:
    """Return an argument whose value depends on the type of the tensors beside it."""
    if name == "half_to_float" and wide is not None:
        return False  # what it is to be converted from is float32 already
    if rounded is not None and isinstance(value, float) and ("number" in kind or "Tensor" in kind):
        return torch.tensor(value, dtype=rounded).item()
    return value


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors in an argument, or in what a call returned."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for each in value:
            yield from tensors_in(each)


def wrong_floats(got: torch.Tensor, readings: list[torch.Tensor]) -> bool:
    """Return whether floating-point values are farther off than those of a healthy operator."""
    info = torch.finfo(got.dtype)
    apart = math.inf
    for reading in readings:
        for form in (reading, reading.to(got.dtype)):
            for smallest in (0.0, info.smallest_normal):
                one, other = got.double(), form.double()
                below = (one.abs() <= smallest) & (other.abs() <= smallest)  # to be zero on both sides
                pair = one.where(~below, 0).numpy(), other.where(~below, 0).numpy()
                apart = min(apart, distance(*pair, info.max))
    allowed = JUDGED["allowed"] or 0.0
    print(f"relative L2 error {apart:.3g} (limit {allowed:.3g})")
    return apart > allowed


def distance(actual: Any, expected: Any, largest: float) -> float:
    """Return the L2 norm of the difference by the expected one's; infinite where NaN or infinities differ."""
    held_infinite = (np.abs(expected) > largest) & (np.abs(actual) >= largest)
    same = (actual == expected) | (np.isnan(actual) & np.isnan(expected))
    same |= held_infinite & (np.sign(actual) == np.sign(expected))
    if not np.all(same | (np.isfinite(actual) & np.isfinite(expected))):
        return math.inf
    apart = np.where(same, 0.0, actual - np.where(same, 0.0, expected))
    numbers = np.where(np.isfinite(expected), expected, 0.0)
    difference, scale = np.linalg.norm(apart), np.linalg.norm(numbers)
    whole = float(difference / scale) if scale else math.inf if difference else 0.0
    mask = masked(np.abs(numbers))
    beside = np.linalg.norm(numbers[~mask]) if mask.any() else 0.0
    return max(whole, float(np.linalg.norm(apart[~mask]) / beside)) if beside else whole


def masked(magnitude: Any) -> Any:
    """Return which magnitudes are a mask's, such as that of -1e9: elements beside it are measured, too."""
    of_float16 = np.isin(magnitude, (65504.0, 65536.0))
    likely = of_float16 | (magnitude >= LEAST_MASK)
    others = magnitude[~likely]
    least = max(float(np.median(others)), 1.0) if others.size else math.inf
    return likely & (magnitude / np.where(of_float16, 1e3, 1e6) > least)


if __name__ == "__main__":
    sys.exit(main())
