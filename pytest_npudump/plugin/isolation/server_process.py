"""The fork server as its parent has it: started with the second child of a session, ended with it."""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Any

import pytest

from pytest_npudump.plugin.isolation.task import GRACE
from pytest_npudump.runtime.programs import interruptible

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_MAIN = "from pytest_npudump.plugin.isolation.server import main; main()"
_START = 120.0
"""Seconds in which its imports are done, on a machine that is busy."""
_MEASURED = ("COV_CORE_SOURCE", "COVERAGE_PROCESS_START", "COVERAGE_PROCESS_CONFIG")
"""Variables by which coverage measures each interpreter that starts, and no fork of one."""
_OF_THIS_TEST = "PYTEST_CURRENT_TEST"
_PAUSE = 0.02


class ServerProcess:
    """What forks the children of one session, where that can be done.

    The first child is started as a program of its own: it tells what others need, and for one alone nothing
    has to be prepared. So is any whose environment is not that of the fork server: the interpreter and
    libraries read theirs once.
    """

    def __init__(self) -> None:
        self._modules: tuple[str, ...] = ()
        self._usable = not any(os.environ.get(name) for name in _MEASURED)
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: socket.socket | None = None
        self._inherited: tuple[dict[str, str], object] = ({}, None)

    @classmethod
    def of(cls, config: pytest.Config) -> ServerProcess:
        """Return that of a session, which ends with it."""
        if _SERVER not in config.stash:
            config.stash[_SERVER] = server = cls()
            config.add_cleanup(server.close)
        return config.stash[_SERVER]

    def learn(self, modules: Iterable[str]) -> None:
        """Take over what a child had imported of this package when its test had ended."""
        self._modules = self._modules or tuple(modules)

    def is_ready(self, cwd: Path) -> bool:
        """Whether a child can be forked at this moment; start what forks it where one is to be expected."""
        if not self._usable or not self._modules:
            return False
        if self._process is not None and self._process.poll() is not None:
            self.close()  # somebody has killed it
        if self._process is None:
            self._usable = self._start(cwd)
        return self._usable and _inherited() == self._inherited

    def run(
        self, task: Path, cwd: Path, timeout: float, files: tuple[IO[bytes], IO[bytes]], back: int
    ) -> int:
        """Fork a child, wait for its end, and end all that it has started; :meth:`is_ready` comes before.

        At the end of the time limit, and where this process is interrupted or killed, its whole group is
        ended: by SIGTERM, and :data:`GRACE` seconds later by SIGKILL.

        Args:
            task: file of what it is to do.
            cwd: its working directory.
            timeout: seconds it may run.
            files: where its output and its errors go.
            back: the descriptor over which it answers.

        Returns:
            Its exit code; ``-N`` where signal ``N`` ended it.

        Raises:
            subprocess.TimeoutExpired: it did not end in time, and was ended.
            OSError: the fork server has ended meanwhile, and with it the child.
        """
        assert self._connection is not None  # noqa: S101 - is_ready() came before
        done = False
        child = 0
        with interruptible():
            try:
                asked = json.dumps({"task": str(task), "cwd": str(cwd)}).encode()
                socket.send_fds(self._connection, [asked], [*(file.fileno() for file in files), back])
                child = self._hear(_START)["child"]
                code: int = self._hear(timeout)["code"]
                done = True
            except TimeoutError:
                raise subprocess.TimeoutExpired(str(task), timeout) from None
            except (KeyError, ValueError) as error:
                raise ConnectionResetError(f"the process that forks children has ended: {error}") from error
            finally:
                if not done:
                    self.close()
                    _end_orphans(child)
        return code

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

    def _start(self, cwd: Path) -> bool:
        ours, theirs = socket.socketpair()
        self._connection, self._inherited = ours, _inherited()
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603 - this interpreter
                [sys.executable, "-c", _MAIN, str(theirs.fileno()), *self._modules],
                cwd=cwd,
                env=self._inherited[0],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                pass_fds=(theirs.fileno(),),
            )
        with suppress(OSError, ValueError, KeyError):
            if self._hear(_START)["ready"]:
                return True
        self.close()
        return False

    def _hear(self, timeout: float) -> dict[str, Any]:
        """Return the next message, an empty one where there is none any more.

        Raises:
            TimeoutError: none came in time.
        """
        assert self._connection is not None  # noqa: S101 - there is one between _start() and close()
        self._connection.settimeout(timeout)
        message = b""
        while not message.endswith(b"\n"):  # byte by byte: the next message may be there already
            byte = self._connection.recv(1)
            if not byte:
                break
            message += byte
        found: dict[str, Any] = json.loads(message or b"{}")
        return found


_SERVER = pytest.StashKey[ServerProcess]()


def _inherited() -> tuple[dict[str, str], object]:
    """Return what a child that is started anew has of this process, and one that is forked has not."""
    environment = {name: value for name, value in os.environ.items() if name != _OF_THIS_TEST}
    names = [name for name in dir(resource) if name.startswith("RLIMIT_")]
    limits = [resource.getrlimit(getattr(resource, name)) for name in names]
    mask = os.umask(0o077)
    os.umask(mask)
    return environment, (limits, mask, os.sched_getaffinity(0), os.nice(0))


def _end_orphans(child: int) -> None:
    """End what is left of a child's group where the fork server could not do so itself."""
    until = time.monotonic() + GRACE
    with suppress(ProcessLookupError, PermissionError):
        while child and time.monotonic() < until:
            os.killpg(child, signal.SIGTERM)
            time.sleep(_PAUSE)
        if child:
            os.killpg(child, signal.SIGKILL)
