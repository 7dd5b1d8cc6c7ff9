"""What a check found: one line of the table, and what to do where it is not good."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from pytest_npudump.language.translation import mark

OK = mark("ok")
ABSENT = mark("absent")
WARNING = mark("warning")
PROBLEM = mark("problem")


@dataclass(frozen=True, slots=True)
class Finding:
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

    def __post_init__(self) -> None:
        """Hold every line that is not good to saying what to do."""
        if self.state not in (OK, ABSENT, WARNING, PROBLEM):
            raise ValueError(f"{self.name}: {self.state!r} is not a state")
        if bool(self.remedy) is (self.state == OK):
            raise ValueError(f"{self.name}: a line that is {self.state} and the remedy {self.remedy!r}")


@dataclass(frozen=True, slots=True)
class Report:
    """Everything that was found.

    Attributes:
        findings: the lines, in the order of the table.
        runtimes: names of the runtimes that work here.
        can_write: whether a dump can be written.
    """

    findings: tuple[Finding, ...]
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
