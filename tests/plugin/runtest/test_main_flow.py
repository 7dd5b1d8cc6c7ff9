"""The job itself: record, pass, fail with the layer that diverged first."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
import yaml
from onnx import TensorProto, helper, numpy_helper

from pytest_npudump.cli import main
from pytest_npudump.golden.tensors import load_tensors

if TYPE_CHECKING:
    from conftest import Project


def relu_and_add(project: Project, added: float) -> None:
    """Write a model of two operators, of which the name of one is a glob of the other's."""
    image, out = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [8]) for name in "xy")
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], name="blk[1]"),
        helper.make_node("Add", ["a", "w"], ["y"], name="blk1"),
    ]
    weights = [numpy_helper.from_array(np.full(8, added, np.float32), "w")]
    graph = helper.make_graph(nodes, "g", [image], [out], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, str(project.path / "small.onnx"))


def test_unchanged_model_passes_against_its_golden(project: Project) -> None:
    project.marked()
    project.record()
    result = project.run()
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["npudump: 1 of 1 tests good, 5 of 5 tensors compared (emulator)"])


def test_changed_weight_fails_and_names_that_layer_first(project: Project) -> None:
    project.marked()
    project.record()
    project.model(change=0.01)
    result = project.run()
    assert result.ret == 1
    result.stdout.fnmatch_lines(
        [
            "npudump: block/conv.2 (Conv output.0) differs: *",
            "golden:     2 of 5 tensors fail against *test_small.yaml",
            "*block/conv.2*Conv*output.0*",
            "second run: the failure reproduced (5 layers dumped as tensors)",
            "to approve: pytest --npudump-update-golden test_small.py::test_small",
        ]
    )


def test_failure_is_one_line_in_the_short_summary(project: Project) -> None:
    project.marked()
    project.record()
    project.model(change=0.01)
    result = project.run("-rf")
    result.stdout.fnmatch_lines(["FAILED test_small.py::test_small - *npudump: block/conv.2*"])


def test_removed_operator_is_missing(project: Project) -> None:
    project.marked()
    project.record()
    project.model(without="block/relu.1")
    result = project.run()
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*block/relu.1*missing*in the golden*not in the dump*"])


def test_added_operator_is_new(project: Project) -> None:
    project.marked()
    project.record()
    project.model(extra=True)
    result = project.run()
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*block/neg*new*not in the golden*in the dump*"])


def test_nan_in_a_weight_fails_without_a_warning_of_ours(project: Project) -> None:
    project.marked()
    project.record()
    project.model(nan=True)
    result = project.run("-W", "error")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["npudump: block/conv.2 (Conv output.0) differs: *nan*"])


def test_missing_golden_fails_and_names_the_command_that_creates_it(project: Project) -> None:
    project.marked()
    result = project.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "npudump: no golden file *",
            "to create:  pytest --npudump-update-golden test_small.py::test_small",
        ]
    )
    assert not project.path.joinpath("golden").exists()


def test_layers_limit_the_golden_to_the_layers_named(project: Project) -> None:
    project.marked("layers=['block/conv.1', 'head/softmax']")
    project.record()
    keys = [line.split()[0] for line in yaml.safe_load(project.golden.read_text())["tensors"].splitlines()]
    assert keys == ["block/conv.1:output.0", "head/softmax:output.0"]


def test_glob_selects_layers_after_the_dump(project: Project) -> None:
    project.marked("layers='block/conv.*'")
    project.record()
    keys = [line.split()[0] for line in yaml.safe_load(project.golden.read_text())["tensors"].splitlines()]
    assert keys == ["block/conv.1:output.0", "block/conv.2:output.0"]


def test_golden_records_raw_names_and_where_it_comes_from(project: Project) -> None:
    project.marked()
    project.record()
    golden = yaml.safe_load(project.golden.read_text())
    assert golden["npudump-golden"] == 1
    assert golden["test"] == "test_small.py::test_small"
    assert golden["producer"]["runtime"] == "emulator"
    assert golden["producer"]["scene"] == "model"
    assert golden["columns"] == "tensor dtype shape max min avg l2norm nan -inf +inf"
    names = [line.split(":")[0] for line in golden["tensors"].splitlines()]
    assert names == ["image", "block/conv.1", "block/relu.1", "block/conv.2", "head/softmax"]


def test_update_touches_only_lines_whose_tensors_changed(project: Project) -> None:
    project.marked()
    project.record()
    before = project.golden.read_text().splitlines()
    project.model(change=0.01)
    project.record()
    after = project.golden.read_text().splitlines()
    changed = [old.split(":")[0].strip() for old, new in zip(before, after, strict=True) if old != new]
    assert changed == ["block/conv.2", "head/softmax"]


def test_test_without_the_fixture_is_dumped_around_its_call(project: Project) -> None:
    project.test_file(
        """
        import json

        def application():
            import acl
            assert acl.init() == 0
            assert acl.rt.set_device(0) == 0
            model, ret = acl.mdl.load_from_file("small.onnx")
            assert ret == 0
            image = np.linspace(-1, 1, 64, dtype=np.float32).tobytes()
            source, target = acl.mdl.create_dataset(), acl.mdl.create_dataset()
            for dataset, size in ((source, 256), (target, 128)):
                pointer, ret = acl.rt.malloc(size, 0)
                assert ret == 0
                if dataset is source:
                    assert acl.rt.memcpy(pointer, size, acl.util.bytes_to_ptr(image), size, 1) == 0
                _, ret = acl.mdl.add_dataset_buffer(dataset, acl.create_data_buffer(pointer, size))
                assert ret == 0
            assert acl.mdl.execute(model, source, target) == 0
            assert acl.mdl.unload(model) == 0
            assert acl.rt.reset_device(0) == 0
            assert acl.finalize() == 0

        @pytest.mark.npu_dump
        def test_application():
            application()

        @pytest.mark.npu_dump
        def test_application_again():
            application()
        """
    )
    result = project.run("--npudump-update-golden")
    result.assert_outcomes(passed=2)
    result = project.run()
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["npudump: 2 of 2 tests good, 10 of 10 tensors compared (emulator)"])


def test_code_under_test_may_set_the_dump_itself_with_config_path(project: Project) -> None:
    project.marked(
        body="""
    import acl
    assert npu_dump.config["dump"]["dump_data"] == "stats"
    path = str(npu_dump.config_path)
    assert acl.init() in (0, 100002)
    assert acl.mdl.init_dump() == 0
    assert acl.mdl.set_dump(path) == 0
    image = np.linspace(-1, 1, 64, dtype=np.float32).reshape(1, 1, 8, 8)
    with npu_dump.load_model("small.onnx") as model:
        model.run(image)
    assert acl.mdl.finalize_dump() == 0
"""
    )
    project.record()
    project.run().assert_outcomes(passed=1)


def test_captures_are_dumped_apart(project: Project) -> None:
    project.marked(
        body="""
    image = np.linspace(-1, 1, 64, dtype=np.float32).reshape(1, 1, 8, 8)
    for name, factor in (("first", 1), ("second", 2)):
        with npu_dump.capture(name), npu_dump.load_model("small.onnx") as model:
            model.run(image * np.float32(factor))
"""
    )
    project.record()
    keys = [line.split()[0] for line in yaml.safe_load(project.golden.read_text())["tensors"].splitlines()]
    assert [key for key in keys if key.startswith("block/conv.1")] == [
        "block/conv.1#capture=first:output.0",
        "block/conv.1#capture=second:output.0",
    ]
    project.run().assert_outcomes(passed=1)


def test_records_can_be_looked_at_inside_the_test(project: Project) -> None:
    project.marked(
        body=f"""{project.body}
    assert [record.op_type for record in npu_dump.records] == ["Data", "Conv", "Relu", "Conv", "Softmax"]
"""
    )
    project.record()


def test_several_executions_are_told_apart_by_step(project: Project) -> None:
    project.marked(body=project.body + "        model.run(image * np.float32(2))\n")
    project.record()
    keys = [line.split()[0] for line in yaml.safe_load(project.golden.read_text())["tensors"].splitlines()]
    assert "block/conv.1:output.0" in keys
    assert "block/conv.1#step=1:output.0" in keys


def test_scene_op_compares_single_operators(project: Project) -> None:
    project.marked(
        "scene='op'",
        body="""
    import acl
    acl.init(), acl.rt.set_device(0)
    stream, _ = acl.rt.create_stream()
    desc = acl.create_tensor_desc(0, [4], 2)
    values = np.arange(4, dtype=np.float32)
    pointers = [acl.rt.malloc(16, 0)[0] for _ in range(3)]
    for pointer in pointers[:2]:
        acl.rt.memcpy(pointer, 16, acl.util.bytes_to_ptr(values.tobytes()), 16, 1)
    buffers = [acl.create_data_buffer(pointer, 16) for pointer in pointers]
    attr = acl.op.create_attr()
    assert acl.op.execute_v2("Add", [desc, desc], buffers[:2], [desc], buffers[2:], attr, stream) == 0
    assert acl.rt.synchronize_stream(stream) == 0
""",
    )
    project.record()
    (line,) = yaml.safe_load(project.golden.read_text())["tensors"].splitlines()
    assert line.split()[1:5] == ["float32", "4", "6.0", "0.0"] or line.split()[1:5] == [
        "float32",
        "4",
        "6",
        "0",
    ]
    project.run().assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("body", "cause"),
    [
        ("    pass", "ACL was never initialised while the dump was on"),
        ("    npu_dump.load_model('small.onnx').close()", "small.onnx was loaded but never run"),
    ],
)
def test_empty_dump_fails_and_says_why(project: Project, body: str, cause: str) -> None:
    project.marked(body=body)
    result = project.run("--npudump-update-golden")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([f"npudump: the dump holds nothing: *{cause}*"])


def test_model_loaded_by_a_wider_fixture_is_explained(project: Project) -> None:
    project.test_file(
        """
        @pytest.fixture(scope="module")
        def model():
            import acl
            acl.init(), acl.rt.set_device(0)
            return acl.mdl.load_from_file("small.onnx")[0]

        def test_first(model):
            pass

        @pytest.mark.npu_dump
        def test_second(model):
            pass
        """
    )
    result = project.run()
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        ["npudump: the dump holds nothing: *earlier (in a module or session fixture*"]
    )


def test_failing_body_is_reported_as_such_and_not_compared(project: Project) -> None:
    project.marked(body=project.body + "    assert False, 'my own assertion'\n")
    result = project.run("--npudump-update-golden")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*my own assertion*", "*its dump was not compared*"])
    assert not project.path.joinpath("golden").exists()


def test_fixture_without_marker_is_an_error_that_says_what_to_add(project: Project) -> None:
    project.test_file("def test_small(npu_dump):\n    pass\n")
    result = project.run()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*test_small uses the fixture npu_dump without the marker*"])


def test_any_order_of_load_model_and_init_with_config_path_works_and_is_run_again(project: Project) -> None:
    project.test_file(
        """
        import acl

        def run(npu_dump):
            image = np.linspace(-1, 1, 64, dtype=np.float32).reshape(1, 1, 8, 8)
            with npu_dump.load_model("small.onnx") as model:
                model.run(image)

        @pytest.mark.npu_dump
        def test_plain(npu_dump):
            run(npu_dump)

        @pytest.mark.npu_dump
        def test_own_init(npu_dump):
            assert acl.init(str(npu_dump.config_path)) == 0
            run(npu_dump)

        @pytest.mark.npu_dump
        def test_own_init_again(npu_dump):
            assert acl.init(str(npu_dump.config_path)) in (0, 100002)
            run(npu_dump)

        @pytest.mark.npu_dump
        def test_plain_again(npu_dump):
            run(npu_dump)
        """
    )
    project.record()
    project.run().assert_outcomes(passed=4)
    project.model(change=0.01)
    result = project.run("-v")
    result.assert_outcomes(failed=4)
    assert str(result.stdout).count("second run: the failure reproduced") == 4


def test_statistics_of_one_test_do_not_leak_into_another(project: Project) -> None:
    cases = {"first": "dump_stats=['L2norm']", "second": "dump_stats=['Max']", "third": ""}
    project.test_file(
        "\n".join(
            f"@pytest.mark.npu_dump({marker})\ndef test_{name}(npu_dump):\n{project.body}"
            for name, marker in cases.items()
        )
    )
    project.record()
    for name, known in (("first", [3]), ("second", [0]), ("third", [0, 1, 2])):
        text = project.path.joinpath(f"golden/test_small/test_{name}.yaml").read_text()
        line = next(line for line in text.splitlines() if "block/conv.2:output.0" in line)
        cells = line.split()[3:7]
        assert [at for at, cell in enumerate(cells) if cell != "-"] == known
        project.run("-k", f"test_{name}").assert_outcomes(passed=1, deselected=2)


def test_model_of_an_earlier_test_is_not_dumped_under_that_test_s_configuration(project: Project) -> None:
    project.test_file(
        """
        BOX = []
        IMAGE = np.linspace(-1, 1, 64, dtype=np.float32).reshape(1, 1, 8, 8)

        @pytest.mark.npu_dump(layers=["head/softmax"])
        def test_first(npu_dump):
            BOX.append(npu_dump.load_model("small.onnx"))
            BOX[0].run(IMAGE)

        @pytest.mark.npu_dump
        def test_second(npu_dump):
            BOX[0].run(IMAGE)
        """
    )
    result = project.run("--npudump-update-golden")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["npudump: the dump holds nothing: *"])


def test_dump_folder_that_cannot_be_made_is_a_sentence(project: Project) -> None:
    project.marked()
    project.path.joinpath("file").touch()
    result = project.run("--npudump-dump-dir=file")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["npudump: *the folder for the test's dumps cannot be made: *"])
    result.stdout.no_fnmatch_line("*Traceback*")


def test_nothing_that_steers_a_reader_s_terminal_gets_to_one(
    project: Project, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project.path)
    steering = "\u202e\u2066\u061c\x1b[2J"
    named = f"conv{steering}2"
    project.marked()
    project.model(named=named)
    project.record()
    project.model(named=named, change=0.01)
    options = ("--npudump-report=page", "--npudump-summary=summary.md", "--junitxml=out.xml", "-rA", "-v")
    result = project.run(*options, "--npudump-dump-dir=dumps", "--npudump-results=kept")
    result.assert_outcomes(failed=1)
    capsys.readouterr()
    test = ("test_small.py::test_small", "--results", "kept")
    main(["check", "kept", "-v"])
    main(["golden", "diff", *test])
    main(["golden", "accept", *test, "--reason", f"why{steering}"])
    main(["golden", "show", "golden/test_small/test_small.yaml"])
    main(["tolerance", "explain", "golden/test_small/test_small.yaml"])
    main(["ls", str(next(project.path.glob("dumps/*/run1")))])
    main(["golden", "show", f"none{steering}.yaml"])
    project.golden.write_text(project.golden.read_text("utf-8").replace("test: ", f"test: a{steering[:2]}"))
    again = project.run()
    files = ("out.xml", "summary.md", "page/*.html", "dumps/*/report.txt", "dumps/notes.txt")
    told = [path.read_text("utf-8") for name in files for path in project.path.glob(name)]
    told += [result.stdout.str(), again.stdout.str(), *capsys.readouterr()]
    assert len(told) >= len(files) + 3
    assert all("\\u202e" in text for text in told[:1])
    for text in told:
        assert not set(steering[:4]) & set(text), ascii(text)


def test_a_model_with_a_name_that_is_no_text_is_an_error_with_its_file(project: Project) -> None:
    project.marked()
    right = project.path.joinpath("small.onnx").read_bytes()
    for name in (b"block/conv.1", b"Softmax", b"image", b"w1"):
        project.path.joinpath("small.onnx").write_bytes(right.replace(name, name[:-1] + b"\xff"))
        result = project.run("--npudump-update-golden")
        assert result.ret == 1
        bad = name[:-1].decode()
        result.stdout.fnmatch_lines(
            [f"E *AclError: *small.onnx is no ONNX model: its name b'{bad}?xff' is not *"]
        )


def test_a_rule_or_layer_with_brackets_is_for_the_layer_that_has_them_alone(project: Project) -> None:
    relu_and_add(project, 1.0)
    rule = '{"layer": "blk[1]", "rtol": 1, "atol": 9, "reason": "wide"}'
    body = project.body.replace("64", "8").replace(".reshape(1, 1, 8, 8)", "")
    project.marked(f'golden_tensors=["blk[1]"], tolerances=[{rule}]', body)
    project.record()
    assert [*load_tensors(project.golden.with_suffix(".safetensors"))] == ["blk[1]:output.0"]
    relu_and_add(project, 1.5)
    result = project.run("--npudump-results=kept")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["npudump: blk1 (Add output.0) differs: *", "*(preset same*"])
    assert main(["check", str(project.path / "kept"), "--root", str(project.path)]) == 1
    project.marked('layers=["blk[1]"]', body)
    project.record()
    assert [
        line.split()[0] for line in project.golden.read_text("utf-8").splitlines() if ":output" in line
    ] == ["blk[1]:output.0"]


def test_a_golden_that_leaves_out_what_nobody_measured_lets_nothing_pass(project: Project) -> None:
    project.marked()
    project.record()
    text = project.golden.read_text("utf-8")
    head, _, rows = text.partition("columns: ")
    first, *others = rows.partition("edges:")[0].splitlines(keepends=True)
    layers = [line.split(":output.0")[0].strip() for line in others[1:]]
    assert len(layers) == 5
    entries = "".join(f"  {layer}: {{output.0: left out}}\n" for layer in layers)
    for kept in (others[:1], others[:2]):
        project.golden.write_text(f"{head}unwritten:\n{entries}columns: {first}{''.join(kept)}", "utf-8")
        result = project.run("--npudump-expect=1")
        result.assert_outcomes(failed=1)
        result.stdout.fnmatch_lines(
            [
                "note: *test_small.yaml: 'unwritten' applies only to the MindSpore version on a CPU *",
                "npudump: 0 of 1 tests good, *1 failed, *",
            ]
        )
        assert main(["golden", "verify", str(project.golden)]) == 1
