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

Statistics of tensors are those of :mod:`.seen`: on a device one small tensor per step until they are fetched.
A graph that is captured reduces into buffers that were made before the capture, which are read behind each
replay; executions before it, but replays, are its warm-up, and forgotten, unless a call of the model captures
and replays it by itself. In a compiled function a hook is the operator ``npudump::note``, which compilers
leave alone.

:attr:`Capture.problems` says why what was recorded cannot be trusted, :attr:`Capture.notes` what was not
seen.
"""

from __future__ import annotations

import sys
import threading
import time
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from itertools import chain
from shutil import rmtree
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary, WeakValueDictionary

from pytest_npudump.dump.names import MODULE_EDGES
from pytest_npudump.errors import RequestError, nearest, said
from pytest_npudump.language.text import first_of
from pytest_npudump.record.record import COMPILED
from pytest_npudump.request import KnownNames
from pytest_npudump.runtime.modules.shards import shard
from pytest_npudump.runtime.modules.statistics import (
    INPUT,
    OUTPUT,
    ROW,
    SUMS,
    WIDE,
    Batch,
    DumpFiles,
    Seen,
    Value,
    array_of,
    decoded,
    digest_of,
    factors_on,
    host_stats,
    reduced,
    signs_on,
    tensors_in,
    versions_of,
)
from pytest_npudump.runtime.modules.wrappers import kind_of, paths_of, unwrapped
from pytest_npudump.runtime.replacement import Replaced

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from typing_extensions import Self


ENTER, LEAVE = 0, 1
"""Events beside a module's arguments and results: the model is called, or has returned."""

STILL = "[still]"
"""Behind the type of a module whose class draws random numbers, and which drew none in any execution."""
_PENDING = 64
"""Steps whose statistics may wait on the device."""
_BUFFERS = 1 << 26
"""Most bytes of all batches."""
_LIMITS = "cache_size_limit", "accumulated_cache_size_limit"
_COMPILED_ANEW = 8
"""How often torch compiles a module for other inputs, by default; newer names mean the same."""
_ON_TORCH = "_npudump_captures"
"""Attribute of torch, which outlives this module: the captures under way, and the operator's library."""


class _LastTensor(NamedTuple):
    """Last tensor of a module in one place: its type, shape, layout and device, and what takes more of it."""

    value: Value
    like: tuple[Any, ...]
    device: Any
    batch: Batch | None


class Capture:
    """The modules of one model, watched from :meth:`start` to :meth:`stop`; a context manager of both.

    Attributes:
        folder: where the files go.
        began: when, in the name of a rank's folder.
        model: without torch's wrappers around it.
        name: of the model.
        modules: of the model, when it was given.
        number: of the captures of this model there.
        tensors: whether it records elements.
        look: called with the number of the execution, the slot, and the elements of each output of the model
            that is in host memory; None for nobody.
        follows: whether it looks at what feeds modules, which code that is compiled is not to see.
        steps: the tensors of each execution, with statistics, or without anything where these are files.
        problems: why what was recorded cannot be trusted, in words; with any nothing more is recorded.
        processes: others than this one that it has watched.
        ran_compiled: whether a hook ran in code that torch compiled, which rounds otherwise.
        unknown: words for each of ``layers`` that it has not.
    """

    processes: frozenset[int] = frozenset()
    ran_compiled = False
    _compiled = False
    _without_modes: Callable[[], AbstractContextManager[object]] = nullcontext

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
        partly: bool = False,
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
            partly: whether ``layers`` may name what it has not, as another model has it: see :attr:`unknown`.

        Raises:
            RequestError: it is no module, or has none of a name.
        """
        self.model: Any = unwrapped(model)
        found = self._parts(model)
        self.name = name or kind_of(self.model)
        self._paths = [path or self.name for path, _ in found]
        self.modules = [module for _, module in found]
        self._kinds = [f"{kind_of(module)}{shard(module)}" for module in self.modules]
        self._still = {at for at, module in enumerate(self.modules) if _is_dropout(module)}
        for at in self._still:
            self._kinds[at] += STILL
        known = KnownNames(self._paths)
        self.unknown: dict[str, str] = {}
        for pattern in layers:
            if not known.meant([pattern]):
                near = nearest(pattern, self._paths)
                told = f"did you mean {near!r}?" if near else f"it has {first_of(self._paths[1:])}"
                words = f"npu_dump.modules(): {self.name} has no module {pattern!r}; {told}"
                if not partly:
                    raise RequestError(words)
                self.unknown[pattern] = words
        meant = known.meant(layers) if layers else {*self._paths}
        self._wanted = {
            at
            for at, path in enumerate(self._paths)
            if path in (meant if only is None else meant.intersection(only))
            and (path in layers or self._is_called(self.modules[at]))
        }
        self.folder, self._inputs, self.tensors = folder, inputs, tensors
        self.number, self._rank, self._limit, self._on_host = number, rank, limit, on_host
        self.steps: list[list[Seen]] = []
        self.problems: list[str] = []
        self._notes: dict[str, None] = {}
        self._seen: set[int] = set()
        self._parents: list[int] = []
        self._handles: list[Any] = []
        self._ours: dict[int, tuple[Any, list[int]]] = {}
        self._replaced = Replaced()
        self._limits: dict[str, int] = {}
        self._batches: dict[Any, Batch] = {}
        self._places: dict[tuple[int, int, int], _LastTensor] = {}
        self._step: list[Seen] = []
        self._last: list[Seen] = []
        self._waiting: list[tuple[list[Seen], Any]] = []
        self._pending: list[tuple[list[Seen], list[Seen], Any]] = []
        self._active = self._rooted = False
        self._unplayed: list[_ModuleGraph] = []
        self._replayed = 0
        self._streams: set[Any] = set()
        self._flow: Any = None
        self.fed: bytes | None = None
        self.versions: dict[str, int] = {}
        self._weights: list[Any] = []
        self._trained = 0
        self.look: Callable[[int, int, Any], None] | None = None
        self.follows = not self._compiled
        self._closed = self._flowing = 0
        self._thread: threading.Thread | None = None
        self._files = DumpFiles(self._paths, self._kinds, time.time_ns() // 1000)
        self.began = time.strftime("%Y%m%d%H%M%S", time.gmtime(self._files.stamp // 1_000_000))
        self._graph: _ModuleGraph | None = None
        self._graphs: WeakKeyDictionary[Any, _ModuleGraph] = WeakKeyDictionary()

    def _parts(self, model: Any) -> list[tuple[str, Any]]:
        """Return the modules of a model with their paths, of which its own is empty."""
        torch = sys.modules.get("torch")
        if torch is None or not isinstance(model, torch.nn.Module):
            raise RequestError(
                f"npu_dump.modules() takes a torch.nn.Module or mindspore.nn.Cell, not {type(model).__name__}"
            )
        if isinstance(self.model, torch.jit.RecursiveScriptModule):
            raise RequestError(
                "npu_dump.modules(): a model of torch.jit.script takes no hooks: give the one it was made of"
            )
        self._torch, self._top = torch, model
        self._plain = torch.Tensor, torch.nn.Parameter
        self._without_modes = torch.utils._python_dispatch._disable_current_modes  # noqa: SLF001 - nothing public
        self._is_tracing, self._graph_task = torch._C._is_tracing, torch._C._current_graph_task_id  # noqa: SLF001
        self._is_wrapped = torch._C._functorch.is_functorch_wrapped_tensor  # noqa: SLF001 - nothing public tells
        wrapped = (getattr(one, "_orig_mod", None) for one in model.modules())
        self._optimised = {id(one) for one in wrapped if one is not None}
        self._compiled = bool(self._optimised)
        of_model = next(chain(self.model.parameters(), self.model.buffers()), None)
        self._anchor = torch.zeros(1, dtype=torch.int32, device=None if of_model is None else of_model.device)
        return [*paths_of(self.model)]

    def _is_called(self, module: Any) -> bool:
        """Return whether a module computes; containers such as ModuleList do not."""
        forward = getattr(type(module), "forward", None)  # what jit made has it at the instance alone
        return forward is not self._torch.nn.Module.forward

    @property
    def stopped(self) -> bool:
        """Return whether it has not started, or has ended."""
        return id(self) not in captures(self._torch)

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on tensors not seen or not counted; complete behind :meth:`stop`."""
        return tuple(self._notes)

    @property
    def facts(self) -> dict[str, str]:
        """Facts of the model's environment for a golden."""
        torch = self._torch
        device = next((one.device for step in self.steps for one in step), None) or self._anchor.device
        of_device = getattr(torch, device.type, None)
        name = getattr(of_device, "get_device_name", lambda _: device.type)(device)
        compiled = {COMPILED: "torch"} if self.ran_compiled else {}
        return {"torch": str(torch.__version__), "device": str(name), **compiled}

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
        captures(torch)[id(self)] = self
        # What lazy modules write when they are called first is no training.
        self._weights = [one for one in self.model.parameters() if not hasattr(one, "materialize")]
        self._trained = self._training()
        self._forget_compiled()
        self._compile_each()
        top, anchor = self._top, self._anchor

        def enter(called: object, *given: Any) -> None:
            if called is top:
                if not torch.compiler.is_compiling():
                    self._be_last()
                self._tell(ENTER, 0, [anchor])
                if not torch.compiler.is_compiling() and not torch.jit.is_tracing():
                    self.versions = self.versions or versions_of(self.model)
                    self._look_at(tensors_in(given))
                    self._begin_flow(given)

        def leave(called: object, *_: object) -> None:
            if called is top:
                self._tell(LEAVE, 0, [anchor])
                if not torch.compiler.is_compiling():
                    self._end_flow()

        enters = top.register_forward_pre_hook(enter, with_kwargs=True)
        places: dict[int, list[int]] = {}
        for at, module in enumerate(self.modules):
            if at in self._wanted and not isinstance(module, torch.jit.RecursiveScriptModule):
                places.setdefault(id(module), []).append(at)
        shared = (self._parent(at) for found in places.values() if len(found) > 1 for at in found)
        frames = [self.modules[at] for at in {*shared}]
        self._handles = [enters, *chain(*(self._framed(module) for module in frames))]
        for found in places.values():
            self._handles += self._hooked(found)
        # Hooks of a module are called in the order of registration: the model's own tensors come first.
        self._handles.append(top.register_forward_hook(leave, always_call=True))
        self._ours = {}
        for handle in self._handles:
            hooks = handle.hooks_dict_ref()
            self._ours.setdefault(id(hooks), (hooks, []))[1].append(handle.id)
        for owner, name in (("cuda", "CUDAGraph"), ("npu", "NPUGraph")):
            graph = getattr(getattr(torch, owner, None), name, None)
            for method, call in (
                ("capture_begin", self._begin_graph),
                ("capture_end", self._end_graph),
                ("replay", self._replay),
            ):
                self._replaced.put(graph, method, call, beside=True)
        for method in ("register_forward_hook", "register_forward_pre_hook"):
            self._replaced.put(torch.nn.Module, method, self._register, beside=True)

    def _register(self, original: Callable[..., Any], *given: Any, **named: Any) -> Any:
        handle = original(*given, **named)
        self._be_last()
        return handle

    def _be_last(self) -> None:
        """Have hooks see what modules give to others, behind those that were registered since."""
        for hooks, ours in self._ours.values():
            if next(reversed(hooks), 0) != ours[-1]:
                for one in filter(hooks.__contains__, ours):
                    hooks.move_to_end(one)

    def _look_at(self, given: Sequence[Any]) -> None:
        """Know the model's inputs in its first execution, but in a graph that is being captured."""
        if self.fed is None and self._graph is None:
            self.fed = digest_of(given)

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
        if self.steps and self._training() > self._trained:
            self._note(
                said(
                    "gradients or weights of {name} changed after its last call, and are not compared: to "
                    "compare the weights by what they compute, call it once more behind the last step",
                    name=self.name,
                )
            )
        for number, step in enumerate(self.steps if not self.tensors else ()):
            self._files.write_rows(self.path / str(number), step)
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
        held = (one for module in self.modules for one in vars(module).values() if isinstance(one, kind))
        constants = chain(self.model.parameters(), self.model.buffers(), held)
        self._flow = Dataflow(tensors_in, constants, given)
        self._flow.__enter__()
        self._flowing = threading.get_ident()  # modes are those of a thread

    def _end_flow(self) -> None:
        if self._flow is not None and self._flowing == threading.get_ident():
            self._flowing = 0
            self._flow.__exit__(None, None, None)

    def _unhook(self) -> None:
        del captures(self._torch)[id(self)]
        for handle in self._handles:
            handle.remove()
        self._replaced.put_back()
        self._forget_compiled()
        self._raise_limits(-1)

    def _note_unseen(self) -> None:
        unseen = []
        for at in sorted(self._wanted - self._seen) if not self.problems else ():
            beside = (one for one in self._seen if self.modules[one] is self.modules[at])
            parent = self._parent(at)  # containers are not called: those they hold go by the first place
            held = bool(parent) and not self._is_called(self.modules[parent])
            one = next((one for one in beside if held or self._parent(one) == parent), None)
            if one is None:
                unseen.append(at)
                continue
            words = said(
                "{layer} and {other} are one module: calls of both are recorded as {other}",
                layer=self._paths[at],
                other=self._paths[one],
            )
            self._note(words)
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

    def _compile_each(self) -> None:
        """Let torch compile each module by itself: with hooks, alike ones share no compiled code.

        Beyond its limits it would run them as they are, and what compiled code makes of them would go unseen.
        """
        config = sys.modules.get("torch._dynamo.config")
        self._limits = {name: _COMPILED_ANEW * len(self.modules) for name in _LIMITS if hasattr(config, name)}
        self._raise_limits(1)

    def _raise_limits(self, sign: int) -> None:
        for name, more in self._limits.items():
            config = sys.modules["torch._dynamo.config"]
            setattr(config, name, getattr(config, name) + sign * more)

    def _forget_compiled(self) -> None:
        """Have torch compile anew: what it compiled without hooks runs on without them, and the reverse."""
        dynamo = sys.modules.get("torch._dynamo")
        compiled = self._compiled or any(
            getattr(one, "_compiled_call_impl", None) is not None for one in self.modules
        )
        if dynamo is not None and compiled:
            dynamo.reset()
            dynamo.mark_static_address(self._anchor)

    def _parent(self, at: int) -> int:
        return self._paths.index(self._paths[at].rpartition(".")[0]) if at and "." in self._paths[at] else 0

    def _framed(self, module: Any) -> list[Any]:
        """Hook a module that holds one which others hold, too: who calls it tells which one it is."""
        at = self.modules.index(module)

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
        module, holders = self.modules[places[0]], [self._parent(at) for at in places]
        plain, only = self._plain[0], places[0] if len(places) == 1 else None
        compiled = getattr(module, "_compiled_call_impl", None) is not None or id(module) in self._optimised

        def place() -> int:
            if only is not None or not self._parents or self._parents[-1] not in holders:
                return places[0]
            return places[holders.index(self._parents[-1])]

        # A copy of a module has copies of its hooks, which would tell of it under the same name.
        def before(called: object, given: Any, named: Any) -> None:
            if called is module:
                self._tell(INPUT, place(), tensors_in([given, named]))

        def behind(called: object, given: Any, output: Any) -> None:
            if called is not module:
                return
            if type(output) is plain and only is not None and not compiled:  # as mostly: in fewer calls
                self._tell(OUTPUT, only, (output,), given)
                return
            compiling = self._torch.compiler.is_compiling()
            others: list[Any] | None = None if compiling else []
            found = tensors_in(output, None, others)
            if compiled and not compiling and not self._is_tracing():
                words = said("{layer} is compiled, but torch ran it uncompiled", layer=self._paths[places[0]])
                self._note(words)
            self._tell(OUTPUT, place(), found, given)
            if others is not None and (others or not found):
                self._seen.update(places if not found else ())
                self._note_no_tensor(places[0], others or [output])

        handles = [module.register_forward_hook(behind)]
        if self._inputs:
            handles.append(module.register_forward_pre_hook(before, with_kwargs=True))
        return handles

    def _note_no_tensor(self, at: int, returned: Sequence[Any]) -> None:
        for one in returned:
            words = said(
                "{layer} ({kind}) returned {returned}, in which no tensor was found: not recorded",
                layer=self._paths[at],
                kind=self._kinds[at].partition("[")[0],
                returned=type(one).__name__,
            )
            self._note(words)

    def _note(self, words: str) -> None:
        self._notes[words] = None

    def _tell(self, kind: int, module: int, tensors: Sequence[Any], given: Any = ()) -> None:
        """Take tensors, or have compiled code do so whenever it runs."""
        torch = self._torch
        if torch.compiler.is_compiling():
            for slot, tensor in enumerate(tensors):
                torch.ops.npudump.note(tensor.detach(), self._anchor, id(self), kind, module, slot)
            return
        if not self._flowing:
            for slot, tensor in enumerate(tensors):
                self.take(kind, module, slot, tensor)
            return
        if kind == INPUT:
            self._flow.enter(module, tensors)
        elif kind == OUTPUT:
            self._flow.leave(module, given, tensors)
        with torch._C.DisableTorchFunction():  # noqa: SLF001 - what hooks call is none of the model's
            for slot, tensor in enumerate(tensors):
                self.take(kind, module, slot, tensor)

    def take(self, kind: int, module: int, slot: int, tensor: Any) -> None:
        """Take a tensor that a module is given or gives, or that the model is called or has returned."""
        if self.problems:
            return
        if self._is_backward():
            self._note(
                said("{layer}: calls in a backward pass (checkpoints) are not recorded", layer=self.name)
            )
            return
        thread = threading.current_thread()  # its number may be that of an earlier one
        if (self._thread or thread) is not thread:
            layer = self._paths[module]
            words = said("{layer} was called in another thread: the order of calls is unknown", layer=layer)
            self.problems.append(words)
            return
        self._thread = thread
        if module in self._still and _drops(self.modules[module]):
            self._still.remove(module)
            self._kinds[module] = self._kinds[module].removesuffix(STILL)
        if kind >= INPUT:
            self._record(kind, module, slot, tensor)
        elif self._graph is None:
            if kind == ENTER:
                if self._active:
                    self.problems.append(
                        said("{layer} was called during its own call", layer=self._paths[module])
                    )
                self._close()
                self._trained = self._training()
            self._active, self._rooted = kind == ENTER, True

    def _training(self) -> int:
        """Return a number that grows with each gradient, and each write to a parameter in place."""
        return sum(
            one._version + (0 if one.grad is None else 1 + one.grad._version)  # noqa: SLF001 - see versions_of
            for one in self._weights
            if one.requires_grad and one.is_leaf and not one.is_inference()
        )

    def _is_backward(self) -> bool:
        return bool(self._graph_task() != -1)

    def _record(self, kind: int, module: int, slot: int, tensor: Any) -> None:
        if self._is_tracing() or self._is_wrapped(tensor):
            self._note_odd(module, "torch.jit.trace" if self._is_tracing() else "torch.func")
            return
        self._seen.add(module)
        of, plain = type(tensor), self._plain[0]
        if of not in self._plain and of.__torch_dispatch__ is plain.__torch_dispatch__:  # with elements
            with self._torch._C.DisableTorchFunctionSubclass():  # noqa: SLF001 - as torch's own subclasses do
                tensor = tensor.as_subclass(plain)
        if type(tensor) not in self._plain or tensor.is_nested:  # one that is nested need not have a shape
            self._note_odd(module, "NestedTensor" if tensor.is_nested else type(tensor).__name__)
            return
        alike = module, kind, slot
        place = self._place(alike, tensor)
        if place is None:
            if tensor.is_quantized:
                self._record(kind, module, slot, tensor.dequantize())
            else:
                self._note_odd(module, f"{tensor.layout} {tensor.device.type}")
            return
        if tensor.requires_grad:
            tensor = tensor.detach()
        if self._graph is not None:
            self._graph.record(place.value, tensor)
        elif not (on_host := tensor.is_cpu) and self._of(place.device, "is_current_stream_capturing", bool)():
            words = said("{layer} is captured into a graph in an unknown way", layer=self._paths[module])
            self.problems.append(words)
        else:
            self._begin_next(alike)
            if on_host and self.look is not None:
                self._show(place.value, partial(array_of, tensor))
            if self.ran_compiled and self._warms_graph(place.device):
                self._keep(place.value, tensor.cpu(), place.device)
            elif (batch := place.batch) is None:
                self._keep(place.value, tensor, place.device)
            else:
                if batch.full:
                    self._reduce(batch)
                self._step.append(seen := Seen(place.value, None, place.device))
                batch.add(seen, tensor)

    def _of(self, device: Any, name: str, otherwise: Callable[..., Any]) -> Any:
        """Return a function of torch's module for a device."""
        return getattr(getattr(self._torch, device.type, None), name, otherwise)

    def _warms_graph(self, device: Any) -> bool:
        """Return whether compiled code warms a graph of torch's up, in whose memory nothing else may stay."""
        trees = sys.modules.get("torch._inductor.cudagraph_trees") if self.ran_compiled else None
        if trees is None:
            return False
        manager = trees.get_manager(device.index or 0, create_if_none_exists=False)
        return manager is not None and bool(manager.in_warmup)

    def _place(self, alike: tuple[int, int, int], tensor: Any) -> _LastTensor | None:
        """Return the buffer for such a tensor in this place; None for one without elements at addresses."""
        like: tuple[Any, ...] = tensor.dtype, tensor.shape, tensor.layout, tensor.device
        if not tensor.is_cpu:  # a batch is filled and reduced in one stream
            like += (self._stream(like[3]),)
        place = self._places.get(alike)
        if place is not None and place.like == like:
            return place
        self._streams.update(like[4:])
        if tensor.is_meta or tensor.is_quantized or tensor.layout is not self._torch.strided:
            return None
        dtype, device, batch = str(tensor.dtype).removeprefix("torch."), tensor.device, None
        count, size = tensor.numel(), tensor.numel() * tensor.element_size()
        value = Value(*alike, dtype, tuple(tensor.shape), size, count, device.type in WIDE)
        if self._graph is not None or self._warms_graph(device):
            return _LastTensor(value, like, device, None)
        if Batch.takes(value, device.type) and not self.tensors:
            batch = self._batches.get(like)
            if batch is None and sum(one.nbytes for one in self._batches.values()) < _BUFFERS:
                on_host = self._on_host and device.type == "cpu"
                batch = self._batches[like] = Batch(tensor, on_host=on_host, wide=value.wide)
        place = self._places[alike] = _LastTensor(value, like, device, batch)
        return place

    def _stream(self, device: Any) -> Any:
        """Return the stream in which a device is given work; None where it has none."""
        return None if device.type == "cpu" else self._of(device, "current_stream", lambda _: None)(device)

    @contextmanager
    def _behind_streams(self) -> Iterator[None]:
        """Read what other streams wrote, and have them wait to write more, without waiting for a device.

        Modes of the program, such as that of fake tensors, do not see it.
        """
        pairs = [(self._stream(one.device), one) for one in self._streams if one is not None]
        pairs = [(ours, other) for ours, other in pairs if ours != other]
        for ours, other in pairs:
            ours.wait_stream(other)
        with self._without_modes():
            yield
        for ours, other in pairs:
            other.wait_stream(ours)

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
        needed = value.size + sum(one.value.size for one in self._step) if self.tensors else 0
        if needed > self._limit:
            self.problems.append(_too_large(self.name, needed, self._limit))
            return
        seen = Seen(value, self._found(value, tensor), device)
        if seen.found is None:
            self._note_odd(value.module, value.dtype)
            return
        self._step.append(seen)
        if hasattr(seen.found, "shape") and not self.tensors:
            self._waiting.append(([seen], seen.found.reshape(1, -1)))

    def _found(self, value: Value, tensor: Any) -> Any:
        """Return a copy of a tensor, its statistics, or a row of them on its device."""
        if self.tensors:
            return tensor.to("cpu", copy=True)
        if self._on_host and tensor.device.type == "cpu":
            return host_stats(tensor)
        return reduced(tensor, wide=value.wide)

    def _reduce(self, batch: Batch) -> None:
        """Have the statistics of what a batch holds."""
        if batch.seen and (rows := batch.reduce()) is not None:
            self._waiting.append((batch.seen, rows))
        batch.seen = []

    def _note_odd(self, module: int, words: str) -> None:
        layer = self._paths[module]
        self._note(said("a tensor of {layer} is not recorded: {words}", layer=layer, words=words))

    def _close(self) -> None:
        """End the step under way; its statistics may stay on the device."""
        for graph in self._unplayed:
            self._forget(graph)
        warming, self._unplayed = bool(self._unplayed), []
        step, self._step, self._rooted = self._step, [], False
        if not step:
            return
        with self._behind_streams():
            for batch in self._batches.values():
                self._reduce(batch)
            waiting, self._waiting, self._last = self._waiting, [], step
            rows = self._joined([rows for _, rows in waiting]) if waiting and not warming else None
        if sum(batch.nbytes for batch in self._batches.values()) >= _BUFFERS:
            self._batches, self._places = {}, {}
        if self.tensors and not warming:
            self._files.write_tensors(self.path / str(self._closed), step)
        if self.tensors or warming:
            for one in step:
                one.found = None
        if warming:
            return
        self._closed += 1
        self._pending.append((step, [one for some, _ in waiting for one in some], rows))
        if len(self._pending) > _PENDING or self._warms_graph(step[0].device):
            self._fetch()

    def _joined(self, rows: list[Any]) -> Any:
        return self._torch.cat([some.to(rows[0].device) for some in rows])

    def _fetch(self) -> None:
        """Have statistics come from the device: one transfer a step."""
        pending, self._pending = self._pending, []
        with self._behind_streams():
            for step, waiting, rows in pending:
                for one, row in zip(waiting, rows.tolist() if waiting else (), strict=True):
                    one.found = decoded(row, one.value)
                self.steps.append(step)

    def _begin_graph(self, original: Callable[..., Any], graph: Any, *arguments: Any, **named: Any) -> Any:
        found = _ModuleGraph(self, self._step or self._last)
        result = original(graph, *arguments, **named)
        self._graph = self._graphs[graph] = found
        self.fed = b""  # what it will be replayed with is not seen
        return result

    def _end_graph(self, original: Callable[..., Any], graph: Any, *arguments: Any, **named: Any) -> Any:
        found, self._graph = self._graph, None
        if found is not None and found.seen:
            if self._active:  # the call of the model goes on, and may replay it
                self._unplayed.append(found)
            else:
                self._forget(found)
                self._last, self._step = self._step or self._last, []
        return original(graph, *arguments, **named)

    def _forget(self, graph: _ModuleGraph) -> None:
        """Take the executions since the last replay for the warm-up of a graph."""
        kept, closed = self._replayed, self._closed
        self._note_graph(graph, closed + bool(self._step) - kept)
        del self._pending[max(0, kept - len(self.steps)) :], self.steps[kept:]
        for number in range(kept, closed if self.tensors else kept):
            rmtree(self.path / str(number), ignore_errors=True)
        self._closed = kept

    def _note_graph(self, graph: _ModuleGraph, before: int) -> None:
        self._note(
            said(
                "a captured graph of {name} has buffers of {size} MiB; executions before, taken for its "
                "warm-up: {count}",
                name=self.name,
                size=f"{graph.nbytes / (1 << 20):.2f}",
                count=before,
            )
        )

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
            if found in self._unplayed:  # which has captured it, too
                self._unplayed.remove(found)
                self._note_graph(found, 0)
            self._streams.add(self._stream(found.seen[0].device))
            if not inside:
                self._close()
            seen, rows = found.read()
            self._step += seen
            if rows is not None:
                self._waiting.append((seen, rows))
            if not inside:
                self._rooted = True
                self._close()
            self._replayed = self._closed + inside
        return result


class _ModuleGraph:
    """Buffers of a model in a captured graph, made before and read behind replays.

    Attributes:
        nbytes: size of the buffers.
        seen: the tensors that are reduced, or copied, in it.
        replays: how often it has been replayed.
    """

    def __init__(self, capture: Capture, last: list[Seen]) -> None:
        """Make the buffers.

        Args:
            capture: of the model.
            last: the tensors of its last execution, which say how many there are, and how large.

        Raises:
            RequestError: the buffers do not fit.
        """
        torch = capture._torch  # noqa: SLF001 - one module
        devices = (one.device for one in last if one.device.type != "cpu")  # a model may have been moved
        device = next(devices, capture._anchor.device)  # noqa: SLF001
        self._capture, self.seen, self.replays = capture, list[Seen](), 0
        self._buffers: dict[tuple[int, int, int], list[Any]] = {}
        if not capture.tensors:
            most = 4 * max(len(last), len(capture._wanted)) + ROW  # noqa: SLF001
            self._rows = torch.zeros((most, ROW + SUMS), dtype=torch.int64, device=device)
            self.nbytes = self._rows.numel() * self._rows.element_size()
            kind = torch.float64 if device.type in WIDE else torch.float32
            for dtype in (torch.float64, torch.float32, torch.bfloat16)[kind is torch.float32 :]:
                signs_on(device, dtype, kind)
            signs_on(device, torch.int64, torch.int64)
            factors_on(device)
            return
        self.nbytes = needed = sum(one.value.size for one in last)
        limit = capture._limit  # noqa: SLF001
        if needed > limit:
            raise RequestError(_too_large(capture.name, needed, limit))
        held = 0
        for one in last:
            dtype = getattr(torch, one.value.dtype)
            try:
                buffer = torch.empty(one.value.shape, dtype=dtype, device=one.device)
            except RuntimeError as full:  # of torch.OutOfMemoryError, which older releases do not have
                raise RequestError(_too_large(capture.name, needed, held)) from full
            held += one.value.size
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
        self.seen.append(Seen(value, buffer, tensor.device))

    def read(self) -> tuple[list[Seen], Any]:
        """Read the results of the last replay started: tensors, and their rows where it has any."""
        if self._capture.tensors:
            return [replace(one, found=one.found.to("cpu", copy=True)) for one in self.seen], None
        return [replace(one, found=None) for one in self.seen], self._rows[: len(self.seen)].clone()


def _is_dropout(module: Any) -> bool:
    """Return whether a module runs a framework's own Dropout, which draws in training alone."""
    kind = type(module)
    code: Any = getattr(kind, "forward", None) or getattr(kind, "construct", None)
    ours = getattr(code, "__module__", "") in {"torch.nn.modules.dropout", "mindspore.nn.layer.basic"}
    return ours and code.__qualname__.startswith("Dropout")


def _drops(module: Any) -> bool:
    return bool(module.training and getattr(module, "p", None) != 0)


def _too_large(name: str, needed: int, limit: int) -> str:
    return said(
        "the tensors of one execution of {name} need {needed} bytes, and there is room for {limit}: name "
        "fewer layers, or raise npudump_dump_limit",
        name=name,
        needed=needed,
        limit=limit,
    )


def captures(torch: Any) -> WeakValueDictionary[int, Capture]:
    """Return the captures under way, which compiled code knows by number, by the operator for its hooks."""
    if not hasattr(torch, _ON_TORCH):
        library = torch.library.Library("npudump", "FRAGMENT")
        library.define(
            "note(Tensor value, Tensor(a!) anchor, int capture, int kind, int module, int slot) -> ()"
        )
        under_way: WeakValueDictionary[int, Capture] = WeakValueDictionary()

        def note(value: Any, _anchor: Any, number: int, kind: int, module: int, slot: int) -> None:
            capture = under_way.get(number)
            if capture is not None:
                capture.ran_compiled = True
                capture.take(kind, module, slot, value)

        library.impl("note", note, "CompositeExplicitAutograd")
        torch.library.register_fake("npudump::note", lambda *_: None, lib=library)
        setattr(torch, _ON_TORCH, (under_way, library))
    found: WeakValueDictionary[int, Capture] = getattr(torch, _ON_TORCH)[0]
    return found
