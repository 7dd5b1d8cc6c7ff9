"""Processes of children: :func:`run` is one that is started for a task, and the fork server makes others.

The fork server has imported what every child needs, and forks one for each task.

It has imported what its parent has of this package and of pytest, behind the first child also what that had,
and onnx, and neither a client (``acl``, ``torch``, ``mindspore``, onnxruntime) nor anything of the tests, so
that no child inherits a device. Nor does one inherit a thread, or a lock that a thread holds: there is one
thread at each fork, which is looked at before it. OpenBLAS, whose threads begin with numpy's import, ends
them before a fork and begins its own in the child.

``multiprocessing`` has a fork server too. Its children run the main module of pytest's own process again, and
leave by ``os._exit``: what a test registered with ``atexit``, to give its device back, would not run.

Started with the first child of a session: ``python -c "from ... import main; main()" DESCRIPTOR``; a child
that is a program of its own is ``python -c "from ... import run; run()" TASK``.
"""

from __future__ import annotations

import gc
import importlib
import os
import resource
import subprocess
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from io import TextIOWrapper
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from multiprocessing.reduction import recv_handle, send_handle
from pathlib import Path
from typing import IO, Any

import pytest

from pytest_npudump.plugin import import_plainly
from pytest_npudump.plugin.features.isolation.task import GRACE, Task, needed
from pytest_npudump.plugin.reporter import CHILD
from pytest_npudump.runtime.programs import interrupt_on_termination, supervised

_CLIENTS = frozenset({"acl", "torch", "torch_npu", "mindspore", "onnxruntime"})
_MAIN = "from pytest_npudump.plugin.features.isolation.server import main; main()"
_START = 120.0
"""Seconds in which its imports are done, on a machine that is busy."""
_MEASURED = ("COV_CORE_SOURCE", "COVERAGE_PROCESS_START", "COVERAGE_PROCESS_CONFIG")
"""Variables by which coverage measures each interpreter that starts, and no fork of one."""


class ServerProcess:
    """Fork server of the children of one session, where forking works.

    A child whose environment is not that of the fork server is started as a program of its own: the
    interpreter and libraries read theirs once.
    """

    def __init__(self) -> None:
        self._modules = needed()
        self._imported, self._learnt = 0, False
        self._usable = not any(os.environ.get(name) for name in _MEASURED)
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None
        self._inherited: tuple[dict[str, str], object] = ({}, None)

    @classmethod
    def of(cls, config: pytest.Config) -> ServerProcess:
        """Return the server of a session, which ends with it."""
        if _SERVER not in config.stash:
            config.stash[_SERVER] = server = cls()
            config.add_cleanup(server.close)
        return config.stash[_SERVER]

    def learn(self, modules: Iterable[str]) -> None:
        """Take over what the first child had imported that others need, when its test had ended."""
        if not self._learnt:
            self._modules = [*dict.fromkeys((*self._modules, *modules))]
            self._learnt = len(self._modules) > self._imported

    def is_ready(self, cwd: Path) -> bool:
        """Return whether a child can be forked now; start the server where one is expected."""
        if self._process is not None and self._process.poll() is not None:
            self.close()  # somebody has killed it
        if self._usable and self._process is None:
            self._start(cwd)
        if self._usable and self._imported < len(self._modules):
            self._usable = self._prepare()
        return self._usable and _inherited() == self._inherited

    def run(self, task: Path, cwd: Path, timeout: float, files: tuple[IO[bytes], IO[bytes]]) -> int:
        """Fork a child, wait for its end, and end all that it has started; :meth:`is_ready` comes before.

        Its group ends as :func:`~pytest_npudump.runtime.programs.run_in_group` says.

        Returns:
            Its exit code; ``-N`` where signal ``N`` ended it.

        Raises:
            subprocess.TimeoutExpired: it did not end in time, and was ended.
            OSError: the fork server has ended meanwhile, and with it the child.
        """
        connection = self._connection
        assert connection is not None  # noqa: S101 - is_ready() came before

        def start() -> _Forked:
            connection.send((task, cwd))
            for file in files:
                send_handle(connection, file.fileno(), 0)
            return _Forked(connection, _hear(connection, _START))

        try:
            return supervised(start, timeout, GRACE)
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        """End the fork server, and whatever child it has."""
        process, self._process = self._process, None
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if process is None:
            return
        try:
            process.wait(GRACE + 5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _start(self, cwd: Path) -> None:
        ours, theirs = Pipe()
        self._connection, self._inherited, self._imported = ours, _inherited(), 0
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603 - this interpreter
                [sys.executable, "-c", _MAIN, str(theirs.fileno())],
                cwd=cwd,
                env=self._inherited[0],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                pass_fds=(theirs.fileno(),),
            )

    def _prepare(self) -> bool:
        """Have the fork server import what it lacks; return whether it can fork children then."""
        assert self._connection is not None  # noqa: S101 - it was started
        with suppress(OSError):
            self._connection.send(self._modules[self._imported :])
            if _hear(self._connection, _START):
                self._imported = len(self._modules)
                return True
        self.close()
        return False


class _Forked:
    """A child of the fork server, which waits for its end.

    Attributes:
        pid: its number, and that of its group.
    """

    def __init__(self, connection: Connection, pid: int) -> None:
        self.pid = pid
        self._connection = connection
        self._code: int | None = None

    def poll(self) -> int | None:
        with suppress(OSError, subprocess.TimeoutExpired):
            self.wait(0)
        return self._code

    def wait(self, timeout: float | None = None) -> int:
        if self._code is None:
            try:
                self._code = _hear(self._connection, timeout)
            except TimeoutError:
                raise subprocess.TimeoutExpired("child", timeout or 0) from None
        return self._code


def _hear(connection: Connection, timeout: float | None) -> Any:
    """Return the fork server's next message.

    Raises:
        TimeoutError: none came in time.
        ConnectionResetError: none will come any more.
    """
    try:
        if not connection.poll(timeout):
            raise TimeoutError
        return connection.recv()
    except EOFError as error:
        raise ConnectionResetError("the process that forks children has ended") from error


_SERVER = pytest.StashKey[ServerProcess]()


def _inherited() -> tuple[dict[str, str], object]:
    """Return the state of this process that a new child inherits and a forked one does not."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}
    names = [name for name in dir(resource) if name.startswith("RLIMIT_")]
    limits = [resource.getrlimit(getattr(resource, name)) for name in names]
    mask = os.umask(0o077)
    os.umask(mask)
    return environment, (limits, mask, os.sched_getaffinity(0), os.nice(0))


def main() -> None:
    """Serve until the parent closes the connection; in each child, run its task and exit as pytest does."""
    connection, parent = Connection(int(sys.argv[1])), -1
    with suppress(AttributeError, OSError):  # not every system can wait for several processes at once
        parent = os.pidfd_open(os.getppid())
    found = _serve(connection, parent) if parent >= 0 else None
    if found is not None:
        run_task(*found)


def _prepare(modules: Sequence[str]) -> bool:
    """Import modules; return whether children can be forked after that."""
    for module in modules:
        importlib.import_module(module)
    if _CLIENTS & sys.modules.keys():  # which may have touched a device
        return False
    gc.freeze()  # pytest in a child looks for garbage, which would copy the memory of all of these
    child = os.fork()  # libraries end their threads before it
    if not child:
        os._exit(0)
    os.waitpid(child, 0)
    return _has_one_thread()


def _has_one_thread() -> bool:
    return sum(1 for _ in Path("/proc/self/task").iterdir()) == 1


def _serve(connection: Connection, parent: int) -> tuple[Path, tuple[Path, list[int]]] | None:
    """Import modules, and fork a child for each task; return what it was sent in the child.

    None once the parent is gone.
    """
    with suppress(EOFError, OSError):
        while parent not in wait([connection, parent]):  # others may hold its end of the connection
            message = connection.recv()
            if isinstance(message, list):
                connection.send(_prepare(message))
                continue
            task, cwd = message
            descriptors = [recv_handle(connection) for _ in range(2)]
            if not _has_one_thread():
                break
            child = os.fork()
            if not child:
                connection.close()
                os.close(parent)
                return task, (cwd, descriptors)
            for descriptor in descriptors:
                os.close(descriptor)
            with suppress(OSError):  # the child does the same: whoever comes first
                os.setpgid(child, child)
            connection.send(child)
            connection.send(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    return None


def _become(cwd: Path, descriptors: list[int]) -> None:
    """Make a new child what a program of its own would be."""
    os.setpgid(0, 0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for number, descriptor in enumerate((nothing, *descriptors)):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.chdir(cwd)
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:  # Python's own generator seeds itself anew in a child
        numpy_random.seed()


def run() -> None:
    """Run the task whose file the command line names, and exit as pytest does."""
    run_task(Path(sys.argv[1]))


def run_task(file: Path, place: tuple[Path, list[int]] | None = None) -> None:
    """Run a task in this process, which is for nothing else, and exit as pytest does.

    Args:
        file: of the task.
        place: folder, and descriptors of the output, of a forked child; None for a program of its own.
    """
    if place is not None:
        _become(*place)
    task = Task.read(file)
    interrupt_on_termination()
    for stream in (sys.stdout, sys.stderr):  # so that a crash loses no line
        assert isinstance(stream, TextIOWrapper)  # noqa: S101 - nothing of a user ran yet
        stream.reconfigure(encoding="utf-8", errors="replace", line_buffering=True)
    sys.path[:] = task.path
    # This package is imported before pytest could rewrite it, and filterwarnings may make that an error.
    filters = [*(task.options.get("pythonwarnings") or ()), "ignore:Module already imported"]
    config = pytest.Config.fromdictargs({**task.options, "pythonwarnings": filters}, [str(task.file)])
    import_plainly()
    if task.worker is not None:
        vars(config).update(workerinput=dict(task.worker), workeroutput={})
    from pytest_npudump.plugin.features.isolation.child import Child  # noqa: PLC0415 - found by the path of the task

    config.pluginmanager.register(Child(task), CHILD)
    sys.exit(config.hook.pytest_cmdline_main(config=config))
