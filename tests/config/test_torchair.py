from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given, strategies as st

from pytest_npudump.config.rule_table import MOST_REASONS
from pytest_npudump.config.torchair import OPTIONS, validate, validate_options

# The expressions that TorchAir itself uses; the first takes exponential time, so the strings stay short.
THEIR_STEP = r"^(((\d+)|(\d+-{0,1}\d+))\|{0,1})*$"
THEIR_LAYER = r'^[0-9a-zA-Z_" "/\\.]*$'


@given(st.text("0123-|\n", max_size=9))
def test_dump_step_takes_what_torchairs_expression_takes(step: str) -> None:
    assert validate_options({"dump_step": step}).accepted is bool(re.match(THEIR_STEP, step))


@given(st.text('aZ_9 "/\\.|-\n', max_size=6))
def test_dump_layer_takes_what_torchairs_expression_takes(layer: str) -> None:
    assert validate_options({"dump_layer": layer}).accepted is bool(re.match(THEIR_LAYER, layer))


def test_a_step_that_would_keep_torchair_busy_for_years_is_answered() -> None:
    assert not validate_options({"dump_step": "1" * 100_000 + "x"}).accepted
    assert not validate_options({"dump_step": "11-11" * 20_000 + "-"}).accepted


@pytest.mark.each(
    ("options", "named"),
    [
        ({"dumpmode": "all"}, 'write "dump_mode"'),
        ({"enable_dump": "true"}, "write true or false"),
        ({"enable_dump": None}, "write true or false"),
        ({"dump_mode": "inputs"}, 'write "input"'),
        ({"dump_path": None}, "FileNotFoundError"),
        ({"dump_path": 0}, "write it as a string"),
        ({"dump_config_path": True}, "write it as a string"),
        ({"dump_step": 3}, "TypeError"),
        ({"dump_step": None}, "TypeError"),
        ({"dump_layer": ["Add"]}, "TypeError"),
    ],
)
def test_a_refusal_names_the_option_and_the_way_out(options: dict[str, Any], named: str) -> None:
    verdict = validate_options(options)
    assert not verdict.accepted
    assert verdict.reasons[0].item == next(iter(options))
    assert named in verdict.message


@pytest.mark.each("options", [{"enable_dump": 1}, {"quant_dumpable": 0.0}, {"dump_config_path": None}])
def test_what_python_finds_equal_to_a_choice_is_taken(options: dict[str, Any]) -> None:
    assert validate_options(options).accepted


@pytest.mark.each("text", [b"[]", b"1", b"{", b""])
def test_what_is_no_object_is_refused(text: bytes) -> None:
    assert not validate(text).accepted


@pytest.mark.each(
    ("options", "warning"),
    [
        ({}, "nothing is dumped"),
        ({"enable_dump": True, "dump_mode": "all", "quant_dumpable": True}, "quant_dumpable: lost"),
        ({"enable_dump": True, "dump_mode": "all", "dump_step": "5-3"}, "dump_step[0]"),
        ({"enable_dump": True, "dump_mode": "all", "dump_step": "1|"}, "aclmdlSetDump refuses it"),
        ({"enable_dump": True, "dump_mode": "all", "dump_step": "1\n"}, "ends in a line end"),
        ({"enable_dump": True}, "dump_mode"),
    ],
)
def test_what_is_lost_behind_torchair_is_said(options: dict[str, Any], warning: str) -> None:
    verdict = validate_options(options)
    assert verdict.accepted
    assert [text for text in verdict.warnings if warning in text]


def test_a_flood_of_mistakes_is_cut() -> None:
    assert len(validate_options({f"dump_mode{n}": 1 for n in range(5000)}).reasons) == MOST_REASONS
    verdict = validate_options({"dump_step": "|".join(["2-1"] * 99)})
    assert verdict.accepted
    assert len(verdict.warnings) < 2 * MOST_REASONS


@given(
    st.dictionaries(st.sampled_from([*OPTIONS, "x"]), st.none() | st.booleans() | st.integers() | st.text())
)
def test_any_object_gets_a_verdict(options: dict[str, Any]) -> None:
    text = json.dumps(options).encode()
    verdict = validate(text)
    assert verdict.accepted is not bool(verdict.reasons)
