"""A pipe in place of a file is refused at once, whatever the argument: opening one waits for a writer."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper

from tests.cli.conftest import dump_file
from tests.onnxmodels.models import onnx_file

Run = Callable[..., Any]
DATA = Path(__file__).parent.parent / "data"
TENSORS = DATA / "trees" / "acl-tensor"
GOLDEN = "npudump-golden: 1\ntest: t\nproducer: {}\n"
COLUMNS = "columns: tensor dtype shape max min avg l2norm nan -inf +inf\ntensors: |\n"
ROW = "  net/Softmax@0:output.0 float16 1x2 0.579102 0.420898 0.5 0.715901 0 0 0\n"


@pytest.fixture(autouse=True)
def _no_waiting() -> Iterator[None]:
    """End a test that waits for a pipe."""

    def end(*_: object) -> None:
        raise AssertionError("it waits")

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.each(
    ("suffix", "words"),
    [
        ("", ("compare", "ODD", TENSORS)),
        ("", ("compare", TENSORS, "ODD")),
        (".onnx", ("compare", "ODD", TENSORS)),
        (".yaml", ("compare", TENSORS, TENSORS, "--tolerances", "ODD")),
        (".npz", ("compare", "MODEL", TENSORS, "--inputs", "ODD")),
        (".yaml", ("compare", "MODEL", TENSORS, "--inputs", "INPUTS", "--map", "ODD")),
        ("", ("ls", "--stats", "ODD")),
        ("", ("ls", "ODD")),
        ("", ("convert", "ODD", "-o", "OUT")),
    ],
    ids=lambda value: "-".join(map(str, value)).replace(str(TENSORS), "DUMP") or "file",
)
def test_every_argument_of_every_command(
    run: Run, tmp_path: Path, suffix: str, words: tuple[object, ...]
) -> None:
    relu = helper.make_node("Relu", ["x"], ["y"], name="relu")
    onnx_file(tmp_path / "model.onnx", [relu], {"x": [1, 3]}, {"y": [1, 3]})
    np.savez(tmp_path / "inputs.npz", x=np.zeros((1, 3), np.float32))
    names = {"ODD": tmp_path / f"odd{suffix}", "OUT": tmp_path / "out"}
    names |= {"MODEL": tmp_path / "model.onnx", "INPUTS": tmp_path / "inputs.npz"}
    os.mkfifo(names["ODD"])
    done = run(*(names.get(str(word), word) for word in words))
    assert (done.code, "Traceback" in done.err) == (2, False)
    assert str(names["ODD"]) in done.out + done.err


def test_golden_tensors_beside_a_golden(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(GOLDEN + COLUMNS + ROW)
    os.mkfifo(tmp_path / "a.safetensors")
    done = run("compare", tmp_path / "a.yaml", TENSORS)
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert f"{tmp_path / 'a.safetensors'}: not a file of golden tensors: " in done.err
    assert "not a regular file" in done.err


def test_a_mapping_in_a_dump(run: Run, tmp_path: Path) -> None:
    path = dump_file(tmp_path, "a", np.arange(4.0))
    os.mkfifo(tmp_path / "mapping.csv")
    for words in (
        ("ls", "--stats", tmp_path),
        ("ls", "--stats", path),
        ("convert", tmp_path, "-o", tmp_path / "out"),
    ):
        assert run(*words).code == 0
    assert "neither a file nor a directory" in run("ls", "--stats", tmp_path).out
