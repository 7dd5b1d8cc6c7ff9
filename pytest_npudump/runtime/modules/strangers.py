"""Torch modules that run in a test while nobody watches them.

One hook before the modules of a process sees them, but for those in compiled code. A module that has neither
parameters nor buffers nor parts, such as a loss, is no model.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable, Sequence
from typing import Any
from weakref import WeakSet

from pytest_npudump.errors import said
from pytest_npudump.language.text import first_of
from pytest_npudump.runtime.modules import parts_of
from pytest_npudump.runtime.modules.capture import captures
from pytest_npudump.runtime.modules.wrappers import kind_of, unwrapped

_KEY: Any = "npudump"
"""Of the hook: with the same one in each test, functions are not compiled anew for it."""


class Strangers:
    """Models and compiled functions that run unwatched from :meth:`start` to :meth:`stop`."""

    def __init__(self) -> None:
        self._known: Any = None  # between runs, as what belongs to a run is pickled
        self._seen: Any = None
        self._watching: list[Any] = []
        self._found: list[tuple[str, WeakSet[Any], bool]] = []

    def start(self) -> None:
        """Begin, where there is torch."""
        torch = sys.modules.get("torch")
        if torch is None:
            return
        if self._known is None:
            self._known, self._seen = WeakSet(), WeakSet()
        warnings.filterwarnings("ignore", r"Using `torch\.compile\(module\)` when there are global hooks")
        is_compiling, under_way = torch.compiler.is_compiling, captures(torch).valuerefs

        def before(module: Any, _: Any) -> None:
            if is_compiling():
                return
            if (now := under_way()) != self._watching:  # what was watched may run again
                self._watching = now
                self._known.clear()
            if module not in self._known:
                self._meet(module)

        torch.nn.modules.module._global_forward_pre_hooks[_KEY] = before  # noqa: SLF001 - a key of ours

    def _meet(self, module: Any) -> None:
        watched, parts = _modules_of(captures(sys.modules["torch"]).values()), parts_of(module)
        seen = [one for key, one in parts.items() if key in watched]
        self._seen.update(seen)
        if parts and not seen:
            again = not self._seen.isdisjoint(parts.values()) and not _in_backward()
            name = kind_of(unwrapped(module))
            self._found.append((name, WeakSet(parts.values()), again))
        # Other parts of what is watched in part may still be strangers.
        self._known.update([module, *(seen or parts.values())])

    def stop(self, watched: Sequence[Any]) -> str:
        """End; return a note on those that are not of these captures, "" for none."""
        module = sys.modules.get("torch.nn.modules.module")
        getattr(module, "_global_forward_pre_hooks", {}).pop(_KEY, None)
        found, self._found, self._watching = self._found, [], []
        self._known = self._seen = None
        known = _modules_of(watched)
        names = [name for name, parts, again in found if again or known.isdisjoint(map(id, parts))]
        if not names or not all(hasattr(capture, "modules") for capture in watched):
            return ""  # an engine runs models of its own
        return said(
            "models ran in the test that nothing watches, which are not compared: {names}; have a fixture "
            "return them, or call npu_dump.modules(model)",
            names=first_of(dict.fromkeys(names)),
        )


def _in_backward() -> bool:
    """Return whether checkpoints run parts of a model anew."""
    return bool(sys.modules["torch"]._C._current_graph_task_id() != -1)  # noqa: SLF001 - nothing public tells


def _modules_of(watched: Iterable[Any]) -> set[int]:
    return {id(one) for capture in watched for one in getattr(capture, "modules", ())}
