"""The calls of a run that are convicted, saved for those who want to see them fail."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

from pytest_npudump.runtime.aten.call_files import save_call
from pytest_npudump.runtime.aten.host_copy import NotCopiedError
from pytest_npudump.runtime.aten.recompute import NotRecomputedError

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np

    from pytest_npudump.runtime.aten.call_files import Judged
    from pytest_npudump.runtime.aten.kept_calls import KeptCall

    Array = np.ndarray[Any, np.dtype[Any]]


class CallArchive:
    """A folder with a folder for each call, as long as there is room.

    Args:
        folder: made with the first call.
        limit: most bytes of arrays.

    Attributes:
        notes: which calls are not there, and why.
    """

    def __init__(self, folder: Path, limit: int) -> None:
        self.notes: list[str] = []
        self._folder = folder
        self._left = limit
        self._count = 0

    def save(self, call: KeptCall, judged: Judged, output: Array) -> Path | None:
        """Save a call with one of its results; return the folder, or None, and a note, where it cannot be."""
        size = (call.given.size if call.given is not None else 0) + 2 * output.nbytes
        if size > self._left:
            why = f"{size} bytes are more than is left of --npudump-dump-limit ({self._left})"
            self.notes.append(_left_out(call, why))
            return None
        folder = self._folder / str(self._count)
        try:
            save_call(folder, call, judged, output)
        except (NotCopiedError, NotRecomputedError, OSError) as error:
            shutil.rmtree(folder, ignore_errors=True)
            self.notes.append(_left_out(call, str(error)))
            return None
        self._count += 1
        self._left -= size
        return folder


def _left_out(call: KeptCall, why: str) -> str:
    return f"{call.name} was not saved, so that npudump repro cannot hand it over: {why}"
