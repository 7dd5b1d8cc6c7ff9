"""``acl.op.set_model_dir``, which CANN takes once a process, for tests that run in one process.

Every further call is answered with 100002, whatever directory it names, and what the first one has loaded
stays. So a run that asks for the models that are loaded gets 0, as it would in a process of its own; a run
that asks for others cannot have them here.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_npudump.language.translation import mark
from pytest_npudump.runtime.acl.return_codes import REPEAT_INITIALIZE, SUCCESS
from pytest_npudump.runtime.replaced import Replaced

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_npudump.runtime.base import Evidence

_CALL = "set_model_dir"
_ELSEWHERE = mark(
    "acl.op.set_model_dir({path!r}) returned 100002: CANN takes it once a process, and this one has loaded "
    'models by then that are not known to be the same: give the test isolation="process"'
)


class ModelDirectory:
    """The directory of single-operator models that a process has loaded, through all of its tests."""

    def __init__(self) -> None:
        self._loaded = ""
        self._answered = False
        self._evidence: Evidence | None = None
        self._replaced = Replaced()

    def watch(self, acl: Any, evidence: Evidence, *, resumed: bool) -> None:
        """Look at calls from now on.

        Args:
            acl: the module.
            evidence: where a note on what cannot be loaded goes.
            resumed: whether this goes on with the run that was watched before.
        """
        self.stop()
        self._answered = resumed and self._answered
        self._evidence = evidence
        self._replaced.put(getattr(acl, "op", None), _CALL, self._answer)

    def stop(self) -> None:
        """Put the function back, unless something else has replaced it meanwhile."""
        self._replaced.put_back()

    def _answer(self, original: Callable[..., Any], *arguments: Any) -> Any:
        code = original(*arguments)
        answered, self._answered = self._answered, True
        if code == SUCCESS:
            self._loaded = _models_in(arguments[0])
        elif code == REPEAT_INITIALIZE and not answered:
            if self._loaded and self._loaded == _models_in(arguments[0]):
                return SUCCESS
            if self._evidence is not None:
                self._evidence.notes.append(_ELSEWHERE.format(path=arguments[0]))
        return code


def _models_in(directory: str) -> str:
    """Return a digest of the names and contents of the files below a directory; "" if one cannot be read.

    Links are followed, each folder once: a further way to it counts by its name and that of the first one.
    """
    digest = hashlib.sha256()
    first: dict[str, str] = {}
    with suppress(OSError):
        for folder, below, files in os.walk(directory, onerror=_refuse, followlinks=True):
            name = os.path.relpath(folder, directory)
            known = first.setdefault(os.path.realpath(folder), name)
            digest.update(os.fsencode(f"{name}\0{known}\0"))
            below.sort()
            if known != name:
                below.clear()
                continue
            for path in (Path(folder, file) for file in sorted(files)):
                content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
                digest.update(os.fsencode(f"{path.name}\0{content}\0"))
        return digest.hexdigest()
    return ""


def _refuse(error: OSError) -> None:
    raise error
