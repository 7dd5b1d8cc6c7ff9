"""A test's own ways to run a model, and what is said where a run is not as it looks."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
import yaml
from onnx import TensorProto, helper

from pytest_npudump.cli import main
from tests.golden.tensor_files import load_tensors
from tests.onnxmodels.models import onnx_file
from tests.plugin.conftest import Project

KEPT = ("--results", "results")


def relu_and_add(project: Project, added: float) -> None:
    """Write a model of two operators, of which the name of one is a glob of the other's."""
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], name="blk[1]"),
        helper.make_node("Add", ["a", "w"], ["y"], name="blk1"),
    ]
    weights = {"w": np.full(8, added, np.float32)}
    onnx_file(project.path / "small.onnx", nodes, {"x": [8]}, {"y": [8]}, weights)


def test_each_way_to_run_a_model_is_dumped_and_run_again(project: Project) -> None:
    """Without the fixture, and whoever calls aclInit, switches the dump on, and looks at what there is."""
    project.test_file(
        """
        import acl

        def application():
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

        @pytest.mark.npu_dump
        def test_plain(npu_dump):
            run(npu_dump)

        @pytest.mark.npu_dump
        def test_own_init(npu_dump):
            assert acl.init(str(npu_dump.config_path)) in (0, 100002)
            run(npu_dump)

        @pytest.mark.npu_dump
        def test_own_init_again(npu_dump):
            assert acl.init(str(npu_dump.config_path)) in (0, 100002)
            run(npu_dump)

        @pytest.mark.npu_dump
        def test_own_dump(npu_dump):
            path = str(npu_dump.config_path)
            assert npu_dump.config["dump"]["dump_data"] == "stats" or "/run2/" in path
            assert acl.init() in (0, 100002)
            assert acl.mdl.init_dump() == 0
            assert acl.mdl.set_dump(path) == 0
            run(npu_dump)
            assert acl.mdl.finalize_dump() == 0

        @pytest.mark.npu_dump
        def test_records(npu_dump):
            run(npu_dump)
            kinds = [record.op_type for record in npu_dump.records]
            assert kinds == ["Data", "Conv", "Relu", "Conv", "Softmax"]
        """
    )
    project.record()
    project.run(passed=7, shows="npudump: 7 of 7 tests passed; 35 of 35 tensors compared (emulator)")
    project.model(change=0.01)
    result = project.run("-v", failed=7)
    assert str(result.stdout).count("second run: reproduced") == 7


def test_statistics_of_one_test_do_not_leak_into_another(project: Project) -> None:
    cases = {
        "first": "acl_json={'dump_stats': ['L2norm']}",
        "second": "acl_json={'dump_stats': ['Max']}",
        "third": "",
    }
    project.test_file(
        "\n".join(
            f"@pytest.mark.npu_dump({marker})\ndef test_{name}(npu_dump):\n{project.body}"
            for name, marker in cases.items()
        )
    )
    project.record("-o", "npudump_auto_tensors=0")
    for name, known in (("first", [3]), ("second", [0]), ("third", [0, 1, 2])):
        text = project.path.joinpath(f"golden/test_small/test_{name}.yaml").read_text()
        line = next(line for line in text.splitlines() if line.startswith("  block/conv.2 float32 "))
        cells = line.split()[3:7]
        assert [at for at, cell in enumerate(cells) if cell != "-"] == known
        project.run("-k", f"test_{name}").assert_outcomes(passed=1, deselected=2)


def test_an_empty_dump_says_why(project: Project) -> None:
    project.test_file(
        """
        BOX = []

        @pytest.mark.npu_dump(layers=["head/softmax"])
        def test_a_first(npu_dump):
            BOX.append(npu_dump.load_model("small.onnx"))
            BOX[0].run(IMAGE)

        @pytest.mark.npu_dump
        def test_b_kept_from_a_test(npu_dump):
            BOX[0].run(IMAGE)

        @pytest.fixture(scope="module")
        def early():
            import acl
            acl.init(), acl.rt.set_device(0)
            return acl.mdl.load_from_file("small.onnx")[0]

        def test_c_plain(early):
            pass

        @pytest.mark.npu_dump
        def test_d_wider_fixture(early):
            pass

        @pytest.mark.npu_dump
        def test_e_never_run(npu_dump):
            npu_dump.load_model("small.onnx").close()

        @pytest.mark.npu_dump(scene="op", acl_json={"dump_level": "kernel"})
        def test_f_no_operator(npu_dump):
            pass

        @pytest.mark.npu_dump
        def test_g_records(npu_dump):
            with pytest.raises(Exception, match="holds nothing"):
                npu_dump.records
        """
    )
    shows = [
        "npudump: the dump is empty: *",
        "npudump: the dump is empty: *earlier (in a module or session fixture*",
        "npudump: the dump is empty: *no loaded model was run to its end (small.onnx)*",
        "*no single operator ran*dump_level='kernel' (it switches *",
    ]
    project.run("--npudump-update-golden", passed=2, failed=5, shows=shows)


def test_nothing_that_steers_a_reader_s_terminal_gets_to_one(project: Project) -> None:
    project.patch.chdir(project.path)
    steering = "\u202e\u2066\u061c\x1b[2J"
    named = f"conv{steering}2"
    project.model(named=named)
    project.recorded(named=named, change=0.01)
    options = ("--npudump-output=.", "--npudump-report", "--junitxml=out.xml", "-rA", "-v")
    result = project.run(*options, failed=1)
    test, golden = ("test_small.py::test_small", *KEPT), "golden/test_small/test_small.yaml"
    told = []
    for words in (
        ("check", "results", "-v"),
        ("golden", "diff", *test),
        ("golden", "accept", *test, "--reason", f"why{steering}"),
        ("golden", "show", golden),
        ("golden", "show", "--tolerances=", golden),
        ("ls", str(next(project.path.glob("dumps/*/run1")))),
        ("golden", "show", f"none{steering}.yaml"),
    ):
        told += project.command(*words)[1:]
    project.golden.write_text(project.golden.read_text("utf-8").replace("test: ", f"test: a{steering[:2]}"))
    again = project.run()
    files = ("out.xml", "summary.md", "report/*.html", "dumps/*/report.txt")
    kept = [path.read_text("utf-8") for name in files for path in project.path.glob(name)]
    assert len(kept) >= len(files)
    assert "\\u202e" in kept[0]
    for text in (*kept, *told, result.stdout.str(), again.stdout.str()):
        assert not set(steering[:4]) & set(text), ascii(text)


def test_a_rule_or_layer_with_brackets_is_for_the_layer_that_has_them_alone(project: Project) -> None:
    relu_and_add(project, 1.0)
    rule = '{"layer": "blk[1]", "rtol": 1, "atol": 9, "reason": "wide"}'
    body = project.body.replace("64", "8").replace(".reshape(1, 1, 8, 8)", "")
    project.recorded(f'golden_tensors=["blk[1]"], tolerances=[{rule}]', body)
    assert [*load_tensors(project.golden.with_suffix(".safetensors"))] == ["blk[1]:output.0"]
    relu_and_add(project, 1.5)
    project.run("--npudump-output=.", failed=1, shows=["npudump: blk1: weights changed *", "*(preset same*"])
    assert main(["check", str(project.path / "results"), "--root", str(project.path)]) == 1
    project.recorded('layers=["blk[1]"]', body)
    table, _, beside = project.golden.read_text("utf-8").partition("outputs:")
    assert [re.findall(r"(?m)^  (\S+) float32 ", text) for text in (table, beside)] == [["blk[1]"], ["blk1"]]


def test_a_golden_that_leaves_out_what_nobody_measured_lets_nothing_pass(project: Project) -> None:
    project.recorded()
    head, _, rows = project.golden.read_text("utf-8").partition("columns: ")
    first, *others = rows.partition("edges:")[0].splitlines(keepends=True)
    layers = [line.split(":output.0")[0].strip() for line in others[1:]]
    assert len(layers) == 5
    entries = "".join(f"  {layer}: {{output.0: left out}}\n" for layer in layers)
    shows = [
        "note: *test_small.yaml: 'unwritten' applies only to the MindSpore version on a CPU *",
        "npudump: 0 of 1 tests passed, 1 failed; *",
    ]
    for kept in (others[:1], others[:2]):
        project.golden.write_text(f"{head}unwritten:\n{entries}columns: {first}{''.join(kept)}", "utf-8")
        project.run("-onpudump_expect=1", failed=1, shows=shows)
        assert main(["golden", "status", "--no-collect", str(project.golden)]) == 2


def test_what_cannot_be_set_up_is_a_sentence(project: Project) -> None:
    project.test_file("def test_small(npu_dump):\n    pass\n")
    project.run(errors=1, shows="*test_small uses the fixture npu_dump without the marker*")
    project.marked()
    project.path.joinpath("file").touch()
    words = "npudump: *the folder for the test's dumps cannot be made: *"
    project.run("--npudump-output=file", errors=1, shows=words, hides="*Traceback*")
    rules = f"rules:\n  - {{layer: a, rtol: {':'.join(['1'] * 3000)}, atol: 0}}\n"
    project.path.joinpath("t.yaml").write_text(rules)
    result = project.run("--npudump-tolerances=t.yaml")
    output = result.stdout.str() + result.stderr.str()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "t.yaml, rule 1: rtol is '1:1:1" in output
    assert "INTERNALERROR" not in output
    assert "Traceback" not in output


def other_producer(project: Project, **facts: str) -> None:
    """Change what the golden says of its origin."""
    (path,) = project.path.glob("golden/**/*.yaml")
    text = path.read_text("utf-8")
    producer = yaml.safe_load(text)["producer"]
    line = next(line for line in text.splitlines() if line.startswith("producer:"))
    path.write_text(text.replace(line, f"producer: {json.dumps(producer | facts)}"), "utf-8")


def test_numerics_decide_which_bounds_hold_and_that_is_said(project: Project) -> None:
    project.recorded()
    other_producer(project, onnxruntime="0.1")
    project.run(passed=1, shows="npudump: 1 test was compared with the preset other")
    project.model(change=0.5)
    for options, bounds in {
        (): "preset:     other: onnxruntime 0.1 -> *",
        ("-onpudump_preset=same",): "preset:     same, from option*(onnxruntime 0.1*",
        ("-onpudump_preset=hf32",): "preset:     hf32, from option*",
    }.items():
        project.run("-onpudump_escalate=off", *options, failed=1, shows=bounds)
    project.model(change=0.0005)
    project.marked('preset="hf32"')
    project.run(passed=1)
    project.marked('preset="same"')
    project.run(failed=1)


def test_a_golden_of_a_device_is_compared_with_and_written_by_nothing_without_one(project: Project) -> None:
    project.recorded()
    golden = project.golden
    here, there = "runtime: emulator, soc: Emulator", "runtime: acl, soc: Ascend910B3"
    device = golden.read_text("utf-8").replace(here, there)
    golden.write_text(device, "utf-8")
    words = ["*test_small.yaml is *runtime acl, soc Ascend910B3*", "*golden_variant=NAME*"]
    update = "--npudump-update-golden"
    for how in ([update], [f"{update}=calibrate", "-onpudump_calibration_runs=3"]):
        project.run(*how, failed=1, shows=words)
    project.model(change=0.01)
    note = "note: *is a device's*and this run the emulator's: record it*"
    project.run(f"{update}=failed", failed=1, shows=note)
    project.run(shows="to accept on the device: pytest --npudump-update-golden *")
    project.record("-onpudump_golden_variant=emulated")
    project.run("-onpudump_golden_variant=emulated", passed=1)
    assert golden.read_text("utf-8") == device


def _model(project: Project, kind: str, factor: float, values: str, marker: str) -> None:
    """Write a test of a model whose ``mul`` gives bfloat16, NaN, or numbers of which two are much larger."""
    weights = np.full(4, factor, np.float32)
    if kind == "large":
        weights = np.random.default_rng(0).standard_normal(4096).astype(np.float32)
        weights[:2] = 1e7, -1e7
        weights[2:] = weights[2:][::-1] if factor < 0 else weights[2:]
    nodes = [helper.make_node("Mul", ["l" if kind == "nan" else "x", "w"], ["m"], name="mul")]
    if kind == "nan":
        nodes.insert(0, helper.make_node("Log", ["x"], ["l"], name="log"))
    nodes += [
        helper.make_node("Cast", ["m"], ["b"], name="to_bf16", to=TensorProto.BFLOAT16),
        helper.make_node("Cast", ["b"], ["y"], name="back", to=TensorProto.FLOAT),
    ]
    ports = {"x": weights.shape}, {"y": weights.shape}
    onnx_file(project.path / "small.onnx", nodes, *ports, {"w": weights})
    project.marked(marker, f"    run(npu_dump, np.array({values}, np.float32))\n")


def test_what_is_judged_by_no_value_does_not_pass(project: Project) -> None:
    _model(project, "bf16", 1, "[1, 2, 3, 4]", "layers=['to_bf16'], golden_tensors=['to_bf16']")
    words = "*has neither statistics nor hashes of its tensors (1; ACL*"
    project.run("--npudump-update-golden", failed=1, shows=words)
    for marker, words in {
        "layers=['mul']": "*no value was compared: *share no finite statistic and no hash*",
        "layers=['mul'], acl_json={'dump_data': 'tensor'}, golden_tensors=['mul']": "*mul*",
    }.items():
        _model(project, "nan", 1, "[-1, 2, 3, 4]", marker)
        project.record("-onpudump_repeats=1")
        _model(project, "nan", 1000, "[-1, 2, 3, 4]", marker)
        project.run(failed=1, shows=words)
        project.golden.unlink()


def test_elements_that_pass_beside_much_larger_ones_are_noted(project: Project) -> None:
    marker = "layers=['mul'], acl_json={'dump_data': 'tensor'}, golden_tensors=['mul']"
    _model(project, "large", 1, "[1] * 4096", marker)
    project.record("-onpudump_repeats=1")
    assert "most elements" not in project.run().stdout.str()
    _model(project, "large", -1, "[1] * 4096", marker)
    project.run("-rA", passed=1, shows="*most elements differ by more than rtol of their own value*")


def test_a_golden_of_nan_is_told_at_each_decision(project: Project) -> None:
    told = "5 of 5 tensors contain only NaN or infinities (first: image:output.0): check the model and its in"
    project.marked(body="    run(npu_dump, np.full((1, 1, 8, 8), np.nan, dtype=np.float32))\n")
    project.run("--npudump-output=.", failed=1, shows=f"note:       {told}puts")
    for words in (("diff", *KEPT), ("accept", *KEPT), ("show", "golden/test_small/test_small.yaml")):
        assert f"note: {told}puts" in project.command("golden", *words)[1], words
    words = f"npudump: *note: test_small.py::test_small: {told}puts"
    project.run("--npudump-update-golden", passed=1, shows=words)
