"""The scene exception end to end on the emulator: in this process, and in one that the runtime ends."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_npudump.emulator import install
from tests.plugin.conftest import Project

# pytester forgets modules that a run imports; a later run would then mix their classes with new ones.


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


@pytest.fixture(autouse=True)
def _in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ASCEND_DUMP_SCENE", "ASCEND_DUMP_PATH", "ASCEND_WORK_PATH", "NPU_COLLECT_PATH"):
        monkeypatch.delenv(name, raising=False)


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
        "  input.0: 576 bytes of shape [[]1, 4, 6, 6], the dump tells no data type",
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


def test_every_release_takes_the_configuration_of_every_kind(project: Project) -> None:
    project.patch.setenv("ASCEND_HOME_PATH", str(project.path))
    kinds = ("aic_err_norm_dump", "aic_err_brief_dump", "aic_err_detail_dump", "lite_exception")
    mark = "@pytest.mark.npu_dump(scene='exception', acl_json=dict(dump_scene={0!r}))\n"
    project.test_file("\n".join(f"{mark}def test_{{0}}():\n    pass\n".format(kind) for kind in kinds))
    for version in ("8.5.0", "9.0.0", "9.1.0-beta.3", "9.1.0"):
        (project.path / "version.cfg").write_text(f"version={version}\n")
        assert project.run("--collect-only").ret == 0
