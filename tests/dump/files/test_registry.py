"""File formats that an installed package offers."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_npudump.cli import main
from pytest_npudump.dump.files import formats
from pytest_npudump.dump.reader import read_dump
from pytest_npudump.errors import DumpError, FormatError

FORMAT = """\
import struct
from pytest_npudump.dump.records import Payload, TensorKey, TensorRecord
from pytest_npudump.errors import FormatError

class Pairs:
    '''Two float32 a file, under the name of the file.'''

    def claims(self, path, start):
        return start[:4] == b"PAIR"

    def read(self, path):
        if path.stat().st_size != 12:
            raise FormatError(path, "expected 12 bytes", offset=path.stat().st_size)
        key = TensorKey(path.stem, "output", 0)
        return [TensorRecord(key, "Pair", "float32", (2,), path, payload=Payload(path, 4, 8))]

FORMAT = Pairs()
BROKEN = object()
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Install a package that offers a format."""
    site = tmp_path / "site"

    def put(value: str) -> None:
        metadata = site / "pairs-1.0.dist-info"
        metadata.mkdir(parents=True)
        (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: pairs\nVersion: 1.0\n")
        (metadata / "entry_points.txt").write_text(f"[pytest_npudump.formats]\npairs = {value}\n")
        (site / "pairs.py").write_text(FORMAT)
        monkeypatch.syspath_prepend(str(site))

    formats.offered.cache_clear()
    yield put
    formats.offered.cache_clear()
    sys.modules.pop("pairs", None)


@pytest.fixture
def dump_path(tmp_path: Path) -> Path:
    path = tmp_path / "dump"
    path.mkdir()
    (path / "conv1.pair").write_bytes(b"PAIR\x00\x00\x80\x3f\x00\x00\x00\xc0")
    return path


def test_one_file_of_an_offered_format_is_read_where_it_lies(
    install: Callable[[str], None], dump_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    install("pairs:FORMAT")
    assert main(["ls", str(dump_path / "conv1.pair")]) == 0
    assert "Pair  output.0  float32" in capsys.readouterr().out


def test_a_file_of_an_offered_format_is_part_of_the_dump(install: Any, dump_path: Path) -> None:
    install("pairs:FORMAT")
    (record,) = read_dump(dump_path).records
    assert (str(record.key), record.op_type, record.dtype, record.shape) == (
        "conv1:output.0",
        "Pair",
        "float32",
        (2,),
    )
    assert record.stats is not None
    assert (record.stats.max, record.stats.min, record.stats.avg) == (1.0, -2.0, -0.5)


def test_a_damaged_file_is_a_problem_of_the_dump(install: Callable[[str], None], dump_path: Path) -> None:
    install("pairs:FORMAT")
    (dump_path / "conv2.pair").write_bytes(b"PAIR")
    dump = read_dump(dump_path)
    (problem,) = dump.problems
    assert isinstance(problem, FormatError)
    assert str(problem) == f"{dump_path / 'conv2.pair'}, byte 4: expected 12 bytes"
    assert [str(record.key) for record in dump.records] == ["conv1:output.0"]


def test_an_offered_format_takes_no_file_of_ours(install: Callable[[str], None], dump_path: Path) -> None:
    install("pairs:FORMAT")
    (dump_path / "conv1.pair").unlink()
    (dump_path / "Conv2D.conv1.1.2.1795228774931542").write_bytes(b"PAIR\x00\x00\x80\x3f\x00\x00\x00\xc0")
    dump = read_dump(dump_path)
    assert not dump.records
    assert len(dump.problems) == 1


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (
            "absent:FORMAT",
            "entry point pairs of pytest_npudump.formats: cannot be imported: ModuleNotFoundError: No module",
        ),
        (
            "pairs:ABSENT",
            "entry point pairs of pytest_npudump.formats: cannot be imported: AttributeError: module 'pairs'",
        ),
        ("pairs:BROKEN", "entry point pairs .*: expected an object with claims and read"),
    ],
)
def test_an_offer_that_cannot_be_taken_up_is_an_error(
    install: Callable[[str], None], dump_path: Path, value: str, message: str
) -> None:
    install(value)
    with pytest.raises(DumpError, match=message):
        read_dump(dump_path)
