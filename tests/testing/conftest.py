"""A runtime and a file format as other packages would offer them."""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import numpy as np
import pytest

from pytest_npudump.dump.records import Payload, TensorKey, TensorRecord
from pytest_npudump.errors import FormatError, RequestError, RuntimeUnavailableError
from pytest_npudump.request import RunRequest
from pytest_npudump.runtime.base import RunActivity
from pytest_npudump.storage.regular_file import read_regular


class Safetensors:
    """A format that this package does not read, as another package would offer it."""

    def claims(self, path: Path, start: bytes) -> bool:
        del start
        return path.suffix == ".safetensors"

    def read(self, path: Path) -> list[TensorRecord]:
        try:
            content = read_regular(path)
        except OSError as error:
            raise FormatError(path, f"cannot be read: {error}") from None
        if len(content) < 8:
            raise FormatError(path, "no length of the header", offset=len(content))
        (length,) = struct.unpack_from("<Q", content)
        if length > len(content) - 8:
            raise FormatError(path, f"a header of {length} bytes is said", offset=0)
        return [
            self._record(path, *item, 8 + length, len(content))
            for item in self._header(path, content, length)
        ]

    def _header(self, path: Path, content: bytes, length: int) -> list[tuple[str, Any]]:
        try:
            return list(json.loads(content[8 : 8 + length]).items())
        except (ValueError, AttributeError, RecursionError) as error:
            raise FormatError(path, f"the header is no JSON object: {error}", offset=8) from None

    def _record(self, path: Path, name: str, said: Any, start: int, size: int) -> TensorRecord:
        try:
            dtype = {"F32": "float32", "I8": "int8"}[said["dtype"]]
            shape = tuple(map(int, said["shape"]))
            first, last = map(int, said["data_offsets"])
            key = TensorKey.parse(name)
            needed = int(np.prod(shape, dtype=object)) * {"float32": 4, "int8": 1}[dtype]
        except (KeyError, TypeError, ValueError, RequestError) as error:
            raise FormatError(path, f"{name!r}: {error!r}", offset=8) from None
        if min((0, *shape)) < 0 or not 0 <= first <= last <= size - start or last - first != needed:
            raise FormatError(path, f"{name!r}: bytes {first} to {last} of {size - start}", offset=start)
        if key.io not in {"input", "output"}:
            raise FormatError(path, f"{name!r}: neither an input nor an output", offset=8)
        return TensorRecord(key, "", dtype, shape, path, payload=Payload(path, start + first, last - first))


@dataclass
class NumpyRuntime:
    """Runs numpy's functions, and dumps what they return."""

    name: str = "numpy"
    config_name: str = "numpy.json"
    activity: RunActivity = field(default_factory=lambda: RunActivity(likely_cause="no operator ran"))
    target: Path | None = None

    def producer(self) -> Mapping[str, str]:
        return {"runtime": self.name, "numpy": np.__version__}

    def write_config(self, path: Path, request: RunRequest) -> None:
        path.write_text(json.dumps({"dump_path": str(request.dump_path)}), encoding="utf-8")
        path.chmod(0o600)

    def start(self, config: Path, *, resumed: bool = False) -> None:
        self.activity = self.activity if resumed else RunActivity(likely_cause="no operator ran")
        self.activity.initialised = True
        self.target = Path(json.loads(config.read_text(encoding="utf-8"))["dump_path"])

    def stop(self) -> None:
        self.target = None

    def release(self) -> None:
        self.stop()
        self.activity.released = True

    def hand_over(self, program: str, models: tuple[Path, ...] = ()) -> None:
        self.release()
        self.activity.programs += (program,)
        self.activity.models += models

    def load_model(self, path: Path) -> NoReturn:
        raise RuntimeUnavailableError(f"{path}: numpy loads no models")

    def close(self) -> None:
        self.stop()

    def negative(self, array: np.ndarray) -> None:
        """The one operator that there is."""
        values = np.negative(array)
        if self.target is not None:
            self.dumped(self.target, values)

    def dumped(self, target: Path, values: np.ndarray) -> None:
        stamp = time.time_ns() // 1000
        np.save(target / f"Neg.Default_neg-op0.0.0.{stamp}.output.0.DefaultFormat.Float32.npy", values)


@pytest.fixture
def others() -> SimpleNamespace:
    """What other packages offer: a runtime and a file format."""
    return SimpleNamespace(NumpyRuntime=NumpyRuntime, Safetensors=Safetensors)
