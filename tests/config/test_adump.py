from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from pytest_npudump.config.adump import validate
from pytest_npudump.config.cann import PROFILES
from pytest_npudump.config.rule_table import MOST_REASONS, AdumpVerdict
from pytest_npudump.errors import ConfigError


def check(dump: Any, tmp_path: Path, **options: Any) -> AdumpVerdict:
    return validate(json.dumps({"dump": dump}).encode(), cwd=tmp_path, environ={}, **options)


@pytest.mark.each(
    ("dump", "item", "remedy"),
    [
        (
            {"dump_list": [{}, {"opname_range": [{"begin": 1}]}]},
            "dump_list[1].opname_range[0].begin",
            '"conv1"',
        ),
        (
            {"dump_list": [{"optype_blacklist": [{"pos": [1]}]}]},
            "dump_list[0].optype_blacklist[0].pos[0]",
            "pos",
        ),
        ({"dump_list": [{"layer": [None]}]}, "dump_list[0].layer[0]", "null is not absent"),
        ({"dump_step": None}, "dump_step", "null is not absent"),
        ({"dump_mode": "Output"}, "dump_mode", 'write "output"'),
        ({"dump_mode": " " * 60 + "Output"}, "dump_mode", 'write "output"'),
        ({"dump_mode": "output" * 20}, "dump_mode", "write one of "),
        ({"dump_mode": "everything"}, "dump_mode", '"all", "input", "output"'),
        ({"dump_stats": ["Max", "max "]}, "dump_stats[1]", 'write "Max"'),
        ({"dump_path": "$HOME/out"}, "dump_path", "CANN expands neither ~ nor $HOME"),
        ({"dump_path": "nowhere"}, "dump_path", "create it first"),
        ({"dump_path": ".", "dump_step": "0|1-|2", "dump_op_switch": "on"}, "dump_step[1]", '"5-10"'),
        (
            {"dump_path": ".", "dump_list": [{"model_name": "m", "opname_blacklist": [{}]}]},
            "dump_list[0].opname_blacklist",
            'add "dump_level": "op"',
        ),
        ({"dump_path": ".", "dump_stats": ["Max"]}, "dump_stats", 'add "dump_data": "stats"'),
    ],
)
def test_a_refusal_names_the_item_and_the_way_out(dump: Any, item: str, remedy: str, tmp_path: Path) -> None:
    verdict = check(dump, tmp_path)
    assert not verdict.accepted
    assert verdict.reasons[0].item == item
    assert remedy in verdict.reasons[0].remedy
    assert str(verdict.reasons[0]) in verdict.message


def test_all_reasons_of_a_stage_are_listed_and_the_first_decides_the_code(tmp_path: Path) -> None:
    dump = {
        "dump_path": "nowhere",
        "dump_list": [{"watcher_nodes": ["a"], "model_name": ""}],
        "dump_step": "x",
    }
    verdict = check(dump, tmp_path)
    assert [reason.code for reason in verdict.reasons] == ["EP0003", "EP0003", "EP0001", "EP0005"]
    assert verdict.reason_code == "EP0003"


def test_the_members_of_dump_list_are_checked_one_after_the_other(tmp_path: Path) -> None:
    dump = {"dump_list": [{"model_name": 1, "optype_blacklist": [{"pos": 1}, 5]}, "x", {"layer": 1}]}
    assert [reason.item for reason in check(dump, tmp_path).reasons] == [
        "dump_list[0].model_name",
        "dump_list[0].optype_blacklist[1]",
        "dump_list[0].optype_blacklist[0].pos",
        "dump_list[1]",
        "dump_list[2].layer",
    ]


@pytest.mark.each(
    ("dump", "warning"),
    [
        ({}, "nothing is switched on"),
        ({"dump_path": "."}, 'write "dump_list": [{}]'),
        (
            {"dump_path": ".", "dump_list": [{}], "dump_lvel": "op"},
            "dump_lvel: unknown key, ignored, dump_level",
        ),
        ({"dump_path": ".", "dump_list": [{"Layer": []}]}, "dump_list[0].Layer: unknown key, ignored, layer"),
        ({"dump_scene": "lite_exception", "dump_list": [{}]}, 'dump_list: ignored with "dump_scene"'),
        ({"dump_scene": "aic_err_detail_dump"}, "lasts until the process ends"),
        ({"dump_path": ".", "dump_debug": "on", "dump_list": [{}]}, "GE refuses silently: dump_list"),
        ({"dump_path": ".", "dump_debug": "on", "dump_mode": "input"}, "dumps inputs and outputs"),
        ({"dump_path": ".", "dump_level": "kernel", "dump_list": [{}]}, "switches GE's dump of models off"),
        ({"dump_path": ".", "dump_level": "op", "dump_list": [{}]}, "aclnn operators"),
        ({"dump_path": ".", "dump_list": [{"model_name": "a"}, {}]}, "covers every model"),
        ({"dump_path": ".", "dump_list": [{"model_name": "a"}, {"model_name": "a"}]}, '"a" again'),
        (
            {
                "dump_path": ".",
                "dump_level": "op",
                "dump_list": [{"model_name": "m", "opname_blacklist": [{"name": "c", "pos": ["in0"]}]}],
            },
            'dump_list[0].opname_blacklist[0].pos[0]: "in0" is ignored',
        ),
        (
            {"dump_path": ".", "dump_op_switch": "on", "dump_list": [{"layer": []}]},
            "dump_list[0]: skipped by GE",
        ),
    ],
)
def test_what_is_accepted_without_effect_is_said(dump: Any, warning: str, tmp_path: Path) -> None:
    verdict = check(dump, tmp_path)
    assert verdict.accepted
    assert any(warning in text for text in verdict.warnings), verdict.warnings


def test_a_useful_configuration_has_no_warnings_and_what_ge_refuses_or_nobody_knows_has(
    tmp_path: Path,
) -> None:
    dump = {"dump_path": ".", "dump_list": [{"model_name": "m", "layer": ["conv1"]}], "dump_mode": "all"}
    assert check(dump, tmp_path).warnings == ()
    (tmp_path / "a b").mkdir()
    verdict = check({"dump_path": "a b", "dump_list": [{}]}, tmp_path)
    assert verdict.accepted
    assert any("GE refuses silently: dump_path" in text for text in verdict.warnings)
    dump = {"dump_path": ".", "dump_levl": "op", "dump_list": [{"model_name": "m", "opname_blacklist": [{}]}]}
    verdict = check(dump, tmp_path)
    assert not verdict.accepted
    assert verdict.warnings == ("dump_levl: unknown key, ignored, dump_level was meant?",)


@pytest.mark.each("name", [" Max", "Max\t", "L2norm"])
def test_before_9_1_statistics_are_trimmed(name: str, tmp_path: Path) -> None:
    dump = {"dump_path": ".", "dump_op_switch": "on", "dump_data": "stats", "dump_stats": [name]}
    assert check(dump, tmp_path, version="9.0.0").code == 0
    assert check(dump, tmp_path, version="9.1.0").accepted is (name == "L2norm")


def test_before_9_1_an_unknown_statistic_fails_behind_the_checker(tmp_path: Path) -> None:
    dump = {"dump_path": ".", "dump_op_switch": "on", "dump_data": "stats", "dump_stats": ["Median"]}
    verdict = check(dump, tmp_path, version="8.5.0")
    assert (verdict.accepted, verdict.code) == (True, 500000)
    assert any("500000" in text for text in verdict.warnings)


def test_a_path_is_what_it_is_to_c(tmp_path: Path) -> None:
    """It ends at its first NUL, has a length in bytes, and through a file leads nowhere; or is remote."""
    assert check({"dump_path": ".\0gone", "dump_op_switch": "on"}, tmp_path).accepted
    assert check({"dump_path": "\0."}, tmp_path).reason_code == "EP0003"
    assert "514 bytes" in check({"dump_path": "é" * 257}, tmp_path).message
    (tmp_path / "file").touch()
    for path in ("file/..", "file/.", "file/"):
        assert "does not exist" in check({"dump_path": path}, tmp_path).message
    remote = {
        "+1.2.3.4:/x": True,
        " 1.2.3.4:/x": True,
        "1.2.3.4:/a b": False,
        "1.2.3.256:/x": False,
        "::": False,
    }
    assert {path: check({"dump_path": path}, tmp_path).accepted for path in remote} == remote


def test_the_environment_moves_exception_dumps_only_into_a_usable_directory(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    text = json.dumps({"dump": {"dump_scene": "lite_exception", "dump_path": "config"}}).encode()
    for environ, expected in [
        ({}, "config"),
        ({"ASCEND_WORK_PATH": "work"}, "work"),
        ({"ASCEND_WORK_PATH": "work", "ASCEND_DUMP_PATH": "a/b"}, "a/b"),
        ({"ASCEND_WORK_PATH": "work", "ASCEND_DUMP_PATH": "file/x"}, "work"),
        ({"ASCEND_DUMP_PATH": ""}, "config"),
    ]:
        assert validate(text, cwd=tmp_path, environ=environ).dump_path == expected
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


@pytest.mark.each(
    ("environ", "version", "warning"),
    [
        (
            {"ASCEND_WORK_PATH": "work"},
            "9.1.0",
            'not used, for ASCEND_WORK_PATH is set: the dump goes to "work"',
        ),
        ({"ASCEND_WORK_PATH": "a", "ASCEND_DUMP_PATH": "b"}, "9.1.0", "ASCEND_DUMP_PATH is set"),
        ({"ASCEND_WORK_PATH": "work", "ASCEND_DUMP_PATH": "file/x"}, "9.1.0", "ASCEND_WORK_PATH is set"),
        (
            {"ASCEND_WORK_PATH": "", "ASCEND_DUMP_PATH": ""},
            "8.5.0",
            "ASCEND_WORK_PATH is set: the dump goes to the",
        ),
        ({"ASCEND_WORK_PATH": "config"}, "9.1.0", ""),
        ({"ASCEND_DUMP_PATH": "file/x"}, "9.1.0", ""),
    ],
)
def test_an_exception_dump_that_the_environment_moves_is_said(
    environ: dict[str, str], version: str, warning: str, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    text = json.dumps({"dump": {"dump_scene": "lite_exception", "dump_path": "config"}}).encode()
    found = [
        t for t in validate(text, version=version, cwd=tmp_path, environ=environ).warnings if "is set" in t
    ]
    assert len(found) == bool(warning)
    assert all(text.startswith("dump_path: not used, for ") and warning in text for text in found)


@pytest.mark.each("version", PROFILES)
def test_empty_members_of_dump_list_are_counted_and_only_the_watcher_refuses_them(
    version: str, tmp_path: Path
) -> None:
    wrong = check({"dump_path": ".", "dump_list": [{}, {}, {"layer": [1]}, {}]}, tmp_path, version=version)
    assert wrong.reasons[0].item == "dump_list[2].layer[0]"
    assert check({"dump_path": ".", "dump_list": [{}, {}]}, tmp_path, version=version).accepted
    watched = check(WATCH | {"dump_list": [{"watcher_nodes": ["c"]}, {}]}, tmp_path, version=version)
    assert watched.accepted == (version == "8.5.0")
    assert [reason.item for reason in watched.reasons] == ["dump_list[1].watcher_nodes"] * (
        version != "8.5.0"
    )


WATCH = {"dump_path": ".", "dump_scene": "watcher", "dump_mode": "output"}


@pytest.mark.each("version", PROFILES)
@pytest.mark.each(
    ("dump", "warnings"),
    [
        (WATCH, ["dump_list: no member names watcher_nodes, so nothing is watched; write "]),
        (WATCH | {"dump_list": []}, ["dump_list: no member names watcher_nodes"]),
        (WATCH | {"dump_list": [{"watcher_nodes": ["c"]}]}, []),  # looked at after every operator
        (WATCH | {"dump_list": [{"layer": ["a"], "watcher_nodes": ["c"]}]}, []),
        (
            {"dump_path": ".", "dump_list": [{"layer": ["", "a", ""]}]},
            ["dump_list[0].layer[0]: empty, which is no", "dump_list[0].layer[2]: empty, which is no"],
        ),
        (
            {"dump_path": ".", "dump_level": "op"}
            | {
                "dump_list": [
                    {"model_name": "m", "opname_blacklist": [{"pos": []}, {"name": ""}, {"name": "a"}]}
                ]
            },
            [
                'dump_level: "op" switches',
                "dump_list[0].opname_blacklist[0].name: missing or empty, so that nothing is left out",
                "dump_list[0].opname_blacklist[1].name: missing or empty",
            ],
        ),
    ],
)
def test_what_selects_nothing_is_said(dump: Any, warnings: list[str], version: str, tmp_path: Path) -> None:
    verdict = check(dump, tmp_path, version=version)
    assert verdict.accepted
    assert len(verdict.warnings) == len(warnings), verdict.warnings
    assert all(map(str.startswith, verdict.warnings, warnings)), verdict.warnings


def test_an_empty_name_among_watched_nodes_is_said(tmp_path: Path) -> None:
    dump = WATCH | {"dump_list": [{"layer": ["a"], "watcher_nodes": ["c", ""]}]}
    (warning,) = check(dump, tmp_path).warnings
    assert warning.startswith("dump_list[0].watcher_nodes[1]: empty")


def test_a_version_that_is_none_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"9\.1\.0"):
        validate(b"{}", version="latest")


@pytest.mark.each("item", [{"model_name": []}, {"opname_blacklist": [{"pos": [1]}]}, 5, {"layer": 1}])
def test_8_5_looks_into_no_watchers_list(item: Any, tmp_path: Path) -> None:
    dump = {"dump_scene": "watcher", "dump_mode": "output", "dump_path": ".", "dump_list": [item]}
    assert check(dump, tmp_path, version="8.5.0").accepted
    assert not check(dump, tmp_path, version="9.0.0").accepted


def test_a_value_of_any_depth_can_be_shown(tmp_path: Path) -> None:
    for depth in (100, 400, 900):
        text = b'{"dump": {"dump_path": ' + b"[" * depth + b"]" * depth + b"}}"
        verdict = validate(text, cwd=tmp_path, environ={})
        assert not verdict.accepted
        assert len(verdict.message) < 400


def test_a_flood_of_mistakes_is_cut(tmp_path: Path) -> None:
    wrong = check({"dump_list": [{"layer": [1] * 5000}]}, tmp_path)
    assert len(wrong.reasons) == MOST_REASONS
    unknown = check({"dump_path": ".", "dump_op_switch": "on"} | {f"x{n}": 1 for n in range(5000)}, tmp_path)
    assert unknown.warnings[-1] == "dump: 4980 more unknown keys, ignored"


@pytest.mark.each(
    "item", [{"model_name": "m"}, {"layr": 1}, {"opname_blacklist": [{"pos": ["in"] * 99}]}, {"layer": []}]
)
def test_a_flood_of_warnings_is_cut(item: Any, tmp_path: Path) -> None:
    dump = {"dump_path": ".", "dump_op_switch": "on", "dump_level": "op", "dump_list": [item] * 200}
    verdict = check(dump, tmp_path)
    assert verdict.accepted
    assert len(verdict.warnings) < 3 * MOST_REASONS
    assert any("more warnings of this kind, not listed" in text for text in verdict.warnings)


def test_nesting_without_end_is_refused(tmp_path: Path) -> None:
    verdict = validate(b'{"dump":' * 100_000, cwd=tmp_path, environ={})
    assert (verdict.accepted, verdict.reason_code) == (False, "EP0004")


KEYS = st.sampled_from(
    [
        *(
            [
                *("dump_path", "dump_mode", "dump_op_switch", "dump_level", "dump_scene", "dump_data"),
                *("dump_debug", "dump_kernel_data"),
            ]
        ),
        *(
            [
                *("dump_step", "dump_stats", "dump_list", "model_name", "layer", "watcher_nodes"),
                *("optype_blacklist", "opname_blacklist"),
            ]
        ),
        *(["opname_range", "name", "pos", "begin", "end", "x"]),
    ]
)
WORDS = st.sampled_from(
    ["", "on", "off", "op", "all", "output", "watcher", "lite_exception", "stats", "Max", ".", "1|2"]
)
VALUES = st.recursive(
    WORDS | st.none() | st.integers() | st.booleans(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=20,
)


@settings(max_examples=80)
@given(st.dictionaries(KEYS, VALUES, max_size=6) | VALUES, st.sampled_from(PROFILES))
def test_any_json_gets_a_verdict(dump: Any, version: str) -> None:
    verdict = validate(json.dumps({"dump": dump}).encode(), version=version, environ={})
    assert verdict.accepted is not bool(verdict.reasons)
    assert (verdict.code == 100009) is not verdict.accepted
    assert verdict.need_dump is bool(verdict.dump_type)
    json.dumps(verdict.to_json())
