"""Calls of pyACL that are looked at while they pass, against a stand-in that records them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from pytest_npudump.emulator.install import install, uninstall
from pytest_npudump.onnxmodels.variation import PLAIN, Variation
from pytest_npudump.runtime.acl import REPEAT_INITIALIZE, SUCCESS
from pytest_npudump.runtime.base import Evidence
from pytest_npudump.runtime.pyacl.adapter import PyAclRuntime
from pytest_npudump.runtime.pyacl.observation import ModelDirectory, ObservedCalls
from tests.onnxmodels.models import onnx_file


class Acl:
    """A module ``acl`` whose functions return what ``answers`` says, else success."""

    def __init__(self) -> None:
        self.answers: dict[str, Any] = {"load_from_file": (7, 0), "load_from_mem": (8, 0)}
        self.calls: list[tuple[Any, ...]] = []
        names = ("set_dump", "finalize_dump", "load_from_file", "load_from_mem", "execute", "execute_async")
        self.mdl = SimpleNamespace(**{name: self._function(name) for name in names})
        self.op = SimpleNamespace(execute_v2=self._function("op"))
        self.rt = SimpleNamespace(synchronize_stream=self._function("synchronize"))

    def _function(self, name: str) -> Any:
        def call(*arguments: Any) -> Any:
            self.calls.append((name, *arguments))
            return self.answers.get(name, 0)

        return call


@pytest.fixture
def acl() -> Acl:
    return Acl()


@pytest.fixture
def watched(acl: Acl) -> tuple[Acl, Evidence, ObservedCalls]:
    evidence = Evidence()
    calls = ObservedCalls(acl, "ours".__eq__, evidence)
    calls.watch()
    return acl, evidence, calls


def test_a_model_loaded_and_run_behind_the_configuration_is_evidence(watched: Any) -> None:
    acl, evidence, _ = watched
    assert acl.mdl.set_dump("ours") == 0
    assert acl.mdl.load_from_file("m.om") == (7, 0)
    assert evidence.shown == []
    for _ in range(3):
        assert acl.mdl.execute(7, 1, 2) == 0
    assert evidence.shown == ["a model that was loaded under the dump ran"]
    assert acl.calls[-1] == ("execute", 7, 1, 2)


@pytest.mark.parametrize(
    ("answers", "path", "model"),
    [
        ({"set_dump": 100009}, "ours", 7),
        ({}, "another", 7),
        ({"load_from_file": (7, 145002)}, "ours", 7),
        ({"execute": 145003}, "ours", 7),
        ({"execute": 100000}, "ours", 7),
        ({}, "ours", 9),
    ],
    ids=["refused", "another-file", "not-loaded", "not-run", "refused-on-the-host", "another-model"],
)
def test_anything_less_is_none(watched: Any, answers: dict[str, Any], path: str, model: int) -> None:
    acl, evidence, _ = watched
    acl.answers |= answers
    acl.mdl.set_dump(path)
    acl.mdl.load_from_file("m.om")
    acl.mdl.execute(model, 1, 2)
    assert (evidence.shown, evidence.failed) == ([], [])
    assert not evidence.missing or "execute" not in answers


OUTSIDE = "ran in the test's own process while no dump was on "


@pytest.mark.parametrize(
    ("steps", "shown", "models", "missing"),
    [
        ("set ours, mem, finalize, run 8", 0, ["model 8"], [f"model 8 {OUTSIDE}"]),
        ("set ours, load nets/m.om, set ours, run 7", 1, ["nets/m.om"], []),
        ("set ours, load a.om, set another, load b.om, run 7", 0, ["a.om"], [f"b.om {OUTSIDE}"]),
    ],
    ids=["behind the end of the dump", "the same dump again", "an id given out again"],
)
def test_models_are_those_of_the_dump_that_is_on(
    watched: Any, steps: str, shown: int, models: list[str], missing: list[str]
) -> None:
    acl, evidence, _ = watched
    calls = {
        "set": acl.mdl.set_dump,
        "finalize": lambda _: acl.mdl.finalize_dump(),
        "load": acl.mdl.load_from_file,
        "mem": lambda _: acl.mdl.load_from_mem(1, 2),
        "run": lambda model: acl.mdl.execute(int(model), 1, 2),
    }
    for step in steps.split(", "):
        name, _, argument = step.partition(" ")
        calls[name](argument)
    assert (len(evidence.shown), evidence.models) == (shown, models)
    assert [words[: len(told)] for words, told in zip(evidence.missing, missing, strict=True)] == missing


def test_a_model_from_before_the_dump_is_evidence_against_it_and_of_an_earlier_one_too() -> None:
    rows = [("", between) for between in ((), ("ours",), ("another", "ours"), ("finalize", "ours"))]
    rows += [("ours", between) for between in (("another", "ours"), ("finalize", "ours"))]
    for (before, between), code in product(rows, (0, 507011, 507899)):
        acl, evidence = Acl(), Evidence()
        ObservedCalls(acl, "ours".__eq__, evidence).watch()
        if before:
            acl.mdl.set_dump(before)
        acl.mdl.load_from_file("nets/m.om")
        for path in between if before else ("ours", *between):
            assert (acl.mdl.finalize_dump() if path == "finalize" else acl.mdl.set_dump(path)) == 0
        acl.answers["execute"] = code
        acl.mdl.execute(7, 1, 2)
        (words,) = evidence.missing
        assert words.startswith("m.om was loaded before the dump was set ")
        assert (evidence.shown, evidence.failed) == ([], [])


def test_a_function_of_the_test_s_own_that_takes_the_dump_leaves_none(acl: Acl) -> None:
    acl.mdl.dump_reg_callback = acl._function("dump_reg_callback")
    evidence = Evidence()
    ObservedCalls(acl, "ours".__eq__, evidence).watch()
    acl.answers["dump_reg_callback"] = 500001
    acl.mdl.dump_reg_callback(None, 0)
    assert evidence.missing == []
    acl.answers["dump_reg_callback"] = 0
    acl.mdl.dump_reg_callback(print, 0)
    (reason,) = evidence.missing
    assert "a function of its own with acl.mdl.dump_reg_callback()" in reason


@pytest.mark.parametrize("code", [507011, 507015, 507899])
def test_an_error_of_the_device_is_kept_and_what_a_wait_for_a_stream_tells(watched: Any, code: int) -> None:
    acl, evidence, _ = watched
    acl.answers |= {"execute": code, "op": code, "synchronize": code}

    def calls() -> list[int]:
        acl.mdl.load_from_file("m.om")
        return [acl.mdl.execute(7, 1, 2), acl.op.execute_v2("Add"), acl.rt.synchronize_stream(1)]

    calls()
    assert evidence.failed == []
    acl.mdl.set_dump("ours")
    assert calls() == [code] * 3
    names = ("execute", "execute_v2", "synchronize_stream")
    told = [f"acl.{name} returned {code}" for name in names]
    assert evidence.failed == told
    for quiet in (507046, 0):  # still running; success
        acl.answers["synchronize"] = quiet
        assert acl.rt.synchronize_stream(1) == quiet
    assert evidence.failed == told


def test_every_function_is_put_back_but_one_that_a_fixture_replaced(acl: Acl) -> None:
    before = {**vars(acl.mdl), **vars(acl.op), **vars(acl.rt)}
    calls = ObservedCalls(acl, "ours".__eq__, Evidence())
    calls.watch()
    ours = acl.mdl.execute
    assert ours is not before["execute"]
    calls.stop()
    assert {**vars(acl.mdl), **vars(acl.op), **vars(acl.rt)} == before
    calls.stop()
    calls.watch()
    ours, acl.mdl.execute = acl.mdl.execute, lambda *_: 1
    replacement = acl.mdl.execute
    calls.stop()
    assert acl.mdl.execute is replacement
    acl.mdl.execute = ours  # as monkeypatch does at its end
    again = ObservedCalls(acl, "ours".__eq__, Evidence())
    again.watch()
    again.stop()
    assert acl.mdl.execute.__name__ == "call"


def test_a_module_without_single_operators_or_that_cannot_be_changed_is_no_error() -> None:
    class Fixed:
        __slots__ = ()

        def execute(self, *_: object) -> int:
            return 0

    calls = ObservedCalls(SimpleNamespace(mdl=Fixed()), bool, Evidence())
    calls.watch()
    calls.stop()


def answers(*directories: Path) -> list[int]:
    """What a test gets that asks for each directory in a run of its own."""
    codes = iter([SUCCESS, *[REPEAT_INITIALIZE] * len(directories)])
    acl = SimpleNamespace(op=SimpleNamespace(set_model_dir=lambda _: next(codes)))
    models = ModelDirectory()
    found = []
    for directory in directories:
        models.watch(acl, Evidence(), resumed=False)
        found.append(acl.op.set_model_dir(str(directory)))
    models.stop()
    return found


@pytest.fixture
def linked(tmp_path: Path) -> tuple[Path, Path, Path]:
    """Three directories whose models lie behind a link: one, the same once more, and another."""
    for name, content in (("one", b"add"), ("again", b"add"), ("other", b"mul")):
        (tmp_path / f"{name}-models").mkdir()
        (tmp_path / f"{name}-models" / "add.om").write_bytes(content)
        (tmp_path / name).mkdir()
        (tmp_path / name / "models").symlink_to(tmp_path / f"{name}-models")
    return tmp_path / "one", tmp_path / "again", tmp_path / "other"


def test_models_behind_links_tell_directories_apart(linked: tuple[Path, Path, Path], tmp_path: Path) -> None:
    """A link to a folder above is followed once; a folder that two links name counts under both."""
    one, again, other = linked
    assert answers(*linked) == [SUCCESS, SUCCESS, REPEAT_INITIALIZE]
    for directory in linked:
        (directory / "above").symlink_to(directory)
    assert answers(*linked) == [SUCCESS, SUCCESS, REPEAT_INITIALIZE]
    (again / "above").unlink()
    assert answers(one, again, other) == [SUCCESS, REPEAT_INITIALIZE, REPEAT_INITIALIZE]
    (one / "above").unlink()
    assert answers(one, again) == [SUCCESS, SUCCESS]
    (one / "second").symlink_to("models")
    assert answers(one, again) == [SUCCESS, REPEAT_INITIALIZE]
    assert answers(tmp_path / "none", tmp_path / "none") == [SUCCESS, REPEAT_INITIALIZE]


@pytest.fixture
def runtime() -> Iterator[PyAclRuntime]:
    install()
    import acl  # type: ignore[import-not-found]

    found = PyAclRuntime(acl, "acl")
    yield found
    found.vary(PLAIN)
    found.close()
    uninstall()


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """y = x, and as many of ids."""
    nodes = [
        helper.make_node("Identity", ["x"], ["y"], name="same"),
        helper.make_node("Identity", ["ids"], ["z"], name="ids"),
    ]
    half, ids = (TensorProto.FLOAT16, [8]), (TensorProto.INT64, [3])
    return onnx_file(tmp_path / "two.onnx", nodes, {"x": half, "ids": ids}, {"y": half, "z": ids}, name="two")


IMAGE = np.linspace(0.1, 0.9, 8, dtype=np.float16)


def test_a_model_gets_inputs_that_differ_by_a_step(runtime: PyAclRuntime, model: Path) -> None:
    runtime.vary(Variation(seed=2))
    with runtime.load_model(model) as loaded:
        y, z = loaded.run(IMAGE, np.arange(3))
        again, _ = loaded.run(IMAGE, np.arange(3))
    steps = np.abs(y.view(np.int16).astype(int) - IMAGE.view(np.int16))
    assert 0 < steps.max() <= 2
    assert (y != again).any()
    np.testing.assert_array_equal(z, np.arange(3))
    assert runtime.varying.perturbed == {"x"}
    assert runtime.varying.unperturbed == {"ids"}


def test_a_plain_run_gets_what_it_was_given(runtime: PyAclRuntime, model: Path) -> None:
    before = runtime.acl.mdl.execute
    runtime.vary(Variation(seed=2))
    runtime.vary(PLAIN)
    assert runtime.acl.mdl.execute is before
    with runtime.load_model(model) as loaded:
        np.testing.assert_array_equal(loaded.run(IMAGE, np.arange(3))[0], IMAGE)


def own_call(acl: Any, model: Path, *, stream: bool) -> tuple[np.ndarray, np.ndarray]:
    """What an application's own calls leave in its input and output."""
    acl.init()
    acl.rt.set_device(0)
    number, _ = acl.mdl.load_from_file(str(model))
    feeds, results = (acl.mdl.create_dataset() for _ in range(2))
    addresses = {}
    for dataset in (feeds, results):
        for array in (IMAGE, np.arange(3)):
            address, _ = acl.rt.malloc(array.nbytes, 0)
            source = acl.util.bytes_to_ptr(array.tobytes())
            assert acl.rt.memcpy(address, array.nbytes, source, array.nbytes, 1) == 0
            acl.mdl.add_dataset_buffer(dataset, acl.create_data_buffer(address, array.nbytes))
            addresses[dataset, array.dtype.kind] = address
    if stream:
        queue, _ = acl.rt.create_stream()
        assert acl.mdl.execute_async(number, feeds, results, queue) == 0
        assert acl.rt.synchronize_stream(queue) == 0
    else:
        assert acl.mdl.execute(number, feeds, results) == 0
    arrays = []
    for dataset in (feeds, results):
        host, _ = acl.rt.malloc_host(IMAGE.nbytes)
        acl.rt.memcpy(host, IMAGE.nbytes, addresses[dataset, "f"], IMAGE.nbytes, 2)
        arrays.append(np.frombuffer(acl.util.ptr_to_bytes(host, IMAGE.nbytes), np.float16).copy())
    acl.rt.reset_device(0)
    acl.finalize()
    return arrays[0], arrays[1]


@pytest.mark.parametrize("stream", [False, True], ids=["execute", "execute_async"])
def test_the_tests_own_calls_are_reached_and_its_buffers_get_their_values_back(
    runtime: PyAclRuntime, model: Path, *, stream: bool
) -> None:
    runtime.vary(Variation(seed=2))
    fed, result = own_call(runtime.acl, model, stream=stream)
    np.testing.assert_array_equal(fed, IMAGE)
    assert 0 < np.abs(result.view(np.int16).astype(int) - IMAGE.view(np.int16)).max() <= 2
    assert runtime.varying.perturbed == {"x"}


def test_what_acl_refuses_is_answered_as_without_a_calibration(runtime: PyAclRuntime) -> None:
    runtime.acl.init()
    plain = runtime.acl.mdl.execute(99, 1, 2)
    runtime.vary(Variation(seed=2))
    assert runtime.acl.mdl.execute(99, 1, 2) == plain
    runtime.acl.finalize()


@pytest.mark.parametrize("stream", [False, True], ids=["execute", "execute_async"])
def test_what_a_model_is_fed_is_noted_and_a_stream_waited_for_where_that_is_wanted(
    runtime: PyAclRuntime, model: Path, *, stream: bool
) -> None:
    for waits in (False, True):
        runtime.vary(Variation(looks=True, waits=waits))
        fed, result = own_call(runtime.acl, model, stream=stream)
        np.testing.assert_array_equal(result, fed)
        noted = runtime.varying.fed
        assert [record.key.layer for record in noted] == (["x", "ids"] if waits or not stream else [])
        runtime.vary(PLAIN)
        assert runtime.varying.fed == noted
    assert noted[0].stats is not None
    assert noted[0].stats.max == float(IMAGE.max())
    assert [record.digest for record in noted] == [
        hashlib.blake2b(array.tobytes(), digest_size=16).hexdigest() for array in (IMAGE, np.arange(3))
    ]
