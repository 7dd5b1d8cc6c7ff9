"""What a marker may ask for, how pytest takes it, and markers that hooks, fixtures and tests add later."""

from __future__ import annotations

import math
import re
from dataclasses import fields
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from pytest_npudump.config.acl_json import dump_section
from pytest_npudump.errors import RequestError
from pytest_npudump.plugin.marker import ACL_JSON, CHECKS, check_combination, parse_marker
from pytest_npudump.plugin.marks import ARGUMENTS, marker_line
from pytest_npudump.request import DumpRequest, KnownNames, RunRequest, is_glob
from tests.plugin.conftest import Project

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "marker.md"
RANGE = {"begin": "a", "end": "b"}


def parse(*args: object, base: DumpRequest | None = None, **kwargs: object) -> DumpRequest:
    """Return what a marker asks for that has the keys of acl.json among its arguments."""
    keys = {name: kwargs.pop(name) for name in [*kwargs] if name in ACL_JSON}
    return parse_marker(args, kwargs | ({"acl_json": keys} if keys else {}), base or DumpRequest())


def test_without_arguments_every_layer_s_output_statistics_are_asked_for() -> None:
    """Layers by position and by name are the same."""
    request = parse()
    assert request == DumpRequest()
    assert (request.layers, request.scene, request.dump_mode) == ((), "model", "output")
    assert dump_section(RunRequest(request, Path("dumps")))["dump_data"] == "stats"
    assert request.escalate
    several: list[tuple[Any, tuple[str, ...]]] = [(["a", "b*"], ("a", "b*")), (("a",), ("a",)), (None, ())]
    for given_, stored in [("conv1", ("conv1",)), *several]:
        assert parse(given_).layers == parse(layers=given_).layers == stored


def test_lists_are_kept_as_tuples_that_the_caller_cannot_change() -> None:
    stats, ranges, rules = ["Max", "Min"], [dict(RANGE)], [{"layer": "a", "rtol": 1.0, "atol": 0}]
    request = parse(dump_stats=stats, opname_range=ranges, tolerances=rules)
    stats.append("Avg")
    ranges[0]["begin"] = "z"
    rules.clear()
    assert request.dump_stats == ("Max", "Min")
    assert [dict(item) for item in request.opname_range] == [RANGE]
    assert [dict(rule) for rule in request.tolerances] == [{"layer": "a", "rtol": 1.0, "atol": 0}]


REFUSED: list[tuple[str, str, list[Any]]] = [
    ("layers", "a name or glob", [[], "", ["a", ""], b"conv", {"a"}, 3]),
    ("scene", "one of 'model', 'op', 'check_op', 'overflow', 'watcher', 'exception'", ["gradient"]),
    ("scene", "one of 'model', 'op', 'check_op', 'overflow', 'watcher'", [None]),
    ("model_name", "a non-empty string", [""]),
    ("dump_mode", "one of 'input', 'output', 'all'", ["Output"]),
    ("dump_level", "one of 'op', 'kernel', 'all'", ["OP"]),
    ("dump_step", "a non-empty string", [3]),
    ("dump_data", "one of 'auto', 'stats', 'tensor'", ["statistics"]),
    ("dump_stats", "a non-empty list of Max", ["Max", [], ["max"], [[]]]),
    ("dump_kernel_data", "a non-empty string", [["printf"]]),
    ("optype_blacklist", "a non-empty list of dicts with keys 'name', 'pos'", [{"name": "Cast"}]),
    ("opname_blacklist", "a non-empty list of dicts with keys 'name', 'pos' only", [["Cast"]]),
    ("opname_range", "a non-empty list of dicts with keys 'begin', 'end' only", [[{"start": "a"}]]),
    ("golden_tensors", "a name or glob", [[None]]),
    ("rtol", "a finite number, 0 or greater", ["1e-3", True]),
    ("atol", "a finite number, 0 or greater", [math.inf, math.nan, 10**400, np.array([1.0]), -1e-9]),
    ("preset", "a non-empty string", [1]),
    ("tolerances", "a non-empty list of rules", [{"layer": "a"}, ["conv*"]]),
    ("escalate", "True or False", [1]),
]


@pytest.mark.each(("name", "expected", "values"), REFUSED)
def test_refused_value_is_named_with_what_is_expected(name: str, expected: str, values: list[object]) -> None:
    of_key = "acl_json: " * (name in ACL_JSON)
    for value in values:
        with pytest.raises(RequestError) as caught:
            parse(**{name: value})
        assert str(caught.value).startswith(f"{of_key}{name}: {value!r} is not allowed, expected {expected}")


def test_every_field_is_an_argument_or_a_key_and_an_unknown_one_lists_them_all() -> None:
    """Every argument is explained once, and all problems of a marker are told at once."""
    asked = {field.name for field in fields(DumpRequest)} - {"timeout", "chosen", "modules"} | {"acl_json"}
    assert {"reference_map" if name == "map" else name for name in (*CHECKS, *ACL_JSON)} == asked
    for arguments, checks in (({"gibberish": 1}, CHECKS), ({"acl_json": {"gibberish": 1}}, ACL_JSON)):
        with pytest.raises(RequestError) as caught:
            parse_marker((), arguments, DumpRequest())
        allowed = str(caught.value).partition("gibberish: unknown argument; allowed are ")[2]
        assert allowed.split(", ") == [*checks]
    with pytest.raises(RequestError) as caught:
        parse(layer="a", rtol=-1, scene="x", dump_mode="x")
    places = [str(caught.value).index(f"{name}: ") for name in ("layer", "rtol", "scene", "dump_mode")]
    assert places == sorted(places)
    assert sorted(name for names in ARGUMENTS for name in names.split(", ")) == sorted(CHECKS)
    assert marker_line("npu_dump").partition("(")[0] == "npu_dump"  # as pytest reads the name of a marker
    assert all(len(line) < 200 for line in marker_line("npu_dump").splitlines())


def test_closer_marker_wins_argument_by_argument_and_none_takes_back() -> None:
    wide = parse(["a"], dump_mode="all", rtol=1e-2, preset="torch")
    near = parse(base=wide, dump_step="1", rtol=None, preset=None)
    assert (near.layers, near.dump_mode, near.dump_step) == (("a",), "all", "1")
    assert (near.rtol, near.preset) == (None, None)
    assert parse(None, base=wide).layers == ()
    assert parse(base=wide, dump_mode=None).dump_mode == "output"
    assert wide.dump_mode == "all"
    modules = parse(scene="modules")
    assert (modules.scene, modules.modules) == ("model", True)
    assert parse(base=modules, layers="a").modules
    assert (parse(base=modules, scene="op").scene, parse(base=modules, scene="op").modules) == ("op", False)


@given(st.floats(min_value=0, allow_infinity=False, allow_nan=False) | st.integers(0, 10**9))
def test_tolerances_that_are_finite_numbers_are_taken_as_given(value: float) -> None:
    assert parse(rtol=value).rtol == parse(atol=value).atol == value


def test_arguments_that_go_together_are_accepted() -> None:
    blacklist = {"optype_blacklist": [{"name": "Cast", "pos": ["output0"]}], "dump_level": "op"}
    in_range = {"opname_range": [RANGE], "dump_level": "op", "model_name": "m"}
    for arguments in ({"dump_stats": ["Max"]}, in_range, blacklist, {"scene": "op", "dump_mode": "all"}):
        check_combination(parse(**arguments))


def test_a_name_that_is_there_means_itself_alone_whatever_it_would_match_as_a_glob() -> None:
    """One character in brackets is an index, and those of a test are its own."""
    for layers in ((), ("a", "b*"), ("a[01]",)):
        assert not DumpRequest(layers=layers).exact_layers
    for layers in (("a", "b"), ("a[0]",)):
        assert DumpRequest(layers=layers).exact_layers
    assert is_glob("while/body[01]")
    assert not is_glob("while/body[0]")
    for known, asked, meant in (
        (["while/body[01]", "while/body0"], ["while/body[01]"], {"while/body[01]"}),
        (["while/body0"], ["while/body[01]"], {"while/body0"}),
        (["a*", "ab", "b"], ["a*", "b"], {"a*", "b"}),
        ([""], ["*"], set()),
        (["while/body0"], ["while/body[0]"], set()),
        (["a[0]b", "a0b"], ["a[0]*"], {"a[0]b"}),
    ):
        assert KnownNames(known).meant(asked) == meant
    assert KnownNames(["t[ab]1", "ta1"], choices=False).meant(["t[ab]*"]) == {"t[ab]1"}


@given(st.text("ab*?[]/", max_size=6), st.sets(st.text("ab/[]*", min_size=1, max_size=6)))
def test_a_pattern_means_what_is_called_so_or_else_what_the_standard_library_says(
    pattern: str, names: set[str]
) -> None:
    literal = re.sub(r"\[(?=[ab]\])", "[[]", pattern)  # an index
    globbed = {name for name in names if fnmatchcase(name, literal)}
    assert KnownNames(names).meant([pattern]) == ({pattern} if pattern in names else globbed)


NOT_OURS = {
    "dump_path": ("x", "*--npudump-output*"),
    "dump_list": ("x", "*use layers*"),
    "dump_op_switch": ("on", "use scene='op'"),
    "transport": ("callback", "leave it out; where it *"),
    "numerics": ("other", "preset says which bounds *"),
    "modules": (True, "it is a scene: scene='modules'"),
    "timeout": (3, "isolation takes the seconds: *"),
    "reference_map": ("m.yaml", "it is called map"),
}
UNKNOWN: list[tuple[tuple[str, ...], dict[str, Any], str]] = [
    (("a", "b"), {}, "2 positional arguments; only layers may be given by position"),
    (("a",), {"layers": "a"}, "layers: given twice, by position and by name"),
    ((), {"layer": "a"}, "layer: unknown argument; did you mean layers?"),
    ((), {"dump_modes": "all"}, "dump_modes: unknown argument; did you mean acl_json={'dump_mode': *}?*"),
    ((), {"acl_json": {"dump_mod": "all"}}, "acl_json: dump_mod: unknown *did you mean dump_mode?"),
    ((), {"acl_json": {"dump_path": "x"}}, "acl_json: dump_path: not an argument of the marker: *"),
    ((), {"acl_json": {"layers": "x"}}, "acl_json: layers: an argument of the marker, and no key of *"),
    ((), {"acl_json": {1: "x"}}, "acl_json: 1: unknown argument; allowed are dump_scene, *"),
    ((), {"acl_json": None}, "acl_json: None is not allowed, expected a dict such as *"),
    ((), {"acl_json": "dump_mode"}, "acl_json: 'dump_mode' is not allowed, expected a dict such as *"),
]


def test_what_is_no_argument_is_refused_with_the_way_out() -> None:
    rows = [((), {k: v}, f"{k}: not an argument of the marker: {told}") for k, (v, told) in NOT_OURS.items()]
    keys = [((), {k: "x"}, f"{k}: a key of acl.json, given as acl_json={{'{k}': 'x'}}") for k in ACL_JSON]
    for args, kwargs, message in (*UNKNOWN, *rows, *keys):
        with pytest.raises(RequestError) as caught:
            parse_marker(args, kwargs, DumpRequest())
        assert fnmatchcase(str(caught.value), message)


def test_values_are_kept_as_they_are_and_tolerances_of_numpy_are_numbers_too() -> None:
    values = {"scene": "op", "model_name": "net", "dump_step": "0|2-5", "dump_kernel_data": "printf"}
    request = parse(**values, escalate=False)
    assert {name: getattr(request, name) for name in values} == values
    assert request.escalate is False
    found = parse(rtol=np.float32(1e-3)).rtol
    assert (found, type(found)) == (np.float32(1e-3), float)


def test_isolation_is_a_word_or_the_seconds_that_a_child_may_take() -> None:
    known: dict[object, tuple[str, float | None]] = {word: (word, None) for word in ("process", "none")}
    known |= {seconds: ("process", seconds) for seconds in (30.0, 0.5)}
    found = {value: parse(isolation=value) for value in ("process", "none", 30, 0.5)}
    assert {value: (one.isolation, one.timeout) for value, one in found.items()} == known
    for value, isolation in ((True, "process"), (False, "none")):
        request = parse(isolation=value, base=parse(isolation=7))
        assert (request.isolation, request.timeout) == (isolation, None)
    words = r"isolation: .* is not allowed, expected 'process' or seconds"
    for wrong in (0, -1, math.inf, "30", None, "Process", [1]):
        with pytest.raises(RequestError, match=words):
            parse(isolation=wrong)


WATCHER = {"scene": "watcher", "layers": ["a"], "watcher_nodes": ["c"]}
EXCLUDED: list[tuple[dict[str, Any], str]] = [
    ({"dump_stats": ["Max"], "dump_data": "tensor"}, "dump_stats: only with dump_data='stats'"),
    ({"opname_blacklist": [{"name": "a"}]}, "opname_blacklist: only with dump_level='op'"),
    ({"opname_range": [RANGE], "dump_level": "op"}, "opname_range: needs model_name"),
    ({"scene": "op", "model_name": "m"}, "model_name: not with scene='op'"),
    (
        {"scene": "op", "dump_level": "op", "optype_blacklist": [{"name": "Cast"}]},
        "optype_blacklist: not with scene='op'",
    ),
    ({"reference": "a.onnx", "scene": "op"}, "reference: not with scene='op'"),
    ({"reference": "a.onnx", "scene": "overflow"}, "reference: not with scene='overflow'"),
    ({"graph": "model.dot"}, "graph: 'model.dot' is no graph by its name, expected one of .om, .json"),
    ({"graph": ".json"}, "graph: '.json' is no graph by its name"),
    ({"scene": "overflow", "ranks": "same"}, "ranks: 'same' is not for scene='overflow'"),
    *(
        (
            {"scene": "overflow", name: value},
            f"{name}: not with scene='overflow', which takes no other argument: ",
        )
        for name, value in {
            "layers": ["a"],
            "model_name": "m",
            "dump_step": "0",
            "rtol": 1,
            "dump_mode": "all",
        }.items()
    ),
    ({"watcher_nodes": ["c"]}, "watcher_nodes: only with scene='watcher'"),
    ({"scene": "watcher", "layers": ["a"]}, "watcher_nodes: scene='watcher' needs it: "),
    (WATCHER | {"layers": ["a*"]}, "layers: 'a*' is a glob; "),
    (WATCHER | {"watcher_nodes": ["c", "a"]}, "layers: each of them is in watcher_nodes, "),
    (WATCHER | {"dump_mode": "all"}, "dump_mode: scene='watcher' dumps outputs "),
    (WATCHER | {"model_name": "m"}, "model_name: not with scene='watcher', "),
    (WATCHER | {"dump_data": "stats"}, "dump_data: scene='watcher' compares "),
    (WATCHER | {"rtol": 1}, "rtol: not with scene='watcher', which takes only "),
    (WATCHER | {"golden_tensors": "a"}, "golden_tensors: not with scene="),
    ({"dump_scene": "aic_err_norm_dump"}, "dump_scene: only with scene='exception'"),
    (
        {"scene": "exception", "layers": ["a"]},
        "layers: not with scene='exception', which takes only dump_scene",
    ),
    (
        {"scene": "exception", "dump_data": "tensor"},
        "dump_data: not with scene='exception', which takes only dump_scene",
    ),
    (
        {"isolation": "none", "scene": "exception", "dump_scene": "aic_err_detail_dump"},
        "isolation: aic_err_detail_dump may end the process",
    ),
]


@pytest.mark.each(("arguments", "message"), EXCLUDED)
def test_arguments_that_exclude_each_other_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError) as caught:
        check_combination(parse(**arguments))
    assert message in str(caught.value)


REFUSED_LATER = {
    "step": ("acl_json={'dump_step': '5-3'}", "CANN * refuses this dump: *"),
    "preset": ("preset='loose'", "*unknown tolerance preset 'loose'*"),
    "rule": ("tolerances=[{'layer': 'a', 'rtool': 1}]", "*unknown key 'rtool', expected layer, dtype*"),
    "against": (
        "tolerances=[{'rtol': 0.5, 'atol': 0, 'reason': 'r', 'against': 'reference'}]",
        "*a rule with against='reference' needs reference*",
    ),
    "reference": (
        "reference='gone.onnx'",
        "reference: there is no file *gone.onnx; name an ONNX model, relative *",
    ),
    "map": ("reference='small.onnx', map='gone.yaml'", "map: there is no file *gone.yaml; name a YAML *"),
    "graph": ("graph='gone.om'", "graph: there is no file *gone.om; name a file of the model's graph, *"),
    "twice": (
        "[29])\n@pytest.mark.npudump(layers=[30]",
        "layers: given by two marks of the function; write one",
    ),
}


def test_bad_markers_are_errors_at_collection_and_other_files_are_collected(project: Project) -> None:
    """Both spellings of the marker are registered."""
    for name, (marker, _) in REFUSED_LATER.items():
        mark = f"@pytest.mark.npu_dump({marker})\n"
        project.test_file(f"{mark}def test_it(npu_dump):\n    pass\n", f"test_{name}.py")
    project.test_file("def test_other():\n    pass\n", "test_other.py")
    assert project.run().ret == pytest.ExitCode.INTERRUPTED
    hides = ["*Traceback*", "INTERNALERROR*"]
    count = len(REFUSED_LATER)
    result = project.run("--continue-on-collection-errors", passed=1, errors=count, hides=hides)
    for name, (_, message) in REFUSED_LATER.items():
        result.stdout.fnmatch_lines([f"npudump: test_{name}.py::test_it: {message}"])
    shown = ["@pytest.mark.npu_dump(layers=None, *", "@pytest.mark.npudump(...): another spelling of *"]
    project.run("--markers", shows=shown)


def test_markers_of_class_and_module_are_merged_with_the_function_s(project: Project) -> None:
    project.test_file(
        """
        KEYS = {"dump_mode": "all", "dump_step": "0|2"}
        pytestmark = pytest.mark.npu_dump(layers=["head/softmax"], acl_json=KEYS)

        @pytest.mark.npudump(acl_json={"dump_mode": "output"})
        class TestSmall:
            @pytest.mark.npu_dump(layers=["block/conv.1"])
            def test_small(self, npu_dump):
                dump = npu_dump.config["dump"]
                assert (dump["dump_mode"], dump["dump_step"]) == ("output", "0|2")
                assert dump["dump_list"] == [{"layer": ["block/conv.1"]}]
                pytest.skip("that was all")
        """
    )
    project.run().assert_outcomes(skipped=1)


UNMARKED = """
def test_small(npu_dump):
    run(npu_dump)
"""
STATIC = "\n@pytest.mark.npu_dump\ndef test_other():\n    pytest.skip('not today')\n"
ADD = "item.add_marker(pytest.mark.npu_dump({arguments}))"
EARLY_ENOUGH = {
    "itemcollected": "def pytest_itemcollected(item):\n    {add}\n",
    "modifyitems": "def pytest_collection_modifyitems(items):\n    for item in items:\n        {add}\n",
    "modifyitems at the very last": (
        "@pytest.hookimpl(wrapper=True, tryfirst=True)\n"
        "def pytest_collection_modifyitems(items):\n"
        "    result = yield\n    for item in items:\n        {add}\n    return result\n"
    ),
}
FIXTURE = "@pytest.fixture(autouse=True)\ndef mark(request):\n    item = request.node{}\n    {{add}}\n"
TOO_LATE = {
    "autouse fixture": FIXTURE.format(""),
    "runtest_setup": "def pytest_runtest_setup(item):\n    {add}\n",
    "runtest_setup first": "@pytest.hookimpl(tryfirst=True)\ndef pytest_runtest_setup(item):\n    {add}\n",
    "class or module": FIXTURE.format(".parent"),
}
ONE_ID = """
@pytest.mark.parametrize("a", ["c", "b-c"])
@pytest.mark.parametrize("b", ["a-b", "a"])
def test_small(a, b):
    pass
"""
SAYS_SO = "npudump: the marker npu_dump was {what} while tests were running *, too late to have any effect: *"


def conftest(project: Project, source: str, arguments: str = "") -> None:
    text = source.format(add=ADD.format(arguments=arguments))
    project.path.joinpath("conftest.py").write_text(f"import pytest\n\n{text}")


def test_marker_of_a_collection_hook_is_run_like_any_other(project: Project) -> None:
    for hook in EARLY_ENOUGH.values():
        conftest(project, hook, "['block/conv.2']")
        project.model()
        project.test_file(UNMARKED)
        project.record("-onpudump_repeats=1")
        assert "  block/conv.2 float32 " in project.golden.read_text()
        project.model(change=0.01)
        project.run("-onpudump_escalate=off", failed=1)
        project.golden.unlink()


def test_wrong_argument_of_a_late_marker_names_test_and_argument(project: Project) -> None:
    for hook, static in (*((hook, False) for hook in EARLY_ENOUGH), ("modifyitems", True)):
        conftest(project, EARLY_ENOUGH[hook], "nonsense=1")
        project.test_file(UNMARKED + (STATIC if static else ""))
        words = "npudump: test_small.py::test_small: nonsense: unknown argument; allowed are layers, *"
        result = project.run(errors=1 + static, shows=words, hides="INTERNALERROR*")
        assert result.ret == pytest.ExitCode.INTERRUPTED


@pytest.mark.e2e
def test_what_is_wrong_with_markers_is_said_under_xdist(project: Project) -> None:
    late, unknown = (
        SAYS_SO.format(what="added to this test"),
        "npudump: test_small.py::test_small: nonsense: *",
    )
    for hook, arguments, source, words in (
        ("modifyitems", "nonsense=1", UNMARKED, unknown),
        ("", "", f"@pytest.mark.npu_dump{ONE_ID}", "npudump: *a-b-c* would share the golden *"),
        ("autouse fixture", "", "def test_small():\n    pass\n", late),
    ):
        conftest(project, {**EARLY_ENOUGH, **TOO_LATE, "": ""}[hook], arguments)
        project.test_file(source)
        assert project.run("-n1", shows=words, hides="INTERNALERROR*").ret != 0


def test_marker_that_a_collection_hook_takes_off_does_not_count(project: Project) -> None:
    """Late ones that would share a golden are refused."""
    take_off = "def pytest_collection_modifyitems(items):\n    items[0].own_markers.clear()\n"
    project.path.joinpath("conftest.py").write_text(take_off)
    project.test_file("@pytest.mark.npu_dump\ndef test_small():\n    pass\n")
    project.run(passed=1, hides="npudump: *")
    conftest(project, EARLY_ENOUGH["modifyitems"])
    project.test_file(ONE_ID)
    project.refused("ERROR: npudump: *a-b-c* would share the golden *")


def test_marker_that_comes_too_late_fails_the_test_and_says_so(project: Project) -> None:
    """The fixture of such a test says why."""
    update, words = "--npudump-update-golden", SAYS_SO.format(what="added to this test")
    for place, option, static in (
        *((place, update, "") for place in TOO_LATE),
        ("class or module", "-q", STATIC),
    ):
        conftest(project, TOO_LATE[place])
        project.test_file("def test_small():\n    pass\n" + static)
        assert project.run(option, shows=words).ret == pytest.ExitCode.TESTS_FAILED
        assert not project.path.joinpath("golden").exists()
    conftest(project, TOO_LATE["autouse fixture"])
    project.test_file(UNMARKED)
    project.run(errors=1, shows=words, hides="*without the marker*")
    conftest(project, "")
    project.test_file("def test_small(request):\n    request.node.add_marker(pytest.mark.npu_dump)\n")
    project.run(failed=1, shows=words)


def test_marker_of_a_fixture_that_ends_fails_the_teardown(project: Project) -> None:
    ends = "def mark(request):\n    item = request.node\n    yield\n    {add}\n"
    conftest(project, f"@pytest.fixture(autouse=True)\n{ends}")
    for arguments, what in (
        (None, "added to this test"),
        ("isolation='none'", "changed on this test"),
        ("isolation='process', repeats=1", "changed on this test"),
    ):
        if arguments is None:
            project.test_file("def test_small():\n    pass\n")
        else:
            project.marked(arguments)
        words = SAYS_SO.format(what=what)
        project.run("--npudump-update-golden", passed=1, errors=1, shows=words)
        assert not [path for path in project.path.joinpath("golden").rglob("*") if path.is_file()]


def test_arguments_that_come_too_late_fail_a_marked_test_and_record_nothing(project: Project) -> None:
    for place, isolation in (*((place, "none") for place in TOO_LATE), ("autouse fixture", "process")):
        project.marked(f"isolation={isolation!r}")
        conftest(project, TOO_LATE[place], "rtol=10, atol=10")
        words = SAYS_SO.format(what="changed on this test")
        project.run("--npudump-update-golden", failed=1, shows=words)
        assert not project.path.joinpath("golden").exists()
