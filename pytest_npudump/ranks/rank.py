"""Which rank this process is, by the variables that torchrun, msrun and launch scripts set."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_npudump.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Mapping

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
        local_size: number of ranks on this machine.
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
        """What names the rank's own golden files: they belong to this number of ranks."""
        return f"rank{self.number}of{self.size}"

    @property
    def spans_machines(self) -> bool:
        """Whether there are ranks on other machines, which share no files with this one."""
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
            known = "LOCAL_WORLD_SIZE" in environment
            return Rank(number, size, local, _number(environment, "LOCAL_WORLD_SIZE") if known else size)
    return None


def _number(environment: Mapping[str, str], name: str) -> int:
    text = environment[name].strip()
    if not (text.isascii() and text.isdigit()):
        raise RequestError(f"the variable {name} is {environment[name]!r}, expected a number from 0")
    return int(text)
