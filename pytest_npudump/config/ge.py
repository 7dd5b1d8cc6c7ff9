"""GE's own checker of acl.json, called back by adump, which ignores the answer.

A configuration that adump accepts and GE refuses makes ``aclmdlSetDump`` return 0 and dumps no model.
Source: ``runtime/v1/common/dump/dump_callback.cc`` of hicann/ge. A wrong JSON type counts only where the
value is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias

from pytest_npudump.config.acl_keys import (
    EXAMPLES,
    ITEM,
    MAX_BYTES,
    MAX_INTERVALS,
    OPTIONS,
    PATH_CHARACTERS,
    SCENE_TYPES,
    getline_split,
    members,
    remote_path,
)
from pytest_npudump.config.json_file import StrictJsonError, json_refusal, parse
from pytest_npudump.config.rule_table import (
    CheckerVerdict,
    Refusal,
    Row,
    always,
    few,
    one_of,
    read,
    says,
    shown,
    wrong_types,
)

_Dump: TypeAlias = Mapping[str, Any]
_Check: TypeAlias = Callable[[_Dump], Iterable[Refusal]]


def validate(text: bytes) -> CheckerVerdict:
    """Return GE's verdict on the content of an acl.json; ``dump_type`` stays empty."""
    try:
        root = parse(text)
    except StrictJsonError as error:
        return CheckerVerdict(accepted=False, reasons=(json_refusal(error, "write plain JSON"),))
    if isinstance(root, dict | None):
        return validate_dump(root["dump"]) if root and "dump" in root else CheckerVerdict(accepted=True)
    reason = Refusal("", f"{shown(root)} is not an object", 'write {"dump": {...}}')
    return CheckerVerdict(accepted=False, reasons=(reason,))


def validate_dump(dump: object) -> CheckerVerdict:
    """Return GE's verdict on the value of the key ``dump``."""
    held: dict[str, Any] = dump if isinstance(dump, dict) else {}
    for reason in read(_RULES, held):  # GE stops at the first
        return CheckerVerdict(accepted=False, reasons=(reason,))
    warnings = []
    if held.get("dump_scene", "") not in SCENE_TYPES and held.get("dump_level") == "kernel":
        warnings.append('dump_level: "kernel" switches GE\'s dump of models off')
    items = held.get("dump_list")
    skipped = [index for index, item in enumerate(members(items)) if item and _skipped(item)]
    why = "skipped by GE, for its model_name or layer is empty"
    warnings += few((f"dump_list[{index}]: {why}" for index in skipped), "dump_list")
    # An empty array becomes one entry for all models.
    kept = isinstance(items, list) and (not items or len(skipped) < len(items))
    switched = held.get("dump_op_switch") == "on" or held.get("dump_debug") == "on"
    need_dump = kept or switched or bool(held.get("dump_scene"))
    return CheckerVerdict(accepted=True, warnings=tuple(warnings), need_dump=need_dump)


def _skipped(item: Mapping[str, Any]) -> bool:
    name = item.get("model_name", "unnamed")
    return name == "" or (isinstance(name, str) and item.get("layer") == [])


def _strings(*keys: str) -> _Check:
    return lambda dump: (
        Refusal(key, f"{shown(dump[key])} is not a string", "write a string")
        for key in keys
        if key in dump and not isinstance(dump[key], str)
    )


def _choice(key: str) -> _Check:
    def check(dump: _Dump) -> Iterator[Refusal]:
        yield from _strings(key)(dump)
        if key in dump and dump[key] not in OPTIONS[key]:
            yield Refusal(key, f"{shown(dump[key])} is unknown", one_of(OPTIONS[key], dump[key]))

    return check


def _not_on(key: str) -> _Check:
    def check(dump: _Dump) -> Iterator[Refusal]:
        yield from _strings(key)(dump)
        if dump.get(key) == "on":
            problem = f'"on" does not go with "dump_scene": "{dump["dump_scene"]}"'
            yield Refusal(key, problem, 'write "off", or leave it out')

    return check


def _path(dump: _Dump) -> Iterator[Refusal]:
    yield from _strings("dump_path")(dump)
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


def _step(dump: _Dump) -> Iterator[Refusal]:
    intervals = getline_split(dump.get("dump_step", "").encode(), b"|")
    if len(intervals) > MAX_INTERVALS:
        yield Refusal(
            "dump_step", f"{len(intervals)} intervals, GE takes {MAX_INTERVALS}", "join them into ranges"
        )
    for index, interval in enumerate(intervals):
        bounds = getline_split(interval, b"-")
        if len(bounds) > len(("begin", "end")) or not all(bound.isdigit() for bound in bounds if bound):
            problem = f"{shown(interval.decode())} is neither a step nor a range"
            yield Refusal(f"dump_step[{index}]", problem, 'write steps as "3|5-10"')


def _list_types(dump: _Dump) -> Iterator[Refusal]:
    """Yield errors in the conversion of ``dump_list``; a member that is no object counts as ``{}``."""
    items = dump.get("dump_list", [])
    if not isinstance(items, list):
        yield Refusal("dump_list", f"{shown(items)} is not an array", f"write {EXAMPLES['dump_list']}")
    for index, item in enumerate(members(items)):
        yield from _item_types(item, f"dump_list[{index}]", strict_pos=True)


def _item_types(item: Mapping[str, Any], path: str, *, strict_pos: bool) -> Iterator[Refusal]:
    """Yield the wrong types of what GE reads; what should be an array or an object and is none it skips."""
    held = {key: value for key, value in item.items() if key == "model_name" or isinstance(value, list)}
    for key in ("optype_blacklist", "opname_blacklist"):
        held[key] = [
            entry
            if strict_pos or isinstance(entry.get("pos"), list)
            else {name: value for name, value in entry.items() if name != "pos"}
            for entry in members(held.get(key))
        ]
    held["opname_range"] = [
        entry if entry.keys() >= {"begin", "end"} else {} for entry in members(held.get("opname_range"))
    ]
    yield from _refusals(held, ITEM, path)


def _refusals(value: object, shape: object, path: str) -> Iterator[Refusal]:
    for place, found, expected in wrong_types(value, shape, path):
        if expected == "array":
            yield Refusal(place, f"{shown(found)} is not an array", "write an array of strings")
        else:
            yield Refusal(place, f"{shown(found)} is not a string", "write a string")


def _stats_types(dump: _Dump) -> Iterator[Refusal]:
    return _refusals(dump["dump_stats"], ["string"], "dump_stats")


def _selects(dump: _Dump) -> bool:
    """Return whether ``dump_list`` is looked at: not where all of its members are empty."""
    items = dump.get("dump_list")
    return not isinstance(items, list) or any(members(items))


def _ranges(dump: _Dump) -> Iterator[Refusal]:
    for index, item in enumerate(members(dump.get("dump_list"))):
        path = f"dump_list[{index}]"
        pairs = [entry for entry in members(item.get("opname_range")) if entry.keys() >= {"begin", "end"}]
        if pairs and dump.get("dump_level", "all") != "op":
            yield Refusal(f"{path}.opname_range", 'needs "dump_level": "op"', 'add "dump_level": "op"')
        if pairs and not item.get("model_name"):
            yield Refusal(
                f"{path}.model_name", "missing or empty, and opname_range needs it", "name the model"
            )
        if not all(entry["begin"] and entry["end"] for entry in pairs):
            yield Refusal(
                f"{path}.opname_range", "begin or end is empty", f"write {EXAMPLES['opname_range']}"
            )


def _parsed_items(dump: _Dump) -> Iterator[Refusal]:
    for index, item in enumerate(members(dump.get("dump_list"))):
        if not _skipped(item):
            yield from _item_types(item, f"dump_list[{index}]", strict_pos=False)


def _scene(dump: _Dump) -> bool:
    return "dump_scene" in dump


def _overflow(dump: _Dump) -> bool:
    return not _scene(dump) and dump.get("dump_debug") == "on"


def _data(dump: _Dump) -> bool:
    return not _scene(dump) and dump.get("dump_debug") != "on"


_RULES: tuple[Row[_Dump, Refusal], ...] = (
    (_scene, _choice("dump_scene")),
    (_scene, _not_on("dump_debug")),
    (_scene, _not_on("dump_op_switch")),
    (_scene, _strings("dump_mode")),
    (
        lambda dump: dump.get("dump_scene") == "watcher" and dump.get("dump_mode", "output") != "output",
        lambda dump: (
            Refusal(
                "dump_mode", f"{shown(dump['dump_mode'])} does not go with the watcher", 'write "output"'
            ),
        ),
    ),
    (lambda dump: not _scene(dump), _strings("dump_debug")),
    (lambda dump: not _scene(dump), _path),
    (_overflow, _list_types),
    (
        lambda dump: _overflow(dump) and dump.get("dump_list"),
        says(
            Refusal(
                "dump_list", 'does not go with "dump_debug": "on"', "leave dump_list out of an overflow dump"
            )
        ),
    ),
    (_data, _choice("dump_mode")),
    (_data, _choice("dump_level")),
    (_data, _strings("dump_step")),
    (_data, _step),
    (lambda dump: _data(dump) and isinstance(dump.get("dump_list"), list) and _selects(dump), _list_types),
    (lambda dump: _data(dump) and _selects(dump), _choice("dump_op_switch")),
    (_data, _ranges),
    (lambda dump: _data(dump) and "dump_stats" in dump, _stats_types),
    (
        lambda dump: _data(dump) and dump.get("dump_stats") == [],
        says(Refusal("dump_stats", "empty", "name statistics, or leave the key out")),
    ),
    (lambda dump: _data(dump) and "dump_stats" in dump, _strings("dump_data")),
    (
        lambda dump: _data(dump) and "dump_stats" in dump and dump.get("dump_data") != "stats",
        says(Refusal("dump_stats", 'needs "dump_data": "stats"', 'add "dump_data": "stats"')),
    ),
    # What breaks the conversion off once the checks have passed.
    (
        always,
        _strings(
            *("dump_path", "dump_scene", "dump_mode", "dump_status", "dump_op_switch", "dump_debug"),
            *("dump_step", "dump_data", "dump_level"),
        ),
    ),
    (lambda dump: isinstance(dump.get("dump_stats"), list), _stats_types),
    (always, _parsed_items),
)
