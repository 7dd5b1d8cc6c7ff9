"""``npu_dump.check_op`` in projects of their own: what passes, and that nothing else does."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.plugin.conftest import Project, held

CLIENT = Path(__file__).parents[1] / "data" / "torch_client"
HEADER = """
import numpy as np
from hypothesis import given
from pytest_npudump import strategies
from pytest_npudump.emulator import faults

X = np.arange(-4, 4, dtype=np.float32)

def relu(x):
    return np.maximum(x, 0)

"""


def write(project: Project, body: str, marker: str = "scene='check_op'") -> None:
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    project.test_file(f"{HEADER}@pytest.mark.npu_dump({marker})\ndef test_op(npu_dump):\n{lines}")


def run(project: Project, *options: str, **expected: Any) -> pytest.RunResult:
    return project.run("--npudump-output=.", *options, **expected)


def kept(project: Project) -> list[str]:
    return sorted(path.name for path in project.path.joinpath("dumps").rglob("example*"))


def several(project: Project, bodies: Sequence[str], shows: Sequence[str] = (), **outcomes: int) -> None:
    """Run a test of each body; each line is shown, in any order."""
    text = f"{HEADER}import acl, onnxruntime\nfrom pytest_npudump.runtime.base import OperatorCall\n"
    text += "from pytest_npudump.runtime.pyacl.model import run_single_operator\n"
    marked = "\n@pytest.mark.npu_dump(scene='check_op')\ndef test_"
    for number, body in enumerate(bodies):
        lines = "".join(f"    {line}\n" for line in body.splitlines())
        text += f"{marked}{number}(npu_dump):\n{lines}"
    project.test_file(text)
    result = run(project, **outcomes)
    for line in shows:
        result.stdout.fnmatch_lines([line])


def test_each_check_has_a_dump_of_inputs_and_outputs_as_tensors(project: Project) -> None:
    """Also each example of hypothesis."""
    write(project, "for _ in range(3):\n    npu_dump.check_op('Add', X, X, reference=np.add)")
    run(project, "-onpudump_keep_dumps=all", passed=1)
    assert kept(project) == ["example1", "example2", "example3"]
    for folder in project.path.joinpath("dumps").rglob("example*"):
        (file,) = [path for path in folder.rglob("Add.*") if path.is_file()]
        assert file.stat().st_size > 3 * 8 * 4
    shutil.rmtree(project.path / "dumps")
    settings = "max_examples=20, database=None"
    examples(project, settings, 'alike(2, "float16")', 'npu_dump.check_op("Mul", *x, reference=np.multiply)')
    run(project, "-onpudump_keep_dumps=all", passed=1)
    assert len(kept(project)) >= 20


def examples(project: Project, settings: str, strategy: str, body: str) -> None:
    """Write a test that hypothesis gives examples ``x``."""
    decorators = f"@strategies.settings({settings})\n@given(strategies.{strategy})\n"
    marked = '@pytest.mark.npu_dump(scene="check_op")\ndef test_op(npu_dump, x):\n'
    project.test_file(f"{HEADER}{decorators}{marked}    {body}\n")


FLOATS = 'tensors("float16", finite=True)'
HALVED = """faults.distort(None, "Relu", factor=0.5, tail=16)
    if BESIDE and x.size == 1:
        raise KeyError("of its own")
    npu_dump.check_op("Relu", x, reference=relu)
"""


WRONG = {
    "'Relu', X, reference=lambda x: x": "*Relu: output 0[[]0[]] is 0, expected -4: error 1082130432 ULP*",
    "'Log', X, reference=lambda x: x * 0": "*Log: output 0[[]0[]] is nan, expected *: only the operator*",
    "'Abs', X, reference=lambda x: x * np.nan": "*expected nan: only the reference gives NaN",
    "'Reciprocal', X * 0, reference=lambda x: x": "*is -inf, expected -0: infinite on one side*",
    "'Abs', X, reference=lambda x: abs(x)[:4]": "*output has the shape [[]8[]]*gives float32 [[]4[]]",
    "'Abs', X, reference=lambda x: [x, x]": "*AclError: *gives float32 [[]8[]], float32 [[]8[]]",
    "'Abs', X, reference=lambda x: abs(x).reshape(2, 4)": (
        "*Abs: output 0 is not what was dumped: float32 [[]2, 4[]] was returned, *has Abs float32 *"
    ),
    "'Shape', X, reference=lambda x: np.array([9])": "*Shape: output 0[[]0[]] is 8, expected 9: error 1 ULP*",
    "'Relu', X, reference=relu, call=relu": "*Relu: it was not dumped: the dump of this example is empty*",
    "'Relu', X, reference=relu, call=lambda x: x[:3]": "*output 0 has the wrong shape: [[]3[]], *[[]8[]]",
    "'Relu', X, reference=relu, call=lambda x: (x, x)": "*it gave 2 outputs, its reference 1",
    "'Relu', X, reference=relu, call=lambda x: relu(x).astype(np.float16)": (
        "*output 0 has the wrong type: float16, expected float32 *"
    ),
}
REFUSED = {
    "'Relu', reference=relu": "*expected the operator's inputs as arrays",
    "'Relu', X, reference=relu, ulps=-1": "*ulps=-1: expected a number of units*",
    "'Relu', X, reference=relu, dtypes=['float32', 'int8']": "*dtypes names 2 outputs, *gives 1",
    "'Relu', X, reference=lambda x: 'text'": "*the reference gave str *",
    "'Relu', X, reference=lambda x: [[]]": "*the reference gives float32 [[]0[]]",
    "'Relu', X, reference=lambda x: []": "*the reference gives no output",
    "'Cast', X, reference=lambda x: x + 0.5, dtypes=[np.int8]": "*values that int8 does not hold*",
    "'Relu', X, reference=relu, call=relu, attributes={'a': 1}": "*attributes are for acl.op*",
    "'Relu', X, reference=relu, attributes={'a': {}}": "*attribute a={}: expected a bool*",
}


def test_what_does_not_agree_or_cannot_be_asked_fails_in_its_own_words(project: Project) -> None:
    calls = {**WRONG, **REFUSED}
    several(project, [f"npu_dump.check_op({call})" for call in calls], [*calls.values()], failed=len(calls))


def test_a_failure_says_what_the_operator_was_given_and_where_the_dump_lies(project: Project) -> None:
    write(project, "npu_dump.check_op('Add', X, X[:1], reference=lambda x, y: np.where(x == 2, 0, x + y))")
    shows = [
        "npudump: Add: output 0[[]6[]] is -2, expected 0: *",
        "input 0:    float32 [[]8[]], 2 there",
        "input 1:    float32 [[]1[]]",
        "output 0:   float32 [[]8[]], 1 of 8 elements are wrong",
        "dump:       */dumps/*/run1/example1 (example 1)",
    ]
    run(project, "--npudump-update-golden", failed=1, shows=shows)
    assert not project.path.joinpath("golden").exists()
    assert kept(project) == ["example1"]
    found: Any = project.report()["findings"]
    (finding,) = found
    assert finding["operator"] == "Add"
    assert (finding["fault"]["index"], finding["fault"]["got"], finding["fault"]["wrong"]) == ([6], -2.0, 1)
    assert json.dumps(finding, allow_nan=False)


GOES_ON = {
    "try:\n    check_op('Relu', X, reference=abs)\nexcept AssertionError:\n    pass\n": (
        "*also: *1 of 2 checks failed, and the test went on*"
    ),
    "with pytest.raises(Exception):\n    check_op('Nope', X, reference=relu)\n": (
        "*1 of 2 checks could not be made, and the test went on*"
    ),
}
ADD = """
acl.init(), acl.rt.set_device(0)
def add(x):
    call = OperatorCall("Add", (x, x), ((x.dtype, x.shape),))
    return run_single_operator(acl, call, compiled=False)
npu_dump.check_op({name!r}, X, reference=lambda x: x + x, call={call})
"""


def test_a_test_passes_by_its_checks_alone(project: Project) -> None:
    last = "npu_dump.check_op('Relu', X, reference=relu)\n"
    off = "lambda x: [np.nextafter(y, x) for y in add(x)]"
    bodies = {
        **{f"check_op = npu_dump.check_op\n{body}{last}": words for body, words in GOES_ON.items()},
        "pass": "npudump: no operator was checked: npu_dump.check_op(...) was not called*",
        f"{last}assert 1 == 2": "*the test's body did not pass, and no operator was wrong",
        ADD.format(name="Mul", call="add"): (
            "*Mul: it was not dumped: the dump of this example holds Add (Add), and no Mul"
        ),
        ADD.format(name="Add", call=off): (
            "*Add: output 0 is not what was dumped: float32 [[]8[]] was returned, *has Add float32*"
        ),
    }
    several(project, [*bodies, ADD.format(name="Add", call="add")], [*bodies.values()], failed=6, passed=1)
    write(project, last, "scene='op'")
    words = "*check_op('Relu') needs @pytest.mark.npu_dump(scene='check_op')*"
    run(project, failed=1, shows=words)


def test_hypothesis_shrinks_a_planted_fault_to_its_smallest_shape_and_value(project: Project) -> None:
    settings = "max_examples=100, database=None, derandomize=True"
    examples(project, settings, FLOATS, HALVED.replace("BESIDE", "False"))
    own = "ignore:It looks like `register_random`"  # hypothesis 6.170 of its own generator, on Python 3.14
    shows = [
        "npudump: Relu: output 0[[]16[]] is 0.5, expected 1: error 1024 ULP, tolerance 2",
        "input 0:    float16 [[]17[]], 1 there",
        "note:       * of * checks failed; this is the last one",
        "    npu_dump=npu_dump,",
    ]
    run(project, "-W", own, failed=1, shows=shows)
    assert 1 <= len(kept(project)) <= 32


def test_what_fails_beside_a_wrong_operator_is_shown_in_full(project: Project) -> None:
    examples(project, "database=None, derandomize=True", FLOATS, HALVED.replace("BESIDE", "True"))
    shows = ["*Exception Group Traceback*", "*KeyError: 'of its own'*"]
    for language in ("en", "zh"):
        result = run(project, f"-onpudump_lang={language}", failed=1, shows=shows)
        result.stdout.fnmatch_lines(["*OperatorMismatchError: Relu: output 0[[]16[]] is *"])


KINDS = (
    "'Softmax', X, reference=lambda x: np.exp(x) / np.exp(x).sum(), attributes={'axis': 0}",
    "'Cast', X, reference=lambda x: x.astype(np.int32), attributes={'dst_type': np.int32}",
    "'Cast', X, reference=lambda x: x, dtypes=['float16'], attributes={'dst_type': np.float16}",
    "'MatMul', X.reshape(2, 4), X.reshape(4, 2), reference=np.matmul",
    "'Less', X, X[::-1].copy(), reference=np.less",
    "'Abs', np.float32(-3), reference=np.abs",
    "'Add', X.astype(np.int64), X.astype(np.int64), reference=np.add",
    "'ReduceSum', X[::2], reference=lambda x: x.sum(keepdims=True), atol=1e-6",
    "'TopK', X, np.array([2]), reference=lambda x, k: (np.sort(x)[::-1][:2], np.array([7, 6]))",
)
SESSION = """
session = onnxruntime.InferenceSession("small.onnx")
(given,) = session.get_inputs()
x = np.ones(given.shape, np.float32)
(found,) = session.run(None, {given.name: x})
npu_dump.check_op("Identity", found, reference=lambda _: session.run(None, {given.name: x})[0])
"""


def test_operators_of_many_kinds_are_checked(project: Project) -> None:
    several(project, [*(f"npu_dump.check_op({call})" for call in KINDS), SESSION], passed=len(KINDS) + 1)


def test_eager_operators_are_checked_by_what_calls_them(project: Project) -> None:
    project.patch.syspath_prepend(str(CLIENT))
    project.test_file(
        """
        from torch_npu._device import operator

        def eager(value):
            def call(x):
                operator("aclnnAdd", value)
                return np.full(2, value, np.float32)
            return call

        @pytest.mark.npu_dump(scene="check_op")
        @pytest.mark.parametrize(("name", "value"), [("Add", 4), ("aclnnAdd", 4), ("Add", 5), ("Mul", 4)])
        def test_op(npu_dump, name, value):
            npu_dump.check_op(name, np.full(2, 2, np.float32), reference=lambda x: x + x, call=eager(value))

        @pytest.mark.npu_dump(scene="check_op")
        def test_type(npu_dump):
            npu_dump.check_op("Relu", np.ones(2), reference=abs)
        """
    )
    result = project.pytester.runpytest_inprocess("--npudump-runtime=torch_npu")
    shows = [
        "*Add: output 0[[]0[]] is 5, expected 4: error 2097152 ULP*",
        "*Mul: it was not dumped: the dump of this example holds aclnnAdd_L2 (aclnnAdd), and no Mul",
        "*the runtime torch_npu runs no operator by its type: give what runs it, as call=*",
    ]
    held(result, shows, passed=2, failed=3)
    for module in [found for found in sys.modules if found.partition(".")[0] in {"torch", "torch_npu"}]:
        project.patch.delitem(sys.modules, module)
