"""The marker ``npu_dump``, checked at collection, before anything runs.

Its arguments make the request of a test; the test's identity, which names its golden, is here too.
"""

from __future__ import annotations

import math
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from numbers import Real
from pathlib import Path, PurePath
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from pytest_npudump.errors import ConfigError, RequestError, joined, nearest, said
from pytest_npudump.plugin import _compat
from pytest_npudump.plugin._compat import may_be_skipped
from pytest_npudump.plugin.marks import marks_of, misspelling, unknown_fixture
from pytest_npudump.ranks.rank import current_rank
from pytest_npudump.request import GRAPH_SUFFIXES, DumpRequest
from pytest_npudump.scene import EXCEPTION_SCENES, SCENES

if TYPE_CHECKING:
    import pytest

    from pytest_npudump.settings import Settings


@dataclass(frozen=True, slots=True)
class Identity:
    """Identity of a test, for its golden's name; never pytest's nodeid, which plugins rewrite.

    Attributes:
        test_file: relative to rootdir.
        classes: names of the classes around the test, outermost first.
        name: of the function, without parameters.
        param_id: id of the parameters, without the number of a repetition; None for a test without.
    """

    test_file: PurePath
    classes: tuple[str, ...]
    name: str
    param_id: str | None

    @classmethod
    def of(cls, item: pytest.Item) -> Identity:
        """Return the identity of ``item``."""
        parents = [node for node in item.listchain() if getattr(node, "cls", None) is getattr(node, "obj", 0)]
        relative = os.path.relpath(item.path, item.config.rootpath)
        return cls(
            test_file=PurePath(Path(relative).as_posix()),
            classes=tuple(node.name for node in parents),
            name=getattr(item, "originalname", None) or item.name,
            param_id=parameters_id(item),
        )

    def __str__(self) -> str:
        """Return the test as a user types it on pytest's command line."""
        parameters = "" if self.param_id is None else f"[{self.param_id}]"
        return "::".join((self.test_file.as_posix(), *self.classes, self.name)) + parameters


def repetition_parameters(item: pytest.Item) -> frozenset[str]:
    """Return the parameters that only number the repetitions of a test.

    Nothing asks for them by name: neither the test, nor its marks, nor a fixture that it uses; pytest keeps
    such names out of the fixtures of the test. Their value is a number. What asks while it runs, with
    ``request.getfixturevalue``, cannot be known here: such a parameter is taken for a repetition.
    """
    callspec: Any = getattr(item, "callspec", None)
    if callspec is None:
        return frozenset()
    asked: Collection[str] = getattr(item, "fixturenames", ())
    given = callspec.params.items()
    return frozenset(name for name, value in given if name not in asked and type(value) is int)


def parameters_id(item: pytest.Item) -> str | None:
    """Return the id of a test's parameters without that of its repetition; None for a test without."""
    callspec: Any = getattr(item, "callspec", None)
    if callspec is None:
        return None
    repeated = repetition_parameters(item)
    ids, names = _compat.ids_of_parameters(callspec), list(callspec.params)
    if not repeated:
        return str(callspec.id)
    if len(ids) == len(names):
        kept = [one for one, name in zip(ids, names, strict=True) if name not in repeated]
    elif repeated == {*names[-len(repeated) :]}:  # one id may stand for several names, before them
        kept = ids[: -len(repeated)]
    else:
        return str(callspec.id)
    return "-".join(kept) or None


def indices_of(item: pytest.Item) -> tuple[tuple[str, int], ...]:
    """Return the position of each parameter's value; they tell two cases of one id apart."""
    callspec: Any = getattr(item, "callspec", None)
    return tuple(sorted(callspec.indices.items())) if callspec is not None else ()


def are_one_case(one: pytest.Item, other: pytest.Item) -> bool:
    """Return whether two items of one test have the same parameters; pytest lets two cases share an id."""
    specs: list[Any] = [getattr(item, "callspec", None) for item in (one, other)]
    if None in specs:
        return specs[0] is specs[1]
    if specs[0].indices == specs[1].indices:
        return True
    repeated = repetition_parameters(one)
    if not repeated or repeated != repetition_parameters(other):
        return False
    values = [{n: v for n, v in spec.params.items() if n not in repeated} for spec in specs]
    return values[0].keys() == values[1].keys() and all(values[0][n] is values[1][n] for n in values[0])


MODULES = "modules"
"""The scene of a test whose layers are modules: hooks take the place of a dump."""
_STATISTICS = ("Max", "Min", "Avg", "Nan", "Negative Inf", "Positive Inf", "L2norm")


def _takes(
    is_allowed: Callable[[Any], object], expected: str, made: Callable[[Any], Any] = lambda value: value
) -> Callable[[object], Any]:
    """Return a check that refuses values that are not allowed, and converts others for a request."""

    def check(value: object) -> Any:
        if not is_allowed(value):
            raise ValueError(expected)
        return made(value)

    return check


def _one_of(*allowed: str) -> Callable[[object], Any]:
    words = f"one of {', '.join(map(repr, allowed))}"
    return _takes(lambda value: isinstance(value, str) and value in allowed, words)


def _number_of(what: str) -> Callable[[object], Any]:
    return _takes(lambda value: type(value) is int and value >= 1, f"a number of {what}, 1 or more")


def _are_names(value: object) -> bool:
    items = [value] if isinstance(value, str) else value
    return _is_list(items, lambda item: isinstance(item, str) and bool(item))


_names = _takes(
    _are_names,
    "a name or glob, or a non-empty list of them",
    lambda value: (value,) if isinstance(value, str) else tuple(value),
)
_text = _takes(lambda value: isinstance(value, str) and value, "a non-empty string")
_keys = _takes(
    lambda value: isinstance(value, Mapping) and value and all(isinstance(key, str) for key in value),
    "a dict of keys of data_dump.json such as {'sample_mode': 1, 'sample_num': 100}",
    lambda value: MappingProxyType(dict(value)),
)


def _is_list(value: Any, is_item: Callable[[Any], bool]) -> bool:
    listed = isinstance(value, Sequence) and not isinstance(value, str)
    return listed and bool(value) and all(map(is_item, value))


def _mappings(expected: str, is_item: Callable[[Any], bool]) -> Callable[[object], Any]:
    return _takes(
        lambda value: _is_list(value, lambda item: isinstance(item, Mapping) and is_item(item)),
        f"a non-empty list of {expected}",
        lambda value: tuple(MappingProxyType(dict(item)) for item in value),
    )


def _with_keys(*keys: str) -> Callable[[object], Any]:
    return _mappings(
        f"dicts with keys {', '.join(map(repr, keys))} only", lambda item: set(item) <= set(keys)
    )


def _tolerance(value: object) -> float:
    try:
        number = float(value) if isinstance(value, Real) and not isinstance(value, bool) else math.nan
    except OverflowError:
        number = math.inf
    if not 0 <= number < math.inf:
        raise ValueError("a finite number, 0 or greater")
    return number


def _isolation(value: object) -> tuple[str, float | None]:
    """Return the place of the test's runs, and the limit of one in a child process, in seconds."""
    words = {True: "process", False: "none", "process": "process", "none": "none"}
    if isinstance(value, (bool, str)) and value in words:
        return words[value], None
    try:
        seconds = _tolerance(value)
    except ValueError:
        seconds = 0.0
    if not seconds:
        raise ValueError("'process' or seconds greater than 0 for a child process, False or 'none' for none")
    return "process", seconds


_BLACKLIST = _with_keys("name", "pos")
ACL_JSON: Mapping[str, Callable[[object], Any]] = MappingProxyType(
    {
        "dump_scene": _one_of(*EXCEPTION_SCENES),
        "model_name": _text,
        "dump_mode": _one_of("input", "output", "all"),
        "dump_level": _one_of("op", "kernel", "all"),
        "dump_step": _text,
        "dump_data": lambda value: None if value == "auto" else _one_of("auto", "stats", "tensor")(value),
        "dump_stats": _takes(
            lambda value: _is_list(value, _STATISTICS.__contains__),
            f"a non-empty list of {', '.join(_STATISTICS)}",
            tuple,
        ),
        "dump_kernel_data": _text,
        "optype_blacklist": _BLACKLIST,
        "opname_blacklist": _BLACKLIST,
        "opname_range": _with_keys("begin", "end"),
        "watcher_nodes": _names,
    }
)
"""The keys of the marker's ``acl_json``, under CANN's names, as :data:`CHECKS` has arguments."""

CHECKS: Mapping[str, Callable[[object], Any]] = MappingProxyType(
    {
        "layers": _names,
        "scene": _one_of(*SCENES, MODULES),
        "acl_json": _takes(lambda value: isinstance(value, Mapping), "a dict such as {'dump_mode': 'all'}"),
        "data_dump": _keys,
        "rtol": _tolerance,
        "atol": _tolerance,
        "preset": _text,
        "tolerances": _mappings(
            "rules such as {'layer': 'conv*', 'rtol': 1e-2, 'atol': 0, 'reason': '...'}", lambda _: True
        ),
        "reference": _text,
        "map": _text,
        "golden_tensors": _names,
        "escalate": _takes(lambda value: isinstance(value, bool), "True or False"),
        "repeats": _number_of("runs"),
        "isolation": _isolation,
        "graph": _text,
        "ranks": _one_of("each", "same"),
        "devices": _number_of("devices"),
    }
)
"""Every argument of the marker, and what turns its value into that of :class:`DumpRequest`."""

_NAMES: Mapping[str, str] = MappingProxyType({"reference_map": "map"})
"""The arguments whose attribute of a request has another name, by that."""

_OF_MODULES = frozenset(
    {"layers", "dump_mode", "dump_data", "chosen", "golden_tensors", "rtol", "atol", "preset", "tolerances"}
    | {"escalate", "isolation", "timeout", "repeats", "ranks", "modules", "reference_map"}
)
"""Attributes of a request that modules of torch take."""

_SET_BY_US: Mapping[str, str] = MappingProxyType(
    {
        "dump_path": "the plugin chooses it; --npudump-output says where failing tests' dumps go",
        "dump_list": "use layers, model_name, opname_range and the blacklists",
        "dump_op_switch": "use scene='op'",
        "dump_debug": "use scene='overflow'",
        "transport": "leave it out; where it was 'callback', acl_json={'dump_data': 'tensor'} computes the "
        "same statistics",
        "numerics": "preset says which bounds hold: preset='same', 'other' or 'hf32'",
        "timeout": "isolation takes the seconds: isolation=600",
        "reference_map": "it is called map",
        "modules": "it is a scene: scene='modules'",
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
        problems.append(
            said("{count} positional arguments; only layers may be given by position", count=len(args))
        )
    elif args and "layers" in given:
        problems.append(said("layers: given twice, by position and by name"))
    elif args:
        given["layers"] = args[0]
    values: dict[str, Any] = {}
    keys = given.get("acl_json")
    sides: tuple[tuple[Mapping[str, Callable[[object], Any]], Mapping[str, object]], ...] = (
        (CHECKS, given),
        (ACL_JSON, keys if isinstance(keys, Mapping) else {}),
    )
    for checks, asked in sides:
        for name, value in asked.items():
            try:
                checked = _check(name, value, checks)
            except ValueError as error:
                of_key = checks is ACL_JSON
                problems.append(said("acl_json: {error}", error=str(error)) if of_key else str(error))
                continue
            if name == "isolation":
                values["isolation"], values["timeout"] = checked
            elif name == "scene":  # that of modules judges as that of a model does
                values["modules"] = checked == MODULES
                values["scene"] = DumpRequest().scene if values["modules"] else checked
            elif name != "acl_json":
                values["reference_map" if name == "map" else name] = checked
    if problems:
        raise RequestError(joined("; ", problems))
    return replace(base, **values) if values else base


def _check(name: str, value: object, checks: Mapping[str, Callable[[object], Any]]) -> Any:
    """Return a request's value of a marker's argument, or of a key of its ``acl_json``."""
    if name in checks:
        if value is None and (checks is ACL_JSON or name in {"layers", "preset", "rtol", "atol"}):
            return getattr(DumpRequest(), name)
        try:
            return checks[name](value)
        except ValueError as error:
            raise ValueError(
                said(
                    "{name}: {value!r} is not allowed, expected {error}",
                    name=name,
                    value=value,
                    error=str(error),
                )
            ) from None
    if name in _SET_BY_US:
        raise ValueError(
            said("{name}: not an argument of the marker: {why}", name=name, why=_SET_BY_US[name])
        )
    if name in ACL_JSON:
        raise ValueError(
            said(
                "{name}: a key of acl.json, given as acl_json={{{name!r}: {value}}}",
                name=name,
                value=repr(value)[:80],
            )
        )
    if name in CHECKS:
        raise ValueError(said("{name}: an argument of the marker, and no key of acl.json", name=name))
    close = nearest(str(name), [*CHECKS, *ACL_JSON], 0.7)
    if not close:
        allowed = ", ".join(checks)
        raise ValueError(said("{name}: unknown argument; allowed are {allowed}", name=name, allowed=allowed))
    meant = close if close in checks or checks is ACL_JSON else f"acl_json={{{close!r}: ...}}"
    raise ValueError(said("{name}: unknown argument; did you mean {meant}?", name=name, meant=meant))


def check_combination(request: DumpRequest) -> None:
    """Refuse arguments that exclude each other once all markers of a test are merged.

    Raises:
        RequestError: names the arguments and the rule.
    """
    level_op = [n for n in ("optype_blacklist", "opname_blacklist", "opname_range") if getattr(request, n)]
    excluded = (
        (
            request.dump_stats and request.dump_data == "tensor",
            "dump_stats: only with dump_data='stats' (CANN refuses it otherwise, EP0005)",
        ),
        (
            level_op and request.dump_level != "op",
            f"{', '.join(level_op)}: only with dump_level='op' (CANN refuses it otherwise, EP0005)",
        ),
        (
            request.opname_range and not request.model_name,
            "opname_range: needs model_name (CANN refuses it otherwise, EP0001)",
        ),
    )
    problems = [words for there, words in excluded if there]
    problems += [*_scene_problems(request), *_run_problems(request)]
    if problems:
        raise RequestError(joined("; ", problems))


_ALWAYS = frozenset({"scene", "escalate", "isolation", "timeout", "ranks", "data_dump", "devices"})
"""Arguments of every scene; ``escalate`` is without effect in those without statistics."""


def _scene_problems(request: DumpRequest) -> list[str]:
    scene = SCENES[request.scene]
    problems = []
    if not scene.statistics:
        default = DumpRequest()
        asked = [one.name for one in fields(request)]
        given = [n for n in asked if getattr(request, n) != getattr(default, n)]
        if excess := [_NAMES.get(n, n) for n in given if n not in scene.takes | _ALWAYS]:
            taken = ", ".join(n for n in asked if n in scene.takes)
            only = f"only {taken}" if taken else said("no other argument: CANN looks at every operator")
            problems.append(
                said(
                    "{excess}: not with scene={scene!r}, which takes {only}",
                    excess=", ".join(excess),
                    scene=scene.name,
                    only=only,
                )
            )
    problems += scene.problems(request)
    others = [found for found in SCENES.values() if found is not scene]
    return problems + [
        said("{name}: {why}", name=name, why=why)
        for found in others
        for name, why in found.alone.items()
        if getattr(request, name)
    ]


def _run_problems(request: DumpRequest) -> Iterator[str]:
    """Yield the problems of the test's run and of its comparison."""
    if request.isolation == "none" and request.dump_scene == "aic_err_detail_dump":
        yield "isolation: aic_err_detail_dump may end the process, which has to be a child's"
    if request.graph and PurePath(request.graph).suffix not in GRAPH_SUFFIXES:
        expected = ", ".join(GRAPH_SUFFIXES)
        yield f"graph: {request.graph!r} is no graph by its name, expected one of {expected}"
    if request.modules:
        default, takes = DumpRequest(), _OF_MODULES
        given = (one.name for one in fields(request))
        excess = [n for n in given if getattr(request, n) != getattr(default, n) and n not in takes]
        if excess:
            names = ", ".join(_NAMES.get(name, name) for name in excess)
            yield said("{names}: not with scene='modules', which uses hooks instead of a dump", names=names)


def request_of(item: pytest.Item) -> DumpRequest:
    """Merge the markers of module, class and function, the closest winning argument by argument.

    Raises:
        RequestError: an argument is unknown, not allowed, given twice on the function, or excludes another.
    """
    request, marks = DumpRequest(), marks_of(item)
    written = getattr(getattr(item, "obj", None), "pytestmark", ())
    several = written if isinstance(written, list) else ()
    own = [mark for mark in marks if any(mark is one for one in several)]
    given = Counter(name for mark in own for name in {*mark.kwargs, *(["layers"] if mark.args else [])})
    if twice := ", ".join(name for name, count in given.items() if count > 1):
        raise RequestError(said("{names}: given by two marks of the function; write one", names=twice))
    for mark in reversed(marks):
        request = parse_marker(mark.args, mark.kwargs, request)
    check_combination(request)
    return request


def check_item(item: pytest.Item, settings: Settings) -> str:
    """Return the problem of a marked test; "" for none."""
    if wrong := misspelling(item) or unknown_fixture(item):
        return wrong
    try:
        request = request_of(item)
        function = getattr(item, "obj", None)
        if request.scene != "check_op" and getattr(function, "is_hypothesis_test", False):
            return said(
                "npu_dump does not work with hypothesis' @given: all examples would be compared with one "
                "golden; use pytest.mark.parametrize, which gives each case a golden, or "
                "scene='check_op', which needs none"
            )
        if (rank := current_rank()) is not None and hasattr(item.config, "workerinput"):
            return said(
                "this is {rank}, and all ranks run one test at a time: leave out -n (pytest-xdist)", rank=rank
            )
        if settings.approves and hasattr(item.config, "workerinput") and repetition_parameters(item):
            return (
                "all repetitions of a test share one golden, and an update compares each with what the first "
                "has recorded, which takes one process: leave out -n (pytest-xdist)"
            )
        _check_config(request, settings.runtime)
        _check_files(request, item)
        if request.tolerances or request.preset or settings.tolerances or settings.preset:
            from pytest_npudump.compare.tolerances.rules import check_reference, tolerances_for  # noqa: PLC0415 - it needs numpy

            tolerances_for(request, settings, item.config.rootpath)
            check_reference(request)
    except (RequestError, ConfigError) as error:
        return str(error)
    return ""


def _check_config(request: DumpRequest, runtime: str) -> None:
    """Have the rules of what will read the configuration judge it, as far as they are known at collection."""
    if request.modules or runtime == "modules":
        return
    if runtime == "mindspore":
        from pytest_npudump.config import data_dump  # noqa: PLC0415 - only where chosen

        data_dump.check_request(request, version=data_dump.rules_version())
        return
    if request.data_dump:
        raise RequestError(
            "data_dump: keys of MindSpore's data_dump.json, only with --npudump-runtime=mindspore"
        )
    from pytest_npudump.config.acl_json import check_request  # noqa: PLC0415 - only for marked tests
    from pytest_npudump.config.cann import rules_version  # noqa: PLC0415 - the same

    somewhere_writable = Path(tempfile.gettempdir())  # the folder of the dump is made when the test runs
    check_request(request, version=rules_version(), cwd=somewhere_writable, runtime=runtime)


def _check_files(request: DumpRequest, item: pytest.Item) -> None:
    """Refuse files that are not there, before the device works for a comparison that cannot be made."""
    files = (
        ("reference", request.reference, "an ONNX model"),
        ("map", request.reference_map, "a YAML file"),
        ("graph", request.graph, "a file of the model's graph"),
    )
    for argument, name, kind in files:
        path = item.path.parent / name if name else None
        # A test may be skipped for want of that very file.
        if path is not None and not path.is_file() and not may_be_skipped(item):
            raise RequestError(
                said(
                    "{argument}: there is no file {path}; name {kind}, relative to the test file's folder",
                    argument=argument,
                    path=path,
                    kind=kind,
                )
            )
