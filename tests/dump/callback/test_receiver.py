from __future__ import annotations

import ctypes
import itertools
import math
import re
import struct
import threading
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_npudump.dump.callback import container_stream as streaming_record
from pytest_npudump.dump.callback.receiver import DumpReceiver
from pytest_npudump.dump.files.container.proto import dump_data_class
from pytest_npudump.dump.reader import read_dump
from pytest_npudump.dump.tree.find import find_files
from pytest_npudump.dump.values.dtypes import ALL
from pytest_npudump.errors import DumpError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_npudump.dump.records import Dump

DATA = Path(__file__).parents[2] / "data"
CONTAINERS = sorted(
    path
    for folder in ("dump/dtypes", "dump/containers", "dump/formats", "trees")
    for path in (DATA / folder).rglob("*")
    if path.is_file()
    and not {"acl-exception", "acl-long-name", "acl-overflow"} & set(path.parts)
    and path.read_bytes()[8:10] == b"\x0a\x03"
)
PLACE = "20260101010101/0//net/1/0"
NAME = "Conv2D.conv_1.2.3.1795228705872229"
APPEND = (1 << 64) - 1


def _chunk(name: Path | str, data: bytes, *, last: bool, offset: int = APPEND) -> dict[str, Any]:
    return {
        "file_name": str(name),
        "data_buf": data,
        "buf_len": len(data),
        "is_last_chunk": int(last),
        "offset": offset,
        "flag": 0,
    }


def _send(receiver: DumpReceiver, path: Path | str, data: bytes, cuts: Sequence[int] = ()) -> None:
    edges = [0, *sorted(cuts), len(data)]
    for begin, end in itertools.pairwise(edges):
        receiver(_chunk(path, data[begin:end], last=end == len(data) and begin == edges[-2]))


def _same(streamed: Dump, read: Dump) -> None:
    """Every field of every record, NaN included; only the bytes are not at hand any more."""
    expected = [repr(replace(record, payload=None)) for record in read.records]
    assert [repr(record) for record in streamed.records] == expected
    assert [str(problem) for problem in streamed.problems] == [str(problem) for problem in read.problems]
    assert (streamed.notes, streamed.raw_names) == (read.notes, read.raw_names)


def _both(
    root: Path, files: dict[str, bytes], cuts: Sequence[int], *, acl: bool = False
) -> tuple[Dump, Dump]:
    receiver = DumpReceiver(root)
    for name, data in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        _send(receiver, f"{root}/{name}", data, [cut for cut in cuts if cut < len(data)])
    return receiver.dump(acl=acl), read_dump(root, acl=acl, projections=not acl)


@pytest.mark.each("path", CONTAINERS, ids=lambda path: "/".join(path.parts[-3:])[-60:])
def test_every_real_container_gives_what_its_file_gives(tmp_path: Path, path: Path) -> None:
    data = path.read_bytes()
    for number, (count, acl) in enumerate(itertools.product((0, 1, 7, 200), (False, True))):
        cuts = np.random.default_rng(number).integers(0, len(data), count).tolist()
        streamed, read = _both(tmp_path / f"{number}", {f"{PLACE}/{NAME}": data}, cuts, acl=acl)
        assert read.records
        _same(streamed, read)


def test_bytes_that_come_one_by_one(tmp_path: Path) -> None:
    data = (DATA / "dump" / "containers" / "mixed-op").read_bytes()
    _same(*_both(tmp_path, {f"{PLACE}/{NAME}": data}, range(len(data))))


@pytest.mark.each("tree", ["acl-tensor", "acl-ffts", "acl-mixed-op", "acl-overflow"])
def test_a_whole_tree_gets_the_same_keys(tree: str) -> None:
    root = DATA / "trees" / tree
    receiver = DumpReceiver(root)
    found = find_files(root)
    for path in [*(file.path for file in found.files), *(file.path for file in found.overflow)]:
        _send(receiver, path, path.read_bytes(), [5, 100])
    (read,), streamed = [read_dump(root, projections=True)], receiver.dump()
    others = [note for note in read.notes if "that are no dump files" in note]
    _same(streamed, replace(read, notes=tuple(note for note in read.notes if note not in others)))


SIZED = [dtype for dtype in ALL if dtype.bits]
PAYLOAD = np.random.default_rng(0).integers(0, 256, 1 << 16, np.uint8).tobytes()


@st.composite
def tensors(draw: st.DrawFn) -> tuple[dict[str, Any], int]:
    """A tensor as a header describes it, and how many bytes of it the writer writes."""
    dtype = draw(st.sampled_from(SIZED))
    dims = draw(st.lists(st.integers(0, 9), max_size=3))
    needed = (math.prod(dims) * dtype.bits + 7) // 8
    size = max(0, needed + draw(st.sampled_from([0, 0, 0, 1, 13, 32, -1])))
    address = draw(st.sampled_from([1, 1, 1, 0]))
    field = {
        "data_type": dtype.proto,
        "format": draw(st.sampled_from([0, 2, 3, 29])),
        "shape": {"dim": dims},
        "original_shape": {"dim": dims},
        "size": size,
        "address": address,
    }
    return field, size if address else 0


@st.composite
def records(draw: st.DrawFn) -> bytes:
    inputs, outputs = draw(st.lists(tensors(), max_size=2)), draw(st.lists(tensors(), max_size=3))
    header = dump_data_class()(
        version="2.0",
        op_name=draw(st.sampled_from(["a/b", "conv.1", ""])),
        dump_time=draw(st.integers(0, 9)),
        input=[field for field, _ in inputs],
        output=[field for field, _ in outputs],
    ).SerializeToString()
    written = sum(size for _, size in [*inputs, *outputs])
    start = draw(st.integers(0, 1000))
    zeros = draw(st.booleans())
    payload = bytes(written) if zeros else PAYLOAD[start : start + written]
    return struct.pack("<Q", len(header)) + header + payload


@settings(max_examples=300, deadline=None)
@given(
    st.lists(records(), min_size=1, max_size=3),
    st.lists(st.integers(0, 600), max_size=12),
    st.sampled_from([0, 0, 0, 1, 5, -3]),
    st.sampled_from([{}, {"acl": True}]),
)
def test_any_records_in_any_chunks_whole_or_damaged(
    tmp_path_factory: pytest.TempPathFactory,
    parts: list[bytes],
    cuts: list[int],
    excess: int,
    way: dict[str, bool],
) -> None:
    data = b"".join(parts)
    data = data[:excess] if excess < 0 else data + bytes(excess)
    _same(*_both(tmp_path_factory.mktemp("dump"), {f"{PLACE}/{NAME}": data}, cuts, **way))


def _container(array: np.ndarray, proto: int, *, padding: int = 0) -> bytes:
    size = array.nbytes + padding
    field = {"data_type": proto, "format": 2, "shape": {"dim": array.shape}, "size": size, "address": 1}
    header = dump_data_class()(version="2.0", op_name="big", output=[field]).SerializeToString()
    return struct.pack("<Q", len(header)) + header + array.tobytes() + bytes(padding)


LARGE = [
    (np.float32, 1),
    (np.float16, 2),
    (np.float64, 12),
    (np.int8, 3),
    (np.int64, 8),
    (np.complex64, 16),
    (np.complex128, 17),
    (np.bool_, 11),
]


@pytest.mark.each(("dtype", "proto"), LARGE, ids=lambda value: getattr(value, "__name__", ""))
@pytest.mark.each("padding", [0, 512])
def test_tensors_of_several_pieces_are_summed_as_those_of_files(
    tmp_path: Path, dtype: Any, proto: int, padding: int
) -> None:
    values = (np.random.default_rng(1).standard_normal(900_001) * 20).astype(dtype)
    data = _container(values, proto, padding=padding)
    cuts = np.random.default_rng(3).integers(0, len(data), 9).tolist()
    for acl in (False, True):
        streamed, read = _both(tmp_path / f"{acl}", {f"{PLACE}/{NAME}": data}, cuts, acl=acl)
        _same(streamed, read)


def test_magnitudes_that_cannot_be_squared_are_summed_in_one_pass(tmp_path: Path) -> None:
    values = np.linspace(-1, 1, 600_000)
    values[:300_000] *= 1e-200
    values[300_000:] *= 1e250
    data = _container(values, 12)
    streamed, read = _both(tmp_path, {f"{PLACE}/{NAME}": data}, [1_000_001, 3_000_000])
    _same(streamed, read)
    stats = streamed.records[0].stats
    assert stats is not None
    assert stats.l2norm == pytest.approx(np.linalg.norm(values / 1e250) * 1e250, rel=1e-9)


def test_memory_does_not_grow_with_the_tensor(tmp_path: Path) -> None:
    size = 64 << 20
    field = {"data_type": 1, "format": 2, "shape": {"dim": [size // 4]}, "size": size, "address": 1}
    header = dump_data_class()(version="2.0", op_name="big", output=[field]).SerializeToString()
    receiver = DumpReceiver(tmp_path)
    path = f"{tmp_path}/{PLACE}/{NAME}"
    piece = np.linspace(-1, 1, (1 << 20) // 4, dtype=np.float32).tobytes()
    receiver(_chunk(path, struct.pack("<Q", len(header)) + header, last=False))
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    tracemalloc.reset_peak()
    for number in range(64):
        receiver(_chunk(path, piece, last=number == 63))
    after, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    (record,) = receiver.dump().records
    assert record.stats is not None
    assert record.stats.count == size // 4
    assert peak - before < 6 << 20
    assert after - before < 1 << 17


def test_a_pointer_is_read_during_the_call_only(tmp_path: Path) -> None:
    data = bytearray((DATA / "dump" / "containers" / "mixed-op").read_bytes())
    memory = (ctypes.c_uint8 * len(data)).from_buffer(data)
    receiver = DumpReceiver(tmp_path)
    path = tmp_path / PLACE / NAME
    half = len(data) // 2
    for begin, end, last in ((0, half, 0), (half, len(data), 1)):
        chunk = _chunk(path, b"", last=bool(last)) | {"buf_len": end - begin}
        assert receiver({**chunk, "data_buf": ctypes.addressof(memory) + begin}) == 0
    content = bytes(data)
    data[:] = bytes(len(data))
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    _same(receiver.dump(), read_dump(tmp_path, projections=True))


def _two(tmp_path: Path) -> tuple[dict[str, bytes], DumpReceiver]:
    names = [f"{PLACE}/{kind}.x.{task}.3.179522870587222{task}" for task, kind in enumerate(("Add", "Mul"))]
    paths = [DATA / "dump" / "containers" / "mixed-op", DATA / "dump" / "dtypes" / "1_FLOAT"]
    return dict(zip(names, [path.read_bytes() for path in paths], strict=True)), DumpReceiver(tmp_path)


def test_two_files_may_come_in_turns_and_from_several_threads(tmp_path: Path) -> None:
    files, receiver = _two(tmp_path)
    barrier = threading.Barrier(2)

    def send(name: str, data: bytes) -> None:
        barrier.wait()
        for at in range(len(data)):
            receiver(_chunk(tmp_path / name, data[at : at + 1], last=at == len(data) - 1, offset=at))

    threads = [threading.Thread(target=send, args=item) for item in files.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name, data in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(data)
    _same(receiver.dump(), read_dump(tmp_path, projections=True))


def test_a_record_that_is_appended_later_is_one_of_the_file(tmp_path: Path) -> None:
    data = (DATA / "dump" / "dtypes" / "1_FLOAT").read_bytes()
    receiver = DumpReceiver(tmp_path)
    path = tmp_path / PLACE / NAME
    for _ in range(2):
        _send(receiver, path, data, [9])
    path.parent.mkdir(parents=True)
    path.write_bytes(data + data)
    _same(receiver.dump(), read_dump(tmp_path, projections=True))
    receiver(_chunk(path, data[:20], last=False))
    (problem,) = receiver.dump().problems
    assert "the last chunk never came" in str(problem)


@pytest.mark.each(
    ("spoil", "message"),
    [
        (lambda chunks: chunks.pop(), "the last chunk never came, 40 bytes have"),
        (lambda chunks: chunks.pop(1), "the header is no DumpData message"),
        (lambda chunks: chunks.insert(1, chunks[1]), "the header is no DumpData message"),
        (
            lambda chunks: chunks.insert(2, {**chunks[2], "is_last_chunk": 0}),
            "behind the last tensor are not",
        ),
        (lambda chunks: chunks[2].update(buf_len=chunks[2]["buf_len"] - 1), "needs .* it is truncated"),
        (
            lambda chunks: chunks[1].update(offset=30),
            "came for byte 30, where byte 20 was next: the bytes before",
        ),
        (
            lambda chunks: chunks[1].update(offset=3),
            "came for byte 3, where byte 20 was next: it came before",
        ),
        (lambda chunks: chunks[1].update(data_buf=0), "a chunk of 20 bytes came without an address"),
        (lambda chunks: chunks[1].update(data_buf=b"x"), "a chunk of 20 bytes came with 1 bytes only"),
        (lambda chunks: chunks[1].update(data_buf=None), "a chunk was lost: TypeError"),
        (lambda chunks: chunks[1].pop("offset"), "a chunk was lost: KeyError: 'offset'"),
        (lambda chunks: chunks[1].pop("file_name"), r"a chunk could not be taken: KeyError: 'file_name'"),
        (
            lambda chunks: chunks[1].update(file_name="/elsewhere/x"),
            "it belongs to another dump of the process",
        ),
    ],
)
def test_what_goes_wrong_is_a_problem_and_never_an_exception(
    tmp_path: Path, spoil: Any, message: str
) -> None:
    data = (DATA / "dump" / "dtypes" / "1_FLOAT").read_bytes()
    edges = [0, 20, 40, len(data)]
    chunks = [
        _chunk(tmp_path / PLACE / NAME, data[begin:end], last=end == len(data))
        for begin, end in itertools.pairwise(edges)
    ]
    spoil(chunks)
    receiver = DumpReceiver(tmp_path)
    for chunk in chunks:
        receiver(chunk)
    dump = receiver.dump()
    assert dump.problems
    assert re.search(message, str(dump.problems[0]))
    assert not dump.records or len(dump.problems) > 1


def test_what_is_no_chunk_at_all_is_a_problem(tmp_path: Path) -> None:
    receiver = DumpReceiver(tmp_path)
    nothing: Any = None
    receiver(nothing)
    (problem,) = receiver.dump().problems
    assert "a chunk could not be taken: TypeError" in str(problem)


def test_an_interrupt_goes_on_and_leaves_a_problem(tmp_path: Path) -> None:
    class Interrupting(dict[str, Any]):
        def __getitem__(self, key: str) -> Any:
            if key == "data_buf":
                raise KeyboardInterrupt
            return super().__getitem__(key)

    receiver = DumpReceiver(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        receiver(Interrupting(_chunk(tmp_path / PLACE / NAME, b"abc", last=True)))
    (problem,) = receiver.dump().problems
    assert "a chunk was lost: KeyboardInterrupt" in str(problem)


def test_nothing_is_a_dump_error_and_text_a_problem(tmp_path: Path) -> None:
    receiver = DumpReceiver(tmp_path)
    assert receiver.empty
    with pytest.raises(DumpError, match="holds no dump file: nothing was handed over"):
        receiver.dump()
    receiver(_chunk(tmp_path / PLACE / f"{NAME}.csv", b"Input/Output,Index\n", last=True))
    (problem,) = receiver.dump().problems
    assert "holds no tensors" in str(problem)
    assert not receiver.empty


def test_a_header_too_long_for_memory_is_refused_before_it_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streaming_record, "HEADER_LIMIT", 100)
    receiver = DumpReceiver(tmp_path)
    receiver(_chunk(tmp_path / PLACE / NAME, struct.pack("<Q", 101) + bytes(101), last=True))
    (problem,) = receiver.dump().problems
    assert "a header of 101 bytes; a stream may have one of 100" in str(problem)


def test_settling_waits_for_files_that_are_open(tmp_path: Path) -> None:
    data = (DATA / "dump" / "dtypes" / "1_FLOAT").read_bytes()
    receiver = DumpReceiver(tmp_path)
    begun = threading.Event()

    def send() -> None:
        for at in range(len(data)):
            receiver(_chunk(tmp_path / PLACE / NAME, data[at : at + 1], last=at == len(data) - 1))
            begun.set()

    thread = threading.Thread(target=send)
    thread.start()
    begun.wait()
    receiver.settle(quiet=0.0, patience=60.0)
    assert len(receiver.dump().records) == 1
    thread.join()


def test_a_dump_path_behind_a_symbolic_link_is_known_by_both_names(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    receiver = DumpReceiver(tmp_path / "link")
    data = (DATA / "dump" / "dtypes" / "1_FLOAT").read_bytes()
    for name in ("link", "real"):
        _send(receiver, tmp_path / name / PLACE / f"Add.{name}.1.2.1795228705872229", data)
    dump = receiver.dump()
    assert not dump.problems
    assert {record.path.parts[: len(tmp_path.parts) + 1] for record in dump.records} == {
        (tmp_path / "link").parts
    }


def test_what_two_runs_hand_over_is_refused_as_from_files(tmp_path: Path) -> None:
    receiver = DumpReceiver(tmp_path)
    data = (DATA / "dump" / "dtypes" / "1_FLOAT").read_bytes()
    for second in ("01", "02"):
        _send(receiver, tmp_path / f"202601010101{second}" / "0" / NAME, data)
    with pytest.raises(DumpError, match="two runs in one dump"):
        receiver.dump()
