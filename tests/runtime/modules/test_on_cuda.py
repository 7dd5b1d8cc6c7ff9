"""Modules in graphs of a real GPU; where there is one: pytest tests/runtime/modules/test_on_cuda.py."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from pytest_npudump.compare.judge import judge_tables
from pytest_npudump.compare.tolerances.tolerance import Tolerances
from pytest_npudump.dump.reader import read_dump
from pytest_npudump.dump.table import StatsTable
from pytest_npudump.runtime.modules.capture import Capture

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
