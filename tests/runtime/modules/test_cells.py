"""Cells of MindSpore in one process: of a stand-in, and of the real one where it is installed."""

from __future__ import annotations

import json
import math
import os
import sys
import threading
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import ml_dtypes
import numpy as np
import pytest

from pytest_npudump.dump.reader import read_dump
from pytest_npudump.dump.stats.projections import project
from pytest_npudump.dump.stats.tensor import tensor_stats
from pytest_npudump.errors import RequestError
from pytest_npudump.runtime.modules import capture_of
from pytest_npudump.runtime.modules.adapter import parameter_lines
from pytest_npudump.runtime.modules.cells import reduced
from pytest_npudump.runtime.modules.statistics import Value, decoded
from pytest_npudump.runtime.modules.worker import WORKERS, answers, watch

REAL = find_spec("mindspore") is not None or os.environ.get("NPUDUMP_TEST_MINDSPORE") == "1"
X = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)
pytestmark = pytest.mark.filterwarnings("ignore")  # of MindSpore, within itself


class Tensor:
    """What a capture uses of a tensor."""

    device = "CPU"

    def __init__(self, array: Any) -> None:
        self.array = np.array(array)
        self.shape, self.itemsize = self.array.shape, self.array.itemsize
        self.dtype = self.array.dtype.name.capitalize()

    def asnumpy(self) -> Any:
        return self.array

    def __getitem__(self, place: Any) -> Tensor:
        return Tensor(self.array[place])

    def __len__(self) -> int:
        return len(self.array)


class Cell:
    def __init__(self) -> None:
        self._cells: dict[str, Any] = {}

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)
        if isinstance(value, Cell):
            self._cells[name] = value

    def __call__(self, *given: Any, **named: Any) -> Any:
        return self.construct(*given, **named)

    def construct(self, *_: Any) -> Any:
        raise AttributeError


class CellList(Cell):
    def __init__(self, cells: Any) -> None:
        super().__init__()
        self._cells = {str(at): cell for at, cell in enumerate(cells)}

    def construct(self, *_: Any) -> Any:
        raise NotImplementedError


class ReLU(Cell):
    def construct(self, x: Any) -> Any:
        return relu(x)


class MsDispatchMode:
    stack: ClassVar[list[Any]] = []

    def __enter__(self) -> None:
        self.stack.append(self)

    def __exit__(self, *_: object) -> None:
        self.stack.pop()


class Function:
    """What a dispatch mode is told of."""

    name = "ReLU"

    def __call__(self, x: Any) -> Any:
        return Tensor(np.maximum(x.array, 0))


def relu(x: Any) -> Any:
    modes = MsDispatchMode.stack
    return modes[-1].__ms_dispatch__(Function(), (x,)) if modes else Function()(x)


class MindSpore(ModuleType):
    """What a capture uses of MindSpore 2.10.0."""

    __version__ = "2.10.0"
    GRAPH_MODE, PYNATIVE_MODE = 0, 1
    Tensor = Tensor
    nn = SimpleNamespace(Cell=Cell, CellList=CellList, ReLU=ReLU)
    ops = SimpleNamespace(relu=relu)
    utils = SimpleNamespace(MsDispatchMode=MsDispatchMode)

    def __init__(self) -> None:
        super().__init__("mindspore")
        self.context = {"mode": 1, "device_target": "CPU", "device_id": 0}

    def get_context(self, name: str) -> Any:
        return self.context[name]

    def set_context(self, *, mode: int) -> None:
        self.context["mode"] = mode


@pytest.fixture(params=["stand-in", *(["real"] if REAL else [])])
def ms(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    if request.param == "stand-in":
        monkeypatch.setitem(sys.modules, "mindspore", MindSpore())
        return sys.modules["mindspore"]
    mindspore = import_module("mindspore")
    mindspore.set_context(mode=mindspore.PYNATIVE_MODE)
    return mindspore


@pytest.fixture
def nets(ms: Any) -> Any:
    class Part(ms.nn.Cell):  # type: ignore[name-defined,misc]
        def __init__(self, layer: Any) -> None:
            super().__init__()
            self.layer = layer

        def construct(self, x: Any) -> Any:
            return ms.ops.relu(self.layer(x))

    class Mute(ms.nn.Cell):  # type: ignore[name-defined,misc]
        def construct(self, x: Any) -> str:
            return f"{len(x)} rows"

    class Net(ms.nn.Cell):  # type: ignore[name-defined,misc]
        """One layer in two places and in a list, and one that returns no tensor."""

        def __init__(self) -> None:
            super().__init__()
            self.layer = ms.nn.ReLU()
            self.left, self.right = Part(self.layer), Part(self.layer)
            self.parts, self.mute = ms.nn.CellList([Part(ms.nn.ReLU())]), Mute()

        def construct(self, x: Any, *, twice: bool = False) -> Any:
            self.mute(x)
            y = self.right(self.left(self.layer(x)))
            return {"y": y, "more": [self.layer(x) if twice else x, 3]}

    class Again(ms.nn.Cell):  # type: ignore[name-defined,misc]
        def construct(self, x: Any) -> Any:
            return self(x[1:]) if len(x) else x

    return SimpleNamespace(Part=Part, Net=Net, Again=Again)


def records(capture: Any) -> dict[str, Any]:
    return {str(record.key): record for record in read_dump(capture.folder).records}


OUTPUTS = ["layer:output.0", "left.layer:output.0", "left:output.0", "right.layer:output.0", "right:output.0"]


def test_cells_are_layers_by_path_told_apart_by_who_calls_them(ms: Any, nets: Any, tmp_path: Path) -> None:
    """One is called twice in a step, one never, and one gives no tensor."""
    net, looked = nets.Net(), []
    with capture_of(net, tmp_path) as capture:
        capture.look = lambda *given: looked.append(given)
        net(ms.Tensor(X))
        net(ms.Tensor(2 * X), twice=True)
    found = records(capture)
    assert [one[:2] for one in looked] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    more = [X, np.maximum(2 * X, 0)]
    assert [np.array_equal(one[2], more[one[0]]) for one in looked if not one[1]] == [True, True]
    assert all(one.stats.projections is not None for one in found.values())
    every = [*OUTPUTS, "Net:output.0", "Net:output.1"]
    second = [key.replace(":", "#step=1:") for key in every]
    second.insert(5, "layer#step=1,turn=1:output.0")
    assert sorted(found) == sorted([*every, *second])
    assert [*found][: len(every)] == every
    assert (capture.problems, capture.facts) == ([], {"mindspore": ms.__version__, "device": "cpu"})
    assert capture.notes[0] == "mute (Mute) returned str, in which no tensor was found: not recorded"
    assert "modules of Net not recorded: 2 of 9 (not called" in capture.notes[1]
    assert found["left.layer:output.0"].op_type == "ReLU"
    for key, values in (("left:output.0", np.maximum(X, 0)), ("Net:output.0", X)):
        assert found[key].stats.l2norm == pytest.approx(np.linalg.norm(values.astype(np.float64)), rel=1e-12)
        assert (found[key].dtype, found[key].shape, found[key].stats.min) == ("float32", (2, 4), values.min())
        assert found[key].stats.projections == pytest.approx(project(values), abs=1e-3)  # in few bits


def test_processes_watch_cells_by_rank(
    ms: Any, nets: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    net, config = nets.Net(), tmp_path / "modules.json"
    with watch(net) as capture:  # no test has asked
        assert capture is None
    asked = {"layers": ["left", "right"], "inputs": False, "tensors": False, "only": None}
    config.write_text(json.dumps({"dump_path": str(tmp_path / "dump"), "asked": asked}), "utf-8")
    monkeypatch.setenv(WORKERS, str(config))
    monkeypatch.delenv("RANK", raising=False)
    for rank in range(2):
        monkeypatch.setenv("RANK_ID", str(rank))  # as msrun does
        with watch(net) as capture:
            net(ms.Tensor((1 + rank) * X))
    assert [(one.name, one.problems) for one in answers(config)] == [("Net", [])] * 2
    found = {str(record.key): record.stats.max for record in read_dump(tmp_path / "dump").records}
    assert found == {
        f"{name}#rank={rank}:output.0": 1 + rank for rank in (0, 1) for name in ("left", "right")
    }


def test_operators_are_layers_below_the_cell_that_calls_them(ms: Any, nets: Any, tmp_path: Path) -> None:
    part, given = nets.Part(nets.Part(ms.nn.ReLU())), ms.Tensor(X)
    cases: list[tuple[dict[str, Any], list[str]]] = [
        ({}, ["layer.layer/ReLU", "layer.layer", "layer/ReLU", "layer", "Part/ReLU", "Part"]),
        ({"layers": ["layer"]}, ["layer/ReLU", "layer"]),
        ({"layers": ["layer.layer/*"]}, ["layer.layer/ReLU"]),
        ({"layers": ["layer.*"], "only": {"layer.layer/ReLU"}}, ["layer.layer/ReLU"]),
    ]
    for number, (asked, wanted) in enumerate(cases):
        with capture_of(part, tmp_path / str(number), operators=True, **asked) as capture:
            part(given)
        assert [*records(capture)] == [f"{name}:output.0" for name in wanted]
        assert (capture.problems, capture.notes) == ([], ())
    with capture_of(
        part, tmp_path / "i", operators=True, layers=["*/*"], inputs=True, tensors=True
    ) as capture:
        part(given)
    found = records(capture)
    assert [*found][:2] == ["layer.layer_ReLU:input.0", "layer.layer_ReLU:output.0"]
    assert np.load(found["layer_ReLU:output.0"].payload.path).tolist() == np.maximum(X, 0).tolist()


def test_captures_share_calls_and_leave_nothing_behind(ms: Any, nets: Any, tmp_path: Path) -> None:
    """Of a model and a part of it; in the order in which tests end them, which is that of their beginning."""
    before = ms.nn.Cell.__call__
    net = nets.Part(nets.Part(ms.nn.ReLU()))
    whole = capture_of(net, tmp_path / "whole", layers=["layer"], inputs=True)
    part = capture_of(net.layer, tmp_path / "part", tensors=True)
    for capture in (whole, part):
        capture.start()
    net(ms.Tensor(X))
    nets.Part(nets.Part(ms.nn.ReLU()))(ms.Tensor(X))  # another model
    for capture in (whole, part):
        capture.stop()
        capture.stop()
    assert [*records(whole)] == ["layer:input.0", "layer:output.0"]
    assert [*records(part)] == ["layer:output.0", "Part:output.0"]
    assert ms.nn.Cell.__call__ is before


def test_what_cannot_be_trusted_is_one_clear_problem(
    ms: Any, nets: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    net, again, given = nets.Net(), nets.Again(), ms.Tensor(X)

    def in_threads() -> None:
        net(given)
        thread = threading.Thread(target=net, args=(given,))
        thread.start()
        thread.join()

    def in_a_graph() -> None:
        ms.set_context(mode=ms.GRAPH_MODE)
        try:
            again(given) if isinstance(ms, MindSpore) else part(given)
        finally:
            ms.set_context(mode=ms.PYNATIVE_MODE)

    part = ms.nn.ReLU()
    cases: list[tuple[Any, Any, dict[str, Any], str]] = [
        (net, in_threads, {}, "called in another thread"),
        (again, lambda: again(given), {}, "Again was called during its own call"),
        (
            net,
            lambda: net(given),
            {"tensors": True, "limit": 100},
            "need 128 bytes, and there is room for 100",
        ),
        (
            again if isinstance(ms, MindSpore) else part,
            in_a_graph,
            {},
            "ran in GRAPH_MODE, which calls no cell",
        ),
    ]
    for number, (watched, call, asked, words) in enumerate(cases):
        with capture_of(watched, tmp_path / str(number), **asked) as capture:
            call()
        assert len(capture.problems) == 1
        assert words in capture.problems[0]
    for watched, asked, words in (
        (net, {"layers": ["lef"]}, "Net has no module 'lef'; did you mean 'left'"),
        (given, {}, "takes a torch.nn.Module or mindspore.nn.Cell, not Tensor"),
        (given, {"operators": True}, r"operators=True\) takes a mindspore.nn.Cell"),
    ):
        with pytest.raises(RequestError, match=words):
            capture_of(watched, tmp_path, **asked)
    monkeypatch.setattr(ms, "utils", None)
    with pytest.raises(RequestError, match=r"has no MsDispatchMode, which came with 2\.9"):
        capture_of(net, tmp_path, operators=True)


needs_real = pytest.mark.skipif(not REAL, reason="MindSpore is not installed")


def contents() -> Any:
    rng = np.random.default_rng(0)
    special = [math.nan, math.inf, -math.inf]
    for name in ("float16", "float32", "float64", "bfloat16"):
        yield name, rng.normal(size=(3, 5, 7)) * 3
        yield name, [1.5, 0, *special, -2]
        yield name, [math.nan] * 3
        yield name, np.zeros((0, 4))
        yield name, -0.0
    for name in ("int8", "uint8", "int16", "int32", "int64", "uint16", "uint32", "uint64"):
        limits = np.iinfo(name)
        yield name, np.array([limits.min, limits.max, 0, 1, 77, limits.max - 1], name)
    yield "bool", [True, False, True]
    yield "complex64", [1 + 2j, 0, complex(math.nan, 1), 3j]


@needs_real
@pytest.mark.parametrize("ms", ["real"], indirect=True)
@pytest.mark.parametrize("wide", [True, False])
def test_statistics_of_a_device_are_those_of_the_values(ms: Any, wide: Any) -> None:
    """What MindSpore's own CPU kernels know no type for has no row, and is fetched."""
    rows = 0
    for name, values in contents():
        dtype = getattr(ms, "bool_" if name == "bool" else name)
        array = np.asarray(values).astype(getattr(ml_dtypes, name, name))
        tensor = ms.Tensor(np.asarray(values, np.float32 if name == "bfloat16" else name), dtype)
        row = reduced(tensor, wide=wide)
        if row is None:
            assert name in {"uint64", "complex64"}
            continue
        rows += 1
        value = Value(0, 3, 0, name, array.shape, array.nbytes, array.size, wide)
        found, truth = decoded(row.tolist(), value), tensor_stats(array)
        exact = ("count", "nan", "neg_inf", "pos_inf", "zero") + (
            () if not wide and "64" in name else ("max", "min")
        )
        for field in exact:
            assert str(getattr(found, field)) == str(getattr(truth, field)), (name, field)
        scale = (truth.l2norm or 0.0) / math.sqrt(max(array.size, 1))
        for field in ("max", "min", "avg", "l2norm"):
            told, want = getattr(found, field), getattr(truth, field)
            if field == "l2norm" and not wide and scale > 1e18:
                continue  # the squares leave float32
            same = told == want or (math.isnan(told) and math.isnan(want))
            bound = 1e-12 if wide else 2e-6
            assert same or math.isclose(told, want, rel_tol=bound, abs_tol=bound * scale), (name, field)
    assert rows == 4 * 5 + 7 + 1


@needs_real
@pytest.mark.parametrize("ms", ["real"], indirect=True)
def test_the_real_one_alone(ms: Any, nets: Any, tmp_path: Path) -> None:
    """Types of its own, statistics as on a device, what jit compiled, gradients that compute cells again."""
    nn, given = ms.nn, ms.Tensor(X)

    class Cast(nn.Cell):  # type: ignore[name-defined,misc]
        def construct(self, x: Any) -> Any:
            return [x.astype(kind) for kind in (ms.bfloat16, ms.float16, ms.int64, ms.bool_)]

    cast = Cast()
    for tensors in (False, True):
        with capture_of(cast, tmp_path / f"cast{tensors}", tensors=tensors) as capture:
            cast(given)
        found = [*records(capture).values()]
        assert [one.dtype for one in found] == ["bfloat16", "float16", "int64", "bool"]
        assert tensors or all(one.stats.projections for one in found)
        assert found[0].stats.min == -1

    class Jitted(nn.Cell):  # type: ignore[name-defined,misc]
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.outer = nn.Dense(4, 4), nets.Part(nn.Dense(4, 4))
            self.outer.recompute()
            self.whole = ms.jit(self.inside)

        def inside(self, x: Any) -> Any:
            return self.inner(x)

        def construct(self, x: Any) -> Any:
            return self.outer(self.whole(x)).sum()

    net = Jitted()
    found = []
    for on_host in (True, False):
        with capture_of(net, tmp_path / f"host{on_host}", on_host=on_host) as capture:
            ms.value_and_grad(net, None, net.trainable_params())(given)
        assert capture.problems == []
        assert "calls in a backward pass (checkpoints) are not recorded" in capture.notes[0]
        assert "modules of Jitted not recorded: 1 of 4" in capture.notes[1]
        found.append(records(capture))
    host, device = found
    digests = parameter_lines("net", net)
    assert [layer in digests for layer in ("inner", "outer.layer")] == [True, True]
    assert [*host] == [*device] == ["outer.layer:output.0", "outer:output.0", "Jitted:output.0"]
    for key, record in host.items():
        assert math.isclose(record.stats.l2norm, device[key].stats.l2norm, rel_tol=1e-12), key
