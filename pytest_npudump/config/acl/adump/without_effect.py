"""What adump accepts, and yet does nothing or less than it says."""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from pytest_npudump.config.acl.adump.legacy_rules import members
from pytest_npudump.config.acl.dump_keys import (
    BLACKLIST_KEYS,
    DUMP_KEYS,
    EXAMPLES,
    ITEM_KEYS,
    OPTIONS,
    RANGE_KEYS,
    SCENE_TYPES,
)
from pytest_npudump.config.checker_verdict import few, shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_POSITION = re.compile(r"(input|output)[0-9]+")
_MOST_UNKNOWN = 20
_LONGEST_KEY = 80
_NESTED_KEYS = {
    "optype_blacklist": BLACKLIST_KEYS,
    "opname_blacklist": BLACKLIST_KEYS,
    "opname_range": RANGE_KEYS,
}
_IGNORED_BY_EXCEPTIONS = ("dump_list", "dump_step", "dump_stats", "dump_mode", "dump_level", "dump_data")
_IGNORED_BY_OVERFLOW = ("dump_list", "dump_step", "dump_stats", "dump_data")


def adump_warnings(root: object, profile: str) -> tuple[str, ...]:
    """Return the warnings for a configuration that adump accepts.

    Args:
        root: the parsed text.
        profile: the rule set, one of :data:`pytest_npudump.config.acl.profile.PROFILES`.
    """
    if not isinstance(root, dict) or "dump" not in root:
        return tuple(_no_dump(root))
    dump = root["dump"]
    if not dump:
        return ('"dump" is empty: nothing is switched on',)
    return tuple(_warnings(dump, profile))


def _no_dump(root: object) -> Iterator[str]:
    close = get_close_matches("dump", [key.lower() for key in root], n=1) if isinstance(root, dict) else []
    hint = ": keys are case-sensitive" if close else ""
    yield f'no key "dump" at the top: nothing is configured, and aclmdlSetDump returns 0{hint}'


def unknown_key_warnings(dump: Mapping[str, Any]) -> Iterator[str]:
    """Yield the keys that nothing reads, at every level, whatever else may be wrong with ``dump``."""
    yield from _unknown_keys(dump, DUMP_KEYS, "")
    for index, item in enumerate(members(dump.get("dump_list"))):
        if not item:
            continue
        path = f"dump_list[{index}]"
        yield from _unknown_keys(item, ITEM_KEYS, f"{path}.")
        for key, known in _NESTED_KEYS.items():
            for place, entry in enumerate(members(item.get(key))):
                yield from _unknown_keys(entry, known, f"{path}.{key}[{place}].")


def _warnings(dump: Mapping[str, Any], profile: str) -> Iterator[str]:
    yield from few(unknown_key_warnings(dump), "unknown keys")
    if profile == "8.5.0" and "dump_kernel_data" in dump:
        yield "dump_kernel_data: unknown to CANN 8.5.0, ignored"
    scene = dump.get("dump_scene", "")
    if scene in SCENE_TYPES:
        yield from _ignored(dump, _IGNORED_BY_EXCEPTIONS, f'"dump_scene": "{scene}"')
    elif dump.get("dump_debug") == "on":
        yield from _overflow(dump, profile)
    else:
        yield from _data(dump, profile)
    if scene == "aic_err_detail_dump":
        yield "dump_scene: aic_err_detail_dump lasts until the process ends, whatever finalize_dump does"
    if profile == "8.5.0" and scene == "watcher" and not dump.get("dump_path"):
        yield "dump_path: CANN 8.5.0 does not ask for it in the watcher scene, but cannot write without it"


def _ignored(dump: Mapping[str, Any], keys: Iterable[str], condition: str) -> Iterator[str]:
    for key in keys:
        if key in dump:
            yield f"{key}: ignored with {condition}"


def _overflow(dump: Mapping[str, Any], profile: str) -> Iterator[str]:
    yield from _ignored(dump, _IGNORED_BY_OVERFLOW, '"dump_debug": "on"')
    if dump.get("dump_mode", "all") != "all":
        yield 'dump_mode: "dump_debug": "on" dumps inputs and outputs, whatever is written here'
    if profile in ("8.5.0", "9.0.0"):
        yield f"dump_debug: in CANN {profile} overflow dump works for models only, not for aclnn operators"


def _data(dump: Mapping[str, Any], profile: str) -> Iterator[str]:
    items = dump.get("dump_list")
    listed = isinstance(items, list) and bool(items)
    if not (listed or dump.get("dump_op_switch") == "on" or dump.get("dump_scene")):
        yield (
            "dump_list: nothing to dump: nothing is switched on, and a dump that runs is not switched off; "
            'write "dump_list": [{}] to dump every model, or "dump_op_switch": "on" for single operators'
        )
    if dump.get("dump_scene") == "watcher":
        yield from few(_watcher(members(items)), "watcher_nodes")
    if dump.get("dump_step"):
        yield "dump_step: selects training iterations; leave it out for inference"
    if dump.get("dump_level") == "op":
        yield 'dump_level: "op" switches the dump of aclnn operators (eager kernels) off'
    if profile in ("8.5.0", "9.0.0"):
        yield from few(_stats(dump), "dump_stats")
    # CANN 8.5.0 does not look into the list of a watcher, so that anything may stand there.
    if listed and not (profile == "8.5.0" and dump.get("dump_scene") == "watcher"):
        yield from few(_items(members(dump["dump_list"])), "dump_list")


def _watcher(items: list[dict[str, Any]]) -> Iterator[str]:
    if not any(item.get("watcher_nodes") for item in items):
        example = f'[{{"layer": {EXAMPLES["layer"]}, "watcher_nodes": {EXAMPLES["watcher_nodes"]}}}]'
        yield f"dump_list: no member names watcher_nodes, so nothing is watched; write for example {example}"
    for index, item in enumerate(items):
        if item.get("watcher_nodes") and not item.get("layer"):
            yield (
                f"dump_list[{index}].layer: missing, so that the watched outputs are dumped again after "
                f"every operator; for fewer files name those that may change them: {EXAMPLES['layer']}"
            )


def _stats(dump: Mapping[str, Any]) -> Iterator[str]:
    for index, name in enumerate(dump.get("dump_stats", ())):
        if name.strip() not in OPTIONS["dump_stats"]:
            yield f"dump_stats[{index}]: {shown(name)} passes the checker, then aclmdlSetDump returns 500000"


def _items(items: list[dict[str, Any]]) -> Iterator[str]:
    named: set[str] = set()
    anonymous = [item for item in items if not item.get("model_name")]
    for index, item in enumerate(items):
        if not item:
            continue
        path = f"dump_list[{index}]"
        name = item.get("model_name", "")
        if name in named:
            yield f"{path}.model_name: {shown(name)} again; the last entry's layers replace the earlier ones"
        if name and anonymous:
            yield f"{path}.model_name: without effect, since an entry without model_name covers every model"
        named |= {name} if name else set()
        yield from _item(item, path)


def _item(item: Mapping[str, Any], path: str) -> Iterator[str]:
    for key in ("layer", "watcher_nodes"):
        for index, name in enumerate(item.get(key, ())):
            if not name:
                yield f"{path}.{key}[{index}]: empty, which is no operator's name; name one, or leave it out"
    for key in ("optype_blacklist", "opname_blacklist"):
        for index, entry in enumerate(members(item.get(key))):
            place = f"{path}.{key}[{index}]"
            if not entry.get("name"):
                yield f"{place}.name: missing or empty, so that nothing is left out; name what is meant"
            for slot, position in enumerate(entry.get("pos", ())):
                if not _POSITION.fullmatch(position):
                    yield f'{place}.pos[{slot}]: {shown(position)} is ignored, write "input0" or "output0"'


def _unknown_keys(holder: Mapping[str, Any], known: Iterable[str], prefix: str) -> Iterator[str]:
    unknown = [key for key in holder if key not in known]
    for key in unknown[:_MOST_UNKNOWN]:
        close = get_close_matches(key[:_LONGEST_KEY].strip().lower(), known, n=1, cutoff=0.8)
        hint = f", {close[0]} was meant?" if close else ""
        yield f"{prefix}{key[:_LONGEST_KEY]}: unknown key, ignored{hint}"
    if len(unknown) > _MOST_UNKNOWN:
        rest = len(unknown) - _MOST_UNKNOWN
        yield f"{prefix.rstrip('.') or 'dump'}: {rest} more unknown keys, ignored"
