"""The adapter against a device's life cycle, call by call, and against the emulator."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from pytest_npudump.errors import RequestError, RuntimeUnavailableError
from pytest_npudump.runtime.acl import AclError
from pytest_npudump.runtime.pyacl.adapter import PyAclRuntime
from pytest_npudump.runtime.pyacl.model import numpy_dtype
from tests.onnxmodels.models import onnx_file

MODEL = Path("net.om")
GRAPH = type("Graph", (), {"replay": None})
IMAGE = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.fixture
def runtime(device: Any) -> PyAclRuntime:
    return PyAclRuntime(device.module(), "acl")


@pytest.fixture
def started(runtime: PyAclRuntime, config: Path) -> PyAclRuntime:
    runtime.start(config)
    return runtime


@pytest.fixture
def released(started: PyAclRuntime) -> PyAclRuntime:
    started.release()
    return started


def dump_calls(device: Any) -> list[tuple[Any, ...]]:
    names = {"init", "finalize", "mdl.init_dump", "mdl.set_dump", "mdl.finalize_dump", "mdl.load_from_file"}
    return [call for call in device.calls if call[0] in names]


def test_nothing_is_initialised_before_the_test_does_nor_by_a_released_one_without_a_dump(
    device: Any, started: PyAclRuntime, config: Path
) -> None:
    assert not started.activity.initialised
    started.stop()
    started.start(config)
    started.release()
    started.stop()
    started.close()
    assert "init" not in device.names()


def test_load_model_initialises_and_dumps_before_it_loads(
    device: Any, started: PyAclRuntime, config: Path
) -> None:
    started.load_model(MODEL).close()
    started.stop()
    started.close()
    assert dump_calls(device) == [
        ("mdl.init_dump",),
        ("init",),
        ("mdl.init_dump",),
        ("mdl.set_dump", str(config)),
        ("mdl.load_from_file", "net.om"),
        ("mdl.finalize_dump",),
        ("finalize",),
    ]
    assert list(device.loaded_under.values()) == [str(config)]
    names = device.names()
    assert names.index("init") < names.index("rt.set_device") < names.index("mdl.load_from_file")
    assert names.index("mdl.finalize_dump") < names.index("rt.reset_device") < names.index("finalize")


def test_application_that_calls_init_itself_is_dumped(
    device: Any, started: PyAclRuntime, config: Path
) -> None:
    assert started.acl.init() == 0
    assert device.dumping == str(config)
    assert started.activity.initialised
    assert started.acl.init() == 100002, "the application's own second call is its own affair"
    started.stop()
    assert device.dumping == ""


def test_application_s_init_succeeds_although_the_adapter_came_first_in_each_test(
    device: Any, started: PyAclRuntime, config: Path
) -> None:
    started.load_model(MODEL).close()
    assert [started.acl.init(), started.acl.init()] == [0, 100002]
    started.stop()
    started.start(config)
    started.load_model(MODEL).close()
    assert [started.acl.init(), started.acl.init(), started.acl.finalize()] == [0, 100002, 0]
    started.stop()
    started.close()
    assert (device.dumping, device.dump_open) == ("", False)


def test_acl_initialised_before_the_test_is_dumped_at_once(
    device: Any, runtime: PyAclRuntime, config: Path
) -> None:
    runtime.acl.init()
    runtime.start(config)
    assert device.dumping == str(config)
    runtime.load_model(MODEL).close()
    runtime.stop()
    runtime.close()
    assert "finalize" not in device.names(), "whoever initialised ACL finalises it"


def test_init_with_this_very_file_sets_the_dump_and_does_not_settle_the_process_s_file(
    device: Any, released: PyAclRuntime, config: Path
) -> None:
    assert released.acl.init(str(config)) == 0
    assert device.dumping == str(config)
    assert ("init",) in device.calls
    assert released.activity.initialised
    released.stop()
    assert device.names()[-1] == "mdl.finalize_dump"


@pytest.mark.parametrize("first", ["application", "adapter"])
def test_dump_ends_although_the_test_finalised_acl(device: Any, started: PyAclRuntime, first: str) -> None:
    if first == "adapter":
        started.load_model(MODEL).close()
    else:
        started.acl.init("other.json")
    started.acl.finalize()
    device.calls.clear()
    started.stop()
    arguments = ("other.json",) if first == "application" else ()
    assert device.calls == [
        ("mdl.finalize_dump",),
        ("init", *arguments),
        ("mdl.finalize_dump",),
        ("finalize",),
    ]
    assert (device.references, device.dump_open) == (0, False)


def test_dump_that_somebody_else_switched_on_is_refused(
    device: Any, runtime: PyAclRuntime, config: Path
) -> None:
    acl = runtime.acl
    acl.init()
    acl.mdl.init_dump()
    acl.mdl.set_dump("mine.json")
    original = acl.init
    with pytest.raises(AclError, match=r"init_dump\(\) returned 100002 .*a dump is on already") as caught:
        runtime.start(config)
    assert caught.value.code == 100002
    assert (acl.init, device.dumping) == (original, "mine.json")


def test_refused_configuration_is_an_error_with_code_name_and_acl_s_own_words(
    device: Any, runtime: PyAclRuntime, config: Path
) -> None:
    runtime.acl.init()
    device.answers["mdl.set_dump"] = 100009
    device.message = "EP0003: dump_path\n  is no directory"
    original = runtime.acl.init
    with pytest.raises(AclError) as caught:
        runtime.start(config)
    assert str(caught.value) == (
        f"acl.mdl.set_dump({str(config)!r}) returned 100009 (ACL_ERROR_INVALID_DUMP_CONFIG): "
        f"EP0003: dump_path is no directory"
    )
    assert (caught.value.code, device.dump_open, runtime.acl.init) == (100009, False, original)
    del device.answers["mdl.set_dump"]
    runtime.stop()
    runtime.start(config)
    assert device.dumping == str(config)


def test_what_fails_in_the_application_s_init_reaches_the_test(device: Any, started: PyAclRuntime) -> None:
    device.answers["init"] = 500000
    assert started.acl.init() == 500000, "its code is left to the application"
    with pytest.raises(AclError, match=r"acl\.init\(\) returned 500000"):
        started.load_model(MODEL)
    assert not started.activity.initialised
    device.answers = {"mdl.set_dump": 500000}
    with pytest.raises(AclError, match="returned 500000"):
        started.acl.init()
    assert not device.dump_open
    started.stop()


def test_dump_that_cannot_be_ended_is_an_error_and_nothing_is_left_patched(
    device: Any, runtime: PyAclRuntime, config: Path
) -> None:
    acl = runtime.acl
    original = acl.init
    for _ in range(2):
        runtime.start(config)
        assert acl.init is not original
        for _ in range(2):
            runtime.stop()
            assert acl.init is original
    runtime.start(config)
    acl.init()
    device.answers["mdl.finalize_dump"] = 500000
    with pytest.raises(AclError, match=r"acl\.mdl\.finalize_dump\(\) returned 500000"):
        runtime.stop()
    assert acl.init is original


def test_replacement_of_init_by_a_fixture_of_the_test_does_no_lasting_harm(
    device: Any, started: PyAclRuntime, config: Path
) -> None:
    acl = started.acl
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(acl, "init", lambda: 7)
        started.stop()
        assert acl.init() == 7, "the fixture's replacement is its own"
    assert acl.init() == 0
    acl.finalize()
    started.start(config)
    assert acl.init() == 0
    assert device.dumping == str(config)
    started.stop()


@pytest.mark.parametrize("ends", [True, False])
def test_released_dump_is_left_to_the_test_and_ended_once(
    device: Any, runtime: PyAclRuntime, config: Path, *, ends: bool
) -> None:
    acl = runtime.acl
    original = acl.init
    runtime.start(config)
    runtime.release()
    acl.init()
    assert not device.dumping, "the dump is the test's own affair"
    acl.mdl.init_dump()
    acl.mdl.set_dump(str(config))
    runtime.release()
    assert device.dumping == str(config), "looking at the configuration again must not end the dump"
    assert runtime.activity.released
    if ends:
        acl.mdl.finalize_dump()
    for end in (runtime.stop, runtime.stop, runtime.close):
        end()
    assert (device.dump_open, acl.init) == (False, original)
    assert device.names().count("mdl.finalize_dump") == 1


def test_graphs_that_torch_npu_captures_beside_acl_are_watched_too(
    runtime: PyAclRuntime, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Graph:
        def capture_begin(self) -> None: ...
        def capture_end(self) -> None: ...
        def replay(self) -> None: ...

    replay = Graph.replay
    monkeypatch.setitem(sys.modules, "torch_npu", SimpleNamespace(npu=SimpleNamespace(NPUGraph=Graph)))
    runtime.start(config)
    Graph().replay()
    runtime.stop()
    (words,) = runtime.activity.evidence.undumped
    assert re.search("Graph replayed at .*", words), words
    assert Graph.replay is replay


@pytest.mark.parametrize(
    ("graphs", "dump", "way", "told"),
    [
        ({"NPUGraph": GRAPH}, {}, "", 1),
        ({}, {}, "", 0),
        ({"NPUGraph": GRAPH}, {"dump_scene": "aic_err_brief_dump"}, "", 0),
        ({"NPUGraph": GRAPH}, {}, "release", 1),
        ({"NPUGraph": GRAPH}, {}, "hand_over", 0),
    ],
    ids=["graphs", "no-graphs", "exception", "released", "program"],
)
def test_a_torch_npu_that_is_imported_under_the_dump_fails_the_test(
    runtime: PyAclRuntime,
    config: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    graphs: dict[str, Any],
    dump: dict[str, Any],
    way: str,
    told: int,
) -> None:
    """Nobody saw what it captured; a program's dump sees nothing of this process, whatever is imported."""
    section = json.loads(config.read_text(encoding="utf-8"))["dump"]
    config.write_text(json.dumps({"dump": section | dump}), encoding="utf-8")
    monkeypatch.delitem(sys.modules, "torch_npu", raising=False)
    runtime.start(config)
    if way:
        runtime.release() if way == "release" else runtime.hand_over("infer")
    monkeypatch.setitem(sys.modules, "torch_npu", SimpleNamespace(npu=SimpleNamespace(**graphs)))
    runtime.stop()
    runtime.stop()
    undumped = runtime.activity.evidence.undumped
    assert len(undumped) == told
    if not way:
        assert all("import torch_npu at the top of the test's file" in words for words in undumped)


def test_capture_behind_a_released_configuration_ends_as_any_other(
    device: Any, runtime: PyAclRuntime, config: Path
) -> None:
    runtime.acl.init()
    runtime.start(config)
    runtime.release()
    runtime.stop()
    runtime.start(config, resumed=True)
    assert device.dumping == str(config)
    runtime.stop()
    assert not device.dump_open


def test_dump_left_open_by_a_released_test_that_finalised_acl_does_not_harm_the_next(
    device: Any, released: PyAclRuntime, config: Path
) -> None:
    acl = released.acl
    acl.init()
    acl.mdl.init_dump()
    acl.finalize()
    released.stop()
    released.start(config)
    assert acl.init() == 0
    assert device.dumping == str(config)


def test_producer_names_runtime_and_soc_and_the_switches_that_variables_are(
    runtime: PyAclRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = {"runtime": "acl", "soc": "Ascend910B3"}
    assert dict(runtime.producer()) == facts
    monkeypatch.setenv("HCCL_DETERMINISTIC", "true")
    monkeypatch.setenv("INF_NAN_MODE_ENABLE", "")
    assert dict(runtime.producer()) == {**facts, "hccl_deterministic": "true"}


def test_everything_a_run_took_is_given_back(device: Any, started: PyAclRuntime) -> None:
    turned = np.asfortranarray(IMAGE)[:, ::-1]
    with started.load_model(MODEL) as model:
        for image in (IMAGE, IMAGE * 2, turned):
            np.testing.assert_array_equal(model.run(image)[0], image + 1)
        assert sorted(device.live.values()) == ["model", "model desc"]
    assert device.live == {}
    names = device.names()
    assert names.count("rt.malloc") == names.count("rt.free") == 6
    assert names.count("rt.malloc_host") == names.count("rt.free_host") == 3
    with pytest.raises(RequestError, match="is closed; run it inside its with block"):
        model.run(IMAGE)


FAILING = [
    "mdl.add_dataset_buffer",
    "mdl.execute",
    "mdl.get_cur_output_dims",
    "rt.malloc",
    "rt.malloc_host",
    "rt.memcpy",
]


@pytest.mark.parametrize("call", FAILING)
def test_run_that_fails_gives_everything_back_and_names_the_call(
    device: Any, started: PyAclRuntime, call: str
) -> None:
    model = started.load_model(MODEL)
    device.answers[call] = 207001
    with pytest.raises(AclError, match=rf"acl\.{call}\(.*returned 207001 \(ACL_ERROR_RT_MEMORY_ALLOCATION\)"):
        model.run(IMAGE)
    assert sorted(device.live.values()) == ["model", "model desc"]
    model.close()
    model.close()
    assert device.live == {}


@pytest.mark.parametrize("call", ["mdl.load_from_file", "mdl.get_desc"])
def test_model_that_cannot_be_loaded_leaves_nothing_behind(
    device: Any, started: PyAclRuntime, call: str
) -> None:
    device.answers[call] = 145002
    with pytest.raises(AclError, match="returned 145002"):
        started.load_model(MODEL)
    assert (device.live, started.activity.models) == ({}, ())


@pytest.mark.parametrize("shape", [(2, 3), (5, 1), (0, 4)])
def test_dynamic_output_comes_through_an_empty_buffer(
    make_device: Callable[..., Any], config: Path, shape: tuple[int, ...]
) -> None:
    device = make_device([("x", (-1, -1))], [("y", (-1, -1))])
    if 0 in shape:
        device.execute = lambda *_: 0
    runtime = PyAclRuntime(device.module(), "acl")
    runtime.start(config)
    image = np.full(shape, 4, np.float32)
    with runtime.load_model(MODEL) as model:
        (result,) = model.run(image)
    np.testing.assert_array_equal(result, image + 1)
    assert result.shape == shape
    assert ("create_data_buffer", 0, 0) in device.calls
    assert device.live == {}


def test_array_that_does_not_fit_is_refused_before_the_device_is_touched(
    device: Any, started: PyAclRuntime
) -> None:
    cases: tuple[tuple[list[np.ndarray], str], ...] = (
        ([], "net.om has 1 input (x), got 0"),
        ([IMAGE, IMAGE], "net.om has 1 input (x), got 2"),
        ([IMAGE.astype(np.float64)], "input 'x' of net.om takes float32 of shape [2, 3], got float64"),
        ([IMAGE.reshape(3, 2)], "takes float32 of shape [2, 3], got float32 of shape [3, 2]"),
        ([IMAGE.reshape(1, 2, 3)], "got float32 of shape [1, 2, 3]"),
    )
    for arrays, message in cases:
        with started.load_model(MODEL) as model, pytest.raises(RequestError, match=re.escape(message)):
            model.run(*arrays)
    assert "rt.malloc" not in device.names()
    assert started.activity.executions == 0


# aclDataType of acl_base.h, as CANN documents it.
TYPES = {
    0: "float32", 1: "float16", 2: "int8", 3: "int32", 4: "uint8", 6: "int16", 7: "uint16", 8: "uint32",
    9: "int64", 10: "uint64", 11: "float64", 12: "bool", 16: "complex64", 17: "complex128", 27: "bfloat16",
}  # fmt: skip


def test_data_types_of_acl_are_numpy_s_and_one_without_elements_of_whole_bytes_is_refused() -> None:
    assert {number: numpy_dtype(number).name for number in TYPES} == TYPES
    refused = {13: "numpy cannot hold", 29: "share a byte", 30: "share a byte", 999: "number 999"}
    for number, reason in refused.items():
        with pytest.raises(RuntimeUnavailableError, match=reason):
            numpy_dtype(number)


def test_bf16_needs_no_earlier_import_of_ml_dtypes() -> None:
    code = (
        "import sys; from pytest_npudump.runtime.pyacl.model import numpy_dtype; "
        "assert 'ml_dtypes' not in sys.modules; print(numpy_dtype(27))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "bfloat16\n"


@pytest.fixture
def emulated() -> Iterator[PyAclRuntime]:
    from pytest_npudump.emulator import install

    install.install()
    install.reset()
    import acl

    original = acl.init
    runtime = PyAclRuntime(acl, "emulator")
    yield runtime
    runtime.close()
    assert acl.init is original
    install.reset()
    install.uninstall()


@pytest.fixture
def small_model(tmp_path: Path) -> Path:
    """Mul, then Relu: x [n, 3] -> y [n, 3], the first dimension dynamic."""
    nodes = [
        helper.make_node("Mul", ["x", "w"], ["s"], name="scale"),
        helper.make_node("Relu", ["s"], ["y"], name="block/relu"),
    ]
    weights = {"w": np.float32([1, -2, 0.5])}
    return onnx_file(tmp_path / "small.onnx", nodes, {"x": ["n", 3]}, {"y": ["n", 3]}, weights)


def dumped(config: Path) -> list[str]:
    root = Path(json.loads(config.read_text())["dump"]["dump_path"])
    return sorted(path.name.split(".")[1] for path in root.rglob("*") if path.is_file())


def test_emulator_runs_and_dumps_what_is_loaded_between_start_and_stop(
    emulated: PyAclRuntime, config: Path, small_model: Path
) -> None:
    from pytest_npudump.emulator.process import process

    emulated.start(config)
    with emulated.load_model(small_model) as model:
        for rows in (2, 5, 1):
            image = np.linspace(-1, 1, rows * 3, dtype=np.float32).reshape(rows, 3)
            (result,) = model.run(image)
            np.testing.assert_array_equal(result, np.maximum(image * np.float32([1, -2, 0.5]), 0))
            assert process().memory.used(0) == 0
        emulated.stop()
        before = dumped(config)
        model.run(np.ones((1, 3), np.float32))
    assert set(before) >= {"scale", "block_relu"}
    assert dumped(config) == before
    emulated.close()
    assert emulated.acl.finalize() == 100037, "the adapter finalised what it had initialised"


def test_emulator_refuses_a_configuration_or_a_model_in_cann_s_words(
    emulated: PyAclRuntime, config: Path, tmp_path: Path
) -> None:
    emulated.start(config)
    with pytest.raises(AclError, match=r"load_from_file\('.*none\.om'\) returned \d+"):
        emulated.load_model(tmp_path / "none.om")
    emulated.stop()
    config.write_text('{"dump": {"dump_path": "nowhere", "dump_list": [{}]}}')
    with pytest.raises(AclError, match=r"returned 100009 \(ACL_ERROR_INVALID_DUMP_CONFIG\): EP0003.*nowhere"):
        emulated.start(config)
    assert emulated.acl.mdl.init_dump() == 0, "no dump is left open"


def test_model_of_several_types_keeps_each_of_them(
    emulated: PyAclRuntime, config: Path, tmp_path: Path
) -> None:
    gives = {"half": (TensorProto.FLOAT16, [4]), "flag": (TensorProto.BOOL, [4])}
    nodes = [helper.make_node("Cast", ["x"], [name], to=kind) for name, (kind, _) in gives.items()]
    path = onnx_file(tmp_path / "types.onnx", nodes, {"x": (TensorProto.INT64, [4])}, gives)
    emulated.start(config)
    values = np.array([0, 1, -3, 1000])
    with emulated.load_model(path) as model:
        half, flag = model.run(values)
    np.testing.assert_array_equal(half, values.astype(np.float16), strict=True)
    np.testing.assert_array_equal(flag, values.astype(bool), strict=True)


def test_only_models_loaded_under_dump_that_is_on_count_as_run(started: PyAclRuntime, config: Path) -> None:
    early = started.load_model(MODEL)
    early.run(IMAGE)
    assert started.activity.executions == 1
    started.stop()
    started.start(config, resumed=True)
    late = started.load_model(Path("late.om"))
    early.run(IMAGE)
    assert started.activity.executions == 1
    late.run(IMAGE)
    assert started.activity.executions == 2
    (words,) = started.activity.evidence.missing
    assert words.startswith("net.om was loaded before the dump was set ")
    started.release()
    late.run(IMAGE)
    assert started.activity.executions == 2
    ran = "late.om ran in the test's own process while no dump was on"
    assert ran in started.activity.evidence.missing[1]
    started.stop()
    started.start(config)
    late.run(IMAGE)
    assert (started.activity.models, started.activity.executions) == ((), 0)
    assert started.activity.evidence.missing[0].startswith("late.om was loaded before the dump was set ")
    for end in (early, late, started):
        end.close()


def test_dump_that_the_test_sets_itself_shows_what_ran_under_it(released: PyAclRuntime, config: Path) -> None:
    acl = released.acl
    acl.init()
    assert (acl.mdl.init_dump(), acl.mdl.set_dump(str(config))) == (0, 0)
    with released.load_model(MODEL) as model:
        model.run(IMAGE)
    evidence = released.activity.evidence
    assert (evidence.gaps, len(evidence.shown), evidence.models) == ((), 1, ["net.om"])
    released.stop()
    released.close()


def of_scene(tmp_path: Path, **dump: str) -> Path:
    path = tmp_path / "scene.json"
    path.write_text(json.dumps({"dump": {"dump_path": str(tmp_path), **dump}}), encoding="utf-8")
    return path


def test_a_dump_that_the_test_has_ended_itself_is_told_as_such(started: PyAclRuntime) -> None:
    started.acl.init()
    assert started.acl.mdl.finalize_dump() == 0
    words = r"100045 .*the test has ended the dump itself; take npu_dump.config_p"
    with pytest.raises(AclError, match=words):
        started.stop()


@pytest.mark.parametrize("initialised", [True, False])
def test_an_exception_dump_that_is_on_before_is_ended_for_the_test_s(
    device: Any, runtime: PyAclRuntime, tmp_path: Path, *, initialised: bool
) -> None:
    """CANN ignores an exception dump beside another, and answers 0."""
    if initialised:
        runtime.acl.init("lite.json")
    runtime.start(of_scene(tmp_path, dump_scene="aic_err_norm_dump"))
    if not initialised:
        runtime.acl.init("lite.json")
    of_dump = [name for name in device.names() if "dump" in name]
    assert of_dump[-4:] == ["mdl.init_dump", "mdl.finalize_dump", "mdl.init_dump", "mdl.set_dump"]
    runtime.stop()


@pytest.mark.parametrize(
    ("mode", "dump", "way", "blind", "noted"),
    [
        ((1, 0), {"dump_debug": "on"}, "", 1, 0),
        ((0, 0), {"dump_debug": "on"}, "", 0, 0),
        ((0, 107002), {"dump_debug": "on"}, "", 0, 1),
        (None, {"dump_debug": "on"}, "", 0, 1),
        ((1, 0), {}, "", 0, 0),
        ((1, 0), {"dump_debug": "on"}, "release", 1, 0),
        (None, {"dump_debug": "on"}, "hand_over", 0, 1),
    ],
    ids=["INF/NAN", "saturation", "no device", "old pyACL", "no overflow", "own dump", "program"],
)
def test_the_mode_of_the_device_tells_whether_overflows_were_seen(
    runtime: PyAclRuntime,
    tmp_path: Path,
    *,
    mode: tuple[int, int] | None,
    dump: dict[str, str],
    way: str,
    blind: int,
    noted: int,
) -> None:
    """The mode counts in which a test runs under its own dump, and is asked for once."""
    asked = []
    if mode is not None:
        runtime.acl.rt.get_device_sat_mode = lambda: asked.append(mode) or mode
    if way != "hand_over":
        runtime.acl.init()
    runtime.start(of_scene(tmp_path, **dump or {"dump_list": ""}))
    if way:
        runtime.release() if way == "release" else runtime.hand_over("infer")
    assert not asked
    runtime.stop()
    runtime.stop()
    evidence = runtime.activity.evidence
    told = [text for text in evidence.blind if "acl.rt.set_device_sat_mode(0)" in text]
    assert (len(told), len(evidence.blind), len(evidence.notes)) == (blind, blind, noted)
