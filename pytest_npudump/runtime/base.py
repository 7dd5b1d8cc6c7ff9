"""The protocol every runtime adapter keeps, and a call of a single operator as it is asked to make it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from pytest_npudump.onnxmodels.loaded_files import LoadedFiles

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from pathlib import Path
    from threading import Thread
    from types import TracebackType

    import numpy as np
    from numpy.typing import NDArray
    from typing_extensions import Self

    from pytest_npudump.emulator.dumps.recorder import DumpedExecution
    from pytest_npudump.onnxmodels.variation import Variation, Varying
    from pytest_npudump.request import RunRequest


@dataclass(slots=True)
class Started:
    """A process that ran beside the test's own.

    Attributes:
        name: of its program, or of its class.
        number: that the system gave it; None where that is not known.
    """

    name: str
    number: int | None = None


@dataclass(slots=True)
class Evidence:
    """Evidence of the dump in code that the adapter does not run itself: programs, calls of the test.

    Where a healthy run leaves no file, nothing else tells it from a run without a dump.

    Attributes:
        shown: what shows that it was, in words.
        missing: what shows that it was not, or why that cannot be known.
        unfinished: programs that could not be started, failed, or were ended, in words.
        failed: calls in which something went wrong on the device while it was.
        models: files of the models that were loaded while it was.
        blind: why the dump would have seen nothing although it was on.
        notes: what a reader of a report should know of the run.
        unseen: which modules of a model were not called, in words, by the model's name.
        loaders: the thread that loaded each model, by its id as ACL gave it.
        runners: the threads that ran each model, by name and id, and each single operator, by type and ""
            (both "" for operators of types that are not known); a mapping for each dump.
        files: those of the models that the test loaded, or had a program load, as they were then.
        undumped: what ran and is not in the dump although it reads like a dump of all that ran, in words;
            any of it fails the test.
        inside: by model, operators inside others, which its dump has not: the name of each, "" for none, and
            that of the operator that holds it.
        others: the processes that ran meanwhile, which the dump is on in only if they see to that.
        answered: numbers of the processes that left what they ran in the dump.
        parameters: by the name in keys of a model that no file has, what gives a golden's lines for its
            parameters, by that name, or "" where there is one model.
        shards: by rank, digests of the parameters that it holds, by layer and name.
    """

    shown: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    unfinished: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    models: list[str] = field(default_factory=list)
    blind: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    unseen: dict[str, str] = field(default_factory=dict)
    loaders: dict[str, Thread] = field(default_factory=dict)
    runners: list[Mapping[tuple[str, str], Collection[Thread]]] = field(default_factory=list)
    files: LoadedFiles = field(default_factory=LoadedFiles)
    undumped: list[str] = field(default_factory=list)
    inside: dict[str, tuple[tuple[str, str], ...]] = field(default_factory=dict)
    others: list[Started] = field(default_factory=list)
    answered: set[int] = field(default_factory=set)
    parameters: dict[str, Callable[[str], str]] = field(default_factory=dict)
    shards: dict[str, dict[str, dict[str, str]]] = field(default_factory=dict)

    @property
    def gaps(self) -> tuple[str, ...]:
        """Parts of the test that may have run without the dump, in words."""
        return (*self.missing, *self.unfinished)

    @property
    def beside(self) -> tuple[str, ...]:
        """Names of the processes that left nothing in the dump, each once."""
        return tuple(sorted({one.name for one in self.others if one.number not in self.answered}))


class ModelSession(Protocol):
    """A loaded model; a context manager that frees everything it holds."""

    @property
    def executions(self) -> int:
        """Number of executions that the device began, those that failed there included."""

    def run(self, *arrays: np.ndarray) -> list[np.ndarray]:
        """Run the model once on ``arrays``, one an input, and return its outputs.

        Raises:
            NpudumpError: the model is closed.
        """

    def close(self) -> None:
        """Unload the model and free its memory; closing twice is allowed."""

    def __enter__(self) -> Self:
        """Return the session itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the session."""
        self.close()


Port = tuple[str, int] | None
"""Operator and slot that a dump has an input or output of a graph under; None where that is not known."""


@runtime_checkable
class PortedSession(Protocol):
    """Session that names its inputs and outputs as dumps do.

    Attributes:
        input_ports: of each input, whose ``Data`` operator has one output.
        output_ports: of each output, the operator that writes it.
        look: called with inputs and outputs behind each run that went well; None for nobody.
    """

    input_ports: tuple[Port, ...]
    output_ports: tuple[Port, ...]
    look: Callable[[Sequence[np.ndarray], Sequence[np.ndarray]], None] | None


class Runtime(Protocol):
    """Runtime, which runs models and switches the dump on.

    A dump is on between :meth:`start` and :meth:`stop`; models loaded in between are dumped.

    Attributes:
        name: as in ``--npudump-runtime``.
        config_name: name of the file that configures the dump.
    """

    name: str
    config_name: str

    def producer(self) -> Mapping[str, str]:
        """Return the facts of origin for a golden: runtime, SoC, CANN version and the like."""

    def write_config(self, path: Path, request: RunRequest) -> None:
        """Write the file ``path``, which :meth:`start` takes.

        Raises:
            ConfigError: the runtime would refuse the file, or dump nothing without a word.
        """

    def start(self, config: Path, *, resumed: bool = False) -> None:
        """Switch the dump on under the acl.json ``config``, now or as soon as ACL is initialised.

        Args:
            config: what :meth:`write_config` wrote.
            resumed: whether this goes on with the test that was dumped before, for :attr:`activity`.

        Raises:
            RuntimeUnavailableError: ACL refuses; the message has its code and its own words.
        """

    def stop(self) -> None:
        """Switch the dump off; everything is on disk afterwards. Does nothing where none is on."""

    def release(self) -> None:
        """Leave the dump to the code under test, which is going to switch it on and off itself."""

    def hand_over(self, program: str, models: tuple[Path, ...] = ()) -> None:
        """Leave the dump to a program of its own process.

        Args:
            program: its name and its configuration, for :attr:`Activity.programs`.
            models: files of the models it loads, for :attr:`Activity.models`: they tell raw names of layers.
        """

    def load_model(self, path: Path) -> ModelSession:
        """Load a model onto the device.

        Raises:
            RuntimeUnavailableError: ACL refuses; the message has its code and its own words.
        """

    def close(self) -> None:
        """Give the device back."""

    @property
    def activity(self) -> Activity:
        """Activity since :meth:`start`, to explain an empty dump."""


@runtime_checkable
class RecordingRuntime(Protocol):
    """Runtime that has a list of the operators dumped, those included that left no file."""

    def dumped_executions(self, folder: Path) -> Sequence[DumpedExecution]:
        """Return the executions that this process has dumped below a folder, in order."""


@runtime_checkable
class VaryingRuntime(Protocol):
    """A runtime that can vary what legitimately differs between runs, for a calibration.

    Attributes:
        varies: what it can vary, of ``inputs``, ``threads`` and ``optimisation``.
        seen_as_inputs: which calls it takes for those of a model, whose inputs it perturbs, in words.
    """

    varies: frozenset[str]
    seen_as_inputs: str

    def vary(self, variation: Variation) -> None:
        """Have models that are loaded or run from here on vary so; ``Variation()`` ends it."""

    @property
    def varying(self) -> Varying:
        """Present variation, and the inputs that the last one has reached."""


class Activity(Protocol):
    """Activity of a test with the runtime while the dump was on."""

    @property
    def initialised(self) -> bool:
        """Return whether ACL was initialised, so that the dump could be switched on at all."""

    @property
    def models(self) -> tuple[Path, ...]:
        """Models loaded through the adapter while the dump was on, and those that were handed over."""

    @property
    def executions(self) -> int:
        """Number of executions of such models, through the adapter, while the dump was on."""

    @property
    def likely_cause(self) -> str:
        """Cause of an empty dump as far as the runtime itself knows it; "" for none."""

    @property
    def released(self) -> bool:
        """Return whether the test took the configuration to switch the dump on itself."""

    @property
    def programs(self) -> tuple[str, ...]:
        """External programs that were run with the dump in their configuration."""

    @property
    def evidence(self) -> Evidence:
        """Evidence of the dump in those programs, and in the test's own calls of the runtime."""


@dataclass(slots=True)
class RunActivity:
    """An :class:`Activity` whose attributes its runtime sets as it goes."""

    initialised: bool = False
    models: tuple[Path, ...] = ()
    executions: int = 0
    likely_cause: str = ""
    released: bool = False
    programs: tuple[str, ...] = ()
    evidence: Evidence = field(default_factory=Evidence)


@dataclass(frozen=True, slots=True)
class OperatorCall:
    """An operator, what it is given, and what it is to give.

    Attributes:
        operator: its type, as CANN calls it.
        inputs: its inputs in order, on the host.
        outputs: type and shape of each output, which the device is told beforehand.
        attributes: by name; bools, integers, floats, texts, numpy types, or lists of these but the last.
    """

    operator: str
    inputs: tuple[NDArray[Any], ...]
    outputs: tuple[tuple[np.dtype[Any], tuple[int, ...]], ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)


@runtime_checkable
class OperatorRuntime(Protocol):
    """A runtime that can run a single operator by its type."""

    def run_operator(self, call: OperatorCall) -> list[NDArray[Any]]:
        """Run an operator under the dump that is on, wait for it, and return its outputs.

        Raises:
            RequestError: a type or an attribute is none that the runtime takes.
            RuntimeUnavailableError: the device refuses, or the operator fails there.
        """
