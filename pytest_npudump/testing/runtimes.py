"""Conformance of a runtime: it dumps all that runs between start and stop, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_npudump.dump.reader import read_dump
from pytest_npudump.errors import NpudumpError, RuntimeUnavailableError
from pytest_npudump.request import DumpRequest, RunRequest
from pytest_npudump.runtime.base import Activity, Runtime
from pytest_npudump.runtime.registry import Provider
from pytest_npudump.testing.file_formats import assert_holds, assert_sound

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np

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
