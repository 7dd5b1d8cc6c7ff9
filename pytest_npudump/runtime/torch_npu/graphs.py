"""Captured graphs of torch_npu (``NPUGraph``), watched where every capture and replay passes in Python.

While a stream is captured CANN dumps no statistics and looks for no overflow, and says nothing. A dump of
tensors becomes a part of the graph: it has to be on when the graph is captured, its files are written when
the graph is replayed, and the second replay reads what the first has freed (``DumpDataRecordInCaptureStream``
of adump, 9.1.0). ``torch.npu.graph``, ``make_graphed_callables``, TorchAir and inductor all call the methods
of one class of C++, ``torch_npu._C._NPUGraph``; they are replaced there, so that it does not matter who holds
which name.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from traceback import walk_stack
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from pytest_npudump.config.acl.profile import profile_for
from pytest_npudump.errors import CapturedGraphError
from pytest_npudump.runtime.torch_npu.dispatch import DispatchedOperators
from pytest_npudump.runtime.torch_npu.words import (
    GRAPH_BEFORE,
    GRAPH_CALLBACK,
    GRAPH_IN_OLD_CANN,
    GRAPH_NOT_REPLAYED,
    GRAPH_OF_THE_TEST,
    GRAPH_OVERFLOW,
    GRAPH_STATS,
    GRAPH_TWICE,
    GRAPH_UNKNOWN,
    IMPORTED_UNDER_DUMP,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_npudump.runtime.base import Evidence

_CLASS = "NPUGraph"
_UNSEEN_BY_DUMP = frozenset({"8.5.0", "9.0.0"})
"""Rule sets of the releases whose adump is not known to dump a captured stream."""
_LIBRARIES = ("torch", "torch_npu", "torchair", "contextlib", "threading", "pytest_npudump")
"""Modules whose frames are not where the user's code captures or replays a graph."""


@dataclass(frozen=True, slots=True)
class GraphRules:
    """What a dump makes of captured graphs.

    Attributes:
        refused: why a test must not capture or replay one under it; "" where it may.
        tensors: whether a graph that is captured under it holds the dump, so that it is replayed only once.
    """

    refused: str
    tensors: bool

    @classmethod
    def of(
        cls, config: Path, version: str, *, released: bool = False, callback: bool = False
    ) -> GraphRules | None:
        """Return the rules under an acl.json; None for a dump of exceptions, which a graph raises as well.

        Args:
            config: the acl.json.
            version: the release of CANN.
            released: whether the test switches the dump on and off itself.
            callback: whether the dump is handed to a function of this process.
        """
        dump = json.loads(config.read_text(encoding="utf-8")).get("dump", {})
        scene = dump.get("dump_scene", "")
        if scene and scene != "watcher":
            return None
        reasons = (
            (dump.get("dump_debug") == "on", GRAPH_OVERFLOW),
            (scene == "watcher", GRAPH_UNKNOWN),
            (dump.get("dump_data", "tensor") != "tensor", GRAPH_STATS),
            (callback, GRAPH_CALLBACK),
            (profile_for(version) in _UNSEEN_BY_DUMP, GRAPH_IN_OLD_CANN.format(version)),
            (released, GRAPH_OF_THE_TEST),
        )
        refused = next((why for applies, why in reasons if applies), "")
        return cls(refused, tensors=refused not in {GRAPH_OVERFLOW, GRAPH_STATS})


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
        self._replaced: list[tuple[Any, str, Any, Any]] = []
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
        self._replace(base, "capture_begin", self._begin)
        self._replace(base, "capture_end", self._end)
        self._replace(base, "replay", self._replay)

    def stop(self) -> None:
        """Put every method back; tell which graphs were never replayed, and that torch_npu came too late."""
        replaced, self._replaced = self._replaced, []
        for base, name, original, watched in replaced:
            if getattr(base, name) is watched:
                setattr(base, name, original)
        captured, self._captured = self._captured, []
        for graph in captured:
            operators = graph.operators
            if operators is not None:
                operators.stop()
                if operators.first and not graph.replays:
                    self._tell(f"{graph.name}: {GRAPH_NOT_REPLAYED}")
        absent, self._absent = self._absent, False
        if absent and _lowest_class(sys.modules.get("torch_npu")) is not None:
            self._tell(IMPORTED_UNDER_DUMP)
        self._rules = self._evidence = None

    def _replace(self, base: Any, name: str, watch: Callable[..., Any]) -> None:
        original = getattr(base, name)

        @wraps(original)
        def watched(graph: Any, *arguments: Any, **named: Any) -> Any:
            return watch(graph, lambda: original(graph, *arguments, **named))

        setattr(base, name, watched)
        self._replaced.append((base, name, original, watched))

    def _begin(self, graph: Any, call: Callable[[], Any]) -> Any:
        rules = self._rules
        if rules is None:
            return call()
        name = f"{_name(graph)} captured {_place()}"
        if rules.refused:
            self._tell(f"{name}: {rules.refused}")
        result = call()
        found = _Graph(name, self._dump, rules.tensors)
        if not rules.refused:
            # Libraries capture graphs without operators too, to reserve memory, and never replay them.
            operators = DispatchedOperators("npu")
            if operators.leaves_graphs_alone:
                operators.start()
                found.operators = operators
        self._graphs[graph] = found
        self._captured.append(found)
        return result

    def _end(self, graph: Any, call: Callable[[], Any]) -> Any:
        found = self._graphs.get(graph)
        if found is not None and found.operators is not None:
            found.operators.stop()
        try:
            return call()
        except Exception:
            self._graphs.pop(graph, None)  # there is no graph to replay
            self._captured = [other for other in self._captured if other is not found]
            raise

    def _replay(self, graph: Any, call: Callable[[], Any]) -> Any:
        rules, found = self._rules, self._graphs.get(graph)
        if rules is None:
            return call()
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
        return call()

    def _tell(self, words: str) -> None:
        if self._evidence is not None and words not in self._evidence.undumped:
            self._evidence.undumped.append(words)


def _lowest_class(torch_npu: Any) -> Any:
    """Return the class that runs captures and replays; None in a torch_npu without graphs."""
    graph = getattr(getattr(torch_npu, "npu", None), _CLASS, None)
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
            here = str(Path.cwd()) + os.sep
            return f"at {file.removeprefix(here)}:{line}"
    return "in code of torch"
