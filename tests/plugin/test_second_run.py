"""Second runs and repetitions: what they show, and how they behave beside all else pytest does."""

from __future__ import annotations

import json
import shutil

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from tests.onnxmodels.models import onnx_file
from tests.plugin.conftest import Project

BODY = """
    print("run", len(LOG))
    run(npu_dump)
"""


def failing(project: Project, source: str) -> None:
    """Record the goldens of ``source``, then change the model."""
    project.test_file(source)
    project.record()
    project.model(change=0.01)


ONE = "LOG = []\n@pytest.mark.npu_dump\ndef test_small(npu_dump):\n" + BODY


def test_function_fixtures_are_set_up_anew_and_wider_ones_stay(project: Project) -> None:
    source = """
    LOG = []

    @pytest.fixture
    def narrow():
        LOG.append("narrow up")
        yield
        LOG.append("narrow down")

    @pytest.fixture(scope="class")
    def middle():
        LOG.append("class up")
        yield
        LOG.append("class down")

    @pytest.fixture(scope="module")
    def wide():
        LOG.append("module up")
        yield
        LOG.append("module down")
        with open("log.txt", "w") as file:
            file.write(", ".join(LOG))

    class TestIt:
        @pytest.mark.npu_dump
        def test_small(self, npu_dump, wide, middle, narrow):
            self.count = getattr(self, "count", 0) + 1
            assert self.count == 1, "a new instance for each run"
            run(npu_dump)

        def test_after(self, wide, middle):
            LOG.append("next test")
    """
    failing(project, source)
    project.run().assert_outcomes(failed=1, passed=1)
    assert (project.path / "log.txt").read_text() == (
        "module up, class up, narrow up, narrow down, narrow up, narrow down, next test, "
        "class down, module down"
    )


def test_unittest_case_is_dumped_and_run_again(project: Project) -> None:
    source = """
    import unittest
    from pathlib import Path

    @pytest.mark.npu_dump
    class TestSmall(unittest.TestCase):
        def test_small(self):
            import acl
            from pytest_npudump.runtime.pyacl.model import PyAclModel
            acl.init(), acl.rt.set_device(0)
            image = np.linspace(-1, 1, 64, dtype=np.float32).reshape(1, 1, 8, 8)
            with PyAclModel.load(acl, Path("small.onnx"), on_run=lambda: None) as model:
                model.run(image)
            self.assertFalse(Path("broken").exists())
    """
    failing(project, source)
    project.run(failed=1, shows=["npudump: *conv*", "second run: reproduced*"])
    project.path.joinpath("broken").touch()
    project.run(failed=1, shows=["*self.assertFalse*", "*its dump was not compared*"])


def test_async_test_is_dumped_and_run_again(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTEST_ADDOPTS")
    project.pytester.makeini("[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\n")
    source = """
    import asyncio

    @pytest.mark.npu_dump
    async def test_small(npu_dump):
        await asyncio.sleep(0)
        run(npu_dump)
    """
    failing(project, source)
    project.run(failed=1, shows="second run: reproduced*")


def test_hypothesis_test_is_refused_at_collection(project: Project) -> None:
    given = "@given(strategies.integers())\ndef test_small(number):\n    pass\n"
    project.test_file(f"from hypothesis import given, strategies\n\n@pytest.mark.npu_dump\n{given}")
    project.run(errors=1, shows="*test_small.py::test_small: npu_dump does not work with hypothesis' @given*")


def test_what_is_expected_to_fail_is_not_run_again_and_what_is_skipped_not_at_all(project: Project) -> None:
    failing(project, ONE.replace("@pytest", "@pytest.mark.xfail\n@pytest", 1))
    project.run("--npudump-output=.", xfailed=1)
    assert not list(project.path.glob("dumps/*/run2"))
    project.test_file("@pytest.mark.skip\n" + ONE.replace("LOG = []\n", ""))
    project.run("--npudump-output=none", skipped=1)
    project.marked()
    assert project.run("--setup-only", "--npudump-output=none").ret == 0
    assert not project.path.joinpath("none", "dumps").exists()


def test_the_output_shown_is_that_of_the_last_run_and_exitfirst_stops_behind_it(project: Project) -> None:
    grow = "@pytest.fixture(autouse=True)\ndef grow():\n    LOG.append(1)\n"
    failing(project, f"{ONE}\n{grow}\ndef test_later():\n    pass\n")
    project.run("-x", failed=1, shows=["second run: reproduced*", "*", "run 2"], hides="run 1")


def test_rerunfailures_does_not_turn_a_regression_green_nor_run_it_more_often(project: Project) -> None:
    failing(project, ONE)
    flaky = "count = []\n\ndef test_flaky():\n    count.append(1)\n    assert len(count) > 1\n"
    project.test_file(flaky, "test_flaky.py")
    outcomes = project.run("--reruns=3", shows="second run: reproduced*").parseoutcomes()
    assert (outcomes["failed"], outcomes["passed"], outcomes["rerun"]) == (1, 1, 1)
    project.golden.unlink()
    project.run("--reruns=3", "test_small.py", failed=1)
    assert not goldens(project)


def test_failure_of_a_second_run_leaves_the_verdict_standing(project: Project) -> None:
    """In its setup and in its body."""
    conv = "npudump: block/conv.2: weights changed *block/conv.2:output.0 *"
    once = "if Path('wrong').exists() and (Path('once').exists() or Path('once').touch())"
    for place, told in (
        ("once", "setup of the second run: *busy*"),
        ("body", "body of the second run: OSE*"),
    ):
        source = f"""
        from pathlib import Path

        def again():
            {once}:
                raise OSError("device busy")

        @pytest.fixture
        def once():
            "{place}" == "once" and again()

        @pytest.mark.npu_dump
        def test_small(npu_dump, once):
            run(npu_dump)
            "{place}" == "body" and again()
        """
        wrong, again = project.path / "wrong", project.path / "once"
        project.model()
        place == "once" and wrong.touch()  # which keeps no update from recording
        failing(project, source)
        wrong.touch()
        again.unlink(missing_ok=True)
        project.run(failed=1, shows=[conv, f"second run: {told}"])
        wrong.unlink()
        again.unlink()


@pytest.mark.parametrize(
    "options",
    [(), *(pytest.param((o,), marks=pytest.mark.e2e) for o in ("-onpudump_isolation=process", "-n1"))],
)
def test_a_verdict_is_at_the_test_and_not_in_this_package(project: Project, options: tuple[str, ...]) -> None:
    """An exception of the body stays where it was raised."""
    project.recorded(change=0.5)
    source = project.path.joinpath("test_small.py").read_text().splitlines()
    line = source.index("@pytest.mark.npu_dump()") + 1
    shown = project.run("--tb=line", "--npudump-output=.", *options).stdout
    found = [text for text in shown.lines if text.startswith(f"{project.path}/test_small.py:")]
    assert [text.partition(": block/")[0] for text in found] == [f"{project.path}/test_small.py:{line}"]
    assert ": block/conv.2: weights changed" in found[0]
    body = "    npu_dump.load_model('no such model.onnx').__enter__()\n"
    project.marked(body=body)
    line = project.path.joinpath("test_small.py").read_text().splitlines(keepends=True).index(body) + 1
    words = f"{project.path}/test_small.py:{line}: *AclError: acl.mdl.load_from_file*"
    project.run("--tb=line", "--npudump-output=.", *options, shows=words)


MODEL = """
    run(npu_dump, IMAGE * np.float32({factor}))
"""
PLAIN = "@pytest.mark.npu_dump({arguments})\ndef test_small(npu_dump):\n" + MODEL.format(factor="1")
PARAMETERS = """
@pytest.fixture(params=[1, 2], autouse=True)
def unasked(request):
    return request.param

@pytest.mark.npu_dump
@pytest.mark.parametrize(("a", "b"), [(1, 1), (1, 3)], ids=["low", "high"])
def test_small(npu_dump, a, b, unasked):
""" + MODEL.format(factor="a * b * unasked")
DIFFERING = """
RUNS = []

@pytest.mark.npu_dump({arguments})
def test_small(npu_dump):
    import pathlib
    count = pathlib.Path("count")
    count.write_text((count.read_text() if count.exists() else "") + ".")
""" + MODEL.format(factor="len(count.read_text())")
NUMBERED_BY_PARAMETRIZE = """
import pytest

@pytest.hookimpl(trylast=True)
def pytest_generate_tests(metafunc):
    metafunc.fixturenames.append("__again")
    metafunc.parametrize("__again", list(range(2)))
"""


def goldens(project: Project) -> list[str]:
    return sorted(path.name for path in project.path.joinpath("golden").rglob("*.yaml"))


@pytest.mark.parametrize("isolation", ["none", pytest.param("process", marks=pytest.mark.e2e)])
def test_all_repetitions_have_one_golden_that_is_the_plain_test_s(project: Project, isolation: str) -> None:
    """An update fails for one that differs from the first."""
    project.test_file(PLAIN.format(arguments=f"isolation={isolation!r}"))
    project.run("--npudump-update-golden", "--count=2", passed=2)
    assert goldens(project) == ["test_small.yaml"]
    assert "test: test_small.py::test_small\n" in project.golden.read_text()
    project.run(passed=1)
    project.run("--count=2", passed=2)
    project.test_file(DIFFERING.format(arguments=f"isolation={isolation!r}, escalate=False"))
    project.golden.unlink()
    shows = [
        "npudump: model small: inputs changed; first mismatch: image:output.0 max 2, expected 1 *",
        "an earlier repetition recorded the golden in this run, *",
    ]
    options = ("--npudump-update-golden", "-onpudump_repeats=1", "--count=2")
    project.run(*options, passed=1, failed=1, shows=shows)
    assert len(goldens(project)) == 1


def test_other_parameters_keep_a_golden_each(project: Project) -> None:
    """A number that is parametrised directly is a repetition too."""
    project.test_file(PARAMETERS)
    project.record()
    plain = goldens(project)
    assert len(plain) == 4
    project.run("--npudump-update-golden", "--count=2", passed=8)
    assert goldens(project) == plain
    project.run("--count=2", passed=8)
    shutil.rmtree(project.path / "golden")
    project.path.joinpath("conftest.py").write_text(NUMBERED_BY_PARAMETRIZE)
    project.run("--npudump-update-golden", passed=8)
    assert len(goldens(project)) == 4


@pytest.mark.e2e
def test_update_of_repetitions_on_several_workers_is_refused(project: Project) -> None:
    project.test_file(PLAIN.format(arguments=""))
    words = "npudump: *all repetitions of a test share one golden, *leave out -n *"
    assert project.run("--npudump-update-golden", "--count=2", "-n1", shows=words).ret != 0
    assert not project.path.joinpath("golden").exists()


FLAKY = """
    import json, pathlib
    from pytest_npudump.emulator import faults

    faults.end()
    runs = pathlib.Path("runs")
    if runs.exists():
        number = len(runs.read_text())
        runs.write_text("." * (number + 1))
        for layer, factors in json.loads(pathlib.Path("factors").read_text()).items():
            if factors[number] != 1:
                faults.distort("small", layer, factor=factors[number])
    run(npu_dump)
"""


def test_no_operator_is_judged_by_a_second_run_that_is_healthy(project: Project) -> None:
    """Factors by which operators are wrong in the two runs, the second one's line, and who is convicted."""
    conv, head = "block/conv.2", "head/softmax"
    cases = [
        ({conv: (1.01, 1)}, "NOT REPRODUCED in 2 of 2 tensors: 2 identical to the golden as printed; *", []),
        ({conv: (1.01, 1.000005)}, "NOT REPRODUCED in 2 of 2 *: * within tolerance of the golden;*", []),
        ({conv: (1.00003, 1.000015)}, "NOT REPRODUCED in 2 of 2 *: 2 within tolerance of the golden;*", []),
        ({conv: (1.01, 1.02)}, "NOT REPRODUCED in 2 of 2 tensors: 2 out of tolerance with *", [conv]),
        ({conv: (1.01, 1), head: (1, 1.02)}, "NOT REPRODUCED in 2 of 2 *: 1 identical *, 1 out of *", []),
        ({conv: (1.01, 1.01)}, "reproduced; *", [conv]),
    ]
    # 5e-6 and more, which statistics leave open, are a difference where tensors are compared.
    finer = [
        cases[0],
        ({conv: (1.01, 1.0000003)}, cases[1][1], []),
        ({conv: (1.00003, 1.0000003)}, "NOT REPRODUCED in 1 of 1 *: 1 within tolerance of the golden; *", []),
        ({conv: (1.01, 1.000005)}, "NOT REPRODUCED in 2 of 2 *: * 1 out of tolerance with *", [conv]),
        *cases[3:],
    ]
    stats = 'acl_json={"dump_data": "stats"}'
    for marker, factors, words, convicted in [
        *((stats, *row) for row in cases),
        *(("", *row) for row in finer),
    ]:
        for folder in ("dumps", "golden", "results"):
            shutil.rmtree(project.path / folder, ignore_errors=True)
        for name in ("runs", "factors"):
            project.path.joinpath(name).unlink(missing_ok=True)
        project.recorded(marker, FLAKY)  # which is the same for all cases of a marker
        project.path.joinpath("runs").touch()
        project.path.joinpath("factors").write_text(json.dumps(factors))
        project.run("--npudump-output=.", shows=f"second run: {words}", hides="*driver differs*")
        judged = project.report()["escalation"]["isolated"]
        assert [one["layer"] for one in judged if one["verdict"] == "convicted"] == convicted, factors
        assert bool(judged) == bool(convicted), (factors, judged)


def test_a_kernel_of_one_of_two_models_is_convicted(project: Project) -> None:
    """The second run dumps layers of that model alone."""
    second = helper.make_node("Relu", ["there"], ["out"], "other/relu")
    onnx_file(
        project.path / "other.onnx", [second], {"there": [1, 1, 8, 8]}, {"out": [1, 1, 8, 8]}, name="other"
    )
    for name, layer in (("small", "block/conv.2"), ("other", "other/relu")):
        shutil.rmtree(project.path / "dumps", ignore_errors=True)
        body = """
    from pytest_npudump.emulator import faults

    faults.end()
    if {wrong}:
        faults.distort("{name}", "{layer}", factor=1.01)
    run(npu_dump)
    run(npu_dump, path="other.onnx")
"""
        for wrong in (False, True):
            project.marked(body=body.format(wrong=wrong, name=name, layer=layer))
            project.run(*() if wrong else ("--npudump-update-golden",), "--npudump-output=.")
        judged = project.report()["escalation"]["isolated"]
        convicted = [one["key"] for one in judged if one["verdict"] == "convicted"]
        assert convicted == [f"{layer}#model={name}:output.0"], judged


def test_a_kernel_error_that_the_first_run_did_not_have_is_one_of_the_second(project: Project) -> None:
    project.recorded("", FLAKY)
    project.path.joinpath("runs").touch()
    factors = {"head/softmax": (1.01, 1), "block/conv.2": (1, 1.01)}
    project.path.joinpath("factors").write_text(json.dumps(factors))
    shows = ["npudump: block/conv.2:output.0: kernel error *(in the second run)", "source: *head/softmax:*"]
    project.run("--npudump-output=.", shows=shows)


def test_runs_that_print_the_same_reproduce_a_failure(project: Project) -> None:
    """A half of 16 bits may lie half way between two texts of six digits."""

    def scaled(factor: float) -> None:
        node = onnx.helper.make_node("Mul", ["image", "factor"], ["out"], "mul")
        weights, half = {"factor": np.array([factor], np.float16)}, onnx.TensorProto.FLOAT16
        onnx_file(project.path / "small.onnx", [node], {"image": [4]}, {"out": [4]}, weights, kind=half)

    scaled(1.01)
    run = "model.run(np.array([-1.921875, 0.1, 1.2, 1.5], np.float16))"
    project.recorded("preset='exact'", project.body.replace("model.run(image)", run))
    scaled(1.0)
    shows = ["*max 1.5, expected 1.51465", "second run: reproduced; *"]
    result = project.run("--npudump-output=.", shows=shows, hides="*disagree*")
    result.stdout.fnmatch_lines(["tolerance:  rtol=0 atol=0 dtype=float16 (preset exact)"])


def test_bfloat16_without_statistics_is_recorded_with_its_tensors(project: Project) -> None:
    make, kinds = onnx.helper.make_node, onnx.TensorProto
    nodes = [
        make("Cast", ["x"], ["b"], name="to_bf16", to=kinds.BFLOAT16),
        make("Cast", ["b"], ["y"], name="back", to=kinds.FLOAT),
    ]
    onnx_file(project.path / "bf16.onnx", nodes, {"x": [4]}, {"y": [4]})
    body = """
    with npu_dump.load_model("bf16.onnx") as model:
        model.run(np.arange(4, dtype=np.float32))
"""
    project.recorded("golden_tensors=['to_bf16']", body)
    assert project.golden.with_suffix(".safetensors").exists()
    project.run(passed=1, shows="npudump: 1 tensor has no finite statistics: *")


def test_a_pattern_inside_a_tensor_is_told_in_text_and_json(project: Project) -> None:
    path = project.path / "small.onnx"
    project.path.joinpath("reference.onnx").write_bytes(path.read_bytes())
    project.recorded("golden_tensors=['*'], reference='reference.onnx'")
    model = onnx.load(str(path))
    weights = next(tensor for tensor in model.graph.initializer if len(tensor.dims) == 4)
    array = numpy_helper.to_array(weights).copy()
    array[-1] = 0
    weights.CopyFrom(numpy_helper.from_array(array, weights.name))
    onnx.save(model, str(path))
    words = "*:output.0: * along axis 1: 0, expected other values (* of the difference)"
    project.run("--npudump-output=.", shows=words)
    findings = project.report()["escalation"]["findings"]
    assert findings[0]["pattern"]["kind"] == "stuck"
    assert findings[0]["reference_pattern"]["where"].startswith("channel")


def test_inputs_that_differ_in_each_run_need_a_seed_before_the_way_out(project: Project) -> None:
    values = "np.random.default_rng({seed}).random(IMAGE.shape).astype(IMAGE.dtype)"
    body = f"    run(npu_dump, {values})\n"
    project.recorded(body=body.format(seed=1))
    project.marked(body=body.format(seed=""))
    shows = [
        "inputs:     the test feeds its model other values in each run: image;*",
        "to accept:  give the inputs a seed",
        "then:       pytest --npudump-update-golden *",
    ]
    project.run(failed=1, shows=shows)
    project.marked(body=body.format(seed=2))
    project.run(failed=1, shows="to accept:  pytest *", hides="inputs: *other values in each run*")
    overwritten = f"""
    with npu_dump.load_model("small.onnx") as model:
        look = model.look
        model.look = lambda _, outputs: look([IMAGE], outputs)  # as the test feeds it
        model.run({values.format(seed="")})
"""
    project.marked(body=overwritten)
    project.run(failed=1, shows="second run: NOT REPRODUCED *", hides="inputs: *other values in each run*")


FLUSHING = """
    import onnx
    from unittest import mock
    from pytest_npudump.emulator import onnx_model
    from pytest_npudump.emulator.faults import distort

    wrong = mock.patch.object(onnx_model, "distorted_model", lambda *_: onnx.load("wrong.onnx"))
    power = (np.random.default_rng(3).random((6, 40)) * np.logspace(0, -7, 6)[:, None]).astype(np.float32)
    with wrong, distort("small", "mel", factor=2) if {wrong} else mock.MagicMock():
        with npu_dump.load_model("small.onnx") as model:
            model.run(power)
"""


@pytest.mark.parametrize("data", ["stats", "tensor"])
def test_a_kernel_that_flushes_small_values_is_convicted(project: Project, data: str) -> None:
    """Its output is within tolerance, as a vector and in its extremes: a logarithm behind it is not."""
    weights = np.random.default_rng(4).random((40, 8)).astype(np.float32)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"], name="mel"),
        helper.make_node("Add", ["m", "least"], ["a"], name="floor"),
        helper.make_node("Log", ["a"], ["y"], name="log"),
    ]
    wrong = [
        helper.make_node("MatMul", ["x", "w"], ["raw"], name="raw"),
        helper.make_node("Less", ["raw", "flushed"], ["small"], name="small"),
        helper.make_node("Where", ["small", "zero", "raw"], ["m"], name="mel"),
        *nodes[1:],
    ]
    held = {"w": weights, "least": np.float32(1e-9)}
    flushed = {"flushed": np.float32(1e-5), "zero": np.float32(0)}
    ports = {"x": [6, 40]}, {"y": [6, 8]}
    onnx_file(project.path / "small.onnx", nodes, *ports, held)
    onnx_file(project.path / "wrong.onnx", wrong, *ports, held | flushed)
    marker = f"acl_json={{'dump_data': '{data}'}}"
    project.recorded(marker, body=FLUSHING.format(wrong=False))
    project.run(passed=1)
    project.marked(marker, body=FLUSHING.format(wrong=True))
    project.run(failed=1, shows="npudump: mel:output.0: kernel error*")
