"""The JSON types of the ``dump`` object, which CANN 9.1 checks before all else.

Source: ``dump_config_converter.cpp:118-145, 230-389``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_npudump.config.acl.dump_keys import BLACKLIST_KEYS, EXAMPLES, OPTIONS, RANGE_KEYS, STRING_KEYS
from pytest_npudump.config.checker_verdict import Refusal, shown

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_JSON_TYPES = {"string": str, "array": list, "object": dict}


def type_reasons(dump: Mapping[str, Any]) -> Iterator[Refusal]:
    """Yield every member of ``dump`` whose JSON type is wrong, in CANN's order."""
    for key in STRING_KEYS:
        yield from _string(dump, key, "")
    if "dump_stats" in dump:
        yield from _array(dump["dump_stats"], "dump_stats", "string")
    if "dump_list" in dump:
        yield from _list(dump["dump_list"])


def _list(value: object) -> Iterator[Refusal]:
    """Unlike every other array, ``dump_list`` is checked member by member, each with all that it holds."""
    if not isinstance(value, list):
        yield _wrong_type("dump_list", value, "array")
        return
    for index, member in enumerate(value):
        if not isinstance(member, dict):
            yield _wrong_type(f"dump_list[{index}]", member, "object")
        elif member:
            yield from _item(member, f"dump_list[{index}]")


def _item(item: Mapping[str, Any], path: str) -> Iterator[Refusal]:
    yield from _string(item, "model_name", f"{path}.")
    for key in ("layer", "watcher_nodes"):
        if key in item:
            yield from _array(item[key], f"{path}.{key}", "string")
    for key in ("optype_blacklist", "opname_blacklist"):
        if key in item:
            yield from _objects(item[key], f"{path}.{key}", _blacklist_entry)
    if "opname_range" in item:
        yield from _objects(item["opname_range"], f"{path}.opname_range", _range)


def _blacklist_entry(entry: Mapping[str, Any], path: str) -> Iterator[Refusal]:
    name, pos = BLACKLIST_KEYS
    yield from _string(entry, name, f"{path}.")
    if pos in entry:
        yield from _array(entry[pos], f"{path}.{pos}", "string")


def _range(entry: Mapping[str, Any], path: str) -> Iterator[Refusal]:
    for key in RANGE_KEYS:
        yield from _string(entry, key, f"{path}.")


def _objects(value: object, path: str, check: Any) -> Iterator[Refusal]:
    yield from _array(value, path, "object")
    if isinstance(value, list):
        for index, member in enumerate(value):
            if isinstance(member, dict):
                yield from check(member, f"{path}[{index}]")


def _array(value: object, path: str, member_type: str) -> Iterator[Refusal]:
    if not isinstance(value, list):
        yield _wrong_type(path, value, "array")
        return
    for index, member in enumerate(value):
        if not isinstance(member, _JSON_TYPES[member_type]):
            yield _wrong_type(f"{path}[{index}]", member, member_type)


def _string(holder: Mapping[str, Any], key: str, prefix: str) -> Iterator[Refusal]:
    if key in holder and not isinstance(holder[key], str):
        yield _wrong_type(f"{prefix}{key}", holder[key], "string")


def _wrong_type(path: str, value: object, expected: str) -> Refusal:
    key = path.rpartition(".")[2].partition("[")[0]
    if key in EXAMPLES:
        remedy = f"write for example {EXAMPLES[key]} as {key}"
    else:
        remedy = "write one of " + ", ".join(f'"{option}"' for option in OPTIONS[key])
    if value is None:
        remedy += ", or leave the key out: null is not absent"
    return Refusal(path, f"{shown(value)} must be of the JSON type {expected}", remedy, "EP0001")
