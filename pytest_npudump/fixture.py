"""What a test gets as ``npu_dump``."""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_npudump.errors import RequestError
from pytest_npudump.layers import select_layers

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

    from pytest_npudump.dump.records import TensorRecord
    from pytest_npudump.runtime.base import ModelSession
    from pytest_npudump.session import MarkedTest


@dataclass(frozen=True, slots=True)
class NpuDump:
    """The dump around the current test.

    Attributes:
        directory: folder of the paths a test may give to :meth:`load_model` (the test file's own).
    """

    _test: MarkedTest
    directory: Path

    def load_model(self, path: str | os.PathLike[str]) -> ModelSession:
        """Load a model under the dump.

        Args:
            path: an ``.om`` file, or on the emulator an ``.onnx`` file (``model.om`` there stands for the
                ``model.onnx`` beside it); relative to the test file's folder.

        Returns:
            A session with ``run(*arrays) -> list of arrays``; a context manager that frees the device.

        Raises:
            RuntimeUnavailableError: the runtime cannot load it; the message has its code and reason.
        """
        return self._test.runtime.load_model(self.directory / Path(path))

    @property
    def runtime(self) -> str:
        """What runs the models: ``acl`` or ``emulator``."""
        return self._test.runtime.name

    @property
    def config_path(self) -> Path:
        """The acl.json of this run, for code that hands it to ACL itself.

        From the first use on the dump is left to the test: it calls ``acl.init(str(path))``, or
        ``acl.mdl.init_dump()`` and ``acl.mdl.set_dump(str(path))``, before it loads its model.
        """
        self._test.runtime.release()
        return self._test.attempt.directory / "acl.json"

    @property
    def config(self) -> dict[str, Any]:
        """Content of :attr:`config_path`."""
        content: dict[str, Any] = json.loads(self.config_path.read_text(encoding="utf-8"))
        return content

    @contextmanager
    def capture(self, name: str) -> Iterator[Path]:
        """Dump what is loaded and run inside the block apart, under the name ``name`` in the golden.

        A model has to be loaded inside the block to be dumped in it.

        Raises:
            RequestError: ``name`` is not a plain name, or was used before in this test.
        """
        with self._test.attempt.capture(self._test.runtime, name) as directory:
            yield directory

    @property
    def records(self) -> tuple[TensorRecord, ...]:
        """What has been dumped so far, in execution order; on a device complete only once it is idle.

        Raises:
            DumpError: nothing has been dumped yet, or it cannot be read.
        """
        return select_layers(self._test.attempt.read(), self._test.request).records


def without_marker(nodeid: str) -> RequestError:
    """Return the error for a test that asks for the fixture and has no marker."""
    return RequestError(
        f"{nodeid} uses the fixture npu_dump without the marker: add @pytest.mark.npu_dump (its arguments "
        f"say what is dumped; none means every layer)"
    )
