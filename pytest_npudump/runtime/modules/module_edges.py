"""Edges between modules in one execution, through the computations between them.

A mode of torch's sees each function of torch that the program calls. What a function returns comes from what
its arguments come from; what a module returns is where that begins anew. Tensors that share memory share
where they come from, so that what is written in place counts. Of a tensor that a function made which the mode
does not see, such as an operator of a foreign extension, nothing is known, unless a module returns it: that
is fed by what the module was given.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from pytest_npudump.record.edges import SEVERAL, UNKNOWN, Edges, GraphNode, Port, lines_of

Place = tuple[int, int, int]
"""A module, which of its calls, and which of the tensors that it returned."""

_MOST = 64
"""Most calls of one module that are told apart."""


class Dataflow(TorchFunctionMode):  # type: ignore[misc, unused-ignore]
    """Inputs of a model's modules, followed while it is on the stack of modes."""

    def __init__(self, tensors_in: Callable[[Any], list[Any]], constants: Iterable[Any], given: Any) -> None:
        """Begin with what is no module's.

        Args:
            tensors_in: finds tensors in arguments and results.
            constants: tensors of the model, whatever feeds these.
            given: what the model was called with.
        """
        super().__init__()
        self._tensors_in = tensors_in
        self._constants = {id(one) for one in constants}
        self._origins: dict[int, tuple[weakref.ref[Any], set[Place]]] = {}
        self._given: dict[int, list[frozenset[Place]]] = {}
        self._calls: list[tuple[int, int, tuple[frozenset[Place], ...], frozenset[Place]]] = []
        self._turns: Counter[int] = Counter()
        for tensor in tensors_in(given):
            self._know(tensor, set())

    def __torch_function__(
        self, function: Any, _types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        """Call a function of torch, and follow what it returns, or writes to."""
        result = function(*args, **(kwargs or {}))
        if torch.compiler.is_compiling():  # compilers follow functions through modes
            return result
        found = self._tensors_in(result)
        if found or result is None:
            given = self._tensors_in([args, kwargs])
            origins = set().union(*map(self._of, given))
            memory = {_memory(one): one for one in given}
            for tensor in found or given:  # one that returns nothing may have written to any of these
                known = self._known(tensor)
                if known is None and (shared := memory.get(_memory(tensor))) is not None:
                    known = self._known(shared)
                    if known is None and id(shared) not in self._constants:
                        known = self._know(shared, set())
                if known is None:
                    self._know(tensor, set(origins))
                else:
                    known |= origins
                    self._know(tensor, known)
        return result

    def enter(self, module: int, tensors: Sequence[Any]) -> None:
        """Record the origins of a module's arguments, whose inputs are recorded."""
        if module in self._given:  # it was called within itself, and its calls end in another order
            self._turns[module] = _MOST + 1
        self._given[module] = [frozenset(self._of(one)) for one in tensors]

    def leave(self, module: int, given: Any, tensors: Sequence[Any]) -> None:
        """Record a module's results: the origins of its arguments feed it."""
        if not tensors:
            return
        origins, known = set["Place"](), [self._known(one) for one in tensors]
        for one in known:
            origins |= set().union(*map(self._of, self._tensors_in(given))) if one is None else one
        turn = self._turns[module]
        self._turns[module] += 1
        if turn < _MOST:
            self._calls.append((module, turn, tuple(self._given.pop(module, ())), frozenset(origins)))
        fresh = [
            self._know(one, set() if own is None else own) for one, own in zip(tensors, known, strict=True)
        ]
        for own in fresh:
            own.clear()
        for slot, own in enumerate(fresh):
            own.add((module, turn, slot))

    def lines(self, names: Sequence[str]) -> str:
        """Return the inputs of each module as lines of a golden; ``names`` are those of modules."""
        layers = dict.fromkeys(names[module] for module, *_ in self._calls)
        return lines_of(Edges.of(self._nodes(names), ""), [*layers])

    def _nodes(self, names: Sequence[str]) -> Iterator[GraphNode]:
        def ports(places: Iterable[Place]) -> list[Port | None]:
            return [
                Port(names[module], slot, turn) if 0 < self._turns[module] <= _MOST else UNKNOWN
                for module, turn, slot in sorted(places)
            ]

        for module, turn, slots, origins in self._calls:
            if self._turns[module] > _MOST:
                yield GraphNode(names[module], "", (UNKNOWN,))
                continue
            of_slots = [ports(places) for places in slots]
            found = [one[0] if len(one) == 1 else SEVERAL if one else None for one in of_slots]
            several = [port for one in of_slots if len(one) > 1 for port in one]
            behind = ports(origins) if slots else ports(origins) or [None]
            ends = dict.fromkeys(port for port in (*several, *behind) if port not in found or port in several)
            yield GraphNode(names[module], "", (*found, *ends), turn)

    def _of(self, tensor: Any) -> set[Place]:
        known = self._known(tensor)
        if known is None:
            return set() if id(tensor) in self._constants else {(-1, -1, -1)}
        return known

    def _known(self, tensor: Any) -> set[Place] | None:
        found = self._origins.get(id(tensor))
        return found[1] if found is not None and found[0]() is tensor else None

    def _know(self, tensor: Any, origins: set[Place]) -> set[Place]:
        number, every = id(tensor), self._origins
        if number not in every or every[number][0]() is not tensor or every[number][1] is not origins:
            every[number] = weakref.ref(tensor), origins
        return origins


def _memory(tensor: Any) -> int:
    """Return the identity of a tensor's memory."""
    try:
        return int(tensor.untyped_storage()._cdata)  # noqa: SLF001 - nothing public tells a storage
    except (NotImplementedError, RuntimeError, ValueError):  # of tensors without, as of parameters to come
        return id(tensor)
