"""Tests of the flow without pytest: a runtime whose runs leave samples that CANN's own dump code wrote."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_npudump.compare.tolerances.rules import tolerances_for
from pytest_npudump.golden.variants import Goldens
from pytest_npudump.regression.case import Case
from pytest_npudump.regression.first_run import judge
from pytest_npudump.regression.result import Result
from pytest_npudump.regression.session import CaseSession
from pytest_npudump.request import DumpRequest, RunRequest
from pytest_npudump.runtime.base import Evidence
from pytest_npudump.settings import Settings

DATA = Path(__file__).parents[1] / "data"
HEALTHY = DATA / "reference" / "golden"
"""Tensors of five operators of PP-OCR's classifier, from a run on a CPU."""
REGRESSED = DATA / "reference" / "regressed"
"""The same with other weights in one convolution, and another choice of operators."""
PRINTED = DATA / "trees" / "acl-stats"
"""Statistics of its first operators as text, under names as files have them."""

BOTH = ("net/Add@6", "net/Conv@19", "net/MatMul@0", "net/Softmax@0")
"""Operators that both tensor samples have; the last two differ."""


_OPTIONS = {"update_golden", "dump_limit", "tensor_budget", "keep_dumps"}


@dataclass
class Activity:
    """What a healthy test did."""

    initialised: bool = True
    models: tuple[Path, ...] = ()
    executions: int = 1
    released: bool = False
    likely_cause: str = ""
    programs: tuple[str, ...] = ()
    evidence: Evidence = field(default_factory=Evidence)


@dataclass
class SampleRuntime:
    """Each run leaves the next sample, however its layers are chosen, with changes made to its files."""

    name: str = "acl"
    config_name: str = "acl.json"
    facts: Mapping[str, str] = field(default_factory=lambda: {"runtime": "acl", "soc": "Ascend310P3"})
    activity: Activity = field(default_factory=Activity)
    samples: list[tuple[Path, Callable[[Path], None]]] = field(default_factory=list)
    asked: list[tuple[Sequence[str] | None, str | None]] = field(default_factory=list)
    stop_error: Exception | None = None
    _dump_path: Path = Path()

    def producer(self) -> Mapping[str, str]:
        return self.facts

    def write_config(self, path: Path, request: RunRequest) -> None:
        path.write_text("{}")
        self.asked.append((request.layers, request.dump_data))
        self._dump_path = request.dump_path

    def start(self, config: Path, *, resumed: bool = False) -> None:  # noqa: ARG002 - the protocol's
        sample, change = self.samples.pop(0)
        shutil.copytree(sample, self._dump_path, dirs_exist_ok=True)
        change(self._dump_path)

    def stop(self) -> None:
        if self.stop_error is not None:
            raise self.stop_error


def unchanged(_: Path) -> None:
    """Leave a sample as it is."""


@dataclass
class Flow:
    """One test with a folder, a golden and a runtime of its own."""

    folder: Path
    settings: Settings
    runtime: SampleRuntime = field(default_factory=SampleRuntime)

    @property
    def golden(self) -> Path:
        return self.folder / "golden" / "test.yaml"

    def case(self, *, layers: tuple[str, ...] = BOTH, **given: Any) -> Case:
        """Return the case of a marker, and of the options :data:`_OPTIONS`."""
        options = {name: given.pop(name) for name in _OPTIONS & given.keys()}
        request = DumpRequest(**{"dump_data": "tensor", "layers": layers, **given})
        settings = self.settings._replace(**options)
        number = sum(1 for _ in self.folder.glob("dumps*"))
        return Case(
            nodeid="test.py::test",
            request=request,
            settings=settings,
            runtime=self.runtime,  # type: ignore[arg-type]
            goldens=Goldens("test.py::test", request, self.golden),
            tolerances=tolerances_for(request, settings, self.folder),
            directory=self.folder / f"dumps{number}",
            arguments=("test.py::test",),
            here=self.folder,
        )

    def session(self, case: Case, *samples: Path, change: Callable[[Path], None] = unchanged) -> CaseSession:
        """Return a session whose runs leave ``samples``; the last one is changed."""
        self.runtime.samples = [(sample, unchanged) for sample in samples[:-1]] + [(samples[-1], change)]
        return CaseSession(case)

    def first(self, case: Case, sample: Path, *, change: Callable[[Path], None] = unchanged) -> Result:
        """Judge a first run that left ``sample``."""
        session = self.session(case, sample, change=change)
        session.start()
        return judge(case, session.attempt)

    def record(self, sample: Path = HEALTHY, **given: Any) -> None:
        """Record the golden of ``sample``, with a second run where one is asked for."""
        session = self.session(self.case(update_golden="all", **given), sample, sample)
        run(session)
        if session.wants_second_run:
            run(session)
        assert session.good, session.result.problems
        session.commit()
        session.clean_up()


def run(session: CaseSession) -> None:
    """Make one run of a test."""
    session.start()
    session.finish()


def float16_at_end(dump: Path, name: str, count: int) -> np.ndarray:
    """The last output of an operator, by where CANN puts it: at the end of its file."""
    (path,) = [path for path in dump.rglob("*") if path.name.split(".")[1:2] == [name.replace("/", "_")]]
    return np.frombuffer(path.read_bytes()[-2 * count :], np.float16)


def files(dump: Path) -> Iterable[str]:
    """The operators of a dump, as its files' names have them."""
    return sorted(path.name.split(".")[1] for path in dump.rglob("*") if path.is_file())


@pytest.fixture
def flow(tmp_path: Path, defaults: Settings) -> Flow:
    return Flow(tmp_path, defaults._replace(repeats=1))
