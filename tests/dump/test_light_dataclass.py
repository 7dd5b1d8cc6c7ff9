from __future__ import annotations

import pickle
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_npudump.dump.light_dataclass import replace as light_replace
from pytest_npudump.dump.records import Payload, Stats, TensorKey, TensorRecord

if TYPE_CHECKING:
    light = dataclass
else:
    from pytest_npudump.dump.light_dataclass import dataclass as light

KEY = TensorKey("conv", "output", 0, step=1)
RECORD = TensorRecord(KEY, "Conv", "float16", (1, 2), Path("x"), stats=Stats(count=2, max=1.0))


@light(frozen=True, slots=True, order=True)
class Light:
    name: str
    size: int = 0


@dataclass(frozen=True, slots=True, order=True)
class Frozen:
    name: str
    size: int = 0


@pytest.mark.each("kind", [Light, Frozen])
def test_but_for_new_values_it_is_a_frozen_dataclass(kind: Any) -> None:
    one, same, other = kind("a"), kind("a", 0), kind("b", 1)
    assert (one == same, one < other, hash(one) == hash(same)) == (True, True, True)
    assert replace(one, size=3) == kind("a", 3)
    assert not hasattr(one, "__dict__")
    assert hash(kind("a", 1)) == hash(Frozen("a", 1))


def test_records_are_equal_hashed_ordered_and_travel_to_other_processes() -> None:
    again = pickle.loads(pickle.dumps(RECORD))  # noqa: S301 - just pickled
    assert again == RECORD
    assert hash(again) == hash(RECORD)
    assert len({KEY, TensorKey("conv", "output", 0, step=1), replace(KEY, step=0)}) == 2
    assert min(KEY, TensorKey("add", "output", 0)).layer == "add"
    assert Payload(Path("x"), 0, 4) == Payload(Path("x"), 0, 4, "raw")


@pytest.mark.each("record", [RECORD, KEY, Light("a", 1), Frozen("a", 1)])
def test_replaced_records_are_those_of_dataclasses(record: Any) -> None:
    name = "size" if hasattr(record, "size") else "slot"
    before = repr(record)
    found = light_replace(record, **{name: 7})
    assert (found, type(found)) == (replace(record, **{name: 7}), type(record))
    assert light_replace(record) == record
    assert repr(record) == before


def test_a_field_that_is_none_is_refused() -> None:
    with pytest.raises(AttributeError):
        light_replace(RECORD, shapes=(1,))
