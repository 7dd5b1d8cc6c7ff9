"""Torch modules that run in a test while nobody watches them.

One hook before the modules of a process sees them, but for those in compiled code. A module that has neither
parameters nor buffers nor parts, such as a loss, is no model.
"""

from __future__ import annotations

import sys
import warnings
import weakref
from typing import TYPE_CHECKING, Any

from pytest_npudump.errors import said
from pytest_npudump.language.text import first_of
from pytest_npudump.runtime.modules import parts_of
from pytest_npudump.runtime.modules.capture import captures

if TYPE_CHECKING:
    from collections.abc import Sequence


_KEY: Any = "npudump"
"""Of the hook: with the same one in each test, functions are not compiled anew for it."""


class Strangers:
    """What runs unwatched from :meth:`start` to :meth:`stop`."""

    def __init__(self) -> None:
        self._known: dict[int, weakref.ref[Any]] = {}
        self._found: list[tuple[weakref.ref[Any], str, set[int]]] = []

    def start(self) -> None:
        """Begin, where there is torch."""
        torch = sys.modules.get("torch")
        if torch is None:
            return
        warnings.filterwarnings("ignore", r"Using `torch\.compile\(module\)` when there are global hooks")
        is_compiling = torch.compiler.is_compiling

        def before(module: Any, _: Any) -> None:
            if not is_compiling():
                known = self._known.get(id(module))
                if known is None or known() is not module:
                    self._meet(module)

        torch.nn.modules.module._global_forward_pre_hooks[_KEY] = before  # noqa: SLF001 - a key of ours

    def _meet(self, module: Any) -> None:
        watched = {id(one) for capture in captures(sys.modules["torch"]).values() for one in capture.modules}
        parts = parts_of(module)
        if not watched.isdisjoint(parts):  # other parts of it may still be strangers
            parts = {}
        elif parts:
            name = type(getattr(module, "_orig_mod", module)).__name__
            self._found.append((weakref.ref(module), name, {*parts}))
        for one in (module, *parts.values()):
            self._known[id(one)] = weakref.ref(one)

    def stop(self, watched: Sequence[Any]) -> str:
        """End; return a note on those that are not of these captures, "" for none."""
        module = sys.modules.get("torch.nn.modules.module")
        getattr(module, "_global_forward_pre_hooks", {}).pop(_KEY, None)
        found, self._found, self._known = self._found, [], {}
        if not all(hasattr(capture, "modules") for capture in watched):  # an engine runs models of its own
            return ""
        known = {id(one) for capture in watched for one in capture.modules}
        names = [name for one, name, parts in found if one() is None or known.isdisjoint(parts)]
        if not names:
            return ""
        return said(
            "models ran in the test that nothing watches, which are not compared: {names}; have a fixture "
            "return them, or call npu_dump.modules(model)",
            names=first_of(dict.fromkeys(names)),
        )
