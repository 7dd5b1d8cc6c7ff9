"""``npu_dump.check_op`` in projects of their own: what passes, and that nothing else does."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from conftest import Project


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


def write(project: Project, body: str, marker: str = "scene='check_op'", decorators: str = "") -> None:
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    project.test_file(f"{HEADER}{decorators}@pytest.mark.npu_dump({marker})\ndef test_op(npu_dump):\n{lines}")


def run(project: Project, *options: str) -> pytest.RunResult:
    return project.run("--npudump-dump-dir=dumps", *options)


def kept(project: Project) -> list[str]:
    return sorted(path.name for path in project.path.joinpath("dumps").rglob("example*"))


def test_an_operator_that_agrees_passes_and_leaves_nothing(project: Project) -> None:
    write(project, "npu_dump.check_op('Relu', X, reference=relu)\nnpu_dump.check_op('Abs', X, reference=abs)")
    result = run(project)
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["npudump: 1 of 1 tests good (emulator)"])
    assert kept(project) == []
    assert not project.path.joinpath("golden").exists()


def test_each_check_has_a_dump_of_inputs_and_outputs_as_tensors(project: Project) -> None:
    write(project, "for _ in range(3):\n    npu_dump.check_op('Add', X, X, reference=np.add)")
    run(project, "--npudump-keep-dumps=all").assert_outcomes(passed=1)
    assert kept(project) == ["example1", "example2", "example3"]
    for folder in project.path.joinpath("dumps").rglob("example*"):
        (file,) = [path for path in folder.rglob("Add.*") if path.is_file()]
        assert file.stat().st_size > 3 * 8 * 4


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("'Relu', X, reference=lambda x: x", "*Relu: output 0[[]0[]] is 0, expected -4: 1082130432 units*"),
        (
            "'Log', X, reference=lambda x: x * 0",
            "*Log: output 0[[]0[]] is nan, expected *: only the operator*",
        ),
        ("'Abs', X, reference=lambda x: x * np.nan", "*expected nan: only the reference gives NaN"),
        ("'Reciprocal', X * 0, reference=lambda x: x", "*is -inf, expected -0: infinite on one side*"),
        (
            "'Abs', X, reference=lambda x: abs(x)[:4]",
            "*output has the shape [[]8[]]*reference gives float32 [[]4[]]",
        ),
        (
            "'Abs', X, reference=lambda x: [x, x]",
            "*AclError: *the reference gives float32 [[]8[]], float32 [[]8[]]",
        ),
        (
            "'Abs', X, reference=lambda x: abs(x).reshape(2, 4)",
            "*Abs: output 0 is not what was dumped: float32 [[]2, 4[]] was returned, *has Abs float32 *",
        ),
        (
            "'Shape', X, reference=lambda x: np.array([9])",
            "*Shape: output 0[[]0[]] is 8, expected 9: 1 unit *",
        ),
        (
            "'Relu', X, reference=relu, call=relu",
            "*Relu: it was not dumped: the dump of this example is empty*",
        ),
        (
            "'Relu', X, reference=relu, call=lambda x: x[:3]",
            "*output 0 has the wrong shape: [[]3[]], *[[]8[]]",
        ),
        ("'Relu', X, reference=relu, call=lambda x: (x, x)", "*it gave 2 outputs, and its reference 1"),
        (
            "'Relu', X, reference=relu, call=lambda x: relu(x).astype(np.float16)",
            "*output 0 has the wrong type: float16, expected float32 *",
        ),
    ],
)
def test_what_does_not_agree_fails_in_its_own_words(project: Project, arguments: str, words: str) -> None:
    write(project, f"npu_dump.check_op({arguments})")
    result = run(project)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([words])


def test_a_failure_says_what_the_operator_was_given_and_where_the_dump_lies(project: Project) -> None:
    write(project, "npu_dump.check_op('Add', X, X[:1], reference=lambda x, y: np.where(x == 2, 0, x + y))")
    result = run(project)
    result.stdout.fnmatch_lines(
        [
            "npudump: Add: output 0[[]6[]] is -2, expected 0: *",
            "input 0:    float32 [[]8[]], 2 there",
            "input 1:    float32 [[]1[]]",
            "output 0:   float32 [[]8[]], 1 of 8 elements are wrong",
            "dump:       */dumps/*/run1/example1 (example 1)",
        ]
    )
    assert kept(project) == ["example1"]
    found: Any = project.report()["findings"]
    (finding,) = found
    assert finding["operator"] == "Add"
    assert (finding["fault"]["index"], finding["fault"]["got"], finding["fault"]["wrong"]) == ([6], -2.0, 1)
    assert json.dumps(finding, allow_nan=False)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (
            "try:\n    check_op('Relu', X, reference=abs)\nexcept AssertionError:\n    pass\n",
            "*also: 1 of 2 checks failed, and the test went on*",
        ),
        (
            "with pytest.raises(Exception):\n    check_op('Nope', X, reference=relu)\n",
            "*1 of 2 checks could not be made, and the test went on*",
        ),
    ],
)
def test_a_check_that_was_not_good_fails_a_test_that_goes_on(project: Project, body: str, words: str) -> None:
    write(project, f"check_op = npu_dump.check_op\n{body}check_op('Relu', X, reference=relu)")
    result = run(project)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([words])


def test_a_test_that_checks_nothing_fails(project: Project) -> None:
    write(project, "pass")
    result = run(project)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["npudump: no operator was checked: npu_dump.check_op(...) was not called*"])


def test_an_operator_of_another_name_is_not_the_one_that_was_dumped(project: Project) -> None:
    source = """
    def add(x):
        call = OperatorCall("Add", (x, x), ((x.dtype, x.shape),))
        return run_single_operator(acl, call, compiled=False)
    npu_dump.check_op({name!r}, X, reference=lambda x: x + x, call={call})
    """
    imports = (
        "import acl\nfrom pytest_npudump.runtime.base import OperatorCall\n"
        "from pytest_npudump.runtime.pyacl.model import run_single_operator\n"
        "acl.init(), acl.rt.set_device(0)\n"
    )
    lines = [line[4:] for line in source.strip("\n").splitlines()]
    for name, call, words in (
        ("Add", "add", None),
        ("Mul", "add", "*Mul: it was not dumped: the dump of this example holds Add (Add), and no Mul"),
        (
            "Add",
            "lambda x: [np.nextafter(y, x) for y in add(x)]",
            "*Add: output 0 is not what was dumped: float32 [[]8[]] was returned, *has Add float32*",
        ),
    ):
        write(project, imports + "\n".join(lines).format(name=name, call=call))
        result = run(project)
        result.assert_outcomes(passed=int(words is None), failed=int(words is not None))
        if words is not None:
            result.stdout.fnmatch_lines([words])


def test_hypothesis_shrinks_a_planted_fault_to_its_smallest_shape_and_value(project: Project) -> None:
    source = f"""{HEADER}
@strategies.settings(max_examples=100, database=None, derandomize=True)
@given(strategies.tensors("float16", finite=True))
@pytest.mark.npu_dump(scene="check_op")
def test_op(npu_dump, x):
    faults.distort(None, "Relu", factor=0.5, tail=16)
    npu_dump.check_op("Relu", x, reference=relu)
"""
    project.test_file(source)
    result = run(project)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "npudump: Relu: output 0[[]16[]] is 0.5, expected 1: 1024 units in the last place, and 2 allowed",
            "input 0:    float16 [[]17[]], 1 there",
            "note: * of * checks failed; this is the last one",
            "    npu_dump=npu_dump,",
        ]
    )
    assert 1 <= len(kept(project)) <= 32


def test_hypothesis_passes_what_is_healthy_with_a_dump_for_each_example(project: Project) -> None:
    source = f"""{HEADER}
@strategies.settings(max_examples=20, database=None)
@given(strategies.alike(2, "float16"))
@pytest.mark.npu_dump(scene="check_op")
def test_op(npu_dump, pair):
    npu_dump.check_op("Mul", *pair, reference=np.multiply)
"""
    project.test_file(source)
    run(project, "--npudump-keep-dumps=all").assert_outcomes(passed=1)
    assert len(kept(project)) >= 20


def test_a_body_that_fails_by_itself_says_that_no_operator_was_wrong(project: Project) -> None:
    write(project, "npu_dump.check_op('Relu', X, reference=relu)\nassert 1 == 2")
    result = run(project)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["E * assert 1 == 2", "*the test's body did not pass, and no operator was wrong"]
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("'Relu', reference=relu", "*expected the operator's inputs as arrays"),
        ("'Relu', X, reference=relu, ulps=-1", "*ulps=-1: expected a number of units*"),
        (
            "'Relu', X, reference=relu, dtypes=['float32', 'int8']",
            "*dtypes names 2 outputs, *gives 1",
        ),
        ("'Relu', X, reference=lambda x: 'text'", "*the reference gave str *"),
        ("'Relu', X, reference=lambda x: [[]]", "*the reference gives float32 [[]0[]]"),
        ("'Relu', X, reference=lambda x: []", "*the reference gives no output"),
        ("'Cast', X, reference=lambda x: x + 0.5, dtypes=[np.int8]", "*values that int8 does not hold*"),
        ("'Relu', X, reference=relu, call=relu, attributes={'a': 1}", "*attributes are for acl.op*"),
        ("'Relu', X, reference=relu, attributes={'a': {}}", "*attribute a={}: expected a bool*"),
    ],
)
def test_questions_that_cannot_be_are_refused(project: Project, arguments: str, words: str) -> None:
    write(project, f"npu_dump.check_op({arguments})")
    result = run(project)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([words])


@pytest.mark.parametrize(
    "arguments",
    [
        "'Softmax', X, reference=lambda x: np.exp(x) / np.exp(x).sum(), attributes={'axis': 0}",
        "'Cast', X, reference=lambda x: x.astype(np.int32), attributes={'dst_type': np.int32}",
        "'Cast', X, reference=lambda x: x, dtypes=['float16'], attributes={'dst_type': np.float16}",
        "'MatMul', X.reshape(2, 4), X.reshape(4, 2), reference=np.matmul",
        "'Less', X, X[::-1].copy(), reference=np.less",
        "'Abs', np.float32(-3), reference=np.abs",
        "'Add', X.astype(np.int64), X.astype(np.int64), reference=np.add",
        "'ReduceSum', X[::2], reference=lambda x: x.sum(keepdims=True), atol=1e-6",
        "'TopK', X, np.array([2]), reference=lambda x, k: (np.sort(x)[::-1][:2], np.array([7, 6]))",
    ],
)
def test_operators_of_many_kinds_are_checked(project: Project, arguments: str) -> None:
    write(project, f"npu_dump.check_op({arguments})")
    run(project).assert_outcomes(passed=1)


def test_a_reference_may_be_a_session_of_onnxruntime(project: Project) -> None:
    write(
        project,
        "import onnxruntime\n"
        "session = onnxruntime.InferenceSession('small.onnx')\n"
        "(given,) = session.get_inputs()\n"
        "x = np.ones(given.shape, np.float32)\n"
        "expected = session.run(None, {given.name: x})\n"
        "for found in expected:\n"
        "    npu_dump.check_op('Identity', found, reference=lambda _: session.run(None, {given.name: x})[0])",
    )
    run(project).assert_outcomes(passed=1)


def test_another_scene_says_which_is_needed(project: Project) -> None:
    write(project, "npu_dump.check_op('Relu', X, reference=relu)", "scene='op'")
    result = run(project)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*check_op('Relu') needs @pytest.mark.npu_dump(scene='check_op')*"])


def test_a_failure_names_the_line_that_checked(project: Project) -> None:
    write(
        project, "npu_dump.check_op('Relu', X, reference=relu)\nnpu_dump.check_op('Relu', X, reference=abs)"
    )
    (number,) = [
        number
        for number, line in enumerate(project.path.joinpath("test_small.py").read_text().splitlines(), 1)
        if "reference=abs" in line
    ]
    run(project).stdout.fnmatch_lines([f"checked at: test_small.py:{number}"])


def test_what_fails_beside_a_wrong_operator_is_shown_in_full(project: Project) -> None:
    source = f"""{HEADER}
@strategies.settings(database=None, derandomize=True)
@given(strategies.tensors("float16", finite=True))
@pytest.mark.npu_dump(scene="check_op")
def test_op(npu_dump, x):
    faults.distort(None, "Relu", factor=0.5, tail=16)
    if x.size == 1:
        raise KeyError("of its own")
    npu_dump.check_op("Relu", x, reference=relu)
"""
    project.test_file(source)
    result = run(project)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*KeyError: 'of its own'*"])
    result.stdout.fnmatch_lines(["*OperatorMismatchError: Relu: output 0[[]16[]] is *"])


def test_an_update_of_goldens_writes_none_and_still_judges(project: Project) -> None:
    write(project, "npu_dump.check_op('Relu', X, reference=lambda x: x)")
    run(project, "--npudump-update-golden").assert_outcomes(failed=1)
    write(project, "npu_dump.check_op('Relu', X, reference=relu)")
    run(project, "--npudump-update-golden").assert_outcomes(passed=1)
    assert not project.path.joinpath("golden").exists()


@pytest.mark.e2e
def test_a_process_of_its_own_tells_what_was_wrong(project: Project) -> None:
    write(
        project,
        "npu_dump.check_op('Relu', X, reference=lambda x: x)",
        "scene='check_op', isolation='process'",
    )
    result = run(project)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["npudump: Relu: output 0[[]0[]] is 0, expected -4*", "dump:  *example1*"])


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("Add", 4.0, None),
        ("aclnnAdd", 4.0, None),
        ("Add", 5.0, "*Add: output 0[[]0[]] is 5, expected 4: 2097152 units *"),
        (
            "Mul",
            4.0,
            "*Mul: it was not dumped: the dump of this example holds aclnnAdd_L2 (aclnnAdd), and no Mul",
        ),
    ],
)
def test_eager_operators_are_checked_by_what_calls_them(
    project: Project, monkeypatch: pytest.MonkeyPatch, name: str, value: float, words: str | None
) -> None:
    monkeypatch.syspath_prepend(str(CLIENT))
    project.test_file(
        f"""
        import numpy as np
        from torch_npu._device import operator

        def eager(x):
            operator("aclnnAdd", {value})
            return np.full(2, {value}, np.float32)

        @pytest.mark.npu_dump(scene="check_op")
        def test_op(npu_dump):
            npu_dump.check_op({name!r}, np.full(2, 2, np.float32), reference=lambda x: x + x, call=eager)
        """
    )
    options = ("--npudump-runtime=torch_npu", "--npudump-dump-dir=dumps")
    result = project.pytester.runpytest_inprocess(*options)
    result.assert_outcomes(passed=int(words is None), failed=int(words is not None))
    if words is not None:
        result.stdout.fnmatch_lines([words])
    for module in [found for found in sys.modules if found.partition(".")[0] in {"torch", "torch_npu"}]:
        monkeypatch.delitem(sys.modules, module)


def test_a_runtime_that_runs_no_operators_by_type_asks_for_a_call(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(CLIENT))
    write(project, "npu_dump.check_op('Relu', X, reference=relu)")
    result = project.pytester.runpytest_inprocess("--npudump-runtime=torch_npu")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["*the runtime torch_npu runs no operator by its type: give what runs it, as call=*"]
    )
    for module in [found for found in sys.modules if found.partition(".")[0] in {"torch", "torch_npu"}]:
        monkeypatch.delitem(sys.modules, module)
