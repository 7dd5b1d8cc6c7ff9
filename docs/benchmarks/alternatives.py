"""Ways to compare two tensors without numpy, for ``bench_alternatives.py``: C, numba and onnxruntime."""

from __future__ import annotations

import ctypes
import math
import shutil
import subprocess
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
from bench_types import ATOL, RTOL

if TYPE_CHECKING:
    from pathlib import Path

CHUNK = 1 << 14
SUMS = ("fines", "finites", "largest", "norm", "distances")
Found = tuple[int, int, float, float, float]
Way = Callable[[Any, Any], Found]

C_SOURCE = r"""
#include <math.h>
#include <stddef.h>
#include <stdint.h>
typedef struct { int64_t outside, special; double largest, norm, distance; } Found;
static inline float of_bfloat16(uint16_t code) {
    union { uint32_t bits; float value; } found = { (uint32_t)code << 16 };
    return found.value;
}
#define COMPARE(NAME, TYPE, VALUE)                                                                     \
    void NAME(const TYPE *golden, const TYPE *actual, size_t count, float rtol, float atol, Found *out) { \
        for (size_t from = 0; from < count; from += 4096) {                                           \
            size_t to = from + 4096 < count ? from + 4096 : count;                                    \
            int32_t outside = 0, special = 0;                                                         \
            float largest = 0;                                                                        \
            double norm = 0, distance = 0;                                                            \
            for (size_t at = from; at < to; at++) {                                                   \
                float g = VALUE(golden[at]), a = VALUE(actual[at]), d = fabsf(a - g);                 \
                int finite = (fabsf(g) < INFINITY) & (fabsf(a) < INFINITY);                           \
                int same = (g == a) | ((g != g) & (a != a));                                          \
                special += !finite;                                                                   \
                outside += finite ? !(d <= atol + rtol * fabsf(g)) : !same;                           \
                float gf = finite ? g : 0, df = finite ? d : 0;                                       \
                largest = df > largest ? df : largest;                                                \
                norm += (double)gf * gf;                                                              \
                distance += (double)df * df;                                                          \
            }                                                                                         \
            out->outside += outside; out->special += special;                                         \
            out->largest = largest > out->largest ? largest : out->largest;                           \
            out->norm += norm; out->distance += distance;                                             \
        }                                                                                             \
    }
COMPARE(compare_float32, float, (float))
COMPARE(compare_float16, _Float16, (float))
COMPARE(compare_bfloat16, uint16_t, of_bfloat16)
COMPARE(compare_int8, int8_t, (float))
"""
C_FLAGS = (
    "-O3",
    "-march=native",
    "-fassociative-math",
    "-fno-signed-zeros",
    "-fno-trapping-math",
    "-fno-math-errno",
)


class _Found(ctypes.Structure):
    _fields_ = (
        ("outside", ctypes.c_int64),
        ("special", ctypes.c_int64),
        ("largest", ctypes.c_double),
        ("norm", ctypes.c_double),
        ("distance", ctypes.c_double),
    )


def with_c(name: str, folder: Path) -> Way | None:
    """Compile the loop for this machine; None where there is no compiler."""
    if shutil.which("cc") is None:
        return None
    library = folder / "kernel.so"
    if not library.exists():
        (folder / "kernel.c").write_text(C_SOURCE)
        subprocess.run(
            ["cc", *C_FLAGS, "-shared", "-fPIC", "-o", library, folder / "kernel.c", "-lm"], check=True
        )
    function = getattr(ctypes.CDLL(str(library)), f"compare_{name}")

    def compare(golden: Any, actual: Any) -> Found:
        out = _Found()
        pointers = (ctypes.c_void_p(one.ctypes.data) for one in (golden, actual))
        function(
            *pointers,
            ctypes.c_size_t(golden.size),
            ctypes.c_float(RTOL),
            ctypes.c_float(ATOL),
            ctypes.byref(out),
        )
        return out.outside, out.special, out.largest, math.sqrt(out.norm), math.sqrt(out.distance)

    return compare


def _numba_loop() -> Any:
    from numba import njit

    @njit(nogil=True, fastmath={"reassoc", "nsz", "contract"})  # type: ignore[untyped-decorator, unused-ignore]
    def loop(golden: Any, actual: Any, table: Any, rtol: Any, atol: Any) -> Any:
        outside, special = 0, 0
        largest, norm, distance = np.float32(0), 0.0, 0.0
        for at in range(golden.size):
            if table is None:
                g, a = golden[at], actual[at]
            else:
                g, a = table[golden[at]], table[actual[at]]
            d = abs(a - g)
            if abs(g) < np.inf and abs(a) < np.inf:
                outside += not d <= atol + rtol * abs(g)
                largest = max(largest, d)
                norm += np.float64(g) * np.float64(g)
                distance += np.float64(d) * np.float64(d)
            else:
                special += 1
                outside += not (g == a or (np.isnan(g) and np.isnan(a)))
        return outside, special, largest, norm, distance

    return loop


def with_numba(name: str, _: Path) -> Way | None:
    """Compile the same loop by numba, which has no bfloat16 and no float16: a table gives their values."""
    try:
        loop = _numba_loop()
    except ImportError:
        return None
    short = name in {"bfloat16", "float16"}
    table = None
    if short:
        codes = np.arange(1 << 16, dtype=np.uint16).view(getattr(ml_dtypes, name, name))
        with np.errstate(invalid="ignore"):
            table = codes.astype(np.float32)
    view = np.uint16 if short else None

    def compare(golden: Any, actual: Any) -> Found:
        if view is not None:
            golden, actual = golden.view(view), actual.view(view)
        elif name == "int8":
            golden, actual = golden.astype(np.float32), actual.astype(np.float32)
        parts = []
        for at in range(0, golden.size, CHUNK):
            both = golden[at : at + CHUNK], actual[at : at + CHUNK]
            parts.append(loop(*both, table, np.float32(RTOL), np.float32(ATOL)))
        return _joined(parts)

    return compare


def _joined(parts: list[Any]) -> Found:
    outside, special, largest, norm, distance = zip(*parts, strict=True)
    return (
        sum(outside),
        sum(special),
        max(largest),
        math.sqrt(sum(map(float, norm))),
        math.sqrt(sum(map(float, distance))),
    )


def with_onnxruntime(name: str, _: Path) -> Way | None:
    """Build a graph that computes the same from two inputs; it is run chunk by chunk, in one thread."""
    try:
        import onnxruntime
        from onnx import TensorProto, helper
    except ImportError:
        return None
    element = {"bfloat16": TensorProto.BFLOAT16, "float16": TensorProto.FLOAT16, "int8": TensorProto.INT8}
    kind = element.get(name, TensorProto.FLOAT)

    def node(op: str, inputs: str, output: str, **attributes: Any) -> Any:
        return helper.make_node(op, inputs.split(), output.split(), **attributes)

    nodes = [
        node("Cast", "golden", "g", to=TensorProto.FLOAT),
        node("Cast", "actual", "a", to=TensorProto.FLOAT),
        node("Sub", "a g", "difference"),
        node("Abs", "difference", "d"),
        node("Abs", "g", "size"),
        node("Mul", "size rtol", "scaled"),
        node("Add", "scaled atol", "allowed"),
        node("LessOrEqual", "d allowed", "within"),
        node("Abs", "a", "size_a"),
        node("Less", "size infinity", "finite_g"),
        node("Less", "size_a infinity", "finite_a"),
        node("And", "finite_g finite_a", "finite"),
        node("Equal", "g a", "equal"),
        node("IsNaN", "g", "nan_g"),
        node("IsNaN", "a", "nan_a"),
        node("And", "nan_g nan_a", "nans"),
        node("Or", "equal nans", "same"),
        node("And", "finite within", "fine_finite"),
        node("Not", "finite", "special"),
        node("And", "special same", "fine_special"),
        node("Or", "fine_finite fine_special", "fine"),
        node("Cast", "fine", "fine_number", to=TensorProto.FLOAT),
        node("ReduceSum", "fine_number", "fines", keepdims=0),
        node("Cast", "finite", "finite_number", to=TensorProto.FLOAT),
        node("ReduceSum", "finite_number", "finites", keepdims=0),
        node("Where", "finite d zero", "distance"),
        node("ReduceMax", "distance", "largest", keepdims=0),
        node("Cast", "distance", "wide_distance", to=TensorProto.DOUBLE),
        node("ReduceSumSquare", "wide_distance", "distances", keepdims=0),
        node("Where", "finite g zero", "golden_finite"),
        node("Cast", "golden_finite", "wide_golden", to=TensorProto.DOUBLE),
        node("ReduceSumSquare", "wide_golden", "norm", keepdims=0),
    ]
    constants = {"rtol": RTOL, "atol": ATOL, "infinity": math.inf, "zero": 0.0}
    graph = helper.make_graph(
        nodes,
        "compare",
        [helper.make_tensor_value_info(one, kind, ["n"]) for one in ("golden", "actual")],
        [
            helper.make_tensor_value_info(one, kind_of, [])
            for kind_of, names in ((TensorProto.FLOAT, SUMS[:3]), (TensorProto.DOUBLE, SUMS[3:]))
            for one in names
        ],
        [helper.make_tensor(one, TensorProto.FLOAT, [], [value]) for one, value in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    view = np.uint16 if name == "bfloat16" else None

    def compare(golden: Any, actual: Any) -> Found:
        parts = []
        for at in range(0, golden.size, CHUNK):
            feed = {}
            for title, one in (("golden", golden), ("actual", actual)):
                part = one[at : at + CHUNK]
                feed[title] = (
                    onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(part.view(view), kind)
                    if view is not None
                    else onnxruntime.OrtValue.ortvalue_from_numpy(part)
                )
            size = min(CHUNK, golden.size - at)
            fines, finites, *rest = (found.numpy() for found in session.run_with_ort_values(None, feed))
            parts.append((size - int(fines), size - int(finites), *rest))
        return _joined(parts)

    return compare
