from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_npudump.dump.reader import read_dump
from pytest_npudump.dump.records import TensorKey

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

STAMP = 1795228705000000
HEADER = (
    "Input/Output,Index,Data Size,Data Type,Format,Shape,Max Value,Min Value,Avg Value,Count,"
    "Nan Count,Negative Inf Count,Positive Inf Count"
)


@dataclass(frozen=True)
class OneFile:
    layer: str
    op_type: str
    task: int
    time: int
    place: str
    thread: str
    tensors: tuple[str, ...]

    def write(self, root: Path, value: int, *, later: int = 0) -> Path:
        stamp = STAMP + self.time + later
        folder = root / "20260101010101" / self.place
        folder.mkdir(parents=True, exist_ok=True)
        rows = [
            f"{tensor},8,DT_INT64,ND,1,{value * 10 + at},{value * 10 + at},{value * 10 + at},1,0,0,0"
            for at, tensor in enumerate(self.tensors)
        ]
        path = folder / f"{self.op_type}.{self.layer}.{self.task}.3.{stamp}{self.thread}.csv"
        path.write_text("".join(f"{line}\n" for line in (HEADER, *rows)))
        return path


dumps = st.lists(
    st.builds(
        OneFile,
        layer=st.sampled_from(["a", "b", "a_To_b", "conv_1", "x" * 90, "名"]),
        op_type=st.sampled_from(["Add", "Hcom", "Data"]),
        task=st.integers(0, 3),
        time=st.integers(0, 5),
        place=st.sampled_from(["0", "1", "0/net/1/0", "0/net/1/7", "0/net/2/0", "0/other/3/0"]),
        thread=st.sampled_from(["", "", ".4.0.1.0", ".4.0.2.0"]),
        tensors=st.sampled_from([("Input,0",), ("Output,0",), ("Input,0", "Input,1", "Output,0")]),
    ),
    min_size=1,
    max_size=14,
)


@settings(max_examples=100, deadline=None)
@given(dumps)
def test_no_row_is_lost_or_doubled_and_every_key_is_its_own(
    tmp_path_factory: pytest.TempPathFactory, files: list[OneFile]
) -> None:
    root = tmp_path_factory.mktemp("dump")
    written = {file.write(root, value): (value, file) for value, file in enumerate(files)}
    dump = read_dump(root)
    assert not dump.problems
    keys = [record.key for record in dump.records]
    assert len(set(keys)) == len(keys)
    assert [TensorKey.parse(str(key)) for key in keys] == keys
    assert Counter((record.path, record.stats.max) for record in dump.records if record.stats) == Counter(
        (path, value * 10 + at) for path, (value, file) in written.items() for at in range(len(file.tensors))
    )
    assert {record.path: record.key.layer for record in dump.records} == {
        path: file.layer for path, (_, file) in written.items()
    }


@settings(max_examples=50, deadline=None)
@given(dumps, st.integers(1, 10**9))
def test_keys_do_not_depend_on_the_clock(
    tmp_path_factory: pytest.TempPathFactory, files: list[OneFile], later: int
) -> None:
    first, second = tmp_path_factory.mktemp("first"), tmp_path_factory.mktemp("second")
    for value, file in enumerate(files):
        file.write(first, value)
        file.write(second, value, later=later)
    found = [
        {record.key: record.stats.max for record in read_dump(root).records if record.stats}
        for root in (first, second)
    ]
    assert found[0] == found[1]
