from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest

from pytest_npudump.cli import main
from pytest_npudump.dump.dtypes import BY_NAME, FORMATS
from pytest_npudump.dump.files.container import dump_data_class
from pytest_npudump.record.record import OP_TYPES, Record
from pytest_npudump.record.text import render
from pytest_npudump.request import DumpRequest
from pytest_npudump.results.folder import ResultsFolder, record_name
from pytest_npudump.results.serialisation import blank_line
from pytest_npudump.settings import default_settings
from tests.conftest import table_of_layers

STAMP = 1795228705872229
_NUMBERS = {name: number for number, name in FORMATS.items()}
_NAMES = {np.dtype(ml_dtypes.bfloat16): "bfloat16"}


class Done(NamedTuple):
    """What a command did."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    """Run ``npudump`` in this process."""

    def call(*words: object) -> Done:
        code = main([str(word) for word in words])
        return Done(code, *capsys.readouterr())

    return call


def dump_file(
    root: Path, layer: str, *arrays: np.ndarray, number: int = 1, layout: str = "ND", **options: Any
) -> Path:
    """Write a dump file by the format's own definition."""
    message = dump_data_class()(version="2.0", dump_time=STAMP + number, op_name=layer)
    for array in arrays:
        name = options.get("dtype") or _NAMES.get(array.dtype, array.dtype.name)
        tensor = message.output.add()
        tensor.data_type, tensor.format = BY_NAME[name].proto, _NUMBERS[layout]
        tensor.size = options.get("size", array.nbytes)
        tensor.address = options.get("address", 4096)
        tensor.shape.dim.extend(options.get("shape", array.shape))
        tensor.original_shape.dim.extend(options.get("original", ()))
    header = message.SerializeToString()
    path = root / f"Type.{layer.replace('/', '_')}.{number}.3.{STAMP + number}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(struct.pack("<Q", len(header)) + header + b"".join(a.tobytes() for a in arrays))
    return path


def long_file(root: Path, layer: str, nbytes: int, dtype: str) -> Path:
    """Write a dump file whose one tensor of bytes, all zero, takes no room on the disk."""
    path = dump_file(root, layer, np.zeros(0, np.uint8), dtype=dtype, shape=(nbytes,), size=nbytes)
    os.truncate(path, path.stat().st_size + nbytes)
    return path


@pytest.fixture
def kept(tmp_path: Path) -> Callable[..., Path]:
    """Keep a run of one test in a folder: ``kept(folder, {layer: maximum}, producer, **line)``."""

    def keep(
        folder: str,
        values: dict[str, float],
        producer: dict[str, str] | None = None,
        *,
        test: str = "test_x",
        dtype: str = "float32",
        op_types: bool = False,
        **changes: Any,
    ) -> Path:
        statistics = table_of_layers(values, dtype)
        told = {"runtime": "acl", "scene": "model", "dump_mode": "output"} | (producer or {})
        nodeid, file = f"test_a.py::{test}", f"test_a/{test}.yaml"
        types = "".join("Conv\n" if "conv" in key else "Relu\n" for key in statistics.keys)
        blocks = {OP_TYPES: types} if op_types else {}
        record = render(Record(nodeid, told, statistics, tmp_path / file, blocks=blocks)).encode()
        name = record_name(file, record)
        line = blank_line(nodeid, DumpRequest(), default_settings(), file, None) | {
            "session": "s",
            "status": "passed",
            "outcome": "passed",
            "incomplete": None,
            "runtime": "acl",
            "producer": told,
            "record": {"file": name, "sha256": sha256(record).hexdigest()},
            "snapshot": {"problems": [], "notes": [], "has_tensors": False},
            "details": None,
            "revision": None,
            "test_file": {"path": "test_a.py", "sha256": None},
        }
        ResultsFolder(tmp_path / folder).add([line | changes], {name: record})
        return tmp_path / folder

    return keep
