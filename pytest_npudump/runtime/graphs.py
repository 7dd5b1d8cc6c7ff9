"""Observation of torch on the NPU in this process, where it passes in Python: graphs, operators, threads.

Captured graphs of torch_npu (``NPUGraph``): while a stream is captured CANN dumps no statistics and looks
for no overflow, and says nothing. A dump of tensors becomes a part of the graph: it has to be on when the
graph is captured, its files are written when the graph is replayed, and the second replay reads what the
first has freed (``DumpDataRecordInCaptureStream`` of adump, 9.1.0). ``torch.npu.graph``, TorchAir, inductor
and ``make_graphed_callables`` all call the methods of one class of C++, ``torch_npu._C._NPUGraph``; they are
replaced there, so that it does not matter who holds which name.

Operators: a healthy run leaves no file in some scenes, and then only what torch dispatches tells a model
on the NPU from one that was left on the CPU. What moves, views or fills data shows nothing: the test's input
goes to the NPU in either case.

Threads that are started while a dump is on are looked at, and from then on the one that starts them. What a
thread ran before it started another one has an order.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from threading import Thread, current_thread
from traceback import walk_stack
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from pytest_npudump.config.cann import profile_for
from pytest_npudump.errors import CapturedGraphError
from pytest_npudump.runtime.modules.statistics import tensors_in
from pytest_npudump.runtime.replacement import Replaced

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_npudump.runtime.base import Evidence

    Run = Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]


_LIBRARIES = ("torch", "torch_npu", "torchair", "contextlib", "threading", "pytest_npudump")
"""Modules whose frames are not where the user's code captures or replays a graph."""


@dataclass(slots=True)
class _Graph:
    """One captured graph.

    Attributes:
        name: its class, and where it was captured.
        dump: number of the dump that it was captured under.
        tensors: whether it holds that dump.
        replays: how often it has been replayed since.
        operators: what was captured into it; None where that cannot be seen.
    """

    name: str
    dump: int
    tensors: bool
    replays: int = 0
    operators: DispatchedOperators | None = None


class CapturedGraphs:
    """The graphs that this process captures and replays from :meth:`watch` to :meth:`stop`.

    What was captured under one dump is remembered under the next ones.
    """

    def __init__(self) -> None:
        self._graphs: WeakKeyDictionary[Any, _Graph] = WeakKeyDictionary()
        self._dump = 0
        self._rules: GraphRules | None = None
        self._absent = False
        self._evidence: Evidence | None = None
        self._captured: list[_Graph] = []
        self._replaced = Replaced()
        self._lock = threading.Lock()

    def watch(self, torch_npu: Any, rules: GraphRules | None, evidence: Evidence) -> None:
        """Look at every graph from now on, under a new dump; not at all without rules.

        Args:
            torch_npu: the module; None where it has not been imported, which a test must not do then.
            rules: what the dump makes of graphs.
            evidence: where it goes that one is not in the dump.
        """
        self.stop()
        base = _lowest_class(torch_npu)
        if rules is None or (base is None and torch_npu is not None):
            return
        self._dump += 1
        self._rules, self._evidence = rules, evidence
        self._absent = torch_npu is None
        if base is None:
            return
        methods = {"capture_begin": self._begin, "capture_end": self._end, "replay": self._replay}
        for name, watch in methods.items():
            self._replaced.put(base, name, watch)

    def stop(self) -> None:
        """Put every method back; note graphs that were never replayed, and a torch_npu that came too late."""
        self._replaced.put_back()
        captured, self._captured = self._captured, []
        for graph in captured:
            if (operators := graph.operators) is not None:
                operators.stop()
                if operators.first and not graph.replays:
                    self._tell(f"{graph.name}: {GRAPH_NOT_REPLAYED}")
        absent, self._absent = self._absent, False
        if absent and _lowest_class(sys.modules.get("torch_npu")) is not None:
            self._tell(IMPORTED_UNDER_DUMP)
        self._rules = self._evidence = None

    def _begin(self, original: Callable[..., Any], graph: Any, *arguments: Any, **named: Any) -> Any:
        rules = self._rules
        if rules is None:
            return original(graph, *arguments, **named)
        name = f"{_name(graph)} captured {_place()}"
        if rules.refused:
            self._tell(f"{name}: {rules.refused}")
        result = original(graph, *arguments, **named)
        found = _Graph(name, self._dump, rules.tensors)
        # Libraries capture graphs without operators too, to reserve memory, and never replay them.
        if not rules.refused and leaves_graphs_alone():
            found.operators = DispatchedOperators("npu")
            found.operators.start()
        self._graphs[graph] = found
        self._captured.append(found)
        return result

    def _end(self, original: Callable[..., Any], graph: Any, *arguments: Any, **named: Any) -> Any:
        found = self._graphs.get(graph)
        if found is not None and found.operators is not None:
            found.operators.stop()
        try:
            return original(graph, *arguments, **named)
        except Exception:
            self._graphs.pop(graph, None)  # there is no graph to replay
            self._captured = [other for other in self._captured if other is not found]
            raise

    def _replay(self, original: Callable[..., Any], graph: Any, *arguments: Any, **named: Any) -> Any:
        rules, found = self._rules, self._graphs.get(graph)
        if rules is None:
            return original(graph, *arguments, **named)
        place = _place()
        name = found.name if found is not None else _name(graph)
        with self._lock:
            if found is not None:
                found.replays += 1
                if found.tensors and found.replays > 1:
                    self._tell(f"{name} and replayed {place}: {GRAPH_TWICE}")
                    raise CapturedGraphError(f"{name}: {GRAPH_TWICE}")
        if rules.refused:
            self._tell(f"{name}{' and' if found else ''} replayed {place}: {rules.refused}")
        elif found is None or found.dump != self._dump:
            self._tell(f"{name}{' and' if found else ''} replayed {place}: {GRAPH_BEFORE}")
        return original(graph, *arguments, **named)

    def _tell(self, words: str) -> None:
        if self._evidence is not None and words not in self._evidence.undumped:
            self._evidence.undumped.append(words)


def _lowest_class(torch_npu: Any) -> Any:
    """Return the class that runs captures and replays; None in a torch_npu without graphs."""
    graph = getattr(getattr(torch_npu, "npu", None), "NPUGraph", None)
    classes = reversed(getattr(graph, "__mro__", ()))
    return next((found for found in classes if "replay" in vars(found)), None)


def _name(graph: Any) -> str:
    return type(graph).__name__.lstrip("_")


def _place() -> str:
    """Return the line of the user's code that is being run: the innermost that is in no library."""
    # torch and TorchAir run code that they make, under names of modules that are nowhere.
    known = [str(getattr(sys.modules.get(name), "__file__", name)) for name in _LIBRARIES]
    libraries = ("<", *(file.removesuffix("__init__.py") for file in known))
    for frame, line in walk_stack(None):
        file = frame.f_code.co_filename
        if not file.startswith(libraries):
            return f"at {file.removeprefix(str(Path.cwd()) + os.sep)}:{line}"
    return "in code of torch"


_UNSEEN_BY_DUMP = frozenset({"8.5.0", "9.0.0"})
"""Rule sets of the releases whose adump is not known to dump a captured stream."""

_EAGERLY = "run the model eagerly under the marker"
_ONE_REPLAY = (
    'acl_json={"dump_data": "tensor"} (CANN 9.1.0 or later), with the graph captured inside the test and '
    "replayed once"
)
_GRAPH_STATS = (
    f"CANN computes no statistics of operators in a captured graph and reports no error; {_EAGERLY}, or take "
    f"{_ONE_REPLAY}"
)
_GRAPH_OVERFLOW = f"CANN looks for no overflow in a captured graph and reports no error; {_EAGERLY}"
_GRAPH_UNKNOWN = f"whether CANN's watcher sees operators in a captured graph is not known; {_EAGERLY}"
_GRAPH_IN_OLD_CANN = (
    "whether CANN {version} dumps operators in a captured graph is not known (9.1.0 and later do); {eagerly}"
)
_GRAPH_OF_THE_TEST = (
    "the test switches the dump on and off itself (config_path, torchair_config()), so whether it was on "
    f"while the graph was captured is not known; {_EAGERLY}, or leave the dump to the marker"
)
IMPORTED_UNDER_DUMP = (
    "torch_npu was imported while the dump was on, so graphs that were captured or replayed since were not "
    "seen, of which CANN may dump nothing and report no error: import torch_npu at the top of the test's file"
)
GRAPH_BEFORE = (
    "it was captured before this dump was on (at import, in a wider fixture, by an earlier test or run, or "
    "outside of this capture()), so nothing of it is dumped; capture it inside the test, with "
    'isolation="process" where torch.compile keeps it'
)
GRAPH_TWICE = (
    "it holds the dump of its tensors, and in CANN a second replay reads memory that the first has freed; "
    f"replay it once in the test, or {_EAGERLY}"
)
GRAPH_NOT_REPLAYED = (
    "it holds the dump of its tensors and was never replayed while that was on, so nothing of it is dumped, "
    "and CANN waits up to 60 seconds for it when the dump ends; replay it once in the test, or do not "
    "capture it"
)


@dataclass(frozen=True, slots=True)
class GraphRules:
    """Rules of a dump for captured graphs.

    Attributes:
        refused: why a test must not capture or replay one under it; "" where it may.
        tensors: whether a graph that is captured under it holds the dump, so that it is replayed only once.
    """

    refused: str
    tensors: bool

    @classmethod
    def of(cls, config: Path, version: str, *, released: bool = False) -> GraphRules | None:
        """Return the rules under an acl.json; None for a dump of exceptions, which a graph raises as well.

        Args:
            config: the acl.json.
            version: the release of CANN.
            released: whether the test switches the dump on and off itself.
        """
        dump = json.loads(config.read_text(encoding="utf-8")).get("dump", {})
        scene = dump.get("dump_scene", "")
        if scene and scene != "watcher":
            return None
        old = _GRAPH_IN_OLD_CANN.format(version=version, eagerly=_EAGERLY)
        reasons = (
            (dump.get("dump_debug") == "on", _GRAPH_OVERFLOW),
            (scene == "watcher", _GRAPH_UNKNOWN),
            (dump.get("dump_data", "tensor") != "tensor", _GRAPH_STATS),
            (profile_for(version) in _UNSEEN_BY_DUMP, old),
            (released, _GRAPH_OF_THE_TEST),
        )
        refused = next((why for applies, why in reasons if applies), "")
        return cls(refused, tensors=refused not in {_GRAPH_OVERFLOW, _GRAPH_STATS})


_COPIES = frozenset(
    {
        "_to_copy",
        "clone",
        "copy_",
        "copy",
        "contiguous",
        "npu_format_cast",
        "npu_format_cast_",
        "copy_memory_",
    }
)
_FILLS = frozenset({"zero_", "zero", "fill_", "fill", "uniform_", "normal_", "random_", "bernoulli_"})
_HOLDERS = frozenset({"set_", "resize_", "resize_as_", "record_stream", "_unsafe_view", "_reshape_copy"})


class LowestMode:
    """A mode of the thread that calls :meth:`start`, and of the backward passes it starts.

    Operators inside a graph of ``torch.compile`` are left alone.

    Args:
        name: of its class, as torch's stack of modes shows it.
        run: is called with an operator, its arguments and its named ones; returns what the operator does.
    """

    def __init__(self, name: str, run: Run) -> None:
        self._name = name
        self._run = run
        self._mode: Any = None

    def start(self) -> None:
        """Switch it on; nothing happens where it is. torch has to be imported by now."""
        if self._mode is None:
            self._mode = _mode(self._name, self._run)
            # Beneath the modes of the test: each takes the uppermost mode off, whichever it is, when it ends.
            _with_others_off(self._mode.__enter__)

    def stop(self) -> None:
        """Switch it off; nothing happens where it is not on."""
        mode, self._mode = self._mode, None
        if mode is not None and any(other is mode for other in _modes()):
            _with_others_off(lambda: mode.__exit__(None, None, None), mode)


class DispatchedOperators(LowestMode):
    """The operators that torch dispatches to one kind of device, between :meth:`start` and :meth:`stop`.

    Those of the thread that calls :meth:`start` are seen, and those of the backward passes it starts: torch
    keeps its dispatch modes by thread. Operators inside a graph of ``torch.compile`` are left alone.

    Attributes:
        first: name of the first operator that was seen, as ``aten.add.Tensor``; "" if none was.

    Args:
        device: type of the device, as ``torch.Tensor.device`` has it.
        recording: whether operators are only recorded into a graph at present, and do not run.
    """

    def __init__(self, device: str = "npu", recording: Callable[[], bool] = lambda: False) -> None:
        super().__init__("NpudumpOperators", self._see)
        self.first = ""
        self._device = device
        self._recording = recording

    def _see(self, function: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        result = function(*arguments, **named)
        if self.first or not self._is_operator(function):
            return result
        given, made = self._on_device([arguments, named]), self._on_device(result)
        if given and (made or _schema(function).is_mutable) and not self._recording():
            # A copy that stays on the device and changes the type is a cast, which can overflow.
            casts = len(given) + len(made) > 1 and len({tensor.dtype for tensor in [*given, *made]}) > 1
            if casts or name_of(function) not in _COPIES:
                self.first = str(function)
        return result

    @staticmethod
    def _is_operator(function: Any) -> bool:
        """Return whether a function runs a kernel of its own that computes or, as a cast, may."""
        schema = _schema(function)
        if schema is None or function.namespace in {"c10d", "_c10d_functional", "c10d_functional"}:
            return False
        name = name_of(function)
        if name in _FILLS | _HOLDERS or name.startswith(("new_", "empty")) or name.endswith("_like"):
            return False
        views = [value.alias_info for value in schema.returns if value.alias_info is not None]
        return all(alias.is_write for alias in views)

    def _on_device(self, value: Any) -> list[Any]:
        fake = getattr(sys.modules.get("torch._subclasses.fake_tensor"), "FakeTensor", ())
        real = (tensor for tensor in tensors_in(value) if not isinstance(tensor, fake))
        return [tensor for tensor in real if tensor.device.type == self._device]


def _schema(function: Any) -> Any:
    """Return the schema of an operator; None of a higher-order one, whose parts are dispatched themselves."""
    return getattr(function, "_schema", None)


def name_of(function: Any) -> str:
    """Return the operator's name without namespace and overload, as ``add_``; "" of a higher-order one."""
    schema = _schema(function)
    return "" if schema is None else str(schema.name.rpartition("::")[2])


def leaves_graphs_alone() -> bool:
    """Return whether this torch still compiles functions while such a mode is on; torch 2.13 does."""
    return hasattr(_torch_modes().TorchDispatchMode, "ignore_compile_internals")


def _mode(name: str, run: Run) -> Any:
    def dispatch(_: Any, function: Any, __: Any, arguments: Any = (), named: Any = None) -> Any:
        return run(function, arguments, named or {})

    members = {
        "__torch_dispatch__": dispatch,
        # Without it torch.compile would run every function as if it were not compiled.
        "ignore_compile_internals": classmethod(lambda _: True),
    }
    return type(name, (_torch_modes().TorchDispatchMode,), members)()


def _torch_modes() -> Any:
    return importlib.import_module("torch.utils._python_dispatch")


def _modes() -> list[Any]:
    """Return the modes of this thread that are no part of torch's own machinery, the uppermost last."""
    every = _torch_modes()._get_current_dispatch_mode_stack()  # noqa: SLF001 - torch has no other name for it
    return [mode for mode in every if getattr(mode, "_mode_key", None) is None]


def _with_others_off(action: Callable[[], object], mode: Any = None) -> None:
    """Call ``action`` while no mode above ``mode`` is on; without one, while none is."""
    base = _torch_modes().TorchDispatchMode
    modes = _modes()
    place = next((index + 1 for index, other in enumerate(modes) if other is mode), 0)
    for other in reversed(modes[place:]):
        base.__exit__(other, None, None, None)
    try:
        action()
    finally:
        for other in modes[place:]:
            base.__enter__(other)


class ThreadsOfTest:
    """The threads of a test from :meth:`watch` to :meth:`stop`.

    A torch that compiles nothing while operators are looked at (before 2.13) is left alone: what such a test
    runs counts for more than which thread runs it.

    Args:
        device: type of the device, as ``torch.Tensor.device`` has it.
    """

    def __init__(self, device: str = "npu") -> None:
        self._device = device
        self._replaced = Replaced()
        self._seen: dict[Thread, DispatchedOperators] = {}

    def watch(self) -> None:
        """Look at threads that are started from now on."""
        self.stop()
        if leaves_graphs_alone():
            self._replaced.put(Thread, "start", self._start)

    def stop(self, evidence: Evidence | None = None) -> None:
        """Look no more; add the threads that ran operators to ``evidence``, where there are several."""
        self._replaced.put_back()
        seen, self._seen = self._seen, {}
        if current_thread() in seen:
            seen[current_thread()].stop()
        runners = {thread for thread, operators in seen.items() if operators.first}
        if evidence is not None and len(runners) > 1:
            evidence.runners.append({("", ""): runners})

    def _start(self, original: Callable[..., Any], thread: Thread) -> Any:
        if current_thread() not in self._seen:
            self._seen[current_thread()] = operators = DispatchedOperators(self._device)
            operators.start()
        operators = self._seen[thread] = DispatchedOperators(self._device)
        run = thread.run

        def watched() -> None:
            operators.start()
            try:
                run()
            finally:
                operators.stop()

        thread.run = watched  # type: ignore[method-assign]
        return original(thread)
