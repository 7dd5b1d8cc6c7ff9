"""What sessions of small projects print and leave, word for word: goldens, reports, results, JUnit, summaries.

The model computes with small whole numbers, which are the same on every machine.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import struct
import subprocess
import termios
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Step = str | Callable[[Path], object]

TESTS = Path(__file__).parents[1]
DATA = TESTS / "data"
IMAGE = "np.arange(-32, 32, dtype=np.float32).reshape(1, 1, 8, 8)"
BODY = f"""\
with npu_dump.load_model("small.onnx") as model:
    model.run({IMAGE})
"""
RECORD = "pytest --npudump-update-golden"
FAIL = "pytest --npudump-output=. --junitxml=junit.xml --npudump-report"
CHECK = "npudump check results"


def model(
    *, change: float = 0, shape: int = 8, without: bool = False, extra: bool = False, nan: bool = False,
    name: str = "small", half: bool = False, first: float = 0,
) -> Callable[[Path], None]:  # fmt: skip
    """Conv, Relu, Conv, Softmax's place taken by Neg: ``change`` goes into the second Conv, ``first`` into the first."""

    def write(folder: Path) -> None:
        kind = np.float16 if half else np.float32
        rng = np.random.default_rng(3)
        one = rng.integers(-2, 3, (4, 1, 3, 3)).astype(kind)
        two = rng.integers(-1, 2, (2, 4, 3, 3)).astype(kind)
        one[0, 0, 0, 0] += kind(first)
        two[0] += kind(change)
        if nan:
            two[0, 0, 0, 0] = np.nan
        nodes = [
            helper.make_node("Conv", ["image", "w1"], ["a"], name="block/conv.1"),
            helper.make_node("Relu", ["a"], ["b"], name="block/relu.1"),
            helper.make_node("Conv", ["b", "w2"], ["c"], name="block/conv.2"),
            helper.make_node("Neg", ["c"], ["out"], name="head/neg"),
        ]
        if without:
            del nodes[1]
            nodes[1].input[0] = "a"
        if extra:
            nodes[-1].input[0] = "d"
            nodes.insert(-1, helper.make_node("Abs", ["c"], ["d"], name="head/abs"))
        number = TensorProto.FLOAT16 if half else TensorProto.FLOAT
        graph = helper.make_graph(
            nodes,
            name,
            [helper.make_tensor_value_info("image", number, [1, 1, shape, shape])],
            [helper.make_tensor_value_info("out", number, [1, 2, shape - 4, shape - 4])],
            [numpy_helper.from_array(one, "w1"), numpy_helper.from_array(two, "w2")],
        )
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        onnx.save(made, str(folder / f"{name}.onnx"))

    return write


def cut(rows: int) -> Callable[[Path], None]:
    """A model whose Slice and Abs return so many rows: without elements where these are none."""

    def write(folder: Path) -> None:
        nodes = [
            helper.make_node("Slice", ["image", "begin", "end"], ["b"], name="cut"),
            helper.make_node("Abs", ["b"], ["few"], name="abs"),
            helper.make_node("Neg", ["image"], ["out"], name="neg"),
        ]
        ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in ("out", "few")]
        image = helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 1, 8, 8])
        places = {"begin": [0, 0, 0, 0], "end": [1, 1, rows, 8]}
        ends = [numpy_helper.from_array(np.array(place), name) for name, place in places.items()]
        graph = helper.make_graph(nodes, "cut", [image], ports, ends)
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        onnx.save(made, str(folder / "small.onnx"))

    return write


def source(text: str, name: str = "test_small.py", head: str = "") -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        ini = folder / "pytest.ini"
        if not ini.exists():
            ini.write_text("[pytest]\nnpudump_runtime = emulator\nfilterwarnings = error\n")
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"import numpy as np\nimport pytest\n{head}\n{dedent(text)}", encoding="utf-8")

    return write


def marked(marker: str = "", body: str = BODY, **more: Any) -> Callable[[Path], None]:
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    return source(f"@pytest.mark.npu_dump({marker})\ndef test_small(npu_dump):\n{lines}", **more)


def written(name: str, text: str) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")

    return write


def edited(name: str, old: str, new: str, count: int = 1) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        (path,) = folder.glob(name)
        text = path.read_text(encoding="utf-8")
        assert old in text, text
        path.write_text(text.replace(old, new, count), encoding="utf-8")

    return edit


def removed(name: str) -> Callable[[Path], None]:
    return lambda folder: [path.unlink() for path in folder.glob(name)]


def elsewhere(folder: Path) -> None:
    """Tests and goldens in another checkout, on a machine without the model."""
    shutil.copytree(folder / "golden", folder / "elsewhere" / "golden")
    shutil.copy(folder / "test_small.py", folder / "elsewhere")


def kept_as(name: str) -> Callable[[Path], object]:
    return lambda folder: shutil.copytree(folder / "golden", folder / name)


def put_back(name: str) -> Callable[[Path], object]:
    return lambda folder: shutil.copytree(folder / name, folder / "golden", dirs_exist_ok=True)


def copied(*names: str) -> Callable[[Path], None]:
    return lambda folder: [shutil.copy(TESTS / name, folder) for name in names]


def git(*steps: str) -> list[str]:
    identity = "-c user.name=A -c user.email=a@b.example -c init.defaultBranch=main"
    return [f"git {identity} {step}" for step in steps]


RULES = """\
rules:
  - {layer: "block/conv*", dtype: float32, rtol: 0.5, reason: "known noise of this kernel"}
  - {layer: "head/*", statistic: max, atol: 100, reason: "only its sign counts"}
"""
TWO = f"""
@pytest.mark.npu_dump
@pytest.mark.parametrize("case", ["one", "a [b]/c", "it's"])
def test_cases(npu_dump, case):
    with npu_dump.load_model("small.onnx") as model:
        model.run({IMAGE})

@pytest.mark.npu_dump(layers=["block/*"])
class TestBoth:
    def test_inner(self, npu_dump):
        with npu_dump.load_model("small.onnx") as model:
            model.run({IMAGE})
            model.run({IMAGE} * 2)

def test_plain():
    pass
"""
LOOP = f"""\
with npu_dump.load_model("small.onnx") as model:
    for step in range(3):
        model.run({IMAGE} * step)
"""
CAPTURE = f"""\
for name in ("first", "second"):
    with npu_dump.capture(name), npu_dump.load_model("small.onnx") as model:
        model.run({IMAGE})
"""
TRAMPLE = (
    "from pytest_npudump.emulator.faults import trample\n"
    'trample("small", by="block/conv.2", victim="block/conv.1", first=12, elements=37)\n'
)
DISTORT = (
    "from pytest_npudump.emulator.faults import distort\n"
    "import os\n"
    'if os.environ.get("FAULT"):\n    distort("small", "block/conv.1", factor=2.0)\n'
)
BROKEN = 'from pytest_npudump.emulator.faults import fail\nfail("block/conv.2")\n'
WATCHER = (
    "scene='watcher', layers=['block/relu.1', 'block/conv.2'], acl_json={'watcher_nodes': ['block/conv.1']}"
)
HALF = f"""\
with npu_dump.load_model("small.onnx") as model:
    model.run({IMAGE}.astype(np.float16) * FACTOR)
"""
ONCE = "import itertools\nCOUNT = itertools.count()\n"
WAVER = f"""\
with npu_dump.load_model(("small.onnx", "other.onnx")[next(COUNT) % 2]) as model:
    model.run({IMAGE})
"""
OPERATOR = """\
import acl
X = np.arange(-4, 4, dtype=np.float32)
npu_dump.check_op("Relu", X, reference=lambda x: np.maximum(x, 0))
npu_dump.check_op("Add", X, X, reference=REFERENCE)
"""


def failing(
    marker: str = "", body: str = BODY, fault: Callable[[Path], None] | None = None, **more: Any
) -> list[Step]:
    """Record, pass, fail, and look at the failure by every command that shows it."""
    return [
        model(), marked(marker, body, **more), RECORD, "pytest", fault or model(change=1), FAIL, CHECK,
        "npudump golden diff --results results",
    ]  # fmt: skip


EMULATOR: dict[str, Sequence[Step]] = {
    "weights": [*failing(), "npudump golden accept --results results --reason because", "pytest", CHECK],
    "weights-tensor": failing("acl_json={'dump_data': 'tensor'}"),
    "weights-all": failing("acl_json={'dump_mode': 'all'}"),
    "weights-input": failing("acl_json={'dump_mode': 'input'}"),
    "weights-layers": failing("layers=['block/conv.2', 'head/neg']"),
    "weights-glob": failing("layers=['block/*']"),
    "weights-golden-tensors": failing("golden_tensors=['block/conv.2'], acl_json={'dump_data': 'tensor'}"),
    "weights-golden-auto": failing("golden_tensors='auto', acl_json={'dump_data': 'tensor'}"),
    "weights-projections": failing("acl_json={'dump_data': 'tensor', 'dump_mode': 'all'}", fault=model(first=1)),
    "weights-twice": [model(), marked(), RECORD, model(first=1), f"{FAIL} -o npudump_escalate=twice"],
    "weights-exact": failing("preset='exact'"),
    "weights-loose": failing("rtol=10.0"),
    "weights-loop": failing(body=LOOP),
    "weights-capture": failing(body=CAPTURE),
    "weights-step": failing("acl_json={'dump_step': '1'}", body=LOOP),
    "weights-half": [model(half=True), marked(body=HALF.replace("FACTOR", "1")), RECORD, "pytest",
                     model(half=True, change=1), FAIL, CHECK],
    "weights-isolated": failing("isolation='process'"),
    "weights-chinese": [model(), marked(), RECORD, model(change=1), f"{FAIL} -o npudump_lang=zh",
                        "npudump --lang zh check results", "npudump --lang zh golden diff --results results"],
    "weights-verbose": [model(), marked(), RECORD, model(change=1), f"{FAIL} -vv"],
    "weights-both": failing(fault=model(change=1, first=1)),
    "nan": failing(fault=model(nan=True)),
    "shape": [model(), marked(), RECORD, model(shape=9),
              edited("test_small.py", IMAGE, "np.ones((1, 1, 9, 9), np.float32)"), FAIL, CHECK],
    "dtype": [model(), marked(), RECORD, model(half=True),
              edited("test_small.py", IMAGE, f"{IMAGE}.astype(np.float16)"), FAIL, CHECK],
    "missing-layer": failing(fault=model(without=True)),
    "extra-layer": failing(fault=model(extra=True)),
    "input-changed": failing(fault=edited("test_small.py", IMAGE, f"{IMAGE} + 1")),
    "kernel": [model(), marked(body=DISTORT + BODY), RECORD, "export FAULT=1", FAIL, CHECK],
    "kernel-tensor": [model(), marked("acl_json={'dump_data': 'tensor', 'dump_mode': 'all'}", DISTORT + BODY), RECORD,
                      "export FAULT=1", FAIL, CHECK],
    "kernel-first-run": [model(), marked(body=DISTORT.replace('os.environ.get("FAULT")',
                         'os.environ.get("FAULT") and not next(COUNT)') + BODY, head=ONCE), RECORD,
                         "export FAULT=1", FAIL],
    "unstable": [model(), model(change=1, name="other"), marked(body=WAVER, head=ONCE), RECORD, FAIL],
    "reference": [model(), model(name="reference"), marked("reference='reference.onnx'"), "pytest", RECORD,
                  model(change=1), FAIL, CHECK],
    "reference-kernel": [model(), model(name="reference"),
                         marked("reference='reference.onnx'", DISTORT + BODY), "export FAULT=1", FAIL],
    "no-golden": [model(), marked(), FAIL, CHECK, "npudump golden accept --results results", "pytest"],
    "empty-dump": [model(), marked("layers=['no.such.layer']"), RECORD, FAIL],
    "empty-body": [model(), marked(body="pass\n"), RECORD, FAIL],
    "golden-broken": [model(), marked(), RECORD, edited("golden/**/*.yaml", "block/conv.2", "block conv.2"), FAIL,
                      "npudump golden status --no-collect"],
    "golden-conflict": [model(), marked(), RECORD,
                        edited("golden/**/*.yaml", "tensors: |", "<<<<<<< ours\ntensors: |"), FAIL,
                        "npudump golden status --no-collect"],
    "golden-of-another": [model(), marked(), RECORD,
                          edited("golden/**/*.yaml", "test_small.py::test_small", "test_a.py::test_b"), FAIL],
    "golden-by-hand": [*failing(), edited("golden/**/*.yaml", "block/conv.2 float", "block/conv.3 float"), CHECK],
    "kept-by-hand": [model(), marked(), RECORD, FAIL, edited("golden/**/*.yaml", "block/conv.2 float", "block.conv.2 float"),
                     CHECK, "pytest -o npudump_escalate=off",
                     edited("golden/**/*.yaml", "relu.1 float32", "relu.1 float16"), CHECK,
                     "pytest -o npudump_escalate=off"],
    "kept-other-golden": [model(change=1), marked(), RECORD, kept_as("other"), model(), RECORD, FAIL, put_back("other"),
                          edited("golden/**/*.yaml", "block/conv.2", "block/conv.9", -1), CHECK,
                          "pytest -o npudump_escalate=off"],
    "kept-empty": [cut(2), marked(), RECORD, kept_as("other"), cut(0), FAIL, RECORD, CHECK, "pytest", FAIL,
                   put_back("other"), CHECK, "pytest -o npudump_escalate=off"],
    "kept-accepted": [model(), marked(), RECORD, model(change=1), FAIL, "npudump golden accept --results results",
                      CHECK, "pytest"],
    "kept-elsewhere": [model(), marked(), RECORD, model(change=1), FAIL, elsewhere, removed("golden/**/*.yaml"),
                       CHECK, f"{CHECK} --root elsewhere"],
    "rules": [model(), marked(), written("rules.yaml", RULES), RECORD, model(change=1),
              f"{FAIL} --npudump-tolerances=rules.yaml", f"{CHECK} --tolerances rules.yaml",
              f"{CHECK} --preset torch", "npudump golden show golden/test_small/test_small.yaml --tolerances",
              "npudump golden show golden/test_small/test_small.yaml block/conv.2 --tolerances rules.yaml"],
    "rules-of-marker": failing("tolerances=[{'layer': 'block/conv.2', 'rtol': 9.0, 'reason': 'r'}]"),
    "rules-bad": [model(), marked(), written("rules.yaml", "rules:\n  - {layers: a, rtol: x}\n"),
                  "pytest --npudump-tolerances=rules.yaml"],
    "what-if": [*failing(), f"{CHECK} --preset exact", f"{CHECK} --preset strict", f"{CHECK} --preset torch -v",
                f"{CHECK} --json -"],
    "fail-on-change": [model(), marked("rtol=1e3"), RECORD, model(change=1), "pytest -o npudump_fail_on=change",
                       "pytest"],
    "numerics": [model(), marked("preset='other'"), RECORD, model(change=1), FAIL, f"{CHECK} --preset same"],
    "presets": [model(), marked(), RECORD, model(change=1), *(
        f"pytest -o npudump_escalate=off -o npudump_preset={name}" for name in ("torch", "ascend-abs", "strict"))],
    "many": [model(), source(TWO), RECORD, "pytest -v", model(change=1), FAIL, CHECK,
             "npudump golden accept 'test_small.py::test_cases[one]' --results results",
             "npudump golden reject TestBoth --results results",
             "npudump golden accept --layers 'block/*' --results results", CHECK, "npudump golden status --no-collect"],
    "expected": [model(), source(TWO), RECORD, "pytest -o npudump_expect=4", "pytest -o npudump_expect=5",
                 "pytest -k one -o npudump_expect=4"],
    "update-new": [model(), source(TWO), f"{RECORD}=new -k one", f"{RECORD}=new", f"{RECORD}=new"],
    "update-ci": [model(), marked(), "export CI=true", RECORD, f"{RECORD} -o npudump_allow_in_ci=true"],
    "update-reason": [model(), marked(), f"{RECORD} --npudump-reason='a new kernel'",
                      "npudump golden show golden/test_small/test_small.yaml",
                      "npudump golden show golden/test_small/test_small.yaml --json -"],
    "variant": [model(), marked(), RECORD, model(change=1), f"{RECORD} -o npudump_golden_variant=Ascend310P",
                "pytest -o npudump_golden_variant=Ascend310P", model(), "pytest", "npudump golden status",
                "npudump golden status --no-collect"],
    "stale": [model(), source(TWO), RECORD, marked(), "npudump golden status", "npudump golden status --prune",
              "npudump golden status --prune --yes"],
    "history": [model(), marked(), RECORD, *git("init -q", "add golden", "commit -q -m one"), model(change=1), RECORD,
                *git("commit -q -a -m two"), "npudump golden log golden/test_small/test_small.yaml"],
    "merge": [model(), marked(), RECORD, lambda f: shutil.copy(f / "golden/test_small/test_small.yaml", f / "base.yaml"),
              model(change=1), RECORD,
              "npudump golden merge base.yaml golden/test_small/test_small.yaml base.yaml",
              "npudump golden merge golden/test_small/test_small.yaml base.yaml base.yaml"],
    "report": [*failing(), "npudump report results -o made", "npudump report results --node-data made",
               "npudump report results --plots made"],
    "plot": [model(), marked("acl_json={'dump_data': 'tensor'}"), RECORD, "pytest --npudump-output=. -o npudump_keep_dumps=all",
             "npudump compare golden/test_small/test_small.yaml dumps --plots made"],
    "compare": [model(), marked("acl_json={'dump_data': 'tensor'}"), RECORD,
                "pytest --npudump-output=. -o npudump_keep_dumps=all",
                "npudump compare golden/test_small/test_small.yaml dumps",
                "npudump compare golden/test_small/test_small.yaml dumps --json -"],
    "artifacts": [model(), marked(), RECORD, model(change=1), "pytest --npudump-output=made"],
    "repro": [*failing(), "npudump repro . -o made/one", "npudump repro -o made/two"],
    "xfail": [model(), source(f"@pytest.mark.xfail\n{'@pytest.mark.npu_dump'}\ndef test_small(npu_dump):\n"
                              + "".join(f"    {line}\n" for line in BODY.splitlines())), RECORD,
              model(change=1), FAIL],
    "body-fails": [model(), marked(body=f"{BODY}assert False, 'of its own'\n"), RECORD, FAIL],
    "body-skips": [model(), marked(body=f"pytest.skip('not here')\n{BODY}"), RECORD, FAIL],
    "marker-wrong": [model(), marked("layer=['a'], dump_modes='all', scene='models'"), "pytest"],
    "marker-values": [model(), marked("rtol='a', acl_json={'dump_step': '3-1'}, layers='a'"), "pytest"],
    "no-fixture": [model(), source("@pytest.mark.npu_dump\ndef test_small():\n    pass\n"), RECORD, "pytest"],
    "model-missing": [marked(), RECORD],
    "model-broken": [written("small.onnx", "nothing"), marked(), RECORD],
    "budget": [model(), marked("golden_tensors=['*'], acl_json={'dump_data': 'tensor'}"), f"{RECORD} -o npudump_tensor_budget=10"],
    "dump-limit": [model(), marked(), RECORD, model(change=1), f"{FAIL} -o npudump_dump_limit=100"],
    "overflow-healthy": [model(half=True), marked("scene='overflow'", HALF.replace("FACTOR", "1")), FAIL, CHECK],
    "overflow": [model(half=True), marked("scene='overflow'", HALF.replace("FACTOR", "2000")), FAIL, CHECK],
    "watcher-healthy": [model(), marked(WATCHER), FAIL, CHECK],
    "watcher": [model(), marked(WATCHER, TRAMPLE + BODY), FAIL, CHECK],
    "exception-healthy": [model(), marked("scene='exception', isolation='none'"), FAIL, CHECK],
    "exception": [model(), marked("scene='exception', isolation='none'", BROKEN + BODY), FAIL, CHECK],
    "check-op": [marked("scene='check_op'", OPERATOR.replace("REFERENCE", "np.add").replace("import acl\n", "")), FAIL],
    "check-op-fails": [marked("scene='check_op'",
                              OPERATOR.replace("REFERENCE", "np.subtract").replace("import acl\n", "")), FAIL,
                       CHECK, "npudump golden diff --results results"],
    "external": [model(), copied("data/emulator/classify.py"), written("acl.json", '{"err_msg_mode": "1"}'),
                 lambda f: np.save(f / "image.npy", np.arange(-32, 32, dtype=np.float32).reshape(1, 1, 8, 8)),
                 marked(body='npu_dump.run([*COMMAND, "acl.json"], acl_json="acl.json", models=["small.onnx"])\n',
                        head='import sys\nSTART = ("import sys, runpy; from pytest_npudump.emulator.install import '
                        'install; install(); sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], '
                        'run_name=\'__main__\')")\nCOMMAND = [sys.executable, "-c", START, "classify.py", "small.om", '
                        '"image.npy", "result.npy"]\n'), RECORD, "pytest", model(change=1), FAIL],
    "init": ["npudump init", "npudump init --dry-run"],
    "config-show": [model(), marked("acl_json={'dump_step': '0|2', 'dump_mode': 'all'}"), "npudump config show test_small.py"],
}  # fmt: skip


@pytest.mark.parametrize("name", EMULATOR)
def test_a_project_on_the_emulator(frozen: Callable[..., None], name: str) -> None:
    frozen(f"project-{name}", EMULATOR[name])


TORCH = "export PYTHONPATH={tests}/data/torch_client TORCH_CLIENT_COUNTER=0"
EAGER = """
import os
from torch_npu._device import operator
CHANGE = float(os.environ.get("CHANGE", "0"))

@pytest.mark.npu_dump({marker})
def test_eager(npu_dump):
    for step in range(2):
        operator("aclnnAdd", 1 + step)
        operator("aclnnMul", 2 + CHANGE)
"""
NET = """
import os
import mindspore
CHANGE = float(os.environ.get("CHANGE", "0"))

@pytest.mark.npu_dump({marker})
def test_net(npu_dump):
    mindspore.run(0, {{"Default/a/Add-op0": 1, "Default/b.c/Mul-op0": 2 + CHANGE, "fc.weight": 3}})
    mindspore.run(1, {{"Default/a/Add-op1": 4, "Default/d/Mul-op0": 5 + CHANGE, "d.bias": 6}})
"""
CLIENTS: dict[str, tuple[str, str, str]] = {
    **{f"torch-{n}": (EAGER, "torch_npu", m) for n, m in {
        "op": "scene='op'", "op-tensor": "scene='op', acl_json={'dump_data': 'tensor'}", "op-layers": "scene='op', layers=['*Mul*']",
        "model": "", "overflow": "scene='overflow'", "watcher": WATCHER}.items()},
    **{f"mindspore-{n}": (NET, "mindspore", m) for n, m in {
        "model": "", "layers": "layers=['Default/b.c/Mul-op0']", "step": "acl_json={'dump_step': '0'}", "glob": "layers=['*Mul*']",
        "mode": "acl_json={'dump_mode': 'all'}", "watcher": WATCHER}.items()},
}  # fmt: skip


@pytest.mark.parametrize("name", CLIENTS)
def test_a_project_over_a_stand_in_of_a_framework(frozen: Callable[..., None], name: str) -> None:
    text, runtime, marker = CLIENTS[name]
    paths = f"export PYTHONPATH={{tests}}/data/{'torch' if runtime == 'torch_npu' else runtime}_client"
    option = f"--npudump-runtime={runtime}"
    steps = [paths, "export TORCH_CLIENT_COUNTER=0", source(text.format(marker=marker)), f"{RECORD} {option}",
             f"pytest {option}", "export CHANGE=1", f"{FAIL} {option}", CHECK]  # fmt: skip
    frozen(f"client-{name}", steps)


def test_the_demonstration(frozen: Callable[..., None]) -> None:
    frozen("demonstration", ["inexact", "npudump demo"])


STAGE = "/backbone/features/stage_{}/inverted_residual_block/depthwise_separable"
HEAD = "jax2tf_get_logits_/pjit_get_logits_/MagikaV2/LayerNorm_{}"
LONG = f"""
import os
from pytest_npudump.emulator.faults import distort

@pytest.mark.npu_dump
@pytest.mark.parametrize("name", ["permuted", "scaled", "attribute", "kernel"])
def test_model(npu_dump, name):
    if os.environ.get("FAULT"):
        distort("kernel", "{HEAD.format(1)}/Conv", factor=2.0)
    with npu_dump.load_model(f"{{name}}.onnx") as model:
        model.run(np.arange(-32, 32, dtype=np.float32).reshape(1, 4, 4, 4))
"""


def long_names(*, changed: bool = False) -> Callable[[Path], None]:
    """Write a model for each fault, with names as exporters write them: of 70 characters, short beside long, in an If."""

    def write(folder: Path) -> None:
        rng = np.random.default_rng(5)
        one, two = (rng.integers(-2, 3, (4, 1, 3, 3)).astype(np.float32) for _ in range(2))
        given, made = (
            helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4, 4, 4]) for name in ("image", "out")
        )
        spread: dict[str, Any] = {"group": 4, "pads": [1, 1, 1, 1]}

        def chain(names: Sequence[str], slope: float = 0.25) -> list[onnx.NodeProto]:
            first, relu, second, last = names
            return [
                helper.make_node("Conv", ["image", "one"], ["a"], name=first, **spread),
                helper.make_node("LeakyRelu", ["a"], ["b"], name=relu, alpha=slope),
                helper.make_node("Conv", ["b", "two"], ["c"], name=second, **spread),
                helper.make_node("Neg", ["c"], ["out"], name=last),
            ]

        blocks = [f"{STAGE.format(1)}/depthwise_conv/Conv", f"{STAGE.format(1)}/activation/LeakyRelu"]
        blocks += [f"{STAGE.format(2)}/depthwise_conv/Conv", f"{STAGE.format(2)}/negation/Neg"]
        roots = [
            f"{HEAD.format(0)}/Conv",
            f"{HEAD.format(0)}/LeakyRelu",
            f"{HEAD.format(1)}/Conv",
            "Unsqueeze__115",
        ]
        inner = helper.make_graph(chain(blocks, 0.5 if changed else 0.25), "then", [], [made])
        other = helper.make_graph([helper.make_node("Neg", ["image"], ["out"])], "else", [], [made])
        choice = helper.make_node("If", ["yes"], ["out"], name="If_0", then_branch=inner, else_branch=other)
        yes = numpy_helper.from_array(np.ones((), bool), "yes")
        for name, nodes, weight in (
            ("permuted", chain(blocks), two[::-1].copy()),
            ("scaled", chain(roots), two * 2),
            ("attribute", [choice], two),
            ("kernel", chain(roots), two),
        ):
            used = [(one, "one"), (weight if changed else two, "two")]
            weights = [numpy_helper.from_array(*pair) for pair in used] + [yes] * (name == "attribute")
            graph = helper.make_graph(nodes, name, [given], [made], weights)
            built = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
            onnx.save(built, str(folder / f"{name}.onnx"))

    return write


def on_a_terminal(client: list[str], columns: int, *options: str) -> Callable[[Path], None]:
    """Write down what pytest prints on a terminal; each line fits, but for ids, paths and commands to copy."""

    def show(folder: Path) -> None:
        command = [*client, "-mpytest", "-q", "--color=no", "--npudump-output=.", *options]
        number, terminal = os.openpty()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
        with subprocess.Popen(command, stdout=terminal, stderr=terminal, env=environment):
            os.close(terminal)
            printed = b""
            with contextlib.suppress(OSError):  # which ends what a terminal reads
                while part := os.read(number, 65536):
                    printed += part
        os.close(number)
        lines = printed.decode().replace("\r\n", "\n").splitlines()
        copied = ("report: ", "to accept: ", "hand over: ", "npudump: report: ")
        wide = [line for line in lines if len(line) > columns and not line.startswith(copied)]
        assert wide == [], wide
        (folder / "made").mkdir(exist_ok=True)
        (folder / "made" / f"{columns}.txt").write_text("\n".join(lines), encoding="utf-8")

    return show


def test_long_names_on_terminals(frozen: Callable[..., None], warm: Any) -> None:
    shown = [on_a_terminal(warm.client, columns) for columns in (80, 120)]
    recorded = on_a_terminal(warm.client, 80, "--npudump-update-golden")
    steps = [long_names(), source(LONG), recorded, "export FAULT=1", long_names(changed=True), *shown]
    frozen("terminals", [*steps, "cat made/80.txt", "cat made/120.txt"])


def test_results_are_plain_data(frozen: Callable[..., None]) -> None:
    def reread(folder: Path) -> None:
        for path in folder.glob("results/**/*.json*"):
            for line in path.read_text().splitlines():
                json.loads(line)

    frozen("results", [model(), source(TWO), "pytest --npudump-output=.", reread, CHECK])
