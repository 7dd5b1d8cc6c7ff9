"""One test, several devices: the golden keeps them apart."""

from __future__ import annotations

from typing import TYPE_CHECKING

# pytester forgets modules that a run imports; a later run would then mix their classes with new ones.
import pytest_npudump.emulator.acl
from pytest_npudump.emulator import install

if TYPE_CHECKING:
    from conftest import Project

EMULATOR = pytest_npudump.emulator.acl
BODY = """
    from concurrent.futures import ThreadPoolExecutor

    import acl

    assert acl.init() == 0

    def run(device):
        assert acl.rt.set_device(device) == 0
        model_id, ret = acl.mdl.load_from_file("small.onnx")
        assert ret == 0
        data = np.linspace(-1, 1 + {change} * device, 64, dtype=np.float32).tobytes()
        source, target = acl.rt.malloc(256, 0)[0], acl.rt.malloc(256, 0)[0]
        acl.rt.memcpy(source, 256, acl.util.bytes_to_ptr(data), 256, 1)
        datasets = [acl.mdl.create_dataset() for _ in range(2)]
        for dataset, (address, size) in zip(datasets, ((source, 256), (target, 128))):
            acl.mdl.add_dataset_buffer(dataset, acl.create_data_buffer(address, size))
        return acl.mdl.execute(model_id, *datasets)

    with ThreadPoolExecutor(2) as workers:
        assert list(workers.map(run, (0, 1))) == [0, 0]
"""


def test_layers_of_two_devices_are_compared_apart(project: Project) -> None:
    project.marked(body=BODY.format(change=1))
    project.record()
    text = project.golden.read_text()
    assert "block_conv_1#device=0:output.0 " in text
    assert "block_conv_1#device=1:output.0 " in text
    install.reset()
    project.run().assert_outcomes(passed=1)


def test_a_device_that_computes_something_else_is_named(project: Project) -> None:
    project.marked(body=BODY.format(change=1))
    project.record()
    install.reset()
    project.marked(body=BODY.format(change=1.5))
    result = project.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*#device=1*"])
    result.stdout.no_fnmatch_line("*#device=0:output*")


def test_an_operator_that_fails_on_one_device_is_told_with_it(project: Project) -> None:
    body = BODY.format(change=1).replace("== [0, 0]", "== [507011, 507011]")
    plant = "    from pytest_npudump.emulator.faults import fail\n    fail('block/conv.2')\n"
    project.marked("scene='exception', isolation='none'", body=plant + body)
    result = project.run("-v")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "npudump: block/conv.2 (Conv) failed on the NPU (device [01], *",
            "block/conv.2 (Conv) failed *device [01], *",
        ]
    )
