"""MindSpore cells as layers: a :class:`Capture` of what PyNative mode calls, and of its operators.

Cells have hooks, too, but a graph is compiled with those of its cells, which must be graph code then. So
``Cell.__call__`` is replaced while captures are under way, which no graph has in it. GRAPH_MODE calls no cell
but the model, which is a problem; what ``mindspore.jit`` made is seen from outside. With ``operators`` the
dispatch mode of PyNative tells of operators, too: ``blocks.0.qkv/MatMul`` is the layer of those that
``blocks.0.qkv`` calls by itself.
"""

from __future__ import annotations

import os
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import nullcontext, suppress
from functools import partial
from math import inf, prod
from pathlib import Path
from traceback import walk_stack
from typing import Any, NamedTuple

import numpy as np

from pytest_npudump.dump.stats.tensor import rows_stats
from pytest_npudump.errors import RequestError, said
from pytest_npudump.request import KnownNames
from pytest_npudump.runtime.modules.capture import ENTER, LEAVE, Capture
from pytest_npudump.runtime.modules.statistics import (
    BATCHED,
    INPUT,
    OUTPUT,
    ROW,
    Value,
    host_stats,
    tensors_in,
)
from pytest_npudump.runtime.replacement import Replaced

_UNDER_WAY: list[CellCapture] = []
_CALLS = Replaced()
_AGAIN = frozenset({"bprop", "recompute_function"})
"""Functions of MindSpore's module ``recompute`` that call cells again in a backward pass."""
_SMALL, _HELD = 1 << 17, 1 << 26
"""Most bytes of a tensor that is worth a copy, to be reduced with others, and of all copies."""


class CellCapture(Capture):
    """The cells of one network, watched from :meth:`start` to :meth:`stop`.

    Attributes:
        places: numbers of the paths at which it has a cell, by the cell's id.
        owners: the class that has a cell's ``__call__``, by the cell's id.
    """

    def __init__(
        self,
        model: Any,
        folder: Path,
        *,
        layers: Sequence[str] = (),
        only: Collection[str] | None = None,
        operators: bool = False,
        **asked: Any,
    ) -> None:
        """Choose cells; see :class:`Capture`.

        Args:
            model: a ``mindspore.nn.Cell``.
            folder: where the files go.
            layers: paths of cells and of operators, or globs; a cell that is named has its operators with it.
            only: of these, those that are of interest; None for all.
            operators: whether operators are layers, too.
            asked: further arguments of a capture.

        Raises:
            RequestError: it has no cell of a name, or this MindSpore does not tell of operators.
        """
        self._mindspore, self._operators = sys.modules["mindspore"], operators
        self._layers, self._only = layers, only
        cells = [one for one in layers if not operators or "/" not in one]
        super().__init__(model, folder, layers=cells, only=only, **asked)
        if layers and not cells:
            self._wanted.clear()
        self._on_cpu = self._mindspore.get_context("device_target") == "CPU"
        self._operator_at: dict[tuple[int, str], int] = {}
        self._recomputed, self._held = False, 0
        self.places: dict[int, list[int]] = {}
        self.owners: dict[int, type] = {}
        for at, cell in enumerate(self.modules):
            self.places.setdefault(id(cell), []).append(at)
            self.owners[id(cell)] = next(one for one in type(cell).__mro__ if "__call__" in vars(one))
        if operators and not hasattr(getattr(self._mindspore, "utils", None), "MsDispatchMode"):
            raise RequestError(
                f"npu_dump.modules(operators=True): MindSpore {self._mindspore.__version__} has no "
                f"MsDispatchMode, which came with 2.9"
            )

    def _parts(self, model: Any) -> list[tuple[str, Any]]:
        def walked(path: str, cell: Any, above: tuple[int, ...]) -> Iterator[tuple[str, Any]]:
            yield path, cell
            for name, part in cell._cells.items():  # noqa: SLF001 - cells_and_names() has shared ones once
                ours = type(part).__module__.endswith(".recompute")  # what cell.recompute() adds
                if part is not None and id(part) not in above and not ours:
                    yield from walked(f"{path}.{name}" if path else name, part, (*above, id(part)))

        return [*walked("", model, (id(model),))]

    def _is_called(self, module: Any) -> bool:
        nn = self._mindspore.nn
        return type(module).construct not in {nn.Cell.construct, nn.CellList.construct}

    @property
    def stopped(self) -> bool:
        """Return whether it has not started, or has ended."""
        return self not in _UNDER_WAY

    @property
    def facts(self) -> dict[str, str]:
        """Facts of the network's environment for a golden."""
        device = "cpu" if self._on_cpu else self._mindspore.get_context("device_target")
        if not self._on_cpu:
            with suppress(RuntimeError, AttributeError, ValueError):
                device = self._mindspore.hal.get_device_name(self._device)
        return {"mindspore": str(self._mindspore.__version__), "device": str(device)}

    @property
    def _device(self) -> int:
        return 0 if self._on_cpu else int(self._mindspore.get_context("device_id"))

    def _hook(self) -> None:
        _UNDER_WAY.append(self)
        _replace_calls()

    def _unhook(self) -> None:
        _UNDER_WAY.remove(self)
        _replace_calls()

    def _training(self) -> int:
        return 0

    def _is_backward(self) -> bool:
        return self._recomputed

    def called(self, call: Callable[..., Any], cell: Any, /, *given: Any, **named: Any) -> Any:
        """Call a cell, and take what it is given and gives."""
        __tracebackhide__ = True
        outermost, top = not self._parents, cell is self.model
        if outermost:
            self._recomputed = _is_recomputation()
            if self._is_graph() and not self.problems:
                self.problems.append(
                    said(
                        "{name} ran in GRAPH_MODE, which calls no cell within it: call "
                        "mindspore.set_context(mode=mindspore.PYNATIVE_MODE), or set MS_JIT=0; its graph is "
                        "dumped without scene='modules', by --npudump-runtime=mindspore",
                        name=self.name,
                    )
                )
        at = self._which(self.places[id(cell)])
        wanted = at in self._wanted
        if top:
            self._look_at(tensors_in([given, named], self._mindspore.Tensor))
            self.take(ENTER, at, 0, None)
        if wanted and self._inputs:
            self._take_all(INPUT, at, [given, named])
        self._parents.append(at)
        try:
            with self._dispatch() if outermost and self._operators else nullcontext():
                output = call(*given, **named)
            others = list[Any]()
            if wanted and (not self._take_all(OUTPUT, at, output, others) or others):
                self._seen.add(at)
                self._note_no_tensor(at, others or [output])
            return output
        finally:
            self._parents.pop()
            if top:
                self.take(LEAVE, at, 0, None)

    def _is_graph(self) -> bool:
        mindspore = self._mindspore
        graph = mindspore.get_context("mode") == mindspore.GRAPH_MODE
        return bool(graph) and os.environ.get("MS_JIT") != "0"

    def _which(self, places: list[int]) -> int:
        """Return the place of a call of a shared cell, by its caller."""
        if len(places) == 1 or not self._parents:
            return places[0]
        return next((at for at in places if self._parent(at) == self._parents[-1]), places[0])

    def _take_all(self, kind: int, at: int, values: Any, others: list[Any] | None = None) -> bool:
        """Take the tensors among values; return whether there are any."""
        found = tensors_in(values, self._mindspore.Tensor, others)
        for slot, tensor in enumerate(found):
            self.take(kind, at, slot, tensor)
        return bool(found)

    def _dispatch(self) -> Any:
        """Return a dispatch mode that takes what operators give; those of ours are not dispatched in it."""
        capture = self

        class Dispatch(self._mindspore.utils.MsDispatchMode):  # type: ignore[name-defined,misc]
            def __ms_dispatch__(self, func: Any, args: Any, kwargs: Any = None) -> Any:
                __tracebackhide__ = True
                at = capture._operator(str(func.name))
                wanted = at in capture._wanted
                if wanted and capture._inputs:
                    capture._take_all(INPUT, at, [args, kwargs])
                output = func(*args, **(kwargs or {}))
                if wanted and not capture._take_all(OUTPUT, at, output):
                    capture._seen.add(at)
                return output

        return Dispatch()

    def _operator(self, name: str) -> int:
        """Return the number of an operator of the cell that runs, which is a layer from its first call on."""
        parent = self._parents[-1]
        at = self._operator_at.get((parent, name))
        if at is None:
            cell, at = self._paths[parent], len(self._paths)
            path = f"{cell}/{name}"
            self._operator_at[parent, name] = at
            self._paths.append(path)
            self._kinds.append(name)
            self.modules.append(path)
            chosen = not self._layers or cell in self._layers or KnownNames([path]).meant(self._layers)
            if chosen and (self._only is None or path in self._only):
                self._wanted.add(at)
        return at

    def _record(self, kind: int, module: int, slot: int, tensor: Any) -> None:
        shape, size = tuple(tensor.shape), int(tensor.itemsize)
        count = prod(shape)
        dtype = _dtype_of(tensor)
        self._seen.add(module)
        self._begin_next((module, kind, slot))
        value = Value(module, kind, slot, dtype, shape, count * size, count, self._on_cpu)
        if self._on_cpu:
            self._show(value, partial(fetched, tensor))
        self._keep(value, tensor, None)

    def _found(self, value: Value, tensor: Any) -> Any:
        on_device = not self.tensors and not (self._on_host and self._on_cpu)
        if 0 < value.size <= _SMALL and value.dtype in BATCHED and not self.tensors:
            if self._held > _HELD:
                self._reduce_copies()
            self._held += value.size
            return _Copy(tensor.copy() if on_device else fetched(tensor).copy())
        row = reduced(tensor, wide=value.wide) if on_device else None
        array = fetched(tensor) if row is None else None
        if array is None or not self.tensors:
            return row if array is None else host_stats(array)
        return array.copy()

    def _reduce_copies(self) -> None:
        """Reduce the copies of a step, those of one type and shape together."""
        self._held, alike = 0, defaultdict[Any, list[Any]](list)
        for seen in self._step:
            if isinstance(seen.found, _Copy):
                alike[seen.value.dtype, seen.value.shape].append(seen)
        for some in alike.values():
            copies = [seen.found.values.reshape(-1) for seen in some]
            found: Sequence[Any] = [None] * len(some)
            if self._on_host and self._on_cpu:
                found = rows_stats(np.stack(copies))
            else:
                rows = _reduced_rows(self._mindspore.ops.stack(copies), wide=self._on_cpu)
                self._waiting.append((some, rows))
            for seen, stats in zip(some, found, strict=True):
                seen.found = stats

    def _close(self) -> None:
        self._reduce_copies()
        super()._close()

    def _joined(self, rows: list[Any]) -> Any:
        return self._mindspore.ops.concat(rows)


class _Copy(NamedTuple):
    """Elements that are reduced with others of their type and shape."""

    values: Any


def _call(owner: type, original: Callable[..., Any], cell: Any, /, *given: Any, **named: Any) -> Any:
    """Call a cell for all captures that watch it; where its class calls that of a parent, once."""
    __tracebackhide__ = True
    call: Callable[..., Any] = partial(original, cell)
    for capture in _UNDER_WAY:
        if capture.owners.get(id(cell)) is owner:
            call = partial(capture.called, call, cell)
    return call(*given, **named)


def _replace_calls() -> None:
    _CALLS.put_back()
    for owner in {owner for capture in _UNDER_WAY for owner in capture.owners.values()}:
        _CALLS.put(owner, "__call__", partial(_call, owner))


def _is_recomputation() -> bool:
    """Return whether cells are called again in a backward pass, by the frames of ``recompute``."""
    return any(
        frame.f_code.co_name in _AGAIN and frame.f_globals.get("__name__", "").endswith(".recompute")
        for frame, _line in walk_stack(None)
    )


def _dtype_of(tensor: Any) -> str:
    return re.sub("^float8e", "float8_e", str(tensor.dtype).lower())


def fetched(tensor: Any) -> Any:
    """Return the elements of a tensor as a numpy array, of ml_dtypes' types where need be, or None."""
    array = tensor.asnumpy()
    if array.dtype.kind != "V":
        return array
    import ml_dtypes  # noqa: PLC0415 - only MindSpore's own types need it

    kind = getattr(ml_dtypes, _dtype_of(tensor), None)
    return None if kind is None else array.view(f"u{array.dtype.itemsize}").view(kind)


def reduced(tensor: Any, *, wide: bool = True) -> Any:
    """Reduce a tensor to its statistics on its device, as :func:`.statistics.reduced` does.

    Args:
        tensor: of any type and shape.
        wide: whether sums are in float64; else in float32.

    Returns:
        An int64 tensor of shape (8,); None for a type that is better fetched.
    """
    mindspore = sys.modules["mindspore"]
    if not prod(tensor.shape):
        return mindspore.ops.zeros((ROW,), mindspore.int64)
    rows = _reduced_rows(tensor.reshape(1, -1), wide=wide)
    return None if rows is None else rows[0]


def _reduced_rows(rows: Any, *, wide: bool) -> Any:
    """Reduce each row of a tensor of shape (k, n), n > 0; None for a type that is better fetched."""
    mindspore = sys.modules["mindspore"]
    ops, int64, dtype = mindspore.ops, mindspore.int64, _dtype_of(rows)
    kind, code = (mindspore.float64, int64) if wide else (mindspore.float32, mindspore.int32)

    def found(numbers: Sequence[Any], counts: Sequence[Any]) -> Any:
        floats = ops.stack([one.astype(kind) for one in numbers], 1).view(code).astype(int64)
        whole = ops.stack([one.astype(int64) for one in counts], 1)
        spare = ops.zeros((len(rows), ROW - len(numbers) - len(counts)), int64)
        return ops.concat([floats, whole, spare], 1)

    def norm(values: Any) -> Any:
        return (values * values).sum(1).sqrt()

    if dtype in {"bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32"}:
        whole = rows.astype(int64)
        low = whole & 0xFFFFFFFF
        counts = [
            whole.amax(1),
            whole.amin(1),
            ((whole - low) // 2**32).sum(1),
            low.sum(1),
            (whole != 0).sum(1),
        ]
        return found([norm(whole.astype(kind))], counts)
    if dtype not in BATCHED:
        return None
    values = rows if dtype in {"float64", "float32"} else rows.astype(mindspore.float32)
    wrong, summed = values.isnan(), values.astype(kind)
    numbers = [values.masked_fill(wrong, -inf).amax(1), values.masked_fill(wrong, inf).amin(1), summed.sum(1)]
    counts = [wrong.sum(1), (values == inf).sum(1), (values == -inf).sum(1), (values != 0).sum(1)]
    return found([*numbers, norm(summed)], counts)
