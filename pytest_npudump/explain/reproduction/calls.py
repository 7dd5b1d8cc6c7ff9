"""A call of torch that is wrong by itself, as a folder with a script that needs torch and numpy alone."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ml_dtypes

from pytest_npudump.errors import RequestError
from pytest_npudump.explain.called_operators import CalledOperator
from pytest_npudump.explain.reproduction.reproduction import (
    README,
    Reproduction,
    TrialRun,
    code,
    draw,
    ran,
    readme,
    trial_of,
)
from pytest_npudump.runtime.aten import kept_calls
from pytest_npudump.runtime.aten.recompute import NotRecomputedError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import numpy as np

    from pytest_npudump.explain.reproduction.failure import FailingTensor

    Array = np.ndarray[Any, np.dtype[Any]]

SCRIPT = "repro.py"
CPU = "cpu"
"""Reference of a call."""

_RUN = """\
## Run it

It needs torch and numpy, and for an NPU torch_npu; without an NPU the CPU stands for the device.

```console
$ python repro.py
```

Exit code 0: the call gives what it gives on the CPU; 1: it does not; 2: it cannot be run. `--device=npu`
insists on the NPU.
"""

_FILES = {
    "`repro.py`": "the call, and how it is judged",
    "`call.json`": (
        "the operator and its arguments; a tensor is a view into memory: name, sizes, strides, offset"
    ),
    "`inputs.npz`": "that memory, types that numpy lacks as integers of their width",
    "`outputs.npz`": "what the device and the CPU made of it, as far as it is known",
}


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class CallReproduction(Reproduction):
    """A call of torch that fails.

    Attributes:
        call: the content of ``call.json``.
        inputs: memory of the arguments by name, flat, as archived.
        outputs: the result as the device gave it, if the inputs are its own, and as the CPU did.
    """

    command = f"python {SCRIPT}"

    call: Mapping[str, Any]
    inputs: Mapping[str, Array]
    outputs: Mapping[str, Array]

    def write(self, folder: Path) -> None:
        """Write it into an empty folder."""
        shutil.copyfile(Path(__file__).with_name("call_script.py"), folder / SCRIPT)
        kept_calls.write_files(folder, self.call, self.inputs, self.outputs)
        (folder / README).write_text(self._readme(), encoding="utf-8")

    def run(self, folder: Path, runtime: str) -> TrialRun:
        """Run the script where it was written; ``torch_npu`` insists on an NPU."""
        done = ran(folder, [SCRIPT, *(["--device=npu"] if runtime not in ("", "auto") else [])])
        return trial_of(done, SCRIPT, fails="mismatch with the CPU" in done.stdout)

    def _readme(self) -> str:
        given = "the inputs that it had"
        if self.drawn:
            given = "drawn inputs with the statistics of those that it had"
        dtype, memory = self.call["judged"]["dtype"], self.call["memory"]
        arguments = {str(at): one for at, one in enumerate(self.call["arguments"])} | self.call["named"]
        return readme(
            self.failure,
            title=self.call["operator"],
            given=f"The call that gave {code(str(self.key))}, on {given} in {code(self.failure.test)}.",
            run=_RUN,
            judged=_judged(self.call["judged"]),
            arrays={  # what is no integer of the width may be of the device's type
                f"by the {code(name)}": _typed(array, dtype) if array.dtype.kind == "i" else array
                for name, array in self.outputs.items()
            },
            arguments=[
                "| argument | |\n|---|---|",
                *(f"| {code(name)} | {code(_argument(one, memory))} |" for name, one in arguments.items()),
                "",
            ],
            files=_FILES,
            packages=("numpy", "torch", "torch_npu"),
            golden={},
        )


def _judged(judged: Mapping[str, Any]) -> Iterator[str]:
    yield f"The script compares the result with the same call on the CPU, in {code(judged['wide'])}."
    if judged["why"]:
        yield f"On the device {code(judged['why'])}."
    elif judged["apart"] is not None:
        yield f"Relative L2 error on the device: {judged['apart']:.3g}."
    if judged["allowed"] is not None:
        yield (
            f"The limit is {judged['allowed']:.3g}: four times the error measured of correct operators, or "
            f"four times the change of the result for inputs that differ by one ULP."
        )


def _argument(data: Any, dtypes: Mapping[str, str]) -> str:
    if isinstance(data, list):
        return f"[{', '.join(_argument(each, dtypes) for each in data)}]"
    if isinstance(data, dict) and "tensor" in data:
        name, sizes, strides, _ = data["tensor"]
        return f"{dtypes[name]} {sizes} of {name}, strides {strides}"
    return str(next(iter(data.values())) if isinstance(data, dict) else data)


def of_call(failure: FailingTensor, *, drawn: bool = False) -> CallReproduction:
    """Return the reproduction of a call that the second run has saved.

    Args:
        failure: of the call.
        drawn: whether its inputs are drawn, and how far it may be off is found anew, by torch.

    Raises:
        RequestError: the files are gone, or torch, which drawn inputs need, is not installed here or cannot
            compute the call for them.
    """
    folder = failure.call
    assert folder is not None  # noqa: S101 - the caller has looked
    try:
        call, inputs, outputs = kept_calls.read_files(folder)
    except (OSError, ValueError) as error:
        raise RequestError(
            f"{folder}: what the call was given is not there any more: run {failure.test} again, with "
            f"--npudump-output=DIR -o npudump_keep_dumps=failed ({error})"
        ) from error
    call["hf32"] = failure.producer.get("hf32", "")
    made = CallReproduction(
        failure=failure,
        layer=failure.key.layer,
        criterion=CPU,
        call=call,
        inputs=inputs,
        outputs=outputs,
    )
    return _drawn(made) if drawn else made


def _drawn(made: CallReproduction) -> CallReproduction:
    dtypes = made.call["memory"]
    inputs = {
        name: draw(_typed(array, dtypes[name]), number)
        for number, (name, array) in enumerate(made.inputs.items())
    }
    try:
        import_module("torch")
    except ImportError as error:
        why = "torch, which computes how far drawn inputs may put a call off, is not installed here"
        raise RequestError(f"--synthetic: {why}") from error
    how = {name: made.call["judged"][name] for name in ("place", "dtype", "wide", "plain")}
    operator = CalledOperator(kept_calls.call_of(made.call, inputs), **how)
    try:
        expected = operator.expected()
        allowed = None if expected.dtype.kind in "iub" else operator.healthy(expected).most
    except NotRecomputedError as error:
        raise RequestError(
            f"--synthetic: {made.key} cannot be recomputed on drawn inputs: {error}"
        ) from error
    told = {**made.call["judged"], "allowed": allowed, "apart": None}
    outputs = {kept_calls.CPU: expected}
    return replace(made, call={**made.call, "judged": told}, inputs=inputs, outputs=outputs, drawn=True)


def _typed(array: Array, dtype: str) -> Array:
    """Return an array in its true type, where numpy has another one of its width."""
    return array.view(getattr(ml_dtypes, dtype)) if hasattr(ml_dtypes, dtype) else array
