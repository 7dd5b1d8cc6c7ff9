"""What the checks see of the machine, and what they say of it.

Whether a runtime works is asked in a process of its own, which may hang or die where a driver is broken.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_npudump.errors import RuntimeUnavailableError
from pytest_npudump.runtime.inventory import run_npu_smi
from pytest_npudump.runtime.registry import Examined, Probe, offered, provider_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping


OK = "ok"
ABSENT = "absent"
WARNING = "warning"
PROBLEM = "problem"

SECONDS = 60
"""How long a runtime may take to answer; the first call to a device after a start takes some seconds."""
_LIMIT = 64 * 1024


@dataclass(frozen=True, slots=True)
class DoctorFinding:
    """One line of the table.

    Attributes:
        area: what it belongs to: ``software``, ``devices``, ``runtimes``, ``environment``, ``pytest``
            or ``dumping``.
        name: what was looked at.
        state: ``ok``; ``absent``, which matters only to those who want it; ``warning``; ``problem``.
        text: what was found.
        remedy: what to do; empty only where the state is ``ok``.
    """

    area: str
    name: str
    state: str
    text: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """Everything that was found.

    Attributes:
        findings: the lines, in the order of the table.
        runtimes: names of the runtimes that work here.
        can_write: whether a dump can be written.
    """

    findings: tuple[DoctorFinding, ...]
    runtimes: tuple[str, ...]
    can_write: bool

    @property
    def good(self) -> bool:
        """Whether at least one runtime works and a dump can be written."""
        return bool(self.runtimes) and self.can_write

    def to_json(self) -> dict[str, Any]:
        """Return the object that ``npudump doctor --json`` writes."""
        return {
            "good": self.good,
            "runtimes": list(self.runtimes),
            "can_write": self.can_write,
            "findings": [asdict(finding) for finding in self.findings],
        }


def probe_runtime(name: str, *, seconds: float = SECONDS) -> Probe:
    """Ask the runtime ``name``, as ``--npudump-runtime`` takes it, in a child process; never raises."""
    command = [sys.executable, "-m", __name__, name]
    try:
        done = subprocess.run(  # noqa: S603 - this module, run by this interpreter
            command,
            check=False,
            capture_output=True,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            timeout=seconds,
        )
    except subprocess.TimeoutExpired:
        return Probe(works=False, why=f"no answer within {seconds:g} seconds")
    except OSError as error:
        return Probe(works=False, why=f"no process could be started to ask: {error}")
    lines = done.stdout.strip().splitlines()
    if done.returncode == 0 and lines:
        with suppress(ValueError, TypeError):
            return Probe(**json.loads(lines[-1]))
    reason = next(reversed(done.stderr.strip().splitlines()), "it printed nothing")
    ended = f"ended with {done.returncode}"
    if done.returncode < 0:
        with suppress(ValueError):
            ended = f"was killed by {signal.Signals(-done.returncode).name}"
    why = f"the process that asked {ended}: {reason[:300]}"
    return Probe(works=False, why=why)


def _ask(name: str) -> Probe:
    """Ask the runtime in this process, which has to be a new one."""
    from pytest_npudump.runtime.registry import choose, load  # noqa: PLC0415 - in the child process only

    try:
        provider = provider_of(name)
        if isinstance(provider, Examined):
            return provider.probe()
        facts = load(choose(name), 0).producer()
    except RuntimeUnavailableError as error:
        return Probe(works=False, why=str(error))
    return Probe(works=True, why="it can be loaded", soc=facts.get("soc", ""))


@dataclass(frozen=True, slots=True)
class System:
    """The machine.

    Attributes:
        root: where ``/`` is.
        environ: the environment variables.
        version: gives the version of an installed Python distribution, None where it is not installed.
        probe: asks a runtime whether it works.
        offered: gives the names of the runtimes of other packages.
        npu_smi: gives what ``npu-smi info`` prints; None where there is no such program. Raises OSError where
            it fails, with its reason.
        access: :func:`os.access`.
        free: gives the free bytes of the file system that a directory is on, and the free files; None where
            it does not count files.
    """

    root: Path = Path("/")
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    version: Callable[[str], str | None] = field(default_factory=lambda: installed_version)
    probe: Callable[[str], Probe] = probe_runtime
    offered: Callable[[], Collection[str]] = offered
    npu_smi: Callable[[], str | None] = field(default_factory=lambda: run_npu_smi)
    access: Callable[[Path, int], bool] = os.access
    free: Callable[[Path], tuple[int, int | None]] = field(default_factory=lambda: free_space)

    def at(self, path: str) -> Path:
        """Return where the absolute ``path`` is found."""
        return self.root / path.lstrip("/")

    def read(self, path: str) -> str:
        """Return the first 64 KiB of a file; "" where it cannot be read."""
        try:
            descriptor = os.open(self.at(path), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            with os.fdopen(descriptor, "rb") as file:
                return file.read(_LIMIT).decode("utf-8", "replace")
        except OSError:
            return ""


def installed_version(distribution: str) -> str | None:
    """Return the version of a Python distribution without importing it."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def free_space(directory: Path) -> tuple[int, int | None]:
    """Return free bytes and free files of the file system ``directory`` is on, as this user may use them."""
    status = os.statvfs(directory)
    return status.f_bavail * status.f_frsize, status.f_favail if status.f_files else None


if __name__ == "__main__":
    sys.stdout.write("\n" + json.dumps(asdict(_ask(sys.argv[1]))) + "\n")
