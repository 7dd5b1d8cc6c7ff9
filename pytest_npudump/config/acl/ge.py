"""GE's own checker of acl.json, called back by adump, which ignores the answer.

A configuration that adump accepts and GE refuses makes ``aclmdlSetDump`` return 0 and dumps no model.
Source: ``runtime/v1/common/dump/dump_callback.cc`` of hicann/ge. A wrong JSON type counts only where the
value is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_npudump.config.acl.dump_keys import EXAMPLES, OPTIONS, SCENE_TYPES
from pytest_npudump.config.acl.path_checks import MAX_BYTES, PATH_CHARACTERS, getline_split, remote_path
from pytest_npudump.config.acl.steps import MAX_INTERVALS
from pytest_npudump.config.checker_verdict import CheckerVerdict, Refusal, few, one_of, shown
from pytest_npudump.config.text.strict_json import StrictJsonError, parse

if TYPE_CHECKING:
    from collections.abc import Iterator

_PARSED_STRINGS = (
    "dump_path",
    "dump_scene",
    "dump_mode",
    "dump_status",
    "dump_op_switch",
    "dump_debug",
    "dump_step",
    "dump_data",
    "dump_level",
)
_RANGE_BOUNDS = 2


def validate(text: bytes) -> CheckerVerdict:
    """Return what GE makes of the content of an acl.json; ``dump_type`` stays empty."""
    try:
        root = parse(text)
    except StrictJsonError as error:
        return _refused(Refusal("", f"not JSON: {error}", "write plain JSON"))
    if isinstance(root, dict | None):
        return validate_dump(root["dump"]) if root and "dump" in root else CheckerVerdict(accepted=True)
    return _refused(Refusal("", f"{shown(root)} is not an object", 'write {"dump": {...}}'))


def validate_dump(dump: object) -> CheckerVerdict:
    """Return what GE makes of what stands under the key ``dump``."""
    held = dump if isinstance(dump, dict) else {}
    reason = next(_reasons(held), None)
    if reason is not None:
        return _refused(reason)
    return CheckerVerdict(accepted=True, warnings=tuple(_warnings(held)), need_dump=_need_dump(held))


def _refused(reason: Refusal) -> CheckerVerdict:
    return CheckerVerdict(accepted=False, reasons=(reason,))


def _reasons(dump: dict[str, Any]) -> Iterator[Refusal]:
    """Yield the reasons in order; GE stops at the first, and so must the caller."""
    if "dump_scene" in dump:
        yield from _scene(dump)
    else:
        yield from _strings(dump, "dump_debug")
        yield from _overflow(dump) if dump.get("dump_debug") == "on" else _normal(dump)
    yield from _parsing(dump)


def _scene(dump: dict[str, Any]) -> Iterator[Refusal]:
    yield from _choice(dump, "dump_scene")
    scene = dump["dump_scene"]
    for key in ("dump_debug", "dump_op_switch"):
        yield from _strings(dump, key)
        if dump.get(key) == "on":
            yield Refusal(
                key, f'"on" does not go with "dump_scene": "{scene}"', 'write "off", or leave it out'
            )
    yield from _strings(dump, "dump_mode")
    if scene == "watcher" and dump.get("dump_mode", "output") != "output":
        yield Refusal(
            "dump_mode", f"{shown(dump['dump_mode'])} does not go with the watcher", 'write "output"'
        )


def _overflow(dump: dict[str, Any]) -> Iterator[Refusal]:
    yield from _path(dump)
    items = dump.get("dump_list", [])
    yield from _list_types(items)
    if items:
        yield Refusal(
            "dump_list", 'does not go with "dump_debug": "on"', "leave dump_list out of an overflow dump"
        )


def _normal(dump: dict[str, Any]) -> Iterator[Refusal]:
    yield from _path(dump)
    yield from _choice(dump, "dump_mode")
    yield from _choice(dump, "dump_level")
    yield from _strings(dump, "dump_step")
    yield from _step(dump.get("dump_step", ""))
    yield from _list(dump)
    yield from _stats(dump)


def _strings(holder: dict[str, Any], *keys: str, prefix: str = "") -> Iterator[Refusal]:
    for key in keys:
        if key in holder and not isinstance(holder[key], str):
            yield Refusal(f"{prefix}{key}", f"{shown(holder[key])} is not a string", "write a string")


def _choice(dump: dict[str, Any], key: str) -> Iterator[Refusal]:
    yield from _strings(dump, key)
    if key in dump and dump[key] not in OPTIONS[key]:
        yield Refusal(key, f"{shown(dump[key])} is unknown", one_of(OPTIONS[key], dump[key]))


def _path(dump: dict[str, Any]) -> Iterator[Refusal]:
    yield from _strings(dump, "dump_path")
    if not dump.get("dump_path"):
        problem = "empty" if "dump_path" in dump else "missing"
        yield Refusal("dump_path", problem, f"write a directory: {EXAMPLES['dump_path']}")
        return
    path = dump["dump_path"].encode()
    if len(path) > MAX_BYTES:
        yield Refusal("dump_path", f"{len(path)} bytes long, GE takes {MAX_BYTES}", "write a shorter path")
    remote = remote_path(path)
    if not PATH_CHARACTERS.fullmatch(path if remote is None else remote):
        problem = (
            f"{shown(dump['dump_path'])} has characters that GE refuses (blanks, ~, <, >, non-ASCII ...)"
        )
        yield Refusal("dump_path", problem, r"use letters, digits and -=[];\,./!@#$%^&*()_+{}:?")


def _step(step: str) -> Iterator[Refusal]:
    intervals = getline_split(step.encode(), b"|")
    if len(intervals) > MAX_INTERVALS:
        yield Refusal(
            "dump_step", f"{len(intervals)} intervals, GE takes {MAX_INTERVALS}", "join them into ranges"
        )
    for index, interval in enumerate(intervals):
        bounds = getline_split(interval, b"-")
        if len(bounds) > _RANGE_BOUNDS or not all(bound.isdigit() for bound in bounds if bound):
            problem = f"{shown(interval.decode())} is neither a step nor a range"
            yield Refusal(f"dump_step[{index}]", problem, 'write steps as "3|5-10"')


def _list(dump: dict[str, Any]) -> Iterator[Refusal]:
    items = dump.get("dump_list")
    if isinstance(items, list) and not any(isinstance(item, dict) and item for item in items):
        return
    if isinstance(items, list):
        yield from _list_types(items)
    yield from _choice(dump, "dump_op_switch")
    for index, item in enumerate(items if isinstance(items, list) else ()):
        if isinstance(item, dict):
            yield from _ranges(dump, item, f"dump_list[{index}]")


def _ranges(dump: dict[str, Any], item: dict[str, Any], path: str) -> Iterator[Refusal]:
    pairs = [entry for entry in _array(item, "opname_range") if _is_pair(entry)]
    if not pairs:
        return
    if dump.get("dump_level", "all") != "op":
        yield Refusal(f"{path}.opname_range", 'needs "dump_level": "op"', 'add "dump_level": "op"')
    if not item.get("model_name"):
        yield Refusal(f"{path}.model_name", "missing or empty, and opname_range needs it", "name the model")
    if not all(entry["begin"] and entry["end"] for entry in pairs):
        yield Refusal(f"{path}.opname_range", "begin or end is empty", f"write {EXAMPLES['opname_range']}")


def _stats(dump: dict[str, Any]) -> Iterator[Refusal]:
    if "dump_stats" not in dump:
        return
    yield from _string_array(dump["dump_stats"], "dump_stats")
    if not dump["dump_stats"]:
        yield Refusal("dump_stats", "empty", "name statistics, or leave the key out")
    yield from _strings(dump, "dump_data")
    if dump.get("dump_data") != "stats":
        yield Refusal("dump_stats", 'needs "dump_data": "stats"', 'add "dump_data": "stats"')


def _list_types(items: object) -> Iterator[Refusal]:
    """What breaks the conversion of ``dump_list`` off; a member that is no object counts as ``{}``."""
    if not isinstance(items, list):
        yield Refusal("dump_list", f"{shown(items)} is not an array", f"write {EXAMPLES['dump_list']}")
        return
    for index, item in enumerate(items):
        if item and isinstance(item, dict):
            yield from _item_types(item, f"dump_list[{index}]", strict_pos=True)


def _item_types(item: dict[str, Any], path: str, *, strict_pos: bool) -> Iterator[Refusal]:
    yield from _strings(item, "model_name", prefix=f"{path}.")
    for key in ("layer", "watcher_nodes"):
        yield from _string_array(_array(item, key), f"{path}.{key}")
    for key in ("optype_blacklist", "opname_blacklist"):
        for index, entry in enumerate(_array(item, key)):
            place = f"{path}.{key}[{index}]"
            if isinstance(entry, dict):
                yield from _strings(entry, "name", prefix=f"{place}.")
                pos = entry.get("pos", []) if strict_pos else _array(entry, "pos")
                yield from _string_array(pos, f"{place}.pos")
    for index, entry in enumerate(_array(item, "opname_range")):
        if _is_pair(entry):
            yield from _strings(entry, "begin", "end", prefix=f"{path}.opname_range[{index}].")


def _array(holder: dict[str, Any], key: str) -> list[Any]:
    value = holder.get(key)
    return value if isinstance(value, list) else []


def _is_pair(entry: object) -> bool:
    return isinstance(entry, dict) and "begin" in entry and "end" in entry


def _string_array(value: object, path: str) -> Iterator[Refusal]:
    if not isinstance(value, list):
        yield Refusal(path, f"{shown(value)} is not an array", "write an array of strings")
        return
    for index, member in enumerate(value):
        if not isinstance(member, str):
            yield Refusal(f"{path}[{index}]", f"{shown(member)} is not a string", "write a string")


def _parsing(dump: dict[str, Any]) -> Iterator[Refusal]:
    """What breaks the conversion off once the checks have passed."""
    yield from _strings(dump, *_PARSED_STRINGS)
    yield from _string_array(_array(dump, "dump_stats"), "dump_stats")
    for index, item in enumerate(_array(dump, "dump_list")):
        if item and isinstance(item, dict) and not _skipped(item):
            yield from _item_types(item, f"dump_list[{index}]", strict_pos=False)


def _skipped(item: dict[str, Any]) -> bool:
    name = item.get("model_name", "unnamed")
    return name == "" or (isinstance(name, str) and item.get("layer") == [])


def _need_dump(dump: dict[str, Any]) -> bool:
    items = dump.get("dump_list")
    # An empty array becomes one entry for all models.
    kept = isinstance(items, list) and (not items or not all(_is_skipped(item) for item in items))
    switched = dump.get("dump_op_switch") == "on" or dump.get("dump_debug") == "on"
    return kept or switched or bool(dump.get("dump_scene"))


def _is_skipped(item: object) -> bool:
    return bool(item) and isinstance(item, dict) and _skipped(item)


def _warnings(dump: dict[str, Any]) -> Iterator[str]:
    scene = dump.get("dump_scene", "")
    if scene not in SCENE_TYPES and dump.get("dump_level") == "kernel":
        yield 'dump_level: "kernel" switches GE\'s dump of models off'
    skipped = (index for index, item in enumerate(_array(dump, "dump_list")) if _is_skipped(item))
    reason = "skipped by GE, for its model_name or layer is empty"
    yield from few((f"dump_list[{index}]: {reason}" for index in skipped), "dump_list")
