"""The rules of CANN 8.5 and 9.0: one pass, in which a wrong JSON type shows only where the value is used.

Source: ``dump_config_converter.cpp`` at tags v8.5.0 (lines 131-205, 238-286, 458-470, 595-612) and v9.0.0
(51-175, 238-300).  Both log conflicts without a reason code; 8.5.0 has one code for every bad argument.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pytest_npudump.config.acl.adump.type_rules import type_reasons
from pytest_npudump.config.acl.adump.value_rules import ITEM_CHECKS, conflict, enum_reasons, may_be_wrong
from pytest_npudump.config.acl.dump_keys import STRING_KEYS
from pytest_npudump.config.acl.path_checks import path_reasons
from pytest_npudump.config.acl.steps import step_reasons
from pytest_npudump.config.checker_verdict import Refusal, shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

_VALID_ENTRY_REMEDY = "name a model or a layer in at least one entry, or leave both keys out"


def legacy_reasons(dump: object, cwd: Path, profile: str) -> Iterator[Refusal]:
    """Yield the reasons in the order of the checks; CANN stops at the first, and so must the caller.

    ``dump`` is whatever stands under the key ``dump``: these releases look for keys in it, and find none
    where it is no object.
    """
    checks = _Checks(dump if isinstance(dump, dict) else {}, cwd, older=profile == "8.5.0")
    yield from checks.run()


def members(value: object) -> list[dict[str, Any]]:
    """Return the members of an array as CANN reads them: what is no object counts as ``{}``."""
    return [member if isinstance(member, dict) else {} for member in value] if isinstance(value, list) else []


class _Checks:
    """One configuration under one release's rules."""

    def __init__(self, dump: dict[str, Any], cwd: Path, *, older: bool) -> None:
        self._dump = dump
        self._cwd = cwd
        self._older = older

    def run(self) -> Iterator[Refusal]:
        yield from self._scene()
        scene = self._dump.get("dump_scene", "")
        yield from self._enum("dump_mode")
        if scene == "watcher":
            yield from self._watcher_mode()
        # 8.5.0 is done here for the watcher too, so that it never looks at dump_path.
        if not scene or (scene == "watcher" and not self._older):
            yield from self._path()
            yield from self._overflow()
            if self._dump.get("dump_debug") != "on":
                yield from self._data()
        yield from self._conversion()

    def _argument(self, reasons: Iterable[Refusal]) -> Iterator[Refusal]:
        """A bad argument: 8.5.0 has one code for all of them."""
        return (replace(reason, code="EP0001") if self._older else reason for reason in reasons)

    def _logged(self, *reasons: Refusal) -> Iterator[Refusal]:
        """What is only logged, under no code."""
        return (replace(reason, code="") for reason in reasons)

    def _types(self, held: Mapping[str, Any], *keys: str) -> Iterator[Refusal]:
        """What breaks off the conversion from JSON."""
        code = "" if self._older else "EP0004"
        wrong = type_reasons({key: held[key] for key in keys if key in held})
        return (replace(reason, code=code) for reason in wrong)

    def _enum(self, key: str) -> Iterator[Refusal]:
        if key in self._dump:
            yield from self._types(self._dump, key)
            for value in self._dump[key].split(",") if key == "dump_kernel_data" else [self._dump[key]]:
                yield from self._argument(enum_reasons(key, value))

    def _scene(self) -> Iterator[Refusal]:
        yield from self._enum("dump_scene")
        if "dump_scene" in self._dump:
            for key in ("dump_debug", "dump_op_switch"):
                yield from self._switched_on(key, f'"dump_scene": "{self._dump["dump_scene"]}"')

    def _switched_on(self, key: str, condition: str) -> Iterator[Refusal]:
        yield from self._types(self._dump, key)
        if self._dump.get(key) == "on":
            yield from self._logged(conflict(key, '"on"', condition, 'write "off" for it, or leave it out'))

    def _watcher_mode(self) -> Iterator[Refusal]:
        mode = self._dump.get("dump_mode", "" if self._older else "output")
        if mode != "output":
            problem = f"{shown(mode)} cannot be configured" if mode else "must be written out"
            yield Refusal("dump_mode", f'{problem} together with "dump_scene": "watcher"', 'write "output"')

    def _path(self) -> Iterator[Refusal]:
        yield from self._types(self._dump, "dump_path")
        yield from self._argument(path_reasons(self._dump, self._cwd, must_be_directory=False))

    def _overflow(self) -> Iterator[Refusal]:
        yield from self._enum("dump_debug")
        if self._dump.get("dump_debug") == "on":
            yield from self._switched_on("dump_op_switch", '"dump_debug": "on"')

    def _data(self) -> Iterator[Refusal]:
        keys = ("dump_data", "dump_kernel_data", "dump_level", "dump_op_switch")
        for key in keys:
            if key != "dump_kernel_data" or not self._older:
                yield from self._enum(key)
        yield from self._types(self._dump, "dump_step")
        yield from self._logged(*step_reasons(self._dump.get("dump_step", "")))
        yield from self._list()
        yield from self._stats()

    def _list(self) -> Iterator[Refusal]:
        value = self._dump.get("dump_list", [])
        items = members(value)
        yield from self._types(
            {"dump_list": _as_read(items) if isinstance(value, list) else value}, "dump_list"
        )
        if (
            items
            and self._dump.get("dump_op_switch", "off") == "off"
            and not any(map(_names_something, items))
        ):
            problem = "no entry is valid: each has an empty model_name or layer"
            yield Refusal("dump_list", problem, _VALID_ENTRY_REMEDY)
        judged = [
            (index, item) for index, item in enumerate(_as_read(items)) if may_be_wrong(self._dump, item)
        ]
        for check in ITEM_CHECKS:
            for index, item in judged:
                yield from self._logged(*check(self._dump, item, f"dump_list[{index}]"))

    def _stats(self) -> Iterator[Refusal]:
        yield from self._types(self._dump, "dump_stats")
        if "dump_stats" not in self._dump:
            return
        if not self._dump["dump_stats"]:
            code = "" if self._older else "EP0001"
            yield Refusal("dump_stats", "empty", "name statistics, or leave the key out", code)
        if self._dump.get("dump_data") != "stats":
            condition = f'"dump_data": "{self._dump.get("dump_data", "tensor")}"'
            yield from self._logged(conflict("dump_stats", "", condition, 'add "dump_data": "stats"'))

    def _conversion(self) -> Iterator[Refusal]:
        keys = [
            key
            for key in STRING_KEYS
            if key != "dump_step" and (key != "dump_kernel_data" or not self._older)
        ]
        yield from self._types(self._dump, *keys, "dump_stats")


def _as_read(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    nested = ("optype_blacklist", "opname_blacklist", "opname_range")
    return [
        {
            key: members(value) if key in nested and isinstance(value, list) else value
            for key, value in item.items()
        }
        for item in items
    ]


def _names_something(item: Mapping[str, Any]) -> bool:
    return item.get("model_name") != "" and item.get("layer") != []
