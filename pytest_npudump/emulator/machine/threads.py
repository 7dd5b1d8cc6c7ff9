"""Threads that an application starts through pyACL.

Source: ``thread.cpp`` of pyACL's ``util``. A thread is known by the id that the system gives it, which
``acl.rt.subscribe_report`` takes too: the ``ident`` of Python's own threads.
"""

from __future__ import annotations

import threading
import traceback
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class ApplicationThread(threading.Thread):
    """A thread that runs one function.

    Attributes:
        problem: what the function raised, in the words of pyACL; empty where it returned.
    """

    def __init__(self, function: Callable[..., object], argument: object) -> None:
        super().__init__(daemon=True)
        self.problem = ""
        self._function = function
        self._arguments = () if argument is None else (argument,)

    def run(self) -> None:
        """Call the function; what it raises is printed, and kept for who joins the thread."""
        try:
            self._function(*self._arguments)
        except BaseException as error:  # noqa: BLE001 - pyACL keeps whatever it is
            traceback.print_exception(error)
            self.problem = f"exception={type(error).__qualname__},msg=thread call failed;"
