"""``transport="callback"`` through pyACL, call by call, with a device that is behind the host."""

from __future__ import annotations

import queue
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_npudump.dump.callback.receiver import DumpReceiver
from pytest_npudump.errors import RequestError, RuntimeUnavailableError
from pytest_npudump.regression.attempt import Attempt
from pytest_npudump.request import DumpRequest
from pytest_npudump.runtime.acl.return_codes import AclError
from pytest_npudump.runtime.base import CallbackRuntime
from pytest_npudump.runtime.pyacl import callback as receiving
from pytest_npudump.runtime.pyacl.adapter import PyAclRuntime
from pytest_npudump.runtime.torch_npu.adapter import TorchNpuRuntime

if TYPE_CHECKING:
    from collections.abc import Iterator

CONTAINER = Path(__file__).parents[2] / "data" / "dump" / "dtypes" / "1_FLOAT"
NAMES = {
    "init",
    "mdl.init_dump",
    "mdl.dump_reg_callback",
    "mdl.set_dump",
    "rt.synchronize_device",
    "mdl.dump_unreg_callback",
    "mdl.finalize_dump",
}
APPEND = (1 << 64) - 1


class Queueing:
    """``acl`` of a device whose chunks are handed over by a thread, as CANN does it."""

    def __init__(self, device: Any) -> None:
        self.device = device
        self.acl = device.module()
        self.function: Any = None
        self.pending: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self.acl.mdl.dump_reg_callback = device.recorded("mdl.dump_reg_callback", self.register)
        self.acl.mdl.dump_unreg_callback = device.recorded("mdl.dump_unreg_callback", self.unregister)
        self.acl.rt.synchronize_device = device.recorded("rt.synchronize_device", lambda: 0)
        self.begun = threading.Event()
        self.thread = threading.Thread(target=self.hand_over, daemon=True)
        self.thread.start()

    def register(self, function: Any, flag: int) -> int:
        assert flag == 0
        self.function = function
        return 0

    def unregister(self) -> None:
        self.function = None

    def hand_over(self) -> None:
        while (chunk := self.pending.get()) is not None:
            function = self.function
            if function is not None:
                function(chunk)
            self.begun.set()

    def dump(self, path: Path) -> None:
        """Queue one file, byte by byte: only the last one completes it."""
        data = CONTAINER.read_bytes()
        for at in range(len(data)):
            last = at == len(data) - 1
            chunk = {"file_name": str(path), "data_buf": data[at : at + 1], "buf_len": 1, "flag": 0}
            self.pending.put({**chunk, "is_last_chunk": int(last), "offset": APPEND})

    def calls(self) -> list[str]:
        return [name for name in self.device.names() if name in NAMES]


@pytest.fixture
def queueing(device: Any) -> Iterator[Queueing]:
    found = Queueing(device)
    yield found
    found.pending.put(None)
    found.thread.join()


def test_the_function_is_registered_before_the_dump_is_set(
    queueing: Queueing, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receiving, "QUIET_SECONDS", 0.0)
    runtime = PyAclRuntime(queueing.acl, "acl")
    receiver = DumpReceiver(config.parent / "dump")
    runtime.receive_by(receiver)
    runtime.start(config)
    queueing.acl.init()
    assert queueing.function is receiver
    runtime.stop()
    assert queueing.function is None
    assert queueing.calls() == [
        "mdl.init_dump",
        "init",
        "mdl.init_dump",
        "mdl.dump_reg_callback",
        "mdl.set_dump",
        "rt.synchronize_device",
        "mdl.dump_unreg_callback",
        "mdl.finalize_dump",
    ]


def test_what_is_still_queued_is_waited_for(queueing: Queueing, config: Path) -> None:
    runtime = PyAclRuntime(queueing.acl, "acl")
    receiver = DumpReceiver(config.parent / "dump")
    runtime.receive_by(receiver)
    runtime.start(config)
    queueing.acl.init()
    queueing.dump(config.parent / "dump" / "20260101010101" / "0" / "Add.x.1.2.1795228705872229")
    queueing.begun.wait()
    runtime.stop()
    dump = receiver.dump()
    assert not dump.problems
    assert [str(record.key) for record in dump.records] == ["n:input.0"]


def test_a_second_dump_goes_to_files_unless_asked_for_again(
    queueing: Queueing, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receiving, "QUIET_SECONDS", 0.0)
    runtime = PyAclRuntime(queueing.acl, "acl")
    runtime.receive_by(DumpReceiver(config.parent / "dump"))
    runtime.start(config)
    queueing.acl.init()
    runtime.stop()
    runtime.start(config)
    assert queueing.function is None
    runtime.stop()
    assert queueing.calls().count("mdl.dump_reg_callback") == 1


@pytest.mark.parametrize("call", ["mdl.dump_reg_callback", "mdl.set_dump"])
def test_a_refusal_leaves_no_function_behind(queueing: Queueing, config: Path, call: str) -> None:
    queueing.device.answers[call] = 500001
    queueing.device.references = 1
    runtime = PyAclRuntime(queueing.acl, "acl")
    runtime.receive_by(DumpReceiver(config.parent / "dump"))
    with pytest.raises(AclError, match=rf"acl\.{call}\(.*\) returned 500001"):
        runtime.start(config)
    assert queueing.function is None
    assert not queueing.device.dump_open


def test_an_error_of_the_device_ends_the_dump_all_the_same(queueing: Queueing, config: Path) -> None:
    queueing.device.answers["rt.synchronize_device"] = 507011
    queueing.device.references = 1
    runtime = PyAclRuntime(queueing.acl, "acl")
    runtime.receive_by(DumpReceiver(config.parent / "dump"))
    runtime.start(config)
    with pytest.raises(AclError, match=r"acl\.rt\.synchronize_device\(\) returned 507011"):
        runtime.stop()
    assert queueing.function is None
    assert not queueing.device.dump_open


def test_a_thread_without_a_context_has_nothing_to_wait_for(
    queueing: Queueing, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receiving, "QUIET_SECONDS", 0.0)
    queueing.device.answers["rt.synchronize_device"] = 107002
    queueing.device.references = 1
    runtime = PyAclRuntime(queueing.acl, "acl")
    runtime.receive_by(DumpReceiver(config.parent / "dump"))
    runtime.start(config)
    runtime.stop()
    assert not queueing.device.dump_open


def test_the_dump_is_not_left_to_others(queueing: Queueing, config: Path) -> None:
    runtime = PyAclRuntime(queueing.acl, "acl")
    runtime.receive_by(DumpReceiver(config.parent / "dump"))
    runtime.start(config)
    with pytest.raises(RequestError, match="transport='callback': the dump is handed to this process"):
        runtime.release()
    with pytest.raises(RequestError, match="takes transport='files'"):
        runtime.hand_over("./main")
    assert not runtime.activity.programs
    runtime.stop()


def test_an_older_pyacl_is_refused(device: Any) -> None:
    runtime = PyAclRuntime(device.module(), "acl")
    with pytest.raises(RuntimeUnavailableError, match=r"no acl\.mdl\.dump_reg_callback"):
        runtime.receive_by(DumpReceiver(Path("dump")))


def test_a_runtime_without_callback_is_refused_before_anything_is_switched_on(tmp_path: Path) -> None:
    runtime: Any = TorchNpuRuntime(None)
    assert not isinstance(runtime, CallbackRuntime)
    attempt = Attempt(1, tmp_path / "run1", DumpRequest(transport="callback"))
    with pytest.raises(RuntimeUnavailableError, match=r"the runtime torch_npu hands no dump to this process"):
        attempt.start(runtime)


def test_the_second_run_is_after_files(tmp_path: Path) -> None:
    request = DumpRequest(transport="callback")
    assert Attempt(1, tmp_path, request).streams
    assert not Attempt(2, tmp_path, request, "tensor").streams
