"""Scenes with a verdict of their own, end to end on the emulator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from conftest import Project

WATCHER = "scene='watcher', layers=['block/relu.1', 'block/conv.2'], watcher_nodes=['block/conv.1']"
TRAMPLE = """
    from pytest_npudump.emulator.faults import trample
    trample("small", by="block/conv.2", victim="block/conv.1", first=12, elements=37)
"""


def test_watched_output_that_nothing_changes_passes_without_a_golden(project: Project) -> None:
    project.marked(WATCHER)
    result = project.run()
    result.assert_outcomes(passed=1)
    assert not project.path.joinpath("golden").exists()


def test_a_trampled_output_fails_and_names_both_operators(project: Project) -> None:
    project.marked(WATCHER, body=TRAMPLE + project.body)
    result = project.run("--npudump-dump-dir=dumps")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "npudump: block/conv.2 tramples block/conv.1: 37 of 144 elements changed, first at *0, 0, 2, 0]",
            "output:     block/conv.1 (Conv output.0) float32 [[]1, 4, 6, 6] ND, the first from *",
            "between:    block/relu.1 and block/conv.2; *",
            "snapshots:  *Conv.block_relu_1_To_block_conv_1.2.3.*",
            "*Conv.block_conv_2_To_block_conv_1.3.3.*",
            "details:    *report.txt",
        ]
    )
    data: Any = project.report()
    (finding,) = data["findings"]
    assert (finding["by"], finding["node"], finding["changed"]) == ("block/conv.2", "block/conv.1", 37)
    assert data["golden"] is None


def test_updating_goldens_does_not_approve_a_trampling(project: Project) -> None:
    project.marked(WATCHER, body=TRAMPLE + project.body)
    project.run("--npudump-update-golden").assert_outcomes(failed=1)
    assert not project.path.joinpath("golden").exists()


def test_every_execution_is_watched(project: Project) -> None:
    project.marked(WATCHER, body=f"{TRAMPLE}{project.body}        model.run(image)\n")
    project.run().stdout.fnmatch_lines(["npudump: block/conv.2 tramples *", "*conv.1 in step=1: 37 of 144*"])


def test_dump_step_limits_what_is_watched(project: Project) -> None:
    project.marked(f"{WATCHER}, dump_step='1'", body=f"{TRAMPLE}{project.body}        model.run(image)\n")
    result = project.run()
    result.assert_outcomes(failed=1)
    result.stdout.no_fnmatch_line("*in step=*")


def test_an_operator_that_the_model_does_not_have_fails(project: Project) -> None:
    project.marked("scene='watcher', layers=['head/softmax'], watcher_nodes=['block/conv.9']")
    result = project.run()
    result.assert_outcomes(failed=1)
    project.marked("scene='watcher', layers=['nothing'], watcher_nodes=['block/conv.1']")
    result = project.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["npudump: there is no snapshot of 'block/conv.1' after 'nothing': *"])


def test_records_show_the_snapshots(project: Project) -> None:
    project.marked(
        WATCHER,
        body=f"{project.body}    assert len(npu_dump.records) == 3\n"
        "    assert npu_dump.config['dump']['dump_scene'] == 'watcher'\n",
    )
    project.run().assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("marker", "message"),
    [
        ("layers=['a']", "watcher_nodes: scene='watcher' needs it: *"),
        ("watcher_nodes=['c']", "layers: scene='watcher' needs it: *"),
        ("layers=['a*'], watcher_nodes=['c']", "layers: 'a*' is a glob; *"),
        ("layers=['a'], watcher_nodes=['c', 'a']", "'a' is in layers and in watcher_nodes; *"),
        ("layers=['a'], watcher_nodes=['c'], dump_mode='all'", "dump_mode: scene='watcher' dumps outputs *"),
        ("layers=['a'], watcher_nodes=['c'], model_name='m'", "model_name: not with scene='watcher', *"),
        ("layers=['a'], watcher_nodes=['c'], dump_data='stats'", "dump_data: scene='watcher' compares *"),
        ("layers=['a'], watcher_nodes=['c'], rtol=1", "rtol: not with scene='watcher', which takes only *"),
        ("layers=['a'], watcher_nodes=['c'], golden_tensors='a'", "golden_tensors: not with scene=*"),
    ],
)
def test_what_the_watcher_excludes_is_an_error_at_collection(
    project: Project, marker: str, message: str
) -> None:
    project.marked(f"scene='watcher', {marker}")
    result = project.run()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([f"npu_dump: test_small.py::test_small: {message}"])


def test_watcher_nodes_belong_to_the_watcher(project: Project) -> None:
    project.marked("watcher_nodes=['c']")
    result = project.run()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*watcher_nodes: only with scene='watcher' *"])
