"""Rank of this process, and exchange between the ranks of one machine.

A rank is what torchrun, msrun and launch scripts set variables to. The exchange goes through files in a
private folder of the system's own.

There are messages, one a rank and name, and decisions, one a name: whoever decides first decides for all.
Each rank's living process is a part of the folder. What names a run to all of its ranks is an address that
they meet at, or else the launcher that started them. An address says nothing of when: ranks that find only
ended processes, or an earlier one of their own number, begin a new round.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import socket
import tempfile
import time
from collections.abc import Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_npudump.errors import ConfigError, RequestError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


_SEVERAL = 2
_VARIABLES = (("RANK", "WORLD_SIZE"), ("RANK_ID", "RANK_SIZE"))
"""PyTorch's, and those of HCCL and MindSpore."""


@dataclass(frozen=True, slots=True)
class Rank:
    """One process of a distributed run.

    Attributes:
        number: from 0.
        size: number of ranks, 2 or more.
        local: number among the ranks of this machine.
        local_size: number of ranks on this machine; 0 where nothing tells it and there are others.
    """

    number: int
    size: int
    local: int
    local_size: int

    def __str__(self) -> str:
        """Return ``rank 1 of 4``."""
        return f"rank {self.number} of {self.size}"

    @property
    def variant(self) -> str:
        """Variant of the rank's own golden files: they belong to this number of ranks."""
        return f"rank{self.number}of{self.size}"

    @property
    def spans_machines(self) -> bool:
        """Return whether there are ranks on other machines, which share no files with this one."""
        return self.local_size < self.size


def current_rank(environment: Mapping[str, str] = os.environ) -> Rank | None:
    """Return the rank of this process, None where it is the only one.

    Raises:
        RequestError: a variable is no number, or the rank is not below the number of ranks.
    """
    for name, size_name in _VARIABLES:
        if name in environment and size_name in environment:
            number, size = _number(environment, name), _number(environment, size_name)
            if number >= size:
                raise RequestError(f"{name} is {number} and {size_name} {size}: expected a rank below that")
            if size < _SEVERAL:
                return None
            local = _number(environment, "LOCAL_RANK") if "LOCAL_RANK" in environment else number
            return Rank(number, size, local, _local_size(environment, size))
    return None


def _local_size(environment: Mapping[str, str], size: int) -> int:
    """Return the number of ranks here: all, unless the launcher sets another or has them meet elsewhere."""
    if "LOCAL_WORLD_SIZE" in environment:
        return _number(environment, "LOCAL_WORLD_SIZE")
    address = environment.get("MASTER_ADDR", "").strip()
    return 0 if address and not _is_here(address) else size


@lru_cache(maxsize=16)
def _is_here(address: str) -> bool:
    """Return whether an address is this machine's; one that cannot be looked up is not."""
    if address.lower() in {"localhost", "127.0.0.1", "::1", socket.gethostname().lower()}:
        return True
    try:
        found = socket.getaddrinfo(address, None, type=socket.SOCK_STREAM)
    except OSError:
        return False
    return any(_binds(family, where) for family, _, _, _, where in found)


def _binds(family: int, where: tuple[object, ...]) -> bool:
    """Return whether this machine can listen at an address, which it can only at its own."""
    try:
        with socket.socket(family, socket.SOCK_STREAM) as listener:
            listener.bind((where[0], 0, *where[2:]))
    except OSError:
        return False
    return True


def _number(environment: Mapping[str, str], name: str) -> int:
    text = environment[name].strip()
    if not (text.isascii() and text.isdigit()):
        raise RequestError(f"the variable {name} is {environment[name]!r}, expected a number from 0")
    return int(text)


def own_device() -> int:
    """Return the id of this process's device: its LOCAL_RANK, else 0."""
    rank = current_rank()
    return rank.local if rank is not None else 0


_ADDRESS = ("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "MS_SCHED_HOST", "MS_SCHED_PORT")
_PORTS = ("MASTER_PORT", "MS_SCHED_PORT")
_NO_RUN_ID = {"", "none"}
"""Run ids of torchrun without one given."""
_SIZES = ("WORLD_SIZE", "RANK_SIZE")
_COMMON = "/tmp"  # noqa: S108 - below it lies a folder of the user's own, which nobody else may read
"""Folder that every rank of a machine finds, whatever its environment."""
_KEPT = 60.0
"""Seconds that a folder stays behind the last of its processes, for those who look into it."""


def join(rank: Rank, environment: Mapping[str, str] = os.environ) -> Path:
    """Take part in the run of this process, and return the folder of its messages.

    Raises:
        ConfigError: no folder can be made, or each is somebody else's.
    """
    refused = []
    name = f"npudump-ranks-{os.getuid()}"
    # TMPDIR comes second: launch scripts give each rank one of its own.
    for base in dict.fromkeys(Path(place) / name for place in (_COMMON, tempfile.gettempdir())):
        try:
            return _join(base, rank, environment)
        except OSError as error:  # noqa: PERF203 - there are two
            refused.append(f"{base}: {error.strerror}")
    raise ConfigError(f"the ranks cannot meet: {'; '.join(refused)}; make one of them usable, or set TMPDIR")


def _join(base: Path, rank: Rank, environment: Mapping[str, str]) -> Path:
    base.mkdir(mode=0o700, exist_ok=True)
    if base.is_symlink() or base.stat().st_uid != os.getuid():
        raise PermissionError(errno.EPERM, "expected a folder of this user's own")
    with _alone(base):
        for over in base.glob(f"{_process_space()}-*"):  # runs whose processes have all ended
            if not _has_life(over) and time.time() - over.stat().st_mtime > _KEPT:
                shutil.rmtree(over, ignore_errors=True)
        folder = _round(base, _name(rank, environment), rank.number)
        own = {"process": os.getpid(), "began": _began(os.getpid())}
        draft = folder / f"draft-{rank.number}"  # ranks that are here look at places meanwhile
        draft.write_text(json.dumps(own), encoding="utf-8")
        draft.replace(_place(folder, rank.number))
    return folder


def has_joined(folder: Path, number: int) -> bool:
    """Return whether a rank has ever taken part."""
    return _place(folder, number).exists()


def is_present(folder: Path, number: int) -> bool:
    """Return whether a rank takes part and its process lives."""
    return _is_alive(_place(folder, number))


def _place(folder: Path, number: int) -> Path:
    return folder / f"here.{number}"


@contextmanager
def _alone(base: Path) -> Iterator[None]:
    """Let one process at a time join, or remove what is over."""
    with base.joinpath("lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _name(rank: Rank, environment: Mapping[str, str]) -> str:
    """Return the name of the run's folder: the same for all ranks, and another for any other run."""
    facts = [environment.get(name, "") for name in (*_ADDRESS, *_SIZES)]
    run_id = environment.get("TORCHELASTIC_RUN_ID", "").strip().lower()
    # Without these the variables tell no two runs apart: a port has one owner, an address may be anybody's.
    if run_id in _NO_RUN_ID and not any(environment.get(name, "").strip() for name in _PORTS):
        facts.append(str(os.getppid()))
    digest = blake2b(json.dumps([*facts, rank.size]).encode(), digest_size=10).hexdigest()
    return f"{_process_space()}-{digest}"


def _process_space() -> int:
    """Return the id of this container's process space: process ids are not shared across."""
    try:
        return Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        return 0


def _round(base: Path, name: str, number: int) -> Path:
    """Return the folder of the round that is under way, or of a new one."""
    rounds = {int(path.name.rpartition("-")[2]): path for path in base.glob(f"{name}-*")}
    latest = max(rounds, default=0)
    if latest and not has_joined(rounds[latest], number) and _has_life(rounds[latest]):
        return rounds[latest]
    folder = base / f"{name}-{latest + 1}"
    folder.mkdir(mode=0o700)
    return folder


def _has_life(folder: Path) -> bool:
    return any(map(_is_alive, folder.glob("here.*")))


def _is_alive(place: Path) -> bool:
    """Return whether the process that wrote ``place`` lives; another that got its id later does not count."""
    try:
        noted = json.loads(place.read_text(encoding="utf-8"))
        process, began = int(noted["process"]), int(noted["began"])
    except (OSError, ValueError, KeyError, TypeError):
        return False
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return _began(process) == began


def _began(process: int) -> int:
    """Return when a process began, in ticks since the machine did; 0 where that is not known."""
    with suppress(OSError, ValueError, IndexError):
        # The second field, the program's name, is in parentheses and may hold anything.
        text = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
        return int(text.rpartition(")")[2].split()[19])
    return 0


PATIENCE = 60.0
"""Seconds that a rank waits for others which live and say nothing, and once for those that have not come."""
LAST = "results"
"""Name of a rank's last message: whoever has posted it says nothing more."""

_ABSENT = "absent"
_FIRST_PAUSE, _LONGEST_PAUSE = 0.002, 0.05


class Exchange:
    """One rank's part in the talk of all ranks.

    Attributes:
        rank: this process's.
        folder: where the messages of this run lie; nothing of any other run does.
    """

    def __init__(self, rank: Rank, folder: Path | None = None) -> None:
        """Join the run.

        Args:
            rank: this process's.
            folder: of the run, where the parent of this process has joined it for it; None to join.

        Raises:
            ConfigError: the folder cannot be made, or is somebody else's.
        """
        self.rank = rank
        self.folder = join(rank) if folder is None else folder

    @property
    def absent(self) -> frozenset[int]:
        """The ranks that have not come in time, for all ranks and the whole run."""
        return frozenset(self.decided(_ABSENT) or ())

    def lives(self, number: int) -> bool:
        """Return whether a rank has come, in time, and its process has not ended."""
        return is_present(self.folder, number) and number not in self.absent

    def has_come(self, number: int) -> bool:
        """Return whether a rank takes part, or did."""
        return has_joined(self.folder, number) and number not in self.absent

    def has_ended(self, number: int, last: str | None = LAST) -> bool:
        """Return whether the process of a rank has ended, or it has sent ``last``."""
        return not self.lives(number) or (last is not None and self._path(last, number).exists())

    def post(self, name: str, content: Any) -> None:
        """Post ``content``, plain JSON data, to the others under ``name``, once for all."""
        self._draft(content).replace(self._path(name, self.rank.number))

    def decide(self, name: str, content: Any) -> Any:
        """Settle the question ``name`` for all ranks, unless one of them has; return what is settled.

        Args:
            name: of the question.
            content: plain JSON data, not None.
        """
        draft = self._draft(content)
        with suppress(FileExistsError):
            os.link(draft, self._path(name))
        draft.unlink()
        return self.decided(name)

    def decided(self, name: str) -> Any:
        """Return the decision on the question ``name``; None as long as there is none."""
        try:
            return json.loads(self._path(name).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None

    def gather(
        self,
        name: str,
        *,
        patience: float | None = None,
        of: Iterable[int] | None = None,
        unless: str | None = None,
        last: str | None = LAST,
    ) -> dict[int, Any]:
        """Wait until every rank has posted something under ``name``, or will not any more.

        Args:
            name: of the message.
            patience: seconds; None for :data:`PATIENCE`, after which ranks that have not come are absent.
            of: the ranks to hear; None for all.
            unless: a question that makes the message needless once it is decided; None for no such.
            last: a message behind which this one cannot come; None where it can.

        Returns:
            What was told, by rank; a rank that said nothing in time is left out.
        """
        until = time.monotonic() + (PATIENCE if patience is None else patience)
        wanted = set(range(self.rank.size) if of is None else of)
        told: dict[int, Any] = {}
        pause = _FIRST_PAUSE
        while True:
            # Looked at before the messages: what a rank says last must not be missed.
            mute = {number for number in wanted if self._is_mute(number, last)}
            heard = {number for number in wanted - told.keys() if self._path(name, number).exists()}
            told |= {number: json.loads(self._path(name, number).read_text("utf-8")) for number in heard}
            if wanted - told.keys() <= mute or (unless and self.decided(unless) is not None):
                return told
            if time.monotonic() > until:
                missing = [number for number in range(self.rank.size) if not has_joined(self.folder, number)]
                if missing and patience is None:
                    self.decide(_ABSENT, missing)
                return told
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _is_mute(self, number: int, last: str | None) -> bool:
        """Return whether a rank sends nothing more: it is absent, has ended, or has sent ``last``."""
        if number in self.absent:
            return True
        return has_joined(self.folder, number) and self.has_ended(number, last)

    def _draft(self, content: Any) -> Path:
        """Write ``content`` where nobody looks, so that a message is there whole or not at all."""
        draft = self.folder / f"draft-{self.rank.number}"
        draft.write_text(json.dumps(content), encoding="utf-8")
        return draft

    def _path(self, name: str, number: int | None = None) -> Path:
        digest = name if name.isidentifier() else blake2b(name.encode(), digest_size=10).hexdigest()
        return self.folder / f"{digest}.{'decided' if number is None else number}"
