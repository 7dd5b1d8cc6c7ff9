"""The data_dump.json that makes MindSpore dump what a request asks for, or the reason why it cannot.

MindSpore reads the file that ``MINDSPORE_DUMP_CONFIG`` names once a process, at the first graph compilation,
and refuses it there with a RuntimeError; much of what it takes it then ignores. Whatever it would refuse or
ignore is refused here. The keys by version are those of ``dump_json_parser.cc`` of MindSpore 2.0 to 2.10.

A member of ``kernels`` with ``/`` is one operator's full name, character by character. One without ``/`` and
``-op`` is a type, and matches part of the last component of any name. ``name-regex(...)`` (MindSpore 2.3 and
later) is a ``std::regex`` that has to match all of a full name, that of a parameter too. No member is a name
as files carry it, with ``_`` for ``/`` and ``.``: it becomes an expression in which these match anything.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from pytest_npudump.config.mindspore import COMMON_KEYS, E2E_KEYS, mindspore_warnings, validate
from pytest_npudump.config.rule_table import one_of
from pytest_npudump.errors import ConfigError, joined
from pytest_npudump.request import DumpRequest, RunRequest, is_glob
from pytest_npudump.scene import NO_WATCHER, SCENES

NEWEST: Final = (2, 10)
"""The newest MindSpore whose rules are known."""

_VERSION = re.compile(r"(\d+)\.(\d+)", re.ASCII)
_WITH_REGEX = (2, 3)
_PLAIN = re.compile(r"[A-Za-z0-9_./-]*/[A-Za-z0-9_./-]*")
_NOT_LITERAL = re.compile(r"[^A-Za-z0-9-]")
_OF_CELLS = 2
"""``dump_mode`` for the operators of the cells that ``mindspore.set_dump`` names; ``kernels`` is not read."""
_DEVICES = 16
_COMMON = "common_dump_settings"
_CATEGORIES = MappingProxyType(
    {
        "Max": "max",
        "Min": "min",
        "Avg": "avg",
        "Nan": "nan count",
        "Negative Inf": "negative inf count",
        "Positive Inf": "positive inf count",
        "L2norm": "l2norm",
    }
)
_SET_BY_US = MappingProxyType(
    {
        "path": "the plugin chooses it; --npudump-output says where failing tests' dumps go",
        "dump_mode": "use layers, or 2 on Ascend for the cells that mindspore.set_dump() names",
        "kernels": "use layers",
        "iteration": "use dump_step",
        "input_output": "use dump_mode",
        "op_debug_mode": "use scene='overflow'",
    }
)
_SINCE = MappingProxyType(
    {
        "statistic_category": (2, 3),
        "save_kernel_args": (2, 3),
        "sample_mode": (2, 3),
        "sample_num": (2, 3),
        "stat_calc_mode": (2, 3),
        "device_stat_precision_mode": (2, 4),
        "overflow_number": (2, 4),
        "initial_iteration": (2, 6),
    }
)
_NOT_IN_MINDSPORE = MappingProxyType(
    {
        "model_name": "it dumps every network of the process; select with layers",
        "dump_level": "it has no such levels; leave it out",
        "dump_kernel_data": "it has nothing of the kind; leave it out",
        "optype_blacklist": "it knows no exceptions; select with layers",
        "opname_blacklist": "it knows no exceptions; select with layers",
        "opname_range": "it knows no ranges; select with layers",
        "watcher_nodes": NO_WATCHER,
        "dump_scene": "it has one kind of exception dump; leave it out",
    }
)


def rules_version() -> tuple[int, int]:
    """Return major and minor of the MindSpore whose rules count here: the installed one, else 2.10."""
    try:
        return version_of(metadata.version("mindspore"))
    except metadata.PackageNotFoundError:
        return NEWEST


def version_of(text: str) -> tuple[int, int]:
    """Return major and minor of a version such as ``2.7.0rc1``; the newest known for what is none."""
    match = _VERSION.match(text)
    return (int(match[1]), int(match[2])) if match else NEWEST


def data_dump_settings(run: RunRequest, *, version: tuple[int, int] = NEWEST) -> dict[str, Any]:
    """Return the content of the data_dump.json.

    ``e2e_dump_settings`` is always there: without it compilation waits three seconds, and MindSpore 2.6 and
    later dump nothing on Ascend.

    Args:
        run: what is dumped, and where to; ``stats`` and ``tensor`` mean ``statistic`` and ``tensor``.
        version: of MindSpore, major and minor.
    """
    request, dump_data = run.test, run.dump_data
    own = dict(request.data_dump or {})
    if dump_data is not None:
        own = {key: value for key, value in own.items() if key not in {"saved_data", "statistic_category"}}
    layers = request.layers if run.layers is None else run.layers
    kernels = [] if own.get("dump_mode") == _OF_CELLS else kernels_of(layers, version=version)
    saved = "statistic" if (dump_data or request.dump_data) == "stats" else "tensor"
    common = {
        "dump_mode": 1 if kernels else 0,
        "path": str(run.dump_path),
        "net_name": "net",
        "iteration": request.dump_step or "all",
        "input_output": {"all": 0, "input": 1, "output": 2}[request.dump_mode],
        "kernels": kernels,
        "support_device": list(range(_DEVICES)),
        "op_debug_mode": 0,
        "saved_data": saved,
    }
    common |= SCENES[request.scene].data_dump or {}
    common |= {key: value for key, value in own.items() if key in COMMON_KEYS}
    if common["saved_data"] != "tensor" and version >= _SINCE["statistic_category"]:
        wanted = request.dump_stats or tuple(_CATEGORIES)
        common.setdefault("statistic_category", [_CATEGORIES[name] for name in wanted])
    e2e = {"enable": True, "trans_flag": True}
    return {
        _COMMON: common,
        "e2e_dump_settings": e2e | {key: value for key, value in own.items() if key in E2E_KEYS},
    }


def kernels_of(layers: Sequence[str], *, version: tuple[int, int]) -> list[str]:
    """Return the members of ``kernels`` that select at least ``layers``; none where all has to be dumped.

    What they select beyond ``layers`` is filtered afterwards: MindSpore's files tell operators apart.

    Args:
        layers: names, raw or as in file names, and globs.
        version: of MindSpore, major and minor.
    """
    if version < _WITH_REGEX:
        exact = all(_PLAIN.fullmatch(name) or "-op" in name for name in layers)
        return list(layers) if exact and not any(map(is_glob, layers)) else []
    if any("[" in name for name in layers):
        return []
    # A backslash is read as two, so nothing can be escaped: whatever is not literal matches anything.
    loose = [_NOT_LITERAL.sub(lambda found: ".*" if found[0] == "*" else ".", name) for name in layers]
    named = zip(layers, loose, strict=True)
    return list(
        dict.fromkeys(name if _PLAIN.fullmatch(name) else f"name-regex({pattern})" for name, pattern in named)
    )


def check_request(
    request: DumpRequest, *, device: str = "Ascend", version: tuple[int, int] = NEWEST, path: str = "/dump"
) -> None:
    """Refuse requests that MindSpore cannot fulfil, or ignores.

    Args:
        request: what the test asks for.
        device: ``device_target``: ``Ascend``, which can do most, ``CPU`` or ``GPU``.
        version: of MindSpore, major and minor.
        path: directory the dump goes to.

    Raises:
        ConfigError: names the argument, and what to write instead.
    """
    problems = [*_impossible(request), *_own_keys(request, version), *_device_problems(request, device)]
    if problems:
        raise ConfigError(joined("; ", problems))
    if SCENES[request.scene].data_dump is not None:
        settings = data_dump_settings(RunRequest(request, Path(path)), version=version)
        _check_settings(settings, device=device, version=version)


def _check_settings(settings: Mapping[str, Any], *, device: str, version: tuple[int, int]) -> None:
    """Check the content of a data_dump.json by MindSpore's own rules.

    Raises:
        ConfigError: MindSpore would refuse it, or part of it matches nothing.
    """
    name = f"MindSpore {version[0]}.{version[1]}"
    verdict = validate(json.dumps(settings).encode(), device=device, environ={}, version=version)
    if not verdict.accepted:
        hint = "; --npudump-output or --basetemp choose one" if ".path:" in verdict.message else ""
        raise ConfigError(f"{name} refuses this dump: {verdict.message}{hint}")
    if ignored := mindspore_warnings(dict(settings)):
        raise ConfigError(f"{name} would take this dump and ignore part of it: {'; '.join(ignored)}")


def write_data_dump(
    path: Path, settings: Mapping[str, Any], *, device: str, version: tuple[int, int]
) -> None:
    """Write a data_dump.json, readable for its owner only.

    Raises:
        ConfigError: MindSpore would refuse it, or part of it matches nothing.
    """
    _check_settings(settings, device=device, version=version)
    path.write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
    path.chmod(0o600)


def _impossible(request: DumpRequest) -> Iterator[str]:
    for name, way_out in _NOT_IN_MINDSPORE.items():
        if getattr(request, name):
            yield f"{name}: not with MindSpore: {way_out}"
    scene = SCENES[request.scene]
    told = any(getattr(request, name) for name in scene.alone if name in _NOT_IN_MINDSPORE)
    if scene.not_in_mindspore and not told:
        yield f"scene={scene.name!r}: not with MindSpore: {scene.not_in_mindspore}"
    if request.dump_stats and request.dump_data != "stats":
        yield (
            "dump_stats: MindSpore dumps tensors unless dump_data is 'stats', and all statistics are "
            "computed from those; add acl_json={'dump_data': 'stats'} (Ascend and GPU only), or leave "
            "dump_stats out"
        )


def _own_keys(request: DumpRequest, version: tuple[int, int]) -> Iterator[str]:
    known = [key for key in (*COMMON_KEYS, *E2E_KEYS) if key not in _SET_BY_US]
    for key, value in (request.data_dump or {}).items():
        if key == "dump_mode" and value == _OF_CELLS:
            continue
        if key in _SET_BY_US:
            yield f"data_dump[{key!r}]: not here: {_SET_BY_US[key]}"
        elif key not in known:
            yield f"data_dump[{key!r}]: MindSpore ignores this key; {one_of(known, key)}"
        elif version < _SINCE.get(key, version):
            since = ".".join(map(str, _SINCE[key]))
            yield (
                f"data_dump[{key!r}]: MindSpore {version[0]}.{version[1]} ignores this key, which came with "
                f"{since}; leave it out"
            )
        elif key == "saved_data" and value == "full" and request.dump_data:
            yield "data_dump['saved_data']: dump_data says it already; leave dump_data out for 'full'"
        elif key == "saved_data" and value != "full":
            yield "data_dump['saved_data']: only 'full' here; dump_data is 'stats' or 'tensor'"


def _device_problems(request: DumpRequest, device: str) -> Iterator[str]:
    wants_statistics = request.dump_data == "stats" or "saved_data" in (request.data_dump or {})
    if device == "CPU" and wants_statistics:
        yield (
            "dump_data='stats': MindSpore writes no statistics on CPU; leave it out (and saved_data): "
            "tensors are dumped then, and their statistics computed here in full precision"
        )
    if (why := SCENES[request.scene].only_on_ascend) and device != "Ascend":
        yield f"scene={request.scene!r}: not with MindSpore on {device}: {why}; use scene='model'"
