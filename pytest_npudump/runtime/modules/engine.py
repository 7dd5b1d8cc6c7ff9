"""Modules of a served model as layers: vLLM's workers, whatever a scheduler makes of the requests.

The entry point ``vllm.general_plugins``, which vLLM calls in each process of an engine, gives workers what
:class:`EngineCapture` calls by ``LLM.collective_rpc``. It does nothing unless :data:`WORKERS` is set, which
a test of the scene ``modules`` sets before its fixtures. ``LLM(worker_extension_cls=EXTENSION)`` does, too.

A tensor of a batch has a row a token, packed or padded. Rows are taken apart by request and position, so that
neither batching, order, chunks of a prompt nor padding change a golden::

    [rank_R/{time14}/]{device}/{request}/{number}/{step}/

``request`` is a hash of the prompt's tokens, ``number`` tells equal prompts apart, step 0 is the prompt, and
step n the n-th token behind it. What is computed for the last token alone, such as logits, belongs to its
step. Positions that a cache of prefixes holds are not computed; the cache is emptied first, and where
prompts share a prefix a problem says so.

An engine that compiles or captures graphs does so while it starts. There hooks are put in as the model is
loaded, and forget what they see until a test asks.
"""

from __future__ import annotations

import os
import sys
from collections import defaultdict
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from operator import index
from pathlib import Path
from threading import Thread
from time import monotonic
from types import MethodType
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_npudump.dump.records import Stats
from pytest_npudump.errors import RequestError, RuntimeUnavailableError, joined, said
from pytest_npudump.runtime.modules.capture import ENTER, LEAVE, Capture
from pytest_npudump.runtime.modules.shards import shard_digests
from pytest_npudump.runtime.modules.statistics import OUTPUT, WIDE, Seen, Value, decoded
from pytest_npudump.runtime.modules.worker import WORKERS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from typing_extensions import Self


EXTENSION = "pytest_npudump.runtime.modules.engine.WorkerExtension"
TIMEOUT = 300.0
"""Seconds that workers may take to begin, and to write what they have seen."""
_GRACE = 5.0
"""Seconds beyond, in which vLLM says itself that its workers did not answer."""
_START, _STOP = "npudump_start", "npudump_stop"
_KEPT, _ASKED = "_npudump_kept", "_npudump_asked"
"""Attributes of a runner: the capture whose hooks are in compiled code, and the one that a test asks for."""


class _Rows(NamedTuple):
    """Rows of a batch that belong to one step of a request: its key, and where they begin and end."""

    request: str
    number: int
    step: int
    first: int
    end: int


class TokenCapture(Capture):
    """The modules of the model of one vLLM worker, by request and position.

    Attributes:
        force: tokens to go on with, by the hash of the prompt.
        idle: whether what hooks see is forgotten.
        stands_in: the capture whose hooks, in compiled code, tell this one; None for its own.
        shards: digests of the parameters, and notes on them.
    """

    def __init__(
        self, runner: Any, folder: Path, *, force: Mapping[str, Sequence[int]], **asked: Any
    ) -> None:
        """Choose modules.

        Args:
            runner: the worker's model runner.
            folder: where the files go.
            force: tokens to go on with, by the hash of the prompt, in place of those that are sampled.
            asked: further arguments of a capture.
        """
        super().__init__(runner.model, folder, **asked)
        self._runner, self.force = runner, force
        self.follows = getattr(getattr(runner, "model_config", None), "enforce_eager", False)
        for earlier in folder.glob(f"rank_{self._rank}/*"):
            self.began = earlier.name
        self.idle = False
        self.stands_in: TokenCapture | None = None
        self.shards: tuple[dict[str, dict[str, str]], list[str]] = {}, []
        self._asked: TokenCapture | None = None
        self._batch: list[_Rows] = []
        self._last_rows: list[_Rows] = []
        self._requests: dict[str, tuple[str, int, int]] = {}
        self._numbers: defaultdict[str, int] = defaultdict(int)
        self._next: dict[str, int] = {}
        self._held: defaultdict[tuple[str, int, int], defaultdict[tuple[int, int, int], list[Seen]]]
        self._held = defaultdict(lambda: defaultdict(list))
        self._scheduled: Mapping[str, int] = {}

    @property
    def prompts(self) -> list[str]:
        """Hashes of the prompts of its requests."""
        return [request for request, _number, _length in self._requests.values()]

    def start(self) -> None:
        """Put the hooks in, and learn of each batch."""
        if self.stopped:
            super().start()
            self._replaced.put(self._runner, "execute_model", self._execute)
            self._replaced.put(self._runner.model, "compute_logits", self._logits)

    def _execute(self, original: Callable[..., Any], scheduled: Any, *more: Any, **named: Any) -> Any:
        self._scheduled = dict(scheduled.num_scheduled_tokens)
        return original(scheduled, *more, **named)

    def _logits(self, original: Callable[..., Any], *given: Any, **named: Any) -> Any:
        """Compute logits, which force tokens where the test has given them."""
        logits = original(*given, **named)
        told = self if self._asked is None else self._asked
        for at, rows in enumerate(told._last_rows if logits is not None and not self.idle else ()):  # noqa: SLF001
            tokens = told.force.get(rows.request, ())
            if rows.step >= len(tokens) or at >= len(logits):
                continue
            if not 0 <= (token := tokens[rows.step]) < logits.shape[-1]:
                words = said("force: token {token} is none of {count}", token=token, count=logits.shape[-1])
                told.problems.append(words)
                continue
            logits[at] = float("-inf")
            logits[at, token] = 0
        return logits

    def take(self, kind: int, module: int, slot: int, tensor: Any) -> None:
        """Take a tensor of a batch, or learn that one begins."""
        if self.idle:
            return
        if self._asked is not None:
            asked = self._asked
            if kind in {ENTER, LEAVE} or (module in asked._wanted and (kind == OUTPUT or asked._inputs)):  # noqa: SLF001
                asked._scheduled = self._scheduled  # noqa: SLF001 - one class
                asked.take(kind, module, slot, tensor)
            return
        super().take(kind, module, slot, tensor)
        if kind == ENTER and not self.problems:
            self._begin_batch()

    def _begin_batch(self) -> None:
        batch, self._batch, self._last_rows, first = self._runner.input_batch, [], [], 0
        for at, name in enumerate(batch.req_ids[: batch.num_reqs]):
            count = self._scheduled.get(name, 0)
            begin = int(batch.num_computed_tokens_cpu[at])
            request, number, prompt = self._of_request(name)
            known = self._next.setdefault(name, 0)
            if begin > known:
                self.problems.append(
                    said(
                        "tokens of a prompt that come from the cache of prefixes, not computed: {count}; "
                        "start the engine with enable_prefix_caching=False",
                        count=begin - known,
                    )
                )
            place, end = max(begin, known), begin + count
            if place < min(end, prompt):
                rows = first + place - begin, first + min(end, prompt) - begin
                self._batch.append(_Rows(request, number, 0, *rows))
            for position in range(max(place, prompt), end):
                row = first + position - begin
                self._batch.append(_Rows(request, number, position - prompt + 1, row, row + 1))
            step = max(0, end - prompt)
            self._last_rows.append(_Rows(request, number, step, at, at + (end >= prompt and end > known)))
            self._next[name], first = max(end, known), first + count

    def _of_request(self, name: str) -> tuple[str, int, int]:
        """Return the hash of a request's prompt, which one of equal prompts it is, and its length."""
        if name not in self._requests:
            tokens = [*self._runner.requests[name].prompt_token_ids]
            request = prompt_hash(tokens)
            if request not in self._numbers:  # another capture of the test may have had it
                self._numbers[request] = len([*(self.path.parent.parent / request).glob("*")])
            self._requests[name] = request, self._numbers[request], len(tokens)
            self._numbers[request] += 1
        return self._requests[name]

    def _record(self, kind: int, module: int, slot: int, tensor: Any) -> None:
        rows, tensor = self._batch if self._active else self._last_rows, tensor.detach()
        needed = max((one.end for one in rows), default=0)
        if not tensor.dim() or len(tensor) < needed or not rows:
            self._note(
                said(
                    "{layer} gives a tensor without one row per token: not recorded",
                    layer=self._paths[module],
                )
            )
            return
        dtype = str(tensor.dtype).removeprefix("torch.")
        self._seen.add(module)
        for request, number, step, first, end in rows:
            if first == end:
                continue
            part = tensor[first:end]
            size = part.numel() * part.element_size()
            wide = tensor.device.type in WIDE
            value = Value(module, kind, slot, dtype, tuple(part.shape), size, part.numel(), wide)
            found = self._found(value, part)
            if found is not None:
                self._held[request, number, step][module, kind, slot].append(Seen(value, found))

    def stand_in_for(self, asked: TokenCapture) -> None:
        """Pass the tensors of these hooks, which are in compiled code, to a capture that a test asks for."""
        self._asked, asked.stands_in, self.idle = asked, self, False
        asked.ran_compiled = self.ran_compiled  # it has, while the engine started

    def end(self) -> None:
        """End the test's capture; hooks in compiled code stay, and forget their tensors."""
        if self.stands_in is None:
            self.stop()
            return
        self.stands_in.idle, self.stands_in._asked = True, None  # noqa: SLF001 - one class
        self._note_unseen()
        self._write()

    def stop(self) -> None:
        """Take the hooks out, and write the files."""
        if not self.stopped:
            super().stop()
            self._write()

    def _write(self) -> None:
        held, self._held = self._held, defaultdict(lambda: defaultdict(list))
        top = self.path.parent.parent
        try:
            for request, number in sorted({key[:2] for key in held}):
                (top / request / str(number)).mkdir(parents=True)
        except FileExistsError:
            words = said(
                "{request}: two engines recorded equal prompts at once, which have one name: give each "
                "engine, or data-parallel rank, prompts of its own",
                request=request,
            )
            self.problems.append(words)
            return
        for (request, number, step), tensors in sorted(held.items()):
            folder = top / request / str(number) / str(step)
            whole = [_whole(parts, elements=self.tensors) for parts in tensors.values()]
            if self.tensors:
                self._files.write_tensors(folder, whole)
                for one in whole:
                    one.found = None
            else:
                self._files.write_rows(folder, whole)
            self.steps.append(whole)
        for request in {request for request, *_ in held}:
            self._write_edges(top / request)


def _whole(parts: Sequence[Seen], *, elements: bool) -> Seen:
    """Return the tensor of all tokens of a step, which several batches may have computed."""
    value = parts[0].value
    sizes = [part.value for part in parts]
    value = value._replace(
        shape=(sum(one.shape[0] for one in sizes), *value.shape[1:]),
        size=sum(one.size for one in sizes),
        elements=sum(one.elements for one in sizes),
    )
    found = [part.found for part in parts]
    if elements:
        import torch  # noqa: PLC0415 - a worker has it

        return Seen(value, torch.cat(found))
    if not isinstance(found[0], Stats):
        found = [decoded(one.tolist(), part.value) for one, part in zip(found, parts, strict=True)]
    if len(found) > 1:
        return Seen(value, Stats.of_parts(found))
    # Batches cut tokens otherwise each time, so that a sum over all elements is known of one token alone.
    return Seen(value, found[0] if value.shape[0] == 1 else replace(found[0], projections=None, checksum=""))


def prompt_hash(tokens: Sequence[int]) -> str:
    """Return the name of a request: a hash of its prompt's tokens."""
    return f"p{sha256(','.join(map(str, tokens)).encode()).hexdigest()[:10]}"


class WorkerExtension:
    """Methods called in workers; every argument and result is plain data."""

    def npudump_start(self, folder: str, force: dict[str, list[int]], asked: dict[str, Any]) -> str:
        """Begin to watch the modules of this worker's model; returns why it cannot, or ""."""
        runner: Any = self.model_runner  # type: ignore[attr-defined]
        if getattr(runner, "speculative_config", None) is not None:
            return _plain(said("a speculative engine computes positions that do not count"))
        if not hasattr(runner, "requests"):
            return _plain(
                said(
                    "the model runner {name} is one of vLLM's second kind, whose batches are not read: set "
                    "VLLM_USE_V2_MODEL_RUNNER=0",
                    name=f"{type(runner).__module__}.{type(runner).__name__}",
                )
            )
        asked = {**asked}
        rank = int(self.rank) if int(asked.pop("ranks")) > 1 else None  # type: ignore[attr-defined]
        capture = TokenCapture(runner, Path(folder), force=force, rank=rank, **asked)
        capture.shards = shard_digests(capture.model)
        kept: TokenCapture | None = getattr(runner, _KEPT, None)
        if kept is None:
            capture.start()
        else:
            kept.stand_in_for(capture)
        setattr(runner, _ASKED, capture)
        return ""

    def npudump_stop(self) -> dict[str, Any]:
        """End it, and return what became of it."""
        capture: TokenCapture = getattr(self.model_runner, _ASKED)  # type: ignore[attr-defined]
        capture.end()
        return {
            "rank": int(self.rank),  # type: ignore[attr-defined]
            "processes": [os.getpid(), os.getppid()],
            "name": capture.name,
            "steps": len(capture.steps),
            "prompts": capture.prompts,
            "shards": capture.shards[0],
            "problems": [*map(_plain, capture.problems)],
            "notes": [*map(_plain, (*capture.notes, *capture.shards[1]))],
            "facts": {**capture.facts, "vllm": str(sys.modules["vllm"].__version__)},
        }


def _plain(words: str) -> str:
    """Return a sentence without the parts that it is made of, which no message between processes takes."""
    return str.__str__(words)


def plugin() -> None:
    """Give the workers of this process what a test calls; nothing where no test has asked."""
    if WORKERS not in os.environ:
        return
    from vllm.v1.worker.worker_base import WorkerBase  # type: ignore[import-not-found]  # noqa: PLC0415

    os.environ["VLLM_DISABLE_COMPILE_CACHE"] = "1"  # what it holds was compiled with hooks, or without
    made = WorkerBase.__init__

    def init(worker: Any, *given: Any, **named: Any) -> None:
        made(worker, *given, **named)
        for name in (_START, _STOP):  # not of the class, on which vLLM refuses the extension then
            setattr(worker, name, MethodType(getattr(WorkerExtension, name), worker))
        loaded = worker.load_model

        def load_model(*given: Any, **named: Any) -> Any:
            result = loaded(*given, **named)
            if not worker.model_config.enforce_eager:
                capture = TokenCapture(worker.model_runner, Path(), force={})
                capture.idle = True
                capture.start()
                setattr(worker.model_runner, _KEPT, capture)
            return result

        worker.load_model = load_model

    WorkerBase.__init__ = init


class EngineCapture:
    """The modules of the models of an engine's workers, from :meth:`start` to :meth:`stop`.

    Attributes:
        folder: where the files go.
        name: of the model.
        steps: one for each step of a request that a worker has recorded.
        problems: why what was recorded cannot be trusted.
        notes: what was not seen.
        facts: what runs the model.
        shards: digests of the parameters of each worker, by its rank.
        processes: the workers, and who started them.
    """

    def __init__(
        self,
        llm: Any,
        folder: Path,
        *,
        force: Mapping[Sequence[int], Sequence[int]],
        timeout: float = TIMEOUT,
        **asked: Any,
    ) -> None:
        """Take an engine.

        Args:
            llm: a ``vllm.LLM``, or what else has its ``collective_rpc``.
            folder: where the files go.
            force: tokens to go on with, by the tokens of the prompt.
            timeout: seconds that workers may take to answer.
            asked: further arguments of a :class:`TokenCapture`.

        Raises:
            RequestError: ``force`` does not give tokens by tokens.
        """
        try:
            self._force = {
                tuple(map(index, prompt)): [*map(index, tokens)] for prompt, tokens in force.items()
            }
        except (AttributeError, TypeError) as error:
            raise RequestError(
                said(
                    "npu_dump.workers(): force is {given}, expected the tokens to go on with by those of a "
                    "prompt, as {example}",
                    given=repr(force),
                    example="{(3, 14, 15): [9, 2]}",
                )
            ) from error
        self._llm, self.folder, self._timeout, self._asked = llm, folder, timeout, asked
        self.model, self.name, self.number, self.tensors = (
            llm,
            type(llm).__name__,
            0,
            asked.get("tensors", False),
        )
        self.steps: list[None] = []
        self.processes: frozenset[int] = frozenset()
        self.problems: list[str] = []
        self.notes: tuple[str, ...] = ()
        self.facts: dict[str, str] = {}
        self.shards: dict[str, dict[str, dict[str, str]]] = {}
        self.stopped = True

    def __enter__(self) -> Self:
        """Start."""
        self.start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        """Stop; where the block has failed, its own error is the one that counts."""
        try:
            self.stop()
        except RuntimeUnavailableError as error:
            if kind is None:
                raise
            self.problems.append(str(error))

    def start(self) -> None:
        """Have each worker watch its model, once.

        Raises:
            RuntimeUnavailableError: workers cannot be called, or refuse.
        """
        if not self.stopped:
            return
        if (reset := getattr(self._llm, "reset_prefix_cache", None)) is not None:
            reset()
        parallel = self._llm.llm_engine.vllm_config.parallel_config
        asked = {**self._asked, "ranks": parallel.world_size}
        force = {prompt_hash(prompt): tokens for prompt, tokens in self._force.items()}
        refused = [why for why in self._call(_START, str(self.folder), force, asked) if why]
        if refused:
            raise RuntimeUnavailableError(f"npu_dump.workers(): {joined('; ', dict.fromkeys(refused))}")
        self.stopped = False

    def stop(self) -> None:
        """Have them end, and write their files; stopping twice is allowed.

        Raises:
            RuntimeUnavailableError: a worker is gone.
        """
        if self.stopped:
            return
        self.stopped = True
        answers = self._call(_STOP)
        met = {request for told in answers for request in told["prompts"]}
        for prompt in self._force:
            if prompt_hash(prompt) not in met:
                words = said("force: no request has the prompt {tokens}", tokens=[*prompt])
                self.problems.append(words)
        for told in answers:
            self.name, self.facts = told["name"], {**told["facts"], "ranks": str(len(answers))}
            self.shards |= {str(told["rank"]): told["shards"]} if told["shards"] else {}
            self.processes |= {*told["processes"]}
            self.steps += [None] * told["steps"]
            of_rank = "" if len(self.steps) == told["steps"] else f"rank {told['rank']}: "
            self.problems += [f"{of_rank}{words}" for words in told["problems"]]
            self.notes += tuple(f"{of_rank}{words}" for words in told["notes"])

    def _call(self, name: str, *arguments: Any) -> list[Any]:
        try:
            return self._within_limit(lambda: self._llm.collective_rpc(name, self._timeout, arguments))
        except Exception as error:
            why = " ".join(str(error).split())
            hint = ""
            if isinstance(error, TimeoutError) or "timed out" in why:
                hint = (
                    f" after {self._timeout:g} seconds: a worker has died, or still writes. See what the "
                    f"engine printed, start it anew, or give npu_dump.workers(llm, timeout=SECONDS)"
                )
            elif name in why or isinstance(error, AttributeError):
                hint = (
                    f": its workers do not know pytest-npudump. Start the engine in a test with "
                    f"scene='modules', or give LLM(worker_extension_cls={EXTENSION!r})"
                )
            raise RuntimeUnavailableError(
                f"npu_dump.workers(): collective_rpc({name!r}) failed{hint}: {type(error).__name__}: {why}"
            ) from error

    def _within_limit(self, call: Callable[[], Sequence[Any]]) -> list[Any]:
        """Call an engine, and wait no longer than the limit: vLLM keeps it only while the engine lives."""
        client = getattr(self._llm.llm_engine, "engine_core", None)
        if hasattr(client, "engine_core"):  # an engine in this process, whose devices are this thread's
            return [*call()]
        found: Future[Sequence[Any]] = Future()

        def wait() -> None:
            try:
                found.set_result(call())
            except BaseException as error:  # noqa: BLE001 - raised below, in the thread that asked
                found.set_exception(error)

        Thread(target=wait, daemon=True).start()
        until = monotonic() + self._timeout + _GRACE
        while not found.done() and monotonic() < until:
            if getattr(getattr(client, "resources", None), "engine_dead", False):
                raise RuntimeError("the process of the engine has ended")
            with suppress(TimeoutError):
                found.exception(timeout=0.2)
        if not found.done():
            raise TimeoutError("no answer")
        return [*found.result()]
