"""The client is a stand-in with torch_npu's calls and answers, as the real 2.13.0 gave them."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_npudump.config.acl_json import write_acl_json
from pytest_npudump.errors import ConfigError, RuntimeUnavailableError
from pytest_npudump.runtime.acl import AclError
from pytest_npudump.runtime.registry import choose, load, why_no_npu
from pytest_npudump.runtime.torch_npu.adapter import TorchNpuRuntime


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "acl.json"
    write_acl_json(path, {"dump_path": str(tmp_path), "dump_data": "stats", "dump_op_switch": "on"})
    return path


@pytest.fixture
def runtime(torch_npu: Any) -> TorchNpuRuntime:
    return TorchNpuRuntime(torch_npu)


@pytest.fixture
def released(torch_npu: Any, runtime: TorchNpuRuntime, config: Path) -> TorchNpuRuntime:
    """A runtime that has left the dump to the test; calls are noted from there on."""
    runtime.start(config)
    runtime.release()
    torch_npu._device.calls.clear()
    return runtime


def names(torch_npu: Any) -> list[str]:
    return [call[0] for call in torch_npu._device.calls]


def test_the_dump_is_on_between_start_and_stop_and_nothing_earlier_is_in_it(
    torch_npu: Any, runtime: TorchNpuRuntime, config: Path
) -> None:
    runtime.start(config)
    on = [("aclrtSynchronizeDevice",), ("aclmdlInitDump",), ("aclmdlSetDump", str(config.resolve()))]
    assert torch_npu._device.calls == [("aclInit",), *on]
    assert runtime.activity.initialised
    torch_npu._device.operator("mul", 1)
    runtime.stop()
    runtime.stop()
    assert names(torch_npu)[-2:] == ["aclrtSynchronizeDevice", "aclmdlFinalizeDump"]
    assert runtime.activity.evidence.shown == [], "nobody looks at operators where files show that they ran"
    runtime.start(config)
    runtime.stop()
    assert [names(torch_npu).count(name) for name in ("aclmdlInitDump", "aclInit")] == [2, 1]


def test_device_that_was_named_is_set_once_and_before_it_is_initialised(torch_npu: Any, config: Path) -> None:
    runtime = TorchNpuRuntime(torch_npu, device=1)
    for _ in range(2):
        runtime.start(config)
        runtime.stop()
    assert torch_npu._device.calls[:2] == [("aclInit",), ("aclrtSetDevice", 1)]
    assert names(torch_npu).count("aclrtSetDevice") == 1


@pytest.mark.parametrize("call", ["aclmdlInitDump", "aclmdlSetDump"])
def test_what_acl_refuses_is_an_error_with_its_code_and_words_and_leaves_the_next_one_alone(
    torch_npu: Any, runtime: TorchNpuRuntime, config: Path, call: str
) -> None:
    torch_npu._device.answers[call] = 100009
    with pytest.raises(AclError, match=r"returned 100009 \(ACL_ERROR_INVALID_DUMP_CONFIG\)") as caught:
        runtime.start(config)
    assert "What ACL says of it. Check the file." in str(caught.value)
    assert "PID" not in str(caught.value)
    assert not torch_npu._device.state["dump_open"]
    runtime.stop()
    torch_npu._device.answers.clear()
    runtime.start(config)
    assert torch_npu._device.state["config"]["dump_op_switch"] == "on"


def test_a_dump_that_is_on_already_is_named_as_such(torch_npu: Any, config: Path) -> None:
    torch_npu.npu.utils.init_dump()
    with pytest.raises(AclError, match=r"returned 100002 .* on already: .*finalize_dump\(\).*ACL_DUMP_DATA"):
        TorchNpuRuntime(torch_npu).start(config)


def of_scene(tmp_path: Path, **dump: str) -> Path:
    path = tmp_path / "scene.json"
    write_acl_json(path, {"dump_path": str(tmp_path), **dump})
    return path


def test_every_device_in_use_is_waited_for_and_no_other(torch_npu: Any, config: Path) -> None:
    torch_npu.npu.set_device(5)
    torch_npu.npu.set_device(2)
    torch_npu._device.calls.clear()
    runtime = TorchNpuRuntime(torch_npu)
    runtime.start(config)
    torch_npu._device.use(7)
    runtime.stop()
    waits = [("aclrtSynchronizeDevice",), ("aclrtSynchronizeDevice", 5)]
    assert torch_npu._device.calls == [
        *waits,
        ("aclmdlInitDump",),
        ("aclmdlSetDump", str(config.resolve())),
        ("aclrtSynchronizeDevice",),
        ("aclrtSynchronizeDevice", 2),
        ("aclrtSynchronizeDevice", 5),
        ("aclmdlFinalizeDump",),
    ]


@pytest.mark.parametrize("client", ["old", "over a CANN that cannot be asked"])
def test_where_contexts_are_not_known_memory_is_asked_for(torch_npu: Any, config: Path, client: str) -> None:
    if client == "old":
        del torch_npu._C._npu_hasPrimaryContext
    else:
        torch_npu._C._npu_hasPrimaryContext = _not_found
    torch_npu.npu.memory_reserved = lambda device: 512 * (device == 3)
    TorchNpuRuntime(torch_npu).start(config)
    assert ("aclrtSynchronizeDevice", 3) in torch_npu._device.calls
    assert names(torch_npu).count("aclrtSynchronizeDevice") == 2


def _not_found(device: int) -> bool:
    raise RuntimeError(f"Failed to find function aclrtGetPrimaryCtxState (device {device})")


def test_a_test_that_ends_the_dump_itself_is_told_so(
    torch_npu: Any, runtime: TorchNpuRuntime, config: Path
) -> None:
    runtime.start(config)
    torch_npu.npu.utils.finalize_dump()
    with pytest.raises(
        AclError, match=r"100045 .*the test has ended the dump itself; take npu_dump.config_path"
    ):
        runtime.stop()


@pytest.mark.parametrize("scene", ["aic_err_norm_dump", "aic_err_detail_dump"])
def test_an_exception_dump_is_the_first_one_of_the_process(
    torch_npu: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scene: str
) -> None:
    """CANN ignores an exception dump beside the one that torch_npu's own acl.json switches on."""
    users = tmp_path / "users.json"
    users.write_text('{"err_msg_mode": "1", "dump": {"dump_scene": "lite_exception"}}', encoding="utf-8")
    monkeypatch.setenv("TORCH_ACL_INIT_CONFIG_PATH", str(users))
    config = of_scene(tmp_path, dump_scene=scene)
    TorchNpuRuntime(torch_npu).start(config)
    call, path = torch_npu._device.calls[0]
    assert call == "aclInit"
    assert json.loads(Path(path).read_text(encoding="utf-8")) == {
        "err_msg_mode": "1",
        "dump": {"dump_path": str(tmp_path), "dump_scene": scene},
    }
    assert os.environ["TORCH_ACL_INIT_CONFIG_PATH"] == str(users)


def test_an_exception_dump_that_is_on_already_is_ended_before(torch_npu: Any, tmp_path: Path) -> None:
    torch_npu.npu.synchronize()
    torch_npu._device.calls.clear()
    TorchNpuRuntime(torch_npu).start(of_scene(tmp_path, dump_scene="aic_err_norm_dump"))
    assert names(torch_npu) == [
        "aclrtSynchronizeDevice",
        "aclmdlInitDump",
        "aclmdlFinalizeDump",
        "aclmdlInitDump",
        "aclmdlSetDump",
    ]
    assert "TORCH_ACL_INIT_CONFIG_PATH" not in os.environ


def test_a_file_for_acl_init_that_cannot_be_read_is_named(
    torch_npu: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "nested.json").write_text("[" * 100_000, "utf-8")
    for name in ("absent", "nested"):
        monkeypatch.setenv("TORCH_ACL_INIT_CONFIG_PATH", str(tmp_path / f"{name}.json"))
        with pytest.raises(ConfigError, match=rf"TORCH_ACL_INIT_CONFIG_PATH=.*{name}\.json: cannot be read"):
            TorchNpuRuntime(torch_npu).start(of_scene(tmp_path, dump_scene="aic_err_norm_dump"))
    assert torch_npu._device.calls == []


def test_a_golden_records_client_chip_and_switches_without_initialising_the_npu(
    torch_npu: Any, runtime: TorchNpuRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = {"runtime": "torch_npu", "torch_npu": "2.13.0", "soc": "Ascend910B3"}
    assert runtime.producer() == facts
    monkeypatch.setenv("INF_NAN_MODE_ENABLE", "1")
    assert runtime.producer() == {**facts, "inf_nan_mode": "1"}

    def no_name(_: int) -> str:
        raise AssertionError("Invalid device id")

    monkeypatch.setattr(torch_npu.npu, "get_device_name", no_name)
    assert "soc" not in runtime.producer()
    assert torch_npu._device.calls == []


def test_overflows_are_refused_where_an_operator_may_have_run_before(torch_npu: Any, tmp_path: Path) -> None:
    torch_npu.npu.synchronize()
    with pytest.raises(ConfigError, match=r"initialised before the dump.*leave out isolation='none'"):
        TorchNpuRuntime(torch_npu).start(of_scene(tmp_path, dump_debug="on"))


@pytest.mark.parametrize("version", ["8.5.0", "9.0.0", "9.0.1"])
def test_overflows_are_refused_where_cann_sees_those_of_models_only(
    torch_npu: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    monkeypatch.setattr("pytest_npudump.runtime.torch_npu.adapter.rules_version", lambda: version)
    with pytest.raises(ConfigError, match=f"in CANN {version} the overflow dump works for models only"):
        TorchNpuRuntime(torch_npu).start(of_scene(tmp_path, dump_debug="on"))
    assert torch_npu._device.calls == []


def test_operators_show_that_a_model_ran_and_captures_go_on_looking(
    torch_npu: Any, runtime: TorchNpuRuntime, tmp_path: Path
) -> None:
    config = of_scene(tmp_path, dump_debug="on")
    runtime.start(config)
    runtime.stop()
    assert runtime.activity.evidence.shown == []
    assert "in the test's own thread" in runtime.activity.likely_cause
    runtime.start(config, resumed=True)
    torch_npu._device.operator("mul", 1)
    runtime.stop()
    assert runtime.activity.evidence.shown == ["aten.mul ran on the NPU"]
    torch_npu._device.operator("add", 1)
    assert runtime.activity.evidence.shown == ["aten.mul ran on the NPU"]


def test_a_torch_that_compiles_nothing_meanwhile_is_told(
    torch_npu: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch.utils import _python_dispatch  # type: ignore[import-not-found]

    config, notes = of_scene(tmp_path, dump_scene="aic_err_norm_dump"), []
    for _ in range(2):
        runtime = TorchNpuRuntime(torch_npu)
        runtime.start(config)
        runtime.stop()
        notes.append(runtime.activity.evidence.notes)
        monkeypatch.delattr(_python_dispatch.TorchDispatchMode, "ignore_compile_internals", raising=False)
    assert notes[0] == []
    assert "runs functions of torch.compile uncompiled" in notes[1][0]


@pytest.mark.parametrize(
    ("inf_nan", "program", "blind", "notes"), [(True, "", 1, 0), (False, "", 0, 0), (True, "infer", 0, 1)]
)
def test_a_mode_that_hides_overflows_is_told_and_not_known_of_a_program_s_device(
    torch_npu: Any,
    runtime: TorchNpuRuntime,
    tmp_path: Path,
    *,
    inf_nan: bool,
    program: str,
    blind: int,
    notes: int,
) -> None:
    torch_npu._device.state["inf_nan"] = inf_nan
    runtime.start(of_scene(tmp_path, dump_debug="on"))
    if program:
        runtime.hand_over(program)
    runtime.stop()
    evidence = runtime.activity.evidence
    told = [text for text in evidence.blind if "INF_NAN_MODE_FORCE_DISABLE=1" in text]
    assert (len(told), len(evidence.blind), len(evidence.notes)) == (blind, blind, notes)


def test_a_file_that_acl_would_refuse_is_refused_before_the_device_is_touched(
    torch_npu: Any, tmp_path: Path
) -> None:
    path = tmp_path / "acl.json"
    path.write_text(json.dumps({"dump": {"dump_path": str(tmp_path), "dump_mode": "none"}}), encoding="utf-8")
    with pytest.raises(ConfigError, match="dump_mode"):
        TorchNpuRuntime(torch_npu).start(path)
    with pytest.raises(ConfigError, match=r"absent\.json"):
        TorchNpuRuntime(torch_npu).start(tmp_path / "absent.json")
    assert torch_npu._device.calls == []


def test_functions_that_ignore_acls_answer_are_never_used(torch_npu: Any, config: Path) -> None:
    torch_npu.npu.utils.set_dump = torch_npu.npu.set_dump
    with pytest.raises(
        RuntimeUnavailableError, match=r"has no torch_npu.npu.utils.set_dump that reports errors"
    ):
        TorchNpuRuntime(torch_npu).start(config)
    assert not torch_npu._device.state["dump_open"]
    del torch_npu.npu.utils.init_dump
    with pytest.raises(RuntimeUnavailableError, match=r"has no torch_npu.npu.utils.init_dump"):
        TorchNpuRuntime(torch_npu).start(config)


def test_a_client_that_only_queues_the_dump_is_found_out(
    torch_npu: Any, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch_npu.npu, "is_initialized", lambda: False)
    with pytest.raises(RuntimeUnavailableError, match="not initialised, so that no dump is on"):
        TorchNpuRuntime(torch_npu).start(config)


def test_an_operator_that_fails_on_the_device_is_told_before_the_dump_is_ended(
    torch_npu: Any, runtime: TorchNpuRuntime, config: Path
) -> None:
    """finalize_dump waits for the device outside of the client's error handling."""
    runtime.start(config)
    torch_npu._device.answers["aclrtSynchronizeDevice"] = 507015
    with pytest.raises(AclError, match="507015"):
        runtime.stop()
    assert "aclmdlFinalizeDump" not in names(torch_npu)


def test_an_error_without_a_code_keeps_its_words(
    torch_npu: Any, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forked() -> None:
        raise RuntimeError("Cannot re-initialize NPU in forked subprocess.\nUse spawn.")

    monkeypatch.setattr(torch_npu.npu, "synchronize", forked)
    with pytest.raises(
        RuntimeUnavailableError, match=r"synchronize\(\): Cannot re-init.*subprocess. Use spawn"
    ):
        TorchNpuRuntime(torch_npu).start(config)


@pytest.mark.parametrize("ends", [True, False])
def test_a_test_that_sets_its_own_dump_finds_none_on_and_it_is_ended_once(
    torch_npu: Any, released: TorchNpuRuntime, config: Path, *, ends: bool
) -> None:
    torch_npu.npu.utils.init_dump()
    torch_npu.npu.utils.set_dump(str(config))
    released.release()
    assert torch_npu._device.state["dump_open"]
    if ends:
        torch_npu.npu.utils.finalize_dump()
    for end in (released.stop, released.stop, released.close):
        end()
    of_dump = [name for name in names(torch_npu) if "Dump" in name]
    assert of_dump == ["aclmdlInitDump", "aclmdlSetDump", "aclmdlFinalizeDump"]
    assert torch_npu._C._npu_initDump.__name__ == "<lambda>"
    assert "switch the dump on itself" in released.activity.likely_cause


def test_test_that_switches_no_dump_on_leaves_none_to_end(torch_npu: Any, released: TorchNpuRuntime) -> None:
    released.stop()
    released.close()
    assert names(torch_npu) == []


@pytest.mark.parametrize("unseen", ["options", "TorchAir"])
def test_a_dump_that_cannot_be_seen_is_asked_for_once(
    torch_npu: Any, released: TorchNpuRuntime, monkeypatch: pytest.MonkeyPatch, unseen: str
) -> None:
    if unseen == "options":
        torch_npu.npu.init_dump()
    else:
        monkeypatch.setitem(sys.modules, "torchair.core._torchair", SimpleNamespace())
    released.stop()
    released.close()
    assert names(torch_npu).count("aclmdlFinalizeDump") == 1


def test_a_capture_behind_the_tests_own_dump_can_be_left_to_the_test_as_well(
    torch_npu: Any, released: TorchNpuRuntime, config: Path
) -> None:
    released.stop()  # what capture() does: it ends this dump, and begins one of its own
    released.start(config, resumed=True)
    released.release()
    torch_npu.npu.utils.init_dump()
    torch_npu.npu.utils.set_dump(str(config))
    released.release()
    released.stop()
    of_dump = [name for name in names(torch_npu) if "Dump" in name]
    assert of_dump == ["aclmdlInitDump", "aclmdlSetDump", "aclmdlFinalizeDump"] * 2


def test_a_program_of_its_own_process_gets_the_dump(torch_npu: Any, config: Path, tmp_path: Path) -> None:
    runtime = TorchNpuRuntime(torch_npu)
    runtime.start(config)
    runtime.hand_over("infer (with acl.json)", (tmp_path / "a.om",))
    assert not torch_npu._device.state["dump_open"]
    assert runtime.activity.programs == ("infer (with acl.json)",)
    assert runtime.activity.models == (tmp_path / "a.om",)
    assert runtime.producer() == {"runtime": "external", "soc": torch_npu.npu.get_device_name()}


def test_models_are_left_to_torch(torch_npu: Any) -> None:
    with pytest.raises(RuntimeUnavailableError, match=r"net\.om.*--npudump-runtime=acl"):
        TorchNpuRuntime(torch_npu).load_model(Path("models/net.om"))


@pytest.fixture
def _no_acl(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "acl"]:
        monkeypatch.delitem(sys.modules, name)


@pytest.mark.usefixtures("_no_acl")
def test_auto_means_torch_npu_where_the_tests_have_imported_it(
    torch_npu: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    choice = choose("auto")
    assert (choice.name, choice.why) == (
        "torch_npu",
        "--npudump-runtime=auto, the tests have imported torch_npu and a device answers",
    )
    assert isinstance(load(choice, 0), TorchNpuRuntime)
    monkeypatch.setattr(torch_npu.npu, "is_available", lambda: False)
    assert choose("auto").name != "torch_npu"


@pytest.mark.usefixtures("torch_npu")
def test_auto_leaves_tests_that_import_acl_to_acl(monkeypatch: pytest.MonkeyPatch) -> None:
    acl = SimpleNamespace(__name__="acl", rt=SimpleNamespace(get_device_count=lambda: (1, 0)))
    monkeypatch.setattr("pytest_npudump.runtime.pyacl._PROBED", set())
    monkeypatch.setitem(sys.modules, "acl", acl)
    assert choose("auto").name == "acl"


def test_auto_never_imports_torch(stand_in: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(stand_in))
    assert choose("auto").name != "torch_npu"
    assert "torch_npu" not in sys.modules


def test_a_client_that_is_not_installed_is_named(stand_in: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RuntimeUnavailableError, match="no module 'torch_npu'"):
        choose("torch_npu")
    monkeypatch.syspath_prepend(str(stand_in))
    assert choose("torch_npu").name == "torch_npu"
    assert "torch_npu" not in sys.modules


def test_a_client_that_cannot_be_imported_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "raise ImportError('libhccl.so: cannot open shared object file')"
    tmp_path.joinpath("torch_npu.py").write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(RuntimeUnavailableError, match=r"cannot be imported: libhccl\.so.*set_env\.sh"):
        load(choose("torch_npu"), 0)


def test_run_of_torch_npu_asks_the_client_for_an_npu(torch_npu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    load(choose("torch_npu"), 0)
    monkeypatch.setattr(torch_npu.npu, "is_available", lambda: False)
    with pytest.raises(
        RuntimeUnavailableError, match="--npudump-runtime=torch_npu: torch_npu is installed but finds"
    ):
        load(choose("torch_npu"), 0)


@pytest.mark.usefixtures("_no_acl")
def test_an_npu_is_where_torch_npu_that_the_tests_have_imported_finds_one(
    torch_npu: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert choose("npu").name == "torch_npu"
    assert not why_no_npu()
    monkeypatch.setattr(torch_npu.npu, "is_available", lambda: False)
    with pytest.raises(RuntimeUnavailableError, match="--npudump-runtime=npu: "):
        choose("npu")
    assert why_no_npu()
