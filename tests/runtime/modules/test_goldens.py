"""Tests whose layers are torch modules: one golden for all ways to run a model, faults named, two answers."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from pytest_npudump.dump.table import PROJECTIONS
from pytest_npudump.golden import store

os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
torch: Any = pytest.importorskip("torch")
MODELS = Path(__file__).parents[2] / "data" / "modules" / "models.py"
sys.path.insert(0, str(MODELS.parent))
models: Any = pytest.importorskip("models")

LOADED = (yaml, store)
"""What sessions in this process share: they forget what they load themselves."""
pytestmark = pytest.mark.filterwarnings("ignore")  # of torch, within itself
FIXTURE = """
import copy, os, pytest, torch, models

@pytest.fixture
def model():
    made = models.transformer(2)
    fault = os.environ.get("FAULT", "")
    if fault in {"weight", "slight"}:
        made.blocks[0].mlp[2].weight.data *= 1.01 if fault == "weight" else 1 + 2**-20
    if fault == "rounded":
        made.blocks[0].qkv.register_forward_hook(lambda _, x, y: y * (1 + 2**-20))
    if fault in {"kernel", "rounded"}:
        made.blocks[1].out.register_forward_hook(lambda _, x, y: y + 0.01 * (y == y.max()))
    if fault == "step":
        calls = iter((0, 0.01, 0, 0.01))  # of the run, and of the second run
        made.blocks[1].qkv.register_forward_hook(lambda _, x, y: y + next(calls) * (y == y.max()))
    return made
"""
BLOCKS = """
@pytest.mark.npu_dump(scene="modules", **({"map": "names.yaml"} if os.environ.get("WAY") == "graph" else {}))
def test_blocks(model):
    way, given = os.environ.get("WAY", ""), models.words()
    if way == "graph":
        replay = models.captured(model, given).replay
    else:
        replay = lambda: run(given)
    run = torch.compile(model, backend="eager", fullgraph=True) if way == "compiled" else model
    for seed in range(2):
        given.copy_(models.words(seed + 5 * (os.environ.get("FAULT") == "input")))
        replay()
"""


@pytest.fixture(scope="session", autouse=True)
def _loaded() -> None:
    """Modules that are loaded once: sessions in this process forget what they load themselves."""
    torch.compile(lambda x: x + 1, backend="eager")(torch.ones(1))


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    pytester.makepyfile(test_blocks=FIXTURE + BLOCKS)
    pytester.makeini("[pytest]\nfilterwarnings = ignore")
    methods = ("capture_begin", "capture_end", "replay")
    kind = type("NPUGraph", (models.Graph,), {name: vars(models.Graph)[name] for name in methods})
    monkeypatch.setattr(torch, "npu", type("npu", (), {"NPUGraph": kind}), raising=False)
    monkeypatch.setattr(models, "Graph", kind)
    return pytester


def test_one_golden_serves_eager_compiled_and_captured(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fault is named by its layer, whichever way the model runs, and with the marker's map."""
    (project.path / "names.yaml").write_text("{}")
    project.runpytest_inprocess("--npudump-update-golden").assert_outcomes(passed=1)
    told = {
        "weight": "npudump: blocks.0.mlp.2: weights changed (1 of *",
        "kernel": "model: *its parameters are identical to the golden's; the code, a kernel*",
    }
    cases = [
        ("", "", ""),
        ("compiled", "", ""),
        ("graph", "", ""),
        ("", "weight", "blocks.0.mlp.2:output.0"),
        ("graph", "weight", "blocks.0.mlp.2:output.0"),
        ("", "kernel", "blocks.1.out:output.0"),
        ("compiled", "kernel", "blocks.1.out:output.0"),
        ("", "step", "blocks.1.qkv#step=1:output.0"),
    ]
    for way, fault, named in cases:
        monkeypatch.setenv("WAY", way)
        monkeypatch.setenv("FAULT", fault)
        done = project.runpytest_inprocess()
        if fault:
            done.assert_outcomes(failed=1)
            done.stdout.fnmatch_lines(
                [
                    f"npudump: *{named} *",
                    f"source:     {named}; all statistics before it match, including *",
                    "second run: reproduced; * layers dumped as tensors",
                ]
            )
            done.stdout.fnmatch_lines([told.get(fault, "*")])
        else:
            done.assert_outcomes(passed=1)
            done.stdout.fnmatch_lines(["npudump: 1 of 1 tests passed; 38 of 38 tensors compared (modules)"])
    monkeypatch.setenv("WAY", "")
    monkeypatch.setenv("FAULT", "slight")
    done = project.runpytest_inprocess()
    done.assert_outcomes(passed=1)
    done.stdout.fnmatch_lines(
        ["npudump: 1 test passed with a changed model: test_blocks.py::test_blocks (blocks.0.mlp.2)"]
    )
    monkeypatch.setenv("FAULT", "input")
    for way, told in (("", "npudump: model *: inputs changed; first mismatch: *"), ("graph", "npudump: *")):
        monkeypatch.setenv("WAY", way)  # of a graph it is not known what it will be replayed with
        done = project.runpytest_inprocess()
        done.stdout.fnmatch_lines([told])
        if way:
            done.stdout.no_fnmatch_line("*: inputs changed*")


def test_a_change_is_not_traced_to_what_compiled_code_rounds_otherwise(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.runpytest_inprocess("--npudump-update-golden").assert_outcomes(passed=1)
    monkeypatch.setenv("FAULT", "rounded")
    for way, begins in (
        ("compiled", "blocks.1.out:output.0 max*"),
        ("", "the change is traced to blocks.0.*"),
    ):
        monkeypatch.setenv("WAY", way)
        done = project.runpytest_inprocess()
        done.stdout.fnmatch_lines([f"npudump: {begins}"])
        if way:
            hint = "preset: *; golden recorded eagerly, this run compiled; set preset=*"
            done.stdout.fnmatch_lines(["npudump: *", hint, "golden: *"])


PASSED = """
import os, pytest, torch

@pytest.mark.npu_dump(scene="modules", acl_json={"dump_mode": "all"})
def test_passed(npu_dump):
    torch.manual_seed(0)
    model, given = torch.nn.Sequential(torch.nn.Linear(8, 8)), torch.randn(2, 2, 4, 8)
    if flipped := os.environ.get("FLIPPED"):
        given[int(flipped[0]), int(flipped[1])] = given[int(flipped[0]), int(flipped[1])].flip(0)
    for executions in given:
        with npu_dump.modules(model):
            for one in executions:
                model(one)
"""


def test_inputs_and_outputs_of_each_capture_and_execution_have_projections(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.makepyfile(test_passed=PASSED)
    pytester.makeini("[pytest]\nfilterwarnings = ignore")
    pytester.runpytest_inprocess("--npudump-update-golden").assert_outcomes(passed=1)
    (path,) = pytester.path.glob("golden/*/*.yaml")
    table = store.read_golden(path).table
    assert len(table) == 16
    assert table.tells(PROJECTIONS).all()
    for flipped, at in (("00", ""), ("01", "#step=1"), ("10", "#load=1"), ("11", "#load=1,step=1")):
        monkeypatch.setenv("FLIPPED", flipped)
        done = pytester.runpytest_inprocess()
        done.assert_outcomes(failed=1)
        first = f"Sequential{at}:input.0"
        headline = f"npudump: model Sequential: inputs changed; first mismatch: {first} *"
        if "step" in at:  # of executions behind the first of a capture there is no digest
            headline = f"npudump: {first} *"
        done.stdout.fnmatch_lines([headline, "* 4 of 16 tensors"])


COMPARED = """
@pytest.mark.npu_dump(scene="modules", layers=["blocks.*"])
@pytest.mark.parametrize("broken", [False, True])
def test_same(npu_dump, model, broken):
    given = models.words()
    with npu_dump.modules(model) as eager:
        model(given)
    if broken:
        model.blocks[1].qkv.bias.data += 0.1
    with npu_dump.modules(model) as graph:
        models.captured(model, given).replay()
    npu_dump.same(eager, graph)

@pytest.mark.npu_dump(scene="modules")
@pytest.mark.parametrize("bound", [{"rtol": -1}, {"rtol": float("inf")}, {"atol": float("nan")}, {}])
def test_bounds(npu_dump, bound):
    sides = [npu_dump.modules(torch.nn.Linear(4, 4), golden=not side) for side in range(2)]
    for one in sides:
        one.model(torch.ones(2, 4))
    npu_dump.same(sides[0], sides[bool(bound)], **bound)

class Packed(torch.nn.Linear):  # as torch.ao's quantised modules, whose weights are no parameters
    _packed_params = None

class Shard(torch.nn.Parameter):  # as torch's DTensor
    def to_local(self):
        return self

    def numpy(self):
        raise RuntimeError

@pytest.mark.npu_dump(scene="modules")
@pytest.mark.parametrize("kind", ["packed", "shard"])
def test_parts(npu_dump, kind):
    torch.manual_seed(0)
    model = torch.nn.Sequential((Packed if kind == "packed" else torch.nn.Linear)(4, 4))
    if kind == "shard":
        model[0].weight = Shard(model[0].weight.data)
    npu_dump.modules(model)
    model(torch.ones(2, 4))

@pytest.mark.npu_dump(scene="modules")
def test_lazy(npu_dump):
    model = torch.nn.Sequential(torch.nn.LazyLinear(4), torch.nn.LazyBatchNorm1d())
    model[1].uncalled = torch.nn.LazyLinear(2)
    npu_dump.modules(model)
    model(torch.ones(2, 3))

@pytest.mark.npu_dump(scene="modules", layers=["blocks.*"])
@pytest.mark.parametrize("broken", [False, True])
def test_ratio(npu_dump, model, broken):
    device, rounded = copy.deepcopy(model).bfloat16(), copy.deepcopy(model).bfloat16()
    reference = npu_dump.modules(model, tensors=True, golden=False)
    on_cpu = npu_dump.modules(rounded, tensors=True, golden=False)
    on_device = npu_dump.modules(device, tensors=True)
    if broken:
        device.blocks[1].mlp[0].weight.data *= 1.1
    for one in (model, rounded, device):
        one(models.words())
    assert {found.ratio for found in npu_dump.ratio(on_device, on_cpu, reference)} == {1}

@pytest.mark.npu_dump(scene="modules", layers=["blocks.*"])
def test_lost(npu_dump, model):
    reference = npu_dump.modules(model, tensors=True, golden=False)
    rounded = npu_dump.modules(copy.deepcopy(model), tensors=True, golden=False)
    device = npu_dump.modules(copy.deepcopy(model), tensors=True, layers=["blocks.1"])
    for one in (model, rounded.model, device.model):
        one(models.words())
    npu_dump.ratio(device, rounded, reference)

class Chooses(torch.nn.Module):
    def forward(self, x):
        return x.argmax(-1)

@pytest.mark.npu_dump(scene="modules")
@pytest.mark.parametrize("steps", [1, 2])
def test_further(npu_dump, steps):
    made = [torch.nn.Sequential(torch.nn.Identity(), Chooses()) for _ in range(3)]
    three = [npu_dump.modules(one, tensors=True, golden=False) for one in made]
    for one in made + made[:1] * (steps - 1):
        one(torch.ones(2, 3))
    assert len(npu_dump.ratio(*three)) == 1
"""
BESIDE = """
@pytest.mark.npu_dump(scene="modules", layers=["blocks.*"])
@pytest.mark.parametrize("broken", [False, True])
@pytest.mark.parametrize("how", ["same", "ratio", "nothing"])
def test_beside(npu_dump, model, how, broken):
    rounded = copy.deepcopy(model).bfloat16()
    device = copy.deepcopy(rounded)
    if broken:
        device.blocks[1].mlp[0].weight.data *= 1.1
    three = [npu_dump.modules(one, tensors=True, golden=False) for one in (device, rounded, model)]
    for one in (device, rounded, model):
        one(models.words())
    if how != "nothing":
        getattr(npu_dump, how)(*three[: 2 if how == "same" else 3])
"""


def test_two_captures_are_held_against_each_other(project: pytest.Pytester) -> None:
    project.makepyfile(test_blocks=FIXTURE + COMPARED)
    done = project.runpytest_inprocess("--npudump-update-golden", "-rA")
    done.assert_outcomes(passed=6, failed=8)
    parts = [path.read_text("utf-8") for path in project.path.rglob("golden/**/test_parts*.yaml")]
    assert [".fed" in text and ".parameters" not in text for text in parts] == [True, True]
    done.stdout.no_fnmatch_line("*plugin*modules.py:*")
    done.stdout.fnmatch_lines(
        [
            "*npu_dump.same(): 7 of 16 tensors differ; first: blocks.1.qkv:output.0 *",
            'E *tolerance: preset same; set preset="other" if only rounding differs',
            "*RequestError: npu_dump.same(): rtol: -1 is not allowed, expected a finite number, *",
            "*RequestError: npu_dump.same(): rtol: inf is not allowed, expected a finite number, *",
            "*RequestError: npu_dump.same(): atol: nan is not allowed, expected a finite number, *",
            "*RequestError: npu_dump.same(): takes two captures, not one twice",
            "*rounding does not explain it: blocks.1.mlp.0:output.0 (Linear): relative_l2 error *",
            "*RequestError: tensors of both references that the device lacks: 15; first: blocks.0.*",
            "*RequestError: the device has 2 executions, and a reference 1*",
        ]
    )
    done.stdout.fnmatch_lines(
        ["*tensors not checked, as they have no floating-point values: 2: 1:output.0, Sequential:*"]
    )
    (golden,) = (path.read_text("utf-8") for path in project.path.rglob("golden/**/test_ratio*False*.yaml"))
    assert golden.count("bfloat16") == 16
    assert "float32" not in golden.replace("bfloat16", "")
    (both,) = (path.read_text("utf-8") for path in project.path.rglob("golden/**/test_same*False*.yaml"))
    assert both.count("#load=1") == 16


@pytest.mark.parametrize("options", [(), ("--npudump-update-golden",)])
def test_captures_beside_the_golden_are_judged_by_the_test_alone(
    project: pytest.Pytester, options: tuple[str, ...]
) -> None:
    project.makepyfile(test_blocks=FIXTURE + BESIDE)
    done = project.runpytest_inprocess(*options)
    done.assert_outcomes(passed=2, failed=4)
    told = {
        "same-True": "npu_dump.same(): ",
        "ratio-True": "npu_dump.ratio(): rounding does not explain it: blocks.1.mlp.0:",
        "nothing-False": "no module was called while it was watched for the golden",
        "nothing-True": "no module was called while it was watched for the golden",
    }
    done.stdout.fnmatch_lines_random(
        [f"FAILED *test_beside[[]{name}]*{words}*" for name, words in told.items()]
    )
    assert not [*project.path.rglob("golden/**/*.yaml")]


KEPT = """
@pytest.mark.npu_dump(scene="modules", layers=["blocks.*"], golden_tensors="*")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_kept(npu_dump, model, dtype):
    model.to(getattr(torch, dtype))
    npu_dump.modules(model, tensors=True)
    model(models.words())
"""
REFERENCES = """
from pathlib import Path

class HuggingFace(torch.nn.Module):  # layers by the same names, in code of its own
    def __init__(self, made):
        super().__init__()
        self.embed_tokens, self.blocks = made.embed, made.blocks

    def forward(self, words):
        x = self.embed_tokens(words)
        for block in self.blocks:
            q, k, v = block.qkv(block.norm(x)).chunk(3, -1)
            scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
            later = torch.ones(scores.shape[-2:]).triu(1).bool()
            x = x + block.out(scores.masked_fill(later, -torch.inf).softmax(-1) @ v)
            x = x + block.mlp(x)
        return x

@pytest.mark.npu_dump(scene="modules", layers=["blocks.*"])
@pytest.mark.parametrize("broken", [False, True])
@pytest.mark.parametrize("kind", ["model", "run", "golden"])
def test_ratio(npu_dump, model, kind, broken):
    device = copy.deepcopy(model).bfloat16()
    if broken:
        device.blocks[1].mlp[0].weight.data *= 1.1
    on_device = npu_dump.modules(device, tensors=True)
    device(models.words())
    if kind == "model":
        exact = HuggingFace(model)
        rounded = copy.deepcopy(exact).bfloat16()
        told = dict(layers=["blocks.*.*"], tensors=True, golden=False)
        one, other = (npu_dump.modules(made, **told) for made in (rounded, exact))
        rounded(models.words()), exact(models.words())
    else:
        pattern = {"run": "kept/dumps/*test_kept*%s*", "golden": "golden/*/test_kept*%s*.yaml"}[kind]
        here = Path(os.environ["HERE"])
        one, other = (str(*here.glob(pattern % dtype)) for dtype in ("bfloat16", "float32"))
    assert len(npu_dump.ratio(on_device, one, other)) == {"model": 14}.get(kind, 16)
"""


def test_references_of_a_ratio_are_a_model_in_the_test_a_kept_run_or_a_golden(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HERE", str(project.path))
    project.makepyfile(test_blocks=FIXTURE + KEPT)
    options = ("--npudump-update-golden", "-onpudump_keep_dumps=all", "--npudump-output=kept")
    project.runpytest_inprocess(*options).assert_outcomes(passed=2)
    project.makepyfile(test_ratios=FIXTURE + REFERENCES)
    done = project.runpytest_inprocess("--npudump-update-golden", "test_ratios.py")
    done.assert_outcomes(passed=3, failed=3)
    words = "rounding does not explain it: blocks.1.mlp.0:output.0 (Linear): "
    assert sum(line.startswith("E ") and words in line for line in done.outlines) == 3


UNUSED = """
@pytest.mark.npu_dump(scene="modules")
def test_twice(npu_dump, model):
    for name in ("spare", "other"):
        setattr(model, name, torch.nn.Linear(2, 2))
        with npu_dump.modules(model):
            model(models.words())

@pytest.mark.npu_dump(scene="modules")
def test_part(npu_dump, model):
    with npu_dump.capture("part"):
        model(models.words())

@pytest.mark.npu_dump(scene="modules", layers=["blocks.*"])
def test_chosen(npu_dump, model):
    model.spare = torch.nn.Linear(2, 2)
    with npu_dump.modules(model):
        model(models.words())

@pytest.mark.npu_dump(scene="modules")
def test_raises(npu_dump, model):
    with npu_dump.modules(model):
        raise ArithmeticError("before the model")
"""


def test_modules_that_are_not_called_are_one_note_of_a_test_that_recorded_others(
    project: pytest.Pytester,
) -> None:
    project.makepyfile(test_blocks=FIXTURE + UNUSED)
    done = project.runpytest_inprocess("--npudump-update-golden")
    done.assert_outcomes(passed=3, failed=1)
    done.stdout.no_fnmatch_line("*nothing watches*")
    assert "  Transformer#capture=part" in (project.path / "golden/test_blocks/test_part.yaml").read_text()
    (note,) = (line for line in done.outlines if " not recorded: " in line)
    assert "test_twice: modules of Transformer not recorded: 1 of " in note


TENSORS = """
@pytest.mark.npu_dump(scene="modules", acl_json={"dump_data": "tensor"}, golden_tensors=["*"])
def test_tensors(npu_dump):
    inner = torch.nn.Sequential(torch.nn.ReLU())
    npu_dump.modules(model := torch.nn.Sequential(inner))
    model(torch.ones(2, 4))
"""


def test_golden_tensors_of_modules_in_others_are_dumped_by_their_paths(project: pytest.Pytester) -> None:
    project.makepyfile(test_blocks=FIXTURE + TENSORS)
    done = project.runpytest_inprocess("--npudump-update-golden")
    done.assert_outcomes(passed=1)
    assert (project.path / "golden/test_blocks/test_tensors.safetensors").is_file()
    done.stdout.no_fnmatch_line("*note:*")


REFUSED = """
@pytest.mark.npu_dump(scene="modules")
def test_nothing(npu_dump):
    pass

@pytest.mark.npu_dump(scene="modules")
def test_threads(model):
    import threading
    model(models.words())
    thread = threading.Thread(target=model, args=(models.words(),))
    thread.start()
    thread.join()

@pytest.mark.npu_dump(scene="modules")
def test_nested(npu_dump):
    npu_dump.modules(net := torch.nn.Sequential(torch.nn.ReLU()))
    net(torch.nested.nested_tensor([torch.ones(2, 3)]))

@pytest.mark.npu_dump(scene="modules", layers=["nosuch"])
def test_layers(model):
    pass

@pytest.fixture
def pair():
    return [torch.nn.Sequential(torch.nn.ReLU(), torch.nn.ReLU()) for _ in range(2)]

@pytest.mark.npu_dump(scene="modules", layers=["nosuch"])
def test_none(model, pair):
    pass

@pytest.mark.npu_dump(scene="modules", layers=["head", "1"])
def test_each(model, pair):
    model(models.words())
    pair[1](torch.ones(2))

@pytest.mark.npu_dump
def test_emulator(npu_dump, model):
    npu_dump.modules(model)
"""


def test_what_a_test_cannot_do_is_said(project: pytest.Pytester) -> None:
    project.makepyfile(test_blocks=FIXTURE + REFUSED)
    done = project.runpytest_inprocess("--npudump-update-golden")
    done.assert_outcomes(failed=6, passed=1)
    (each,) = (path.read_text("utf-8") for path in project.path.rglob("golden/**/*.yaml"))
    assert [line.split()[0] for line in each.splitlines() if "float32" in line] == [
        "head#model=Transformer",
        "1#model=pair_1",
    ]
    done.stdout.no_fnmatch_line("*def __init__*")
    done.stdout.fnmatch_lines(
        [
            "*no module was called while it was watched*",
            "*was called in another thread: the order of calls is unknown*",
            "npudump: the dump is empty: a tensor of Sequential is not recorded: NestedTensor",
            "npu_dump.modules(): Transformer has no module 'nosuch'; it has *",
            "npu_dump.modules(): Transformer has no module 'nosuch'; it has *",
            "*with the runtime emulator it needs the marker's scene='modules'*",
        ]
    )
    project.makepyfile(
        test_blocks="import pytest\n@pytest.mark.npu_dump(scene='modules', devices=2)\ndef test_op(): 0"
    )
    done = project.runpytest_inprocess()
    done.stdout.fnmatch_lines(["*devices: not with scene='modules', which uses hooks instead of a dump*"])


ROLLED = """
import os, pytest, torch

class Rolled(torch.nn.Linear):
    def forward(self, given):
        return super().forward(given).roll(int(os.environ.get("ROLL", "0")), -1)

@pytest.mark.npu_dump(scene="modules")
@pytest.mark.parametrize("kind", ["float32", "bfloat16"])
def test_rolled(npu_dump, kind):
    torch.manual_seed(0)
    first, second = (Rolled(5, 7).to(getattr(torch, kind)) for _ in range(2))
    run = torch.compile(first, backend="eager") if os.environ.get("WAY") else first
    given = torch.randn(2, 5).to(first.weight.dtype)
    with npu_dump.modules(run), npu_dump.modules(second):
        for factor in (2, -1):
            second(factor * given)
            run(given + factor)
"""


def test_an_output_in_host_memory_that_is_in_another_order_fails(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.makepyfile(test_rolled=ROLLED)
    test = "test_rolled.py"
    project.runpytest_inprocess("--npudump-update-golden", test).assert_outcomes(passed=2)
    for path in project.path.glob("golden/test_rolled/*.yaml"):
        golden = store.read_golden(path).table
        projected = [text for text, known in zip(golden.keys, golden.projected, strict=True) if known]
        assert projected == [*golden.keys]
    monkeypatch.setenv("WAY", "compiled")
    project.runpytest_inprocess(test).assert_outcomes(passed=2)
    monkeypatch.setenv("ROLL", "1")
    done = project.runpytest_inprocess(test)
    done.assert_outcomes(failed=2)
    done.stdout.fnmatch_lines(["npudump: Rolled:output.0 l2norm of the difference about *"])


HELD = """
import copy, dataclasses, os, pytest, torch
from torch import nn

GIVEN = torch.ones(2, 4)

def net(seed=0):
    torch.manual_seed(seed)
    made = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)).requires_grad_(False)
    made[2].weight *= float(os.environ.get("FACTOR", "1"))
    return made

class Pipeline:
    def __init__(self):
        self.model, self.loss = net(), nn.CrossEntropyLoss()
        self.encoder, self.cut = self.model[0], net

@dataclasses.dataclass(slots=True)
class Data:
    model: object

MAKE = {
    "dict": lambda: {"one": net(), "two": [net(1)]}, "tuple": lambda: (net(), 3), "object": Pipeline,
    "data": lambda: Data(net()),
}

@pytest.fixture(params=MAKE)
def held(request):
    return MAKE[request.param]()

@pytest.mark.npu_dump(scene="modules")
def test_held(held):
    for model in held.values() if isinstance(held, dict) else [getattr(held, "model", None) or held[0]]:
        (model[0] if isinstance(model, list) else model)(GIVEN)

@pytest.fixture
def model():
    return net()

BESIDE = net()
WAYS = {
    "made": lambda model: net()(GIVEN),
    "outside": lambda model: BESIDE(GIVEN),
    "copied": lambda model: copy.deepcopy(model)(GIVEN),
    "compiled": lambda model: torch.compile(net(), backend="eager")(GIVEN),
    "put in": lambda model: model.append(nn.LayerNorm(4))(GIVEN),
    "around": lambda model: nn.Sequential(model, nn.Linear(4, 4))(GIVEN),
    "part": lambda model: model[0](GIVEN),
    "wrapper": lambda model: nn.Sequential(model)(GIVEN),
    "loss": lambda model: nn.CrossEntropyLoss()(model(GIVEN), torch.tensor([0, 1])),
}

@pytest.mark.npu_dump(scene="modules")
@pytest.mark.parametrize("way", [*WAYS, "watched", "ended", "captured"])
def test_beside(model, way, npu_dump):
    model(GIVEN)
    if way == "ended":
        with npu_dump.modules(model, golden=False):
            model(GIVEN)
        model(GIVEN)
    if way == "captured":
        with npu_dump.capture("again"), npu_dump.modules(model):
            model(GIVEN)
        net()(GIVEN)
    if way in WAYS:
        WAYS[way](model)
    if way != "watched":
        return
    other = net()
    other(GIVEN)
    npu_dump.modules(other, golden=False)
"""


def test_models_in_what_a_fixture_returns_are_watched_and_others_are_said(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.makepyfile(test_blocks=HELD)
    options = ("--npudump-update-golden", "--npudump-output=.", "-W", "error:Using `torch.compile")
    done = project.runpytest_inprocess(*options)
    done.assert_outcomes(passed=16)
    results = [*map(json.loads, (project.path / "results" / "results.jsonl").read_text("utf-8").splitlines())]
    told = {
        result["test"].partition("[")[2][:-1]: note.partition("not compared: ")[2].partition(";")[0]
        for result in results
        for note in result.get("notes", ())
    }
    of = {"put in": "LayerNorm", "around": "Linear"}
    ways = ("made", "outside", "copied", "compiled", "ended", "captured", *of)
    assert told == {way: of.get(way, "Sequential") for way in ways}
    assert not torch.nn.modules.module._global_forward_pre_hooks
    project.runpytest_inprocess().assert_outcomes(passed=16)
    monkeypatch.setenv("FACTOR", "1.1")
    done = project.runpytest_inprocess("-k", "test_held or outside")
    done.assert_outcomes(failed=5)
    done.stdout.fnmatch_lines(
        ["npudump: 2#model=held_one, 2#model=held_two_0: weights changed *", "*second run: reproduced*"]
    )


PAIRS = """
import copy, pytest, torch
from torch import nn

class Roll(nn.Module):
    by = 0

    def forward(self, x):
        return x.roll(Roll.by, -1)

def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 8), Roll(), Roll(), nn.Linear(8, 2)).requires_grad_(False)

@pytest.mark.npu_dump(scene="modules")
@pytest.mark.parametrize("how", ["rolled", "more", "fewer", "equal"])
def test_same(npu_dump, how, monkeypatch):
    sides, model = [], net()
    for side in range(2):
        monkeypatch.setattr(Roll, "by", side * (how == "rolled"))
        few = ["0", "1"] if {"more": 0, "fewer": 1}.get(how) == side else None
        with npu_dump.modules(model, few) as watched:
            model(torch.ones(2, 8))
        sides.append(watched)
    npu_dump.same(*sides)

class Other(nn.Module):  # by the names of another library
    def __init__(self, made):
        super().__init__()
        self.up, self.left, self.right = made[0], made[1], made[3]

    def forward(self, x):
        return self.right(self.left(self.up(x)))

@pytest.mark.npu_dump(scene="modules")
@pytest.mark.parametrize("broken", [False, True])
def test_ratio(npu_dump, broken):
    device, exact = net().bfloat16(), Other(net())
    rounded = copy.deepcopy(exact).bfloat16()
    if broken:
        device[3].weight *= 1.5
    three = [npu_dump.modules(one, tensors=True, golden=False) for one in (device, rounded, exact)]
    for one in (device, rounded, exact):
        one(torch.ones(2, 8, dtype=next(one.parameters()).dtype))
    found = npu_dump.ratio(*three, map="names.yaml")
    assert [one.key.layer for one in found] == ["0", "1", "3", "Sequential"]

@pytest.mark.npu_dump(scene="modules")
def test_map(npu_dump):
    with npu_dump.modules(net(), ["0", "3"]) as one:
        one.model(torch.ones(2, 8))
    with npu_dump.modules(Other(net()), ["up", "right"]) as other:
        other.model(torch.ones(2, 8))
    npu_dump.same(other, one, map="names.yaml")
"""


def test_pairs_of_captures_see_places_say_their_sides_and_take_names(project: pytest.Pytester) -> None:
    (project.path / "names.yaml").write_text('"0": up\n"1": left\n"3": right\nSequential: Other\n')
    project.makepyfile(test_blocks=PAIRS)
    done = project.runpytest_inprocess("--npudump-update-golden")
    done.assert_outcomes(passed=3, failed=4)
    lines = [line for line in done.outlines if line.startswith("E ")]
    told = [words for line in lines if (words := line.partition("npu_dump.")[2])]
    assert [words.partition(" l2norm")[0].partition(": relative")[0] for words in told] == [
        "same(): 4 of 5 tensors differ; first: 1:output.0",
        "same(): 3 of 5 tensors differ; first: 2:output.0 is new: the second has it, the first does not",
        "same(): 3 of 5 tensors differ; first: 2:output.0 is missing: the first has it, the second does not",
        "ratio(): rounding does not explain it: 3:output.0 (Linear)",
    ]
    assert any("in the first  not in the second" in " ".join(line.split(" ")) for line in lines)
    done.stdout.fnmatch_lines(["npudump: note: *::test_map: *names.yaml, line 2: it pairs no layers"])


DRAWS = """
import pytest, torch
from torch import nn

@pytest.fixture
def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5)).train()

@pytest.mark.npu_dump(scene="modules")
def test_drawn(model, npu_dump):
    torch.seed()
    model(torch.ones(2, 8))
"""


def test_modules_that_draw_other_numbers_in_each_run_are_told_when_recorded(project: pytest.Pytester) -> None:
    project.makepyfile(test_blocks=DRAWS)
    done = project.runpytest_inprocess("--npudump-update-golden")
    done.assert_outcomes(passed=1)
    done.stdout.fnmatch_lines(
        ["*2 of 3 tensors differ between 2 equal runs, *first seen at: 1*", "*give the test a seed*"]
    )
    project.makepyfile(test_blocks=DRAWS.replace("    torch.seed()\n", ""))
    done = project.runpytest_inprocess("--npudump-update-golden")
    done.stdout.no_fnmatch_line("*differ between*")
    project.runpytest_inprocess().assert_outcomes(passed=1)


TRAINED = """
import os, pytest, torch
from torch import nn

@pytest.mark.npu_dump(scene="modules")
@pytest.mark.parametrize("way", ["trained", "normalised", "frozen"])
def test_trained(npu_dump, way):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)).train(way != "frozen")
    npu_dump.modules(net)
    step = torch.optim.SGD(net.parameters(), 0.1)
    for _ in range(2):
        net(torch.arange(8.0).view(2, 4).square() / float(os.environ.get("PARTS", 10))).sum().backward()
        if way == "trained":
            step.step()
"""


def test_weights_that_the_test_itself_changes_are_no_cause(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.makepyfile(test_blocks=TRAINED)
    project.runpytest_inprocess("--npudump-update-golden").assert_outcomes(passed=3)
    project.runpytest_inprocess().assert_outcomes(passed=3)
    monkeypatch.setenv("PARTS", "11")
    done = project.runpytest_inprocess()
    done.assert_outcomes(failed=3)
    done.stdout.no_fnmatch_line("*weights changed*")
    known = [line for line in done.outlines if "its parameters are identical" in line]
    assert len(known) == 2  # of those that are not trained
