"""Children that are forked from a fork server: what they inherit, and that none is left."""

from __future__ import annotations

import fcntl
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.e2e

HEAD = """\
import os, random, time
import numpy as np
import pytest

def note(*words):
    with open("log.txt", "a") as file:
        file.write(" ".join(map(str, words)) + "\\n")
"""
TEST = """
@pytest.mark.npu_dump(isolation="process")
def test_{number}(npu_dump):
    with npu_dump.load_model("relu.onnx") as model:
        model.run(np.ones((1, 3), np.float32))
    {body}
"""
NOTE = "note('ran', os.getpid(), os.getppid(), random.random(), np.random.random())"


def write(folder: Path, *bodies: str) -> None:
    onnx = pytest.importorskip("onnx")
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"], name="relu1")],
        "relu",
        [helper.make_tensor_value_info("x", kind, [1, 3])],
        [helper.make_tensor_value_info("y", kind, [1, 3])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, folder / "relu.onnx")
    (folder / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
    tests = [TEST.format(number=number, body=body) for number, body in enumerate(bodies)]
    (folder / "test_it.py").write_text(HEAD + "".join(tests))


def start(folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [
            *(
                sys.executable,
                "-m",
                "pytest",
                "-p",
                "no:cacheprovider",
                "--npudump-runtime=emulator",
                "--npudump-repeats=1",
            ),
            *("--npudump-update-golden", "-p", "no:asyncio", "-p", "no:pytest-retry", "-p", "no:flaky"),
        ],
        cwd=folder,
        env=dict(os.environ),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def noted(folder: Path, word: str) -> list[list[str]]:
    try:
        lines = (folder / "log.txt").read_text().splitlines()
    except FileNotFoundError:
        return []
    return [line.split()[1:] for line in lines if line.split()[0] == word]


def is_gone(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return True
    return state == "Z"


def until(condition: object, seconds: float = 120.0) -> bool:
    assert callable(condition)
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.05)
    return bool(condition())


def test_children_are_forked_from_one_process_that_ends_with_pytest(tmp_path: Path) -> None:
    write(tmp_path, NOTE, NOTE, NOTE)
    pytest_ = start(tmp_path)
    output, _ = pytest_.communicate()
    assert "3 passed" in output, output
    ran = noted(tmp_path, "ran")
    parents = [int(parent) for _, parent, *_ in ran]
    assert parents[0] == pytest_.pid
    assert parents[1] == parents[2] != pytest_.pid
    assert len({child for child, *_ in ran}) == 3
    assert len({first for _, _, first, _ in ran}) == len({second for *_, second in ran}) == 3
    assert is_gone(parents[1])


def test_a_prepared_process_that_was_killed_is_started_again(tmp_path: Path) -> None:
    killed = f"{NOTE}\n    os.kill(os.getppid(), 9) if NUMBER == 1 else None"
    write(tmp_path, *(killed.replace("NUMBER", str(number)) for number in range(4)))
    output, _ = start(tmp_path).communicate()
    assert "1 failed, 3 passed" in output, output
    assert "the process that forks children has ended" in output
    parents = [parent for _, parent, *_ in noted(tmp_path, "ran")]
    assert parents[2] == parents[3] != parents[1]


def test_nothing_is_left_when_pytest_is_killed(tmp_path: Path) -> None:
    write(tmp_path, NOTE, "note('sleeps', os.getpid(), os.getppid())\n    time.sleep(600)")
    pytest_ = start(tmp_path)
    assert until(lambda: noted(tmp_path, "sleeps")), pytest_.communicate(timeout=1)
    ((child, parent),) = noted(tmp_path, "sleeps")
    assert int(parent) != pytest_.pid
    pytest_.send_signal(signal.SIGKILL)
    pytest_.communicate()
    assert until(lambda: is_gone(int(child)) and is_gone(int(parent)))


def test_descriptors_of_any_number_are_waited_for() -> None:
    from pytest_npudump.plugin.features.isolation.server import _ready

    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, limits[1]), limits[1]))
    reading, writing = os.pipe()
    high = fcntl.fcntl(reading, fcntl.F_DUPFD, 2000)
    try:
        os.write(writing, b"x")
        assert _ready(high) == {high}
    finally:
        for descriptor in (reading, writing, high):
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
