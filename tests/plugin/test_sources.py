"""The sources of a failure: each fault in a branch of its own is named, and its operator judged alone."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from pytest_npudump.cli import main
from tests.onnxmodels.models import onnx_model
from tests.plugin.conftest import Project

FED_BY = {"left/a": ["image"], "left/b": ["left/a"], "right/a": ["image"], "right/b": ["right/a"]}


def branches(changed: dict[str, float]) -> bytes:
    """Two branches of two additions each that meet in a third; ``changed`` is added to some of them."""
    weights = {f"w/{name}": np.full(1, 1 + changed.get(name, 0.0), np.float32) for name in FED_BY}
    nodes = [helper.make_node("Mul", [*fed, f"w/{name}"], [name], name) for name, fed in FED_BY.items()]
    nodes.insert(1, helper.make_node("Reshape", ["left/a", "shape"], ["flat"], "left/reshape"))
    nodes[2].input[0] = "flat"
    nodes.append(helper.make_node("Reshape", ["right/b", "shape"], ["right/flat"], "right/reshape"))
    nodes.append(helper.make_node("Add", ["left/b", "right/flat"], ["out"], "both"))
    weights["shape"] = np.array([64], np.int64)
    return bytes(onnx_model(nodes, {"image": [1, 1, 8, 8]}, {"out": [64]}, weights).SerializeToString())


def write(project: Project, **changed: float) -> None:
    model = branches({name.replace("_", "/"): change for name, change in changed.items()})
    project.path.joinpath("small.onnx").write_bytes(model)


def failed(project: Project, *options: str, **expected: Any) -> pytest.RunResult:
    shutil.rmtree(project.path / "dumps", ignore_errors=True)
    result = project.run("--npudump-output=.", *options, **expected)
    assert result.ret == 1
    return result


def found(project: Project) -> list[tuple[str, int]]:
    sources: Any = project.report()["sources"]
    return [(source["key"], source["explains"]) for source in sources["found"]]


TWO = {"left_a": 0.1, "right_b": 0.1}
BOTH = [("left/a:output.0", 4), ("right/b:output.0", 3)]
"""What ``found`` says of these faults: they are in branches of their own."""


@pytest.fixture
def forked(project: Project) -> Project:
    """A project whose model has two branches."""
    write(project)
    return project


def test_two_faults_in_independent_branches_are_both_named(project: Project) -> None:
    """Inputs that the golden has not hide no mismatch; two faults in series are not said to be one."""
    write(project)
    project.recorded()
    write(project, **TWO)
    shows = [
        "npudump: left/a, right/b: weights changed *: left/a:output.0 *; 1 other source: right/b",
        "first:      left/a:output.0; all statistics before it match, including those of the outputs *",
        "sources:    2: left/a:output.0 (at least 3 mismatches downstream), right/b:output.0 (at least *",
        "FAILED * - left/a, right/b: weights changed *",
    ]
    failed(project, "-rf", shows=shows)
    assert found(project) == BOTH
    write(project, left_a=0.1, left_b=0.1)
    hides = ["*explains*", "*begins*", "*look there*", "*tensor dumped before it agrees*"]
    failed(project, "-v", shows="source:     left/a:output.0; *; 3 mismatches downstream", hides=hides)
    write(project)
    project.marked(body=project.body.replace("linspace(-1, 1", "linspace(-1, 2"))
    failed(project, hides="*other source*")
    assert found(project) == [("image:output.0", 8)]  # an input that is dumped once for each reader
    project.marked('acl_json={"dump_mode": "all"}')
    failed(project, shows="*'output', this test asks for 'all': accept anew*")
    write(project, **TWO)
    shows = [
        "also:       the golden has no inputs (recorded with dump_mode=output)",
        "sources:    2: left/a:output.0 (at least 3 mismatches downstream), right/b:output.0 (at *",
        "golden:     *; mismatches: 6 of 9 tensors, 8 new",
        "  layer *",
        "  left/a *",
    ]
    failed(project, shows=shows)
    assert found(project) == BOTH


def in_halves(path: Path) -> bytes:
    """The model in float16."""
    model = onnx.load(str(path))
    for tensor in model.graph.initializer:
        array = numpy_helper.to_array(tensor)
        if array.dtype == np.float32:
            tensor.CopyFrom(numpy_helper.from_array(array.astype(np.float16), tensor.name))
    for port in (*model.graph.input, *model.graph.output):
        port.type.tensor_type.elem_type = TensorProto.FLOAT16
    content: bytes = model.SerializeToString()
    return content


def test_two_faults_off_the_reference_are_both_named_and_convicted(recorded: Project) -> None:
    """They are named by the graph of the golden, where that agrees."""
    write(recorded, **TWO)
    recorded.golden.unlink()
    recorded.marked("reference='reference.onnx'")
    shows = [
        "npudump: left/a:output.0: operator error or overwritten tensor, *; also right/b:output.0",
        "first:      left/a:output.0; *",
        "sources:    2: left/a:output.0 (at least 3 mismatches downstream), right/b:output.0 (at least *",
        "recomputed: left/a:output.0 differs from *",
        "recomputed: right/b:output.0 differs from *",
    ]
    failed(recorded, "-rf", shows=shows)
    assert found(recorded) == BOTH
    recorded.recorded()
    recorded.marked("reference='reference.onnx'")
    failed(recorded, shows="sources:    2: left/a:output.0 *, right/b:output.0 *")
    assert recorded.report()["sources"]["told_by"] == "test_small.yaml"  # type: ignore[index]
    write(recorded, left_b=0.1, **TWO)
    failed(
        recorded, shows="source:     left/b:output.0; *; 1 mismatch downstream; left/a:output.0 is within *"
    )


def test_operators_of_several_models_are_judged_by_their_own(forked: Project) -> None:
    """A file that was written again as it was is still the model that ran."""
    model = onnx.load(str(forked.path / "small.onnx"))
    model.graph.name = "other"
    for node in model.graph.node:
        node.name = f"other/{node.name}"
    onnx.save(model, str(forked.path / "other.onnx"))
    plant = 'faults.distort("{0}", "{1}right/b", factor=1.1)'
    both = f"{plant.format('small', '')}; {plant.format('other', 'other/')}"
    again = 'Path("small.onnx").write_bytes(Path("small.onnx").read_bytes()); run(npu_dump)'
    one = "recomputed: right/b:output.0 differs from small.onnx on what feeds it: *"
    two = [
        "sources:    2: right/b#model=small:output.0 *, other/right/b#model=other:output.0 *",
        "recomputed: right/b#model=small:output.0 differs from small.onnx *: the kernel must be wrong, *",
        "recomputed: other/right/b#model=other:output.0 differs from other.onnx on what *(*",
    ]
    for shows, faults, lines in (
        (two, both, 'for name in ("small.onnx", "other.onnx"):\n        run(npu_dump, path=name)'),
        (one, plant.format("small", ""), f"for _ in range(2):\n        {again}"),
    ):
        for planted in ("pass", faults):
            head = "    from pathlib import Path\n    from pytest_npudump.emulator import faults\n"
            forked.marked(body=f"{head}    faults.end(); {planted}\n    {lines}\n")
            if planted == "pass":
                forked.record()
        failed(forked, shows=shows)


def test_weights_in_a_file_beside_the_model_belong_to_what_was_loaded(project: Project) -> None:
    path = str(project.path / "small.onnx")
    beside = {"save_as_external_data": True, "location": "weights.bin", "size_threshold": 64}
    for name, change in (("a", 0.0), ("b", 0.5)):
        project.model(change=change)
        onnx.save(onnx.load(path), path, **beside)
        project.path.joinpath("weights.bin").rename(project.path / f"{name}.bin")
    source = AGAIN.replace("small.onnx", "weights.bin")
    project.recorded(body=source.format(names="aa"))
    project.marked(body=source.format(names="ba"))
    shown = failed(project).stdout.str()
    assert "must be wrong" not in shown
    assert "small.onnx was written again after it was loaded" in shown


def test_a_tensor_that_tells_no_model_is_not_judged_by_any(project: Project) -> None:
    write(project)
    source = project.path / "small.onnx"
    for folder in ("here", "there"):
        (project.path / folder).mkdir()
        (project.path / folder / source.name).write_bytes(source.read_bytes())
    body = """
            for name in ("here/small.onnx", "there/small.onnx"):
                with npu_dump.load_model(name) as model:
                    model.run(np.full((1, 1, 8, 8), {value}, np.float32))
            """
    project.recorded(body=body.format(value=1))
    write(project, left_a=0.1)
    for folder in ("here", "there"):
        (project.path / folder / source.name).write_bytes(source.read_bytes())
    failed(
        project,
        "-v",
        shows=[
            "note:       not recomputed: left/a:output.0*, as several models ran (small.onnx, small.onnx); *"
        ],
    )


def test_an_operator_of_several_outputs_and_executions_is_named_once(project: Project) -> None:
    for weight in (1.0, 1.1):
        nodes = [
            helper.make_node("Mul", ["image", "w"], ["m"], "mul"),
            helper.make_node("Split", ["image"], ["s", "t"], "split", axis=3),
            helper.make_node("Mul", ["s", "w"], ["u"], "second"),
        ]
        weights = {"w": np.full(1, weight, np.float32)}
        model = onnx_model(nodes, {"image": [1, 1, 8, 8]}, {"m": None, "u": None}, weights, opset=13)
        project.path.joinpath("small.onnx").write_bytes(model.SerializeToString())
        run = "model.run(image)"
        project.marked(body=project.body.replace(run, f"{run}; {run}"))
        if weight == 1.0:
            project.record()
    assert project.body.count(run) == 1
    failed(project, shows=["npudump: *mul:output.0* *; 1 other source: second"])
    assert len(found(project)) == 4


def test_layers_that_are_not_dumped_are_looked_through(
    forked: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    """A saved run, whose edges lead through them, too, says what the run has said."""
    forked.recorded('layers=["*/a", "both"]')
    text = forked.golden.read_text().partition("models:")[0]
    assert text.endswith("  left/a < -\n  right/a < -\n  both < left/a right/a\n")
    write(forked, **TWO)
    failed(forked, shows="*left/a:output.0; no tensor was compared before it; 1 mismatch downstream")
    assert found(forked) == [("left/a:output.0", 2)]
    known = "left/a:output.0; no tensor was compared before it; 1 mismatch downstream"
    unseen = "both:output.0; all statistics before it match; not all of its inputs are known; no other"
    for change, source in ((TWO, known), ({"left_b": 0.1}, unseen)):
        write(forked, **change)
        failed(forked)
        ran = capsys.readouterr().out
        assert main(["check", "results"]) == 1
        for told in (ran, capsys.readouterr().out):
            assert f" source: {source}" in " ".join(told.split())


def test_a_change_that_passes_is_followed_to_where_it_begins(forked: Project) -> None:
    forked.recorded('tolerances=[{"layer": "left/*", "rtol": 0.2, "atol": 0, "reason": "wide"}]')
    forked.golden.write_text(forked.golden.read_text().partition("models:")[0])  # which would name it
    write(forked, left_a=0.1)
    words = "npudump: the change is traced to left/a:output.0 (within tolerance, 0.546 of it); "
    shows = [f"{words}first mismatch: both:*", "source:     both:output.0; *; no other mismatch"]
    failed(forked, shows=shows)


def test_an_input_with_two_readers_is_not_several_operators_of_one_name(project: Project) -> None:
    write(project)
    project.marked()
    recorded = project.run("--npudump-update-golden")
    assert "  image#turn=1 " in project.golden.read_text()
    recorded.stdout.no_fnmatch_line("*several operators*")
    model = onnx.load(project.path / "small.onnx")
    for node in model.graph.node:
        node.name = {"left/b": "left.a"}.get(node.name, node.name)
    onnx.save(model, project.path / "small.onnx")
    project.run("--npudump-update-golden", hides="*several operators*")  # tensors have the raw names
    assert {"  left/a float32", "  left.a float32"} <= {
        *re.findall(r"^  \S+ float32", project.golden.read_text(), re.MULTILINE)
    }
    project.marked('acl_json={"dump_data": "stats"}')
    project.run("--npudump-update-golden", shows="*several operators have one file name*: left_a (*")


def test_a_graph_that_the_marker_names_tells_what_feeds_what(forked: Project) -> None:
    fed = {"left/a": [], "left/b": ["left/a:0"], "right/a": ["left/b:0"], "right/b": ["right/a:0"]}
    operators = [{"name": name, "type": "Mul", "input": inputs} for name, inputs in fed.items()]
    text = json.dumps({"graph": [{"op": operators}]})
    forked.path.joinpath("ran.json").write_text(text, "utf-8")
    forked.recorded("graph='ran.json'")
    write(forked, left_a=0.5, right_a=0.5)
    failed(forked)
    assert [key for key, _ in found(forked)] == ["left/a:output.0"]


AGAIN = """
    from pathlib import Path
    for name in {names!r}:
        Path("small.onnx").write_bytes(Path(f"{{name}}.bin").read_bytes())
        run(npu_dump)
"""


def test_no_operator_is_judged_by_a_file_that_was_written_again_after_it_was_loaded(project: Project) -> None:
    for name, change in {"a": 0.0, "b": 0.5, "c": 0.7}.items():
        project.path.joinpath(f"{name}.bin").write_bytes(branches({"right/b": change}))
    source = f'{AGAIN}    Path("small.onnx").write_bytes(Path("{{last}}.bin").read_bytes())\n'
    write(project)
    project.recorded(body=source.format(names="aa", last="a"))
    reference = "reference='small.onnx'"
    # Between two loads, and between the test and its report.
    for names, last, marker in (("ab", "b", ""), ("bb", "a", ""), ("ca", "a", reference)):
        project.marked(marker, body=source.format(names=names, last=last))
        shown = failed(project).stdout.str()
        assert "must be wrong" not in shown, (names, last, shown)
        assert "right/b#" in shown or "right/b:" in shown
        assert "was written again after it was loaded, and may be another model" in shown, (names, last)


def test_a_change_off_the_reference_is_followed_in_32_bits(project: Project) -> None:
    write(project)
    project.path.joinpath("small.onnx").rename(project.path / "reference.onnx")
    rule = '{"against": "reference", "layer": "left/*", "rtol": 0.2, "atol": 0, "reason": "wide"}'
    marker = f"reference='reference.onnx', preset='om-net', tolerances=[{rule}]"
    write(project, left_a=0.15)
    followed = "traced to:  left/a:output.0 (within tolerance, * of it), upstream of both:output.0"
    source = "source:     both:output.0 (no other mismatch)"
    project.marked(marker)
    project.run(failed=1, shows=[source, followed])
    project.path.joinpath("small.onnx").write_bytes(in_halves(project.path / "small.onnx"))
    project.marked(marker, body=project.body.replace("np.float32", "np.float16"))
    project.run(failed=1, shows=source, hides=followed)


def test_edges_that_a_golden_has_not_or_has_of_other_layers_come_from_the_model(project: Project) -> None:
    write(project)
    project.marked()
    project.record()
    text = project.golden.read_text()
    lines = [line for line in text.splitlines() if "right/reshape" not in line or " < " in line]
    others = "\n".join(lines).replace("  right/b < right/a:output.0", "  right/b < left/b:output.0") + "\n"
    without = text[: text.index("edges: |")]
    project.golden.write_text(without)
    project.run(passed=1)
    write(project, left_a=0.1, right_b=0.1)
    for golden in (without, others):
        project.golden.write_text(golden)
        failed(project)
        assert [key for key, _ in found(project)] == ["left/a:output.0", "right/b:output.0"]
        assert project.report()["sources"]["told_by"] == "small.onnx"  # type: ignore[index]


FAULTS = "\n    from pytest_npudump.emulator import faults\n"
DISTORTED = f'{FAULTS}    faults.distort("small", "{{}}", factor=1.001)\n'
FAULTY = f'{DISTORTED.format("left/a")}    faults.distort("small", "right/b", offset=0.01)\n'
LITTLE = "-onpudump_dump_limit=600"


def isolated(project: Project) -> dict[str, str]:
    """Return verdicts of the operators that were judged alone."""
    escalation: Any = project.report()["escalation"]
    return {found["key"]: found["verdict"] for found in escalation["isolated"]}


@pytest.fixture
def recorded(project: Project) -> Project:
    """A project with a golden of the model as it should be, which is the reference as well."""
    write(project)
    project.path.joinpath("reference.onnx").write_bytes(project.path.joinpath("small.onnx").read_bytes())
    project.recorded()
    return project


def test_a_third_run_has_room_for_the_inputs_of_one_suspect(recorded: Project) -> None:
    """Inputs beyond the limit are said to be missing in the second one."""
    recorded.marked(body=FAULTY + recorded.body)
    failed(recorded, LITTLE)
    escalation: Any = recorded.report()["escalation"]
    assert {one["why"] for one in escalation["isolated"]} == {
        "it reads 'image', which the second run has not dumped",
        "it reads 'right/a', which the second run has not dumped",
    }
    failed(recorded, LITTLE, "-onpudump_escalate=twice")
    assert isolated(recorded) == {"left/a:output.0": "unknown", "right/b:output.0": "convicted"}


def test_inputs_that_the_first_run_has_not_dumped_are_in_the_second_one_where_they_fit(
    recorded: Project,
) -> None:
    """The golden has one layer, and nothing that feeds it: 256 bytes, and twice as many that it reads."""
    recorded.recorded("layers=['both']")
    recorded.marked("layers=['both']", body=DISTORTED.format("both") + recorded.body)
    for limit, verdict in ((768, "convicted"), (767, "unknown")):
        failed(recorded, f"-onpudump_dump_limit={limit}")
        assert isolated(recorded) == {"both:output.0": verdict}


def test_a_third_run_judges_what_feeds_an_acquitted_operator(recorded: Project) -> None:
    """The golden has the last operator only, so that nothing is known to have changed before it."""
    marker = "layers=['bot*'], reference='reference.onnx'"
    recorded.recorded(marker)
    recorded.marked(marker, body=DISTORTED.format("left/b") + recorded.body)
    failed(recorded)
    assert isolated(recorded) == {"both:output.0": "acquitted"}
    assert recorded.report()["escalation"]["third"] is None
    failed(recorded, "-onpudump_escalate=twice", failed=1)
    assert isolated(recorded) == {
        "both:output.0": "acquitted",
        "left/b:output.0": "convicted",
        "right/reshape:output.0": "acquitted",
    }
    third = recorded.report()["escalation"]["third"]
    assert third["layers"] == ["left/b", "right/reshape"]
    assert third["directory"].endswith("run3")
    made = recorded.path / "made"
    assert main(["repro", str(third["directory"] + "/.."), "-o", str(made), "--no-run"]) == 0
    assert "left/b" in (made / "README.md").read_text(encoding="utf-8")


def test_a_third_run_that_fails_leaves_what_the_second_one_found(recorded: Project) -> None:
    fault = """
    import os
    if os.path.exists("twice"):
        raise OSError("the disk is gone")
    os.rename("once", "twice") if os.path.exists("once") else open("once", "w").close()
"""
    recorded.marked(body=fault + FAULTY + recorded.body)
    failed(recorded, LITTLE, "-onpudump_escalate=twice", failed=1)
    found = recorded.report()["escalation"]
    assert found["reproduced"] is True
    assert "the disk is gone" in found["third"]["problem"]
    assert {*isolated(recorded).values()} == {"unknown"}
