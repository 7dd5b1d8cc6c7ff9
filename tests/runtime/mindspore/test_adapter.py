"""The MindSpore adapter over a stand-in; ``tests/mindspore`` has the real one."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pytest_npudump.errors import ConfigError, MissingExtraError, RuntimeUnavailableError
from pytest_npudump.onnxmodels.variation import PLAIN, Variation
from pytest_npudump.request import DumpRequest, RunRequest
from pytest_npudump.runtime import mindspore as provider, pyacl
from pytest_npudump.runtime.mindspore.adapter import MindSporeActivity, MindSporeRuntime, VariedCells
from pytest_npudump.runtime.registry import Choice, choose, load

VARIABLES = ("MINDSPORE_DUMP_CONFIG", "MS_ACL_DUMP_CFG_PATH")
ORDER = "execution_order/ms_execution_order_graph_0.csv"
RUNS = "execution_order/ms_global_execution_order_graph_0.csv"


class MindSpore(ModuleType):
    """What the adapter uses of MindSpore 2.10.0."""

    def __init__(self, target: str = "CPU") -> None:
        super().__init__("mindspore")
        self.__version__ = "2.10.0"
        self.target = target
        self.calls: list[tuple[object, ...]] = []
        self._c_expression = SimpleNamespace(synchronize=lambda: self.calls.append(("synchronize",)))
        self.hal = SimpleNamespace(get_device_name=lambda device: f"Ascend910B{device}")
        self.nn = SimpleNamespace(GraphCell=lambda graph: graph)

    def get_context(self, name: str) -> str:
        assert name == "device_target"
        return self.target

    def set_device(self, target: str, device: int) -> None:
        self.calls.append(("set_device", target, device))

    def load(self, path: str) -> Callable[..., Any]:
        if Path(path).read_bytes() != b"mindir":
            raise RuntimeError("Load MindIR failed,\n   a lot of words")
        return lambda *tensors: tuple(SimpleNamespace(asnumpy=lambda t=t: t * 2) for t in tensors)

    def Tensor(self, array: np.ndarray) -> np.ndarray:  # noqa: N802 - MindSpore's own name
        return array


@pytest.fixture(autouse=True)
def _unused_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(MindSporeRuntime, "_read", [])
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for name in ("mindspore", "mindspore.graph.api", "mindspore.common.api"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield
    assert not any(name in os.environ for name in VARIABLES)


@pytest.fixture
def dump_path(tmp_path: Path) -> Path:
    path = tmp_path / "dump"
    path.mkdir()
    return path


@pytest.fixture
def mindspore() -> MindSpore:
    return MindSpore()


@pytest.fixture
def runtime(mindspore: MindSpore) -> MindSporeRuntime:
    return MindSporeRuntime(mindspore)


def started(runtime: MindSporeRuntime, dump_path: Path, **request: Any) -> Path:
    config = dump_path.parent / runtime.config_name
    runtime.write_config(config, RunRequest(DumpRequest(**request), dump_path))
    runtime.start(config)
    return config


def leave(
    dump_path: Path, *names: str, text: str = "NodeExecutionOrder-FullNameWithScope\nDefault/a-op0\n"
) -> None:
    """Leave what MindSpore leaves beside its tensors."""
    for name in (".dump_metadata/data_dump.json", *names):
        path = dump_path / "rank_0" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_the_variable_names_the_configuration_between_start_and_stop(
    mindspore: MindSpore, runtime: MindSporeRuntime, dump_path: Path
) -> None:
    config = started(runtime, dump_path)
    assert os.environ["MINDSPORE_DUMP_CONFIG"] == str(config)
    assert json.loads(config.read_text())["common_dump_settings"]["path"] == str(dump_path)
    runtime.release()
    runtime.hand_over("python train.py", (Path("net.mindir"),))
    assert os.environ["MINDSPORE_DUMP_CONFIG"] == str(config)
    assert (runtime.activity.released, runtime.activity.programs) == (False, ("python train.py",))
    assert mindspore.calls == []
    for end in (runtime.stop, runtime.stop, runtime.close):
        end()
        assert mindspore.calls == [("synchronize",)]


def test_variables_of_the_user_are_put_aside_and_put_back(
    runtime: MindSporeRuntime, dump_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in VARIABLES:
        monkeypatch.setenv(name, "/theirs.json")
    started(runtime, dump_path)
    assert "MS_ACL_DUMP_CFG_PATH" not in os.environ
    runtime.stop()
    assert [os.environ.pop(name) for name in VARIABLES] == ["/theirs.json"] * 2


def test_single_operators_are_dumped_by_an_acl_json(dump_path: Path) -> None:
    runtime = MindSporeRuntime(MindSpore("Ascend"))
    config = started(runtime, dump_path, scene="op")
    assert os.environ["MS_ACL_DUMP_CFG_PATH"] == str(config)
    assert "MINDSPORE_DUMP_CONFIG" not in os.environ
    section = json.loads(config.read_text())["dump"]
    assert (section["dump_op_switch"], section["dump_data"]) == ("on", "tensor")
    runtime.stop()
    assert "no aclop kernel ran on Ascend" in runtime.activity.likely_cause


def test_a_request_the_device_cannot_do_writes_no_file(runtime: MindSporeRuntime, dump_path: Path) -> None:
    config, request = dump_path.parent / "data_dump.json", DumpRequest(dump_data="stats")
    with pytest.raises(ConfigError, match="MindSpore writes no statistics on CPU"):
        runtime.write_config(config, RunRequest(request, dump_path))
    assert not config.exists()
    ascend = MindSporeRuntime(MindSpore("Ascend"))
    for asked, saved in (((), "statistic"), (((), "tensor"), "tensor")):
        ascend.write_config(config, RunRequest(request, dump_path, *asked))
        assert json.loads(config.read_text())["common_dump_settings"]["saved_data"] == saved


def test_a_process_that_compiled_nothing_may_go_on_and_one_that_read_a_configuration_gets_no_other(
    mindspore: MindSpore, runtime: MindSporeRuntime, dump_path: Path
) -> None:
    config = started(runtime, dump_path)
    runtime.stop()
    assert "compiled no graph" in runtime.activity.likely_cause
    with pytest.raises(RuntimeUnavailableError, match=r"npu_dump\.capture\(\): .* make it two tests"):
        runtime.start(config, resumed=True)
    runtime.start(config)
    assert os.environ["MINDSPORE_DUMP_CONFIG"] == str(config)
    leave(dump_path)
    runtime.stop()
    assert mindspore.calls == [("synchronize",)] * 2
    for other in (runtime, MindSporeRuntime(MindSpore())):
        with pytest.raises(RuntimeUnavailableError, match=r"never reads another.*isolation='process'"):
            other.start(config)


@pytest.mark.parametrize("name", ["mindspore.graph.api", "mindspore.common.api"])
@pytest.mark.parametrize("caches", [({"phase"}, {}), (set(), {1: set(), 2: {"phase"}})])
def test_a_graph_compiled_before_the_test_is_refused(
    runtime: MindSporeRuntime, dump_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, caches: Any
) -> None:
    compiler = SimpleNamespace(ms_compile_cache=caches[0], cells_compile_cache=caches[1])
    monkeypatch.setitem(sys.modules, name, compiler)
    with pytest.raises(RuntimeUnavailableError, match=r"compiled a graph in this process before.*isolation="):
        started(runtime, dump_path)
    compiler.ms_compile_cache, compiler.cells_compile_cache = set(), {1: set()}
    started(runtime, dump_path)
    runtime.stop()


def test_the_device_is_set_once_and_only_where_it_is_not_the_default(dump_path: Path) -> None:
    ascend = MindSpore("Ascend")
    runtime = MindSporeRuntime(ascend, device=3)
    config = started(runtime, dump_path)
    runtime.stop()
    runtime.start(config)
    runtime.stop()
    assert [call for call in ascend.calls if call[0] == "set_device"] == [("set_device", "Ascend", 3)]
    for mindspore, device in ((MindSpore("Ascend"), 0), (MindSpore("CPU"), 3)):
        runtime = MindSporeRuntime(mindspore, device=device)
        runtime.start(config)
        runtime.stop()
        assert mindspore.calls == [("synchronize",)]


def test_an_operator_that_failed_is_told_and_the_variable_is_gone(
    mindspore: MindSpore, runtime: MindSporeRuntime, dump_path: Path
) -> None:
    def fail() -> None:
        raise RuntimeError("Gather:\n  index 99")

    mindspore._c_expression.synchronize = fail
    started(runtime, dump_path)
    with pytest.raises(RuntimeUnavailableError, match="while the dump was on: Gather: index 99"):
        runtime.stop()


def test_versions_without_synchronize_are_waited_for_by_their_executor(
    mindspore: MindSpore, runtime: MindSporeRuntime, dump_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del mindspore._c_expression.synchronize
    config = started(runtime, dump_path)
    with pytest.raises(RuntimeUnavailableError, match="no known way to wait"):
        runtime.stop()
    executor = SimpleNamespace(sync=lambda: mindspore.calls.append(("sync",)))
    monkeypatch.setitem(sys.modules, "mindspore.common.api", SimpleNamespace(_pynative_executor=executor))
    runtime.start(config)
    runtime.stop()
    assert mindspore.calls == [("sync",)]


def test_producer_names_version_and_device(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = {"runtime": "mindspore", "mindspore": "2.10.0", "device_target": "CPU"}
    assert MindSporeRuntime(MindSpore()).producer() == cpu
    ascend = MindSporeRuntime(MindSpore("Ascend"), device=1).producer()
    assert ascend == {**cpu, "device_target": "Ascend", "soc": "Ascend910B1"}
    monkeypatch.setenv("HCCL_DETERMINISTIC", "true")
    assert MindSporeRuntime(MindSpore("Ascend"), device=1).producer()["hccl_deterministic"] == "true"
    assert MindSporeRuntime(MindSpore()).producer() == cpu


def test_a_mindir_file_is_a_session_and_nothing_else_is(runtime: MindSporeRuntime, tmp_path: Path) -> None:
    tmp_path.joinpath("net.mindir").write_bytes(b"mindir")
    tmp_path.joinpath("broken.mindir").write_bytes(b"else")
    with runtime.load_model(tmp_path / "net.mindir") as model:
        (output,) = model.run(np.ones(3, np.float32))
        np.testing.assert_array_equal(output, np.full(3, 2, np.float32))
    model.close()
    with pytest.raises(RuntimeUnavailableError, match=r"net\.mindir is closed"):
        model.run(np.ones(3, np.float32))
    assert runtime.activity.models == (tmp_path / "net.mindir",)
    for name, message in (
        ("net.om", r"loads \.mindir files only.*GRAPH_MODE.*--npudump-runtime=acl"),
        ("absent.mindir", "there is no file"),
        ("broken.mindir", "cannot load .*: Load MindIR failed, a lot of words"),
    ):
        with pytest.raises(RuntimeUnavailableError, match=message):
            runtime.load_model(tmp_path / name)


def test_cause_of_an_empty_dump_follows_what_mindspore_left(dump_path: Path) -> None:
    activity = MindSporeActivity(dump_path)
    assert "compiled no graph" in activity.likely_cause
    leave(dump_path)
    assert activity.initialised
    assert "compiled no graph" in activity.likely_cause
    leave(dump_path, ORDER)
    assert activity.likely_cause == "MindSpore compiled a graph which then never ran"
    activity.iteration = "7"
    assert "dump_step='7' selects none of its runs" in activity.likely_cause
    leave(dump_path, RUNS, text="0\n1\n")
    assert activity.executions == 2
    assert "wrote no tensor: look for its [ERROR] lines" in activity.likely_cause
    activity.kernels = ("Default/b-op0",)
    assert activity.likely_cause.endswith("MindSpore lists 1: Default/a-op0")


def test_cause_of_an_empty_dump_where_the_path_is_gone_or_lists_cannot_be_read(dump_path: Path) -> None:
    leave(dump_path, ORDER)
    dump_path.joinpath("rank_0", RUNS).mkdir()
    activity = MindSporeActivity(dump_path, kernels=("x",))
    assert activity.executions == 0
    assert activity.likely_cause == "MindSpore compiled a graph which then never ran"
    for gone in (MindSporeActivity(dump_path / "gone"), MindSporeActivity()):
        assert "cannot write to" in gone.likely_cause


def test_mindspore_is_chosen_only_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyacl, "probe_acl", lambda: (None, "no acl"))
    monkeypatch.setattr(provider, "find_spec", lambda _: None)
    assert choose("auto") == Choice("emulator", "--npudump-runtime=auto, no acl")
    with pytest.raises(MissingExtraError, match=r"pytest-npudump\[mindspore\]"):
        choose("mindspore")
    monkeypatch.setitem(sys.modules, "mindspore", MindSpore())
    assert choose("mindspore") == Choice("mindspore", "--npudump-runtime=mindspore")
    assert choose("mindspore").isolates("model")
    chosen = choose("auto")
    assert chosen.name == "emulator"
    assert chosen.why.endswith("tests import mindspore, which --npudump-runtime=mindspore dumps")
    monkeypatch.setattr(pyacl, "probe_acl", lambda: (object(), "8 devices answer"))
    assert choose("auto").why.endswith("which --npudump-runtime=mindspore dumps")
    assert choose("acl").why == "--npudump-runtime=acl, 8 devices answer"
    runtime = load(choose("mindspore"), 2)
    assert isinstance(runtime, MindSporeRuntime)
    assert (runtime.name, runtime.device) == ("mindspore", 2)


def test_mindspore_that_cannot_be_imported_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path.joinpath("mindspore.py").write_text("raise ImportError('libmindspore_core.so:\\n no such file')")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(RuntimeUnavailableError, match=r"cannot be imported: libmindspore_core\.so: no such"):
        provider.load("--npudump-runtime=mindspore", 0)


class Tensor:
    def __init__(self, values: np.ndarray, dtype: Any = None) -> None:
        self.values, self.dtype = values, dtype

    def asnumpy(self) -> np.ndarray:
        if self.dtype == "bfloat16":
            raise TypeError("no numpy for bfloat16")
        return self.values


class Parameter(Tensor):
    pass


class Cell:
    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self.construct(*arguments, **named)

    def construct(self, *arguments: Any, **named: Any) -> Any:
        return arguments, named


class GraphCell(Cell):
    def __call__(self, *arguments: Any) -> Any:
        return self.construct(*arguments)


class Outer(Cell):
    def construct(self, *arguments: Any, **named: Any) -> Any:
        return Cell()(*arguments, **named)


@pytest.fixture
def cells() -> Iterator[VariedCells]:
    nn = SimpleNamespace(Cell=Cell, GraphCell=GraphCell)
    found = VariedCells(SimpleNamespace(nn=nn, Tensor=Tensor, Parameter=Parameter))
    yield found
    found.vary(PLAIN)


IMAGE = np.linspace(0.1, 0.9, 100, dtype=np.float32)


@pytest.mark.parametrize("kind", [Cell, GraphCell, Outer])
def test_a_cell_is_fed_values_that_differ_by_a_step(cells: VariedCells, kind: type[Cell]) -> None:
    cells.vary(Variation(seed=2))
    given = Tensor(IMAGE.copy())
    (fed,), _ = kind()(given)
    assert 0 < np.abs(fed.values.view(np.int32) - IMAGE.view(np.int32)).max() <= 2
    np.testing.assert_array_equal(given.values, IMAGE)
    assert cells.varying.perturbed == {f"0 of {kind.__name__}"}


def test_only_tensors_of_floats_are_perturbed_and_others_named(cells: VariedCells) -> None:
    cells.vary(Variation(seed=2))
    ids, weight, half = Tensor(np.arange(3)), Parameter(IMAGE), Tensor(IMAGE, "bfloat16")
    arguments, named = Cell()(ids, weight, half, [Tensor(IMAGE)], 5, mask=Tensor(IMAGE))
    assert arguments[:3] == (ids, weight, half)
    assert (arguments[4], (named["mask"].values != IMAGE).any()) == (5, True)
    assert cells.varying.unperturbed == {"0 of Cell"}
    assert cells.varying.unreached == {"2 of Cell (no numpy for bfloat16)", "3 of Cell (list)"}
    assert cells.varying.perturbed == {"mask of Cell"}


def test_what_a_cell_is_fed_is_noted_where_a_device_may_be_waited_for(cells: VariedCells) -> None:
    for waits in (False, True):
        cells.vary(Variation(looks=True, waits=waits))
        for _ in range(2):
            assert Cell()(Tensor(IMAGE), mask=Tensor(np.arange(3)))[0][0].values is IMAGE
        noted = [(each.key.layer, each.key.step) for each in cells.varying.fed]
        names = [(name, step) for step in range(2) for name in ("0 of Cell", "mask of Cell")]
        assert noted == (names if waits else [])


def test_mindspore_is_as_it_was_when_all_is_over(cells: VariedCells) -> None:
    before = Cell.__call__
    cells.vary(Variation(seed=2))
    cells.vary(PLAIN)
    assert Cell.__call__ is before
    given = Tensor(IMAGE)
    assert Cell()(given)[0] == (given,)


def test_a_mindspore_without_cells_is_left_alone() -> None:
    cells = VariedCells(SimpleNamespace())
    cells.vary(Variation(seed=2))
    assert not cells.varying.perturbed
    cells.vary(PLAIN)
