"""The scene exception end to end on the emulator: in this process, and in one that the runtime ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

# pytester forgets modules that a run imports; a later run would then mix their classes with new ones.
import pytest_npudump.emulator.acl
from pytest_npudump.emulator import install

if TYPE_CHECKING:
    from conftest import Project

EMULATOR = pytest_npudump.emulator.acl
FAIL = """
    from pytest_npudump.emulator.faults import fail
    fail("block/conv.2")
"""
SWALLOW = f"""{FAIL}
    import contextlib
    from pytest_npudump.errors import NpudumpError
    image = np.linspace(-1, 1, 64, dtype=np.float32).reshape(1, 1, 8, 8)
    with npu_dump.load_model("small.onnx") as model, contextlib.suppress(NpudumpError):
        model.run(image)
"""


@pytest.fixture(autouse=True)
def _in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ASCEND_DUMP_SCENE", "ASCEND_DUMP_PATH", "ASCEND_WORK_PATH", "NPU_COLLECT_PATH"):
        monkeypatch.delenv(name, raising=False)


def test_a_healthy_model_passes_without_a_golden(project: Project) -> None:
    project.marked("scene='exception', isolation='none'")
    project.run().assert_outcomes(passed=1)
    assert not project.path.joinpath("golden").exists()
    project.run("--npudump-update-golden").assert_outcomes(passed=1)
    assert not project.path.joinpath("golden").exists()


def test_a_failure_that_the_body_passes_over_fails_the_test(project: Project) -> None:
    project.marked("scene='exception', isolation='none'", body=SWALLOW)
    result = project.run("--npudump-dump-dir=dumps")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "npudump: block/conv.2 (Conv) failed on the NPU (device 0, stream 3, task 3)",
            "  input.0: float32 [[]1, 4, 6, 6], max *",
            "  input.1: float32 *",
            "  output.0: float32 [[]1, 2, 4, 4], max 0 at *",
            "dump:       *extra-info/data-dump/0/Conv.block_conv_2.3.* (norm)",
            "details:    *report.txt",
        ]
    )
    result.stdout.no_fnmatch_line("to approve:*")
    data: Any = project.report()
    (finding,) = data["findings"]
    assert (finding["operator"], finding["stream"], finding["dump_kind"]) == ("block/conv.2", 3, "norm")
    assert data["golden"] is None


def test_a_body_that_the_failure_ends_is_explained(project: Project) -> None:
    project.marked("scene='exception', isolation='none'", body=FAIL + project.body)
    result = project.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "E *AclError: acl.mdl.execute() returned 507011 (ACL_ERROR_RT_MODEL_EXECUTE): *",
            "*Captured npudump call*",
            "npudump: block/conv.2 (Conv) failed on the NPU (device 0, stream 3, task 3)",
        ]
    )


def test_a_process_that_the_runtime_ends_leaves_its_core(project: Project) -> None:
    project.marked("scene='exception', dump_scene='aic_err_detail_dump'", body=SWALLOW)
    result = project.run("--npudump-dump-dir=dumps")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "npudump: the kernel te_conv_block_conv_2__kernel0 failed on the NPU (device 0, stream 3, *",
            "also: the test's process ended *",
            "  input.0: 576 bytes of shape [[]1, 4, 6, 6], the dump tells no data type",
            "dump:       *extra-info/data-dump/0/te_conv_block_conv_2__kernel0.3.3.*.core (detail)",
        ]
    )
    data: Any = project.report()
    assert data["findings"][0]["dump_kind"] == "detail"


def test_updating_goldens_approves_no_failure(project: Project) -> None:
    project.marked("scene='exception', isolation='none'", body=SWALLOW)
    project.run("--npudump-update-golden").assert_outcomes(failed=1)
    assert not project.path.joinpath("golden").exists()


def test_a_brief_dump_fails_with_stream_and_task(project: Project) -> None:
    marker = "scene='exception', isolation='none', dump_scene='aic_err_brief_dump'"
    project.marked(marker, body=SWALLOW)
    result = project.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "npudump: an operator that its dump does not name failed on the NPU (device 0, stream 3, task 3)",
            "  input.0: 576 bytes of shape [[]1, 4, 6, 6], the dump tells no data type",
        ]
    )


def test_each_test_has_an_exception_dump_of_its_own(project: Project) -> None:
    project.test_file(
        f"""
@pytest.mark.npu_dump(scene="exception", isolation="none", dump_scene="lite_exception")
def test_a(npu_dump):
{SWALLOW}

@pytest.mark.npu_dump(scene="exception", isolation="none")
def test_b(npu_dump):
{SWALLOW}
"""
    )
    result = project.run("-v")
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(["*test_a*/exception_info.3.3.*", "*test_b*/Conv.block_conv_2.3.*"])


def test_a_dump_that_the_environment_sends_elsewhere_is_found(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ASCEND_WORK_PATH", str(project.path / "elsewhere"))
    project.marked("scene='exception', isolation='none'", body=SWALLOW)
    result = project.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "npudump: block/conv.2 (Conv) failed on the NPU (device 0, stream 3, task 3)",
            "outside:    *as ASCEND_WORK_PATH is set*",
            f"dump:       {project.path}/elsewhere/extra-info/data-dump/0/Conv.*",
        ]
    )
    install.reset()  # as a new process, in which nothing fails
    project.marked("scene='exception', isolation='none'")
    project.run().assert_outcomes(passed=1)


def test_work_path_takes_the_test_s_dump_whatever_collect_path_takes(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ASCEND_WORK_PATH", "NPU_COLLECT_PATH"):
        monkeypatch.setenv(name, str(project.path / name))
    project.marked("scene='exception'", body=SWALLOW)
    result = project.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [f"dump:       {project.path}/ASCEND_WORK_PATH/extra-info/data-dump/0/Conv.*"]
    )
    assert not list(project.path.glob("NPU_COLLECT_PATH/**/Conv.*"))


def test_an_error_of_the_device_without_a_dump_does_not_pass(project: Project) -> None:
    body = SWALLOW.replace(
        "        model.run(image)",
        """        model.run(image)
    with npu_dump.load_model("small.onnx") as model:
        import shutil
        shutil.rmtree(npu_dump._test.attempt.dump_path / "extra-info")
""",
    )
    project.marked("scene='exception', isolation='none'", body=body)
    result = project.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["npudump: *.execute returned 507011, an error of the device, and yet no *"])


def test_a_test_that_runs_nothing_does_not_pass(project: Project) -> None:
    project.marked("scene='exception', isolation='none'", body="    pass\n")
    result = project.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["npudump: no operator failed, and nothing shows that a model ran *"])


def test_a_capture_in_which_an_operator_fails_is_named(project: Project) -> None:
    project.marked(
        "scene='exception', isolation='none'",
        body=FAIL.replace('("block/conv.2")', '("block/conv.2", first=1)')
        + """
    import contextlib
    from pytest_npudump.errors import NpudumpError
    image = np.linspace(-1, 1, 64, dtype=np.float32).reshape(1, 1, 8, 8)
    for name in ("once", "twice"):
        with npu_dump.capture(name), npu_dump.load_model("small.onnx") as model:
            with contextlib.suppress(NpudumpError):
                for _ in range(1 if name == "once" else 3):
                    model.run(image)
""",
    )
    result = project.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["npudump: block/conv.2 (Conv) failed on the NPU in capture=twice (device 0,*"]
    )


@pytest.mark.parametrize(
    ("marker", "message"),
    [
        ("layers=['a']", "layers: not with scene='exception', which takes only dump_scene"),
        ("dump_data='tensor'", "dump_data: not with scene='exception', which takes only dump_scene"),
        (
            "dump_scene='watcher'",
            "dump_scene: 'watcher' is not allowed, expected one of 'aic_err_norm_dump'*",
        ),
        (
            "dump_scene='aic_err_detail_dump', isolation='none'",
            "isolation: aic_err_detail_dump may end the process, *",
        ),
    ],
)
def test_what_the_scene_excludes_is_an_error_at_collection(
    project: Project, marker: str, message: str
) -> None:
    project.marked(f"scene='exception', {marker}")
    result = project.run()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([f"npu_dump: test_small.py::test_small: {message}"])


@pytest.mark.parametrize("version", ["8.5.0", "9.0.0", "9.1.0-beta.3", "9.1.0"])
@pytest.mark.parametrize(
    "scene", ["aic_err_norm_dump", "aic_err_brief_dump", "aic_err_detail_dump", "lite_exception"]
)
def test_every_release_takes_the_configuration_of_every_kind(
    project: Project, monkeypatch: pytest.MonkeyPatch, version: str, scene: str
) -> None:
    home = project.path / "cann"
    home.mkdir()
    (home / "version.cfg").write_text(f"version={version}\n")
    monkeypatch.setenv("ASCEND_HOME_PATH", str(home))
    project.marked(f"scene='exception', dump_scene={scene!r}")
    result = project.run("--collect-only")
    result.assert_outcomes(errors=0)
    assert result.ret == 0


def test_dump_scene_belongs_to_the_scene(project: Project) -> None:
    project.marked("dump_scene='lite_exception'")
    result = project.run()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*dump_scene: only with scene='exception'; *"])


def test_a_dump_that_the_application_switched_on_before_does_not_stand_in_the_test_s_way(
    project: Project,
) -> None:
    """torch_npu does so: aclInit with a file of lite_exception, and CANN ignores every later one."""
    project.path.joinpath("lite.json").write_text('{"dump": {"dump_scene": "lite_exception"}}')
    project.test_file(
        f"""
import acl

@pytest.fixture(scope="session")
def early():
    assert acl.init("lite.json") == 0
    yield
    acl.finalize()

@pytest.mark.npu_dump(scene="exception", isolation="none")
def test_a(early, npu_dump):
{SWALLOW}

@pytest.mark.npu_dump(scene="exception", isolation="none")
def test_b(early, npu_dump):
{SWALLOW}
"""
    )
    result = project.run("-v")
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(["*test_a*/Conv.block_conv_2.3.*", "*test_b*/Conv.block_conv_2.3.*"])
    assert not project.path.joinpath("extra-info").exists()


def test_a_dump_beside_the_test_s_own_is_found_in_the_working_directory(project: Project) -> None:
    """A detail dump that was on before cannot be ended: what it leaves is not where the test looks first."""
    body = SWALLOW.replace(
        "    image =",
        """    from pytest_npudump.emulator.dumps.exceptions import ExceptionDump
    from pytest_npudump.emulator.process import process
    import acl
    acl.init()
    process().dumping.exception = ExceptionDump("ARGS_EXCEPTION", "")
    image =""",
    )
    project.marked("scene='exception', isolation='none'", body=body)
    result = project.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "npudump: an operator that its dump does not name failed on the NPU (device 0, stream 3, task 3)",
            "outside:    *another exception dump was on*",
            f"dump:       {project.path}/extra-info/data-dump/0/exception_info.*",
        ]
    )
