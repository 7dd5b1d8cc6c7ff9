"""Cells of the real MindSpore as layers of tests: goldens, faults, graphs; ``tests/runtime`` has more."""

from __future__ import annotations

import numpy as np
import pytest

from tests.mindspore.conftest import Project
from tests.mindspore.test_flow import small_in_float64

pytestmark = pytest.mark.mindspore
CELLS = """
@pytest.fixture
def model():
    ms.set_context(mode=ms.PYNATIVE_MODE)
    return filled(Small())

@pytest.mark.npu_dump(scene="modules")
def test_cells(model):
    model(Tensor(X))

@pytest.mark.npu_dump(scene="modules")
def test_operators(npu_dump, model):
    npu_dump.modules(model, operators=True)
    model(Tensor(X))
"""


def test_cells_and_operators_have_goldens_and_a_fault_is_named_by_both(project: Project) -> None:
    project.tests(CELLS)
    project.record(passed=2)
    values = [*small_in_float64().values()]
    expected = {"fc1": values[1], "relu": values[2], "fc2": values[4], "Small": values[4]}
    rows = {line.split(":output.0 ")[0]: line.split()[2:] for line in project.golden("test_cells")}
    assert rows.keys() == expected.keys()
    for layer, (shape, *statistics) in rows.items():
        value = expected[layer]
        wanted = [value.max(), value.min(), value.mean(), float(np.linalg.norm(value)), 0, 0, 0]
        assert shape == "x".join(map(str, value.shape))
        np.testing.assert_allclose([float(text) for text in statistics], wanted, rtol=1e-5, atol=1e-6)
    operators = ["fc1/MatMul", "fc1/BiasAdd", "fc1", "relu/ReLU", "relu", "fc2/MatMul", "fc2/BiasAdd"]
    assert [line.split(":")[0] for line in project.golden("test_operators")] == [*operators, "fc2", "Small"]
    project.run().stdout.fnmatch_lines(["npudump: 2 of 2 tests passed; 13 of 13 tensors compared (modules)"])
    project.run(change="fc2.weight=0.25").stdout.fnmatch_lines(
        [
            "npudump: fc2: weights changed (1 of 2 *); first mismatch: fc2:output.0 *",
            "second run: reproduced; 2 layers dumped as tensors",
            "npudump: fc2: weights changed (1 of 2 *); first mismatch: fc2/MatMul:output.0 *",
            "second run: reproduced; 4 layers dumped as tensors",
        ]
    )


def test_what_hooks_cannot_see_fails_with_what_to_do(project: Project) -> None:
    project.tests("""
        @pytest.mark.npu_dump(scene="modules")
        def test_graph(npu_dump):
            net = filled(Small())
            npu_dump.modules(net)
            net(Tensor(X))

        @pytest.mark.npu_dump(scene="modules")
        def test_jit(npu_dump):
            ms.set_context(mode=ms.PYNATIVE_MODE)
            net = filled(Small())
            npu_dump.modules(net)
            ms.jit(net.construct)(Tensor(X))

        @pytest.mark.npu_dump
        def test_runtime(npu_dump):
            npu_dump.modules(filled(Small()))
        """)
    project.run("--npudump-update-golden").stdout.fnmatch_lines(
        [
            "*Small ran in GRAPH_MODE, which calls no cell within it: *PYNATIVE_MODE*MS_JIT=0*",
            "npudump: the dump is empty: modules of Small not recorded: 4 of 4 (not called, or *",
            "*with the runtime mindspore it needs the marker's scene='modules'*",
        ]
    )
