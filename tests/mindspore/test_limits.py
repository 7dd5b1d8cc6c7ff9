"""What the real MindSpore does not dump, or dumps otherwise: said, never passed over."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.mindspore.conftest import Project

pytestmark = pytest.mark.mindspore


def test_a_dump_that_holds_nothing_names_its_cause(project: Project) -> None:
    project.tests("""
        @pytest.mark.npu_dump
        def test_pynative():
            ms.set_context(mode=ms.PYNATIVE_MODE)
            filled(Small())(Tensor(X)).asnumpy()

        @pytest.mark.npu_dump
        def test_nothing_at_all():
            pass

        @pytest.mark.npu_dump(layers=["Default/fc1-Dense/MatMul-op7"])
        def test_unknown_layer():
            filled(Small())(Tensor(X))

        @pytest.mark.npu_dump(acl_json={"dump_step": "7"})
        def test_step_that_never_comes():
            filled(Small())(Tensor(X))
        """)
    result = project.run()
    result.assert_outcomes(failed=4)
    nothing = "npudump: the dump is empty: "
    result.stdout.fnmatch_lines(
        [
            "*_ test_pynative _*",
            f"{nothing}MindSpore compiled no graph while the dump was on*mindspore.jit*GRAPH_MODE*",
            "*_ test_nothing_at_all _*",
            f"{nothing}MindSpore compiled no graph while the dump was on*",
            "*_ test_unknown_layer _*",
            (
                f"{nothing}no operator that ran has a name that the marker's layers select; MindSpore lists "
                "5: Default/fc1-Dense/MatMul-op0, *"
            ),
            "*_ test_step_that_never_comes _*",
            f"{nothing}MindSpore compiled a graph, and dump_step='7' selects none of its runs *",
        ]
    )


def test_layers_are_selected_by_mindspore_itself_under_any_of_their_names(project: Project) -> None:
    project.tests("""
        @pytest.mark.npu_dump(["Default/fc1-Dense/MatMul-op0", "fc2.bias", "Default_relu-ReLU_ReLU-op0"])
        def test_names():
            filled(Small())(Tensor(X))

        @pytest.mark.npu_dump(["*MatMul*"])
        def test_globs():
            filled(Small())(Tensor(X))
        """)
    project.record("-onpudump_keep_dumps=all", passed=2)
    assert project.files("run1") == [
        "Default_fc1-Dense_MatMul-op0",
        "Default_fc1-Dense_MatMul-op0",
        "Default_fc2-Dense_MatMul-op0",
        "Default_relu-ReLU_ReLU-op0",
        "fc2_bias",
    ]
    assert len(project.golden("test_names")) == 3
    assert len(project.golden("test_globs")) == 2


def test_tests_of_every_kind_are_recorded(project: Project) -> None:
    """bf16 under numpy's forbidden descr, graphs that still run when the body ends, names without a dot."""
    project.tests("""
        class Deep(nn.Cell):
            def __init__(self):
                super().__init__()
                self.layers = nn.SequentialCell(*(nn.Dense(1024, 1024) for _ in range(20)))

            def construct(self, x):
                return self.layers(x)

        @pytest.mark.npu_dump
        def test_bf16():
            Half()(Tensor(X))

        @pytest.mark.npu_dump(acl_json={"dump_mode": "all"})
        def test_jit_is_waited_for():
            ms.set_context(mode=ms.PYNATIVE_MODE)
            ms.jit(Deep())(Tensor(np.ones((1024, 1024), np.float32)))

        @pytest.mark.npu_dump
        @pytest.mark.parametrize("name", ["a.b c[1]"])
        def test_parameter(name):
            filled(Small())(Tensor(X))

        @pytest.mark.npu_dump(data_dump={"enable": False, "initial_iteration": 5, "net_name": "mine"})
        def test_asynchronous():
            filled(Small())(Tensor(X))

        @pytest.mark.npu_dump
        def test_mindir(npu_dump, tmp_path):
            net = nn.SequentialCell(nn.Dense(4, 3), nn.ReLU())
            ms.export(filled(net), Tensor(X), file_name=str(tmp_path / "net"), file_format="MINDIR")
            with npu_dump.load_model(tmp_path / "net.mindir") as model:
                (output,) = model.run(X)
            assert output.shape == (2, 3)
        """)
    project.record(passed=5)
    half = [line.split()[1] for line in project.golden("test_bf16")]
    assert half == ["bfloat16", "bfloat16", "float32", "float32"]
    deep = [line.split()[0] for line in project.golden("test_jit_is_waited_for")]
    assert sum(key.endswith("BiasAdd-op0:output.0") for key in deep) == 20
    assert sum("/" not in key for key in deep) == 41  # weights, biases and the input, dumped last
    assert len(project.golden("test_mindir")) == 6
    assert len(project.golden("test_asynchronous")) == 10


def test_what_mindspore_cannot_do_is_refused_before_it_runs(project: Project) -> None:
    project.tests("""
        @pytest.mark.npu_dump(acl_json={"dump_data": "stats"})
        def test_statistics():
            raise AssertionError("this body must not run")

        @pytest.mark.npu_dump(scene="overflow")
        def test_overflow():
            raise AssertionError("this body must not run")

        @pytest.mark.npu_dump(scene="exception")
        def test_exception():
            raise AssertionError("this body must not run")

        @pytest.mark.npu_dump(data_dump={"dump_mode": 2})
        def test_set_dump():
            raise AssertionError("this body must not run")

        @pytest.mark.npu_dump
        def test_capture(npu_dump):
            with npu_dump.capture("part"):
                raise AssertionError("this body must not run")

        @pytest.mark.npu_dump
        def test_program(npu_dump):
            npu_dump.run(["true"], acl_json="acl.json")

        @pytest.mark.npu_dump(isolation="none")
        def test_once():
            filled(Small())(Tensor(X))

        @pytest.mark.npu_dump(isolation="none")
        def test_twice():
            filled(Small())(Tensor(X))
        """)
    result = project.run("--npudump-update-golden")
    result.assert_outcomes(passed=1, failed=2, errors=5)
    result.stdout.fnmatch_lines(
        [
            "npudump: dump_data='stats': MindSpore writes no statistics on CPU; leave it out*",
            "npudump: scene='overflow': not with MindSpore on CPU: op_debug_mode=3 dumps every operator*",
            "npudump: scene='exception': not with MindSpore on CPU: op_debug_mode=4 saves nothing of an *",
            "npudump: MindSpore * refuses *dump_mode: 2 (mindspore.set_dump) works on Ascend only*",
            "npudump: MindSpore has read the dump configuration * in this process*isolation='process'*",
            "*npu_dump.capture(): MindSpore reads its dump configuration once a process*",
            "*npu_dump.run(): hands an acl.json on, and the runtime mindspore has none*",
        ]
    )
    assert "this body must not run" not in "\n".join(result.outlines[-30:])


def test_a_path_that_mindspore_refuses_is_refused_with_the_way_out(project: Project) -> None:
    project.tests("""
        @pytest.mark.npu_dump
        def test_small():
            filled(Small())(Tensor(X))
        """)
    result = project.run("--npudump-output=dumps.d", "--npudump-update-golden")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["npudump: MindSpore * refuses this dump: *path: *--npudump-output*"])


def test_a_graph_compiled_at_import_is_named_as_the_cause(project: Project) -> None:
    project.tests("""
        ms.set_context(mode=ms.GRAPH_MODE)
        NET = filled(Small())
        NET(Tensor(X))

        @pytest.mark.npu_dump
        def test_small():
            NET(Tensor(X))
        """)
    result = project.run("--npudump-update-golden")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["npudump: MindSpore has compiled a graph in this process before the test*"])


def test_the_numpy_of_the_extra_is_one_that_mindspore_runs_with(project: Project) -> None:
    script = project.path / "alone.py"
    script.write_text(
        "import mindspore as ms, numpy as np\n"
        "(ms.Tensor(np.ones(3), ms.bfloat16) + 1).asnumpy()\n"
        "print([*ms.dataset.NumpySlicesDataset(np.arange(4), shuffle=False).batch(2)])\n"
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
