"""Calls that CANN takes once a process, in tests that run twice and beside others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_npudump.emulator import install

if TYPE_CHECKING:
    from conftest import Project

SOURCE = """
def add(value, directory):
    import acl
    ret = acl.init()
    assert ret in (0, 100002)
    acl.rt.set_device(0)
    ret = acl.op.set_model_dir(str(directory))
    assert ret == 0, f"set_model_dir returned {{ret}}"
    stream, _ = acl.rt.create_stream()
    desc = acl.create_tensor_desc(0, [4], 2)
    values = np.full(4, value, dtype=np.float32)
    pointers = [acl.rt.malloc(16, 0)[0] for _ in range(3)]
    for pointer in pointers[:2]:
        acl.rt.memcpy(pointer, 16, acl.util.bytes_to_ptr(values.tobytes()), 16, 1)
    buffers = [acl.create_data_buffer(pointer, 16) for pointer in pointers]
    attr = acl.op.create_attr()
    assert acl.op.execute_v2("Add", [desc, desc], buffers[:2], [desc], buffers[2:], attr, stream) == 0
    assert acl.rt.synchronize_stream(stream) == 0

@pytest.mark.npu_dump(scene="op")
def test_first(npu_dump, tmp_path):
    tmp_path.joinpath("add.om").write_bytes(b"a compiled operator")
    add({value}, tmp_path)

{mark}
@pytest.mark.npu_dump(scene="op")
def test_second(npu_dump, tmp_path):
    tmp_path.joinpath("add.om").write_bytes({model})
    add({value}, tmp_path)
"""
SAME, OTHER = b"a compiled operator", b"another operator"
ISOLATED = '@pytest.mark.npu_dump(isolation="process")'


def source(value: float, model: bytes = SAME, mark: str = "") -> str:
    return SOURCE.format(value=value, model=model, mark=mark)


def test_a_failing_test_that_sets_the_model_directory_has_a_second_run(project: Project) -> None:
    """CANN keeps the models of the first call; whoever asks for the same ones has them."""
    project.test_file(source(1))
    project.record()
    install.reset()  # each session has a process of its own
    project.run().assert_outcomes(passed=2)
    install.reset()
    project.test_file(source(3))
    result = project.run("--npudump-dump-dir=dumps", "-k", "first")
    result.assert_outcomes(failed=1)
    report = project.report()
    assert report["escalation"]["problem"] is None  # type: ignore[index]
    assert report["escalation"]["reproduced"] is True  # type: ignore[index]


@pytest.mark.e2e
@pytest.mark.parametrize("mark", ["", ISOLATED])
def test_a_test_that_needs_other_models_is_told_the_way_out_which_works(project: Project, mark: str) -> None:
    project.test_file(source(1, OTHER, mark))
    result = project.run("--npudump-update-golden")
    if mark:
        result.assert_outcomes(passed=2)
        return
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        ["*set_model_dir returned 100002*", '*has loaded models by then *isolation="process"*']
    )


def test_one_run_may_call_it_once(project: Project) -> None:
    project.test_file(
        source(1).replace("    stream, _", "    assert acl.op.set_model_dir('.') == 100002\n    stream, _")
    )
    project.run("--npudump-update-golden").assert_outcomes(passed=2)
