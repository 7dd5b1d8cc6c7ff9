"""Several ranks: each with its golden or all with one, run again together, named where they differ."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Project

BODY = """
    image = np.linspace(-1, 1, 64, dtype=np.float32).reshape(1, 1, 8, 8)
    with open(f"runs-{os.environ['RANK']}", "a") as file:
        file.write("run\\n")
    name = "changed.onnx" if os.environ["RANK"] == os.environ.get("CHANGED") else "small.onnx"
    with npu_dump.load_model(name) as model:
        model.run(image)
"""

WAIT = """
    import time
    def wait_for(name):
        until = time.monotonic() + 60
        while not os.path.exists(name) and time.monotonic() < until:
            time.sleep(0.02)
    def meet(name):
        open(f"{name}-{os.environ['RANK']}", "w").close()
        wait_for(f"{name}-{1 - int(os.environ['RANK'])}")
"""
FINISHED = """
import os
def pytest_runtest_logfinish():
    open(f"finished-{os.environ['RANK']}", "w").close()
"""
ISOLATION = ["isolation='none'", "isolation='process'"]


def write(project: Project, marker: str = "", before: str = "", body: str = BODY) -> None:
    project.model(change=0.5)
    project.path.joinpath("small.onnx").rename(project.path / "changed.onnx")
    project.model()
    project.test_file(
        f"import os, shutil\n@pytest.mark.npu_dump({marker})\ndef test_small(npu_dump):\n{before}{body}"
    )


@pytest.fixture(autouse=True)
def _no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MASTER_ADDR", "MASTER_PORT", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "TORCHELASTIC_RUN_ID"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(autouse=True)
def _own_meeting_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks of another run of this suite have the same address and port."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))


def impatient(project: Project, seconds: float) -> None:
    """Have ranks wait for each other no longer than ``seconds``."""
    project.path.joinpath("conftest.py").write_text(
        f"from pytest_npudump.ranks import exchange\nexchange.PATIENCE = {seconds}\n"
    )


def launch(
    project: Project, *options: str, size: int = 2, apart: bool = False, **variables: str
) -> list[tuple[int, str]]:
    """Run pytest as every one of ``size`` ranks at once; return exit codes and outputs in order.

    Where they are ``apart``, each is started by a shell of its own.
    """
    shell = ["sh", "-c", '"$@"; exit $?', "sh"] if apart else []
    command = [*shell, sys.executable, "-m", "pytest", "--npudump-runtime=emulator", *options]
    processes = [
        subprocess.Popen(
            [*command, f"--basetemp={project.path}/temp-{number}"],
            cwd=project.path,
            env={**os.environ, "RANK": str(number), "WORLD_SIZE": str(size), **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for number in range(size)
    ]
    outputs = [process.communicate(timeout=120)[0] for process in processes]
    return [(process.returncode, output) for process, output in zip(processes, outputs, strict=True)]


def goldens(project: Project) -> list[str]:
    return sorted(path.name for path in project.path.joinpath("golden").rglob("*.yaml"))


def runs(project: Project, number: int) -> int:
    return len(project.path.joinpath(f"runs-{number}").read_text().splitlines())


def test_each_rank_has_a_golden_of_its_own_and_the_one_that_differs_is_named(project: Project) -> None:
    write(project)
    assert [code for code, _ in launch(project, "--npudump-update-golden")] == [0, 0]
    assert goldens(project) == ["test_small@rank0of2.yaml", "test_small@rank1of2.yaml"]
    assert [code for code, _ in launch(project)] == [0, 0]
    before = [runs(project, 0), runs(project, 1)]
    (good, first), (bad, second) = launch(project, CHANGED="1")
    assert (good, bad) == (0, 1)
    assert "npudump: test_small.py::test_small fails on 1 of 2 ranks: 1 (block/conv.2:output.0)" in first
    assert "npudump: rank 1 of 2: block/conv.2 (Conv output.0) differs" in second
    assert "second run: the failure reproduced" in second
    # A model whose ranks wait for each other hangs unless all of them run again.
    assert [runs(project, 0) - before[0], runs(project, 1) - before[1]] == [2, 2]


def test_ranks_share_one_golden_that_rank_0_records(project: Project) -> None:
    write(project, "ranks='same'")
    (_, first), (_, second) = launch(project, "--npudump-update-golden")
    assert "1 recorded" in first
    assert "rank 0 records the golden that all ranks share" in second
    assert goldens(project) == ["test_small.yaml"]
    (good, first), (bad, second) = launch(project, CHANGED="1")
    assert (good, bad) == (0, 1)
    assert "fails on 1 of 2 ranks: 1 (block/conv.2:output.0)" in first


@pytest.mark.e2e
def test_isolated_ranks_agree_too(project: Project) -> None:
    write(project, "isolation='process'")
    assert [code for code, _ in launch(project, "--npudump-update-golden")] == [0, 0]
    (good, first), (bad, second) = launch(project, CHANGED="1")
    assert (good, bad) == (0, 1)
    assert "fails on 1 of 2 ranks: 1 (block/conv.2:output.0)" in first
    assert "second run: the failure reproduced" in second


@pytest.mark.parametrize("isolation", ISOLATION)
def test_rank_whose_body_fails_keeps_nobody_waiting_and_nobody_runs_again_without_it(
    project: Project, isolation: str
) -> None:
    write(project, isolation, before="    assert os.environ['RANK'] != os.environ.get('BROKEN')\n")
    assert [code for code, _ in launch(project, "--npudump-update-golden")] == [0, 0]
    before = runs(project, 0)
    (good, first), (bad, _) = launch(project, CHANGED="0", BROKEN="1")
    assert (good, bad) == (1, 1)
    assert "would have to run again together, and rank 1 will not: its run came to no comparison" in first
    assert "fails on 2 of 2 ranks: 0 (block/conv.2:output.0), 1 (not compared)" in first
    assert runs(project, 0) - before == 1


@pytest.mark.parametrize("isolation", ISOLATION)
def test_rank_that_is_late_does_not_run_again_alone(project: Project, isolation: str) -> None:
    slow = f"""{WAIT}
    if "SLOW" in os.environ:
        meet("begun")
{BODY}
    if os.environ["RANK"] == os.environ.get("SLOW"):
        wait_for("finished-1")
"""
    write(project, isolation, body=slow)
    assert [code for code, _ in launch(project, "--npudump-update-golden")] == [0, 0]
    impatient(project, 1)
    with project.path.joinpath("conftest.py").open("a") as conftest:
        conftest.write(FINISHED)
    before = [runs(project, 0), runs(project, 1)]
    (bad, first), (good, _) = launch(project, CHANGED="0", SLOW="0")
    assert (bad, good) == (1, 0)
    assert "second run: not run: all 2 ranks would have to run again together, and nothing came from" in first
    assert [runs(project, 0) - before[0], runs(project, 1) - before[1]] == [1, 1]


def test_ranks_of_several_parents_meet_at_the_master_s_address(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(project)
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", "29517")
    assert [code for code, _ in launch(project, "--npudump-update-golden", apart=True)] == [0, 0]
    (good, first), (bad, second) = launch(project, apart=True, CHANGED="1")
    assert (good, bad) == (0, 1)
    assert "fails on 1 of 2 ranks: 1 (block/conv.2:output.0)" in first
    assert "second run: the failure reproduced" in second


def test_ranks_that_cannot_meet_wait_once_and_say_so_once(project: Project) -> None:
    write(project)
    impatient(project, 2)
    assert [code for code, _ in launch(project, "--npudump-update-golden", apart=True)] == [0, 0]
    (good, first), (bad, second) = launch(project, apart=True, CHANGED="1")
    assert (good, bad) == (0, 1)
    words = "did not come: start all ranks by one launcher, or set MASTER_ADDR and MASTER_PORT for all"
    assert first.count(f"npudump: rank 1 {words}") == 1
    assert second.count(f"npudump: rank 0 {words}") == 1
    assert f"second run: not run: all 2 ranks would have to run again together, and rank 0 {words}" in second


def test_ranks_that_meet_on_another_machine_wait_for_nobody(project: Project) -> None:
    write(project, "ranks='same'")
    ((code, output),) = launch(
        project, "--npudump-update-golden", size=1, RANK="1", WORLD_SIZE="2", MASTER_ADDR="192.0.2.7"
    )
    assert code == 0
    assert "rank 1 of 2: rank 0 records the golden that all ranks share; it was not compared with" in output
    assert not project.path.joinpath("golden").exists()


@pytest.mark.parametrize("marker", ["", ", isolation='process'", ", golden_tensors=['block/conv.2']"])
def test_golden_that_does_not_hold_for_every_rank_is_not_recorded(project: Project, marker: str) -> None:
    write(project, f"ranks='same'{marker}")
    results = launch(project, "--npudump-update-golden", CHANGED="1")
    assert [code for code, _ in results] == [1, 1]
    for _, output in results:
        assert "nothing was recorded: ranks='same', and rank 1 differs from rank 0 in block/conv.2" in output
        assert "give each rank a golden of its own with ranks='each'" in output
    assert not project.path.joinpath("golden").exists()


@pytest.mark.parametrize("marker", ISOLATION)
def test_shared_golden_with_tensors_is_recorded_by_the_second_run_of_all(
    project: Project, marker: str
) -> None:
    write(project, f"ranks='same', golden_tensors=['block/conv.2'], {marker}")
    results = launch(project, "--npudump-update-golden")
    assert [code for code, _ in results] == [0, 0]
    assert "it holds for this rank" in results[1][1]
    assert goldens(project) == ["test_small.yaml"]
    assert [path.name for path in project.path.rglob("*.safetensors")] == ["test_small.safetensors"]
    assert [runs(project, 0), runs(project, 1)] == [2, 2]
    assert [code for code, _ in launch(project)] == [0, 0]


@pytest.mark.parametrize(
    ("marker", "broken"), [(ISOLATION[0], "0"), (ISOLATION[0], "1"), (ISOLATION[1], "1")]
)
def test_shared_golden_is_not_recorded_where_a_rank_has_nothing_to_compare(
    project: Project, marker: str, broken: str
) -> None:
    before = "    assert os.environ['RANK'] != os.environ.get('BROKEN')\n"
    write(project, f"ranks='same', {marker}", before=before)
    results = launch(project, "--npudump-update-golden", BROKEN=broken)
    assert [code for code, _ in results] == [1, 1]
    _, output = results[1 - int(broken)]
    assert (
        f"nothing was recorded: ranks='same', and rank {broken} has nothing to compare: its run came"
        in output
    )
    assert not project.path.joinpath("golden").exists()


EXCEPTION = f"""{WAIT}
    import contextlib
    from pytest_npudump.emulator.faults import fail
    from pytest_npudump.errors import NpudumpError
    meet("begun")
    if os.environ["RANK"] == "1":
        fail("block/conv.2")
    with npu_dump.load_model("small.onnx") as model, contextlib.suppress(NpudumpError):
        model.run(np.linspace(-1, 1, 64, dtype=np.float32).reshape(1, 1, 8, 8))
    meet("ran")
"""


@pytest.mark.parametrize("isolation", ["none", "process"])
def test_rank_is_not_blamed_for_an_exception_of_another_in_a_folder_of_all(
    project: Project, isolation: str
) -> None:
    write(project, f"scene='exception', isolation='{isolation}'", body=EXCEPTION)
    (good, first), (bad, second) = launch(project, ASCEND_DUMP_PATH=str(project.path / "all"))
    assert (good, bad) == (0, 1), first + second
    assert f"exception dumps of device 1 in {project.path}/all/extra-info/data-dump are left to" in first
    assert "test_small.py::test_small fails on 1 of 2 ranks: 1 (block/conv.2)" in first
    assert "block/conv.2 (Conv) failed on the NPU (device 1, " in second


def test_golden_of_another_number_of_ranks_does_not_count(project: Project) -> None:
    write(project)
    launch(project, "--npudump-update-golden")
    ((code, output),) = launch(project, size=1)
    assert code == 1
    assert "no golden file" in output


@pytest.mark.e2e
def test_xdist_and_ranks_do_not_go_together(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    project.marked()
    result = project.run("-n1")
    assert result.ret != 0
    result.stdout.fnmatch_lines(["*this is rank 0 of 2, and all ranks run one test at a time: leave out -n*"])


def test_variables_of_a_launcher_are_nobody_s_business_without_a_marked_test(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "nonsense")
    monkeypatch.setenv("WORLD_SIZE", "2")
    project.test_file("def test_plain():\n    pass\n")
    project.run().assert_outcomes(passed=1)
    project.marked()
    result = project.run()
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.fnmatch_lines(["*the variable RANK is 'nonsense', expected a number from 0"])


SEVERAL = """
    folder = next(npu_dump._test.attempt.dump_path.glob("*"))
    shutil.copytree(folder / "0", folder / "1")
    if os.environ.get("CHANGED"):
        (path,) = (folder / "1").rglob("Softmax.head_softmax.*.csv")
        path.write_text(path.read_text().replace("0.", "0.9"))
"""


@pytest.fixture
def several(project: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A test whose dump holds two devices that computed the same."""
    monkeypatch.setenv("RANK", "0")
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    write(project, "ranks='same'", body=BODY + SEVERAL)
    return project


def test_devices_of_one_dump_share_a_golden_that_names_none(several: Project) -> None:
    several.record()
    assert "device" not in several.golden.read_text().split("tensors:")[1]
    several.run().assert_outcomes(passed=1)


def test_devices_that_share_a_golden_are_not_calibrated(several: Project) -> None:
    several.record()
    before = several.golden.read_bytes()
    for update in ((), ("--npudump-update-golden",)):
        result = several.run("--npudump-calibrate=3", *update)
        result.assert_outcomes(failed=1)
        result.stdout.fnmatch_lines(["*not calibrated: device 0, device 1 have one golden, and only one of*"])
        assert several.golden.read_bytes() == before


def test_ranks_are_not_calibrated(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    project.marked()
    project.record()
    before = project.golden.read_bytes()
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    result = project.run("--npudump-calibrate=3")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        ["*--npudump-calibrate measures a test in one process, and this one is rank 1 of 2*"]
    )
    assert project.golden.read_bytes() == before


def test_device_that_differs_from_the_shared_golden_is_named(
    several: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    several.record()
    monkeypatch.setenv("CHANGED", "1")
    result = several.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "npudump: device 1: head/softmax (Softmax output.0) differs: *",
            "note: device 1 of 2 differ; shown is device 1",
        ]
    )


def test_golden_is_not_recorded_where_devices_that_share_it_differ(
    several: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHANGED", "1")
    result = several.run("--npudump-update-golden")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["npudump: nothing was recorded: ranks='same', and device 1 differs from device 0 in *"]
    )
    assert not several.path.joinpath("golden").exists()
