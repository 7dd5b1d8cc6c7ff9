"""A model that is not the golden's, or has other names: what a session says, whether tests fail or pass."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from pytest_npudump.cli import main
from pytest_npudump.golden.store import read_golden
from pytest_npudump.record.model_lines import SEVERAL
from tests.onnxmodels.models import onnx_model
from tests.plugin.conftest import Project


def written(project: Project, weight: Any, **changes: Any) -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], name="fc"),
        helper.make_node("LeakyRelu", ["a"], ["y"], name="relu", alpha=changes.pop("alpha", 0.25)),
    ]
    model = onnx_model(nodes, {"x": [1, 4]}, {"y": [1, 4]}, {"w": weight})
    model.doc_string = changes.pop("doc", "")
    onnx.save(model, str(project.path / "small.onnx"), **changes)


BODY = """
    with npu_dump.load_model("small.onnx") as model:
        model.run(np.linspace(-1, 1, 4, dtype=np.float32)[None])
"""
OTHER_OPERATORS = "x:output.0; the operators that ran, or the dump, changed there*"
WEIGHT = np.linspace(1, -1, 16, dtype=np.float32).reshape(4, 4) ** 3


def test_what_changed_is_the_first_line_and_in_every_report(project: Project) -> None:
    written(project, WEIGHT)
    project.recorded(body=BODY)
    assert "models: |\n  #small.onnx " in project.golden.read_text("utf-8")
    project.run(passed=1)
    cases = {
        "fc: weights changed (1 of 1 operator with weights); first": {"weight": WEIGHT * 1.01},
        "fc (axis 0): weight channels permuted (1": {"weight": np.roll(WEIGHT, 1, 0)},
        "relu: attributes changed; first": {"weight": WEIGHT, "alpha": 0.5},
    }
    for words, changes in cases.items():
        written(project, **changes)
        project.run("--npudump-output=out", "--npudump-report", failed=1, shows=f"npudump: {words}*")
        lines = (project.path / "out/results/results.jsonl").read_text("utf-8").splitlines()
        told = next(found for line in lines if (found := json.loads(line).get("failure")))
        assert "with weights)" in json.dumps(told) or "attributes changed" in json.dumps(told)
        assert words in (project.path / "out/report/index.html").read_text("utf-8")


def test_a_failure_with_the_goldens_model_says_so(project: Project) -> None:
    written(project, WEIGHT)
    project.recorded(body=BODY)
    project.marked(body=BODY.replace("-1, 1", "-1, 2"))
    told = "model:      identical to the golden's"
    project.run(failed=1, shows=["npudump: model small: inputs changed; first mismatch: x:*", told])
    written(project, WEIGHT, doc="for people")
    project.run(failed=1, shows="model: *onnx: another file, same weights and attributes")


def test_a_changed_model_that_passes_is_counted_and_another_file_is_not(project: Project) -> None:
    written(project, WEIGHT)
    project.recorded(body=BODY)
    written(project, WEIGHT * np.float32(1 + 2e-7))
    project.run(passed=1, shows="*1 test passed with a changed model: test_small.py::test_small (fc)")
    layout = {"save_as_external_data": True, "location": "w.bin", "size_threshold": 0}
    for changes in ({"doc": "for people"}, layout):
        written(project, WEIGHT, **changes)
        project.run(passed=1, hides="*changed model*")


def test_an_approval_has_the_lines_of_what_it_accepts(project: Project) -> None:
    written(project, WEIGHT)
    project.recorded(body=BODY)
    before = project.golden.read_text("utf-8").splitlines()
    written(project, WEIGHT * 1.01, alpha=0.5)
    project.run("--npudump-output=out", failed=1, shows="*fc: weights changed *relu: attributes changed*")
    assert main(["golden", "accept", "--results", "out", "--layers", "fc"]) == 0
    at = next(row for row, line in enumerate(before) if line.startswith("edges:"))
    lines = project.golden.read_text("utf-8").splitlines()
    lines = lines[next(row for row, line in enumerate(lines) if line.startswith("edges:")) :]
    other = [line.split()[0] for line, earlier in zip(lines, before[at:], strict=True) if line != earlier]
    assert other == ["fc", "#small.onnx"]
    assert SEVERAL in lines[lines.index("models: |") + 1]
    project.run("--npudump-output=out", failed=1, shows="npudump: relu: attributes changed; first *")
    assert main(["golden", "accept", "--results", "out"]) == 0
    project.run(passed=1, hides="*changed model*")


def test_a_golden_without_the_block_is_compared_without_and_an_update_adds_it(project: Project) -> None:
    written(project, WEIGHT)
    project.recorded(body=BODY)
    whole = project.golden.read_text("utf-8")
    project.golden.write_text(whole.partition("models: |")[0], "utf-8")
    written(project, WEIGHT * np.float32(1 + 1e-6))
    project.run(passed=1, hides="*model:*")
    project.run(passed=1, hides="*changed model*")
    written(project, WEIGHT)
    project.record()
    assert project.golden.read_text("utf-8") == whole


def test_a_run_of_a_model_that_was_mended_since_is_not_accepted(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its file may be written again, or be gone, as others make theirs anew for each run."""
    written(project, WEIGHT)
    project.recorded(body=BODY)
    before = project.golden.read_bytes()
    written(project, WEIGHT * 2)
    broken = (project.path / "small.onnx").read_bytes()
    project.run("--npudump-output=out", failed=1)
    written(project, WEIGHT)
    assert main(["golden", "accept", "--results", "out"]) == 2
    assert "small.onnx has changed since the run: run the test again" in capsys.readouterr().err
    assert project.golden.read_bytes() == before
    (project.path / "small.onnx").write_bytes(broken)
    assert main(["golden", "accept", "--results", "out"]) == 0
    assert project.golden.read_bytes() != before


def test_an_approval_brings_what_the_golden_lacks_or_has_of_another_graph(project: Project) -> None:
    def wired(*fed: str, scale: float) -> None:
        nodes = [helper.make_node("MatMul", ["x", "w"], ["fc"], name="fc")]
        nodes += [helper.make_node("Exp", [port], [f"e{at}"], name=f"e{at}") for at, port in enumerate(fed)]
        outputs = {name: [1, 4] for name in ("e0", "e1")}
        model = onnx_model(nodes, {"x": [1, 4]}, outputs, {"w": WEIGHT * np.float32(scale)})
        onnx.save(model, str(project.path / "small.onnx"))

    wired("fc", "fc", scale=1)
    project.recorded(body=BODY)
    whole = project.golden.read_text("utf-8")
    for before, second in (
        (whole.partition("edges: |")[0], "fc"),
        (whole.partition("models: |")[0], "fc"),
        (whole, "e0"),
    ):
        project.golden.write_text(before, "utf-8")
        wired("fc", second, scale=1.5)
        project.run("--npudump-output=out", failed=1)
        assert main(["golden", "accept", "--results", "out"]) == 0
        blocks = read_golden(project.golden).blocks
        project.record()
        assert blocks == read_golden(project.golden).blocks


def test_inputs_that_only_a_branch_reads_are_not_said_to_match(project: Project) -> None:
    made = helper.make_tensor_value_info("y", 1, [1, 4])
    inner, other = (
        helper.make_graph([helper.make_node(kind, ["x"], ["y"])], kind, [], [made]) for kind in ("Exp", "Neg")
    )
    nodes = [
        helper.make_node("Greater", ["k", "zero"], ["c"], name="greater"),
        helper.make_node("If", ["c"], ["y"], name="if", then_branch=inner, else_branch=other),
    ]
    zero = np.zeros((), np.float32)
    model = onnx_model(nodes, {"x": [1, 4], "k": []}, {"y": [1, 4]}, {"zero": zero})
    onnx.save(model, str(project.path / "small.onnx"))
    body = BODY.replace("[None])", "[None], np.float32(1))")
    project.recorded(body=body)
    project.marked(body=body.replace("-1, 1", "-1, 2"))
    shows = [
        "npudump: model small: inputs changed; first mismatch: if:output.0*",
        "*not all of its inputs are known*",
    ]
    project.run(failed=1, shows=shows, hides="*including those of*")


def test_executions_that_are_fewer_or_more_are_counted(project: Project) -> None:
    written(project, WEIGHT)
    once = BODY.splitlines()[-1]
    project.recorded(body=f"{BODY}\n{once}\n{once}")
    for more, words in (
        ([once], "x#step=2:output.0; executions: 2, expected 3"),
        ([], "*x#step=*: 1, exp*3"),
    ):
        project.marked(body="\n".join((BODY, *more)))
        project.run(failed=1, shows=f"first: *{words}")
    project.marked(body="\n".join((BODY, *4 * [once])))
    project.run(failed=1, shows="first: *x#step=3:output.0; executions: 5, expected 3")


def test_a_tensor_that_only_one_side_has_blames_no_kernel(project: Project) -> None:
    written(project, WEIGHT)
    project.marked('layers=["fc", "relu"]', body=BODY)
    project.record()
    project.marked('layers=["relu"]', body=BODY)
    for words in ("fc:output.0; layers= in the marker no longer names it*", OTHER_OPERATORS):
        told = project.run(failed=1, shows=f"first: *{words}")
        told.stdout.fnmatch_lines(["model:      identical to the golden's"])
        project.marked(body=BODY)


def test_renamed_layers_are_compared_explained_and_checked_again_by_the_markers_map(project: Project) -> None:
    project.recorded()
    project.model(named="block/second")
    project.run(failed=1, shows="npudump: renamed in the model*: block/conv.2 -> block/second")
    project.path.joinpath("names.yaml").write_text("block/second: block/conv.2\n")
    project.marked("map='names.yaml'")
    project.run(passed=1)
    project.model(named="block/second", change=0.5)
    shows = [
        "npudump: block/second: weights changed *; first mismatch: block/second:output.0 avg *",
        "second run: reproduced*",
        "recomputed:*block/second*",
    ]
    project.run("--npudump-output=out", failed=1, shows=shows)
    assert main(["check", "out"]) == 1
    project.path.joinpath("names.yaml").write_text("block/second: nobody\n")
    project.run(failed=1, shows="npudump: *conv.2*missing*")
    assert main(["check", "out"]) == 1
    project.path.joinpath("names.yaml").write_text("block/second: [\n")
    project.run(errors=1, shows="*names.yaml, line *")


def test_a_saved_run_is_traced_by_its_own_connections(project: Project) -> None:
    def wired(two: str, three: str, *more: onnx.NodeProto) -> None:
        nodes = [
            helper.make_node("MatMul", ["x", "w"], ["one"], name="one"),
            *more,
            helper.make_node("Exp", [two], ["two"], name="two"),
            helper.make_node("Neg", [three], ["three"], name="three"),
        ]
        outputs = {"two": [1, 4], "three": [1, 4]}
        model = onnx_model(nodes, {"x": [1, 4]}, outputs, {"w": WEIGHT})
        onnx.save(model, str(project.path / "small.onnx"))

    wired("one", "two")
    project.recorded(body=BODY)
    wired("new", "one", helper.make_node("Sin", ["one"], ["new"], name="new"))
    project.run("--npudump-output=out", failed=1, shows="npudump: *new: added; *")
    report = next(project.path.glob("out/dumps/*/report.json"))
    assert main(["check", "out", "--json", "again.json"]) == 1
    [again] = json.loads(project.path.joinpath("again.json").read_text())["tests"]
    sides = [json.loads(report.read_text())["sources"], again["sources"]]
    assert [side.pop("told_by") for side in sides] == ["small.onnx", "test_small.yaml"]
    assert sides[0] == sides[1]


def test_a_glob_of_no_layer_is_told_the_layers_as_the_model_has_them(project: Project) -> None:
    project.marked("layers=['*pool*']")
    project.run(failed=1, shows="npudump: the dump has none of the layers * the dump has *block/conv.1*")
    project.marked("layers=['*CONV*2']")
    project.run(failed=1, shows="npudump: the dump has none of the layers * did you mean block/conv.2[?]")
