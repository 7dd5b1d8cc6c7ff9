"""A call in files: its arrays as archives of numpy, all else of it as JSON, and nothing as pickle.

``call.json`` names the operator and has its arguments, with a view into a piece of memory in place of each
tensor; ``inputs.npz`` has the memory, flat; ``outputs.npz`` one result, as the device and as the CPU gave it.
Types that numpy lacks are kept as integers of their width.
"""

from __future__ import annotations

import json
import math
import re
import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_npudump.dump.dtypes import is_of_numpy
from pytest_npudump.errors import DumpError
from pytest_npudump.runtime.aten.kept_calls import KeptCall
from pytest_npudump.runtime.aten.recompute import (
    HostCopy,
    NotCopiedError,
    Reading,
    View,
    array_of,
    computed,
    results_of,
    tensors_in,
    written_by,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    Array = np.ndarray[Any, np.dtype[Any]]


CALL, INPUTS, OUTPUTS = "call.json", "inputs.npz", "outputs.npz"
DEVICE, CPU = "device", "cpu"
"""Names of the two arrays in :data:`OUTPUTS`."""


def save_call(folder: Path, call: KeptCall, judged: Mapping[str, Any], output: Array) -> None:
    """Write a call that can be recomputed.

    Args:
        folder: a new one.
        call: with what it was given.
        judged: which of its results (``place``, ``dtype`` on the device), how (``wide``, in which the CPU
            computed, and ``plain``, whether the matrix unit is known to take float32 operands as they are),
            and what came of it: ``apart`` and ``allowed``, None where these do not apply, and ``why``.
        output: that result on the device.

    Raises:
        NotCopiedError: an argument cannot be written.
        NotRecomputedError: the CPU does not compute it.
        OSError: the files cannot be written.
    """
    assert call.given is not None  # noqa: S101 - as it can be recomputed
    expected, source = _on_cpu(call, judged)
    given = call.given
    names = {memory: f"memory_{number}" for number, memory in enumerate(given.memory)}
    data = {
        "operator": call.name,
        "arguments": as_data(given.arguments, names),
        "named": {name: as_data(value, names) for name, value in given.named.items()},
        "memory": {names[memory]: memory[1].rpartition(".")[2] for memory in names},
        "result": source,
        "judged": judged,
    }
    arrays = {names[memory]: array_of(flat) for memory, flat in given.memory.items()}
    folder.mkdir(parents=True)
    write_files(folder, data, arrays, {DEVICE: output.reshape(expected.shape), CPU: expected})


def _on_cpu(call: KeptCall, judged: Mapping[str, Any]) -> tuple[Array, dict[str, Any]]:
    """Return a result on the CPU, and where it is: among the tensors returned, or among those given."""
    assert call.given is not None  # noqa: S101 - the caller has looked
    arguments, named, returned = computed(call.function, call.given, Reading(judged["wide"]))
    results = results_of(call.function, arguments, named, returned)
    new = len(results) - len(written_by(call.function, arguments, named))
    of = "returned" if judged["place"] < new else "arguments"
    tensors = [*tensors_in(returned if of == "returned" else (*arguments, *named.values()))]
    result = results[judged["place"]]
    at = next(number for number, tensor in enumerate(tensors) if tensor is result)
    return array_of(result.contiguous()), {"of": of, "at": at}


def write_files(
    folder: Path, data: Mapping[str, Any], inputs: Mapping[str, Array], outputs: Mapping[str, Array]
) -> None:
    """Write the three files into a folder that is there.

    Args:
        folder: where to.
        data: of :data:`CALL`.
        inputs: of :data:`INPUTS`.
        outputs: of :data:`OUTPUTS`.

    Raises:
        OSError: they cannot be written.
    """
    (folder / CALL).write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    for name, arrays in ((INPUTS, inputs), (OUTPUTS, outputs)):
        stored = {each: _storable(array) for each, array in arrays.items()}
        np.savez(folder / name, **stored)  # type: ignore[arg-type]


def read_files(folder: Path) -> tuple[dict[str, Any], dict[str, Array], dict[str, Array]]:
    """Read the arguments of :func:`write_files`, with arrays as they are stored.

    Raises:
        OSError: a file cannot be read.
        ValueError: it holds something else.
    """
    data = json.loads((folder / CALL).read_text(encoding="utf-8"))
    return data, _arrays(folder / INPUTS), _arrays(folder / OUTPUTS)


def call_of(data: Mapping[str, Any], inputs: Mapping[str, Array]) -> KeptCall:
    """Return the call that is in files; torch has to have been imported.

    Args:
        data: of :data:`CALL`.
        inputs: of :data:`INPUTS`, as they are stored or in their types.

    Raises:
        DumpError: they are something else, or torch has no such operator.
    """
    torch = sys.modules["torch"]
    try:
        dtypes = data["memory"]
        memory = {
            (number, dtype): torch.from_numpy(_storable(inputs[name])).view(getattr(torch, dtype))
            for number, (name, dtype) in enumerate(dtypes.items())
        }
        named = {name: from_data(value, dtypes) for name, value in data["named"].items()}
        given = HostCopy(tuple(from_data(data["arguments"], dtypes)), named, memory)
        function = _operator(torch, data["operator"])
        return KeptCall(data["operator"], (), "", function, given)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DumpError(f"{CALL}: is no call that a second run has saved: {error}") from error


def _operator(torch: Any, name: str) -> Any:
    """Return an operator by LIBRARY.NAME.OVERLOAD: what else torch.ops has, loads libraries."""
    if not re.fullmatch(r"(?!_)\w+\.\w+\.(?!_)\w+", name, re.ASCII):
        raise ValueError(f"{name} is no operator")
    function = torch.ops
    for part in name.split("."):
        function = getattr(function, part)
    return function


def _arrays(path: Path) -> dict[str, Array]:
    with np.load(path, allow_pickle=False) as archive:
        return dict(archive)


def _storable(array: Array) -> Array:
    return array if is_of_numpy(array.dtype) else array.view(f"i{array.dtype.itemsize}")


_NAMED = ("dtype", "layout", "memory_format")
"""Types of torch whose values are known by name."""


def as_data(value: Any, memory: Mapping[tuple[int, str], str]) -> Any:
    """Return an argument as data: what JSON has no word for as an object whose only key says what it is.

    Args:
        value: of a :class:`~.recompute.HostCopy`, with views in place of tensors.
        memory: the names of the pieces of memory.

    Raises:
        NotCopiedError: it is of a type that cannot be written.
    """
    if isinstance(value, View):
        return {"tensor": [memory[value.memory], list(value.sizes), list(value.strides), value.offset]}
    if isinstance(value, list | tuple):
        return [as_data(each, memory) for each in value]
    if isinstance(value, complex):
        return {"complex": [as_data(value.real, memory), as_data(value.imag, memory)]}
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(value)}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    torch = sys.modules["torch"]
    if isinstance(value, torch.device):
        return {"device": str(value)}
    for kind in _NAMED:
        if isinstance(value, getattr(torch, kind)):
            return {kind: str(value).rpartition(".")[2]}
    raise NotCopiedError(f"an argument of type {type(value).__name__} cannot be written to a file")


def from_data(data: Any, dtypes: Mapping[str, str]) -> Any:
    """Return the argument that :func:`as_data` was given; the pieces of memory have numbers for addresses.

    Args:
        data: of an argument.
        dtypes: of the pieces of memory, in the order of their numbers.

    Raises:
        ValueError: it is no such data.
    """
    if isinstance(data, list):
        return [from_data(each, dtypes) for each in data]
    if not isinstance(data, dict):
        return data
    ((kind, value),) = data.items()
    if kind == "tensor":
        name, sizes, strides, offset = value
        return View(([*dtypes].index(name), dtypes[name]), tuple(sizes), tuple(strides), offset)
    if kind == "complex":
        return complex(*(from_data(part, dtypes) for part in value))
    torch = sys.modules["torch"]
    if kind == "float":
        return float(value)
    if kind == "device":
        return torch.device("cpu")
    if kind in _NAMED:
        return getattr(torch, value)
    raise ValueError(f"unknown kind of argument {kind!r}")
