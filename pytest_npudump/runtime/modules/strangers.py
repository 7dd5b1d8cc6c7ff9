"""Torch modules that run in a test while nobody watches them.

One hook before the modules of a process sees them, but for those in compiled code. A module that has neither
parameters nor buffers nor parts, such as a loss, is no model.
"""

from __future__ import annotations

import sys
import warnings
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from pytest_npudump.errors import said
from pytest_npudump.language.text import first_of
from pytest_npudump.runtime.modules import parts_of
from pytest_npudump.runtime.modules.capture import captures

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


_KEY: Any = "npudump"
"""Of the hook: with the same one in each test, functions are not compiled anew for it."""


class Strangers:
    """What runs unwatched from :meth:`start` to :meth:`stop`."""

    def __init__(self) -> None:
        self._known = WeakSet[Any]()
        self._found: list[tuple[str, WeakSet[Any]]] = []

    def start(self) -> None:
        """Begin, where there is torch."""
        torch = sys.modules.get("torch")
        if torch is None:
            return
        warnings.filterwarnings("ignore", r"Using `torch\.compile\(module\)` when there are global hooks")
        is_compiling = torch.compiler.is_compiling

        def before(module: Any, _: Any) -> None:
            if not is_compiling() and module not in self._known:
                self._meet(module)

        torch.nn.modules.module._global_forward_pre_hooks[_KEY] = before  # noqa: SLF001 - a key of ours

    def _meet(self, module: Any) -> None:
        parts = WeakSet(parts_of(module).values())
        if parts and not _are_in(parts, captures(sys.modules["torch"]).values()):
            self._found.append((type(getattr(module, "_orig_mod", module)).__name__, parts))
            self._known |= parts
        self._known.add(module)  # alone: other parts of what is watched in part may still be strangers

    def stop(self, watched: Sequence[Any]) -> str:
        """End; return a note on those that are not of these captures, "" for none."""
        module = sys.modules.get("torch.nn.modules.module")
        getattr(module, "_global_forward_pre_hooks", {}).pop(_KEY, None)
        found, self._found, self._known = self._found, [], WeakSet()
        names = [name for name, parts in found if not _are_in(parts, watched)]
        if not names or not all(hasattr(capture, "modules") for capture in watched):
            return ""  # an engine runs models of its own
        return said(
            "models ran in the test that nothing watches, which are not compared: {names}; have a fixture "
            "return them, or call npu_dump.modules(model)",
            names=first_of(dict.fromkeys(names)),
        )


def _are_in(parts: WeakSet[Any], watched: Iterable[Any]) -> bool:
    return any(one in parts for capture in watched for one in getattr(capture, "modules", ()))
