"""Modules in graphs of a real GPU; where there is one: pytest tests/runtime/modules/test_on_cuda.py."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_npudump.compare.judge import judge_tables
from pytest_npudump.compare.tolerances.tolerance import Tolerances
from pytest_npudump.dump.reader import read_dump
from pytest_npudump.dump.table import StatsTable
from pytest_npudump.errors import RequestError
from pytest_npudump.runtime.modules.capture import Capture
from pytest_npudump.runtime.modules.statistics import Value, decoded, host_stats, reduced

os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
torch: Any = pytest.importorskip("torch", reason="needs torch and a GPU")
sys.path.insert(0, str(Path(__file__).parents[2] / "data" / "modules"))
models: Any = pytest.importorskip("models")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


class Eighth(torch.nn.Module):  # type: ignore[misc]
    def forward(self, x: Any) -> Any:
        return x.to(torch.float8_e4m3fn), (x * 100).to(torch.int64), x.isnan()


def made(dtype: Any) -> tuple[Any, Any]:
    model = models.transformer(2).to("cuda", dtype)
    model.eighth = Eighth()
    model.head.register_forward_hook(lambda *given: (model.eighth(given[2]), given[2])[1])
    return model, models.words().cuda()


def captured(model: Any, given: Any, *, warm: bool) -> Any:
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3 * warm):
            model(given)
    torch.cuda.current_stream().wait_stream(stream)
    with torch.cuda.graph(graph):
        model(given)
    return graph


def differing(one: Capture, other: Capture) -> list[str]:
    sides = [StatsTable.from_records(read_dump(capture.folder).records) for capture in (one, other)]
    assert one.tensors or all(side.projections is not None for side in sides)
    comparison = judge_tables(sides[0], sides[1], Tolerances(preset="other"))
    return [str(verdict.key) for verdict in comparison.failing]


@pytest.mark.parametrize("tensors", [False, True])
@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_replays_of_a_captured_graph_are_executions(
    tmp_path: Path, dtype: str, warm: Any, tensors: Any
) -> None:
    if tensors and not warm:
        pytest.skip("tensors need a call that warms the graph up")
    model, given = made(getattr(torch, dtype))
    with torch.no_grad(), Capture(model, tmp_path / "graph", tensors=tensors) as graphed:
        graph = captured(model, given, warm=warm)
        for seed in (1, 2):
            given.copy_(models.words(seed))
            graph.replay()
    with torch.no_grad(), Capture(model, tmp_path / "eager", tensors=tensors) as eager:
        for seed in (1, 2):
            given.copy_(models.words(seed))
            model(given)
    assert (graphed.problems, len(graphed.steps), len(eager.steps)) == ([], 2, 2)
    assert differing(eager, graphed) == []


@pytest.mark.parametrize("fault", ["weight", "order"])
def test_a_fault_in_a_captured_graph_is_found(tmp_path: Path, fault: str) -> None:
    model, given = made(torch.float32)
    with torch.no_grad(), Capture(model, tmp_path / "eager") as eager:
        for _ in range(2):
            model(given)
    with torch.no_grad(), Capture(model, tmp_path / "graph") as graphed:
        if fault == "order":
            model.blocks[1].out.register_forward_hook(lambda *given: given[2].roll(1, -1))
        graph = captured(model, given, warm=True)
        graph.replay()
        if fault == "weight":  # a graph reads what is there
            model.blocks[1].qkv.bias += 0.1
        graph.replay()
    first = {"weight": "blocks.1.qkv#step=1:output.0", "order": "blocks.1.out:output.0"}[fault]
    assert differing(eager, graphed)[0] == first


def test_graphs_of_a_test_that_wants_deterministic_operators(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    model, given = made(torch.float32)
    torch.use_deterministic_algorithms(mode=True)
    try:
        with torch.no_grad(), Capture(model, tmp_path) as capture:
            captured(model, given, warm=True).replay()
    finally:
        torch.use_deterministic_algorithms(mode=False)
    assert (capture.problems, len(capture.steps)) == ([], 1)


def test_steps_wait_for_the_device_only_to_fetch_statistics(tmp_path: Path) -> None:
    model, given = made(torch.float32)
    with torch.no_grad(), Capture(model, tmp_path) as capture:
        model(given)  # signs of projections, and a digest of what it is fed, are made once
        model(given)
        torch.cuda.set_sync_debug_mode("error")
        try:
            for _ in range(5):
                model(given)
        finally:
            torch.cuda.set_sync_debug_mode("default")
    assert len(capture.steps) == 7


def test_a_model_in_several_streams_gives_what_it_gives_in_one(tmp_path: Path) -> None:
    model, _ = made(torch.float32)
    given = [models.words(seed).cuda() for seed in range(4)]
    with torch.no_grad(), Capture(model, tmp_path / "one") as one:
        for words in given:
            model(words)
    torch.cuda.synchronize()
    with torch.no_grad(), Capture(model, tmp_path / "several") as several:
        for words in given:
            with torch.cuda.stream(torch.cuda.Stream()):
                torch.cuda._sleep(50_000_000)  # the others run meanwhile
                model(words)
    assert differing(one, several) == []


@pytest.mark.parametrize("tensors", [False, True])
def test_graphs_of_several_sizes_share_memory(tmp_path: Path, tensors: Any) -> None:
    model, _ = made(torch.bfloat16)
    given = [models.words()[:size].cuda() for size in (2, 1)]
    with torch.no_grad(), Capture(model, tmp_path / "graph", tensors=tensors) as graphed:
        pool = None
        for words in given:
            model(words)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=pool):
                model(words)
            pool = graph.pool()
            graph.replay()
            graph.replay()
    with torch.no_grad(), Capture(model, tmp_path / "eager", tensors=tensors) as eager:
        for words in given:
            model(words)
            model(words)
    assert (graphed.problems, len(graphed.steps)) == ([], 4)
    assert differing(eager, graphed) == []


@pytest.mark.filterwarnings("ignore")  # of torch, within itself
@pytest.mark.parametrize("mode", ["default", "reduce-overhead", "max-autotune-no-cudagraphs"])
def test_a_compiled_model_is_seen_in_each_call(tmp_path: Path, mode: str) -> None:
    model, given = models.transformer(2).cuda(), models.words().cuda()
    run = torch.compile(model, mode=mode)
    with torch.no_grad(), Capture(model, tmp_path / "eager") as eager:
        for _ in range(5):
            model(given)
    with torch.no_grad(), Capture(run, tmp_path / "compiled") as compiled:
        for _ in range(5):
            run(given)
    assert (compiled.problems, len(compiled.steps)) == ([], 5)
    assert differing(eager, compiled) == []


def test_buffers_beyond_the_memory_of_a_process_are_refused_before_a_capture(tmp_path: Path) -> None:
    model, given = torch.nn.ReLU(), torch.ones(1 << 24, device="cuda")
    with torch.no_grad(), Capture(model, tmp_path, tensors=True) as capture:
        model(given)
        capture._close()
        torch.cuda.empty_cache()
        held = torch.cuda.memory_reserved() + (1 << 20)
        torch.cuda.set_per_process_memory_fraction(held / torch.cuda.get_device_properties(0).total_memory)
        try:
            with pytest.raises(RequestError, match=f"need {1 << 26} bytes, and there is room for 0"):
                torch.cuda.CUDAGraph().capture_begin()
        finally:
            torch.cuda.set_per_process_memory_fraction(1.0)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "int8", "bool", "complex64"])
def test_statistics_of_a_device_are_those_of_the_host_in_every_run(dtype: str) -> None:
    torch.manual_seed(0)
    for shape in ((0, 4), (), (3, 5, 7), (1 << 10, 1 << 11), (1 << 12, 1 << 13)):
        tensor = (torch.randn(shape) * 50).to(getattr(torch, dtype)).transpose(0, -1 if shape else 0)
        value = Value(0, 3, 0, dtype, tuple(tensor.shape), tensor.nbytes, tensor.numel(), wide=True)
        rows = [reduced(tensor.cuda()).tolist() for _ in range(3)]
        expected, found = host_stats(tensor), decoded(rows[0], value)
        assert rows[0] == rows[1] == rows[2]
        assert expected is not None
        assert (expected.max, expected.min, expected.zero) == (found.max, found.min, found.zero)
        values = tensor.to(torch.complex128).numpy()
        norm = float(np.linalg.norm(values))
        assert found.l2norm == pytest.approx(norm, rel=1e-12, abs=0), shape
        if found.avg is not None and found.count:
            assert found.avg == pytest.approx(values.real.mean(), abs=1e-12 * norm), shape


def test_a_tensor_beyond_places_of_32_bits_has_statistics() -> None:
    if torch.cuda.mem_get_info()[0] < 100 << 30:
        pytest.skip("needs 100 GiB")
    tensor = torch.zeros((1 << 32) + 3, dtype=torch.float16, device="cuda")
    tensor[-1], tensor[1 << 31], tensor[5] = 3, -2, float("nan")
    value = Value(0, 3, 0, "float16", tuple(tensor.shape), tensor.nbytes, tensor.numel(), wide=True)
    found = decoded(reduced(tensor).tolist(), value)
    assert (found.max, found.min, found.nan, found.zero) == (3, -2, 1, tensor.numel() - 3)
