from __future__ import annotations

import csv
import gc
import inspect
import json
import os
import runpy
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from itertools import product
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any
from unittest import mock

import numpy as np
import pytest
from execnet import gateway_io

from pytest_npudump.dump.dtypes import ALL
from pytest_npudump.dump.records import Stats, TensorKey, TensorRecord
from pytest_npudump.dump.table import StatsTable
from pytest_npudump.settings import CI_VARIABLES, Settings

TESTS = Path(__file__).parent
DATA = TESTS / "data" / "golden"
ASK = runpy.run_path(str(TESTS / "data/ask.py"))["ask"]
LONG = {"where_killed", "s3", "dask", "demonstration", "warm_torch", "frozen", "stocked"}
"""Fixtures whose tests start processes of their own."""

FIRST = ("docs", "compare/test_fault_table.py", "frozen", "plugin")
"""Where the items lie that take longest, behind those on the real torch: the first worker begins with them.

One at the end would leave the others idle, and each worker that takes one has its fixtures to set up anew.
"""
collect_ignore = ["data"]

# asyncio warns in each session that does not configure it, pytest-retry works in one session a process, flaky
# takes the runs of all tests away from pytest-rerunfailures, and hypothesis is as long to import as pytest.
# The second line is pytest's own: each plugin is looked through for fixtures in each session.
LEAN = " ".join(
    f"-p no:{plugin}"
    for plugin in (
        *("asyncio", "pytest-retry", "flaky", "hypothesispytest"),
        *("debugging", "doctest", "legacypath", "pastebin"),
    )
)


_FIRST_STATES: dict[tuple[str, str], Any] = {}
"""What state the generator of a module has before anything has drawn from it, by module and name."""


@pytest.fixture(autouse=True)
def _no_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep from what a test runs that a service runs the tests."""
    for name in CI_VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(autouse=True)
def _same_numbers_in_any_order(request: pytest.FixtureRequest) -> None:
    """Have a test draw from the generators of its module what it would draw alone."""
    for name, generator in _generators(request.module):
        generator.bit_generator.state = _FIRST_STATES[request.module.__name__, name]


def _generators(module: Any) -> list[tuple[str, np.random.Generator]]:
    return [pair for pair in vars(module).items() if isinstance(pair[1], np.random.Generator)]


@pytest.fixture(scope="session")
def distributions() -> Callable[..., object]:
    """Return what finds packages with plugins, which sessions in this process share; they start faster."""
    warm = runpy.run_path(str(TESTS / "data/warm.py"))
    warm["pass_over_what_is_no_fixture_or_hook"]()
    warm["compile_templates_once"]()
    found: Callable[..., object] = warm["known_distributions"]()
    return found


@pytest.fixture
def pytester(
    pytester: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
    distributions: Callable[..., object],
) -> pytest.Pytester:
    """pytest's own, whose sessions have no plugins in the way of theirs; its processes are forked."""

    def command() -> tuple[str, ...]:
        return (*request.getfixturevalue("warm").client, "-mpytest")

    def worker(spec: object) -> list[str]:
        del spec
        return [*command()[:-1], "-c", gateway_io.popen_bootstrapline]

    monkeypatch.setattr(pytester, "_getpytestargs", command)
    if "anew" not in request.fixturenames:
        monkeypatch.setattr(gateway_io, "popen_args", worker)
    monkeypatch.setattr("importlib.metadata.distributions", distributions)
    monkeypatch.setenv("LC_ALL", "C.UTF-8")  # what is tested is English, whatever the tester speaks
    monkeypatch.setenv("COLUMNS", "1000")  # and on lines of its own, which a narrower terminal breaks
    monkeypatch.setenv("PYTEST_ADDOPTS", LEAN)
    # How busy the machine is does not decide what is recorded.
    monkeypatch.setattr(import_module("pytest_npudump.regression.run_plan"), "_SECONDS", 600.0)
    return pytester


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--e2e",
        choices=["one", "all", "none"],
        default="one",
        help="end-to-end tests: the first case of each, and of a file of them (default), all, or none",
    )


def pytest_configure(config: pytest.Config) -> None:
    os.fsync = lambda _: None  # what tests write need not outlast the machine, and waiting takes a tenth
    config.addinivalue_line(
        "markers", "each(names, rows, *, ids): as parametrize, in one item that runs all rows"
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give a test whose table is marked ``each`` one item, in place of one a row as ``parametrize`` does."""
    tables = list(metafunc.definition.iter_markers("each"))
    if tables:
        names = [name for table in tables for name in _names(table)]
        rows = list(product(*(_rows(table) for table in tables)))
        metafunc.parametrize(names, [pytest.param(*[rows] * len(names), id=f"{len(rows)} cases")])


def _names(table: pytest.Mark) -> list[str]:
    names = table.args[0]
    return [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)


def _rows(table: pytest.Mark) -> list[tuple[str | None, dict[str, Any]]]:
    """Return what each row of a table is called, None for by its values, and its values by name."""
    names, ids, rows = _names(table), table.kwargs.get("ids"), []
    for number, row in enumerate(table.args[1]):
        assert not getattr(row, "marks", ()), "a row of a table in one item has no marks of its own"
        alone = isinstance(table.args[0], str) and len(names) == 1
        values = row.values if hasattr(row, "marks") else (row,) if alone else row
        told = getattr(row, "id", None) if hasattr(row, "marks") else None
        if ids and told is None:
            told = "-".join(str(ids(value)) for value in values) if callable(ids) else ids[number]
        rows.append((told, dict(zip(names, values, strict=True))))
    return rows


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Call a test for each row of its tables, with its own folder and monkeypatch; tell all that fail."""
    tables = list(pyfuncitem.iter_markers("each"))
    if not tables:
        return None
    given = {name: pyfuncitem.funcargs[name] for name in inspect.signature(pyfuncitem.obj).parameters}
    failed: list[tuple[str, BaseException]] = []
    skipped: list[BaseException] = []
    rows = given[_names(tables[0])[0]]
    for number, row in enumerate(rows):
        values = {**given, **{name: value for _, part in row for name, value in part.items()}}
        with pytest.MonkeyPatch.context() as patch:
            if "tmp_path" in given:
                values["tmp_path"] = given["tmp_path"] / str(number)
                values["tmp_path"].mkdir()
            if "monkeypatch" in given:
                values["monkeypatch"] = patch
            if "capsys" in given:
                given["capsys"].readouterr()
            try:
                pyfuncitem.obj(**values)
            except pytest.skip.Exception as reason:
                skipped.append(reason)
            except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 - a test may fail by any
                names = (ascii((*part.values(),)) if told is None else told for told, part in row)
                failed.append(("-".join(names), error))
    if failed:
        told = "".join(f"\n[{case}] {type(error).__name__}: {error}" for case, error in failed)
        raise AssertionError(f"{len(failed)} of {len(rows)} cases:{told}") from failed[0][1]
    if skipped:  # which the summary is to show, also where other rows have passed
        pytest.skip(f"{len(skipped)} of {len(rows)} cases: {skipped[0]}")
    return True


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if LONG & set(getattr(item, "fixturenames", ())) or item.get_closest_marker("mindspore"):
            item.add_marker("e2e")
    chosen = config.getoption("e2e")
    if chosen != "all":
        tables: set[str] = set()
        kept: list[pytest.Item] = []
        left: list[pytest.Item] = []
        for item in items:
            file = item.getparent(pytest.Module)
            alike = file is not None and any(marker.name == "e2e" for marker in file.own_markers)
            table = item.nodeid.partition("::" if alike else "[")[0]
            ends = item.get_closest_marker("e2e") is not None
            (left if ends and (chosen == "none" or table in tables) else kept).append(item)
            if ends:
                tables.add(table)
        items[:] = kept
        config.hook.pytest_deselected(items=left)
    first = [str(TESTS / part) for part in FIRST]

    def place(item: pytest.Item) -> int:
        if "warm_torch" in getattr(item, "fixturenames", ()):
            return -1
        return next((n for n, part in enumerate(first) if str(item.path).startswith(part)), len(first))

    items.sort(key=place)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[object]:
    """Look for garbage neither while tests are imported and collected, nor later among what this leaves."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_finish(session: pytest.Session) -> None:
    for module in {item.module for item in session.items if isinstance(item, pytest.Function)}:
        for name, generator in _generators(module):
            _FIRST_STATES[module.__name__, name] = generator.bit_generator.state


def _record(row: dict[str, str], path: Path) -> TensorRecord:
    cann = row["Data Type"].removeprefix("DT_")
    dtype = next(dtype for dtype in ALL if dtype.cann == cann)
    number = int if dtype.exact else float
    key = TensorKey(row["Op Name"], row["Input/Output"].lower(), int(row["Index"]))
    stats = Stats(
        count=int(row["Count"]),
        max=number(row["Max Value"]),
        min=number(row["Min Value"]),
        avg=float(row["Avg Value"]),
        nan=int(row["Nan Count"]),
        neg_inf=int(row["Negative Inf Count"]),
        pos_inf=int(row["Positive Inf Count"]),
        digits=6,
    )
    shape = tuple(map(int, row["Shape"].split("x")))
    return TensorRecord(key, row["Op Type"], dtype.name, shape, path, stats=stats)


def real_table(name: str) -> StatsTable:
    """Table of a real model that CANN's dump code wrote: golden, regressed (one layer's weights), nan."""
    path = DATA / f"ppocr_cls_{name}.csv"
    with path.open(newline="") as file:
        return StatsTable.from_records(_record(row, path) for row in csv.DictReader(file))


def table_of(*rows: tuple[str, str, tuple[int, ...] | None, dict[str, Any]]) -> StatsTable:
    """Table of ``(key, dtype, shape, {statistic: value})`` rows."""
    return StatsTable.from_records(
        TensorRecord(TensorKey.parse(key), "", dtype, shape, Path("d"), stats=Stats(**stats))
        for key, dtype, shape, stats in rows
    )


def table_of_layers(values: Mapping[str, float], dtype: str = "float32") -> StatsTable:
    """Statistics of one tensor a layer, all of them the given value, in the order of execution."""
    return StatsTable.from_records(
        TensorRecord(
            *(TensorKey(name, "output", 0), "Conv", dtype, (2,), Path("d")),
            stats=Stats(2, value, value, value, None, 0, 0, 0),
        )
        for name, value in values.items()
    )


def on_a_terminal(command: Sequence[str], cwd: Path | None = None, **environment: str) -> tuple[int, str]:
    """Run a command whose output is a terminal; its exit code, and what was drawn there."""
    here, there = os.openpty()
    environment = {**os.environ, "TERM": "xterm", **environment}
    child = subprocess.Popen(command, cwd=cwd, stdin=there, stdout=there, stderr=there, env=environment)
    os.close(there)
    drawn = b""
    with suppress(OSError):  # how Linux tells that the other side is closed
        while piece := os.read(here, 1 << 16):
            drawn += piece
    os.close(here)
    return child.wait(), drawn.decode()


@pytest.fixture(scope="session")
def make_table() -> Callable[..., StatsTable]:
    """:func:`table_of`."""
    return table_of


@pytest.fixture(scope="session")
def defaults() -> Settings:
    """The settings of a run without options, written out."""
    return Settings(
        update_golden="",
        reason="",
        runtime="auto",
        output="",
        tolerances="",
        repeats=2,
        calibration_runs=20,
        golden_dir="golden",
        golden_variant="",
        preset="",
        fail_on="difference",
        escalate="on",
        dump_limit=1 << 30,
        auto_tensors=512 << 20,
        tensor_budget=256 << 20,
        golden_tensors="marker",
        tensor_store="",
        tensor_cache="",
        keep_dumps="failed",
        lang="auto",
        allow_in_ci=False,
    )


@pytest.fixture(scope="session")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """PP-OCR's angle classifier, operators named as in the samples; beside it (.npz) what it was given."""
    import numpy as np
    import onnx

    from pytest_npudump.demo import MODEL

    model = onnx.load(str(MODEL))
    for node in model.graph.node:
        if node.op_type != "Constant":
            node.name = f"net/{node.name}"
    path = tmp_path_factory.mktemp("model") / "classifier.onnx"
    onnx.save(model, str(path))
    picture = np.random.default_rng(0).normal(size=(1, 3, 48, 192)).astype(np.float32)
    np.savez(path.with_suffix(".npz"), x=picture)
    return path


@dataclass(frozen=True)
class Warm:
    """A process that has imported what sessions import, and is forked for each: see ``data/warm.py``."""

    socket: Path

    @property
    def client(self) -> list[str]:
        """Words before those of a command that is to run so: ``pytest ...`` or ``npudump ...``."""
        return [sys.executable, "-IS", str(TESTS / "data/ask.py"), str(self.socket)]

    def run(self, *words: str) -> tuple[int, str, str]:
        """Run a command in this folder, with these variables; return how it ended and what it printed."""
        with TemporaryFile() as nothing, TemporaryFile() as out, TemporaryFile() as err:
            code: int = ASK(str(self.socket), list(words), (nothing.fileno(), out.fileno(), err.fileno()))
            printed = []
            for file in (out, err):
                file.seek(0)
                printed.append(file.read().decode())
        return code, printed[0], printed[1]


@pytest.fixture(scope="session")
def warm() -> Iterator[Warm]:
    """Sessions and commands in processes of their own that need not start one from nothing."""
    with _warm() as found:
        yield found


@contextmanager
def _warm(*modules: str, **variables: str) -> Iterator[Warm]:
    folder = Path(tempfile.mkdtemp(prefix="npudump-warm-"))  # a path of a socket is short
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0", "LC_ALL": "C.UTF-8"}
    process = subprocess.Popen(
        [sys.executable, str(TESTS / "data/warm.py"), "serve", str(folder / "socket"), *modules],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=folder,
        env=environment | variables,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    yield Warm(folder / "socket")
    process.stdin.close()
    process.stdout.close()
    process.wait()
    shutil.rmtree(folder)


_DEMONSTRATED = """
import sys, warnings
warnings.simplefilter("default")
from pytest_npudump.cli import main
sys.exit(main(["demo"]))
"""


@pytest.fixture(scope="session")
def demonstration(tmp_path_factory: pytest.TempPathFactory, warm: Warm) -> tuple[Path, str]:
    """What ``npudump demo`` leaves in its folder, and prints on a terminal of 120 columns, under CI."""
    folder = tmp_path_factory.mktemp("demonstration")
    environment = {"CI": "true", "COLUMNS": "120", "PY_COLORS": "1"}
    done = subprocess.run(
        [*warm.client, "-c", _DEMONSTRATED],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    return folder / "npudump-demo", done.stdout


@pytest.fixture(scope="session")
def commands(warm: Warm, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ``pytest`` and ``npudump`` for ``PATH``, which are forked."""
    folder = tmp_path_factory.mktemp("commands")
    for name, wide in (("pytest", ""), ("npudump", "unset COLUMNS; ")):
        (folder / name).write_text(f'#!/bin/sh\n{wide}exec {shlex.join([*warm.client, name])} "$@"\n')
        (folder / name).chmod(0o755)
    return folder


@pytest.fixture
def collects(warm: Warm, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sessions and commands that this process starts are forked, not started from nothing."""
    for module, name, value in runpy.run_path(str(TESTS / "data/warm.py"))["forking"](warm.client):
        monkeypatch.setattr(module, name, value)


@pytest.fixture(scope="session")
def warm_torch() -> Iterator[Warm]:
    """As ``warm``, with the real torch imported: ``NPUDUMP_TORCHAIR`` names a folder with it.

    Its compiler is imported by the first operator that a mode of Python sees, and is longer to import.
    """
    torch = os.environ.get("NPUDUMP_TORCHAIR", "")
    if not torch:
        pytest.skip("NPUDUMP_TORCHAIR names no folder with torch")
    variables = {"PYTHONWARNINGS": "ignore", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    # Read as its compiler is imported: for few kernels nothing is tried out, and no headers are compiled.
    variables |= {"TORCHINDUCTOR_VEC_ISA_OK": "0", "TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS": "0"}
    variables |= {"TORCHINDUCTOR_COMPILE_THREADS": "1"}
    variables["PYTHONPATH"] = os.pathsep.join([torch, str(TESTS.parent)])
    with _warm("torch._dynamo", **variables) as found:
        yield found


@pytest.fixture(scope="session")
def on_real_torch(warm_torch: Warm) -> Callable[..., Any]:
    """Return what runs a script below ``data`` on the real torch, and returns the JSON it prints last."""

    def run(script: str) -> Any:
        code, printed, errors = warm_torch.run(str(TESTS / "data" / script))
        assert code == 0, errors
        return json.loads(printed.splitlines()[-1])

    return run


@pytest.fixture(scope="session")
def where_killed(warm: Warm) -> Callable[..., Any]:
    """Return what runs a script that kills work by ``data/killed.py``, and returns the JSON it prints."""
    if not hasattr(signal, "SIGKILL"):
        pytest.skip("nothing is killed like that here")

    def run(script: str, *words: object) -> Any:
        with mock.patch.dict(os.environ, PYTHONPATH=str(TESTS / "data")):
            code, printed, errors = warm.run("-c", script, *map(str, words))
        assert code == 0, errors
        return json.loads(printed)

    return run


_SERVERS = """
import os, signal, sys
from contextlib import redirect_stdout
import moto.s3.responses
from moto.server import ThreadedMotoServer

for line in sys.stdin:
    if line.strip():
        os.kill(int(line), signal.SIGKILL)
        os.waitpid(int(line), 0)
        print(flush=True)
    elif not os.fork():
        server = ThreadedMotoServer("127.0.0.1", 0)
        with redirect_stdout(sys.stderr):
            server.start()
        print(os.getpid(), server.get_host_and_port()[1], flush=True)
        signal.pause()
os.killpg(0, signal.SIGKILL)
"""
"""Forks a server for each empty line, and ends one for a line that has its number: it imports for all."""


@dataclass
class S3Server:
    """A real S3 server in a process of its own, with an empty bucket."""

    number: str
    endpoint: str
    ask: Callable[[str], str]
    stopped: bool = False
    url: str = ""

    def client(self) -> Any:
        """Return Amazon's own client, for looking past the code under test."""
        import boto3

        return boto3.client("s3", endpoint_url=self.endpoint)

    def objects(self) -> dict[str, bytes]:
        """Return all that the bucket holds by name."""
        bucket = self.url.split("/")[2]
        client = self.client()
        names = [one["Key"] for one in client.list_objects_v2(Bucket=bucket).get("Contents", [])]
        return {name: client.get_object(Bucket=bucket, Key=name)["Body"].read() for name in names}

    def stop(self) -> None:
        """Kill it; whoever is talking to it finds the connection closed."""
        if not self.stopped:
            self.ask(self.number)
        self.stopped = True


@pytest.fixture(scope="session")
def s3_server() -> Iterator[Callable[[], S3Server]]:
    """Return what starts a server, unless the last one serves still."""
    # What a session within a test imports first, its end unloads again.
    for name in ("fsspec.implementations.local", "fsspec.implementations.memory", "boto3", "s3fs"):
        import_module(name)

    servers: list[S3Server] = []
    command = [sys.executable, "-c", _SERVERS]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, text=True, start_new_session=True, **pipes) as process:  # type: ignore[call-overload]

        def ask(line: str) -> str:
            process.stdin.write(f"{line}\n")
            process.stdin.flush()
            answer: str = process.stdout.readline()
            return answer

        def start() -> S3Server:
            if not servers or servers[-1].stopped:
                number, port = ask("").split()
                servers.append(S3Server(number, f"http://127.0.0.1:{port}", ask))
            return servers[-1]

        yield start


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, s3_server: Callable[[], S3Server]) -> S3Server:
    """A server that fsspec finds by the variables that Amazon's clients read, with a bucket of its own."""
    from pytest_npudump.golden import objects

    # One that is gone is asked once: between attempts are seconds.
    monkeypatch.setitem(objects._PATIENCE, "retries", {"total_max_attempts": 1, "mode": "standard"})
    known = {"ACCESS_KEY_ID": "key", "SECRET_ACCESS_KEY": "secret", "DEFAULT_REGION": "us-east-1"}
    files = {name: str(tmp_path / "no-such-file") for name in ("CONFIG_FILE", "SHARED_CREDENTIALS_FILE")}
    for name, value in {**known, **files}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    server = s3_server()
    bucket = f"bucket-{server.endpoint.rpartition(':')[2]}-{tmp_path.name.replace('_', '-').lower()[-40:]}"
    server.url = f"s3://{bucket}/tensors"
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.endpoint)
    objects.object_store.cache_clear()  # one of an earlier server talks to that
    server.client().create_bucket(Bucket=bucket)
    return server
