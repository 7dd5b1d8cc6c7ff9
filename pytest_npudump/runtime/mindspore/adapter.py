"""Adapter for MindSpore: its graphs run in this process, and dump by an environment variable.

MindSpore reads the file that ``MINDSPORE_DUMP_CONFIG`` names with the first graph that the process compiles,
and never another: not a file that the variable names later, nor the same one rewritten; nor does it stop
dumping where the variable is gone. So one process can run one marked test once.

It copies the configuration it has read to ``rank_{r}/.dump_metadata``, and lists each graph's kernels in
``rank_{r}/execution_order/ms_execution_order_graph_{g}.csv``. Once a run matched ``iteration``, its number
stands in ``ms_global_execution_order_graph_{g}.csv`` beside it, whatever ``kernels`` selects.

For a calibration the inputs of cells are perturbed. The outermost cell that is called is a model, and
the tensors among its arguments are what it is fed. It gets others in their place, as a MindSpore tensor does
not tell where its values lie. While it runs MindSpore is as it was. What ``mindspore.jit`` made of a function
is no cell, and gets what it is given.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from pytest_npudump.config.acl_json import dump_section, write_acl_json
from pytest_npudump.config.data_dump import check_request, data_dump_settings, version_of, write_data_dump
from pytest_npudump.errors import FormatError, RuntimeUnavailableError, in_one_line, said
from pytest_npudump.language.text import first_of
from pytest_npudump.runtime.acl import variable_facts
from pytest_npudump.runtime.base import Evidence, ModelSession
from pytest_npudump.runtime.replacement import PerturbedCalls, VariedRuntime
from pytest_npudump.scene import SCENES
from pytest_npudump.storage.regular_file import read_small

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pytest_npudump.request import RunRequest


_VARIABLE = "MINDSPORE_DUMP_CONFIG"
_ACL_VARIABLE = "MS_ACL_DUMP_CFG_PATH"
_WAY_OUT = "run it in a process of its own: isolation='process' in the marker"


_KERNELS = "rank_[0-9]*/execution_order/ms_execution_order_graph_*.csv"
_RUNS = "rank_[0-9]*/execution_order/ms_global_execution_order_graph_*.csv"
_NO_GRAPH = said(
    "MindSpore compiled no graph while the dump was on, and dumps nothing of what runs "
    "in PyNative mode: call the network under mindspore.jit, or after "
    "mindspore.set_context(mode=mindspore.GRAPH_MODE), inside the test or a "
    "function-scoped fixture (a graph that this process compiled before the test began "
    "has the same effect: MindSpore reads its configuration with the first one)"
)
_NO_OPERATOR = (
    "no aclop kernel ran on Ascend while the dump was on: scene='op' dumps those alone, by the file that "
    "MS_ACL_DUMP_CFG_PATH names; most operators of MindSpore 2.7 and later are aclnn: use scene='model'"
)


@dataclass(slots=True)
class MindSporeActivity:
    """Activity since the dump was asked for.

    Attributes:
        dump_path: where MindSpore was told to dump; None where no dump was asked for.
        models: MindIR files that were loaded.
        kernels: what the configuration selects; empty for everything.
        iteration: which runs of graphs the configuration selects.
        released: False: nobody but MindSpore can switch the dump on.
        programs: programs that inherited the configuration.
        operators: whether single operators are dumped, which leave none of these files.
        cells: whether only what ``mindspore.set_dump`` names is dumped.
        evidence: what shows that programs ran under the dump.
    """

    dump_path: Path | None = None
    models: tuple[Path, ...] = ()
    kernels: tuple[str, ...] = ()
    iteration: str = "all"
    released: bool = False
    programs: tuple[str, ...] = ()
    operators: bool = False
    cells: bool = False
    evidence: Evidence = field(default_factory=Evidence)

    @property
    def initialised(self) -> bool:
        """Return whether MindSpore has read the configuration, with its first operator or graph."""
        return any(self._left("rank_[0-9]*/.dump_metadata"))

    @property
    def executions(self) -> int:
        """Number of graph runs that MindSpore lists: at least one where any ran, some are not listed."""
        return sum(len(lines) for lines in map(_lines, self._left(_RUNS)))

    @property
    def likely_cause(self) -> str:
        """Likely cause of an empty dump."""
        path, executions = self.dump_path, self.executions
        lost = path is None or not path.is_dir() or not os.access(path, os.W_OK)
        causes = (
            (self.operators, _NO_OPERATOR),
            (lost, f"MindSpore cannot write to {path}, which it does not count as an error"),
            (not self._left(_KERNELS), _NO_GRAPH),
            (
                not executions and self.iteration != "all",
                (
                    f"MindSpore compiled a graph, and dump_step={self.iteration!r} selects none of its runs "
                    f"(they count from 0 in each process)"
                ),
            ),
            (not executions, "MindSpore compiled a graph which then never ran"),
            (
                self.cells,
                "dump_mode 2 dumps cells that mindspore.set_dump() named before their graph was compiled",
            ),
            (
                self.kernels,
                f"no operator that ran has a name that the marker's layers select; {self._known()}",
            ),
            (
                True,
                said(
                    "MindSpore ran a graph under the dump and wrote no tensor: look for its [ERROR] "
                    "lines in the captured output, such as a full disk or a dump path that became "
                    "unwritable"
                ),
            ),
        )
        return next(words for applies, words in causes if applies)

    def _known(self) -> str:
        names = dict.fromkeys(name for path in self._left(_KERNELS) for name in _lines(path)[1:])
        return f"MindSpore lists {len(names)}: {first_of(names)}" if names else "MindSpore lists none"

    def _left(self, pattern: str) -> list[Path]:
        return sorted(self.dump_path.glob(pattern)) if self.dump_path is not None else []


def _lines(path: Path) -> list[str]:
    """Return the lines of a file that hold something; none where it cannot be read."""
    try:
        return read_small(path).decode("utf-8", "replace").split()
    except FormatError:
        return []


_COMPILERS = ("mindspore.graph.api", "mindspore.common.api")


def has_compiled() -> bool:
    """Return whether a graph of this process is known to be compiled; graphs that are gone cannot be seen."""
    for name in _COMPILERS:
        compiler = sys.modules.get(name)
        functions = getattr(compiler, "ms_compile_cache", ())
        if functions or any(getattr(compiler, "cells_compile_cache", {}).values()):
            return True
    return False


def synchronize(mindspore: Any) -> None:
    """Wait for the device; ``runtime.synchronize`` waits for nothing on CPU, and prints an error.

    Raises:
        RuntimeUnavailableError: an operator failed, or this MindSpore has no known way to wait.
    """
    core = getattr(mindspore, "_c_expression", None)
    wait = getattr(core, "synchronize", None)
    if wait is None:
        compiler = next(filter(None, map(sys.modules.get, _COMPILERS)), None)
        executor = getattr(compiler, "_pynative_executor", None)
        wait = getattr(executor, "sync", None)
    if wait is None:
        raise RuntimeUnavailableError(
            f"MindSpore {mindspore.__version__} has no known way to wait for the end of a run, without which "
            f"its dump may be incomplete; use MindSpore 2.3 or later"
        )
    try:
        wait()
    except RuntimeError as error:
        raise RuntimeUnavailableError(
            f"an operator failed while the dump was on: {in_one_line(error)}"
        ) from error


@dataclass(slots=True)
class MindSporeRuntime(VariedRuntime):
    """Dumps the graphs that MindSpore runs in this process.

    Attributes:
        mindspore: the module.
        device: device id that is made the current one; with 0 MindSpore's own choice stays.
        name: ``mindspore``.
        config_name: name of the file that configures the dump.
    """

    seen_as_inputs: ClassVar[str] = "tensors that a mindspore.nn.Cell is called with; no functions of jit"

    mindspore: Any
    device: int = 0
    name: str = "mindspore"
    config_name: str = "data_dump.json"
    activity: MindSporeActivity = field(default_factory=MindSporeActivity)
    _before: dict[str, str | None] = field(default_factory=dict)
    _dumping: bool = False
    _device_set: bool = False
    _varied: VariedCells = field(init=False)
    _read: ClassVar[list[Path]] = []

    def __post_init__(self) -> None:
        """Begin with nothing that varies."""
        self._varied = VariedCells(self.mindspore)

    @property
    def target(self) -> str:
        """``device_target``: ``Ascend``, ``CPU`` or ``GPU``."""
        return str(self.mindspore.get_context("device_target"))

    @property
    def version(self) -> tuple[int, int]:
        """Major and minor version of the module."""
        return version_of(str(self.mindspore.__version__))

    def producer(self) -> Mapping[str, str]:
        """Return runtime, version, device and what variables switch, as a golden records them."""
        target = self.target
        facts = {"runtime": self.name, "mindspore": str(self.mindspore.__version__), "device_target": target}
        if target != "CPU":
            with suppress(RuntimeError, AttributeError, ValueError):  # a fact on which nothing depends
                facts["soc"] = str(self.mindspore.hal.get_device_name(self.device))
            facts |= variable_facts()
        return facts

    def write_config(self, path: Path, request: RunRequest) -> None:
        """Write the data_dump.json of a request, or with ``scene="op"`` the acl.json of aclop kernels.

        Raises:
            ConfigError: MindSpore would refuse it, or dump less than it asks for without a word.
        """
        target, version = self.target, self.version
        test = request.test
        check_request(test, device=target, version=version, path=str(request.dump_path))
        if SCENES[test.scene].data_dump is None:
            data = request.dump_data or test.dump_data or "tensor"
            write_acl_json(path, dump_section(replace(request, dump_data=data)))
            return
        settings = data_dump_settings(request, version=version)
        write_data_dump(path, settings, device=target, version=version)

    def start(self, config: Path, *, resumed: bool = False) -> None:
        """Have the first graph that is compiled from here on read ``config``.

        Args:
            config: what :meth:`write_config` wrote.
            resumed: whether this goes on with the test that was dumped before, which MindSpore cannot.

        Raises:
            RuntimeUnavailableError: MindSpore would not read it: this process has compiled a graph.
        """
        if resumed:
            raise RuntimeUnavailableError(
                "npu_dump.capture(): MindSpore reads its dump configuration once a process and cannot switch "
                "to another directory; make it two tests, or tell the parts apart by their layers' names"
            )
        if self._read:
            raise RuntimeUnavailableError(
                f"MindSpore has read the dump configuration {self._read[0]} in this process, and never reads "
                f"another: a second test, or a second run of this one, cannot be dumped here; {_WAY_OUT}"
            )
        if has_compiled():
            raise RuntimeUnavailableError(
                f"MindSpore has compiled a graph in this process before the test began, and reads no dump "
                f"configuration after that: the test cannot be dumped here; {_WAY_OUT}, and compile no graph "
                f"in module or session fixtures or at import"
            )
        settings = json.loads(config.read_text(encoding="utf-8"))
        operators = "dump" in settings
        section = settings["dump" if operators else "common_dump_settings"]
        path = Path(section["dump_path" if operators else "path"])
        self.activity = MindSporeActivity(
            path,
            kernels=tuple(section.get("kernels", ())),
            iteration=section.get("iteration", "all"),
            operators=operators,
            cells=section.get("dump_mode") == 2,  # noqa: PLR2004 - MindSpore's number for it
        )
        if self.device and not self._device_set and self.target != "CPU":
            try:
                self.mindspore.set_device(self.target, self.device)
            except (RuntimeError, AttributeError, ValueError) as error:
                raise RuntimeUnavailableError(
                    f"device {self.device}: mindspore.set_device refuses it: {in_one_line(error)}"
                ) from error
        self._device_set = True
        chosen = _ACL_VARIABLE if operators else _VARIABLE
        self._before = {name: os.environ.pop(name, None) for name in (_VARIABLE, _ACL_VARIABLE)}
        os.environ[chosen] = str(config)
        self._dumping = True

    def stop(self) -> None:
        """Wait until all that was started has run and is written; graphs compiled later read no file of ours.

        A graph that was compiled under the dump goes on dumping: MindSpore has no way to end that.

        Raises:
            RuntimeUnavailableError: an operator of the test failed.
        """
        if not self._dumping:
            return
        self._dumping = False
        try:
            synchronize(self.mindspore)
        finally:
            for name, value in self._before.items():
                os.environ.pop(name, None)
                if value is not None:
                    os.environ[name] = value
            if self.activity.initialised and self.activity.dump_path is not None:
                self._read.append(self.activity.dump_path)

    def release(self) -> None:
        """Do nothing: whoever takes the configuration need not switch anything on."""

    def hand_over(self, program: str, models: tuple[Path, ...] = ()) -> None:
        """Leave the dump to a program of its own process, which inherits the environment variable."""
        self.activity.programs += (program,)
        self.activity.models += models

    def load_model(self, path: Path) -> MindIRSession:
        """Load a ``.mindir`` file as a graph.

        Raises:
            RuntimeUnavailableError: MindSpore refuses the file, or it is of another kind.
        """
        session = MindIRSession.load(self.mindspore, path)
        self.activity.models += (path,)
        return session

    def close(self) -> None:
        """End the dump; the device stays with MindSpore, which gives it back when the process ends."""
        self.stop()


_SUFFIX = ".mindir"


@dataclass(slots=True)
class MindIRSession(ModelSession):
    """A loaded MindIR model.

    Attributes:
        mindspore: the module.
        graph: the ``GraphCell``; None once the session is closed.
        path: the file.
        executions: how often the graph was called; a run that is refused before is none.
    """

    mindspore: Any
    graph: Any
    path: Path
    executions: int = 0

    @classmethod
    def load(cls, mindspore: Any, path: Path) -> MindIRSession:
        """Load a file that ``mindspore.export(..., file_format="MINDIR")`` wrote.

        Raises:
            RuntimeUnavailableError: it is none, or MindSpore cannot load it.
        """
        if path.suffix != _SUFFIX:
            raise RuntimeUnavailableError(
                f"npu_dump.load_model({path.name!r}): the runtime mindspore loads {_SUFFIX} files only. "
                f"Build the network in the test, and call it in GRAPH_MODE or under mindspore.jit; "
                f"for an .om file use --npudump-runtime=acl"
            )
        if not path.is_file():
            raise RuntimeUnavailableError(f"npu_dump.load_model(): there is no file {path}")
        try:
            graph = mindspore.nn.GraphCell(mindspore.load(str(path)))
        except (RuntimeError, ValueError, TypeError) as error:
            raise RuntimeUnavailableError(f"MindSpore cannot load {path}: {in_one_line(error)}") from error
        return cls(mindspore, graph, path)

    def run(self, *arrays: np.ndarray) -> list[np.ndarray]:
        """Run the model once; raise what MindSpore raises, or RuntimeUnavailableError once closed."""
        if self.graph is None:
            raise RuntimeUnavailableError(f"{self.path.name} is closed")
        tensors = [self.mindspore.Tensor(np.ascontiguousarray(array)) for array in arrays]
        self.executions += 1
        outputs = self.graph(*tensors)
        found = outputs if isinstance(outputs, tuple | list) else (outputs,)
        return [output.asnumpy() for output in found]

    def close(self) -> None:
        """Let go of the graph; closing twice is allowed."""
        self.graph = None


class VariedCells(PerturbedCalls):
    """The cells that are called from :meth:`vary` to the next one.

    Args:
        mindspore: the module.
    """

    def __init__(self, mindspore: Any) -> None:
        super().__init__()
        self._mindspore = mindspore

    def _replace_calls(self) -> None:
        nn = getattr(self._mindspore, "nn", None)
        for name in (
            "Cell",
            "GraphCell",
        ):  # the second one has a call of its own, and is what a MindIR file is
            self._replaced.put(getattr(nn, name, None), "__call__", self._call)

    def _call(self, original: Callable[..., Any], cell: Any, /, *arguments: Any, **named: Any) -> Any:
        execution, self.executions = self.executions, self.executions + 1
        given: dict[Any, Any] = {**dict(enumerate(arguments)), **named}
        fed = {
            place: self._fed(f"{place} of {type(cell).__name__}", value, (execution, number))
            for number, (place, value) in enumerate(given.items())
        }
        self._replaced.put_back()
        try:
            return original(
                cell, *(fed[number] for number in range(len(arguments))), **{n: fed[n] for n in named}
            )
        finally:
            if self.wanted:
                self._replace_calls()

    def _fed(self, name: str, value: Any, place: tuple[int, int]) -> Any:
        """Return an argument as it is to be."""
        tensor = self._mindspore.Tensor
        if isinstance(value, list | tuple) and any(isinstance(each, tensor) for each in value):
            self.varying.unreached.add(f"{name} ({type(value).__name__})")
        if not isinstance(value, tensor) or isinstance(value, self._mindspore.Parameter):
            return value
        try:
            values = value.asnumpy()
        except (TypeError, RuntimeError) as error:
            self.varying.unreached.add(f"{name} ({' '.join(str(error).split())})")
            return value
        self.varying.note_fed(name, values, place[0])
        moved = self.varying.moved(name, values, place)
        return value if moved is None else tensor(moved, dtype=value.dtype)
