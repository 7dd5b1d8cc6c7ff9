"""Projects under test: a small ONNX model, a test with the marker, and a pytest that runs them."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib
import json
import os
import pkgutil
import runpy
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from pytest_npudump.cli import main
from pytest_npudump.emulator import install
from pytest_npudump.plugin.features.isolation import server
from pytest_npudump.runtime.emulator import EmulatorFinder
from tests.onnxmodels.models import onnx_model

# Loaded here once: what a session within a test imports first, its end unloads again.
for _name in ("_pytest.stepwise", "filelock", "onnxruntime", "rich.console"):
    importlib.import_module(_name)
for _room in ("emulator", "plugin", "explain", "regression", "report", "results", "runtime"):
    _package = importlib.import_module(f"pytest_npudump.{_room}")
    for _module in pkgutil.walk_packages(_package.__path__, f"{_package.__name__}."):
        with contextlib.suppress(ImportError):  # of what is not installed
            _module.name.endswith("_script") or importlib.import_module(_module.name)

TESTS = Path(__file__).parents[1]
LAYERS = ("block/conv.1", "block/relu.1", "block/conv.2", "head/softmax")


@functools.cache
def small_model(
    *, change: float = 0.0, without: str = "", nan: bool = False, extra: bool = False, named: str = LAYERS[2]
) -> bytes:
    """Conv, Relu, Conv, Softmax with names that files cannot carry; ``change`` goes into the second Conv."""
    rng = np.random.default_rng(3)
    first = rng.normal(size=(4, 1, 3, 3)).astype(np.float32)
    second = rng.normal(scale=0.1, size=(2, 4, 3, 3)).astype(np.float32)
    second[0] += np.float32(change)
    if nan:
        second[0, 0, 0, 0] = np.nan
    nodes = [
        helper.make_node("Conv", ["image", "w1"], ["a"], name=LAYERS[0]),
        helper.make_node("Relu", ["a"], ["b"], name=LAYERS[1]),
        helper.make_node("Conv", ["b", "w2"], ["c"], name=named),
        helper.make_node("Softmax", ["c"], ["out"], name=LAYERS[3], axis=1),
    ]
    if without:
        nodes = [node for node in nodes if node.name != without]
        nodes[1].input[0] = "a"
    if extra:
        nodes[3].input[0] = "d"
        nodes.insert(3, helper.make_node("Neg", ["c"], ["d"], name="block/neg"))
    model = onnx_model(nodes, {"image": [1, 1, 8, 8]}, {"out": [1, 2, 4, 4]}, {"w1": first, "w2": second})
    onnx.checker.check_model(model)
    return model.SerializeToString()


BODY = """
    image = np.linspace(-1, 1, 64, dtype=np.float32).reshape(1, 1, 8, 8)
    with npu_dump.load_model("small.onnx") as model:
        model.run(image)
"""
WAVERING = """
import itertools
COUNT = itertools.count()

@pytest.mark.npu_dump
def test_small(npu_dump):
    run(npu_dump, path=("small.onnx", "wavered.onnx")[next(COUNT) % 2])
"""
HEADER = """
import numpy as np
import pytest

IMAGE = np.linspace(-1, 1, 64, dtype=np.float32).reshape(1, 1, 8, 8)

def run(npu_dump, image=IMAGE, path="small.onnx"):
    with npu_dump.load_model(path) as model:
        return model.run(image)

"""
APPLICATION = """
import json, os, sys
START = (
    "import sys, runpy; from pytest_npudump.emulator.install import install; install(); "
    "sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')"
)
CLIENT = json.loads(os.environ["CLIENT"])
ARGUMENTS = ["classify.py", "small.om", "image.npy", "result.npy"]
COMMAND = [*CLIENT, "-c", START, *ARGUMENTS]
"""
"""Begin of tests that run ``data/emulator/classify.py`` by ``COMMAND``: see the fixture ``classify``."""
RECORDINGS: dict[bytes, dict[str, bytes]] = {}
"""What recordings have written, by a digest of the project's files, the options and the variables."""
OF_A_TEST = {"PYTEST_CURRENT_TEST", "PYTEST_DEBUG_TEMPROOT", "HOME", "USERPROFILE"}
"""Variables that are others in each test."""
ALONE = ("-p", "no:xdist", "-p", "no:xdist.looponfail", "-p", "no:rerunfailures")
"""Plugins that a session does without whose options do not ask for them: it starts faster."""


def held(
    result: pytest.RunResult,
    shows: str | Sequence[str] = (),
    hides: str | Sequence[str] = (),
    **outcomes: int,
) -> pytest.RunResult:
    """Hold a session's outcomes, lines in order and what is none of its lines against these."""
    if outcomes:
        result.assert_outcomes(**outcomes)
    if shows:
        result.stdout.fnmatch_lines([shows] if isinstance(shows, str) else shows)
    for line in [hides] if isinstance(hides, str) else hides:
        result.stdout.no_fnmatch_line(line)
    return result


def wait_for(condition: Callable[[], object]) -> None:
    until = time.monotonic() + 100
    while not condition():
        assert time.monotonic() < until, condition
        time.sleep(0.02)


def is_gone(process: int) -> bool:
    """Whether a process has ended, whoever has yet to ask for it."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


@dataclass(frozen=True)
class Project:
    """A folder with a model, tests and goldens.

    Attributes:
        patch, unpatched: the test's monkeypatch, and what it had set when the test began.
        fixture: returns a fixture by its name.
    """

    pytester: pytest.Pytester
    patch: pytest.MonkeyPatch
    unpatched: list[Any]
    fixture: Callable[[str], Any]

    @property
    def path(self) -> Path:
        return self.pytester.path

    @property
    def body(self) -> str:
        """Body of a test that runs the model once, to which lines can be added."""
        return BODY

    def test_file(self, source: str, name: str = "test_small.py") -> None:
        self.path.joinpath(name).write_text(dedent(HEADER) + dedent(source), encoding="utf-8")

    def marked(self, marker: str = "", body: str = BODY) -> None:
        """Write one test, ``test_small``, with the marker's arguments ``marker``."""
        self.test_file(f"@pytest.mark.npu_dump({marker})\ndef test_small(npu_dump):\n{body}")

    def wavering(self, step: float, when: str = "next(COUNT) % 2") -> None:
        """Write a test whose second Conv is off by ``step`` in its weights in some runs: every second one."""
        self.path.joinpath("wavered.onnx").write_bytes(small_model(change=step))
        self.test_file(WAVERING.replace("next(COUNT) % 2", when))

    def model(self, **changes: object) -> None:
        self.path.joinpath("small.onnx").write_bytes(small_model(**changes))  # type: ignore[arg-type]

    def overflowing(self) -> str:
        """Write a model that overflows, and return the body of a test that runs it."""
        square = helper.make_node("Mul", ["x", "x"], ["y"], name="square")
        model = onnx_model([square], {"x": [2]}, {"y": [2]}, kind=TensorProto.FLOAT16, name="square")
        onnx.save(model, str(self.path / "square.onnx"))
        return (
            '    with npu_dump.load_model("square.onnx") as model:\n'
            "        model.run(np.full(2, 300, np.float16))\n"
        )

    def run(
        self, *options: str, shows: str | Sequence[str] = (), hides: str | Sequence[str] = (), **outcomes: int
    ) -> pytest.RunResult:
        """Run pytest; hold its outcomes, lines and what is none of its lines against these."""
        asked = any(word.startswith(("-n", "--dist", "--reruns", "xdist")) for word in options)
        session = ("--npudump-runtime=emulator", *(() if asked else ALONE), *options)
        return held(self.pytester.runpytest_inprocess(*session), shows, hides, **outcomes)

    def refused(self, words: str, *options: str) -> None:
        """Run pytest, which ends with a usage error and a line of these words."""
        result = self.run(*options)
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        result.stderr.fnmatch_lines([words])

    def command(self, *words: str) -> tuple[int, str, str]:
        """Run ``npudump``; return its exit code, and what it prints as output and as errors."""
        capsys: pytest.CaptureFixture[str] = self.fixture("capsys")
        capsys.readouterr()
        code = main(words)
        return code, *capsys.readouterr()

    def record(self, *options: str) -> None:
        """Write the goldens of the tests that are there.

        What a recording leaves is copied where one has been made of the same files before, by the same
        variables: not where the test has set attributes, nor what names its folder or lacks a file.
        """
        before, patched = self._files(), self.patch._setattr != self.unpatched
        variables = {name: value for name, value in os.environ.items() if name not in OF_A_TEST}
        key = hashlib.sha256(repr((before, options, variables)).encode()).digest()
        if not patched and key in RECORDINGS:
            for name, content in RECORDINGS[key].items():
                path = self.path / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
            return
        result = self.run("--npudump-update-golden", *options)
        assert result.ret == 0, result.stdout.str()
        after = self._files()
        left = {name: content for name, content in after.items() if before.get(name) != content}
        here = str(self.path).encode()
        if not patched and before.keys() <= after.keys() and not any(here in one for one in left.values()):
            RECORDINGS[key] = left

    def recorded(self, marker: str = "", body: str = BODY, **changes: object) -> None:
        """Write ``test_small`` with its golden; then change the model."""
        self.marked(marker, body)
        self.record()
        if changes:
            self.model(**changes)

    def _files(self) -> dict[str, bytes]:
        paths = [path for path in sorted(self.path.rglob("*")) if path.is_file() and path.suffix != ".pyc"]
        return {path.relative_to(self.path).as_posix(): path.read_bytes() for path in paths}

    @property
    def golden(self) -> Path:
        (path,) = self.path.joinpath("golden").rglob("*.yaml")
        return path

    def report(self) -> dict[str, object]:
        """Return the one report.json that failing tests left below ``dumps``."""
        (path,) = self.path.joinpath("dumps").rglob("report.json")
        data: dict[str, object] = json.loads(path.read_text(encoding="utf-8"))
        return data


@pytest.fixture
def _no_acl(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Give the test a process in which nothing has imported or initialised ``acl``."""
    monkeypatch.setattr(sys, "meta_path", [f for f in sys.meta_path if not isinstance(f, EmulatorFinder)])
    install.uninstall()
    install.reset()
    for name in [name for name in sys.modules if name == "acl" or name.startswith("acl.")]:
        monkeypatch.delitem(sys.modules, name)  # pytester puts back what this session had imported
    yield
    install.uninstall()
    install.reset()


PREPARED = """
import json, os, tempfile
def run_task(file, descriptor, run=server.run_task):
    os.environ.clear()
    os.environ.update(json.loads(file.with_suffix(".environ").read_text()))
    tempfile.tempdir = None
    run(file, descriptor)
server.run_task = run_task
"""


class PreparedServer(server.ServerProcess):
    """Forks the children of all sessions; hands each the variables of its session."""

    warm: Callable[[], Any]

    def __init__(self) -> None:
        super().__init__()
        self._modules = []  # of which the tests' process has more than a session's

    def learn(self, modules: Iterable[str]) -> None:
        """Have nothing more imported than what ``warm.py`` names."""

    def is_ready(self, cwd: Path) -> bool:
        """Whether it lives; it is started where it does not."""
        del cwd
        if self._process is not None and self._process.poll() is None:
            return True
        self.close()
        begin_server = runpy.run_path(str(TESTS / "data/warm.py"))["begin_server"]
        self._process, self._connection = begin_server(str(self.warm().socket), PREPARED)
        return self._prepare()

    def run(self, task: Path, *where: Any) -> int:
        """Leave the variables beside the task."""
        task.with_suffix(".environ").write_text(json.dumps(dict(os.environ)))
        return super().run(task, *where)


@pytest.fixture
def classify(project: Project, warm: Any, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A project with an application, in a process that is forked, which calls ``acl.init("acl.json")``."""
    shutil.copy(TESTS / "data/emulator/classify.py", project.path)
    image = np.linspace(-1, 1, 64, dtype=np.float32).reshape(1, 1, 8, 8)
    np.save(project.path / "image.npy", image)
    monkeypatch.setenv("CLIENT", json.dumps(warm.client))
    return project


@pytest.fixture(scope="session")
def prepared() -> Iterator[PreparedServer]:
    children = PreparedServer()
    yield children
    children.close()


@pytest.fixture
def anew() -> None:
    """Have the processes of the test's sessions started as they are for everybody."""


class Interrupts:
    """Stands for pytester's record of the calls of all hooks, of which it needs this one's."""

    def __init__(self, manager: pytest.PytestPluginManager) -> None:
        self._calls: list[SimpleNamespace] = []
        manager.register(self)

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        self._calls.append(SimpleNamespace(excinfo=excinfo))

    def getcalls(self, _: str) -> list[SimpleNamespace]:
        return self._calls


@pytest.fixture
def project(
    pytester: pytest.Pytester,
    _no_acl: None,
    prepared: PreparedServer,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> Project:
    """A project with the unchanged model and no test yet."""
    if "anew" not in request.fixturenames:
        prepared.warm = lambda: request.getfixturevalue("warm")
        monkeypatch.setattr(server.ServerProcess, "of", lambda config: prepared)  # noqa: ARG005
    monkeypatch.setattr(pytester, "make_hook_recorder", Interrupts)
    project = Project(pytester, monkeypatch, [*monkeypatch._setattr], request.getfixturevalue)
    pytester.makeini("[pytest]\naddopts = --strict-markers --strict-config -p no:cacheprovider\n")
    project.model()
    return project
