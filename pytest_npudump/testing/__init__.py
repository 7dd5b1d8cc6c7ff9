"""Public: what a runtime or a file format outside of this package must do, as tests to subclass.

For who offers one as an entry point (:mod:`pytest_npudump.runtime.registry`,
:mod:`pytest_npudump.dump.files.formats`); ours pass the same tests. Needs the extra ``testing``::

    from pytest_npudump.testing import FormatConformance, Sample

    class TestMyFormat(FormatConformance):
        samples = (Sample(DATA / "two.my", {"conv1:output.0": numpy.load(DATA / "conv1.npy")}),)

        def read(self, path):
            return FORMAT.read(path)
"""

from __future__ import annotations

import math
import os
import pickle
import struct
import subprocess
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pytest

from pytest_npudump.dump.arrays.decode import load, why_opaque
from pytest_npudump.dump.columns import IO_ORDER
from pytest_npudump.dump.dtypes import BY_NAME, dtype_name
from pytest_npudump.dump.reader import read_dump
from pytest_npudump.dump.records import Stats, TensorKey, TensorRecord
from pytest_npudump.dump.table import sanitised_key
from pytest_npudump.errors import FormatError, MissingExtraError, NpudumpError, RuntimeUnavailableError
from pytest_npudump.request import DumpRequest, RunRequest
from pytest_npudump.runtime.base import Activity, Runtime
from pytest_npudump.runtime.registry import Provider

try:
    from hypothesis import HealthCheck, given, settings, strategies as st
except ModuleNotFoundError as error:
    raise MissingExtraError("pytest_npudump.testing", "hypothesis", "testing") from error


__all__ = ["FormatConformance", "RuntimeConformance", "Sample"]


_ALL = 512
"""Bytes of a file that is small enough to be cut everywhere."""
_SOME = 128
_NEAR = 2

_EDGES = {size: (0, 1, (1 << 8 * size - 1) - 1, 1 << 8 * size - 1, (1 << 8 * size) - 1) for size in (4, 8)}
LENGTHS: Final = (
    *(number.to_bytes(size, "little") for size, numbers in _EDGES.items() for number in numbers),
    struct.pack("<d", float("nan")),
    b"9" * 20,
)
"""Lengths and numbers of a hostile file."""


def cuts(size: int, near: Iterable[int] = ()) -> tuple[int, ...]:
    """Return the lengths at which a file of ``size`` bytes is cut off, each smaller than that.

    Args:
        size: of the whole file.
        near: places around which every length is taken: where tensors begin and end, say.
    """
    if size <= _ALL:
        return tuple(range(size))
    chosen = {*range(64), *range(0, size, size // _SOME + 1), *range(size - _NEAR, size)}
    for place in near:
        chosen |= {*range(place - _NEAR, place + _NEAR + 1)}
    return tuple(sorted(length for length in chosen if 0 <= length < size))


def damaged(content: bytes) -> st.SearchStrategy[bytes]:
    """Return a strategy for damaged ``content``: bytes changed, taken out or repeated, or a length forged."""
    place = st.integers(0, max(len(content) - 1, 0))

    def changed(at: int, value: int) -> bytes:
        return content[:at] + bytes([value]) + content[at + 1 :]

    def forged(at: int, number: bytes) -> bytes:
        return content[:at] + number + content[at + len(number) :]

    def without(at: int, count: int) -> bytes:
        return content[:at] + content[at + count :]

    def repeated(at: int, count: int) -> bytes:
        return content[: at + count] + content[at:]

    few = st.integers(1, 64)
    return st.one_of(
        st.builds(changed, place, st.integers(0, 255)),
        st.builds(forged, place, st.sampled_from(LENGTHS)),
        st.builds(without, place, few),
        st.builds(repeated, place, few),
        st.binary(max_size=64),
    )


_DIGITS = 6
"""Significant digits of statistics that do not say how many they have: CANN's own."""
_BYTE = 8


def assert_sound(record: TensorRecord, path: Path) -> None:
    """Check a record against its file: key, shape, and the extent of its bytes.

    Args:
        record: of a file that was read.
        path: the file.

    Raises:
        AssertionError: says what is wrong with which record.
    """
    key = record.key
    assert key.layer, f"{record}: a tensor needs its layer's name"
    assert key.io in IO_ORDER, f"{key}: expected one of {', '.join(IO_ORDER)}, got {key.io!r}"
    assert key.slot >= 0, f"{key}: a slot counts from 0"
    assert TensorKey.parse(str(key)) == key, f"{key}: does not survive being written"
    assert record.dtype, f"{key}: expected the name of a type, '-' where it is unknown"
    assert record.shape is None or all(dim >= 0 for dim in record.shape), f"{key}: shape {record.shape}"
    payload = record.payload
    if payload is None:
        return
    size = payload.path.stat().st_size
    assert payload.path == path, f"{key}: its bytes are said to be in {payload.path}"
    assert payload.offset >= 0, f"{key}: its bytes are said to begin at {payload.offset}"
    assert payload.nbytes >= 0, f"{key}: {payload.nbytes} bytes"
    end = payload.offset + payload.nbytes
    assert end <= size, f"{key}: its bytes are said to end at {end}, the file at {size}"
    if record.shape is not None and not why_opaque(record.dtype) and payload.kind == "raw":
        needed = -(-math.prod(record.shape) * BY_NAME[record.dtype].bits // _BYTE)
        assert payload.nbytes >= needed, (
            f"{key}: {record.dtype} of shape {record.shape} takes {needed} bytes, {payload.nbytes} are said"
        )


def assert_holds(records: Iterable[TensorRecord], expected: Mapping[str, np.ndarray | None]) -> None:
    """Check that records are of exactly these tensors, each once, and have their values.

    Args:
        records: what was read.
        expected: each tensor by its key (``conv1:output.0``; CANN's spelling of a name in files is the same),
            as somebody else computed or decoded it, in its own type and shape; None for one whose values are
            not known.

    Raises:
        AssertionError: says which tensor is missing, too many or different.
    """
    found: dict[str, TensorRecord] = {}
    for record in records:
        key = str(record.key.sanitised)
        assert key not in found, f"{record.key} is there twice"
        found[key] = record
    wanted = {sanitised_key(key): array for key, array in expected.items()}
    missing, more = wanted.keys() - found.keys(), found.keys() - wanted.keys()
    assert not missing, f"not read: {', '.join(sorted(missing))}; read: {', '.join(sorted(found))}"
    assert not more, f"read, and not in the file: {', '.join(sorted(more))}"
    for key, array in wanted.items():
        if array is not None:
            _assert_equal(found[key], array)


def _assert_equal(record: TensorRecord, array: np.ndarray) -> None:
    if record.shape is not None:
        assert record.shape == array.shape, f"{record.key}: shape {record.shape}, expected {array.shape}"
    if record.payload is not None and not why_opaque(record.dtype):
        values = load(record.payload, record.dtype, record.shape)
        assert values.dtype.name == array.dtype.name, f"{record.key}: {values.dtype}, expected {array.dtype}"
        same = values.tobytes() == np.ascontiguousarray(array).tobytes()
        assert same, f"{record.key}: the values differ: {values}, expected {array}"
    if record.payload is None:
        assert record.stats not in {None, Stats()}, f"{record.key}: neither values nor statistics"
        dtype = dtype_name(array.dtype.name)
        assert record.dtype in {"-", dtype}, f"{record.key}: {record.dtype}, expected {dtype}"
    if record.stats is not None:
        _assert_statistics(str(record.key), record.stats, array)


def _assert_statistics(key: str, stats: Stats, array: np.ndarray) -> None:
    """Compare the statistics with numpy's, in float64."""
    values = array.astype(np.float64).reshape(-1)
    finite = values[np.isfinite(values)]
    counts = {
        "count": values.size,
        "nan": int(np.isnan(values).sum()),
        "neg_inf": int(np.isneginf(values).sum()),
        "pos_inf": int(np.isposinf(values).sum()),
    }
    for name, count in counts.items():
        said = getattr(stats, name)
        assert said in {None, count}, f"{key}: {name} is {said}, expected {count}"
    if finite.size != values.size or not values.size:
        return
    root = math.sqrt(float((values * values).sum()))
    scale = float(np.abs(values).max())
    expected = {"max": values.max(), "min": values.min(), "avg": values.mean(), "l2norm": root}
    for name, value in expected.items():
        said = getattr(stats, name)
        bound = max(abs(value), scale) * 10.0 ** (1 - (stats.digits or _DIGITS))
        assert said is None or abs(float(said) - value) <= bound, f"{key}: {name} is {said}, expected {value}"


_HANG = 10.0
"""Seconds after which a reader is taken to wait for what never comes."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A file of the format that another program wrote.

    Attributes:
        path: where it is kept.
        tensors: what is in it, by key (``conv1:output.0``), as somebody else computed or decoded it; None for
            a tensor whose values are not known.
        name: what the file is called in a dump, where its name matters; "" for the one it has.
    """

    path: Path
    tensors: Mapping[str, np.ndarray | None]
    name: str = ""


class FormatConformance:
    """The tests of a file format; to subclass as ``class TestMyFormat(FormatConformance)``.

    Attributes:
        samples: files that another program wrote; one at least, and one of each kind that there is.
        has_lines: whether a file that is cut off behind a line is a whole one to whoever reads it, with less
            in it. Tables are so.
    """

    samples: Sequence[Sample] = ()
    has_lines = False

    def read(self, path: Path) -> Sequence[TensorRecord]:
        """Read one file.

        Raises:
            FormatError: the file is damaged.
        """
        raise NotImplementedError(
            f"{type(self).__name__}.read(path): expected a method that returns the tensors of a file"
        )

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Run each test on every sample."""
        if "sample" in metafunc.fixturenames:
            assert self.samples, f"{type(self).__name__}.samples: expected files that another program wrote"
            ids = [sample.name or sample.path.name for sample in self.samples]
            metafunc.parametrize("sample", self.samples, ids=ids)

    @pytest.fixture
    def file(self, sample: Sample, tmp_path: Path) -> Path:
        """A copy of the sample under its name in a dump."""
        path = tmp_path / "dump" / (sample.name or sample.path.name)
        path.parent.mkdir()
        path.write_bytes(sample.path.read_bytes())
        return path

    def test_every_tensor_is_read_with_its_values(self, sample: Sample, file: Path) -> None:
        """Check that nothing is left out in silence, and nothing made up."""
        assert_holds(self.read(file), sample.tensors)

    def test_records_are_sound(self, file: Path) -> None:
        """Keys, shapes and extents are such as the rest of the package relies on."""
        for record in self.read(file):
            assert_sound(record, file)

    def test_reading_twice_says_the_same(self, file: Path) -> None:
        """A reader keeps nothing from one file to the next."""
        assert repr([*self.read(file)]) == repr([*self.read(file)])

    def test_records_cross_processes(self, file: Path) -> None:
        """Files are read by several processes."""
        records = [*self.read(file)]
        assert repr(pickle.loads(pickle.dumps(records))) == repr(records)  # noqa: S301 - made in this line

    def test_no_file_is_left_open(self, file: Path) -> None:
        """A dump has a hundred thousand files."""
        self.read(file)
        before = _open_files()
        for _ in range(3):
            self.read(file)
        assert _open_files() <= before

    def test_a_file_that_is_cut_off_is_refused(self, file: Path) -> None:
        """Check files cut at any length; the bytes behind the last one that counts may go."""
        whole = [*self.read(file)]
        content = file.read_bytes()
        payloads = [record.payload for record in whole if record.payload]
        near = [place for one in payloads for place in (one.offset, one.offset + one.nbytes)]
        for length in cuts(len(content), near):
            file.write_bytes(content[:length])
            found = self._read_or_refuse(file)
            if found is None:
                continue
            alike = _alike(found, whole)
            less = (
                self.has_lines
                and alike
                and len(found) < len(whole)
                and (content[length - 1 : length] == b"\n" or content[length : length + 1] in {b"\n", b"\r"})
            )
            assert less or (alike and len(found) == len(whole)), (
                f"cut off at byte {length} of {len(content)}, and read as {len(found)} of {len(whole)} "
                f"tensors without an error"
            )

    @settings(
        max_examples=100,
        deadline=None,
        database=None,
        suppress_health_check=[
            HealthCheck.function_scoped_fixture,
            HealthCheck.differing_executors,  # each format is a class of its own
            HealthCheck.too_slow,
        ],
    )
    @given(data=st.data())
    def test_a_damaged_file_is_read_as_far_as_it_goes_or_refused(
        self, file: Path, sample: Sample, data: st.DataObject
    ) -> None:
        """Whatever a file says of lengths: no other error, no extent beyond its end."""
        file.write_bytes(data.draw(damaged(sample.path.read_bytes())))
        for record in self._read_or_refuse(file) or ():
            assert_sound(record, file)

    def test_an_empty_file_is_refused(self, file: Path) -> None:
        """It is what a full disk leaves."""
        file.write_bytes(b"")
        assert self._read_or_refuse(file) is None, "an empty file was read without an error"

    def test_what_is_no_file_is_refused_and_never_waited_for(self, file: Path) -> None:
        """A folder, a pipe that nobody writes to, and nothing at all."""
        file.unlink()
        assert self._read_or_refuse(file) is None, "a file that is not there was read"
        file.mkdir()
        assert self._read_or_refuse(file) is None, "a folder was read"
        file.rmdir()
        os.mkfifo(file)
        reader = threading.Thread(target=self._read_pipe, args=(file,), daemon=True)
        reader.start()
        reader.join(_HANG)
        waits = reader.is_alive()
        if waits:
            with suppress(OSError):
                os.close(os.open(file, os.O_WRONLY | os.O_NONBLOCK))
            reader.join(_HANG)
        assert not waits, "the reader waits for a pipe that nobody writes to"

    def _read_pipe(self, path: Path) -> None:
        with suppress(FormatError, OSError):
            self.read(path)

    def _read_or_refuse(self, path: Path) -> Sequence[TensorRecord] | None:
        """Return the records; None where the file is refused, by an error that names file and fault."""
        try:
            return self.read(path)
        except (FormatError, OSError) as error:
            refused = error
        if isinstance(refused, FormatError):
            assert str(path) in str(refused), f"the error does not name {path}: {refused}"
            assert refused.reason, "the error does not say what is wrong"
            size = path.stat().st_size if path.is_file() else 0
            assert refused.offset is None or 0 <= refused.offset <= size, (
                f"the error names byte {refused.offset} of a file of {size}: {refused}"
            )
        else:
            assert not path.is_file(), f"{path} can be read, and failed with {refused!r}"
        return None


def _open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def _alike(found: Sequence[TensorRecord], whole: Sequence[TensorRecord]) -> bool:
    """Return whether each record found is one of the whole file, in order."""
    remaining = iter(map(repr, whole))  # by their text, in which NaN equals NaN
    return all(any(repr(record) == other for other in remaining) for record in found)


_OTHERS = 0o077
_PROBE = """\
import importlib, sys
before = set(sys.modules)
importlib.import_module(sys.argv[1])
heavy = {name.partition(".")[0] for name in set(sys.modules) - before} & set(sys.argv[2].split(","))
sys.exit(f"imports {', '.join(sorted(heavy))}" if heavy else 0)
"""


class RuntimeConformance:
    """The tests of a runtime; to subclass as ``class TestMyRuntime(RuntimeConformance)``.

    Attributes:
        request: what is dumped; tensors unless the runtime has statistics only.
        provider: name of the module that provides the runtime; "" where there is none.
        clients: modules that the provider must not import before the runtime is loaded; numpy is none either.
        model: a model file that the runtime loads; None where it loads none.
        arrays: what the model takes.
        one_dump_a_process: whether the client reads one configuration a process, and goes on dumping by it.
            The fixture ``runtime`` must then give each test the client of a new process.
    """

    request = DumpRequest(dump_data="tensor")
    provider = ""
    clients: Sequence[str] = ()
    model: Path | None = None
    arrays: Sequence[np.ndarray] = ()
    one_dump_a_process = False

    @pytest.fixture
    def runtime(self) -> Runtime:
        """Give a runtime under which nothing has been dumped, and close it afterwards."""
        raise NotImplementedError(
            f"{type(self).__name__}.runtime: expected a fixture that returns the runtime to test"
        )

    def execute(self, runtime: Runtime) -> Mapping[str, np.ndarray | None]:
        """Run operators, the same whenever this is called.

        Returns:
            What a dump of them holds, by key (``conv1:output.0``), as somebody else computes it; None for a
            tensor whose values are not known.
        """
        raise NotImplementedError(
            f"{type(self).__name__}.execute(runtime): expected a method that runs operators and returns "
            f"what a dump of them holds, an array or None by key (conv1:output.0)"
        )

    @pytest.fixture
    def dump_path(self, tmp_path: Path) -> Path:
        """An empty folder for a dump."""
        return _folder(tmp_path, "dump")

    def start(
        self, runtime: Runtime, dump_path: Path, *, resumed: bool = False, request: DumpRequest | None = None
    ) -> Path:
        """Switch the dump into ``dump_path`` on, and return its configuration."""
        config = dump_path.with_name(f"{dump_path.name}-{runtime.config_name}")
        runtime.write_config(config, RunRequest(request or self.request, dump_path))
        runtime.start(config, resumed=resumed)
        return config

    def test_it_has_all_parts_of_the_protocol(self, runtime: Runtime) -> None:
        """Check the protocols of the runtime and of its runs."""
        assert not _missing(runtime, Runtime), f"the runtime lacks {', '.join(_missing(runtime, Runtime))}"
        lacks = _missing(runtime.activity, Activity)
        assert not lacks, f"its activity lacks {', '.join(lacks)}"
        assert runtime.config_name, "config_name: expected the name of a file"
        assert os.sep not in runtime.config_name, "config_name: expected a name, without a folder"

    def test_a_golden_can_say_where_it_comes_from(self, runtime: Runtime) -> None:
        """Plain text that names the runtime, at any time."""
        facts = dict(runtime.producer())
        assert facts.get("runtime") == runtime.name, (
            f"producer(): expected runtime {runtime.name!r}, in {facts}"
        )
        wrong = {name: fact for name, fact in facts.items() if not (name and isinstance(fact, str))}
        assert not wrong, f"producer(): expected text, got {wrong}"

    def test_the_configuration_is_the_users_own_and_names_the_dump(
        self, runtime: Runtime, dump_path: Path
    ) -> None:
        """Nobody else may read what a model is made of, or send its dump elsewhere."""
        config = dump_path.with_name(runtime.config_name)
        runtime.write_config(config, RunRequest(self.request, dump_path))
        assert not config.stat().st_mode & _OTHERS, "the configuration can be read by others"
        assert str(dump_path) in config.read_text(encoding="utf-8"), "the dump's path is not in it"
        assert not [*dump_path.iterdir()], "writing a configuration dumps nothing"

    def test_what_runs_between_start_and_stop_is_dumped(self, runtime: Runtime, dump_path: Path) -> None:
        """All of it, and on disk when stop() returns."""
        self.start(runtime, dump_path)
        expected = self.execute(runtime)
        runtime.stop()
        self._assert_dumped(dump_path, expected)

    def test_what_ran_before_is_not_dumped(self, runtime: Runtime, dump_path: Path) -> None:
        """Check also values that the device computes later; a client without that knowledge must refuse."""
        self.execute(runtime)
        try:
            self.start(runtime, dump_path)
        except RuntimeUnavailableError:
            assert self.one_dump_a_process, "start() is refused behind a run, which tests may begin with"
            return
        expected = self.execute(runtime)
        runtime.stop()
        self._assert_dumped(dump_path, expected)

    def test_what_runs_afterwards_is_not_dumped(self, runtime: Runtime, dump_path: Path) -> None:
        """A dump that is off stays as it is."""
        if self.one_dump_a_process:
            pytest.skip("the client goes on dumping in this process")
        self.start(runtime, dump_path)
        expected = self.execute(runtime)
        runtime.stop()
        self.execute(runtime)
        self._assert_dumped(dump_path, expected)

    def test_each_dump_holds_its_own_run(self, runtime: Runtime, tmp_path: Path) -> None:
        """A second dump goes elsewhere, or is refused aloud."""
        first, second = _folder(tmp_path, "first"), _folder(tmp_path, "second")
        self.start(runtime, first)
        expected = self.execute(runtime)
        runtime.stop()
        if self.one_dump_a_process:
            with pytest.raises(RuntimeUnavailableError):
                self.start(runtime, second)
            return
        self.start(runtime, second)
        self.execute(runtime)
        runtime.stop()
        self._assert_dumped(first, expected)
        self._assert_dumped(second, expected)

    def test_a_dump_that_holds_nothing_is_explained(self, runtime: Runtime, dump_path: Path) -> None:
        """Without a run: no files, no count, and a cause in words or none."""
        self.start(runtime, dump_path)
        runtime.stop()
        activity = runtime.activity
        assert not [path for path in dump_path.rglob("*") if path.is_file()], "files without a run"
        assert (activity.executions, activity.models) == (0, ()), "a count without a run"
        assert isinstance(activity.likely_cause, str)
        assert not activity.evidence.gaps, f"gaps without a run: {activity.evidence.gaps}"

    def test_stopping_and_closing_again_does_nothing(self, runtime: Runtime, dump_path: Path) -> None:
        """Nor does it where no dump was ever on."""
        runtime.stop()
        self.start(runtime, dump_path)
        expected = self.execute(runtime)
        for end in (runtime.stop, runtime.stop, runtime.close, runtime.close, runtime.stop):
            end()
        self._assert_dumped(dump_path, expected)

    def test_the_process_is_left_as_it_was(self, runtime: Runtime, dump_path: Path) -> None:
        """Environment and working directory, whatever the dump needed of them."""
        before = dict(os.environ), Path.cwd(), [*sys.path]
        self.start(runtime, dump_path)
        self.execute(runtime)
        runtime.stop()
        runtime.close()
        assert (dict(os.environ), Path.cwd(), [*sys.path]) == before

    def test_what_is_said_of_a_run_begins_anew_with_each(self, runtime: Runtime, tmp_path: Path) -> None:
        """Unless the run is resumed, as a capture within one test is."""
        self.start(runtime, _folder(tmp_path, "first"))
        runtime.hand_over("./main --config acl.json", (tmp_path / "net.om",))
        runtime.stop()
        assert runtime.activity.programs == ("./main --config acl.json",)
        assert tmp_path / "net.om" in runtime.activity.models
        try:
            self.start(runtime, _folder(tmp_path, "second"), resumed=True)
        except RuntimeUnavailableError:
            assert self.one_dump_a_process, "start(resumed=True) is refused"
            return
        runtime.stop()
        assert runtime.activity.programs, "a resumed run has forgotten its programs"
        self.start(runtime, _folder(tmp_path, "third"))
        runtime.stop()
        assert not [*runtime.activity.programs, *runtime.activity.models], "a new run remembers another"

    def test_a_dump_that_is_left_to_the_test_is_off(self, runtime: Runtime, dump_path: Path) -> None:
        """After release() only what the test itself switches on is dumped; asking again does nothing."""
        if self.one_dump_a_process:
            pytest.skip("whoever takes the configuration need not switch anything on")
        self.start(runtime, dump_path)
        runtime.release()
        runtime.release()
        assert runtime.activity.released
        self.execute(runtime)
        runtime.stop()
        assert not [path for path in dump_path.rglob("*") if path.is_file()], "dumped after release()"

    def test_a_model_file_that_is_not_there_is_refused(self, runtime: Runtime, tmp_path: Path) -> None:
        """Check for an error that names the file, whether the runtime loads models or not."""
        suffix = self.model.suffix if self.model is not None else ".om"
        with pytest.raises(NpudumpError, match="absent"):
            runtime.load_model(tmp_path / f"absent{suffix}")

    def test_a_model_is_counted_run_and_closed(self, runtime: Runtime, dump_path: Path) -> None:
        """Its runs count, closing twice is allowed, and a closed one runs no more."""
        if self.model is None:
            pytest.skip("the runtime loads no model files")
        self.start(runtime, dump_path)
        with runtime.load_model(self.model) as session:
            assert session.executions == 0
            outputs = session.run(*self.arrays)
            assert outputs, "a model without outputs"
            assert session.executions == 1
        session.close()
        with pytest.raises(NpudumpError):
            session.run(*self.arrays)
        assert session.executions == 1
        assert self.model in runtime.activity.models
        runtime.stop()

    def test_the_provider_imports_nothing_that_takes_long(self) -> None:
        """Neither numpy nor the client: it is asked before anybody knows whether a test needs them."""
        if not self.provider:
            pytest.skip("no provider is named")
        __import__(self.provider)
        assert isinstance(sys.modules[self.provider], Provider), f"{self.provider} lacks a function"
        command = [sys.executable, "-c", _PROBE, self.provider, ",".join((*self.clients, "numpy"))]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own
        assert ended.returncode == 0, ended.stderr

    def _assert_dumped(self, dump_path: Path, expected: Mapping[str, np.ndarray | None]) -> None:
        dump = read_dump(dump_path, one_run=self.one_dump_a_process)
        assert not dump.problems, dump.problems
        for record in dump.records:
            assert_sound(record, record.path)
        assert_holds(dump.records, expected)


def _folder(parent: Path, name: str) -> Path:
    folder = parent / name
    folder.mkdir(mode=0o700)
    return folder


def _missing(found: object, protocol: type) -> list[str]:
    """Return the members of a protocol that ``found`` lacks."""
    wanted = {*vars(protocol), *protocol.__annotations__}
    return sorted(name for name in wanted if not name.startswith("_") and not hasattr(found, name))
