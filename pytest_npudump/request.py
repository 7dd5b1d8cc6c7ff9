"""What a marker asks for, checked argument by argument before anything runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from numbers import Real
from types import MappingProxyType
from typing import Any

from pytest_npudump.errors import RequestError

SCENES = ("model", "op", "overflow", "watcher")
_STATISTICS = ("Max", "Min", "Avg", "Nan", "Negative Inf", "Positive Inf", "L2norm")


@dataclass(frozen=True, slots=True)
class DumpRequest:
    """One test's wish: what is dumped, and how it is judged.

    Attributes named as keys of acl.json mean what CANN means by them.

    Attributes:
        layers: operator names or globs; empty means every layer.
        scene: ``model`` (a model's operators), ``op`` (single operators, ``dump_op_switch``), ``overflow``
            (operators that overflow, ``dump_debug``) or ``watcher`` (outputs of ``watcher_nodes`` after each
            of ``layers``).
        dump_data: None for what the scene needs: statistics of ``model`` and ``op``, else full tensors.
        golden_tensors: names or globs of layers whose tensors are kept beside the golden.
        rtol, atol: tolerance of this test's floating-point statistics; one given alone makes the other 0.
        preset: name of a tolerance preset; None for the run's.
        tolerances: further rules, as in a tolerance file.
        escalate: whether a failure is followed by a tensor dump of the failing layers.
    """

    layers: tuple[str, ...] = ()
    scene: str = "model"
    model_name: str | None = None
    dump_mode: str = "output"
    dump_level: str | None = None
    dump_step: str | None = None
    dump_data: str | None = None
    dump_stats: tuple[str, ...] = ()
    dump_kernel_data: str | None = None
    optype_blacklist: tuple[Mapping[str, Any], ...] = ()
    opname_blacklist: tuple[Mapping[str, Any], ...] = ()
    opname_range: tuple[Mapping[str, Any], ...] = ()
    watcher_nodes: tuple[str, ...] = ()
    golden_tensors: tuple[str, ...] = ()
    rtol: float | None = None
    atol: float | None = None
    preset: str | None = None
    tolerances: tuple[Mapping[str, Any], ...] = ()
    escalate: bool = True

    @property
    def exact_layers(self) -> bool:
        """Whether CANN itself can select the layers: it takes exact names only."""
        return bool(self.layers) and not any(is_glob(name) for name in self.layers)


def is_glob(name: str) -> bool:
    """Whether ``name`` has a wildcard of :mod:`fnmatch`."""
    return any(character in name for character in "*?[")


def matches_any(patterns: Iterable[str], *names: str) -> bool:
    """Whether any of ``names`` is one of ``patterns``, literally or as a glob."""
    return any(name and (name == p or fnmatchcase(name, p)) for p in patterns for name in names)


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


_BLACKLIST = _mappings("name", "pos")
_CHECKS: Mapping[str, Callable[[object], Any]] = MappingProxyType(
    {
        "layers": _names,
        "scene": _one_of(*SCENES),
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
        "tolerances": _rules,
        "escalate": _switch,
    }
)
_SET_BY_US: Mapping[str, str] = MappingProxyType(
    {
        "dump_path": "the plugin chooses it; --npudump-dump-dir says where failing tests' dumps go",
        "dump_list": "use layers, model_name, opname_range and the blacklists",
        "dump_op_switch": "use scene='op'",
        "dump_debug": "use scene='overflow'",
        "dump_scene": "use scene, as in scene='watcher'",
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
    if name not in _CHECKS:
        allowed = ", ".join(_CHECKS)
        raise ValueError(f"{name}: unknown argument; allowed are {allowed}")
    try:
        return _CHECKS[name](value)
    except ValueError as error:
        raise ValueError(f"{name}: {value!r} is not allowed, expected {error}") from None


def check_combination(request: DumpRequest) -> None:
    """Refuse arguments that exclude each other once all markers of a test are merged.

    Raises:
        RequestError: names the arguments and the rule.
    """
    problems = []
    if request.dump_stats and request.dump_data == "tensor":
        problems.append("dump_stats: only with dump_data='stats' (CANN refuses it otherwise, EP0005)")
    level_op = [n for n in ("optype_blacklist", "opname_blacklist", "opname_range") if getattr(request, n)]
    if level_op and request.dump_level != "op":
        problems.append(
            f"{', '.join(level_op)}: only with dump_level='op' (CANN refuses it otherwise, EP0005)"
        )
    if request.opname_range and not request.model_name:
        problems.append("opname_range: needs model_name (CANN refuses it otherwise, EP0001)")
    if request.scene == "op" and request.model_name:
        problems.append("model_name: not with scene='op', a single operator belongs to no model")
    if request.scene == "op" and level_op:
        problems.append(f"{', '.join(level_op)}: not with scene='op', they select operators of a model")
    problems += _scene_problems(request)
    if problems:
        raise RequestError("; ".join(problems))


_TAKEN: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "overflow": frozenset(),
        "watcher": frozenset({"layers", "watcher_nodes", "dump_step", "dump_data", "dump_mode"}),
    }
)
"""Arguments that scenes without a comparison of statistics take; ``escalate`` is without effect in them."""


def _scene_problems(request: DumpRequest) -> list[str]:
    scene = request.scene
    problems = []
    if scene in _TAKEN:
        default = DumpRequest()
        given = [n for n in _CHECKS if getattr(request, n) != getattr(default, n)]
        excess = [n for n in given if n not in _TAKEN[scene] | {"scene", "escalate"}]
        if excess:
            taken = ", ".join(n for n in _CHECKS if n in _TAKEN[scene])
            only = f"only {taken}" if taken else "no other argument: CANN looks at every operator"
            problems.append(f"{', '.join(excess)}: not with scene={scene!r}, which takes {only}")
    if scene == "watcher":
        problems += _watcher_problems(request)
    elif request.watcher_nodes:
        problems.append("watcher_nodes: only with scene='watcher' (CANN refuses it otherwise, EP0005)")
    return problems


def _watcher_problems(request: DumpRequest) -> list[str]:
    problems = []
    for name, why in (
        ("layers", "the operators after which the watched outputs are looked at"),
        ("watcher_nodes", "the operators whose outputs must not change"),
    ):
        names = getattr(request, name)
        globs = [item for item in names if is_glob(item)]
        if not names:
            problems.append(f"{name}: scene='watcher' needs it: {why}")
        elif globs:
            problems.append(f"{name}: {globs[0]!r} is a glob; CANN's watcher takes exact operator names only")
    both = [name for name in request.layers if name in request.watcher_nodes]
    if both:
        problems.append(f"{both[0]!r} is in layers and in watcher_nodes; CANN then ignores it in layers")
    if request.dump_mode != "output":
        problems.append("dump_mode: scene='watcher' dumps outputs only (CANN refuses it otherwise, EP0005)")
    if request.dump_data == "stats":
        problems.append("dump_data: scene='watcher' compares tensors element by element; leave it out")
    return problems
