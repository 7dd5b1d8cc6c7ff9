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


def failed(project: Project, *options: str) -> pytest.RunResult:
    result = project.run("--npudump-output=.", *options)
    assert result.ret == 1
    return result


def found(project: Project) -> list[tuple[str, int]]:
    sources: Any = project.report()["sources"]
    return [(source["key"], source["explains"]) for source in sources["found"]]


def test_two_faults_in_independent_branches_are_both_named(project: Project) -> None:
    write(project)
    project.recorded()
    write(project, left_a=0.1, right_b=0.1)
    failed(project, "-rf").stdout.fnmatch_lines(
        [
            "npudump: left/a, right/b: weights changed *: left/a:output.0 *; 1 other source: right/b",
            "first:      left/a:output.0; all statistics before it match, including those of its inputs",
            "sources:    2: left/a:output.0 (at least 3 mismatches downstream), right/b:output.0 (at least *",
            "FAILED * - left/a, right/b: weights changed *",
        ]
    )
    assert found(project) == [("left/a:output.0", 4), ("right/b:output.0", 3)]


def test_inputs_that_the_golden_has_not_hide_no_mismatch(project: Project) -> None:
    write(project)
    project.recorded()
    project.marked('acl_json={"dump_mode": "all"}')
    failed(project).stdout.fnmatch_lines(["*'output', this test asks for 'all': accept anew*"])
    shutil.rmtree(project.path / "dumps")
    write(project, left_a=0.1, right_b=0.1)
    failed(project).stdout.fnmatch_lines(
        [
            "also:       the golden has no inputs (recorded with dump_mode=output)",
            "sources:    2: left/a:output.0 (at least 3 mismatches downstream), right/b:output.0 (at *",
            "golden:     *; mismatches: 6 of 9 tensors, 8 new",
            "  layer *",
            "  left/a *",
        ]
    )
    assert found(project) == [("left/a:output.0", 4), ("right/b:output.0", 3)]


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


def off_reference(project: Project) -> None:
    """Two faults against ``reference.onnx``, in branches of their own."""
    write(project)
    project.path.joinpath("small.onnx").rename(project.path / "reference.onnx")
    write(project, left_a=0.1, right_b=0.1)


def test_two_faults_off_the_reference_are_both_named_and_convicted(project: Project) -> None:
    off_reference(project)
    project.marked("reference='reference.onnx'")
    failed(project, "-rf").stdout.fnmatch_lines(
        [
            "npudump: left/a:output.0: operator error, *; also right/b:output.0",
            "first:      left/a:output.0; *",
            "sources:    2: left/a:output.0 (at least 3 mismatches downstream), right/b:output.0 (at least *",
            "recomputed: left/a:output.0 differs from *",
            "recomputed: right/b:output.0 differs from *",
        ]
    )
    assert found(project) == [("left/a:output.0", 4), ("right/b:output.0", 3)]


def test_sources_are_off_the_reference_where_the_golden_agrees(project: Project) -> None:
    off_reference(project)
    project.recorded()
    project.marked("reference='reference.onnx'")
    failed(project).stdout.fnmatch_lines(["sources:    2: left/a:output.0 *, right/b:output.0 *"])
    assert project.report()["sources"]["told_by"] == "test_small.yaml"  # type: ignore[index]
    write(project, left_a=0.1, left_b=0.1, right_b=0.1)
    failed(project).stdout.fnmatch_lines(["source:     left/b:output.0; *; 1 mismatch downstream"])


def test_operators_of_several_models_are_judged_by_their_own(project: Project) -> None:
    image = "np.linspace(-1, 1, 64, dtype=np.float32).reshape(1, 1, 8, 8)"
    write(project)
    project.path.joinpath("other.onnx").write_bytes(project.path.joinpath("small.onnx").read_bytes())
    model = onnx.load(str(project.path / "other.onnx"))
    model.graph.name = "other"
    for node in model.graph.node:
        node.name = f"other/{node.name}"
    onnx.save(model, str(project.path / "other.onnx"))
    plant = 'import pytest_npudump.emulator.faults as f; f.distort("{0}", "{1}right/b", factor=1.1)'
    for faults in ("pass", f"{plant.format('small', '')}; {plant.format('other', 'other/')}"):
        project.marked(
            body=f"""
            {faults}
            for name in ("small.onnx", "other.onnx"):
                with npu_dump.load_model(name) as model:
                    model.run({image})
            """
        )
        if faults == "pass":
            project.record()
    failed(project).stdout.fnmatch_lines(
        [
            "sources:    2: right/b#model=small:output.0 *, other/right/b#model=other:output.0 *",
            "recomputed: right/b#model=small:output.0 differs from small.onnx *: the kernel must be wrong, *",
            "recomputed: other/right/b#model=other:output.0 differs from other.onnx on the upstream *(*",
        ]
    )


def test_a_file_that_was_written_again_as_it_was_is_still_the_model_that_ran(project: Project) -> None:
    write(project)
    plant = 'import pytest_npudump.emulator.faults as f; f.distort("small", "right/b", factor=1.1)'
    for fault in ("pass", plant):
        project.marked(
            body=f"""
            from pathlib import Path
            {fault}
            for _ in range(2):
                Path("small.onnx").write_bytes(Path("small.onnx").read_bytes())
                run(npu_dump)
            """
        )
        if fault == "pass":
            project.record()
    failed(project).stdout.fnmatch_lines(
        ["recomputed: right/b:output.0 differs from small.onnx on the upstream outputs (*"]
    )


def test_weights_in_a_file_beside_the_model_belong_to_what_was_loaded(project: Project) -> None:
    path = str(project.path / "small.onnx")
    for name, change in (("a", 0.0), ("b", 0.5)):
        project.model(change=change)
        onnx.save(
            onnx.load(path), path, save_as_external_data=True, location="weights.bin", size_threshold=64
        )
        project.path.joinpath("weights.bin").rename(project.path / f"{name}.bin")
    source = """
            from pathlib import Path
            for name in {names!r}:
                Path("weights.bin").write_bytes(Path(f"{{name}}.bin").read_bytes())
                run(npu_dump)
            """
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
    failed(project, "-v").stdout.fnmatch_lines(
        ["note:       not recomputed: left/a:output.0*, as several models ran (small.onnx, small.onnx); *"]
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
    failed(project).stdout.fnmatch_lines(["npudump: *mul:output.0* *; 1 other source: second"])
    assert len(found(project)) == 4


def test_an_input_that_is_dumped_once_for_each_reader_is_one_source(project: Project) -> None:
    write(project)
    project.recorded()
    project.marked(body=project.body.replace("linspace(-1, 1", "linspace(-1, 2"))
    failed(project).stdout.no_fnmatch_line("*other source*")
    assert found(project) == [("image:output.0", 8)]


def test_layers_that_are_not_dumped_are_looked_through(project: Project) -> None:
    write(project)
    project.recorded('layers=["*/a", "both"]')
    text = project.golden.read_text()
    text = text.partition("models:")[0]
    assert text.endswith("  left/a < -\n  right/a < -\n  both < left/a right/a\n")
    write(project, left_a=0.1, right_b=0.1)
    failed(project).stdout.fnmatch_lines(["*compared before it; not all of its inputs are known; *"])
    assert found(project) == [("left/a:output.0", 2)]


def test_a_change_that_passes_is_followed_to_where_it_begins(project: Project) -> None:
    write(project)
    project.recorded('tolerances=[{"layer": "left/*", "rtol": 0.2, "atol": 0, "reason": "wide"}]')
    project.golden.write_text(project.golden.read_text().partition("models:")[0])  # which would name it
    write(project, left_a=0.1)
    failed(project).stdout.fnmatch_lines(
        [
            (
                "npudump: the change is traced to left/a:output.0 (within tolerance, 0.546 of it); "
                "first mismatch: both:*"
            ),
            "source:     both:output.0; *; no other mismatch",
        ]
    )


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


def test_two_faults_in_series_are_not_said_to_be_one(project: Project) -> None:
    """The second is downstream of the first, and wrong by itself."""
    write(project)
    project.recorded()
    write(project, left_a=0.1, left_b=0.1)
    shown = failed(project, "-v").stdout
    shown.fnmatch_lines(["source:     left/a:output.0; *; 3 mismatches downstream"])
    for words in ("*explains*", "*begins*", "*look there*", "*tensor dumped before it agrees*"):
        shown.no_fnmatch_line(words)


def test_a_graph_that_the_marker_names_tells_what_feeds_what(project: Project) -> None:
    write(project)
    operators = [
        {"name": name, "type": "Mul", "input": inputs}
        for name, inputs in {
            "left/a": [],
            "left/b": ["left/a:0"],
            "right/a": ["left/b:0"],
            "right/b": ["right/a:0"],
        }.items()
    ]
    text = json.dumps({"graph": [{"op": operators}]})
    project.path.joinpath("ran.json").write_text(text, "utf-8")
    project.recorded("graph='ran.json'")
    write(project, left_a=0.5, right_a=0.5)
    failed(project)
    assert [key for key, _ in found(project)] == ["left/a:output.0"]


def test_no_operator_is_judged_by_a_file_that_was_written_again_after_it_was_loaded(project: Project) -> None:
    models = {name: branches({"right/b": change}) for name, change in {"a": 0.0, "b": 0.5, "c": 0.7}.items()}
    for name, content in models.items():
        project.path.joinpath(f"{name}.bin").write_bytes(content)
    source = """
            from pathlib import Path
            for name in {names!r}:
                Path("small.onnx").write_bytes(Path(f"{{name}}.bin").read_bytes())
                run(npu_dump)
            Path("small.onnx").write_bytes(Path("{last}.bin").read_bytes())
            """
    write(project)
    project.marked(body=source.format(names="aa", last="a"))
    project.record()
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
        shutil.rmtree(project.path / "dumps", ignore_errors=True)
        failed(project)
        assert [key for key, _ in found(project)] == ["left/a:output.0", "right/b:output.0"]
        assert project.report()["sources"]["told_by"] == "small.onnx"  # type: ignore[index]


FAULTY = """
    from pytest_npudump.emulator import faults
    faults.distort("small", "left/a", factor=1.001)
    faults.distort("small", "right/b", offset=0.01)
"""


def isolated(project: Project) -> dict[str, dict[str, Any]]:
    escalation: Any = project.report()["escalation"]
    return {found["key"]: found for found in escalation["isolated"]}


@pytest.fixture
def recorded(project: Project) -> Project:
    """A project with a golden of the model as it should be, which is the reference as well."""
    write(project)
    project.path.joinpath("reference.onnx").write_bytes(project.path.joinpath("small.onnx").read_bytes())
    project.recorded()
    return project


def test_inputs_beyond_the_limit_are_said_to_be_missing(recorded: Project) -> None:
    recorded.marked(body=FAULTY + recorded.body)
    recorded.run("--npudump-output=.", "-onpudump_dump_limit=600")
    assert {one["why"] for one in isolated(recorded).values()} == {
        "of its inputs the second run has not dumped 'image'",
        "of its inputs the second run has not dumped 'right/a'",
    }


@pytest.mark.parametrize(("limit", "verdict"), [(768, "convicted"), (767, "unknown")])
def test_inputs_that_the_first_run_has_not_dumped_are_in_the_second_one_where_they_fit(
    recorded: Project, limit: int, verdict: str
) -> None:
    """The golden has one layer, and nothing that feeds it: 256 bytes, and twice as many that it reads."""
    recorded.marked("layers=['both']")
    recorded.record("--npudump-update-golden")
    fault = """
    from pytest_npudump.emulator import faults
    faults.distort("small", "both", factor=1.001)
"""
    recorded.marked("layers=['both']", body=fault + recorded.body)
    recorded.run("--npudump-output=.", f"-onpudump_dump_limit={limit}")
    assert {key: one["verdict"] for key, one in isolated(recorded).items()} == {"both:output.0": verdict}


def test_a_third_run_judges_what_feeds_an_acquitted_operator(recorded: Project) -> None:
    """The golden has the last operator only, so that nothing is known to have changed before it."""
    marker = "layers=['bot*'], reference='reference.onnx'"
    recorded.marked(marker)
    recorded.record("--npudump-update-golden")
    fault = """
    from pytest_npudump.emulator import faults
    faults.distort("small", "left/b", factor=1.001)
"""
    recorded.marked(marker, body=fault + recorded.body)
    recorded.run("--npudump-output=.")
    assert {key: one["verdict"] for key, one in isolated(recorded).items()} == {"both:output.0": "acquitted"}
    assert recorded.report()["escalation"]["third"] is None
    shutil.rmtree(recorded.path / "dumps")
    recorded.run("--npudump-output=.", "-onpudump_escalate=twice").assert_outcomes(failed=1)
    assert {key: one["verdict"] for key, one in isolated(recorded).items()} == {
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


def test_a_third_run_has_room_for_the_inputs_of_one_suspect(recorded: Project) -> None:
    recorded.marked(body=FAULTY + recorded.body)
    recorded.run("--npudump-output=.", "-onpudump_dump_limit=600", "-onpudump_escalate=twice")
    assert {key: one["verdict"] for key, one in isolated(recorded).items()} == {
        "left/a:output.0": "unknown",
        "right/b:output.0": "convicted",
    }


def test_a_third_run_that_fails_leaves_what_the_second_one_found(recorded: Project) -> None:
    fault = """
    import os
    if os.path.exists("twice"):
        raise OSError("the disk is gone")
    os.rename("once", "twice") if os.path.exists("once") else open("once", "w").close()
"""
    recorded.marked(body=fault + FAULTY + recorded.body)
    recorded.run(
        "--npudump-output=.", "-onpudump_dump_limit=600", "-onpudump_escalate=twice"
    ).assert_outcomes(failed=1)
    found = recorded.report()["escalation"]
    assert found["reproduced"] is True
    assert "the disk is gone" in found["third"]["problem"]
    assert {one["verdict"] for one in isolated(recorded).values()} == {"unknown"}
