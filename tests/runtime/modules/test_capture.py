"""Modules of the real torch in one process: statistics, files, graphs, and what is refused."""

from __future__ import annotations

import copy
import gc
import math
import os
import sys
import threading
from collections import UserDict, deque
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from pytest_npudump.dump.arrays.decode import load_npy
from pytest_npudump.dump.names import MODULE_EDGES
from pytest_npudump.dump.reader import read_dump
from pytest_npudump.dump.records import SUMMED
from pytest_npudump.dump.stats.projections import distance, project
from pytest_npudump.dump.stats.tensor import rows_stats, tensor_stats
from pytest_npudump.errors import FormatError, RequestError
from pytest_npudump.graph.model_files import read_module_edges
from pytest_npudump.onnxmodels.graph import draws_random
from pytest_npudump.record.edges import UNKNOWN, Port
from pytest_npudump.runtime.modules.adapter import parameter_lines
from pytest_npudump.runtime.modules.capture import Capture
from pytest_npudump.runtime.modules.statistics import (
    Batch,
    Value,
    decoded,
    host_stats,
    reduced,
    reduced_rows,
    tensors_in,
)

os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
os.environ |= dict.fromkeys(("TORCHINDUCTOR_VEC_ISA_OK", "TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS"), "0")
os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"  # it compiles faster
torch: Any = pytest.importorskip("torch")
torch.set_num_threads(1)  # a process that is forked later would wait for more
sys.path.insert(0, str(Path(__file__).parents[2] / "data" / "modules"))
models: Any = pytest.importorskip("models")

nn = torch.nn
FLOATS = ["float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"]
WHOLE = ["int8", "uint8", "int16", "int32", "int64", "uint16", "uint32", "uint64"]
SPECIAL = {"nan": [math.nan], "inf": [math.inf, -math.inf, math.inf], "both": [math.nan, -math.inf]}


def records(capture: Any) -> dict[str, Any]:
    return {str(record.key): record for record in read_dump(capture.folder).records}


def contents() -> Any:
    torch.manual_seed(0)
    image = torch.randn(3, 5, 7, dtype=torch.float64) * 3
    for name in FLOATS:
        dtype = getattr(torch, name)
        yield name, image.to(dtype)
        yield f"{name} strided", image.to(dtype)[:, ::2].transpose(0, 2)
        yield f"{name} one of many", image.to(dtype).reshape(-1)[::105]
        yield f"{name} empty", torch.zeros(0, 4, dtype=dtype)
        yield f"{name} scalar", torch.tensor(-0.0, dtype=dtype)
        for kind, values in SPECIAL.items():
            if name != "float8_e4m3fn" or "inf" not in kind:
                yield f"{name} {kind}", torch.tensor([1.5, 0, *values, -2], dtype=torch.float64).to(dtype)
        yield f"{name} all nan", torch.full((3,), math.nan).to(dtype)
    for name in WHOLE:
        kind = np.dtype(name)
        limits = np.iinfo(kind)
        array = np.array([limits.min, limits.max, 0, 1, 77, limits.max - 1], kind)
        yield name, torch.from_numpy(array)
        yield f"{name} empty", torch.from_numpy(array[:0])
    yield "bool", torch.tensor([True, False, True])
    for name in ("complex64", "complex128"):
        yield name, torch.tensor([1 + 2j, 0, complex(math.nan, 1), 3j], dtype=getattr(torch, name))
        yield f"{name} finite", torch.randn(9, dtype=getattr(torch, name)).conj()
        for kind, values in SPECIAL.items():
            yield (
                f"{name} {kind}",
                torch.tensor([0, *(complex(0, one) for one in values)]).to(getattr(torch, name)),
            )
        yield f"{name} empty", torch.zeros(0, 2, dtype=getattr(torch, name))


def array(tensor: Any) -> Any:
    name = str(tensor.dtype).removeprefix("torch.")
    if hasattr(ml_dtypes, name):
        return tensor.to(torch.float64).numpy().astype(getattr(ml_dtypes, name))
    return tensor.resolve_conj().numpy()


@pytest.mark.parametrize("wide", [True, False])
def test_statistics_of_a_device_are_those_of_the_values(wide: Any) -> None:
    """Sums may round otherwise: in float64 by less than one can see, in float32 in the sixth digit."""
    for name, tensor in contents():
        count = tensor.numel()
        dtype = str(tensor.dtype).removeprefix("torch.")
        value = Value(0, 3, 0, dtype, tuple(tensor.shape), count * tensor.element_size(), count, wide)
        found = decoded(reduced(tensor, wide=wide).tolist(), value)
        truth = tensor_stats(array(tensor))
        exact = ("count", "nan", "neg_inf", "pos_inf", "zero") + (
            ("max", "min") if wide or "64" not in dtype else ()
        )
        for field in exact:
            assert str(getattr(found, field)) == str(getattr(truth, field)), (name, field)
        scale = (truth.l2norm or 0.0) / math.sqrt(max(count, 1))
        for field in ("max", "min", "avg", "l2norm"):
            told, want = getattr(found, field), getattr(truth, field)
            if field == "l2norm" and not wide and scale > 1e18:
                continue  # the squares leave float32
            close = told == want or (math.isnan(told) and math.isnan(want))
            if not close:
                assert math.isclose(
                    told, want, rel_tol=1e-12 if wide else 2e-6, abs_tol=(1e-12 if wide else 1e-6) * scale
                ), (name, field)
        assert found.digits == (SUMMED if wide else 6)
        assert found.checksum == (host_stats(tensor).checksum if wide or dtype != "uint64" else "")
        if dtype == "uint64" and not wide:
            assert found.projections is None
            continue
        want = project(array(tensor))
        if dtype == "int64" and not wide and count:
            continue  # sums of the extremes leave int64
        room = (1e-12 if wide else 0 if "int" in dtype else 2e-6) * max(map(abs, want))
        assert found.projections == pytest.approx(want, rel=0, abs=room), name
        assert host_stats(tensor).projections == want, name


@pytest.mark.parametrize("wide", [True, False])
@pytest.mark.parametrize("count", [1, 495, 496, 4097, 16_384, 16_385, 40_000])
def test_projections_of_a_device_are_those_of_files(count: int, wide: Any) -> None:
    kinds = (torch.float64, torch.float32, torch.complex128) if wide else (torch.float32,)
    for kind in (*kinds, torch.complex64, torch.bfloat16, torch.float16, torch.int16):
        of_rows = torch.complex128 if kind.is_complex else torch.float64
        rows = (9 * torch.randn(3, count, dtype=of_rows)).to(kind)
        for row, tensor in zip(reduced_rows(rows, wide=wide), rows, strict=True):
            name = str(kind).removeprefix("torch.")
            value = Value(0, 3, 0, name, (count,), count * kind.itemsize, count, wide)
            found, want = decoded(row.tolist(), value).projections, project(array(tensor))
            # Those of files add up columns in float32.
            room = 1e-6 * math.sqrt(count) * 9 if kind != torch.int16 else 0
            assert found == pytest.approx(want, rel=0, abs=room), kind
    for kind in (torch.bool, torch.uint8, torch.int16, torch.int32, torch.int64):
        whole = torch.randint(-(2**62), 2**62, (5 + 3 * count,)).to(kind)
        for tensor in (whole[1 : count + 1], whole[3 : 3 * count + 3 : 3]):  # not aligned, and with gaps
            value = Value(0, 3, 0, str(kind).removeprefix("torch."), (count,), 0, count, wide)
            found = decoded(reduced(tensor, wide=wide).tolist(), value).checksum
            assert found == host_stats(tensor).checksum, kind
            assert bool(found) is (count > 1)
    if count <= 4097:
        stats = rows_stats(array(rows.float()))
        assert [one.projections for one in stats] == [
            pytest.approx(project(array(one)), rel=1e-12, abs=1e-11) for one in rows
        ]


@pytest.mark.parametrize("find", [host_stats, None])
def test_complex_tensors_of_one_norm_are_told_apart(find: Any) -> None:
    tensor = torch.randn(4, 8, dtype=torch.complex64)
    value = Value(0, 3, 0, "complex64", (4, 8), 256, 32, wide=True)
    found = [
        find(one) if find else decoded(reduced(one).tolist(), value)
        for one in (tensor, tensor.conj(), tensor.flip(0), 1j * tensor)
    ]
    for one in found[1:]:
        assert one.l2norm == pytest.approx(found[0].l2norm)
        assert distance(one.projections, found[0].projections) > found[0].l2norm / 2


def test_a_transformer_is_seen_by_path_the_same_on_the_host_and_on_a_device(tmp_path: Path) -> None:
    model = models.transformer(2)
    found = []
    for on_host in (True, False):
        with Capture(model, tmp_path / str(on_host), on_host=on_host) as capture:
            model(models.words(0))
            model(models.words(1))
        assert (capture.problems, capture.notes, len(capture.steps)) == ([], (), 2)
        found.append(records(capture))
    host, device = found
    assert [*host] == [*device]
    first = [key for key in host if "#" not in key]
    assert first[:4] == [
        "embed:output.0",
        "blocks.0.norm:output.0",
        "blocks.0.qkv:output.0",
        "blocks.0.out:output.0",
    ]
    assert first[-2:] == ["head:output.0", "Transformer:output.0"]
    assert len(host) == 2 * len(first)
    assert host["head#step=1:output.0"].op_type == "Linear"
    for key, record in host.items():
        one, other = record.stats, device[key].stats
        assert (record.shape, one.max, one.min, one.digits) == (device[key].shape, other.max, other.min, None)
        assert other.digits == SUMMED
        assert math.isclose(one.l2norm, other.l2norm, rel_tol=1e-12), key


@pytest.mark.parametrize("dtype", [*FLOATS, "bool", "int64", "complex64"])
def test_tensors_are_files_with_their_values(tmp_path: Path, dtype: str) -> None:
    class Cast(nn.Module):
        def forward(self, x: Any) -> Any:
            return x.to(getattr(torch, dtype)), (torch.zeros(0, 3), {"more": x[0, 0]})

    image = torch.linspace(0, 4, 12).reshape(3, 4)
    model = nn.ModuleDict({"a/b, c": nn.Identity(), "cast": Cast()})
    model.forward = lambda x: model["cast"](model["a/b, c"](x))
    with Capture(model, tmp_path, tensors=True) as capture:
        model(image)
    found = records(capture)
    record = found["cast:output.0"]
    assert record.dtype == dtype
    assert load_npy(record.payload.path).tolist() == array(image.to(getattr(torch, dtype))).tolist()
    assert (found["cast:output.1"].shape, found["cast:output.2"].shape) == ((0, 3), ())
    assert found["a_b,%20c:output.0"].stats.max == 4


class Shared(nn.Module):
    """One layer in two places, a part that holds it, and one that returns no tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.same = self.layer
        self.left, self.right = nn.Sequential(self.layer), nn.Sequential(self.layer, nn.ReLU())
        self.mute = Mute()

    def forward(self, x: Any) -> Any:
        self.mute(x)
        return self.right(self.left(self.layer(self.layer(x))))


class Mute(nn.Module):
    def forward(self, x: Any) -> str:
        return f"{len(x)} rows"


@pytest.mark.parametrize("compiled", [False, True])
def test_a_shared_layer_is_told_apart_by_who_calls_it(tmp_path: Path, compiled: Any) -> None:
    model: Any = Shared()
    if compiled:
        model = torch.compile(model, backend="eager")
    with Capture(model, tmp_path, layers=["layer", "same", "left.0", "right.0", "mute"]) as capture:
        model(torch.ones(2, 4))
    assert [*records(capture)] == [
        "layer:output.0",
        "layer#turn=1:output.0",
        "left.0:output.0",
        "right.0:output.0",
    ]
    assert "same and layer are one module: calls of both are recorded as layer" in capture.notes
    (words,) = (one for one in capture.notes if "mute" in one)
    assert ("mute (Mute) returned str, in which no tensor was found" in words) is not compiled
    assert ("not recorded: 1 of 5" in words) is compiled


class Listed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.ReLU()
        self.every = nn.ModuleList([nn.Linear(4, 4), self.first])

    def forward(self, x: Any) -> Any:
        for one in self.every:
            x = one(self.first(x))
        return x


def test_a_shared_layer_in_a_list_is_told_as_recorded(tmp_path: Path) -> None:
    with Capture(Listed(), tmp_path) as capture:
        capture.model(torch.ones(2, 4))
    assert capture.notes == ("every.1 and first are one module: calls of both are recorded as first",)


@pytest.mark.parametrize(
    ("then", "told"), [("", False), ("backward", True), ("step", True), ("step call", False)]
)
def test_what_a_last_training_step_changes_is_told_as_not_compared(
    tmp_path: Path, then: str, told: Any
) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    step = torch.optim.SGD(model.parameters(), 0.1)
    with Capture(model, tmp_path) as capture:
        loss = model(torch.arange(8.0).view(2, 4)).square().sum()
        if then:
            loss.backward()
        if "step" in then:
            step.step()
        if "call" in then:
            model(torch.ones(2, 4))
    assert any("Sequential changed after its last call" in one for one in capture.notes) == told


@pytest.mark.parametrize("at", ["Sequential", "0", "1.0"])
def test_a_hook_that_is_registered_later_is_of_its_module(tmp_path: Path, at: str) -> None:
    """It changes what the module gives to others: that is recorded, of the first execution, too."""
    model = nn.Sequential(nn.Identity(), nn.Sequential(nn.Identity()), nn.Identity())
    names = ["0", "1", "1.0", "2", "Sequential"]
    with Capture(model, tmp_path, inputs=True) as capture:
        changed = model.get_submodule("" if at == "Sequential" else at)
        handle = changed.register_forward_hook(lambda *given: given[2] + 1)
        for _ in range(2):
            model(torch.zeros(1))
        handle.remove()
        model(torch.zeros(1))
    found = {name: record.stats.max for name, record in records(capture).items()}
    behind = {"Sequential": names[4:], "0": names, "1.0": names[1:]}[at]
    for step in range(3):
        given = [found[f"{name}{f'#step={step}' if step else ''}:output.0"] for name in names]
        assert given == [float(step < 2 and name in behind) for name in names], step
    model[0]._forward_hooks.clear()
    with Capture(model, tmp_path / "cleared") as capture:
        model[0]._forward_hooks.clear()
        model(torch.zeros(1))
    assert "0:output.0" not in records(capture)


@pytest.mark.filterwarnings("ignore")  # of torch, within itself
@pytest.mark.parametrize("way", ["part", "forward", "compiled", "compiled part"])
def test_hook_that_is_registered_later_is_seen_where_model_is_not_entered(tmp_path: Path, way: str) -> None:
    model = nn.Sequential(nn.Identity(), nn.Sequential(nn.Identity()))
    part = model if way == "compiled" else model[1]
    run = {"forward": model.forward, "part": part}.get(way) or torch.compile(part, backend="eager")
    with Capture(model, tmp_path) as capture:
        part.register_forward_hook(lambda *given: given[2] + 1)
        assert run(torch.zeros(1)) == 1
    name = "Sequential" if part is model else "1"
    assert records(capture)[f"{name}:output.0"].stats.max == 1


class Kept(nn.Module):
    """Returns a tensor, what is none, numbers, and tensors in objects that are not looked through."""

    def forward(self, x: Any) -> Any:
        beside = [SimpleNamespace(x=x), deque([x]), None, 3, "a", x.dtype, x.shape]
        return x, {"of": beside}, UserDict(x=x), 1.5, x.numpy()


def test_objects_beside_tensors_that_may_hold_more_are_noted(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Identity(), Kept())
    with Capture(model, tmp_path, layers=["0", "1"]) as capture:
        model(torch.ones(2))
        model(torch.ones(2))
    assert [*records(capture)][:2] == ["0:output.0", "1:output.0"]
    assert [*capture.notes] == [
        f"1 (Kept) returned {name}, in which no tensor was found: not recorded"
        for name in ("SimpleNamespace", "deque", "UserDict", "float", "ndarray")
    ]


def test_tensors_of_a_dict_have_their_slots_by_name(tmp_path: Path) -> None:
    model = nn.Identity()
    for number, names in enumerate(("ab", "ba")):
        with Capture(model, tmp_path / str(number), inputs=True) as capture:
            model({name: torch.tensor(float(ord(name))) for name in names})
        found = [record.stats.max for record in records(capture).values()]
        assert found == 2 * [97, 98]


@pytest.mark.filterwarnings("ignore:.*quantize:DeprecationWarning", "ignore:.*quanti:UserWarning")
@pytest.mark.parametrize("tensors", [False, True])
def test_quantised_tensors_are_recorded_by_the_values_they_stand_for(tmp_path: Path, tensors: Any) -> None:
    model = nn.Sequential(nn.Identity(), nn.Identity())
    given = torch.quantize_per_tensor(torch.tensor([0.5, 1.25]), 0.25, 0, torch.quint8)
    with Capture(model, tmp_path, tensors=tensors) as capture:
        model(given)
    found = records(capture)["0:output.0"]
    assert (capture.notes, found.dtype, found.stats.max, found.stats.min) == ((), "float32", 1.25, 0.5)


def test_modes_of_the_program_do_not_see_what_hooks_do(tmp_path: Path) -> None:
    """Those of fake tensors would make fakes of what was recorded before."""
    model = nn.Sequential(nn.Linear(2, 2))
    with Capture(model, tmp_path) as capture:
        model(torch.ones(1, 2))
        with torch._subclasses.FakeTensorMode(allow_non_fake_inputs=True) as mode:
            model(mode.from_tensor(torch.ones(1, 2)))
    assert [*records(capture)] == ["0:output.0", "Sequential:output.0"]
    assert [*capture.notes] == [
        "a tensor of 0 is not recorded: FakeTensor",
        "a tensor of Sequential is not recorded: FakeTensor",
    ]


class Nested(nn.Module):
    def forward(self, x: Any) -> Any:
        return torch.nested.nested_tensor([x, x[:1]])


def test_tensors_of_a_class_made_of_torchs_are_recorded_with_their_elements(tmp_path: Path) -> None:
    class Image(torch.Tensor):  # type: ignore[misc, name-defined, unused-ignore]
        """As those of torchvision."""

    model, given, found = (
        nn.Sequential(nn.Linear(3, 3), nn.ReLU()),
        torch.linspace(-1, 1, 6).reshape(2, 3),
        [],
    )
    for number, one in enumerate((given, given.as_subclass(Image))):
        with Capture(model, tmp_path / str(number), inputs=True) as capture:
            assert type(model(one)) is type(one)
        assert (capture.problems, capture.notes) == ([], ())
        found.append({key: record.stats for key, record in records(capture).items()})
    assert len(found[0]) == 6
    assert found[0] == found[1]


@pytest.mark.filterwarnings("ignore:.*nested tensors is in prototype")
@pytest.mark.parametrize("tensors", [False, True])
def test_nested_tensors_are_noted(tmp_path: Path, tensors: Any) -> None:
    model = nn.Sequential(nn.Linear(2, 2), Nested(), nn.ReLU())
    with Capture(model, tmp_path, inputs=True, tensors=tensors) as capture:
        model(torch.ones(2, 2))
    assert [*records(capture)] == ["Sequential:input.0", "0:input.0", "0:output.0", "1:input.0"]
    expected = [f"a tensor of {layer} is not recorded: NestedTensor" for layer in ("1", "2", "Sequential")]
    assert [*capture.notes] == expected


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
def test_what_torch_made_scripts_of_takes_no_hooks(tmp_path: Path) -> None:
    script = torch.jit.script(nn.Sequential(nn.Linear(2, 2), nn.ReLU()))
    model = nn.Sequential(script, nn.Linear(2, 2))
    with Capture(model, tmp_path) as capture:
        model(torch.ones(2, 2))
    assert [*records(capture)] == ["1:output.0", "Sequential:output.0"]
    (words,) = capture.notes
    assert words.startswith("modules of Sequential not recorded: 3 of 5 (not called, or inside a compiled")
    assert words.endswith(": 0, 0.0, 0.1")
    with pytest.raises(RequestError, match=r"a model of torch\.jit\.script takes no hooks"):
        Capture(script, tmp_path)


class Square(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(_: Any, x: Any) -> Any:
        return x * x


class Woven(nn.Module):
    """Views, memory that is written in place, code of others, a compiled function, a call within a call."""

    def __init__(self) -> None:
        super().__init__()
        for name in "abcdefgh":
            setattr(self, name, nn.Linear(4, 4))
        self.relu, self.table = nn.ReLU(inplace=True), torch.ones(4)
        self.register_buffer("cache", torch.zeros(3, 4))
        self.fast = torch.compile(lambda x: x.sin() + 1, fullgraph=True, backend="eager")

    def forward(self, x: Any, *, y: Any) -> Any:
        a = self.a(x)
        left = a[:, :2]
        b = self.b(x + y)
        self.cache[0] = b[0]
        c = self.c(self.cache.clone())
        left.copy_(b[:, :2])
        e = self.e(Square.apply(self.d(a)) * self.table)
        f = self.f(self.fast(self.relu(e)))
        g = self.g(torch.from_numpy(f.numpy()))
        out = torch.empty_like(g)
        torch.add(g, c, out=out)
        return self.h(self.h(out)), {"more": e}


def test_what_feeds_a_module_is_seen_through_what_is_computed_between(tmp_path: Path) -> None:
    """What comes from code that torch does not see is not known."""
    model, given = Woven().requires_grad_(requires_grad=False), torch.ones(3, 4)
    with Capture(model, tmp_path / "outputs") as capture:
        model(given, y=given)
        model(given, y=given)
    assert capture.problems == []
    lines = (capture.path / MODULE_EDGES).read_text("utf-8").splitlines()
    assert dict(line.split(" < ") for line in lines) == {
        "a": "-",
        "b": "-",
        "c": "b",
        "d": "a b",
        "e": "d",
        "relu": "e",
        "f": "relu",
        "g": "?",
        "h": "c g",
        "Woven": "h#turn=1 relu",
        "h#turn=1": "h",
    }
    assert read_module_edges(capture.path / MODULE_EDGES).feeds["d"] == (Port("a"), Port("b"))
    model = models.transformer(1)
    with Capture(model, tmp_path / "inputs", inputs=True) as capture:
        model(models.words())
    assert (capture.path / MODULE_EDGES).read_text("utf-8").splitlines()[4:] == [
        "blocks.0.mlp.0 < * embed blocks.0.out",
        "blocks.0.mlp.1 < blocks.0.mlp.0",
        "blocks.0.mlp.2 < blocks.0.mlp.1",
        "blocks.0.mlp < * embed blocks.0.out blocks.0.mlp.2",
        "blocks.0 < embed blocks.0.out blocks.0.mlp",
        "head < blocks.0",
        "Transformer < - head",
    ]
    (capture.path / MODULE_EDGES).write_bytes(b"embed < \xff")
    with pytest.raises(FormatError, match=r"module_edges.txt: holds a line that is no edge"):
        read_module_edges(capture.path / MODULE_EDGES)


def test_of_a_module_that_calls_itself_it_is_not_known_what_feeds_which_call(tmp_path: Path) -> None:
    class Tree(nn.Module):
        def forward(self, x: Any) -> Any:
            return self(x[1:]) * 2 if len(x) > 1 else x

    model = nn.Sequential(nn.ReLU(), Tree(), nn.ReLU())
    with Capture(model, tmp_path, inputs=True) as capture:
        model(torch.ones(3, 4))
    assert capture.problems == []
    edges = read_module_edges(capture.path / MODULE_EDGES).feeds
    assert {name: edges.get(name, (UNKNOWN,)) for name in ("0", "1", "2")} == {
        "0": (None,),
        "1": (UNKNOWN,),
        "2": (UNKNOWN,),
    }


def test_a_copy_of_a_model_that_is_watched_is_another_model(tmp_path: Path) -> None:
    model = models.transformer(1)
    with Capture(model, tmp_path) as capture:
        copied = copy.deepcopy(model)
        copied(models.words())
        model(models.words())
    assert [len(step) for step in capture.steps] == [11]


def test_inputs_are_those_before_the_call(tmp_path: Path) -> None:
    class Adds(nn.Module):
        def forward(self, x: Any, *, more: Any) -> Any:
            return x.add_(more)

    model = nn.ModuleDict({"adds": Adds()})
    model.forward = lambda x: model["adds"](x, more=torch.ones(3))
    with Capture(model, tmp_path, layers=["adds"], inputs=True) as capture:
        model(torch.zeros(3))
        model(torch.zeros(3))
    found = {key: record.stats.max for key, record in records(capture).items()}
    assert found == {
        "adds:input.0": 0,
        "adds:input.1": 1,
        "adds:output.0": 1,
        "adds#step=1:input.0": 0,
        "adds#step=1:input.1": 1,
        "adds#step=1:output.0": 1,
    }


class _AlwaysDrops(nn.Dropout):
    def forward(self, given: Any) -> Any:
        return nn.functional.dropout(given, self.p, training=True)


@pytest.mark.parametrize(
    ("kind", "share", "trains", "drew"),
    [
        (nn.Dropout, 0.5, [False], False),
        (nn.Dropout1d, 0.5, [False, False], False),
        (nn.Dropout, 0.0, [True], False),
        (nn.Dropout, 0.5, [True], True),
        (nn.Dropout, 0.5, [False, True], True),
        (_AlwaysDrops, 0.5, [False], True),
    ],
)
def test_a_dropout_that_drew_nothing_is_told_by_its_type(
    tmp_path: Path, kind: Any, share: float, trains: list[bool], drew: Any
) -> None:
    model = nn.Sequential(nn.Linear(4, 4), kind(share))
    for tensors in (False, True):
        with Capture(model, tmp_path / str(tensors), inputs=True, tensors=tensors) as capture:
            for train in trains:
                model.train(train)
                model(torch.ones(1, 2, 4))
        types = {one.op_type for one in records(capture).values() if one.key.layer == "1"}
        assert kind.__name__ + "[still]" * (not drew) in types
        assert any(map(draws_random, types)) is (drew and kind is nn.Dropout)


def test_parts_that_are_called_by_themselves_make_steps_too(tmp_path: Path) -> None:
    """Behind a call of the model they belong to that; without one each comes again in the next step."""
    model = models.transformer(1)
    with Capture(model, tmp_path / "behind", layers=["head", "embed"]) as capture:
        for seed in range(2):
            model(models.words(seed))
            model.head(torch.ones(1, models.DIM))
    assert [len(step) for step in capture.steps] == [3, 3]
    with Capture(model, tmp_path / "alone", layers=["head", "embed"]) as capture:
        for seed in range(3):
            model.head(model.embed(models.words(seed)))
    assert [len(step) for step in capture.steps] == [2, 2, 2]


def test_checkpoints_are_not_recorded_twice(tmp_path: Path) -> None:
    model = models.transformer(1).requires_grad_()
    block = model.blocks[0]
    inner = block.mlp.forward
    block.mlp.forward = lambda x: torch.utils.checkpoint.checkpoint(inner, x, use_reentrant=False)
    with Capture(model, tmp_path) as capture:
        model(models.words()).sum().backward()
    assert len(set(records(capture))) == 11
    assert any("backward pass" in words for words in capture.notes)


@pytest.mark.filterwarnings("ignore:.*torch.jit.trace:DeprecationWarning", "ignore::torch.jit.TracerWarning")
def test_what_transforms_of_torch_call_is_not_seen(tmp_path: Path) -> None:
    model, given = models.transformer(1), models.words()
    for number, (words, call) in enumerate(
        (
            ("torch.func", lambda: torch.func.vmap(model)(given[None])),
            ("torch.jit.trace", lambda: torch.jit.trace(model, given, check_trace=False)),
        )
    ):
        expected = model(given)
        with Capture(model, tmp_path / str(number)) as capture:
            found = call()
            model(given)
        assert [len(step) for step in capture.steps] == [11]
        assert not capture.problems
        assert any(f"is not recorded: {words}" in note for note in capture.notes)
        torch.testing.assert_close(found(given) if callable(found) else found[0], expected)


def test_what_cannot_be_trusted_is_one_clear_problem(tmp_path: Path) -> None:
    model, given = models.transformer(1), models.words()

    def in_threads() -> None:
        model(given)
        thread = threading.Thread(target=model, args=(given,))
        thread.start()
        thread.join()

    def in_turns() -> None:
        for _ in range(2):  # the second thread has the number of the first, often
            thread = threading.Thread(target=model, args=(given,))
            thread.start()
            thread.join()

    def at_once() -> None:
        started, go_on, others = threading.Event(), threading.Event(), list[BaseException]()

        def wait(*_: object) -> None:
            if not started.is_set():
                started.set()
                go_on.wait(10)

        def other() -> None:
            started.wait(10)
            try:
                model(given)
            except RuntimeError as error:
                others.append(error)
            go_on.set()

        handle, thread = model.embed.register_forward_hook(wait), threading.Thread(target=other)
        thread.start()
        model(given)
        thread.join()
        handle.remove()
        assert not others
        assert not torch.overrides._get_current_function_mode_stack()

    class Again(nn.Module):
        def forward(self, x: Any) -> Any:
            return self(x[1:]) if len(x) else x

    again = Again()
    cases: list[tuple[Any, Any, dict[str, Any], str]] = [
        (model, in_threads, {}, "called in another thread"),
        (model, in_turns, {}, "called in another thread"),
        (model, at_once, {}, "called in another thread"),
        (again, lambda: again(torch.ones(3)), {}, "Again was called during its own call"),
        (
            model,
            lambda: model(given),
            {"tensors": True, "limit": 5000},
            "need 5120 bytes, and there is room for 5000",
        ),
    ]
    for number, (watched, call, arguments, words) in enumerate(cases):
        with Capture(watched, tmp_path / str(number), **arguments) as capture:
            call()
        assert len(capture.problems) == 1
        assert words in capture.problems[0]
        assert not capture.notes
    for watched, layers, words in (
        (given, [], "takes a torch.nn.Module or mindspore.nn.Cell, not Tensor"),
        (model, ["heads"], "Transformer has no module 'heads'; did you mean 'head'"),
    ):
        with pytest.raises(RequestError, match=words):
            Capture(watched, tmp_path, layers=layers)


def test_nothing_of_it_is_left_behind(tmp_path: Path, device_graph: Any) -> None:
    model = models.transformer(1)
    before = [vars(device_graph)[name] for name in ("capture_begin", "capture_end", "replay")]
    register = nn.Module.register_forward_hook
    with Capture(model, tmp_path) as capture:
        model(models.words())
    capture.stop()
    assert [vars(device_graph)[name] for name in ("capture_begin", "capture_end", "replay")] == before
    assert not any(one._forward_hooks or one._forward_pre_hooks for one in model.modules())
    assert nn.Module.register_forward_hook is register


@pytest.fixture
def device_graph(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A device whose graphs this process can capture: the CPU's, under the name of torch_npu's class."""
    kind = type(
        "NPUGraph",
        (models.Graph,),
        {name: vars(models.Graph)[name] for name in ("capture_begin", "capture_end", "replay")},
    )
    monkeypatch.setattr(torch, "npu", type("npu", (), {"NPUGraph": kind}), raising=False)
    monkeypatch.setattr(models, "Graph", kind)
    return kind


@pytest.mark.usefixtures("device_graph")
@pytest.mark.parametrize("tensors", [False, True])
def test_each_replay_of_a_graph_is_an_execution(tmp_path: Path, tensors: Any) -> None:
    model, given = models.transformer(2), models.words()
    with Capture(model, tmp_path / "graph", tensors=tensors, inputs=True) as graphed:
        graph = models.captured(model, given)
        for seed in (1, 2):
            given.copy_(models.words(seed))
            graph.replay()
    with Capture(model, tmp_path / "eager", tensors=tensors, inputs=True) as eager:
        for seed in (1, 2):
            model(models.words(seed))
    assert graphed.problems == []
    (note,) = graphed.notes
    size = "0.07" if tensors else "0.02"  # of the tensors, or rows of 128 bytes
    assert note.startswith(f"a captured graph of Transformer has buffers of {size} MiB; executions before, ")
    one, other = records(eager), records(graphed)
    assert [*one] == [*other]
    for key, record in one.items():
        assert (record.stats.max, record.stats.nan) == (other[key].stats.max, 0), key
        assert math.isclose(record.stats.l2norm, other[key].stats.l2norm, rel_tol=1e-12), key
        assert record.digest == other[key].digest
    heads = {record.digest[:8] for record in one.values() if record.dtype == "int64"}
    assert heads == {"" if tensors else "argmax:x"}


@pytest.mark.usefixtures("device_graph")
def test_graphs_that_are_out_of_sight_are_told(tmp_path: Path) -> None:
    model, given = models.transformer(1), models.words()
    graph = models.captured(model, given)
    with Capture(model, tmp_path / "before") as capture:
        graph.replay()
    assert capture.steps == []
    assert "captured earlier" in capture.notes[0]
    assert "modules of Transformer not recorded: 11 of 11" in capture.notes[1]
    with Capture(model, tmp_path / "never") as capture:
        graph = models.captured(model, given)
    assert capture.steps == []
    assert capture.notes[-1] == "a graph with Transformer was captured, and never replayed"
    with Capture(model, tmp_path / "unknown", tensors=True) as capture:
        graph = models.Graph()
        graph.capture_begin()
        model(given)
        graph.capture_end()
    assert "no buffer left for embed: call the model once" in capture.problems[0]
    with Capture(model, tmp_path / "large", tensors=True, limit=30_000) as capture:
        model(given)
        capture._limit = 1000
        with pytest.raises(RequestError, match=r"need \d+ bytes, and there is room for 1000"):
            models.Graph().capture_begin()


@pytest.mark.usefixtures("device_graph")
def test_pieces_of_a_graph_belong_to_the_call_that_replays_them(tmp_path: Path) -> None:
    model, given = models.transformer(1), torch.ones(2, 8, models.DIM)
    block = model.blocks[0]

    def piecewise(x: Any) -> Any:
        model.embed(x)
        graph.replay()
        return model.head(given)

    with Capture(model, tmp_path) as capture:
        graph = models.captured(block, given)
        model.forward = piecewise
        model(models.words())
        model(models.words(1))
    assert [*records(capture)][:3] == ["embed:output.0", "blocks.0.norm:output.0", "blocks.0.qkv:output.0"]
    assert [len(step) for step in capture.steps] == [11, 11]


@pytest.mark.usefixtures("device_graph")
@pytest.mark.parametrize("tensors", [False, True])
def test_replays_before_another_graph_is_captured_stay(tmp_path: Path, tensors: Any) -> None:
    """Of graphs that are captured as they are needed, one for each size."""
    model = models.transformer(1)
    sizes = [models.words(), models.words()[:1].clone()]
    with Capture(model, tmp_path, tensors=tensors) as capture:
        for given in sizes:
            graph = models.captured(model, given)
            graph.replay()
            graph.replay()
    steps = {key.partition("#step=")[2].partition(":")[0]: one for key, one in records(capture).items()}
    assert [len(step) for step in capture.steps] == [11] * 4
    assert {step or "0": one.shape[0] for step, one in steps.items()} == {"0": 2, "1": 2, "2": 1, "3": 1}


@pytest.mark.usefixtures("device_graph")
def test_a_call_that_captures_and_replays_a_graph_is_an_execution_as_those_before(tmp_path: Path) -> None:
    """As torch's compiler does behind a call that is not captured: of ``mode="reduce-overhead"``."""
    model, given = nn.Sequential(nn.Linear(4, 4), nn.ReLU()), torch.ones(2, 4)
    whole, graphs = model.forward, list[Any]()

    def by_itself(x: Any) -> Any:
        if not warm:
            return whole(x)
        if not graphs:
            graphs.append(models.Graph())
            graphs[0].capture_begin()
            results.append(whole(x))
            graphs[0].capture_end()
        graphs[0].replay()
        return results[0]

    for replays, count in ((0, 1), (1, 2), (3, 4)):
        warm, results = False, []
        graphs.clear()
        model.forward = by_itself
        with Capture(model, tmp_path / str(replays)) as capture:
            model(given)
            warm = True
            for _ in range(replays):
                model(given)
        assert [len(step) for step in capture.steps] == [3] * count, capture.notes
        assert capture.problems == []


@pytest.mark.filterwarnings("ignore")  # of torch, within itself
def test_nothing_stays_in_the_memory_of_a_graph_that_torch_warms_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Torch refuses to go on where tensors are alive there that it does not know."""
    manager = SimpleNamespace(in_warmup=True)
    trees = SimpleNamespace(get_manager=lambda _device, **_: manager)
    model, given = models.transformer(1), models.words()
    run = torch.compile(model, fullgraph=True, backend="aot_eager")

    def alive() -> list[Any]:
        gc.collect()
        return [one for one in gc.get_objects() if type(one) in (torch.Tensor, nn.Parameter)]

    with Capture(run, tmp_path) as capture:
        run(given)
        capture._close()
        monkeypatch.setitem(sys.modules, "torch._inductor.cudagraph_trees", trees)
        capture._places, capture._batches = {}, {}
        before = alive()
        out = run(given)
        known = {id(one) for one in [out, out._base, *before]}
        assert [one.shape for one in alive() if id(one) not in known] == []
        monkeypatch.undo()
    assert [len(step) for step in capture.steps] == [11, 11]
    one, other = (
        [value.stats.max for key, value in records(capture).items() if ("#step=1" in key) == late]
        for late in (False, True)
    )
    assert one == other


def test_a_device_is_that_of_the_tensors_of_a_model_that_was_moved(tmp_path: Path) -> None:
    model = nn.Linear(4, 4, device="meta")
    with Capture(model, tmp_path, on_host=False) as capture:
        model.to_empty(device="cpu")
        model(torch.ones(2, 4))
    assert (capture.facts["device"], len(capture.steps)) == ("cpu", 1)


@pytest.mark.usefixtures("device_graph")
def test_buffers_that_a_device_has_no_memory_for_are_refused_before_a_capture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, given, empty = models.transformer(1), models.words(), torch.empty

    def full(shape: Any, **named: Any) -> Any:
        if len(held) == 2:
            raise torch.OutOfMemoryError
        held.append(empty(shape, **named))
        return held[-1]

    held: list[Any] = []
    with Capture(model, tmp_path, tensors=True) as capture:
        model(given)
        monkeypatch.setattr(torch, "empty", full)
        with pytest.raises(RequestError) as caught:
            models.Graph().capture_begin()
        monkeypatch.undo()
    needed, room = sum(one.value.size for one in capture.steps[0]), sum(one.nbytes for one in held)
    assert f"need {needed} bytes, and there is room for {room}" in str(caught.value)


def test_streams_that_ran_modules_are_waited_for_and_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log: list[str] = []

    class Stream(SimpleNamespace):
        __hash__ = object.__hash__

        def wait_stream(self, other: Any) -> None:
            log.append(f"{self.name} waits for {other.name}")

    ours, other = Stream(name="ours", device="cpu"), Stream(name="other", device="cpu")
    model, reduce = nn.Linear(4, 4), Batch.reduce
    with Capture(model, tmp_path, on_host=False) as capture:
        monkeypatch.setattr(capture, "_stream", lambda _device: ours)
        monkeypatch.setattr(Batch, "reduce", lambda batch: (log.append("reduced"), reduce(batch))[1])
        capture._streams |= {ours, other}
        model(torch.ones(2, 4))
        model(torch.ones(2, 4))
        assert log == ["ours waits for other", "reduced", "other waits for ours"]
        log.clear()
    assert log[:3] == ["ours waits for other", "reduced", "other waits for ours"]
    assert log[3:] == ["ours waits for other", "other waits for ours"]  # for what comes to host memory


@pytest.mark.filterwarnings("ignore")  # of torch, within itself
@pytest.mark.parametrize("way", ["wrapper", "method", "before", "part"])
def test_a_compiled_model_is_seen_with_its_layers(tmp_path: Path, way: str) -> None:
    """In one graph, a part for real by inductor; what was compiled before is made again with hooks."""
    model, given = models.transformer(1), models.words()
    if way == "wrapper":  # each kernel of inductor takes seconds
        model, given = nn.Sequential(nn.ReLU()), torch.linspace(-1, 1, 8)
    with Capture(model, tmp_path / "eager", inputs=True) as eager:
        model(given)
    if way == "part":
        model.blocks[0] = torch.compile(model.blocks[0], backend="eager")
        run = model
    elif way == "method":
        model.compile(fullgraph=True, backend="aot_eager")
        run = model
    else:
        backend = "inductor" if way == "wrapper" else "aot_eager"
        run = torch.compile(model, fullgraph=True, backend=backend)
    if way == "before":
        run(given)
    with Capture(run, tmp_path / "compiled", inputs=True) as compiled:
        run(given)
    assert (compiled.problems, compiled.notes) == ([], ())
    one, other = records(eager), records(compiled)
    assert [*one] == [*other]
    for key, record in one.items():
        assert math.isclose(record.stats.l2norm, other[key].stats.l2norm, rel_tol=1e-5), key
    run(given)


@pytest.mark.filterwarnings("ignore")  # of torch, within itself
def test_what_torch_wraps_around_modules_renames_none(tmp_path: Path) -> None:
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
    from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard

    def first(wrap: Any) -> Any:
        return lambda model: nn.Sequential(wrap(model[0]), model[1])

    def sharded(model: Any) -> Any:
        return fully_shard(model, mesh=torch.distributed.init_device_mesh("cpu", (1,)))

    def fsdp(model: Any) -> Any:
        return FullyShardedDataParallel(model, device_id=torch.device("cpu"), use_orig_params=True)

    ddp, compiled = nn.parallel.DistributedDataParallel, partial(torch.compile, backend="eager")
    wraps = [nn.DataParallel, ddp, first(ddp), lambda one: ddp(compiled(one)), lambda one: compiled(ddp(one))]
    wraps += [fsdp, lambda one: fsdp(first(fsdp)(one)), sharded, first(checkpoint_wrapper)]
    store = torch.distributed.FileStore(str(tmp_path / "store"), 1)
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        for number, wrap in enumerate([lambda one: one, *wraps]):
            torch.manual_seed(0)
            model = wrap(nn.Sequential(nn.Sequential(nn.Linear(3, 3), nn.ReLU()), nn.Linear(3, 2)))
            with Capture(model, tmp_path / str(number)) as capture:
                model(torch.linspace(-1, 1, 6).reshape(2, 3))
            assert (capture.problems, capture.notes) == ([], ()), number
            found = {key: (one.op_type, one.stats) for key, one in records(capture).items()}
            lines = parameter_lines(capture.name, capture.model)
            if not number:
                plain, parameters = found, lines
            assert found == plain, number
            assert lines.replace("module.", "") in {parameters, ""}, number
    finally:
        torch.distributed.destroy_process_group()


@pytest.mark.filterwarnings("ignore")  # of torch, within itself
@torch._dynamo.config.patch(recompile_limit=2)  # type: ignore[untyped-decorator]
def test_alike_modules_that_are_compiled_one_by_one_are_all_compiled(tmp_path: Path) -> None:
    """Beyond its limit, which is 8, torch would run them as they are, which is noted where it happens."""
    calls: list[str] = []

    def backend(graph: Any, _given: Any) -> Any:
        layers = [str(node.target) for node in graph.graph.nodes if "linear" in str(node.target)]
        return lambda *given: calls.extend(layers) or graph(*given)

    model = nn.Sequential(*(nn.Sequential(nn.Linear(4, 4), nn.GELU()) for _ in range(3)))
    for one in model:
        one.compile(backend=backend)
    limits = torch._dynamo.config.recompile_limit, torch._dynamo.config.accumulated_recompile_limit
    with Capture(model, tmp_path / "compiled") as compiled:
        model(torch.ones(2, 4))
    assert (len(calls), compiled.notes) == (3, ())
    assert limits == (torch._dynamo.config.recompile_limit, torch._dynamo.config.accumulated_recompile_limit)
    with torch.compiler.set_stance("force_eager"), Capture(model, tmp_path / "eager") as eager:
        model(torch.ones(2, 4))
    assert (len(calls), [*eager.notes]) == (
        3,
        [f"{at} is compiled, but torch ran it uncompiled" for at in range(3)],
    )


@pytest.mark.filterwarnings("ignore")  # of torch, within itself
@pytest.mark.parametrize("way", ["compiled", "unguarded", "traced"])
def test_modules_that_compiled_code_swallowed_are_listed_as_not_seen(tmp_path: Path, way: str) -> None:
    """A function compiled within the model: with hooks, as vLLM runs it without guards, and by jit."""
    model, given = models.transformer(1), models.words()
    torch._dynamo.reset()  # the code of the function is that of the way before
    block, mlp, expected = model.blocks[0], model.blocks[0].mlp, model(given)
    if way == "traced":
        block.mlp = torch.jit.trace(mlp, torch.zeros(2, 8, models.DIM))
    else:
        told = {"guard_filter_fn": torch.compiler.skip_all_guards_unsafe} if way == "unguarded" else {}

        def swallow(x: Any) -> Any:
            return mlp(x)

        fast = torch.compile(swallow, backend="eager", fullgraph=True, options=told or None)

        def forward(x: Any) -> Any:
            q, k, v = block.qkv(block.norm(x)).chunk(3, -1)
            x = x + block.out(nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True))
            return x + fast(x)

        block.forward = forward
        model(given)
    with Capture(model, tmp_path) as capture:
        assert torch.allclose(model(given), expected, atol=1e-5)
    inner = {f"blocks.0.mlp{at}:output.0" for at in ("", ".0", ".1", ".2")}
    swallowed = {"compiled": set(), "unguarded": inner, "traced": inner - {"blocks.0.mlp:output.0"}}[way]
    assert inner - {*records(capture)} == swallowed
    words = f"modules of Transformer not recorded: {len(swallowed)} of 11 (not called, or inside a compiled "
    assert [note.startswith(words) for note in capture.notes] == [True] * bool(swallowed)
    assert capture.problems == []


def test_tensors_are_found_in_what_models_return() -> None:
    from dataclasses import make_dataclass

    a, b, c = (torch.zeros(at) for at in range(3))
    kind = make_dataclass("kind", ["a", "more"])
    found = tensors_in(
        {"x": torch.return_types.max((a, None)), "y": kind([b], ("text", 1, c)), "z": object()}
    )
    assert [id(one) for one in found] == [id(a), id(b), id(c)]
