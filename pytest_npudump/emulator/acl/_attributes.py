"""``acl.op.create_attr`` and the setters of attributes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pytest_npudump.emulator.acl._calls import CODE, OP, destroy, known
from pytest_npudump.emulator.process.state import process


@dataclass(slots=True)
class OperatorAttributes:
    """Attributes of an operator, by name."""

    values: dict[str, Any] = field(default_factory=dict)


def _set(attributes: OperatorAttributes, name: str, value: Any) -> None:
    attributes.values[name] = value


def _set_type(attr: int, name: str, value: int) -> int:
    _set(known(OperatorAttributes, attr), name, value)
    return attr


OP.table(
    {
        "create_attr": ((), 0, lambda: process().handles.add(OperatorAttributes())),
        "destroy_attr": ("k", None, destroy(OperatorAttributes)),
        # attr, name, value -> ret; but for the type, which is answered with the attr, too
        "set_attr_bool": ((OperatorAttributes, "sB"), CODE, lambda at, name, v: _set(at, name, int(bool(v)))),
        "set_attr_data_type": ("ksi", lambda attr, *_: (attr, CODE), _set_type),
        **{
            f"set_attr_{name}": ((OperatorAttributes, f"s{kind}"), CODE, _set)
            for name, kind in (
                ("int", "L"),
                ("float", "f"),
                ("string", "s"),
                ("list_bool", "T"),
                ("list_int", "V"),
                ("list_float", "F"),
                ("list_string", "S"),
            )
        },
    }
)
