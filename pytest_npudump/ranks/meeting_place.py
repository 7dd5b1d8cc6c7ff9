"""Where the ranks of one run meet: a folder of their own, of which each rank's living process is a part.

What names a run to all of its ranks is an address that they meet at, or else the launcher that started them.
An address says nothing of when: ranks that find only ended processes, or an earlier one of their own number,
begin a new round.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import tempfile
import time
from contextlib import contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_npudump.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_npudump.ranks.rank import Rank

_ADDRESS = ("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "MS_SCHED_HOST", "MS_SCHED_PORT")
_PORTS = ("MASTER_PORT", "MS_SCHED_PORT")
_NO_RUN_ID = {"", "none"}
"""What torchrun has for a run id where it was given none."""
_SIZES = ("WORLD_SIZE", "RANK_SIZE")
_COMMON = "/tmp"  # noqa: S108 - below it lies a folder of the user's own, which nobody else may read
"""What every rank of a machine finds, whatever its environment."""
_KEPT = 60.0
"""Seconds that a folder stays behind the last of its processes, for those who look into it."""


def join(rank: Rank, environment: Mapping[str, str] = os.environ) -> Path:
    """Take part in the run of this process, and return the folder of its messages.

    Raises:
        ConfigError: no folder can be made, or each is somebody else's.
    """
    refused = []
    for base in _bases():
        try:
            return _join(base, rank, environment)
        except OSError as error:  # noqa: PERF203 - there are two
            refused.append(f"{base}: {error.strerror}")
    raise ConfigError(f"the ranks cannot meet: {'; '.join(refused)}; make one of them usable, or set TMPDIR")


def _bases() -> tuple[Path, ...]:
    """Return where folders of runs may lie, the first that can be used counts for all ranks of a machine.

    TMPDIR comes second: launch scripts give each rank one of its own.
    """
    name = f"npudump-ranks-{os.getuid()}"
    return tuple(dict.fromkeys(Path(place) / name for place in (_COMMON, tempfile.gettempdir())))


def _join(base: Path, rank: Rank, environment: Mapping[str, str]) -> Path:
    base.mkdir(mode=0o700, exist_ok=True)
    if base.is_symlink() or base.stat().st_uid != os.getuid():
        raise PermissionError(errno.EPERM, "expected a folder of this user's own")
    with _alone(base):
        _forget(base)
        folder = _round(base, _name(rank, environment), rank.number)
        _place(folder, rank.number).write_text(json.dumps(_this_process()), encoding="utf-8")
    return folder


def has_joined(folder: Path, number: int) -> bool:
    """Whether a rank has ever taken part."""
    return _place(folder, number).exists()


def is_present(folder: Path, number: int) -> bool:
    """Whether a rank takes part and its process lives."""
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
    """Return what the run's folders are called: the same for all ranks, and another for any other run."""
    facts = [environment.get(name, "") for name in (*_ADDRESS, *_SIZES)]
    if not _names_a_run(environment):
        facts.append(str(os.getppid()))
    digest = blake2b(json.dumps([*facts, rank.size]).encode(), digest_size=10).hexdigest()
    return f"{_process_space()}-{digest}"


def _names_a_run(environment: Mapping[str, str]) -> bool:
    """Whether the variables tell two runs apart: a port has one owner; an address alone may be anybody's."""
    run_id = environment.get("TORCHELASTIC_RUN_ID", "").strip().lower()
    return run_id not in _NO_RUN_ID or any(environment.get(name, "").strip() for name in _PORTS)


def _process_space() -> int:
    """Return what tells containers apart that share the folder: their process ids mean nothing to others."""
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


def _forget(base: Path) -> None:
    """Remove the folders of runs whose processes have all ended."""
    for folder in base.glob(f"{_process_space()}-*"):
        if not _has_life(folder) and time.time() - folder.stat().st_mtime > _KEPT:
            shutil.rmtree(folder, ignore_errors=True)


def _has_life(folder: Path) -> bool:
    return any(map(_is_alive, folder.glob("here.*")))


def _this_process() -> dict[str, int]:
    return {"process": os.getpid(), "began": _began(os.getpid())}


def _is_alive(place: Path) -> bool:
    """Whether the process that wrote ``place`` lives; another that got its id later does not count."""
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
    """Return when a process began, in ticks since the machine did; 0 where nothing tells."""
    with suppress(OSError, ValueError, IndexError):
        # The second field, the program's name, is in parentheses and may hold anything.
        text = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
        return int(text.rpartition(")")[2].split()[19])
    return 0
