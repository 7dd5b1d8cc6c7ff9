"""The sources of a failure: of faults in branches that have nothing to do with each other, each is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conftest import Project

BENCHMARKS = Path(__file__).parents[3] / "docs/benchmarks"
FED_BY = {"left/a": ["image"], "left/b": ["left/a"], "right/a": ["image"], "right/b": ["right/a"]}


def branches(changed: dict[str, float]) -> bytes:
    """Two branches of two additions each that meet in a third; ``changed`` is added to some of them."""
    value = helper.make_tensor_value_info
    weights = [
        numpy_helper.from_array(np.full(1, 1 + changed.get(name, 0.0), np.float32), f"w/{name}")
        for name in FED_BY
    ]
    nodes = [helper.make_node("Mul", [*fed, f"w/{name}"], [name], name) for name, fed in FED_BY.items()]
    nodes.insert(1, helper.make_node("Reshape", ["left/a", "shape"], ["flat"], "left/reshape"))
    nodes[2].input[0] = "flat"
    nodes.append(helper.make_node("Reshape", ["right/b", "shape"], ["right/flat"], "right/reshape"))
    nodes.append(helper.make_node("Add", ["left/b", "right/flat"], ["out"], "both"))
    weights.append(numpy_helper.from_array(np.array([64], np.int64), "shape"))
    ports = [value("image", TensorProto.FLOAT, [1, 1, 8, 8])], [value("out", TensorProto.FLOAT, [64])]
    model = helper.make_model(
        helper.make_graph(nodes, "small", *ports, weights),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )
    return model.SerializeToString()


def write(project: Project, **changed: float) -> None:
    model = branches({name.replace("_", "/"): change for name, change in changed.items()})
    project.path.joinpath("small.onnx").write_bytes(model)


def failed(project: Project, *options: str) -> pytest.RunResult:
    result = project.run("--npudump-dump-dir=dumps", *options)
    assert result.ret == 1
    return result


def found(project: Project) -> list[tuple[str, int]]:
    sources: Any = project.report()["sources"]
    return [(source["key"], source["explains"]) for source in sources["found"]]


def test_two_faults_in_independent_branches_are_both_named(project: Project) -> None:
    write(project)
    project.marked()
    project.record()
    write(project, left_a=0.1, right_b=0.1)
    failed(project, "-rf").stdout.fnmatch_lines(
        [
            "npudump: left/a (Mul output.0) differs: *; 1 other source: right/b",
            "first:      output 0 of left/a is the first mismatch; * before it agree, those of its inputs *",
            "sources:    2 sources: left/a:output.0 (at least 3 of 6 *), right/b:output.0 (at least 2 of *",
            "FAILED * npudump: left/a *",
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
            "npudump: against the reference reference.onnx: left/a (Mul output.0) *; 1 other source: right/b",
            "            output 0 of left/a is the first mismatch*",
            "sources:    2 sources: left/a:output.0 (at least 3 of 6 *), right/b:output.0 (at least 2 of *",
            "alone:      left/a:output.0 is CONVICTED: *",
            "alone:      right/b:output.0 is CONVICTED: *",
        ]
    )
    assert found(project) == [("left/a:output.0", 4), ("right/b:output.0", 3)]


@pytest.mark.parametrize("bits", [16, 32])
def test_a_change_off_the_reference_is_followed_in_32_bits(project: Project, bits: int) -> None:
    write(project)
    project.path.joinpath("small.onnx").rename(project.path / "reference.onnx")
    rule = '{"against": "reference", "layer": "left/*", "rtol": 0.2, "atol": 0, "reason": "wide"}'
    project.marked(f"reference='reference.onnx', preset='om-net', tolerances=[{rule}]")
    write(project, left_a=0.15)
    if bits == 16:
        project.path.joinpath("small.onnx").write_bytes(in_halves(project.path / "small.onnx"))
        project.marked(
            f"reference='reference.onnx', preset='om-net', tolerances=[{rule}]",
            body=project.body.replace("np.float32", "np.float16"),
        )
    shown = failed(project).stdout
    shown.fnmatch_lines(["sources:    1 source: both:output.0 (0 of 1 mismatches downstream)"])
    followed = "traced to:  left/a:output.0 (* of its tolerance), upstream of both:output.0"
    (shown.fnmatch_lines if bits == 32 else shown.no_fnmatch_line)([followed] if bits == 32 else followed)


def test_sources_are_off_the_reference_where_the_golden_agrees(project: Project) -> None:
    off_reference(project)
    project.marked()
    project.record()
    project.marked("reference='reference.onnx'")
    failed(project).stdout.fnmatch_lines(["sources:    2 sources: left/a:output.0 *, right/b:output.0 *"])
    assert project.report()["sources"]["told_by"] == "test_small.yaml"  # type: ignore[index]
    write(project, left_a=0.1, left_b=0.1, right_b=0.1)
    failed(project).stdout.fnmatch_lines(
        ["sources:    1 source: left/b:output.0 (1 of 2 mismatches downstream)"]
    )


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
            "sources:    2 sources: right/b#model=small:output.0 *, other/right/b#model=other:output.0 *",
            "alone:      right/b#model=small:output.0 is CONVICTED: * by small.onnx: *; its kernel did it",
            "alone:      other/right/b#model=other:output.0 is CONVICTED: * by other.onnx: *",
        ]
    )


@pytest.mark.parametrize("marker", ["", "reference='small.onnx'"])
def test_no_operator_is_judged_by_a_file_that_was_written_again_after_it_was_loaded(
    project: Project, marker: str
) -> None:
    models = {name: branches({"right/b": change}) for name, change in {"a": 0.0, "b": 0.5, "c": 0.7}.items()}
    for name, content in models.items():
        project.path.joinpath(f"{name}.bin").write_bytes(content)
    source = """
            from pathlib import Path
            for name in {names!r}:
                Path("small.onnx").write_bytes(Path(f"{{name}}.bin").read_bytes())
                with npu_dump.load_model("small.onnx") as model:
                    model.run(np.linspace(-1, 1, 64, dtype=np.float32).reshape(1, 1, 8, 8))
            Path("small.onnx").write_bytes(Path("{last}.bin").read_bytes())
            """
    write(project)
    project.marked(body=source.format(names="aa", last="a"))
    project.record()
    for names, last in (("ab", "b"), ("bb", "a"), ("ca", "a")):  # two loads; between the test and its report
        project.marked(marker, body=source.format(names=names, last=last))
        shown = failed(project).stdout.str()
        assert "CONVICTED" not in shown, (names, last, shown)
        assert "right/b#" in shown or "right/b:" in shown
        assert "was written again after it was loaded, and may be another model" in shown, (names, last)


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
                with npu_dump.load_model("small.onnx") as model:
                    model.run(np.linspace(-1, 1, 64, dtype=np.float32).reshape(1, 1, 8, 8))
            """
        )
        if fault == "pass":
            project.record()
    failed(project).stdout.fnmatch_lines(["alone:      right/b:output.0 is CONVICTED: * by small.onnx: *"])


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
                with npu_dump.load_model("small.onnx") as model:
                    model.run(np.linspace(-1, 1, 64, dtype=np.float32).reshape(1, 1, 8, 8))
            """
    project.marked(body=source.format(names="aa"))
    project.record()
    project.marked(body=source.format(names="ba"))
    shown = failed(project).stdout.str()
    assert "CONVICTED" not in shown
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
    project.marked(body=body.format(value=1))
    project.record()
    write(project, left_a=0.1)
    for folder in ("here", "there"):
        (project.path / folder / source.name).write_bytes(source.read_bytes())
    failed(project, "-v").stdout.fnmatch_lines(
        ["note: not judged alone: left/a:output.0*, as several models ran (small.onnx, small.onnx); *"]
    )


def test_an_operator_of_several_outputs_and_executions_is_named_once(project: Project) -> None:
    value, half = helper.make_tensor_value_info, TensorProto.FLOAT
    for weight in (1.0, 1.1):
        nodes = [
            helper.make_node("Mul", ["image", "w"], ["m"], "mul"),
            helper.make_node("Split", ["image"], ["s", "t"], "split", axis=3),
            helper.make_node("Mul", ["s", "w"], ["u"], "second"),
        ]
        names = ("m", "u")
        graph = helper.make_graph(
            nodes,
            "small",
            [value("image", half, [1, 1, 8, 8])],
            [value(name, half, None) for name in names],
            [numpy_helper.from_array(np.full(1, weight, np.float32), "w")],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
        project.path.joinpath("small.onnx").write_bytes(model.SerializeToString())
        run = "model.run(image)"
        project.marked(body=project.body.replace(run, f"{run}; {run}"))
        if weight == 1.0:
            project.record()
    assert project.body.count(run) == 1
    failed(project).stdout.fnmatch_lines(["npudump: mul (Mul output.0*) differs: *; 1 other source: second"])
    assert len(found(project)) == 4


def test_the_second_run_dumps_sources_before_what_follows_from_them(project: Project) -> None:
    write(project)
    project.marked()
    project.record()
    write(project, left_a=0.1, right_b=0.1)
    failed(project, "--npudump-dump-limit=600").stdout.fnmatch_lines(
        [
            "second run: the failure reproduced (2 layers dumped as tensors)",
            "  left/a:output.0: *",
            "  right/b:output.0: *",
            "note: *: only 2 are dumped, sources and what feeds them first, else in execution order",
        ]
    )


def test_the_golden_keeps_what_feeds_what(project: Project) -> None:
    write(project)
    project.marked()
    project.record()
    text = project.golden.read_text()
    assert text[text.index("edges: |") :].splitlines() == [
        "edges: |",
        "  image <",
        "  left/a < image:output.0",
        "  left/reshape < left/a:output.0",
        "  left/b < left/reshape:output.0",
        "  right/a < image:output.0",
        "  right/b < right/a:output.0",
        "  right/reshape < right/b:output.0",
        "  both < left/b:output.0 right/reshape:output.0",
    ]
    before = project.golden.read_bytes()
    project.run("--npudump-update-golden")
    assert project.golden.read_bytes() == before


def test_a_golden_without_edges_is_helped_out_by_the_model(project: Project) -> None:
    write(project)
    project.marked()
    project.record()
    text = project.golden.read_text()
    project.golden.write_text(text[: text.index("edges: |")])
    assert project.run().ret == 0
    write(project, left_a=0.1, right_b=0.1)
    failed(project)
    assert found(project) == [("left/a:output.0", 4), ("right/b:output.0", 3)]
    assert project.report()["sources"]["told_by"] == "small.onnx"  # type: ignore[index]


def test_an_input_that_is_dumped_once_for_each_reader_is_one_source(project: Project) -> None:
    write(project)
    project.marked()
    project.record()
    project.marked(body=project.body.replace("linspace(-1, 1", "linspace(-1, 2"))
    failed(project).stdout.no_fnmatch_line("*other source*")
    assert found(project) == [("image:output.0", 9)]


def test_edges_of_a_golden_of_other_layers_are_not_believed(project: Project) -> None:
    write(project)
    project.marked()
    project.record()
    lines = project.golden.read_text().splitlines()
    lines = [line for line in lines if "right/reshape" not in line or " < " in line]
    text = "\n".join(lines).replace("  right/b < right/a:output.0", "  right/b < left/b:output.0")
    project.golden.write_text(text + "\n")
    write(project, left_a=0.1, right_b=0.1)
    failed(project)
    assert [key for key, _ in found(project)] == ["left/a:output.0", "right/b:output.0"]
    assert project.report()["sources"]["told_by"] == "small.onnx"  # type: ignore[index]


def test_layers_that_are_not_dumped_are_looked_through(project: Project) -> None:
    write(project)
    project.marked('layers=["*/a", "both"]')
    project.record()
    text = project.golden.read_text()
    assert text.endswith("  left/a < -\n  right/a < -\n  both < left/a:output.0 right/a:output.0\n")
    write(project, left_a=0.1, right_b=0.1)
    failed(project).stdout.fnmatch_lines(["*compared before it agree; its own inputs were not dumped"])
    assert found(project) == [("left/a:output.0", 2)]


def test_a_change_that_passes_is_followed_to_where_it_begins(project: Project) -> None:
    write(project)
    project.marked('tolerances=[{"layer": "left/*", "rtol": 0.2, "atol": 0, "reason": "wide"}]')
    project.record()
    write(project, left_a=0.1)
    failed(project).stdout.fnmatch_lines(
        [
            "sources:    1 source: both:output.0 (0 of 1 mismatches downstream)",
            "traced to:  left/a:output.0 (* of its tolerance), upstream of both:output.0",
        ]
    )


def test_an_input_with_two_readers_is_not_several_operators_of_one_name(project: Project) -> None:
    write(project)
    project.marked()
    recorded = project.run("--npudump-update-golden")
    assert "  image#turn=1:output.0 " in project.golden.read_text()
    recorded.stdout.no_fnmatch_line("*several operators*")
    model = onnx.load(project.path / "small.onnx")
    for node in model.graph.node:
        node.name = {"left/b": "left.a"}.get(node.name, node.name)
    onnx.save(model, project.path / "small.onnx")
    recorded = project.run("--npudump-update-golden")
    recorded.stdout.fnmatch_lines(["*several operators go by one file name*: left_a (*"])


def test_two_faults_in_series_are_not_said_to_be_one(project: Project) -> None:
    """The second is downstream of the first, and wrong by itself."""
    write(project)
    project.marked()
    project.record()
    write(project, left_a=0.1, left_b=0.1)
    shown = failed(project, "-v").stdout
    shown.fnmatch_lines(["sources:    1 source: left/a:output.0 (3 of 4 mismatches downstream)"])
    for words in ("*explain*", "*begins*", "*look there*", "*tensor dumped before it agrees*"):
        shown.no_fnmatch_line(words)


def test_damaged_edges_fail_the_test_with_the_way_out(project: Project) -> None:
    write(project)
    project.marked()
    project.record()
    text = project.golden.read_text()
    project.golden.write_text(text.replace("both < left/b:output.0", "both < left/b:input.0"))
    failed(project).stdout.fnmatch_lines(["*test_small.yaml, line *: 'both < left/b:input.0 *' is no edge*"])
    project.record()
    assert "input.0" not in project.golden.read_text()


def test_dumped_inputs_show_edges_where_no_model_does(project: Project) -> None:
    write(project)
    project.marked('dump_mode="all"')
    project.record()
    write(project, left_a=0.1, right_b=0.1)
    failed(project)
    assert [key for key, _ in found(project)] == ["left/a:output.0", "right/b:output.0"]


@pytest.fixture(scope="module")
def detection() -> Iterator[Any]:
    """PP-OCR's detection with its input, which has branches."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS))
        from verdicts.models import sources
        from verdicts.network import load

        yield load(sources()[1])


def test_two_faults_in_branches_of_a_real_model_are_both_named(project: Project, detection: Any) -> None:
    first, second = _unrelated(detection)
    [picture] = detection.feed.values()
    np.save(project.path / "picture.npy", picture)
    onnx.save(onnx.load(str(detection.source.path)), str(project.path / "small.onnx"))
    project.marked(
        "escalate=False",
        """
    with npu_dump.load_model("small.onnx") as model:
        model.run(np.load("picture.npy"))
""",
    )
    project.record()
    model = onnx.load(str(project.path / "small.onnx"))
    wanted = {node.input[1] for node in model.graph.node if node.name in {first, second}}
    changed = [tensor for name, tensor in _weights(model) if name in wanted]
    for tensor in changed:
        array = numpy_helper.to_array(tensor) * np.float32(1.05)
        tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    assert len(changed) == 2
    onnx.save(model, str(project.path / "small.onnx"))
    failed(project)
    sources: Any = project.report()["sources"]
    assert [source["layer"] for source in sources["found"] if not source["behind"]] == [first, second]


def _weights(model: Any) -> Iterator[tuple[str, Any]]:
    yield from ((tensor.name, tensor) for tensor in model.graph.initializer)
    for node in model.graph.node:
        if node.op_type == "Constant":
            yield node.output[0], node.attribute[0].t


def _unrelated(network: Any) -> tuple[str, str]:
    """Two convolutions of which neither depends on the other, as the file has its nodes."""
    above: dict[int, set[int]] = {}
    for at, parents in network.parents().items():
        above[at] = parents.union(*(above[parent] for parent in parents))
    convolutions = [node for node in network.nodes if node.op_type == "Conv"]
    return next(
        (one.name, other.name)
        for one in convolutions
        for other in convolutions
        if one.index < other.index and one.index not in above[other.index]
    )


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
    project.marked("graph='ran.json'")
    project.record()
    write(project, left_a=0.5, right_a=0.5)
    failed(project)
    assert [key for key, _ in found(project)] == ["left/a:output.0"]
