"""Work that is killed before one of its steps: what changes files, as Python's audit events tell it."""

from __future__ import annotations

import importlib
import os
import pkgutil
import signal
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

for _room in ("cli.golden", "golden", "record", "results"):  # once, and not in each process
    _folder = importlib.import_module(f"pytest_npudump.{_room}").__path__
    for _module in pkgutil.walk_packages(_folder, f"pytest_npudump.{_room}."):
        importlib.import_module(_module.name)

STEPS = frozenset({"open", "os.rename", "os.remove", "os.mkdir", "os.chmod", "os.truncate"})


def killed(work: Callable[[], int | None], step: int, *names: str) -> int:
    """Do work in a process that kills itself before a step, and return the status that it ends with.

    Args:
        work: returns the exit code.
        step: which, from 1 on; 0 for none.
        names: parts of what a step is about, one of which it has; none for all steps.
    """
    pid = os.fork()
    if pid:
        return os.waitpid(pid, 0)[1]
    left = step

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal left
        if event in STEPS and (not names or any(name in str(arguments) for name in names)):
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.stdout = open(os.devnull, "w")  # noqa: PTH123, SIM115 - until the process ends
    sys.addaudithook(hook)
    os._exit(work() or 0)
