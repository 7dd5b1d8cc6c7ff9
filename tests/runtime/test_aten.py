"""Calls of the real torch are kept and recomputed, and names of ATen held against names of aclnn.

``NPUDUMP_TORCHAIR`` names a folder with torch and torch_npu.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_npudump.runtime.aten import OTHERWISE, may_run

FOLDER = os.environ.get("NPUDUMP_TORCHAIR", "")
LIBRARY = Path(FOLDER) / "torch_npu" / "lib" / "libtorch_npu.so"
ALIKE = [
    ("add", "aclnnAdd"),
    ("add", "aclnnAdds"),
    ("add", "aclnnAddV3"),
    ("add_", "aclnnInplaceAdds"),
    ("mm", "aclnnMm"),
    ("mm", "aclnnMatmulWeightNz"),
    ("bmm", "aclnnBatchMatMul"),
    ("sum", "aclnnReduceSum"),
    ("div", "aclnnDivMods"),
    ("pow", "aclnnPowTensorScalar"),
    ("max", "aclnnMaxDim"),
    ("var", "aclnnVarCorrection"),
    ("native_layer_norm", "aclnnLayerNorm"),
    ("native_layer_norm_backward", "aclnnLayerNormBackward"),
    ("_softmax", "aclnnSoftmax"),
    ("_softmax_backward_data", "aclnnSoftmaxBackward"),
    ("nll_loss_forward", "aclnnNLLLoss"),
    ("_to_copy", "aclnnCast"),
    ("clone", "aclnnInplaceCopy"),
    ("index_put_", "aclnnIndexPutImpl"),
    ("masked_fill_", "aclnnInplaceMaskedFillTensor"),
    ("convolution", "aclnnConvolution"),
    ("gelu", "aclnnGeluV2"),
]
APART = [
    *(("add", "aclnnMul"), ("add", "aclnnAddmm"), ("sub", "aclnnRsubs"), ("max", "aclnnMaximum")),
    *(("log", "aclnnLogSoftmax"), ("softmax", "aclnnSoftmaxBackward"), ("addmm", "aclnnAddbmm")),
    *(("add", "L2DfxAbscent"), ("", "aclnnAdd")),
]


def test_a_call_may_run_what_is_named_alike_or_listed_and_is_not_known_to_run_anything_else() -> None:
    assert [pair for pair in ALIKE if not may_run(*pair)] == []
    assert [pair for pair in APART if may_run(*pair)] == []


@pytest.mark.skipif(not LIBRARY.is_file(), reason="NPUDUMP_TORCHAIR names no folder with torch_npu")
def test_the_client_has_what_is_listed() -> None:
    known = set(re.findall(rb"aclnn[A-Za-z0-9]+", LIBRARY.read_bytes()))
    named = {api for apis in OTHERWISE.values() for api in apis} | {api for _, api in ALIKE}
    assert {api for api in named if api.encode() not in known} == set()


@pytest.fixture(scope="module")
def found(on_real_torch: Callable[[str], Any]) -> Any:
    return on_real_torch("aten/kept.py")


def test_every_kind_of_call_is_acquitted_as_it_is_and_convicted_with_a_fault(found: Any) -> None:
    assert len(found["cases"]) >= 20
    assert {name: wrong for name, wrong in found["cases"].items() if wrong} == {}


def test_what_cannot_be_kept_or_recomputed_says_why_and_leaves_all_as_it_was(found: Any) -> None:
    assert found["random"] == ["aten.bernoulli.default draws random numbers"]
    (limit,), (private,) = found["limit"], found["private"]
    assert "(96 bytes) are beyond what is left of npudump_dump_limit (50)" in limit
    assert private.endswith("in a private format")
    assert found["recorded"] == found["views"] == []  # what goes into a graph, and views, are no calls
    assert "captured into a graph" in found["why none"]
    assert all("no plain tensor" in why for why in found["sparse"])
    assert found["without kernel"] == (
        "the CPU does not compute npu_test.only_there.default for these arguments: no such kernel"
    )
    assert found["untouched"], "neither what was kept nor random numbers"
    assert found["extremes"] == [1, 0], "only calls with the extremes of the first run are kept"


@pytest.fixture(scope="module")
def on_device(request: pytest.FixtureRequest) -> Any:
    if not FOLDER:
        pytest.skip("NPUDUMP_TORCHAIR names no folder with torch_npu")
    return request.getfixturevalue("real_client")["real_kept.py"]


@pytest.mark.parametrize(
    ("way", "name"),
    [("add", "aten.add.Tensor"), ("in place", "aten.mul_.Tensor"), ("strided", "aten.add.Tensor")],
)
def test_what_calls_on_the_device_were_given_is_kept(on_device: Any, way: str, name: str) -> None:
    assert on_device[way]["names"] == [name]
    assert on_device[way]["why not"] == [""]
    assert on_device[way]["as on the CPU"] == [True]


@pytest.mark.parametrize("way", ["add", "in place", "strided"])
def test_keeping_waits_for_the_device_and_runs_no_operator_there(on_device: Any, way: str) -> None:
    assert set(on_device[way]["more"]) == {"aclrtSynchronizeStreamWithTimeout"}
    assert on_device[way]["fewer"] == {}
