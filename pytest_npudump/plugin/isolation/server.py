"""The fork server: it has imported what every child needs, and forks one for each task.

It has imported pytest and what the first child had of this package in the end, and neither a client
(``acl``, ``torch``, ``mindspore``, onnxruntime) nor anything of the tests, so that no child inherits a
device. Nor does one inherit a thread, or a lock that a thread holds: there is one thread at each fork, which
is looked at before it. OpenBLAS, whose threads begin with numpy's import, ends them before a fork and begins
its own in the child.

Started as ``python -c "from ...isolation.server import main; main()" DESCRIPTOR MODULE ...``.
"""

from __future__ import annotations

import importlib
import json
import os
import select
import signal
import socket
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_npudump.plugin.isolation.child import run_task
from pytest_npudump.plugin.isolation.task import GRACE

if TYPE_CHECKING:
    from collections.abc import Sequence

_CLIENTS = frozenset({"acl", "torch", "torch_npu", "mindspore", "onnxruntime"})
_PAUSE = 0.02
_MESSAGE = 1 << 16


def main() -> None:
    """Serve until the parent closes the connection; in each child, run its task and exit as pytest does."""
    connection = socket.socket(fileno=int(sys.argv[1]))
    try:
        parent = os.pidfd_open(os.getppid())
    except (AttributeError, OSError) as error:
        _say(connection, ready=False, why=f"this system cannot wait for several processes at once: {error}")
        return
    why_not = _prepare(sys.argv[2:])
    _say(connection, ready=not why_not, why=why_not)
    task = None if why_not else _serve(connection, parent)
    if task is not None:
        run_task(*task)


def _prepare(modules: Sequence[str]) -> str:
    """Import modules; return why none can be forked after that, "" if they can."""
    for module in modules:
        importlib.import_module(module)
    if clients := _CLIENTS & sys.modules.keys():
        return f"{', '.join(sorted(clients))} is imported, which may have touched a device"
    child = os.fork()  # libraries end their threads before it
    if not child:
        os._exit(0)
    os.waitpid(child, 0)
    return _threads()


def _threads() -> str:
    number = sum(1 for _ in Path("/proc/self/task").iterdir())
    return f"the fork server has {number} threads" if number > 1 else ""


def _serve(connection: socket.socket, parent: int) -> tuple[Path, int] | None:
    """Fork a child for each task; return its task in the child, None once the parent is gone."""
    while True:
        if parent in _ready(connection.fileno(), parent):  # others may hold its end of the connection
            return None
        message, descriptors, _, _ = socket.recv_fds(connection, _MESSAGE, 3)
        if not message:
            return None
        asked = json.loads(message)
        if why_not := _threads():
            _say(connection, why=why_not)
            return None
        child = os.fork()
        if not child:
            connection.close()
            os.close(parent)
            return Path(asked["task"]), _become(asked["cwd"], descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        with suppress(OSError):  # the child does the same: whoever comes first
            os.setpgid(child, child)
        _say(connection, child=child)
        code = _wait((connection.fileno(), parent), child)
        if code is None:
            return None
        _say(connection, code=code)


def _become(cwd: str, descriptors: list[int]) -> int:
    """Make a new child what a program of its own would be; return the descriptor for its parent."""
    os.setpgid(0, 0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for number, descriptor in enumerate((nothing, *descriptors[:2])):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.chdir(cwd)
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:  # Python's own generator seeds itself anew in a child
        numpy_random.seed()
    return descriptors[2]


def _ready(*descriptors: int) -> set[int]:
    """Wait until there is something to read; not by select(), which takes no descriptor from 1024 on."""
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return {descriptor for descriptor, _ in poll.poll()}


def _wait(others: tuple[int, ...], child: int) -> int | None:
    """Wait for the end of a child and of all it started; return its exit code, None if the parent is gone."""
    ended = os.pidfd_open(child)
    try:
        gone = ended not in _ready(*others, ended)
    finally:
        os.close(ended)
    code = _end_group(child)
    return None if gone else code


def _end_group(child: int) -> int:
    """End every process of a child's group, by SIGTERM and later by SIGKILL; return the child's exit code."""
    code = None
    _signal(child, signal.SIGTERM)
    until = time.monotonic() + GRACE
    while time.monotonic() < until:
        if code is None:
            found, status = os.waitpid(child, os.WNOHANG)
            code = os.waitstatus_to_exitcode(status) if found else None
        if code is not None and not _signal(child, 0):
            return code
        time.sleep(_PAUSE)
    _signal(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) if code is None else code


def _signal(group: int, number: int) -> bool:
    """Send a signal; return whether there is such a group."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
        return True
    return False


def _say(connection: socket.socket, **content: object) -> None:
    with suppress(OSError):  # the parent is gone, which shows with the next message
        connection.sendall(json.dumps(content).encode() + b"\n")
