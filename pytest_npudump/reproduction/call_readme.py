"""The words that the reproduction of a call comes with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_npudump.reproduction.readme import code, failing_lines, statistics_table, versions_table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import numpy as np

    from pytest_npudump.reproduction.failure import Failure

    Array = np.ndarray[Any, np.dtype[Any]]

FILE = "README.md"

_PACKAGES = ("numpy", "torch", "torch_npu")

_COMMAND = """\
## Run it

It needs torch and numpy, and for an NPU torch_npu; without an NPU the CPU stands for the device.

```console
$ python repro.py
```

Exit code 0: the call gives what it gives on the CPU; 1: it does not; 2: it cannot be run. `--device=npu`
insists on the NPU.
"""

_FILES = """\
## Files

* `repro.py`: the call, and how it is judged
* `call.json`: the operator and its arguments; a tensor is a view into memory: name, sizes, strides, offset
* `inputs.npz`: that memory, types that numpy lacks as integers of their width
* `outputs.npz`: what the device and the CPU made of it, as far as it is known
"""


def readme_text(
    failure: Failure, call: Mapping[str, Any], outputs: Mapping[str, Array], *, drawn: bool
) -> str:
    """Return the file, Markdown.

    Args:
        failure: what the report knows.
        call: the content of ``call.json``.
        outputs: the result by who gave it, ``device`` and ``cpu``.
        drawn: whether the inputs are.
    """
    versions = versions_table(failure.producer, {}, _PACKAGES)
    told = (*_head(failure, call, drawn=drawn), *_findings(failure, call, outputs))
    return "\n".join((*told, _FILES, *versions, ""))


def _head(failure: Failure, call: Mapping[str, Any], *, drawn: bool) -> Iterator[str]:
    yield f"# {code(call['operator'])} by itself"
    given = "drawn inputs with the statistics of those that it had" if drawn else "the inputs that it had"
    yield f"\nThe call that gave {code(str(failure.key))}, on {given} in {code(failure.test)}.\n"
    yield _COMMAND


def _findings(failure: Failure, call: Mapping[str, Any], outputs: Mapping[str, Array]) -> Iterator[str]:
    judged = call["judged"]
    yield from failing_lines(failure)
    yield f"Here the result is held against the same call on the CPU, in {code(judged['wide'])}."
    if judged["why"]:
        yield f"On the device {code(judged['why'])}."
    elif judged["apart"] is not None:
        yield f"On the device it was {judged['apart']:.3g} off (relative L2)."
    if judged["allowed"] is not None:
        yield (
            f"A healthy device is off by no more than {judged['allowed']:.3g}: four times what was measured "
            f"of healthy operators, or of what the call makes of inputs that differ by a unit in the last "
            f"place."
        )
    yield ""
    yield from statistics_table({f"by the {code(name)}": array for name, array in outputs.items()})
    yield "| argument | |\n|---|---|"
    given = (*((str(at), one) for at, one in enumerate(call["arguments"])), *call["named"].items())
    yield from (f"| {code(name)} | {code(_argument(value, call['memory']))} |" for name, value in given)
    yield ""


def _argument(data: Any, dtypes: Mapping[str, str]) -> str:
    if isinstance(data, list):
        return f"[{', '.join(_argument(each, dtypes) for each in data)}]"
    if isinstance(data, dict) and "tensor" in data:
        name, sizes, strides, _ = data["tensor"]
        return f"{dtypes[name]} {sizes} of {name}, strides {strides}"
    return str(next(iter(data.values())) if isinstance(data, dict) else data)
