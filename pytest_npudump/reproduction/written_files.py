"""A reproduction as files."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_npudump.dump.values.dtypes import BY_NAME
from pytest_npudump.golden.path import golden_path
from pytest_npudump.record.text import render
from pytest_npudump.reproduction import readme, test_file
from pytest_npudump.reproduction.failing_piece import FailingPiece
from pytest_npudump.reproduction.golden_excerpt import excerpt_of
from pytest_npudump.reproduction.operands import GOLDEN
from pytest_npudump.reproduction.trial import run_trial

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_npudump.dump.records import TensorKey
    from pytest_npudump.record.record import Record
    from pytest_npudump.reproduction.trial import Trial

    Array = np.ndarray[Any, np.dtype[Any]]

_GOLDEN = golden_path(
    Path("golden"), test_file=Path(test_file.FILE), classes=(), name="test_repro", param_id=None
)
_INI = "[pytest]\nnpudump_golden_dir = golden\n"
_CONFTEST = '''\
"""Keeps the test out of the sessions of a project that this folder lies in."""

from pathlib import Path


def pytest_ignore_collect(config):
    return None if config.rootpath.samefile(Path(__file__).parent) else True
'''


@dataclass(frozen=True, slots=True, eq=False)
class Reproduction(FailingPiece):
    """A piece of a model that fails, as a folder that stands by itself."""

    @property
    def command(self) -> str:
        """What runs it in its folder."""
        return "pytest"

    def write(self, folder: Path) -> None:
        """Write it into an empty folder.

        Raises:
            GoldenError: the golden cannot be written.
            OSError: a file cannot be written.
        """
        for name, content in _files(self):
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)

    def run(self, folder: Path, runtime: str) -> Trial:
        """Run its test where it was written, on a runtime as in ``--npudump-runtime``."""
        return run_trial(folder, test_file.FILE, runtime)


def golden_of(path: Path, key: TensorKey) -> Record:
    """Return the golden that a reproduction has in a folder; its path is relative to that.

    Raises:
        NpudumpError: the golden cannot be read, or has no such tensor.
    """
    return excerpt_of(path, key, test_file.NODEID, _GOLDEN)


def _files(made: FailingPiece) -> Iterator[tuple[str, bytes]]:
    yield f"{made.name}.onnx", made.model
    if made.reference is not None:
        yield made.reference_file, made.reference
    if made.golden is not None:
        yield made.golden.path.as_posix(), render(made.golden).encode()
    yield test_file.INPUTS, _archive({f"input_{at}": one for at, one in enumerate(made.inputs.values())})
    outputs = {f"device {name}": one for name, one in made.got.items()}
    outputs |= {f"onnxruntime {name}": one for name, one in made.expected.items()}
    if outputs:
        yield "outputs.npz", _archive(outputs)
    dtypes = [(name, array.dtype.name) for name, array in made.inputs.items()]
    yield test_file.FILE, test_file.test_text(made.name, dtypes, _arguments(made)).encode()
    yield "pytest.ini", _INI.encode()
    yield "conftest.py", _CONFTEST.encode()
    yield readme.FILE, readme.readme_text(made).encode()


def _arguments(made: FailingPiece) -> dict[str, object]:
    if made.golden is not None and made.criterion == GOLDEN:
        found: dict[str, object] = {"layers": [made.key.layer]}
        tensors = not made.golden.table.digits.any()
    else:
        found, tensors = {"reference": made.reference_file}, True
    if tensors:
        found["dump_data"] = "tensor"
    return found | ({"numerics": "hf32"} if made.failure.bounds == "hf32" else {})


def _archive(arrays: Mapping[str, Array]) -> bytes:
    """Return an npz; types that numpy lacks as integers of their width."""
    buffer = io.BytesIO()
    plain = {
        name.replace("/", "_"): _storable(array)
        for name, array in arrays.items()
        if BY_NAME[array.dtype.name].kind != "opaque"
    }
    np.savez_compressed(buffer, **plain)  # type: ignore[arg-type]
    return buffer.getvalue()


def _storable(array: Array) -> Array:
    exotic = test_file.is_exotic(array.dtype.name)
    return array.view(f"u{array.dtype.itemsize}") if exotic else array
