"""Names of ATen against names of aclnn, as torch_npu's library has them where it is at hand."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from pytest_npudump.runtime.aten.recompute import OTHERWISE, may_run

LIBRARY = Path(os.environ.get("NPUDUMP_TORCHAIR", "")) / "torch_npu" / "lib" / "libtorch_npu.so"
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
