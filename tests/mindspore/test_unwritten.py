"""Outputs that MindSpore's CPU kernels do not write hold what memory held before, and are not recorded."""

from __future__ import annotations

import pytest

from tests.mindspore.conftest import Project

pytestmark = pytest.mark.mindspore
LENET_BEFORE = """
import os

@pytest.fixture
def lenet():
    if os.environ.get("LENET"):
        ms.set_context(mode=ms.PYNATIVE_MODE)
        layers = nn.Conv2d(1, 6, 5), nn.ReLU(), nn.MaxPool2d(2, 2), nn.Flatten(), nn.Dense(6 * 14 * 14, 30)
        nn.SequentialCell(*layers)(Tensor(np.ones((2, 1, 28, 28), np.float32))).asnumpy()
        ms.set_context(mode=ms.GRAPH_MODE)
"""
RESNET = """
@pytest.mark.npu_dump{marker}
def test_net(lenet):
    net = filled(ResNet())
    net(IMAGE)
    net(IMAGE)
"""
NORM = "Default/blocks-SequentialCell/{0}-Residual/bn{1}-BatchNorm2d/BatchNorm-op0"
SLOTS = {f"output.{slot}": "left out" for slot in range(1, 5)}


def test_a_golden_has_no_unwritten_output_and_holds_whatever_memory_held_before(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.tests(LENET_BEFORE + RESNET.format(marker=""))
    result = project.run("--npudump-update-golden")
    result.stdout.fnmatch_lines(["*note: *: left out of the golden: 32 tensors that *kernels do not write*"])
    names = [NORM.format(block, number) for block in (0, 1) for number in (1, 2)]
    assert project.unwritten("test_net") == {name + step: SLOTS for step in ("", "#step=1") for name in names}
    keys = [line.split()[0] for line in project.golden("test_net")]
    assert sum("BatchNorm" in key for key in keys) == 8
    assert sorted(path.name for path in project.path.joinpath("golden/test_net").iterdir()) == [
        "test_net.yaml"
    ]

    for name, value in ({"MALLOC_PERTURB_": "37"} | {"LENET": "1"}).items():
        with monkeypatch.context() as changed:
            changed.setenv(name, value)
            result = project.run()
            result.stdout.fnmatch_lines(
                [
                    f"*note: *: tensors not compared, as nothing wrote them when *: {names[0]}:output.1, *",
                    "npudump: 1 of 1 tests passed; 84 of 84 tensors compared (mindspore)",
                ]
            )
    result = project.run(change="blocks.1.conv1.weight=2")
    result.stdout.fnmatch_lines(
        ["npudump: Default/blocks-SequentialCell/1-Residual/conv1-Conv2d/Conv2D-op0:output.0 *"]
    )


def test_outputs_of_kernels_are_left_out_in_training_too_and_what_varies_is_named(project: Project) -> None:
    project.tests("""
        @pytest.mark.npu_dump
        def test_net():
            ms.set_seed(int.from_bytes(os.urandom(2), "little"))
            filled(Recurrent()).set_train(True)(Tensor(X))
        """)
    result = project.run("--npudump-update-golden")
    result.stdout.fnmatch_lines(["*note: *first seen at*Dropout*"])
    assert project.unwritten("test_net") == {
        "Default/norm-BatchNorm1d/BatchNorm-op0": SLOTS,
        "Default/lstm-LSTM/rnn-_DynamicLSTMCPUGPU/LSTM-op0": {"output.3": "left out", "output.4": "left out"},
    }
    keys = [line.split()[0] for line in project.golden("test_net")]
    assert {key.rpartition(":")[2] for key in keys if "/BatchNorm-op" in key} == {"output.0"}
    assert any("Dropout-op" in key for key in keys)


def test_an_unwritten_output_is_recorded_where_the_golden_asks_for_it(project: Project) -> None:
    project.tests(LENET_BEFORE + RESNET.format(marker='(layers=["*0-Residual*bn1*BatchNorm*"])'))
    project.record()
    path = project.path.joinpath("golden/test_net/test_net.yaml")
    path.write_text(path.read_text("utf-8").replace("output.2: left out", "output.2: judged"), "utf-8")
    project.run().stdout.fnmatch_lines(["npudump: *BatchNorm*output.2*"])
    project.record()
    keys = [line.split()[0].rpartition(":")[2] for line in project.golden("test_net")]
    assert keys == ["output.0", "output.2"] * 2


def test_without_a_process_of_its_own_a_recording_passes(project: Project) -> None:
    project.tests("""
        @pytest.mark.npu_dump(isolation="none")
        def test_net():
            filled(Small())(Tensor(X))
        """)
    result = project.run("--npudump-update-golden")
    result.assert_outcomes(passed=1)
