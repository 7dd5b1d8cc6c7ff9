"""Rules for captured graphs, over a stand-in; ``test_torch_graphs_real.py`` has the client's own classes."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_npudump.config.acl_json import write_acl_json
from pytest_npudump.errors import CapturedGraphError
from pytest_npudump.runtime.torch_npu.adapter import TorchNpuRuntime

HERE = f"at {Path(__file__).name}:"
METHODS = ("capture_begin", "capture_end", "replay")


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are named relative to the working directory."""
    monkeypatch.chdir(Path(__file__).parent)


@pytest.fixture
def runtime(torch_npu: Any) -> TorchNpuRuntime:
    return TorchNpuRuntime(torch_npu)


@pytest.fixture
def config(tmp_path: Path) -> Callable[..., Path]:
    """Write an acl.json with the keys given."""

    def write(**dump: Any) -> Path:
        path = tmp_path / "acl.json"
        write_acl_json(path, {"dump_path": str(tmp_path), **dump})
        return path

    return write


@pytest.fixture
def tensors(config: Callable[..., Path]) -> Path:
    return config(dump_data="tensor")


def capture(torch_npu: Any, *, operators: int = 1) -> Any:
    graph = torch_npu.npu.NPUGraph()
    with torch_npu.npu.graph(graph):
        for _ in range(operators):
            torch_npu._device.operator("aclnnMul", 1)
    return graph


@pytest.fixture
def started(runtime: TorchNpuRuntime, tensors: Path) -> TorchNpuRuntime:
    runtime.start(tensors)
    return runtime


def undumped(runtime: TorchNpuRuntime) -> list[str]:
    return runtime.activity.evidence.undumped


def calls(torch_npu: Any, name: str) -> int:
    return sum(call[0] == name for call in torch_npu._device.calls)


@pytest.mark.parametrize(
    ("dump", "why"),
    [
        (
            {"dump_data": "stats"},
            'no statistics of operators in a captured graph.*acl_json={"dump_data": "tensor"}',
        ),
        ({"dump_debug": "on"}, "looks for no overflow in a captured graph"),
    ],
)
def test_captures_and_replays_are_named_where_cann_dumps_nothing_of_them(
    runtime: TorchNpuRuntime, torch_npu: Any, config: Any, dump: dict[str, Any], why: str
) -> None:
    earlier = torch_npu.npu.NPUGraph()
    runtime.start(config(**dump))
    graph = capture(torch_npu)
    for _ in range(3):
        graph.replay()
    earlier.replay()
    runtime.stop()
    captured, replayed, other = undumped(runtime)
    assert captured.startswith(f"NPUGraph captured {HERE}")
    assert re.match(rf"NPUGraph captured {re.escape(HERE)}\d+ and replayed {re.escape(HERE)}\d+: ", replayed)
    assert other.startswith(f"NPUGraph replayed {HERE}")
    assert all(re.search(why, words) for words in undumped(runtime))
    assert calls(torch_npu, "aclmdlRIExecuteAsync") == 4


def test_tensors_of_a_graph_that_is_captured_and_replayed_once_are_dumped(
    started: TorchNpuRuntime, torch_npu: Any, tensors: Path
) -> None:
    capture(torch_npu).replay()
    started.stop()
    assert undumped(started) == []
    assert len([path for path in tensors.parent.rglob("aclnnMul*") if path.is_file()]) == 1


def test_a_second_replay_is_refused_before_it_happens_and_told_though_the_test_goes_on(
    runtime: TorchNpuRuntime, torch_npu: Any, tensors: Path
) -> None:
    runtime.start(tensors)
    graph = capture(torch_npu)
    graph.replay()
    with pytest.raises(CapturedGraphError, match=r"NPUGraph captured at .* second replay reads memory that"):
        graph.replay()
    runtime.stop()
    assert calls(torch_npu, "aclmdlRIExecuteAsync") == 1
    (words,) = undumped(runtime)
    assert "a second replay reads memory that the first has freed" in words
    runtime.start(tensors)
    with pytest.raises(CapturedGraphError):
        graph.replay()
    runtime.stop()
    assert calls(torch_npu, "use after free") == 0


def test_a_graph_that_was_captured_before_the_dump_is_not_in_it(
    runtime: TorchNpuRuntime, torch_npu: Any, tensors: Path
) -> None:
    unseen = capture(torch_npu)
    runtime.start(tensors)
    for _ in range(2):
        unseen.replay()
    (words,) = undumped(runtime)
    assert re.search('^NPUGraph replayed at .*captured before this dump was on.*isolation="process"', words)
    earlier = capture(torch_npu)
    runtime.stop()
    runtime.start(tensors)
    earlier.replay()
    runtime.stop()
    (words,) = undumped(runtime)
    assert "captured before this dump was on" in words


def test_a_graph_that_is_never_replayed_is_named_and_one_without_operators_is_not(
    started: TorchNpuRuntime, torch_npu: Any
) -> None:
    """TorchAir and inductor capture an empty graph to have a pool of memory."""
    capture(torch_npu, operators=0)
    graph = capture(torch_npu)
    started.stop()
    (words,) = undumped(started)
    assert re.search("never replayed.*waits up to 60 seconds", words)
    del graph


def test_a_capture_that_fails_leaves_no_graph_to_replay(started: TorchNpuRuntime, torch_npu: Any) -> None:
    torch_npu._device.answers["aclmdlRICaptureEnd"] = 107025
    with pytest.raises(RuntimeError, match="107025"):
        capture(torch_npu)
    started.stop()
    assert undumped(started) == []


@pytest.mark.parametrize("version", ["8.5.0", "9.0.0"])
def test_whether_an_older_cann_dumps_graphs_is_not_known(
    runtime: TorchNpuRuntime, torch_npu: Any, tensors: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    monkeypatch.setattr("pytest_npudump.runtime.torch_npu.adapter.rules_version", lambda: version)
    runtime.start(tensors)
    capture(torch_npu).replay()
    runtime.stop()
    assert len(undumped(runtime)) == 2
    assert all(f"whether CANN {version} dumps operators" in words for words in undumped(runtime))


@pytest.mark.parametrize("way", ["release", "hand_over", "exception"])
def test_whether_the_tests_own_dump_was_on_is_not_known_and_a_program_s_is_elsewhere(
    runtime: TorchNpuRuntime, torch_npu: Any, config: Callable[..., Path], way: str
) -> None:
    """A graph raises what fails in it, so that exceptions are looked for as ever."""
    runtime.start(
        config(**({"dump_scene": "aic_err_norm_dump"} if way == "exception" else {"dump_data": "tensor"}))
    )
    if way != "exception":
        runtime.release() if way == "release" else runtime.hand_over("infer")
    capture(torch_npu).replay()
    runtime.stop()
    assert len(undumped(runtime)) == (2 if way == "release" else 0)
    assert all("the test switches the dump on and off itself" in words for words in undumped(runtime))


def test_replays_in_other_threads_are_seen(runtime: TorchNpuRuntime, torch_npu: Any, config: Any) -> None:
    graph = capture(torch_npu)
    runtime.start(config(dump_data="stats"))
    thread = threading.Thread(target=graph.replay)
    thread.start()
    thread.join()
    runtime.stop()
    assert undumped(runtime)[0].startswith("NPUGraph replayed in code of torch: CANN computes no statistics")


def test_the_client_is_left_as_it_was(
    runtime: TorchNpuRuntime, torch_npu: Any, tensors: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cls = torch_npu._C._NPUGraph
    before = [vars(cls)[name] for name in METHODS]
    runtime.start(tensors)
    assert [vars(cls)[name] for name in METHODS] != before
    monkeypatch.setitem(torch_npu._device.answers, "aclrtSynchronizeDevice", 507015)
    with pytest.raises(Exception, match="507015"):
        runtime.stop()
    assert [vars(cls)[name] for name in METHODS] == before


def test_a_client_without_graphs_is_dumped_as_ever(
    runtime: TorchNpuRuntime, torch_npu: Any, tensors: Path
) -> None:
    del torch_npu.npu.NPUGraph
    runtime.start(tensors)
    runtime.stop()
    assert undumped(runtime) == []
