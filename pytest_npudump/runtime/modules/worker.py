"""Modules and cells of a process that a test starts, however it does: multiprocessing, a program, Ray.

A test with ``scene='modules'`` names in :data:`WORKERS` the file that says what
it asks for, which processes inherit. Each calls, around its model::

    from pytest_npudump.runtime.modules.worker import watch

    with watch(model, rank=rank):
        model(x)

Without such a test that does nothing, so that it may stay in a program. What a process leaves is in the dump
of the test, by rank, and beside it an answer, without which the test knows that the process left nothing.
Where processes do not inherit variables, hand this one on: Ray takes
``runtime_env={"env_vars": {name: os.environ[name]}}``.
"""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import contextmanager
from multiprocessing import current_process
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_npudump.errors import RequestError, said
from pytest_npudump.runtime.modules.capture import Capture
from pytest_npudump.runtime.modules.shards import shard_digests

if TYPE_CHECKING:
    from collections.abc import Iterator


WORKERS = "NPUDUMP_WORKERS"
"""Variable of processes that a test may watch: the file that says what it asks for."""

_BESIDE = ("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "LOCAL_SIZE", "MS_WORKER_NUM", "WORLD_SIZE")
"""Variables in which launchers say how many they start: torch's, mpirun, DeepSpeed, MindSpore's, others."""


class Answer(NamedTuple):
    """Result of a capture in another process.

    Attributes:
        name: of the model.
        executed: how many executions it has.
        problems: why it cannot be trusted.
        notes: what was not seen.
        facts: what ran the model.
        processes: its own, and the one that started it if all answered that this one starts.
        launcher: the process that started it.
        shards: digests of the parameters of its model, by its rank.
    """

    name: str
    executed: int
    problems: list[str]
    notes: list[str]
    facts: dict[str, str]
    processes: list[int]
    launcher: int = 0
    shards: dict[str, dict[str, dict[str, str]]] = {}  # noqa: RUF012 - nobody adds to it

    @property
    def steps(self) -> range:
        """One for each execution."""
        return range(self.executed)


def handed_on() -> dict[str, Any]:
    """Return the configuration that ``multiprocessing`` hands on to processes that this one starts."""
    found: dict[str, Any] = vars(current_process())["_config"]
    return found


@contextmanager
def watch(model: Any, *, rank: int | None = None, **asked: Any) -> Iterator[Capture | None]:
    """Watch the modules of a model for the test that started this process; nothing where none has.

    Args:
        model: a ``torch.nn.Module``, what ``torch.compile`` made of one, or a ``mindspore.nn.Cell``.
        rank: of this process; None for the variable ``RANK``, or MindSpore's ``RANK_ID``, or 0.
        asked: arguments of a capture in place of those of the test, as ``layers``.

    Raises:
        RequestError: it is no such model, or another process of the test watches, or has
            watched, it as the same rank.
    """
    # What a fork server starts has the variables of the run in which the server began.
    config = Path(handed_on().get(WORKERS) or os.environ.get(WORKERS, ""))
    if not config.is_file():
        yield None
        return
    told = json.loads(config.read_text(encoding="utf-8"))
    ranked = str(os.environ.get("RANK") or os.environ.get("RANK_ID") or "") if rank is None else str(rank)
    rank = int(ranked or 0)
    kind: type[Capture] = Capture
    if isinstance(model, getattr(getattr(sys.modules.get("mindspore"), "nn", None), "Cell", ())):
        from pytest_npudump.runtime.modules.cells import CellCapture  # noqa: PLC0415 - where there is one

        kind = CellCapture
    beside = next((int(os.environ[name]) for name in _BESIDE if os.environ.get(name, "").isdigit()), 0)
    answer = Answer(type(model).__name__, 0, [], [], {}, [os.getpid(), os.getppid(), beside])
    folder = config.with_suffix(".answers")
    folder.mkdir(exist_ok=True)
    try:
        capture = kind(model, Path(told["dump_path"]), rank=rank, **{**told["asked"], **asked})
        capture.began = time.strftime("%Y%m%d%H%M%S", time.gmtime(config.stat().st_mtime))
        words = said(
            "rank {rank}: {name} began in another process and did not end", rank=rank, name=capture.name
        )
        answer.problems.append(words)
        file = _claimed(folder, capture, rank, json.dumps(answer._replace(name=capture.name)))
    except RequestError as error:  # which the program may survive
        refused = json.dumps(answer._replace(problems=[f"rank {rank}: {error}"]))
        (folder / f"{rank}-refused-{os.getpid()}.json").write_text(refused, encoding="utf-8")
        raise
    # Before the block, which may train the model.
    shards, unsaid = shard_digests(capture.model) if ranked and not capture.number else ({}, [])
    try:
        with capture:
            yield capture
    except BaseException as error:
        words = f"rank {rank}: {capture.name}: {error!r}"
        capture.problems.append(words)
        raise
    finally:
        told = [*capture.problems], [*capture.notes, *unsaid]
        done = capture.name, len(capture.steps), *told, capture.facts, answer.processes, 0
        answer = Answer(*done, {ranked: shards} if shards else {})
        file.write_text(json.dumps(answer), encoding="utf-8")


def _claimed(folder: Path, capture: Capture, rank: int, text: str) -> Path:
    """Return the file of the answer, which no other process writes; the capture gets its number."""
    while True:
        file = folder / f"{rank}-{capture.path.parent.name}-{capture.number}.json"
        try:
            with file.open("x", encoding="utf-8") as begun:
                begun.write(text)
        except FileExistsError:
            if f"[{os.getpid()}, " not in file.read_text(encoding="utf-8"):
                raise RequestError(
                    f"watch(): rank {rank} of {capture.name} is another process of this test, running or "
                    "ended: give each a rank of its own"
                ) from None
            capture.number += 1
        else:
            return file


def answers(config: Path) -> Iterator[Answer]:
    """Yield the results of processes that the run of this file has started."""
    told = []
    for file in sorted(config.with_suffix(".answers").glob("*.json")):
        text = file.read_text(encoding="utf-8")
        if not text.endswith("]"):
            words = said("{file}: its process ended early", file=file)
            text = json.dumps((file.stem, 0, [words], [], {}, [0, 0, 0]))
        told.append(Answer(*json.loads(text)))
    for one in told:
        own, launcher, beside = one.processes
        answered = {other.processes[0] for other in told if other.processes[1] == launcher}
        processes = [own, launcher] if 0 < beside <= len(answered) else [own]
        yield one._replace(processes=processes, launcher=launcher)
