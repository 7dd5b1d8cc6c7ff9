"""Scenes with a verdict of their own, end to end on the emulator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import onnx
import pytest
import yaml
from onnx import TensorProto, helper

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


def test_without_layers_outputs_are_watched_after_every_operator(project: Project) -> None:
    marker = "scene='watcher', watcher_nodes=['block/conv.1']"
    project.marked(
        marker,
        body=f"{project.body}    assert len(npu_dump.records) == 4\n"
        "    assert 'layer' not in npu_dump.config['dump']['dump_list'][0]\n",
    )
    project.run().stdout.fnmatch_lines(["npudump: 1 of 1 tests good*"])
    project.marked(marker, body=TRAMPLE + project.body)
    result = project.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["npudump: block/conv.2 tramples block/conv.1: 37 of 144 elements changed*"])
    project.marked("scene='watcher', watcher_nodes=['head/softmax']")
    result = project.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["npudump: there is no snapshot of 'head/softmax' after an operator behind *"]
    )


def test_an_operator_in_both_lists_is_watched_and_no_output_is_dumped_after_it(project: Project) -> None:
    marker = "scene='watcher', layers=['block/relu.1', 'block/conv.2'], watcher_nodes=['block/conv.1', {}]"
    project.marked(marker.format("'block/relu.1'"))
    result = project.run("-v")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        ["*layers: CANN dumps no other output after a watched operator*block/relu.1*"]
    )
    project.marked(marker.format("'block/relu.1'"), body=TRAMPLE + project.body)
    project.run().stdout.fnmatch_lines(["npudump: block/conv.2 tramples block/conv.1: 37 of 144 elements*"])


def test_a_healthy_run_that_dumps_nothing_has_no_records(project: Project) -> None:
    for scene in ("overflow", "exception"):
        project.marked(f"scene={scene!r}", body=f"{project.body}    assert npu_dump.records == ()\n")
        project.run().assert_outcomes(passed=1)
    project.marked(
        body="    with pytest.raises(Exception, match='holds nothing'):\n        npu_dump.records\n"
    )
    project.run().assert_outcomes(failed=1)


def test_an_empty_dump_of_single_operators_names_the_level(project: Project) -> None:
    project.marked("scene='op', dump_level='kernel'", body="    import acl\n    acl.init()\n")
    project.run().stdout.fnmatch_lines(["*no single operator ran*dump_level='kernel' (it switches *"])


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
        ("layers=['a*'], watcher_nodes=['c']", "layers: 'a*' is a glob; *"),
        ("layers=['a'], watcher_nodes=['c', 'a']", "layers: each of them is in watcher_nodes, *"),
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


OVERFLOW_BODY = """
    values = np.full((2, 3), {value}, np.float16)
    with npu_dump.load_model("half.onnx") as model:
        model.run(values)
        model.run(values)
"""


@pytest.fixture
def half(project: Project) -> Project:
    """A project whose model squares float16 values twice and then takes them over once more."""
    nodes = [
        helper.make_node("Mul", ["x", "x"], ["a"], name="block/square.1"),
        helper.make_node("Mul", ["a", "a"], ["b"], name="block/square.2"),
        helper.make_node("Relu", ["b"], ["y"], name="block/relu"),
    ]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT16, [2, 3]) for name in "xy")
    graph = helper.make_graph(nodes, "half", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, str(project.path / "half.onnx"))
    return project


def test_a_healthy_model_passes_the_overflow_scene_without_a_golden(half: Project) -> None:
    half.marked("scene='overflow'", body=OVERFLOW_BODY.format(value=2))
    half.run().assert_outcomes(passed=1)


def test_recording_a_healthy_model_writes_no_golden(half: Project) -> None:
    half.marked("scene='overflow'", body=OVERFLOW_BODY.format(value=2))
    half.record()
    assert not half.path.joinpath("golden").exists()


def test_an_overflow_fails_and_shows_the_operator_with_its_tensors(half: Project) -> None:
    half.marked("scene='overflow'", body=OVERFLOW_BODY.format(value=30))
    result = half.run("--npudump-dump-dir=dumps")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "npudump: block/square.2 (Mul) overflowed: AI Core: floating-point overflow, in 2 executions",
            "  input.0: float16 [[]2, 3], max 900 at [[]0, 0], min 900 at [[]0, 0]",
            "  output.0: float16 [[]2, 3], 6 Inf, first at [[]0, 0]",
            "record:     *Opdebug.Node_OpDebug.4.3.* (task 2, stream 3)",
            "details:    *report.txt",
            "to approve: pytest --npudump-update-golden test_small.py::test_small",
        ]
    )
    result.stdout.no_fnmatch_line("*block/relu*")
    data: Any = half.report()
    assert [finding["operator"] for finding in data["findings"]] == ["block/square.2"]


def test_a_listed_overflow_passes_with_a_note(half: Project) -> None:
    half.marked("scene='overflow'", body=OVERFLOW_BODY.format(value=30))
    half.record()
    golden = yaml.safe_load(half.golden.read_text())
    assert golden["overflow"] == {"block/square.2": ["AI Core: floating-point overflow"]}
    assert golden["producer"]["scene"] == "overflow"
    half.run().assert_outcomes(passed=1)


def test_a_further_overflow_fails_against_the_golden(half: Project) -> None:
    half.marked("scene='overflow'", body=OVERFLOW_BODY.format(value=30))
    half.record()
    half.marked("scene='overflow'", body=OVERFLOW_BODY.format(value=300))
    result = half.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "npudump: block/square.1 (Mul) overflowed: *",
            "note: the golden lists block/square.2, which did not overflow this time",
        ]
    )


def test_an_update_forgets_an_overflow_that_is_gone(half: Project) -> None:
    half.marked("scene='overflow'", body=OVERFLOW_BODY.format(value=30))
    half.record()
    half.marked("scene='overflow'", body=OVERFLOW_BODY.format(value=2))
    half.record()
    assert "overflow" not in yaml.safe_load(half.golden.read_text())


def test_a_golden_that_lists_nonsense_is_an_error(half: Project) -> None:
    half.marked("scene='overflow'", body=OVERFLOW_BODY.format(value=30))
    half.record()
    half.golden.write_text(half.golden.read_text().replace("overflow:\n", "overflow: all\nother:\n"))
    result = half.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["npudump: *'overflow' is no mapping of operators to lists*"])


def test_a_test_that_runs_nothing_does_not_pass_for_free_of_overflows(half: Project) -> None:
    half.marked("scene='overflow'", body="    pass\n")
    result = half.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["npudump: no overflow is recorded, and nothing shows that a model ran *"])


def test_a_capture_that_overflows_is_named(half: Project) -> None:
    half.marked(
        "scene='overflow'",
        body="""
    for name, value in (("small", 2), ("large", 30)):
        with npu_dump.capture(name), npu_dump.load_model("half.onnx") as model:
            model.run(np.full((2, 3), value, np.float16))
""",
    )
    result = half.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["npudump: block/square.2 (Mul) overflowed in capture=large: *"])


CAPTURES = """
    for name, value in (("a", {a}), ("b", {b})):
        with npu_dump.capture(name), npu_dump.load_model("half.onnx") as model:
            model.run(np.full((2, 3), value, np.float16))
"""


def test_an_overflow_that_is_listed_in_one_capture_is_none_in_another(half: Project) -> None:
    half.marked("scene='overflow'", body=CAPTURES.format(a=30, b=2))
    half.record()
    listed = yaml.safe_load(half.golden.read_text())["overflow"]
    assert listed == {"block/square.2#capture=a": ["AI Core: floating-point overflow"]}
    half.run().assert_outcomes(passed=1)
    half.marked("scene='overflow'", body=CAPTURES.format(a=30, b=30))
    result = half.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["npudump: block/square.2 (Mul) overflowed in capture=b: *"])
    result.stdout.no_fnmatch_line("*overflowed in capture=a*")
    half.marked("scene='overflow'", body=OVERFLOW_BODY.format(value=30))
    half.run().assert_outcomes(failed=1)


def test_an_overflow_that_is_listed_without_a_capture_is_approved_in_none(half: Project) -> None:
    half.marked("scene='overflow'", body=OVERFLOW_BODY.format(value=30))
    half.record()
    half.marked("scene='overflow'", body=CAPTURES.format(a=30, b=2))
    result = half.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["note: block/square.2#capture=a: the golden lists the operator without *"])


MODELS = """
    for name, value in (("half", {half}), ("twin", {twin})):
        with npu_dump.load_model(f"{{name}}.onnx") as model:
            model.run(np.full((2, 3), value, np.float16))
"""


@pytest.mark.parametrize(("first", "then"), [((30, 2), (2, 30)), ((2, 30), (30, 2)), ((30, 2), (30, 30))])
def test_an_overflow_that_is_listed_of_one_model_is_none_of_another(
    half: Project, first: tuple[int, int], then: tuple[int, int]
) -> None:
    model = onnx.load(str(half.path / "half.onnx"))
    model.graph.name = "twin"
    onnx.save(model, str(half.path / "twin.onnx"))
    half.marked("scene='overflow'", body=MODELS.format(half=first[0], twin=first[1]))
    half.record()
    (name,) = yaml.safe_load(half.golden.read_text())["overflow"]
    assert name == f"block/square.2#model={'half' if first[0] == 30 else 'twin'}"
    half.run().assert_outcomes(passed=1)
    half.marked("scene='overflow'", body=MODELS.format(half=then[0], twin=then[1]))
    half.run().assert_outcomes(failed=1)


LOST = """
    with npu_dump.load_model("half.onnx") as model:
        model.run(np.full((2, 3), 30, np.float16))
    root = npu_dump.config_path.parent / "dump"
    for path in root.rglob("{pattern}"):
        {act}
"""


def test_an_overflow_whose_record_is_lost_fails(half: Project) -> None:
    half.marked("scene='overflow'", body=LOST.format(pattern="Opdebug.*", act="path.unlink()"))
    result = half.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["npudump: block/square.2 (Mul) overflowed: dumped, and no overflow record tells what happened: *"]
    )


def test_an_operator_whose_dump_holds_nothing_and_whose_record_is_lost_fails(half: Project) -> None:
    body = """
    with npu_dump.load_model("half.onnx") as model:
        model.run(np.full((2, 3), 2, np.float16))
    folder = npu_dump.config_path.parent / "dump" / "20260101010101" / "0"
    folder.mkdir(parents=True)
    (folder / "Exp.exp.1.2.1795239189932086").write_bytes(b"\\5\\0\\0\\0\\0\\0\\0\\0\\n\\x032.0")
"""
    half.marked("scene='overflow'", body=body)
    result = half.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["npudump: */Exp.exp.1.2.1795239189932086: the operator was dumped, as it *"])


def test_a_listed_overflow_does_not_cover_one_whose_record_is_lost(half: Project) -> None:
    half.marked("scene='overflow'", body=LOST.format(pattern="Opdebug.*", act="pass"))
    half.record()
    half.marked("scene='overflow'", body=LOST.format(pattern="Opdebug.*", act="path.unlink()"))
    half.run().assert_outcomes(failed=1)


@pytest.mark.parametrize(
    "argument", ["layers=['a']", "model_name='m'", "dump_step='0'", "rtol=1", "dump_mode='all'"]
)
def test_what_the_overflow_scene_excludes_is_an_error_at_collection(project: Project, argument: str) -> None:
    project.marked(f"scene='overflow', {argument}")
    result = project.run()
    result.assert_outcomes(errors=1)
    name = argument.partition("=")[0]
    result.stdout.fnmatch_lines([f"*{name}: not with scene='overflow', which takes no other argument: *"])


def test_an_operator_of_many_inputs_is_shown_within_the_budget(project: Project) -> None:
    names = [f"x{index}" for index in range(40)]
    node = helper.make_node("Concat", ["big", *names], ["y"], name="join", axis=0)
    scale = helper.make_node("Mul", ["z", "z"], ["big"], name="scale")
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT16, [1]) for name in ("z", *names)]
    total = helper.make_node("Sum", ["z", *names], ["s"], name="total")
    outputs = [
        helper.make_tensor_value_info("y", TensorProto.FLOAT16, [41]),
        helper.make_tensor_value_info("s", TensorProto.FLOAT16, [1]),
    ]
    graph = helper.make_graph([total, scale, node], "wide", values, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, str(project.path / "wide.onnx"))
    project.marked(
        "scene='overflow'",
        body="""
    with npu_dump.load_model("wide.onnx") as model:
        model.run(*[np.full(1, 60000, np.float16)] * 41)
""",
    )
    result = project.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["npudump: total (Sum) overflowed: *", "  input.7: *", "  ... and 34 more", "record:     *"]
    )
    result.stdout.no_fnmatch_line("*input.8:*")


@pytest.mark.parametrize("marker", ["", WATCHER, "scene='overflow'", "scene='op'"])
def test_a_dump_that_ge_would_refuse_because_of_the_environment_is_an_error(
    project: Project, monkeypatch: pytest.MonkeyPatch, marker: str
) -> None:
    monkeypatch.setenv("NPU_COLLECT_PATH", str(project.path))
    project.marked(marker)
    result = project.run()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["npudump: NPU_COLLECT_PATH: *E10056*unset NPU_COLLECT_PATH"])


def test_a_test_that_ends_the_dump_itself_is_told_so(project: Project) -> None:
    project.marked("scene='overflow'", body=f"{project.body}    import acl; acl.mdl.finalize_dump()\n")
    result = project.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["npudump: *100045*the test has ended the dump itself; take npu_dump.config_*"]
    )


def test_what_cann_does_less_of_is_a_note_of_a_test_that_passes(project: Project) -> None:
    project.marked("dump_step='0'")
    result = project.run("--npudump-update-golden")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["npudump: note: *: dump_step: selects training iterations; *"])


def test_an_update_of_a_healthy_overflow_test_replaces_a_damaged_golden(project: Project) -> None:
    project.marked("scene='overflow'")
    place = project.path / "golden" / "test_small" / "test_small.yaml"
    place.parent.mkdir(parents=True)
    place.write_text("<<<<<<< HEAD\n")
    project.run().assert_outcomes(failed=1)
    updated = project.run("--npudump-update-golden")
    updated.assert_outcomes(passed=1)
    updated.stdout.fnmatch_lines(["*note: *the golden that was there could not be read, and nothing *"])
    project.run().assert_outcomes(passed=1)
