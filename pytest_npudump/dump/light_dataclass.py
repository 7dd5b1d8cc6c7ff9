"""Dataclasses that only the type checker keeps from being changed, for records that come by the ten thousand.

A frozen dataclass sets every field through ``object.__setattr__``, which takes five times as long as
a plain one: a tenth of a second for the records of two dumps of 20,000 tensors.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import lru_cache
from operator import attrgetter
from typing import Any, TypeVar

Record = TypeVar("Record")


def dataclass(
    *, frozen: bool, slots: bool, order: bool = False, eq: bool = True
) -> Callable[[type[Record]], type[Record]]:
    """Like ``dataclasses.dataclass``, hashable where ``frozen``, but nothing refuses a new value at run time.

    For a module that imports the real one instead under ``TYPE_CHECKING``.
    """
    return dataclasses.dataclass(slots=slots, order=order, eq=eq, unsafe_hash=frozen and eq)


def replace(record: Record, **changes: Any) -> Record:
    """Like ``dataclasses.replace``, which takes three times as long, for dataclasses of two fields and more.

    All their fields are arguments of ``__init__``, and nothing is done after it.
    """
    kind: Any = type(record)
    found: Record = kind(*_values_of(kind)(record))
    for name, value in changes.items():
        object.__setattr__(found, name, value)
    return found


@lru_cache(maxsize=64)
def _values_of(kind: Any) -> attrgetter[tuple[Any, ...]]:
    return attrgetter(*(field.name for field in dataclasses.fields(kind)))
