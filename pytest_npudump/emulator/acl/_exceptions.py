"""What a call that runs a failing operator does about the exception dump."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_npudump.emulator.machine.state import process

if TYPE_CHECKING:
    from pytest_npudump.emulator.dumping.exception_files import Operator


def dumped(operator: Operator) -> str:
    """Write the exception dump of an operator, if one is on, and return what the error message says of it.

    A detail dump ends the process, as CANN does.
    """
    state = process()
    dump = state.dumping.exception
    if dump is None:
        return ""
    try:
        return f"; dump exception to file, file: {dump.write(operator, state.clock)}"
    except OSError as error:
        return f"; its exception dump cannot be written: {error}"
