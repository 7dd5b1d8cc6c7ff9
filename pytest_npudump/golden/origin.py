"""Facts of a golden's origin that no runtime tells: what rounded its numbers, and what was checked out."""

from __future__ import annotations

import platform
import subprocess
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

_CPUINFO = Path("/proc/cpuinfo")
_SECONDS = 10
"""That git may take to name a commit."""
_FLAGS = ("flags", "Features")
"""What Linux calls the line of a processor's extensions, on x86-64 and on aarch64."""
_EXTENSIONS = (
    *(
        "avx",
        "avx2",
        "fma",
        "f16c",
        "avx_vnni",
        "avx512f",
        "avx512_vnni",
        "avx512_bf16",
        "amx_bf16",
        "amx_int8",
    ),
    *("asimdhp", "asimddp", "asimdfhm", "i8mm", "bf16", "sve", "sve2"),
)
"""Extensions that onnxruntime has kernels of its own for, which sum in an order of their own."""


@lru_cache(maxsize=8)
def installed(package: str) -> dict[str, str]:
    """Return the version of an installed distribution under its name; nothing where there is none.

    Each answer reads and parses the package's metadata, which takes longer than comparing small goldens.
    """
    try:
        return {package: version(package)}
    except PackageNotFoundError:
        return {}


@lru_cache(maxsize=4)
def revision(folder: Path) -> str | None:
    """Return git's name of the commit that is checked out around a folder; None where there is none."""
    if not any((parent / ".git").exists() for parent in (folder, *folder.parents)):
        return None
    command = ("git", "-C", str(folder), "rev-parse", "--verify", "-q", "HEAD")
    try:
        done = subprocess.run(  # noqa: S603 - git, of the user's own path
            command, capture_output=True, text=True, check=False, timeout=_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None


@lru_cache(maxsize=1)
def processor() -> dict[str, str]:
    """Return ``machine``, the architecture, and ``vector``, the extensions by which a kernel is chosen."""
    machine = platform.machine()
    return {"machine": machine} | ({"vector": found} if (found := extensions(_cpuinfo())) else {})


def extensions(cpuinfo: str) -> str:
    """Return those of a processor's extensions that matter, joined by ``+``; "" where none is told.

    Args:
        cpuinfo: the text of ``/proc/cpuinfo``.
    """
    for line in cpuinfo.splitlines():
        name, _, value = line.partition(":")
        if name.strip() in _FLAGS:
            told = frozenset(value.split())
            return "+".join(flag for flag in _EXTENSIONS if flag in told)
    return ""


def _cpuinfo() -> str:
    try:
        return _CPUINFO.read_text("utf-8", "replace")
    except OSError:
        return ""
