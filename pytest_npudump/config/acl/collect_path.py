"""Variables that make CANN dump less than a configuration asks for, without a word."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_COLLECT_VARIABLES: Final = ("NPU_COLLECT_PATH", "NPU_COLLECT_PATH_EXE")
"""What GE reads (``dump_manager.cc``): it then refuses every dump of data, E10056, and set_dump returns 0."""

DATA_DUMPS: Final = frozenset({"OPERATOR", "OP_OVERFLOW"})
"""The dump types that this concerns: of operators, the watcher's included, and of overflows."""


def collecting(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the variables of ``environ`` because of which GE dumps no model and no single operator."""
    return tuple(name for name in _COLLECT_VARIABLES if environ.get(name))


def collecting_words(environ: Mapping[str, str]) -> str:
    """Say that GE refuses the dump, and the way out; "" if no variable makes it."""
    names = " and ".join(collecting(environ))
    if not names:
        return ""
    return (
        f"{names}: with it in the environment CANN's graph engine dumps no model and no overflow (E10056), "
        f"and aclmdlSetDump returns 0 all the same; unset {names}"
    )
