"""No sample: a process that has imported what sessions import, and is forked for each of them.

``python warm.py serve SOCKET MODULES`` prints a line once it is ready, and ends with its standard input.
``python -IS ask.py SOCKET WORDS`` is as the words are, in a process of its own with the caller's folder,
variables and streams: ``pytest ...``, ``-mpytest ...`` for ``python -m pytest ...``, ``npudump ...``,
``-c SOURCE ...``, and ``SCRIPT.py ...``. So are workers of pytest-xdist, processes of isolated tests, and
what commands start, of a process that runs so.
"""

from __future__ import annotations

import os
import socket
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from types import ModuleType

    import pytest


def serve(path: str) -> list[str]:
    """Fork for each command that is asked for; return its words, in the process that is to run it."""
    import select
    import signal

    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen()
        print("ready", flush=True)  # noqa: T201 - to the test that waits
        while True:
            signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # whoever waits for a command is none's parent
            if 0 in select.select([0, server], [], [])[0]:
                os._exit(0)
            caller, _ = server.accept()
            if os.fork():
                caller.close()
                continue
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            head, streams, *_ = socket.recv_fds(caller, 4, 4)
            length, message = int.from_bytes(head, "big"), b""
            while len(message) < length:
                message += caller.recv(length)
            session = os.fork()
            if session:
                _, status = os.waitpid(session, 0)
                code = os.waitstatus_to_exitcode(status)
                try:
                    caller.sendall(code.to_bytes(4, "big", signed=True))
                finally:  # without a caller, too: at an exit onnxruntime waits for threads from before
                    os._exit(0)
            for number, stream in enumerate(streams[:3]):
                os.dup2(stream, number)
                os.close(stream)
            caller.close()
            break
    folder, *words = message.decode(errors="surrogateescape").split("\0")
    end = words.index("", 1)
    variables = dict(word.split("=", 1) for word in words[end + 1 :])
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(variables)
    client = [sys.executable, "-IS", os.path.join(os.path.dirname(__file__), "ask.py"), path]  # noqa: PTH118, PTH120
    fork_workers(client)
    fork_children(path)
    for module, name, value in forking(client):
        setattr(module, name, value)
    return [*words[:end], *map(str, streams[3:])]


def fork_workers(client: list[str]) -> None:
    """Have pytest-xdist fork its workers too."""
    from execnet import gateway_io

    words = [*client, "-c", gateway_io.popen_bootstrapline]
    gateway_io.popen_args = lambda spec: words[:]  # noqa: ARG005


def begin_server(path: str, before: str = "") -> tuple[object, object]:
    """Have a process forked that forks isolated tests; return it, and the connection to it.

    Args:
        path: of the socket.
        before: lines that it runs first.
    """
    import runpy
    import subprocess
    from multiprocessing.connection import Connection

    class Running:
        def __init__(self, told: socket.socket) -> None:
            self._told = told

        def wait(self, timeout: float) -> None:
            self._told.settimeout(timeout)
            try:
                self._told.recv(4)
            except TimeoutError:
                raise subprocess.TimeoutExpired("fork server", timeout) from None
            self._told.close()

        def poll(self) -> int | None:
            try:
                return 0 if self._told.recv(4, socket.MSG_DONTWAIT | socket.MSG_PEEK) else 255
            except BlockingIOError:
                return None

        def kill(self) -> None:
            """It ends with its connection."""

    begin = runpy.run_path(os.path.join(os.path.dirname(__file__), "ask.py"))["begin"]  # noqa: PTH118, PTH120
    ours, theirs = socket.socketpair()
    nothing = os.open(os.devnull, os.O_RDWR)
    code = f"from pytest_npudump.plugin.features.isolation import server\n{before}\n"
    words = ["-c", f"{code}server._CLIENTS = frozenset()\nserver.main()"]
    with theirs:
        told = begin(path, words, (nothing, nothing, nothing, theirs.fileno())).detach()
    os.close(nothing)
    return Running(socket.socket(fileno=told)), Connection(ours.detach())


def fork_children(path: str) -> None:
    """Have the processes of isolated tests forked by a process of this one's."""
    from pytest_npudump.plugin.features.isolation import server

    def start(self: server.ServerProcess, cwd: object) -> None:
        del cwd
        self._inherited, self._imported = server._inherited(), 0
        self._process, self._connection = begin_server(path)  # type: ignore[assignment]

    ready = server.ServerProcess.is_ready

    def is_ready(self: server.ServerProcess, cwd: Path) -> bool:
        if self._process is not None and server._inherited() != self._inherited:
            self.close()  # a new one is forked with the variables of today
        return ready(self, cwd)

    server.ServerProcess.is_ready = is_ready  # type: ignore[method-assign]
    server.ServerProcess._start = start  # type: ignore[method-assign]
    server.ServerProcess._modules = property(lambda _: ["os"], lambda *_: None)  # type: ignore[assignment]


def forking(client: list[str]) -> Iterator[tuple[ModuleType, str, object]]:
    """Yield what modules that start this interpreter have to have set so that it is forked."""
    import subprocess
    from types import SimpleNamespace

    from pytest_npudump.cli import demo
    from pytest_npudump.cli.common import project
    from pytest_npudump.explain.reproduction import reproduction
    from pytest_npudump.plugin.features import stale_goldens

    def run(command: list[str], **how: object) -> subprocess.CompletedProcess[str]:
        python, kind, *words = command
        assert python == sys.executable
        words = ["-mpytest", *words[1:]] if kind == "-m" else [kind, *words]
        return subprocess.run([*client, *words], **how)  # type: ignore[call-overload, no-any-return]  # noqa: PLW1510

    def ran(folder: Path, command: list[str]) -> subprocess.CompletedProcess[str]:
        environment = {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}
        return run([sys.executable, *command], cwd=folder, env=environment, capture_output=True, text=True)

    for module in (demo, project, stale_goldens):
        yield module, "subprocess", SimpleNamespace(run=run, DEVNULL=subprocess.DEVNULL)
    yield reproduction, "ran", ran


def known_distributions() -> Callable[..., object]:
    """Return what pytest finds plugins by; what packages bring is read once for all sessions of a process."""
    import importlib.metadata

    every, groups = importlib.metadata.distributions, ("pytest11", "pytest_npudump")
    known: dict[str, list[object]] = {}

    class Known:
        def __init__(self, distribution: object) -> None:
            self._distribution = distribution

        def __getattr__(self, name: str) -> object:
            setattr(self, name, value := getattr(self._distribution, name))
            return value

    def distributions(**given: object) -> object:
        if given:
            return every(**given)
        for path in set(sys.path) - known.keys():
            bring = (
                one for one in every(path=[path]) if any(e.group.startswith(groups) for e in one.entry_points)
            )
            known[path] = [Known(one) for one in bring]
        return (one for path in sys.path for one in known[path])

    return distributions


def pass_over_what_is_no_fixture_or_hook() -> None:
    """Have pytest look at fewer names of plugins, of which it looks at all and, if it is new, three times.

    For fixtures in none of those that have none, for such as are wrapped wrongly nowhere, and for hooks of
    modules without asking for what their metaclasses shadow.
    """
    from types import FunctionType, ModuleType

    import pluggy
    from _pytest import fixtures
    from _pytest.terminal import TerminalReporter

    kind, parse = getattr(fixtures, "FixtureFunctionDefinition", None), fixtures.FixtureManager.parsefactories

    def parsefactories(self: fixtures.FixtureManager, *given: object, **named: object) -> None:
        holder = named.get("holder")
        owner = holder if isinstance(holder, type | ModuleType) else type(holder)
        names = (value for one in getattr(owner, "__mro__", (owner,)) for value in vars(one).values())
        if holder is None or kind is None or any(type(value) is kind for value in names):
            parse(self, *given, **named)  # type: ignore[call-overload]

    def interrupted(self: TerminalReporter, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        self._keyboardinterrupt_memo = excinfo.getrepr(style="native")  # type: ignore[assignment]

    fixtures.FixtureManager.parsefactories = parsefactories  # type: ignore[method-assign]
    if hasattr(fixtures.FixtureManager, "_check_for_wrapped_fixture"):
        fixtures.FixtureManager._check_for_wrapped_fixture = lambda *_: None
    # Nor for hooks under other names than theirs, nor for what an interrupted session shows of its source.
    pluggy._manager.dir = lambda one: [name for name in dir(one) if name.startswith("pytest_")]  # type: ignore[attr-defined]
    TerminalReporter.pytest_keyboard_interrupt = interrupted  # type: ignore[method-assign]
    pluggy.__version__ = pluggy.__version__  # which is looked up among what is installed
    hook_of = getattr(pluggy._manager, "_static_hook_attr", None)

    def hook_of_module(holder: object, name: str) -> object:
        found = vars(holder).get(name) if type(holder) is ModuleType else None
        return (found, found) if type(found) is FunctionType else hook_of(holder, name)

    if hook_of is not None:
        pluggy._manager._static_hook_attr = hook_of_module


def compile_templates_once() -> None:
    """Have a page's template compiled once a process, now: it takes longer than all else of a small page."""
    from jinja2 import Environment

    from pytest_npudump.report.html.page import page
    from pytest_npudump.report.view import SessionView

    make, made = Environment.compile, {}

    def compiled(self: Environment, source: str, name: str | None = None, *more: str) -> object:
        if name != "page.html.j2":  # of others, as of torch
            return make(self, source, name, *more)
        if source not in made:
            made[source] = make(self, source, name, *more)
        return made[source]

    Environment.compile = compiled  # type: ignore[method-assign, assignment]
    page(SessionView(()))


BESIDE = {"testing", "strategies", "notebook"}
OTHERS = (
    *("onnx", "onnxruntime", "rich.console", "rich.table", "filelock._soft", "jinja2", "_pytest.stepwise"),
    *("xdist.plugin", "xdist.looponfail", "pytest_rerunfailures", "pytest_repeat"),
)
WITHOUT = ("asyncio", "pytest-retry", "flaky", "hypothesispytest", "cacheprovider", "xdist", "rerunfailures")


def warm_up(*without: str) -> None:
    """Import as a session does, through what rewrites the assertions of plugins."""
    import contextlib
    import gc
    import importlib
    import importlib.metadata
    import io
    import pkgutil
    import tempfile

    import pytest

    class Imports:
        @staticmethod
        def pytest_collection() -> None:
            import pytest_npudump

            rooms = pkgutil.walk_packages(pytest_npudump.__path__, "pytest_npudump.")
            names = [room.name for room in rooms if not room.name.endswith("_script")]
            modules = [name for name in names if name.split(".")[1] not in BESIDE]
            for name in (*OTHERS, *modules):
                with contextlib.suppress(ImportError):
                    name in without or importlib.import_module(name)

    pass_over_what_is_no_fixture_or_hook()
    options = [f"-pno:{plugin}" for plugin in WITHOUT]
    os.environ.pop("PYTEST_ADDOPTS", None)
    with (
        tempfile.TemporaryDirectory() as folder,
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        words = ["--collect-only", "-c", os.devnull, "--rootdir", folder, *options, folder]
        pytest.main(words, [Imports()])
    importlib.metadata.distributions = known_distributions()  # type: ignore[assignment]
    for one in importlib.metadata.distributions():
        _ = one.files, one.entry_points, one.metadata
    os.fsync = lambda _: None  # what sessions of tests write need not outlast the machine
    # Nor does how busy the machine is decide what they record.
    importlib.import_module("pytest_npudump.regression.run_plan")._SECONDS = 600.0  # type: ignore[attr-defined]
    gc.collect()
    gc.freeze()  # what was imported is looked through in no session, and stays shared with it


def run(words: list[str]) -> None:
    """Be the command, from its first line on; end without what threads of the parent would have to end."""
    import atexit
    import io
    import runpy
    import tempfile
    import threading
    import traceback

    tempfile.tempdir = None  # the caller's variables say where it is
    sys.argv = words
    sys.stdin = io.TextIOWrapper(io.FileIO(0, closefd=False))  # type: ignore[arg-type]
    sys.stdout = io.TextIOWrapper(
        io.BufferedWriter(io.FileIO(1, "w", closefd=False)), errors="surrogateescape"
    )
    sys.stderr = io.TextIOWrapper(
        io.BufferedWriter(io.FileIO(2, "w", closefd=False)), errors="backslashreplace", line_buffering=True
    )
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr
    sys.path[1:1] = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    code: object = 0
    try:
        if words[0] == "-c":
            sys.argv = ["-c", *words[2:]]
            exec(words[1], vars(sys.modules["__main__"]))  # noqa: S102
        elif words[0].startswith("-m"):
            sys.path[0] = os.getcwd()  # noqa: PTH109
            runpy.run_module(words[0].removeprefix("-m"), run_name="__main__", alter_sys=True)
        elif words[0].endswith(".py"):
            sys.path[0] = os.path.dirname(words[0])  # noqa: PTH120
            runpy.run_path(words[0], run_name="__main__")
        else:
            sys.path[0] = os.path.dirname(sys.executable)  # noqa: PTH120
            words[0] = f"{sys.path[0]}/{words[0]}"
            runpy.run_path(words[0], run_name="__main__")
    except SystemExit as end:
        code = end.code
    except BaseException:  # noqa: BLE001 - told as Python tells it
        traceback.print_exc()
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    if isinstance(code, str):
        sys.stderr.write(f"{code}\n")
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code or 0)  # type: ignore[arg-type]


if __name__ == "__main__":
    for module in sys.argv[3:]:
        __import__(module)
    warm_up()
    compile_templates_once()
    run(serve(sys.argv[2]))
