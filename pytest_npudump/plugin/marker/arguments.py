"""The marker's arguments, checked one by one before anything runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from numbers import Real
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from pytest_npudump.errors import RequestError
from pytest_npudump.scene import EXCEPTION_SCENES, SCENES

if TYPE_CHECKING:
    from pytest_npudump.request import DumpRequest

_STATISTICS = ("Max", "Min", "Avg", "Nan", "Negative Inf", "Positive Inf", "L2norm")


def _names(value: object) -> tuple[str, ...]:
    items = (value,) if isinstance(value, str) else value
    if not isinstance(items, Sequence) or not all(isinstance(i, str) and i for i in items) or not items:
        raise ValueError("a name or glob, or a non-empty list of them")
    return tuple(items)


def _one_of(*allowed: str) -> Callable[[object], str]:
    def check(value: object) -> str:
        if not isinstance(value, str) or value not in allowed:
            raise ValueError(f"one of {', '.join(map(repr, allowed))}")
        return value

    return check


def _text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("a non-empty string")
    return value


def _statistics(value: object) -> tuple[str, ...]:
    if not isinstance(value, Sequence) or isinstance(value, str) or not value:
        raise ValueError(f"a non-empty list of {', '.join(_STATISTICS)}")
    if any(item not in _STATISTICS for item in value):
        raise ValueError(f"a list of {', '.join(_STATISTICS)}")
    return tuple(value)


def _mappings(*keys: str) -> Callable[[object], tuple[Mapping[str, Any], ...]]:
    shape = ", ".join(repr(key) for key in keys)

    def check(value: object) -> tuple[Mapping[str, Any], ...]:
        if not isinstance(value, Sequence) or isinstance(value, str) or not value:
            raise ValueError(f"a non-empty list of dicts with keys {shape}")
        for item in value:
            if not isinstance(item, Mapping) or not set(item) <= set(keys):
                raise ValueError(f"dicts with keys {shape} only")
        return tuple(MappingProxyType(dict(item)) for item in value)

    return check


def _tolerance(value: object) -> float:
    try:
        number = float(value) if isinstance(value, Real) and not isinstance(value, bool) else math.nan
    except OverflowError:
        number = math.inf
    if not 0 <= number < math.inf:
        raise ValueError("a finite number, 0 or greater")
    return number


def _rules(value: object) -> tuple[Mapping[str, Any], ...]:
    if not isinstance(value, Sequence) or isinstance(value, str) or not value:
        raise ValueError("a non-empty list of rules such as {'layer': 'conv*', 'rtol': 1e-2, 'atol': 0}")
    if not all(isinstance(item, Mapping) for item in value):
        raise ValueError("dicts such as {'layer': 'conv*', 'rtol': 1e-2, 'atol': 0, 'reason': '...'}")
    return tuple(MappingProxyType(dict(item)) for item in value)


def _switch(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError("True or False")  # noqa: TRY004 - one exception type carries what is allowed
    return value


def _seconds(value: object) -> float:
    number = _tolerance(value)
    if number == 0:
        raise ValueError("a number of seconds greater than 0")
    return number


def _number_of(what: str) -> Callable[[object], int]:
    def check(value: object) -> int:
        if type(value) is not int or value < 1:
            raise ValueError(f"a number of {what}, 1 or more")
        return value

    return check


def _keys(value: object) -> Mapping[str, Any]:
    if not isinstance(value, Mapping) or not value or not all(isinstance(key, str) for key in value):
        raise ValueError("a dict of keys of data_dump.json such as {'sample_mode': 1, 'sample_num': 100}")
    return MappingProxyType(dict(value))


_BLACKLIST = _mappings("name", "pos")
CHECKS: Mapping[str, Callable[[object], Any]] = MappingProxyType(
    {
        "layers": _names,
        "scene": _one_of(*SCENES),
        "dump_scene": _one_of(*EXCEPTION_SCENES),
        "model_name": _text,
        "dump_mode": _one_of("input", "output", "all"),
        "dump_level": _one_of("op", "kernel", "all"),
        "dump_step": _text,
        "dump_data": _one_of("stats", "tensor"),
        "dump_stats": _statistics,
        "dump_kernel_data": _text,
        "optype_blacklist": _BLACKLIST,
        "opname_blacklist": _BLACKLIST,
        "opname_range": _mappings("begin", "end"),
        "watcher_nodes": _names,
        "golden_tensors": _names,
        "rtol": _tolerance,
        "atol": _tolerance,
        "preset": _text,
        "numerics": _one_of("auto", "same", "other", "hf32"),
        "tolerances": _rules,
        "escalate": _switch,
        "isolation": _one_of("process", "none"),
        "timeout": _seconds,
        "repeats": _number_of("runs"),
        "reference": _text,
        "reference_map": _text,
        "graph": _text,
        "data_dump": _keys,
        "ranks": _one_of("each", "same"),
        "devices": _number_of("devices"),
    }
)
"""Every argument of the marker, and what turns its value into that of :class:`DumpRequest`."""

_SET_BY_US: Mapping[str, str] = MappingProxyType(
    {
        "dump_path": "the plugin chooses it; --npudump-dump-dir says where failing tests' dumps go",
        "dump_list": "use layers, model_name, opname_range and the blacklists",
        "dump_op_switch": "use scene='op'",
        "dump_debug": "use scene='overflow'",
        "transport": "leave it out; where it was 'callback', dump_data='tensor' computes the same statistics",
    }
)


def parse_marker(args: Sequence[object], kwargs: Mapping[str, object], base: DumpRequest) -> DumpRequest:
    """Lay one marker's arguments over ``base`` (what the markers of the class and module ask for).

    Raises:
        RequestError: names every argument that is wrong, and what is allowed.
    """
    given = dict(kwargs)
    problems = []
    if len(args) > 1:
        problems.append(f"{len(args)} positional arguments; only layers may be given by position")
    elif args and "layers" in given:
        problems.append("layers: given twice, by position and by name")
    elif args:
        given["layers"] = args[0]
    values: dict[str, Any] = {}
    for name, value in given.items():
        if value is None and name in {"layers", "model_name", "preset", "rtol", "atol"}:
            values[name] = () if name == "layers" else None
            continue
        try:
            values[name] = _check(name, value)
        except ValueError as error:
            problems.append(str(error))
    if problems:
        raise RequestError("; ".join(problems))
    return replace(base, **values)


def _check(name: str, value: object) -> Any:
    if name in _SET_BY_US:
        raise ValueError(f"{name}: not an argument of the marker: {_SET_BY_US[name]}")
    if name not in CHECKS:
        allowed = ", ".join(CHECKS)
        raise ValueError(f"{name}: unknown argument; allowed are {allowed}")
    try:
        return CHECKS[name](value)
    except ValueError as error:
        raise ValueError(f"{name}: {value!r} is not allowed, expected {error}") from None
