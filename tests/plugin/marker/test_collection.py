"""Markers that ask for the impossible are errors at collection, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Project


@pytest.mark.parametrize(
    ("marker", "message"),
    [
        ("layer=['a']", "layer: unknown argument; allowed are layers, scene*"),
        ("layers=[]", "layers: [[]] is not allowed, expected a name or glob, or a non-empty list of them"),
        ("layers=[3]", "layers: *expected a name or glob, or a non-empty list of them"),
        ("['a'], layers=['b']", "layers: given twice, by position and by name"),
        ("['a'], 'b'", "2 positional arguments; only layers may be given by position"),
        ("scene='watch'", "scene: 'watch' is not allowed, expected one of 'model', 'op'*"),
        ("scene=['model', 'op']", "scene: *is not allowed, expected one of 'model', 'op'*"),
        ("dump_mode='out'", "dump_mode: 'out' is not allowed, expected one of 'input', 'output', 'all'"),
        ("dump_path='/tmp'", "dump_path: not an argument of the marker: *"),
        ("dump_op_switch='on'", "dump_op_switch: not an argument of the marker: use scene='op'"),
        (
            "transport='callback'",
            "transport: not an argument of the marker: leave it out; where it was 'callback', *",
        ),
        ("dump_step='1-'", "CANN * refuses this dump: *"),
        ("dump_step='5-3'", "CANN * refuses this dump: *"),
        ("dump_stats=['Max'], dump_data='tensor'", "dump_stats: only with dump_data='stats'*"),
        ("dump_stats=['Mean']", "dump_stats: *expected a list of Max, Min, Avg*"),
        ("opname_range=[{'begin': 'a', 'end': 'b'}], dump_level='op'", "opname_range: needs model_name*"),
        ("optype_blacklist=[{'name': 'Cast'}]", "optype_blacklist: only with dump_level='op'*"),
        ("scene='op', model_name='m'", "model_name: not with scene='op'*"),
        ("rtol=-1", "rtol: -1 is not allowed, expected a finite number, 0 or greater"),
        ("rtol=float('nan')", "rtol: nan is not allowed, expected a finite number, 0 or greater"),
        ("escalate='yes'", "escalate: 'yes' is not allowed, expected True or False"),
        ("layers=[], scene='x'", "layers: *; scene: *"),
    ],
)
def test_bad_argument_names_test_argument_and_what_is_allowed(
    project: Project, marker: str, message: str
) -> None:
    project.marked(marker)
    result = project.run()
    result.assert_outcomes(errors=1)
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.fnmatch_lines([f"npu_dump: test_small.py::test_small: {message}"])
    result.stdout.no_fnmatch_line("*Traceback*")
    result.stdout.no_fnmatch_line("INTERNALERROR*")


@pytest.mark.parametrize(
    ("marker", "message"),
    [
        ("preset='loose'", "*unknown tolerance preset 'loose', expected one of default *"),
        ("tolerances=[{'layer': 'a', 'rtool': 1}]", "*unknown key 'rtool', expected layer, dtype*"),
    ],
)
def test_bad_tolerance_is_an_error_at_collection(project: Project, marker: str, message: str) -> None:
    project.marked(marker)
    result = project.run()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([f"npu_dump: test_small.py::test_small: {message}"])


def test_other_files_are_still_collected(project: Project) -> None:
    project.marked("layer=['a']")
    project.test_file("def test_other():\n    pass\n", "test_other.py")
    project.run("--continue-on-collection-errors").assert_outcomes(errors=1, passed=1)


def test_markers_of_class_and_module_are_merged_with_the_function_s(project: Project) -> None:
    project.test_file(
        """
        pytestmark = pytest.mark.npu_dump(layers=["head/softmax"], dump_mode="all")

        @pytest.mark.npu_dump(dump_mode="output")
        class TestSmall:
            @pytest.mark.npu_dump(layers=["block/conv.1"])
            def test_small(self, npu_dump):
                dump = npu_dump.config["dump"]
                assert dump["dump_mode"] == "output"
                assert dump["dump_list"] == [{"layer": ["block/conv.1"]}]
                pytest.skip("that was all")
        """
    )
    project.run().assert_outcomes(skipped=1)


def test_marker_is_registered(project: Project) -> None:
    result = project.run("--markers")
    result.stdout.fnmatch_lines(["@pytest.mark.npu_dump(layers=None, *"])


def test_tolerance_rule_that_matches_nothing_fails_the_test(project: Project) -> None:
    project.marked(
        "tolerances=[{'layer': 'block/conv.9', 'rtol': 0.1, 'atol': 0, 'reason': 'noise of the old kernel'}]"
    )
    result = project.run("--npudump-update-golden")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["npudump: tolerance rule *block/conv.9*matches nothing this test dumped*"])
