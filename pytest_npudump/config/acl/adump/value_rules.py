"""What CANN 9.1 checks once the JSON types are right: the values, then what excludes what.

Rules 9.1.0 (unchanged up to master) and, where ``strict``, those of 9.1.0-beta.3 alone, which forbid keys by
their presence.  Source: ``dump_config_converter.cpp`` at tag v9.1.0, lines 163-228, 391-498, 611-866.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_npudump.config.acl.dump_keys import EXAMPLES, OPTIONS, RANGE_KEYS
from pytest_npudump.config.acl.path_checks import path_reasons
from pytest_npudump.config.acl.steps import step_reasons
from pytest_npudump.config.checker_verdict import Refusal, one_of, shown

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

_MAX_BLACKLIST = 100
_BLACKLISTS = ("optype_blacklist", "opname_blacklist")
_ENUM_KEYS = ("dump_mode", "dump_data", "dump_op_switch", "dump_level", "dump_debug", "dump_scene")
_NOT_WITH_WATCHER = ("dump_level", "dump_data", "dump_kernel_data", "dump_step", "dump_stats")
_NOT_WITH_EXCEPTION = (
    "dump_mode",
    "dump_level",
    "dump_data",
    "dump_debug",
    "dump_op_switch",
    "dump_kernel_data",
    "dump_step",
    "dump_stats",
    "dump_list",
)


def value_reasons(dump: Mapping[str, Any]) -> Iterator[Refusal]:
    """Yield every value that is not in its key's enumeration."""
    for key in _ENUM_KEYS:
        if key in dump:
            yield from enum_reasons(key, dump[key])
    if "dump_kernel_data" in dump:
        for token in dump["dump_kernel_data"].split(","):
            yield from enum_reasons("dump_kernel_data", token)
    for index, name in enumerate(dump.get("dump_stats", ())):
        yield from enum_reasons("dump_stats", name, f"dump_stats[{index}]")


def enum_reasons(key: str, value: str, path: str = "") -> Iterator[Refusal]:
    """Yield why ``value`` is none of ``key``'s; names are exact: no trimming, no other case."""
    options = OPTIONS[key]
    if not value:
        yield Refusal(path or key, "empty", one_of(options), "EP0001")
    elif value not in options:
        yield Refusal(path or key, f"{shown(value)} is unknown", one_of(options, value), "EP0002")


def constraint_reasons(dump: Mapping[str, Any], cwd: Path, *, strict: bool) -> Iterator[Refusal]:
    """Yield what excludes what; the mode (exception, overflow, data) decides which checks are skipped."""
    scene = dump.get("dump_scene", "")
    if scene:
        yield from _scene_reasons(dump, scene, strict=strict)
        if scene != "watcher":
            return
    yield from path_reasons(dump, cwd)
    if dump.get("dump_debug") == "on":
        yield from _overflow_reasons(dump, strict=strict)
        return
    yield from step_reasons(dump.get("dump_step", ""))
    for index, item in enumerate(dump.get("dump_list", ())):
        if may_be_wrong(dump, item):
            yield from _item_reasons(dump, item, f"dump_list[{index}]")
    yield from _stats_reasons(dump)


def _scene_reasons(dump: Mapping[str, Any], scene: str, *, strict: bool) -> Iterator[Refusal]:
    if strict and scene != "watcher":
        yield from _present(dump, _NOT_WITH_EXCEPTION, f'"dump_scene": "{scene}"')
        return
    for key in ("dump_debug", "dump_op_switch"):
        if dump.get(key) == "on":
            yield conflict(key, '"on"', f'"dump_scene": "{scene}"', 'leave one of them out, or write "off"')
    if scene != "watcher":
        return
    mode = dump.get("dump_mode", "output")
    if mode != "output":
        yield conflict("dump_mode", f'"{mode}"', '"dump_scene": "watcher"', 'write "output"')
    if strict:
        yield from _present(dump, _NOT_WITH_WATCHER, '"dump_scene": "watcher"')


def _overflow_reasons(dump: Mapping[str, Any], *, strict: bool) -> Iterator[Refusal]:
    if dump.get("dump_op_switch") == "on":
        yield conflict("dump_op_switch", '"on"', '"dump_debug": "on"', 'write "off" for one of them')
    if strict:
        yield from _present(dump, ("dump_list",), '"dump_debug": "on"')


def _present(dump: Mapping[str, Any], keys: tuple[str, ...], condition: str) -> Iterator[Refusal]:
    for key in keys:
        if key in dump:
            yield conflict(key, "", condition, "leave the key out")


def conflict(path: str, value: str, condition: str, remedy: str) -> Refusal:
    """Return the reason for two settings that exclude each other."""
    what = f"{value} cannot" if value else "cannot"
    return Refusal(path, f"{what} be configured together with {condition}", remedy, "EP0005")


def may_be_wrong(dump: Mapping[str, Any], item: Mapping[str, Any]) -> bool:
    """Whether a member of ``dump_list`` has to be looked at: in an empty one only the watcher lacks a key."""
    return bool(item) or dump.get("dump_scene") == "watcher"


def _item_reasons(dump: Mapping[str, Any], item: Mapping[str, Any], path: str) -> Iterator[Refusal]:
    if dump.get("dump_op_switch", "off") == "off":
        for key, empty in (("model_name", ""), ("layer", [])):
            if item.get(key) == empty:
                remedy = f"name something ({EXAMPLES[key]}), or leave the key out to dump everything"
                yield Refusal(f"{path}.{key}", "empty", remedy, "EP0001")
    for check in ITEM_CHECKS:
        yield from check(dump, item, path)


def _watcher_reasons(dump: Mapping[str, Any], item: Mapping[str, Any], path: str) -> Iterator[Refusal]:
    """Yield what is wrong with ``watcher_nodes`` and ``model_name`` in this scene."""
    nodes = f"{path}.watcher_nodes"
    if dump.get("dump_scene") != "watcher":
        if item.get("watcher_nodes"):
            remedy = 'add "dump_scene": "watcher", or leave watcher_nodes out'
            yield conflict(nodes, "", "anything but the watcher scene", remedy)
        return
    if not item.get("watcher_nodes"):
        problem = "empty" if "watcher_nodes" in item else "missing"
        remedy = f"name the nodes to watch: {EXAMPLES['watcher_nodes']}"
        yield Refusal(nodes, f"{problem}, which the watcher scene does not allow", remedy, "EP0001")
    if item.get("model_name"):
        yield conflict(f"{path}.model_name", "", '"dump_scene": "watcher"', "leave model_name out")


def _size_reasons(_: Mapping[str, Any], item: Mapping[str, Any], path: str) -> Iterator[Refusal]:
    """Yield the blacklists that are too long."""
    for key in _BLACKLISTS:
        count = len(item.get(key, ()))
        if count > _MAX_BLACKLIST:
            problem = f"{count} entries, CANN takes {_MAX_BLACKLIST}"
            yield Refusal(f"{path}.{key}", problem, "split the entry over several runs", "EP0003")


def _level_reasons(dump: Mapping[str, Any], item: Mapping[str, Any], path: str) -> Iterator[Refusal]:
    """Yield the blacklists that lack ``dump_level: op``."""
    for key in _BLACKLISTS:
        if item.get(key):
            yield from _needs_level_op(dump, f"{path}.{key}")


def _needs_level_op(dump: Mapping[str, Any], path: str) -> Iterator[Refusal]:
    level = dump.get("dump_level", "all")
    if level != "op":
        default = "" if "dump_level" in dump else ", its default"
        yield conflict(path, "", f'"dump_level": "{level}"{default}', 'add "dump_level": "op"')


def _range_reasons(dump: Mapping[str, Any], item: Mapping[str, Any], path: str) -> Iterator[Refusal]:
    """Yield what ``opname_range`` lacks."""
    ranges = item.get("opname_range", ())
    if not ranges:
        return
    yield from _needs_level_op(dump, f"{path}.opname_range")
    if not item.get("model_name"):
        problem = "empty" if "model_name" in item else "missing"
        remedy = f"name the model that opname_range is about: {EXAMPLES['model_name']}"
        yield Refusal(f"{path}.model_name", f"{problem}, and opname_range needs it", remedy, "EP0001")
    for index, entry in enumerate(ranges):
        for key in RANGE_KEYS:
            if not entry.get(key):
                problem = "empty" if key in entry else "missing"
                remedy = f"write both ends: {EXAMPLES['opname_range']}"
                yield Refusal(f"{path}.opname_range[{index}].{key}", problem, remedy, "EP0003")


ITEM_CHECKS = (_watcher_reasons, _size_reasons, _level_reasons, _range_reasons)
"""What is asked of every member of ``dump_list``, in CANN's order."""


def _stats_reasons(dump: Mapping[str, Any]) -> Iterator[Refusal]:
    if "dump_stats" not in dump:
        return
    if not dump["dump_stats"]:
        remedy = f"name statistics ({EXAMPLES['dump_stats']}), or leave the key out for all but L2norm"
        yield Refusal("dump_stats", "empty", remedy, "EP0001")
    if dump.get("dump_data", "tensor") == "tensor":
        default = "" if "dump_data" in dump else ", its default"
        yield conflict("dump_stats", "", f'"dump_data": "tensor"{default}', 'add "dump_data": "stats"')
