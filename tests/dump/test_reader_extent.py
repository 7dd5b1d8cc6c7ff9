"""Which bytes of a tensor count where its size is larger than its shape."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pytest_npudump.dump.files.container import dump_data_class
from pytest_npudump.dump.reader import read_dump

if TYPE_CHECKING:
    from pathlib import Path


def write_aligned_tensor(root: Path) -> np.ndarray:
    """Three floats 1, 2, 3 in 32 bytes whose tail is -7; returns all eight floats."""
    values = np.array([1, 2, 3, -7, -7, -7, -7, -7], np.float32)
    data = dump_data_class()(version="2.0", dump_time=1795230008343113, op_name="a/b")
    output = data.output.add(data_type=1, format=2, size=values.nbytes, address=4096)
    output.shape.dim.append(3)
    output.original_shape.dim.append(3)
    header = data.SerializeToString()
    directory = root / "20261120080910" / "0" / "m" / "1" / "0"
    directory.mkdir(parents=True)
    path = directory / "Add.a_b.1.3.1795230008343113"
    path.write_bytes(len(header).to_bytes(8, "little") + header + values.tobytes())
    return values


def test_statistics_are_of_the_shape_s_elements(tmp_path: Path) -> None:
    write_aligned_tensor(tmp_path)
    (record,) = read_dump(tmp_path).records
    assert record.stats is not None
    assert (record.stats.count, record.stats.max, record.stats.min, record.stats.avg) == (3, 3.0, 1.0, 2.0)


def test_cann_s_own_statistics_are_of_every_byte_of_the_size(tmp_path: Path) -> None:
    values = write_aligned_tensor(tmp_path)
    (record,) = read_dump(tmp_path, acl=True).records
    assert record.stats is not None
    assert (record.stats.count, record.stats.max, record.stats.min) == (8, 3.0, -7.0)
    assert record.stats.avg == float(values.mean(dtype=np.float64))
