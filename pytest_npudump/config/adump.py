"""adump: the checker of acl.json inside ``aclmdlSetDump`` and ``aclInit``.

:func:`validate` accepts and refuses what CANN's own accepts and refuses, and says what CANN leaves unsaid.
CANN 9.1 checks the JSON types of everything first, then all values, then what excludes what; CANN 8.5 and
9.0 go once through the last of these tables, in which a type shows only where the value is used, and log
conflicts under no code. Source: ``dump_config_converter.cpp`` of hicann/runtime at tags v8.5.0 (lines
131-205, 238-286, 458-470, 595-612), v9.0.0 (51-175, 238-300), v9.1.0-beta.3 (which forbids keys by
their presence) and v9.1.0 (118-228, 230-498, 611-866; unchanged up to master), and ``dump_setting.cpp``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any

from pytest_npudump.config import ge
from pytest_npudump.config.acl_keys import (
    DUMP,
    EXAMPLES,
    ITEM,
    NESTED,
    OPTIONS,
    OVERRIDING,
    SCENE_TYPES,
    STRING_KEYS,
    exception_path,
    members,
    path_reasons,
    step_reasons,
    with_members,
)
from pytest_npudump.config.cann import DEFAULT_VERSION, profile_for, profile_warnings
from pytest_npudump.config.json_file import StrictJsonError, json_refusal, parse
from pytest_npudump.config.rule_table import (
    MOST_REASONS,
    AdumpVerdict,
    Refusal,
    Row,
    always,
    as_json,
    few,
    one_of,
    read,
    says,
    shown,
    unknown_keys,
    wrong_types,
)

ACL_ERROR_INVALID_DUMP_CONFIG = 100009
ACL_ERROR_INTERNAL_ERROR = 500000

_C_BLANK = " \t\n\v\f\r"
_MAX_BLACKLIST = 100
_BLACKLISTS = ("optype_blacklist", "opname_blacklist")
_ENUM_KEYS = ("dump_mode", "dump_data", "dump_op_switch", "dump_level", "dump_debug", "dump_scene")
_NOT_WITH_WATCHER = ("dump_level", "dump_data", "dump_kernel_data", "dump_step", "dump_stats")
_NOT_WITH_EXCEPTION = (
    *("dump_mode", "dump_level", "dump_data", "dump_debug", "dump_op_switch", "dump_kernel_data"),
    *("dump_step", "dump_stats", "dump_list"),
)
_IGNORED_BY_EXCEPTIONS = ("dump_list", "dump_step", "dump_stats", "dump_mode", "dump_level", "dump_data")
_IGNORED_BY_OVERFLOW = ("dump_list", "dump_step", "dump_stats", "dump_data")
_WATCHED = f'[{{"layer": {EXAMPLES["layer"]}, "watcher_nodes": {EXAMPLES["watcher_nodes"]}}}]'
_NAME_STATISTICS = f"name statistics ({EXAMPLES['dump_stats']}), or leave the key out for all but L2norm"
_POSITION = re.compile(r"(input|output)[0-9]+")
_CODES = {
    ("8.5.0", "argument"): "EP0001",
    ("8.5.0", "logged"): "",
    ("8.5.0", "statistics"): "",
    ("8.5.0", "type"): "",
    ("9.0.0", "logged"): "",
    ("9.0.0", "type"): "EP0004",
}
"""Codes of the releases before 9.1, by kind of reason, where they differ from its own."""


@dataclass(frozen=True, slots=True)
class _Judged:
    """A ``dump`` object under the rules of a release, or one member of its ``dump_list``."""

    dump: Mapping[str, Any]
    profile: str
    cwd: Path
    item: Mapping[str, Any] = field(default_factory=dict)
    path: str = ""

    @property
    def old(self) -> bool:
        return self.profile in ("8.5.0", "9.0.0")

    @property
    def oldest(self) -> bool:
        return self.profile == "8.5.0"

    @property
    def strict(self) -> bool:
        return self.profile == "9.1.0-beta.3"

    @property
    def scene(self) -> str:
        scene: str = self.dump.get("dump_scene", "")
        return scene

    @property
    def watcher(self) -> bool:
        return self.scene == "watcher"

    @property
    def kind(self) -> str:
        """Kind of the dump, one of three, each with checks of keys of its own."""
        if self.scene and not self.watcher:
            return "exception"
        return "overflow" if self.on("dump_debug") else "data"

    @property
    def located(self) -> bool:
        """Return whether ``dump_path`` and the dumped parts are checked; 8.5.0 does not for a watcher."""
        return self.kind != "exception" and not (self.oldest and self.watcher)

    def on(self, key: str) -> bool:
        return self.dump.get(key) == "on"


_Check = Callable[[_Judged], Iterable[Refusal]]


def validate(
    text: bytes,
    *,
    version: str = DEFAULT_VERSION,
    cwd: Path | None = None,
    environ: Mapping[str, str] | None = None,
) -> AdumpVerdict:
    """Return adump's verdict on the content of an acl.json.

    Content only: size, nesting and the like are checked on the file, by
    :func:`pytest_npudump.config.json_file.read_config_file`.

    Args:
        text: the bytes of the file.
        version: the CANN release whose rules count.
        cwd: what a relative ``dump_path`` starts from; the process's own by default.
        environ: where ``ASCEND_DUMP_PATH`` and ``ASCEND_WORK_PATH`` are looked up; the process's by default.

    Raises:
        ConfigError: ``version`` is not a version.
    """
    profile = profile_for(version)
    base = Path.cwd() if cwd is None else cwd
    old = _Judged({}, profile, base).old
    try:
        root = parse(text)
    except StrictJsonError as error:
        remedy = "write plain JSON: no comments, no comma after the last member, no single quotes"
        return _refused((json_refusal(error, remedy, "" if old else "EP0004"),))
    if not isinstance(root, dict) or "dump" not in root:
        keys = [key.lower() for key in root] if isinstance(root, dict) else []
        hint = ": keys are case-sensitive" if get_close_matches("dump", keys, n=1) else ""
        nothing = f'no key "dump" at the top: nothing is configured, and aclmdlSetDump returns 0{hint}'
        return AdumpVerdict(accepted=True, warnings=(nothing,))
    dump = root["dump"]
    if dump == {} and not old:
        return AdumpVerdict(accepted=True, warnings=('"dump" is empty: nothing is switched on',))
    if not isinstance(dump, dict) and not old:
        problem = f"{shown(dump)} must be of the JSON type object"
        return _refused((Refusal("dump", problem, 'write {"dump": {"dump_path": ...}}', "EP0001"),))
    d = _Judged(dump if isinstance(dump, dict) else {}, profile, base)
    stages = (
        (read(_RULES, d),)
        if old
        else (
            (_wrong_type(*found) for found in wrong_types(d.dump, DUMP)),
            chain(_unknown_values(d.dump, (*_ENUM_KEYS, "dump_kernel_data")), _statistics(d.dump)),
            read(_RULES, d),
        )
    )
    found = (tuple(islice(stage, 1 if old else MOST_REASONS)) for stage in stages)
    if reasons := next(filter(None, found), ()):
        return _refused(reasons, d.dump)
    return _accepted(d, os.environ if environ is None else environ, version)


def _refused(reasons: tuple[Refusal, ...], dump: Mapping[str, Any] | None = None) -> AdumpVerdict:
    held = dump or {}
    return AdumpVerdict(
        accepted=False,
        reasons=reasons,
        warnings=tuple(few(_unknown(held), "unknown keys")),
        code=ACL_ERROR_INVALID_DUMP_CONFIG,
        dump=held,
    )


def _accepted(d: _Judged, environ: Mapping[str, str], version: str) -> AdumpVerdict:
    dump = d.dump
    listed = isinstance(dump.get("dump_list"), list) and dump["dump_list"]
    need_dump = bool(listed or d.on("dump_op_switch") or d.on("dump_debug") or d.scene)
    warnings = [*profile_warnings(version), *read(_WARNINGS, d)]
    dump_type, path, code = "", "", 0
    if need_dump:
        kinds = {"exception": SCENE_TYPES.get(d.scene, ""), "overflow": "OP_OVERFLOW", "data": "OPERATOR"}
        dump_type = kinds[d.kind]
        configured = path = str(dump.get("dump_path", ""))
        if d.oldest and d.scene:  # the watcher too, and the directory is not looked at
            path = environ.get("ASCEND_WORK_PATH", configured)
        elif d.kind == "exception" and not d.oldest:
            path = exception_path(dump, d.cwd, environ)
        # GE checks the same text after adump, and refuses without a word.
        second = ge.validate_dump(dump)
        warnings += [f"no model is dumped, for GE refuses silently: {reason}" for reason in second.reasons]
        warnings += second.warnings
        if path != configured:
            known = OVERRIDING[1:] if d.oldest else OVERRIDING
            variable = next(name for name in known if environ.get(name) == path)
            place = as_json(path) if path else "the working directory"
            warnings.append(f"dump_path: not used, for {variable} is set: the dump goes to {place}")
    if d.old and dump_type == "OPERATOR":
        # Before 9.1 an unknown statistic passes the checker and fails behind it (dump_setting.cpp:226-259).
        names = {name.strip(_C_BLANK) for name in dump.get("dump_stats", ())}
        code = 0 if names <= set(OPTIONS["dump_stats"]) else ACL_ERROR_INTERNAL_ERROR
    kernel_data: tuple[str, ...] = ()
    # Since 9.1.0 even where no dump is switched on (dump_manager.cpp:324-330).
    if not (d.oldest or (d.strict and not dump_type)):
        if "dump_kernel_data" in dump:
            kernel_data = tuple(dump["dump_kernel_data"].split(","))
        elif dump_type == "OPERATOR":
            kernel_data = ("all",)
    return AdumpVerdict(
        accepted=True,
        code=code,
        warnings=tuple(warnings),
        need_dump=need_dump,
        dump_type=dump_type,
        dump=dump,
        dump_path=path,
        kernel_data=kernel_data,
    )


# What is refused: builders of what rows say.


def _coded(kind: str, check: _Check) -> _Check:
    """Give the reasons of a check the code that a release before 9.1 has for reasons of a kind."""

    def coded(d: _Judged) -> Iterator[Refusal]:
        code = _CODES.get((d.profile, kind))
        return (reason if code is None else replace(reason, code=code) for reason in check(d))

    return coded


def _types(*keys: str) -> _Check:
    """Refuse values of a wrong JSON type where that breaks off an old release's conversion from JSON."""
    shape = {key: DUMP[key] for key in keys}
    check = _coded("type", lambda d: (_wrong_type(*found) for found in wrong_types(d.dump, shape)))
    return lambda d: check(d) if d.old else ()


def _wrong_type(place: str, value: object, expected: str) -> Refusal:
    if (key := place.rpartition(".")[2].partition("[")[0]) in EXAMPLES:
        remedy = f"write for example {EXAMPLES[key]} as {key}"
    else:
        remedy = "write one of " + ", ".join(f'"{option}"' for option in OPTIONS[key])
    if value is None:
        remedy += ", or leave the key out: null is not absent"
    return Refusal(place, f"{shown(value)} must be of the JSON type {expected}", remedy, "EP0001")


def _enum(key: str, value: str, place: str) -> Iterator[Refusal]:
    """Yield why ``value`` is none of ``key``'s; names are exact: no trimming, no other case."""
    if not value:
        yield Refusal(place, "empty", one_of(OPTIONS[key]), "EP0001")
    elif value not in OPTIONS[key]:
        yield Refusal(place, f"{shown(value)} is unknown", one_of(OPTIONS[key], value), "EP0002")


def _unknown_values(dump: Mapping[str, Any], keys: Iterable[str]) -> Iterator[Refusal]:
    """Yield every value that is not in its key's enumeration."""
    for key in keys:
        if key in dump:
            for value in dump[key].split(",") if key == "dump_kernel_data" else [dump[key]]:
                yield from _enum(key, value, key)


def _statistics(dump: Mapping[str, Any]) -> Iterator[Refusal]:
    for index, name in enumerate(dump.get("dump_stats", ())):
        yield from _enum("dump_stats", name, f"dump_stats[{index}]")


def _choice(key: str) -> _Check:
    """Refuse a value of a wrong type, then one that is unknown, where an old release comes across it."""
    types = _types(key)
    values = _coded("argument", lambda d: _unknown_values(d.dump, (key,)))
    return lambda d: chain(types(d), values(d)) if d.old and key in d.dump else ()


def _conflict(place: str, value: str, condition: str, remedy: str) -> Refusal:
    """Return the reason for two settings that exclude each other."""
    what = f"{value} cannot" if value else "cannot"
    return Refusal(place, f"{what} be configured together with {condition}", remedy, "EP0005")


def _switched_on(key: str, condition: str) -> _Check:
    types, remedy = _types(key), 'leave one of them out, or write "off"'
    switches = _coded(
        "logged",
        lambda d: (_conflict(key, '"on"', condition.format(d.scene), remedy),) if d.on(key) else (),
    )
    return lambda d: chain(types(d), switches(d))


def _present(keys: Iterable[str], condition: str) -> _Check:
    return lambda d: (
        _conflict(key, "", condition.format(d.scene), "leave the key out") for key in keys if key in d.dump
    )


def _watcher_mode(d: _Judged) -> Iterator[Refusal]:
    if not (mode := d.dump.get("dump_mode", "" if d.oldest else "output")):
        condition = 'must be written out together with "dump_scene": "watcher"'
        yield Refusal("dump_mode", condition, 'write "output"')
    elif mode != "output":
        yield _conflict("dump_mode", f'"{mode}"', '"dump_scene": "watcher"', 'write "output"')


def _list(d: _Judged) -> Iterator[Refusal]:
    """Yield the refusals of members of ``dump_list``; in an empty one only the watcher lacks a key."""
    value = d.dump.get("dump_list", [])
    items = [with_members(item) for item in members(value)]
    if d.old:
        as_read = items if isinstance(value, list) else value
        yield from _types("dump_list")(replace(d, dump={"dump_list": as_read}))
        named = (item.get("model_name") != "" and item.get("layer") != [] for item in items)
        if items and d.dump.get("dump_op_switch", "off") == "off" and not any(named):
            yield Refusal(
                "dump_list",
                "no entry is valid: each has an empty model_name or layer",
                "name a model or a layer in at least one entry, or leave both keys out",
            )
    each = [
        replace(d, item=item, path=f"dump_list[{index}]")
        for index, item in enumerate(items)
        if item or d.watcher
    ]
    # The old releases put one question to all members, the new ones all questions to one member.
    asked = [(table, one) for table in _ITEM for one in each]
    if not d.old:
        asked = [(table, one) for one in each for table in _ITEM]
    for table, one in asked:
        yield from _coded("logged", partial(read, table))(one)


def _item_refusal(key: str, problem: Callable[[str], str], remedy: str, code: str) -> _Check:
    """Refuse a key of a member of ``dump_list``; the problem begins with ``empty`` or ``missing``."""
    return lambda one: (
        Refusal(f"{one.path}.{key}", problem("empty" if key in one.item else "missing"), remedy, code),
    )


def _item_conflict(key: str, condition: str, remedy: str) -> _Check:
    return lambda one: (_conflict(f"{one.path}.{key}", "", condition, remedy),)


def _too_long(one: _Judged) -> Iterator[Refusal]:
    for key in _BLACKLISTS:
        if (count := len(one.item.get(key, ()))) > _MAX_BLACKLIST:
            problem = f"{count} entries, CANN takes {_MAX_BLACKLIST}"
            yield Refusal(f"{one.path}.{key}", problem, "split the entry over several runs", "EP0003")


def _needs_level_op(*keys: str) -> _Check:
    def check(one: _Judged) -> Iterator[Refusal]:
        level = one.dump.get("dump_level", "all")
        default = "" if "dump_level" in one.dump else ", its default"
        for key in keys if level != "op" else ():
            if one.item.get(key):
                place = f"{one.path}.{key}"
                yield _conflict(place, "", f'"dump_level": "{level}"{default}', 'add "dump_level": "op"')

    return check


def _half_ranges(one: _Judged) -> Iterator[Refusal]:
    for index, entry in enumerate(one.item["opname_range"]):
        for key in ("begin", "end"):
            if not entry.get(key):
                yield Refusal(
                    f"{one.path}.opname_range[{index}].{key}",
                    "empty" if key in entry else "missing",
                    f"write both ends: {EXAMPLES['opname_range']}",
                    "EP0003",
                )


def _empty(key: str, nothing: object) -> Row[_Judged, Refusal]:
    """Refuse a key of a member that names nothing, unless single operators are dumped anyway."""
    remedy = f"name something ({EXAMPLES[key]}), or leave the key out to dump everything"
    return (
        lambda one: (
            not one.old and one.dump.get("dump_op_switch", "off") == "off" and one.item.get(key) == nothing
        ),
        _item_refusal(key, str, remedy, "EP0001"),
    )


_ITEM: tuple[tuple[Row[_Judged, Refusal], ...], ...] = (
    (_empty("model_name", ""), _empty("layer", [])),
    (
        (
            lambda one: not one.watcher and one.item.get("watcher_nodes"),
            _item_conflict(
                "watcher_nodes",
                "anything but the watcher scene",
                'add "dump_scene": "watcher", or leave watcher_nodes out',
            ),
        ),
        (
            lambda one: one.watcher and not one.item.get("watcher_nodes"),
            _item_refusal(
                "watcher_nodes",
                lambda lacking: f"{lacking}, which the watcher scene does not allow",
                f"name the nodes to watch: {EXAMPLES['watcher_nodes']}",
                "EP0001",
            ),
        ),
        (
            lambda one: one.watcher and one.item.get("model_name"),
            _item_conflict("model_name", '"dump_scene": "watcher"', "leave model_name out"),
        ),
    ),
    ((always, _too_long),),
    ((always, _needs_level_op(*_BLACKLISTS)),),
    (
        (always, _needs_level_op("opname_range")),
        (
            lambda one: one.item.get("opname_range") and not one.item.get("model_name"),
            _item_refusal(
                "model_name",
                lambda lacking: f"{lacking}, and opname_range needs it",
                f"name the model that opname_range is about: {EXAMPLES['model_name']}",
                "EP0001",
            ),
        ),
        (lambda one: one.item.get("opname_range"), _half_ranges),
    ),
)
"""Checks of every member of ``dump_list``, in CANN's order."""


def _not_stats(d: _Judged) -> Iterator[Refusal]:
    default = "" if "dump_data" in d.dump else ", its default"
    yield _conflict("dump_stats", "", f'"dump_data": "tensor"{default}', 'add "dump_data": "stats"')


def _data(d: _Judged) -> bool:
    return d.located and d.kind == "data"


_RULES: tuple[Row[_Judged, Refusal], ...] = (
    (always, _choice("dump_scene")),
    (lambda d: d.strict and d.kind == "exception", _present(_NOT_WITH_EXCEPTION, '"dump_scene": "{}"')),
    *(
        (
            lambda d: d.scene and not (d.strict and d.kind == "exception"),
            _switched_on(key, '"dump_scene": "{}"'),
        )
        for key in ("dump_debug", "dump_op_switch")
    ),
    (always, _choice("dump_mode")),
    (lambda d: d.watcher, _coded("logged", _watcher_mode)),
    (lambda d: d.strict and d.watcher, _present(_NOT_WITH_WATCHER, '"dump_scene": "watcher"')),
    (lambda d: d.located, _types("dump_path")),
    (
        lambda d: d.located,
        _coded("argument", lambda d: path_reasons(d.dump, d.cwd, must_be_directory=not d.old)),
    ),
    (lambda d: d.located, _choice("dump_debug")),
    (lambda d: d.located and d.kind == "overflow", _switched_on("dump_op_switch", '"dump_debug": "on"')),
    (lambda d: d.strict and d.kind == "overflow", _present(("dump_list",), '"dump_debug": "on"')),
    (_data, _choice("dump_data")),
    (lambda d: _data(d) and not d.oldest, _choice("dump_kernel_data")),
    (_data, _choice("dump_level")),
    (_data, _choice("dump_op_switch")),
    (_data, _types("dump_step")),
    (_data, _coded("logged", lambda d: step_reasons(d.dump.get("dump_step", "")))),
    (_data, _list),
    (_data, _types("dump_stats")),
    (
        lambda d: _data(d) and d.dump.get("dump_stats") == [],
        _coded("statistics", says(Refusal("dump_stats", "empty", _NAME_STATISTICS, "EP0001"))),
    ),
    (
        lambda d: _data(d) and "dump_stats" in d.dump and d.dump.get("dump_data", "tensor") == "tensor",
        _coded("logged", _not_stats),
    ),
    (lambda d: d.old, _types(*STRING_KEYS[:-2])),
    (lambda d: d.old and not d.oldest, _types("dump_kernel_data")),
    (lambda d: d.old, _types("dump_stats")),
)
"""Exclusions, in CANN's order; a reason that makes an old release break off stands at its value's use."""


# What is accepted, and yet does nothing or less than it says.


def _unknown(dump: Mapping[str, Any]) -> Iterator[str]:
    """Yield the keys that nothing reads, at every level, whatever else may be wrong with ``dump``."""
    yield from unknown_keys(dump, DUMP, "")
    for index, item in enumerate(members(dump.get("dump_list"))):
        path = f"dump_list[{index}]"
        yield from unknown_keys(item, ITEM, f"{path}.")
        for key in NESTED:
            for place, entry in enumerate(members(item.get(key))):
                yield from unknown_keys(entry, ITEM[key][0], f"{path}.{key}[{place}].")


def _ignored(keys: Iterable[str], condition: str) -> Callable[[_Judged], Iterable[str]]:
    return lambda d: (f"{key}: ignored with {condition.format(d.scene)}" for key in keys if key in d.dump)


def _lost_statistics(d: _Judged) -> Iterator[str]:
    for index, name in enumerate(d.dump.get("dump_stats", ())):
        if name.strip() not in OPTIONS["dump_stats"]:
            yield f"dump_stats[{index}]: {shown(name)} passes the checker, then aclmdlSetDump returns 500000"


def _lost_items(d: _Judged) -> Iterator[str]:
    items = members(d.dump["dump_list"])
    named: set[str] = set()
    anonymous = not all(item.get("model_name") for item in items)
    for index, item in enumerate(items):
        path = f"dump_list[{index}]"
        name = item.get("model_name", "")
        if name in named:
            yield f"{path}.model_name: {shown(name)} again; the last entry's layers replace the earlier ones"
        if name and anonymous:
            yield f"{path}.model_name: without effect, since an entry without model_name covers every model"
        named |= {name} if name else set()
        for key in ("layer", "watcher_nodes"):
            for number, layer in enumerate(item.get(key, ())):
                if not layer:
                    at = f"{path}.{key}[{number}]"
                    yield f"{at}: empty, which is no operator's name; name one, or leave it out"
        for key in _BLACKLISTS:
            for number, entry in enumerate(members(item.get(key))):
                place = f"{path}.{key}[{number}]"
                if not entry.get("name"):
                    yield f"{place}.name: missing or empty, so that nothing is left out; name what is meant"
                for slot, position in enumerate(entry.get("pos", ())):
                    if not _POSITION.fullmatch(position):
                        at = f"{place}.pos[{slot}]: {shown(position)}"
                        yield f'{at} is ignored, write "input0" or "output0"'


_WARNINGS: tuple[Row[_Judged, str], ...] = (
    (always, lambda d: few(_unknown(d.dump), "unknown keys")),
    (
        lambda d: d.oldest and "dump_kernel_data" in d.dump,
        says("dump_kernel_data: unknown to CANN 8.5.0, ignored"),
    ),
    (lambda d: d.kind == "exception", _ignored(_IGNORED_BY_EXCEPTIONS, '"dump_scene": "{}"')),
    (lambda d: d.kind == "overflow", _ignored(_IGNORED_BY_OVERFLOW, '"dump_debug": "on"')),
    (
        lambda d: d.kind == "overflow" and d.dump.get("dump_mode", "all") != "all",
        says('dump_mode: "dump_debug": "on" dumps inputs and outputs, whatever is written here'),
    ),
    (
        lambda d: d.kind == "overflow" and d.old,
        lambda d: (
            f"dump_debug: in CANN {d.profile} overflow dump works for models only, not for aclnn operators",
        ),
    ),
    (
        lambda d: (
            d.kind == "data" and not (members(d.dump.get("dump_list")) or d.on("dump_op_switch") or d.scene)
        ),
        says(
            "dump_list: nothing to dump: nothing is switched on, and a dump that runs is not switched off; "
            'write "dump_list": [{}] to dump every model, or "dump_op_switch": "on" for single operators'
        ),
    ),
    (
        lambda d: (
            d.kind == "data"
            and d.watcher
            and not any(item.get("watcher_nodes") for item in members(d.dump.get("dump_list")))
        ),
        says(
            f"dump_list: no member names watcher_nodes, so nothing is watched; write for example {_WATCHED}"
        ),
    ),
    (
        lambda d: d.kind == "data" and d.dump.get("dump_step"),
        says("dump_step: selects training iterations; leave it out for inference"),
    ),
    (
        lambda d: d.kind == "data" and d.dump.get("dump_level") == "op",
        says('dump_level: "op" switches the dump of aclnn operators (eager kernels) off'),
    ),
    (lambda d: d.kind == "data" and d.old, lambda d: few(_lost_statistics(d), "dump_stats")),
    (lambda d: _data(d) and members(d.dump.get("dump_list")), lambda d: few(_lost_items(d), "dump_list")),
    (
        lambda d: d.scene == "aic_err_detail_dump",
        says("dump_scene: aic_err_detail_dump lasts until the process ends, whatever finalize_dump does"),
    ),
    (
        lambda d: d.oldest and d.watcher and not d.dump.get("dump_path"),
        says("dump_path: CANN 8.5.0 does not ask for it in the watcher scene, but cannot write without it"),
    ),
)
