"""What stands for a runtime that lived in another process, which has ended."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NoReturn

from pytest_npudump.errors import RuntimeUnavailableError
from pytest_npudump.runtime.acl import AclJson
from pytest_npudump.runtime.base import RunActivity

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


_UNKNOWN = "the process ended before its dump was complete"
"""What a process did that did not live to say."""


@dataclass(slots=True)
class RemoteRuntime(AclJson):
    """The runtime of a child process, as its parent knows it; no dump is on in this process.

    Attributes:
        name: as in ``--npudump-runtime``.
        facts: what the child said of it.
    """

    name: str
    facts: Mapping[str, str] = field(default_factory=dict)
    activity: RunActivity = field(default_factory=lambda: RunActivity(likely_cause=_UNKNOWN))

    def learn(self, facts: Mapping[str, str]) -> None:
        """Take over what the child of the last run said of its runtime."""
        self.facts = facts

    def producer(self) -> Mapping[str, str]:
        """Return what the child said of its runtime."""
        return self.facts or {"runtime": self.name}

    def start(self, config: Path, *, resumed: bool = False) -> None:
        """Do nothing: the dump is the child's."""

    def stop(self) -> None:
        """Do nothing: the dump ended with the child."""

    def release(self) -> None:
        """Do nothing."""

    def hand_over(self, program: str, models: tuple[Path, ...] = ()) -> None:
        """Do nothing."""

    def load_model(self, path: Path) -> NoReturn:
        """Refuse.

        Raises:
            RuntimeUnavailableError: always.
        """
        raise RuntimeUnavailableError(f"{path}: models of an isolated test are loaded in its own process")

    def close(self) -> None:
        """Do nothing."""
