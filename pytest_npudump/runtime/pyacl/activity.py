"""What a test did through pyACL since its dump was asked for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pytest_npudump.runtime.base import Evidence

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(slots=True)
class PyAclActivity:
    """What happened since the dump was asked for; see :class:`pytest_npudump.runtime.base.Activity`."""

    initialised: bool = False
    models: tuple[Path, ...] = ()
    executions: int = 0
    released: bool = False
    likely_cause: str = ""
    programs: tuple[str, ...] = ()
    evidence: Evidence = field(default_factory=Evidence)
