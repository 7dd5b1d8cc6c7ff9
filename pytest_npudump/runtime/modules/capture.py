"""Torch modules as layers, of one process: hooks, statistics of what modules give, files of a dump.

Without pytest, and with torch only once there is a :class:`Capture`, so that a worker can import it::

    capture = Capture(model, folder, layers=["model.layers.*"])
    capture.start()                  # hooks are in; graphs that are captured from here on are seen
    model(x)                         # an execution: step 0
    graph.replay()                   # each replay is one
    capture.stop()                   # hooks are out, files are written

What it leaves is a dump, which ``pytest_npudump.dump.reader.read_dump(folder)`` and the command read::

    [rank_R/{time14}/]{device}/{model}/{number}/{step}/statistic.csv    a row a tensor, as they were computed
    [rank_R/{time14}/]{device}/{model}/{number}/{step}/*.npy            with ``tensors``, in place of the rows

``number`` tells captures of one model in one folder apart, ``rank`` processes. Layers are the paths of
modules, the model itself has the name of its class, operator types are the names of classes. The slot counts
the tensors in what a module returns; lists, dicts and dataclasses are looked through. ``step`` counts
executions: calls of the model, or replays of a graph. What is called outside of the model behind it, as
vLLM's ``compute_logits``, belongs to the same step.

Statistics are those of :mod:`pytest_npudump.dump.stats`: by itself where tensors are in host memory, else by
:func:`reduced` on the device, where a step is one small tensor until it is fetched. A graph that is captured
reduces into buffers that were made before the capture, which are read behind each replay; executions before
it are its warm-up, and forgotten. In a compiled function a hook is the operator ``npudump::note``, which
compilers leave alone.

:attr:`Capture.problems` says why what was recorded cannot be trusted, :attr:`Capture.notes` what was not
seen.
"""

from __future__ import annotations

import csv
import struct
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import partial
from hashlib import sha256
from itertools import chain
from math import inf, nan
from shutil import rmtree
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary, WeakValueDictionary

from pytest_npudump.dump.names import MODULE_EDGES
from pytest_npudump.dump.records import SUMMED, Stats
from pytest_npudump.errors import RequestError, nearest, said
from pytest_npudump.language.text import first_of
from pytest_npudump.request import KnownNames
from pytest_npudump.runtime.modules.shards import shard
from pytest_npudump.runtime.replaced import Replaced

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from pathlib import Path

    from typing_extensions import Self


ENTER, LEAVE, INPUT, OUTPUT = range(4)
"""Events of a hook: the model is called, or has returned; a module's argument, or its result."""

_PENDING = 64
"""Steps whose statistics may wait on the device."""
ROW = 8
_BATCH_ROWS, _BATCH_BYTES = 64, 1 << 22
"""Most tensors of a batch, and their bytes."""
_SMALL = {"cpu": 1 << 16}
"""Most bytes of a tensor that is worth a copy into a batch: in host memory, and (1 MiB) elsewhere."""
_BUFFERS = 1 << 26
"""Most bytes of all batches."""
BATCHED = frozenset({"float64", "float32", "float16", "bfloat16"})
WIDE = frozenset({"cpu", "cuda", "xpu"})
"""Devices that add up in float64; others do so in float32, of which six digits count."""
_TITLES = (
    "Op Type,Op Name,Task ID,Stream ID,Timestamp,IO,Slot,Data Size,Data Type,Shape,Max Value,Min Value,"
    "Avg Value,L2Norm Value,Count,NaN Count,Negative Inf Count,Positive Inf Count,Zero Count,Digits"
)
_ON_TORCH = "_npudump_captures"
"""Attribute of torch, which outlives this module: the captures under way, and the operator's library."""


class Value(NamedTuple):
    """One tensor that was seen.

    Attributes:
        module: number of the module.
        kind: :data:`INPUT` or :data:`OUTPUT`.
        slot: which of these.
        dtype: torch's name of its type.
        shape: its dimensions.
        size: its bytes.
        elements: how many it has.
        wide: whether sums on its device are in float64.
    """

    module: int
    kind: int
    slot: int
    dtype: str
    shape: tuple[int, ...]
    size: int
    elements: int
    wide: bool


@dataclass(slots=True)
class _Seen:
    """A tensor that was seen, its statistics, :func:`reduced` row or elements, and its device."""

    value: Value
    found: Any
    device: Any


class _Known(NamedTuple):
    """Last tensor of a module in one place, and the batch that takes more of the kind."""

    value: Value
    dtype: Any
    shape: Any
    device: Any
    stream: Any
    batch: _Batch | None


class _Batch:
    """Tensors of one type and shape, copied as they come, to be reduced together: a few calls for all."""

    def __init__(self, tensor: Any, *, wide: bool, on_host: bool) -> None:
        torch, self._wide, self._on_host = sys.modules["torch"], wide, on_host
        self.nbytes = tensor.numel() * tensor.element_size()
        most = min(_BATCH_ROWS, _BATCH_BYTES // self.nbytes)
        self.nbytes *= most
        with torch.inference_mode(mode=False):
            self._rows = torch.empty((most, tensor.numel()), dtype=tensor.dtype, device=tensor.device)
        self._room: list[Any] = []
        self._seen: list[_Seen] = []

    def add(self, seen: _Seen, tensor: Any) -> None:
        """Take a tensor, whose statistics or row ``seen`` has behind :meth:`reduce`."""
        if len(self._seen) == len(self._rows):
            self.reduce()
        at = len(self._seen)
        if at == len(self._room):
            self._room.append(self._rows[at].view(tensor.shape))
        self._room[at].copy_(tensor)
        self._seen.append(seen)

    def reduce(self) -> None:
        """Reduce the tensors taken."""
        if not self._seen:
            return
        rows, waiting = self._rows[: len(self._seen)], self._seen
        self._seen = []
        if self._on_host:
            from pytest_npudump.dump.stats.tensor import rows_stats  # noqa: PLC0415 - with the first tensor

            found: Sequence[Any] = rows_stats(_array(rows))
        else:
            found = _reduced_rows(rows, wide=self._wide).unbind()
        for seen, one in zip(waiting, found, strict=True):
            seen.found = one


class Capture:
    """The modules of one model, watched from :meth:`start` to :meth:`stop`; a context manager of both.

    Attributes:
        folder: where the files go.
        began: when, in the name of a rank's folder.
        name: of the model.
        number: of the captures of this model there.
        tensors: whether it records elements.
        look: called with the number of the execution, the slot, and the elements of each output of the model
            that is in host memory; None for nobody.
        follows: whether it looks at what feeds modules, which code that is compiled is not to see.
        steps: the tensors of each execution, with statistics; None for these with ``tensors``.
        problems: why what was recorded cannot be trusted, in words; with any nothing more is recorded.
        processes: others than this one that it has watched.
    """

    processes: frozenset[int] = frozenset()
    _compiled = False

    def __init__(
        self,
        model: Any,
        folder: Path,
        *,
        layers: Sequence[str] = (),
        inputs: bool = False,
        tensors: bool = False,
        only: Collection[str] | None = None,
        number: int = 0,
        name: str = "",
        rank: int | None = None,
        limit: int = 1 << 30,
        on_host: bool = True,
    ) -> None:
        """Choose modules.

        Args:
            model: a ``torch.nn.Module``, or what ``torch.compile`` made of one.
            folder: where the files go; made if need be.
            layers: paths of modules, or globs; none for every module that can be called.
            inputs: whether tensors among arguments and keywords are recorded, too.
            tensors: record elements in place of statistics.
            only: of these, those that are of interest; None for all.
            number: of the captures of this model in ``folder``.
            name: what the model is called; "" for its class.
            rank: of the process, where several leave files in ``folder``.
            limit: most bytes of the tensors of one execution.
            on_host: whether statistics of tensors in host memory are computed there.

        Raises:
            RequestError: it is no module, or has none of a name.
        """
        self._model: Any = getattr(model, "_orig_mod", model)
        found = self._parts(model)
        self.name = name or type(self._model).__name__
        self._paths = [path or self.name for path, _ in found]
        self._modules = [module for _, module in found]
        self._kinds = [f"{type(module).__name__}{shard(module)}" for module in self._modules]
        known = KnownNames(self._paths)
        for pattern in layers:
            if not known.meant([pattern]):
                near = nearest(pattern, self._paths)
                told = f"did you mean {near!r}?" if near else f"it has {first_of(self._paths[1:])}"
                raise RequestError(f"npu_dump.modules(): {self.name} has no module {pattern!r}; {told}")
        meant = known.meant(layers) if layers else {*self._paths}
        self._wanted = {
            at
            for at, path in enumerate(self._paths)
            if path in (meant if only is None else meant.intersection(only))
            and (path in layers or self._is_called(self._modules[at]))
        }
        self.folder, self._inputs, self.tensors = folder, inputs, tensors
        self.number, self._rank, self._limit, self._on_host = number, rank, limit, on_host
        self.steps: list[list[tuple[Value, Stats | None]]] = []
        self.problems: list[str] = []
        self._notes: dict[str, None] = {}
        self._seen: set[int] = set()
        self._parents: list[int] = []
        self._handles: list[Any] = []
        self._replaced = Replaced()
        self._pending: list[tuple[list[_Seen], Any]] = []
        self._batches: dict[Any, _Batch] = {}
        self._places: dict[tuple[int, int, int], _Known] = {}
        self._step: list[_Seen] = []
        self._last: list[_Seen] = []
        self._active = self._rooted = self._warming = False
        self._flow: Any = None
        self.fed: bytes | None = None
        self.look: Callable[[int, int, Any], None] | None = None
        self.follows = not self._compiled
        self._thread = self._closed = self._flowing = 0
        self._stamp = time.time_ns() // 1000
        self.began = time.strftime("%Y%m%d%H%M%S", time.gmtime(self._stamp // 1_000_000))
        self._graph: _ModuleGraph | None = None
        self._graphs: WeakKeyDictionary[Any, _ModuleGraph] = WeakKeyDictionary()

    def _parts(self, model: Any) -> list[tuple[str, Any]]:
        """Return the modules of a model with their paths, of which its own is empty."""
        torch = sys.modules.get("torch")
        if torch is None or not isinstance(model, torch.nn.Module):
            raise RequestError(
                f"npu_dump.modules() takes a torch.nn.Module or mindspore.nn.Cell, not {type(model).__name__}"
            )
        self._torch, self._top = torch, model
        every = [*self._model.named_modules(remove_duplicate=False)]
        found = [(path, module) for path, module in every if not hasattr(module, "_orig_mod")]
        self._compiled = model is not self._model or len(found) < len(every)
        of_model = next(chain(self._model.parameters(), self._model.buffers()), None)
        self._anchor = torch.zeros(1, dtype=torch.int32, device=None if of_model is None else of_model.device)
        return [(path.replace("._orig_mod", ""), module) for path, module in found]

    def _is_called(self, module: Any) -> bool:
        """Return whether a module computes; containers such as ModuleList do not."""
        forward = getattr(type(module), "forward", None)  # what jit made has it at the instance alone
        return forward is not self._torch.nn.Module.forward

    @property
    def model(self) -> Any:
        """The model, without what ``torch.compile`` made of it."""
        return self._model

    @property
    def stopped(self) -> bool:
        """Return whether it has not started, or has ended."""
        return id(self) not in _captures(self._torch)

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on tensors not seen or not counted; complete behind :meth:`stop`."""
        return tuple(self._notes)

    @property
    def facts(self) -> dict[str, str]:
        """Facts of the model's environment for a golden."""
        device, torch = self._anchor.device, self._torch
        of_device = getattr(torch, device.type, None)
        name = getattr(of_device, "get_device_name", lambda _: device.type)(device)
        return {"torch": str(torch.__version__), "device": str(name)}

    @property
    def _device(self) -> int:
        return int(self._anchor.device.index or 0)

    @property
    def path(self) -> Path:
        """The folder of its steps."""
        name = "".join(c if c.isalnum() or c in "-_" else "_" for c in self.name)
        top = self.folder if self._rank is None else self.folder / f"rank_{self._rank}" / self.began
        return top / str(self._device) / f"{'_' * name.isdecimal()}{name}" / str(self.number)

    def __enter__(self) -> Self:
        """Start."""
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop."""
        self.stop()

    def start(self) -> None:
        """Put the hooks in, once; what was compiled of this model is compiled again, with them."""
        if self.stopped:
            self._hook()

    def _hook(self) -> None:
        torch = self._torch
        _captures(torch)[id(self)] = self
        self._forget_compiled()
        top, anchor = self._top, self._anchor

        def enter(called: object, *given: Any) -> None:
            if called is top:
                self._tell(ENTER, 0, 0, anchor)
                if not torch.compiler.is_compiling() and not torch.jit.is_tracing():
                    self._look_at(tensors_in(given))
                    self._begin_flow(given)

        def leave(called: object, *_: object) -> None:
            if called is top:
                self._tell(LEAVE, 0, 0, anchor)
                if not torch.compiler.is_compiling():
                    self._end_flow()

        enters = top.register_forward_pre_hook(enter, with_kwargs=True)
        places: dict[int, list[int]] = {}
        for at, module in enumerate(self._modules):
            if at in self._wanted:
                places.setdefault(id(module), []).append(at)
        shared = (self._parent(at) for found in places.values() if len(found) > 1 for at in found)
        frames = [self._modules[at] for at in {*shared}]
        self._handles = [enters, *chain(*(self._framed(module) for module in frames))]
        for found in places.values():
            self._handles += self._hooked(found)
        # Hooks of a module are called in the order of registration: the model's own tensors come first.
        self._handles.append(top.register_forward_hook(leave, always_call=True))
        for owner, name in (("cuda", "CUDAGraph"), ("npu", "NPUGraph")):
            graph = getattr(getattr(torch, owner, None), name, None)
            for method, call in (
                ("capture_begin", self._begin_graph),
                ("capture_end", self._end_graph),
                ("replay", self._replay),
            ):
                self._replaced.put(graph, method, call, beside=True)

    def _look_at(self, given: Sequence[Any]) -> None:
        """Know the model's inputs in its first execution, but in a graph that is being captured."""
        if self.fed is None and self._graph is None:
            self.fed = _digest_of(given)

    def stop(self) -> None:
        """Take the hooks out, and write the files; stopping twice is allowed."""
        if self.stopped:
            return
        self._unhook()
        self._end_flow()
        self._close()
        self._fetch()
        if any(graph.seen and not graph.replays for graph in self._graphs.values()):
            self._note(said("a graph with {name} was captured, and never replayed", name=self.name))
        self._note_unseen()
        for number, step in enumerate(self.steps if not self.tensors else ()):
            self._write_rows(self.path / str(number), step)
        if self.steps:
            self._write_edges(self.path)

    def _write_edges(self, folder: Path) -> None:
        if self._flow is not None:
            (folder / MODULE_EDGES).write_text(self._flow.lines(self._paths), encoding="utf-8")

    def _begin_flow(self, given: Any) -> None:
        """Follow tensors through the first execution, but for compiled code, which is not to see a mode."""
        if self._flow is not None or not self.follows or self._graph is not None or self.problems:
            return
        from pytest_npudump.runtime.modules.module_edges import Dataflow  # noqa: PLC0415 - imports torch

        kind = self._torch.Tensor
        held = (one for module in self._modules for one in vars(module).values() if isinstance(one, kind))
        constants = chain(self._model.parameters(), self._model.buffers(), held)
        self._flow = Dataflow(tensors_in, constants, given)
        self._flow.__enter__()
        self._flowing = threading.get_ident()  # modes are those of a thread

    def _end_flow(self) -> None:
        if self._flow is not None and self._flowing == threading.get_ident():
            self._flowing = 0
            self._flow.__exit__(None, None, None)

    def _unhook(self) -> None:
        del _captures(self._torch)[id(self)]
        for handle in self._handles:
            handle.remove()
        self._replaced.put_back()
        self._forget_compiled()

    def _note_unseen(self) -> None:
        unseen = sorted(self._wanted - self._seen)
        if unseen:
            self._note(
                said(
                    "modules of {name} not recorded: {count} of {every} (not called, or inside a compiled or "
                    "captured graph): {some}",
                    count=len(unseen),
                    every=len(self._wanted),
                    name=self.name,
                    some=first_of(self._paths[at] for at in unseen),
                )
            )

    def _forget_compiled(self) -> None:
        """Have torch compile anew: what it compiled without hooks runs on without them, and the reverse."""
        dynamo = sys.modules.get("torch._dynamo")
        compiled = self._compiled or any(
            getattr(one, "_compiled_call_impl", None) is not None for one in self._modules
        )
        if dynamo is not None and compiled:
            dynamo.reset()
            dynamo.mark_static_address(self._anchor)

    def _parent(self, at: int) -> int:
        return self._paths.index(self._paths[at].rpartition(".")[0] or self.name)

    def _framed(self, module: Any) -> list[Any]:
        """Hook a module that holds one which others hold, too: who calls it tells which one it is."""
        at = self._modules.index(module)

        def enter(called: object, *_: object) -> None:
            if called is module:
                self._parents.append(at)

        def leave(called: object, *_: object) -> None:
            if called is module:
                self._parents.pop()

        return [
            module.register_forward_pre_hook(enter),
            module.register_forward_hook(leave, always_call=True),
        ]

    def _hooked(self, places: list[int]) -> list[Any]:
        """Hook a module that is in these places of the model."""
        module, holders = self._modules[places[0]], [self._parent(at) for at in places]

        def place() -> int:
            if len(places) == 1 or not self._parents or self._parents[-1] not in holders:
                return places[0]
            return places[holders.index(self._parents[-1])]

        # A copy of a module has copies of its hooks, which would tell of it under the same name.
        def before(called: object, given: Any, named: Any) -> None:
            if called is not module:
                return
            found = tensors_in([given, named])
            if not self._torch.compiler.is_compiling() and self._flowing:
                self._flow.enter(place(), found)
            for slot, tensor in enumerate(found):
                self._tell(INPUT, place(), slot, tensor)

        def behind(called: object, given: Any, output: Any) -> None:
            if called is not module:
                return
            found = tensors_in(output)
            if not self._torch.compiler.is_compiling() and self._flowing:
                self._flow.leave(place(), given, found)
            for slot, tensor in enumerate(found):
                self._tell(OUTPUT, place(), slot, tensor)
            if not found and not self._torch.compiler.is_compiling():
                self._seen.update(places)
                self._note_no_tensor(places[0], output)

        handles = [module.register_forward_hook(behind)]
        if self._inputs:
            handles.append(module.register_forward_pre_hook(before, with_kwargs=True))
        return handles

    def _note_no_tensor(self, at: int, output: Any) -> None:
        words = said(
            "{layer} ({kind}) returned {returned}, which holds no tensor: not recorded",
            layer=self._paths[at],
            kind=self._kinds[at].partition("[")[0],
            returned=type(output).__name__,
        )
        self._note(words)

    def _note(self, words: str) -> None:
        self._notes[words] = None

    def _tell(self, kind: int, module: int, slot: int, tensor: Any) -> None:
        """Take a tensor, or have compiled code do so whenever it runs."""
        torch = self._torch
        if torch.compiler.is_compiling():
            torch.ops.npudump.note(tensor.detach(), self._anchor, id(self), kind, module, slot)
        elif self._flowing:
            with torch._C.DisableTorchFunction():  # noqa: SLF001 - what hooks call is none of the model's
                self.take(kind, module, slot, tensor)
        else:
            self.take(kind, module, slot, tensor)

    def take(self, kind: int, module: int, slot: int, tensor: Any) -> None:
        """Take a tensor that a module is given or gives, or that the model is called or has returned."""
        if self.problems:
            return
        layer = self._paths[module]
        if self._is_backward():
            self._note(
                said("{layer}: calls in a backward pass (checkpoints) are not recorded", layer=self.name)
            )
            return
        if self._thread != (thread := threading.get_ident()):
            if self._thread:
                words = said(
                    "{layer} was called in another thread: the order of calls is unknown", layer=layer
                )
                self.problems.append(words)
                return
            self._thread = thread
        if kind in {ENTER, LEAVE}:
            if self._graph is None and kind == ENTER:
                if self._active:
                    self.problems.append(said("{layer} was called while it ran", layer=layer))
                self._close()
            if self._graph is None:
                self._active, self._rooted = kind == ENTER, True
            return
        self._record(kind, module, slot, tensor)

    def _is_backward(self) -> bool:
        return bool(self._torch._C._current_graph_task_id() != -1)  # noqa: SLF001 - nothing public tells

    def _place(self, alike: tuple[int, int, int], tensor: Any) -> _Known:
        """Return the entry of such a tensor in this place."""
        device, shape = tensor.device, tensor.shape
        known, stream = self._places.get(alike), None
        if device.type != "cpu":  # a batch is filled and reduced in one stream
            stream = getattr(getattr(self._torch, device.type), "current_stream", lambda _: None)(device)
        if known and (tensor.dtype, shape, device, stream) == known[1:5]:
            return known
        dtype, wide = str(tensor.dtype).removeprefix("torch."), device.type in WIDE
        count, size = tensor.numel(), tensor.numel() * tensor.element_size()
        value = Value(*alike, dtype, tuple(shape), size, count, wide)
        kind, batch = (tensor.dtype, shape, device, stream), None
        small = 0 < size <= _SMALL.get(device.type, 1 << 20)
        if small and dtype in BATCHED and not self.tensors and self._graph is None:
            batch = self._batches.get(kind)
            if batch is None and sum(one.nbytes for one in self._batches.values()) < _BUFFERS:
                on_host = self._on_host and device.type == "cpu"
                batch = self._batches[kind] = _Batch(tensor, wide=wide, on_host=on_host)
        found = _Known(value, *kind, batch)
        if self._graph is None:
            self._places[alike] = found
        return found

    def _record(self, kind: int, module: int, slot: int, tensor: Any) -> None:
        torch, layer = self._torch, self._paths[module]
        if torch.jit.is_tracing():
            self._note_odd(module, "torch.jit.trace")
            return
        if torch._C._functorch.is_functorch_wrapped_tensor(tensor):  # noqa: SLF001 - nothing public tells
            self._note_odd(module, "torch.func")
            return
        tensor, alike = tensor.detach(), (module, kind, slot)
        self._seen.add(module)
        if type(tensor) not in {torch.Tensor, torch.nn.Parameter}:
            self._note_odd(module, type(tensor).__name__)
        elif tensor.is_meta or tensor.is_quantized or tensor.layout is not torch.strided:
            self._note_odd(module, f"{tensor.layout} {tensor.device.type}")
        elif self._graph is not None:
            self._graph.record(self._place(alike, tensor).value, tensor)
        elif getattr(getattr(torch, tensor.device.type, None), "is_current_stream_capturing", bool)():
            self.problems.append(said("{layer} is captured into a graph in an unknown way", layer=layer))
        else:
            self._begin_next(alike)
            place = self._place(alike, tensor)
            if place.device.type == "cpu":
                self._show(place.value, partial(_array, tensor))
            if place.batch is None:
                self._keep(place.value, tensor, place.device)
            else:
                self._step.append(_Seen(place.value, None, place.device))
                place.batch.add(self._step[-1], tensor)

    def _show(self, value: Value, elements: Callable[[], Any]) -> None:
        """Have :attr:`look` see what the model itself gives, where that is in host memory."""
        if self.look is not None and (value.module, value.kind) == (0, OUTPUT):
            with suppress(AttributeError):  # neither numpy nor ml_dtypes knows values of this type
                self.look(self._closed, value.slot, elements())

    def _begin_next(self, alike: tuple[int, int, int]) -> None:
        """End the step under way where it has such a tensor already, and no model around it."""
        if not self._rooted and any(one.value[:3] == alike for one in self._step):
            self._close()

    def _keep(self, value: Value, tensor: Any, device: Any) -> None:
        """Take a tensor into the step under way."""
        if self.tensors:
            self._refuse_more_than(value.size + sum(one.value.size for one in self._step))
        found = None if self.problems else self._found(value, tensor)
        if found is not None:
            self._step.append(_Seen(value, found, device))
        elif not self.problems:
            self._note_odd(value.module, value.dtype)

    def _found(self, value: Value, tensor: Any) -> Any:
        """Return a copy of a tensor, its statistics, or a row of them on its device."""
        if self.tensors:
            return tensor.to("cpu", copy=True)
        if self._on_host and tensor.device.type == "cpu":
            return host_stats(tensor)
        return reduced(tensor, wide=value.wide)

    def _note_odd(self, module: int, words: str) -> None:
        layer = self._paths[module]
        self._note(said("a tensor of {layer} is not recorded: {words}", layer=layer, words=words))

    def _refuse_more_than(self, needed: int) -> None:
        if needed > self._limit:
            self.problems.append(_too_large(self.name, needed, self._limit))

    def _close(self) -> None:
        """End the step under way; its statistics may stay on the device."""
        step, self._step, self._rooted = self._step, [], False
        warming, self._warming = self._warming, False
        if not step:
            return
        for batch in self._batches.values():
            batch.reduce()
        if sum(batch.nbytes for batch in self._batches.values()) >= _BUFFERS:
            self._batches, self._places = {}, {}
        self._last = [_Seen(one.value, None, one.device) for one in step]
        if warming:
            return
        rows = None
        if self.tensors:
            self._write_tensors(self.path / str(self._closed), step)
            step = self._last
        elif waiting := [one.found for one in step if not isinstance(one.found, Stats)]:
            rows = self._stacked(waiting)
        self._closed += 1
        self._pending.append((step, rows))
        if len(self._pending) > _PENDING:
            self._fetch()

    def _stacked(self, rows: list[Any]) -> Any:
        return self._torch.stack([row.to(self._anchor.device) for row in rows])

    def _fetch(self) -> None:
        """Have statistics come from the device: one transfer a step."""
        pending, self._pending = self._pending, []
        for step, rows in pending:
            fetched = iter(() if rows is None else rows.tolist())
            known = [isinstance(one.found, Stats | None) for one in step]
            self.steps.append(
                [
                    (one.value, one.found if here else decoded(next(fetched), one.value))
                    for one, here in zip(step, known, strict=True)
                ]
            )

    def _begin_graph(self, original: Callable[..., Any], graph: Any, *arguments: Any, **named: Any) -> Any:
        found = _ModuleGraph(self, self._step or self._last)
        result = original(graph, *arguments, **named)
        self._graph = self._graphs[graph] = found
        self.fed = b""  # what it will be replayed with is not seen
        return result

    def _end_graph(self, original: Callable[..., Any], graph: Any, *arguments: Any, **named: Any) -> Any:
        found, self._graph = self._graph, None
        if found is not None and found.seen:
            before = self._closed + bool(self._step)
            self._pending, self.steps, self._closed = [], [], 0
            self._warming = self._active
            if not self._active:
                self._last, self._step = self._step or self._last, []
            rmtree(self.path, ignore_errors=True)
            self._note(
                said(
                    "a captured graph of {name} has buffers of {size} MiB; executions before, taken for its "
                    "warm-up: {count}",
                    name=self.name,
                    size=f"{found.nbytes / (1 << 20):.2f}",
                    count=before,
                )
            )
        return original(graph, *arguments, **named)

    def _replay(self, original: Callable[..., Any], graph: Any, *arguments: Any, **named: Any) -> Any:
        result = original(graph, *arguments, **named)
        found = self._graphs.get(graph)
        if found is None:
            self._note(
                said(
                    "a replayed graph was captured earlier: its calls of {name} are not recorded",
                    name=self.name,
                )
            )
        elif found.seen and not self.problems:
            found.replays += 1
            inside = self._active  # of a call of the model, of which the graph is a piece
            if not inside:
                self._close()
            self._step += found.read()
            if not inside:
                self._rooted = True
                self._close()
        return result

    # Files

    def _write_rows(self, folder: Path, step: list[tuple[Value, Stats | None]]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "statistic.csv").open(
            "w", encoding="utf-8", errors="surrogateescape", newline=""
        ) as file:
            file.write(_TITLES + "\n")
            lines = csv.writer(file, lineterminator="\n")
            for value, stats in step:
                name, kind, io = self._named(value)
                shape = f"({','.join(map(str, value.shape))})"
                self._stamp += 1
                row = [kind, name, 0, 0, self._stamp, io, value.slot, value.size, value.dtype, shape]
                if stats is not None:
                    row += stats.max, stats.min, stats.avg, stats.l2norm, stats.count
                    row += stats.nan, stats.neg_inf, stats.pos_inf, stats.zero, stats.digits or 0
                lines.writerow(["NA" if cell is None else cell for cell in row])

    def _write_tensors(self, folder: Path, step: Sequence[Any]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        lines = []
        for at, seen in enumerate(step):
            value, tensor = seen.value, seen.found
            name, kind, io = self._named(value)
            self._stamp += 1
            long = f"{kind}.{name.replace('/', '_')}.0.0.{self._stamp:016}.{io}.{value.slot}.ND"
            lines.append((f"{at}.npy", f"{long}.{value.dtype}.npy"))
            header = f"{{'descr': {_descr(value.dtype)!r}, 'fortran_order': False, 'shape': {value.shape}, }}"
            text = header.encode() + b" " * (-(len(header) + 11) % 64) + b"\n"
            octets = _array(tensor).reshape(-1).view("u1").data
            with (folder / f"{at}.npy").open("wb") as file:
                file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text)
                file.write(octets)
        with (folder / "mapping.csv").open("w", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows(lines)

    def _named(self, value: Value) -> tuple[str, str, str]:
        io = "input" if value.kind == INPUT else "output"
        return self._paths[value.module], self._kinds[value.module], io


class _ModuleGraph:
    """Buffers of a model in a captured graph, made before and read behind replays.

    Attributes:
        nbytes: size of the buffers.
        seen: the tensors that are reduced, or copied, in it.
        replays: how often it has been replayed.
    """

    def __init__(self, capture: Capture, last: list[_Seen]) -> None:
        """Make the buffers.

        Args:
            capture: of the model.
            last: the tensors of its last execution, which say how many there are, and how large.

        Raises:
            RequestError: the buffers do not fit.
        """
        torch, device = capture._torch, capture._anchor.device  # noqa: SLF001 - one module
        self._capture, self.seen, self.replays = capture, list[_Seen](), 0
        self._buffers: dict[tuple[int, int, int], list[Any]] = {}
        if not capture.tensors:
            most = 4 * max(len(last), len(capture._wanted)) + ROW  # noqa: SLF001
            self._rows = torch.zeros((most, ROW), dtype=torch.int64, device=device)
            self.nbytes = most * ROW * self._rows.element_size()
            return
        self.nbytes = needed = sum(one.value.size for one in last)
        limit = capture._limit  # noqa: SLF001
        free = getattr(getattr(torch, device.type, None), "mem_get_info", lambda: (limit, limit))()[0]
        if needed > min(limit, free):
            raise RequestError(_too_large(capture.name, needed, min(limit, free)))
        for one in last:
            dtype = getattr(torch, one.value.dtype)
            buffer = torch.empty(one.value.shape, dtype=dtype, device=one.device)
            self._buffers.setdefault(one.value[:3], []).append(buffer)

    def record(self, value: Value, tensor: Any) -> None:
        """Take a tensor into a buffer; the copy, or the reduction, is a part of the graph."""
        at, problems = len(self.seen), self._capture.problems
        words = said(
            "{name}: the graph has no buffer left for {layer}: call the model once, as the graph does, "
            "before the capture",
            name=self._capture.name,
            layer=self._capture._paths[value.module],  # noqa: SLF001
        )
        if self._capture.tensors:
            buffers = self._buffers.get(value[:3], [])
            if not buffers or buffers[0].shape != tensor.shape or buffers[0].dtype != tensor.dtype:
                problems.append(words)
                return
            buffer = buffers.pop(0)
            buffer.copy_(tensor)
        elif at == len(self._rows):
            problems.append(words)
            return
        else:
            row = reduced(tensor, wide=value.wide)
            if row is None:
                return
            buffer = self._rows[at]
            buffer.copy_(row)
        self.seen.append(_Seen(value, buffer, tensor.device))

    def read(self) -> list[_Seen]:
        """Read the results of the last replay started."""
        if self._capture.tensors:
            return [replace(one, found=one.found.to("cpu", copy=True)) for one in self.seen]
        rows = self._rows[: len(self.seen)].clone().unbind()
        return [replace(one, found=row) for one, row in zip(self.seen, rows, strict=True)]


def _too_large(name: str, needed: int, limit: int) -> str:
    return said(
        "the tensors of one execution of {name} need {needed} bytes, and there is room for {limit}: name "
        "fewer layers, or raise npudump_dump_limit",
        name=name,
        needed=needed,
        limit=limit,
    )


def tensors_in(value: Any, kind: Any = None) -> list[Any]:
    """Return the tensors in what a module returns, or is given, in order; of torch, or of a class."""
    kind = kind or sys.modules["torch"].Tensor
    if isinstance(value, kind):
        return [value]
    found: list[Any] = []

    def look(value: Any) -> None:
        if isinstance(value, kind):
            found.append(value)
        elif isinstance(value, (list, tuple)):
            for one in value:
                look(one)
        elif isinstance(value, dict):
            look([*value.values()])
        elif is_dataclass(type(value)):
            look([getattr(value, one.name) for one in fields(value)])

    look(value)
    return found


_MOST_FED = 1 << 25
"""Bytes of a model's inputs beyond which their digest would take longer than a passing test should."""


def bytes_of(tensor: Any) -> bytes:
    """Return the elements of a tensor, wherever it is."""
    if hasattr(tensor, "asnumpy"):
        return bytes(tensor.asnumpy().tobytes())
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return bytes(flat.view(sys.modules["torch"].uint8).numpy().tobytes()) if flat.numel() else b""


def _digest_of(tensors: Sequence[Any]) -> bytes:
    """Return a digest of what a model was given; b"" where that is large, or no elements can be had."""
    digest = sha256()
    try:
        if not 0 < sum(int(one.nbytes) for one in tensors) <= _MOST_FED:
            return b""
        for one in tensors:
            digest.update(repr((str(one.dtype), tuple(one.shape))).encode() + bytes_of(one))
    except (RuntimeError, TypeError, ValueError, AttributeError):  # of tensors that stand for others
        return b""
    return digest.digest()


def _captures(torch: Any) -> WeakValueDictionary[int, Capture]:
    """Return the captures under way, which compiled code knows by number, by the operator for its hooks."""
    if not hasattr(torch, _ON_TORCH):
        library = torch.library.Library("npudump", "FRAGMENT")
        library.define(
            "note(Tensor value, Tensor(a!) anchor, int capture, int kind, int module, int slot) -> ()"
        )
        captures: WeakValueDictionary[int, Capture] = WeakValueDictionary()

        def note(value: Any, _anchor: Any, number: int, kind: int, module: int, slot: int) -> None:
            capture = captures.get(number)
            if capture is not None:
                capture.take(kind, module, slot, value)

        library.impl("note", note, "CompositeExplicitAutograd")
        torch.library.register_fake("npudump::note", lambda *_: None, lib=library)
        setattr(torch, _ON_TORCH, (captures, library))
    found: WeakValueDictionary[int, Capture] = getattr(torch, _ON_TORCH)[0]
    return found


def reduced(tensor: Any, *, wide: bool = True) -> Any:
    """Reduce a tensor to its statistics on its device, without waiting for it.

    Args:
        tensor: of any type and shape.
        wide: whether sums are in float64; else in float32.

    Returns:
        An int64 tensor of shape (8,), for :func:`decoded`; None for a type whose values cannot be had.
    """
    torch = sys.modules["torch"]
    if not tensor.numel():
        return torch.zeros(ROW, dtype=torch.int64, device=tensor.device)
    if tensor.is_floating_point() and tensor.element_size() == 1:
        try:
            tensor = tensor.to(torch.float32)
        except (RuntimeError, NotImplementedError):
            return None
    return _reduced_rows(tensor.reshape(1, -1), wide=wide)[0]


def _reduced_rows(rows: Any, *, wide: bool) -> Any:
    """Reduce each row of a tensor of shape (k, n), n > 0, to an int64 row of shape (8,)."""
    torch = sys.modules["torch"]
    kind, code = (torch.float64, torch.int64) if wide else (torch.float32, torch.int32)
    int64 = torch.int64

    def found(numbers: Sequence[Any], counts: Sequence[Any]) -> Any:
        cells = [torch.stack([one.to(kind) for one in numbers], 1).view(code).to(int64)]
        cells.append(torch.stack([one.to(int64) for one in counts], 1))
        spare = ROW - len(numbers) - len(counts)
        cells.append(torch.zeros((len(rows), spare), dtype=int64, device=rows.device))
        return torch.cat(cells, 1)

    if rows.is_complex():
        parts = torch.view_as_real(rows.resolve_conj())
        wrong = parts.isnan()
        norm = torch.linalg.vector_norm(parts.to(kind).flatten(1), dim=1)
        return found([norm], [wrong.any(-1).sum(1), (parts != 0).any(-1).sum(1)])
    if rows.is_floating_point():
        wrong = rows.isnan()

        def without_nan(value: float) -> Any:
            if rows.element_size() > 4:  # noqa: PLR2004 - of which devices know no such function
                return rows.masked_fill(wrong, value)
            return rows.nan_to_num(value, inf, -inf)

        summed = rows if rows.element_size() <= kind.itemsize else rows.to(kind)
        numbers = [
            without_nan(-inf).amax(1),
            without_nan(inf).amin(1),
            summed.sum(1, dtype=kind),
            torch.linalg.vector_norm(summed, dim=1, dtype=kind),
        ]
        few = torch.int32 if rows.shape[1] < 1 << 31 else int64
        counts = [one.sum(1, dtype=few) for one in (wrong, rows == inf, rows == -inf, rows.bool())]
        return found(numbers, counts)
    top = rows.dtype == getattr(torch, "uint64", None)
    whole = rows.view(int64) if top else rows.to(int64)
    low, high = whole & 0xFFFFFFFF, whole >> 32
    ordered = whole ^ -(1 << 63) if top else whole
    high = high & 0xFFFFFFFF if top else high
    floats = high.to(kind) * 2.0**32 + low.to(kind) if top else whole.to(kind)
    counts = [ordered.amax(1), ordered.amin(1), high.sum(1), low.sum(1), (whole != 0).sum(1)]
    return found([torch.linalg.vector_norm(floats, dim=1)], counts)


def decoded(row: Sequence[int], value: Value) -> Stats:
    """Return the statistics in a row of :func:`reduced`."""
    count, digits = value.elements, SUMMED if value.wide else 6
    form = ("<q", "<d") if value.wide else ("<i", "<f")
    if "complex" in value.dtype:
        nans, filled = row[1:3]
        norm = _float(row[0], form)
        return Stats(count, l2norm=norm, nan=nans, zero=count - filled, digits=digits)
    if "float" in value.dtype:
        high, low, total, norm = (_float(bits, form) for bits in row[:4])
        nans, pos, neg, filled = row[4:]
        if not count:
            return Stats(0, l2norm=0.0, nan=0, neg_inf=0, pos_inf=0, zero=0, digits=digits)
        high, low = (nan, nan) if nans == count else (high + 0.0, low + 0.0)
        return Stats(count, high, low, total / count + 0.0, norm, nans, neg, pos, count - filled, digits)
    norm, (most, least, above, below, filled) = _float(row[0], form), row[1:6]
    shift = 1 << 63 if value.dtype == "uint64" else 0
    total = (above << 32) + below
    if not count:
        return Stats(0, l2norm=0.0, nan=0, neg_inf=0, pos_inf=0, zero=0, digits=digits)
    return Stats(count, most + shift, least + shift, total / count, norm, 0, 0, 0, count - filled, digits)


def _float(bits: int, form: tuple[str, str]) -> float:
    found: float = struct.unpack(form[1], struct.pack(form[0], bits))[0]
    return found


def _array(tensor: Any) -> Any:
    """Return the elements of a tensor in host memory as a numpy array, of ml_dtypes' types where need be."""
    if not hasattr(tensor, "resolve_conj"):  # no tensor of torch: it is one
        return tensor
    torch, plain = sys.modules["torch"], tensor.resolve_conj().resolve_neg().contiguous()
    try:
        return plain.numpy()
    except TypeError:
        import ml_dtypes  # noqa: PLC0415 - only these types need it

        octets = plain.reshape(-1).view(torch.uint8).numpy()
        return octets.view(getattr(ml_dtypes, str(tensor.dtype).removeprefix("torch."))).reshape(tensor.shape)


def host_stats(tensor: Any) -> Stats | None:
    """Return the statistics of a tensor in host memory, or an array; None where its type is unknown."""
    from pytest_npudump.dump.arrays.decode import DecodeError  # noqa: PLC0415 - with the first tensor
    from pytest_npudump.dump.stats.tensor import tensor_stats  # noqa: PLC0415 - the same

    try:
        return tensor_stats(_array(tensor))
    except (AttributeError, DecodeError):  # neither numpy nor ml_dtypes knows values of this type
        return None


def _descr(dtype: str) -> str:
    import numpy as np  # noqa: PLC0415 - as above

    plain = getattr(np, "bool_" if dtype == "bool" else dtype, None)
    return dtype if plain is None else str(np.dtype(plain).str)
