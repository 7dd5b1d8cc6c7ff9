"""The main flow on the real MindSpore: recorded, compared, a regression found, its layers dumped again."""

from __future__ import annotations

import numpy as np
import pytest

from tests.mindspore.conftest import Project

pytestmark = pytest.mark.mindspore
SMALL = """
@pytest.mark.npu_dump({marker})
def test_small():
    filled(Small())(Tensor(X))
"""
LAYERS = [
    *("Default/fc1-Dense/MatMul-op0", "Default/fc1-Dense/BiasAdd-op0", "Default/relu-ReLU/ReLU-op0"),
    *("Default/fc2-Dense/MatMul-op0", "Default/fc2-Dense/BiasAdd-op0"),
]


def small_in_float64() -> dict[str, np.ndarray]:
    """Outputs of the small net's layers, with the weights that ``filled`` gives it."""
    rng = np.random.default_rng(3)
    shapes = {"fc1.weight": (3, 4), "fc1.bias": (3,), "fc2.weight": (2, 3), "fc2.bias": (2,)}
    weights = {
        name: rng.normal(scale=0.5, size=shape).astype(np.float32).astype(np.float64)
        for name, shape in shapes.items()
    }
    x = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4).astype(np.float64)
    values = [x @ weights["fc1.weight"].T]
    values += [values[-1] + weights["fc1.bias"]]
    values += [np.maximum(values[-1], 0)]
    values += [values[-1] @ weights["fc2.weight"].T]
    values += [values[-1] + weights["fc2.bias"]]
    return dict(zip(LAYERS, values, strict=True)) | weights | {"x": x}


def test_golden_holds_every_layer_and_parameter_by_its_raw_name_as_numpy_computes_them(
    project: Project,
) -> None:
    project.tests(SMALL.format(marker=""))
    project.record()
    expected = small_in_float64()
    rows = {line.split(":output.0 ")[0]: line.split()[2:] for line in project.golden("test_small")}
    assert list(rows)[:5] == LAYERS
    assert rows.keys() == expected.keys()
    for layer, (shape, *statistics) in rows.items():
        value = expected[layer]
        assert shape == "x".join(map(str, value.shape))
        norm = float(np.linalg.norm(value))
        wanted = [value.max(), value.min(), value.mean(), norm, 0, 0, 0]
        np.testing.assert_allclose([float(text) for text in statistics], wanted, rtol=1e-5, atol=1e-6)


def test_another_run_is_equal_to_the_last_bit_and_leaves_nothing(project: Project) -> None:
    project.tests(SMALL.format(marker='preset="exact", golden_tensors=["*"]'))
    project.record()
    result = project.run()
    result.stdout.fnmatch_lines(["npudump: 1 of 1 tests passed; 10 of 10 tensors compared (mindspore)"])
    assert "note:" not in result.stdout.str()
    assert list(project.path.joinpath("dumps").iterdir()) == []


def test_a_perturbed_weight_is_found_first_where_it_is_used_and_only_what_fails_is_dumped_again(
    project: Project,
) -> None:
    project.tests(SMALL.format(marker='golden_tensors=["*fc2*"]'))
    project.record()
    result = project.run(change="fc2.weight=0.25")
    result.stdout.fnmatch_lines(
        [
            "npudump: Default/fc2-Dense/MatMul-op0:output.0 *; source: fc2.weight",
            "code:       Default/fc2-Dense/MatMul-op0: nets.py:*: return self.fc2(self.relu(self.fc1(x)))",
            "*Default/fc2-Dense/MatMul-op0:output.0; all statistics before it match*",
            "golden:*; mismatches: 3 of 10 tensors",
            "second run: reproduced; 5 layers dumped as tensors",
            "elements:   fc2.weight:output.0: one element of 6, at [[]0, 1]: * (100 % of the difference)",
        ]
    )
    failing = {"Default_fc2-Dense_BiasAdd-op0", "Default_fc2-Dense_MatMul-op0", "fc2_weight"}
    given = {"Default_relu-ReLU_ReLU-op0", "fc2_bias"}
    assert set(project.files("run2")) == failing | given
    assert len(project.files("run1")) == 10


def test_one_spelling_of_a_layer_in_the_whole_failure(project: Project) -> None:
    project.tests(SMALL.format(marker=""))
    project.record()
    result = project.run("--junitxml=j.xml", change="fc2.weight=0.5")
    result.stdout.fnmatch_lines(["code:       Default/fc2-Dense/MatMul-op0: nets.py:*"])
    report = project.report()
    failing = {*LAYERS[3:], "fc2.weight"}
    assert {finding["layer"] for finding in report["escalation"]["findings"]} == failing
    assert {*report["escalation"]["layers"]} == failing | {LAYERS[2], "fc2.bias"}
    (text,) = (project.path / "dumps").rglob("report.txt")
    for shown in (result.stdout.str(), text.read_text(), (project.path / "j.xml").read_text()):
        assert "Default_fc2" not in shown


def test_a_nan_that_relu_hides_from_the_output_is_found_where_it_appears(project: Project) -> None:
    """On the CPU ReLU makes 0 of NaN: the output of the net is what it was, or another number."""
    project.tests("""
        @pytest.mark.npu_dump
        def test_small():
            assert np.isfinite(filled(Small())(Tensor(X)).asnumpy()).all()
        """)
    project.record()
    project.run(change="fc1.weight=nan").stdout.fnmatch_lines(
        ["npudump: Default/fc1-Dense/MatMul-op0:output.0 * nan, expected *", "second run: reproduced; *"]
    )
    assert project.failing()[:2] == LAYERS[:2]
    findings = {finding["layer"]: finding for finding in project.report()["escalation"]["findings"]}
    assert findings["Default/fc1-Dense/MatMul-op0"]["tensor"]["nan"] == 2


def test_graphs_and_iterations_keep_their_keys_where_second_run_lacks_first_graph(project: Project) -> None:
    """The sixth call goes to the iteration of the second: MindSpore counts so."""
    project.tests("""
        @pytest.mark.npu_dump
        def test_graphs():
            small, other = filled(Small()), filled(Other())
            for net in (small, small, small, other, small, other):
                net(Tensor(X))
        """)
    project.record()
    project.run("-v").stdout.fnmatch_lines(["*1 of 1 tests passed; 52 of 52 tensors compared*"])
    result = project.run(change="fc3.bias=0.25")
    result.stdout.fnmatch_lines(["golden:*; mismatches: 6 of 52 tensors", "second run: reproduced; 4 *"])
    findings = project.report()["escalation"]["findings"]
    assert [finding["reproduced"] for finding in findings] == [True] * 6
    assert set(project.files("run2")) == {
        "Default_fc3-Dense_MatMul-op0",
        "Default_fc3-Dense_BiasAdd-op0",
        "Default_relu-ReLU_ReLU-op1",
        "fc3_bias",
    }


def test_turns_of_a_loop_are_told_apart_in_both_runs(project: Project) -> None:
    project.tests("""
        @pytest.mark.npu_dump
        def test_loop():
            filled(Loop())(Tensor(X), Tensor(3))
        """)
    project.record()
    keys = [line.split(":output.0")[0] for line in project.golden("test_loop")]
    for turn in ("", ",turn=1", ",turn=2"):
        assert f"Default/relu-ReLU/ReLU-op0#model=net/1{turn}" in keys
    project.run().stdout.fnmatch_lines(["*1 of 1 tests passed*"])
    project.run(change="fc.bias=0.25").stdout.fnmatch_lines(
        ["npudump: Default/fc-Dense/BiasAdd-op0#model=net/1:output.0 *", "second run: reproduced; *"]
    )
    # outputs of three turns, and their inputs: what feeds a layer inside of a loop is not known
    assert project.files("run2").count("Default_relu-ReLU_ReLU-op0") == 3 + 3
