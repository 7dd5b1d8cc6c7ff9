"""The data_dump.json of a request, against MindSpore's parser rules, and what is refused with a way out."""

from __future__ import annotations

import json
import re
import stat
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from pytest_npudump.config import data_dump
from pytest_npudump.config.data_dump import (
    check_request,
    data_dump_settings,
    kernels_of,
    version_of,
    write_data_dump,
)
from pytest_npudump.config.mindspore import validate
from pytest_npudump.dump.records import sanitise
from pytest_npudump.errors import ConfigError
from pytest_npudump.plugin.marker import ACL_JSON, check_combination, parse_marker
from pytest_npudump.request import DumpRequest, RunRequest

NEWEST = (2, 10)
DUMP = Path("/var/dump")


def request_of(**arguments: Any) -> DumpRequest:
    keys = {name: arguments.pop(name) for name in [*arguments] if name in ACL_JSON}
    request = parse_marker((), {**arguments, "acl_json": keys}, DumpRequest())
    check_combination(request)
    return request


def settings_of(**arguments: Any) -> dict[str, Any]:
    return data_dump_settings(RunRequest(request_of(**arguments), DUMP))


def common_of(**arguments: Any) -> dict[str, Any]:
    common: dict[str, Any] = settings_of(**arguments)["common_dump_settings"]
    return common


def test_default_dumps_all_outputs_of_all_runs_as_tensors() -> None:
    assert settings_of() == {
        "common_dump_settings": {
            "dump_mode": 0,
            "path": "/var/dump",
            "net_name": "net",
            "iteration": "all",
            "input_output": 2,
            "kernels": [],
            "support_device": list(range(16)),
            "op_debug_mode": 0,
            "saved_data": "tensor",
        },
        "e2e_dump_settings": {"enable": True, "trans_flag": True},
    }


@pytest.mark.each(
    ("arguments", "keys"),
    [
        ({"dump_mode": "input"}, {"input_output": 1}),
        ({"dump_mode": "all"}, {"input_output": 0}),
        ({"dump_step": "0|2-5"}, {"iteration": "0|2-5"}),
        ({"layers": "Default/a-op0"}, {"dump_mode": 1, "kernels": ["Default/a-op0"]}),
        ({"layers": "[ab]*"}, {"dump_mode": 0, "kernels": []}),
        ({"scene": "overflow"}, {"op_debug_mode": 3, "input_output": 0}),
        (
            {"scene": "overflow", "data_dump": {"overflow_number": 5}},
            {"op_debug_mode": 3, "overflow_number": 5},
        ),
        (
            {"dump_data": "stats", "dump_stats": ["Nan", "L2norm"]},
            {"saved_data": "statistic", "statistic_category": ["nan count", "l2norm"]},
        ),
        (
            {"data_dump": {"saved_data": "full", "initial_iteration": 5, "support_device": [3]}},
            {"saved_data": "full", "initial_iteration": 5, "support_device": [3]},
        ),
    ],
)
def test_arguments_become_mindspore_s_keys(arguments: dict[str, Any], keys: dict[str, Any]) -> None:
    common = common_of(**arguments)
    assert {key: common[key] for key in keys} == keys
    check_request(request_of(**arguments))


def test_statistics_have_every_category_that_is_compared() -> None:
    expected = ["max", "min", "avg", "nan count", "negative inf count", "positive inf count", "l2norm"]
    assert common_of(dump_data="stats")["statistic_category"] == expected
    assert common_of(data_dump={"saved_data": "full"})["statistic_category"] == expected


def test_keys_of_the_synchronous_dump_go_to_its_section() -> None:
    told = {"enable": False, "sample_mode": 1, "sample_num": 9}
    settings = settings_of(data_dump=told)
    assert settings["e2e_dump_settings"] == {"trans_flag": True, **told}
    assert "sample_mode" not in settings["common_dump_settings"]


def test_second_run_dumps_tensors_of_the_layers_given_whatever_the_first_one_dumped() -> None:
    request = request_of(
        layers=["*"], dump_data="stats", dump_stats=["Max"], data_dump={"stat_calc_mode": "device"}
    )
    settings = data_dump_settings(RunRequest(request, DUMP, ("Default/b-op1",), "tensor"))
    common = settings["common_dump_settings"]
    assert (common["kernels"], common["saved_data"]) == (["Default/b-op1"], "tensor")
    assert "statistic_category" not in common
    full = request_of(data_dump={"saved_data": "full"})
    again = data_dump_settings(RunRequest(full, DUMP, (), "tensor"))["common_dump_settings"]
    assert (again["kernels"], again["dump_mode"], again["saved_data"]) == ([], 0, "tensor")


@pytest.mark.each("device", ["Ascend", "GPU", "CPU"])
def test_what_is_accepted_is_accepted_by_the_parser_and_switches_a_synchronous_dump_on(device: str) -> None:
    for arguments in ({}, {"layers": ["*conv*", "a/b-op0"]}, {"dump_step": "3"}, {"dump_mode": "all"}):
        check_request(request_of(**arguments), device=device)
        verdict = validate(json.dumps(settings_of(**arguments)).encode(), device=device, environ={})
        assert verdict.accepted, verdict.message
        assert (verdict.need_dump, verdict.dump_type, verdict.warnings) == (True, "sync", ())


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"model_name": "m"}, "model_name: not with MindSpore: * select with layers"),
    ({"dump_level": "kernel"}, "dump_level: not with MindSpore*leave it out"),
    ({"dump_kernel_data": "printf"}, "dump_kernel_data: not with MindSpore*"),
    (
        {"dump_level": "op", "optype_blacklist": [{"name": "a", "pos": ["input0"]}]},
        "*optype_blacklist: not with MindSpore*",
    ),
    (
        {"scene": "exception", "dump_scene": "aic_err_norm_dump"},
        "dump_scene: not with MindSpore: it has one kind of exception dump*",
    ),
    (
        {"scene": "watcher", "layers": ["a"], "watcher_nodes": ["b"]},
        "watcher_nodes: not with MindSpore: it has no watcher; run the model's .om *",
    ),
    ({"dump_stats": ["Max"]}, "dump_stats: MindSpore dumps tensors unless dump_data is 'stats', and*"),
    (
        {"dump_step": "5-2"},
        "MindSpore 2.10 would take this dump and ignore part of it: *matches no iteration",
    ),
    ({"dump_step": "1-2-3"}, "*matches no iteration"),
    (
        {"dump_step": "all|1"},
        'MindSpore 2.10 refuses this dump: *iteration: "all|1" is refused; write "all"*',
    ),
    ({"data_dump": {"path": "/x"}}, "data_dump['path']: not here: the plugin chooses it; --npudump-output*"),
    ({"data_dump": {"kernels": []}}, "data_dump['kernels']: not here: use layers"),
    ({"data_dump": {"iteration": "0"}}, "data_dump['iteration']: not here: use dump_step"),
    ({"data_dump": {"dump_mode": 0}}, "data_dump['dump_mode']: not here: use layers, or 2 *"),
    ({"data_dump": {"op_debug_mode": 3}}, "data_dump['op_debug_mode']: not here: use scene='overflow'*"),
    (
        {"data_dump": {"smaple_mode": 1}},
        "data_dump['smaple_mode']: MindSpore ignores this key*\"sample_mode\"",
    ),
    ({"data_dump": {"saved_data": "tensor"}}, "data_dump['saved_data']: only 'full' here*"),
    (
        {"dump_data": "tensor", "data_dump": {"saved_data": "full"}},
        "data_dump['saved_data']: dump_data says*",
    ),
    ({"data_dump": {"sample_mode": 2}}, "MindSpore 2.10 refuses this dump: e2e_dump_settings.sample_mode: *"),
    ({"data_dump": {"overflow_number": 3}}, "*overflow_number: allowed only where op_debug_mode is 3*"),
    ({"data_dump": {"net_name": "a.b"}}, '*net_name: "a.b" is not made of letters*'),
    (
        {"dump_data": "stats", "data_dump": {"statistic_category": ["mode"]}},
        '*statistic_category[0]: "mode" is unknown*',
    ),
]


@pytest.mark.each(("arguments", "message"), REFUSED)
def test_what_mindspore_would_refuse_or_ignore_is_refused_with_the_way_out(
    arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        check_request(request_of(**arguments))
    assert fnmatchcase(str(caught.value), message.replace("[", "[[]")), caught.value


@pytest.mark.each(
    ("arguments", "device", "message"),
    [
        ({"dump_data": "stats"}, "CPU", "dump_data='stats': MindSpore writes no statistics on CPU*"),
        ({"data_dump": {"saved_data": "full"}}, "CPU", "*MindSpore writes no statistics on CPU*saved_data*"),
        ({"scene": "op"}, "CPU", "scene='op': not with MindSpore on CPU: only aclop kernels*"),
        ({"scene": "exception"}, "CPU", "scene='exception': not with MindSpore on CPU: op_debug_mode=4 *"),
        ({"data_dump": {"dump_mode": 2}}, "CPU", "*2 (mindspore.set_dump) works on Ascend only, not on CPU*"),
        ({"scene": "overflow"}, "GPU", "scene='overflow': not with MindSpore on GPU: op_debug_mode=3 *"),
    ],
)
def test_what_only_ascend_can_do_is_refused_elsewhere(
    arguments: dict[str, Any], device: str, message: str
) -> None:
    check_request(request_of(**arguments))
    with pytest.raises(ConfigError) as caught:
        check_request(request_of(**arguments), device=device)
    assert fnmatchcase(str(caught.value), message.replace("[", "[[]")), caught.value


@pytest.mark.each(
    ("key", "value", "since"),
    [
        ("initial_iteration", 1, (2, 6)),
        ("overflow_number", 1, (2, 4)),
        ("device_stat_precision_mode", "low", (2, 4)),
        ("sample_mode", 1, (2, 3)),
        ("save_kernel_args", True, (2, 3)),
    ],
)
def test_a_key_is_refused_by_versions_that_would_ignore_it(
    key: str, value: object, since: tuple[int, int]
) -> None:
    scene = "overflow" if key == "overflow_number" else "model"
    request = request_of(scene=scene, data_dump={key: value})
    check_request(request, version=since)
    older = (since[0], since[1] - 1)
    with pytest.raises(ConfigError, match=rf"'{key}'\]: MindSpore 2\.{older[1]} ignores this key"):
        check_request(request, version=older)


def test_cells_that_a_test_names_are_dumped_in_every_run_and_no_kernels_are_named() -> None:
    request = request_of(layers=["Default/a-op0"], data_dump={"dump_mode": 2})
    for run in (RunRequest(request, DUMP), RunRequest(request, DUMP, "tensor", ("Default/a-op0",))):
        common = data_dump_settings(run)["common_dump_settings"]
        assert (common["dump_mode"], common["kernels"]) == (2, [])


def test_hashes_came_with_2_10() -> None:
    request = request_of(dump_data="stats", data_dump={"statistic_category": ["max", "hash:sha1"]})
    check_request(request, version=(2, 10))
    with pytest.raises(ConfigError, match="hash:sha1"):
        check_request(request, version=(2, 9))


def test_versions_without_expressions_take_full_names_only() -> None:
    assert kernels_of(["Default/a-op0", "MatMul-op9"], version=(2, 2)) == ["Default/a-op0", "MatMul-op9"]
    assert kernels_of(["Default/*"], version=(2, 2)) == kernels_of(["fc1.weight"], version=(2, 2)) == []
    old = data_dump_settings(RunRequest(request_of(dump_data="stats"), DUMP), version=(2, 2))
    assert "statistic_category" not in old["common_dump_settings"]
    told = {"2.10.0": (2, 10), "2.7.0rc1": (2, 7), "2.3.0.dev20240101": (2, 3), "main": NEWEST, "": NEWEST}
    assert {text: version_of(text) for text in told} == told


@pytest.mark.each(
    ("name", "kernel"),
    [
        ("Default/fc1-Dense/MatMul-op0", "Default/fc1-Dense/MatMul-op0"),
        ("Default_fc1-Dense_MatMul-op0", "name-regex(Default.fc1-Dense.MatMul-op0)"),
        ("fc1.weight", "name-regex(fc1.weight)"),
        ("fc1_weight", "name-regex(fc1.weight)"),
        ("Default/*/MatMul-op?", "name-regex(Default..*.MatMul-op.)"),
        ('a b"(c)\\d+', "name-regex(a.b..c..d.)"),
        ("é", "name-regex(.)"),
    ],
)
def test_a_layer_becomes_a_kernel(name: str, kernel: str) -> None:
    assert kernels_of([name, name], version=NEWEST) == [kernel]


NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\n\r\u2028\u2029"), min_size=1, max_size=12)


@given(NAMES)
def test_a_kernel_selects_its_own_name_raw_and_as_in_files(name: str) -> None:
    for spelling in (name, sanitise(name)):
        (kernel,) = kernels_of([spelling], version=NEWEST) or ["name-regex(.*)"]
        expression = re.fullmatch(r"name-regex\((.*)\)", kernel)
        if expression is None:
            assert kernel == name
        else:
            assert "\\" not in expression[1]
            assert re.fullmatch(expression[1], name)


@given(NAMES, NAMES)
def test_a_glob_selects_whatever_the_glob_matches(prefix: str, rest: str) -> None:
    pattern = prefix + "*"
    kernels = kernels_of([pattern], version=NEWEST)
    if fnmatchcase(prefix + rest, pattern) and kernels:
        expression = re.fullmatch(r"name-regex\((.*)\)", kernels[0])
        assert expression is not None
        assert re.fullmatch(expression[1], prefix + rest)


@given(st.lists(NAMES, max_size=3))
def test_any_layers_make_a_file_that_mindspore_takes(layers: list[str]) -> None:
    settings = data_dump_settings(RunRequest(DumpRequest(layers=tuple(layers)), DUMP))
    assert validate(json.dumps(settings).encode(), device="CPU", environ={}).accepted


def test_the_file_is_private_and_a_path_mindspore_refuses_is_never_written(tmp_path: Path) -> None:
    path = tmp_path / "data_dump.json"
    settings = settings_of()
    write_data_dump(path, settings, device="CPU", version=NEWEST)
    assert json.loads(path.read_text()) == settings
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    for dump_path in ("/var/a.b", "/var/a b", "relative", "/var/\u00e9"):
        refused = data_dump_settings(RunRequest(DumpRequest(), Path(dump_path)))
        with pytest.raises(ConfigError, match=r"path: .*--npudump-output"):
            write_data_dump(tmp_path / "other.json", refused, device="CPU", version=NEWEST)
    assert not (tmp_path / "other.json").exists()


def test_rules_are_those_of_the_installed_mindspore(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_dump.metadata, "version", lambda _: "2.7.2")
    assert data_dump.rules_version() == (2, 7)
    monkeypatch.undo()

    def absent(name: str) -> str:
        raise data_dump.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(data_dump.metadata, "version", absent)
    assert data_dump.rules_version() == NEWEST
