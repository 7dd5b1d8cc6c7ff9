"""How a command ends: with the code of its verdict, or with one line that says why there is none."""

from __future__ import annotations

import os
import sys
import threading
import traceback
from typing import TYPE_CHECKING

from pytest_npudump.cli.common.output import end_output, to_stderr
from pytest_npudump.errors import NpudumpError
from pytest_npudump.language.translation import gettext as _
from pytest_npudump.language.translation import spoken

if TYPE_CHECKING:
    from collections.abc import Callable

UNREADABLE = 2
"""Exit code where an input cannot be read, a call makes no sense or the work failed; 1 means a difference."""

INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it: 128 and the number of the signal."""


def exit_code(work: Callable[[], int]) -> int:
    """Do ``work``, write out what it printed, and return its exit code; a failure is no difference.

    Whatever fails is told in a line on standard error; a fault of this package also with its traceback.
    """
    try:
        return _written_out(work)
    except KeyboardInterrupt:
        to_stderr(_("npudump: interrupted before the work was done: no verdict; run it again"))
        return INTERRUPTED
    except BrokenPipeError:
        pass
    except (NpudumpError, OSError, MemoryError) as error:
        to_stderr(f"npudump: {_reason(error)}")
    except Exception:  # noqa: BLE001 - Python's own exit code would be 1, which means a difference
        to_stderr(traceback.format_exc())
        to_stderr(_("npudump: a fault of npudump itself: no verdict; report it with the lines above"))
    return UNREADABLE


def leave_threads_behind(code: int) -> None:
    """End the process with ``code`` where threads are still at work, which Python would wait for."""
    if any(not thread.daemon for thread in threading.enumerate() if thread is not threading.main_thread()):
        sys.stderr.flush()
        os._exit(code)


def _written_out(work: Callable[[], int]) -> int:
    try:
        return work()
    finally:
        end_output()


def _reason(error: Exception) -> str:
    if isinstance(error, NpudumpError):
        return spoken(str(error))
    if isinstance(error, MemoryError):
        return _(
            "memory ran out ({error}): no verdict; run it again with fewer workers, --executor serial"
        ).format(error=error or _("no details"))
    return _("the system refused ({error}): no verdict; correct that, and run it again").format(error=error)
