"""Networks in float16 on the real MindSpore, whose CPU kernels compute part of them in float32."""

from __future__ import annotations

import numpy as np
import pytest

from tests.mindspore.conftest import Project

pytestmark = pytest.mark.mindspore
AMP = """
@pytest.mark.npu_dump(golden_tensors=["*fc-Dense*"])
def test_resnet():
    result = ms.amp.auto_mixed_precision(filled(ResNet()), "O3")(IMAGE)
    np.save("resnet.npy", result.asnumpy())


@pytest.mark.npu_dump
def test_encoder():
    ms.amp.auto_mixed_precision(filled(Encoder()), "O3")(WORDS)
"""


def test_mixed_precision_is_recorded_compared_and_a_changed_weight_found_where_it_is_used(
    project: Project,
) -> None:
    project.tests(AMP)
    project.record(passed=2)
    rows = {line.split()[0]: line.split()[1:] for line in project.golden("test_resnet")}
    last = rows["Default/_backbone-ResNet/fc-Dense/BiasAdd-op0:output.0"]
    result = np.load(project.path / "resnet.npy")
    assert last[:2] == ["float32", "2x3"]
    np.testing.assert_allclose([float(cell) for cell in last[2:4]], [result.max(), result.min()], rtol=1e-3)
    assert {cells[0] for cells in rows.values()} == {"float16", "float32"}

    result = project.run()
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["*test_resnet*: MindSpore's CPU kernels computed * in float32 *"])
    project.run("-v", "-k", "resnet", change="blocks.1.conv2.weight=2").stdout.fnmatch_lines(
        [
            "npudump: Default/_backbone-ResNet/blocks-SequentialCell/1-Residual/conv2-*/Cast-op*:output.0 *",
            "  Default/_backbone-ResNet/fc-Dense/MatMul-op0 * (+5 more) *",
            "second run: reproduced; *",
        ]
    )
    project.run("-k", "encoder", change="up.weight=2").stdout.fnmatch_lines(
        ["npudump: Default/_backbone-Encoder/up-Dense/Cast-op*:output.0 *", "second run: reproduced; *"]
    )
