"""A dump that a test of torch_npu has been left to switch on: whether it is on when the test has ended."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from pytest_npudump.runtime.replaced import Replaced

if TYPE_CHECKING:
    from collections.abc import Callable

_INITIALISE = "_npu_initDump"
_FINALISE = "_npu_finalizeDump"
_OPTIONS = "_npu_setOption"
_SWITCH = "mdldumpswitch"
_TORCHAIR = "_torchair"
"""The module of TorchAir that is C++, and switches its dump on there."""


class DumpOfTest:
    """The calls that switch a dump on and off, from :meth:`watch` to :meth:`stop`.

    They are looked at below ``torch_npu.npu.utils`` and ``torch_npu.npu``, in ``torch_npu._C``.
    """

    def __init__(self) -> None:
        self._on: bool | None = None
        self._unseen = False
        self._replaced = Replaced()

    def watch(self, torch_npu: Any) -> None:
        """Look at every call from now on."""
        self._replace(torch_npu._C, _INITIALISE, lambda _: self._switch(on=True))  # noqa: SLF001 - its C++
        self._replace(torch_npu._C, _FINALISE, lambda _: self._switch(on=False))  # noqa: SLF001 - the same
        self._replace(torch_npu._C, _OPTIONS, self._see_options)  # noqa: SLF001 - the same

    def stop(self) -> bool:
        """Put the calls back; return whether the dump has to be ended, or may have to be."""
        watched = bool(self._replaced)
        self._replaced.put_back()
        return watched and (self._unseen or self._torchair() if self._on is None else self._on)

    def _switch(self, *, on: bool) -> None:
        self._on = on

    def _see_options(self, arguments: tuple[Any, ...]) -> None:
        """What ACL answers there is ignored by the client, so that a dump may be on and may not."""
        self._unseen = self._unseen or any(_SWITCH in options for options in arguments)

    @staticmethod
    def _torchair() -> bool:
        return any(name.rpartition(".")[2] == _TORCHAIR for name in sys.modules)

    def _replace(self, module: Any, name: str, see: Callable[[tuple[Any, ...]], None]) -> None:
        def watched(original: Callable[..., Any], *arguments: Any) -> Any:
            result = original(*arguments)
            see(arguments)
            return result

        self._replaced.put(module, name, watched)
