"""Saves a call as a reproduction does, and says whether it comes back, and its script judges it rightly."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest_npudump.explain.reproduction
from pytest_npudump.explain.called_operators import CalledOperator
from pytest_npudump.runtime.aten import CALL, Reading, call_of, read_files, save_call

if TYPE_CHECKING:
    import numpy as np

    from pytest_npudump.runtime.aten import KeptCall

    Array = np.ndarray[Any, np.dtype[Any]]

SCRIPT = Path(pytest_npudump.explain.reproduction.__file__).with_name("call_script.py")


def wrongs(call: KeptCall, place: int, dtype: str, array: Array) -> list[str]:
    """Return what is wrong with the files of a call whose result was right; [] where nothing is."""
    operator = CalledOperator(call, place, dtype, plain=True)
    expected = operator.expected()
    allowed = None if expected.dtype.kind in "iub" else operator.healthy(expected).most
    judged = {"place": place, "dtype": dtype, "wide": "float32", "plain": True}
    judged |= {"apart": None, "allowed": allowed, "why": ""}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name, "0")
        save_call(folder, call, judged, array)
        data, inputs, _ = read_files(folder)
        again = call_of(data, inputs)
        found = [] if data["judged"] == judged else ["it was judged otherwise"]
        here, there = (one.recomputed(Reading())[place] for one in (call, again))
        assert here is not None
        assert there is not None
        found += [] if here.tobytes() == there.tobytes() else ["it gives something else"]
        return found + [f"the script: {one}" for one in _of_script(folder)]


def _of_script(folder: Path) -> list[str]:
    shutil.copy(SCRIPT, folder / "repro.py")
    data = json.loads((folder / CALL).read_text(encoding="utf-8"))
    (folder / CALL).write_text(json.dumps({**data, "hf32": ""}), encoding="utf-8")
    spec = importlib.util.spec_from_file_location("repro", folder / "repro.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    with contextlib.redirect_stdout(io.StringIO()):
        found = ["what is right is wrong"] if script.is_wrong("cpu") else []
        run, runs = script.run, []

        def first_wrong(*given: Any, **named: Any) -> Any:
            runs.append(run(*given, **named))
            if len(runs) > 1:
                return runs[-1]
            return ~runs[0] if str(runs[0].dtype) == "torch.bool" else runs[0] * 1.25 + 1

        script.run = first_wrong
        return found if script.is_wrong("cpu") else [*found, "what is wrong is right"]
