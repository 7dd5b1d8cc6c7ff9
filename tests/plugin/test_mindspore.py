"""Marked tests of MindSpore, over a stand-in that reads its configuration once and writes its files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Project

CLIENT = Path(__file__).parents[1] / "data" / "mindspore_client"
BODY = """
import os
import mindspore

CHANGE = float(os.environ.get("CHANGE", "0"))

def net():
    mindspore.run(0, {"Default/a/Add-op0": 1, "Default/b.c/Mul-op0": 2, "fc.weight": 3})

def other():
    mindspore.run(1, {"Default/a/Add-op1": 4, "Default/d/Mul-op0": 5 + CHANGE, "d.bias": 6 + CHANGE})
"""


@pytest.fixture
def mindspore(project: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.setenv("PYTHONPATH", str(CLIENT))
    monkeypatch.syspath_prepend(str(CLIENT))
    for name in ("CHANGE", "MINDSPORE_DUMP_CONFIG", "MS_ACL_DUMP_CFG_PATH"):
        monkeypatch.delenv(name, raising=False)
    return project


def write(project: Project, body: str, marker: str = "") -> None:
    project.test_file(f"{BODY}\n@pytest.mark.npu_dump({marker})\ndef test_net(npu_dump):\n    {body}\n")


def run(project: Project, *options: str) -> pytest.RunResult:
    return project.pytester.runpytest_inprocess(
        "--npudump-runtime=mindspore", "--npudump-dump-dir=dumps", *options
    )


def dumped(project: Project, run: str) -> list[str]:
    return sorted(path.name.split(".")[1] for path in project.path.glob(f"dumps/*/{run}/dump/**/*.npy"))


def test_steps_of_an_asynchronous_dump_on_ascend_are_judged_by_their_numbers(
    mindspore: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ASCEND", "1")
    write(mindspore, "net(); net(); other()")
    assert run(mindspore, "--npudump-update-golden").ret == 0
    assert "Default/b.c/Mul-op0#model=net_0,step=1:output.0" in mindspore.golden.read_text()
    run(mindspore).stdout.fnmatch_lines(["npudump: 1 of 1 tests good, 9 of 9 tensors compared (mindspore)"])
    monkeypatch.setenv("CHANGE", "0.5")
    result = run(mindspore)
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*Default/d/Mul-op0*step=2*", "second run: *reproduced*"])
    monkeypatch.delenv("CHANGE")
    write(mindspore, "net(); other(); net()")
    result = run(mindspore)
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*net_0,step=1*missing*"])


def test_each_run_has_a_process_and_the_second_one_dumps_only_what_fails(
    mindspore: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(mindspore, "net(); net(); other(); net(); other()")
    assert run(mindspore, "--npudump-update-golden").ret == 0
    golden = mindspore.golden.read_text()
    assert "Default/b.c/Mul-op0#model=net/0,step=1:output.0" in golden
    assert "producer: {runtime: mindspore, mindspore: 2.10.0, device_target: CPU," in golden
    run(mindspore).stdout.fnmatch_lines(["npudump: 1 of 1 tests good, 15 of 15 tensors compared (mindspore)"])
    monkeypatch.setenv("CHANGE", "0.5")
    run(mindspore).stdout.fnmatch_lines(
        [
            "npudump: Default/d/Mul-op0 (Mul output.0 (model=net/1,step=2)) differs: *",
            "golden: * 4 of 15 tensors fail *",
            "second run: the failure reproduced (2 layers dumped as tensors)",
        ]
    )
    assert dumped(mindspore, "run2") == ["Default_d_Mul-op0"] * 2 + ["d_bias"] * 2
    assert len(dumped(mindspore, "run1")) == 15


def test_names_that_nothing_resolves_are_dumped_with_everything_else(
    mindspore: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a golden's raw names and MindSpore's lists only the files' names are left."""
    write(mindspore, "other()")
    assert run(mindspore, "--npudump-update-golden").ret == 0
    mindspore.golden.write_text(
        mindspore.golden.read_text().replace("Default/d/Mul", "Default_d_Mul").replace("d.bias", "d_bias")
    )
    write(mindspore, "other(); import shutil; shutil.rmtree(npu_dump.records[0].path.parents[3] / 'graphs')")
    monkeypatch.setenv("CHANGE", "0.5")
    run(mindspore).stdout.fnmatch_lines(
        [
            "second run: the failure reproduced (2 *",
            "note: the raw operator name behind d_bias is not known *",
        ]
    )
    assert dumped(mindspore, "run2") == ["Default_d_Mul-op0", "d_bias"]


def test_globs_are_selected_by_mindspore_and_said_to_cost_nothing(mindspore: Project) -> None:
    write(mindspore, "net()", "['*Mul*']")
    result = run(mindspore, "--npudump-update-golden", "--npudump-keep-dumps=all")
    assert result.ret == 0
    assert "by glob" not in result.stdout.str()
    assert dumped(mindspore, "run1") == ["Default_b_c_Mul-op0"]


def test_an_empty_dump_and_a_layer_that_is_missing_fail(mindspore: Project) -> None:
    write(mindspore, "pass")
    run(mindspore).stdout.fnmatch_lines(["npudump: the dump holds nothing: MindSpore compiled no graph *"])
    write(mindspore, "net(); other()")
    assert run(mindspore, "--npudump-update-golden").ret == 0
    write(mindspore, "net()")
    result = run(mindspore)
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*missing*"])


@pytest.mark.parametrize(
    ("marker", "message"),
    [
        ("model_name='m'", "model_name: not with MindSpore: it dumps every network of the process*"),
        ("dump_step='3-1'", "MindSpore * would take this dump and ignore part of it: *"),
        ("data_dump={'kernels': []}", "data_dump['kernels']: not here: use layers"),
        ("data_dump=[1]", "data_dump: [[]1[]] is not allowed, expected a dict of keys of data_dump.json *"),
    ],
)
def test_what_mindspore_cannot_do_is_an_error_at_collection(
    mindspore: Project, marker: str, message: str
) -> None:
    write(mindspore, "raise AssertionError('must not run')", marker)
    result = run(mindspore)
    assert result.ret == pytest.ExitCode.INTERRUPTED
    pattern = message.replace("data_dump['kernels']", "data_dump[[]'kernels'[]]")
    result.stdout.fnmatch_lines([f"npu_dump: test_small.py::test_net: {pattern}"])


def test_keys_of_data_dump_json_are_refused_by_other_runtimes(project: Project) -> None:
    project.marked("data_dump={'sample_mode': 1}")
    project.run().stdout.fnmatch_lines(["*data_dump: keys of MindSpore's*--npudump-runtime=mindspore"])


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            "npu_dump.run(['true'], acl_json='acl.json')",
            "*run(): hands an acl.json on, and the runtime mind*",
        ),
        ("npu_dump.torchair_config()", "*torchair_config(): hands an acl.json on*"),
        ("npu_dump.capture('part').__enter__()", "*capture(): MindSpore reads its dump configuration once *"),
        (
            "npu_dump.load_model('net.om')",
            "*load_model('net.om'): the runtime mindspore loads .mindir files*",
        ),
    ],
)
def test_what_the_fixture_cannot_do_with_mindspore_says_what_can_be_done(
    mindspore: Project, body: str, message: str
) -> None:
    write(mindspore, f"net(); {body}")
    result = run(mindspore, "--npudump-update-golden")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([message])


def test_the_configuration_is_read_though_the_test_looks_at_it(mindspore: Project) -> None:
    write(mindspore, "assert npu_dump.config['common_dump_settings']['net_name'] == 'net'; net()")
    run(mindspore, "--npudump-update-golden").assert_outcomes(passed=1)
