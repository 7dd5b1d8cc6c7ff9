from __future__ import annotations

import ctypes
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from pytest_npudump.emulator.process import callback

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

KEYS = {"file_name", "data_buf", "buf_len", "is_last_chunk", "offset", "flag"}
X = np.array([[1, -2, 3], [0.5, 0, -1]], np.float32)


class Files:
    """Puts chunks together, as an application would."""

    def __init__(self, acl: Any) -> None:
        self.acl = acl
        self.content: dict[str, bytes] = {}
        self.chunks: list[dict[str, Any]] = []

    def __call__(self, chunk: dict[str, Any]) -> int:
        assert chunk.keys() == KEYS
        data = self.acl.util.ptr_to_bytes(chunk["data_buf"], chunk["buf_len"])
        assert data == ctypes.string_at(chunk["data_buf"], chunk["buf_len"])
        self.content[chunk["file_name"]] = self.content.get(chunk["file_name"], b"") + data
        self.chunks.append(chunk)
        return 0


@pytest.fixture
def run(started: Any, small_model: Path, run_model: Callable[..., Any]) -> Callable[[], None]:
    """Loads the model, runs it and unloads it."""

    def once() -> None:
        model, code = started.mdl.load_from_file(str(small_model))
        assert code == 0
        run_model(model, X)
        assert started.mdl.unload(model) == 0

    return once


def _written(root: Path) -> list[Path]:
    return [path for path in root.rglob("*") if path.is_file()]


def test_the_function_gets_what_files_would_have_held(
    started: Any, set_dump: Any, run: Callable[[], None]
) -> None:
    root = set_dump(dump_mode="all")
    run()
    on_disk = {path.name.rpartition(".")[0]: path.read_bytes() for path in _written(root)}
    assert started.mdl.finalize_dump() == 0
    files = Files(started)
    assert started.mdl.dump_reg_callback(files, 0) == 0
    set_dump(dump_mode="all")
    run()
    handed = {name.rpartition("/")[2].rpartition(".")[0]: data for name, data in files.content.items()}
    assert handed.keys() == on_disk.keys()
    assert {name: len(data) for name, data in handed.items()} == {
        name: len(data) for name, data in on_disk.items()
    }
    assert all(handed[name][-24:] == on_disk[name][-24:] for name in on_disk)
    assert len(_written(root)) == len(on_disk)
    assert all(name.startswith(f"{root}/") and "//small/" in name for name in files.content)


def test_the_members_of_a_chunk_are_those_of_pyacl(
    started: Any, set_dump: Any, run: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(callback, "SLICE_BYTES", 100)
    files = Files(started)
    assert started.mdl.dump_reg_callback(files, 0) == 0
    set_dump(dump_mode="all")
    run()
    assert {chunk["offset"] for chunk in files.chunks} == {(1 << 64) - 1}
    assert {chunk["flag"] for chunk in files.chunks} == {0}
    by_name: dict[str, list[dict[str, Any]]] = {}
    for chunk in files.chunks:
        by_name.setdefault(chunk["file_name"], []).append(chunk)
    assert all(
        [c["is_last_chunk"] for c in parts] == [0] * (len(parts) - 1) + [1] for parts in by_name.values()
    )
    for name, parts in by_name.items():
        header = int.from_bytes(files.content[name][:8], "little") + 8
        room = max(header, 100)
        assert [c["buf_len"] for c in parts[:-1]] == [room] * (len(parts) - 1)
        assert 0 < parts[-1]["buf_len"] <= room


def test_the_address_is_void_behind_the_call(started: Any, set_dump: Any, run: Callable[[], None]) -> None:
    files = Files(started)
    started.mdl.dump_reg_callback(files, 0)
    set_dump()
    run()
    chunk = files.chunks[-1]
    with pytest.raises(ValueError, match="ptr_to_bytes"):
        started.util.ptr_to_bytes(chunk["data_buf"], chunk["buf_len"])


def test_statistics_come_as_text(started: Any, set_dump: Any, run: Callable[[], None]) -> None:
    files = Files(started)
    started.mdl.dump_reg_callback(files, 0)
    root = set_dump(dump_data="stats")
    run()
    assert all(name.endswith(".csv") for name in files.content)
    assert all(data.startswith(b"Input/Output,Index") for data in files.content.values())
    assert not _written(root)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [((None, 0), 500001), ((print, 1), 500001), ((print, -1), 500001), ((None, 7), 500001), ((print, 0), 0)],
)
def test_codes_need_no_initialisation(acl: Any, arguments: tuple[Any, int], code: int) -> None:
    assert acl.mdl.dump_reg_callback(*arguments) == code
    message = acl.get_recent_err_msg()
    assert (message is None) == (code == 0)


@pytest.mark.parametrize(
    "arguments", [(), (print,), (print, 0, 0), (print, "0"), (print, None), (print, 1 << 31)]
)
def test_a_wrong_list_of_arguments_is_a_type_error(acl: Any, arguments: tuple[Any, ...]) -> None:
    with pytest.raises(TypeError, match=r"acl\.mdl\.dump_reg_callback args parse failed"):
        acl.mdl.dump_reg_callback(*arguments)


def test_the_last_function_counts_until_it_is_unregistered(
    started: Any, set_dump: Any, run: Callable[[], None]
) -> None:
    first, second = Files(started), Files(started)
    started.mdl.dump_reg_callback(first, 0)
    started.mdl.dump_reg_callback(second, 0)
    assert started.mdl.dump_reg_callback(None, 0) == 500001
    root = set_dump()
    run()
    assert not first.content
    assert second.content
    assert started.mdl.dump_unreg_callback() is None
    assert started.mdl.dump_unreg_callback() is None
    run()
    assert _written(root)


def test_a_registration_outlives_the_dump_and_acl_itself(
    acl: Any, set_dump: Any, run: Callable[[], None]
) -> None:
    files = Files(acl)
    acl.mdl.dump_reg_callback(files, 0)
    set_dump()
    assert acl.mdl.finalize_dump() == 0
    assert acl.finalize() == 0
    assert acl.init() == 0
    root = set_dump()
    run()
    assert files.content
    assert not _written(root)


def test_what_the_function_raises_is_lost_as_with_pyacl(
    started: Any, set_dump: Any, run: Callable[[], None]
) -> None:
    def failing(_: dict[str, Any]) -> None:
        raise ValueError("no room")

    started.mdl.dump_reg_callback(failing, 0)
    root = set_dump()
    run()
    assert not _written(root)


def test_a_registration_by_another_thread_counts(
    started: Any, set_dump: Any, run: Callable[[], None]
) -> None:
    files = Files(started)
    thread = threading.Thread(target=started.mdl.dump_reg_callback, args=(files, 0))
    thread.start()
    thread.join()
    set_dump()
    run()
    assert files.content
