"""What exception dumps are found, what they tell, and when a run without one may pass."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pytest_npudump.dump.dtypes import BY_NAME
from pytest_npudump.emulator.dumps.exceptions import (
    ExceptionArgument,
    FailedTask,
    container,
    core,
    exception_header,
)
from pytest_npudump.onnxmodels.tensor_types import from_array
from pytest_npudump.ranks.rank import Rank
from pytest_npudump.regression import result as status
from pytest_npudump.regression.attempt import Attempt
from pytest_npudump.regression.result import Result
from pytest_npudump.regression.scenes.exception import FailedOperator, examine, judge, refused_environment
from pytest_npudump.report.scenes import finding_details, finding_sentence
from pytest_npudump.request import DumpRequest
from pytest_npudump.runtime.base import Evidence

SAMPLE = Path(__file__).parents[2] / "data" / "trees" / "acl-exception" / "op.1.2"
"""Written by adump itself: operator "net/op.name 1", inputs float32 and bfloat16, one float32 output."""
BF16 = "  input.1: bfloat16 [1, 2, 4, 4, 16], max {0} at {1}, min {0} at {1}".format(2**-7, [0] * 5)
"""All of it is 0x3c00."""
STAMP = "20260910085237489"
NORM = f"MatMul.net_op_name_1.5.{STAMP}"
VARIABLES = (
    "ASCEND_DUMP_SCENE",
    "ASCEND_DUMP_PATH",
    "ASCEND_WORK_PATH",
    "NPU_COLLECT_PATH",
    "ASCEND_RT_VISIBLE_DEVICES",
)


@dataclass
class Run:
    """The part of a marked test that the scene looks at."""

    attempt: Attempt
    request: DumpRequest
    exchange: Any = None
    settings: Any = field(default_factory=lambda: SimpleNamespace(device=None))
    activity: Any = field(
        default_factory=lambda: SimpleNamespace(
            initialised=True,
            executions=1,
            released=False,
            models=(Path("m.om"),),
            programs=(),
            likely_cause="",
            evidence=Evidence(),
        )
    )

    @property
    def runtime(self) -> Any:
        return SimpleNamespace(activity=self.activity, name="acl")

    def folder(self, device: int = 0, part: str = "dump") -> Path:
        path = self.attempt.directory / part / "extra-info" / "data-dump" / str(device)
        path.mkdir(parents=True, exist_ok=True)
        return path


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


def run_in(folder: Path) -> Run:
    request = DumpRequest(scene="exception")
    found = Run(Attempt(folder / "run1", request), request)
    found.attempt.dump_path.mkdir(parents=True)
    (found.attempt.directory / "acl.json").write_text("{}")
    return found


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return run_in(tmp_path)


def failed(outcome: Result) -> list[FailedOperator]:
    found = [one for one in outcome.findings if isinstance(one, FailedOperator)]
    assert len(found) == len(outcome.findings)
    return found


def test_a_dump_that_adump_wrote_names_its_operator_and_shows_its_tensors(run: Any) -> None:
    path = shutil.copy(SAMPLE, run.folder(3) / NORM)
    outcome = judge(run, run.attempt)
    assert outcome.status == status.FAILED
    (found,) = failed(outcome)
    assert (found.layer, found.op_type, found.kind, found.task, found.device) == (
        "net/op.name 1",
        "MatMul",
        "norm",
        5,
        3,
    )
    assert finding_sentence(found) == "net/op.name 1 (MatMul) failed on the NPU (device 3, task 5)"
    assert finding_details(found) == [
        "  input.0: float32 [2, 3], max 6 at [1, 2], min 1 at [0, 0]",
        BF16,
        "  output.0: float32 [2, 3], max 6 at [1, 2], min 1 at [0, 0]",
        f"dump:       {path} (norm)",
    ]
    data = found.to_json()
    assert (data["kind"], data["operator"], data["dump_kind"]) == ("exception", "net/op.name 1", "norm")
    assert data["tensors"][0]["max"] == 6


def test_what_mindspore_saves_of_a_failed_operator_is_shown_and_its_parameters_are_none(run: Any) -> None:
    sample = Path(__file__).parents[2] / "data" / "trees" / "mindspore-op_fails_in_step_1"
    shutil.copytree(sample, run.attempt.dump_path, dirs_exist_ok=True)
    files = [*run.attempt.dump_path.rglob("*.npy")]
    for path in files:
        if not path.name.startswith("Parameter"):
            path.unlink()
    assert judge(run, run.attempt).status == status.PASSED
    for path in files:
        if path.name.startswith("Gather") and ".input." in path.name:
            shutil.copy(sample / path.relative_to(run.attempt.dump_path), path)
    (found,) = failed(judge(run, run.attempt))
    assert finding_sentence(found) == "Default_Gather-op0 (Gather) failed on the NPU"
    inputs = [tensor.to_json() for tensor in found.tensors]
    assert [(one["tensor"], one["dtype"]) for one in inputs] == [
        ("input.0", "float32"),
        ("input.1", "int32"),
        ("input.2", "int64"),
        ("input.3", "int64"),
    ]
    assert inputs[0]["max"] == float(np.load(found.tensors[0].path).max())


# The line of DumpOperator::LogExceptionInfo.
LOG = "[AIC_INFO] node_name:a/b, node_type:Add, stream_id:47, task_id:7, context_id:4294967295\n"
UNNAMED = "an operator that its dump does not name"


@pytest.mark.each(
    ("name", "kind", "sentence"),
    [
        (f"Add.a_b.7.{STAMP}", "", "a/b (Add) failed on the NPU (device 0, stream 47, task 7)"),
        (f"Add.a_b.6.{STAMP}", "", "a/b (Add) failed on the NPU (device 0, stream 47, task 6)"),
        (f"my.ring buffer.custom.{STAMP}", "", "a/b failed on the NPU (device 0, stream 47, task 7)"),
        ("exception_info.42.1.1726159207469285", "brief", UNNAMED),
        (f"exception_info.42.1.{STAMP}", "brief", UNNAMED),
        (f"exception_info.42.1.0.24.{STAMP}", "callback", UNNAMED),
        (f"MatMul.mix.42.1.0.24.{STAMP}", "callback", "the kernel MatMul.mix"),
    ],
)
def test_what_the_name_of_a_dump_does_not_tell_is_in_its_log_or_is_stream_and_task(
    tmp_path: Path, name: str, kind: str, sentence: str
) -> None:
    run = run_in(tmp_path)
    array = np.zeros((2, 3), np.int8) if kind else np.array([np.nan, 1], np.float16)
    values = [ExceptionArgument(from_array(BY_NAME[array.dtype.name], array), 0)]
    operator = FailedTask("", "", 1, 42, 0, values) if kind else FailedTask("a/b", "Add", 7, 47, 0, values)
    told: dict[str, Any] = {"brief": True} if kind else {"message": LOG}
    (run.folder() / name).write_bytes(b"".join(container(exception_header(5, operator, **told), operator)))
    (found,) = failed(judge(run, run.attempt))
    if kind:
        assert (found.kind, found.layer) == (kind, "")
        sentence += " failed on the NPU (device 0, stream 42, task 1)"
    assert finding_sentence(found) == sentence
    tensor = "6 bytes of shape [2, 3], the dump tells no data type"
    if not kind:
        tensor = "float16 [2], max 1 at [1], min 1 at [1], 1 NaN"
    assert finding_details(found)[0].startswith(f"  input.0: {tensor}")


@pytest.mark.each(
    ("name", "part", "told"),
    [
        # the exception_dumper.cc of older GE: no stream, microseconds; elsewhere an operator of a model dump
        ("GatherV2.GatherV21.1.1733469426252033", "dump", ("norm", "GatherV2", 1, "")),
        (f"my.ring buffer.custom.{STAMP}", "dump", ("custom", "", None, "")),
        ("op.1.2", "dump", ("custom", "", None, "")),
        (NORM, "dump-warm up", ("norm", "MatMul", 5, "warm up")),
    ],
)
def test_a_dump_goes_by_its_name_and_what_is_in_it(
    tmp_path: Path, name: str, part: str, told: tuple[Any, ...]
) -> None:
    run = run_in(tmp_path)
    run.exchange = SimpleNamespace(rank=Rank(0, 4, 0, 4))  # in the run's own directory any device is its own
    shutil.copy(SAMPLE, run.folder(3, part=part) / name)
    outcome = judge(run, run.attempt)
    (found,) = failed(outcome)
    assert outcome.problems == ()
    assert (found.kind, found.op_type, found.task, found.capture) == told
    assert (found.layer, found.device, "hello" in found.message) == ("net/op.name 1", 3, True)
    assert (f" in capture={part[5:]} (" in finding_sentence(found)) is bool(found.capture)


def test_the_name_of_a_core_tells_its_kernel_and_the_kernel_s_files_are_attached(run: Any) -> None:
    folder = run.folder(1)
    values = ExceptionArgument(from_array(BY_NAME["float32"], np.zeros((2, 3), np.float32)), 0)
    operator = FailedTask("a", "Mul", 3, 47, 1, [values], [values])
    path = folder / f"te_mul_1__kernel0.47.3.{STAMP}.core"
    path.write_bytes(core("te_mul_1__kernel0", operator))
    for name in ("te_mul_1_host.o", "te_mul_1.json"):
        (folder / name).write_bytes(b"\x7fELF")
    outcome = judge(run, run.attempt)
    assert outcome.problems == ()
    (found,) = failed(outcome)
    assert finding_sentence(found) == (
        "the kernel te_mul_1__kernel0 failed on the NPU (device 1, stream 47, task 3)"
    )
    assert finding_details(found) == [
        f"attached:   {folder / 'te_mul_1.json'}",
        f"attached:   {folder / 'te_mul_1_host.o'}",
        f"dump:       {path} (detail)",
    ]


def test_a_dump_cut_short_is_a_problem_and_costs_no_other(run: Any) -> None:
    shutil.copy(SAMPLE, run.folder() / f"Add.a_b.4.{STAMP}")
    cut = run.folder() / f"MatMul.net_fc.5.{STAMP}"
    for content in (SAMPLE.read_bytes()[:700], b"", b"\0" * 3, b"\xff" * 64):
        cut.write_bytes(content)
        outcome = judge(run, run.attempt)
        assert outcome.status == status.FAILED
        assert [(one.layer, one.op_type, bool(one.tensors)) for one in failed(outcome)] == [
            ("net/op.name 1", "Add", True),
            ("net_fc", "MatMul", False),
        ]
        (problem,) = outcome.problems
        assert problem.startswith(f"unreadable exception dump: {cut}, byte ")
        assert ("truncated" in problem) or len(content) < 700
    run.request = DumpRequest(scene="exception", dump_scene="aic_err_detail_dump")
    shutil.copy(SAMPLE, run.folder() / f"exception_info.42.1.{STAMP}")
    assert "CANN fell back to aic_err_brief_dump" in judge(run, run.attempt).notes[0]


def test_the_same_operator_failing_again_is_one_finding_and_other_files_are_none(run: Any) -> None:
    (run.attempt.dump_path / "20260910085237" / "0").mkdir(parents=True)
    shutil.copy(SAMPLE, run.attempt.dump_path / "20260910085237" / "0" / "Add.x.1.2.1795228764002383")
    (run.attempt.directory / "stdout.txt").write_text("hello")
    assert judge(run, run.attempt).status == status.PASSED
    for millisecond in range(3):
        task = 5 + millisecond
        shutil.copy(SAMPLE, run.folder() / f"MatMul.net_op_name_1.{task}.2026091008523748{millisecond}")
        task = 1 + millisecond // 2  # which tells operators without a name apart
        operator = FailedTask("", "", task, 42, 0, ())
        unnamed = run.folder() / f"exception_info.42.{task}.2026091008523749{millisecond}"
        unnamed.write_bytes(b"".join(container(exception_header(5, operator, brief=True), operator)))
    shutil.copy(SAMPLE, run.folder(1) / NORM)
    first, other, *nameless = failed(judge(run, run.attempt))
    assert [(one.layer, one.task, one.executions) for one in nameless] == [("", 1, 2), ("", 2, 1)]
    assert finding_sentence(first).endswith("(device 0, task 5), 3 times")
    assert (len(first.tensors), other.device, other.executions) == (3, 1, 1)
    shutil.rmtree(run.attempt.directory)  # as of a run that never began
    outcome = examine(run, run.attempt)
    assert (outcome.findings, outcome.problems) == ((), ())


@pytest.mark.parametrize("variable", ["ASCEND_DUMP_PATH", "ASCEND_WORK_PATH", "NPU_COLLECT_PATH"])
def test_a_dump_that_the_environment_sent_elsewhere_is_found_if_it_is_newer_than_the_run(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, str(tmp_path / "work"))
    folder = tmp_path / "work" / "extra-info" / "data-dump" / "2"
    folder.mkdir(parents=True)
    old = folder / f"Add.old.4.{STAMP}"
    old.write_bytes(b"damaged, and nobody's business")
    os.utime(old, (1, 1))
    (folder / "of_nobody").touch()
    later = run.attempt.directory / "of_a_second_program.json"
    later.touch()
    os.utime(later, (1 << 33, 1 << 33))
    assert judge(run, run.attempt).status == status.PASSED
    shutil.copy(SAMPLE, folder / NORM)
    outcome = judge(run, run.attempt)
    assert outcome.problems == ()
    (found,) = failed(outcome)
    assert (found.layer, found.device, found.outside) == ("net/op.name 1", 2, variable)
    assert any(f"as {variable} is set" in line for line in finding_details(found))


def dump_outside(tmp_path: Path, device: int) -> Path:
    folder = tmp_path / "work" / "extra-info" / "data-dump" / str(device)
    folder.mkdir(parents=True)
    shutil.copy(SAMPLE, folder / NORM)
    return folder


@pytest.mark.parametrize("beside", [{}, {f"Add.cut_short.4.{STAMP}": b"damaged, and nobody's business"}])
def test_dumps_outside_of_devices_that_other_ranks_use_are_left_to_them(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, beside: dict[str, bytes]
) -> None:
    monkeypatch.setenv("ASCEND_DUMP_PATH", str(tmp_path / "work"))
    run.exchange = SimpleNamespace(rank=Rank(0, 4, 0, 4))
    folder = dump_outside(tmp_path, 1)
    dump_outside(tmp_path, 3)
    for name, content in beside.items():
        (folder / name).write_bytes(content)
    outcome = judge(run, run.attempt)
    assert outcome.status == status.PASSED
    assert outcome.notes == (
        f"exception dumps of device 1, 3 in {folder.parent} are left to the ranks that use it",
    )
    dump_outside(tmp_path, 0)
    assert [found.device for found in failed(judge(run, run.attempt))] == [0]


def test_dumps_outside_of_a_device_that_may_be_this_process_s_fail_its_test(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ASCEND_DUMP_PATH", str(tmp_path / "work"))
    for rank, device, visible in (
        (Rank(1, 4, 1, 4), 7, ""),  # which no other rank of this machine has by itself
        (Rank(1, 4, 1, 4), 1, ""),
        (Rank(1, 4, 1, 4), 0, "4,5,6,7"),
        (Rank(9, 16, 1, 0), 1, ""),
        (None, 1, ""),
    ):
        monkeypatch.setenv("ASCEND_RT_VISIBLE_DEVICES", visible)
        run.exchange = None if rank is None else SimpleNamespace(rank=rank)
        folder = dump_outside(tmp_path, device)
        assert [found.device for found in failed(judge(run, run.attempt))] == [device], (rank, device)
        shutil.rmtree(folder)


def test_a_dump_in_the_working_directory_is_found_whatever_had_it_written(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "here" / "extra-info" / "data-dump" / "0"
    folder.mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here")
    shutil.copy(SAMPLE, folder / NORM)
    old = folder / f"Add.old.4.{STAMP}"
    old.write_bytes(b"of an earlier process")
    os.utime(old, (1, 1))
    assert [one.outside for one in failed(judge(run, run.attempt))] == ["another exception dump"]
    monkeypatch.setenv("ASCEND_DUMP_SCENE", "aic_err_norm_dump")
    assert [one.outside for one in failed(judge(run, run.attempt))] == ["ASCEND_DUMP_SCENE"]
    shutil.rmtree(folder)
    monkeypatch.setenv("ASCEND_WORK_PATH", str(run.attempt.dump_path))  # into the run: it counts once
    shutil.copy(SAMPLE, run.folder() / NORM)
    assert [(one.outside, one.executions) for one in failed(judge(run, run.attempt))] == [("", 1)]


def test_a_run_of_which_nothing_is_known_does_not_pass(run: Any) -> None:
    for name, value in (("initialised", False), ("executions", 0), ("released", True)):
        known = getattr(run.activity, name)
        setattr(run.activity, name, value)
        outcome = judge(run, run.attempt)
        assert outcome.status == status.ERROR
        words = "no operator failed, and nothing shows that a model ran under"
        assert outcome.problems[0].startswith(words)
        run.activity.evidence.shown.append("it read the configuration")
        assert judge(run, run.attempt).status == status.PASSED
        run.activity.evidence.shown.clear()
        setattr(run.activity, name, known)


@pytest.mark.each(
    ("added", "inherited", "words"),
    [
        ({}, {}, ""),
        ({"OTHER": "x"}, {"ASCEND_WORK_PATH": "/w"}, ""),
        ({"ASCEND_WORK_PATH": "/w"}, {"ASCEND_WORK_PATH": "/w"}, ""),
        ({"ASCEND_WORK_PATH": "/v"}, {"ASCEND_WORK_PATH": "/w"}, "ASCEND_WORK_PATH: the program's exception"),
        ({"ASCEND_DUMP_SCENE": "aic_err_norm_dump"}, {}, "leave it out, or set it for pytest itself"),
        ({}, {"ASCEND_DUMP_PATH": "out"}, "below its own working directory"),
        ({}, {"ASCEND_DUMP_SCENE": "aic_err_norm_dump"}, "below its own working directory"),
        ({}, {"ASCEND_DUMP_SCENE": "aic_err_norm_dump", "ASCEND_WORK_PATH": "/w"}, ""),
    ],
)
def test_a_program_s_dump_must_not_go_where_nobody_looks(
    added: dict[str, str], inherited: dict[str, str], words: str
) -> None:
    found = refused_environment(added, inherited)
    assert words in found
    assert bool(words) == bool(found)
