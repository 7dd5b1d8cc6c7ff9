"""Models in processes that a test starts: in its dump by rank, and never silent."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from pytest_npudump.golden import store
from pytest_npudump.runtime.modules.worker import watch

os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
torch: Any = pytest.importorskip("torch")

LOADED = (yaml, store)
"""What sessions in this process share: they forget what they load themselves."""
pytestmark = pytest.mark.filterwarnings("ignore")  # of torch, within itself
PROGRAM = Path(sys.executable).name
CHILD = """
import os, sys

if __name__ == "__main__" and sys.argv[2] in {"blind", f"blind {sys.argv[1]}"}:
    sys.exit()  # before torch, which is long to import

import torch
from pytest_npudump.runtime.modules.worker import watch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 3)
        self.act = torch.nn.ReLU()

    def forward(self, x):
        return self.act(self.linear(x))

def main(rank, way=""):
    torch.manual_seed(rank)
    net = Net()
    if way == f"fault {rank}":
        net.linear.weight.data *= 1.01
    if way in {"blind", f"blind {rank}"}:
        return net(torch.ones(2, 4))
    with watch(net, rank=0 if way == "one rank" else rank):
        for step in range(2):
            net(torch.full((2, 4), 1.0 + step))
            if way == "killed":
                os._exit(0)
            if way == "raises":
                raise ArithmeticError("no")

if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
"""
TEST = """
import multiprocessing, os, subprocess, sys
import pytest
from child import main

@pytest.mark.npu_dump(scene="modules")
def test_ranks():
    way = os.environ.get("WAY", "")
    if os.environ.get("START") == "launcher":
        subprocess.run([sys.executable, "launcher.py", way])
        return
    if os.environ.get("START") == "program":
        for rank in range(2):
            subprocess.run([sys.executable, "child.py", str(rank), way])
        return
    if os.environ.get("START") == "unnumbered":
        os.system(f"{sys.executable} child.py 0 '{way}'")
        if not os.fork():
            main(1, way)
            os._exit(0)
        os.wait()
        return
    context = multiprocessing.get_context(os.environ["START"])
    context.set_forkserver_preload(["child"])  # torch once, for all that the server forks
    for rank in (0, 1, 0) if way == "again" else range(2):
        child = context.Process(target=main, args=(rank, way))
        child.start()
        child.join()
"""


LAUNCHER = """
import multiprocessing, os, sys
from child import main

if os.environ.pop("TELLS", ""):
    os.environ["LOCAL_WORLD_SIZE"] = "2"
for rank in range(2):
    process = multiprocessing.get_context("fork").Process(target=main, args=(rank, sys.argv[1]))
    process.start()
    process.join()
"""


def test_ranks_of_other_processes_are_one_dump(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.makepyfile(child=CHILD, launcher=LAUNCHER, test_ranks=TEST)
    pytester.makeini("[pytest]\nfilterwarnings = ignore\npythonpath = .")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(pytester.path), *sys.path]))
    monkeypatch.setenv("START", "fork")  # the others import torch, which takes seconds
    recorded = pytester.runpytest_inprocess("--npudump-update-golden")
    recorded.assert_outcomes(passed=1)
    recorded.stdout.no_fnmatch_line("*other processes*")
    golden = (pytester.path / "golden/test_ranks/test_ranks.yaml").read_text()
    assert "  linear#rank=0 float32 " in golden
    assert "  linear#rank=1,step=1 float32 " in golden
    cases = [
        ("spawn", "", {"passed": 1}, "*12 of 12 tensors compared*"),
        ("forkserver", "", {"passed": 1}, "*12 of 12 tensors compared*"),
        ("forkserver", "fault 1", {"failed": 1}, "second run: reproduced*"),  # the server is an older run's
        ("program", "", {"passed": 1}, "*12 of 12 tensors compared*"),
        ("fork", "fault 1", {"failed": 1}, "npudump: *linear#rank=1*"),
        ("fork", "killed", {"failed": 1}, "*rank 0: Net began in another process and did not end*"),
        ("fork", "raises", {"failed": 1}, "*rank 0: Net: ArithmeticError('no')*"),
        (
            "fork",
            "one rank",
            {"failed": 1},
            "*rank 0 of Net is another process of this test, running or ended*",
        ),
        ("fork", "again", {"failed": 1}, "*npudump: rank 0: watch(): rank 0 of Net is another process*"),
        ("fork", "blind", {"failed": 1}, "*other processes ran during the test (ForkProcess)*"),
        ("launcher", "", {"passed": 1}, f"*other processes ran during the test ({PROGRAM})*"),
        ("launcher", "blind 1", {"failed": 1}, f"*other processes ran during the test ({PROGRAM})*"),
        ("program", "blind", {"failed": 1}, f"*other processes ran during the test ({PROGRAM})*"),
        ("unnumbered", "", {"passed": 1}, "*12 of 12 tensors compared*"),
        (
            "unnumbered",
            "blind 1",
            {"failed": 1},
            f"*other processes ran during the test (os.fork(), {PROGRAM}): *inside watch(model)*",
        ),
    ]
    for start, way, outcomes, words in cases:
        monkeypatch.setenv("START", start)
        monkeypatch.setenv("WAY", way)
        done = pytester.runpytest_inprocess("-rA")
        done.assert_outcomes(**outcomes)
        done.stdout.fnmatch_lines([words])
        if not way and start != "launcher":  # which may have started more than have answered
            done.stdout.no_fnmatch_line("*other processes*")
    monkeypatch.setenv("START", "launcher")
    monkeypatch.setenv("WAY", "")
    monkeypatch.setenv("TELLS", "1")
    done = pytester.runpytest_inprocess("-rA")
    done.assert_outcomes(passed=1)
    done.stdout.no_fnmatch_line("*other processes*")


def test_without_a_test_nothing_is_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    for value in ("", "/gone/modules.json"):
        monkeypatch.setenv("NPUDUMP_WORKERS", value)
        with watch(torch.nn.Linear(1, 1)) as capture:
            assert capture is None
