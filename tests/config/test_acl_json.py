"""What a request writes is what CANN's checkers accept, for the first run and for the second."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from pytest_npudump.config import adump, ge
from pytest_npudump.config.acl_json import check_request, dump_section, request_warnings, write_acl_json
from pytest_npudump.errors import ConfigError, RequestError
from pytest_npudump.plugin.marker import ACL_JSON, check_combination, parse_marker
from pytest_npudump.request import DumpRequest, RunRequest
from pytest_npudump.runtime.acl import AclJson

VERSIONS = ("8.5.0", "9.0.0", "9.1.0")
RANGE = [{"begin": "a", "end": "b"}]
REQUESTS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {"dump_mode": "output", "dump_data": "stats", "dump_list": [{}]}),
    ({"layers": ["a/b", "c"]}, {"dump_list": [{"layer": ["a/b", "c"]}]}),
    ({"layers": ["a/b", "c*"]}, {"dump_list": [{}]}),
    ({"dump_mode": "all", "dump_step": "0|2-5"}, {"dump_mode": "all", "dump_step": "0|2-5"}),
    ({"dump_stats": ["Max", "L2norm"]}, {"dump_stats": ["Max", "L2norm"]}),
    ({"dump_data": "tensor"}, {"dump_data": "tensor"}),
    ({"model_name": "m", "layers": "a"}, {"dump_list": [{"model_name": "m", "layer": ["a"]}]}),
    (
        {"model_name": "m", "dump_level": "op", "opname_range": RANGE},
        {"dump_level": "op", "dump_list": [{"model_name": "m", "opname_range": RANGE}]},
    ),
    (
        {"dump_level": "op", "optype_blacklist": [{"name": "Cast", "pos": ["output0"]}]},
        {"dump_list": [{"optype_blacklist": [{"name": "Cast", "pos": ["output0"]}]}]},
    ),
    ({"scene": "op", "dump_mode": "all"}, {"dump_op_switch": "on", "dump_mode": "all"}),
]


def request(arguments: dict[str, Any]) -> DumpRequest:
    keys = {name: value for name, value in arguments.items() if name in ACL_JSON}
    others = {name: value for name, value in arguments.items() if name not in ACL_JSON}
    parsed = parse_marker((), {**others, "acl_json": keys}, DumpRequest())
    check_combination(parsed)
    return parsed


def verdicts(section: dict[str, Any], cwd: Path, version: str) -> tuple[bool, bool, str]:
    verdict = adump.validate(json.dumps({"dump": section}).encode(), version=version, cwd=cwd, environ={})
    return verdict.accepted, verdict.need_dump, verdict.message


@pytest.mark.each(("arguments", "expected"), REQUESTS)
def test_section_says_what_was_asked_for_under_cann_s_names_and_is_accepted(
    tmp_path: Path, arguments: dict[str, Any], expected: dict[str, Any]
) -> None:
    """By adump, which switches a dump on, and by the graph engine behind it."""
    wanted = request(arguments)
    section = dump_section(RunRequest(wanted, tmp_path))
    assert section["dump_path"] == str(tmp_path)
    assert {key: section[key] for key in expected} == expected
    assert ge.validate_dump(section).accepted, ge.validate_dump(section).message
    newer = {"optype_blacklist", "opname_range"} & {*arguments} or "L2norm" in arguments.get("dump_stats", ())
    for version in VERSIONS:
        try:
            check_request(wanted, version=version, cwd=tmp_path)
        except ConfigError:
            assert newer, "only keys that came with later releases may be refused"
            assert version != "9.1.0"
            continue
        for changes in ((), (("net/conv.1",), "tensor"), ((), "tensor")):
            section = dump_section(RunRequest(wanted, tmp_path, *changes))
            accepted, need_dump, message = verdicts(section, tmp_path, version)
            assert (accepted, need_dump) == (True, True), message


ARGUMENTS = st.fixed_dictionaries(
    {},
    optional={
        "layers": st.sampled_from([["a"], ["a", "b*"], None]),
        "scene": st.sampled_from(["model", "op"]),
        "model_name": st.sampled_from(["m", None]),
        "dump_mode": st.sampled_from(["input", "output", "all"]),
        "dump_level": st.sampled_from(["op", "kernel", "all"]),
        "dump_step": st.sampled_from(["0", "1-3|7", "5-3", "x"]),
        "dump_data": st.sampled_from(["stats", "tensor"]),
        "dump_stats": st.sampled_from([["Max"], ["Max", "Min", "Avg", "Nan"]]),
        "opname_blacklist": st.just([{"name": "a", "pos": ["input0"]}]),
        "opname_range": st.just(RANGE),
    },
)


@given(ARGUMENTS)
def test_second_run_of_any_accepted_request_is_accepted_too(
    tmp_path_factory: pytest.TempPathFactory, arguments: dict[str, Any]
) -> None:
    cwd = tmp_path_factory.getbasetemp()
    try:
        wanted = request(arguments)
        check_request(wanted, version="9.1.0", cwd=cwd)
    except (RequestError, ConfigError):
        return
    for layers in (("net/conv.1", "fc"), ()):
        section = dump_section(RunRequest(wanted, cwd, layers, "tensor"))
        accepted, _, message = verdicts(section, cwd, "9.1.0")
        assert accepted, message
        assert section["dump_data"] == "tensor"
        assert "dump_stats" not in section


def test_request_that_cann_refuses_is_an_error_in_its_words(tmp_path: Path) -> None:
    for step, words in (("5-3", ".*5-3"), ("|".join("0" * 101), "")):
        with pytest.raises(ConfigError, match=rf"CANN 9\.1\.0 refuses this dump: {words}"):
            check_request(request({"dump_step": step}), version="9.1.0", cwd=tmp_path)


def test_file_holds_the_section_and_is_private_and_a_path_may_have_512_bytes(tmp_path: Path) -> None:
    path, longest = tmp_path / "acl.json", "/" + "a" * 511
    for dump_path in (str(tmp_path), longest):
        section = dump_section(RunRequest(DumpRequest(), Path(dump_path)))
        write_acl_json(path, section)
        assert json.loads(path.read_text()) == {"dump": section}
        assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(ConfigError, match="longer than the 512 bytes CANN allows"):
        write_acl_json(path, dump_section(RunRequest(DumpRequest(), Path(f"{longest}a"))))


@pytest.mark.each("path", ["/a b", "/ü", "/a\nb", "/a'b", '/a"b', "/a|b", "/a~b", "/a<b", "/名"])
def test_path_that_the_graph_engine_dumps_nothing_into_is_refused(tmp_path: Path, path: str) -> None:
    with pytest.raises(ConfigError, match=r"dumps nothing into a path.*--npudump-output, or --basetemp"):
        write_acl_json(tmp_path / "acl.json", dump_section(RunRequest(DumpRequest(), Path(path))))
    assert not (tmp_path / "acl.json").exists()


def test_what_only_ge_refuses_is_an_error_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such a dump is accepted aloud, and nothing is dumped."""
    section = {"dump_path": ".", "dump_debug": "on", "dump_list": [{}]}
    monkeypatch.setattr("pytest_npudump.config.acl_json.dump_section", lambda *_: section)
    with pytest.raises(ConfigError, match=r"graph engine refuses this dump without a word.*dump_list"):
        check_request(DumpRequest(scene="overflow"), version="9.1.0", cwd=tmp_path)


def test_what_does_less_than_it_says_is_told(tmp_path: Path) -> None:
    warnings = request_warnings(DumpRequest(dump_step="0"), version="9.1.0", cwd=tmp_path)
    assert warnings == ("dump_step: selects training iterations; leave it out for inference",)
    (models_only,) = request_warnings(DumpRequest(scene="overflow"), version="9.0.0", cwd=tmp_path)
    assert "for models only" in models_only
    assert request_warnings(DumpRequest(), version="9.1.0", cwd=tmp_path) == ()


@pytest.mark.each("version", ["8.5.0", "8.3.RC1", "9.0.1"])
def test_overflows_of_torch_npu_are_refused_where_cann_sees_those_of_models_only(
    tmp_path: Path, version: str
) -> None:
    request = DumpRequest(scene="overflow")
    with pytest.raises(ConfigError, match=f"in CANN {version} the overflow dump works for models only"):
        check_request(request, version=version, cwd=tmp_path, runtime="torch_npu")
    check_request(request, version="9.1.0", cwd=tmp_path, runtime="torch_npu")
    check_request(DumpRequest(scene="op"), version=version, cwd=tmp_path, runtime="torch_npu")


@pytest.mark.each("variable", ["NPU_COLLECT_PATH", "NPU_COLLECT_PATH_EXE"])
@pytest.mark.each("scene", ["model", "op", "overflow", "watcher", "exception"])
def test_no_dump_of_data_is_begun_that_ge_refuses_because_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scene: str, variable: str
) -> None:
    monkeypatch.setenv(variable, str(tmp_path))
    wanted, path = DumpRequest(scene=scene), tmp_path / "acl.json"
    if scene == "exception":
        AclJson().write_config(path, RunRequest(wanted, tmp_path))
        return
    with pytest.raises(ConfigError, match=f"{variable}: .*E10056.*unset {variable}$"):
        AclJson().write_config(path, RunRequest(wanted, tmp_path))
    assert not path.exists()


ALL = ["Max", "Min", "Avg", "Nan", "Negative Inf", "Positive Inf", "L2norm"]


CHIPS: dict[str, list[str] | None] = {
    **dict.fromkeys(["Ascend910B1", "Ascend910B4-1", "ascend910b3"], ALL),
    **dict.fromkeys(["Ascend910A", "Ascend910_9391", "Ascend310P3", "Ascend950", "Emulator", ""]),
}


@pytest.mark.each("soc", CHIPS)
def test_all_statistics_are_asked_for_on_the_chip_that_computes_them(tmp_path: Path, soc: str) -> None:
    section = dump_section(RunRequest(DumpRequest(), tmp_path), soc)
    assert section.get("dump_stats") == CHIPS[soc]
    for version in VERSIONS:
        assert verdicts(section, tmp_path, version) == (True, True, "")
    assert ge.validate_dump(section).accepted


@pytest.mark.each(
    ("wanted", "dump_data", "expected"),
    [
        (DumpRequest(dump_data="tensor"), None, None),
        (DumpRequest(), "tensor", None),
        (DumpRequest(scene="overflow"), None, None),
        (DumpRequest(scene="watcher"), None, None),
        (DumpRequest(scene="exception"), None, None),
        (DumpRequest(dump_stats=("Max",)), None, ["Max"]),
    ],
)
def test_a_dump_without_statistics_asks_for_none_and_one_of_some_for_these(
    wanted: DumpRequest, dump_data: str | None, expected: list[str] | None
) -> None:
    section = dump_section(RunRequest(wanted, Path(), dump_data=dump_data), "Ascend910B3")
    assert section.get("dump_stats") == expected
    assert ("dump_stats" in section) is (expected is not None)
