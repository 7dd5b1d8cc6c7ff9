"""What the checks see of the machine; a test puts another in its place."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_npudump.devices.npu_smi import run_npu_smi
from pytest_npudump.doctor.probe import probe_runtime
from pytest_npudump.runtime.registry import Probe, offered

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

_LIMIT = 64 * 1024


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
