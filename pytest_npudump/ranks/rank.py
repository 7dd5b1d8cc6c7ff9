"""Rank of this process, by the variables that torchrun, msrun and launch scripts set."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from pytest_npudump.errors import RequestError

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
