"""Scenes with a verdict of their own, end to end on the emulator."""

from __future__ import annotations

from typing import Any

import onnx
import pytest
import yaml
from onnx import TensorProto, helper

from tests.onnxmodels.models import onnx_file, onnx_model
from tests.plugin.conftest import Project

WATCHER = (
    "scene='watcher', layers=['block/relu.1', 'block/conv.2'], acl_json={'watcher_nodes': ['block/conv.1']}"
)
TRAMPLE = """
    from pytest_npudump.emulator.faults import end, trample
    end()
    trample("small", by="block/conv.2", victim="block/conv.1", first=12, elements=37)
"""


def test_every_execution_is_watched_and_nothing_approves_a_trampling(project: Project) -> None:
    """A step that is named is watched alone."""
    twice = f"{TRAMPLE}{project.body}        model.run(image)\n"
    project.marked(WATCHER, twice)
    shows = ["npudump: block/conv.2 overwrites *", "*conv.1 in step=1: 37 of 144*"]
    project.run("--npudump-update-golden", failed=1, shows=shows)
    assert not project.path.joinpath("golden").exists()
    project.marked(WATCHER.replace("}", ", 'dump_step': '1'}"), twice)
    project.run(failed=1, hides="*in step=*")


def test_without_layers_outputs_are_watched_after_every_operator(project: Project) -> None:
    marker = "scene='watcher', acl_json={'watcher_nodes': ['block/conv.1']}"
    looks = (
        "    assert len(npu_dump.records) == 4\n"
        "    dump = npu_dump.config['dump']\n"
        "    assert (dump['dump_scene'], 'layer' in dump['dump_list'][0]) == ('watcher', False)\n"
    )
    project.marked(marker, project.body + looks)
    project.run(passed=1)
    project.marked(marker, TRAMPLE + project.body)
    project.run(failed=1, shows="npudump: block/conv.2 overwrites block/conv.1: 37 of 144 elements changed*")
    project.marked("scene='watcher', acl_json={'watcher_nodes': ['head/softmax']}")
    project.run(failed=1, shows="npudump: there is no snapshot of 'head/softmax' after an operator behind *")
    project.marked("scene='watcher', layers=['nothing'], acl_json={'watcher_nodes': ['block/conv.1']}")
    project.run(failed=1, shows="npudump: there is no snapshot of 'block/conv.1' after 'nothing': *")


def test_an_operator_in_both_lists_is_watched_and_no_output_is_dumped_after_it(project: Project) -> None:
    marker = WATCHER.replace("['block/conv.1']", "['block/conv.1', 'block/relu.1']")
    project.marked(marker)
    words = "*layers: CANN dumps no other output after a watched operator*block/relu.1*"
    project.run("-v", passed=1, shows=words)
    project.marked(marker, body=TRAMPLE + project.body)
    project.run(shows="npudump: block/conv.2 overwrites block/conv.1: 37 of 144 elements*")


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
    model = onnx_model(nodes, {"x": [2, 3]}, {"y": [2, 3]}, kind=TensorProto.FLOAT16, name="half")
    onnx.save(model, str(project.path / "half.onnx"))
    return project


CAPTURES = """
    for name, value in (("a", {a}), ("b", {b})):
        with npu_dump.capture(name), npu_dump.load_model("half.onnx") as model:
            model.run(np.full((2, 3), value, np.float16))
"""
HOT = OVERFLOW_BODY.format(value=30)


def test_an_overflow_is_approved_by_its_operator_and_forgotten_when_it_is_gone(half: Project) -> None:
    half.recorded("scene='overflow'", HOT)
    golden = yaml.safe_load(half.golden.read_text())
    assert golden["overflow"] == {"block/square.2": ["AI Core: floating-point overflow"]}
    half.run(passed=1)
    files = "(npu_dump.config_path.parent / 'dump').rglob('Opdebug.*')"
    half.marked("scene='overflow'", f"{HOT}    for path in {files}:\n        path.unlink()\n")
    half.run(failed=1)
    half.marked("scene='overflow'", OVERFLOW_BODY.format(value=300))
    shows = [
        "npudump: block/square.1 (Mul) overflowed: *",
        "note:       the golden lists block/square.2, which did not overflow this time",
    ]
    half.run(failed=1, shows=shows)
    half.recorded("scene='overflow'", OVERFLOW_BODY.format(value=2) + "    assert npu_dump.records == ()\n")
    assert "overflow" not in yaml.safe_load(half.golden.read_text())


def test_an_overflow_that_is_listed_in_one_capture_is_none_in_another(half: Project) -> None:
    half.marked("scene='overflow'", CAPTURES.format(a=30, b=2))
    half.record()
    listed = yaml.safe_load(half.golden.read_text())["overflow"]
    assert listed == {"block/square.2#capture=a": ["AI Core: floating-point overflow"]}
    half.run(passed=1)
    half.marked("scene='overflow'", CAPTURES.format(a=30, b=30))
    words = "npudump: block/square.2 (Mul) overflowed in capture=b: *"
    half.run(failed=1, shows=words, hides="*overflowed in capture=a*")
    half.marked("scene='overflow'", HOT)
    half.run(failed=1)
    half.record()
    half.marked("scene='overflow'", CAPTURES.format(a=30, b=2))
    half.run(failed=1, shows="note:       block/square.2#capture=a: the golden lists the operator without *")


MODELS = """
    for name, value in (("half", {half}), ("twin", {twin})):
        with npu_dump.load_model(f"{{name}}.onnx") as model:
            model.run(np.full((2, 3), value, np.float16))
"""


def test_an_overflow_that_is_listed_of_one_model_is_none_of_another(half: Project) -> None:
    model = onnx.load(str(half.path / "half.onnx"))
    model.graph.name = "twin"
    onnx.save(model, str(half.path / "twin.onnx"))
    for first, then in (((30, 2), (2, 30)), ((2, 30), (30, 30))):
        half.marked("scene='overflow'", MODELS.format(half=first[0], twin=first[1]))
        half.record()
        (name,) = yaml.safe_load(half.golden.read_text())["overflow"]
        assert name == f"block/square.2#model={'half' if first[0] == 30 else 'twin'}"
        half.run(passed=1)
        half.marked("scene='overflow'", MODELS.format(half=then[0], twin=then[1]))
        half.run(failed=1)


def test_an_operator_whose_dump_holds_nothing_and_whose_record_is_lost_fails(half: Project) -> None:
    body = """
    with npu_dump.load_model("half.onnx") as model:
        model.run(np.full((2, 3), 2, np.float16))
    folder = npu_dump.config_path.parent / "dump" / "20260101010101" / "0"
    folder.mkdir(parents=True)
    (folder / "Exp.exp.1.2.1795239189932086").write_bytes(b"\\5\\0\\0\\0\\0\\0\\0\\0\\n\\x032.0")
"""
    half.marked("scene='overflow'", body=body)
    half.run(failed=1, shows="npudump: */Exp.exp.1.2.1795239189932086: the operator was dumped, as it *")


def test_an_operator_of_many_inputs_is_shown_within_the_budget(project: Project) -> None:
    names = [f"x{index}" for index in range(40)]
    nodes = [
        helper.make_node("Sum", ["z", *names], ["s"], name="total"),
        helper.make_node("Mul", ["z", "z"], ["big"], name="scale"),
        helper.make_node("Concat", ["big", *names], ["y"], name="join", axis=0),
    ]
    given: dict[str, Any] = {key: [1] for key in ("z", *names)}
    wide = project.path / "wide.onnx"
    onnx_file(wide, nodes, given, {"y": [41], "s": [1]}, kind=TensorProto.FLOAT16, name="wide")
    run = "        model.run(*[np.full(1, 60000, np.float16)] * 41)\n"
    project.marked("scene='overflow'", f'    with npu_dump.load_model("wide.onnx") as model:\n{run}')
    shows = ["npudump: total (Sum) overflowed: *", "  input.7: *", "  ... and 34 more", "record:     *"]
    project.run(failed=1, shows=shows, hides="*input.8:*")


def test_a_dump_that_ge_would_refuse_because_of_the_environment_is_an_error(project: Project) -> None:
    project.patch.setenv("NPU_COLLECT_PATH", str(project.path))
    markers = enumerate(("", WATCHER, "scene='overflow'", "scene='op'"))
    tests = (f"@pytest.mark.npu_dump({marker})\ndef test_{n}(npu_dump):\n    pass\n" for n, marker in markers)
    project.test_file("\n".join(tests))
    words = "npudump: NPU_COLLECT_PATH: *E10056*unset NPU_COLLECT_PATH"
    project.run(errors=4, shows=[words] * 4)


def test_an_update_of_a_healthy_overflow_test_replaces_a_damaged_golden(project: Project) -> None:
    """A test that ends the dump itself is told so."""
    project.marked("scene='overflow'", body=f"{project.body}    import acl; acl.mdl.finalize_dump()\n")
    project.run(failed=1, shows="npudump: *100045*the test has ended the dump itself; take npu_dump.config_*")
    project.marked("scene='overflow'")
    place = project.path / "golden" / "test_small" / "test_small.yaml"
    place.parent.mkdir(parents=True)
    place.write_text("<<<<<<< HEAD\n")
    project.run(failed=1)
    words = "*note: *the golden that was there could not be read, and nothing *"
    project.run("--npudump-update-golden", passed=1, shows=words)
    project.run(passed=1)
