from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, strategies as st

from pytest_npudump.config.mindspore import DEVICES, validate
from pytest_npudump.config.rule_table import MOST_REASONS, CheckerVerdict

COMMON = {
    "dump_mode": 0,
    "path": "/var/d",
    "net_name": "Net",
    "iteration": "all",
    "input_output": 0,
    "kernels": [],
    "support_device": [0],
    "op_debug_mode": 0,
}


def check(
    common: dict[str, Any], e2e: dict[str, Any] | None = None, device: str = "CPU", **options: Any
) -> CheckerVerdict:
    root = {
        "common_dump_settings": {**COMMON, **common},
        "e2e_dump_settings": {"enable": True} if e2e is None else e2e,
    }
    return validate(json.dumps(root).encode(), device=device, environ={}, **options)


# Observed with MindSpore 2.10.0 on CPU.
@pytest.mark.each(
    ("common", "accepted"),
    [
        ({"dump_mode": 1, "kernels": ["name-regex((]"]}, True),
        ({"dump_mode": 1, "kernels": ["name-regex(*)"]}, False),
        ({"dump_mode": 1, "kernels": [1, 2]}, True),
        ({"dump_mode": 2}, False),
        ({"dump_mode": 4294967296}, True),
        ({"saved_data": "statistic"}, False),
        ({"saved_data": "statistic", "op_debug_mode": 4}, True),
        ({"iteration": "2-1"}, True),
        ({"iteration": "1-2-3"}, True),
        ({"iteration": "99999999999999999999"}, True),
        ({"iteration": ""}, False),
        ({"iteration": "ALL"}, False),
        ({"iteration": "0 | 2"}, False),
        ({"iteration": 0}, False),
        ({"support_device": []}, True),
        ({"op_debug_mode": 5}, False),
        ({"overflow_number": 1}, False),
        ({"overflow_number": 1, "op_debug_mode": 1}, True),
        ({"initial_iteration": 10}, True),
        ({"net_name": "a.b"}, False),
        ({"path": "/var/a b"}, False),
        ({"unknown": 1}, True),
    ],
)
def test_answers_as_observed_on_cpu(common: dict[str, Any], *, accepted: bool) -> None:
    assert check(common).accepted is accepted


@pytest.mark.each("value", [-1, 1.0, True, "0", None, []])
def test_only_an_unsigned_integer_is_a_mode(value: Any) -> None:
    for key in ("dump_mode", "input_output", "op_debug_mode"):
        verdict = check({key: value})
        assert f"common_dump_settings.{key}" in verdict.message


def test_a_regular_expression_beyond_the_plain_ones_is_neither_good_nor_refused() -> None:
    taken = [
        *("", ".*fc1.*", "Default/.*-op[0-9]+", "a*?", "(a)+", "[a-z_./]", "[^a]x", "a||b", "()", "é+"),
        "a b",
    ]
    taken += ["", "a+?b|c(d|e)*", "[A-Za-z0-9_]", "[ab/]"]
    refused = ["*", "+a", "?", "a|*", "(*)", "(", "(a", "a)", "[z-a]", "(|+)"]
    unknown = ["a**", "[]", "[^]", "a{2}", "{2}", "(?:)", "(?=a)b", "(?<=a)", "(?P<n>a)", "^a", "a$"]
    unknown += [
        *("[a", "a{", "[[:alpha:]]", "[[.a.]]", "]", "}", "a++", "[--a]", "[-a]", "(?", "(a(b)c)[", "a???")
    ]
    for accepted, expressions in ((True, taken), (False, refused), (None, unknown)):
        for expression in expressions:
            kernels = {"dump_mode": 1, "kernels": [f"name-regex({expression})"]}
            verdict = check(kernels)
            assert verdict.accepted is accepted, expression
            assert ("cannot be checked here" in verdict.message) is (accepted is None), expression
            assert not verdict.need_dump or accepted
            assert check(kernels | {"dump_mode": 0}).accepted
            assert check(kernels | {"net_name": "a.b"}).accepted is False


def test_text_after_the_value_is_not_looked_at() -> None:
    text = json.dumps({"common_dump_settings": COMMON, "e2e_dump_settings": {}}) + " and more"
    assert validate(text.encode(), environ={}).accepted


@pytest.mark.each(("version", "accepted"), [((2, 7), False), ((2, 10), True)])
def test_hashes_are_statistics_since_2_10(version: tuple[int, int], *, accepted: bool) -> None:
    common = {"saved_data": "statistic", "statistic_category": ["max", "hash:sha1"]}
    assert check(common, device="Ascend", version=version).accepted is accepted


@pytest.mark.each(
    ("common", "e2e", "device", "warning"),
    [
        ({}, {"enable": False}, "Ascend", "does not switch the dump off"),
        ({"iteration": "2-1|3"}, None, "CPU", '"2-1" matches no iteration'),
        ({"kernels": ["a"]}, None, "CPU", 'read only with "dump_mode": 1'),
        ({"dump_mode": 1}, None, "CPU", "every kernel is dumped"),
        ({"dump_mode": 1, "kernels": ["x\\d"]}, None, "CPU", "a backslash is read as two"),
        ({"op_debug_mode": 1}, None, "CPU", "1 is read as 3"),
        ({"op_debug_mode": 3, "input_output": 1}, None, "CPU", "1 is read as 0"),
        ({"op_debug_mode": 4}, None, "CPU", "saves no operator data on CPU"),
        ({"support_device": []}, None, "Ascend", "no device dumps anything"),
        ({}, {"sample_num": 3}, "CPU", "sample_num: read only"),
        ({}, {"stat_calc_mode": "device"}, "Ascend", 'read as "host"'),
        ({"statistic_category": ["x"]}, None, "CPU", "read only with"),
        ({"save_data": "full"}, None, "CPU", "saved_data was meant?"),
    ],
)
def test_what_is_taken_without_effect_is_said(
    common: dict[str, Any], e2e: dict[str, Any] | None, device: str, warning: str
) -> None:
    verdict = check(common, e2e, device)
    assert verdict.accepted
    assert [text for text in verdict.warnings if warning in text], verdict.warnings


def test_without_e2e_settings_ascend_dumps_nothing_and_cpu_all_the_same() -> None:
    text = json.dumps({"common_dump_settings": COMMON}).encode()
    for device, written in (("Ascend", False), ("CPU", True)):
        verdict = validate(text, device=device, environ={})
        assert (verdict.accepted, verdict.need_dump) == (True, written)
        assert any("waits 3 s" in warning for warning in verdict.warnings)


@pytest.mark.each(("device", "written"), [("Ascend", False), ("GPU", False), ("CPU", True)])
def test_a_dump_for_no_device_writes_nothing_but_on_cpu(device: str, *, written: bool) -> None:
    verdict = check({"support_device": []}, None, device)
    assert verdict.accepted
    assert verdict.need_dump is written
    assert verdict.dump_type == ("sync" if written else "")


@pytest.mark.each(
    ("common", "e2e"),
    [
        ({"dump_mode": 1, "kernels": [f"a\\{n}" for n in range(1_000)]}, None),
        ({"iteration": "2-1|" * 1_000}, None),
        ({f"x{n}": 1 for n in range(1_000)}, None),
        (
            {"saved_data": "statistic", "statistic_category": ["md5"] * 1_000},
            {"enable": True, "stat_calc_mode": "device"},
        ),
    ],
)
def test_a_flood_of_warnings_is_cut(common: dict[str, Any], e2e: dict[str, Any] | None) -> None:
    verdict = check(common, e2e, "Ascend")
    assert verdict.accepted
    assert 0 < len(verdict.warnings) < 3 * MOST_REASONS


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from(["", "all", "/d", "x", "host", "statistic", "max"]),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=4,
)


@given(
    st.fixed_dictionaries(
        {}, optional=dict.fromkeys(COMMON, VALUES) | {"saved_data": VALUES, "statistic_category": VALUES}
    ),
    st.none()
    | st.dictionaries(st.sampled_from(["enable", "sample_mode", "sample_num", "stat_calc_mode"]), VALUES),
    st.sampled_from(DEVICES),
)
def test_any_settings_get_a_verdict(common: dict[str, Any], e2e: dict[str, Any] | None, device: str) -> None:
    verdict = check(common, e2e, device)
    assert verdict.accepted is not bool(verdict.reasons)
