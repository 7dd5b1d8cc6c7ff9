"""Scenes whose healthy runs leave no file: what shows that something ran, and what failed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

# pytester forgets modules that a run imports; a later run would then mix their classes with new ones.
from pytest_npudump.emulator import install
from tests.onnxmodels.models import onnx_file
from tests.plugin.conftest import APPLICATION, Project

RUN = '    npu_dump.run([*COMMAND, "acl.json"], acl_json="acl.json")\n'


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ASCEND_DUMP_SCENE", "ASCEND_DUMP_PATH", "ASCEND_WORK_PATH", "NPU_COLLECT_PATH"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def application(classify: Project) -> Project:
    """A project whose application squares float16 values, which overflow above 256."""
    np.save(classify.path / "image.npy", np.full((2, 3), 2, np.float16))
    nodes = [
        helper.make_node("Mul", ["x", "x"], ["a"], name="block/square"),
        helper.make_node("Cast", ["a"], ["y"], name="cast", to=TensorProto.FLOAT),
    ]
    ports = {"x": (TensorProto.FLOAT16, [2, 3])}, {"y": [2, 3]}
    onnx_file(classify.path / "half.onnx", nodes, *ports, name="half")
    return classify


SCENES = ["scene='overflow'", "scene='exception', isolation='none'"]


def write_tests(
    project: Project, bodies: Sequence[str], marker: str = "scene='overflow'", plant: str = ""
) -> None:
    """Write a test of each body."""
    head = APPLICATION.replace("small.om", "half.om").replace("install(); ", f"install(); {plant}")
    mark = f"\n@pytest.mark.npu_dump({marker})\ndef test_"
    project.test_file(head + "".join(f"{mark}{n}(npu_dump):\n{body}\n" for n, body in enumerate(bodies)))


UNREAD = RUN.replace(', "acl.json"]', "]")


@pytest.mark.e2e
def test_a_program_has_to_read_its_configuration_and_to_end_well(application: Project) -> None:
    fails = """
    code = "import sys; open(sys.argv[1]).read(); sys.exit(3)"
    npu_dump.run([sys.executable, "-c", code, "acl.json"], acl_json="acl.json", check=False)
    """
    write_tests(application, (RUN, UNREAD, RUN + UNREAD, fails))
    unread = "npudump: *nothing shows that*never read acl.json; it has to hand *"
    shows = [unread, "npudump: *never read acl.json*", "npudump: *read *acl.json and ended with 3*"]
    application.run(passed=1, failed=3, shows=shows)
    write_tests(application, (RUN, UNREAD), SCENES[1])
    application.run(passed=1, failed=1, shows=unread)
    write_tests(application, (UNREAD,), "")
    words = "*the dump is empty: *ran and dumped nothing: *never read acl.json; *"
    application.run(failed=1, shows=words)


@pytest.mark.e2e
def test_an_operator_that_overflows_or_fails_in_a_program_is_named(application: Project) -> None:
    np.save(application.path / "image.npy", np.full((2, 3), 300, np.float16))
    write_tests(application, (RUN,))
    application.run(failed=1, shows="npudump: block/square (Mul) overflowed: *")
    with application.patch.context() as patch:  # whatever the file system says of what was read
        patch.setattr("pytest_npudump.runtime.programs.Placed.was_read", lambda _: None)
        application.run("--npudump-update-golden", passed=1)
        application.run(passed=1)
    plant = "from pytest_npudump.emulator.faults import fail; fail('block/square'); "
    write_tests(application, (RUN.replace(")\n", ", check=False)\n"),), SCENES[1], plant)
    words = "npudump: block/square (Mul) failed on the NPU (device 0, stream 3, task 1)"
    application.run(failed=1, shows=words)


OWN_CALLS = """
    import acl
    {switch_on}
    acl.rt.set_device(0)
    model_id, ret = acl.mdl.load_from_file("half.om")
    address, _ = acl.rt.malloc(12, 0)
    data = np.full(6, {value}, np.float16).tobytes()
    acl.rt.memcpy(address, 12, acl.util.bytes_to_ptr(data), 12, 1)
    datasets = [acl.mdl.create_dataset() for _ in range(2)]
    for dataset, room, size in zip(datasets, (address, acl.rt.malloc(24, 0)[0]), (12, 24)):
        acl.mdl.add_dataset_buffer(dataset, acl.create_data_buffer(room, size))
    {run}
    acl.rt.reset_device(0)
    acl.finalize()
"""
EXECUTE = "assert acl.mdl.execute(model_id, *datasets) == 0"
BY_INIT = "assert acl.init(str(npu_dump.config_path)) == 0"
BY_SET_DUMP = (
    "path = str(npu_dump.config_path); acl.init(); acl.mdl.init_dump(); assert acl.mdl.set_dump(path) == 0"
)


@pytest.mark.parametrize("marker", SCENES)
def test_what_a_test_runs_through_acl_itself_counts_where_it_ran_under_the_dump(
    application: Project, marker: str
) -> None:
    counts = [(switch_on, EXECUTE) for switch_on in ("acl.init()", BY_INIT, BY_SET_DUMP)]
    counts_not = [
        (BY_SET_DUMP, "pass"),
        ("npu_dump.config_path; acl.init()", EXECUTE),
        (f"{BY_SET_DUMP}; acl.mdl.finalize_dump()", EXECUTE),
        ("npu_dump.config_path; acl.init(); acl.mdl.init_dump(); acl.mdl.set_dump('x.json')", EXECUTE),
    ]
    (application.path / "x.json").write_text('{"dump": {"dump_scene": "aic_err_norm_dump"}}')
    for cases in (counts, counts_not):
        bodies = [OWN_CALLS.format(switch_on=on, value=2, run=run) for on, run in cases]
        write_tests(application, bodies, marker)
        install.reset()
        application.run(**{"passed" if cases is counts else "failed": len(cases)})


OUTSIDE = """
    cold, hot = np.full((2, 3), 2, np.float16), np.full((2, 3), 300, np.float16)
    with npu_dump.load_model("half.onnx") as model:
        with npu_dump.capture("a"):
            {inside}
        {behind}
"""
LOADED_INSIDE = 'npu_dump.load_model("half.onnx").run(cold)'


def test_a_model_from_before_a_dump_is_not_in_it(application: Project) -> None:
    cases = (
        ("model.run(hot)", "pass"),
        (LOADED_INSIDE, "model.run(hot)"),
        (f"{LOADED_INSIDE}; model.run(hot)", ""),
    )
    apart = """
    cold = np.full((2, 3), 2, np.float16)
    with npu_dump.load_model("half.onnx") as model:
        model.run(cold)
    for name in "ab":
        with npu_dump.capture(name), npu_dump.load_model("half.onnx") as model:
            model.run(cold)
    kept.append(npu_dump.load_model("half.onnx"))
    kept[0].run(cold)
    """
    later = "    kept[0].run(np.full((2, 3), 300, np.float16))\n"
    own = "    npu_dump.load_model('half.onnx').run(np.full((2, 3), 2, np.float16))\n"
    outside = [OUTSIDE.format(inside=inside, behind=behind) for inside, behind in cases]
    words = "npudump: *half.onnx was loaded before the dump was set*"
    for marker in SCENES:
        write_tests(
            application, (*outside, "    global kept; kept = []\n" + apart, later, own + later), marker
        )
        application.run(passed=1, failed=5, shows=[words] * 5)


@pytest.mark.e2e
def test_a_model_in_a_process_that_gave_up_its_dump_is_told(application: Project) -> None:
    hot = "run(np.full((2, 3), 300, np.float16))"
    loaded_before = f"    model = npu_dump.load_model('half.onnx')\n{RUN}    model.{hot}\n"
    write_tests(application, (f"{RUN}    npu_dump.load_model('half.onnx').{hot}\n", loaded_before))
    words = (
        "npudump: no o*, and not everything *half.onnx ran in the test's own process while no dump was on *"
    )
    application.run(failed=2, shows=[words] * 2)


PASSED_OVER = """
    try:
        npu_dump.run({command}, acl_json="acl.json", timeout=20{more})
    except Exception:
        pass
"""
INTERRUPTED = f"""{RUN}
    import signal
    def stop(*_):
        raise LookupError
    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    with pytest.raises(LookupError):
        npu_dump.run(["sleep", "30"], acl_json="acl.json")
"""
FAILURES = {
    "ended with exit code 3": ('["sh", "-c", "cat acl.json; exit 3"]', ""),
    "did not end within 0.2 seconds and was ended": ('["sh", "-c", "sleep 30"]', " / 100"),
    "cannot be started in": ('["./none"]', ""),
    "true: cannot be started in": ('["true"]', ", cwd='none'"),
    "ASCEND_WORK_PATH: the program's exception dump": ('["true"]', ", env={'ASCEND_WORK_PATH': '.'}"),
}


@pytest.mark.e2e
def test_a_program_s_failure_that_the_test_passes_over_is_told(application: Project) -> None:
    bodies = [RUN + PASSED_OVER.format(command=command, more=more) for command, more in FAILURES.values()]
    write_tests(application, (*bodies, INTERRUPTED), SCENES[1])
    words = (*FAILURES, "sleep was interrupted by LookupError")
    shows = [f"npudump: no o*, and not everything in the test ran *{one}*" for one in words]
    application.run(failed=6, shows=shows)


def test_an_approved_overflow_covers_nothing_that_ran_without_the_dump(application: Project) -> None:
    body = OUTSIDE.format(inside=LOADED_INSIDE.replace("cold", "hot"), behind="pass")
    write_tests(application, (body,))
    application.record()
    application.run(passed=1)
    write_tests(application, (body.replace("pass", "model.run(hot)"),))
    words = "npudump: not everything in the test ran under the dump: half.onnx *"
    application.run(failed=1, shows=words)
    application.run("--npudump-update-golden", failed=1)


FAIL = """
    from pytest_npudump.emulator.faults import fail
    fail("block/conv.2")
"""
SWALLOW = f"""{FAIL}
    import contextlib
    from pytest_npudump.errors import NpudumpError
    with npu_dump.load_model("small.onnx") as model, contextlib.suppress(NpudumpError):
        model.run(IMAGE)
"""
HERE = "scene='exception', isolation='none'"
FAILED = "npudump: block/conv.2 (Conv) failed on the NPU (device 0, stream 3, task 3)"


def two(project: Project, first: str, before: str = "", fixture: str = "") -> None:
    """Write two tests of an operator that fails, the first with more arguments of the marker."""
    tests = (
        f"\n@pytest.mark.npu_dump({HERE}{more})\ndef test_{name}({fixture}npu_dump):\n{SWALLOW}"
        for name, more in (("a", first), ("b", ""))
    )
    project.test_file(before + "".join(tests))


def test_a_failure_that_the_body_passes_over_fails_the_test(project: Project) -> None:
    project.marked(HERE, body=SWALLOW)
    shows = [
        FAILED,
        "  input.0: float32 [[]1, 4, 6, 6], max *",
        "  input.1: float32 *",
        "  output.0: float32 [[]1, 2, 4, 4], max 0 at *",
        "dump:       *extra-info/data-dump/0/Conv.block_conv_2.3.* (norm)",
        "report:     *report.txt",
    ]
    project.run("--npudump-output=.", failed=1, shows=shows, hides="to accept:*")
    project.run("--npudump-update-golden", failed=1)
    assert not project.path.joinpath("golden").exists()
    data: Any = project.report()
    (finding,) = data["findings"]
    assert (finding["operator"], finding["stream"], finding["dump_kind"]) == ("block/conv.2", 3, "norm")
    assert data["golden"] is None
    lost = """
    with npu_dump.load_model("small.onnx") as model:
        import shutil
        shutil.rmtree(npu_dump._test.attempt.dump_path / "extra-info")
"""
    project.marked(HERE, body=SWALLOW + lost)
    project.run(failed=1, shows="npudump: *.execute returned 507011, but no *")


def test_a_process_that_the_runtime_ends_leaves_its_core(project: Project) -> None:
    project.marked("scene='exception', acl_json={'dump_scene': 'aic_err_detail_dump'}", body=SWALLOW)
    shows = [
        "npudump: the kernel te_conv_block_conv_2__kernel0 failed on the NPU (device 0, stream 3, *",
        "also:       the test's process ended *",
        "dump:       *extra-info/data-dump/0/te_conv_block_conv_2__kernel0.3.3.*.core (detail)",
    ]
    project.run("--npudump-output=.", failed=1, shows=shows)
    data: Any = project.report()
    assert data["findings"][0]["dump_kind"] == "detail"


def test_each_test_has_an_exception_dump_of_its_own(project: Project) -> None:
    two(project, ", acl_json=dict(dump_scene='lite_exception')")
    project.run("-v", failed=2, shows=["*test_a*/exception_info.3.3.*", "*test_b*/Conv.block_conv_2.3.*"])


def test_a_dump_that_the_environment_sends_elsewhere_is_found(project: Project) -> None:
    project.patch.setenv("ASCEND_WORK_PATH", str(project.path / "elsewhere"))
    project.marked(HERE, body=SWALLOW)
    shows = [
        FAILED,
        "outside:    *as ASCEND_WORK_PATH is set*",
        f"dump:       {project.path}/elsewhere/extra-info/data-dump/0/Conv.*",
    ]
    project.run(failed=1, shows=shows)
    install.reset()  # as a new process, in which nothing fails
    project.marked(HERE)
    project.run(passed=1)


def test_a_dump_that_the_application_switched_on_before_does_not_stand_in_the_test_s_way(
    project: Project,
) -> None:
    """torch_npu does so: aclInit with a file of lite_exception, and CANN ignores every later one."""
    project.path.joinpath("lite.json").write_text('{"dump": {"dump_scene": "lite_exception"}}')
    early = """
import acl

@pytest.fixture(scope="session")
def early():
    assert acl.init("lite.json") == 0
    yield
    acl.finalize()
"""
    two(project, "", early, "early, ")
    project.run("-v", failed=2, shows=["*test_a*/Conv.block_conv_2.3.*", "*test_b*/Conv.block_conv_2.3.*"])
    assert not project.path.joinpath("extra-info").exists()
