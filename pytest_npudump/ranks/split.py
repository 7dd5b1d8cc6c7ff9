"""A dump of several ranks or devices, taken apart: what each of them has, under keys that do not name it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_npudump.dump.records import Dump, TensorKey, TensorRecord


def rank_name(key: TensorKey) -> str:
    """Return ``rank 1``, ``device 0`` or both, by what a key is qualified with; "" without."""
    parts = [f"{name} {value}" for name, value in (("rank", key.rank), ("device", key.device)) if value >= 0]
    return " ".join(parts)


def by_rank(dump: Dump) -> dict[str, Dump]:
    """Return a dump a rank, or a device where the dump tells no ranks apart; one, named "", without both."""
    parts: dict[str, list[TensorRecord]] = {}
    for record in dump.records:
        key = replace(record.key, rank=-1, device=-1)
        parts.setdefault(rank_name(record.key), []).append(replace(record, key=key))
    return {name: replace(dump, records=tuple(records)) for name, records in parts.items()}
