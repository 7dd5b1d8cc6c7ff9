"""Calibration on the real MindSpore: each member in a process of its own, its cells fed other values."""

from __future__ import annotations

import pytest
import yaml

from tests.mindspore.conftest import Project

pytestmark = pytest.mark.mindspore
SMALL = """
@pytest.mark.npu_dump(isolation="process")
def test_small():
    filled(Small())({given})
"""


def test_inputs_of_cells_are_perturbed_and_the_noise_of_what_follows_is_measured(project: Project) -> None:
    project.tests(SMALL.format(given="Tensor(X)"))
    result = project.run(
        "--npudump-update-golden", "--npudump-update-golden=calibrate", "-onpudump_calibration_runs=3"
    )
    result.stdout.fnmatch_lines(["*calibrated with 3 members, varied: repeats, inputs; factor*"])
    text = project.path.joinpath("golden", "test_net", "test_small.yaml").read_text(encoding="utf-8")
    document = yaml.safe_load(text)
    assert document["calibration"]["varied"] == ["repeats", "inputs"]
    assert document["columns"].endswith(" noise")
    project.run().assert_outcomes(passed=1)


def test_a_function_of_jit_is_only_repeated_and_the_note_says_so(project: Project) -> None:
    project.tests(
        '\n@pytest.mark.npu_dump(isolation="process")\ndef test_small():\n'
        "    @ms.jit\n    def twice(x):\n        return x + x\n\n    twice(Tensor(X))\n"
    )
    result = project.run(
        "--npudump-update-golden", "--npudump-update-golden=calibrate", "-onpudump_calibration_runs=3"
    )
    result.stdout.fnmatch_lines(["*only repetitions were measured, as the plugin saw no input*"])
