"""A call of torch that is wrong by itself, as a folder with a script that needs torch and numpy alone."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ml_dtypes

from pytest_npudump.errors import RequestError
from pytest_npudump.reference.called_operators import CalledOperator
from pytest_npudump.reproduction import call_readme
from pytest_npudump.reproduction.drawn import draw
from pytest_npudump.reproduction.trial import run_script
from pytest_npudump.runtime.aten import call_files
from pytest_npudump.runtime.aten.recompute import NotRecomputedError

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np

    from pytest_npudump.dump.records import TensorKey
    from pytest_npudump.reproduction.failure import Failure
    from pytest_npudump.reproduction.trial import Trial

    Array = np.ndarray[Any, np.dtype[Any]]

SCRIPT = "repro.py"
CPU = "cpu"
"""What a call is held against."""

_SOURCE = Path(__file__).with_name("call_script.py")
_FAILS = "it is NOT what the CPU gives"


@dataclass(frozen=True, slots=True, eq=False)
class CallReproduction:
    """What a folder that reproduces a call of torch holds.

    Attributes:
        failure: what the report knows of it.
        call: the content of ``call.json``.
        inputs: memory of the arguments by name, flat, as archived.
        outputs: the result as the device gave it, if the inputs are its own, and as the CPU did.
        drawn: whether the inputs are.
    """

    failure: Failure
    call: Mapping[str, Any]
    inputs: Mapping[str, Array]
    outputs: Mapping[str, Array]
    drawn: bool = False

    @property
    def key(self) -> TensorKey:
        """The tensor that fails."""
        return self.failure.key

    @property
    def layers(self) -> tuple[str, ...]:
        """The one operator's name."""
        return (self.failure.key.layer,)

    @property
    def criterion(self) -> str:
        """What the output is held against."""
        return CPU

    @property
    def command(self) -> str:
        """What runs it in its folder."""
        return f"python {SCRIPT}"

    def write(self, folder: Path) -> None:
        """Write it into an empty folder.

        Raises:
            OSError: a file cannot be written.
        """
        shutil.copyfile(_SOURCE, folder / SCRIPT)
        call_files.write_files(folder, self.call, self.inputs, self.outputs)
        words = call_readme.readme_text(
            self.failure,
            self.call,
            {name: _known(self.call, one) for name, one in self.outputs.items()},
            drawn=self.drawn,
        )
        (folder / call_readme.FILE).write_text(words, encoding="utf-8")

    def run(self, folder: Path, runtime: str) -> Trial:
        """Run the script where it was written; ``torch_npu`` insists on an NPU."""
        return run_script(folder, SCRIPT, runtime if runtime != "auto" else "", fails=_FAILS)


def of_call(failure: Failure, *, drawn: bool = False) -> CallReproduction:
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
        call, inputs, outputs = call_files.read_files(folder)
    except (OSError, ValueError) as error:
        raise RequestError(
            f"{folder}: what the call was given is not there any more: run {failure.test} again, with "
            f"--npudump-dump-dir=DIR --npudump-keep-dumps=failed ({error})"
        ) from error
    call["hf32"] = failure.producer.get("hf32", "")
    made = CallReproduction(failure, call, inputs, outputs)
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
    saved = call_files.call_of(made.call, inputs)
    judged = saved.judged
    try:
        operator = CalledOperator(
            saved.call, judged.place, judged.dtype, wide=judged.wide, plain=judged.plain
        )
        expected = operator.expected()
        allowed = None if expected.dtype.kind in "iub" else operator.healthy(expected).most
    except NotRecomputedError as error:
        raise RequestError(f"--synthetic: {made.key} cannot be judged on drawn inputs: {error}") from error
    told = {**made.call["judged"], "allowed": allowed, "apart": None}
    outputs = {call_files.CPU: expected}
    return replace(made, call={**made.call, "judged": told}, inputs=inputs, outputs=outputs, drawn=True)


def _typed(array: Array, dtype: str) -> Array:
    """Return an array in the type it stands for, where numpy has another one of its width."""
    return array.view(getattr(ml_dtypes, dtype)) if hasattr(ml_dtypes, dtype) else array


def _known(call: Mapping[str, Any], array: Array) -> Array:
    """Return a result in its type: what is no integer of the width may be the device's."""
    return _typed(array, call["judged"]["dtype"]) if array.dtype.kind == "i" else array
