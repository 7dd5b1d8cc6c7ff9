"""Sentences of the rules, each probed at its border; the id names the section that a case is from."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from pytest_npudump.config import adump, ge, mindspore
from pytest_npudump.config.acl_keys import step_reasons
from pytest_npudump.config.adump import validate
from pytest_npudump.config.cann import PROFILES, installed_cann, profile_for, rules_version
from pytest_npudump.config.check import check_file
from pytest_npudump.config.rule_table import CheckerVerdict
from pytest_npudump.errors import ConfigError

OLD = ("8.5.0", "9.0.0")
NEW = ("9.1.0-beta.3", "9.1.0")
ON = {"dump_path": ".", "dump_op_switch": "on"}
OP = {"dump_path": ".", "dump_level": "op"}
WATCHER = {"dump_path": ".", "dump_scene": "watcher", "dump_mode": "output"}
EXCEPTION = {"dump_scene": "lite_exception"}
OVERFLOW = {"dump_path": ".", "dump_debug": "on"}
Case = tuple[str, tuple[str, ...], object, str]
CASES: list[Case] = [
    ("1.3 dump null", NEW, None, "EP0001"),
    ("1.3 dump null is read as no key at all", ("9.0.0",), None, "EP0001"),
    ("1.4 types come before values", NEW, {"dump_mode": "x", "dump_step": 1}, "EP0001"),
    ("1.4 values come before constraints", NEW, {**ON, "dump_debug": "on", "dump_data": "x"}, "EP0002"),
    ("1.4 empty value", NEW, {**ON, "dump_level": ""}, "EP0001"),
    ("1.4 case", NEW, {**ON, "dump_op_switch": "ON"}, "EP0002"),
    ("1.4 blank", NEW, {**ON, "dump_mode": "all "}, "EP0002"),
    ("1.4 kernel data, trailing comma", NEW, {**ON, "dump_kernel_data": "printf,"}, "EP0001"),
    ("1.4 kernel data, leading comma", NEW, {**ON, "dump_kernel_data": ",printf"}, "EP0001"),
    ("1.4 kernel data twice", ("9.0.0", *NEW), {**ON, "dump_kernel_data": "all,all"}, "OPERATOR"),
    ("1.4 unknown key with any value", PROFILES, {**ON, "dump_status": None, "": 1}, "OPERATOR"),
    ("1.4 boolean for a string", NEW, {**ON, "dump_debug": False}, "EP0001"),
    ("1.4 stats of two types", NEW, {**ON, "dump_data": "stats", "dump_stats": ["Max", None]}, "EP0001"),
    ("1.4 stats twice", NEW, {**ON, "dump_data": "stats", "dump_stats": ["Max", "Max"]}, "OPERATOR"),
    ("1.4 stats, other spelling", NEW, {**ON, "dump_data": "stats", "dump_stats": ["L2Norm"]}, "EP0002"),
    ("1.5 513 bytes", NEW, {**ON, "dump_path": "a" * 513}, "EP0003"),
    ("1.5 length before existence", OLD[1:], {**ON, "dump_path": "1.2.3.4:" + "a" * 505}, "EP0003"),
    ("1.5 host and 504 bytes", PROFILES, {**ON, "dump_path": "1.2.3.4:" + "a" * 504}, "OPERATOR"),
    ("1.5 five octets", NEW, {**ON, "dump_path": "1.2.3.4.5:/d"}, "EP0003"),
    ("1.5 negative octet", NEW, {**ON, "dump_path": "-1.2.3.4:/d"}, "EP0003"),
    ("1.5 empty octet", NEW, {**ON, "dump_path": "1..3.4:/d"}, "EP0003"),
    ("1.5 octet beyond int", NEW, {**ON, "dump_path": "1.2.3.4294967296:/d"}, "EP0003"),
    ("1.5 hexadecimal octet reads as 0", PROFILES, {**ON, "dump_path": "0xff.2.3.4:/d"}, "OPERATOR"),
    ("1.5 digits of another script", NEW, {**ON, "dump_path": "\u0661.2.3.4:/d"}, "EP0003"),
    ("1.5 second colon", PROFILES, {**ON, "dump_path": "1.2.3.4::"}, "OPERATOR"),
    ("1.5 non-ASCII behind the host", NEW, {**ON, "dump_path": "1.2.3.4:/\u00e9"}, "EP0003"),
    ("1.6 empty strings in layer", PROFILES, {**ON, "dump_list": [{"layer": [""]}]}, "OPERATOR"),
    ("1.6 empty name, switch on", PROFILES, {**ON, "dump_list": [{"model_name": ""}]}, "OPERATOR"),
    ("1.6 empty name, switch off", NEW, {"dump_path": ".", "dump_list": [{"model_name": ""}]}, "EP0001"),
    ("1.6 100 entries", PROFILES, {**OP, "dump_list": [{"optype_blacklist": [{}] * 100}]}, "OPERATOR"),
    ("1.6 101 entries", NEW, {**OP, "dump_list": [{"opname_blacklist": [{}] * 101}]}, "EP0003"),
    ("1.6 size before level", NEW, {**ON, "dump_list": [{"opname_blacklist": [{}] * 101}]}, "EP0003"),
    (
        "1.6 empty blacklist needs no level",
        PROFILES,
        {**ON, "dump_list": [{"opname_blacklist": []}]},
        "OPERATOR",
    ),
    ("1.6 empty range needs nothing", PROFILES, {**ON, "dump_list": [{"opname_range": []}]}, "OPERATOR"),
    (
        "1.6 range without model",
        NEW,
        {**OP, "dump_list": [{"opname_range": [{"begin": "a", "end": "b"}]}]},
        "EP0001",
    ),
    ("1.6 range, level first", NEW, {**ON, "dump_list": [{"opname_range": [{}]}]}, "EP0005"),
    (
        "1.6 half a range",
        NEW,
        {**OP, "dump_list": [{"model_name": "m", "opname_range": [{"begin": "a"}]}]},
        "EP0003",
    ),
    ("1.6 watcher nodes elsewhere", NEW, {**ON, "dump_list": [{"watcher_nodes": ["a"]}]}, "EP0005"),
    ("1.6 no watcher nodes elsewhere", PROFILES, {**ON, "dump_list": [{"watcher_nodes": []}]}, "OPERATOR"),
    ("1.6 nodes before model", NEW, {**WATCHER, "dump_list": [{"model_name": "m"}]}, "EP0001"),
    (
        "1.6 watcher with an empty model",
        NEW,
        {**WATCHER, "dump_list": [{"model_name": "", "watcher_nodes": ["a"]}]},
        "EP0001",
    ),
    ("1.6 watcher and no list", PROFILES, {**WATCHER, "dump_list": []}, "OPERATOR"),
    ("1.7 trailing bar", NEW, {**ON, "dump_step": "1|"}, "EP0003"),
    ("1.7 sign", NEW, {**ON, "dump_step": "+1"}, "EP0003"),
    ("1.7 all steps", PROFILES, {**ON, "dump_step": ""}, "OPERATOR"),
    ("1.7 line end", NEW, {**ON, "dump_step": "1\n"}, "EP0003"),
    ("1.8 scene before path", NEW, {"dump_scene": "watcher", "dump_debug": "on"}, "EP0005"),
    ("1.8 path before debug", NEW, {"dump_debug": "on", "dump_op_switch": "on"}, "EP0001"),
    ("1.8 overflow checks no step", PROFILES, {**OVERFLOW, "dump_step": "x"}, "OP_OVERFLOW"),
    ("1.8 overflow and no stats", NEW, {**OVERFLOW, "dump_stats": []}, "OP_OVERFLOW"),
    ("1.8 overflow and bad stats", NEW, {**OVERFLOW, "dump_stats": ["x"]}, "EP0002"),
    (
        "1.8 step before list",
        NEW,
        {**ON, "dump_step": "x", "dump_list": [{"watcher_nodes": ["a"]}]},
        "EP0003",
    ),
    (
        "1.8 list before stats",
        NEW,
        {**ON, "dump_stats": [], "dump_list": [{"watcher_nodes": ["a"]}]},
        "EP0005",
    ),
    ("1.8 empty stats before dump_data", NEW, {**ON, "dump_stats": []}, "EP0001"),
    ("1.9 overflow and a list", ("8.5.0", "9.0.0", "9.1.0"), {**OVERFLOW, "dump_list": [{}]}, "OP_OVERFLOW"),
    ("1.9 overflow and a list", ("9.1.0-beta.3",), {**OVERFLOW, "dump_list": []}, "EP0005"),
    (
        "1.9 exception and a list",
        ("8.5.0", "9.0.0", "9.1.0"),
        {**EXCEPTION, "dump_list": [{}]},
        "ARGS_EXCEPTION",
    ),
    ("1.9 exception, debug off", ("9.1.0-beta.3",), {**EXCEPTION, "dump_debug": "off"}, "EP0005"),
    (
        "1.9 exception, debug off",
        ("8.5.0", "9.0.0", "9.1.0"),
        {**EXCEPTION, "dump_debug": "off"},
        "ARGS_EXCEPTION",
    ),
    ("1.9 exception checks types", PROFILES, {**EXCEPTION, "dump_level": 1}, "refused"),
    ("1.9 exception checks no list's types", OLD, {**EXCEPTION, "dump_list": 1}, "ARGS_EXCEPTION"),
    ("1.9 exception checks a list's types", NEW, {**EXCEPTION, "dump_list": 1}, "EP0001"),
    ("1.9 watcher, mode not written", ("8.5.0",), {"dump_path": ".", "dump_scene": "watcher"}, "refused"),
    (
        "1.9 watcher, data written",
        ("8.5.0", "9.0.0", "9.1.0"),
        {**WATCHER, "dump_data": "tensor"},
        "OPERATOR",
    ),
    ("1.9 one valid entry is enough", OLD, {"dump_path": ".", "dump_list": [{"layer": []}, {}]}, "OPERATOR"),
    ("1.9 any bad entry", NEW, {"dump_path": ".", "dump_list": [{}, {"layer": []}]}, "EP0001"),
]
PROBES = [
    pytest.param(version, dump, expected, id=f"{version} {name}")
    for name, versions, dump, expected in CASES
    for version in versions
]


@pytest.mark.each(("version", "dump", "expected"), PROBES)
def test_adump_follows_the_rule(version: str, dump: object, expected: str, tmp_path: Path) -> None:
    text = json.dumps({"dump": dump}).encode()
    verdict = adump.validate(text, version=version, cwd=tmp_path, environ={})
    refused = expected == "refused" or expected.startswith("EP")
    assert verdict.accepted is not refused
    assert expected in ("refused", verdict.reason_code or verdict.dump_type)


KEYS = ("dump_path", "dump_scene", "dump_mode", "dump_debug", "dump_op_switch", "dump_list", "dump_data", "x")
VALUES = st.sampled_from(["", ".", "on", "off", "output", "all", "watcher", "stats", 1, None, [], [{}], {}])
OBJECTS = st.dictionaries(st.sampled_from(KEYS), VALUES)


def essence(verdict: CheckerVerdict) -> tuple[Any, ...]:
    return verdict.accepted, verdict.reason_code, verdict.need_dump, verdict.dump_type


@given(OBJECTS, st.sampled_from(PROFILES), st.randoms(use_true_random=False))
def test_the_order_of_keys_does_not_matter(dump: dict[str, Any], version: str, random: Any) -> None:
    shuffled = list(dump.items())
    random.shuffle(shuffled)
    texts = [json.dumps({"dump": content}).encode() for content in (dump, dict(shuffled))]
    first, second = (adump.validate(text, version=version, environ={}) for text in texts)
    assert essence(first) == essence(second)
    assert essence(ge.validate(texts[0])) == essence(ge.validate(texts[1]))


@given(OBJECTS, st.sampled_from(PROFILES))
def test_of_a_key_that_stands_twice_the_last_counts(dump: dict[str, Any], version: str) -> None:
    once = json.dumps({"dump": dump})
    twice = once.replace('{"dump": ', '{"dump": 5, "dump": ')
    found = [adump.validate(text.encode(), version=version, environ={}) for text in (once, twice)]
    assert essence(found[0]) == essence(found[1])


@settings(max_examples=100)
@given(
    st.binary(max_size=60) | OBJECTS.map(lambda dump: json.dumps({"dump": dump}).encode()),
    st.sampled_from(("acl", "ge", "torchair", "mindspore")),
)
def test_any_bytes_in_a_file_get_a_verdict(
    tmp_path_factory: pytest.TempPathFactory, text: bytes, target: str
) -> None:
    file = tmp_path_factory.getbasetemp() / "any.json"
    file.write_bytes(text)
    told = check_file(file, target, environ={}).to_json()
    assert told["accepted"] is not bool(told["reasons"])
    assert not (told["accepted"] and told["code"])
    assert not (told["need_dump"] and not told["accepted"])


def test_minus_zero_and_integers_beyond_64_bits_are_not_unsigned_to_mindspore() -> None:
    text = (
        '{"common_dump_settings": {"dump_mode": 0, "path": "/d", "net_name": "N", "iteration": "all", '
        '"input_output": NUMBER, "kernels": [], "support_device": [0]}, "e2e_dump_settings": null}'
    )
    for number, accepted in [
        *(("0", True), ("4294967298", True), ("4294967299", False), ("18446744073709551614", False)),
        *(("18446744073709551616", False), ("-0", False), ("0.0", False), ("0e0", False)),
    ]:
        verdict = mindspore.validate(text.replace("NUMBER", number).encode(), environ={})
        assert verdict.accepted is accepted, number


# The grammar as CANN documents it, with the order of a range checked apart.
GRAMMAR = re.compile(r"(?:\d+(?:-\d+)?(?:\|\d+(?:-\d+)?)*)?", re.ASCII)


def is_taken(step: str) -> bool:
    ranges = (part.split("-") for part in step.split("|")) if step else ()
    return bool(GRAMMAR.fullmatch(step)) and all(int(bounds[0]) <= int(bounds[-1]) for bounds in ranges)


@given(st.text("0129-| ٣", max_size=12))
def test_takes_the_documented_grammar(step: str) -> None:
    assert (not list(step_reasons(step))) is is_taken(step)


@pytest.mark.each(
    ("step", "taken"),
    [
        ("|".join(["1"] * 100), True),
        ("|".join(["1"] * 101), False),
        (f"{2**63}-{2**63 - 1}", True),
        (f"{2**63 - 1}-{2**63 - 2}", False),
        ("9" * 5000 + "-1", False),
        ("0" * 5000 + "1-1", True),
    ],
)
def test_numbers_saturate_and_intervals_are_counted(step: str, *, taken: bool) -> None:
    assert (not list(step_reasons(step))) is taken


@pytest.mark.each(
    ("version", "profile"),
    [
        *((profile, profile) for profile in PROFILES),
        *(("8.1.RC1", "8.5.0"), ("8.5.1", "8.5.0"), ("8.5.0.alpha001", "8.5.0"), ("9.0.1", "9.0.0")),
        *(("9.0.0-beta.1", "9.0.0"), ("9.1.0-beta.1", "9.0.0"), ("9.1.0-beta.2.pre", "9.1.0")),
        *(("9.1.0-beta.10", "9.1.0"), ("9.1", "9.1.0"), ("9.2.0-beta.1", "9.1.0"), ("10.0.0", "9.1.0")),
    ],
)
def test_every_release_has_a_rule_set(version: str, profile: str) -> None:
    assert profile_for(version) == profile


@pytest.mark.each("version", ["", "latest", "9", "V100R001", "9.1.0 beta", "9.x"])
def test_what_is_no_version_is_an_error(version: str) -> None:
    with pytest.raises(ConfigError, match="expected a release"):
        profile_for(version)


def test_a_release_older_than_the_published_source_is_said_to_be_judged_by_another(tmp_path: Path) -> None:
    text = b'{"dump": {"dump_path": ".", "dump_list": [{"model_name": "m"}]}}'
    assert any("8.1.RC1" in warning for warning in validate(text, version="8.1.RC1", cwd=tmp_path).warnings)
    assert validate(text, version="8.5.0", cwd=tmp_path).warnings == ()


@pytest.mark.each(
    ("file", "content", "version"),
    [
        (
            "aarch64-linux/ascend_toolkit_install.info",
            "package_name=Ascend-cann-toolkit\nversion=8.1.RC1\n",
            "8.1.RC1",
        ),
        ("x86_64-linux/ascend_toolkit_install.info", "version=9.1.0-beta.3\narch=x86_64\n", "9.1.0-beta.3"),
        ("ascend_toolkit_install.info", "version=8.5.0\ninnerversion=V100R001C23\n", "8.5.0"),
        ("version.cfg", "# version: 1.0\nruntime_running_version=[7.3.0.1.231:8.0.RC2]\n", "8.0.RC2"),
        ("runtime/version.info", "Version=7.6.0.1.220\nversion_dir=8.2.RC1\n", "8.2.RC1"),
        ("share/info/runtime/version.info", "Version=9.0.0\n", "9.0.0"),
        ("version.cfg", "nothing of the kind", None),
        ("version.cfg", "version=7.6.0.1.220\n", None),
    ],
)
def test_the_installed_release_is_read_from_the_toolkit(
    tmp_path: Path, file: str, content: str, version: str | None
) -> None:
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).write_text(content)
    assert installed_cann({"ASCEND_HOME_PATH": str(tmp_path)}) == version
    assert installed_cann({"ASCEND_TOOLKIT_HOME": str(tmp_path)}) == version


@pytest.mark.each("environ", [{}, {"ASCEND_HOME_PATH": ""}, {"ASCEND_HOME_PATH": "/nonexistent/cann"}])
def test_without_a_toolkit_there_is_no_release(environ: dict[str, str]) -> None:
    assert installed_cann(environ) is None
    assert rules_version(environ) == "9.1.0"
