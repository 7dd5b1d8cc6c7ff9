"""Projects that run the real MindSpore on the CPU, each in a pytest of its own process."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import yaml

NETS = '''
import os

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops

X = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)


class Small(nn.Cell):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Dense(4, 3)
        self.fc2 = nn.Dense(3, 2)
        self.relu = nn.ReLU()

    def construct(self, x):
        return self.fc2(self.relu(self.fc1(x)))


class Other(nn.Cell):
    def __init__(self):
        super().__init__()
        self.fc3 = nn.Dense(4, 3)
        self.relu = nn.ReLU()

    def construct(self, x):
        return self.relu(self.fc3(x))


class Loop(nn.Cell):
    def __init__(self):
        super().__init__()
        self.fc = nn.Dense(4, 4)
        self.relu = nn.ReLU()

    def construct(self, x, turns):
        while turns > 0:
            x = self.relu(self.fc(x))
            turns = turns - 1
        return x


class Half(nn.Cell):
    def construct(self, x):
        half = ops.cast(x, ms.bfloat16)
        return ops.cast(half + half, ms.float32)


class Residual(nn.Cell):
    def __init__(self, channels):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3)
        self.bn2 = nn.BatchNorm2d(channels)
        self.relu = nn.ReLU()

    def construct(self, x):
        y = self.relu(self.bn1(self.conv1(x)))
        return self.relu(self.bn2(self.conv2(y)) + x)


class ResNet(nn.Cell):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 3)
        self.blocks = nn.SequentialCell(Residual(4), Residual(4))
        self.fc = nn.Dense(4, 3)

    def construct(self, x):
        return self.fc(ops.mean(self.blocks(self.stem(x)), (2, 3)))


class Encoder(nn.Cell):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Dense(4, 12)
        self.norm = nn.LayerNorm((4,))
        self.up = nn.Dense(4, 8)
        self.gelu = nn.GELU()
        self.down = nn.Dense(8, 4)

    def construct(self, x):
        q, k, v = ops.split(self.qkv(x), 4, -1)
        y = self.norm(x + ops.bmm(ops.softmax(ops.bmm(q, k.swapaxes(1, 2))), v))
        return y + self.down(self.gelu(self.up(y)))


class Recurrent(nn.Cell):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(4)
        self.lstm = nn.LSTM(4, 3)
        self.drop = nn.Dropout(p=0.5)

    def construct(self, x):
        y, _ = self.lstm(self.norm(x).reshape(1, 2, 4))
        return self.drop(y)


IMAGE = Tensor(np.random.default_rng(5).normal(size=(2, 3, 6, 6)).astype(np.float32))
WORDS = Tensor(np.random.default_rng(6).normal(size=(1, 5, 4)).astype(np.float32))


def filled(net):
    """Give a net weights that are the same in every process, but for what the variable CHANGE says."""
    name, _, change = os.environ.get("CHANGE", "").partition("=")
    rng = np.random.default_rng(3)
    for parameter in net.trainable_params():
        values = rng.normal(scale=0.5, size=parameter.shape).astype(np.float32)
        if parameter.name == name:
            values.flat[1] += np.float32(change)
        parameter.set_data(Tensor(values))
    return net
'''
HEADER = """
import pytest
from nets import *


@pytest.fixture(autouse=True)
def graph_mode():
    ms.set_context(mode=ms.GRAPH_MODE)


"""


@dataclass(frozen=True)
class Project:
    """A folder with nets and tests, whose sessions run MindSpore."""

    pytester: pytest.Pytester

    @property
    def path(self) -> Path:
        return self.pytester.path

    def tests(self, source: str) -> None:
        self.path.joinpath("test_net.py").write_text(HEADER + dedent(source), encoding="utf-8")

    def run(self, *options: str, change: str = "") -> pytest.RunResult:
        os.environ["CHANGE"] = change
        return self.pytester.runpytest_subprocess("--npudump-runtime=mindspore", *options)

    def record(self, *options: str, **outcomes: int) -> None:
        result = self.run("--npudump-update-golden", *options)
        result.assert_outcomes(**(outcomes or {"passed": 1}))

    def unwritten(self, test: str) -> dict[str, dict[str, str]]:
        """Return what a golden says nothing wrote: tensors and a word for each, by layer."""
        text = self.path.joinpath("golden", "test_net", f"{test}.yaml").read_text(encoding="utf-8")
        found: dict[str, dict[str, str]] = yaml.safe_load(text).get("unwritten", {})
        return found

    def golden(self, test: str) -> list[str]:
        """Return the lines of a golden's table."""
        text = self.path.joinpath("golden", "test_net", f"{test}.yaml").read_text(encoding="utf-8")
        table: str = yaml.safe_load(text)["tensors"]
        return table.splitlines()

    def report(self) -> dict[str, Any]:
        """Return the one report.json that failing tests left below ``dumps``."""
        (path,) = self.path.joinpath("dumps").rglob("report.json")
        data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return data

    def failing(self) -> list[str]:
        """Return the layers that the one report.json says fail."""
        verdicts = self.report()["comparison"]["verdicts"]
        return [verdict["layer"] for verdict in verdicts if verdict["status"] != "pass"]

    def files(self, run: str) -> list[str]:
        """Return the operators, or parameters, that a run's dump has files of."""
        paths = self.path.joinpath("dumps").glob(f"*/{run}/dump/rank_0/net/**/*.npy")
        return sorted(path.name.split(".")[1] for path in paths)


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A project with nets and no test yet; skipped without MindSpore, unless that is to be a failure."""
    if importlib.util.find_spec("mindspore") is None:
        if os.environ.get("NPUDUMP_TEST_MINDSPORE") == "1":
            pytest.fail("NPUDUMP_TEST_MINDSPORE=1, and mindspore cannot be imported")
        pytest.skip("mindspore is not installed")
    for name in ("CHANGE", "MINDSPORE_DUMP_CONFIG", "MS_DIAGNOSTIC_DATA_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CHANGE", "")
    # Processes that are forked would have read MALLOC_PERTURB_ long before it is set.
    monkeypatch.setattr(pytester, "_getpytestargs", lambda: (sys.executable, "-mpytest"))
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p no:asyncio -p no:pytest-retry -p no:hypothesispytest")
    pytester.makeini(
        "[pytest]\naddopts = --strict-markers --strict-config -p no:cacheprovider\n"
        "npudump_output = .\nfilterwarnings = error\n"
    )
    pytester.path.joinpath("nets.py").write_text(NETS, encoding="utf-8")
    return Project(pytester)
