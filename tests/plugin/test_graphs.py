"""Marked tests that capture operators into a graph, over a stand-in with torch_npu's calls and answers."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from conftest import Project

CLIENT = Path(__file__).parents[1] / "data" / "torch_client"
OPTIONS = ("--npudump-runtime=torch_npu", "--npudump-dump-dir=dumps")

HEAD = """\
import pytest
from torch_npu import npu
from torch_npu._device import operator

def captured(value):
    graph = npu.NPUGraph()
    with npu.graph(graph):
        operator("aclnnMul", value)
    return graph
"""
GRAPH = """
@pytest.mark.npu_dump(scene="op", {marker})
def test_graph(npu_dump):
    operator("aclnnAdd", 1)
    graph = captured({value})
    graph.replay()
"""


@pytest.fixture
def run(project: Project, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., pytest.RunResult]]:
    monkeypatch.syspath_prepend(str(CLIENT))
    _forget_client()

    def run_test(test: str, *options: str) -> pytest.RunResult:
        project.test_file(HEAD + test, "test_graph.py")
        return project.pytester.runpytest_inprocess(*OPTIONS, *options)

    yield run_test
    _forget_client()


def _forget_client() -> None:
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in {"torch", "torch_npu"} and str(CLIENT) in str(module.__file__):
            del sys.modules[name]


def test_statistics_of_eager_operators_do_not_stand_for_a_graph(run: Callable[..., pytest.RunResult]) -> None:
    """The graph leaves no dump and no error; what is eager would be recorded, and would pass."""
    test = GRAPH.format(marker='dump_data="stats"', value=2)
    for options in (("--npudump-update-golden",), ()):
        result = run(test, *options)
        result.assert_outcomes(failed=1)
        result.stdout.fnmatch_lines(
            [
                '*npudump: NPUGraph captured at test_graph.py:10: CANN computes no*dump_data="tensor"*',
                "*NPUGraph captured at test_graph.py:10 and replayed at test_graph.py:18: CANN computes no*",
            ]
        )


def test_tensors_of_a_graph_that_is_replayed_once_are_recorded_and_compared(
    run: Callable[..., pytest.RunResult], project: Project
) -> None:
    marker = 'dump_data="tensor", golden_tensors="*"'
    assert run(GRAPH.format(marker=marker, value=2), "--npudump-update-golden").ret == 0
    assert "  aclnnMul:output.0 float32 2 2 2 2" in project.golden.read_text(encoding="utf-8")
    assert run(GRAPH.format(marker=marker, value=2)).ret == 0
    result = run(GRAPH.format(marker=marker, value=3))
    result.assert_outcomes(failed=1)
    report = project.report()
    assert [finding["layer"] for finding in report["escalation"]["findings"]] == ["aclnnMul"]
    assert report["escalation"]["reproduced"] is True


def test_a_second_replay_fails_the_test_even_where_the_body_passes_over_it(
    run: Callable[..., pytest.RunResult], project: Project
) -> None:
    again = GRAPH + "    with contextlib.suppress(Exception):\n        graph.replay()\n"
    test = "import contextlib\n" + again.format(marker='dump_data="tensor"', value=2)
    result = run(test, "--npudump-update-golden")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*replayed at test_graph.py:21: it holds the dump of its tensors*second*"])
    assert not list(project.path.rglob("*.yaml"))
    result = run(GRAPH.format(marker='dump_data="tensor"', value=2) + "    graph.replay()\n")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*CapturedGraphError: NPUGraph captured at *second replay reads memory*"])


KEPT = """
KEPT = {{}}

@pytest.mark.npu_dump(scene="op", dump_data="tensor")
def test_graph(npu_dump):
    first = not KEPT
    graph = KEPT.setdefault("graph", None) or captured(2)
    KEPT["graph"] = graph
    operator("aclnnAdd", {value})
    if first:
        graph.replay()
    else:
        graph.replay()
"""


def test_a_graph_that_the_second_run_takes_from_the_first_is_not_replayed_again(
    run: Callable[..., pytest.RunResult], project: Project
) -> None:
    assert run(KEPT.format(value=1), "--npudump-update-golden").ret == 0
    result = run(KEPT.format(value=5))
    result.assert_outcomes(failed=1)
    (add,) = [v for v in project.report()["comparison"]["verdicts"] if v["status"] != "pass"]
    assert add["layer"] == "aclnnAdd"
    assert "CapturedGraphError" in project.report()["escalation"]["problem"]


OUTSIDE = """
EARLIER = captured(2)

@pytest.mark.npu_dump(scene="op", dump_data="tensor")
def test_graph(npu_dump):
    operator("aclnnAdd", 1)
    EARLIER.replay()
"""


def test_a_graph_that_was_captured_at_import_is_not_in_the_dump(run: Callable[..., pytest.RunResult]) -> None:
    result = run(OUTSIDE, "--npudump-update-golden")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*NPUGraph replayed at test_graph.py:19: it was captured before this dump*"])
