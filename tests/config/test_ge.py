from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, strategies as st

from pytest_npudump.config.ge import validate
from pytest_npudump.config.rule_table import CheckerVerdict


def check(dump: Any) -> CheckerVerdict:
    return validate(json.dumps({"dump": dump}).encode())


# Read in dump_callback.cc: a wrong type counts only where the value is used.
@pytest.mark.each(
    ("dump", "accepted"),
    [
        (5, False),
        (None, False),
        ({"dump_path": 5}, False),
        ({"dump_path": "/d", "dump_list": 5}, True),
        ({"dump_path": "/d", "dump_list": [5, {}], "dump_op_switch": "maybe"}, True),
        ({"dump_path": "/d", "dump_list": [{"x": 1}], "dump_op_switch": "maybe"}, False),
        ({"dump_path": "/d", "dump_list": [{"layer": "conv1"}]}, True),
        ({"dump_path": "/d", "dump_list": [{"layer": [1]}]}, False),
        ({"dump_path": "/d", "dump_list": [{"opname_blacklist": [{"pos": "input0"}]}]}, False),
        ({"dump_scene": "watcher", "dump_list": [{"opname_blacklist": [{"pos": "input0"}]}]}, True),
        ({"dump_scene": "watcher", "dump_list": [{"model_name": "", "layer": [1]}]}, True),
        ({"dump_scene": "watcher", "dump_list": [{"model_name": 1, "layer": []}]}, False),
        ({"dump_scene": "watcher", "dump_mode": "all"}, False),
        ({"dump_scene": "lite_exception", "dump_mode": "bogus"}, True),
        ({"dump_scene": "lite_exception", "dump_status": 1}, False),
        ({"dump_path": "/d", "dump_debug": "ON"}, True),
        ({"dump_path": "/d", "dump_debug": "on", "dump_list": []}, True),
        ({"dump_path": "/d", "dump_debug": "on", "dump_list": [1]}, False),
        ({"dump_path": "/d", "dump_debug": "on", "dump_op_switch": "on"}, True),
        ({"dump_path": "/d", "dump_data": "bogus"}, True),
        ({"dump_path": "/d", "dump_step": "1-2-"}, True),
        ({"dump_path": "/d", "dump_step": "||-|-5"}, True),
        ({"dump_path": "/d", "dump_level": "op", "dump_list": [{"opname_range": [{"begin": "a"}]}]}, True),
        (
            {
                "dump_path": "/d",
                "dump_level": "op",
                "dump_list": [{"opname_range": [{"begin": "a", "end": ""}]}],
            },
            False,
        ),
        ({"dump_path": "1.2.3.4:"}, True),
    ],
)
def test_answers_as_the_source_does(dump: Any, *, accepted: bool) -> None:
    assert check(dump).accepted is accepted


@pytest.mark.each(
    ("text", "accepted"), [(b"{}", True), (b"null", True), (b"[]", False), (b"1", False), (b"", False)]
)
def test_a_text_without_dump(text: bytes, *, accepted: bool) -> None:
    assert validate(text).accepted is accepted


@pytest.mark.each(
    ("dump", "need_dump"),
    [
        ({"dump_path": "/d"}, False),
        ({"dump_path": "/d", "dump_list": []}, True),
        ({"dump_path": "/d", "dump_list": [{}]}, True),
        ({"dump_path": "/d", "dump_list": [{"layer": []}]}, False),
        ({"dump_path": "/d", "dump_op_switch": "on"}, True),
        ({"dump_scene": "lite_exception"}, True),
    ],
)
def test_what_is_switched_on(dump: Any, *, need_dump: bool) -> None:
    assert check(dump).need_dump is need_dump


JSON = st.recursive(
    st.none() | st.integers() | st.sampled_from(["", "on", "op", "/d", "watcher"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["dump_path", "dump_list", "dump_scene", "layer", "opname_range", "begin", "end", "pos"]
            ),
            inner,
        )
    ),
)


@given(JSON)
def test_any_json_gets_a_verdict(dump: Any) -> None:
    verdict = check(dump)
    assert verdict.accepted is not bool(verdict.reasons)
